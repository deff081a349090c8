//! The part of /proc about a sleeping thread: its system call with arguments, stack pointer and pc.
//!
//! In: processes. Out: a [`Reading`]. The callee-saved registers are not among it; unwinding finds those that frames have
//! saved. No privilege is needed beyond that to read the process's memory.
//!
//! The kernel answers `syscall` only for a thread that is off the processor, and `running` for one that was woken. So that
//! two readings with equal counters prove that it has not run between them, the counters are read on both sides of that file,
//! and must be equal within a reading too.

use super::{Mark, Reading, Sleeper};
use crate::image::live::proc_fs::{self, ProcFs};

/// All threads of `pids`, now.
pub(super) fn read(proc_fs: &ProcFs, pids: &[i32]) -> Reading {
    let mut reading = Reading::new();
    for &pid in pids {
        for tid in proc_fs.threads(pid).unwrap_or_default() {
            reading.extend(read_thread(proc_fs, pid, tid).map(|sleeper| (tid, sleeper)));
        }
    }
    reading
}

/// One thread; `None` for one that is gone.
fn read_thread(proc_fs: &ProcFs, pid: i32, tid: i32) -> Option<Sleeper> {
    let directory = proc_fs.task(pid, tid);
    let before = proc_fs::schedule(&directory)?;
    let answer = proc_fs::text(&directory.join("syscall")).unwrap_or_default();
    let state = proc_fs::stat(&directory)?.state;
    let after = proc_fs::schedule(&directory)?;
    // `running`, or nothing where the file may not be read.
    let is_off_cpu = answer.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let mark = Mark { state, on_cpu: !is_off_cpu || before != after, switches: after.switches, ran: after.ran };
    let call = Some(answer).filter(|_| mark.is_still()).and_then(|answer| proc_fs::parse_syscall(&answer));
    Some(Sleeper { process: pid, mark, registers: None, call })
}
