//! Tasks that would end another task's wait by design, as far as their code shows.
//!
//! In: tasks that wait. Out: candidates.
//! - A task inside a block of the object that the waiter is about to enter (a pool of connections, a read-write lock or a semaphore
//!   of the program's own), or of a manager whose generator runs for the same object (`async with pool.connection()`), has what the
//!   waiter wants, or a part of it. Its end of the block may not be enough.
//! - A task whose own code has the object at hand and calls the method that ends such a wait may do so when it goes on. Other
//!   code that it calls later may, too: reachability covers that.

use std::collections::BTreeSet;

use super::Facts;
use super::event_loops::{self, own_frame};
use super::task_reach::{CodeAtHand, OfTask, SHARED_BY_ENDS};
use super::tasks::{Blocks, Task};
use crate::image::Addr;
use crate::limits::cpython::TASKS_WAITING;
use crate::python::inspect::Inspector;
use crate::waits::holders::{add_resource, exact_hold};
use crate::waits::model::{Completion, Hold, Party, Resource, Role, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::Process;

/// Add the tasks that are inside the object that each of these tasks enters.
pub(super) fn inside<'f>(
    process: &Process<'_>,
    facts: &'f Facts<'_>,
    awaited: impl Iterator<Item = (&'f Task, &'f Resource)>,
    out: &mut Observations,
) {
    let inspector = &facts.inspector;
    let tasks = || facts.tasks().iter().chain(facts.trio().iter().flat_map(|run| &run.tasks)).take(TASKS_WAITING);
    let mut blocks: Option<Vec<(&Task, Blocks)>> = None;
    let mut known: BTreeSet<Party> = BTreeSet::new();
    for (task, resource) in awaited {
        let entering: BTreeSet<Addr> =
            task.blocks(inspector).entering.into_iter().flat_map(|object| stands_for(inspector, object)).collect();
        if entering.is_empty() || !known.insert(Party::Resource(resource.key.clone())) {
            continue;
        }
        let all = blocks.get_or_insert_with(|| tasks().map(|other| (other, other.blocks(inspector))).collect());
        for (holder, blocks) in all.iter() {
            let is_in = |object: Addr| stands_for(inspector, object).any(|one| entering.contains(&one));
            let Some(block) = blocks.inside.iter().find(|block| is_in(block.object)) else { continue };
            let own = event_loops::resource_of(process, holder);
            let party = Party::Resource(own.key.clone());
            if out.holds.iter().any(|hold| hold.resource == resource.key && hold.holder == party) {
                continue;
            }
            add_resource(out, &own);
            let place = event_loops::at(own_frame(facts, holder).as_ref());
            let evidence = format!("{} is inside an `async with` block of it, {place}", holder.name);
            let hold = exact_hold(&resource.key, party, None, vec![evidence]);
            out.holds.push(Hold { strength: Strength::Candidate, taken: block.taken.clone(), ..hold });
        }
    }
}

/// Add a task that can reach what is awaited as a candidate, if its code calls the method that completes that.
pub(super) fn by_design(
    process: &Process<'_>,
    giver: &OfTask<'_>,
    (resource, called): (&Resource, Option<Addr>),
    out: &mut Observations,
) {
    let (Some(called), Some(role)) = (called, resource.role) else { return };
    let objects = giver.inspector().objects();
    let shared = objects.attribute(called, SHARED_BY_ENDS);
    let has = |code: &CodeAtHand| std::iter::once(called).chain(shared).any(|one| code.objects.contains(&one));
    let named = giver.code_at_hand().iter().filter(|code| has(code)).find_map(|code| {
        let method = completed_by(role).iter().find(|name| code.names.iter().any(|used| used == *name))?;
        Some((method, code))
    });
    let Some((method, code)) = named else { return };
    let function = &code.function;
    let own = event_loops::resource_of(process, giver.task);
    let party = Party::Resource(own.key.clone());
    if out.holds.iter().any(|hold| hold.resource == resource.key && hold.holder == party) {
        return;
    }
    add_resource(out, &own);
    let evidence = format!("{} has a reference to it in {function} and calls {method}", giver.task.name);
    let hold = exact_hold(&resource.key, party, None, vec![evidence]);
    let taken = code.acquired.clone().filter(|_| *method == "release");
    out.holds.push(Hold { strength: Strength::Candidate, taken, ..hold });
}

/// The methods that complete what is awaited.
fn completed_by(role: Role) -> &'static [&'static str] {
    match role {
        Role::UnfinishedItems { .. } => &["task_done"],
        Role::Completed(Completion::Put) => &["put", "put_nowait", "send", "send_nowait"],
        Role::Completed(Completion::Get) => &["get", "get_nowait", "receive", "receive_nowait"],
        Role::Completed(Completion::Set) => &["set"],
        Role::Completed(Completion::Notify) => &["notify", "notify_all"],
        Role::Completed(Completion::Release | Completion::Unlock) => &["release"],
        Role::Completed(Completion::Arrive) => &["wait"],
        Role::Completed(Completion::Resolve) => &["set_result", "set_exception"],
        Role::Completed(Completion::Send) => &["write", "writelines", "write_eof", "send", "sendall"],
        Role::Completed(Completion::Close) => &["close", "abort", "close_clients", "abort_clients"],
        _ => &[],
    }
}

/// An object, and for a manager that contextlib made of a generator the object whose method that is.
fn stands_for(inspector: &Inspector<'_>, object: Addr) -> impl Iterator<Item = Addr> {
    let objects = inspector.objects();
    let is_manager = objects.class_name(object).is_some_and(|class| class.ends_with("GeneratorContextManager"));
    let generator = objects.attribute(object, "gen").filter(|_| is_manager);
    let frames = inspector.frames();
    let own = generator
        .and_then(|generator| frames.of_generator(generator))
        .and_then(|(frame, code)| frames.at(frame, code)?.variable("self"));
    std::iter::once(object).chain(own)
}
