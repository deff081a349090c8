//! Threads of native code that go on and call nothing that wakes: a heartbeat, a thread that computes.
//!
//! In: a thread with its whole stack, and the kind of thing that another one waits for. Out: why it cannot wake, if its code says so. All
//! calls that its functions can still come to are read, and those of the functions that these call, in every module but the one that
//! has the waking call itself, which calls it for nobody. Where a call's target is not known, or a function takes another one to call
//! it, the thread may do anything. Code that wakes by a system call of its own is not seen: it wakes things of its own.

use std::collections::HashSet;

use crate::code::{CallSite, Code, Goal};
use crate::image::Addr;
use crate::limits::code::CALLED_FUNCTIONS;
use crate::symbols::base_symbol;
use crate::unwind::{NativeFrame, StackEnd, Trust};
use crate::waits::family::Way;
use crate::waits::kinds::{self, Kind};
use crate::waits::thread::{Process, ThreadView};

/// Functions of the C library that call others for their caller, or start what does, or end the function that they are called in.
const CALLS_OTHERS: &[&str] = &[
    "bsearch",
    "call_once",
    "clone",
    "dl_iterate_phdr",
    "dlclose",
    "dlopen",
    "exit",
    "ftw",
    "glob",
    "kill",
    "lfind",
    "longjmp",
    "lsearch",
    "makecontext",
    "mtx_init",
    "nftw",
    "on_exit",
    "pthread_create",
    "pthread_exit",
    "pthread_kill",
    "pthread_once",
    "qsort",
    "qsort_r",
    "quick_exit",
    "raise",
    "scandir",
    "setcontext",
    "siglongjmp",
    "swapcontext",
    "syscall",
    "tdelete",
    "tfind",
    "tgkill",
    "thrd_create",
    "thrd_exit",
    "timer_settime",
    "tsearch",
    "twalk",
    "twalk_r",
];

/// The calls that end a wait for a thing of this kind; the first names the library's own.
fn waking(kind: &Kind) -> Option<&'static [&'static str]> {
    const CONDITION: &[&str] = &["pthread_cond_signal", "pthread_cond_broadcast", "cnd_signal", "cnd_broadcast"];
    const SEMAPHORE: &[&str] = &["sem_post"];
    const BARRIER: &[&str] = &["pthread_barrier_wait"];
    match kind {
        _ if *kind == *kinds::PTHREAD_COND => Some(CONDITION),
        _ if *kind == *kinds::SEMAPHORE => Some(SEMAPHORE),
        _ if *kind == *kinds::PTHREAD_BARRIER => Some(BARRIER),
        _ => None,
    }
}

/// Why a thread cannot end a wait for a thing of this kind, if its code says so.
pub(super) fn way(process: &Process<'_>, thread: &ThreadView<'_>, kind: &Kind) -> Option<Way> {
    let waking = waking(kind).filter(|_| process.context.python.is_none())?;
    let stack = &thread.thread?.native;
    let is_whole = stack.end == StackEnd::Bottom && stack.frames.iter().all(|frame| frame.trust != Trust::Scan);
    let mut reading = Reading::new(process, waking);
    let can_wake = !is_whole
        || reading.is_called_by_library(&stack.frames)
        || stack.frames.iter().any(|frame| reading.may_wake_from(frame))
        || reading.ends_with_calls(thread, &stack.frames);
    (!can_wake).then(|| {
        let calls = waking.first().copied().unwrap_or_default();
        Way::Shut(format!("calls nothing from where it stands on that calls {calls}"))
    })
}

/// The functions that were read for one thread.
struct Reading<'r> {
    process: &'r Process<'r>,
    code: Code<'r>,
    waking: &'static [&'static str],
    /// The modules that export the waking call: the C library, and what stands in front of it.
    libraries: HashSet<usize>,
    seen: HashSet<Addr>,
}

