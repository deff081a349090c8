//! Names for the things of a report: threads, resources, calls.
//!
//! In: a [`Report`]. Out: short strings, neither escaped nor wrapped. Spaces that must not become line breaks are
//! no-break spaces. This module lays nothing out, and decides nothing: the report has the call sites and the victims.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::report::{
    CallSite, Callback, Certainty, Finding, Frame, Hold, Process, Report, Resource, Thread, Wait, base_name,
    short_function, short_path, short_word,
};
use crate::waits::kinds::{Holding, World};
use crate::waits::label::Called;

/// The longest name of a thread or process that is shown, in characters.
const LONGEST_NAME: usize = 64;

/// Processes that are named where the same was found in several.
const PROCESSES_NAMED: usize = 3;

/// Stands for a space inside a name until the lines are broken.
pub(super) const NO_BREAK: char = '\u{a0}';

/// A thread's key: process id string and tid.
pub(super) type Key<'a> = (&'a str, i32);

/// A report with indices over it.
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
    processes: HashMap<&'a str, &'a Process>,
    threads: HashMap<Key<'a>, &'a Thread>,
    resources: HashMap<&'a str, &'a Resource>,
    waits: HashMap<Key<'a>, Vec<&'a Wait>>,
    holds: HashMap<&'a str, Vec<&'a Hold>>,
    held: HashMap<Key<'a>, Vec<&'a Hold>>,
    arrow: &'static str,
}

