//! The layer of MPI: threads that wait inside a call of MPI for other ranks of their job.
//!
//! In: the stacks of a process and the observations of the families below. Out: waits for joint operations of ranks.
//! MPI polls: a thread that burns CPU in `MPI_Recv` waits nevertheless. Every implementation exports the names of the
//! calls, which show that a thread waits. The awaited rank is read from the implementation's request where its
//! structures describe themselves (`open_mpi`), or from the arguments of the call (`mpich`). The holder is in another
//! process: other code joins the waits over all ranks.

mod calls;
mod given;
mod mpich;
mod mpich_open;
mod mpich_requests;
mod open_mpi;
mod pending;

use crate::image::Addr;
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::collective::Collective;
use crate::waits::family::{Family, Registered};
use crate::waits::holders::Blocked;
use crate::waits::kinds;
use crate::waits::model::{Certainty, Needs, Resource, ResourceKey, Scope};
use crate::waits::observations::Observations;
use crate::waits::progress::{Progress, progress};
use crate::waits::thread::{ByNames, Process, ThreadView};
use calls::{Call, Role};
use pending::Pending;

/// The family.
#[derive(Debug, Default)]
struct Mpi {
    /// Whether a call of MPI is among the names of a thread's frames.
    has_calls: ByNames<bool>,
}

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered { kinds: &[kinds::COLLECTIVE], open };

/// Open the family.
fn open<'s>(_processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    Box::new(Mpi::default())
}

/// The name for MPICH and the libraries made from it.
const MPICH: &str = "mpich";
/// Those that nothing is known of.
const UNKNOWN: &str = "mpi";

/// The subject of a wait of this family, for the code that joins the observations.
#[derive(Debug)]
struct Of(Collective);

impl Family for Mpi {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        let (native, call) = self.entered(process, thread)?;
        let Progress { spinning, evidence } = progress(process, thread, below, &call.name)?;
        let mut evidence = vec![evidence];
        let mut objects = Vec::new();
        let mut pending = open_mpi::pending(process, thread, native, &call);
        if pending.is_empty() && backend(process) == MPICH {
            objects = mpich::objects(process, thread, native);
            pending = mpich::pending(process, thread, native, &call, &objects);
        }
        evidence.extend(pending.iter().flat_map(|one| one.evidence.iter().cloned()));
        let mut collective = collective(process, &call, &pending);
        if collective.mark.is_none() && collective.backend == MPICH {
            let open = mpich_open::open(process.memory(), &objects);
            collective.open_sends = open.map(|open| open.sends);
            collective.open_receives = open.map(|open| open.receives);
            collective.returns_to = thread.returns_to(native).map(|at| at.to_string());
        }
        // With several tags, none is the one tag of the wait.
        let tag = collective.tag.filter(|tag| pending.iter().all(|one| one.tag.is_none_or(|own| own == *tag)));
        let resource = resource(process, thread, &call, &collective, tag);
        let is_inferred = pending.iter().any(|one| one.is_inferred && one.peer.is_some());
        let needs = if collective.any { Needs::Any } else { Needs::All };
        Some(BlockedOn {
            needs,
            certainty: if is_inferred { Certainty::Inferred } else { Certainty::Exact },
            spinning,
            transient: false,
            timed: false,
            retried: false,
            at: thread.merged(native),
            ownership: Ownership::private(Of(collective)),
            ..BlockedOn::of(resource, below, evidence)
        })
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for (wait, Of(collective)) in blocked.by_rule() {
            out.collectives.push((wait.blocked_on.resource.key.clone(), collective.clone()));
        }
    }
}

impl Mpi {
    /// The call of MPI that a thread is in, with its native frame: the innermost, if no code of Python runs inside of it.
    ///
    /// Some of an implementation's calls are nothing but a jump into an inner function that has no name (MPI_Waitall of MPICH 5.0): these
    /// are known by what the program called.
    fn entered(&self, process: &Process<'_>, thread: &ThreadView<'_>) -> Option<(usize, Call)> {
        let first = || thread.names(usize::MAX).find_map(|(native, name)| Some((native, calls::call(name)?)));
        let named = self.has_calls.found(thread, first);
        let nameless = || {
            let mut entries = (backend(process) != UNKNOWN).then(|| thread.nameless_entries(process))?;
            entries.find_map(|(native, name)| Some((native, calls::call(&name)?)))
        };
        let (native, call) = named.or_else(nameless)?;
        let inner = thread.merged(native).and_then(|merged| thread.thread?.frames.get(..merged));
        inner.is_none_or(|frames| frames.iter().all(|frame| frame.python.is_none())).then_some((native, call))
    }
}

