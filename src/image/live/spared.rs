//! Calls that a stop would cut short: threads that sleep in one are not woken.
//!
//! In: the system call of a sleeping thread. Out: whether any stop makes it return early, and what it would return. The rules are
//! those of the kernel (read in Linux 6.12): a call that was interrupted is restarted, or says EINTR (which the tracer turns into a
//! restart), only as long as it has nothing to return. One that has moved some bytes, messages or events returns their number.

use nix::libc;

use crate::image::Syscall;

/// What a call that is interrupted returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Early {
    /// The number of bytes so far, of those that it was to write.
    PartOfAWrite,
    /// The number of bytes, messages or events so far.
    Part,
    /// What it always returns, but before that has come which it was to wait for.
    Before,
}

/// When a row of the table applies: the number of an argument, and what it must be.
#[derive(Debug, Clone, Copy)]
enum When {
    /// Whatever the arguments.
    Always,
    /// That argument is larger.
    Above(usize, u64),
    /// That argument has one of these bits.
    Flag(usize, u64),
}

/// Linux's flag for recv: wait for all bytes.
const MSG_WAITALL: u64 = libc::MSG_WAITALL as u64;

/// io_pgetevents, which the libc crate lacks: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
const IO_PGETEVENTS: i64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

/// Calls that sleep with something done already. In brackets: the function of the kernel that returns it.
///
/// Not in it, since they sleep with nothing done and are restarted: read and its like on pipes, sockets and event files
/// [anon_pipe_read, unix_stream_read_generic, tcp_recvmsg_locked without MSG_WAITALL], tee [ipipe_prep, opipe_prep], msgsnd and msgrcv
/// [ERESTARTNOHAND], semop, epoll_wait, io_getevents of one event, futex, flock, connect, accept, wait4, mq_timedsend. And getrandom,
/// which returns part of what it was asked for but sleeps only before the first byte [wait_for_random_bytes].
///
/// Not seen here: a read of a terminal in raw mode with VMIN above 1 [n_tty_read], or of a socket with SO_RCVLOWAT above 1.
const CUT_SHORT: &[(i64, When, Early)] = &[
    // Pipes [anon_pipe_write], sockets [sk_stream_wait_memory in tcp_sendmsg_locked, unix_stream_sendmsg], terminals [n_tty_write].
    (libc::SYS_write, When::Always, Early::PartOfAWrite),
    (libc::SYS_writev, When::Always, Early::PartOfAWrite),
    (libc::SYS_pwrite64, When::Always, Early::PartOfAWrite),
    (libc::SYS_pwritev, When::Always, Early::PartOfAWrite),
    (libc::SYS_pwritev2, When::Always, Early::PartOfAWrite),
    (libc::SYS_sendto, When::Always, Early::PartOfAWrite),
    (libc::SYS_sendmsg, When::Always, Early::PartOfAWrite),
    // The number of messages [__sys_sendmmsg, do_recvmmsg].
    (libc::SYS_sendmmsg, When::Always, Early::Part),
    (libc::SYS_recvmmsg, When::Above(2, 1), Early::Part),
    // Bytes, where all were asked for [tcp_recvmsg_locked, unix_stream_read_generic].
    (libc::SYS_recvfrom, When::Flag(3, MSG_WAITALL), Early::Part),
    (libc::SYS_recvmsg, When::Flag(2, MSG_WAITALL), Early::Part),
    // Bytes [splice_direct_to_actor, splice_to_socket, iter_to_pipe, generic_copy_file_range].
    (libc::SYS_sendfile, When::Always, Early::Part),
    (libc::SYS_splice, When::Always, Early::Part),
    (libc::SYS_vmsplice, When::Always, Early::Part),
    (libc::SYS_copy_file_range, When::Always, Early::Part),
    // Events, where more than one was asked for [read_events in fs/aio.c].
    (libc::SYS_io_getevents, When::Above(1, 1), Early::Part),
    (IO_PGETEVENTS, When::Above(1, 1), Early::Part),
    // The number of entries submitted, without the completions that it was to wait for [io_uring_enter: `submitted ? submitted : ret`].
    (libc::SYS_io_uring_enter, When::Above(1, 0), Early::Before),
    // 0, while unsent bytes linger (SO_LINGER) [sk_stream_wait_close in tcp_close]; any other close does not sleep in state S.
    (libc::SYS_close, When::Always, Early::Before),
];

