//! All objects that the garbage collector tracks, garbage included.
//!
//! In: objects to begin at, and how this build lays things out. Out: their addresses. The collector keeps what it tracks in
//! rings, one for each generation: two words before an object are the next and the previous one. From any object its ring is
//! walked; where the ring passes the interpreter's own variables, the heads of the other generations stand beside. A build
//! without a GIL has no such rings, and 3.7 has other heads: there the answer is unknown.

use std::collections::{HashMap, HashSet, VecDeque};

use super::inspect::{Inspector, frames_of};
use crate::image::Addr;
use crate::limits::python::{KEPT_BY_TASKS, MOST_TRACKED};

/// `PyGC_Head`: `_gc_next`, `_gc_prev`, whose lowest bits are flags. The object stands behind.
const HEAD: u64 = 16;
const FLAGS: u64 = 7;
/// Bytes around the head of a generation within which those of the others stand: three of 24 bytes, a pointer, one more.
const AROUND: u64 = 128;

/// No known version has larger interpreters.
const SIZE_OF_INTERPRETER: u64 = 1 << 19;

/// All tracked objects; `None` where they cannot be known, or are too many.
pub(super) fn tracked<'i>(inspector: &'i Inspector<'_>) -> Option<&'i [Addr]> {
    inspector.tracked(|| find(inspector))
}

fn find(inspector: &Inspector<'_>) -> Option<Vec<Addr>> {
    let layout = inspector.python.layout.as_ref()?;
    if inspector.python.free_threaded || layout.head != HEAD || inspector.python.version < (3, 8, 0) {
        return None;
    }
    let mut rings =
        Rings { inspector, seen: HashSet::new(), objects: Vec::new(), heads: Vec::new(), classes: HashMap::new() };
    for seed in seeds(inspector) {
        rings.walk(Addr(seed.0.checked_sub(HEAD)?))?;
    }
    let heads = std::mem::take(&mut rings.heads);
    for head in &heads {
        for offset in (0..=2 * AROUND).step_by(8) {
            let beside = Addr(head.0.saturating_sub(AROUND) + offset);
            if rings.is_linked(beside) {
                rings.walk(beside)?;
            }
        }
    }
    // Without a head nobody knows whether there are more rings.
    (!heads.is_empty()).then_some(rings.objects)
}

/// Objects that are tracked for certain: modules, their dictionaries, variables of frames.
fn seeds(inspector: &Inspector<'_>) -> Vec<Addr> {
    let objects = inspector.objects();
    let mut seeds = Vec::new();
    for interpreter in &inspector.python.interpreters {
        let modules = objects.pointer(interpreter.modules_field);
        let items = modules.and_then(|modules| objects.items(modules)).unwrap_or_default();
        seeds.extend(items.into_iter().map(|(_, module)| module));
    }
    seeds.extend(at_hand(inspector));
    seeds
}

/// The values of variables of threads' frames. They live on until the thread goes on, which can reach them then.
pub(super) fn at_hand(inspector: &Inspector<'_>) -> HashSet<Addr> {
    let frames = inspector.living().flat_map(|(_, state)| frames_of(state));
    let open = frames.filter_map(|frame| inspector.frame(frame));
    open.flat_map(|open| open.variables().into_iter().map(|(_, value)| value).collect::<Vec<_>>()).collect()
}

/// Suspended coroutines with what their frames keep alive, the nearest first. As long as nothing ends them, the collector takes
/// none of these.
pub(crate) fn kept_by(inspector: &Inspector<'_>, coroutines: impl IntoIterator<Item = Addr>) -> HashSet<Addr> {
    let objects = inspector.objects();
    let frames = inspector.frames();
    let mut todo: VecDeque<Addr> = coroutines.into_iter().collect();
    let mut kept = HashSet::new();
    while let Some(object) = todo.pop_front().filter(|_| kept.len() < KEPT_BY_TASKS) {
        if object.is_null() || !kept.insert(object) {
            continue;
        }
        let open = frames.of_generator(object).and_then(|(frame, code)| frames.at(frame, code));
        if let Some(open) = open {
            todo.extend(open.variables().into_iter().map(|(_, value)| value).chain(open.suspended_stack()));
            continue;
        }
        todo.extend(objects.bound(object).map(|bound| bound.object));
        todo.extend(objects.sequence(object, KEPT_BY_TASKS as u64).unwrap_or_default());
        let items = objects.items(object).or_else(|| objects.attributes(object)).unwrap_or_default();
        todo.extend(items.into_iter().map(|(_, value)| value));
    }
    kept
}

/// Methods that code has at hand together with their objects, by name; `None` where this cannot be known.
pub(crate) fn bound_methods(inspector: &Inspector<'_>) -> Option<HashSet<(String, Addr)>> {
    let objects = inspector.objects();
    let mut is_method: HashMap<Addr, bool> = HashMap::new();
    let bound = tracked(inspector)?.iter().filter_map(|&object| {
        let class = objects.class(object)?;
        let is_method = *is_method.entry(class).or_insert_with(|| {
            let name = objects.name_of_class(class).unwrap_or_default();
            matches!(&*name, "builtin_function_or_method" | "builtin_method" | "method" | "method-wrapper")
        });
        let bound = objects.bound(object).filter(|_| is_method)?;
        Some((bound.name, bound.object))
    });
    Some(bound.collect())
}

struct Rings<'r, 'a> {
    inspector: &'r Inspector<'a>,
    seen: HashSet<Addr>,
    objects: Vec<Addr>,
    heads: Vec<Addr>,
    /// Whether what stands where objects have their class is one.
    classes: HashMap<Addr, bool>,
}

impl Rings<'_, '_> {
    fn links(&self, node: Addr) -> Option<(Addr, Addr)> {
        let objects = self.inspector.objects();
        let link = |at: Addr| objects.pointer(at).map(|word| Addr(word.0 & !FLAGS)).filter(|word| !word.is_null());
        Some((link(node)?, link(node + 8)?))
    }

    /// Whether a node's neighbours know it.
    fn is_linked(&self, node: Addr) -> bool {
        let Some((next, previous)) = self.links(node) else { return false };
        let back = || Some(self.links(next)?.1 == node && self.links(previous)?.0 == node);
        next != node && back().unwrap_or(false)
    }

    /// Whether a node may lie in an interpreter or in the runtime (3.8), as heads do: what stands behind one may look like an
    /// object.
    fn is_of_interpreter(&self, node: Addr) -> bool {
        let python = self.inspector.python;
        let mut places = python.interpreters.iter().map(|one| one.address).chain([python.runtime]);
        places.any(|place| node.within(place, SIZE_OF_INTERPRETER))
    }

    /// Adds the objects of a ring; `None` if they are too many. An object outside every ring adds nothing.
    fn walk(&mut self, first: Addr) -> Option<()> {
        if self.seen.contains(&first) || !self.is_linked(first) {
            return Some(());
        }
        let objects = self.inspector.objects();
        let mut node = first;
        while self.seen.insert(node) {
            if self.seen.len() > MOST_TRACKED {
                return None;
            }
            // The next node, the previous one, the counter, the class.
            let [next, _, _, class] = objects.four_words(node)?;
            let is_object = *self.classes.entry(class).or_insert_with(|| objects.is_class(class));
            if is_object {
                self.objects.push(node + HEAD);
            }
            if !is_object || self.is_of_interpreter(node) {
                self.heads.push(node);
            }
            node = Some(Addr(next.0 & !FLAGS)).filter(|next| !next.is_null())?;
        }
        Some(())
    }
}
