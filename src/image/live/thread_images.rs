//! Threads for the image: with registers where available, and else with the reason.
//!
//! In: facts from before the sample, the state under the stop, the outcome of each thread. Out: [`ThreadImage`]s and
//! their gaps. The processes run again. lockscope can still read the name of a thread that began after the facts were
//! read.

use std::collections::{BTreeSet, HashMap};

use super::asleep::Sleeper;
use super::facts::{ProcessFacts, ThreadFacts};
use super::proc_fs::{self, ProcFs, ticks_to_ms};
use super::spared::Early;
use super::stop::Outcome;
use super::taking::{Taken, parsed};
use crate::arch::Architecture;
use crate::arch::system_calls::POLL;
use crate::image::{Gap, Image, Mapping, Memory, RegisterSource, Syscall, TaskState, ThreadImage, share_fork_ancestor};
use crate::limits::Bounded;
use crate::limits::live::PARENT_THREADS;

/// Threads without registers: each one, or by their reason how many.
pub(super) fn missing_registers(pid: i32, threads: &[ThreadImage]) -> Vec<Gap> {
    /// So many are named.
    const FEW: usize = 8;
    let mut by_reason: Vec<(&str, Vec<i32>)> = Vec::new();
    for thread in threads.iter().filter(|thread| thread.state != TaskState::Zombie) {
        let Some(why) = &thread.missing else { continue };
        match by_reason.iter_mut().find(|(known, _)| known == why) {
            Some((_, tids)) => tids.push(thread.tid),
            None => by_reason.push((why, vec![thread.tid])),
        }
    }
    let gap = |what: String, why: &str| Gap::new(format!("registers of {what} of process {pid}"), why);
    let gaps = by_reason.into_iter().map(|(why, tids)| match tids.len() {
        0..=FEW => tids.iter().map(|tid| gap(format!("thread {tid}"), why)).collect(),
        many => vec![gap(format!("{many} threads"), why)],
    });
    gaps.flat_map(|gaps: Vec<Gap>| gaps).collect()
}

/// Threads whose call the stop has ended, though nothing else did; `None` where there are none.
pub(super) fn broken_calls(pid: i32, threads: &[ThreadImage], broken: &BTreeSet<i32>) -> Option<Gap> {
    /// So many are named.
    const FEW: usize = 8;
    // On some machines only the code shows that a thread was in a call at all.
    let is_in_call = |thread: &&ThreadImage| thread.registers.is_some_and(|registers| registers.asleep().is_some());
    let tids = threads.iter().filter(|thread| broken.contains(&thread.tid)).filter(is_in_call).map(|thread| thread.tid);
    let tids: Vec<i32> = tids.collect();
    let named: Vec<String> = tids.iter().take(FEW).map(i32::to_string).collect();
    let more = if tids.len() > FEW { ", ..." } else { "" };
    (!tids.is_empty()).then(|| {
        Gap::new(
            format!("the rest of the calls that threads of process {pid} slept in ({}{more})", named.join(", ")),
            "the stop interrupted them, and lockscope could not have them made again: they say EINTR, as after any debugger's stop",
        )
    })
}

/// The number of the restarted `call` where its code shows that it is poll. Among the calls that wait for descriptors,
/// only poll is restarted under another number.
fn poll_by_code(architecture: Architecture, call: &Syscall, memory: &dyn Memory) -> Option<i64> {
    let number = architecture.number_by_code(call, memory)?;
    (architecture.system_call(number) == Some(&POLL)).then_some(number)
}

/// Calls with a time-out, and poll, are restarted under another number after a stop. The code shows which call it is,
/// or the earlier sample, if that saw the same arguments at the same place.
pub(super) fn remember_calls(image: &mut Image, before: &mut HashMap<i32, Syscall>) {
    let same =
        |one: &Syscall, other: &Syscall| (one.arguments, one.pc, one.sp) == (other.arguments, other.pc, other.sp);
    for process in &mut image.processes {
        let architecture = process.architecture;
        let memory = &*process.memory;
        for thread in &mut process.threads {
            let call = thread.registers.and_then(|registers| registers.asleep()).or(thread.syscall);
            let Some(call) = call else { continue };
            if !architecture.is_restart(call.number) {
                before.insert(thread.tid, call);
                continue;
            }
            let earlier = before.get(&thread.tid).filter(|earlier| same(earlier, &call)).map(|earlier| earlier.number);
            // A possible restart matters for calls whose time-out is not among their arguments.
            let Some(number) = earlier.or_else(|| poll_by_code(architecture, &call, memory)) else { continue };
            if let Some(registers) = &mut thread.registers {
                registers.system_call = number;
            }
            if let Some(call) = &mut thread.syscall {
                call.number = number;
            }
        }
    }
}

