//! lockscope says why a process hangs: who waits for what, who holds it, how that is known, and what to change.
//!
//! The library is what the command line tool does: [`attach`] to processes, or look at cores and snapshots [`post_mortem`]; both give a
//! [`Report`], the data of the JSON contract; [`render()`] writes it.
//!
//! ```
//! use lockscope::report::{Certainty, Verdict};
//! use lockscope::{CoreOptions, Format, Style};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Of a program in which `ledger_lock` and `journal_lock` are taken in two orders.
//! # let snapshot = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/snapshots/lock-order.snapshot.zst");
//! let report = lockscope::post_mortem(&CoreOptions::of([snapshot]))?;
//! assert_eq!(report.verdict, Verdict::Deadlock);
//! assert_eq!(report.findings[0].code, "lock-order-cycle");
//! assert_eq!(report.cycles[0].certainty, Certainty::Exact);
//!
//! let mut text = Vec::new();
//! lockscope::render(&report, Format::Text, &Style::plain(), &mut text)?;
//! assert!(String::from_utf8(text)?.contains("mutex `journal_lock`"));
//! # Ok(())
//! # }
//! ```
//!
//! All else is the library's own, and the pages below are for those who work on it.
//!
//! # The map
//!
//! Data flows one way, through plain and owned types at each border (`analysis` runs the stages):
//!
//! ```text
//! capture   pid | core | snapshot  -> image::Image        threads + registers, mappings, memory, files, kernel facts
//! unwind    &ProcessImage          -> unwind::NativeStack CFI; every known callee-saved register in every frame
//! annotate  stacks + CPython       -> threads::Thread     Python frames merged in, names of threads and functions
//! decode    image, threads         -> waits::Observations waits and holds, each with certainty and evidence
//! graph     waits, holds           -> graph::WaitGraph    pure; knows no lock family
//! judge     graph(s)               -> verdict::Judgement  verdict and findings
//! report    owned, serialisable    -> render::{text, short, html, json, svg, dot, mermaid, markdown, junit, github}
//! ```
//!
//! `run` goes round it: it samples /proc, decides when to look and what equal looks prove, and starts and ends the command
//! (`run::lookers`: the process that keeps limits and signals never looks, and the one that looks may die of it), while `cli`
//! decides what becomes of a hang and tells. A test runner's plugin (scripts/ship/pypi) talks to `cli::monitor` by lines of JSON
//! (`run::suite`).
//!
//! # What imports what
//!
//! Each room of the crate and the rooms that it imports, lowest first; of `waits`, each layer. A test reads the `use` lines
//! and paths of the source and compares, and refuses circles at any depth.
//!
//! ```text
//! sys                  ->
//! memory               ->
//! manual               ->
//! limits               ->
//! arch                 -> memory limits
//! launcher             -> limits
//! nccl_ras             ->
//! in_parts             ->
//! image                -> sys memory arch limits launcher nccl_ras in_parts
//! recorder             -> limits image
//! modules              -> memory arch limits image
//! unwind               -> arch limits image modules
//! symbols              -> limits image modules unwind
//! code                 -> arch limits image unwind symbols
//! gpu                  -> limits image symbols
//! python               -> limits image symbols
//! threads              -> limits image recorder unwind symbols code python
//! waits::label         ->
//! waits::kinds         -> waits::label
//! waits::model         -> image waits::label waits::kinds
//! waits::circumstances -> image waits::model
//! waits::cluster       ->
//! waits::collective    ->
//! waits::observations  -> image waits::model waits::circumstances waits::cluster waits::collective
//! waits::blocked_call  -> arch image
//! waits::c_library     -> arch image recorder
//! waits::thread        -> arch limits image symbols code gpu python threads waits::blocked_call waits::c_library
//! waits::polling       -> python waits::thread
//! waits::references    -> arch limits image waits::blocked_call waits::thread
//! waits::identity      -> image waits::label waits::kinds waits::model waits::thread
//! waits::blocked_on    -> image waits::model waits::blocked_call
//! waits::progress      -> arch image waits::kinds waits::thread waits::blocked_on
//! waits::holders       -> limits image unwind symbols code threads waits::label waits::kinds waits::model waits::observations waits::thread waits::references waits::blocked_on
//! waits::family        -> waits::kinds waits::observations waits::thread waits::blocked_on waits::holders
//! waits::kernel        -> arch limits image waits::label waits::kinds waits::model waits::observations waits::blocked_call waits::thread waits::polling waits::identity waits::blocked_on waits::holders waits::family
//! waits::libc          -> arch limits image unwind symbols code threads waits::label waits::kinds waits::model waits::observations waits::blocked_call waits::c_library waits::thread waits::references waits::identity waits::blocked_on waits::holders waits::family
//! waits::absl          -> limits image waits::kinds waits::model waits::observations waits::blocked_call waits::thread waits::identity waits::blocked_on waits::holders waits::family
//! waits::pools         -> image symbols threads unwind waits::label waits::kinds waits::model waits::observations waits::c_library waits::thread waits::blocked_on waits::holders waits::family
//! waits::mpi           -> limits image code waits::kinds waits::model waits::collective waits::observations waits::thread waits::blocked_on waits::progress waits::holders waits::family
//! waits::c10d          -> image launcher limits threads waits::kinds waits::model waits::collective waits::observations waits::thread waits::blocked_on waits::progress waits::holders waits::family
//! waits::cuda          -> arch limits image modules unwind symbols code gpu threads waits::label waits::kinds waits::model waits::circumstances waits::observations waits::c_library waits::thread waits::references waits::blocked_on waits::holders waits::family
//! waits::cpython       -> limits image python threads waits::label waits::kinds waits::model waits::circumstances waits::cluster waits::collective waits::observations waits::c_library waits::thread waits::identity waits::blocked_on waits::holders waits::family
//! waits::recorded      -> image python recorder unwind waits::kinds waits::model waits::circumstances waits::observations waits::thread waits::holders
//! waits::ways_out      -> image limits python threads waits::kinds waits::model waits::observations waits::thread waits::blocked_on waits::holders waits::family
//! waits::observe       -> limits symbols waits::kinds waits::model waits::observations waits::thread waits::blocked_on waits::holders waits::family waits::kernel waits::libc waits::absl waits::pools waits::mpi waits::c10d waits::cuda waits::cpython waits::recorded waits::ways_out
//! graph                -> limits waits
//! report               -> launcher nccl_ras image threads waits
//! verdict              -> launcher limits nccl_ras in_parts image unwind symbols gpu python threads graph waits report
//! job                  -> launcher limits nccl_ras report waits
//! render               -> limits waits report
//! snapshot             -> memory arch limits image modules unwind symbols python threads
//! analysis             -> arch limits in_parts image modules unwind symbols gpu python threads report verdict snapshot waits
//! forecast             -> limits image recorder modules symbols threads report waits
//! run                  -> sys limits image gpu report render analysis
//! cli                  -> sys manual limits launcher image recorder forecast job report verdict render snapshot analysis run
//! internals            -> memory arch limits image modules unwind symbols code gpu python threads verdict job render snapshot analysis cli waits
//! ```
//!
//! # The tree
//!
//! ```text
//! analysis/            the stages in their order; what a second look confirms
//! analysis/pyspy/      py-spy, where it is built in
//! arch/                the machine: registers, system calls, instructions
//! arch/aarch64/        64-bit Arm
//! arch/x86_64/         AMD64, Intel 64
//! cli/                 commands, their arguments, what is printed where
//! code/                reading machine code: which calls came before, with which values
//! forecast/            what could hang another time, by what a recorder wrote down
//! gpu/                 what ran on GPUs, by cores of them
//! graph/               who waits for whom: what is stuck, cycles
//! image/               what was captured, wherever it came from
//! image/core/          core files
//! image/live/          running processes
//! limits/              the bounds over foreign data, and that meeting one is told
//! image/live/asleep/   registers of sleeping threads without a stop
//! job/                 one verdict over all ranks of a job
//! job/cluster/         one verdict over the processes of a cluster of workers
//! job/witness/         what PyTorch, NCCL, Ray, Slurm and Kubernetes say of ranks, from their files
//! internals/           doors for the program, the benchmark, fuzzers and tests
//! manual/              pages about its use, for a terminal and for a browser
//! memory/              bytes at an address: the one seam to the memory of a target
//! modules/             the ELF files that a process maps
//! python/              CPython's structures
//! recorder/            what the recorder wrote down in a process; in preload/ its library, which is compiled by itself
//! render/              the report for people and tools
//! render/layout/       places of boxes and lines
//! render/text/         the report in a terminal
//! report/              the report as plain data
//! run/                 watching commands and test suites
//! snapshot/            captured facts in a file
//! symbols/             names of addresses
//! threads/             stacks with Python's frames merged in
//! unwind/              native stacks
//! verdict/             what the graph means
//! verdict/findings/    known mistakes, a folder each
//! waits/               who sleeps on what, and who has it
//! waits/absl/          the family of Abseil
//! waits/c10d/          the family of PyTorch's distributed part
//! waits/cpython/       the family of CPython
//! waits/cpython/dask/  what Dask's processes wait for and hold
//! waits/cpython/ray/   what Ray's processes run and wait for
//! waits/cuda/          the family of CUDA
//! waits/ways_out/      who could still end a wait
//! waits/holders/       who has it, by rules that more than one family needs
//! waits/kernel/        the family of the kernel
//! waits/libc/          the family of the C library
//! waits/mpi/           the family of MPI
//! waits/pools/         the family of libraries with workers
//! ```
//!
//! # Invariants
//!
//! * After capture nobody asks where the facts came from: a live process (`image::live`), a core file
//!   (`image::core`) and a snapshot (`snapshot`) all are an `image::Image`. A snapshot stores facts and answers of
//!   files, never waits or verdicts: these are found again, by whichever version reads it. Analysis sees memory only through `image::Memory`, one method, and touches no file descriptor.
//! * *Release, then think*: a live target is stopped only while registers, stacks and the pages that an earlier
//!   look asked for are copied (`image::live`). What a first look had to read later, the second look copies
//!   under the stop; a cycle is reported only from a look whose every fact is of one instant.
//! * The tracer reads no memory: that is done by a process of its own (`image::live`, `copier`), which a page that never comes
//!   leaves behind. So neither the stop nor the look depends on whoever serves the target's memory.
//! * Nothing is written into the target but the restart of a system call that the stop itself interrupted. Code of lockscope's runs
//!   in a command that was started by `run --record`, and nowhere else.
//! * A fact that could not be read is a `image::Gap` with its reason; no guess is drawn like a fact.
//! * Layouts of other people's structures are `const` tables beside their only reader, each row with its source.
//! * Every loop over foreign memory is bounded by a row of `limits`, every length checked: no input makes lockscope panic, and
//!   where a bound hides something the report says so.
//! * `unsafe` stands in one file, `sys.rs`, and in the recorder's library, which is no part of this crate.
//! * What depends on the machine (registers, system calls, code) stands behind `arch::Architecture`, a value of each
//!   captured process: nothing else names a register or knows a system call by number.

