//! lockscope says why a process hangs: who waits for what, who holds it, how that is known, and what to change.
//!
//! # The map
//!
//! Data flows one way, through plain and owned types at each border ([`analysis`] runs the stages):
//!
//! ```text
//! capture   pid | core | snapshot  -> image::Image        threads + registers, mappings, memory, files, kernel facts
//! unwind    &ProcessImage          -> unwind::NativeStack CFI; every known callee-saved register in every frame
//! annotate  stacks + CPython       -> threads::Thread     Python frames merged in, names of threads and functions
//! decode    image, threads         -> waits::Observations waits and holds, each with certainty and evidence
//! graph     waits, holds           -> graph::WaitGraph    pure; knows no lock family
//! judge     graph(s)               -> verdict::Judgement  verdict and findings
//! report    owned, serialisable    -> render::{text, html, json, svg, dot, mermaid, markdown, junit, github}
//! ```
//!
//! [`run`] goes round it: it samples /proc, decides when to look and what equal looks prove, while [`cli`] owns the processes,
//! ends them and tells. A test runner's plugin (scripts/ship/pypi) talks to `cli::monitor` by lines of JSON
//! ([`run::suite`]).
//!
//! # Invariants
//!
//! * After capture nobody asks where the facts came from: a live process ([`image::live`]), a core file
//!   ([`image::core`]) and a snapshot (`snapshot`) all are an [`image::Image`]. A snapshot stores facts and answers of
//!   files, never waits or verdicts: these are found again, by whichever version reads it. Analysis sees memory only through [`image::Memory`], one method, and touches no file descriptor.
//! * *Release, then think*: a live target is stopped only while registers, stacks and the pages that an earlier
//!   look asked for are copied ([`image::live`]). What a first look had to read later, the second look copies
//!   under the stop; a cycle is reported only from a look whose every fact is of one instant.
//! * Nothing is written into the target but the restart of a system call that the stop itself interrupted.
//! * A fact that could not be read is a [`image::Gap`] with its reason; no guess is drawn like a fact.
//! * Layouts of other people's structures are `const` tables beside their only reader, each row with its source.
//! * Every loop over foreign memory is bounded, every length checked: no input makes lockscope panic.
//! * `unsafe` stands in one file, `sys.rs`.
//! * What depends on the machine (registers, system calls, code) stands behind [`arch::Architecture`], a value of each
//!   captured process: nothing else names a register or knows a system call by number.

pub mod analysis;
pub mod arch;
pub mod cli;
pub mod code;
#[doc(hidden)]
pub mod fuzzing;
pub mod graph;
pub mod image;
pub mod memory;
pub mod python;
pub mod render;
pub mod report;
pub mod run;
pub(crate) mod snapshot;
pub mod symbols;
pub(crate) mod sys;
pub mod threads;
pub mod unwind;
pub mod verdict;
pub mod waits;
