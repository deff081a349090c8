//! Calls that the stop itself interrupts, and how they go on.
//!
//! In: threads before lockscope asks them to stop, their registers when they have. Out: registers with which the call
//! goes on, written into the thread; whether some call could not be repaired. The written values depend on the machine
//! ([`Restart`]).
//!
//! Some machines overwrite an argument of an interrupted call. There lockscope reads each thread's call before it
//! interrupts the thread. The values count only if the thread has slept in that call until the stop: exactly one switch
//! happened since, for the stop. Where the kernel does not handle signals by itself, a thread may get a signal
//! meanwhile. It then gets back the registers of the stop, right before it goes on. Its call then returns EINTR. A
//! signal that comes between that and the detach, within microseconds, does not end the call.
//!
//! The kernel goes on with some calls that have a time limit by another one, restart_syscall. A seccomp filter without that one ends
//! the process, so threads with a filter make their own call again. A thread without a filter keeps the rest of its time.

use std::collections::{BTreeMap, BTreeSet};

use super::proc_fs::{self, ProcFs, Status};
use crate::arch::{Architecture, Restart};
use crate::image::Syscall;
use crate::sys::{self, RegisterBytes};

/// The call that a thread slept in before lockscope asked it to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slept {
    call: Syscall,
    /// How often it had been switched out of its own will: for the last time when this sleep began.
    switches: u64,
}

/// The calls of the threads of a stop.
#[derive(Debug)]
pub(super) struct Calls<'a> {
    proc_fs: &'a ProcFs,
    slept: BTreeMap<i32, Slept>,
    /// Threads whose call is made again, with the process and what the stop had left.
    repaired: BTreeMap<i32, (i32, Vec<u8>)>,
    /// Threads whose call could not be repaired.
    broken: BTreeSet<i32>,
}

impl<'a> Calls<'a> {
    pub(super) fn new(proc_fs: &'a ProcFs) -> Calls<'a> {
        Calls { proc_fs, slept: BTreeMap::new(), repaired: BTreeMap::new(), broken: BTreeSet::new() }
    }

    /// Whether a stop does a thread no harm, as far as that can be known before. A thread with a seccomp filter may not make the call
    /// restart_syscall, and where a stop does not show that one is due, nobody can prevent it.
    pub(super) fn may_be_stopped(&self, pid: i32, tid: i32) -> bool {
        !Architecture::NATIVE.hides_restarts() || !self.has_filter(pid, tid)
    }

    /// Whether a seccomp filter may refuse calls of a thread; also where the kernel does not say so.
    fn has_filter(&self, pid: i32, tid: i32) -> bool {
        proc_fs::status(&self.proc_fs.task(pid, tid)).is_none_or(|status| status.seccomp.unwrap_or(0) != 0)
    }

    /// A thread is about to be interrupted.
    pub(super) fn before_stop(&mut self, pid: i32, tid: i32) {
        if Architecture::NATIVE.needs_call_before() {
            self.slept.extend(self.slept(pid, tid).map(|slept| (tid, slept)));
        }
    }

    /// The call that a thread sleeps in, where a stop may interrupt it.
    fn slept(&self, pid: i32, tid: i32) -> Option<Slept> {
        /// A thread may go to sleep, or wake, during the read.
        const ATTEMPTS: usize = 3;
        let directory = self.proc_fs.task(pid, tid);
        let switches = || proc_fs::status(&directory)?.switches.map(|(voluntary, _)| voluntary);
        let call = || {
            let call = proc_fs::system_call(&directory)?;
            let row = Architecture::NATIVE.system_call(call.number);
            row.is_none_or(|row| !row.goes_on_by_itself()).then_some(call)
        };
        // Most sleep in calls that the kernel makes again.
        let mut earlier = call().and_then(|_| switches())?;
        for _ in 0..ATTEMPTS {
            let (call, later) = (call()?, switches()?);
            if earlier == later {
                return Some(Slept { call, switches: earlier });
            }
            earlier = later;
        }
        None
    }

    /// A thread has come to its stop with these registers; whether others were written, with which its call goes on. (A group-stop
    /// breaks calls by itself, so there nothing is changed.)
    pub(super) fn at_stop(&mut self, pid: i32, tid: i32, registers: &RegisterBytes, stop: sys::Stop) -> bool {
        let slept = self.slept.remove(&tid);
        let bytes = registers.as_slice();
        // Also in a group-stop, and whichever signal comes: the kernel treats both results alike, but for the call that follows.
        if let Some(again) = Architecture::NATIVE.made_again_as_itself(bytes)
            && self.has_filter(pid, tid)
        {
            return sys::set_registers(tid, &again).is_ok();
        }
        if stop.is_group_stop() || stop.is_exec() || !Architecture::NATIVE.is_interrupted(bytes) {
            return false;
        }
        let slept = slept.and_then(|slept| Some((slept, proc_fs::status(&self.proc_fs.task(pid, tid))?)));
        match restart(Architecture::NATIVE, bytes, slept, stop.undelivered()) {
            // If it fails the call returns EINTR, as after any debugger's stop.
            Some(Restart { again, said }) if sys::set_registers(tid, &again).is_ok() => {
                self.repaired.extend(said.map(|said| (tid, (pid, said))));
                true
            }
            _ => {
                self.broken.insert(tid);
                false
            }
        }
    }

    /// A thread is about to go on: one that a signal has come for leaves its call.
    pub(super) fn before_release(&mut self, tid: i32) {
        let Some((pid, said)) = self.repaired.remove(&tid) else { return };
        let status = proc_fs::status(&self.proc_fs.task(pid, tid)).unwrap_or_default();
        if handled_signals(&status) != 0 {
            // It fails only for a thread that was killed in its stop.
            let _ = sys::set_registers(tid, &said);
        }
    }

    /// Threads whose calls say EINTR for the stop.
    pub(super) fn broken(&mut self) -> BTreeSet<i32> {
        std::mem::take(&mut self.broken)
    }
}

/// With which registers a call goes on that was interrupted; `None` if it must not, or nobody knows how. `slept` is the call before
/// the stop, with what the kernel says at the stop; `signal` one that the stop took out of the queue.
fn restart(
    architecture: Architecture,
    registers: &[u8],
    slept: Option<(Slept, Status)>,
    signal: i32,
) -> Option<Restart> {
    let has_slept_on = |(slept, status): &(Slept, Status)| {
        let is_ended_by_signal = signal != 0 && status.caught & bit(signal) != 0;
        status.switches.map(|(voluntary, _)| voluntary) == Some(slept.switches + 1) && !is_ended_by_signal
    };
    architecture.restarted(registers, slept.filter(has_slept_on).map(|(slept, _)| slept.call).as_ref())
}

/// Signals that a thread will run a handler for as soon as it can. Those that it ignores are kept for it as long as it is traced.
fn handled_signals(status: &Status) -> u64 {
    status.pending & !status.blocked & status.caught
}

/// A signal's place in the sets of /proc.
fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|place| 1u64.checked_shl(place)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::live::proc_fs::parse_status;
    use crate::image::{Addr, RegisterSet, Registers};

