//! Doors for the program, the benchmark, the fuzzers and the integration tests: no part of the library's interface, and not kept
//! from version to version.

pub mod files;
pub mod fuzzing;
pub mod stages;

pub use crate::arch::Architecture;
pub use crate::arch::instructions::{Effect, Flow, Place, RegisterMask, Target, Width};
pub use crate::arch::registers::Register;
pub use crate::cli::run;
pub use crate::memory::Addr;
pub use crate::verdict::findings::explanation::{Example, Explanation, Requirement};
pub use crate::verdict::findings::explanations;
