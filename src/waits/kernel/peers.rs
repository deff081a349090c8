//! Waits for pipes, sockets, eventfds and sets of them: who has the other end.
//!
//! In: a call on descriptors, and what the kernel tells of descriptors and sockets. Out: the resources, and their
//! holders: processes, since a descriptor is a process's. That something has no other end but the waiter's own is said
//! as [`Enclosed`]. It opens nothing and asks the kernel nothing.

use super::{HolderRule, in_flight};
use crate::image::descriptors::{Detail, NEWS_SIGNALS, Want, event_name, socket_inode, socket_name, tell_of_many};
use crate::image::{Addr, Descriptor, Gap, ProcessImage, TaskState};
use crate::limits::image::MOST_WANTED;
use crate::waits::blocked_on::{AlsoWaited, Ownership, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds::{self, Kind, Topic};
use crate::waits::label::{Label, Wanted};
use crate::waits::model::{Certainty, Enclosed, Hope, Hoped, Party, Resource, ResourceKey, Scope};
use crate::waits::observations::{EndsOf, Observations};
use crate::waits::thread::Process;

/// What ends a wait for a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OtherEnd {
    /// The waiter's descriptor.
    pub(super) number: i32,
    /// Somebody who writes, or else somebody who reads.
    pub(super) needs_writer: bool,
}

/// The descriptor of a process with this number.
pub(super) fn descriptor<'p>(process: &Process<'p>, number: i32) -> Option<&'p Descriptor> {
    process.context.image.descriptors.iter().find(|descriptor| descriptor.number == number)
}

/// What an epoll set watches; `None` if that is not known, or too much to look at.
pub(super) fn watched<'p>(process: &Process<'p>, number: i32) -> Option<&'p [Want]> {
    match &descriptor(process, number)?.detail {
        Detail::Set(wants) if wants.len() <= MOST_WANTED => Some(wants),
        Detail::Set(_) => {
            tell_of_many();
            None
        }
        _ => None,
    }
}

/// What waiting for a descriptor means: for data, for room, or either.
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
    let handles = process.context.all.kernel.handles(process.context.image.pid, NEWS_SIGNALS);
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
            let label = match name.split_once(' ') {
                Some(("TCP", addresses)) => Label::from("TCP").at(addresses),
                _ => Label::from(name),
            };
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
            let label = Label::from(descriptor.target.as_str()).wanted(wanted);
            (kinds::PIPE, format!("pipe:{side}:{}", descriptor.target), label)
        }
    };
    let key = ResourceKey { kind, scope: Scope::System(scope), address: Addr(0) };
    let end = OtherEnd { number: descriptor.number, needs_writer };
    AlsoWaited {
        resource: Resource { key, process: process.context.process, label, state, role: None },
        evidence,
        ownership: Ownership::private(HolderRule::OtherEnd(end)),
    }
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

