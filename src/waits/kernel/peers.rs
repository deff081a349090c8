//! Waits for pipes, sockets, eventfds and sets of them: who has the other end.
//!
//! In: a call on descriptors, and the kernel's facts about descriptors and sockets. Out: the resources, and their
//! holders: processes, since a descriptor is a process's. A pipe or socket whose only other end is the waiter's own
//! becomes a [`KnownWakers`]. It opens nothing and makes no system call.

use super::{HolderRule, in_flight};
use crate::image::descriptors::{Detail, NEWS_SIGNALS, Want, event_name, socket_inode, socket_name, tell_of_many};
use crate::image::{Addr, Descriptor, Gap, ProcessImage, TaskState};
use crate::limits::image::{MOST_WANTED, NESTED_SETS};
use crate::waits::blocked_on::{AlsoWaited, Ownership, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds::{self, Kind, Topic};
use crate::waits::label::{Label, Wanted};
use crate::waits::model::{
    Certainty, KnownWakers, Party, Resource, ResourceKey, Role, Scope, Strength, WakeSource, Waker,
};
use crate::waits::observations::{EndsOf, Observations};
use crate::waits::thread::Process;

/// The process end that can finish a wait for a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherEnd {
    /// The waiter's descriptor.
    pub(super) number: i32,
    /// It needs a writer, or else a reader.
    pub(super) needs_writer: bool,
}

/// The descriptor of a process with this number.
pub(super) fn descriptor<'p>(process: &Process<'p>, number: i32) -> Option<&'p Descriptor> {
    process.context.image.descriptors.iter().find(|descriptor| descriptor.number == number)
}

/// The descriptors that an epoll set watches, and those of sets in it; `None` if they are unknown, or too many.
pub(super) fn watched(process: &Process<'_>, number: i32) -> Option<Vec<Want>> {
    let Detail::Set(_) = &descriptor(process, number)?.detail else { return None };
    let (mut members, mut sets, mut ahead) = (Vec::new(), vec![number], vec![number]);
    while let Some(set) = ahead.pop() {
        let Some(Detail::Set(wants)) = descriptor(process, set).map(|descriptor| &descriptor.detail) else { continue };
        for want in wants {
            match descriptor(process, want.number).map(|descriptor| &descriptor.detail) {
                Some(Detail::Set(_)) if sets.contains(&want.number) => {}
                Some(Detail::Set(_)) if sets.len() < NESTED_SETS => {
                    sets.push(want.number);
                    ahead.push(want.number);
                }
                _ => members.push(*want),
            }
        }
        if members.len() > MOST_WANTED {
            tell_of_many();
            return None;
        }
    }
    Some(members)
}

/// The event that a waiter for a descriptor needs: data, room, or either.
pub(super) fn decode(process: &Process<'_>, want: Want) -> Vec<AlsoWaited> {
    let Some(descriptor) = descriptor(process, want.number) else { return vec![unknown(process, want, None)] };
    let is_known = descriptor.is_pipe
        || descriptor.target.starts_with("socket:")
        || matches!(descriptor.detail, Detail::Event { .. } | Detail::Queue);
    if !is_known {
        return vec![unknown(process, want, Some(descriptor))];
    }
    let ways = [(want.reads || !want.writes, true), (want.writes, false)];
    let ways = ways.into_iter().filter(|(wanted, _)| *wanted);
    ways.map(|(_, needs_writer)| one_way(process, descriptor, needs_writer)).collect()
}

/// A program with handlers for signals of its children or timers waits for these as well: its loop goes on after one.
pub(super) fn or_a_signal(process: &Process<'_>, mut all: Vec<AlsoWaited>) -> Vec<AlsoWaited> {
    let handles = process.handled().map(|handled| handled & NEWS_SIGNALS != 0);
    if !all.is_empty() && handles != Some(false) {
        let scope = Scope::System(format!("signal:{}", process.context.process));
        let key = ResourceKey { kind: kinds::SIGNAL, scope, address: Addr(0) };
        let label = "a signal that it handles".into();
        all.push(AlsoWaited {
            resource: Resource { key, process: process.context.process, label, state: Vec::new(), role: None },
            evidence: "it has handlers for signals of children or timers".into(),
            ownership: Ownership::Unknown,
        });
    }
    all
}

