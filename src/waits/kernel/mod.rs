//! The base layer: the system call that a thread sleeps in, by number and arguments.
//!
//! In: registers, or what /proc says of a thread without them. Out: a plain wait for every blocked thread: a futex
//! as itself, or what a call waits for ("a child process", "a timer", a pipe, a file lock).

mod ends;
mod file_locks;
mod sets;

use super::facts::{Process, ThreadFacts};
use super::family::{Decoded, Family, Found, Look, add_resource, exact_hold, key, label, waited};
use super::owner::Ownership;
use super::{Certainty, Needs, Observations, Party, Resource, ResourceKey, Scope};
use crate::arch::Architecture;
use crate::arch::system_calls::{self as calls, Child, Role, SystemCall, Waits};
use crate::image::descriptors::{Asked, Want, asked};
use crate::image::{Addr, Fault, Gap, Memory, MemoryExt, Syscall, TaskState, ThreadImage};
use crate::waits::{Kind, kinds};
pub use ends::{OtherEnd, Waited};

/// A system call that a thread sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its number; the real one where a restarted call could be recognised, else 219.
    pub number: i64,
    /// It is being restarted after an earlier stop or signal: then it has a time-out.
    pub restarted: bool,
    /// The six arguments.
    pub arguments: [u64; 6],
    /// Stack pointer.
    pub sp: Addr,
}

/// A wait on a futex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Futex {
    /// Address of the word.
    pub word: Addr,
    /// The value that it must have for the thread to sleep.
    pub value: u32,
    /// Operation with its flags, as passed.
    pub operation: u32,
    /// Operation without flags: 0 WAIT, 6 LOCK_PI, 9 WAIT_BITSET, 11 WAIT_REQUEUE_PI, 13 LOCK_PI2.
    pub command: u32,
    /// Has a time-out.
    pub timed: bool,
}

