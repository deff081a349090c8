//! The thread facts that the families share: its system call, its libc thread id, the words of its stack.
//!
//! In: a [`CapturedProcess`]. Out: [`Process`] with one [`ThreadView`] a captured thread. It decodes no lock.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::blocked_call::{self, Call};
use super::c_library::{self, CLibrary};
use crate::arch::Architecture;
use crate::code::Code;
use crate::gpu::GpuCore;
use crate::image::gpu::GpuUse;
use crate::image::{Addr, Image, Memory, MemoryExt, ProcessImage, Register, Scatter, ThreadImage};
use crate::limits::holders::GENERATIONS;
use crate::limits::waits::{SEARCHED_FRAME, SEARCHED_FRAMES, SEARCHED_STACK, TOP_OF_STACK};
use crate::origin::{OriginKind, of_module};
use crate::python::Python;
use crate::symbols::{Symbols, base_range, begins_with};
use crate::threads::{Frame, Thread};

/// The parts of one process that the families may read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CapturedProcess<'a> {
    /// Position of the process in the image.
    pub process: usize,
    /// The process.
    pub image: &'a ProcessImage,
    /// The whole sample.
    pub all: &'a Image,
    /// Names of addresses.
    pub symbols: &'a Symbols<'a>,
    /// Threads with merged stacks.
    pub threads: &'a [Thread],
    /// Its Python runtime, if it has one.
    pub python: Option<&'a Python>,
    /// How busy the GPUs are, where that was measured.
    pub gpu: Option<&'a GpuUse>,
    /// The kernels that ran on its GPUs, where there is a core of them.
    pub gpu_cores: &'a [GpuCore],
}

impl CapturedProcess<'_> {
    /// Position of the captured process whose memory this one has: itself, or an ancestor that it shares an address space with.
    pub(crate) fn memory_owner(&self) -> usize {
        let mut owner = self.process;
        for _ in 0..GENERATIONS {
            let Some(of) = self.all.processes.get(owner).and_then(|process| process.shares_memory_of) else { break };
            let Some(position) = self.all.processes.iter().position(|process| process.pid == of) else { break };
            owner = position;
        }
        owner
    }
}

/// One process, prepared.
#[derive(Debug)]
pub(crate) struct Process<'a> {
    /// The caller's data.
    pub context: CapturedProcess<'a>,
    /// One a captured thread, in the same order.
    pub threads: Vec<ThreadView<'a>>,
    /// Its C library.
    pub library: CLibrary,
    by_libc_tid: HashMap<i32, usize>,
    by_pthread: HashMap<Addr, usize>,
    /// First address, end and thread of each part of a stack, in order of address.
    by_stack: Vec<(Addr, Addr, usize)>,
}

/// One thread, prepared.
#[derive(Debug)]
pub(crate) struct ThreadView<'a> {
    /// Its place among the threads of its process.
    pub position: usize,
    /// Its image.
    pub image: &'a ThreadImage,
    /// Its merged stack, if it has one.
    pub thread: Option<&'a Thread>,
    /// The system call that it sleeps in.
    pub call: Option<Call>,
    /// The id that libc writes into locks for this thread.
    pub libc_tid: i32,
    /// `pthread_self()`, where the thread pointer is known and looks like one.
    pub pthread: Option<Addr>,
    /// Parts of its stack are beyond the limits of the search.
    pub is_searched_in_part: bool,
    segments: Vec<(Addr, Addr)>,
    words: OnceCell<Vec<(Addr, u64)>>,
    /// The names of its frames, which each family reads.
    names: Rc<CallNames>,
}

/// The names of the frames of all threads of a process that have the same: most threads do what others do, and each name is compared
/// with hundreds.
#[derive(Debug)]
struct CallNames {
    /// The positions of the names of native frames and of functions inlined in them.
    list: Vec<Name>,
    /// Answered queries: the number of native frames, the prefixes, and the result.
    inside: RefCell<Vec<(usize, &'static [&'static str], bool)>>,
}

