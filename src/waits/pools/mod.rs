//! The family of libraries that hand work to threads of their own: rayon, Polars, TBB, Arrow, OpenMP's tasks, XLA, PyTorch's
//! autograd.
//!
//! In: a wait to be woken, inside such a library. Out: its meaning: the wait of a thread that handed out work, or of a
//! worker that has nothing to do. Any worker that runs a piece of work could end the first, since none shows whose work
//! it runs. Idle workers could not. All of that is an inference by names ([`libraries`]).
//!
//! Also out: holds by workers that wait for themselves. This worker waits inside one piece of work and runs another
//! in the meantime. There it requests a lock that it has from the first.
//!
//! Where a stack is not known to its end, its thread may run work: then there is no result about the workers.

mod libraries;
mod queued;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use crate::image::{Addr, Gap, MemoryExt, TaskState};
use crate::limits::waits::MOST_ASKED;
use crate::threads::{Alike, Frame};
use crate::unwind::StackEnd;
use crate::waits::blocked_on::{BlockedOn, Ownership, Referenced, ThreadWait};
use crate::waits::family::{Family, Registered};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds::{Giver, Holding, Kind, Topic, World};
use crate::waits::label::Label;
use crate::waits::model::{Certainty, Hold, Needs, Party, Resource, ResourceKey, Role, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};
use libraries::{LIBRARIES, Library, NativeName, Place};

/// The work that a library's own threads do for others.
const POOL_WORK: &Kind =
    &Kind::new("pool_work", "work of a pool", World::Native, Topic::PoolWork, Giver::AnyThread, Holding::Does);

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered { kinds: &[POOL_WORK], open };

/// The family, with the workers of each process.
#[derive(Debug)]
struct Pools {
    workers: Vec<OnceCell<Workers>>,
}

/// Open the family.
fn open<'s>(processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    Box::new(Pools { workers: processes.iter().map(|_| OnceCell::new()).collect() })
}

/// The threads of libraries, in the order of threads and libraries.
#[derive(Debug, Default)]
struct Workers {
    list: Vec<Worker>,
    /// The libraries that have some.
    libraries: BTreeSet<usize>,
}

/// A thread of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Worker {
    /// Its position.
    thread: usize,
    /// Position of the library.
    library: usize,
    /// The merged frame of the program's that runs as the innermost piece of work, or what runs that; `None`: it is idle.
    runs: Option<usize>,
}

/// The threads that run work of the library at this position end the wait.
#[derive(Debug, Clone, Copy)]
struct DoneBy(usize);

impl Family for Pools {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        let is_wake_up = |below: &&BlockedOn| {
            let kind = below.resource.key.kind;
            let is_of_nobody = below.ownership.is_of_nobody();
            kind.giver == Giver::AnyThread && kind.world == World::Native && is_of_nobody && !below.transient
        };
        let below = below.filter(is_wake_up)?;
        let workers = self.workers(process)?;
        // One library may be built on another: the one whose frames are the innermost is waited in.
        workers.libraries.iter().find_map(|&library| {
            let frame = waits_in(process, thread, LIBRARIES.get(library)?)?;
            let own = workers.of_thread(thread.position).iter().find(|worker| worker.library == library);
            Some(match own {
                Some(Worker { runs: None, .. }) => idle(below, library),
                _ if frame.is_for_work => for_work(below, library, frame),
                _ => return None,
            })
        })
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for (wait, DoneBy(library)) in blocked.by_rule::<DoneBy>() {
            self.at_work(blocked, wait, *library, out);
        }
        self.asked_again(blocked, out);
    }
}

impl Pools {
    /// The workers of a process, found once.
    fn workers(&self, process: &Process<'_>) -> Option<&Workers> {
        Some(self.workers.get(process.context.process)?.get_or_init(|| workers(process)))
    }

