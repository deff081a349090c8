//! Native and Python frames in one list.
//!
//! In: native stacks, names, the walk. Out: [`Thread`]s. The address rule joins them: what ties a run of Python frames
//! to C (a `_PyCFrame`, a shim frame) is a variable of the C function that runs them, so it lies between that
//! frame's stack pointer and its CFA. This needs no symbol, and it holds for stripped interpreters whose eval
//! loop runs outside its own symbol. Up to 3.9 there is no such variable, and the name of the C function decides.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::{Frame, FrameKind, Thread, missing_names};
use crate::image::{ProcessImage, TaskState};
use crate::origin::{NativeCode, Origin, OriginKind, PythonFolders, of_module};
use crate::python::{EvalEntry, Python, PythonThread};
use crate::recorder::is_recorder;
use crate::symbols::{Symbol, Symbols};
use crate::unwind::{NativeFrame, NativeStack};

/// Merge the stacks of all threads.
pub(crate) fn merge(
    image: &ProcessImage,
    symbols: &Symbols<'_>,
    stacks: Vec<NativeStack>,
    python: Option<&Python>,
) -> Vec<Thread> {
    let names = missing_names(image, symbols, &stacks);
    let origins = Origins::of(symbols, python);
    let mut by_thread = HashMap::<i32, Vec<(usize, &PythonThread)>>::new();
    for (position, state) in python.iter().flat_map(|python| python.threads.iter().enumerate()) {
        if let Some(tid) = state.tid {
            by_thread.entry(tid).or_default().push((position, state));
        }
    }
    image
        .threads
        .iter()
        .zip(stacks)
        .filter(|(thread, _)| thread.state != TaskState::Zombie || thread.registers.is_some())
        .map(|(thread, native)| {
            let states = || by_thread.get(&thread.tid).into_iter().flatten().copied();
            let entries: Vec<&EvalEntry> = states().flat_map(|(_, state)| &state.entries).collect();
            // A sub-interpreter calls the first thread that came to it its MainThread.
            let named = states().map(|(_, state)| state).filter(|state| state.name.is_some());
            let name = named.min_by_key(|state| state.interpreter).and_then(|state| state.name.clone());
            Thread {
                tid: thread.tid,
                name: name.or_else(|| names.get(&thread.tid).cloned()).unwrap_or_else(|| thread.name.clone()),
                python: states().map(|(position, _)| position).next(),
                frames: merge_one(symbols, &origins, &native, &entries),
                native,
            }
        })
        .collect()
}

/// Merge the stack of one thread again, now that there is time for its source lines.
pub(crate) fn merge_again(symbols: &Symbols<'_>, thread: &mut Thread, python: Option<&Python>) {
    let states = python.iter().flat_map(|python| &python.threads).filter(|state| state.tid == Some(thread.tid));
    let entries: Vec<&EvalEntry> = states.flat_map(|state| &state.entries).collect();
    thread.frames = merge_one(symbols, &Origins::of(symbols, python), &thread.native, &entries);
}

/// Whose each module is, decided where it is first met.
struct Origins<'p> {
    modules: Vec<OnceCell<Origin>>,
    folders: Option<&'p PythonFolders>,
}

impl<'p> Origins<'p> {
    fn of(symbols: &Symbols<'_>, python: Option<&'p Python>) -> Origins<'p> {
        let modules = vec![OnceCell::new(); symbols.modules().list.len()];
        Origins { modules, folders: python.map(|python| &*python.folders) }
    }

    fn module(&self, symbols: &Symbols<'_>, position: Option<usize>) -> Origin {
        let decided = position.and_then(|at| Some((self.modules.get(at)?, symbols.modules().list.get(at)?)));
        let decide = |name: &str, path: &str| {
            let named = of_module(name);
            let installed = || self.folders.and_then(|folders| folders.of_native_module(path));
            if named.is_program() { installed().unwrap_or(named) } else { named }
        };
        decided
            .map(|(cell, module)| cell.get_or_init(|| decide(&module.name, &module.path)).clone())
            .unwrap_or_default()
    }
}

