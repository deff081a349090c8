//! The base layer: the system call that a thread sleeps in, by number and arguments.
//!
//! In: registers, or what /proc says of a thread without them. Out: a plain wait for every blocked thread: a futex
//! as itself, or what a call waits for ("a child process", "a timer", a pipe, a file lock).

mod file_locks;
mod in_flight;
mod message_queues;
mod peers;
mod polled;
mod sysv_semaphores;

use crate::arch::system_calls::{self as calls, Child, Flags, Role, Waits};
use crate::image::descriptors::{Asked, Want, asked, socket_inode};
use crate::image::{Addr, Fault, Gap, MemoryExt, ProcessImage, Syscall, TaskState};
use crate::waits::blocked_call::{Call, Futex, futex, shaped_as_futex};
use crate::waits::blocked_on::{AlsoWaited, BlockedOn, Ownership, ThreadWait};
use crate::waits::family::{Family, Registered};
use crate::waits::holders::{Blocked, add_resource, exact_hold};
use crate::waits::identity::{key, label};
use crate::waits::kinds::{self, Kind, Topic};
use crate::waits::label::Label;
use crate::waits::model::{Certainty, Hold, Needs, Party, Resource, ResourceKey, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};
use peers::OtherEnd;

/// The rule that finds the process which can end a wait of this family.
#[derive(Debug, Clone, Copy)]
enum HolderRule {
    /// The processes with the other end of a descriptor.
    OtherEnd(OtherEnd),
    /// The process with this id, until it ends.
    ProcessEnd(i32),
    /// The waiter's child with this id, in the waiter's PID namespace, until it ends.
    ChildEnd(i32),
    /// Any child's end.
    AnyChildEnd,
    /// The last user of this System V message queue, as a sender if the waiter receives.
    LastUse(i32, bool),
    /// The holder of the lock on the file of this descriptor.
    FileLock(i32),
    /// The holder of a conflicting lock of these kinds, on the file that the process at this position has under this
    /// descriptor.
    PolledLock(usize, i32, &'static [&'static str]),
    /// The process that last changed this semaphore of a System V set, if the waiter wants to take units of it.
    LastChange {
        /// The set.
        set: i32,
        /// Which one.
        number: u16,
        /// The waiter takes units, and does not wait for 0.
        takes: bool,
    },
}

/// The family.
#[derive(Debug)]
struct Kernel;

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered {
    kinds: &[
        kinds::FUTEX,
        kinds::PIPE,
        kinds::SOCKET,
        kinds::MESSAGE_QUEUE,
        kinds::EVENTFD,
        kinds::FILE_LOCK,
        kinds::PROCESS,
        kinds::SYSV_SEMAPHORE,
        kinds::TIMER,
        kinds::STDIN,
        kinds::DESCRIPTOR,
        kinds::SIGNAL,
        kinds::EVENTS,
        kinds::SYSTEM_CALL,
    ],
    open,
};

/// Open the family: it keeps nothing.
fn open<'s>(_: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    Box::new(Kernel)
}

impl Family for Kernel {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, _below: Option<&BlockedOn>) -> Option<BlockedOn> {
        let call = thread.call?;
        let row = call.row(process.architecture());
        match futex(row, &call, process.memory()) {
            Some(futex) => Some(sleeps_on(process, thread, call, futex)),
            // A possible futex goes on to the higher families: they may recognise its address.
            None if row == Some(&calls::RESTART_SYSCALL) => {
                let futex = shaped_as_futex(&call.arguments, process.memory());
                Some(BlockedOn { futex, ..plain(process, thread, call) })
            }
            None => {
                let plain = plain(process, thread, call);
                if thread.image.state == TaskState::Stopped && may_have_come(&plain) {
                    return None;
                }
                Some(polled::decode(process, thread, &plain).unwrap_or(plain))
            }
        }
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for (wait, rule) in blocked.by_rule::<HolderRule>() {
            match *rule {
                HolderRule::OtherEnd(end) => peers::holders(blocked, wait, end, out),
                HolderRule::ProcessEnd(pid) => peers::process_end(blocked, wait, pid, out),
                HolderRule::ChildEnd(pid) => child_end(blocked, wait, pid, out),
                HolderRule::AnyChildEnd => any_child_end(blocked, wait, out),
                HolderRule::LastUse(id, receives) => message_queues::users(blocked, wait, id, receives, out),
                HolderRule::FileLock(number) => file_locks::holders(blocked, wait, number, out),
                HolderRule::PolledLock(of, number, kinds) => polled::holders(blocked, wait, (of, number, kinds), out),
                HolderRule::LastChange { set, number, takes } => {
                    sysv_semaphores::holders(blocked, wait, (set, number), takes, out);
                }
            }
        }
    }
}

