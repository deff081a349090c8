//! The list of lock families and the loop that asks them.
//!
//! In: one [`Context`] a captured process. Out: [`Observations`] of all of them. Families run kernel, libc, CUDA,
//! CPython; each sees what the one below decoded and may say it better. Nothing here knows a lock's layout.

use std::collections::{BTreeSet, HashSet};

use super::facts::{Process, ThreadFacts};
use super::kernel::Call;
use super::kernel::{Futex, Waited};
use super::owner::Ownership;
use super::{Certainty, Hold, Needs, Observations, Party, Resource, ResourceKey, Scope, Wait};
use crate::image::gpu::GpuUse;
use crate::image::{Addr, Gap, Image, ProcessImage};
use crate::python::Python;
use crate::symbols::Symbols;
pub use crate::symbols::plain_name;
use crate::threads::Thread;
use crate::waits::Kind;

/// What the families may look at in one process.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Position of the process in the image.
    pub process: usize,
    /// The process.
    pub image: &'a ProcessImage,
    /// The whole look.
    pub all: &'a Image,
    /// Names of addresses.
    pub symbols: &'a Symbols<'a>,
    /// Threads with merged stacks.
    pub threads: &'a [Thread],
    /// Its Python runtime, if it has one.
    pub python: Option<&'a Python>,
    /// How busy the GPUs are, where that was asked.
    pub gpu: Option<&'a GpuUse>,
}

/// What a family says of one thread's wait.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// What it waits for.
    pub resource: Resource,
    /// "read", "write".
    pub mode: Option<&'static str>,
    /// All holders or any of them.
    pub needs: Needs,
    /// Ends by itself.
    pub timed: bool,
    /// How sure.
    pub certainty: Certainty,
    /// What was read.
    pub evidence: Vec<String>,
    /// What could not be decided.
    pub gaps: Vec<Gap>,
    /// Prefixes of the names of the calls that wait so, for the index of the frame.
    pub api: &'static [&'static str],
    /// The thread was woken or is about to retry: no wait is reported.
    pub transient: bool,
    /// What the lock itself says of its holder.
    pub ownership: Ownership,
    /// The system call, if it is in one.
    pub call: Option<Call>,
    /// The futex, if it sleeps on one.
    pub futex: Option<Futex>,
    /// It burns CPU instead of sleeping.
    pub spinning: bool,
    /// The other things that end the wait as well (poll, epoll, select).
    pub also: Vec<Waited>,
    /// Of how many things this is one.
    pub one_of: usize,
    /// The merged frame of the call that waits, where that is no native one.
    pub at: Option<usize>,
}

impl Decoded {
    /// An exact wait for `resource`, in the call that a lower family saw, if it saw one.
    pub fn of(resource: Resource, below: Option<&Decoded>, evidence: Vec<String>) -> Decoded {
        Decoded {
            resource,
            mode: None,
            needs: Needs::All,
            timed: below.is_some_and(|below| below.timed),
            certainty: Certainty::Exact,
            evidence,
            gaps: Vec::new(),
            api: &[],
            transient: below.is_some_and(|below| below.transient),
            ownership: Ownership::Unknown,
            call: below.and_then(|below| below.call),
            futex: below.and_then(|below| below.futex),
            spinning: below.is_some_and(|below| below.spinning),
            also: Vec::new(),
            one_of: 1,
            at: None,
        }
    }

    /// A better account of the same wait: another resource, the same call.
    pub fn refined(&self, resource: Resource, api: &'static [&'static str], evidence: Vec<String>) -> Decoded {
        Decoded { api, ..Decoded::of(resource, Some(self), evidence) }
    }

    /// The same call, waiting for another of its things.
    fn instead(&self, other: Waited) -> Decoded {
        let evidence = vec![other.evidence];
        Decoded { resource: other.resource, evidence, ownership: other.ownership, ..self.clone() }
    }

    /// The same with a holder.
    pub fn owned(mut self, ownership: Ownership) -> Decoded {
        self.ownership = ownership;
        self
    }

    /// The same with a gap.
    pub fn with_gap(mut self, gap: Gap) -> Decoded {
        self.gaps.push(gap);
        self
    }

    /// The same with a mode.
    pub fn with_mode(mut self, mode: &'static str) -> Decoded {
        self.mode = Some(mode);
        self
    }
}

