//! The layer of c10d, PyTorch's distributed part: threads that wait for other ranks of their job in an operation of gloo, for a
//! group to be made, or for a key of a store.
//!
//! In: the stacks of a process and the observations of the families below. Out: waits for joint operations of ranks, as
//! those of MPI, and for keys; and the operations that each rank has enqueued.
//!
//! The names of the calls show that a thread waits. gloo's objects (`gloo`) show the operation, its number, and the
//! missing ranks. PyTorch's own Flight Recorder (`recorder`) shows the group and its ranks. Where these have another
//! shape than expected, the wait is reported without them. The threads that work on an operation and the one that waits
//! for it wait for the same resource.
//!
//! NCCL's operations run on a GPU. This module reports only the enqueued ones, and the ranks that NCCL itself waits for
//! before it has connected them (`nccl`).

mod calls;
mod gloo;
mod nccl;
mod objects;
mod recorder;
mod store;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use crate::image::Gap;
use crate::launcher;
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::collective::{Called, Collective, synchronises};
use crate::waits::family::{Family, Registered};
use crate::waits::holders::Blocked;
use crate::waits::kinds::{self, Giver, Holding, Kind, Topic, World};
use crate::waits::model::{Needs, Resource, ResourceKey, Scope};
use crate::waits::observations::Observations;
use crate::waits::progress::{Progress, progress};
use crate::waits::thread::{ByNames, Process, ThreadView};
use calls::{Entered, Role};
use gloo::Operation;
use recorder::{Entry, Recorder};

/// A key that a rank is to set.
const STORE_KEY: &Kind =
    &Kind::new("store_key", "key of a store", World::Kernel, Topic::Event, Giver::Outside, Holding::Sets);

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered { kinds: &[STORE_KEY], open };

/// The family, with the recorder of each process.
#[derive(Debug)]
struct C10d {
    recorders: Vec<OnceCell<Option<Recorder>>>,
    /// Whether a thread is in a call of NCCL's that waits on the processor.
    in_nccl: ByNames<bool>,
    /// Whether it is in one of PyTorch's.
    in_calls: ByNames<bool>,
}

/// Open the family.
fn open<'s>(processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    let recorders = processes.iter().map(|_| OnceCell::new()).collect();
    Box::new(C10d { recorders, in_nccl: ByNames::default(), in_calls: ByNames::default() })
}

/// The subject of a wait of this family, for the code that joins the observations.
#[derive(Debug)]
struct Of(Collective);

impl Family for C10d {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        if let Some(entered) = self.in_nccl.found(thread, || nccl::entered(thread)) {
            return self.on_processor(process, thread, below, &entered);
        }
        let below = below.filter(|below| below.ownership.is_of_nobody() || is_peer(below))?;
        let entered = self.in_calls.found(thread, || calls::entered(thread))?;
        match entered.role {
            Role::Store if entered.makes.is_none() => Some(key(process, thread, below, entered)),
            Role::Store | Role::Makes => {
                let function = entered.makes.unwrap_or("the making of a group");
                let keys = store::keys(process, thread, entered.stored.unwrap_or(entered.native));
                let mut evidence = vec![format!("it waits for {} inside {function}", below.resource.label)];
                evidence.extend(keys.iter().map(|key| format!("the key that is to be set is `{key}`")));
                Some(self.blocked(process, thread, Some(below), entered.native, making(function, process, evidence)))
            }
            _ => self.operation(process, thread, below, entered),
        }
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        let mut waits = Vec::new();
        for (wait, Of(collective)) in blocked.by_rule() {
            out.collectives.push((wait.blocked_on.resource.key.clone(), collective.clone()));
            waits.push(wait.process);
        }
        for process in blocked.processes() {
            let position = process.context.process;
            let is_rank = launcher::membership(&process.context.image.environment).is_some() || has_group(process);
            if (is_rank || waits.contains(&position))
                && let Some(recorder) = self.recorder(process)
            {
                out.enqueued.extend(recorder.enqueued().into_iter().map(|one| (position, one)));
            }
        }
        self.behind_gpus(blocked, out);
    }
}