/// Results that depend only on the names, kinds and positions of a thread's frames, kept for all threads with the same
/// ones.
#[derive(Debug)]
pub(crate) struct ByNames<Found>(RefCell<HashMap<*const CallNames, Found>>);

impl<Found> Default for ByNames<Found> {
    fn default() -> Self {
        ByNames(RefCell::default())
    }
}

impl ByNames<bool> {
    /// The result of `find` for this thread. `find` does not run where it found nothing for an equal thread before.
    pub(crate) fn found<Found>(&self, thread: &ThreadView<'_>, find: impl Fn() -> Option<Found>) -> Option<Found> {
        let mut first = None;
        let is_there = self.of(thread, || {
            first = find();
            first.is_some()
        });
        if first.is_some() || !is_there { first } else { find() }
    }
}

impl<Found: Copy> ByNames<Found> {
    /// The result of `find` for this thread, or for an equal thread before.
    pub(crate) fn of(&self, thread: &ThreadView<'_>, find: impl FnOnce() -> Found) -> Found {
        let names = Rc::as_ptr(&thread.names);
        let known = self.0.borrow().get(&names).copied();
        known.unwrap_or_else(|| {
            let found = find();
            self.0.borrow_mut().insert(names, found);
            found
        })
    }
}

/// The threads before of a process, by what their frames are called.
#[derive(Debug, Default)]
struct KnownNames<'a> {
    hashing: Scatter,
    known: HashMap<u64, (&'a [Frame], Rc<CallNames>), Scatter>,
}

impl<'a> KnownNames<'a> {
    /// Those of a thread with these frames.
    fn of(&mut self, frames: &'a [Frame]) -> Rc<CallNames> {
        let name = |frame: &Frame| frame.function.as_ref().map(|name| Arc::as_ptr(name).addr());
        let mut hasher = self.hashing.build_hasher();
        frames.iter().for_each(|frame| hasher.write_u64(name(frame).unwrap_or_default() as u64));
        let is_same =
            |one: &Frame, other: &Frame| (one.kind, one.native, name(one)) == (other.kind, other.native, name(other));
        let is_like = |others: &[Frame]| {
            others.len() == frames.len() && frames.iter().zip(others).all(|(one, other)| is_same(one, other))
        };
        let hash = hasher.finish();
        if let Some((_, names)) = self.known.get(&hash).filter(|(others, _)| is_like(others)) {
            return Rc::clone(names);
        }
        let names = Rc::new(CallNames { list: listed(frames), inside: RefCell::default() });
        self.known.insert(hash, (frames, Rc::clone(&names)));
        names
    }
}

fn listed(frames: &[Frame]) -> Vec<Name> {
    let name = |(merged, frame): (usize, &Frame)| {
        let part = base_range(frame.function.as_deref()?);
        Some(Name { native: frame.native?, merged, part })
    };
    frames.iter().enumerate().filter_map(name).collect()
}

/// The name of a frame without what its library put around it.
#[derive(Debug, Clone)]
struct Name {
    /// Position of the native frame.
    native: usize,
    /// Position of the merged frame.
    merged: usize,
    /// The part of its function's name.
    part: Range<usize>,
}

