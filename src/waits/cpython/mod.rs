//! CPython's own waits: the GIL. Python-level locks will stand here too.
//!
//! In: the [`Python`](crate::python::Python) of a process and what the libc family saw. Out: waits for and holds
//! of interpreter locks. It reads no Python object.

pub mod gil;

use super::Observations;
use super::facts::{Process, ThreadFacts};
use super::family::{Decoded, Family, Found, Look};

/// The family.
#[derive(Debug)]
pub struct Cpython;

impl Family for Cpython {
    fn name(&self) -> &'static str {
        "cpython"
    }

    fn decode(&self, process: &Process<'_>, thread: &ThreadFacts<'_>, below: Option<&Decoded>) -> Option<Decoded> {
        gil::decode(process, thread, below)
    }

    fn holds(&self, look: &Look<'_>, _waits: &[Found], out: &mut Observations) {
        for process in &look.processes {
            gil::holds(process, out);
        }
    }
}
