//! The stop: every thread of every target stopped, read, and released.
//!
//! In: the processes and the pages wanted of each. Out: registers and copied memory. All ptrace calls are made on one
//! short-lived thread that ends at the release: a thread of the target that never came to its stop (state D) cannot
//! be detached, and only the end of its tracer frees it for good. No signal is sent, no stop outlives the tracer.
//! Nothing is written into the target but the restart of a system call that this stop interrupted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::memory::{Copied, PAGE, copy, may_read, page_of, ranges};
use super::proc_fs::Proc;
use crate::image::{Addr, Mapping, Register, RegisterSet, Registers};

/// What to stop and copy of one process.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) pid: i32,
    pub(crate) mappings: Vec<Mapping>,
    /// Pages to copy beside stacks and registers' targets.
    pub(crate) wanted: BTreeSet<u64>,
    /// Threads that were asleep uninterruptibly before: they are asked to stop, but not waited for.
    pub(crate) unstoppable: BTreeSet<i32>,
}

/// What one stop yielded of one process.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    /// Every thread that was found; without registers if it did not stop in time.
    pub(crate) threads: BTreeMap<i32, Option<Registers>>,
    pub(crate) copied: Vec<Copied>,
    /// Ranges that the time did not suffice for.
    pub(crate) undone: usize,
    /// Why not a single thread could be seized.
    pub(crate) refused: Option<Errno>,
}

/// The result of one joint stop.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) processes: Vec<Stopped>,
    /// From the first interrupt to the last detach.
    pub(crate) pause: Duration,
}

/// PTRACE_EVENT_STOP: the stop that PTRACE_INTERRUPT makes, and a group-stop of a seized thread.
const EVENT_STOP: i32 = 128;

/// Results of system calls that the kernel keeps to itself (include/linux/errno.h).
const ERESTARTNOHAND: i64 = 514;

/// How long stragglers are waited for once all others have stopped.
const STRAGGLERS: Duration = Duration::from_millis(2);

/// Stop all processes jointly, copy, release. Runs on a thread of its own, which has ended when this returns.
pub(crate) fn stop_and_copy(proc: &Proc, plans: &[Plan], most: Duration) -> Outcome {
    std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new().name("tracer".into()).spawn_scoped(scope, || run(proc, plans, most));
        tracer.ok().and_then(|t| t.join().ok()).unwrap_or(Outcome { processes: Vec::new(), pause: Duration::ZERO })
    })
}

/// One thread under our hands.
struct Tracee {
    process: usize,
    stopped: bool,
    gone: bool,
    /// A signal that was about to be delivered when it stopped: handed on at the release.
    signal: Option<Signal>,
    unstoppable: bool,
}

fn run(proc: &Proc, plans: &[Plan], most: Duration) -> Outcome {
    let mut processes: Vec<Stopped> = plans.iter().map(|_| Stopped::default()).collect();
    let mut buffers: Vec<Vec<u8>> = plans.iter().map(|plan| prepared_buffer(proc, plan)).collect();
    let mut tracees: HashMap<i32, Tracee> = HashMap::new();
    let mut order: Vec<i32> = Vec::new();
    let started = Instant::now();
    // New threads are found by listing again until nothing is new: a stopped thread makes no others.
    for _ in 0..16 {
        let before = order.len();
        for (process, plan) in plans.iter().enumerate() {
            for tid in proc.threads(plan.pid) {
                if tracees.contains_key(&tid) {
                    continue;
                }
                let pid = Pid::from_raw(tid);
                match ptrace::seize(pid, ptrace::Options::empty()) {
                    Ok(()) => {
                        let _ = ptrace::interrupt(pid);
                        let unstoppable = plan.unstoppable.contains(&tid);
                        tracees.insert(tid, Tracee { process, stopped: false, gone: false, signal: None, unstoppable });
                        order.push(tid);
                    }
                    // It ended between the listing and now, or is a zombie.
                    Err(Errno::ESRCH) => {}
                    Err(error) => {
                        processes[process].refused.get_or_insert(error);
                    }
                }
            }
        }
        if order.len() == before {
            break;
        }
        wait_for_stops(&mut tracees, &order, started + most / 2);
    }
    let in_time = || started.elapsed() < most;
    let mut registers: Vec<BTreeMap<i32, Option<Registers>>> = plans.iter().map(|_| BTreeMap::new()).collect();
    for tid in &order {
        let tracee = &tracees[tid];
        if !tracee.gone {
            let read = if tracee.stopped { read_registers(*tid) } else { None };
            registers[tracee.process].insert(*tid, read);
        }
    }
    for (process, plan) in plans.iter().enumerate() {
        let pages = pages_of(plan, &registers[process]);
        let wanted = ranges(&pages, &plan.mappings);
        let (copied, undone) = copy(plan.pid, &wanted, std::mem::take(&mut buffers[process]), in_time);
        processes[process].copied = copied;
        processes[process].undone = undone;
        processes[process].threads = std::mem::take(&mut registers[process]);
    }
    for tid in &order {
        let tracee = &tracees[tid];
        if tracee.stopped && !tracee.gone {
            let _ = ptrace::detach(Pid::from_raw(*tid), tracee.signal);
        }
    }
    Outcome { processes, pause: started.elapsed() }
}