/// A futex as itself.
fn sleeps_on(process: &Process<'_>, thread: &ThreadView<'_>, call: Call, futex: Futex) -> BlockedOn {
    let now = process.memory().u32(futex.word);
    let mut evidence = vec![format!(
        "futex({}, operation {:#x}, value {:#x}): the word is {}",
        futex.word,
        futex.operation,
        futex.value,
        now.map_or_else(|fault| format!("unreadable: {fault}"), |word| format!("{word:#x}"))
    )];
    // A thread sleeps only while the word has the value: another value means that it was woken and has not run
    // yet. LOCK_PI has no value.
    let transient = !futex.inherits_priority() && now.is_ok_and(|word| word != futex.value);
    if call.restarted {
        evidence.push("the call is being restarted after an earlier stop (restart_syscall)".into());
    }
    let several = call.row(process.architecture()) == Some(&calls::FUTEX_WAITV) && call.arguments[1] > 1;
    if several {
        evidence.push(format!("the first of {} futexes of a futex_waitv call", call.arguments[1]));
    }
    BlockedOn {
        resource: Resource {
            key: key(process, kinds::FUTEX, futex.word),
            process: process.context.process,
            label: label(process, thread, "futex", futex.word),
            state: now.map(|word| ("word", i64::from(word))).into_iter().collect(),
            role: None,
        },
        mode: None,
        needs: if several { Needs::Any } else { Needs::All },
        timed: futex.timed,
        retried: false,
        // That it sleeps there is read from its registers; what it waits for, only its word says.
        certainty: if now.is_ok() { Certainty::Exact } else { Certainty::Inferred },
        evidence,
        gaps: now.err().and_then(|fault| not_captured(process, thread, fault)).into_iter().collect(),
        entry_points: &["syscall", "futex", "lll_", "pthread_", "sem_"],
        ownership: Ownership::Unknown,
        transient,
        call: Some(call),
        futex: Some(futex),
        spinning: false,
        one_of: 1,
        at: None,
        gave_back: None,
        also: Vec::new(),
    }
}

/// The gap of a word that is mapped and not in the capture: where it lies, and how to get it.
fn not_captured(process: &Process<'_>, thread: &ThreadView<'_>, fault: Fault) -> Option<Gap> {
    let Fault::NotCaptured(word) = fault else { return None };
    let mapping = process.context.image.mapping(word)?;
    let of = mapping.path.as_deref().map(|path| format!(" of {path}")).unwrap_or_default();
    Some(Gap::new(
        format!("futex word {word} that thread {} waits for", thread.describe()),
        format!(
            "the range {}-{}{of} was not captured, so that who holds the lock in it is not known; next time \
             `echo 0x3f > /proc/PID/coredump_filter` before the core is written, or take a `lockscope snapshot PID`",
            mapping.start, mapping.end
        ),
    ))
}

/// Whether a call on a socket ends after a time that the socket itself has.
fn is_limited_by_socket(process: &Process<'_>, call: Call, waits: Waits) -> bool {
    let Waits::Descriptor { argument, role, .. } = waits else { return false };
    let number = call.arguments.get(argument).copied().unwrap_or_default() as i32;
    let socket = peers::descriptor(process, number)
        .and_then(|own| process.context.all.kernel.socket(socket_inode(&own.target)?));
    socket.is_some_and(|socket| match role {
        Role::Read => socket.limits_receiving,
        Role::Write => socket.limits_sending,
        Role::WholeFileLock | Role::RangeLock | Role::Other => false,
    })
}

