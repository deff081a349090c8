//! The result of the whole stage.
//!
//! In: nothing. Out: [`Observations`], which families and rules fill, and which graph, verdict and report read.

use super::accounts::{self, Account, Unnamed};
use super::circumstances::{CudaLibrary, DriverCalled, Handled, KernelWord, LastError, Queued};
use super::cluster::ClusterMember;
use super::collective::{Collective, Enqueued, OwnRank};
use super::kinds::{Kind, World};
use super::model::{Hold, KnownWakers, Party, Resource, ResourceKey, Wait, WakeSource, Waker};
use crate::image::Gap;

/// All that the families found in one sample.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observations {
    /// Every resource named by a wait or hold, once.
    pub resources: Vec<Resource>,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Holds.
    pub holds: Vec<Hold>,
    /// Threads in the call of a wait that is over: they were woken, or given what they waited for, and have not run since.
    pub woken: Vec<Party>,
    /// The events that could end waits, beside the holders.
    pub wake_sources: Vec<WakeSource>,
    /// The resources that only their wake sources and holders can give.
    pub known_wakers: Vec<KnownWakers>,
    /// Descriptors by which processes have the other end of an awaited resource.
    pub ends: Vec<EndsOf>,
    /// Joint operations of ranks, by the resource that represents each.
    pub collectives: Vec<(ResourceKey, Collective)>,
    /// The last operations that ranks have enqueued: (process position, operation).
    pub enqueued: Vec<(usize, Enqueued)>,
    /// Which rank of its job a process is by its own objects: (process position, which).
    pub ranks: Vec<(usize, OwnRank)>,
    /// The roles of processes in clusters of workers, by their position.
    pub clusters: Vec<(usize, ClusterMember)>,
    /// Libraries of CUDA.
    pub cuda: Vec<CudaLibrary>,
    /// Work that threads gave to the GPU before they wait for it.
    pub queued: Vec<Queued>,
    /// Words of the host that kernels have.
    pub kernel_words: Vec<KernelWord>,
    /// Errors of CUDA that the runtime keeps for threads.
    pub last_errors: Vec<LastError>,
    /// The last call into CUDA's driver of each thread that the recorder saw.
    pub driver_calls: Vec<DriverCalled>,
    /// Exceptions of Python that threads handle now.
    pub handled: Vec<Handled>,
    /// The undecided parts.
    pub gaps: Vec<Gap>,
    /// Threads of interpreters by whose structures a ring of tasks can still end: (process position, id, where it is known). While such
    /// a thread runs these are changed, and say what is not so.
    pub read_of: Vec<(usize, Option<i32>)>,
    /// Lists of holders by observers, until they are [resolved](Self::resolve_holders).
    pub accounts: Vec<Account>,
    /// Gaps about holders, until then.
    pub unnamed: Vec<Unnamed>,
}

/// The descriptors of one process that are an end of a thing.
#[derive(Debug, Clone)]
pub(crate) struct EndsOf {
    /// The awaited resource.
    pub resource: ResourceKey,
    /// Position of the process in the sample.
    pub process: usize,
    /// Its descriptors.
    pub numbers: Vec<i32>,
}

impl Observations {
    /// The joint operation of ranks there.
    pub(crate) fn collective(&self, key: &ResourceKey) -> Option<&Collective> {
        self.collectives.iter().find(|(known, _)| known == key).map(|(_, collective)| collective)
    }

    /// The facts about a resource.
    pub(crate) fn resource(&self, key: &ResourceKey) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.key == *key)
    }

    /// Resolves the accounts of all observers into the holds.
    pub(crate) fn resolve_holders(&mut self) {
        let (accounts, unnamed) = (std::mem::take(&mut self.accounts), std::mem::take(&mut self.unnamed));
        self.gaps.extend(accounts::resolve(accounts, unnamed, &mut self.holds));
    }

    /// Replace the hold of a process at this position by those of its threads.
    pub(crate) fn narrow(&mut self, at: usize, by_threads: Vec<Hold>) {
        self.holds.remove(at);
        self.holds.extend(by_threads);
    }

    /// Take away the hold at this position, whose holder ends no wait.
    pub(crate) fn rule_out(&mut self, at: usize) {
        let Hold { resource, holder, .. } = self.holds.remove(at);
        let own = Waker::Party(holder);
        self.wake_sources.retain(|wake_source| wake_source.resource != resource || wake_source.by != own);
    }

    /// Adds a gap: the holder of a resource is not known, for this reason.
    pub(crate) fn nobody_named(&mut self, resource: &Resource, why: impl Into<String>) {
        let gap = Gap::new(format!("holder of {}", resource.label), why);
        self.unnamed.push(Unnamed { resource: resource.key.clone(), gap, counts_candidates: false });
    }

    /// Whether the verdict may depend on the state of GPUs: a thread waits for one, or a thread waits to be woken in a process with
    /// threads of the GPU's driver, which call functions of the program when work of the GPU is done.
    pub(crate) fn depends_on_gpus(&self) -> bool {
        let waits = |of: fn(&Kind) -> bool| self.waits.iter().any(|wait| of(wait.resource.kind));
        waits(Kind::is_gpu)
            || waits(|kind| kind.world == World::Gpu) && self.known_wakers.iter().any(|known| known.is_reportable)
    }

    /// Add that something else may end each wait of this party.
    pub(crate) fn wake_source_for(&mut self, party: &Party, by: Waker, what: &str) {
        // While it waits it calls nothing.
        if by == Waker::Party(party.clone()) {
            return;
        }
        let own = self.waits.iter().filter(|wait| wait.waiter == *party).map(|wait| WakeSource {
            resource: wait.resource.clone(),
            waiter: Some(party.clone()),
            by: by.clone(),
            what: what.to_owned(),
        });
        self.wake_sources.extend(own);
    }
}