    /// Add the threads that run work of a library: one of them does the work that `wait` needs.
    fn at_work(&self, blocked: &Blocked<'_>, wait: &ThreadWait, library: usize, out: &mut Observations) {
        let process = blocked.process(wait);
        let (Some(of), key) = (LIBRARIES.get(library), &wait.blocked_on.resource.key) else { return };
        let Some(workers) = self.workers(process) else { return };
        let at_work = workers.list.iter().filter(|one| one.library == library);
        let at_work: Vec<(&Worker, usize)> = at_work.filter_map(|one| Some((one, one.runs?))).collect();
        let unknown = process.threads.iter().find(|thread| !is_known_whole(thread));
        if let (Some(thread), false) = (unknown, at_work.is_empty()) {
            out.gaps.push(Gap::new(
                format!("who does {}", wait.blocked_on.resource.label),
                format!(
                    "the stack of {} is not known to its end: it may run work of {}",
                    thread.describe(),
                    of.work_of
                ),
            ));
            return;
        }
        for (worker, frame) in at_work {
            let Some(thread) = process.threads.get(worker.thread) else { continue };
            // One that waits for it itself does none of that work, but may keep others from it: what its own pool has yet to do.
            let queued = match blocked.waits_for(key, wait.process, worker.thread) {
                true => match queued_behind(process, workers, worker, key.address) {
                    Some(how) => {
                        let own = out.resources.iter_mut().filter(|one| one.key == *key);
                        own.for_each(|one| one.role = Some(Role::QueuedFuture));
                        format!("it waits there for what work in its pool's queue would do: {how}")
                    }
                    None => continue,
                },
                false => {
                    "those of its threads that run no work are idle; whose work one runs is not recorded".to_owned()
                }
            };
            let function = thread.thread.and_then(|thread| thread.frames.get(frame)?.function.as_deref());
            let function = function.unwrap_or("a function without a name");
            let evidence = vec![
                format!("{} is a thread of {} that runs a piece of work: {function}", thread.describe(), of.work_of),
                queued,
            ];
            let holder = Party::Thread(process.context.process, thread.image.tid);
            let hold = exact_hold(key, holder, None, evidence);
            out.holds.push(Hold { strength: Strength::Inferred, frame: Some(frame), ..hold });
        }
    }

    /// Add workers that request, in one piece of work, a lock that they have at hand from another one further out: they
    /// ran the second while they waited in the first.
    fn asked_again(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for wait in blocked.waits() {
            let Ownership::ByReference(Referenced { lock, size, .. }) = wait.blocked_on.ownership else { continue };
            let process = blocked.process(wait);
            let Some(thread) = process.threads.get(wait.thread) else { continue };
            let key = &wait.blocked_on.resource.key;
            let is_held = out.holds.iter().any(|hold| hold.resource == *key && hold.is_known());
            let own = self.workers(process).map(|workers| workers.of_thread(wait.thread)).unwrap_or_default();
            let worker = own.iter().find(|one| one.runs.is_some());
            let (Some(worker), false) = (worker, is_held) else { continue };
            let Some((frame, place)) = from_other_work(process, thread, *worker, lock, size) else { continue };
            // With several possible holders, none is the only one.
            let is_whole = process.threads.iter().all(is_known_whole);
            let mut others = out.holds.iter_mut().filter(|hold| hold.resource == *key).peekable();
            let is_sole = is_whole && others.peek().is_none();
            let strength = if is_sole { Strength::SoleCandidate } else { Strength::Candidate };
            others.for_each(|other| other.strength = Strength::Candidate);
            let library = LIBRARIES.get(worker.library).map_or("the pool", |library| library.work_of);
            let evidence = vec![
                format!("{} has a guard of it from a piece of work further out: {place}", thread.describe()),
                format!("while it waited in there for work of {library} it ran this piece, which asks for it again"),
            ];
            let holder = Party::Thread(process.context.process, thread.image.tid);
            let hold = exact_hold(key, holder, None, evidence);
            let frame = thread.merged(frame);
            out.holds.push(Hold { strength, frame, ..hold });
        }
    }
}