fn one_way(process: &Process<'_>, descriptor: &Descriptor, needs_writer: bool) -> AlsoWaited {
    let kernel = &process.context.all.kernel;
    let (side, wanted) = if needs_writer { ("data", Wanted::Data) } else { ("room", Wanted::Room) };
    let mut state = Vec::new();
    let mut evidence = format!("its descriptor {} is {}", descriptor.number, descriptor.target);
    let mut role = None;
    let (kind, scope, label) = match (&descriptor.detail, socket_inode(&descriptor.target)) {
        (Detail::Event { id, count }, _) => {
            state.push(("count", *count as i64));
            evidence += &format!(" with the id {id}, counter {count}");
            (kinds::EVENTFD, event_name(*id), format!("eventfd {id}").into())
        }
        (_, Some(inode)) => {
            let known = kernel.socket(inode);
            // Its addresses are its own: in general it is a connection by TCP.
            let name = name_of(process, descriptor);
            let has_end = known.and_then(|socket| socket.peer).and_then(|peer| who_has(process, &socket_name(peer)));
            let label = match name.split_once(' ') {
                Some(("TCP", addresses)) => {
                    let peer = has_end.map(|who| format!(" ({who})")).unwrap_or_default();
                    Label::from("TCP").at(format!("{addresses}{peer}"))
                }
                _ => Label::from(name),
            };
            role = known.and_then(|socket| socket.remote).map(Role::Connection);
            if let Some(peer) = known.and_then(|socket| socket.peer) {
                evidence += &format!(", whose other end is {}", socket_name(peer));
            }
            if let Some(unread) = known.map(|socket| socket.unread) {
                state.push(("unread", unread as i64));
            }
            match known.is_some_and(|socket| socket.listens) {
                true => (kinds::SOCKET, format!("socket:connection:{inode}"), label.wanted(Wanted::Connection)),
                false if needs_writer => (kinds::SOCKET, format!("socket:data:{inode}"), label.wanted(Wanted::Answer)),
                false => (kinds::SOCKET, format!("socket:room:{inode}"), label.wanted(Wanted::Room)),
            }
        }
        (Detail::Queue, _) => {
            let label = Label::from(name_of(process, descriptor)).wanted(wanted);
            (kinds::MESSAGE_QUEUE, format!("message-queue:{side}:{}", descriptor.target), label)
        }
        _ => {
            let is_own = needs_writer && kernel.own_pipes.contains(&descriptor.target);
            role = is_own.then_some(Role::ThisReport);
            let label = match is_own {
                true => Label::from("this very report"),
                false => Label::from(descriptor.target.as_str()).wanted(wanted),
            };
            (kinds::PIPE, format!("pipe:{side}:{}", descriptor.target), label)
        }
    };
    let key = ResourceKey { kind, scope: Scope::System(scope), address: Addr(0) };
    let end = OtherEnd { number: descriptor.number, needs_writer };
    let role = backlog_of(process, descriptor).map(|_| Role::Unaccepted).or(role);
    AlsoWaited {
        resource: Resource { key, process: process.context.process, label, state, role },
        evidence,
        ownership: Ownership::private(HolderRule::OtherEnd(end)),
    }
}

/// `nginx 18`: the process that has this end, the first of several.
fn who_has(process: &Process<'_>, end: &str) -> Option<String> {
    let all = process.context.all;
    let captured = all.processes.iter().find(|other| other.descriptors.iter().any(|one| one.target == end));
    let name = |other: &ProcessImage| other.exe.as_deref()?.file_name().map(|name| name.to_string_lossy().into_owned());
    let outside =
        || all.kernel.ends.iter().find(|one| one.target == end).map(|one| format!("{} {}", one.name, one.pid));
    captured.and_then(|other| Some(format!("{} {}", name(other)?, other.pid))).or_else(outside)
}

