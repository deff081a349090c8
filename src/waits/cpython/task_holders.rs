//! Tasks inside an object that another task is about to enter: pools of connections, read-write locks and semaphores of a program's own.
//!
//! In: tasks that wait while they enter an `async with` block. Out: candidates. A task inside a block of the same object, or of
//! a manager whose generator runs for the same object (`async with pool.connection()`), has what the waiter wants, or a part of
//! it. Its end of the block may not be enough, so it is never more than a candidate.

use std::collections::BTreeSet;

use super::Facts;
use super::event_loops::{self, own_frame};
use super::tasks::{Blocks, Task};
use crate::image::Addr;
use crate::limits::cpython::TASKS_WAITING;
use crate::python::inspect::Inspector;
use crate::waits::holders::{add_resource, exact_hold};
use crate::waits::model::{Hold, Party, Resource, Strength};
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
