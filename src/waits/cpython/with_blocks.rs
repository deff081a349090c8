//! Which locks the entered `with` blocks of a process hold.
//!
//! In: entered blocks. Out: [`Held`], for each lock that such a block has taken: the lock itself, the lock of a Condition,
//! the locks behind `contextlib` (a generator that was entered, the callbacks of an ExitStack). A block of any other object
//! says only that one of its attributes may be the lock. A condition that is waited for has given its lock back.

use super::threading_objects::method;
use crate::image::Addr;
use crate::limits;
use crate::limits::cpython::{NESTED_STACKS, STACK_CALLBACKS};
use crate::python::PythonThread;
use crate::python::inspect::{Entered, Inspector, frames_of};
use crate::python::objects::Objects;
use crate::python::values::{EnteredBlock, Frame};
use crate::waits::model::TakenAt;

/// A lock that an entered block has.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) lock: Addr,
    /// Position of the thread state.
    pub(super) state: usize,
    /// The frame of the block.
    pub(super) frame: Addr,
    /// The line of the `with`.
    pub(super) taken: Option<TakenAt>,
    /// The block is one of this very lock; else of an object with the lock among its attributes.
    pub(super) is_direct: bool,
    pub(super) how: String,
}

/// All locks that entered blocks have.
pub(super) fn all(inspector: &Inspector<'_>) -> Vec<Held> {
    let mut list = Vec::new();
    for block in inspector.entered() {
        let taken = || taken_at(inspector, block);
        let mut add = |lock: Addr, is_direct: bool, how: String| {
            if !is_released(inspector, block, lock) {
                list.push(Held { lock, state: block.state, frame: block.frame, taken: taken(), is_direct, how });
            }
        };
        let place = place(inspector, block);
        let mut found = Vec::new();
        locks_of(inspector, block.object, NESTED_STACKS, &mut found);
        for (lock, how) in &found {
            add(*lock, true, format!("has entered the `with` block of {how}{place}, which it has not left yet"));
        }
        let objects = inspector.objects();
        let is_known = !found.is_empty();
        let attributes = if is_known { None } else { objects.attributes(block.object) };
        for (name, value) in attributes.unwrap_or_default() {
            let condition = || objects.attribute(value, "_lock").filter(|lock| is_lock(objects, *lock));
            let lock = if is_lock(objects, value) { Some(value) } else { condition() };
            if let Some(value) = lock {
                let name = objects.text(name).unwrap_or_default();
                let class = objects.class_name(block.object).unwrap_or_default();
                add(
                    value,
                    false,
                    format!("is inside the `with` block of a {class}{place}, whose attribute {name} is the lock"),
                );
            }
        }
    }
    list
}

/// The line of the `with`.
pub(super) fn taken_at(inspector: &Inspector<'_>, block: &Entered) -> Option<TakenAt> {
    let frame = frames_of(inspector.python.threads.get(block.state)?).nth(block.depth)?;
    Some(TakenAt::at(&*frame.file, block.line?, &*frame.function))
}

/// " in place_order at main.py:11".
fn place(inspector: &Inspector<'_>, block: &Entered) -> String {
    let mut frames = frames_of(&inspector.python.threads[block.state]);
    frames.nth(block.depth).map_or_else(String::new, |frame| format!(" in {}", frame.function))
}

/// The locks that entering `object` has taken, each with what it is.
pub(super) fn locks_of(inspector: &Inspector<'_>, object: Addr, levels: usize, out: &mut Vec<(Addr, String)>) {
    let objects = inspector.objects();
    let mut all = Vec::new();
    opened(inspector, object, levels, &mut all);
    for Opened { object, through } in all {
        if is_lock(objects, object) {
            out.push((object, format!("{through}the lock")));
            continue;
        }
        let is_condition = objects.class_name(object).is_some_and(|class| class.ends_with("Condition"));
        let lock = objects.attribute(object, "_lock").filter(|lock| is_condition && is_lock(objects, *lock));
        out.extend(lock.map(|lock| (lock, format!("{through}the Condition at {object}, which has the lock"))));
    }
}

/// An object whose block was entered.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) object: Addr,
    /// The managers of contextlib in between, in words: "a generator, which is in that of ".
    through: String,
}

