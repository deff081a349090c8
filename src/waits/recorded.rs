//! The recorder's observations: which thread took an awaited resource, where and since when.
//!
//! In: waits with the holds that the families found, and the tables of the processes ([`crate::recorder`]). Out: an [`Account`] of each
//! awaited lock that a thread was seen to take: who, where and since when. A lock that names its holder is believed before it, as the
//! recorder does not see what is taken and given inside of the C library.

use chrono::{DateTime, SecondsFormat, Utc};

use super::accounts::Account;
use super::circumstances::DriverCalled;
use super::holders::{Blocked, exact_hold};
use super::kinds::{self, Giver, Kind, Topic};
use super::model::{Hold, HoldSource, Party, Resource, Scope, Strength, TakenAt};
use super::observations::Observations;
use super::thread::Process;
use crate::image::{Addr, Gap};
use crate::python::Python;
use crate::recorder::{DriverCall, LockKind, Mode, Recorded, RecordedLock};

/// The recorder's names for kinds of locks.
pub(crate) const KINDS: [(LockKind, &Kind); 7] = [
    (LockKind::Mutex, kinds::PTHREAD_MUTEX),
    (LockKind::ReadWriteLock, kinds::PTHREAD_RWLOCK),
    (LockKind::Spinlock, kinds::PTHREAD_SPINLOCK),
    (LockKind::Semaphore, kinds::SEMAPHORE),
    (LockKind::PythonLock, kinds::PY_LOCK),
    (LockKind::PythonRecursiveLock, kinds::PY_RLOCK),
    (LockKind::Gil, kinds::GIL),
];

/// Add what the recorder saw.
pub(crate) fn add(blocked: &Blocked<'_>, out: &mut Observations) {
    for (position, process) in blocked.processes().iter().enumerate() {
        let Some(recorded) = Recorded::of(process.context.image) else { continue };
        recorded.calls.iter().for_each(|call| driver_call(blocked, process, call, out));
        let of_process = |resource: &&Resource| resource.key.scope == Scope::Process(position);
        let resources: Vec<Resource> = out.resources.iter().filter(of_process).cloned().collect();
        for resource in resources {
            let Some((kind, _)) = KINDS.iter().find(|(_, kind)| *kind == resource.key.kind) else { continue };
            let is_it = |one: &&RecordedLock| one.lock == resource.key.address && one.kind == *kind;
            let takers: Vec<&RecordedLock> = recorded.locks.iter().filter(is_it).collect();
            if !takers.is_empty() {
                Case { blocked, process, resource: &resource, takers }.add(out);
            }
        }
        if recorded.lost > 0 {
            out.gaps.push(Gap::new(
                format!("{} locks that process {} took", recorded.lost, process.context.image.pid),
                "the recorder had no room for them: the process had more threads or locks at a time than it can write down",
            ));
        }
    }
}

/// A call into CUDA's driver: what it is known by, and the evidence of who waits within.
fn driver_call(blocked: &Blocked<'_>, process: &Process<'_>, call: &DriverCall, out: &mut Observations) {
    let Some(thread) = process.threads.get(call.thread) else { return };
    let party = Party::Thread(process.context.process, thread.image.tid);
    let [first, second, third, fourth] = call.arguments;
    let since = call.since.map(moment);
    if call.result.is_none() {
        let evidence = format!(
            "the recorder saw {} call {}({first:#x}, {second:#x}, {third:#x}, {fourth:#x}){}, and not come back",
            thread.describe(),
            call.function,
            at(since),
        );
        out.waits.iter_mut().filter(|wait| wait.waiter == party).for_each(|wait| wait.evidence.push(evidence.clone()));
    }
    let error = call.error.as_ref();
    out.driver_calls.push(DriverCalled {
        thread: party,
        function: call.function.clone(),
        arguments: call.arguments,
        since_ms: since.and_then(|since| ago(blocked, since)),
        result: call.result,
        error: error.map(|error| {
            (error.number, error.function.clone(), error.since.and_then(|since| ago(blocked, moment(since))))
        }),
    });
}

/// The words for a time of the recorder, where it could ask for one.
fn at(since: Option<DateTime<Utc>>) -> String {
    since.map_or_else(String::new, |since| format!(" at {}", since.to_rfc3339_opts(SecondsFormat::Millis, true)))
}

/// A time of the recorder.
fn moment(nanoseconds: u64) -> DateTime<Utc> {
    DateTime::<Utc>::from_timestamp_nanos(i64::try_from(nanoseconds).unwrap_or(i64::MAX))
}

/// How long ago that was, in milliseconds at the end of the sample.
fn ago(blocked: &Blocked<'_>, moment: DateTime<Utc>) -> Option<u64> {
    let taken = blocked.processes().first()?.context.all.taken.as_ref()?;
    let now = DateTime::parse_from_rfc3339(&taken.ended).ok()?;
    u64::try_from((now.with_timezone(&Utc) - moment).num_milliseconds()).ok()
}

/// An awaited lock, and the threads that the recorder saw take it.
struct Case<'a, 's> {
    blocked: &'a Blocked<'s>,
    process: &'a Process<'s>,
    resource: &'a Resource,
    takers: Vec<&'a RecordedLock>,
}