/// How the queue of a worker's pool leads to the thing at `thing`, if none of the pool's workers is idle, who would take the work.
fn queued_behind(process: &Process<'_>, workers: &Workers, worker: &Worker, thing: Addr) -> Option<String> {
    let library = LIBRARIES.get(worker.library)?;
    let way = |one: &Worker| {
        let thread = process.threads.get(one.thread)?;
        let frames = thread.frames();
        queued::way(process, thread, frames.get(library.innermost_loop(frames)?)?.native?, thing)
    };
    let found = way(worker)?;
    let mut idle = workers.list.iter().filter(|one| one.library == worker.library && one.runs.is_none());
    // Pools of one library have queues of their own, and their idle workers lead elsewhere.
    let is_taken = idle.clone().count() > MOST_ASKED || idle.any(|one| way(one).is_some());
    (!is_taken).then_some(found)
}

/// Whether all that a thread does is known.
fn is_known_whole(thread: &ThreadView<'_>) -> bool {
    let end = thread.thread.map(|thread| &thread.native.end);
    thread.image.state == TaskState::Zombie || matches!(end, Some(StackEnd::Bottom))
}

impl Workers {
    /// A thread's roles in libraries, by the thread's position.
    fn of_thread(&self, thread: usize) -> &[Worker] {
        let from = self.list.partition_point(|worker| worker.thread < thread);
        let rest = self.list.get(from..).unwrap_or_default();
        rest.get(..rest.partition_point(|worker| worker.thread == thread)).unwrap_or_default()
    }
}

/// The threads of libraries.
fn workers(process: &Process<'_>) -> Workers {
    let mut all = Workers::default();
    let alive = || process.threads.iter().filter(|view| view.image.state != TaskState::Zombie);
    // Threads run mostly the same functions, and most programs none of these libraries: each function is compared with them once.
    let (mut distinct, mut alike) = (HashSet::new(), Alike::default());
    for view in alive() {
        alike.of(view.frames(), |frame| distinct.extend(NativeName::of(frame)));
    }
    let at_hand = LIBRARIES.iter().enumerate().filter(|(_, library)| {
        distinct.iter().any(|code| library.can_run(*code)) || alive().any(|view| library.names(&view.image.name))
    });
    let at_hand: Vec<(usize, &Library)> = at_hand.collect();
    for view in alive() {
        let frames = view.frames();
        for &(number, library) in &at_hand {
            let by_name = library.names(&view.image.name).then_some(frames.len());
            // A thread that runs a piece of work is a worker for that time, as the caller of a parallel region.
            let by_work = || Some(frames.iter().rposition(|frame| library.place(frame) == Place::Runs)? + 1);
            let Some(outermost) = library.worker(frames).or(by_name).or_else(by_work) else { continue };
            all.list.push(Worker { thread: view.position, library: number, runs: runs(library, frames, outermost) });
            all.libraries.insert(number);
        }
    }
    all
}

/// The work that a worker runs further in than the frame `outermost`, if any: the first of the program's frames within
/// the innermost piece of work.
fn runs(library: &Library, frames: &[Frame], outermost: usize) -> Option<usize> {
    let inner = frames.get(..outermost)?;
    let innermost = inner.iter().position(|frame| library.place(frame) == Place::Runs);
    let within = inner.get(..innermost.unwrap_or(outermost))?;
    let of_program = within.iter().rposition(|frame| library.place(frame) == Place::Foreign);
    of_program.or(innermost)
}

/// A wait inside a library.
#[derive(Debug, Clone, Copy)]
struct WaitsIn {
    /// The merged frame of the library's that a person should read: the outermost of those in a row.
    at: usize,
    /// It is one for work.
    is_for_work: bool,
}

