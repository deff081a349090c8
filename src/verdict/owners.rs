//! The provenance of a frame's code, by its common name. The program's own code has none.
//!
//! In: merged frames. Out: a name ("CPython", "pytest", "the C library") or none, and the first frame that is the program's own.
//! It decides by files and modules alone, never by what a function does, and reads nothing.

use std::borrow::Cow;

use crate::origin::{Origin, OriginKind};
use crate::symbols::Mangling;
use crate::threads::{Frame, FrameKind};
use crate::waits::c_library::is_c_library;
use crate::waits::cuda;

/// The name of a whole, such as a library, whose single frames interest no reader.
type Owner = Cow<'static, str>;

pub(super) const CPYTHON: &str = "CPython";
const PYTHONS_LIBRARY: &str = "Python's library";
const C_LIBRARY: &str = "the C library";
const CPP_LIBRARY: &str = "C++'s library";
const RUST_LIBRARY: &str = "Rust's library";

/// Modules by how their names begin.
const MODULES: &[(&str, &str)] = &[
    ("libpython", CPYTHON),
    ("libstdc++", CPP_LIBRARY),
    ("libc++", CPP_LIBRARY),
    ("libgcc_s", CPP_LIBRARY),
    ("libffi", "libffi"),
    ("linux-vdso", "the kernel"),
    ("[vdso]", "the kernel"),
    ("libcuda.so", "CUDA"),
    ("libcudart", "CUDA"),
    ("_greenlet.", "greenlet"),
    ("_gevent_", "gevent"),
    // gevent's loop over libev (gevent/libev/corecext.pyx).
    ("corecext.", "gevent"),
];

/// Files by a part of their path: headers whose functions are inlined into the program's.
const FILES: &[(&str, &str)] = &[
    ("/include/c++/", CPP_LIBRARY),
    ("/include/x86_64-linux-gnu/c++/", CPP_LIBRARY),
    ("/include/pybind11/", "pybind11"),
    ("/rustc/", RUST_LIBRARY),
    ("/lib/rustlib/src/", RUST_LIBRARY),
];

/// Where Cargo keeps the sources of crates that are no part of a program's own.
const CRATES: &str = "/registry/src/";

/// Extension modules of CPython's own that wait, or are in a stack that waits. Source: Modules/ of CPython 3.8 to 3.15.
const OF_CPYTHON: &[&str] = &[
    "_asyncio",
    "_ctypes",
    "_datetime",
    "_io",
    "_json",
    "_multiprocessing",
    "_pickle",
    "_posixshmem",
    "_posixsubprocess",
    "_queue",
    "_socket",
    "_sqlite3",
    "_ssl",
    "_thread",
    "fcntl",
    "mmap",
    "readline",
    "select",
    "termios",
    "zlib",
];

/// Whose code a frame runs; none for the program's own, and for a mark that is no frame.
pub(super) fn owner(frame: &Frame) -> Option<Owner> {
    match frame.kind {
        FrameKind::Boundary => None,
        FrameKind::Python => of_python(&frame.origin),
        FrameKind::Native | FrameKind::Inline => of_native(frame),
    }
}

/// The first frame of the program's own from `from` on: one with a line, if possible.
pub(super) fn own(frames: &[Frame], from: usize) -> Option<usize> {
    let own = || {
        let numbered = frames.iter().enumerate().skip(from);
        numbered.filter(|(_, frame)| frame.kind != FrameKind::Boundary && owner(frame).is_none())
    };
    let lined = own().find(|(_, frame)| frame.line.is_some());
    lined.or_else(|| own().next()).map(|(position, _)| position)
}

fn of_python(origin: &Origin) -> Option<Owner> {
    match origin.kind {
        OriginKind::Program => None,
        OriginKind::Stdlib => Some(PYTHONS_LIBRARY.into()),
        _ => origin.name.as_deref().map(|name| name.to_owned().into()),
    }
}

fn of_native(frame: &Frame) -> Option<Owner> {
    let (module, function) = (frame.module.as_deref(), frame.function.as_deref().unwrap_or_default());
    if cuda::calls::is_api(function) {
        return Some("CUDA".into());
    }
    if let Some(module) = module {
        if is_c_library(module) {
            return Some(C_LIBRARY.into());
        }
        if is_of_cpython(module) {
            return Some(CPYTHON.into());
        }
        if let Some((_, owner)) = MODULES.iter().find(|(start, _)| module.starts_with(start)) {
            return Some((*owner).into());
        }
    }
    if let Some(file) = frame.file.as_deref() {
        if let Some((_, owner)) = FILES.iter().find(|(part, _)| file.contains(part)) {
            return Some((*owner).into());
        }
        if let Some((_, rest)) = file.split_once(CRATES) {
            return rest
                .split('/')
                .nth(1)
                .map(|named| named.rsplit_once('-').map_or(named, |(name, _)| name).to_owned().into());
        }
        return None;
    }
    match frame.mangling {
        _ if function == "_start" => Some(C_LIBRARY.into()),
        Mangling::Rust if is_of_rust(function) => Some(RUST_LIBRARY.into()),
        Mangling::Cpp if is_of_cpp(function) => Some(CPP_LIBRARY.into()),
        _ => None,
    }
}