/// Any other call.
fn plain(process: &Process<'_>, thread: &ThreadView<'_>, call: Call) -> BlockedOn {
    let row = call.row(process.architecture());
    let name = row.map_or_else(|| format!("system call {}", call.number), |row| row.name.to_owned());
    let waits = row.map_or(Waits::Other, |row| row.waits);
    let waits = if makes_without_waiting(process, call, waits) { Waits::Other } else { waits };
    let a0 = call.arguments[0];
    let position = process.context.process;
    let own = |what: &str| Scope::System(format!("{what}:{position}:{}", thread.image.tid));
    let told = |noun: &str| Label::from(noun).with_detail(Some(name.as_str()));
    let (kind, scope, label): (&'static Kind, Scope, Label) = match waits {
        Waits::Clock => (kinds::TIMER, own("timer"), told("a timer")),
        Waits::Signal | Waits::AnySignal => (kinds::SIGNAL, own("signal"), told("a signal")),
        Waits::Descriptor { argument, role, is_socket } => {
            let fd = call.arguments.get(argument).copied().unwrap_or_default() as i32;
            let (kind, what) = match role {
                Role::WholeFileLock | Role::RangeLock => (kinds::FILE_LOCK, format!("descriptor {fd}")),
                _ if is_socket => (kinds::SOCKET, format!("descriptor {fd}")),
                _ if row == Some(&calls::IO_URING_ENTER) => (kinds::DESCRIPTOR, uring(&call)),
                _ if fd == 0 => (kinds::STDIN, "standard input".to_owned()),
                _ => (kinds::DESCRIPTOR, format!("descriptor {fd}")),
            };
            (kind, Scope::System(format!("descriptor:{position}:{fd}")), told(&what))
        }
        Waits::Several(_) => (kinds::EVENTS, own("events"), told("events")),
        Waits::Child(named) => child(process, thread, call, named, told),
        Waits::Semaphores => {
            let set = a0 as i32;
            (
                kinds::SYSV_SEMAPHORE,
                Scope::System(format!("sysv-semaphore:{set}")),
                format!("System V semaphore set {set}").into(),
            )
        }
        Waits::Futex(_) | Waits::Yield | Waits::Restarted | Waits::Other => {
            (kinds::SYSTEM_CALL, own("call"), name.as_str().into())
        }
    };
    // A restarted call whose own number is lost has a time-out: otherwise it would not need restart_syscall. poll
    // without one uses it nevertheless, and its arguments show that.
    let timed = row.and_then(|row| row.timeout.is_set(&call.arguments)).unwrap_or(call.restarted)
        || is_limited_by_socket(process, call, waits);
    let mut evidence = vec![format!("{name}, first argument {a0:#x}")];
    let (mut first, also, needs) = match on_descriptors(process, call) {
        Some((mut all, needs)) if !all.is_empty() => {
            let first = all.remove(0);
            (first, all, needs)
        }
        _ => {
            let key = ResourceKey { kind, scope, address: Addr(0) };
            let is_any_child = matches!(waits, Waits::Child(named) if asks_for_any_child(call, named));
            let needs = if matches!(waits, Waits::Several(_)) || is_any_child { Needs::Any } else { Needs::All };
            let resource = Resource { key, process: position, label, state: Vec::new(), role: None };
            let child = match waits {
                Waits::Child(named) => named_child(process, thread, call, named),
                _ => None,
            };
            let ownership = match child {
                Some(pid) => Ownership::private(HolderRule::ChildEnd(pid)),
                None if is_any_child => Ownership::private(HolderRule::AnyChildEnd),
                None => Ownership::Unknown,
            };
            (AlsoWaited { resource, evidence: String::new(), ownership }, Vec::new(), needs)
        }
    };
    evidence.extend(Some(std::mem::take(&mut first.evidence)).filter(|known| !known.is_empty()));
    if call.restarted {
        evidence.push("the call is being restarted after an earlier stop (restart_syscall)".into());
    }
    if let (TaskState::DiskSleep, Some(function)) = (thread.image.state, &thread.image.wchan) {
        evidence.push(format!("it sleeps uninterruptibly in the kernel's {function}"));
    }
    BlockedOn {
        resource: first.resource,
        mode: None,
        needs,
        timed,
        retried: false,
        certainty: Certainty::Exact,
        evidence,
        gaps: Vec::new(),
        entry_points: row.map_or(&[], |row| std::slice::from_ref(&row.name)),
        ownership: first.ownership,
        transient: false,
        call: Some(call),
        futex: None,
        spinning: false,
        one_of: 1 + also.len(),
        at: None,
        gave_back: None,
        also,
    }
}