impl Call {
    /// What is known of such calls.
    pub fn row(&self, process: &Process<'_>) -> Option<&'static SystemCall> {
        process.context.image.architecture.system_call(self.number)
    }
}

impl Futex {
    /// Whether the kernel itself keeps the owner in the word.
    pub fn inherits_priority(&self) -> bool {
        matches!(self.command, FUTEX_LOCK_PI | FUTEX_LOCK_PI2)
    }
}

/// FUTEX_WAIT (linux/futex.h).
pub const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
/// FUTEX_WAIT_BITSET.
pub const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_WAIT_REQUEUE_PI: u32 = 11;
const FUTEX_LOCK_PI2: u32 = 13;
/// FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, above the 7 bits of the command (linux/futex.h).
const FUTEX_COMMAND: u32 = 0x7f;

/// The family.
#[derive(Debug)]
pub struct Kernel;

/// The system call that `thread` sleeps in.
pub fn call(architecture: Architecture, thread: &ThreadImage, memory: &dyn Memory) -> Option<Call> {
    let raw = match thread.registers {
        Some(registers) => registers.asleep()?,
        // /proc shows a call only of a sleeping thread; there is no result to look at.
        None => thread.syscall.filter(|call| call.number >= 0)?,
    };
    let restarted = architecture.is_restart(raw.number);
    let number = if restarted { original_number(architecture, &raw, memory) } else { raw.number };
    Some(Call { number, restarted, arguments: raw.arguments, sp: raw.sp })
}

/// Which call restart_syscall stands for (libc.md section 6): the instruction that loaded its number, or the shape
/// of the arguments, which the kernel keeps.
fn original_number(architecture: Architecture, raw: &Syscall, memory: &dyn Memory) -> i64 {
    if let Some(number) = architecture.number_by_code(raw, memory) {
        return number;
    }
    let [first, ..] = raw.arguments;
    let recognised = match shaped_as_futex(&raw.arguments, memory) {
        Some(futex) if memory.u32(futex.word) == Ok(futex.value) => Some(&calls::FUTEX),
        // nanosleep through clock_nanosleep: the first argument is a clock's number.
        None if first < 16 => Some(&calls::CLOCK_NANOSLEEP),
        // poll and nanosleep may look like a futex that was woken: not proven.
        _ => None,
    };
    recognised.and_then(|call| architecture.number_of(call)).unwrap_or(raw.number)
}

/// A futex wait, if the arguments of a restarted call can be one.
fn shaped_as_futex(arguments: &[u64; 6], memory: &dyn Memory) -> Option<Futex> {
    let [first, second, third, ..] = *arguments;
    let operation = second as u32;
    let command = operation & FUTEX_COMMAND;
    let shape = operation & !0x1ff == 0
        && matches!(command, FUTEX_WAIT | FUTEX_WAIT_BITSET)
        && first.is_multiple_of(4)
        && memory.u32(Addr(first)).is_ok();
    shape.then_some(Futex { word: Addr(first), value: third as u32, operation, command, timed: true })
}

/// The futex that a call waits on, if it does.
pub fn futex(row: Option<&SystemCall>, call: &Call, memory: &dyn Memory) -> Option<Futex> {
    let [a0, a1, a2, a3, a4, _] = call.arguments;
    let Some(Waits::Futex(form)) = row.map(|row| row.waits) else { return None };
    match form {
        calls::Futex::Operation => {
            let operation = a1 as u32;
            let command = operation & FUTEX_COMMAND;
            let waits = [FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_LOCK_PI2];
            waits.contains(&command).then_some(Futex {
                word: Addr(a0),
                value: a2 as u32,
                operation,
                command,
                // The clock bit says nothing: 0x189 is also used without a time-out.
                timed: a3 != 0,
            })
        }
        calls::Futex::Array => {
            // struct futex_waitv { u64 val; u64 uaddr; u32 flags; u32 reserved }: the first of several.
            let value = memory.u64(Addr(a0)).ok()? as u32;
            let word = memory.pointer(Addr(a0) + 8).ok()?;
            Some(Futex { word, value, operation: 0, command: FUTEX_WAIT, timed: a3 != 0 })
        }
        calls::Futex::Word => {
            Some(Futex { word: Addr(a0), value: a1 as u32, operation: 0, command: FUTEX_WAIT, timed: a4 != 0 })
        }
    }
}

impl Family for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn kinds(&self) -> &'static [&'static Kind] {
        &[
            kinds::FUTEX,
            kinds::PIPE,
            kinds::SOCKET,
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
        ]
    }

    fn decode(&self, process: &Process<'_>, thread: &ThreadFacts<'_>, _below: Option<&Decoded>) -> Option<Decoded> {
        let call = thread.call?;
        let row = call.row(process);
        match futex(row, &call, process.memory()) {
            Some(futex) => Some(sleeps_on(process, thread, call, futex)),
            // What may be a futex is handed on: its address may say more to a higher family.
            None if row == Some(&calls::RESTART_SYSCALL) => {
                let futex = shaped_as_futex(&call.arguments, process.memory());
                Some(Decoded { futex, ..plain(process, thread, call) })
            }
            None => Some(plain(process, thread, call)),
        }
    }

    fn holds(&self, look: &Look<'_>, waits: &[Found], out: &mut Observations) {
        for found in waited(waits, &[kinds::PROCESS]) {
            children(look, found, out);
        }
        const KINDS: &[&Kind] =
            &[kinds::PIPE, kinds::SOCKET, kinds::EVENTFD, kinds::FILE_LOCK, kinds::PROCESS, kinds::SYSV_SEMAPHORE];
        for found in waited(waits, KINDS) {
            match found.decoded.ownership {
                Ownership::OtherEnd(end) => ends::holders(look, waits, found, end, out),
                Ownership::FileLock(number) => file_locks::holders(look, found, number, out),
                Ownership::End(pid) => ends::process_end(look, found, pid, out),
                Ownership::LastChange { set, number, takes } => {
                    sets::holders(look, waits, found, (set, number), takes, out);
                }
                _ => {}
            }
        }
    }
}