    const AARCH64: Architecture = Architecture::Aarch64;

    /// A thread of that machine in epoll_pwait, before a stop and at it.
    fn interrupted() -> (Slept, Vec<u8>) {
        let arguments = [7, 0x5000, 16, 0xffff_ffff, 0, 8];
        let call = Syscall { number: 22, arguments, result: 0, sp: Addr(0x9000), pc: Addr(0x1008) };
        let mut general = RegisterSet::new(AARCH64);
        AARCH64.general_registers().for_each(|register| general.set(register, 0));
        AARCH64.arguments().iter().zip(arguments).for_each(|(register, value)| general.set(*register, value));
        general.set(AARCH64.result(), -4i64 as u64);
        let [number, _] = AARCH64.names_in_gdb();
        let number = AARCH64.general_registers().find(|register| AARCH64.register_name(*register) == number);
        general.set(number.expect("a register"), 22);
        general.set_sp(call.sp);
        general.set_pc(call.pc);
        let registers = Registers { general, system_call: -1, thread_pointer: Addr(0), descriptor: None };
        (Slept { call, switches: 40 }, AARCH64.user_registers(&registers))
    }

    fn status(voluntary: u64, [pending, blocked, caught]: [u64; 3]) -> Status {
        parse_status(&format!(
            "SigPnd:\t{pending:016x}\nShdPnd:\t0000000000000000\nSigBlk:\t{blocked:016x}\nSigCgt:\t{caught:016x}\n\
             voluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t3\n"
        ))
    }

    #[test]
    fn only_the_call_that_it_slept_in_until_the_stop_is_made_again() {
        let (slept, registers) = interrupted();
        let again = |slept: Slept, voluntary: u64, signal: i32| {
            let status = status(voluntary, [0, 0, 1 << 9]);
            let restart = restart(AARCH64, &registers, Some((slept, status)), signal)?;
            let again = AARCH64.registers(&restart.again).expect("registers");
            Some((again.general.get(AARCH64.arguments()[0]), again.general.pc(), restart.said))
        };
        // Its first argument is that of before, it stands at the instruction, and what the stop left can be put back.
        assert_eq!(again(slept, 41, 0), Some((Some(7), Some(Addr(0x1004)), Some(registers.clone()))));
        assert_eq!(again(slept, 42, 0), None, "it has slept in between");
        assert_eq!(again(slept, 40, 0), None, "counters that do not fit");
        let other = |change: fn(&mut Syscall)| {
            let mut call = slept.call;
            change(&mut call);
            again(Slept { call, ..slept }, 41, 0)
        };
        assert_eq!(other(|call| call.number = 137), None, "another call");
        assert_eq!(other(|call| call.arguments[3] = 5), None, "other arguments");
        assert_eq!(other(|call| call.sp = Addr(0x8ff0)), None, "in another frame");
        assert_eq!(other(|call| call.pc = Addr(0x2008)), None, "at another place");
        assert_eq!(restart(AARCH64, &registers, None, 0), None, "nothing is known from before");
        // A signal with a handler, which is handed on at the release; and one without.
        assert_eq!(again(slept, 41, 10), None);
        assert!(again(slept, 41, 17).is_some());
    }

    #[test]
    fn a_signal_ends_a_call_for_which_a_handler_runs() {
        let handled = |sets: [u64; 3]| handled_signals(&status(1, sets));
        assert_eq!(handled([1 << 9, 0, 1 << 9]), 1 << 9);
        assert_eq!(handled([1 << 9, 1 << 9, 1 << 9]), 0, "blocked");
        assert_eq!(handled([1 << 16, 0, 1 << 9]), 0, "ignored, and kept only for the tracer");
        assert_eq!([0, 1, 10, 64, 65].map(bit), [0, 1, 1 << 9, 1 << 63, 0]);
    }
}