/// The objects that entering `object` has entered: itself, or what the managers of contextlib have entered in turn.
pub(super) fn opened(inspector: &Inspector<'_>, object: Addr, levels: usize, out: &mut Vec<Opened>) {
    let objects = inspector.objects();
    let Some(class) = objects.class_name(object) else { return };
    if !class.ends_with("GeneratorContextManager") && !class.ends_with("ExitStack") {
        return out.push(Opened { object, through: String::new() });
    }
    let Some(levels) = levels.checked_sub(1) else {
        let why = "it lies in more context managers of contextlib, one inside the other, than are opened";
        limits::tell(limits::Met { what: format!("locks of the {class} at {object}"), why: why.into() });
        return;
    };
    match class.rsplit('.').next().unwrap_or(&class) {
        "_GeneratorContextManager" | "_AsyncGeneratorContextManager" => {
            let generator = objects.attribute(object, "gen");
            let inner = generator.map(|generator| of_generator(inspector, generator)).unwrap_or_default();
            for entered in inner {
                let before = out.len();
                opened(inspector, entered, levels, out);
                out[before..].iter_mut().for_each(|one| one.through.insert_str(0, "a generator, which is in that of "));
            }
        }
        "ExitStack" | "AsyncExitStack" => {
            let callbacks = objects.attribute(object, "_exit_callbacks");
            let callbacks = callbacks
                .and_then(|list| {
                    objects
                        .bounded_sequence(list, STACK_CALLBACKS, || format!("callbacks of the ExitStack at {object}"))
                })
                .unwrap_or_default();
            for callback in callbacks {
                // (is_sync, method); the function alone up to 3.7.
                let pair = objects.sequence(callback, 2).and_then(|pair| pair.get(1).copied());
                let bound = objects.bound(pair.unwrap_or(callback));
                if let Some(bound) = bound.filter(|bound| matches!(bound.name.as_str(), "__exit__" | "__aexit__")) {
                    let before = out.len();
                    opened(inspector, bound.object, levels, out);
                    out[before..].iter_mut().for_each(|one| one.through.insert_str(0, "an ExitStack with that of "));
                }
            }
        }
        _ => out.push(Opened { object, through: String::new() }),
    }
}

/// Objects whose blocks a suspended generator or coroutine is in.
pub(super) fn of_generator(inspector: &Inspector<'_>, generator: Addr) -> Vec<Addr> {
    open(inspector, generator).map(|frame| frame.entered()).unwrap_or_default()
}

/// The same with the lines of the `with`s.
pub(super) fn lines_of_generator(inspector: &Inspector<'_>, generator: Addr) -> Vec<EnteredBlock> {
    open(inspector, generator).map(|frame| frame.entered_with_lines()).unwrap_or_default()
}

/// The same, and at the end the block that it is about to enter.
pub(super) fn begun_by_generator(inspector: &Inspector<'_>, generator: Addr) -> Vec<EnteredBlock> {
    open(inspector, generator).map(|frame| frame.begun_with_lines()).unwrap_or_default()
}

fn open<'i, 'a>(inspector: &'i Inspector<'a>, generator: Addr) -> Option<Frame<'i, 'a>> {
    let (frame, code) = inspector.frames().of_generator(generator)?;
    inspector.frames().at(frame, code)
}

/// `_thread.lock` or `_thread.RLock`.
fn is_lock(objects: &Objects<'_>, object: Addr) -> bool {
    objects.class_name(object).is_some_and(|class| matches!(&*class, "_thread.lock" | "_thread.RLock"))
}

/// Whether a frame further in waits for a Condition of this lock, and has given it back for that.
fn is_released(inspector: &Inspector<'_>, block: &Entered, lock: Addr) -> bool {
    gives_back(inspector, &inspector.python.threads[block.state], block.depth, lock)
}

/// Whether one of the innermost `depth` frames of a thread state waits for a Condition of this lock.
pub(super) fn gives_back(inspector: &Inspector<'_>, thread: &PythonThread, depth: usize, lock: Addr) -> bool {
    let objects = inspector.objects();
    let further_in = frames_of(thread).take(depth);
    let waits = further_in.filter(|frame| method(frame) == "wait" && frame.origin.is_stdlib("threading"));
    waits.filter_map(|frame| inspector.frame(frame)?.first()).any(|condition| {
        objects.class_name(condition).is_some_and(|class| class.ends_with("Condition"))
            && objects.attribute(condition, "_lock") == Some(lock)
    })
}