// No input makes it panic, and only `cli` prints or ends the process.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::exit,
        clippy::dbg_macro,
        clippy::todo,
        clippy::unimplemented,
        clippy::unreachable
    )
)]

mod analysis;
mod arch;
mod cli;
mod code;
mod forecast;
mod gpu;
mod graph;
mod image;
mod in_parts;
#[doc(hidden)]
pub mod internals;
mod job;
mod launcher;
mod limits;
mod manual;
mod memory;
mod modules;
mod nccl_ras;
mod python;
mod recorder;
mod render;
pub mod report;
mod run;
mod snapshot;
mod symbols;
mod sys;
mod threads;
mod unwind;
mod verdict;
mod waits;

pub use analysis::{AttachOptions, CoreOptions, Error};
pub use image::core::error::CoreError;
pub use image::core::files::Places;
pub use image::live::Stopping;
pub use image::live::error::AttachError;
pub use render::{Detail, Format, Style, render};
pub use report::Report;

use analysis::Keep;

/// Look at running processes: they are stopped for a moment, at most [`AttachOptions::max_pause`] each time.
///
/// # Errors
///
/// If a process is not there, or may not be looked at: the sentence says why and what to do.
pub fn attach(options: &AttachOptions) -> Result<Report, Error> {
    Ok(analysis::attach(options, Keep::Nothing)?.report)
}

/// Look at core files, each of one process, or at a snapshot.
///
/// # Errors
///
/// If a file cannot be read, or is no core of a machine that lockscope knows.
pub fn post_mortem(options: &CoreOptions) -> Result<Report, Error> {
    Ok(analysis::post_mortem(options, Keep::Nothing)?.report)
}