/// Wait until all have stopped or the deadline has passed; stragglers get less.
fn wait_for_stops(tracees: &mut HashMap<i32, Tracee>, order: &[i32], deadline: Instant) {
    let mut only_unstoppable_since = None;
    let mut pending: Vec<i32> =
        order.iter().copied().filter(|tid| !tracees[tid].stopped && !tracees[tid].gone).collect();
    let mut round = 0u32;
    while !pending.is_empty() {
        pending.retain(|tid| {
            let Some(tracee) = tracees.get_mut(tid) else { return false };
            let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
            match waitpid(Pid::from_raw(*tid), Some(flags)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => return true,
                Ok(WaitStatus::PtraceEvent(_, _, EVENT_STOP)) => tracee.stopped = true,
                Ok(WaitStatus::Stopped(_, signal)) => {
                    tracee.stopped = true;
                    tracee.signal = Some(signal);
                }
                Ok(WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_)) => tracee.stopped = true,
                _ => tracee.gone = true,
            }
            false
        });
        let now = Instant::now();
        if now >= deadline {
            return;
        }
        if pending.iter().all(|tid| tracees[tid].unstoppable) {
            let since = *only_unstoppable_since.get_or_insert(now);
            if now - since >= STRAGGLERS {
                return;
            }
        }
        round += 1;
        if round < 64 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Registers of a stopped thread. A call that ended with EINTR because of this very stop is made to go on: the
/// kernel restarts it when no signal came, and interrupts it when one did (measured: setting rip back by hand loses
/// such a signal).
fn read_registers(tid: i32) -> Option<Registers> {
    let pid = Pid::from_raw(tid);
    let mut raw = ptrace::getregs(pid).ok()?;
    if raw.rax as i64 == -i64::from(libc::EINTR) && raw.orig_rax as i64 >= 0 {
        raw.rax = (-ERESTARTNOHAND) as u64;
        let _ = ptrace::setregs(pid, raw);
    }
    Some(from_raw(&raw))
}

fn from_raw(raw: &libc::user_regs_struct) -> Registers {
    let mut general = RegisterSet::default();
    let values = [
        raw.rax, raw.rdx, raw.rcx, raw.rbx, raw.rsi, raw.rdi, raw.rbp, raw.rsp, raw.r8, raw.r9, raw.r10, raw.r11,
        raw.r12, raw.r13, raw.r14, raw.r15, raw.rip,
    ];
    for (number, value) in values.into_iter().enumerate() {
        general.set(Register(number as u16), value);
    }
    Registers { general, orig_rax: raw.orig_rax as i64, fs_base: Addr(raw.fs_base) }
}

/// How much of each stack is copied, in bytes: what 20 Python frames use, several times over where threads are few.
fn stack_share(threads: usize) -> u64 {
    if threads <= 32 { 64 << 10 } else { 16 << 10 }
}

/// The pages to copy: what was asked for, the used part of each stack, the words around what the registers point
/// to (the futex word among them) and the head of `struct pthread`.
fn pages_of(plan: &Plan, threads: &BTreeMap<i32, Option<Registers>>) -> BTreeSet<u64> {
    let mut pages = plan.wanted.clone();
    let share = stack_share(threads.len());
    let mapping = |address: Addr| {
        let after = plan.mappings.partition_point(|m| m.start <= address);
        plan.mappings[..after].last().filter(|m| m.contains(address) && m.write && may_read(m))
    };
    for registers in threads.values().flatten() {
        if let Some(sp) = registers.general.sp()
            && let Some(stack) = mapping(sp)
        {
            // 128 bytes below the stack pointer belong to leaf functions (System V ABI, red zone).
            let first = page_of(sp - 128).max(stack.start.0);
            let last = (sp.0 + share).min(stack.end.0);
            pages.extend((first..last).step_by(PAGE as usize));
        }
        let pointers =
            [Register::RDI, Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        for value in pointers.into_iter().filter_map(|r| registers.general.get(r)).map(Addr) {
            if mapping(value).is_some() {
                pages.insert(page_of(value - 64));
                pages.insert(page_of(value + 64));
            }
        }
        let pthread = registers.fs_base;
        if mapping(pthread).is_some() {
            // 0x700 bytes: as far as `joinstate` of glibc 2.43 (facts: pd + 0x628).
            pages.insert(page_of(pthread));
            pages.insert(page_of(pthread + 0x700));
        }
    }
    pages
}

/// A buffer large enough for what the stop will likely copy, its pages touched before the stop begins.
fn prepared_buffer(proc: &Proc, plan: &Plan) -> Vec<u8> {
    const LARGEST: u64 = 256 << 20;
    let threads = proc.threads(plan.pid).len();
    let size = (plan.wanted.len() as u64 + threads as u64 * 12) * PAGE + threads as u64 * stack_share(threads) / 2;
    let mut buffer = vec![0u8; size.min(LARGEST) as usize];
    for byte in buffer.iter_mut().step_by(PAGE as usize) {
        // A volatile-free write that the optimiser keeps, because the buffer is handed on.
        *byte = 1;
    }
    buffer
}