/// Whether an interpreter or one of its own extension modules: "python3.11", "_queue.cpython-311-x86_64-linux-gnu.so".
pub(super) fn is_of_cpython(module: &str) -> bool {
    let stem = module.split('.').next().unwrap_or(module);
    let interpreter = module.strip_prefix("python").is_some_and(|rest| {
        rest.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | 'd' | 'm' | 't'))
    });
    interpreter || module.ends_with(".so") && OF_CPYTHON.contains(&stem)
}

/// `std::sys::sync::Mutex::lock`, `<core::cell::Cell<T> as core::ops::Drop>::drop`.
fn is_of_rust(function: &str) -> bool {
    let path = function.trim_start_matches(['<', '&', '*']);
    ["std::", "core::", "alloc::", "__rust_", "test::"].iter().any(|start| path.starts_with(start))
}

/// `std::mutex::lock()`, `void std::__invoke_impl<...>(...)`.
fn is_of_cpp(function: &str) -> bool {
    let name = function.split(['<', '(']).next().unwrap_or(function);
    let path = name.rsplit(' ').next().unwrap_or(name);
    path.starts_with("std::") || path.starts_with("__gthread") || path.starts_with("__gnu_cxx::")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::testing::frame;

    fn native(function: &str, file: Option<&str>, module: &str, mangling: Mangling) -> Frame {
        Frame { mangling, ..frame(FrameKind::Native, function, file, Some(module)) }
    }

    fn python(file: &str) -> Frame {
        frame(FrameKind::Python, "f", Some(file), None)
    }

    #[test]
    fn code_of_others_has_a_name() {
        use Mangling::{Cpp, Plain, Rust, Unknown};
        let gthread = Some("/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h");
        let crates = Some("/root/.cargo/registry/src/index.crates.io-6f17d22bba15001f/parking_lot-0.12.1/src/mutex.rs");
        for (frame, expected) in [
            (native("pthread_mutex_lock", None, "libc.so.6", Plain), Some("the C library")),
            (native("take_gil", None, "python3.11", Plain), Some("CPython")),
            (native("", None, "_queue.cpython-311-x86_64-linux-gnu.so", Unknown), Some("CPython")),
            (native("__gthread_mutex_lock", gthread, "bank", Cpp), Some("C++'s library")),
            (native("std::mutex::lock()", None, "bank", Cpp), Some("C++'s library")),
            (native("void std::__invoke_impl<void>(main::{lambda()#1})", None, "bank", Cpp), Some("C++'s library")),
            (native("transfer(Account&, Account&)", None, "bank", Cpp), None),
            (native("std::sync::mutex::Mutex<i64>::lock", None, "bank", Rust), Some("Rust's library")),
            (native("lock_slow", crates, "bank", Rust), Some("parking_lot")),
            (native("", None, "bank", Unknown), None),
            (native("ev_run", None, "corecext.cpython-311-x86_64-linux-gnu.so", Plain), Some("gevent")),
            (
                native(
                    "greenlet::UserGreenlet::inner_bootstrap()",
                    None,
                    "_greenlet.cpython-311-x86_64-linux-gnu.so",
                    Cpp,
                ),
                Some("greenlet"),
            ),
            (python("/usr/lib/python3.11/threading.py"), Some("Python's library")),
            (python("<frozen runpy>"), Some("Python's library")),
            (python("/venv/lib/python3.11/site-packages/_pytest/runner.py"), Some("pytest")),
            (python("/venv/lib/python3.11/site-packages/pluggy/_callers.py"), Some("pluggy")),
            (python("/srv/orders/service.py"), None),
            (python("<string>"), None),
        ] {
            assert_eq!(owner(&frame).as_deref(), expected, "{frame:?}");
        }
    }

    #[test]
    fn the_first_own_frame_is_one_with_a_line_if_there_is_such() {
        let libc = || native("pthread_mutex_lock", None, "libc.so.6", Mangling::Plain);
        let own = || native("Cache::get(int)", None, "fastcache.so", Mangling::Cpp);
        assert_eq!(super::own(&[libc(), own(), python("/srv/a.py")], 0), Some(2));
        assert_eq!(super::own(&[libc(), own(), libc()], 0), Some(1));
        assert_eq!(super::own(&[libc()], 0), None);
        assert_eq!(super::own(&[own()], 9), None);
    }
}
