//! Generators and coroutines that stopped inside a `with` block.
//!
//! In: a lock that no frame on a stack has. Out: [`Suspended`]: the frame that has it and where that frame is kept. It
//! is on no thread's stack. The search starts at the frames on stacks, and follows their variables, value stacks and
//! globals. The suspended frame continues only when some code resumes it. The coroutines of an event loop are found
//! through its tasks ([`super::tasks`]).

use super::with_blocks::{lines_of_generator, locks_of};
use crate::image::{Addr, AddrSet};
use crate::limits::Met;
use crate::limits::cpython::{CONTAINED_OBJECTS, CONTAINER_ITEMS, CONTAINER_LEVELS, SUSPENDED_STACKS};
use crate::python::inspect::{Inspector, frames_of};
use crate::waits::label::Label;
use crate::waits::model::TakenAt;

/// A generator or coroutine that has locks.
#[derive(Debug, Clone)]
pub(super) struct Suspended {
    pub(super) generator: Addr,
    /// "generator `gen`".
    pub(super) label: Label,
    /// Each lock with the place of the `with`.
    pub(super) locks: Vec<(Addr, Option<TakenAt>)>,
    /// "feed.py:12": where it has stopped.
    pub(super) stopped_at: Option<String>,
}

impl Suspended {
    /// Whether it has this lock.
    pub(super) fn has(&self, lock: Addr) -> bool {
        self.locks.iter().any(|(held, _)| *held == lock)
    }

    /// Where it took this lock.
    pub(super) fn taken(&self, lock: Addr) -> Option<TakenAt> {
        self.locks.iter().find(|(held, _)| *held == lock)?.1.clone()
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those that have locks, in order of address.
    pub(super) list: Vec<Suspended>,
    /// The limits that cut the search short, for a caller that finds no holder here.
    pub(super) passed_over: Vec<Met>,
}

/// The objects that the limits here concern.
const SEARCH: &str = "generators and coroutines that stopped inside a `with` block";

impl Found {
    fn pass_over(&mut self, met: Met) {
        if !self.passed_over.contains(&met) {
            self.passed_over.push(met);
        }
    }
}

/// All that are within reach of the frames of living threads: what they have at hand, then what that contains.
pub(super) fn all(inspector: &Inspector<'_>) -> Found {
    let mut roots = Vec::new();
    let mut globals = AddrSet::default();
    for (_, thread) in inspector.living() {
        for frame in frames_of(thread).filter_map(|frame| inspector.frame(frame)) {
            roots.extend(frame.variables().into_iter().map(|(_, value)| value));
            roots.extend(frame.stack());
            let Some(dict) = frame.globals().filter(|dict| globals.insert(*dict)) else { continue };
            roots.extend(inspector.objects().items(dict).unwrap_or_default().into_iter().map(|(_, value)| value));
        }
    }
    let mut unique = AddrSet::default();
    roots.retain(|root| unique.insert(*root));
    let mut found = Found::default();
    let mut seen = AddrSet::default();
    for root in &roots {
        visit(inspector, *root, 0, &mut seen, &mut found);
    }
    let mut inside = AddrSet::default();
    for root in &roots {
        visit(inspector, *root, CONTAINER_LEVELS, &mut inside, &mut found);
    }
    found.list.sort_by_key(|one| one.generator);
    found.list.dedup_by_key(|one| one.generator);
    found
}

fn visit(inspector: &Inspector<'_>, object: Addr, levels: usize, seen: &mut AddrSet, out: &mut Found) {
    if object.is_null() || seen.contains(&object) {
        return;
    }
    if seen.len() >= CONTAINED_OBJECTS {
        out.pass_over(Met::of(CONTAINED_OBJECTS, SEARCH, "objects"));
        return;
    }
    seen.insert(object);
    let objects = inspector.objects();
    let Some(class) = objects.class_name(object) else { return };
    match &*class {
        "generator" | "coroutine" | "async_generator" => {
            out.list.extend(generator_with_locks(inspector, object, &class))
        }
        "str" | "int" | "float" | "bool" | "bytes" | "function" | "type" | "module" | "code" | "NoneType" => {}
        _ => {
            let Some(levels) = levels.checked_sub(1) else { return };
            let items = objects.sequence(object, CONTAINER_ITEMS + 1);
            let values = || objects.items(object).or_else(|| objects.attributes(object)).unwrap_or_default();
            let inner: Vec<Addr> = items.unwrap_or_else(|| values().into_iter().map(|(_, value)| value).collect());
            if inner.len() as u64 > CONTAINER_ITEMS {
                out.pass_over(Met::of(CONTAINER_ITEMS, SEARCH, "items of one container"));
            }
            for value in inner.into_iter().take(CONTAINER_ITEMS as usize) {
                visit(inspector, value, levels, seen, out);
            }
        }
    }
}

/// The locks of one generator, if it has some.
pub(super) fn generator_with_locks(inspector: &Inspector<'_>, generator: Addr, class: &str) -> Option<Suspended> {
    let frame = inspector.frames().suspended(generator);
    let mut locks = Vec::new();
    for block in lines_of_generator(inspector, generator) {
        let mut found = Vec::new();
        locks_of(inspector, block.object, SUSPENDED_STACKS, &mut found);
        let taken =
            frame.as_ref().zip(block.line).map(|(frame, line)| TakenAt::at(&*frame.file, line, &*frame.function));
        locks.extend(found.into_iter().map(|(lock, _)| (lock, taken.clone())));
    }
    let frames = inspector.frames();
    let name = frames.of_generator(generator).and_then(|(_, code)| frames.code_name(code)).unwrap_or_default();
    let label = Label::from(format!("suspended {class}")).named(Some(name));
    let base = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
    let stopped_at = frame.and_then(|frame| Some(format!("{}:{}", base(&frame.file), frame.line?)));
    (!locks.is_empty()).then_some(Suspended { generator, label, locks, stopped_at })
}
