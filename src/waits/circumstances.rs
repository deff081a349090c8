//! What explains a wait and is none: libraries of CUDA in a process, exceptions that threads handle.
//!
//! In: nothing. Out: plain types that families fill and findings read.

use super::model::Party;

/// A library of CUDA in a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CudaLibrary {
    /// Position of its process.
    pub process: usize,
    /// Its file's name, as frames give it.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its version, as far as its file's name tells: `580.159.04`, `13`.
    pub version: Option<String>,
    /// What the driver's library says of the kernel drivers that it works with.
    pub fits: Option<Fits>,
}

/// The note about forward compatibility in the driver's library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fits {
    /// The version of CUDA that it brings: `13.0`.
    pub cuda: String,
    /// Branches of older kernel drivers on which it may run, on hardware that allows it.
    pub branches: Vec<u64>,
}

impl CudaLibrary {
    /// Whether this is the driver's, not the runtime's.
    pub(crate) fn is_driver(&self) -> bool {
        self.name.starts_with("libcuda.so")
    }

    /// The branch of its version: 580 of 580.159.04.
    pub(crate) fn branch(&self) -> Option<u64> {
        branch(self.version.as_deref()?)
    }
}

/// The branch of a driver's version: 580 of 580.159.04.
pub(crate) fn branch(version: &str) -> Option<u64> {
    version.split('.').next()?.parse().ok()
}

/// An exception of Python in whose handler a thread is.
#[derive(Debug, Clone)]
pub(crate) struct Handled {
    /// The thread.
    pub thread: Party,
    /// The exception's class.
    pub class: String,
    /// What it was made with, where that begins with a text.
    pub text: Option<String>,
}

impl Handled {
    /// Whether it tells of an error of CUDA: by its class (CudaAPIError, CUDARuntimeError, cudaError) or its text, as PyTorch's.
    pub(crate) fn is_of_cuda(&self) -> bool {
        let class = self.class.to_ascii_lowercase().contains("cuda");
        class
            || self.text.as_deref().is_some_and(|text| ["CUDA", "cuda", "NCCL"].iter().any(|word| text.contains(word)))
    }

    /// "CudaError: error 700", its first line.
    pub(crate) fn describe(&self) -> String {
        let line = self.text.as_deref().and_then(|text| text.lines().next()).filter(|line| !line.is_empty());
        line.map_or_else(|| self.class.clone(), |line| format!("{}: {line}", self.class))
    }
}
