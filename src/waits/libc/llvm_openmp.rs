//! LLVM's runtime of OpenMP (libomp, Intel's libiomp5): locks and critical sections, whose waiters burn CPU, and barriers.
//!
//! In: a thread inside of the runtime's exported calls, with nothing but the runtime and the C library further in. Out: the
//! lock by the call's parameter, with the holder by the code between the calls; the barrier by the function that the team runs.
//! Which barrier of a team it is, and who is in the team, is not known: the runtime's own structures are not read.

use super::lock_calls::{LLVM_CRITICAL, OPENMP};
use super::{Case, HolderRule};
use crate::code::Code;
use crate::image::Addr;
use crate::limits::libc::CALL_FRAMES;
use crate::origin::OriginKind;
use crate::symbols::{base_symbol, begins_with};
use crate::threads::Frame;
use crate::waits::blocked_on::{BlockedOn, LockCalls, Ownership};
use crate::waits::identity::{key, label};
use crate::waits::kinds;
use crate::waits::label::Label;
use crate::waits::model::Resource;
use crate::waits::thread::{Process, ThreadView};

const RUNTIMES: &[&str] = &["libomp.", "libomp-", "libiomp"];

/// Calls that take a lock.
#[derive(Debug)]
struct Call {
    /// How their names begin.
    names: &'static [&'static str],
    noun: &'static str,
    /// Which of its parameters, from 0, is the lock (openmp/runtime/src/kmp_csupport.cpp, LLVM 19).
    lock: usize,
    calls: &'static LockCalls,
}

const CALLS: &[Call] = &[
    Call { names: &["kmpc_critical"], noun: "critical section", lock: 2, calls: &LLVM_CRITICAL },
    Call { names: &["kmpc_set_lock", "kmpc_set_nest_lock"], noun: "OpenMP lock", lock: 2, calls: &OPENMP },
    // The functions that GCC's code calls, where this runtime replaces GCC's own.
    Call { names: &["GOMP_critical_name_start"], noun: "critical section", lock: 0, calls: &OPENMP },
    Call { names: &["omp_set_lock", "omp_set_nest_lock"], noun: "OpenMP lock", lock: 0, calls: &OPENMP },
];
/// The text that clang puts around the name of a critical section, of the language or the platform.
const PREFIX: &str = ".gomp_critical_user_";
const SUFFIXES: &[&str] = &[".AS0.var", "AS0.var", ".var", "var"];

/// Where a team waits for its members: at a barrier, and at the end of a parallel region.
const BARRIERS: &[&str] = &["kmpc_barrier", "kmpc_cancel_barrier", "kmpc_fork_call", "GOMP_barrier", "GOMP_parallel"];

/// A thread that runs in a call for a lock: it polls.
pub(super) fn lock(process: &Process<'_>, thread: &ThreadView<'_>) -> Option<BlockedOn> {
    thread.image.registers?;
    let (at, name, call) = entry(thread, |name| CALLS.iter().find(|call| is_of(name, call.names)))?;
    let thread_frames = thread.thread?;
    let frames = &thread_frames.native.frames;
    let native = thread_frames.frames.get(at)?.native?;
    let code = Code::new(process.context.image, process.context.symbols);
    let lock = code.parameter(frames, native, call.lock).map(Addr).filter(|lock| !lock.is_null())?;
    let mut label = label(process, thread, call.noun, lock);
    match label.name.as_deref().and_then(own_name) {
        Some("") => (label.noun, label.name) = (format!("{} without a name", call.noun), None),
        Some(name) => label.name = Some(name.to_owned()),
        None => {}
    }
    let resource = Resource {
        key: key(process, kinds::OPENMP_LOCK, lock),
        process: process.context.process,
        label,
        state: Vec::new(),
        role: None,
    };
    let evidence = vec![format!("it runs in {name} with the lock {lock}, by the code of that function")];
    Some(BlockedOn {
        at: Some(at),
        spinning: true,
        ownership: Ownership::LockedInCode(lock, call.calls),
        ..BlockedOn::of(resource, None, evidence)
    })
}

/// A thread that sleeps at a barrier of its team. Optimised, the team's function may have jumped to it: then the runtime's own
/// call of that stands for it.
pub(super) fn barrier(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let (at, name, _) = entry(case.thread, |name| is_of(name, BARRIERS).then_some(()))?;
    let thread = case.thread.thread?;
    let outside = thread.native.frames.get(thread.frames.get(at)?.native? + 1)?;
    let function = case.process.context.symbols.function(outside.lookup)?;
    let is_of_program = !thread.frames.get(at + 1).is_some_and(is_runtime);
    let resource = Resource {
        key: key(case.process, kinds::PTHREAD_BARRIER, function.address),
        process: case.process.context.process,
        label: Label::from("OpenMP barrier").named(is_of_program.then(|| function.name.to_string())),
        state: Vec::new(),
        role: None,
    };
    let evidence = vec![format!("the thread is inside {name}, called by {}", function.name)];
    let ownership = Ownership::private(HolderRule::Barrier { is_glibc: false });
    Some(BlockedOn { at: Some(at), ..case.below.refined(resource, &[], evidence).owned(ownership) })
}

fn is_of(name: &str, begins: &[&str]) -> bool {
    begins.iter().any(|begin| begins_with(name, begin))
}

fn is_runtime(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(|module| RUNTIMES.iter().any(|runtime| module.starts_with(runtime)))
}

/// The innermost frame of the runtime with a matching name, that name, and its meaning. Further in are only the runtime
/// and the C library: a thread that waits at a barrier may meanwhile run a task of the program.
fn entry<Found>(thread: &ThreadView<'_>, find: impl Fn(&str) -> Option<Found>) -> Option<(usize, String, Found)> {
    let is_inside = |frame: &&Frame| is_runtime(frame) || frame.origin.kind == OriginKind::CLibrary;
    let frames = thread.thread?.frames.iter().take(CALL_FRAMES).take_while(is_inside);
    frames.enumerate().filter(|(_, frame)| is_runtime(frame)).find_map(|(at, frame)| {
        let name = frame.function.as_deref()?;
        Some((at, name.to_owned(), find(base_symbol(name))?))
    })
}

/// The name that the program gave to a critical section, by that of its lock.
fn own_name(symbol: &str) -> Option<&str> {
    let name = symbol.strip_prefix(PREFIX)?;
    Some(SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name))
}