impl<'a> Process<'a> {
    /// Prepare a process.
    pub(crate) fn new(context: CapturedProcess<'a>) -> Process<'a> {
        let (architecture, memory) = (context.image.architecture, &*context.image.memory);
        let library = c_library::of_process(context.image);
        let merged: HashMap<i32, &Thread> = context.threads.iter().map(|thread| (thread.tid, thread)).collect();
        let mut threads = Vec::with_capacity(context.image.threads.len());
        let (mut by_libc_tid, mut by_pthread) = (HashMap::new(), HashMap::new());
        let mut known = KnownNames::default();
        for image in &context.image.threads {
            let pthread = image
                .registers
                .and_then(|registers| registers.thread_descriptor())
                .filter(|&pd| c_library::is_pthread(architecture, memory, pd, library));
            let libc_tid = pthread
                .and_then(|pd| memory.i32(pd + c_library::tid_offset(architecture, library)).ok())
                .filter(|&tid| tid > 0)
                .unwrap_or(image.ns_tid);
            let thread = merged.get(&image.tid).copied();
            let call = blocked_call::call(architecture, image, memory);
            if !matches!(image.state, crate::image::TaskState::Zombie) {
                by_libc_tid.insert(libc_tid, threads.len());
                if let Some(pd) = pthread {
                    by_pthread.insert(pd, threads.len());
                }
            }
            let (segments, is_searched_in_part) = segments(image, thread);
            let position = threads.len();
            threads.push(ThreadView {
                position,
                image,
                thread,
                call,
                libc_tid,
                pthread,
                is_searched_in_part,
                segments,
                words: OnceCell::new(),
                names: known.of(thread.map(|thread| thread.frames.as_slice()).unwrap_or_default()),
            });
        }
        let parts = |thread: &ThreadView<'a>| {
            let position = thread.position;
            thread.segments.iter().map(|(start, end)| (*start, *end, position)).collect::<Vec<_>>()
        };
        let mut by_stack: Vec<(Addr, Addr, usize)> = threads.iter().flat_map(parts).collect();
        by_stack.sort_unstable();
        Process { context, threads, library, by_libc_tid, by_pthread, by_stack }
    }

    /// The machine that it runs on.
    pub(crate) fn architecture(&self) -> Architecture {
        self.context.image.architecture
    }

    /// The signals that the program has handlers for, a bit each from 1 up; `None` where that is not known. musl keeps 34 for itself.
    pub(crate) fn handled(&self) -> Option<u64> {
        const OF_MUSL: u64 = 1 << 33;
        let handled = self.context.all.kernel.handled_by(self.context.image.pid)?;
        Some(if self.library == CLibrary::Musl { handled & !OF_MUSL } else { handled })
    }

    /// Position of the thread that libc calls `tid`.
    pub(crate) fn libc_tid(&self, tid: i32) -> Option<usize> {
        self.by_libc_tid.get(&tid).copied()
    }

    /// Position of the thread whose `pthread_self()` is `pd`.
    pub(crate) fn pthread(&self, pd: Addr) -> Option<usize> {
        self.by_pthread.get(&pd).copied().or_else(|| self.by_descriptor(pd))
    }

    /// Position of the thread whose descriptor of glibc lies at `pd`, without help from the thread's registers: the
    /// content of the descriptor identifies it.
    pub(crate) fn by_descriptor(&self, pd: Addr) -> Option<usize> {
        let (architecture, memory) = (self.architecture(), self.memory());
        let all_are_known = self.by_pthread.len() >= self.threads.len();
        if all_are_known || self.library != CLibrary::Glibc || !c_library::is_descriptor(architecture, memory, pd) {
            return None;
        }
        let tid = memory.i32(pd + c_library::tid_offset(architecture, self.library)).ok()?;
        self.libc_tid(tid).filter(|&position| self.threads.get(position).is_some_and(|thread| thread.pthread.is_none()))
    }

    /// The thread in the captured part of whose stack an address lies.
    pub(crate) fn whose_stack(&self, address: Addr) -> Option<&ThreadView<'a>> {
        let behind = self.by_stack.partition_point(|(start, ..)| *start <= address);
        let (_, end, position) = self.by_stack.get(behind.checked_sub(1)?)?;
        self.threads.get(*position).filter(|_| address < *end)
    }

    /// Position of the thread with lockscope's `tid`.
    pub(crate) fn position(&self, tid: i32) -> Option<usize> {
        let sorted = self.threads.binary_search_by_key(&tid, |thread| thread.image.tid).ok();
        sorted.or_else(|| self.threads.iter().position(|thread| thread.image.tid == tid))
    }

    /// `memory` of the process.
    pub(crate) fn memory(&self) -> &'a dyn Memory {
        &*self.context.image.memory
    }

    /// Every thread's pthread pointer with its position.
    pub(crate) fn pthreads(&self) -> impl Iterator<Item = (Addr, usize)> + '_ {
        self.threads.iter().enumerate().filter_map(|(i, t)| Some((t.pthread?, i)))
    }
}

