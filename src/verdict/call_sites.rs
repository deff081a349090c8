//! The call site that matters in a stack, and the provenance of a frame's code: decided here, once for sentences,
//! tables and JSON.
//!
//! In: merged frames. Out: a [`CallSite`] and a [`Library`]. It makes no sentence of them.

use crate::origin::{OriginKind, is_cuda_call, is_nccl_call};
use crate::report::{CallSite, Callback, Library};
use crate::threads::{Frame, FrameKind};

/// The library whose code a frame runs, if it is known. For CUDA and NCCL only entry points count.
pub(super) fn library_of(frame: &Frame) -> Option<Library> {
    let is_entry = |is_call: fn(&str) -> bool| frame.function.as_deref().is_some_and(is_call);
    match frame.origin.kind {
        _ if frame.kind == FrameKind::Python => frame.origin.waits_for_caller().then_some(Library::Python),
        OriginKind::Cuda => is_entry(is_cuda_call).then_some(Library::Cuda),
        OriginKind::Nccl => is_entry(is_nccl_call).then_some(Library::Nccl),
        OriginKind::CLibrary => Some(Library::C),
        OriginKind::RustLibrary => frame.file.is_some().then_some(Library::Rust),
        _ => None,
    }
}

/// Whether a frame runs the program's own code; a mark that is no frame runs none.
pub(super) fn is_own(frame: &Frame) -> bool {
    frame.kind != FrameKind::Boundary && frame.origin.is_program()
}

/// The first frame of the program's own from `from` on: one with a line, if possible.
pub(super) fn own(frames: &[Frame], from: usize) -> Option<usize> {
    let own = || frames.iter().enumerate().skip(from).filter(|(_, frame)| is_own(frame));
    let lined = own().find(|(_, frame)| frame.line.is_some());
    lined.or_else(|| own().next()).map(|(position, _)| position)
}

/// Whether this is an entry point of CUDA or NCCL.
fn is_gpu_call(frame: &Frame) -> bool {
    matches!(library_of(frame), Some(Library::Cuda | Library::Nccl))
}

/// The call to read of the frames from `from` on, which waits or took something. Where Python's library waits, that is what the
/// program called of it. Else, of the native frames up to the next Python frame, the outermost entry point of CUDA, or else the
/// first function that is no inner one of the C library.
pub(super) fn call_site(frames: &[Frame], from: usize) -> CallSite {
    let Some(first) = frames.get(from) else { return CallSite::default() };
    let all = || frames.iter().enumerate().skip(from);
    let python = || all().filter(|(_, frame)| frame.kind == FrameKind::Python);
    if let Some((called, caller)) = library_call(python()) {
        return CallSite { call: Some(called), caller: own(frames, caller).or(Some(caller)) };
    }
    if first.kind == FrameKind::Python {
        let is_of_others = !is_own(first);
        let caller = own(frames, from + 1).filter(|_| is_of_others);
        return CallSite { call: Some(from), caller };
    }
    let native = || all().take_while(|(_, frame)| frame.kind != FrameKind::Python);
    let gpu = native().filter(|(_, frame)| is_gpu_call(frame)).last();
    let named = || native().find(|(_, frame)| !is_inner(frame)).unwrap_or((from, first));
    // A function of the program says more than one of a library that called it, even where it has no name.
    let nameless = |(named, of): &(usize, &Frame)| {
        let is_nameless = |frame: &Frame| frame.function.is_none() && frame.module.is_some() && is_own(frame);
        let of_library = !is_own(of);
        native().take_while(|(at, _)| at < named).find(|(_, frame)| of_library && is_nameless(frame))
    };
    let (call, frame) = gpu.unwrap_or_else(|| nameless(&named()).unwrap_or_else(named));
    // A function of the program itself says where it is; one of a library says who called it.
    let is_line = is_own(frame) && frame.line.is_some();
    let python = || frames.iter().enumerate().skip(call + 1).find(|(_, frame)| frame.kind == FrameKind::Python);
    let python = || python().map(|(position, _)| position);
    let caller = match is_line {
        true => python(),
        false => own(frames, call + 1).or_else(python),
    };
    CallSite { call: Some(call), caller }
}

/// The outermost frame of Python's library, which says what was called, and the frame of the program that called it; of
/// Python frames with their positions, innermost first.
fn library_call<'f>(mut frames: impl Iterator<Item = (usize, &'f Frame)>) -> Option<(usize, usize)> {
    let mut called = None;
    loop {
        let (position, frame) = frames.next()?;
        if !frame.origin.waits_for_caller() {
            return called.zip(Some(position));
        }
        called = Some(position);
    }
}

