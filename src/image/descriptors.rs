//! The kernel's facts about descriptors, sockets, file locks and semaphore sets, as plain data.
//!
//! In: whatever a capture read. Out: [`Descriptor`]s of a captured process, [`KernelFacts`] about the rest of the
//! machine, and [`asked`]: which descriptors a system call waits for. A core has none of this; a snapshot has it.

// Its input is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use serde::{Deserialize, Serialize};

use super::gpu::GpuUse;
use super::{Addr, Memory, MemoryExt, ProcessImage, Syscall};
use crate::arch::Architecture;
use crate::arch::system_calls::{self as calls, Child, Role, Several, Waits};
use crate::limits;
use crate::limits::image::{FD_SETSIZE, MOST_OPERATIONS, MOST_WANTED};

/// An open file of a captured process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Descriptor {
    /// Its number.
    pub number: i32,
    /// The target, as the kernel names it: `/path`, `pipe:[123]`, `socket:[123]`, `anon_inode:[eventfd]`.
    pub target: String,
    /// Inode of the file, where it was read.
    pub inode: Option<u64>,
    /// A pipe or FIFO.
    pub is_pipe: bool,
    /// Open for reading.
    pub reads: bool,
    /// Open for writing.
    pub writes: bool,
    /// Further facts about an awaited one.
    #[serde(default)]
    pub detail: Detail,
}

impl Descriptor {
    /// The name under which ends of the same thing are found in several processes.
    pub(crate) fn end_name(&self) -> String {
        match self.detail {
            Detail::Event { id, .. } => event_name(id),
            _ => self.target.clone(),
        }
    }
}

/// The kernel's details of special files (fdinfo).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Detail {
    /// Nothing.
    #[default]
    None,
    /// An eventfd: its id, the same in every process, and its counter.
    Event {
        /// Its id.
        id: u64,
        /// Its counter.
        count: u64,
    },
    /// A pidfd: the process.
    Process(i32),
    /// An epoll set: what it watches.
    Set(Vec<Want>),
    /// A timer.
    Timer,
    /// Signals.
    Signals,
    /// A POSIX message queue.
    Queue,
}

/// A descriptor that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Want {
    /// Its number.
    pub number: i32,
    /// For data, an end, or a connection.
    pub reads: bool,
    /// For room.
    pub writes: bool,
}

/// A system call's request to descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Data from, or room in, this one.
    One(Want),
    /// The first of these to come.
    Several(Vec<Want>),
    /// The first event of an epoll set.
    Set(i32),
    /// The end of the process of a pidfd.
    Process(i32),
    /// A lock on the file.
    Lock(i32),
}

/// A line of /proc/locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileLock {
    /// `FLOCK`, `POSIX`, `OFDLCK`, `LEASE`.
    pub kind: String,
    /// Exclusive.
    pub write: bool,
    /// Waits for another one.
    pub blocked: bool,
    /// The process that requested it; -1 where the lock belongs to an open file description.
    pub pid: i32,
    /// Device (major, minor) of the file.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` for the end of the file.
    pub end: u64,
    /// The process did not request it, but shares the open file of one that did.
    #[serde(default)]
    pub inherited: bool,
}

impl FileLock {
    /// It belongs to an open file: every process that inherited the file may give the lock back. /proc/locks names no
    /// process for a lock of fcntl of that kind, and the taker for one of flock.
    pub(crate) fn is_of_open_file(&self) -> bool {
        self.pid == -1 || self.kind == "FLOCK"
    }

    /// Whether another line is of the same lock, perhaps for another process that shares its open file.
    pub(crate) fn is_same(&self, other: &FileLock) -> bool {
        FileLock { pid: self.pid, inherited: self.inherited, ..other.clone() } == *self
    }
}

/// An end of a pipe, socket or eventfd in a process that was not captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PipeEnd {
    /// As in [`Descriptor::target`]; for an eventfd [`event_name`].
    pub target: String,
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// It can read.
    pub reads: bool,
    /// It can write.
    pub writes: bool,
}