/// The image of one thread; `None` for one that had exited.
pub(super) fn thread_image(
    proc_fs: &ProcFs,
    process: &ProcessFacts,
    taken: &Taken,
    tid: i32,
    outcome: &Outcome,
) -> Option<ThreadImage> {
    let known = process.threads.get(&tid).cloned();
    // The name of a thread that began after the facts were read is still readable.
    let facts = known.unwrap_or_else(|| ThreadFacts::read(proc_fs, process.pid, tid));
    let asleep = match outcome {
        Outcome::Asleep(sleeper) => Some(sleeper),
        _ => None,
    };
    let state = asleep.map(|sleeper| TaskState::from_letter(sleeper.mark.state));
    let state = state
        .or_else(|| facts.standing.map(|standing| TaskState::from_letter(standing.state)))
        .unwrap_or(TaskState::Other);
    let (registers, missing) = match outcome {
        Outcome::Stopped(registers) => match parsed(registers) {
            Some(registers) => (Some(registers), None),
            None => (None, Some("the kernel gave fewer registers than this machine has".to_owned())),
        },
        Outcome::Asleep(Sleeper { registers: Some(registers), .. }) => (Some(*registers), None),
        // Its call and stack pointer are known. One gap for the process names the missing registers.
        Outcome::Asleep(Sleeper { call: Some(_), .. }) => (None, None),
        Outcome::Asleep(_) => (None, Some("it was not stopped, and the kernel tells no system call of it".to_owned())),
        Outcome::Awake { state } => {
            (None, Some(format!("it moved while it was looked at (state {state}), and --no-stop forbids to stop it")))
        }
        Outcome::Woke => (
            None,
            Some("it slept, woke, and the pause limit was over before it was stopped; raise --max-pause".to_owned()),
        ),
        Outcome::NotStopped { state: Some('D') } => {
            let place = facts.wait_channel.clone().or_else(|| proc_fs::wait_channel(&proc_fs.task(process.pid, tid)));
            let place = place.map(|function| format!(" in {function}")).unwrap_or_default();
            (None, Some(format!("did not come to its stop (state D{place})")))
        }
        Outcome::NotStopped { state } => {
            let state = state.map(|state| format!(" (state {state})")).unwrap_or_default();
            (None, Some(format!("did not come to its stop within the pause limit{state}; raise --max-pause")))
        }
        Outcome::Refused(errno) => (None, Some(format!("the kernel refused to stop it ({errno})"))),
        Outcome::Spared => {
            let place = facts.wait_channel.as_deref().unwrap_or("a call");
            let why = match facts.spared() {
                Some(Early::PartOfAWrite) => "cut that write short",
                Some(Early::Part) => "make that call return a part of what it waits for",
                _ => "make that call return early",
            };
            let rest = "Its call and stack pointer are the kernel's";
            (None, Some(format!("it sleeps in {place}; it was not stopped: any stop would {why}. {rest}")))
        }
        Outcome::Filtered => {
            let why = "its seccomp filter may end the process after a stop, so it was not stopped";
            (None, Some(why.to_owned()))
        }
        Outcome::NotReached => {
            (None, Some("the pause limit was over before it was asked to stop; raise --max-pause".to_owned()))
        }
        // A main thread that has exited stands for its process as long as others live.
        Outcome::Ended if tid == process.pid && facts.is_dead() => (None, Some("has exited".to_owned())),
        Outcome::Ended => return None,
    };
    Some(ThreadImage {
        tid,
        ns_tid: facts.innermost_id.unwrap_or(tid),
        name: facts.name,
        state,
        registers,
        syscall: taken.calls.get(&tid).copied().or_else(|| match outcome {
            // Reading them for thousands of threads would have taken its part of the pause.
            Outcome::NotReached | Outcome::NotStopped { .. } => proc_fs::system_call(&proc_fs.task(process.pid, tid)),
            _ => None,
        }),
        wchan: facts.wait_channel,
        cpu_used: facts.cpu_used,
        turns: facts.turns,
        asleep_ms: facts.asleep_ms,
        start_ticks: facts.standing.map(|standing| standing.start_ticks),
        age_ms: facts
            .standing
            .zip(taken.uptime_ms)
            .map(|(standing, now)| now.saturating_sub(ticks_to_ms(standing.start_ticks))),
        switches: asleep.map_or(facts.switches, |sleeper| Some(sleeper.mark.switches)),
        last_ran: asleep.and_then(|sleeper| sleeper.mark.ran),
        stops: if asleep.is_some() { 0 } else { taken.rounds },
        moved: matches!(outcome, Outcome::Awake { .. } | Outcome::Woke | Outcome::NotReached)
            || matches!(outcome, Outcome::NotStopped { state } if *state != Some('D')),
        missing,
        source: match outcome {
            Outcome::Stopped(_) => RegisterSource::Stop,
            Outcome::Asleep(Sleeper { registers: Some(_), .. }) => RegisterSource::TaskIterator,
            Outcome::Asleep(Sleeper { call: Some(_), .. }) => RegisterSource::KernelFiles,
            _ => RegisterSource::Unsaid,
        },
    })
}

