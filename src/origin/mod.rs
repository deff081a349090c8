//! Whose code a frame runs: the program's, a package's, the standard library's, the C library's.
//!
//! In: files of Python code and the folders that the interpreter itself names. Out: an [`Origin`] for each frame,
//! decided once, when the frame is made. Everything else asks the frame. A piece of a path decides nothing: a
//! project's own package may be called `logging`. It reads no memory.

mod python;

use std::sync::Arc;

pub(crate) use python::{PACKAGE_FOLDERS, PythonFolders};

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
    /// lockscope's recorder, or its plugin.
    Lockscope,
}

/// Whose code a frame runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Whose code it is.
    pub(crate) kind: OriginKind,
    /// Which one: the package (`numpy`), the module of the standard library (`threading`). The program has none.
    pub(crate) name: Option<Arc<str>>,
}

impl Origin {
    /// One of this kind and name.
    pub(crate) fn named(kind: OriginKind, name: &str) -> Origin {
        Origin { kind, name: Some(name.into()) }
    }

    /// Whether the code is of this module of the standard library.
    pub(crate) fn is_stdlib(&self, module: &str) -> bool {
        self.kind == OriginKind::Stdlib && self.name.as_deref() == Some(module)
    }

    /// Whether the code is of this package.
    pub(crate) fn is_package(&self, package: &str) -> bool {
        self.kind == OriginKind::Package && self.name.as_deref() == Some(package)
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