/// A socket that a captured thread waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Socket {
    /// Its inode, as in `socket:[123]`.
    pub inode: u64,
    /// For people: "unix socket /run/x.sock", "TCP 127.0.0.1:4000 to 127.0.0.1:5000".
    pub label: String,
    /// It waits for connections.
    pub listens: bool,
    /// Inode of the other end, where that is on this machine.
    pub peer: Option<u64>,
    /// Inode of the socket that listens for this connection, where nobody has accepted it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaccepted_by: Option<u64>,
    /// Bytes that wait to be read.
    pub unread: u64,
    /// A call that receives by it ends after a time of the socket's own (SO_RCVTIMEO).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limits_receiving: bool,
    /// The same of a call that sends (SO_SNDTIMEO).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limits_sending: bool,
    /// It takes datagrams: without a peer, those of any process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_datagram: bool,
    /// The address of the other end, of a connection by TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<std::net::SocketAddr>,
}

/// Descriptors that were sent through a unix socket (SCM_RIGHTS) to a process that has not taken them yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InFlight {
    /// The process.
    pub pid: i32,
    /// How many.
    pub count: u64,
    /// The processes that have the socket or its other end, through which they were sent. Empty where any process may
    /// have sent them.
    #[serde(default)]
    pub ends: Vec<i32>,
    /// The processes that any of these has a unix socket in common with.
    #[serde(default)]
    pub acquainted: Vec<i32>,
}

/// From whom a process descends, where it matters what it can have inherited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lineage {
    /// The process.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// When it began, in milliseconds since boot.
    pub began_ms: u64,
    /// Where its arguments and environment stand: the same in processes that forked from each other without a new program, and at
    /// random otherwise. Zero where that may not be read.
    pub program: (u64, u64),
}

/// When a pipe was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// As in [`Descriptor::target`].
    pub target: String,
    /// In milliseconds since boot.
    pub at_ms: u64,
}

/// A semaphore of a System V set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetSemaphore {
    /// The set.
    pub set: i32,
    /// Its place in the set.
    pub number: u16,
    /// Its value.
    pub value: i32,
    /// The process that changed it last.
    pub last: i32,
    /// Processes that wait for it to grow.
    pub waiters: i32,
}

/// A System V message queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MessageQueue {
    /// Its id.
    pub id: i32,
    /// Messages in it.
    pub messages: u64,
    /// The process that sent to it last; 0 for none.
    pub sender: i32,
    /// The process that received from it last; 0 for none.
    pub receiver: i32,
}

