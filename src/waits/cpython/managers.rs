//! Managers of `multiprocessing`: for which client a thread of the server works, and which client has a lock that lives there.
//!
//! In: the frames of a server, `Server.serve_client`, and of its clients, which have proxies. Out:
//! - a client that waits for an answer waits for the same resource as the thread that serves its connection;
//! - holds of a lock of the server by the client that is in a `with` block of its proxy;
//! - where there is no such client, only clients can release the lock.
//!
//! Clients are identified by the connections that the server's threads serve, and by proxies at hand. A client on
//! another machine is not known.

use std::collections::BTreeSet;

use super::multiprocessing::at_hand;
use super::threading_objects::method;
use super::{Cpython, Facts};
use crate::image::Addr;
use crate::python::inspect::frames_of;
use crate::python::{PythonFrame, PythonThread};
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds;
use crate::waits::model::{Certainty, Gone, Hold, KnownWakers, Party, ResourceKey, Strength, Wait, WakeSource, Waker};
use crate::waits::observations::{EndsOf, Observations};
use crate::waits::thread::Process;

const MODULE: &str = "multiprocessing.managers";
const SERVES: &str = "serve_client";

/// A thread of a server, and the descriptor of the connection that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Serving {
    tid: i32,
    descriptor: i32,
}

/// Say of the answers that clients wait for what they really wait for: what the thread of the server waits for that gives them.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for process in blocked.processes() {
        let position = process.context.process;
        let is_asked = out.ends.iter().any(|of| of.process == position);
        let Some(facts) = family.facts(process).filter(|_| is_asked) else { continue };
        for Serving { tid, descriptor } in serving(facts) {
            let is_answer = |of: &&EndsOf| of.process == position && of.numbers.contains(&descriptor);
            let answers: Vec<ResourceKey> = out.ends.iter().filter(is_answer).map(|of| of.resource.clone()).collect();
            let server = Party::Thread(position, tid);
            let own =
                out.waits.iter().find(|wait| wait.waiter == server && wait.resource.kind != kinds::SOCKET).cloned();
            for answer in answers {
                let is_it = |hold: &&mut Hold| hold.resource == answer && hold.holder == Party::Process(position);
                for hold in out.holds.iter_mut().filter(is_it) {
                    hold.holder = server.clone();
                    hold.strength = hold.strength.min(Strength::Inferred);
                    hold.evidence.push(format!("thread {tid} of the manager's server serves this connection alone"));
                }
                if let Some(own) = &own {
                    asks_for(family, blocked, &answer, own, out);
                }
            }
        }
    }
}

/// A thread that waits for `answer` waits for the same resource as the thread of the server, and has its own name for
/// it.
fn asks_for(family: &Cpython<'_>, blocked: &Blocked<'_>, answer: &ResourceKey, own: &Wait, out: &mut Observations) {
    let mut names = Vec::new();
    for wait in out.waits.iter_mut().filter(|wait| wait.resource == *answer) {
        wait.resource = own.resource.clone();
        wait.timed |= own.timed;
        wait.certainty = wait.certainty.min(Certainty::Inferred);
        wait.evidence.push("the thread of the manager's server that works for it alone waits for this".to_owned());
        wait.evidence.extend(own.evidence.iter().cloned());
        let Party::Thread(client, tid) = wait.waiter else { continue };
        let facts = blocked.processes().get(client).and_then(|process| family.facts(process));
        names.extend(facts.and_then(|facts| {
            let frames = || facts.inspector.stack(tid).skip_while(|frame| frame.origin.waits_for_caller());
            let proxies = proxies(facts, own.resource.address);
            proxies.into_iter().find_map(|proxy| facts.inspector.name_of(proxy, frames()))
        }));
    }
    let resource = out.resources.iter_mut().find(|resource| resource.key == own.resource);
    if let (Some(resource), Some(name)) = (resource, names.into_iter().next()) {
        resource.label.name = Some(name);
    }
}