/// Whether the back ends of a group have their threads: no launcher's variable need say that it is a rank.
fn has_group(process: &Process<'_>) -> bool {
    const THREADS: [&str; 2] = ["pt_gloo_", "pt_nccl_"];
    process.threads.iter().any(|thread| THREADS.iter().any(|name| thread.image.name.starts_with(name)))
}

/// Whether the families below saw a wait for the other end of a connection, as calls of a store make it.
fn is_peer(below: &BlockedOn) -> bool {
    [kinds::SOCKET, kinds::TIMER, kinds::DESCRIPTOR].contains(&below.resource.key.kind)
}

/// The source of the evidence where the rank's own call is one of CUDA's.
const RECORDER: &str = "PyTorch's Flight Recorder";

impl C10d {
    /// A waiter for the GPU waits for the first unfinished work of NCCL, or for earlier work of the GPU. This applies
    /// only if NCCL has unfinished work.
    fn behind_gpus(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for wait in blocked.waits().iter().filter(|wait| wait.blocked_on.resource.key.kind.is_gpu()) {
            let process = blocked.process(wait);
            let key = &wait.blocked_on.resource.key;
            let Some(recorder) = self.recorder(process) else { continue };
            if let Some(entry) = recorder.first_open("nccl")
                && out.collectives.iter().all(|(known, _)| known != key)
            {
                out.collectives.push((key.clone(), of_gpu(process, recorder, entry)));
            }
        }
    }

    fn recorder(&self, process: &Process<'_>) -> Option<&Recorder> {
        self.recorders.get(process.context.process)?.get_or_init(|| Recorder::of(process)).as_ref()
    }

    /// A wait of NCCL's for other ranks, which polls.
    fn on_processor(
        &self,
        process: &Process<'_>,
        thread: &ThreadView<'_>,
        below: Option<&BlockedOn>,
        entered: &nccl::Entered,
    ) -> Option<BlockedOn> {
        let Progress { spinning, evidence } = progress(process, thread, below, entered.call)?;
        let mut waited = entered.wait(process, thread, self.recorder(process));
        waited.evidence.insert(0, evidence);
        let is_known = entered.serves || waited.collective.synchronises || !waited.collective.peers.is_empty();
        let blocked =
            BlockedOn { spinning, transient: false, ..self.blocked(process, thread, below, entered.native, waited) };
        Some(if is_known {
            blocked
        } else {
            let what = format!("which ranks {} waits for", thread.describe());
            blocked.with_gap(Gap::new(what, "neither PyTorch's Flight Recorder nor the object of its group says it"))
        })
    }

    /// A wait for an operation.
    fn operation(
        &self,
        process: &Process<'_>,
        thread: &ThreadView<'_>,
        below: &BlockedOn,
        entered: Entered,
    ) -> Option<BlockedOn> {
        let condition = Some(below.resource.key.address)
            .filter(|address| below.resource.key.kind == kinds::PTHREAD_COND && !address.is_null());
        let found = match entered.role {
            Role::Work => condition.and_then(|at| gloo::of_condition(process, at)),
            Role::Receive => condition.and_then(|at| gloo::message(process, at, true)),
            Role::Send => condition.and_then(|at| gloo::message(process, at, false)),
            Role::Runs => gloo::worked_on(process, thread, entered.native),
            _ => None,
        };
        // A thread that works on an unreadable operation says no more than the families below.
        let found = match (found, entered.role) {
            (None, Role::Runs) => return None,
            (found, _) => found,
        };
        let is_known = found.is_some();
        let found = found.unwrap_or_default();
        let recorded = self.recorder(process).and_then(|recorder| Some((recorder, recorded(recorder, &found)?)));
        let (collective, is_whole) = collective(process, entered, &found, recorded);
        let mut evidence = vec![format!("it sleeps in a call of c10d on {}", below.resource.label)];
        evidence.extend(found.evidence.iter().cloned());
        evidence.extend(recorded.map(|(recorder, entry)| recorder.says(entry)));
        let label = label(&collective);
        let waited = Waited { collective, label, evidence, found };
        let blocked = self.blocked(process, thread, Some(below), entered.native, waited);
        Some(if is_known && is_whole || entered.role == Role::MonitoredBarrier {
            blocked
        } else {
            let what = format!("which ranks {} waits for", thread.describe());
            blocked.with_gap(Gap::new(what, "what its library has of the operation does not look as it is known to"))
        })
    }