/// The relation of the rest of the machine to the captured processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelFacts {
    /// File locks, where a captured thread waits for one.
    pub locks: Vec<FileLock>,
    /// Other ends, in other processes, of the pipes and sockets that captured threads wait for.
    pub ends: Vec<PipeEnd>,
    /// Processes whose descriptors could not be read: any of them may have such an end.
    pub unread: usize,
    /// Descriptors on their way to processes, where a thread waits for a pipe or socket.
    #[serde(default)]
    pub in_flight: Vec<InFlight>,
    /// From whom those descend who may have sent them, and those who have what is waited for.
    #[serde(default)]
    pub lineages: Vec<Lineage>,
    /// When pipes that are waited for were made, where descriptors are on their way.
    #[serde(default)]
    pub made: Vec<Made>,
    /// More sockets exist than were read for such descriptors.
    #[serde(default)]
    pub sockets_passed_over: bool,
    /// Sockets that captured threads wait for.
    #[serde(default)]
    pub sockets: Vec<Socket>,
    /// The signals that each captured process has handlers for, one bit each from SIGHUP on, without those of the C
    /// library.
    #[serde(default)]
    pub handled: Vec<(i32, u64)>,
    /// Processes that have made timers (timer_create), and the signals that these send, a bit each from 1 up.
    #[serde(default)]
    pub timers: Vec<(i32, u64)>,
    /// Captured processes that a control group keeps frozen, with its path.
    #[serde(default)]
    pub frozen: Vec<(i32, String)>,
    /// System V message queues that captured threads wait for.
    #[serde(default)]
    pub queues: Vec<MessageQueue>,
    /// The children of captured processes in which a thread waits for a child, or that handle the signal of its end.
    #[serde(default)]
    pub children: Vec<(i32, Vec<i32>)>,
    /// The signals that stopped captured processes.
    #[serde(default)]
    pub stopped: Vec<(i32, i32)>,
    /// Processes that map the files in whose shared memory captured threads wait.
    #[serde(default)]
    pub sharers: Vec<Sharers>,
    /// Semaphores that captured threads wait for.
    #[serde(default)]
    pub semaphores: Vec<SetSemaphore>,
    /// Version of NVIDIA's driver in the kernel, where a captured process uses CUDA.
    #[serde(default)]
    pub gpu_driver: Option<String>,
    /// How busy the GPUs were, where a captured thread waits for one.
    #[serde(default)]
    pub gpu: Option<GpuUse>,
    /// Children of captured processes that have died and were not waited for.
    #[serde(default)]
    pub dead_children: Vec<DeadChild>,
    /// The pipes into which this very process writes: who reads them waits for its report.
    #[serde(default)]
    pub own_pipes: Vec<String>,
    /// How many sleeping descendants of captured processes were not looked at.
    #[serde(default)]
    pub passed_over: usize,
}

/// A child that has died, and whose parent has not asked for its exit status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeadChild {
    /// Its id.
    pub pid: i32,
    /// Whose child it is.
    pub parent: i32,
    /// The kernel's name of it.
    pub name: String,
    /// Its exit status as `waitpid` reports it, where it may be known.
    pub status: Option<i32>,
}

impl DeadChild {
    /// `python3 (12) was killed by signal 9`, `python3 (12) exited with status 3`.
    pub(crate) fn described(&self) -> String {
        let how = match self.status.map(|status| (status & 0x7f, status >> 8 & 0xff)) {
            Some((0, status)) => format!("exited with status {status}"),
            Some((signal, _)) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(known) => format!("was killed by {known}"),
                Err(_) => format!("was killed by signal {signal}"),
            },
            None => "has exited".to_owned(),
        };
        format!("{} ({}) {how}", self.name, self.pid)
    }
}

/// The processes that map one file in whose shared memory a captured thread waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sharers {
    /// The file system that the file is on.
    pub device: (i32, i32),
    /// Its number there.
    pub inode: u64,
    /// Each process, with the ids that its threads call themselves by.
    pub processes: Vec<(i32, Vec<i32>)>,
    /// Processes whose maps could not be read, with their names and the ids of their threads.
    pub unread: Vec<(i32, String, Vec<i32>)>,
    /// The search covered every process of the machine.
    pub sees_all: bool,
    /// No name in any folder leads to the file; `false` also where that could not be read.
    #[serde(default)]
    pub is_nameless: bool,
}

impl Sharers {
    /// Whether these are all that map the file: none was passed over, and those that could not be read are other programs than
    /// `process`, by the names of its threads, which a fork keeps.
    pub(crate) fn are_all_of(&self, process: &ProcessImage) -> bool {
        let is_like = |(_, name, _): &(i32, String, Vec<i32>)| process.threads.iter().any(|one| one.name == *name);
        self.sees_all && !self.unread.iter().any(is_like)
    }

    /// Whether it is sure that nobody who has the file mapped has a thread of this id.
    pub(crate) fn lacks(&self, id: i32) -> bool {
        let ids = self.processes.iter().map(|(_, ids)| ids).chain(self.unread.iter().map(|(_, _, ids)| ids));
        self.sees_all && !ids.into_iter().any(|ids| ids.contains(&id))
    }
}

impl KernelFacts {
    /// The processes that map a file, where that was read.
    pub(crate) fn sharers(&self, device: (i32, i32), inode: u64) -> Option<&Sharers> {
        self.sharers.iter().find(|one| (one.device, one.inode) == (device, inode))
    }

