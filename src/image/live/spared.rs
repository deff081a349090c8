//! Calls that a stop would cut short: threads that sleep in one are not woken.
//!
//! In: the system call of a sleeping thread. Out: whether any stop makes it return early, and what it would return. The rules are
//! those of the kernel (read in Linux 6.12): a call that was interrupted is restarted, or says EINTR (which the tracer turns into a
//! restart, `interrupted`), only as long as it has nothing to return. One that has moved some bytes, messages or events returns
//! their number.

use crate::arch::Architecture;
pub(super) use crate::arch::system_calls::Early;
use crate::image::Syscall;

/// The early result of a sleeping thread's call if it was woken; `None` if the call would go on.
pub(super) fn early(call: &Syscall) -> Option<Early> {
    Architecture::NATIVE.system_call(call.number)?.early(&call.arguments)
}

/// Kernel functions in which a write sleeps, for kernels that do not report system calls.
const WRITES: &[&str] =
    &["pipe_write", "anon_pipe_write", "fifo_pipe_write", "sock_alloc_send_pskb", "sk_stream_wait_memory"];

/// Kernel functions in which calls sleep that say EINTR after any stop.
const SAYS_EINTR: &[&str] = &[
    "ep_poll",
    "do_epoll_wait",
    "do_sigtimedwait",
    "do_semtimedop",
    "__do_semtimedop",
    "read_events",
    "io_cqring_wait",
];

/// The same of a thread whose call is not known, by the function of the kernel that it sleeps in.
pub(super) fn early_by_place(wait_channel: &str) -> Option<Early> {
    // Without its call, one that says EINTR cannot be made again.
    let is_lost = || Architecture::NATIVE.needs_call_before() && SAYS_EINTR.contains(&wait_channel);
    let is_write = WRITES.contains(&wait_channel).then_some(Early::PartOfAWrite);
    is_write.or_else(|| is_lost().then_some(Early::Before))
}

/// Kernel functions that most threads sleep in, and in which no call of the table does. For threads there, the system
/// call is not read (5 us each).
const HARMLESS: &[&str] =
    &["futex_wait_queue", "futex_wait_queue_me", "futex_do_wait", "hrtimer_nanosleep", "do_nanosleep", "do_wait"];
/// The same where a call that says EINTR can be made again by its registers alone.
const RESTARTED: &[&str] = &["ep_poll", "do_epoll_wait"];

/// Whether a thread that sleeps in this function of the kernel may be in such a call.
pub(super) fn is_possible(wait_channel: Option<&str>) -> bool {
    wait_channel.is_none_or(|function| {
        let is_restarted = !Architecture::NATIVE.needs_call_before() && RESTARTED.contains(&function);
        !HARMLESS.contains(&function) && !is_restarted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_sleepers_are_not_asked() {
        assert!(!is_possible(Some("futex_do_wait")) && is_possible(Some("anon_pipe_write")) && is_possible(None));
    }
}