/// What a call in which a thread sleeps would return if it was woken; `None` if it would go on.
pub(super) fn early(call: &Syscall) -> Option<Early> {
    let argument = |number: usize| call.arguments.get(number).copied().unwrap_or(0);
    let applies = |when: When| match when {
        When::Always => true,
        // Counts are 32 bits wide in these calls, but for io_getevents', which is a long.
        When::Above(number, least) => argument(number) > least,
        When::Flag(number, bits) => argument(number) & bits != 0,
    };
    CUT_SHORT.iter().find(|(number, when, _)| *number == call.number && applies(*when)).map(|(.., early)| *early)
}

/// Kernel functions in which a write sleeps, for kernels that do not tell system calls.
const WRITES: &[&str] =
    &["pipe_write", "anon_pipe_write", "fifo_pipe_write", "sock_alloc_send_pskb", "sk_stream_wait_memory"];

/// The same of a thread whose call is not known, by the function of the kernel that it sleeps in.
pub(super) fn early_by_place(wait_channel: &str) -> Option<Early> {
    WRITES.contains(&wait_channel).then_some(Early::PartOfAWrite)
}

/// Kernel functions that most threads sleep in, and in which no call of the table does: of those threads the system call is
/// not asked (5 us each).
const HARMLESS: &[&str] = &[
    "futex_wait_queue",
    "futex_wait_queue_me",
    "futex_do_wait",
    "hrtimer_nanosleep",
    "do_nanosleep",
    "ep_poll",
    "do_epoll_wait",
    "do_wait",
];

/// Whether a thread that sleeps in this function of the kernel may be in such a call.
pub(super) fn is_possible(wait_channel: Option<&str>) -> bool {
    wait_channel.is_none_or(|function| !HARMLESS.contains(&function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Addr;

    fn call(number: i64, arguments: [u64; 6]) -> Syscall {
        Syscall { number, arguments, result: 0, sp: Addr(0), pc: Addr(0) }
    }

    #[test]
    fn arguments_decide() {
        assert_eq!(early(&call(libc::SYS_write, [1, 0, 9, 0, 0, 0])), Some(Early::PartOfAWrite));
        assert_eq!(early(&call(libc::SYS_read, [0, 0, 9, 0, 0, 0])), None);
        // io_uring_enter(ring, to_submit, min_complete, ...): what only waits says EINTR, and is restarted.
        assert_eq!(early(&call(libc::SYS_io_uring_enter, [3, 0, 1, 1, 0, 0])), None);
        assert_eq!(early(&call(libc::SYS_io_uring_enter, [3, 2, 1, 1, 0, 0])), Some(Early::Before));
        assert_eq!(early(&call(libc::SYS_recvfrom, [3, 0, 9, 0, 0, 0])), None);
        assert_eq!(early(&call(libc::SYS_recvfrom, [3, 0, 9, MSG_WAITALL, 0, 0])), Some(Early::Part));
        assert_eq!(early(&call(libc::SYS_io_getevents, [3, 1, 8, 0, 0, 0])), None);
        assert_eq!(early(&call(libc::SYS_io_getevents, [3, 2, 8, 0, 0, 0])), Some(Early::Part));
    }

    #[test]
    fn most_sleepers_are_not_asked() {
        assert!(!is_possible(Some("futex_do_wait")) && is_possible(Some("anon_pipe_write")) && is_possible(None));
    }
}
