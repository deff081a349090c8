//! System V message queues: who used one last.
//!
//! In: a msgsnd or msgrcv call, and the kernel's facts about the queue. Out: the queue, and candidates. For a receiver
//! the candidate is the process that sent last, for a sender the one that received last. Any process that may use the
//! queue may be next, so there is no stronger result.

use super::{HolderRule, raw};
use crate::image::Addr;
use crate::image::descriptors::{MessageQueue, system_v_queue_asked};
use crate::waits::blocked_call::Call;
use crate::waits::blocked_on::{AlsoWaited, Ownership, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds;
use crate::waits::label::{Label, Wanted};
use crate::waits::model::{Hold, Party, Resource, ResourceKey, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The queue that `call` waits for.
pub(super) fn decode(process: &Process<'_>, call: Call) -> Option<AlsoWaited> {
    let (id, receives) = system_v_queue_asked(process.architecture(), &raw(call))?;
    let (side, wanted) = if receives { ("data", Wanted::Data) } else { ("room", Wanted::Room) };
    let mut state = Vec::new();
    let mut evidence = format!("it waits for {side} in System V message queue {id}");
    if let Some(queue) = known(process, id) {
        evidence += &format!(
            ", which has {} messages; process {} sent to it last, process {} received from it last (0: none did)",
            queue.messages, queue.sender, queue.receiver
        );
        state.extend([
            ("messages", queue.messages as i64),
            ("last_sender", i64::from(queue.sender)),
            ("last_receiver", i64::from(queue.receiver)),
        ]);
    }
    let scope = Scope::System(format!("sysv-queue:{side}:{id}"));
    let key = ResourceKey { kind: kinds::MESSAGE_QUEUE, scope, address: Addr(0) };
    let label = Label::from(format!("System V message queue {id}")).wanted(wanted);
    Some(AlsoWaited {
        resource: Resource { key, process: process.context.process, label, state, role: None },
        evidence,
        ownership: Ownership::private(HolderRule::LastUse(id, receives)),
    })
}

fn known<'p>(process: &Process<'p>, id: i32) -> Option<&'p MessageQueue> {
    process.context.all.kernel.queues.iter().find(|queue| queue.id == id)
}

/// Add the process that used the other side of the queue last.
pub(super) fn users(blocked: &Blocked<'_>, wait: &ThreadWait, id: i32, receives: bool, out: &mut Observations) {
    let Some(queue) = known(blocked.process(wait), id) else { return };
    let (pid, verb) = if receives { (queue.sender, "sent to") } else { (queue.receiver, "received from") };
    let user = blocked.processes().iter().position(|other| other.context.image.pid == pid);
    let Some(position) = user.filter(|position| *position != wait.process) else { return };
    let evidence = vec![format!("process {pid} {verb} the queue last")];
    let hold = exact_hold(&wait.blocked_on.resource.key, Party::Process(position), None, evidence);
    out.holds.push(Hold { strength: Strength::Candidate, ..hold });
}