/// The call site of a thread without a known wait: from its innermost frame with a name on.
pub(super) fn anywhere(frames: &[Frame]) -> CallSite {
    let named = frames.iter().position(|frame| frame.function.is_some());
    // The interpreter's own work for the program does not describe a thread that runs.
    let site = named.map_or(CallSite::default(), |at| call_site(frames, at));
    let is_interpreter = |at: usize| frames.get(at).is_some_and(|frame| frame.origin.kind == OriginKind::Interpreter);
    match (site.call, site.caller) {
        (Some(call), Some(caller)) if is_interpreter(call) => CallSite { call: Some(caller), caller: None },
        _ => site,
    }
}

/// A function that no program calls by name.
fn is_inner(frame: &Frame) -> bool {
    let inner = |name: &str| name.starts_with("__") || name.starts_with("futex") || name == "syscall";
    frame.kind == FrameKind::Boundary || frame.function.as_deref().is_none_or(inner)
}

/// The callback inside the call at frame `taken`, which took the thread's hold: the code that waits at frame `waits`.
/// On the way into Python (`into_python`) only an entry point of CUDA counts as a caller.
pub(super) fn callback(frames: &[Frame], waits: usize, taken: usize, into_python: bool) -> Option<Callback> {
    let taker = frames.get(taken).filter(|frame| taken > waits && frame.kind != FrameKind::Python)?;
    let inside = frames.get(waits..taken)?;
    // A library may stand between, as PyTorch does before a hook: the program's own line says more.
    let of_python = |frame: &Frame| frame.kind == FrameKind::Python;
    let own = inside.iter().position(|frame| of_python(frame) && is_own(frame));
    if let Some(python) = own.or_else(|| inside.iter().rposition(of_python)) {
        return Some(Callback { frame: Some(waits + python) });
    }
    let outer = frames.iter().skip(taken).take_while(|frame| frame.kind != FrameKind::Python);
    let calls = into_python && (is_gpu_call(taker) || outer.into_iter().any(is_gpu_call));
    calls.then_some(Callback { frame: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::testing::frame;

    fn native(function: &str) -> Frame {
        frame(FrameKind::Native, function, None, Some("libc.so.6"))
    }

    fn python(function: &str, file: &str) -> Frame {
        frame(FrameKind::Python, function, Some(file), None)
    }

    #[test]
    fn the_call_is_what_a_program_calls_by_name() {
        let own = |name: &str| frame(FrameKind::Native, name, Some("/src/bank.c"), Some("bank"));
        let frames = [native("__lll_lock_wait"), native("pthread_mutex_lock"), own("transfer"), own("main")];
        assert_eq!(call_site(&frames, 0), CallSite { call: Some(1), caller: Some(2) });
        assert_eq!(call_site(&frames, 2), CallSite { call: Some(2), caller: None });
        let gpu = [native("futex_wait"), native("cuLaunchKernel"), native("cudaLaunchKernel"), python("step", "/t.py")];
        assert_eq!(call_site(&gpu, 0), CallSite { call: Some(2), caller: Some(3) });
        assert_eq!(anywhere(&[native(""), native("")]), CallSite::default());
        assert_eq!(call_site(&frames, 9), CallSite::default());
    }

    #[test]
    fn of_pythons_library_it_is_what_the_program_called() {
        let library = "/usr/lib/python3.12/threading.py";
        let frames = [
            native("sem_wait"),
            python("Condition.wait", library),
            python("Event.wait", library),
            python("f", "/a.py"),
        ];
        assert_eq!(call_site(&frames, 0), CallSite { call: Some(2), caller: Some(3) });
        // Nobody called it: a thread that the library made.
        assert_eq!(call_site(&frames[..3], 1), CallSite { call: Some(1), caller: None });
    }

    #[test]
    fn a_callback_is_called_by_what_took_the_lock() {
        let frames = [
            native("take_gil"),
            python("<lambda>", "/compiler.py"),
            native("cuOccupancyMaxPotentialBlockSize"),
            python("f", "/a.py"),
        ];
        assert_eq!(callback(&frames, 0, 2, true), Some(Callback { frame: Some(1) }));
        assert_eq!(callback(&frames, 0, 3, true), None, "Python code took it");
        assert_eq!(callback(&frames[2..], 0, 0, true), None);
        let on_the_way = [native("take_gil"), native("ffi_closure"), native("cuMemAlloc"), python("f", "/a.py")];
        assert_eq!(callback(&on_the_way, 0, 2, true), Some(Callback { frame: None }));
        assert_eq!(callback(&on_the_way, 0, 2, false), None);
    }

    #[test]
    fn the_first_own_frame_is_one_with_a_line_if_there_is_such() {
        let own_frame = || frame(FrameKind::Native, "Cache::get(int)", None, Some("fastcache.so"));
        let libc = || native("pthread_mutex_lock");
        assert_eq!(own(&[libc(), own_frame(), python("f", "/srv/a.py")], 0), Some(2));
        assert_eq!(own(&[libc(), own_frame(), libc()], 0), Some(1));
        assert_eq!(own(&[libc()], 0), None);
        assert_eq!(own(&[own_frame()], 9), None);
    }
}