    /// The signals of the timers that a process has made, a bit each from 1 up.
    pub(crate) fn signals_of_timers(&self, pid: i32) -> u64 {
        self.timers.iter().find(|(of, _)| *of == pid).map_or(0, |(_, signals)| *signals)
    }

    /// The signals that a process has handlers for, a bit each from 1 up; `None` where that is not known.
    pub(crate) fn handled_by(&self, pid: i32) -> Option<u64> {
        self.handled.iter().find(|(known, _)| *known == pid).map(|(_, handled)| *handled)
    }

    /// The facts about a socket.
    pub(crate) fn socket(&self, inode: u64) -> Option<&Socket> {
        self.sockets.iter().find(|socket| socket.inode == inode)
    }
}

/// Signals that bring news of other processes and timers: SIGUSR1 10, SIGUSR2 12, SIGALRM 14, SIGCHLD 17, SIGIO 29, and
/// those of real time.
pub(crate) const NEWS_SIGNALS: u64 = 1 << 9 | 1 << 11 | 1 << 13 | 1 << 16 | 1 << 28 | !0 << 33;
/// SIGCHLD.
pub(crate) const CHILD_ENDS: u64 = 1 << 16;
/// SIGALRM, whose timer is not shown to others, and SIGIO: nobody needs to send these.
pub(crate) const COMING_SIGNALS: u64 = 1 << 13 | 1 << 28;
/// Signals that report a fault of the thread itself: SIGILL 4, SIGTRAP 5, SIGABRT 6, SIGBUS 7, SIGFPE 8, SIGSEGV 11,
/// SIGSYS 31.
pub(crate) const FAULT_SIGNALS: u64 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 30;

/// The name under which ends of one eventfd are found in several processes.
pub(crate) fn event_name(id: u64) -> String {
    format!("eventfd:[{id}]")
}

/// The inode in `socket:[123]`.
pub(crate) fn socket_inode(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The name of a socket, as in [`Descriptor::target`].
pub(crate) fn socket_name(inode: u64) -> String {
    format!("socket:[{inode}]")
}

/// POLLIN | POLLPRI | POLLRDNORM | POLLRDBAND | POLLRDHUP, POLLOUT | POLLWRNORM | POLLWRBAND (poll.h); the same in
/// epoll.
const POLL_READS: u32 = 0x1 | 0x2 | 0x40 | 0x80 | 0x2000;
const POLL_WRITES: u32 = 0x4 | 0x100 | 0x200;
/// P_PIDFD (linux/wait.h).
const P_PIDFD: u64 = 3;

impl Want {
    /// By the event mask of poll and epoll.
    pub(crate) fn of_events(number: i32, events: u32) -> Want {
        Want { number, reads: events & POLL_READS != 0, writes: events & POLL_WRITES != 0 }
    }
}

/// The descriptors that `call` waits for; `None` if it waits for none, or for more than the limit.
pub(crate) fn asked(architecture: Architecture, call: &Syscall, memory: &dyn Memory) -> Option<Asked> {
    let [a0, a1, a2, a3, ..] = call.arguments;
    let row = architecture.system_call(call.number)?;
    Some(match row.waits {
        Waits::Descriptor { argument, role, .. } => {
            let number = *call.arguments.get(argument)? as i32;
            match role {
                Role::Read => Asked::One(Want { number, reads: true, writes: false }),
                Role::Write => Asked::One(Want { number, reads: false, writes: true }),
                Role::WholeFileLock | Role::RangeLock => Asked::Lock(number),
                Role::Other => return None,
            }
        }
        Waits::Child(Child::Kind) if a0 == P_PIDFD => Asked::Process(a1 as i32),
        Waits::Several(Several::Epoll) => Asked::Set(a0 as i32),
        Waits::Several(Several::Array) => Asked::Several(polled(Addr(a0), a1, memory)?),
        Waits::Several(Several::Sets) => Asked::Several(selected(a0 as i32, [Addr(a1), Addr(a2), Addr(a3)], memory)?),
        _ => return None,
    })
}

/// Whether `call` is one on a POSIX message queue, and on which descriptor.
pub(crate) fn queue_asked(architecture: Architecture, call: &Syscall) -> Option<i32> {
    let row = architecture.system_call(call.number)?;
    [calls::MQ_TIMEDSEND, calls::MQ_TIMEDRECEIVE].contains(row).then_some(call.arguments[0] as i32)
}

/// The System V message queue that `call` waits for, and whether it wants to receive.
pub(crate) fn system_v_queue_asked(architecture: Architecture, call: &Syscall) -> Option<(i32, bool)> {
    let row = architecture.system_call(call.number)?;
    let receives = *row == calls::MSGRCV;
    (receives || *row == calls::MSGSND).then_some((call.arguments[0] as i32, receives))
}

/// An operation on a semaphore of a System V set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetOperation {
    /// The set.
    pub set: i32,
    /// Which semaphore.
    pub number: u16,
    /// The amount to add; 0: wait until it is 0.
    pub change: i16,
}

