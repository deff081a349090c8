//! Things in memory that processes share, which any of them may give: events, conditions and queues of `multiprocessing`, barriers and
//! semaphores of the C library.
//!
//! In: waits without a known holder in shared memory, and who maps it. Out: [`KnownWakers`] where all these processes were captured and
//! nobody else can come to it, with each of them as a wake source, and its handlers for signals. The graph finds whether they go on.

use std::collections::HashSet;

use super::{Families, signals};
use crate::image::Mapping;
use crate::waits::blocked_on::ThreadWait;
use crate::waits::holders::Blocked;
use crate::waits::kinds::{self, Giver};
use crate::waits::model::{Certainty, KnownWakers, Party, ResourceKey, Role, Scope, WakeSource, Waker};
use crate::waits::observations::Observations;

/// Add what is enclosed by the processes that share it.
pub(super) fn find(blocked: &Blocked<'_>, families: &Families<'_>, out: &mut Observations) {
    let held = out.holds.iter().filter(|hold| hold.is_known()).map(|hold| hold.resource.clone());
    let mut known: HashSet<ResourceKey> =
        held.chain(out.known_wakers.iter().map(|known| known.resource.clone())).collect();
    for wait in blocked.waits().iter().filter(|wait| is_given_by_any(wait)) {
        let key = &wait.blocked_on.resource.key;
        if !known.insert(key.clone()) {
            continue;
        }
        let Some(sharing) = sharing(blocked, wait) else { continue };
        out.known_wakers.push(KnownWakers {
            resource: key.clone(),
            why: match sharing.len() {
                1 => "only its own process has it mapped, and nobody there can wake it".to_owned(),
                count => format!("the {count} processes that map it wait for each other or to be woken"),
            },
            certainty: Certainty::Inferred,
            ruled_out: Vec::new(),
            whole_process: true,
            is_reportable: wait.blocked_on.resource.role != Some(Role::IdleWork),
        });
        for position in sharing {
            let process = &blocked.processes()[position];
            let what = format!("process {} maps it, and could give it", process.context.image.pid);
            let by = Waker::Party(Party::Process(process.context.process));
            out.wake_sources.push(WakeSource { resource: key.clone(), waiter: None, by, what });
            let ruled_out = signals(blocked, families, wait, position, out);
            if let Some(known) = out.known_wakers.last_mut() {
                known.ruled_out.extend(ruled_out);
            }
        }
    }
}

/// Whether it has no owner: whoever maps it may post or notify.
fn is_given_by_any(wait: &ThreadWait) -> bool {
    let kind = wait.blocked_on.resource.key.kind;
    kind.giver == Giver::AnyThread && *kind != *kinds::FUTEX || *kind == *kinds::MP_LOCK
}

/// The positions of the processes that map it, if no other one can ever do so: all maps were read, and the file has lost its name.
fn sharing(blocked: &Blocked<'_>, wait: &ThreadWait) -> Option<Vec<usize>> {
    let Scope::Shared(device, inode, _) = wait.blocked_on.resource.key.scope else { return None };
    let kernel = &blocked.process(wait).context.all.kernel;
    let sharers =
        kernel.sharers(device, inode).filter(|sharers| sharers.are_all_of(blocked.process(wait).context.image))?;
    let position = |pid: i32| blocked.processes().iter().position(|one| one.context.image.pid == pid);
    let sharing: Vec<usize> = sharers.processes.iter().map(|(pid, _)| position(*pid)).collect::<Option<_>>()?;
    let is_it = |mapping: &&Mapping| (mapping.device, mapping.inode) == (device, inode);
    let mut mappings = blocked.process(wait).context.image.mappings.iter().filter(is_it);
    let is_closed = sharers.is_nameless && mappings.all(|mapping| !has_another_way(mapping));
    (!sharing.is_empty() && is_closed).then_some(sharing)
}

/// Whether others can come to memory without a name: segments of System V have an id, and a memfd is given away by its descriptor.
fn has_another_way(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref().unwrap_or_default();
    ["/SYSV", "/memfd:"].iter().any(|prefix| path.starts_with(prefix))
}
