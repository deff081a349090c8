//! The first sentence of a report without a hang, where more waits than the main thread: about the holder of a lock that several threads
//! want, or the one thing that all of them wait for. Also the words about children that have died.
//!
//! In: the judged sample. Out: sentences, and the threads that they are about. It decides nothing.

use std::collections::BTreeMap;

use super::call_sites;
use super::context::Context;
use super::summary::library_threads;
use crate::report::{short_function, short_path};
use crate::threads::{Frame, FrameKind};
use crate::waits::kinds::Topic;
use crate::waits::model::{Completion, Role, Scope};
use crate::waits::{Hold, Party, ResourceKey, Wait};

/// A first sentence.
pub(super) struct Foremost {
    pub(super) sentence: String,
    /// Whom it is about, the most important first.
    pub(super) parties: Vec<Party>,
    /// The thing that they wait for, where they are tasks.
    pub(super) awaited: Option<ResourceKey>,
}

/// The sentence about threads that wait behind each other or side by side. Idle threads do not count.
pub(super) fn of(context: &Context<'_>) -> Option<Foremost> {
    let of_threads = behind_one(context).or_else(|| side_by_side(context));
    of_threads.or_else(|| tasks_side_by_side(context)).or_else(|| behind_a_join(context))
}

fn wait_of<'c>(context: &'c Context<'_>, party: &Party) -> Option<&'c Wait> {
    context.input.observations.waits.iter().find(|wait| wait.waiter == *party)
}

/// Several threads want a lock, and who has it waits for something else. One is enough where the main thread waits for its end.
fn behind_one(context: &Context<'_>) -> Option<Foremost> {
    let (names, seen) = (context.names, context.input.observations);
    let idle = library_threads(context);
    // Behind a lock with a known holder it is that one which matters.
    let has_holder = |key: &ResourceKey| {
        seen.holds.iter().any(|hold| hold.resource == *key && hold.is_known() && hold.gone.is_none())
    };
    let is_behind = |party: &Party| {
        wait_of(context, party).is_some_and(|wait| wait.resource.kind.is_lock() && has_holder(&wait.resource))
    };
    let locks = seen.holds.iter().filter(|hold| {
        let is_thread = matches!(hold.holder, Party::Thread(..));
        is_thread && hold.is_known() && hold.gone.is_none() && hold.resource.kind.is_lock() && !is_behind(&hold.holder)
    });
    let waiters = |hold: &Hold| -> Vec<&Party> {
        let waits = seen.waits.iter().filter(|wait| wait.resource == hold.resource);
        waits.map(|wait| &wait.waiter).filter(|waiter| !idle.contains(*waiter)).collect()
    };
    let main = context.input.image.processes.first().map(|process| Party::Thread(0, process.pid))?;
    let joins = wait_of(context, &main).is_some_and(|wait| wait.resource.kind.topic == Topic::Thread);
    let least = if joins { 1 } else { 2 };
    let counted = locks.map(|hold| (hold, waiters(hold))).filter(|(_, waiters)| waiters.len() >= least);
    let (hold, waiters) = counted.max_by_key(|(_, waiters)| waiters.len())?;
    let holder = &hold.holder;
    let who = if waiters.len() == 1 { "1 thread waits".to_owned() } else { format!("{} threads wait", waiters.len()) };
    let own = wait_of(context, holder);
    let does = own.map_or(", which is".to_owned(), |wait| format!(", which waits for {}", names.waited_for(wait)));
    let mut call = names.call(holder, own.and_then(|wait| wait.frame));
    call.api = library_call(names.frames(holder)).or(call.api);
    let call = call.phrase();
    let (lock, has_it) = (names.bare(&hold.resource), names.party(holder));
    let parties = std::iter::once(holder).chain(waiters.first().copied()).cloned().collect();
    Some(Foremost { sentence: format!("{who} for {lock}, held by {has_it}{does}{call}"), parties, awaited: None })
}

/// The main thread waits for the end of a thread that waits for something else: that is where it stands.
fn behind_a_join(context: &Context<'_>) -> Option<Foremost> {
    let (names, seen) = (context.names, context.input.observations);
    let main = context.input.image.processes.first().map(|process| Party::Thread(0, process.pid))?;
    let joined = |party: &Party| {
        let wait = wait_of(context, party).filter(|wait| wait.resource.kind.topic == Topic::Thread)?;
        let mut holds = seen.holds.iter().filter(|hold| hold.resource == wait.resource && hold.gone.is_none());
        Some((wait, &holds.next()?.holder))
    };
    let (first, mut last) = joined(&main)?;
    let mut passed = vec![&main];
    while let Some((_, next)) = joined(last).filter(|_| !passed.contains(&last)) {
        passed.push(last);
        last = next;
    }
    let wait = wait_of(context, last).filter(|_| !passed.contains(&last))?;
    let (who, thread) = (names.party(&main), names.waited_for(first));
    let (end, call) = (names.waited_for(wait), names.call(last, wait.frame).phrase());
    let does =
        if passed.len() == 1 { "which waits".to_owned() } else { format!("at whose end {} waits", names.party(last)) };
    let sentence = format!("{who} waits for {thread}, {does} for {end}{call}");
    Some(Foremost { sentence, parties: vec![last.clone(), main], awaited: None })
}

