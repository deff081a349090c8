//! Locks and semaphores of the cluster that a process has, and which of its threads.
//!
//! In: the objects at hand of the frames of a process. Out: [`Lease`]. An object of `distributed.Lock` or `Semaphore`
//! keeps the names of its leases until it gives them back. The thread inside its `with` block has it; else the one
//! thread that has the object at hand. It does not check whether the scheduler has let a lease run out.

use std::collections::BTreeSet;

use super::super::{Facts, with_blocks};
use super::key_text;
use crate::image::Addr;
use crate::limits;
use crate::limits::cpython::{LEASES, SHARED_OBJECTS};
use crate::python::inspect::frames_of;
use crate::python::objects::Objects;
use crate::waits::cluster::ClusterThing;
use crate::waits::model::TakenAt;

/// A process's part of one lock or semaphore.
#[derive(Debug, Clone)]
pub(in super::super) struct Lease {
    pub(super) what: ClusterThing,
    pub(super) name: String,
    pub(super) object: Addr,
    /// How many may have one.
    pub(super) most: u64,
    /// Their names.
    pub(super) leases: Vec<String>,
    /// Position of the thread state that has it, where one does.
    pub(super) state: Option<usize>,
    /// The frame of that thread.
    pub(super) frame: Option<Addr>,
    pub(super) taken: Option<TakenAt>,
    /// It is inside of the object's `with` block.
    pub(super) is_entered: bool,
}

/// All that frames have at hand or are inside of.
pub(in super::super) fn held(facts: &Facts<'_>) -> Vec<Lease> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for block in inspector.entered() {
        let Some(lease) = read(objects, block.object) else { continue };
        known.insert(block.object);
        found.push(Lease {
            state: Some(block.state),
            frame: Some(block.frame),
            taken: with_blocks::taken_at(inspector, block),
            is_entered: true,
            ..lease
        });
    }
    for object in at_hand(facts) {
        let Some(lease) = read(objects, object).filter(|_| known.insert(object)) else { continue };
        let places = inspector.referrers(object);
        let states: BTreeSet<usize> = places.iter().map(|place| place.state).collect();
        let alone = states.first().copied().filter(|_| states.len() == 1);
        let frame = places.last().filter(|_| alone.is_some()).and_then(|place| {
            frames_of(inspector.python.threads.get(place.state)?).nth(place.depth).map(|frame| frame.address)
        });
        found.push(Lease { state: alone, frame, ..lease });
    }
    found
}

/// A lock or semaphore that has leases, by its shape.
fn read(objects: &Objects<'_>, object: Addr) -> Option<Lease> {
    let class = objects.class_name(object)?;
    let class = class.rsplit('.').next().unwrap_or(&class);
    if !["Lock", "Semaphore"].contains(&class) {
        return None;
    }
    let name = key_text(objects, objects.attribute(object, "name")?)?;
    let lease = |what, most, leases| Lease {
        what,
        name: name.clone(),
        object,
        most,
        leases,
        state: None,
        frame: None,
        taken: None,
        is_entered: false,
    };
    if let Some(list) = objects.attribute(object, "_leases") {
        let most = objects.attribute(object, "max_leases").and_then(|most| objects.unsigned(most))?;
        let leases = objects.bounded_sequence(list, LEASES, || format!("leases of {name}"))?;
        let leases: Vec<String> = leases.into_iter().filter_map(|lease| objects.text(lease)).collect();
        let what = if class == "Lock" && most == 1 { ClusterThing::Lock } else { ClusterThing::Semaphore };
        return (!leases.is_empty()).then(|| lease(what, most, leases));
    }
    // Before locks were semaphores (from distributed 2024.7.1 on they are): who has it has noted so.
    let id = objects.attribute(object, "id").and_then(|id| objects.text(id))?;
    let is_held = objects.attribute(object, "_locked").and_then(|locked| objects.unsigned(locked)) == Some(1);
    (is_held && class == "Lock").then(|| lease(ClusterThing::Lock, 1, vec![id]))
}

/// Locks and semaphores in variables of frames, in globals that their code names, and in attributes of these.
fn at_hand(facts: &Facts<'_>) -> Vec<Addr> {
    let inspector = &facts.inspector;
    let objects = inspector.objects();
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    let is_one = |object: Addr| {
        let class = objects.class_name(object).unwrap_or_default();
        ["Lock", "Semaphore"].contains(&class.rsplit('.').next().unwrap_or(&class))
    };
    for (_, thread) in inspector.living() {
        for frame in frames_of(thread)
            .filter(|frame| !super::is_own(inspector, frame))
            .filter_map(|frame| inspector.frame(frame))
        {
            let variables = frame.variables().into_iter().map(|(_, value)| value);
            let globals = inspector.named_globals(&frame);
            for root in variables.chain(globals.iter().map(|(_, value)| *value)) {
                if seen.len() >= SHARED_OBJECTS {
                    limits::met(SHARED_OBJECTS, "locks of a cluster that a process has at hand", "objects");
                    return found;
                }
                if !seen.insert(root) || inspector.is_plain(root) {
                    continue;
                }
                if is_one(root) {
                    found.push(root);
                    continue;
                }
                let attributes = objects.attributes(root).unwrap_or_default();
                found.extend(attributes.into_iter().map(|(_, value)| value).filter(|value| is_one(*value)));
            }
        }
    }
    found
}
