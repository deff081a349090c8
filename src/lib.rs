//! lockscope says why a process hangs: who waits for what, who holds it, how that is known, and what to change.
//!
//! The library is what the command line tool does: [`attach`] to processes, or read cores and snapshots
//! [`post_mortem`]; both give a [`Report`], the data of the JSON contract; [`render()`] writes it.
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
//! `run` goes round it: it reads /proc, decides when to sample and what equal samples prove, and starts and ends the
//! command (`run::samplers`: the process that keeps limits and signals never samples, and the one that samples may die
//! of it), while `cli` decides how to end a hang, and reports it. A test runner's plugin (scripts/ship/pypi) talks to
//! `cli::monitor` by lines of JSON (`run::suite`).
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
//! reduction            ->
//! arch                 -> memory limits
//! launcher             -> limits
//! nccl_ras             ->
//! in_parts             ->
//! image                -> sys memory arch limits launcher nccl_ras in_parts
//! recorder             -> limits image
//! modules              -> memory arch limits image
//! unwind               -> arch limits image modules
//! symbols              -> arch limits image modules unwind
//! origin               -> recorder symbols
//! code                 -> arch limits image unwind symbols
//! gpu                  -> limits image symbols
//! python               -> limits image origin symbols
//! threads              -> limits image origin recorder unwind symbols code python
//! waits::label         ->
//! waits::kinds         -> waits::label
//! waits::model         -> image waits::label waits::kinds
//! waits::proof         -> waits::model
//! waits::circumstances -> image waits::model
//! waits::cluster       -> launcher waits::kinds
//! waits::collective    ->
//! waits::accounts      -> image waits::model
//! waits::observations  -> image waits::accounts waits::kinds waits::model waits::circumstances waits::cluster waits::collective
//! waits::blocked_call  -> arch image
//! waits::c_library     -> arch image
//! waits::thread        -> origin arch limits image symbols code gpu python threads waits::blocked_call waits::c_library
//! waits::polling       -> python waits::thread
//! waits::references    -> arch limits image waits::blocked_call waits::thread
//! waits::identity      -> image waits::label waits::kinds waits::model waits::thread
//! waits::blocked_on    -> image waits::model waits::blocked_call
//! waits::progress      -> arch image waits::kinds waits::thread waits::blocked_on
//! waits::holders       -> limits reduction image unwind symbols code threads waits::label waits::kinds waits::model waits::accounts waits::observations waits::thread waits::references waits::blocked_on
//! waits::family        -> waits::kinds waits::model waits::observations waits::thread waits::blocked_on waits::holders
//! waits::kernel        -> arch limits image waits::label waits::kinds waits::model waits::accounts waits::observations waits::blocked_call waits::thread waits::polling waits::identity waits::blocked_on waits::holders waits::family
//! waits::libc          -> origin arch limits image unwind symbols code threads waits::label waits::kinds waits::model waits::observations waits::blocked_call waits::c_library waits::thread waits::references waits::identity waits::blocked_on waits::holders waits::family
//! waits::absl          -> limits image waits::kinds waits::model waits::observations waits::blocked_call waits::thread waits::identity waits::blocked_on waits::holders waits::family
//! waits::pools         -> origin limits image symbols threads unwind waits::label waits::kinds waits::model waits::observations waits::thread waits::blocked_on waits::holders waits::family
//! waits::mpi           -> limits image code waits::kinds waits::model waits::collective waits::observations waits::thread waits::blocked_on waits::progress waits::holders waits::family
//! waits::c10d          -> image launcher limits threads waits::kinds waits::model waits::collective waits::observations waits::thread waits::blocked_on waits::progress waits::holders waits::family
//! waits::cuda          -> origin arch limits image modules unwind symbols code gpu threads waits::label waits::kinds waits::model waits::circumstances waits::observations waits::thread waits::references waits::blocked_on waits::holders waits::family
//! waits::cpython       -> launcher limits image origin python threads waits::label waits::kinds waits::model waits::circumstances waits::cluster waits::collective waits::observations waits::thread waits::identity waits::blocked_on waits::holders waits::family
//! waits::recorded      -> image python recorder unwind waits::kinds waits::model waits::accounts waits::circumstances waits::observations waits::thread waits::holders
//! waits::lock_paths  -> image limits symbols unwind waits::label waits::kinds waits::model waits::observations waits::thread
//! waits::wakers      -> image limits threads waits::kinds waits::model waits::observations waits::thread waits::blocked_on waits::holders waits::family
//! waits::observe       -> limits symbols waits::kinds waits::model waits::observations waits::thread waits::blocked_on waits::holders waits::family waits::kernel waits::libc waits::absl waits::pools waits::mpi waits::c10d waits::cuda waits::cpython waits::recorded waits::lock_paths waits::wakers
//! graph                -> limits reduction waits
//! report               -> launcher nccl_ras image threads waits
//! verdict              -> launcher limits reduction nccl_ras in_parts image origin unwind symbols gpu python threads graph waits report
//! job                  -> launcher limits reduction nccl_ras report waits
//! render               -> limits waits report
//! snapshot             -> memory arch limits image modules unwind symbols python threads
//! analysis             -> arch limits in_parts image origin modules unwind symbols gpu python threads report verdict snapshot waits
//! provoke              -> origin limits image recorder modules symbols waits report
//! forecast             -> origin limits image recorder provoke modules symbols threads report waits
//! run                  -> sys limits image gpu report render analysis
//! cli                  -> sys manual limits launcher image recorder provoke forecast job report verdict render snapshot analysis run
//! internals            -> memory arch limits image modules unwind symbols code gpu python threads verdict job render snapshot analysis cli waits
//! ```
//!
//! # The tree
//!
//! ```text
//! analysis/            the stages in their order, and the confirmation by a second sample
//! analysis/pyspy/      py-spy, where it is built in
//! arch/                the machine: registers, system calls, instructions
//! arch/aarch64/        64-bit Arm
//! arch/x86_64/         AMD64, Intel 64
//! cli/                 commands, their arguments, what is printed where
//! cli/service/         `watch` as a service: what is watched, events, metrics
//! code/                reading machine code: which calls came before, with which values
//! forecast/            possible deadlocks of another run, from a recorder's files
//! gpu/                 kernels that ran on GPUs, from cores of them
//! graph/               the wait-for graph: stuck threads, cycles
//! image/               captured data, from whatever source
//! image/core/          core files
//! image/live/          running processes
//! limits/              the bounds over foreign data, and the report of a bound that was met
//! image/live/asleep/   registers of sleeping threads without a stop
//! job/                 one verdict over all ranks of a job
//! job/cluster/         one verdict over the processes of a cluster of workers
//! job/witness/         facts about ranks from files of PyTorch, NCCL, Ray, Slurm and Kubernetes
//! internals/           access for the program, the benchmark, fuzzers and tests
//! manual/              pages about its use, for a terminal and for a browser
//! memory/              bytes at an address: the one seam to the memory of a target
//! modules/             the ELF files that a process maps
//! origin/              provenance: whose code a frame runs
//! provoke/             predicted deadlocks that are to happen: where threads are held, and why one did not happen
//! python/              CPython's structures
//! python/reach/        what code of Python can still reach
//! python/retries/      whether code asks again for ever after a time-out
//! recorder/            the recorder's data in a process; in preload/ its library, which is compiled by itself
//! reduction/           AND/OR graphs: which nodes stay blocked, and cycles of these
//! render/              the report for people and tools
//! render/layout/       places of boxes and lines
//! render/text/         the report in a terminal
//! report/              the report as plain data
//! run/                 watching commands and test suites
//! run/judge/           when to sample a command, and what its samples prove
//! snapshot/            captured facts in a file
//! symbols/             names of addresses
//! threads/             stacks with Python's frames merged in
//! unwind/              native stacks
//! verdict/             the meaning of the graph: verdict and sentences
//! verdict/findings/    known mistakes, a folder each
//! waits/               waits and holds of threads
//! waits/absl/          the family of Abseil
//! waits/c10d/          the family of PyTorch's distributed part
//! waits/cpython/       the family of CPython
//! waits/cpython/dask/  waits and holds of Dask's processes
//! waits/cpython/ray/   tasks and waits of Ray's processes
//! waits/cuda/          the family of CUDA
//! waits/wakers/      who could still end a wait
//! waits/holders/       holders, by rules that more than one family needs
//! waits/kernel/        the family of the kernel
//! waits/libc/          the family of the C library
//! waits/mpi/           the family of MPI
//! waits/pools/         the family of libraries with workers
//! ```
//!
//! # Invariants
//!
//! * After capture no stage depends on the source of the facts: a live process (`image::live`), a core file
//!   (`image::core`) and a snapshot (`snapshot`) are all an `image::Image`. A snapshot stores facts and answers of
//!   files, never waits or verdicts. The version that reads it finds these again. Analysis sees memory only through
//!   `image::Memory`, one method, and touches no file descriptor.
//! * *Release, then think*: a live target is stopped only while lockscope copies registers, stacks and the pages that
//!   an earlier sample needed (`image::live`). The first sample reads some pages late; the second one copies these
//!   under the stop. A cycle is reported only from a sample whose every fact is of one instant.
//! * The tracer reads no memory: that is done by a process of its own (`image::live`, `copier`), which a page that
//!   never comes leaves behind. So neither the stop nor the sample depends on the process that serves the target's
//!   memory.
//! * Nothing is written into the target but the restart of a system call that the stop itself interrupted. Code of lockscope's runs
//!   in a command that was started by `run --record`, and nowhere else.
//! * A fact that could not be read is a `image::Gap` with its reason; no guess is drawn like a fact.
//! * Layouts of other people's structures are `const` tables beside their only reader, each row with its source.
//! * Every loop over foreign memory is bounded by a row of `limits`, every length checked: no input makes lockscope panic, and
//!   where a bound hides something the report says so.
//! * `unsafe` stands in one file, `sys.rs`, and in the recorder's library, which is no part of this crate.
//! * What depends on the machine (registers, system calls, code) stands behind `arch::Architecture`, a value of each
//!   captured process: nothing else names a register or knows a system call by number.