/// The threads of a server with their connections.
fn serving(facts: &Facts<'_>) -> Vec<Serving> {
    let objects = facts.inspector.objects();
    let of = |(_, thread): (usize, &PythonThread)| {
        let frame = frames_of(thread).find(|frame| is_serving(frame))?;
        let connection = facts.inspector.frame(frame)?.variable("conn")?;
        let descriptor = objects.unsigned(objects.attribute(connection, "_handle")?)?;
        Some(Serving { tid: thread.tid?, descriptor: i32::try_from(descriptor).ok()? })
    };
    facts.inspector.living().filter_map(of).collect()
}

fn is_serving(frame: &PythonFrame) -> bool {
    frame.origin.is_stdlib(MODULE) && method(frame) == SERVES
}

/// The holder of a lock of a manager's server, by the code that its clients run. `None` where the waiter is no thread
/// that serves a client, or a client was not sampled. Where no client shows that it has the lock, those that could
/// release it become wake sources.
pub(super) fn holders(
    family: &Cpython<'_>,
    blocked: &Blocked<'_>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    out: &mut Observations,
) -> Option<Vec<Hold>> {
    let server = blocked.process(wait);
    let waiter = server.threads.get(wait.thread)?;
    facts.inspector.stack(waiter.image.tid).next().filter(|frame| is_serving(frame))?;
    let key = &wait.blocked_on.resource.key;
    let clients = clients(family, blocked, facts, wait, out)?;
    let locked = "the lock is locked".to_owned();
    let mut holds = Vec::new();
    for Client { process, proxies } in &clients {
        let Some(facts) = family.facts(process) else { continue };
        let of_proxy = facts.inspector.entered().iter().filter(|block| proxies.contains(&block.object));
        holds.extend(of_proxy.filter_map(|block| {
            let tid = facts.inspector.python.threads.get(block.state)?.tid?;
            let thread = process.threads.get(process.position(tid)?)?;
            let pid = process.context.image.pid;
            let evidence =
                format!("{} of process {pid} is inside a `with` block of its proxy of it", thread.describe());
            let holder = Party::Thread(process.context.process, tid);
            let hold = exact_hold(key, holder, None, vec![locked.clone(), evidence]);
            let frame = thread.merged_python(block.frame);
            Some(Hold { frame, strength: Strength::Inferred, ..hold })
        }));
    }
    match holds.as_mut_slice() {
        [] => {}
        [hold] => hold.strength = Strength::Sole,
        several => several.iter_mut().for_each(|hold| hold.strength = Strength::Candidate),
    }
    if !holds.is_empty() {
        return Some(holds);
    }
    let (why, each) = match clients.len() {
        0 => ("no client is left".to_owned(), ""),
        1 => ("the one client that is left is in no `with` block of it".to_owned(), " and waits for it"),
        several => {
            let why = format!("none of the {several} clients that are left is in a `with` block of it");
            (why, ", and each of them waits for it")
        }
    };
    // A client that ends properly gives back its proxies: one that has not was killed, or has them in an unread
    // location.
    let counted = references(facts, waiter.image.tid, key.address);
    let known = clients.iter().map(|client| client.proxies.len() as u64).sum::<u64>();
    let behind = behind(blocked, facts, wait, out);
    if counted.is_some_and(|counted| counted > known)
        && clients.iter().all(|client| behind.contains(&client.process.context.process))
    {
        let counted = counted.unwrap_or_default();
        let why = format!(
            "{why}{each}; the server counts {counted} proxies of it, {known} are left: whoever took it has ended"
        );
        let hold = exact_hold(key, Party::Absent(wait.process, 0), None, vec![locked, why]);
        return Some(vec![Hold { gone: Some(Gone::ProcessDead), strength: Strength::Inferred, ..hold }]);
    }
    out.wake_sources.extend(clients.iter().map(|client| WakeSource {
        resource: key.clone(),
        waiter: None,
        by: Waker::Party(Party::Process(client.process.context.process)),
        what: format!("process {} is a client of the manager and could release it", client.process.context.image.pid),
    }));
    out.known_wakers.push(KnownWakers {
        resource: key.clone(),
        why: format!("{why}: whoever took it has ended, or is a client that waits itself"),
        certainty: Certainty::Inferred,
        ruled_out: Vec::new(),
        whole_process: false,
        is_reportable: true,
    });
    Some(Vec::new())
}