impl<'r> Reading<'r> {
    fn new(process: &'r Process<'r>, waking: &'static [&'static str]) -> Self {
        let symbols = process.context.symbols;
        let libraries = waking.first().into_iter().flat_map(|call| symbols.exporters(call)).collect();
        let code = Code::new(process.context.image, symbols);
        Reading { process, code, waking, libraries, seen: HashSet::new() }
    }

    /// Whether the function of a frame may wake, from where it stands on.
    fn may_wake_from(&mut self, frame: &NativeFrame) -> bool {
        if self.is_of_library(frame.lookup) {
            return false;
        }
        let Some(start) = self.process.context.symbols.function_start(frame.lookup) else { return true };
        let sites = self.code.calls_in(start);
        let is_ahead = |site: &&CallSite| self.code.path(frame.pc, Goal::Place(site.at), &[]) != Some(false);
        let mut todo: Vec<CallSite> = sites.iter().filter(is_ahead).cloned().collect();
        while let Some(site) = todo.pop() {
            let Some(called) = self.called(&site) else { return true };
            todo.extend(called);
        }
        false
    }

    /// Whether the library's own functions may call the program's: the thread is the library's, or it is in a function that calls others.
    fn is_called_by_library(&self, frames: &[NativeFrame]) -> bool {
        let mut own = frames.iter().map(|frame| !self.is_of_library(frame.lookup));
        let (Some(first), Some(last)) = (own.clone().position(|is_own| is_own), own.rposition(|is_own| is_own)) else {
            return true;
        };
        let calls_others = |frame: &NativeFrame| {
            let symbol = self.process.context.symbols.function(frame.lookup);
            symbol.is_none_or(|symbol| CALLS_OTHERS.contains(&base_symbol(&symbol.name)))
        };
        frames.iter().enumerate().any(|(position, frame)| {
            let is_of_library = self.is_of_library(frame.lookup);
            is_of_library && (first < position && position < last || position < first && calls_others(frame))
        })
    }

    /// Whether the thread may end and the library then calls the program: at the exit of the process, or to destroy things that
    /// belong to the thread.
    fn ends_with_calls(&self, thread: &ThreadView<'_>, frames: &[NativeFrame]) -> bool {
        const DESTRUCTORS: [&str; 3] = ["pthread_key_create", "tss_create", "__cxa_thread_atexit_impl"];
        let symbols = self.process.context.symbols;
        let outermost = frames.iter().rfind(|frame| !self.is_of_library(frame.lookup));
        let ends = outermost.is_none_or(|frame| self.code.path(frame.pc, Goal::Return, &[]) != Some(false));
        let mut modules = 0..symbols.modules().list.len();
        let is_main = thread.image.tid == self.process.context.image.pid;
        ends && (is_main || modules.any(|module| DESTRUCTORS.iter().any(|call| symbols.imports(module, call))))
    }

    /// The calls of the function that is called; `None` where it wakes, or may.
    fn called(&mut self, site: &CallSite) -> Option<Vec<CallSite>> {
        let name = site.function.as_deref().map(base_symbol);
        if name.is_some_and(|name| self.waking.contains(&name) || CALLS_OTHERS.contains(&name)) {
            return None;
        }
        let target = site.target?;
        if self.is_of_library(target) || self.is_slot_of_library(target, name) || !self.seen.insert(target) {
            return Some(Vec::new());
        }
        let starts_there = self.process.context.symbols.function_start(target) == Some(target);
        (starts_there && self.seen.len() <= CALLED_FUNCTIONS).then(|| self.code.calls_in(target))
    }

    /// Whether code is of a library that has the waking call.
    fn is_of_library(&self, at: Addr) -> bool {
        self.process.context.symbols.modules().at(at).is_some_and(|module| self.libraries.contains(&module))
    }

    /// Whether a function that was not called yet, so that its address is of no module, is one of that library by its name.
    fn is_slot_of_library(&self, at: Addr, name: Option<&str>) -> bool {
        let symbols = self.process.context.symbols;
        let Some(name) = name.filter(|_| symbols.modules().at(at).is_none()) else { return false };
        symbols.exporters(name).next().is_some_and(|module| self.libraries.contains(&module))
    }
}