/// A wait with the positions of its process and thread in the [`Look`].
#[derive(Debug, Clone)]
pub struct Found {
    /// Position in [`Look::processes`].
    pub process: usize,
    /// Position in [`Process::threads`].
    pub thread: usize,
    /// The wait.
    pub decoded: Decoded,
}

/// All processes of one look, prepared for the families.
#[derive(Debug)]
pub struct Look<'a> {
    /// One a context, in the same order.
    pub processes: Vec<Process<'a>>,
}

/// A lock family.
pub trait Family: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// The kinds of the resources that it decodes: rows of [`kinds`](super::kinds), or rows of its own beside its
    /// decoder. A resource of a kind that no family lists fails every test that meets it.
    fn kinds(&self) -> &'static [&'static Kind];

    /// What `thread` waits for; `below` is what the lower families made of it. `None`: nothing better to say.
    fn decode(&self, process: &Process<'_>, thread: &ThreadFacts<'_>, below: Option<&Decoded>) -> Option<Decoded>;

    /// Who holds the resources of this family's kinds that somebody waits for (and, where the family keeps
    /// account of its own, others).
    fn holds(&self, look: &Look<'_>, waits: &[Found], out: &mut Observations);
}

/// The families, lowest first. A new one is a folder and a line here.
const FAMILIES: [&dyn Family; 4] =
    [&super::kernel::Kernel, &super::libc::Libc, &super::cuda::Cuda, &super::cpython::Cpython];

/// The row of a kind by its name in the JSON contract.
pub fn kind_named(name: &str) -> Option<&'static Kind> {
    FAMILIES.iter().flat_map(|family| family.kinds()).find(|kind| kind.name == name).copied()
}

/// Frames searched for the call that waits: the wait is at the innermost end.
const API_FRAMES: usize = 16;

/// Decode the waits and holds of all processes of one look.
pub fn observe(contexts: &[Context<'_>]) -> Observations {
    let look = Look { processes: contexts.iter().map(|&context| Process::new(context)).collect() };
    let mut out = Observations::default();
    let mut found = Vec::new();
    for (position, process) in look.processes.iter().enumerate() {
        for (index, thread) in process.threads.iter().enumerate() {
            let mut decoded: Option<Decoded> = None;
            for family in FAMILIES {
                if let Some(better) = family.decode(process, thread, decoded.as_ref()) {
                    decoded = Some(better);
                }
            }
            if let Some(mut decoded) = decoded.filter(|d| !d.transient) {
                let others = std::mem::take(&mut decoded.also);
                let others: Vec<Decoded> = others.into_iter().map(|other| decoded.instead(other)).collect();
                let all = std::iter::once(decoded).chain(others);
                found.extend(all.map(|decoded| Found { process: position, thread: index, decoded }));
            }
        }
    }
    let mut named = HashSet::new();
    for one in &found {
        let process = &look.processes[one.process];
        let thread = &process.threads[one.thread];
        out.waits.push(wait(process, thread, &one.decoded));
        out.gaps.extend(one.decoded.gaps.iter().cloned());
        if named.insert(&one.decoded.resource.key) {
            out.resources.push(one.decoded.resource.clone());
        }
    }
    for family in FAMILIES {
        family.holds(&look, &found, &mut out);
    }
    super::standstill::find(&look, &found, &mut out);
    for resource in &out.resources {
        debug_assert!(kind_named(resource.key.kind.name).is_some(), "no family lists the kind {}", resource.key.kind);
    }
    let mut seen = BTreeSet::new();
    out.gaps.retain(|gap| seen.insert((gap.what.clone(), gap.why.clone())));
    out
}

/// Add a resource unless its key is there.
pub fn add_resource(out: &mut Observations, resource: &Resource) {
    if out.resource(&resource.key).is_none() {
        out.resources.push(resource.clone());
    }
}

/// The first wait for each resource of one of `kinds`: holders of a resource are looked up once.
pub fn waited<'f>(waits: &'f [Found], kinds: &[&Kind]) -> Vec<&'f Found> {
    let mut seen: BTreeSet<&ResourceKey> = BTreeSet::new();
    waits
        .iter()
        .filter(|one| kinds.contains(&one.decoded.resource.key.kind) && seen.insert(&one.decoded.resource.key))
        .collect()
}

/// Whether a thread waits for `key`. `waits` come in order of process and thread.
pub fn waits_for(waits: &[Found], key: &ResourceKey, process: usize, thread: usize) -> bool {
    let first = waits.partition_point(|one| (one.process, one.thread) < (process, thread));
    let own = waits[first..].iter().take_while(|one| (one.process, one.thread) == (process, thread));
    own.into_iter().any(|one| one.decoded.resource.key == *key)
}

