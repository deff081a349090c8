//! Event loops of asyncio and runs of trio that threads are in now, and what each of them may still run.
//!
//! In: the frames of a process's threads. Out: [`Loop`]s, with the task that `run_until_complete` waits for, and the callbacks,
//! timers and watched descriptors by which the loop goes on. A loop is recognised by its own structure, not by where its code
//! lies. A loop written in C or Cython has no such frames, so its tasks are not judged here.

use super::threading_objects::method;
use crate::image::Addr;
use crate::limits::cpython::TASKS_WAITING;
use crate::python::inspect::{Inspector, frames_of};
use crate::python::objects::Objects;
use crate::python::reach;

/// The method in which a loop does one turn, and the one in which a handle calls back.
const TURN: &str = "_run_once";
const CALLS_BACK: &str = "_run";
/// The method that runs a loop until a future is done, which it has in this variable.
const UNTIL: (&str, &str) = ("run_until_complete", "future");

/// A loop that a thread runs.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    /// The loop's object.
    pub(super) object: Addr,
    /// The thread that runs it.
    pub(super) tid: i32,
    /// The frame of the thread in which the loop takes its turns; null where that is not read.
    pub(super) turn: Addr,
    /// The future or task at whose end the loop stops.
    pub(super) root: Option<Addr>,
    /// The thread waits in the loop's selector: no callback is running.
    pub(super) is_idle: bool,
    /// The descriptors by which other threads wake the loop, from which only the loop itself reads.
    pub(super) wake_up_descriptors: Vec<i32>,
    /// It has timers: the next of them ends the thread's wait, whatever its descriptors do.
    pub(super) has_timers: bool,
    /// Timers, callbacks that are ready, and callbacks of watched descriptors; `None` where they could not be read.
    pub(super) runs: Option<Vec<Addr>>,
    /// The watched descriptors among them, each with the key that has its callbacks.
    pub(super) watched: Vec<(i32, Addr)>,
    /// Tasks of trio that wait for descriptors.
    pub(super) watching: Vec<Addr>,
    /// Its handlers for signals.
    pub(super) signal_handlers: Option<Addr>,
}

/// All loops that threads of the process run now.
pub(super) fn all(inspector: &Inspector<'_>) -> Vec<Loop> {
    let mut found: Vec<Loop> = Vec::new();
    for (_, thread) in inspector.living() {
        let Some(tid) = thread.tid else { continue };
        let mut is_idle = true;
        for frame in frames_of(thread) {
            let own = || inspector.frame(frame).and_then(|open| open.first());
            match method(frame) {
                CALLS_BACK if own().is_some_and(|handle| inspector.objects().member(handle, "_callback").is_some()) => {
                    is_idle = false;
                }
                TURN => {
                    found.extend(own().and_then(|object| {
                        Some(Loop { turn: frame.address, ..read(inspector, object, tid, is_idle)? })
                    }));
                    is_idle = true;
                }
                name if name == UNTIL.0 => {
                    let root = inspector.frame(frame).and_then(|open| open.variable(UNTIL.1));
                    if let Some(last) = found.last_mut().filter(|last| last.tid == tid && last.root.is_none()) {
                        last.root = root;
                    }
                }
                _ => {}
            }
        }
    }
    found
}

fn read(inspector: &Inspector<'_>, object: Addr, tid: i32, is_idle: bool) -> Option<Loop> {
    let objects = inspector.objects();
    let scheduled = objects.attribute(object, "_scheduled")?;
    let ready = objects.attribute(object, "_ready")?;
    let selector = objects.attribute(object, "_selector");
    let wake_up_descriptors: Vec<i32> = objects
        .attribute(object, "_ssock")
        .and_then(|socket| reach::descriptor_of(objects, socket))
        .into_iter()
        .collect();
    let list = |list: Addr| objects.sequence(list, TASKS_WAITING as u64);
    let map = selector.and_then(|selector| objects.items(objects.attribute(selector, "_fd_to_key")?));
    // A key is a tuple of the file, its number, the events and what is called back.
    let number = |key: Addr| {
        let parts = objects.sequence(key, 4)?;
        objects.unsigned(*parts.get(1)?).and_then(|number| i32::try_from(number).ok())
    };
    let keys: Option<Vec<Addr>> = map.map(|items| items.into_iter().map(|(_, key)| key).collect());
    let is_own = |key: Addr| number(key).is_some_and(|number| wake_up_descriptors.contains(&number));
    let keys: Option<Vec<Addr>> = keys.map(|keys| keys.into_iter().filter(|key| !is_own(*key)).collect());
    let watched = keys.iter().flatten().filter_map(|key| Some((number(*key)?, *key))).collect();
    let timers = list(scheduled);
    let has_timers = timers.as_ref().is_some_and(|timers| !timers.is_empty());
    let runs = timers.zip(list(ready)).zip(keys);
    Some(Loop {
        object,
        tid,
        turn: Addr(0),
        root: None,
        is_idle,
        wake_up_descriptors,
        has_timers,
        runs: runs.map(|((scheduled, ready), keys)| {
            with_handler_of_exceptions(objects, object, scheduled.into_iter().chain(ready).chain(keys).collect())
        }),
        watched,
        watching: Vec::new(),
        signal_handlers: objects.attribute(object, "_signal_handlers"),
    })
}

/// These callbacks of a loop, and what the loop calls if one of them raises: the program's own handler, which it may have set.
pub(super) fn with_handler_of_exceptions(objects: &Objects<'_>, event_loop: Addr, mut runs: Vec<Addr>) -> Vec<Addr> {
    let handler = objects.attribute(event_loop, "_exception_handler").filter(|handler| !objects.is_none(*handler));
    if !runs.is_empty() {
        runs.extend(handler);
    }
    runs
}

/// The method of trio that polls the kernel for events.
const ASKS_THE_KERNEL: &str = "get_events";

/// A run of trio as a loop: its parts are those of asyncio's under other names.
pub(super) fn of_trio(inspector: &Inspector<'_>, runner: Addr, tid: i32) -> Option<Loop> {
    let objects = inspector.objects();
    let part = |object: Addr, name: &str| objects.member(object, name).filter(|part| !objects.is_none(*part));
    let io_manager = part(runner, "io_manager")?;
    let entry_queue = part(runner, "entry_queue")?;
    let pairs = [part(entry_queue, "wakeup"), part(io_manager, "_force_wakeup")];
    let sockets = pairs.into_iter().flatten().filter_map(|pair| part(pair, "wakeup_sock"));
    let innermost = inspector.stack(tid).next();
    let runs = [part(runner, "runq"), part(entry_queue, "queue")];
    let deadlines = part(runner, "deadlines").and_then(|deadlines| objects.sequence(part(deadlines, "_heap")?, 1));
    let waiters = objects.items(part(io_manager, "_registered")?)?.into_iter().map(|(_, waiters)| waiters);
    let watching = waiters.flat_map(|waiters| ["read_task", "write_task"].map(|name| part(waiters, name)));
    Some(Loop {
        object: runner,
        tid,
        turn: Addr(0),
        root: part(runner, "main_task"),
        is_idle: innermost.is_some_and(|frame| method(frame) == ASKS_THE_KERNEL),
        wake_up_descriptors: sockets.filter_map(|socket| reach::descriptor_of(objects, socket)).collect(),
        has_timers: deadlines.is_none_or(|deadlines| !deadlines.is_empty()),
        runs: runs.into_iter().collect(),
        watched: Vec::new(),
        watching: watching.flatten().collect(),
        signal_handlers: None,
    })
}