/// A descriptor whose other end, if it has one, is not known.
fn unknown(process: &Process<'_>, want: Want, descriptor: Option<&Descriptor>) -> AlsoWaited {
    let position = process.context.process;
    let number = want.number;
    let told = |noun: &str, detail: String| Label::from(noun).with_detail(Some(detail));
    let own = || format!("descriptor {number}");
    let (kind, label) = match descriptor.map(|descriptor| (&descriptor.detail, descriptor.target.as_str())) {
        Some((Detail::Timer, _)) => (kinds::TIMER, told("a timer", own())),
        Some((Detail::Signals, _)) => (kinds::SIGNAL, told("a signal", own())),
        Some((Detail::Process(pid), _)) => (kinds::PROCESS, told(&format!("process {pid}"), own()).wanted(Wanted::End)),
        Some((_, target)) if special(target).is_some() => {
            (kinds::DESCRIPTOR, told(special(target).unwrap_or_default(), own()))
        }
        Some((_, target)) if number == 0 => (kinds::STDIN, told("standard input", target.to_owned())),
        Some((_, target)) => (kinds::DESCRIPTOR, told(&own(), target.to_owned())),
        None => (kinds::DESCRIPTOR, own().into()),
    };
    let (scope, ownership) = match descriptor.map(|descriptor| &descriptor.detail) {
        Some(Detail::Process(pid)) => (format!("pid:{pid}"), Ownership::private(HolderRule::ProcessEnd(*pid))),
        _ => (format!("descriptor:{position}:{number}"), Ownership::Unknown),
    };
    let key = ResourceKey { kind, scope: Scope::System(scope), address: Addr(0) };
    let evidence = descriptor.map_or_else(
        || format!("its descriptor {number}, of which nothing is known"),
        |descriptor| format!("its descriptor {number} is {}", descriptor.target),
    );
    AlsoWaited {
        resource: Resource { key, process: position, label, state: Vec::new(), role: None },
        evidence,
        ownership,
    }
}

/// The event that a read of a special file waits for (fs/notify, fs/userfaultfd.c and io_uring: the names of their
/// anonymous inodes).
fn special(target: &str) -> Option<&'static str> {
    Some(match target.strip_prefix("anon_inode:")?.trim_matches(['[', ']']) {
        "inotify" => "a change of files that it watches by inotify",
        "fanotify" => "a change of files that it watches by fanotify",
        "userfaultfd" => "a page fault that it is to serve (userfaultfd)",
        "io_uring" => "a completion of io_uring",
        _ => return None,
    })
}

/// Ends of something in one process.
struct Ends {
    /// Position of the process in the sample.
    process: usize,
    numbers: Vec<i32>,
    text: String,
}