// Without the program, all that it alone uses of the library is dead code.
#![cfg_attr(not(feature = "cli"), allow(dead_code, unused_imports, unreachable_pub))]
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
#[cfg(feature = "cli")]
mod cli;
mod code;
#[cfg(feature = "cli")]
mod forecast;
mod gpu;
mod graph;
mod image;
mod in_parts;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod internals;
mod job;
mod launcher;
mod limits;
#[cfg(feature = "cli")]
mod manual;
mod memory;
mod modules;
mod nccl_ras;
mod origin;
mod provoke;
mod python;
mod recorder;
mod reduction;
mod render;
pub mod report;
#[cfg(feature = "cli")]
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

/// Sample running processes: they are stopped for a moment, at most [`AttachOptions::max_pause`] each time.
///
/// # Errors
///
/// If a process does not exist, or lockscope may not attach to it. The sentence says why and what to do.
pub fn attach(options: &AttachOptions) -> Result<Report, Error> {
    Ok(analysis::attach(options, Keep::Nothing)?.report)
}

/// Read core files, each of one process, or a snapshot.
///
/// # Errors
///
/// If a file cannot be read, or is no core of a machine that lockscope knows.
pub fn post_mortem(options: &CoreOptions) -> Result<Report, Error> {
    Ok(analysis::post_mortem(options, Keep::Nothing)?.report)
}
