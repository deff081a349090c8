//! System calls by name: what each may wait for, and which of its arguments say so. The same on every machine.
//!
//! In: nothing. Out: one row a call; a machine's table gives each its number. Arguments are counted from 0, and are
//! those of section 2 of the manual pages. A call without a row of its own ([`plain`]) does not wait for anything that
//! lockscope could name.

/// One system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCall {
    /// Its name.
    pub name: &'static str,
    /// The events that it may wait for.
    pub waits: Waits,
    /// Its time-out.
    pub timeout: Timeout,
    /// When a stop makes it return before it is done.
    pub cut_short: Option<CutShort>,
}

/// Until when a call sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// So much time has passed.
    Elapsed,
    /// A clock, by its number, says so.
    Clock(u64),
}

/// A call that a stop makes return early: it sleeps with something done already, so that the kernel does not restart it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutShort {
    /// With which arguments.
    pub when: When,
    /// The result that it returns then.
    pub early: Early,
}

/// The result of an interrupted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// The number of bytes up to then, fewer than it was to write.
    PartOfAWrite,
    /// The number of bytes, messages or events so far.
    Part,
    /// The usual result, but before the awaited event has come.
    Before,
}

/// With which arguments a call can be cut short: the number of one, and what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Whatever the arguments.
    Always,
    /// That argument is larger.
    Above(usize, u64),
    /// That argument has one of these bits.
    Flag(usize, u64),
}

impl SystemCall {
    /// Whether it only lets time pass: a sleep, or a wait for none of no descriptors, as Python's up to 3.10.
    pub fn lets_time_pass(&self, arguments: &[u64; 6]) -> bool {
        self.waits == Waits::Clock || self.waits == Waits::Several(Several::Sets) && arguments.first() == Some(&0)
    }

    /// Where a call that only lets time pass has the time, seconds first, and what that counts from; `None` for any other call.
    pub fn sleep(&self, arguments: &[u64; 6]) -> Option<(u64, Until)> {
        /// TIMER_ABSTIME (linux/time.h).
        const ABSOLUTE: u64 = 1;
        if !self.lets_time_pass(arguments) {
            return None;
        }
        let [first, second, third, _, fifth, _] = *arguments;
        Some(match (self.waits, self.name) {
            (Waits::Clock, "clock_nanosleep") if second & ABSOLUTE != 0 => (third, Until::Clock(first)),
            (Waits::Clock, "clock_nanosleep") => (third, Until::Elapsed),
            (Waits::Clock, _) => (first, Until::Elapsed),
            _ => (fifth, Until::Elapsed),
        })
    }

    /// Whether the kernel has it go on by itself after a stop, whatever its arguments: it says EINTR only if a handler has run
    /// (ERESTARTSYS, ERESTARTNOHAND or ERESTART_RESTARTBLOCK in kernel/futex, kernel/time, kernel/exit.c, fs/select.c of Linux 6.12).
    pub fn goes_on_by_itself(&self) -> bool {
        let is_poll = matches!(self.waits, Waits::Several(Several::Array | Several::Sets));
        is_poll
            || matches!(
                self.waits,
                Waits::Futex(_) | Waits::Clock | Waits::Child(_) | Waits::AnySignal | Waits::Restarted
            )
    }

    /// The same, cut short by a stop.
    const fn cut_short(self, when: When, early: Early) -> SystemCall {
        SystemCall { cut_short: Some(CutShort { when, early }), ..self }
    }

    /// The result of the call if a stop interrupts it while it sleeps; `None` if it goes on.
    pub fn early(&self, arguments: &[u64; 6]) -> Option<Early> {
        let argument = |number: usize| arguments.get(number).copied().unwrap_or(0);
        let CutShort { when, early } = self.cut_short?;
        let applies = match when {
            When::Always => true,
            // Counts are 32 bits wide in these calls, but for io_getevents', which is a long.
            When::Above(number, least) => argument(number) > least,
            When::Flag(number, bits) => argument(number) & bits != 0,
        };
        applies.then_some(early)
    }
}