impl<'a> ThreadView<'a> {
    /// Its merged frames, innermost first; none where nothing could be unwound.
    pub(crate) fn frames(&self) -> &'a [Frame] {
        self.thread.map(|thread| thread.frames.as_slice()).unwrap_or_default()
    }

    /// "533 'MainThread'".
    pub(crate) fn describe(&self) -> String {
        let name = self.thread.map_or(self.image.name.as_str(), |t| t.name.as_str());
        format!("{} '{}'", self.image.tid, name)
    }

    /// The name that a person knows the thread by.
    pub(crate) fn name(&self) -> &str {
        self.thread.map_or(self.image.name.as_str(), |t| t.name.as_str())
    }

    /// Stack pointer.
    pub(crate) fn sp(&self) -> Option<Addr> {
        self.image.registers.and_then(|r| r.general.sp()).or(self.call.map(|c| c.sp)).filter(|sp| !sp.is_null())
    }

    /// Whether `address` lies in the captured part of this thread's stack.
    pub(crate) fn on_own_stack(&self, address: Addr) -> bool {
        self.segments.iter().any(|&(start, end)| start <= address && address < end)
    }

    /// The words of its frames, `[sp, cfa)` of each; where no frames are known, those at the top of the stack.
    pub(crate) fn words(&self, process: &Process<'_>) -> &[(Addr, u64)] {
        self.words.get_or_init(|| self.read_words(process))
    }

    /// The same for one use: those of thousands of threads are not kept.
    pub(super) fn with_words<T>(&self, process: &Process<'_>, with: impl FnOnce(&[(Addr, u64)]) -> T) -> T {
        match self.words.get() {
            Some(words) => with(words),
            None => with(&self.read_words(process)),
        }
    }

    fn read_words(&self, process: &Process<'_>) -> Vec<(Addr, u64)> {
        let mut words = Vec::new();
        for &(start, end) in &self.segments {
            for (at, size) in pieces(start, end) {
                add_words(process, at, size, &mut words);
            }
        }
        words
    }

    /// The words of the first `bytes` bytes above the stack pointer, up to the first page that cannot be read.
    pub(crate) fn top(&self, process: &Process<'_>, bytes: u64) -> Vec<(Addr, u64)> {
        let Some(sp) = self.sp() else { return Vec::new() };
        let mut words = Vec::new();
        pieces(sp, sp + bytes).all(|(at, size)| add_words(process, at, size, &mut words));
        words
    }

    /// Values of the known registers of the innermost `count` frames, with the frame's position.
    pub(crate) fn registers(&self, count: usize) -> Vec<(usize, Register, u64)> {
        let frames = self.thread.map(|t| t.native.frames.as_slice()).unwrap_or_default();
        let mut all: Vec<_> = frames
            .iter()
            .take(count)
            .enumerate()
            .flat_map(|(n, frame)| frame.registers.iter().map(move |(r, v)| (n, r, v)))
            .collect();
        if frames.is_empty()
            && let Some(registers) = self.image.registers
        {
            all.extend(registers.general.iter().map(|(r, v)| (0, r, v)));
        }
        all
    }

    /// Position of the native frame that `slot` of the stack belongs to.
    pub(super) fn native_frame(&self, slot: Addr) -> Option<usize> {
        let frames = self.thread.map(|t| t.native.frames.as_slice()).unwrap_or_default();
        frames.iter().take(SEARCHED_FRAMES).position(|f| f.sp <= slot && f.cfa.is_some_and(|cfa| slot < cfa))
    }

    /// Where the call of native frame `native` returns to.
    pub(crate) fn returns_to(&self, native: usize) -> Option<Addr> {
        self.thread?.native.frames.get(native.checked_add(1)?).map(|caller| caller.pc)
    }

    /// Position of native frame `native` among the merged frames: the outermost of the functions that the compiler
    /// inlined there.
    pub(crate) fn merged(&self, native: usize) -> Option<usize> {
        self.thread?.frames.iter().rposition(|f| f.native == Some(native))
    }

    /// Whether its frames are known: by all its registers, or because its stack could be unwound whole while it slept.
    pub(crate) fn is_read(&self) -> bool {
        self.image.registers.is_some() || self.image.source.is_asleep() && self.thread.is_some_and(Thread::is_unwound)
    }

    /// Position among the merged frames of the Python frame at `address`.
    pub(crate) fn merged_python(&self, address: Addr) -> Option<usize> {
        self.thread?.frames.iter().position(|frame| frame.python == Some(address))
    }

    /// Names of the innermost `count` native frames and what is inlined in them, innermost first.
    pub(crate) fn names(&self, count: usize) -> impl Iterator<Item = (usize, &str)> {
        let frames = self.frames();
        self.names.list.iter().filter(move |name| name.native < count).filter_map(move |name| {
            let function = frames.get(name.merged)?.function.as_deref()?;
            Some((name.native, function.get(name.part.clone())?))
        })
    }

    /// Whether one of the innermost `count` native frames has a name that [begins with](begins_with) one of `prefixes`.
    pub(crate) fn inside(&self, count: usize, prefixes: &'static [&'static str]) -> bool {
        let mut asked = self.names.inside.borrow_mut();
        let is_it = |(frames, known, _): &&(usize, &[&str], bool)| *frames == count && std::ptr::eq(*known, prefixes);
        if let Some((.., answer)) = asked.iter().find(is_it) {
            return *answer;
        }
        let answer = self.names(count).any(|(_, name)| prefixes.iter().any(|prefix| begins_with(name, prefix)));
        asked.push((count, prefixes, answer));
        answer
    }

    /// The first shared library, from the innermost frame, that is not the C library.
    pub(crate) fn first_library(&self, process: &Process<'_>) -> Option<String> {
        let modules = process.context.symbols.modules();
        let frames = self.thread.map(|t| t.native.frames.as_slice()).unwrap_or_default();
        let is_plain =
            |kind: OriginKind| matches!(kind, OriginKind::CLibrary | OriginKind::CppLibrary | OriginKind::Kernel);
        let mut listed =
            frames.iter().take(SEARCHED_FRAMES).filter_map(|frame| modules.list.get(modules.at(frame.pc)?));
        let first = listed.find(|module| !is_plain(of_module(&module.name).kind))?;
        // libffi makes calls for other code, as ctypes does for Python, and has no lock of its own.
        (first.name.contains(".so") && !first.name.starts_with("libffi")).then(|| first.name.to_string())
    }

    /// Calls into another library whose function has no name on the stack, since it ended by a jump into an inner one:
    /// the position of the frame inside, and the name at the call, innermost first.
    pub(crate) fn nameless_entries<'p>(
        &'p self,
        process: &'p Process<'_>,
    ) -> impl Iterator<Item = (usize, String)> + 'p {
        let modules = process.context.symbols.modules();
        let code = Code::new(process.context.image, process.context.symbols);
        let frames = self.thread.map(|t| t.native.frames.as_slice()).unwrap_or_default();
        let pairs = frames.windows(2).take(SEARCHED_FRAMES).enumerate();
        let entries = pairs.filter(move |(native, pair)| {
            let inside = modules.at(pair[0].pc);
            inside.is_some() && !pair[0].signal && inside != modules.at(pair[1].pc) && self.name_of(*native).is_none()
        });
        entries.filter_map(move |(native, pair)| Some((native, code.called_before(pair[1].pc)?)))
    }

    /// The native frame that a signal interrupted, of the innermost handler on the stack.
    pub(crate) fn interrupted(&self) -> Option<usize> {
        let frames = &self.thread?.native.frames;
        frames.iter().take(SEARCHED_FRAMES).position(|frame| frame.signal).map(|native| native + 1)
    }

    /// The name of a native frame.
    fn name_of(&self, native: usize) -> Option<&str> {
        self.thread?.frames.iter().find(|frame| frame.native == Some(native))?.function.as_deref()
    }
}