/// Add who can end the wait `wait`: processes with the end that the waiter needs.
pub(super) fn holders(blocked: &Blocked<'_>, wait: &ThreadWait, end: OtherEnd, out: &mut Observations) {
    let process = blocked.process(wait);
    let Some(descriptor) = descriptor(process, end.number) else { return };
    let kernel = &process.context.all.kernel;
    let key = &wait.blocked_on.resource.key;
    let is_event = matches!(descriptor.detail, Detail::Event { .. });
    let Some(target) = other_end(process, descriptor) else {
        return no_other_end(wait, descriptor, process, out);
    };
    let backlog = backlog_of(process, descriptor);
    let verb = match (key.kind == kinds::SOCKET, end.needs_writer) {
        _ if backlog.is_some() => "has yet to accept",
        (true, _) => "has the other end of",
        (_, true) => "can write to",
        _ => "can read from",
    };
    let has_sides = [kinds::PIPE, kinds::MESSAGE_QUEUE].contains(&key.kind);
    let fits = |reads: bool, writes: bool| !has_sides || if end.needs_writer { writes } else { reads };
    let name = name_of(process, descriptor);
    let mut holders: Vec<Ends> = Vec::new();
    for (position, other) in blocked.processes().iter().enumerate() {
        let list = other.context.image.descriptors.iter();
        let ends = list.filter(|one| one.end_name() == target && fits(one.reads, one.writes));
        let numbers: Vec<i32> = ends.map(|one| one.number).collect();
        if !numbers.is_empty() {
            let pid = other.context.image.pid;
            let list: Vec<String> = numbers.iter().map(i32::to_string).collect();
            let text = format!("process {pid} {verb} {name} (its descriptor {})", list.join(", "));
            holders.push(Ends { process: position, numbers, text });
        }
    }
    let outside = kernel.ends.iter().filter(|one| one.target == target && fits(one.reads, one.writes));
    let outside: Vec<String> = outside.map(|one| format!("{} ({})", one.name, one.pid)).collect();
    let mut unseen = unseen_ends(process, descriptor, holders.is_empty() && outside.is_empty());
    let sent = on_their_way(blocked, process, descriptor, &target);
    unseen.extend(sent.wake_sources);
    out.wake_sources.extend(unseen.into_iter().map(|(by, what)| WakeSource {
        resource: key.clone(),
        waiter: None,
        by,
        what,
    }));
    let is_own = outside.is_empty() && kernel.unread == 0 && holders.iter().all(|ends| ends.process == wait.process);
    if is_own && is_event && !holders.is_empty() && !kernel_writes_to_events(process) {
        let own = Waker::Party(Party::Process(wait.process));
        let what = "a thread of the process itself could write to it".to_owned();
        out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by: own, what });
        out.known_wakers.push(KnownWakers {
            resource: key.clone(),
            why: "only the waiting process has it, and none of its threads goes on to write to it".into(),
            certainty: Certainty::Inferred,
            ruled_out: sent.ruled_out,
            whole_process: true,
            is_reportable: true,
        });
        return;
    }
    if outside.is_empty() && kernel.unread == 0 && only_waiters(blocked, wait, &holders) {
        // An eventfd is written to by the kernel too (asynchronous I/O, devices); a queue has a name by which others open it.
        if !is_event && key.kind != kinds::MESSAGE_QUEUE {
            let own = Waker::Party(Party::Process(wait.process));
            let what = "a thread of the process itself could".to_owned();
            out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by: own, what });
            out.known_wakers.push(KnownWakers {
                resource: key.clone(),
                why: match backlog {
                    Some(_) => NEVER_ACCEPTED.into(),
                    None => without_end(key.kind, end.needs_writer).into(),
                },
                // Whether a descriptor on its way can be the other end is concluded, not read.
                certainty: if sent.ruled_out.is_empty() { Certainty::Exact } else { Certainty::Inferred },
                ruled_out: sent.ruled_out.clone(),
                // A wait for a set of descriptors may be meant for any later event of the program: a cycle is better
                // evidence.
                whole_process: !is_plain(process, wait),
                is_reportable: true,
            });
        }
        return;
    }
    // The waiter's own process can't end the wait while all of its threads wait for this very thing.
    if all_wait(blocked, wait) {
        holders.retain(|ends| ends.process != wait.process);
    }
    let unseen = match kernel.unread {
        0 => String::new(),
        count => format!("; the descriptors of {count} more processes could not be read"),
    };
    for ends in holders {
        let mut hold = exact_hold(key, Party::Process(ends.process), None, vec![ends.text + &unseen]);
        out.ends.push(EndsOf { resource: key.clone(), process: ends.process, numbers: ends.numbers });
        if kernel.unread > 0 || is_event || key.kind == kinds::MESSAGE_QUEUE || !sent.ruled_out.is_empty() {
            // One that was not seen may have that end too, or open it by its name; and that one writes to an eventfd because he can is a guess.
            hold.strength = Strength::Inferred;
        }
        out.holds.push(hold);
    }
    if !outside.is_empty() {
        let who = outside.join(", ");
        let text = format!("{who} {verb} {}, and was not captured", descriptor.target);
        out.holds.push(exact_hold(key, Party::Absent(wait.process, 0), None, vec![text]));
        let why = format!("{who} was not captured: name it as well (`lockscope attach PID PID`)");
        if out.gaps.iter().all(|gap| gap.why != why) {
            out.gaps.push(Gap::new(format!("the other end of {name}"), why));
        }
    }
}

