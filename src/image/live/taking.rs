//! The state taken from processes while they stand still: system calls, changes of the map, memory.
//!
//! In: what was read before ([`Inputs`]), how each thread fares, the instant to be done by. Out: a [`TakenOfAll`]. No memory is
//! read here: that is the copier's. It neither stops nor releases anything, and can be done again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::copier::{Copier, Copies, Wanted};
use super::facts::ProcessFacts;
use super::plan;
use super::proc_fs::{self, ProcFs, parse_maps};
use super::stop::{Outcome, ProcessStop, StopError};
use crate::arch::Architecture;
use crate::image::{Mapping, Registers, Syscall};
use crate::sys::{RegisterBytes, Span};

/// The inputs of the work under the stop.
#[derive(Debug)]
pub(super) struct Inputs {
    /// Where proc is.
    pub(super) proc_fs: ProcFs,
    /// The facts read before.
    pub(super) facts: Vec<ProcessFacts>,
    /// Pages that looks before wanted, of each process.
    pub(super) wanted: Vec<BTreeSet<u64>>,
}

impl Inputs {
    /// The processes.
    pub(super) fn pids(&self) -> Vec<i32> {
        self.facts.iter().map(|facts| facts.pid).collect()
    }
}

/// The state taken from one process under the stop.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// A thread of it that lives.
    pub(super) living: i32,
    /// When that was, since boot.
    pub(super) uptime_ms: Option<u64>,
    /// How often its threads were stopped.
    pub(super) rounds: u32,
    /// There was time left to copy any memory.
    pub(super) is_planned: bool,
    /// The map, where it changed since it was read first.
    pub(super) mappings: Option<Vec<Mapping>>,
    /// System calls of threads that did not stop.
    pub(super) calls: BTreeMap<i32, Syscall>,
}

/// The same of each process, and the copies, which the copier still has.
#[derive(Debug)]
pub(super) struct TakenOfAll {
    /// In the order of the facts.
    pub(super) processes: Vec<Taken>,
    /// The copied memory.
    pub(super) copies: Copies,
}

/// Room for what may have to be copied under the stop, in pages; only what is used takes memory.
pub(super) fn pages_needed(facts: &[ProcessFacts], wanted: &[BTreeSet<u64>]) -> usize {
    /// For maps, and what else is copied beside the threads.
    const SPARE: usize = 1024;
    let threads: usize = facts.iter().map(|facts| plan::most_pages(facts.threads.len())).sum();
    threads + wanted.iter().map(BTreeSet::len).sum::<usize>() + SPARE
}

/// The registers of a stopped thread; `None` if the kernel gave fewer than this machine has.
pub(super) fn parsed(bytes: &RegisterBytes) -> Option<Registers> {
    let mut registers = Architecture::NATIVE.registers(bytes.as_slice())?;
    if let Some((kind, data)) = bytes.second() {
        Architecture::NATIVE.take_note(&mut registers, kind, data);
    }
    Some(registers)
}

/// Everything that is done under the stop. No memory is read here: that is the copier's.
pub(super) fn take_all(
    inputs: &Inputs,
    copier: &mut Copier,
    stops: &[ProcessStop],
    deadline: Instant,
) -> Result<TakenOfAll, StopError> {
    let proc_fs = &inputs.proc_fs;
    let mut processes = Vec::with_capacity(inputs.facts.len());
    let mut stacks: Vec<Vec<Span>> = Vec::with_capacity(inputs.facts.len());
    for (facts, outcomes) in inputs.facts.iter().zip(stops) {
        let living = outcomes.iter().find(|(_, outcome)| !matches!(outcome, Outcome::Ended));
        let living = living.map_or(facts.living_thread, |(&tid, _)| tid);
        // An exec that was over before the first interrupt has raised no event.
        if proc_fs::program(&proc_fs.process(living)) != facts.program {
            return Err(StopError::Executed(facts.pid));
        }
        let mut taken = Taken { living, ..Taken::default() };
        let mut stopped = Vec::new();
        for (&tid, outcome) in outcomes {
            match outcome {
                Outcome::Stopped(registers) => stopped.extend(parsed(registers)),
                Outcome::Asleep(sleeper) => {
                    stopped.extend(sleeper.registers);
                    taken.calls.extend(sleeper.call.map(|call| (tid, call)));
                }
                Outcome::NotStopped { .. } | Outcome::Refused(_) | Outcome::Spared | Outcome::Filtered
                    if Instant::now() < deadline =>
                {
                    taken.calls.extend(proc_fs::system_call(&proc_fs.task(facts.pid, tid)).map(|call| (tid, call)));
                }
                _ => {}
            }
        }
        // The map may have changed since; to read it again must not cost too much of the pause, nor wait for a lock
        // that a thread in state D might hold.
        let time_left = deadline.saturating_duration_since(Instant::now());
        let all_stopped = !outcomes.values().any(|outcome| matches!(outcome, Outcome::NotStopped { .. }));
        if all_stopped && facts.map_time * 4 < time_left {
            let text = copier.maps(living, deadline);
            taken.mappings = text.filter(|now| *now != facts.map_text).map(|now| parse_maps(&now));
        }
        let mappings = taken.mappings.as_ref().unwrap_or(&facts.mappings);
        let blocked: Vec<Syscall> = taken.calls.values().copied().collect();
        // Thousands of threads take milliseconds.
        taken.is_planned = Instant::now() < deadline;
        let spans = if taken.is_planned { plan::of_threads(mappings, &stopped, &blocked) } else { Vec::new() };
        stacks.push(spans);
        processes.push(taken);
    }
    // Stacks of all processes first, then the pages that earlier samples missed. Pages that are not in memory are not
    // requested. The target itself, which stands still, might serve them, or no process at all.
    let wanted = |process: usize, tid: i32, span: Span| Wanted { tid, process, span, touch: false };
    let mut order: Vec<Wanted> = Vec::new();
    for (process, (taken, spans)) in processes.iter().zip(&stacks).enumerate() {
        order.extend(spans.iter().map(|&span| wanted(process, taken.living, span)));
    }
    let rest = processes.iter().zip(&inputs.facts).zip(&inputs.wanted).zip(&stacks).enumerate();
    for (process, (((taken, facts), pages), held)) in rest {
        let mappings = taken.mappings.as_ref().unwrap_or(&facts.mappings);
        order.extend(plan::of_pages(mappings, pages, held).into_iter().map(|span| wanted(process, taken.living, span)));
    }
    let copies = copier.copy(&order, deadline);
    Ok(TakenOfAll { processes, copies })
}
