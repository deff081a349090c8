//! Greenlets that are switched out: their Python frames, which no thread's list has.
//!
//! In: a process that has loaded the package greenlet. Out: [`Greenlet`]s. Each object has its own part in C++, which is
//! known by its shape: it points back to the object, and has the bounds of the stack, a copy of the part that others have
//! overwritten, and the innermost frame (greenlet 1.1 to 3.5; `TGreenlet.hpp`, `TStackState.cpp`). From 3.12 on the
//! interpreter keeps a frame on the stack wherever C has called Python: these are read from the copy.

use std::collections::{BTreeMap, HashMap};

use super::PythonFrame;
use super::heap;
use super::inspect::Inspector;
use super::layout::Layout;
use super::objects::Objects;
use super::walk::frames_from;
use crate::image::{Addr, Fault, Memory, MemoryExt, saturated};
use crate::limits::Bounded;
use crate::limits::python::{LARGEST_STACK, MOST_GREENLETS};

/// The part in C++ stands third behind the head of an object, after its weak references and its attributes.
const PART: u64 = 16;
/// Words of that part that are searched, and the first that may be the stack's: a table of functions and the object stand first.
const WORDS: u64 = 32;
const FIRST: usize = 2;
/// `PyFrameObject.f_frame` behind the head, from 3.11 on.
const INNER_FRAME: u64 = 8;

/// A greenlet that has not ended and does not run.
#[derive(Debug)]
pub(crate) struct Greenlet {
    /// Its object.
    pub(crate) object: Addr,
    /// Its frames, the innermost first; none before it has begun.
    pub(crate) frames: Vec<PythonFrame>,
}

/// The greenlets of a process by their addresses; `None` where its objects cannot be listed.
pub(crate) fn suspended(inspector: &Inspector<'_>) -> Option<Vec<Greenlet>> {
    let objects = inspector.objects();
    let memory = objects.memory();
    let Some(class) = inspector.globals("greenlet", "greenlet").next() else { return Some(Vec::new()) };
    let layout = inspector.python.layout.as_ref()?;
    let mut is_one: HashMap<Addr, bool> = HashMap::new();
    let mut is_greenlet = |object: &Addr| {
        let Some(own) = objects.class(*object) else { return false };
        *is_one.entry(own).or_insert_with(|| objects.class_parts(own).is_some_and(|(_, order)| order.contains(&class)))
    };
    let found: Vec<&Addr> = heap::tracked(inspector)?.iter().filter(|object| is_greenlet(object)).collect();
    let found = found.into_iter().bounded(MOST_GREENLETS, || "greenlets".into(), "greenlets of one process");
    let list = found.map(|object| (*object, frames(inspector, layout, memory, *object).unwrap_or_default()));
    let sorted: BTreeMap<Addr, Vec<PythonFrame>> = list.collect();
    Some(sorted.into_iter().map(|(object, frames)| Greenlet { object, frames }).collect())
}

fn frames(inspector: &Inspector<'_>, layout: &Layout, memory: &dyn Memory, object: Addr) -> Option<Vec<PythonFrame>> {
    let objects = inspector.objects();
    let part = objects.field(object, PART)?;
    let words: Vec<Addr> = (0..WORDS).map_while(|index| memory.pointer(part + index * 8).ok()).collect();
    words.get(1).filter(|own| **own == object)?;
    let is_frame = |word: &&Addr| !word.is_null() && objects.class_name(**word).as_deref() == Some("frame");
    let at = words.iter().skip(FIRST).position(|word| is_frame(&word))? + FIRST;
    let (top, before) = (*words.get(at)?, words.get(FIRST..at)?);
    let copied = before.windows(4).find_map(|four| match *four {
        [from, to, copy, saved] => {
            let size = to.0.checked_sub(from.0).filter(|size| (1..LARGEST_STACK).contains(size))?;
            (!from.is_null() && saved.0 <= size && copy.is_null() == (saved.0 == 0)).then_some(Copied {
                memory,
                from,
                size: saved.0,
                copy,
            })
        }
        _ => None,
    })?;
    let first = match inspector.python.version >= (3, 11, 0) {
        true => objects.field(top, INNER_FRAME)?,
        false => top,
    };
    Some(frames_from(&copied, layout, &inspector.python.folders, first))
}

/// Memory in which a part of the stack is read from the copy that was made of it.
#[derive(Debug)]
struct Copied<'m> {
    memory: &'m dyn Memory,
    from: Addr,
    size: u64,
    copy: Addr,
}

impl Memory for Copied<'_> {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let inside = address.0.checked_sub(self.from.0).filter(|inside| *inside < self.size);
        match inside {
            Some(inside) => {
                let left = saturated(self.size - inside).min(buffer.len());
                self.memory.read(self.copy + inside, buffer.get_mut(..left).unwrap_or_default())
            }
            None => self.memory.read(address, buffer),
        }
    }
}

/// The attributes and words of an object that are objects.
pub(crate) fn parts(objects: &Objects<'_>, object: Addr) -> Vec<Addr> {
    let attributes = objects.attributes(object).unwrap_or_default().into_iter().map(|(_, value)| value);
    objects.words_of(object).into_iter().chain(attributes).collect()
}
