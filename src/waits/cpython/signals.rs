//! The effects that Python's signal handlers could have on a wait.
//!
//! In: the signals that a process has handlers for. Out: for each, whether its handler could end a wait. The interpreter keeps
//! its handlers in a table of 65 pairs, a flag and a function, which is found by its shape; a handler that the table does not
//! have is one of native code. A handler of Python runs in the main thread, when that comes back from its call.

use super::Facts;
use crate::image::{Addr, MemoryExt};
use crate::limits::python::SEARCHED_VARIABLES;
use crate::python::inspect::Inspector;
use crate::python::reach::Reached;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::family::Way;
use crate::waits::kinds::Topic;
use crate::waits::model::{Role, Waker};
use crate::waits::thread::Process;

/// Pairs of the table: NSIG of Linux.
const PAIRS: usize = 65;
/// Bytes that are searched at once.
const PIECE: u64 = 1 << 16;
/// Where lockscope's own handler for pytest is (scripts/ship/pypi): it raises only once lockscope has found a hang.
const OWN_HANDLER: &str = "lockscope._interruption";
/// Ray's own handler for SIGTERM, in workers and drivers: it ends the process by `sys.exit` (2.60).
const RAYS_HANDLER: (&str, &str) = ("sigterm_handler", "ray._private.worker");
/// SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGSTOP, SIGSTKFLT, SIGWINCH.
const HANG_UP: u32 = 1;
const OWN: u32 = 16;
const INTERRUPT: u32 = 2;
const KILL: usize = 9;
const TERMINATE: u32 = 15;
const STOP: usize = 19;
const WINDOW: u32 = 28;

/// Signals of timers, which may be pending: SIGALRM, SIGVTALRM, SIGPROF.
pub(super) const TIMERS: [u32; 3] = [14, 26, 27];

/// A handler of Python.
#[derive(Debug, Clone)]
pub(super) struct Handler {
    /// The function or other callable.
    pub(super) callable: Addr,
    /// "`handle_term` at main.py:12".
    pub(super) label: String,
    /// It is of the standard library.
    of_library: bool,
    /// It is lockscope's.
    is_own: bool,
    /// It is Ray's, which only ends the process.
    is_rays: bool,
}

/// The callables in the interpreter's table, by number.
pub(super) fn table(process: &Process<'_>, inspector: &Inspector<'_>) -> Option<Vec<Addr>> {
    let image = process.context.image;
    let runtime = inspector.python.runtime;
    let at = image.mappings.iter().position(|mapping| mapping.contains(runtime))?;
    // The variables of the program or library that has the runtime: its data and what follows it without a gap.
    let is_variables = |position: &usize| {
        let mapping = &image.mappings[*position];
        mapping.write && !mapping.shared && mapping.path.as_deref() != Some("[heap]")
    };
    let adjoins = |position: usize| image.mappings[position].end == image.mappings[position + 1].start;
    let first = (0..at).rev().take_while(|position| is_variables(position) && adjoins(*position)).last().unwrap_or(at);
    let after = (at + 1..image.mappings.len()).take_while(|position| is_variables(position) && adjoins(position - 1));
    let (start, end) = (image.mappings[first].start, image.mappings[after.last().unwrap_or(at)].end);
    // From 3.12 on it is in the runtime; before, among what no file has the first value of. The rest is a megabyte, most of it types.
    let unset =
        image.mappings.iter().filter(|mapping| mapping.path.is_none() && mapping.start >= start && mapping.end <= end);
    let likely = std::iter::once((runtime, end.min(runtime + PIECE)));
    let places = likely.chain(unset.map(|mapping| (mapping.start, mapping.end))).chain([(start, end)]);
    places.into_iter().find_map(|(start, end)| in_memory(process, start, end, inspector))
}

fn in_memory(process: &Process<'_>, start: Addr, end: Addr, inspector: &Inspector<'_>) -> Option<Vec<Addr>> {
    let mut words: Vec<u64> = Vec::new();
    let size = (end - start).min(SEARCHED_VARIABLES);
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(PIECE);
        match process.memory().bytes(start + offset, length as usize) {
            Ok(bytes) => {
                words.extend(bytes.chunks_exact(8).map(|chunk| chunk.try_into().map_or(u64::MAX, u64::from_le_bytes)));
            }
            Err(_) => words.resize(words.len() + (length / 8) as usize, u64::MAX),
        }
        offset += length;
        if let Some(found) = in_words(&words, inspector) {
            return Some(found);
        }
        // The last words may be the beginning of a match, so they stay for the next piece.
        let keep = words.len().min(PAIRS * 2);
        words.drain(..words.len() - keep);
    }
    None
}