    fn blocked(
        &self,
        process: &Process<'_>,
        thread: &ThreadView<'_>,
        below: Option<&BlockedOn>,
        native: usize,
        waited: Waited,
    ) -> BlockedOn {
        let position = process.context.process;
        // Threads that work on an operation and threads that wait for it share the operation.
        let which = match waited.found.address.is_null() {
            true => format!("of {}", thread.image.tid),
            false => waited.found.address.to_string(),
        };
        let resource = Resource {
            key: ResourceKey {
                kind: kinds::COLLECTIVE,
                scope: Scope::System(format!("c10d:{position}:{which}")),
                address: crate::image::Addr(0),
            },
            process: position,
            label: waited.label.into(),
            state: Vec::new(),
            role: None,
        };
        BlockedOn {
            needs: Needs::All,
            // Its time-out ends the job, not the wait.
            timed: false,
            retried: false,
            at: thread.merged(native),
            ownership: Ownership::private(Of(waited.collective)),
            ..BlockedOn::of(resource, below, waited.evidence)
        }
    }
}

/// A wait in the making.
struct Waited {
    collective: Collective,
    label: String,
    evidence: Vec<String>,
    found: Operation,
}

/// A wait for the other ranks of a group that is made by `function`.
fn making(function: &str, process: &Process<'_>, evidence: Vec<String>) -> Waited {
    let membership = launcher::membership(&process.context.image.environment);
    let collective = Collective {
        backend: "c10d".to_owned(),
        op: function.to_owned(),
        rank: membership.as_ref().map(|membership| membership.rank),
        size: membership.as_ref().and_then(|membership| membership.size),
        synchronises: true,
        ..Collective::default()
    };
    let label = format!("{function} with other ranks");
    Waited { collective, label, evidence, found: Operation::default() }
}

/// The recorder's entry of an operation: by its number, which the operation has, else the only one that can be it.
fn recorded<'r>(recorder: &'r Recorder, found: &Operation) -> Option<&'r Entry> {
    let is_message = matches!(found.op, Some("recv" | "send"));
    let open = || recorder.entries.iter().filter(|entry| !entry.retired && entry.is_message == is_message);
    let same = |entry: &&Entry| is_message || found.seq.is_none_or(|seq| seq == entry.seq);
    let by_number = open().filter(same).find(|entry| !is_message && found.words.contains(&entry.id) && entry.id > 0);
    let alike = |entry: &&Entry| {
        let op = entry.name.split_once(':').map_or("", |(_, op)| op);
        found.op.is_none_or(|known| op.trim_start_matches('_').starts_with(known))
    };
    by_number.or_else(|| {
        let mut all = open().filter(same).filter(alike);
        let first = all.next()?;
        all.all(|other| other.group == first.group).then_some(first)
    })
}

/// The known facts about an operation, and whether they are complete.
fn collective(
    process: &Process<'_>,
    entered: Entered,
    found: &Operation,
    recorded: Option<(&Recorder, &Entry)>,
) -> (Collective, bool) {
    let membership = launcher::membership(&process.context.image.environment);
    let job = membership.as_ref().and_then(|membership| membership.size);
    let is_monitored = entered.role == Role::MonitoredBarrier;
    let by_role = match entered.role {
        Role::MonitoredBarrier => "monitored_barrier",
        Role::Receive => "recv",
        Role::Send => "send",
        _ => found.op.unwrap_or("an operation"),
    };
    let entry = recorded.map(|(_, entry)| entry);
    let op = found.op.filter(|_| !is_monitored).unwrap_or(by_role);
    let is_message = matches!(op, "recv" | "send");
    let in_group = recorded.and_then(|(recorder, entry)| recorder.ranks.get(&entry.group));
    let size = found.place.map(|(_, size)| size);
    // Without the recorder's data, the group of all ranks is recognised by its size.
    let in_job = |rank: u32| match in_group {
        Some(ranks) => ranks.get(usize::try_from(rank).ok()?).copied(),
        None => Some(rank).filter(|_| size.is_some() && size == job),
    };
    let expected = found.expected.as_ref();
    let peers: Option<Vec<u32>> = expected.and_then(|list| list.iter().map(|rank| in_job(*rank)).collect());
    let collective = Collective {
        backend: if found.place.is_some() || is_monitored { "gloo" } else { "c10d" }.to_owned(),
        group: recorded.map(|(recorder, entry)| recorder.called(entry)),
        op: op.to_owned(),
        seq: if is_message { None } else { found.seq.or_else(|| entry.map(|entry| entry.seq)) },
        rank: found.place.map(|(rank, _)| rank),
        size: if is_monitored { job } else { size.filter(|_| !is_message) },
        peers: peers.clone().unwrap_or_default(),
        tag: found.tag,
        request: Some(found.address).filter(|address| !address.is_null()).map(|address| address.to_string()),
        // No further rank is expected: only the transfer is left.
        matched: expected.filter(|_| is_message).map(Vec::is_empty),
        synchronises: is_monitored || synchronises(op),
        ..Collective::default()
    };
    (collective, peers.is_some())
}

