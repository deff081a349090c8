//! Doors for the program, the benchmark, the fuzzers and the integration tests: no part of the library's interface, and not kept
//! from version to version.

pub mod fuzzing;
pub mod stages;

pub use crate::cli::run;
pub use crate::verdict::findings::explanation::{Example, Explanation, Requirement};
pub use crate::verdict::findings::explanations;
