//! Tasks of asyncio: which there are, on whose thread, and what their coroutines are in.
//!
//! In: a process with event loops. Out: [`Task`]s with their coroutines from the outermost to the one that waits. Up to
//! 3.13 asyncio keeps weak references to its tasks in a set. From 3.14 on each thread state has a list of them, whose
//! position is found by its shape. `holders` and the findings cover tasks that cannot run because their loop's thread
//! is blocked.

use super::with_blocks;
use crate::image::Addr;
use crate::limits::cpython::{MOST_COROUTINES, MOST_TASKS, NESTED_STACKS, SEARCHED_FOR_TASKS};
use crate::limits::{self, Bounded};
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;
use crate::waits::kinds::{self, Kind};
use crate::waits::model::TakenAt;

/// The list's node in a task from 3.14 on, behind the head.
const NODE: u64 = 136;

/// The objects that the limits here concern.
const TASKS: &str = "asyncio tasks";

/// Offsets in the task of C (`TaskObj` of Modules/_asynciomodule.c) behind the head, where the loop stands in all.
struct Offsets {
    version: (u8, u8),
    waits_for: u64,
    coroutine: u64,
    name: u64,
}

/// DWARF of `_asyncio` in 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1, 3.13.0; debug section of 3.14.10 and 3.15.2.
const OFFSETS: &[Offsets] = &[
    Offsets { version: (3, 14), waits_for: 104, coroutine: 112, name: 120 },
    Offsets { version: (3, 13), waits_for: 96, coroutine: 104, name: 112 },
    Offsets { version: (3, 11), waits_for: 112, coroutine: 120, name: 128 },
    Offsets { version: (3, 10), waits_for: 136, coroutine: 144, name: 152 },
    Offsets { version: (3, 9), waits_for: 128, coroutine: 136, name: 144 },
    Offsets { version: (3, 8), waits_for: 88, coroutine: 96, name: 104 },
];

/// Objects of C that are one step of a coroutine or an asynchronous generator, which stands first behind their head
/// (Objects/genobject.c, Objects/iterobject.c).
const STEPS: &[&str] = &["async_generator_asend", "async_generator_athrow", "anext_awaitable", "coroutine_wrapper"];
/// How many of them lie inside one another: a step inside of an `anext()` with a default.
const STEPS_INSIDE: usize = 3;

/// Where `trio.run` is, whose frames have the runner in a variable.
pub(super) const RUN: &str = "trio._core._run";

/// One task that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) object: Addr,
    /// Whose task it is: of asyncio or of trio.
    pub(super) kind: &'static Kind,
    /// "Task-3 (fetch)".
    pub(super) name: String,
    /// Kernel thread that runs its loop, if one does.
    pub(super) tid: Option<i32>,
    /// The future or task that it waits for.
    pub(super) waits_for: Option<Addr>,
    /// Its coroutine, and those that this one awaits, the innermost last.
    pub(super) coroutines: Vec<Addr>,
}

/// A block that a task is in.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) object: Addr,
    /// The line of the `with`.
    pub(super) taken: Option<TakenAt>,
}

/// The blocks of a task.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) inside: Vec<Inside>,
    /// Objects whose blocks it is about to enter, the outermost first.
    pub(super) entering: Vec<Addr>,
}

impl Blocks {
    /// The block in which a lock is held: its own, or one of a condition that has it.
    pub(super) fn with_lock(self, objects: &Objects<'_>, lock: Addr) -> Option<Inside> {
        let is_condition = |object: Addr| objects.class_name(object).is_some_and(|class| class.ends_with("Condition"));
        let has =
            |object: Addr| object == lock || is_condition(object) && objects.attribute(object, "_lock") == Some(lock);
        self.inside.into_iter().find(|block| has(block.object))
    }
}

