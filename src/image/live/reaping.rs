//! An exec that waits for the tracer, which waits for that exec.
//!
//! A process that replaces its program waits until its other threads are gone. A traced thread is gone when its tracer
//! has taken its exit status. Meanwhile the kernel lets no other thread begin to trace the process (it holds
//! `cred_guard_mutex`). A tracer that had some of the threads then stood in its request for the next one. The target
//! stood with it, until the wait was given up. Any thread of lockscope may take the exit status in its place.
//!
//! In: the tracer's thread id and the processes that it stops. Out: whether it stood so. No stop is taken, and no exit status of
//! a process: those are their parents'.

use super::proc_fs::{self, ProcFs};
use crate::sys;

/// If the tracer is in a call of ptrace, take the exit statuses of threads of these processes that have ended.
pub(super) fn free_an_exec(proc_fs: &ProcFs, tracer_id: i32, pids: &[i32]) {
    let directory = proc_fs.root().join("self/task").join(tracer_id.to_string());
    let is_in_ptrace = proc_fs::system_call(&directory).is_some_and(|call| call.number == sys::PTRACE_CALL);
    if tracer_id == 0 || !is_in_ptrace {
        return;
    }
    for &pid in pids {
        let threads = proc_fs.threads(pid).unwrap_or_default().into_iter().filter(|&tid| tid != pid);
        let has_ended = |tid: i32| proc_fs::stat(&proc_fs.task(pid, tid)).is_some_and(|stat| stat.is_dead());
        threads.filter(|&tid| has_ended(tid)).for_each(sys::take_exit_status);
    }
}