/// Whether the kernel itself may write to an eventfd of the process: for asynchronous input and output, or for a device that it has
/// open, other than memory, random numbers and terminals.
fn kernel_writes_to_events(process: &Process<'_>) -> bool {
    const SILENT: [&str; 8] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/"];
    const SILENT_INODES: [&str; 5] = ["[eventfd]", "[eventpoll]", "[timerfd]", "[signalfd]", "[pidfd]"];
    let image = process.context.image;
    let has_requests = image.mappings.iter().any(|mapping| mapping.path.as_deref() == Some("/[aio]"));
    let may_write = |descriptor: &Descriptor| match descriptor.target.strip_prefix("anon_inode:") {
        Some(inode) => !SILENT_INODES.contains(&inode),
        None => {
            descriptor.target.starts_with("/dev/") && !SILENT.iter().any(|name| descriptor.target.starts_with(name))
        }
    };
    has_requests || image.descriptors.iter().any(may_write)
}

/// Why nobody answers on a connection that the waiting process itself has yet to accept.
const NEVER_ACCEPTED: &str = "the connection is in the backlog of a listening socket that only the waiting process has: \
                              nobody else can accept it, and no answer can ever come";

/// The listening socket in whose backlog a connection is. The processes that have it can accept the connection or, by
/// closing the socket, end it.
fn backlog_of(process: &Process<'_>, descriptor: &Descriptor) -> Option<u64> {
    process.context.all.kernel.socket(socket_inode(&descriptor.target)?)?.unaccepted_by
}

/// Why a wait without another end never ends.
fn without_end(kind: &Kind, needs_writer: bool) -> &'static str {
    match (kind == kinds::SOCKET, needs_writer) {
        (true, true) => {
            "the other end is the waiting process's own, and nobody else has it: neither data nor its end can ever come"
        }
        (true, false) => {
            "the other end is the waiting process's own, and nobody else has it: nobody can ever make room"
        }
        (false, true) => "its only write ends are the waiting process's own: neither data nor its end can ever come",
        (false, false) => "its only read ends are the waiting process's own: nobody can ever make room",
    }
}

/// The usual name of the object that a descriptor is an end of.
fn name_of(process: &Process<'_>, descriptor: &Descriptor) -> String {
    match (&descriptor.detail, socket_inode(&descriptor.target)) {
        (Detail::Event { id, .. }, _) => format!("eventfd {id}"),
        (Detail::Queue, _) => format!("message queue {}", descriptor.target),
        (_, Some(inode)) => {
            let known = process.context.all.kernel.socket(inode);
            known.map_or_else(|| descriptor.target.clone(), |socket| socket.label.clone())
        }
        _ => descriptor.target.clone(),
    }
}

/// The names of the other ends.
fn other_end(process: &Process<'_>, descriptor: &Descriptor) -> Option<String> {
    match socket_inode(&descriptor.target) {
        Some(inode) => {
            let socket = process.context.all.kernel.socket(inode)?;
            socket.peer.or(socket.unaccepted_by).map(socket_name)
        }
        None => Some(descriptor.end_name()),
    }
}

/// A socket whose other end is on another machine, in another network namespace, or nowhere yet.
fn no_other_end(wait: &ThreadWait, descriptor: &Descriptor, process: &Process<'_>, out: &mut Observations) {
    let known = socket_inode(&descriptor.target).and_then(|inode| process.context.all.kernel.socket(inode));
    if known.is_some_and(|socket| socket.listens) {
        return;
    }
    let why = match known {
        Some(socket) if socket.is_datagram => "it is a datagram socket without a peer: any process may send to it",
        Some(_) => "it is not on this machine, or in another network namespace; look at the process there too",
        None => {
            "the kernel tells nothing of this socket to lockscope: it is of another family, or of another namespace"
        }
    };
    out.gaps.push(Gap::new(format!("the other end of {}", wait.blocked_on.resource.label), why));
}