impl Task {
    /// The objects whose `with` and `async with` blocks the task is in, also those behind the managers of contextlib. While a
    /// coroutine awaits the `__aenter__` of an object, its `__aexit__` lies on the stack already: that block is not entered.
    pub(super) fn blocks(&self, inspector: &Inspector<'_>) -> Blocks {
        let frames = inspector.frames();
        let mut all = Blocks::default();
        for (position, coroutine) in self.coroutines.iter().enumerate() {
            let mut entered = with_blocks::begun_by_generator(inspector, *coroutine);
            let awaited = self.coroutines.get(position + 1).and_then(|next| frames.of_generator(*next));
            let entering = awaited.and_then(|(frame, code)| {
                let name = frames.code_name(code)?;
                name.ends_with("__aenter__").then(|| frames.at(frame, code)?.first()).flatten()
            });
            if entering.is_some() && entered.last().map(|block| block.object) == entering {
                all.entering.extend(entering);
                entered.pop();
            }
            let place = frames.suspended(*coroutine);
            for block in entered {
                let taken = place
                    .as_ref()
                    .zip(block.line)
                    .map(|(frame, line)| TakenAt::at(&*frame.file, line, &*frame.function));
                let mut opened = Vec::new();
                with_blocks::opened(inspector, block.object, NESTED_STACKS, &mut opened);
                let behind = opened.into_iter().map(|one| one.object).filter(|object| *object != block.object);
                let objects = std::iter::once(block.object).chain(behind);
                all.inside.extend(objects.map(|object| Inside { object, taken: taken.clone() }));
            }
        }
        let objects = inspector.objects();
        all.inside.retain(|block| !self.waits_in(inspector, objects, block.object));
        all
    }

    /// Whether the task waits for a condition, which has given its lock back for that.
    fn waits_in(&self, inspector: &Inspector<'_>, objects: &Objects<'_>, condition: Addr) -> bool {
        let frames = inspector.frames();
        let is_condition = objects.class_name(condition).is_some_and(|class| class.ends_with("Condition"));
        let is_wait = |coroutine: &Addr| {
            let Some((frame, code)) = frames.of_generator(*coroutine) else { return false };
            let name = frames.code_name(code).unwrap_or_default();
            name.rsplit('.').next() == Some("wait")
                && frames.at(frame, code).and_then(|open| open.first()) == Some(condition)
        };
        is_condition && self.coroutines.iter().any(is_wait)
    }
}

/// The name and the coroutine of a task that something else led to.
pub(super) fn of_object(inspector: &Inspector<'_>, object: Addr) -> Option<(String, Addr)> {
    let offsets = offsets(inspector)?;
    let objects = inspector.objects();
    is_task(objects, object).then_some(())?;
    Some((name_of(objects, object, offsets)?, objects.field(object, offsets.coroutine)?))
}

