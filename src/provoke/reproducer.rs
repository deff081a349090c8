//! The predictions of a hang: where each thread of a cycle took what it holds, and where it waits.
//!
//! In: a report, and who knows the file of an address. Out: a [`Prediction`] for each cycle of threads. A place where a
//! lock was taken that the report does not know is [`At::Anywhere`]. A cycle of other things than threads and locks is
//! left out.

use super::{At, Member, NativePlace, Place, Prediction, PythonPlace};
use crate::origin::takes_locks_for_callers;
use crate::report::{Cycle, Edge, Frame, FrameKind, Hold, Report, Resource, TakenAt, Thread, Wait};
use crate::waits::kinds::{Topic, World};

/// Module, build and offset of an address in the process with this id.
pub(crate) type Locate<'l> = &'l dyn Fn(&str, u64) -> Option<NativePlace>;

/// The predictions of a report's cycles.
pub(crate) fn predictions(report: &Report, locate: Locate<'_>) -> Vec<Prediction> {
    let mut predictions: Vec<Prediction> = Vec::new();
    for cycle in &report.cycles {
        let Some(members) = members(report, cycle, locate) else { continue };
        if predictions.iter().all(|known| known.members != members) {
            let resources = cycle.edges.iter().filter_map(|edge| resource(report, &edge.resource));
            let (ends, locks): (Vec<&Resource>, Vec<&Resource>) = resources.partition(|one| is_end(one));
            let mut names: Vec<String> = locks.iter().map(|lock| lock.called_shortly().to_string()).collect();
            let last = names.pop().unwrap_or_default();
            let names = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
            let title = match ends.first() {
                Some(end) => format!("{} is joined under {names}, which it waits for itself", end.called_shortly()),
                None => format!("{names} are taken in different orders"),
            };
            predictions.push(Prediction { title, members });
        }
    }
    predictions
}

fn members(report: &Report, cycle: &Cycle, locate: Locate<'_>) -> Option<Vec<Member>> {
    let edges = cycle.edges.iter();
    let before = cycle.edges.iter().cycle().skip(cycle.edges.len().checked_sub(1)?);
    edges.zip(before).map(|(edge, before)| member(report, before, edge, locate)).collect()
}

/// The thread that holds what one edge is about, and waits by the next.
fn member(report: &Report, holds: &Edge, waits: &Edge, locate: Locate<'_>) -> Option<Member> {
    let (process, tid) = (waits.process.as_str(), waits.waiter?);
    let processes = report.processes.iter().filter(|one| one.id == process);
    let thread = processes.flat_map(|process| &process.threads).find(|thread| thread.tid == tid)?;
    let (held, wanted) = (resource(report, &holds.resource)?, resource(report, &waits.resource)?);
    // No thread can be held before locks of files, of the loader and of the import system.
    let can_be_held = |lock: &Resource| {
        matches!(
            lock.properties().topic,
            Topic::Lock | Topic::ReadWriteLock | Topic::Units | Topic::Gil | Topic::Thread
        )
    };
    if !can_be_held(held) || !can_be_held(wanted) {
        return None;
    }
    let is_hold = |hold: &&Hold| hold.process == process && hold.tid == Some(tid) && hold.resource == held.id;
    let is_wait = |wait: &&Wait| wait.process == process && wait.tid == Some(tid) && wait.resource == wanted.id;
    let (hold, wait) = (report.holds.iter().find(is_hold), report.waits.iter().find(is_wait)?);
    let is_python = held.properties().world == World::Python;
    let place = |lock: &Resource, at| Place { lock: lock.called_shortly().to_string(), at };
    Some(Member {
        thread: thread.name.clone(),
        first: match held.properties().topic {
            Topic::Gil => place(held, At::Gil),
            Topic::Thread => place(held, At::ThreadEnd),
            _ => place(held, taken(process, thread, hold?, is_python, locate)),
        },
        second: place(wanted, if wanted.is_gil() { At::Gil } else { waited(process, thread, wait, wanted, locate) }),
    })
}

fn resource<'r>(report: &'r Report, id: &str) -> Option<&'r Resource> {
    report.resources.iter().find(|resource| resource.id == id)
}

/// Whether it is no lock, but the end of a thread.
fn is_end(resource: &Resource) -> bool {
    resource.properties().topic == Topic::Thread
}

/// Where the thread took what it holds.
fn taken(process: &str, thread: &Thread, hold: &Hold, is_python: bool, locate: Locate<'_>) -> At {
    let unknown = if is_python { At::Unknown } else { At::Anywhere };
    let Some(TakenAt { file, line, function, .. }) = &hold.taken else { return unknown };
    let frame = hold.frame.and_then(|position| thread.frames.get(position));
    match frame.filter(|frame| frame.kind != FrameKind::Python).and_then(|frame| located(process, frame, locate)) {
        // The function may be inlined: the line is looked for in the one that has its code.
        Some(module) => At::Native(NativePlace {
            offset: None,
            function: hold
                .frame
                .and_then(|position| whole_function(&thread.frames, position))
                .or(Some(function.clone())),
            source: Some((file.clone(), *line)),
            ..module
        }),
        None if frame.is_none_or(|frame| frame.kind == FrameKind::Python) => {
            python(file.clone(), *line, function.clone())
        }
        None => unknown,
    }
}

/// Where it waits: the frame that called the lock's function.
fn waited(process: &str, thread: &Thread, wait: &Wait, wanted: &Resource, locate: Locate<'_>) -> At {
    let Some(position) = wait.frame else { return At::Unknown };
    let outer = || thread.frames.iter().skip(position);
    if wanted.properties().world == World::Python {
        let own = outer().find(|frame| frame.kind == FrameKind::Python && !is_locks_own(frame));
        let place = own.and_then(|frame| Some((frame.file.clone()?, frame.line?, frame.function.clone()?)));
        return place.map_or(At::Unknown, |(file, line, function)| python(file, line, function));
    }
    let callers: Vec<&Frame> = outer().skip(1).take_while(|frame| frame.kind != FrameKind::Python).collect();
    let Some(call) = callers.first().and_then(|frame| located(process, frame, locate)) else { return At::Unknown };
    let source = callers.first().and_then(|frame| Some((frame.file.clone()?, frame.line?)));
    At::Native(NativePlace { function: whole_function(&thread.frames, position + 1), source, ..call })
}

/// The function that a frame's code is in: inlined calls stand before it, at the same address.
fn whole_function(frames: &[Frame], position: usize) -> Option<String> {
    let address = frames.get(position)?.pc.as_ref()?;
    let same = frames.iter().skip(position).take_while(|frame| frame.pc.as_ref() == Some(address));
    same.last()?.function.clone()
}

fn located(process: &str, frame: &Frame, locate: Locate<'_>) -> Option<NativePlace> {
    let pc = u64::from_str_radix(frame.pc.as_deref()?.strip_prefix("0x")?, 16).ok()?;
    locate(process, pc)
}

fn python(file: String, line: u32, function: String) -> At {
    let text = std::fs::read_to_string(&file).ok();
    let text = text.as_deref().and_then(|text| text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?));
    At::Python(PythonPlace { text: text.map(|text| text.trim().to_owned()), file, line, function, caller: None })
}

/// Frames that take a lock for whoever calls them.
fn is_locks_own(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(takes_locks_for_callers)
}