/// The operation as the call and its requests describe it.
fn collective(process: &Process<'_>, call: &Call, pending: &[Pending]) -> Collective {
    let first = pending.first();
    let is_message = first.is_some_and(|one| one.tag.is_none_or(|tag| tag >= 0));
    let op = match (call.role, first) {
        (Role::Completion, Some(one)) if is_message => one.operation().to_owned(),
        _ => call.operation.clone(),
    };
    let mut peers: Vec<u32> = pending.iter().filter_map(|one| one.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    let all = |value: fn(&Pending) -> Option<bool>| -> Option<bool> {
        let values: Option<Vec<bool>> = pending.iter().map(value).collect();
        values.filter(|values| !values.is_empty()).map(|values| values.iter().any(|value| *value))
    };
    // Where one has none, all of them may have moved.
    let marks: Option<Vec<&str>> = pending.iter().map(|one| one.mark.as_deref()).collect();
    Collective {
        backend: backend(process).to_owned(),
        group: first.and_then(|one| one.group.clone()),
        op,
        // Messages have numbers between two ranks; those of collectives say nothing of the collective.
        seq: first.filter(|_| is_message).and_then(|one| one.sequence),
        rank: first.and_then(|one| one.rank),
        size: first.and_then(|one| one.size),
        peers,
        tag: first.and_then(|one| one.tag).filter(|tag| *tag >= 0),
        request: first.and_then(|one| one.address).map(|at| at.to_string()),
        mark: marks.filter(|marks| !marks.is_empty()).map(|marks| marks.join("+")),
        matched: all(|one| one.matched),
        synchronises: call.role == Role::Synchronising,
        any: call.any || pending.iter().any(|one| one.from_anybody),
        ..Collective::default()
    }
}

/// Whose MPI it is, by the libraries that are mapped.
fn backend(process: &Process<'_>) -> &'static str {
    let has = |name: &str| process.context.symbols.modules().list.iter().any(|module| module.name.starts_with(name));
    if has("libopen-pal.so") {
        "openmpi"
    } else if has("libmpich.so") || has("libmpi.so.12") || has("libmpi_abi.so") || has("libmpicxx.so.12") {
        MPICH
    } else {
        UNKNOWN
    }
}

fn resource(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    call: &Call,
    collective: &Collective,
    tag: Option<i64>,
) -> Resource {
    let position = process.context.process;
    let tag = tag.map(|tag| format!(" (tag {tag})")).unwrap_or_default();
    let of = collective
        .group
        .as_deref()
        .filter(|group| !group.is_empty())
        .map(|group| format!(" of {group}"))
        .unwrap_or_default();
    let peers = ranks(&collective.peers);
    let label = match (call.role, peers) {
        (Role::Receive, Some(peers)) => format!("{} from {peers}{tag}", call.name),
        (Role::Receive, None) if collective.any => format!("{} from any rank{tag}", call.name),
        (Role::Send, Some(peers)) => format!("{} to {peers}{tag}", call.name),
        (_, Some(peers)) => format!("{}{of} with {peers}{tag}", call.name),
        (_, None) => format!("{}{of} with other ranks", call.name),
    };
    // Only the thread itself needs to distinguish two waits of this kind.
    let scope = Scope::System(format!("mpi:{position}:{}", thread.image.tid));
    Resource {
        key: ResourceKey { kind: kinds::COLLECTIVE, scope, address: Addr(0) },
        process: position,
        label: label.into(),
        state: Vec::new(),
        role: None,
    }
}

/// "rank 1", "ranks 1 and 2".
fn ranks(peers: &[u32]) -> Option<String> {
    match peers {
        [] => None,
        [one] => Some(format!("rank {one}")),
        [first, second] => Some(format!("ranks {first} and {second}")),
        [first, .., last] => Some(format!("{} ranks from {first} to {last}", peers.len())),
    }
}

#[cfg(test)]
mod tests;