/// A futex as itself.
fn sleeps_on(process: &Process<'_>, thread: &ThreadFacts<'_>, call: Call, futex: Futex) -> Decoded {
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
    let several = call.row(process) == Some(&calls::FUTEX_WAITV) && call.arguments[1] > 1;
    if several {
        evidence.push(format!("the first of {} futexes of a futex_waitv call", call.arguments[1]));
    }
    Decoded {
        resource: Resource {
            key: key(process, kinds::FUTEX, futex.word),
            process: process.context.process,
            label: label(process, thread, "futex", futex.word),
            state: now.map(|word| ("word", i64::from(word))).into_iter().collect(),
        },
        mode: None,
        needs: if several { Needs::Any } else { Needs::All },
        timed: futex.timed,
        certainty: Certainty::Exact,
        evidence,
        gaps: now.err().and_then(|fault| not_captured(process, thread, fault)).into_iter().collect(),
        api: &["syscall", "futex", "lll_", "pthread_", "sem_"],
        ownership: Ownership::Unknown,
        transient,
        call: Some(call),
        futex: Some(futex),
        spinning: false,
        one_of: 1,
        at: None,
        also: Vec::new(),
    }
}

/// The gap of a word that is mapped and not in the capture: where it lies, and how to get it.
fn not_captured(process: &Process<'_>, thread: &ThreadFacts<'_>, fault: Fault) -> Option<Gap> {
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

/// Any other call.
fn plain(process: &Process<'_>, thread: &ThreadFacts<'_>, call: Call) -> Decoded {
    let row = call.row(process);
    let name = row.map_or_else(|| format!("system call {}", call.number), |row| row.name.to_owned());
    let waits = row.map_or(Waits::Other, |row| row.waits);
    let a0 = call.arguments[0];
    let position = process.context.process;
    let own = |what: &str| Scope::System(format!("{what}:{position}:{}", thread.image.tid));
    let (kind, scope, text): (&'static Kind, Scope, String) = match waits {
        Waits::Clock => (kinds::TIMER, own("timer"), format!("a timer ({name})")),
        Waits::Signal | Waits::AnySignal => (kinds::SIGNAL, own("signal"), format!("a signal ({name})")),
        Waits::Descriptor { argument, role, is_socket } => {
            let fd = call.arguments.get(argument).copied().unwrap_or_default() as i32;
            let (kind, what) = match role {
                Role::WholeFileLock | Role::RangeLock => (kinds::FILE_LOCK, format!("descriptor {fd}")),
                _ if is_socket => (kinds::SOCKET, format!("descriptor {fd}")),
                _ if fd == 0 => (kinds::STDIN, "standard input".to_owned()),
                _ => (kinds::DESCRIPTOR, format!("descriptor {fd}")),
            };
            (kind, Scope::System(format!("descriptor:{position}:{fd}")), format!("{what} ({name})"))
        }
        Waits::Several(_) => (kinds::EVENTS, own("events"), format!("events ({name})")),
        Waits::Child(named) => child(process, call, named, &name),
        Waits::Semaphores => {
            let set = a0 as i32;
            (
                kinds::SYSV_SEMAPHORE,
                Scope::System(format!("sysv-semaphore:{set}")),
                format!("System V semaphore set {set}"),
            )
        }
        Waits::Futex(_) | Waits::Yield | Waits::Restarted | Waits::Other => {
            (kinds::SYSTEM_CALL, own("call"), name.clone())
        }
    };
    // A restarted call whose own number is lost has a time-out, or it would not need restart_syscall; poll without
    // one is restarted so all the same, and its arguments say it.
    let timed = row.and_then(|row| row.timeout.is_set(&call.arguments)).unwrap_or(call.restarted);
    let mut evidence = vec![format!("{name}, first argument {a0:#x}")];
    let (mut first, also, needs) = match on_descriptors(process, call) {
        Some((mut all, needs)) if !all.is_empty() => {
            let first = all.remove(0);
            (first, all, needs)
        }
        _ => {
            let key = ResourceKey { kind, scope, address: Addr(0) };
            let needs = if matches!(waits, Waits::Several(_)) { Needs::Any } else { Needs::All };
            let resource = Resource { key, process: position, label: text, state: Vec::new() };
            (Waited { resource, evidence: String::new(), ownership: Ownership::Unknown }, Vec::new(), needs)
        }
    };
    evidence.extend(Some(std::mem::take(&mut first.evidence)).filter(|known| !known.is_empty()));
    if call.restarted {
        evidence.push("the call is being restarted after an earlier stop (restart_syscall)".into());
    }
    if let (TaskState::DiskSleep, Some(function)) = (thread.image.state, &thread.image.wchan) {
        evidence.push(format!("it sleeps uninterruptibly in the kernel's {function}"));
    }
    Decoded {
        resource: first.resource,
        mode: None,
        needs,
        timed,
        certainty: Certainty::Exact,
        evidence,
        gaps: Vec::new(),
        api: row.map_or(&[], |row| std::slice::from_ref(&row.name)),
        ownership: first.ownership,
        transient: false,
        call: Some(call),
        futex: None,
        spinning: false,
        one_of: 1 + also.len(),
        at: None,
        also,
    }
}

/// What a call on descriptors or semaphores waits for, and whether one of several is enough: any of those at the other
/// end of a pipe or socket may end the wait.
fn on_descriptors(process: &Process<'_>, call: Call) -> Option<(Vec<Waited>, Needs)> {
    if let Some(semaphore) = sets::decode(process, call) {
        return Some((vec![semaphore], Needs::All));
    }
    // Of a core nothing is known of descriptors.
    let knows = !process.context.image.descriptors.is_empty();
    let all_of =
        |wants: &[Want]| -> Vec<Waited> { wants.iter().flat_map(|want| ends::decode(process, *want)).collect() };
    match asked(process.context.image.architecture, &raw(call), process.memory()).filter(|_| knows)? {
        Asked::One(want) => Some((ends::decode(process, want), Needs::Any)),
        Asked::Several(wants) => Some((ends::or_a_signal(process, all_of(&wants)), Needs::Any)),
        Asked::Set(number) => Some((ends::or_a_signal(process, all_of(ends::watched(process, number)?)), Needs::Any)),
        Asked::Process(number) => {
            Some((ends::decode(process, Want { number, reads: true, writes: false }), Needs::All))
        }
        Asked::Lock(number) => {
            let (resource, evidence) = file_locks::decode(process, call, number)?;
            Some((vec![Waited { resource, evidence, ownership: Ownership::FileLock(number) }], Needs::All))
        }
    }
}

/// Whether a call waits for whichever of several descriptors comes first.
fn waits_for_several(process: &Process<'_>, call: Call) -> bool {
    call.row(process).is_some_and(|row| matches!(row.waits, Waits::Several(_)))
}

/// The call as it was captured.
fn raw(call: Call) -> Syscall {
    Syscall { number: call.number, arguments: call.arguments, sp: call.sp, pc: Addr(0), result: 0 }
}

/// The child that a wait4 or waitid names, or any child.
fn child(process: &Process<'_>, call: Call, named: Child, name: &str) -> (&'static Kind, Scope, String) {
    let named = match (named, call.arguments) {
        (Child::Id, [pid, ..]) => pid as i32,
        // P_PID = 1 (linux/wait.h).
        (Child::Kind, [1, pid, ..]) => pid as i32,
        _ => -1,
    };
    let of = process.context.process;
    match named {
        pid if pid > 0 => {
            (kinds::PROCESS, Scope::System(format!("child:{of}:{pid}")), format!("child process {pid} ({name})"))
        }
        _ => (kinds::PROCESS, Scope::System(format!("child:{of}:any")), format!("any child process ({name})")),
    }
}

/// A captured child "holds" its own end.
fn children(look: &Look<'_>, found: &Found, out: &mut Observations) {
    let parent = &look.processes[found.process];
    let Scope::System(name) = &found.decoded.resource.key.scope else { return };
    let Some(pid) = name.rsplit(':').next().and_then(|pid| pid.parse::<i32>().ok()) else { return };
    let child = look
        .processes
        .iter()
        .find(|p| p.context.image.ns_pid == pid && p.context.image.parent == Some(parent.context.image.pid));
    if let Some(child) = child {
        let evidence = vec![format!("process {} is that child and lives", child.context.image.pid)];
        add_resource(out, &found.decoded.resource);
        let holder = Party::Process(child.context.process);
        out.holds.push(exact_hold(&found.decoded.resource.key, holder, None, evidence));
    }
}