fn merge_one(symbols: &Symbols<'_>, origins: &Origins<'_>, native: &NativeStack, entries: &[&EvalEntry]) -> Vec<Frame> {
    let of_python: usize = entries.iter().map(|entry| entry.frames.len()).sum();
    let mut merged = Vec::with_capacity(native.frames.len() + of_python);
    let mut names: Vec<Option<Symbol>> = native.frames.iter().map(|frame| symbols.function(frame.lookup)).collect();
    let (place_of, approximate) = places(native, &names, entries);
    if approximate {
        merged.push(mark("the places of the Python frames among the native ones are approximate"));
    }
    for (position, frame) in native.frames.iter().enumerate() {
        let here = || entries.iter().zip(&place_of).filter(|(_, place)| **place == Some(position)).map(|(e, _)| *e);
        if here().next().is_some() {
            here().for_each(|entry| merged.extend(python_frames(entry, Some(position))));
        } else {
            merged.extend(native_frames(symbols, origins, frame, names[position].take(), position));
        }
    }
    let unplaced: Vec<_> =
        entries.iter().zip(&place_of).filter(|(_, place)| place.is_none()).map(|(e, _)| *e).collect();
    if unplaced.iter().any(|e| !e.frames.is_empty()) {
        merged.push(mark("the native stack ends here; the Python frames behind this belong further out"));
        unplaced.into_iter().for_each(|entry| merged.extend(python_frames(entry, None)));
    }
    merged
}

/// The native frame of each entry, and whether that is a guess.
fn places(native: &NativeStack, names: &[Option<Symbol>], entries: &[&EvalEntry]) -> (Vec<Option<usize>>, bool) {
    if entries.iter().any(|e| e.anchor.is_some()) {
        let holds = |frame: &NativeFrame, entry: &EvalEntry| match (entry.anchor, frame.cfa) {
            (Some(anchor), Some(cfa)) => frame.sp <= anchor && anchor < cfa,
            _ => false,
        };
        let places = entries.iter().map(|e| native.frames.iter().position(|f| holds(f, e))).collect();
        return (places, false);
    }
    // `PyEval_EvalFrameEx` calls the default evaluator by a tail call or keeps no frame that matters.
    let is_eval =
        |name: &Option<Symbol>| name.as_ref().is_some_and(|found| found.name.starts_with("_PyEval_EvalFrameDefault"));
    let evals: Vec<usize> = (0..names.len()).filter(|i| is_eval(&names[*i])).collect();
    // The outer end is stable, while the inner one may be in the middle of a call: align from there.
    let missing = entries.len() as isize - evals.len() as isize;
    let places =
        (0..entries.len()).map(|i| usize::try_from(i as isize - missing).ok().and_then(|i| evals.get(i)).copied());
    (places.collect(), missing != 0 && !evals.is_empty() && !entries.is_empty())
}

fn python_frames(entry: &EvalEntry, native: Option<usize>) -> impl Iterator<Item = Frame> + '_ {
    entry.frames.iter().map(move |frame| Frame {
        file: (!frame.file.is_empty()).then(|| frame.file.clone()),
        line: frame.line,
        native,
        python: Some(frame.address),
        locals: frame.locals.clone(),
        origin: frame.origin.clone(),
        ..Frame::of(FrameKind::Python, Some(frame.function.clone()))
    })
}

/// A native frame, before it the calls that were inlined into it.
fn native_frames(
    symbols: &Symbols<'_>,
    origins: &Origins<'_>,
    frame: &NativeFrame,
    symbol: Option<Symbol>,
    position: usize,
) -> Vec<Frame> {
    let at = symbols.modules().at(frame.lookup);
    let module = at.map(|m| &symbols.modules().list[m]);
    // It stands between a call and the C library's function, and is nobody's code that hangs.
    if module.is_some_and(|module| is_recorder(&module.name)) {
        return Vec::new();
    }
    let base = Frame {
        mangling: symbol.as_ref().map(|symbol| symbol.mangling).unwrap_or_default(),
        module: module.map(|m| m.name.clone()),
        module_offset: module.map(|m| frame.pc - m.start),
        pc: Some(frame.pc),
        trust: Some(frame.trust),
        native: Some(position),
        ..Frame::of(FrameKind::Native, symbol.map(|symbol| symbol.name))
    };
    let of_module = origins.module(symbols, at);
    let decided = |frame: Frame| {
        let (function, file) = (frame.function.as_deref(), frame.file.as_deref());
        let origin = NativeCode { function, mangling: frame.mangling, file }.origin(&of_module);
        Frame { origin, ..frame }
    };
    // Lines inside the interpreter and the C library help nobody with a hang, and their debug information is large.
    if matches!(of_module.kind, OriginKind::Interpreter | OriginKind::CLibrary) {
        return vec![decided(base)];
    }
    let source = symbols.source(frame.lookup);
    if source.is_empty() {
        return vec![decided(base)];
    }
    let placed = source.into_iter().map(|place| Frame {
        kind: if place.inlined { FrameKind::Inline } else { FrameKind::Native },
        function: if place.inlined { place.function } else { base.function.clone().or(place.function) },
        file: place.file,
        line: place.line,
        ..base.clone()
    });
    placed.map(decided).collect()
}

fn mark(text: &str) -> Frame {
    Frame::of(FrameKind::Boundary, Some(text.into()))
}