/// The object that a call may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A word in memory.
    Futex(Futex),
    /// The clock.
    Clock,
    /// Any signal at all.
    AnySignal,
    /// One of some signals.
    Signal,
    /// One descriptor.
    Descriptor {
        /// The argument that is it.
        argument: usize,
        /// The call's purpose with it.
        role: Role,
        /// It is a socket, whatever else is known.
        is_socket: bool,
    },
    /// The first of several descriptors to come.
    Several(Several),
    /// A child.
    Child(Child),
    /// A System V semaphore set: the set, its operations, their number are the first three arguments.
    Semaphores,
    /// Nothing: it lets others run.
    Yield,
    /// The target of the restarted call.
    Restarted,
    /// Something without a name.
    Other,
}

/// How a word to wait on is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Futex {
    /// futex(2): the word, an operation, the value that it must have.
    Operation,
    /// An array of `struct futex_waitv`, and its length.
    Array,
    /// The word, the value that it must have.
    Word,
}

/// A call's purpose with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Data, an end, or a connection.
    Read,
    /// Room, or a connection.
    Write,
    /// A lock on its file, by flock.
    WholeFileLock,
    /// A lock on bytes of its file, by fcntl.
    RangeLock,
    /// Something else.
    Other,
}

/// How several descriptors are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Several {
    /// An array of `struct pollfd`, and its length.
    Array,
    /// One more than the greatest number, and three sets of bits: for reading, for writing, for exceptions.
    Sets,
    /// An epoll set, the first argument.
    Epoll,
}

/// How a child is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// Its process id is the first argument; 0 and below stand for several.
    Id,
    /// The first argument says what the second is (P_PID, P_PIDFD, ...).
    Kind,
    /// The child that has the caller's memory until it calls exec or ends, where the flags contain CLONE_VFORK.
    Borrower(Flags),
}

/// Where the flags of a call that makes a process stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    /// The call is vfork itself.
    Vfork,
    /// In the first argument.
    Argument,
    /// In the first word of the structure that the first argument points to.
    Structure,
}

/// How a call's time-out is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// It has none.
    Never,
    /// The whole call is one.
    Always,
    /// A pointer in this argument; null is for ever.
    Pointer(usize),
    /// Milliseconds in this argument, an int; negative is for ever.
    Milliseconds(usize),
    /// Not known.
    Unknown,
}

impl Timeout {
    /// Whether a call with these arguments ends by itself; `None` where that is not known.
    pub fn is_set(self, arguments: &[u64; 6]) -> Option<bool> {
        match self {
            Timeout::Never => Some(false),
            Timeout::Always => Some(true),
            Timeout::Pointer(at) => arguments.get(at).map(|pointer| *pointer != 0),
            Timeout::Milliseconds(at) => arguments.get(at).map(|time| *time as i32 >= 0),
            Timeout::Unknown => None,
        }
    }
}

/// A call that waits for nothing with a name.
pub(crate) const fn plain(name: &'static str) -> SystemCall {
    SystemCall { name, waits: Waits::Other, timeout: Timeout::Unknown, cut_short: None }
}

const fn call(name: &'static str, waits: Waits, timeout: Timeout) -> SystemCall {
    SystemCall { name, waits, timeout, cut_short: None }
}

/// A call on the descriptor that is its first argument.
const fn on(name: &'static str, role: Role, timeout: Timeout) -> SystemCall {
    call(name, Waits::Descriptor { argument: 0, role, is_socket: false }, timeout)
}

/// A call on the socket that is its first argument.
const fn socket(name: &'static str, role: Role, timeout: Timeout) -> SystemCall {
    call(name, Waits::Descriptor { argument: 0, role, is_socket: true }, timeout)
}

macro_rules! calls {
    ($($constant:ident = $row:expr;)*) => {
        $(#[doc = concat!("`", stringify!($constant), "`, in capitals.")]
        pub(crate) const $constant: SystemCall = $row;)*
    };
}

