//! Whose code a frame runs: the program's, a package's, the standard library's, the C library's.
//!
//! In: files of Python code and the folders that the interpreter itself names; modules, sources and names of native functions. Out: an
//! [`Origin`] for each frame, decided once, when the frame is made. Everything else asks the frame. A piece of a path decides nothing in
//! Python: a project's own package may be called `logging`. It reads no memory.

mod native;
mod python;

use std::sync::Arc;

pub(crate) use native::{NativeCode, is_c_library, is_cuda_call, is_nccl_call, of_module};
pub(crate) use python::{PACKAGE_FOLDERS, PythonFolders, takes_locks_for_callers};

/// Modules of the standard library that wait on behalf of their callers, and call the program only where the walk over
/// what code can reach knows it. Source: Lib/ of CPython 3.8 to 3.15.
const WAITING_MODULES: &[&str] = &[
    "asyncio",
    "concurrent",
    "importlib",
    "logging",
    "multiprocessing",
    "queue",
    "selectors",
    "subprocess",
    "threading",
];

/// Packages that do the same: event loops beside `asyncio`.
const WAITING_PACKAGES: &[&str] = &["anyio", "trio"];

/// Whose code it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum OriginKind {
    /// The program's own, or of nobody known.
    #[default]
    Program,
    /// A package that was installed beside the program.
    Package,
    /// Python's standard library.
    Stdlib,
    /// A runner of tests.
    TestRunner,
    /// lockscope's plugin.
    Lockscope,
    /// CPython itself, with the extension modules that come with it.
    Interpreter,
    /// The C library with its loader, or lockscope's recorder, which stands in front of it: what calls the one calls the other.
    CLibrary,
    /// The library of C++, and what its compilers add.
    CppLibrary,
    /// The library of Rust.
    RustLibrary,
    /// Code that the kernel maps into each process.
    Kernel,
    /// The driver or the runtime of CUDA.
    Cuda,
    /// NCCL.
    Nccl,
}

/// Whose code a frame runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Whose code it is.
    pub(crate) kind: OriginKind,
    /// Which package (`numpy`), or which module of the standard library (`threading`). Kinds that are one whole have none.
    pub(crate) name: Option<Arc<str>>,
    /// The module of Python with the packages around it: `multiprocessing.queues`. Native code has none.
    pub(crate) module: Option<Arc<str>>,
}

impl Origin {
    /// One of a kind that is one whole.
    pub(crate) fn of(kind: OriginKind) -> Origin {
        Origin { kind, ..Origin::default() }
    }

    /// One of this kind and name.
    pub(crate) fn named(kind: OriginKind, name: &str) -> Origin {
        Origin { name: Some(name.into()), ..Origin::of(kind) }
    }

    /// Whether the code is the program's own, or of nobody known.
    pub(crate) fn is_program(&self) -> bool {
        self.kind == OriginKind::Program
    }

    /// Whether the code is of this module of the standard library, or of one inside it: `asyncio`, `multiprocessing.queues`.
    pub(crate) fn is_stdlib(&self, module: &str) -> bool {
        self.kind == OriginKind::Stdlib && self.is_in(module)
    }

    /// Whether the code is of this package, or of this module of one: `filelock`, `distributed.utils`.
    pub(crate) fn is_package(&self, module: &str) -> bool {
        self.kind == OriginKind::Package && (self.name.as_deref() == Some(module) || self.is_in(module))
    }

    /// Whether the code is of this module of lockscope's plugin.
    pub(crate) fn is_lockscope(&self, module: &str) -> bool {
        self.kind == OriginKind::Lockscope && self.is_in(module)
    }

    fn is_in(&self, module: &str) -> bool {
        let rest = self.module.as_deref().and_then(|own| own.strip_prefix(module));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// The common name of a whole whose single frames interest no reader: "CPython", "pytest". The program's own code has none.
    pub(crate) fn common_name(&self) -> Option<&str> {
        let whole = match self.kind {
            OriginKind::Program => return None,
            OriginKind::Package | OriginKind::TestRunner | OriginKind::Lockscope => {
                return self.name.as_deref();
            }
            OriginKind::Stdlib => "Python's library",
            OriginKind::Interpreter => "CPython",
            OriginKind::CLibrary => "the C library",
            OriginKind::CppLibrary => "C++'s library",
            OriginKind::RustLibrary => "Rust's library",
            OriginKind::Kernel => "the kernel",
            OriginKind::Cuda => "CUDA",
            OriginKind::Nccl => "NCCL",
        };
        Some(whole)
    }

    /// Whether the code waits on behalf of its caller: `threading`, `queue`, an event loop.
    pub(crate) fn waits_for_caller(&self) -> bool {
        let name = self.name.as_deref().unwrap_or_default();
        match self.kind {
            OriginKind::Stdlib => WAITING_MODULES.contains(&name),
            OriginKind::Package => WAITING_PACKAGES.contains(&name),
            _ => false,
        }
    }
}
