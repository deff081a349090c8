//! Whose native code is: by the module that it lies in, by its source file, by the scheme of its name.
//!
//! In: the file name of a module, a function as its symbol has it, a source file as debug information has it. Out: [`Origin`]s. Debug
//! information keeps paths of the machine that compiled, so only the folders of compilers tell.

use super::{Origin, OriginKind};
use crate::recorder::is_recorder;
use crate::symbols::Mangling;

/// Modules that are one whole, by how their names begin.
const WHOLES: &[(&str, OriginKind)] = &[
    ("libc.so", OriginKind::CLibrary),
    ("libc-2", OriginKind::CLibrary),
    ("libc.musl", OriginKind::CLibrary),
    ("libpthread.so", OriginKind::CLibrary),
    ("libpthread-2", OriginKind::CLibrary),
    ("libm.so", OriginKind::CLibrary),
    ("libm-2", OriginKind::CLibrary),
    ("ld-linux", OriginKind::CLibrary),
    ("ld-2", OriginKind::CLibrary),
    ("ld-musl", OriginKind::CLibrary),
    ("libpython", OriginKind::Interpreter),
    ("libstdc++", OriginKind::CppLibrary),
    ("libc++", OriginKind::CppLibrary),
    ("libgcc_s", OriginKind::CppLibrary),
    ("linux-vdso", OriginKind::Kernel),
    ("[vdso]", OriginKind::Kernel),
    ("libcuda.so", OriginKind::Cuda),
    ("libcudart", OriginKind::Cuda),
    ("libnccl", OriginKind::Nccl),
];

/// Modules of packages that need not lie in a folder of Python's, by how their names begin.
const PACKAGES: &[(&str, &str)] = &[
    ("libffi", "libffi"),
    ("_greenlet.", "greenlet"),
    ("_gevent_", "gevent"),
    // gevent's loop over libev (gevent/libev/corecext.pyx).
    ("corecext.", "gevent"),
    ("libtorch", "torch"),
    ("libc10", "torch"),
    ("libcupy", "cupy"),
    ("libnumba", "numba"),
    ("librmm", "rmm"),
    ("libucp", "ucx"),
    ("libuct", "ucx"),
    ("libjax", "jax"),
    ("xla_extension", "jax"),
    ("xla_cuda_plugin", "jax"),
];

/// Sources by a part of their path: headers and libraries that compilers bring.
const SOURCES: &[(&str, OriginKind)] = &[
    ("/include/c++/", OriginKind::CppLibrary),
    ("/include/x86_64-linux-gnu/c++/", OriginKind::CppLibrary),
    ("/include/aarch64-linux-gnu/c++/", OriginKind::CppLibrary),
    ("/rustc/", OriginKind::RustLibrary),
    ("/lib/rustlib/src/", OriginKind::RustLibrary),
];

/// Headers of packages, whose functions are inlined into the program's.
const HEADERS: &[(&str, &str)] = &[("/include/pybind11/", "pybind11")];

/// Where Cargo keeps the sources of crates that are no part of a program's own.
const CRATES: &str = "/registry/src/";

/// Extension modules of CPython's own that wait, or are in a stack that waits, for processes whose folders are not known. Source: Modules/
/// of CPython 3.8 to 3.15.
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

/// Whose code a module of this file name is.
pub(crate) fn of_module(name: &str) -> Origin {
    if let Some((_, kind)) = WHOLES.iter().find(|(start, _)| name.starts_with(start)) {
        return Origin::of(*kind);
    }
    if is_recorder(name) {
        return Origin::of(OriginKind::CLibrary);
    }
    if let Some((_, package)) = PACKAGES.iter().find(|(start, _)| name.starts_with(start)) {
        return Origin::named(OriginKind::Package, package);
    }
    if is_of_cpython(name) { Origin::of(OriginKind::Interpreter) } else { Origin::default() }
}

/// Whether a module of this name is the C library's, or the recorder that stands in front of it.
pub(crate) fn is_c_library(module: &str) -> bool {
    of_module(module).kind == OriginKind::CLibrary
}

/// Native code, as a frame shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NativeCode<'c> {
    /// Its function.
    pub(crate) function: Option<&'c str>,
    /// The scheme of the function's name.
    pub(crate) mangling: Mangling,
    /// Its source file.
    pub(crate) file: Option<&'c str>,
}