fn offsets(inspector: &Inspector<'_>) -> Option<&'static Offsets> {
    let (major, minor, _) = inspector.python.version;
    OFFSETS.iter().find(|row| row.version <= (major, minor))
}

/// A number until the name is first read, from 3.12 on.
fn name_of(objects: &Objects<'_>, task: Addr, offsets: &Offsets) -> Option<String> {
    let name = objects.field(task, offsets.name)?;
    objects.text(name).or_else(|| Some(format!("Task-{}", objects.unsigned(name)?)))
}

/// The tasks of all loops of a process.
pub(super) fn all(inspector: &Inspector<'_>) -> Vec<Task> {
    let (_, minor, _) = inspector.python.version;
    let Some(offsets) = offsets(inspector) else { return Vec::new() };
    let objects = inspector.objects();
    let mut found: Vec<(Addr, Option<i32>)> = Vec::new();
    if minor >= 14 {
        for thread in &inspector.python.threads {
            found.extend(listed(inspector, thread.tstate).into_iter().map(|task| (task, thread.tid)));
        }
    } else {
        let sets =
            ["_scheduled_tasks", "_all_tasks"].into_iter().flat_map(|name| inspector.globals("asyncio.tasks", name));
        for set in sets {
            let weak = objects
                .attribute(set, "data")
                .and_then(|data| objects.bounded_sequence(data, MOST_TASKS as u64, || TASKS.into()));
            let tasks = weak.unwrap_or_default().into_iter().filter_map(|weak| objects.field(weak, 0));
            found.extend(tasks.map(|task| (task, loop_thread(inspector, objects, task))));
        }
    }
    found.sort_unstable();
    found.dedup();
    let task = |(object, tid): (Addr, Option<i32>)| {
        if !is_task(objects, object) {
            return None;
        }
        let name = name_of(objects, object, offsets);
        let coroutine = objects.field(object, offsets.coroutine)?;
        let coroutines = chain(inspector, coroutine);
        let outer = coroutines.first().and_then(|outer| inspector.frames().of_generator(*outer));
        let function = outer.and_then(|(_, code)| inspector.frames().code_name(code)).unwrap_or_default();
        // A nested function's own name is enough.
        let function = function.rsplit("<locals>.").next().unwrap_or(&function);
        (!coroutines.is_empty()).then(|| Task {
            object,
            kind: kinds::ASYNCIO_TASK,
            name: format!("{} ({function})", name.unwrap_or_else(|| object.to_string())),
            tid,
            waits_for: objects.field(object, offsets.waits_for).filter(|future| !future.is_null()),
            coroutines,
        })
    };
    found.into_iter().bounded(MOST_TASKS, || TASKS.into(), "tasks").filter_map(task).collect()
}

/// `_asyncio.Task`, or a class of that name.
pub(super) fn is_task(objects: &Objects<'_>, object: Addr) -> bool {
    objects.class_name(object).is_some_and(|class| matches!(&*class, "_asyncio.Task" | "Task"))
}

/// The thread that runs the loop of a task: the loop notes its ident while it runs.
fn loop_thread(inspector: &Inspector<'_>, objects: &Objects<'_>, task: Addr) -> Option<i32> {
    let ident = objects.unsigned(objects.attribute(objects.field(task, 0)?, "_thread_id")?)?;
    inspector.with_ident(ident)?.tid
}

/// The tasks in the list of a thread state: a ring whose nodes lie in tasks.
fn listed(inspector: &Inspector<'_>, tstate: Addr) -> Vec<Addr> {
    let objects = inspector.objects();
    let Some(size) = inspector.python.layout.as_ref().map(|layout| layout.thread_size) else { return Vec::new() };
    let node = objects.head() + NODE;
    let heads = (0..SEARCHED_FOR_TASKS / 8).map(|word| tstate + size + word * 8);
    for head in heads {
        let Some(first) = objects.pointer(head).filter(|first| *first != head && first.0 > node) else { continue };
        if objects.pointer(first + 8) != Some(head) || !is_task(objects, first - node) {
            continue;
        }
        let mut tasks = Vec::new();
        let mut at = first;
        while at != head {
            if tasks.len() >= MOST_TASKS {
                limits::met(MOST_TASKS, TASKS, "tasks");
                break;
            }
            tasks.push(at - node);
            match objects.pointer(at) {
                Some(next) if !next.is_null() => at = next,
                _ => break,
            }
        }
        return tasks;
    }
    Vec::new()
}

/// An object on top of the value stack of a suspended coroutine, by the coroutine that runs inside of it.
enum Top {
    /// It goes on in this coroutine or generator.
    Inside(Addr),
    /// It is the value that was handed to the loop: the awaited object lies below.
    Below,
    /// It is awaited, and has no code in Python.
    Other,
}

impl Top {
    fn of(objects: &Objects<'_>, slot: Addr) -> Top {
        let mut object = slot;
        for _ in 0..STEPS_INSIDE {
            let class = objects.class_name(object).unwrap_or_default();
            match &*class {
                "coroutine" | "generator" | "async_generator" => return Top::Inside(object),
                step if STEPS.contains(&step) => match objects.field(object, 0) {
                    Some(inner) => object = inner,
                    None => return Top::Other,
                },
                value if value == "NoneType" || value.ends_with("Future") || value.ends_with("Task") => {
                    return Top::Below;
                }
                _ => return Top::Other,
            }
        }
        Top::Other
    }
}

/// A coroutine and those that it awaits. The awaited object lies on top of the value stack, or one below.
pub(super) fn chain(inspector: &Inspector<'_>, coroutine: Addr) -> Vec<Addr> {
    let objects = inspector.objects();
    let mut list: Vec<Addr> = Vec::new();
    let mut next = match Top::of(objects, coroutine) {
        Top::Inside(coroutine) => Some(coroutine),
        Top::Below | Top::Other => None,
    };
    while let Some(here) = next.filter(|here| !list.contains(here)) {
        if list.len() >= MOST_COROUTINES {
            let what = format!("coroutines of the task of {coroutine}");
            limits::met(MOST_COROUTINES, what, "coroutines that await one another");
            break;
        }
        let Some(frame) =
            inspector.frames().of_generator(here).and_then(|(frame, code)| inspector.frames().at(frame, code))
        else {
            break;
        };
        list.push(here);
        let top = frame.suspended_stack().into_iter().rev().take(2).filter(|slot| !slot.is_null());
        next =
            top.map(|slot| Top::of(objects, slot)).find(|top| !matches!(top, Top::Below)).and_then(|top| match top {
                Top::Inside(inner) => Some(inner),
                Top::Below | Top::Other => None,
            });
    }
    list
}
