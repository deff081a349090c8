//! What `lockscope explain` tells of a finding, as data.
//!
//! In: nothing; the texts stand beside the rules. Out: [`Explanation`], which the command line sets out for a terminal and
//! of which a report takes the short parts. It holds no layout: lines are broken where they are printed.

use std::fmt;

use crate::report::Severity;

/// The texts of a finding. Paragraphs are one line each, with an empty line between.
#[derive(Debug, Clone, Copy)]
pub struct Explanation {
    /// Its name in the contract.
    pub code: &'static str,
    /// A headline.
    pub title: &'static str,
    /// How grave.
    pub severity: Severity,
    /// What the finding says.
    pub what: &'static str,
    /// How a program gets there.
    pub cause: &'static str,
    /// A small program that does.
    pub example: Example,
    /// What to change, where the rule says nothing closer: the short form, for reports.
    pub help: &'static [&'static str],
    /// What to change in the terms of those who can meet it.
    pub fixes: &'static [Fix],
    /// Public reports of the same.
    pub references: &'static [&'static str],
}

/// A whole program that hangs so every time.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// The name to save it under.
    pub file: &'static str,
    /// Its text.
    pub program: &'static str,
    /// A line of the shell that builds and starts it, in the folder of the file.
    pub command: &'static str,
    /// What a machine must have for it.
    pub needs: Requirement,
}

/// What an example cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// Linux, Python and a C compiler.
    Nothing,
    /// A Python that was built without a GIL.
    PythonWithoutGil,
    /// An NVIDIA GPU with its driver.
    Gpu,
    /// A GPU, and CUDA's forward-compatibility package.
    GpuAndCompatibilityPackage,
    /// Two of them, and PyTorch with NCCL.
    TwoGpusAndPyTorch,
}

impl Requirement {
    /// "an NVIDIA GPU".
    pub fn describe(self) -> Option<&'static str> {
        match self {
            Requirement::Nothing => None,
            Requirement::PythonWithoutGil => Some("a Python that was built without a GIL (python3.13t, python3.14t)"),
            Requirement::Gpu => Some("an NVIDIA GPU"),
            Requirement::GpuAndCompatibilityPackage => {
                Some("an NVIDIA GPU, and an image with NVIDIA's package cuda-compat, as those of nvidia/cuda have it")
            }
            Requirement::TwoGpusAndPyTorch => Some("two NVIDIA GPUs and PyTorch"),
        }
    }
}

/// What to change in one toolkit's terms.
#[derive(Debug, Clone, Copy)]
pub struct Fix {
    /// Whose.
    pub with: Toolkit,
    /// One paragraph.
    pub text: &'static str,
}

/// What programs are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Toolkit {
    /// Python and its standard library.
    Python,
    /// Numba, with numba-cuda.
    Numba,
    /// CuPy.
    CuPy,
    /// PyTorch and its extensions.
    PyTorch,
    /// pybind11.
    Pybind11,
    /// Cython.
    Cython,
    /// PyO3, and Rust behind it.
    PyO3,
    /// C and C++, with CPython's C API or without.
    C,
    /// The command line: environments, containers, batch systems.
    Shell,
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Toolkit::Python => "Python",
            Toolkit::Numba => "Numba",
            Toolkit::CuPy => "CuPy",
            Toolkit::PyTorch => "PyTorch",
            Toolkit::Pybind11 => "pybind11",
            Toolkit::Cython => "Cython",
            Toolkit::PyO3 => "PyO3",
            Toolkit::C => "C and C++",
            Toolkit::Shell => "Shell",
        })
    }
}