fn in_words(words: &[u64], inspector: &Inspector<'_>) -> Option<Vec<Addr>> {
    words.windows(PAIRS * 2).find_map(|window| {
        // The first pair is of no signal.
        let pairs = window.as_chunks::<2>().0;
        let fits = window[0] == 0
            && window[1] == 0
            && pairs.iter().skip(1).all(|[tripped, callable]| *tripped <= 1 && *callable != 0 && callable % 8 == 0)
            && pairs[KILL][1] == pairs[STOP][1];
        let is_default = || inspector.objects().class_name(Addr(pairs[KILL][1])).as_deref() == Some("int");
        (fits && is_default()).then(|| pairs.iter().map(|[_, callable]| Addr(*callable)).collect())
    })
}

/// Signals with a handler of Python's, a bit each from 1 up. Objects of Python are out of reach for a handler in native code, so that for
/// a wait for one these are all.
pub(super) fn handled(facts: &Facts<'_>, process: &Process<'_>, wait: &ThreadWait) -> Option<u64> {
    facts.targets(wait).next()?;
    let signals = 1..facts.handlers(process)?.len().min(PAIRS) as u32;
    let bits = signals.filter(|signal| handler(facts, process, *signal).is_some()).map(|signal| 1u64 << (signal - 1));
    Some(bits.fold(0, |all, bit| all | bit))
}

/// The handler of Python for a signal; `None` where native code handles it, or no code.
pub(super) fn handler(facts: &Facts<'_>, process: &Process<'_>, signal: u32) -> Option<Handler> {
    let callable = *facts.handlers(process)?.get(signal as usize)?;
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let class = objects.class_name(callable)?;
    if matches!(&*class, "int" | "NoneType") {
        return None;
    }
    // A bound method, or what functools.partial has.
    let parts = std::iter::once(callable).chain(objects.words_of(callable));
    let functions = parts.flat_map(|part| std::iter::once(part).chain(objects.words_of(part)));
    let function = functions.into_iter().find(|one| objects.class_name(*one).as_deref() == Some("function"));
    let Some((function, code)) = function.and_then(|one| Some((one, objects.function(one)?.code))) else {
        let name = objects.bound(callable).map_or(class, |bound| bound.name.into());
        let of_library = &*name == "default_int_handler";
        return Some(Handler { callable, of_library, is_own: false, is_rays: false, label: format!("`{name}`") });
    };
    let name = objects.function_name(function).unwrap_or_default();
    let path = inspector.frames().code_file(code).unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or(&path);
    let line = inspector.frames().code_line(code).map(|line| format!(":{line}")).unwrap_or_default();
    let origin = inspector.origin(&path);
    Some(Handler {
        callable,
        of_library: origin.waits_for_caller(),
        is_own: origin.is_lockscope(OWN_HANDLER),
        is_rays: name == RAYS_HANDLER.0 && origin.is_package(RAYS_HANDLER.1),
        label: format!("`{name}` at {file}{line}"),
    })
}

/// Whether the process's handler for a signal could end a wait.
pub(super) fn way(facts: &Facts<'_>, process: &Process<'_>, signal: u32, wait: &ThreadWait) -> Option<Way> {
    let named = crate::waits::family::signal_name(signal);
    let Some(handler) = handler(facts, process, signal) else {
        return without_python(facts, process, signal);
    };
    if handler.is_own {
        return Some(Way::Shut(format!("lockscope's own handler for {named} ends what hangs, and nothing else")));
    }
    if signal == INTERRUPT && handler.of_library {
        return Some(Way::Shut(format!("Python's own handler for {named} only asks for an end")));
    }
    if signal == TERMINATE && handler.is_rays {
        return Some(Way::Shut(format!("Ray's own handler for {named} only ends the process")));
    }
    let open = Way::Open(format!("the handler {} ({named}) could still end it", handler.label));
    // Python itself may write to a descriptor whenever a signal comes (set_wakeup_fd), but the other end of a connection that nobody
    // has accepted is no descriptor.
    let resource = &wait.blocked_on.resource;
    let is_unaccepted = resource.role == Some(Role::Unaccepted);
    if resource.key.kind.topic == Topic::Data && !is_unaccepted {
        return Some(open);
    }
    let reached = facts.reached_by_handler(handler.callable);
    let accepts = is_unaccepted && reached.uses("accept");
    let is_main = process.threads[wait.thread].image.tid == process.context.image.pid;
    let reaches = facts.targets(wait).any(|target| reached.has(target)) || facts.ends_loop(&reached, wait).is_some();
    if reached.anything.is_some() || reaches || accepts || is_main && reached.may_raise() {
        return Some(open);
    }
    Some(Way::Shut(format!("the handler {} ({named}) cannot reach it", handler.label)))
}