/// The function that Python called, where a library without lines in its frames rests in the C library: `sqlite3_step`, not `clock_nanosleep`.
fn library_call(frames: &[Frame]) -> Option<String> {
    let native = frames.iter().take_while(|frame| frame.kind != FrameKind::Python);
    let is_entry = |frame: &&Frame| frame.file.is_none() && call_sites::is_own(frame) && frame.function.is_some();
    let entry = native.filter(is_entry).last()?;
    entry.function.as_deref().filter(|_| frames.iter().any(|frame| frame.kind == FrameKind::Python)).map(short_function)
}

/// All threads of the program beside the main one wait for the same, or for the same peer.
fn side_by_side(context: &Context<'_>) -> Option<Foremost> {
    let (input, names) = (context.input, context.names);
    let idle = library_threads(context);
    let main = |process: usize| input.image.processes.get(process).map(|image| image.pid);
    let threads = input.threads.iter().enumerate().take(1);
    let parties: Vec<Party> = threads
        .flat_map(|(process, threads)| threads.iter().map(move |thread| (process, thread.tid)))
        .filter(|(process, tid)| main(*process) != Some(*tid))
        .map(|(process, tid)| Party::Thread(process, tid))
        .filter(|party| !idle.contains(party))
        .collect();
    let waits: Vec<&Wait> = parties.iter().map(|party| wait_of(context, party)).collect::<Option<_>>()?;
    let [first, more @ ..] = waits.as_slice() else { return None };
    let peer = |wait: &Wait| match names.described(&wait.resource).and_then(|one| one.role) {
        Some(Role::Connection(address)) => Some(address),
        _ => None,
    };
    let is_same = |wait: &&Wait| wait.resource == first.resource || peer(first).is_some() && peer(wait) == peer(first);
    if more.is_empty() || !more.iter().all(is_same) {
        return None;
    }
    let what = match peer(first) {
        Some(address) => {
            let at = names.label(&first.resource).at.unwrap_or_default();
            let who = at.find(" (").and_then(|from| at.get(from..)).unwrap_or_default().to_owned();
            format!("{address}{who} to answer")
        }
        None => names.waited_for(first),
    };
    let call = names.call(&first.waiter, first.frame).phrase();
    Some(Foremost { sentence: format!("{} threads wait for {what}{call}", waits.len()), parties, awaited: None })
}

/// Several tasks of the program want the same lock, unit or signal. Tasks that wait for work are idle.
fn tasks_side_by_side(context: &Context<'_>) -> Option<Foremost> {
    let (names, seen) = (context.names, context.input.observations);
    let is_wanted = |key: &ResourceKey| {
        let role = names.described(key).and_then(|one| one.role);
        matches!(role, Some(Role::Completed(completion)) if !matches!(completion, Completion::Put | Completion::Send))
    };
    let is_task = |party: &Party| matches!(party, Party::Resource(key) if key.kind.topic == Topic::Task);
    let mut wanted: BTreeMap<&ResourceKey, Vec<&Wait>> = BTreeMap::new();
    for wait in seen.waits.iter().filter(|wait| is_task(&wait.waiter) && wait.place.is_some()) {
        wanted.entry(&wait.resource).or_default().push(wait);
    }
    let several = wanted.into_iter().filter(|(key, waits)| waits.len() > 1 && is_wanted(key));
    let (key, waits) = several.max_by_key(|(_, waits)| waits.len())?;
    let holds: Vec<&Hold> = seen.holds.iter().filter(|hold| hold.resource == *key && hold.gone.is_none()).collect();
    let with_unit =
        waits.iter().filter(|wait| holds.iter().any(|hold| hold.holder == wait.waiter && hold.taken.is_some()));
    let by = match (with_unit.count(), holds.iter().find(|hold| hold.is_known())) {
        (0, Some(hold)) => format!(", held by {}", names.party(&hold.holder)),
        (0, None) => String::new(),
        (1, _) => "; one of them has taken it before".to_owned(),
        (count, _) => format!("; {count} of them have taken it before"),
    };
    let place = waits.iter().find_map(|wait| wait.place.as_ref());
    let at = place.map(|at| format!(" at {}:{}", short_path(&at.file), at.line)).unwrap_or_default();
    Some(Foremost {
        sentence: format!("{} tasks await {}{at}{by}", waits.len(), names.resource(key)),
        parties: waits.iter().map(|wait| wait.waiter.clone()).collect(),
        awaited: Some(key.clone()),
    })
}

/// "; its child python3 (12) exited with status 3": of the processes of these parties, where one of them waits for what another process
/// would have given.
pub(super) fn dead_children(context: &Context<'_>, parties: &[Party]) -> String {
    let input = context.input;
    let crosses =
        |wait: &Wait| wait.resource.kind.topic == Topic::Data || matches!(wait.resource.scope, Scope::Shared(..));
    let waits = input.observations.waits.iter().filter(|wait| parties.contains(&wait.waiter) && crosses(wait));
    let processes = waits.filter_map(|wait| match wait.waiter {
        Party::Thread(process, _) => input.image.processes.get(process).map(|image| image.pid),
        _ => None,
    });
    let parents: Vec<i32> = processes.collect();
    let mut dead = input.image.kernel.dead_children.iter().filter(|child| parents.contains(&child.parent));
    let Some(first) = dead.next() else { return String::new() };
    let more = match dead.count() {
        0 => String::new(),
        1 => ", and 1 more child has died".to_owned(),
        count => format!(", and {count} more children have died"),
    };
    format!("; its child {}{more}", first.described())
}