/// The operations of a semop or semtimedop; empty for other calls.
pub(crate) fn semaphores_asked(architecture: Architecture, call: &Syscall, memory: &dyn Memory) -> Vec<SetOperation> {
    // struct sembuf { unsigned short sem_num; short sem_op; short sem_flg; }
    const SIZE: usize = 6;
    let [set, operations, count, ..] = call.arguments;
    let is_one = architecture.system_call(call.number).is_some_and(|row| row.waits == Waits::Semaphores);
    if !is_one || count > MOST_OPERATIONS {
        return Vec::new();
    }
    let bytes = memory.bytes(Addr(operations), count as usize * SIZE).unwrap_or_default();
    // Number, change, flags: 16 bits each.
    let one = |[low, high, change_low, change_high, ..]: &[u8; SIZE]| SetOperation {
        set: set as i32,
        number: u16::from_le_bytes([*low, *high]),
        change: i16::from_le_bytes([*change_low, *change_high]),
    };
    bytes.as_chunks().0.iter().map(one).collect()
}

/// struct pollfd { int fd; short events, revents; }
fn polled(array: Addr, count: u64, memory: &dyn Memory) -> Option<Vec<Want>> {
    let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
    if count > MOST_WANTED {
        tell_of_many();
        return None;
    }
    let bytes = memory.bytes(array, count * 8).ok()?;
    let one = |entry: &[u8]| {
        let (number, rest) = entry.split_first_chunk()?;
        let number = i32::from_le_bytes(*number);
        let events = u16::from_le_bytes(*rest.first_chunk()?);
        (number >= 0).then_some(Want::of_events(number, u32::from(events)))
    };
    Some(bytes.chunks_exact(8).filter_map(one).collect())
}

/// Three bit sets: for reading, for writing, for exceptions.
fn selected(end: i32, sets: [Addr; 3], memory: &dyn Memory) -> Option<Vec<Want>> {
    let words = (1..=FD_SETSIZE).contains(&end).then_some((end as usize).div_ceil(64))?;
    let mut wants = Vec::new();
    for (set, is_write) in sets.into_iter().zip([false, true, false]).filter(|(set, _)| !set.is_null()) {
        for word in 0..words {
            let bits = memory.u64(set + 8 * word as u64).ok()?;
            let numbers = (0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| (word * 64 + bit) as i32);
            wants.extend(numbers.filter(|number| *number < end).map(|number| Want {
                number,
                reads: !is_write,
                writes: is_write,
            }));
        }
    }
    if wants.len() > MOST_WANTED {
        tell_of_many();
        return None;
    }
    Some(wants)
}

/// Note that a call waits for more descriptors than lockscope reads one by one.
pub(crate) fn tell_of_many() {
    limits::met(MOST_WANTED, "who may end a wait for very many descriptors", "descriptors of one call");
}