/// Linux's flag for recv: wait for all bytes (include/linux/socket.h, the same on every machine).
const MSG_WAITALL: u64 = 0x100;

// Cut short are those that sleep with something done already, and return it when they are interrupted; read in Linux 6.12:
//
// * writes to pipes [anon_pipe_write], sockets [sk_stream_wait_memory in tcp_sendmsg_locked, unix_stream_sendmsg] and
//   terminals [n_tty_write]; for several messages, their number [__sys_sendmmsg, do_recvmmsg];
// * reads that requested all bytes [tcp_recvmsg_locked, unix_stream_read_generic];
// * copies between files [splice_direct_to_actor, splice_to_socket, iter_to_pipe, generic_copy_file_range];
// * events, where more than one was requested [read_events in fs/aio.c];
// * io_uring_enter, which returns the number of entries submitted without the completions that it was to wait for
//   [`submitted ? submitted : ret`];
// * close, which returns 0 while unsent bytes linger (SO_LINGER) [sk_stream_wait_close in tcp_close]; any other does
//   not sleep in state S.
//
// Not cut short, since they sleep with nothing done and are restarted: read and its like on pipes, sockets and event
// files [anon_pipe_read, unix_stream_read_generic, tcp_recvmsg_locked without MSG_WAITALL], tee [ipipe_prep,
// opipe_prep], msgsnd and msgrcv [ERESTARTNOHAND], semop, epoll_wait, io_getevents for one event, futex, flock,
// connect, accept, wait4, mq_timedsend. getrandom may return part of the requested bytes, but sleeps only before the
// first byte [wait_for_random_bytes].
//
// Not seen here: a read of a terminal in raw mode with VMIN above 1 [n_tty_read], or of a socket with SO_RCVLOWAT above 1.
calls! {
    READ = on("read", Role::Read, Timeout::Never);
    WRITE = on("write", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    CLOSE = plain("close").cut_short(When::Always, Early::Before);
    POLL = call("poll", Waits::Several(Several::Array), Timeout::Milliseconds(2));
    IOCTL = on("ioctl", Role::Other, Timeout::Never);
    PREAD64 = on("pread64", Role::Read, Timeout::Never);
    PWRITE64 = on("pwrite64", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    READV = on("readv", Role::Read, Timeout::Never);
    WRITEV = on("writev", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    SELECT = call("select", Waits::Several(Several::Sets), Timeout::Pointer(4));
    SCHED_YIELD = call("sched_yield", Waits::Yield, Timeout::Never);
    PAUSE = call("pause", Waits::AnySignal, Timeout::Never);
    NANOSLEEP = call("nanosleep", Waits::Clock, Timeout::Always);
    SENDFILE = on("sendfile", Role::Write, Timeout::Never).cut_short(When::Always, Early::Part);
    CONNECT = socket("connect", Role::Write, Timeout::Never);
    ACCEPT = socket("accept", Role::Read, Timeout::Never);
    SENDTO = socket("sendto", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    RECVFROM = socket("recvfrom", Role::Read, Timeout::Never).cut_short(When::Flag(3, MSG_WAITALL), Early::Part);
    SENDMSG = socket("sendmsg", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    RECVMSG = socket("recvmsg", Role::Read, Timeout::Never).cut_short(When::Flag(2, MSG_WAITALL), Early::Part);
    CLONE = call("clone", Waits::Child(Child::Borrower(Flags::Argument)), Timeout::Never);
    VFORK = call("vfork", Waits::Child(Child::Borrower(Flags::Vfork)), Timeout::Never);
    CLONE3 = call("clone3", Waits::Child(Child::Borrower(Flags::Structure)), Timeout::Never);
    WAIT4 = call("wait4", Waits::Child(Child::Id), Timeout::Never);
    SEMOP = call("semop", Waits::Semaphores, Timeout::Never);
    MSGSND = call("msgsnd", Waits::Other, Timeout::Never);
    MSGRCV = call("msgrcv", Waits::Other, Timeout::Never);
    FCNTL = on("fcntl", Role::RangeLock, Timeout::Never);
    FLOCK = on("flock", Role::WholeFileLock, Timeout::Never);
    FSYNC = on("fsync", Role::Other, Timeout::Never);
    FDATASYNC = on("fdatasync", Role::Other, Timeout::Never);
    RT_SIGTIMEDWAIT = call("rt_sigtimedwait", Waits::Signal, Timeout::Pointer(2));
    RT_SIGSUSPEND = call("rt_sigsuspend", Waits::Signal, Timeout::Never);
    FUTEX = call("futex", Waits::Futex(Futex::Operation), Timeout::Pointer(3));
    IO_GETEVENTS = call("io_getevents", Waits::Other, Timeout::Pointer(4)).cut_short(When::Above(1, 1), Early::Part);
    RESTART_SYSCALL = call("restart_syscall", Waits::Restarted, Timeout::Always);
    SEMTIMEDOP = call("semtimedop", Waits::Semaphores, Timeout::Pointer(3));
    CLOCK_NANOSLEEP = call("clock_nanosleep", Waits::Clock, Timeout::Always);
    EPOLL_WAIT = call("epoll_wait", Waits::Several(Several::Epoll), Timeout::Milliseconds(3));
    MQ_TIMEDSEND = on("mq_timedsend", Role::Write, Timeout::Pointer(4));
    MQ_TIMEDRECEIVE = on("mq_timedreceive", Role::Read, Timeout::Pointer(4));
    WAITID = call("waitid", Waits::Child(Child::Kind), Timeout::Never);
    PSELECT6 = call("pselect6", Waits::Several(Several::Sets), Timeout::Pointer(4));
    PPOLL = call("ppoll", Waits::Several(Several::Array), Timeout::Pointer(2));
    SPLICE = on("splice", Role::Read, Timeout::Never).cut_short(When::Always, Early::Part);
    TEE = on("tee", Role::Read, Timeout::Never);
    SYNC_FILE_RANGE = on("sync_file_range", Role::Other, Timeout::Never);
    EPOLL_PWAIT = call("epoll_pwait", Waits::Several(Several::Epoll), Timeout::Milliseconds(3));
    ACCEPT4 = socket("accept4", Role::Read, Timeout::Never);
    PREADV = on("preadv", Role::Read, Timeout::Never);
    PWRITEV = on("pwritev", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    RECVMMSG = socket("recvmmsg", Role::Read, Timeout::Pointer(4)).cut_short(When::Above(2, 1), Early::Part);
    SYNCFS = on("syncfs", Role::Other, Timeout::Never);
    SENDMMSG = socket("sendmmsg", Role::Write, Timeout::Never).cut_short(When::Always, Early::Part);
    PREADV2 = on("preadv2", Role::Read, Timeout::Never);
    PWRITEV2 = on("pwritev2", Role::Write, Timeout::Never).cut_short(When::Always, Early::PartOfAWrite);
    VMSPLICE = plain("vmsplice").cut_short(When::Always, Early::Part);
    COPY_FILE_RANGE = on("copy_file_range", Role::Read, Timeout::Never).cut_short(When::Always, Early::Part);
    IO_PGETEVENTS = call("io_pgetevents", Waits::Other, Timeout::Pointer(4)).cut_short(When::Above(1, 1), Early::Part);
    IO_URING_ENTER = on("io_uring_enter", Role::Other, Timeout::Never).cut_short(When::Above(1, 0), Early::Before);
    EPOLL_PWAIT2 = call("epoll_pwait2", Waits::Several(Several::Epoll), Timeout::Pointer(3));
    FUTEX_WAITV = call("futex_waitv", Waits::Futex(Futex::Array), Timeout::Pointer(3));
    FUTEX_WAIT = call("futex_wait", Waits::Futex(Futex::Word), Timeout::Pointer(4));
}