/// The parts of `[start, end)` that lie in one page each, whole words of it: a page that was not captured must not hide the others.
fn pieces(start: Addr, end: Addr) -> impl Iterator<Item = (Addr, usize)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let left = if at < end { end - at } else { 0 };
        let size = left.min(4096 - (at.0 & 4095)) as usize & !7;
        let piece = (size > 0).then_some((at, size));
        at = at + size as u64;
        piece
    })
}

/// Add the words of a piece of memory that can be read; whether all could.
fn add_words(process: &Process<'_>, at: Addr, size: usize, words: &mut Vec<(Addr, u64)>) -> bool {
    let mut buffer = [0; 4096];
    let piece = buffer.get_mut(..size).unwrap_or_default();
    let read = process.memory().read(at, piece).unwrap_or(0);
    let chunks = piece.get(..read).unwrap_or_default().as_chunks().0;
    words.extend(chunks.iter().zip(0..).map(|(word, number)| (at + 8 * number, u64::from_le_bytes(*word))));
    read == size
}

/// The parts of the stack that its frames cover, adjoining ones joined; and whether some are left out, since they are
/// beyond a limit.
fn segments(image: &ThreadImage, thread: Option<&Thread>) -> (Vec<(Addr, Addr)>, bool) {
    let frames = thread.map(|t| t.native.frames.as_slice()).unwrap_or_default();
    let mut parts: Vec<(Addr, Addr)> = Vec::new();
    let mut total = 0;
    let mut is_cut = frames.len() > SEARCHED_FRAMES;
    for frame in frames.iter().take(SEARCHED_FRAMES) {
        let Some(cfa) = frame.cfa else { continue };
        let start = Addr(frame.sp.0 & !7);
        let size = cfa - start;
        if size == 0 || cfa < start {
            continue;
        }
        if size > SEARCHED_FRAME || total + size > SEARCHED_STACK {
            is_cut = true;
            continue;
        }
        total += size;
        match parts.last_mut() {
            Some(last) if last.1 == start => last.1 = cfa,
            _ => parts.push((start, cfa)),
        }
    }
    if parts.is_empty() {
        let sp = image.registers.and_then(|r| r.general.sp()).or(image.syscall.map(|s| s.sp));
        if let Some(sp) = sp.filter(|sp| !sp.is_null()) {
            let start = Addr(sp.0 & !7);
            parts.push((start, start + TOP_OF_STACK));
        }
    }
    // A wrapped end would make the loops over the words run for ever.
    parts.retain(|(start, end)| start < end);
    (parts, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::FrameKind;

    fn frame(function: &Arc<str>, kind: FrameKind, native: usize) -> Frame {
        Frame { native: Some(native), ..Frame::of(kind, Some(Arc::clone(function))) }
    }

    #[test]
    fn threads_with_the_same_names_at_the_same_places_share_them() {
        let (wait, work): (Arc<str>, Arc<str>) = ("__futex_wait@@GLIBC_2.34".into(), "work".into());
        let stack = |kind, native| vec![frame(&wait, FrameKind::Native, 0), frame(&work, kind, native)];
        let (one, same) = (stack(FrameKind::Native, 1), stack(FrameKind::Native, 1));
        let others = [
            stack(FrameKind::Python, 1),
            stack(FrameKind::Native, 2),
            one[..1].to_vec(),
            vec![frame(&work, FrameKind::Native, 0), frame(&wait, FrameKind::Native, 1)],
            Vec::new(),
        ];
        let mut known = KnownNames::default();
        let first = known.of(&one);
        let parts: Vec<&str> = first.list.iter().map(|name| &wait[name.part.clone()]).take(1).collect();
        assert_eq!((first.list.len(), parts), (2, vec!["futex_wait"]));
        assert!(Rc::ptr_eq(&first, &known.of(&same)));
        for other in &others {
            assert!(!Rc::ptr_eq(&first, &known.of(other)), "{other:?}");
        }
    }
}
