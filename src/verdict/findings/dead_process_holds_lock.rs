//! `dead-process-holds-lock`: the lock lies in memory that several processes share.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::Gone;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "dead-process-holds-lock",
        title: "a dead process holds a shared lock",
        severity: Severity::Error,
        what: "The lock lies in memory that several processes share. The process that holds it is dead (killed, crashed, or out of memory), and a plain shared lock is not released by that.",
        cause: "A worker is killed in the middle of its work: by the kernel when memory is short, by SIGKILL, by a crash. Its share of a lock in shared memory stays as it is: the memory does not know that the process is gone. All others wait from then on, also those that are started later and use the same memory.",
        example: Example {
            file: "dead_process_holds_lock.c",
            program: include_str!("examples/dead_process_holds_lock.c"),
            command: "cc -g -pthread dead_process_holds_lock.c -o hang && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "find out why the process died: its exit status, the kernel log (out of memory)",
            "use robust mutexes, or locks that the kernel releases (fcntl, flock)",
            "restart all processes that share the memory; killing workers with SIGKILL leaves locks behind",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "multiprocessing.Lock, Queue and Value are shared semaphores and are not released by a death: do not call `Process.terminate()` or `kill()` on a worker that may use them; send it a message to end. concurrent.futures.ProcessPoolExecutor notices a dead worker and raises BrokenProcessPool.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "data loader workers that are killed for want of memory (`DataLoader worker (pid ...) is killed by signal`) leave locks of their queues behind: fewer workers, smaller batches, a larger /dev/shm (`docker run --shm-size=8g`).",
            },
            Fix {
                with: Toolkit::C,
                text: "make the mutex robust: pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST), and when pthread_mutex_lock returns EOWNERDEAD repair the data and call pthread_mutex_consistent. Or use locks that the kernel releases: fcntl, flock.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "`dmesg | grep -i 'killed process'` tells whether memory was short. Restart all processes that share the memory, and remove what was left in /dev/shm.",
            },
        ],
        references: &["pytorch/pytorch#1355"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.orphan_drafts(Gone::ProcessDead)
}
