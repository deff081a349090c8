//! System V semaphores: a wait for units of one, and who took the last.
//!
//! In: a semop call with its operations, and what the kernel says of the semaphore. Out: the semaphore, and the process
//! that changed it last. That is no owner: it counts as one only where it fits a semaphore that is used as a lock.

use super::{HolderRule, raw};
use crate::image::Addr;
use crate::image::descriptors::{SetOperation, SetSemaphore, semaphores_asked};
use crate::waits::blocked_call::Call;
use crate::waits::blocked_on::{AlsoWaited, Ownership, ThreadWait};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds;
use crate::waits::model::{Hold, Party, Resource, ResourceKey, Scope, Strength, WakeSource, Waker};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// The semaphore that `call` waits for.
pub(super) fn decode(process: &Process<'_>, call: Call) -> Option<AlsoWaited> {
    let operations = semaphores_asked(process.architecture(), &raw(call), process.memory());
    let known = |operation: &SetOperation| known(process, operation.set, operation.number);
    let blocks = |operation: &&SetOperation| {
        known(operation).is_some_and(|semaphore| match operation.change {
            0 => semaphore.value != 0,
            change => semaphore.value + i32::from(change) < 0,
        })
    };
    let operation = operations.iter().find(blocks).or(operations.first())?;
    let SetOperation { set, number, change } = *operation;
    let scope = Scope::System(format!("sysv-semaphore:{set}:{number}"));
    let label = format!("semaphore {number} of System V set {set}").into();
    let mut evidence = format!("semop adds {change} to semaphore {number} of set {set}");
    let mut state = vec![("change", i64::from(change))];
    if let Some(semaphore) = known(operation) {
        evidence += &format!(", whose value is {}; process {} changed it last", semaphore.value, semaphore.last);
        state.extend([
            ("value", i64::from(semaphore.value)),
            ("last_process", i64::from(semaphore.last)),
            ("waiters", i64::from(semaphore.waiters)),
        ]);
    }
    let key = ResourceKey { kind: kinds::SYSV_SEMAPHORE, scope, address: Addr(0) };
    Some(AlsoWaited {
        resource: Resource { key, process: process.context.process, label, state, role: None },
        evidence,
        ownership: Ownership::private(HolderRule::LastChange { set, number, takes: change < 0 }),
    })
}

fn known<'p>(process: &Process<'p>, set: i32, number: u16) -> Option<&'p SetSemaphore> {
    process.context.all.kernel.semaphores.iter().find(|one| one.set == set && one.number == number)
}

/// Add the process that took the last unit.
pub(super) fn holders(
    blocked: &Blocked<'_>,
    wait: &ThreadWait,
    (set, number): (i32, u16),
    takes: bool,
    out: &mut Observations,
) {
    let key = &wait.blocked_on.resource.key;
    let label = &wait.blocked_on.resource.label;
    let Some(semaphore) = known(blocked.process(wait), set, number) else {
        let why = "the kernel tells nothing of this set: it is in another IPC namespace, or may not be read";
        return out.nobody_named(&wait.blocked_on.resource, why);
    };
    // A change that leaves 0 took the last unit, or waited for 0.
    if !takes || semaphore.value != 0 {
        return;
    }
    let evidence = vec![format!(
        "the value of {label} is 0 and process {} changed it last: it took the last unit; System V semaphores record no \
         owner",
        semaphore.last
    )];
    let Some(last) = blocked.processes().iter().position(|other| other.context.image.pid == semaphore.last) else {
        let why = format!("process {} changed it last, which was not captured or has ended", semaphore.last);
        return out.nobody_named(&wait.blocked_on.resource, why);
    };
    // A consumer takes units repeatedly, and has none while it waits for the next.
    let waits_itself = blocked.waits().iter().any(|wait| wait.process == last && wait.blocked_on.resource.key == *key);
    let strength = if waits_itself { Strength::Candidate } else { Strength::Inferred };
    let holder = Party::Process(blocked.processes()[last].context.process);
    let program = |process: &Process<'_>| {
        let mut code = process.context.image.mappings.iter().filter(|mapping| mapping.execute && mapping.is_file());
        code.next().map(|mapping| (mapping.device, mapping.inode))
    };
    let others = blocked.processes().iter().enumerate().filter(|(other, process)| {
        *other != last && *other != wait.process && program(process) == program(blocked.process(wait))
    });
    for (_, other) in others {
        let what =
            format!("process {} runs the same program, and could change or remove the set", other.context.image.pid);
        let by = Waker::Party(Party::Process(other.context.process));
        out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by, what });
    }
    out.holds.push(Hold { strength, ..exact_hold(key, holder, None, evidence) });
}