impl Case<'_, '_> {
    fn add(&self, out: &mut Observations) {
        let key = &self.resource.key;
        let known: Vec<Hold> = out.holds.iter().filter(|hold| hold.resource == *key).cloned().collect();
        let seen = self.takers.iter().map(|taker| self.hold(taker));
        let holds: Vec<Hold> = seen.map(|seen| self.as_far_as_known(seen, &known)).collect();
        let counted = self.readers();
        let seen: u32 = self.takers.iter().filter(|one| one.mode == Mode::Reading).map(|one| one.count).sum();
        let is_sure = holds.iter().all(|hold| hold.strength == Strength::Recorded);
        let is_all = is_sure && counted.is_none_or(|count| count == seen);
        out.accounts.push(Account { resource: key.clone(), holds, is_all });
    }

    /// The taker of a resource that any thread may release need not have it to itself: a semaphore is a lock only by
    /// the way code uses it. A thread that waits for a resource that it took itself may wait for another thread to
    /// release it. Where the families found the same holder, it is one.
    fn as_far_as_known(&self, seen: Hold, known: &[Hold]) -> Hold {
        let is_owned = self.resource.key.kind.giver == Giver::Holder;
        let is_known = known.iter().any(|hold| hold.holder == seen.holder && hold.is_known());
        let waits_itself = || match &seen.holder {
            Party::Thread(process, tid) => {
                let position = self.process.position(*tid);
                position.is_some_and(|position| self.blocked.waits_for(&self.resource.key, *process, position))
            }
            _ => false,
        };
        let is_lock = self.resource.key.kind.topic == Topic::Lock;
        let is_sure = is_owned || is_known || is_lock && !waits_itself();
        Hold { strength: if is_sure { Strength::Recorded } else { Strength::Candidate }, ..seen }
    }

    /// How many readers the lock counts.
    fn readers(&self) -> Option<u32> {
        let (_, readers) = self.resource.state.iter().find(|(name, _)| *name == "readers")?;
        u32::try_from(*readers).ok().filter(|count| *count > 0)
    }

    fn hold(&self, taker: &RecordedLock) -> Hold {
        let thread = &self.process.threads[taker.thread];
        let (taken, place) = if taker.frames.is_empty() {
            self.native_place(taker)
        } else {
            python_place(taker, self.process.context.python)
        };
        let (mode, how) = match (taker.kind, taker.mode) {
            (LockKind::ReadWriteLock, Mode::Reading) => (Some("read"), " for reading"),
            (LockKind::ReadWriteLock, Mode::Alone) => (Some("write"), " for writing"),
            _ => (None, ""),
        };
        let times = if taker.count > 1 { format!(" {} times", taker.count) } else { String::new() };
        let since = taker.since.map(moment);
        let evidence = format!(
            "the recorder saw {} take it{how}{times}{}, {place}, and not give it back",
            thread.describe(),
            at(since),
        );
        let holder = Party::Thread(self.process.context.process, thread.image.tid);
        Hold {
            frame: self.frame(taker),
            taken,
            since_ms: since.and_then(|since| ago(self.blocked, since)),
            source: Some(HoldSource::Recorder),
            ..exact_hold(&self.resource.key, holder, mode, vec![evidence])
        }
    }

    /// The line that a native call returned to, and the same for the evidence.
    fn native_place(&self, taker: &RecordedLock) -> (Option<TakenAt>, String) {
        let symbols = self.process.context.symbols;
        if taker.at.is_null() {
            return (None, "at a place that is not known".into());
        }
        let call = Addr(taker.at.0.wrapping_sub(1));
        let function = symbols.function(call).map(|symbol| symbol.name.to_string());
        let places = symbols.source(call);
        let taken = places.iter().find_map(|place| {
            let function = place.function.as_deref().map(str::to_owned).or_else(|| function.clone())?;
            Some(TakenAt::at(place.file.as_deref()?, place.line?, function))
        });
        let list = &symbols.modules().list;
        let module = symbols.modules().at(call).and_then(|module| list.get(module));
        let address = match (function, module) {
            (Some(function), Some(module)) => format!("{} in {function} of {}", taker.at, module.name),
            (None, Some(module)) => format!("{} ({}+{:#x})", taker.at, module.name, taker.at - module.start),
            _ => taker.at.to_string(),
        };
        (taken, format!("by a call that returned to {address}"))
    }

    /// The frame that took it, where that has not returned.
    fn frame(&self, taker: &RecordedLock) -> Option<usize> {
        let thread = &self.process.threads[taker.thread];
        let frames = &thread.thread?.native.frames;
        let symbols = self.process.context.symbols;
        let start = symbols.function_start(Addr(taker.at.0.wrapping_sub(1)))?;
        let is_it = |frame: &crate::unwind::NativeFrame| {
            frame.sp <= taker.stack
                && frame.cfa.is_some_and(|cfa| taker.stack < cfa)
                && symbols.function_start(frame.lookup) == Some(start)
        };
        thread.merged(frames.iter().position(is_it)?)
    }
}

/// The line of the program's own that took a lock of Python, and all that are known for the evidence.
fn python_place(taker: &RecordedLock, python: Option<&Python>) -> (Option<TakenAt>, String) {
    let is_library = |file: &str| python.is_some_and(|python| python.folders.of(file).waits_for_caller());
    let own = taker.frames.iter().find(|frame| !is_library(&frame.file)).or(taker.frames.first());
    let taken = own.map(|frame| TakenAt::at(&*frame.file, frame.line, &*frame.function));
    let told: Vec<String> =
        taker.frames.iter().map(|frame| format!("{}:{} in {}", frame.file, frame.line, frame.function)).collect();
    (taken, format!("at {}", told.join(", called at ")))
}