/// A process that has a connection to the server, or a proxy of the lock.
struct Client<'b> {
    process: &'b Process<'b>,
    proxies: Vec<Addr>,
}

/// The clients of the server that could have the lock; `None` where one of its clients was not sampled.
fn clients<'b>(
    family: &Cpython<'_>,
    blocked: &'b Blocked<'b>,
    facts: &Facts<'_>,
    wait: &ThreadWait,
    out: &Observations,
) -> Option<Vec<Client<'b>>> {
    let server = blocked.process(wait);
    let mut connected = BTreeSet::new();
    for one in serving(facts) {
        let position = server.position(one.tid)?;
        let own = blocked.waits_of(wait.process).iter().filter(|wait| wait.thread == position);
        for awaited in own.map(|wait| &wait.blocked_on.resource.key).filter(|key| key.kind == kinds::SOCKET) {
            let ends: Vec<usize> = out.ends.iter().filter(|of| of.resource == *awaited).map(|of| of.process).collect();
            let is_elsewhere = |hold: &&Hold| hold.resource == *awaited && matches!(hold.holder, Party::Absent(..));
            if ends.is_empty() || out.holds.iter().any(|hold| is_elsewhere(&hold)) {
                return None;
            }
            connected.extend(ends);
        }
    }
    let others = blocked.processes().iter().filter(|process| process.context.process != wait.process);
    let client = |process: &'b Process<'b>| {
        let proxies = family.facts(process).map(|facts| proxies(facts, wait.blocked_on.resource.key.address));
        let proxies = proxies.unwrap_or_default();
        (!proxies.is_empty() || connected.contains(&process.context.process)).then_some(Client { process, proxies })
    };
    Some(others.filter_map(client).collect())
}

/// The proxies of the lock that frames of a client have at hand: each knows what it stands for by its address there.
fn proxies(facts: &Facts<'_>, lock: Addr) -> Vec<Addr> {
    let objects = facts.inspector.objects();
    let id = format!("{:x}", lock.0);
    let mut found = Vec::new();
    at_hand(&facts.inspector, |object| {
        let known = objects.attribute(object, "_id").and_then(|id| objects.text(id));
        if known.as_deref() == Some(id.as_str()) && objects.attribute(object, "_token").is_some() {
            found.push(object);
        }
    });
    found
}

/// How many proxies of the lock the server counts.
fn references(facts: &Facts<'_>, server: i32, lock: Addr) -> Option<u64> {
    let objects = facts.inspector.objects();
    let frame = facts.inspector.stack(server).next().and_then(|frame| facts.inspector.frame(frame))?;
    let counts = objects.items(objects.attribute(frame.first()?, "id_to_refcount")?)?;
    let id = format!("{:x}", lock.0);
    let (_, count) = counts.into_iter().find(|(key, _)| objects.text(*key).as_deref() == Some(id.as_str()))?;
    objects.unsigned(count)
}

/// Clients with one thread, which waits for the answer of a thread of the server that waits for the lock.
fn behind(blocked: &Blocked<'_>, facts: &Facts<'_>, wait: &ThreadWait, out: &Observations) -> BTreeSet<usize> {
    let server = blocked.process(wait);
    let key = &wait.blocked_on.resource.key;
    let waiting = serving(facts)
        .into_iter()
        .filter(|one| server.position(one.tid).is_some_and(|position| blocked.waits_for(key, wait.process, position)));
    let answers: Vec<&ResourceKey> = waiting
        .flat_map(|one| out.ends.iter().filter(move |of| of.numbers.contains(&one.descriptor)))
        .filter(|of| of.process == wait.process)
        .map(|of| &of.resource)
        .collect();
    let waits = blocked.waits().iter().filter(|one| answers.contains(&&one.blocked_on.resource.key));
    waits.map(|one| one.process).filter(|process| blocked.processes()[*process].threads.len() == 1).collect()
}