/// Whether the library itself waits: between the call that sleeps and the first of its frames are only its own frames,
/// the language's and the C library's.
fn waits_in(process: &Process<'_>, thread: &ThreadView<'_>, library: &Library) -> Option<WaitsIn> {
    let frames = &thread.thread?.frames;
    let inner = frames.iter().take_while(|frame| matches!(library.place(frame), Place::Own | Place::Anybody)).count();
    let inner = frames.get(..inner)?;
    let first = inner.iter().position(|frame| library.place(frame) == Place::Own)?;
    let at = inner.iter().rposition(|frame| library.place(frame) == Place::Own).unwrap_or(first);
    let names = inner.iter().filter_map(|frame| frame.function.as_deref());
    // A function that ended by a jump has no frame; the call of it is there.
    let jumped = || {
        let entries = thread.nameless_entries(process);
        entries.take_while(|(native, _)| thread.merged(*native).is_some_and(|merged| merged <= at)).collect::<Vec<_>>()
    };
    let is_for_work =
        names.into_iter().any(|name| library.is_wait(name)) || jumped().iter().any(|(_, name)| library.is_wait(name));
    Some(WaitsIn { at, is_for_work })
}

/// The wait of a worker that has nothing to do.
fn idle(below: &BlockedOn, library: usize) -> BlockedOn {
    let of = LIBRARIES.get(library).map_or("", |library| library.work_of);
    let evidence =
        vec![format!("it is a thread of {of} that runs no work now: all of its frames are the library's own")];
    let resource = resource(below, Label::from(format!("the next work of {of}").as_str()), Some(Role::IdleWork));
    BlockedOn { certainty: Certainty::Inferred, ..below.refined(resource, below.entry_points, said(below, evidence)) }
}

/// The wait of who handed work out.
fn for_work(below: &BlockedOn, library: usize, frame: WaitsIn) -> BlockedOn {
    let of = LIBRARIES.get(library).map_or("", |library| library.work_of);
    let evidence = vec![format!("the call that waits is one of {of}, for work that was handed to its threads")];
    let resource = resource(below, Label::from(format!("the work of {of}").as_str()), None);
    let refined = below.refined(resource, below.entry_points, said(below, evidence));
    let refined = refined.owned(Ownership::private(DoneBy(library)));
    BlockedOn { certainty: Certainty::Inferred, needs: Needs::Any, at: Some(frame.at), ..refined }
}

/// The evidence of a lower family stays.
fn said(below: &BlockedOn, evidence: Vec<String>) -> Vec<String> {
    below.evidence.iter().cloned().chain(evidence).collect()
}

/// Replaces the resource of a lower family.
fn resource(below: &BlockedOn, label: Label, role: Option<Role>) -> Resource {
    let key = ResourceKey { kind: POOL_WORK, ..below.resource.key.clone() };
    Resource { key, label, role, ..below.resource.clone() }
}

/// Where a worker has a guard of a lock in a piece of work further out than the one that it runs: the native frame, and the place.
/// A guard is the lock's address and the byte that says whether it was poisoned when it was taken.
fn from_other_work(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    worker: Worker,
    lock: Addr,
    size: u64,
) -> Option<(usize, String)> {
    let (frames, library) = (&thread.thread?.frames, LIBRARIES.get(worker.library)?);
    let outermost = library.worker(frames).unwrap_or(frames.len());
    let runs = |frame: &&Frame| library.place(frame) == Place::Runs;
    let innermost = frames.iter().take(outermost).find(runs)?.native?;
    let last = frames.iter().take(outermost).rfind(runs)?.native?;
    // The guard must lie within a piece of work: frames further out than the outermost piece are the library's.
    let guards = thread.words(process).iter().filter(|(_, word)| *word == lock.0 && size > 0);
    let mut framed = guards.filter_map(|(at, _)| Some((*at, thread.native_frame(*at)?)));
    let found = framed.find(|(at, native)| {
        let is_outside = *native > innermost && *native < last;
        is_outside && process.memory().u8(*at + 8).is_ok_and(|poisoned| poisoned <= 1)
    });
    found.map(|(at, native)| (native, format!("the stack word at {at} in frame {native}")))
}