/// An operation that was given to the GPU.
fn of_gpu(process: &Process<'_>, recorder: &Recorder, entry: &Entry) -> Collective {
    let called = Called::of(&entry.name);
    let ranks = recorder.ranks.get(&entry.group).map(Vec::as_slice).unwrap_or_default();
    let in_job = |number: u32| match ranks.is_empty() {
        true => Some(number),
        false => ranks.get(usize::try_from(number).ok()?).copied(),
    };
    let own = launcher::membership(&process.context.image.environment).map(|membership| membership.rank);
    let place = own.and_then(|own| ranks.iter().position(|rank| *rank == own));
    Collective {
        backend: called.backend.to_owned(),
        group: Some(recorder.called(entry)),
        op: called.op.to_owned(),
        seq: Some(entry.seq),
        rank: place.and_then(|place| u32::try_from(place).ok()),
        size: u32::try_from(ranks.len()).ok().filter(|size| *size > 0 && !entry.is_message),
        peers: called.other.and_then(in_job).into_iter().collect(),
        synchronises: !entry.is_message && synchronises(called.op),
        witness: Some(RECORDER.to_owned()),
        ..Collective::default()
    }
}

/// "all_reduce #4 of default_pg", "recv from rank 1 (tag 5)".
fn label(collective: &Collective) -> String {
    let number = collective.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
    let group = collective.group.as_deref().map(|group| format!(" of {group}")).unwrap_or_default();
    let tag = collective.tag.map(|tag| format!(" (tag {tag})")).unwrap_or_default();
    match (collective.op.as_str(), collective.peers.as_slice()) {
        ("recv", [peer]) => format!("recv from rank {peer}{tag}{group}"),
        ("send", [peer]) => format!("send to rank {peer}{tag}{group}"),
        (op, _) => format!("{op}{number}{tag}{group}"),
    }
}

/// A wait for a key.
fn key(process: &Process<'_>, thread: &ThreadView<'_>, below: &BlockedOn, entered: Entered) -> BlockedOn {
    let position = process.context.process;
    let keys = store::keys(process, thread, entered.stored.unwrap_or(entered.native));
    let label = match keys.as_slice() {
        [] => "a key of the store".to_owned(),
        [key] => format!("key `{key}` of the store"),
        [first, ..] => format!("key `{first}` and {} more of the store", keys.len() - 1),
    };
    let evidence = vec![format!("it waits for {} inside a call of c10d's store", below.resource.label)];
    let resource = Resource {
        key: ResourceKey {
            kind: STORE_KEY,
            scope: Scope::System(format!("store:{position}:{}", keys.first().map_or("", String::as_str))),
            address: crate::image::Addr(0),
        },
        process: position,
        label: label.into(),
        state: Vec::new(),
        role: None,
    };
    let blocked = BlockedOn { at: thread.merged(entered.native), ..BlockedOn::of(resource, Some(below), evidence) };
    match keys.is_empty() {
        true => blocked.with_gap(Gap::new(
            format!("the key that {} waits for", thread.describe()),
            "the call has no text of one where it was looked for",
        )),
        false => blocked,
    }
}
