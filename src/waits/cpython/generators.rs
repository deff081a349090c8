//! Generators and coroutines that stopped inside a `with` block.
//!
//! In: a lock that nobody on a stack has. Out: [`Suspended`]: what has it and where that is kept. Such a frame is on no
//! thread's stack; it is found from the frames that are, through their variables, value stacks and globals. It goes on only
//! when somebody asks it to; the coroutines of an event loop are found through its tasks ([`super::tasks`]).

use super::with_blocks::{locks_of, of_generator};
use crate::image::{Addr, AddrSet};
use crate::limits::Met;
use crate::limits::cpython::{CONTAINED_OBJECTS, CONTAINER_ITEMS, CONTAINER_LEVELS, SUSPENDED_STACKS};
use crate::python::inspect::{Inspector, frames_of};
use crate::waits::label::Label;

/// A generator or coroutine that has locks.
#[derive(Debug, Clone)]
pub(super) struct Suspended {
    pub(super) generator: Addr,
    /// "generator `gen`".
    pub(super) label: Label,
    pub(super) locks: Vec<Addr>,
}

/// What a search found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Those that have locks, in order of address.
    pub(super) list: Vec<Suspended>,
    /// What was passed over, for whoever finds no holder among these.
    pub(super) passed_over: Vec<Met>,
}

/// What the bounds here are on.
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
    match class.as_str() {
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
    let mut locks = Vec::new();
    for entered in of_generator(inspector, generator) {
        locks_of(inspector, entered, SUSPENDED_STACKS, &mut locks);
    }
    let frames = inspector.frames();
    let name = frames.of_generator(generator).and_then(|(_, code)| frames.code_name(code)).unwrap_or_default();
    let label = Label::from(format!("suspended {class}")).named(Some(name));
    let locks: Vec<Addr> = locks.into_iter().map(|(lock, _)| lock).collect();
    (!locks.is_empty()).then_some(Suspended { generator, label, locks })
}