/// Whether the event that a stopped thread was waiting for may have happened by now. A signal keeps the thread from
/// going on; no other reason is known. Only sockets and eventfds show that they are empty.
fn may_have_come(blocked_on: &BlockedOn) -> bool {
    let is_empty = |resource: &Resource| {
        let counts = resource.state.iter().filter(|(name, _)| ["unread", "count"].contains(name));
        counts.clone().next().is_some() && counts.clone().all(|(_, count)| *count == 0)
    };
    let mut all = std::iter::once(&blocked_on.resource).chain(blocked_on.also.iter().map(|also| &also.resource));
    all.any(|resource| resource.key.kind.topic == Topic::Data && !is_empty(resource))
}

/// "2 completions of io_uring, descriptor 3": io_uring_enter(descriptor, to submit, least to complete, ...).
fn uring(call: &Call) -> String {
    let [descriptor, _, least, ..] = call.arguments;
    let completions = if least == 1 { "1 completion".to_owned() } else { format!("{least} completions") };
    format!("{completions} of io_uring, descriptor {descriptor}")
}

/// The resources that a call on descriptors or semaphores waits for, and whether one of several is enough. Any process
/// at the other end of a pipe or socket may end the wait.
fn on_descriptors(process: &Process<'_>, call: Call) -> Option<(Vec<AlsoWaited>, Needs)> {
    if let Some(semaphore) = sysv_semaphores::decode(process, call) {
        return Some((vec![semaphore], Needs::All));
    }
    if let Some(queue) = message_queues::decode(process, call) {
        return Some((vec![queue], Needs::Any));
    }
    // A core has no list of descriptors.
    let knows = !process.context.image.descriptors.is_empty();
    let all_of =
        |wants: &[Want]| -> Vec<AlsoWaited> { wants.iter().flat_map(|want| peers::decode(process, *want)).collect() };
    match asked(process.architecture(), &raw(call), process.memory()).filter(|_| knows)? {
        Asked::One(want) => Some((peers::decode(process, want), Needs::Any)),
        Asked::Several(wants) => Some((peers::or_a_signal(process, all_of(&wants)), Needs::Any)),
        Asked::Set(number) => {
            Some((peers::or_a_signal(process, all_of(&peers::watched(process, number)?)), Needs::Any))
        }
        Asked::Process(number) => {
            Some((peers::decode(process, Want { number, reads: true, writes: false }), Needs::All))
        }
        Asked::Lock(number) => {
            let (resource, evidence, needs) = file_locks::decode(process, call, number)?;
            let ownership = Ownership::private(HolderRule::FileLock(number));
            Some((vec![AlsoWaited { resource, evidence, ownership }], needs))
        }
    }
}

/// Whether a call waits for the first of several descriptors.
fn waits_for_several(process: &Process<'_>, call: Call) -> bool {
    call.row(process.architecture()).is_some_and(|row| matches!(row.waits, Waits::Several(_)))
}

/// The call as it was captured.
fn raw(call: Call) -> Syscall {
    Syscall { number: call.number, arguments: call.arguments, sp: call.sp, pc: Addr(0), result: 0 }
}

/// The child that a wait4 or waitid names, or any child.
fn child(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    call: Call,
    named: Child,
    told: impl Fn(&str) -> Label,
) -> (&'static Kind, Scope, Label) {
    let of = process.context.process;
    match named_child(process, thread, call, named) {
        Some(pid) => (kinds::PROCESS, Scope::Child(of, Some(pid)), told(&format!("child process {pid}"))),
        None => (kinds::PROCESS, Scope::Child(of, None), told("any child process")),
    }
}

