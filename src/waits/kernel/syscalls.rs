//! System calls that wait, by number: what for, and which argument is the time-out.
//!
//! A table for x86-64; a second architecture adds its own. A call that is not here is reported by its number.

use crate::waits::{Kind, kinds};

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// The clock.
    Timer,
    /// A signal.
    Signal,
    /// One descriptor, the first argument; the kind of resource as far as the call tells.
    Descriptor(&'static Kind),
    /// One of several descriptors.
    Several,
    /// A child.
    Child,
    /// A System V semaphore set.
    Semaphores,
    /// Something else.
    Other,
}

/// How a call's time-out is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// It has none.
    Never,
    /// It is one.
    Always,
    /// A pointer in this argument; null is for ever.
    Pointer(usize),
    /// Milliseconds in this argument; negative is for ever.
    Milliseconds(usize),
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: &'static str,
    /// What it waits for.
    pub waits: Waits,
    /// Its time-out.
    pub timed: Timed,
}

const fn row(number: i64, name: &'static str, waits: Waits, timed: Timed) -> Row {
    Row { number, name, waits, timed }
}

/// Numbers: arch/x86/entry/syscalls/syscall_64.tbl; arguments: the manual pages of section 2.
pub const TABLE: &[Row] = &[
    row(0, "read", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(1, "write", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(7, "poll", Waits::Several, Timed::Milliseconds(2)),
    row(16, "ioctl", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(17, "pread64", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(18, "pwrite64", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(19, "readv", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(20, "writev", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(23, "select", Waits::Several, Timed::Pointer(4)),
    row(34, "pause", Waits::Signal, Timed::Never),
    row(35, "nanosleep", Waits::Timer, Timed::Always),
    row(42, "connect", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(43, "accept", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(44, "sendto", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(45, "recvfrom", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(46, "sendmsg", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(47, "recvmsg", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(61, "wait4", Waits::Child, Timed::Never),
    row(65, "semop", Waits::Semaphores, Timed::Never),
    row(69, "msgsnd", Waits::Other, Timed::Never),
    row(70, "msgrcv", Waits::Other, Timed::Never),
    row(72, "fcntl", Waits::Descriptor(kinds::FILE_LOCK), Timed::Never),
    row(73, "flock", Waits::Descriptor(kinds::FILE_LOCK), Timed::Never),
    row(74, "fsync", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(75, "fdatasync", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(128, "rt_sigtimedwait", Waits::Signal, Timed::Pointer(2)),
    row(130, "rt_sigsuspend", Waits::Signal, Timed::Never),
    row(208, "io_getevents", Waits::Other, Timed::Pointer(4)),
    row(219, "restart_syscall", Waits::Other, Timed::Always),
    row(220, "semtimedop", Waits::Semaphores, Timed::Pointer(3)),
    row(230, "clock_nanosleep", Waits::Timer, Timed::Always),
    row(232, "epoll_wait", Waits::Several, Timed::Milliseconds(3)),
    row(242, "mq_timedsend", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Pointer(4)),
    row(243, "mq_timedreceive", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Pointer(4)),
    row(247, "waitid", Waits::Child, Timed::Never),
    row(270, "pselect6", Waits::Several, Timed::Pointer(4)),
    row(271, "ppoll", Waits::Several, Timed::Pointer(2)),
    row(275, "splice", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(281, "epoll_pwait", Waits::Several, Timed::Milliseconds(3)),
    row(288, "accept4", Waits::Descriptor(kinds::SOCKET), Timed::Never),
    row(299, "recvmmsg", Waits::Descriptor(kinds::SOCKET), Timed::Pointer(4)),
    row(426, "io_uring_enter", Waits::Descriptor(kinds::DESCRIPTOR), Timed::Never),
    row(441, "epoll_pwait2", Waits::Several, Timed::Pointer(3)),
];

/// The row of a number.
pub fn row_of(number: i64) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.number == number)
}