impl NativeCode<'_> {
    /// Whose code it is, in a module of this origin.
    pub(crate) fn origin(&self, module: &Origin) -> Origin {
        let function = self.function.unwrap_or_default();
        if is_cuda_call(function) {
            return Origin::of(OriginKind::Cuda);
        }
        if is_nccl_call(function) {
            return Origin::of(OriginKind::Nccl);
        }
        if !matches!(module.kind, OriginKind::Program | OriginKind::Package) {
            return module.clone();
        }
        // Code of compilers may lie in any module.
        let brought = match (self.file, self.mangling) {
            (Some(file), _) => of_source(file),
            _ if function == "_start" => Origin::of(OriginKind::CLibrary),
            (None, Mangling::Rust) if is_of_rust(function) => Origin::of(OriginKind::RustLibrary),
            (None, Mangling::Cpp) if is_of_cpp(function) => Origin::of(OriginKind::CppLibrary),
            _ => Origin::default(),
        };
        if brought.is_program() { module.clone() } else { brought }
    }
}

fn of_source(file: &str) -> Origin {
    if let Some((_, kind)) = SOURCES.iter().find(|(part, _)| file.contains(part)) {
        return Origin::of(*kind);
    }
    if let Some((_, package)) = HEADERS.iter().find(|(part, _)| file.contains(part)) {
        return Origin::named(OriginKind::Package, package);
    }
    let of_crate = file.split_once(CRATES).and_then(|(_, rest)| rest.split('/').nth(1));
    of_crate.map_or_else(Origin::default, |versioned| {
        let name = versioned.rsplit_once('-').map_or(versioned, |(name, _)| name);
        Origin::named(OriginKind::Package, name)
    })
}

/// Whether an interpreter or one of its own extension modules: "python3.11", "_queue.cpython-311-x86_64-linux-gnu.so".
fn is_of_cpython(module: &str) -> bool {
    let stem = module.split('.').next().unwrap_or(module);
    let interpreter = module.strip_prefix("python").is_some_and(|rest| {
        rest.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | 'd' | 'm' | 't'))
    });
    interpreter || module.ends_with(".so") && OF_CPYTHON.contains(&stem)
}

/// Whether a function is named like one of CUDA's driver or runtime: `cuLaunchKernel`, `cudaMalloc`.
pub(crate) fn is_cuda_call(function: &str) -> bool {
    is_call(function, "cuda") || is_call(function, "cu")
}

/// Whether a function is named like one of NCCL: `ncclAllReduce`.
pub(crate) fn is_nccl_call(function: &str) -> bool {
    is_call(function, "nccl")
}

fn is_call(function: &str, prefix: &str) -> bool {
    let rest = function.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
        && function.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
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

    #[test]
    fn code_of_others_has_a_name() {
        use Mangling::{Cpp, Plain, Rust, Unknown};
        let gthread = Some("/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h");
        let crates = Some("/root/.cargo/registry/src/index.crates.io-6f17d22bba15001f/parking_lot-0.12.1/src/mutex.rs");
        for (module, function, file, mangling, expected) in [
            ("libc.so.6", "pthread_mutex_lock", None, Plain, Some("the C library")),
            ("libc-2.31.so", "pthread_mutex_lock", None, Plain, Some("the C library")),
            ("libc-client.so.2007e", "mail_open", None, Plain, None),
            ("python3.11", "take_gil", None, Plain, Some("CPython")),
            ("_queue.cpython-311-x86_64-linux-gnu.so", "", None, Unknown, Some("CPython")),
            ("bank", "__gthread_mutex_lock", gthread, Cpp, Some("C++'s library")),
            ("bank", "std::mutex::lock()", None, Cpp, Some("C++'s library")),
            ("bank", "void std::__invoke_impl<void>(main::{lambda()#1})", None, Cpp, Some("C++'s library")),
            ("bank", "transfer(Account&, Account&)", None, Cpp, None),
            ("bank", "std::sync::mutex::Mutex<i64>::lock", None, Rust, Some("Rust's library")),
            ("bank", "lock_slow", crates, Rust, Some("parking_lot")),
            ("bank", "", None, Unknown, None),
            ("corecext.cpython-311-x86_64-linux-gnu.so", "ev_run", None, Plain, Some("gevent")),
            (
                "_greenlet.cpython-311-x86_64-linux-gnu.so",
                "greenlet::UserGreenlet::inner_bootstrap()",
                None,
                Cpp,
                Some("greenlet"),
            ),
            ("libtorch_cpu.so", "at::native::copy_", None, Cpp, Some("torch")),
            ("bank", "ncclAllReduce", None, Plain, Some("NCCL")),
        ] {
            let code = NativeCode { function: Some(function), mangling, file };
            let origin = code.origin(&of_module(module));
            assert_eq!(origin.common_name(), expected, "{module} {code:?}");
        }
    }

    #[test]
    fn calls_of_cuda_and_nccl_are_known_by_their_names() {
        assert!(is_cuda_call("cuInit") && is_cuda_call("cudaFree"));
        assert!(!is_cuda_call("custom") && !is_cuda_call("cudaError::f(int)"));
        assert!(is_nccl_call("ncclAllReduce") && !is_nccl_call("ncclasync") && !is_nccl_call("ncclComm::f()"));
    }
}
