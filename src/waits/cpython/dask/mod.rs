//! Dask's cluster, as a process of it has it: what its threads wait for there, what they hold, which tasks they run.
//!
//! In: the Python objects of a process. Out:
//! - waits for locks, events and results of the cluster;
//! - holds of locks, also by threads of other captured processes of the same cluster;
//! - a [`ClusterMember`](crate::waits::cluster::ClusterMember) of each process, by which others join it.
//!
//! The shape of objects, whose classes are Python's own, identifies everything; an object that does not fit is a gap.
//! lockscope queries no scheduler. It reads a scheduler's knowledge only from the memory of a captured scheduler.

mod leases;
mod members;
mod requests;

use crate::image::Addr;
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::cluster::ClusterThing;
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::label::Label;
use crate::waits::model::{Hold, Party, Resource, ResourceKey, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};

use super::{Cpython, Facts, HolderRule};
use requests::Request;

pub(super) use leases::{Lease, held};
pub(super) use members::{Cluster, find, member};

/// A thread that waits for the cluster, in `distributed.utils.sync`.
pub(super) fn decode(
    process: &Process<'_>,
    facts: &Facts<'_>,
    thread: &ThreadView<'_>,
    below: &BlockedOn,
) -> Option<BlockedOn> {
    below.futex?;
    let request = requests::find(facts, thread.image.tid)?;
    let resource = Resource {
        key: resource_key(process, facts, &request),
        process: process.context.process,
        label: label(&request),
        state: Vec::new(),
        role: None,
    };
    let is_lock = matches!(request.what, ClusterThing::Lock | ClusterThing::Semaphore);
    let ownership = if is_lock { Ownership::private(HolderRule::Lease) } else { Ownership::Unknown };
    let evidence = vec![request.evidence.clone()];
    let mut decoded = below.refined(resource, &[], evidence);
    decoded.timed = request.timed;
    decoded.transient |= request.is_over;
    decoded.at = request.frame.and_then(|frame| thread.merged_python(frame));
    decoded.ownership = ownership;
    decoded.gaps.extend(request.gap);
    Some(decoded)
}

/// Add the holders of an awaited lock or semaphore of the cluster: threads of any captured process of it.
pub(super) fn holders(family: &Cpython<'_>, blocked: &Blocked<'_>, key: &ResourceKey, out: &mut Observations) {
    for process in blocked.processes() {
        let Some(facts) = family.facts(process) else { continue };
        for lease in facts.leases() {
            if key.scope != scope(process, facts, lease.what, &lease.name) {
                continue;
            }
            let Some(tid) = lease.state.and_then(|state| facts.inspector.python.threads.get(state)?.tid) else {
                continue;
            };
            let Some(thread) = process.position(tid).and_then(|position| process.threads.get(position)) else {
                continue;
            };
            let holder = Party::Thread(process.context.process, tid);
            let (is_entered, alone) = (lease.is_entered, lease.most == 1);
            let what = match is_entered {
                true => "has entered the `with` block of the object",
                false => "alone has a reference to the object",
            };
            let leases = lease.leases.join(", ");
            let evidence = format!("{} {what} at {}, which has the lease {leases}", thread.describe(), lease.object);
            out.holds.push(Hold {
                frame: lease.frame.and_then(|frame| thread.merged_python(frame)),
                taken: lease.taken.clone(),
                strength: match (alone, is_entered) {
                    (true, true) => Strength::Sole,
                    (true, false) => Strength::Inferred,
                    (false, _) => Strength::Candidate,
                },
                ..exact_hold(key, holder, None, vec![evidence])
            });
        }
    }
}

/// Where a thing of the cluster lives: the same for all processes that know its scheduler.
fn scope(process: &Process<'_>, facts: &Facts<'_>, what: ClusterThing, name: &str) -> Scope {
    let cluster = facts.cluster().and_then(|cluster| cluster.scheduler.clone());
    let cluster = cluster.unwrap_or_else(|| format!("process {}", process.context.process));
    Scope::System(format!("dask:{cluster}:{}:{name}", what.kind_of_dask().name))
}

fn resource_key(process: &Process<'_>, facts: &Facts<'_>, request: &Request) -> ResourceKey {
    ResourceKey {
        kind: request.what.kind_of_dask(),
        scope: scope(process, facts, request.what, &request.names.join(" ")),
        address: Addr(0),
    }
}

fn label(request: &Request) -> Label {
    let more = request.names.len().saturating_sub(1);
    let detail = match more {
        0 => None,
        more => Some(format!("and {more} more")),
    };
    Label::from(request.what.kind_of_dask().noun).named(request.names.first().cloned()).with_detail(detail)
}

/// Whether a frame is Dask's own, or of the libraries that it waits by: by the module that its code is of, as programs lie in folders
/// of any name.
fn is_own(inspector: &Inspector<'_>, frame: &PythonFrame) -> bool {
    // `with` adds frames of contextlib to a stack.
    if frame.origin.waits_for_caller() || frame.origin.is_stdlib("contextlib") {
        return true;
    }
    let module = module_of(inspector, frame);
    module
        .is_some_and(|module| ["distributed", "dask", "tornado"].contains(&module.split('.').next().unwrap_or(&module)))
}

/// The module that a frame's code is of.
pub(super) fn module_of(inspector: &Inspector<'_>, frame: &PythonFrame) -> Option<String> {
    let objects = inspector.objects();
    let globals = inspector.frame(frame)?.globals()?;
    objects.item(globals, "__name__").and_then(|name| objects.text(name))
}

/// "app.py:31 load".
pub(super) fn place(frame: &PythonFrame) -> String {
    let file = frame.file.rsplit('/').next().unwrap_or(&frame.file);
    let function = frame.function.rsplit('.').next().unwrap_or(&frame.function);
    match frame.line {
        Some(line) => format!("{file}:{line} {function}"),
        None => function.to_owned(),
    }
}

/// The key of a task, or the name of a worker: mostly a text, else a number or a tuple of texts and numbers.
fn key_text(objects: &Objects<'_>, key: Addr) -> Option<String> {
    let plain = |key: Addr| objects.text(key).or_else(|| objects.unsigned(key).map(|number| number.to_string()));
    plain(key).or_else(|| {
        let is_tuple = objects.class_name(key).as_deref() == Some("tuple");
        let parts = is_tuple.then(|| objects.sequence(key, crate::limits::cpython::KEY_PARTS)).flatten()?;
        let part = |part: Addr| match objects.text(part) {
            Some(text) => format!("'{text}'"),
            None => plain(part).unwrap_or_else(|| "...".to_owned()),
        };
        Some(format!("({})", parts.into_iter().map(part).collect::<Vec<_>>().join(", ")))
    })
}

/// The name of an object's class without its module.
pub(super) fn class_of(objects: &Objects<'_>, object: Addr) -> String {
    let class = objects.class_name(object).unwrap_or_default();
    class.rsplit('.').next().unwrap_or(&class).to_owned()
}