/// The handler for a signal, unless it is known to end nothing but the process.
fn that_matters(facts: &Facts<'_>, process: &Process<'_>, signal: u32) -> Option<Handler> {
    let is_harmless = |handler: &Handler| {
        handler.is_own || signal == INTERRUPT && handler.of_library || signal == TERMINATE && handler.is_rays
    };
    handler(facts, process, signal).filter(|handler| !is_harmless(handler))
}

/// The handlers that could end the wait of a task: they can reach one of these objects, or raise in the thread of its loop.
pub(super) fn that_end_tasks(
    facts: &Facts<'_>,
    process: &Process<'_>,
    objects: &[Addr],
    tid: Option<i32>,
) -> Vec<(Waker, String)> {
    let is_main = tid == Some(process.context.image.pid);
    that_end(facts, process, |reached| {
        let reaches = objects.iter().any(|object| reached.has(*object));
        reached.anything.is_some() || reaches || is_main && reached.may_raise()
    })
}

/// The handlers that could end the loop around a wait with a time-out.
pub(super) fn that_end_loops(facts: &Facts<'_>, process: &Process<'_>, wait: &ThreadWait) -> Vec<(Waker, String)> {
    that_end(facts, process, |reached| facts.ends_loop(reached, wait).is_some())
}

/// The handlers with a reach that could end something.
fn that_end(facts: &Facts<'_>, process: &Process<'_>, ends: impl Fn(&Reached) -> bool) -> Vec<(Waker, String)> {
    let handlers = (1..PAIRS as u32).filter_map(|signal| Some((signal, that_matters(facts, process, signal)?)));
    let ending = handlers.filter(|(_, handler)| ends(&facts.reached_by_handler(handler.callable)));
    let told = ending.map(|(signal, handler)| {
        let by = if TIMERS.contains(&signal) { Waker::ByItself } else { Waker::OnRequest };
        let named = crate::waits::family::signal_name(signal);
        (by, format!("the handler {} ({named}) could still end it", handler.label))
    });
    told.collect()
}

/// The handler for a signal, if it may end a wait of the main thread for a lock: by raising, or by releasing it.
pub(super) fn interrupts(facts: &Facts<'_>, process: &Process<'_>, signal: u32, wait: &ThreadWait) -> Option<Handler> {
    let handler = that_matters(facts, process, signal)?;
    let reached = facts.reached_by_handler(handler.callable);
    let releases = || facts.targets(wait).any(|target| reached.has(target)) && reached.uses("release");
    (reached.anything.is_some() || reached.may_raise() || releases()).then_some(handler)
}

/// A signal for which Python has no handler of its own.
fn without_python(facts: &Facts<'_>, process: &Process<'_>, signal: u32) -> Option<Way> {
    let modules = &process.context.symbols.modules().list;
    let has = |part: &str| modules.iter().any(|module| module.name.contains(part));
    if signal == WINDOW && (has("readline") || has("libedit")) {
        return Some(Way::Shut("readline's handler for SIGWINCH wakes nobody".into()));
    }
    if signal == HANG_UP && handler(facts, process, OWN).is_some_and(|handler| handler.is_own) {
        return Some(Way::Shut("lockscope's own handler for SIGHUP ends the process".into()));
    }
    (signal == INTERRUPT && facts.handlers(process).is_none())
        .then(|| Way::Shut("Python's own handler for SIGINT only asks for an end".into()))
}