impl<'a> View<'a> {
    /// Index `report`; `arrow` stands between a call and its caller.
    pub(super) fn new(report: &'a Report, arrow: &'static str) -> View<'a> {
        let mut view = View {
            report,
            processes: report.processes.iter().map(|process| (process.id.as_str(), process)).collect(),
            threads: HashMap::new(),
            resources: report.resources.iter().map(|resource| (resource.id.as_str(), resource)).collect(),
            waits: HashMap::new(),
            holds: HashMap::new(),
            held: HashMap::new(),
            arrow,
        };
        for process in &report.processes {
            for thread in &process.threads {
                view.threads.insert((process.id.as_str(), thread.tid), thread);
            }
        }
        for wait in &report.waits {
            if let Some(tid) = wait.tid {
                view.waits.entry((wait.process.as_str(), tid)).or_default().push(wait);
            }
        }
        for hold in &report.holds {
            view.holds.entry(hold.resource.as_str()).or_default().push(hold);
            if let Some(tid) = hold.tid {
                view.held.entry((hold.process.as_str(), tid)).or_default().push(hold);
            }
        }
        view
    }

    pub(super) fn thread(&self, process: &str, tid: i32) -> Option<&'a Thread> {
        self.threads.get(&(process, tid)).copied()
    }

    pub(super) fn resource(&self, id: &str) -> Option<&'a Resource> {
        self.resources.get(id).copied()
    }

    pub(super) fn waits_of<'b>(&'b self, process: &'b str, tid: i32) -> &'b [&'a Wait] {
        self.waits.get(&(process, tid)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn holds_of<'b>(&'b self, resource: &'b str) -> &'b [&'a Hold] {
        self.holds.get(resource).map_or(&[], Vec::as_slice)
    }

    /// The holds of a thread.
    pub(super) fn holds_by<'b>(&'b self, process: &'b str, tid: i32) -> impl Iterator<Item = &'a Hold> + use<'a, 'b> {
        self.held.get(&(process, tid)).into_iter().flatten().copied()
    }

    /// `MainThread (533)`; with several processes `python3 885: MainThread (533)`.
    pub(super) fn thread_name(&self, process: &str, tid: i32) -> String {
        let name = match self.thread(process, tid) {
            // Python's names of threads have no limit.
            Some(thread) if !thread.name.trim().is_empty() => {
                format!("{} ({tid})", super::shortened(&thread.name, LONGEST_NAME))
            }
            _ => format!("thread {tid}"),
        };
        let name = match self.report.processes.len() {
            0 | 1 => name,
            _ => format!("{}: {name}", self.process_name(process)),
        };
        keep_together(&name)
    }

    /// A thread, or where no thread is known its whole process.
    pub(super) fn party_name(&self, process: &str, tid: Option<i32>) -> String {
        tid.map_or_else(|| self.process_name(process), |tid| self.thread_name(process, tid))
    }

    /// The name of a holder. A holder that is gone is no thread of its process.
    pub(super) fn holder_name(&self, hold: &Hold) -> String {
        if hold.gone.is_some() { lost_owner(hold) } else { self.party_name(&hold.process, hold.tid) }
    }

    /// `python3 12, python3 13 and 2 more`: the other processes in which the same was found.
    pub(super) fn also_found_in(&self, finding: &Finding) -> Option<String> {
        let names: Vec<String> =
            self.report.also_found_in(finding).into_iter().map(|process| self.process_name(process)).collect();
        let more = names.len().saturating_sub(PROCESSES_NAMED);
        let shown = names.get(..PROCESSES_NAMED).unwrap_or(&names).join(", ");
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!names.is_empty()).then(|| format!("{shown}{more}"))
    }

    /// `python3 885`.
    pub(super) fn process_name(&self, id: &str) -> String {
        match self.processes.get(id) {
            Some(Process { identity: Some(identity), cluster, pid, .. }) if self.report.job.is_some() => {
                let role = |cluster: &crate::report::ClusterMember| {
                    let role = cluster.roles.first()?;
                    Some(format!("{} {}", role.role.name(), role.name.clone().unwrap_or_else(|| pid.to_string())))
                };
                let role = || cluster.as_ref().and_then(role).unwrap_or_else(|| id.to_owned());
                let rank = identity.rank.filter(|_| cluster.is_none()).map_or_else(role, |rank| format!("rank {rank}"));
                let host = identity.host.as_ref().and_then(|host| host.name.as_deref());
                keep_together(&host.map_or_else(|| rank.clone(), |host| format!("{rank} on {host}")))
            }
            Some(process) => {
                let program = process.exe.as_deref().or(process.cmdline.first().map(String::as_str));
                keep_together(&format!("{} {}", program.map_or("process", base_name), process.pid))
            }
            None => keep_together(&format!("process {id}")),
        }
    }

    /// `the GIL`, `rwlock 0x33b84080`, "rwlock `g_ctx` 0x7f10 in libcuda.so.1".
    pub(super) fn resource_name(&self, id: &str) -> String {
        self.called(id).to_string()
    }

    /// The same, without the address if it has a name.
    pub(super) fn short_name(&self, id: &str) -> String {
        self.resource(id).map_or_else(|| self.resource_name(id), |resource| resource.called_shortly().to_string())
    }

    /// The same of many like it.
    pub(super) fn resource_in_general(&self, id: &str) -> String {
        self.resource(id).map_or_else(|| self.resource_name(id), |resource| resource.called_in_general().to_string())
    }

    fn called(&self, id: &str) -> Called {
        let unknown = || Called { wanted: None, thing: keep_together(&format!("resource {id}")), work: None };
        self.resource(id).map_or_else(unknown, Resource::called)
    }

    /// `waits for rwlock 0x33b84080 (read)`.
    pub(super) fn wait_statement(&self, wait: &Wait) -> String {
        self.statement(wait, "waits", &self.resource_name(&wait.resource))
    }

    /// `wait for rwlock (read)`, of many threads.
    fn wait_statement_in_general(&self, wait: &Wait) -> String {
        self.statement(wait, "wait", &self.resource_in_general(&wait.resource))
    }

    fn statement(&self, wait: &Wait, verb: &str, resource: &str) -> String {
        let mut statement = format!("{verb} for {resource}");
        if let Some(mode) = &wait.mode {
            statement.push_str(&format!(" ({mode})"));
        }
        if wait.timed {
            statement.push_str(" (with a time-out)");
        }
        statement
    }

    /// A holder's relation to a resource: "holds the GIL", "runs in child process 12".
    pub(super) fn held(&self, id: &str) -> String {
        let holding = self.resource(id).map_or(Holding::Holds, |resource| resource.properties().holding);
        holding.held(&self.called(id))
    }

    /// `holds rwlock 0x33b84080 (write)`.
    pub(super) fn hold_statement(&self, hold: &Hold) -> String {
        let mode = hold.mode.as_ref().map(|mode| format!(" ({mode})")).unwrap_or_default();
        let name = self.resource_name(&hold.resource);
        if hold.certainty == Certainty::Candidate {
            let kind = self.resource(&hold.resource).map_or(Holding::Holds, |one| one.properties().holding);
            return kind.possibly(&name, hold.taken.is_some()) + &mode;
        }
        format!("{}{mode}", self.held(&hold.resource))
    }

    /// The call in which a thread waits, and the line of the program that made it; or the callback in which it does.
    pub(super) fn wait_call(&self, wait: &Wait) -> Option<String> {
        let thread = self.thread(&wait.process, wait.tid?)?;
        let call = || self.call(thread, &wait.at);
        match wait.callback {
            None => call(),
            Some(Callback { frame: Some(frame) }) => {
                let callback = thread.frames.get(frame)?;
                let place = place(callback).map(|place| format!(" at {place}")).unwrap_or_default();
                Some(format!("its callback {}{place}", function_name(callback)))
            }
            Some(Callback { frame: None }) => {
                let called = thread.frames.get(wait.at.call?)?;
                Some(format!("its callback, on the way into Python ({})", function_name(called)))
            }
        }
    }

    /// The line of the program at which a thread waits: `train.py:56`.
    pub(super) fn wait_line(&self, wait: &Wait) -> Option<String> {
        let named = |file: &str, line: u32| format!("{}:{line}", base_name(file));
        if let Some(place) = &wait.place {
            return Some(named(&place.file, place.line));
        }
        let thread = self.thread(&wait.process, wait.tid?)?;
        let sites = [wait.at.call, wait.at.caller].into_iter().flatten();
        let mut frames = sites.filter_map(|index| thread.frames.get(index));
        let frame = frames.find(|frame| frame.belongs_to.is_none() && frame.line.is_some())?;
        Some(named(frame.file.as_deref()?, frame.line?))
    }

    /// The call that took what is held.
    pub(super) fn hold_call(&self, hold: &Hold) -> Option<String> {
        self.call(self.thread(&hold.process, hold.tid?)?, &hold.at)
    }

    fn is_event_loop(&self, resource: &str) -> bool {
        let kind = self.resource(resource).map(|one| one.properties());
        kind.is_some_and(|kind| kind.world == World::EventLoop && !kind.is_lock())
    }

    /// The wait of a thread, or its state.
    pub(super) fn doing(&self, process: &str, thread: &Thread) -> String {
        self.doing_as(process, thread, |wait| self.wait_statement(wait) + &self.held_by(wait))
    }

    /// The holder of the lock that a thread waits for: ", held by orders (12)".
    pub(super) fn holder_of(&self, process: &str, thread: &Thread) -> String {
        match self.waits_of(process, thread.tid) {
            [wait] => self.held_by(wait),
            _ => String::new(),
        }
    }

    /// ", held by orders (12)", where that is known of a lock.
    fn held_by(&self, wait: &Wait) -> String {
        let is_lock = self.resource(&wait.resource).is_some_and(|one| one.properties().holding == Holding::Holds);
        let holders =
            self.holds_of(&wait.resource).iter().filter(|hold| is_lock && hold.certainty > Certainty::Candidate);
        match holders.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            [hold] => format!(", held by {}{}", self.holder_name(hold), took_at(hold)),
            [hold, more @ ..] => format!(", held by {} and {} more", self.holder_name(hold), more.len()),
        }
    }

    /// The same of several threads that wait for things like these: without addresses.
    pub(super) fn doing_in_general(&self, process: &str, thread: &Thread) -> String {
        self.doing_as(process, thread, |wait| self.wait_statement_in_general(wait))
    }

    /// The same, without the address if the resource has a name.
    pub(super) fn doing_shortly(&self, process: &str, thread: &Thread) -> String {
        self.doing_as(process, thread, |wait| self.statement(wait, "waits", &self.short_name(&wait.resource)))
    }

    fn doing_as(&self, process: &str, thread: &Thread, statement: impl Fn(&Wait) -> String) -> String {
        match self.waits_of(process, thread.tid) {
            [wait] => statement(wait),
            [wait, more @ ..] => format!("{} or {} more", statement(wait), more.len()),
            [] => thread.state.as_str().to_owned(),
        }
    }

    /// The call in which a thread waits, or where it is.
    pub(super) fn call_of(&self, process: &str, thread: &Thread) -> Option<String> {
        match self.waits_of(process, thread.tid) {
            [wait, ..] => self.wait_call(wait),
            [] => self.where_is(thread),
        }
    }

    /// Frames of a thread that wait or took something, with words for it.
    pub(super) fn marks(&self, process: &str, thread: &Thread) -> Vec<(usize, String)> {
        let waiting: BTreeSet<usize> =
            self.waits_of(process, thread.tid).iter().filter_map(|wait| wait.frame).collect();
        let took = self.holds_by(process, thread.tid).filter_map(|hold| {
            let holding = self.resource(&hold.resource).map_or(Holding::Holds, |one| one.properties().holding);
            let words = match (holding, &hold.taken) {
                (Holding::Holds, Some(taken)) => {
                    format!("took {} at line {}", self.short_name(&hold.resource), taken.line)
                }
                // A loop is nothing that is taken.
                (Holding::Holds, None) if self.is_event_loop(&hold.resource) => {
                    format!("runs {}", self.short_name(&hold.resource))
                }
                (Holding::Holds, None) => format!("took {}", self.short_name(&hold.resource)),
                _ => self.held(&hold.resource),
            };
            Some((hold.frame?, words))
        });
        let mut marks: Vec<(usize, String)> = Vec::new();
        for mark in waiting.into_iter().map(|frame| (frame, "waits here".to_string())).chain(took) {
            if !marks.contains(&mark) {
                marks.push(mark);
            }
        }
        marks
    }

    /// Each thread with the id of its process.
    pub(super) fn each_thread(&self) -> impl Iterator<Item = (&'a str, &'a Thread)> + use<'a> {
        let processes = self.report.processes.iter();
        processes.flat_map(|process| process.threads.iter().map(move |thread| (process.id.as_str(), thread)))
    }

    /// The place of a thread without a known wait.
    pub(super) fn where_is(&self, thread: &Thread) -> Option<String> {
        self.call(thread, &thread.at)
    }

    /// `cuLaunchKernel <- train.py:56 step`.
    fn call(&self, thread: &Thread, site: &CallSite) -> Option<String> {
        let called = thread.frames.get(site.call?)?;
        let own = site.is_own_line(called.file.is_some(), called.library);
        let call = if own { line_and_function(called) } else { function_name(called) };
        Some(match site.caller.and_then(|caller| thread.frames.get(caller)) {
            Some(caller) => format!("{call} {}{NO_BREAK}{}", self.arrow, line_and_function(caller)),
            None => call,
        })
    }

    /// Threads that cannot go on because of the incidents.
    pub(super) fn victims(&self) -> HashSet<Key<'a>> {
        self.report.victims.iter().map(|one| (one.process.as_str(), one.tid)).collect()
    }
}