/// What a read of a special file waits for (fs/notify, fs/userfaultfd.c and io_uring: the names of their anonymous inodes).
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
    /// Position of the process in the look.
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
    let verb = match (key.kind == kinds::SOCKET, end.needs_writer) {
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
    unseen.extend(sent.hopes.into_iter().map(|what| (Hoped::Asked, what)));
    out.hopes.extend(unseen.into_iter().map(|(by, what)| Hope { resource: key.clone(), waiter: None, by, what }));
    if outside.is_empty() && kernel.unread == 0 && only_waiters(blocked, wait, &holders) {
        // An eventfd is written to by the kernel too (asynchronous I/O, devices); a queue has a name by which others open it.
        if !is_event && key.kind != kinds::MESSAGE_QUEUE {
            let own = Hoped::Party(Party::Process(wait.process));
            let what = "a thread of the process itself could".to_owned();
            out.hopes.push(Hope { resource: key.clone(), waiter: None, by: own, what });
            out.enclosed.push(Enclosed {
                resource: key.clone(),
                why: without_end(key.kind, end.needs_writer).into(),
                // Whether a descriptor on its way can be the other end is concluded, not read.
                certainty: if sent.ruled_out.is_empty() { Certainty::Exact } else { Certainty::Inferred },
                ruled_out: sent.ruled_out.clone(),
                // Who waits for a set of things waits for whatever the program may start: a cycle says more.
                whole_process: !is_plain(process, wait),
                is_told: true,
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
        hold.is_end = true;
        out.ends.push(EndsOf { resource: key.clone(), process: ends.process, numbers: ends.numbers });
        if kernel.unread > 0 || is_event || key.kind == kinds::MESSAGE_QUEUE || !sent.ruled_out.is_empty() {
            // One that was not seen may have that end too, or open it by its name; and that one writes to an eventfd because he can is a guess.
            hold.certainty = Certainty::Inferred;
        }
        out.holds.push(hold);
    }
    if !outside.is_empty() {
        let text = format!("not captured, {verb} {}: {}", descriptor.target, outside.join(", "));
        out.holds.push(exact_hold(key, Party::Absent(wait.process, 0), None, vec![text.clone()]));
        let why = format!("{text}; capture these processes too (--tree, or more PIDs)");
        out.gaps.push(Gap::new(format!("the other end of {}", descriptor.target), why));
    }
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

/// What people call the thing that a descriptor is an end of.
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

/// What the ends that matter are called.
fn other_end(process: &Process<'_>, descriptor: &Descriptor) -> Option<String> {
    match socket_inode(&descriptor.target) {
        Some(inode) => process.context.all.kernel.socket(inode)?.peer.map(socket_name),
        None => Some(descriptor.end_name()),
    }
}

/// A socket whose other end is on another machine, in another network namespace, or nowhere yet.
fn no_other_end(wait: &ThreadWait, descriptor: &Descriptor, process: &Process<'_>, out: &mut Observations) {
    let known = socket_inode(&descriptor.target).and_then(|inode| process.context.all.kernel.socket(inode));
    if known.is_some_and(|socket| socket.listens) {
        return;
    }
    if let Some(listener) = known.and_then(|socket| socket.unaccepted_by) {
        let why =
            format!("nobody has accepted this connection yet: it is in the backlog of {}", owner(process, listener));
        out.gaps.push(Gap::new(format!("the other end of {}", wait.blocked_on.resource.label), why));
        return;
    }
    let why = match known {
        Some(_) => "it is not on this machine, or in another network namespace; look at the process there too",
        None => {
            "the kernel tells nothing of this socket to lockscope: it is of another family, or of another namespace"
        }
    };
    out.gaps.push(Gap::new(format!("the other end of {}", wait.blocked_on.resource.label), why));
}

/// "descriptor 3 of this process": who has a socket that listens.
fn owner(process: &Process<'_>, inode: u64) -> String {
    let number = |of: &ProcessImage| {
        let has = |descriptor: &&Descriptor| socket_inode(&descriptor.target) == Some(inode);
        of.descriptors.iter().find(has).map(|descriptor| descriptor.number)
    };
    if let Some(number) = number(process.context.image) {
        return format!("descriptor {number} of this process");
    }
    let mut others = process.context.all.processes.iter().filter_map(|other| Some((other.pid, number(other)?)));
    match others.next() {
        Some((pid, number)) => format!("descriptor {number} of process {pid}"),
        None => format!("socket:[{inode}], which no captured process has"),
    }
}

/// What the descriptors that are on their way through unix sockets mean for a wait.
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

/// Ends that nobody is seen to have, but somebody may have or get.
fn unseen_ends(process: &Process<'_>, descriptor: &Descriptor, nobody_has_it: bool) -> Vec<(Hoped, String)> {
    let kernel = &process.context.all.kernel;
    let mut hopes = Vec::new();
    if nobody_has_it {
        // Without any other end the kernel would have ended the call.
        let what = "its other end is somewhere that lockscope does not see, since the kernel still waits for it";
        hopes.push((Hoped::Coming, what.to_owned()));
    }
    if descriptor.is_pipe && descriptor.target.starts_with('/') && !descriptor.target.ends_with(" (deleted)") {
        let what = format!("it has a name, {}, by which others can open it", descriptor.target);
        hopes.push((Hoped::Asked, what));
    }
    if kernel.sockets_passed_over {
        let what = "descriptors may be on their way through unix sockets that were not looked at, as there are so many";
        hopes.push((Hoped::Asked, what.to_owned()));
    }
    hopes
}

/// Whether a thread waits in a call for one thing only.
fn is_plain(process: &Process<'_>, wait: &ThreadWait) -> bool {
    wait.blocked_on.one_of == 1 && wait.blocked_on.call.is_some_and(|call| !super::waits_for_several(process, call))
}

/// Whether nobody has the end but the waiter's own process, all of whose threads wait for this very thing, or for the like:
/// then it is the graph that says whether one of them goes on.
fn only_waiters(blocked: &Blocked<'_>, wait: &ThreadWait, holders: &[Ends]) -> bool {
    let process = blocked.process(wait);
    let own = blocked.waits_of(wait.process);
    let all_wait_for_ends = || {
        (0..process.threads.len()).all(|position| {
            let is_like = |other: &ThreadWait| {
                other.thread == position
                    && other.blocked_on.resource.key.kind.topic == Topic::Data
                    && is_plain(process, other)
            };
            process.threads[position].image.state == TaskState::Zombie || own.iter().any(is_like)
        })
    };
    holders.iter().all(|ends| ends.process == wait.process) && (all_wait(blocked, wait) || all_wait_for_ends())
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