/// Whether a call makes a process or a thread and returns without waiting for it.
fn makes_without_waiting(process: &Process<'_>, call: Call, waits: Waits) -> bool {
    /// `CLONE_VFORK` of linux/sched.h.
    const WAITS_FOR_EXEC: u64 = 0x4000;
    let Waits::Child(Child::Borrower(flags)) = waits else { return false };
    let flags = match flags {
        Flags::Vfork => return false,
        Flags::Argument => call.arguments[0],
        Flags::Structure => process.memory().u64(Addr(call.arguments[0])).unwrap_or_default(),
    };
    flags & WAITS_FOR_EXEC == 0
}

/// The child that runs in this process's memory, if there is one, or one that also goes on as this thread.
fn borrower(process: &Process<'_>, thread: &ThreadView<'_>) -> Option<i32> {
    let all = &process.context.all.processes;
    let mut borrowers = all.iter().filter(|one| one.shares_memory_of == Some(process.context.image.pid));
    let as_thread = |one: &&ProcessImage| {
        let descriptors = one.threads.iter().filter_map(|thread| thread.registers?.thread_descriptor());
        thread.pthread.is_some_and(|own| descriptors.into_iter().any(|descriptor| descriptor == own))
    };
    match (borrowers.next(), borrowers.next()) {
        (Some(only), None) => Some(only.ns_pid),
        (first, second) => first.into_iter().chain(second).chain(borrowers).find(as_thread).map(|one| one.ns_pid),
    }
}

/// The id of the child that a call waits for, where it is known which.
fn named_child(process: &Process<'_>, thread: &ThreadView<'_>, call: Call, named: Child) -> Option<i32> {
    let named = match (named, call.arguments) {
        (Child::Borrower(_), _) => return borrower(process, thread),
        (Child::Id, [pid, ..]) => pid as i32,
        // P_PID = 1 (linux/wait.h).
        (Child::Kind, [1, pid, ..]) => pid as i32,
        _ => -1,
    };
    (named > 0).then_some(named)
}

/// Whether a call waits for whichever child ends first. wait4 asks so by -1, waitid by P_ALL (linux/wait.h).
fn asks_for_any_child(call: Call, named: Child) -> bool {
    match named {
        Child::Id => call.arguments[0] as i32 == -1,
        Child::Kind => call.arguments[0] == 0,
        Child::Borrower(_) => false,
    }
}

/// Each child "holds" its own end, if all children are known; one of the ends is enough. Another thread of the parent
/// may make a further child.
fn any_child_end(blocked: &Blocked<'_>, wait: &ThreadWait, out: &mut Observations) {
    let parent = blocked.process(wait);
    let (pid, all) = (parent.context.image.pid, &parent.context.all.kernel.children);
    let Some((_, children)) = all.iter().find(|(of, _)| *of == pid) else { return };
    let strength = if parent.threads.len() == 1 { Strength::Recorded } else { Strength::Inferred };
    add_resource(out, &wait.blocked_on.resource);
    for child in children {
        let captured = blocked.processes().iter().find(|process| process.context.image.pid == *child);
        let holder = match captured {
            Some(process) => Party::Process(process.context.process),
            None => Party::Absent(wait.process, *child),
        };
        let evidence =
            vec![format!("process {child} is one of {} children of process {pid}, and lives", children.len())];
        out.holds.push(Hold { strength, ..exact_hold(&wait.blocked_on.resource.key, holder, None, evidence) });
    }
}

/// A captured child "holds" its own end.
fn child_end(blocked: &Blocked<'_>, wait: &ThreadWait, pid: i32, out: &mut Observations) {
    let parent = blocked.process(wait);
    let child = blocked
        .processes()
        .iter()
        .find(|p| p.context.image.ns_pid == pid && p.context.image.parent == Some(parent.context.image.pid));
    if let Some(child) = child {
        let evidence = vec![format!("process {} is that child and lives", child.context.image.pid)];
        add_resource(out, &wait.blocked_on.resource);
        let holder = Party::Process(child.context.process);
        out.holds.push(exact_hold(&wait.blocked_on.resource.key, holder, None, evidence));
    }
}