/// An exact hold by `holder`.
pub fn exact_hold(resource: &ResourceKey, holder: Party, mode: Option<&'static str>, evidence: Vec<String>) -> Hold {
    Hold {
        holder,
        gone: None,
        resource: resource.clone(),
        mode,
        frame: None,
        certainty: Certainty::Exact,
        is_end: false,
        binding: false,
        evidence,
    }
}

/// Where a word at `address` lives: shared mappings of the same file offset are the same place in every process.
pub fn scope(process: &Process<'_>, address: Addr) -> Scope {
    match process.context.image.mapping(address) {
        Some(m) if m.shared && m.inode != 0 => {
            Scope::Shared(m.device, m.inode, m.offset.wrapping_add(address - m.start))
        }
        _ => Scope::Process(process.context.process),
    }
}

/// The identity of an object at `address`; in shared memory the address differs from process to process and
/// is left out.
pub fn key(process: &Process<'_>, kind: &'static Kind, address: Addr) -> ResourceKey {
    let scope = scope(process, address);
    let address = if matches!(scope, Scope::Shared(..)) { Addr(0) } else { address };
    ResourceKey { kind, scope, address }
}

/// "mutex `g_lock` in a.out", "rwlock 0x33b84080 inside libcuda.so.1", "semaphore 0x7f.. in the heap".
pub fn label(process: &Process<'_>, thread: &ThreadFacts<'_>, noun: &str, address: Addr) -> String {
    let symbols = process.context.symbols;
    let list = &symbols.modules().list;
    let module = symbols.modules().at(address).and_then(|at| list.get(at));
    if let Some(symbol) = symbols.object(address) {
        let delta = address - symbol.address;
        let within = if delta == 0 { String::new() } else { format!("+{delta:#x}") };
        let place = module.map(|m| format!(" in {}", m.name)).unwrap_or_default();
        return format!("{noun} `{}`{within}{place}", symbol.name);
    }
    if let Some(module) = module {
        return format!("{noun} {address} in {}", module.name);
    }
    let mapping = process.context.image.mapping(address);
    if let Some(path) = mapping.filter(|m| m.is_file() || m.shared).and_then(|m| m.path.as_deref()) {
        return format!("{noun} {address} in {path}");
    }
    if thread.on_own_stack(address) || mapping.is_some_and(|m| m.path.as_deref() == Some("[stack]")) {
        return format!("{noun} {address} on a stack");
    }
    // The heap says nothing of whose lock it is; the library that asks for it usually does.
    match thread.first_library(process) {
        Some(name) => format!("{noun} {address} inside {name}"),
        None if mapping.is_some_and(|m| m.path.as_deref() == Some("[heap]")) => format!("{noun} {address} in the heap"),
        None => format!("{noun} {address}"),
    }
}

/// Build the public wait.
fn wait(process: &Process<'_>, thread: &ThreadFacts<'_>, decoded: &Decoded) -> Wait {
    Wait {
        waiter: Party::Thread(process.context.process, thread.image.tid),
        resource: decoded.resource.key.clone(),
        mode: decoded.mode,
        needs: decoded.needs,
        timed: decoded.timed,
        since_ms: thread.image.asleep_ms,
        frame: decoded.at.or_else(|| frame(thread, decoded.api)),
        certainty: decoded.certainty,
        evidence: decoded.evidence.clone(),
        spinning: decoded.spinning,
    }
}

/// The merged frame of the waiting call: the outermost of the innermost frames that has a name of the API, else
/// the innermost one.
fn frame(thread: &ThreadFacts<'_>, api: &[&str]) -> Option<usize> {
    let frames = &thread.thread?.frames;
    if frames.is_empty() {
        return None;
    }
    let named = |index: &usize| {
        let frame = &frames[*index];
        frame.native.is_some_and(|n| n < API_FRAMES)
            && frame.function.as_deref().is_some_and(|name| {
                let name = plain_name(name);
                api.iter().any(|prefix| name.starts_with(prefix))
            })
    };
    // What a signal interrupted is another call.
    let interrupted = thread.interrupted().unwrap_or(usize::MAX);
    let inner = frames.iter().take_while(|frame| frame.native.is_none_or(|native| native < interrupted)).count();
    let end = inner.min(4 * API_FRAMES);
    Some((0..end).rev().find(named).unwrap_or(0))
}