/// Threads of a process's parent, as (tid as the parent calls it, name): a lock inherited by fork may name one. Empty
/// where the process has run another program since the fork, or got another parent. Also empty where that cannot be
/// seen: an init that lockscope may not read has threads, too.
pub(super) fn parent_threads(proc_fs: &ProcFs, parent: i32, own: &[Mapping]) -> Vec<(i32, String)> {
    let mappings = proc_fs::mappings(&proc_fs.process(parent)).unwrap_or_default();
    if !share_fork_ancestor(&mappings, own) {
        return Vec::new();
    }
    let threads = proc_fs.threads(parent).unwrap_or_default();
    threads
        .into_iter()
        .bounded(PARENT_THREADS, || format!("threads of process {parent}"), "threads of a parent that is not captured")
        .map(|tid| {
            let facts = ThreadFacts::read(proc_fs, parent, tid);
            (facts.innermost_id.unwrap_or(tid), facts.name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::proc_fs::parse_maps;
    use super::*;

    const MAPS: &[u8] = b"10000-11000 r-xp 00000000 fe:01 7 /bin/x\n20000-21000 r-xp 00000000 fe:01 8 /lib/y\n";

    #[test]
    fn a_call_that_was_ended_is_said() {
        let architecture = Architecture::Aarch64;
        let mut general = crate::image::RegisterSet::new(architecture);
        general.set(architecture.result(), -4i64 as u64);
        let registers = |system_call: i64| {
            let thread_pointer = crate::image::Addr(0);
            Some(crate::image::Registers { general, system_call, thread_pointer, descriptor: None })
        };
        let thread =
            |tid: i32, system_call: i64| ThreadImage { registers: registers(system_call), ..ThreadImage::new(tid) };
        // The second runs code of its own, the third was not stopped.
        let threads = [thread(1, 22), thread(2, -1), thread(3, 22)];
        let gap = broken_calls(9, &threads, &BTreeSet::from([1, 2])).expect("a gap");
        assert!(gap.what.contains("process 9 slept in (1)"), "{}", gap.what);
        assert_eq!(broken_calls(9, &threads, &BTreeSet::from([2])), None);
    }

    #[test]
    fn only_of_a_parent_that_is_seen_to_be_of_the_same_program_threads_are_told() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("7");
        for thread in ["7", "8"] {
            std::fs::create_dir_all(parent.join("task").join(thread)).unwrap();
        }
        let threads = |maps: Option<&[u8]>| {
            let file = parent.join("maps");
            maps.map_or_else(|| drop(std::fs::remove_file(&file)), |maps| std::fs::write(&file, maps).unwrap());
            parent_threads(&ProcFs::new(root.path()), 7, &parse_maps(MAPS)).len()
        };
        assert_eq!(threads(Some(MAPS)), 2);
        assert_eq!(threads(Some(b"50000-51000 r-xp 00000000 fe:01 7 /bin/x\n")), 0);
        assert_eq!(threads(None), 0);
    }
}