/// The effect on a wait of the descriptors in flight through unix sockets.
fn on_their_way(
    blocked: &Blocked<'_>,
    process: &Process<'_>,
    descriptor: &Descriptor,
    target: &str,
) -> in_flight::Judged {
    let kernel = &process.context.all.kernel;
    let own = descriptor.end_name();
    let names = [own.as_str(), target];
    let images = || blocked.processes().iter().map(|one| one.context.image);
    let has_it = |image: &&ProcessImage| image.descriptors.iter().any(|one| names.contains(&one.end_name().as_str()));
    let outside = kernel.ends.iter().filter(|one| names.contains(&one.target.as_str())).map(|one| one.pid);
    let havers: Vec<i32> = images().filter(has_it).map(|image| image.pid).chain(outside).collect();
    in_flight::judge(kernel, &names, &havers)
}

/// Ends that no process is seen to have, but some process may have or get.
fn unseen_ends(process: &Process<'_>, descriptor: &Descriptor, nobody_has_it: bool) -> Vec<(Waker, String)> {
    let kernel = &process.context.all.kernel;
    let mut wake_sources = Vec::new();
    if nobody_has_it {
        // Without any other end the kernel would have ended the call.
        let what = "its other end is somewhere that lockscope does not see, since the kernel still waits for it";
        wake_sources.push((Waker::ByItself, what.to_owned()));
    }
    if descriptor.is_pipe && descriptor.target.starts_with('/') && !descriptor.target.ends_with(" (deleted)") {
        let what = format!("it has a name, {}, by which others can open it", descriptor.target);
        wake_sources.push((Waker::OnRequest, what));
    }
    if kernel.sockets_passed_over {
        let what = "descriptors may be on their way through unix sockets that were not looked at, as there are so many";
        wake_sources.push((Waker::OnRequest, what.to_owned()));
    }
    wake_sources
}

/// Whether a thread waits in a call for one thing only.
fn is_plain(process: &Process<'_>, wait: &ThreadWait) -> bool {
    wait.blocked_on.one_of == 1 && wait.blocked_on.call.is_some_and(|call| !super::waits_for_several(process, call))
}

/// Whether nobody has the end but the waiter's own process, all of whose threads wait for this very thing, for the like, or for what
/// threads of the process give: then it is the graph that says whether one of them goes on.
fn only_waiters(blocked: &Blocked<'_>, wait: &ThreadWait, holders: &[Ends]) -> bool {
    let process = blocked.process(wait);
    let own = blocked.waits_of(wait.process);
    let all_wait_for_each_other = || {
        (0..process.threads.len()).all(|position| {
            let is_like = |other: &ThreadWait| {
                let on = &other.blocked_on;
                let is_inside = on.resource.key.is_given_inside() && on.has_one_end() && on.one_of == 1;
                let is_end = on.resource.key.kind.topic == Topic::Data && is_plain(process, other);
                other.thread == position && (is_inside || is_end)
            };
            process.threads[position].image.state == TaskState::Zombie || own.iter().any(is_like)
        })
    };
    holders.iter().all(|ends| ends.process == wait.process) && (all_wait(blocked, wait) || all_wait_for_each_other())
}

/// Whether all threads of the waiter's process wait for this very thing.
fn all_wait(blocked: &Blocked<'_>, wait: &ThreadWait) -> bool {
    let process = blocked.process(wait);
    let waits_too = |position: usize| blocked.waits_for(&wait.blocked_on.resource.key, wait.process, position);
    (0..process.threads.len())
        .all(|position| process.threads[position].image.state == TaskState::Zombie || waits_too(position))
}

/// The process whose end is waited for by a pidfd.
pub(super) fn process_end(blocked: &Blocked<'_>, wait: &ThreadWait, pid: i32, out: &mut Observations) {
    let Some(process) = blocked.processes().iter().find(|process| process.context.image.pid == pid) else { return };
    let evidence = vec![format!("process {pid} lives")];
    out.holds.push(exact_hold(&wait.blocked_on.resource.key, Party::Process(process.context.process), None, evidence));
}