/// ", which took it at orders.py:12 place_order", where the recorder saw that.
fn took_at(hold: &Hold) -> String {
    let taken = hold.taken.as_ref().filter(|_| hold.source.is_some());
    taken.map_or_else(String::new, |taken| {
        format!(", which took it at {}:{} {}", base_name(&taken.file), taken.line, short_function(&taken.function))
    })
}

/// "thread 543, gone".
pub(super) fn lost_owner(hold: &Hold) -> String {
    let name = hold.tid.map_or_else(|| "lost owner".to_string(), |tid| format!("thread {tid}"));
    keep_together(&format!("{name}, gone"))
}

/// A function's name without a symbol version, else module and offset.
pub(super) fn function_name(frame: &Frame) -> String {
    let name = match (&frame.function, &frame.module) {
        (Some(function), _) => short_function(function),
        (None, Some(module)) => {
            let module = base_name(module);
            match (&frame.module_offset, &frame.pc) {
                (Some(offset), _) => format!("{module}+{offset}"),
                (None, Some(pc)) => format!("{module} at {pc}"),
                (None, None) => module.to_string(),
            }
        }
        (None, None) => frame.pc.clone().unwrap_or_else(|| "??".to_string()),
    };
    keep_together(&name)
}

/// `train.py:56`.
pub(super) fn place(frame: &Frame) -> Option<String> {
    let file = short_word(short_path(frame.file.as_deref()?));
    Some(keep_together(&match frame.line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_string(),
    }))
}

/// Where a frame is: `train.py:56`, else its module.
pub(super) fn place_or_module(frame: &Frame) -> Option<String> {
    let module = || frame.module.as_deref().filter(|_| frame.function.is_some());
    place(frame).or_else(|| module().map(|module| keep_together(base_name(module))))
}

/// Keep a name on one line: its spaces do not break.
pub(super) fn keep_together(name: &str) -> String {
    name.replace(' ', "\u{a0}")
}

/// `train.py:56 step`.
fn line_and_function(frame: &Frame) -> String {
    match place(frame) {
        Some(place) => format!("{place} {}", function_name(frame)),
        None => function_name(frame),
    }
}
