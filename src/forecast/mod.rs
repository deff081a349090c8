//! Possible deadlocks of another run: the report on orders of locks that a recorded command took, and that did not
//! hang.
//!
//! In: [`Orders`] of processes of one run or of many, and [`Suppressions`]. Out: a [`Report`] whose findings are of the
//! class `possible`, each with who took what where, as lines of source; inversions at the same places are one finding,
//! however many instances, threads, processes and runs show it. The rules are the [`recorder`](crate::recorder)'s;
//! names are looked up here, in the files that lie on the disk now.

mod alive;
mod places;
mod predictions;
mod suppressions;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::image::Gap;
use crate::limits;
use crate::limits::forecast::MOST_TOLD;
use crate::limits::recorder::MOST_ALIKE;
use crate::recorder::LockKind;
use crate::recorder::inversions::{self, Inversion, Meeting};
use crate::recorder::orders::{LockId, Orders, Taken};
use crate::report::{
    Certainty, Finding, FindingClass, Label, Participant, ParticipantLine, ParticipantPlace, Process, Proof, Report,
    Resource, Severity, SourceKind, ThreadReference, Verdict,
};
use crate::threads::FrameKind;
use crate::waits::recorded;
use places::{Places, Spot};
pub(crate) use predictions::{apart, nearest, predictions, wake_ups};
pub(crate) use suppressions::Suppressions;
use unseen::Unseen;

/// The name of the finding.
pub(crate) const CODE: &str = "lock-order-inversion";

/// The file of one process, with where it lies.
#[derive(Debug)]
pub(crate) struct Recording {
    /// For people.
    pub(crate) path: String,
    /// The orders in it.
    pub(crate) orders: Orders,
}

impl Recording {
    /// Read a file, or say why it cannot be.
    pub(crate) fn read(path: &Path) -> Result<Recording, String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let mut orders = Orders::read(&bytes).map_err(|error| error.to_string())?;
        alive::complete(path, &mut orders);
        Ok(Recording { path: path.display().to_string(), orders })
    }
}

/// One step of an inversion, with its places.
#[derive(Debug, Clone)]
struct Told {
    thread: u32,
    held: Spot,
    wanted: Spot,
}

/// Further places of the same locks that a message names.
const NAMED: usize = 3;

/// Inversions at the same places.
#[derive(Debug)]
struct Group {
    recording: usize,
    steps: Vec<Told>,
    /// A lock of it lies where another may have lain before.
    is_reused: bool,
    instances: usize,
    /// The locks and their recording: those of the first instance.
    locks: (usize, BTreeSet<LockId>),
    /// Other places where the same locks are taken so.
    others: Vec<String>,
    processes: BTreeSet<usize>,
}

/// Inversions by their places, and how many are left out.
struct Groups {
    /// The gravest first.
    groups: Vec<Group>,
    suppressed: usize,
    not_compared: usize,
    ordered: usize,
}

/// Inversions of these processes, those at the same places together.
fn grouped(recordings: &[Recording], suppressions: &Suppressions) -> Groups {
    let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    let (mut suppressed, mut not_compared, mut ordered) = (0, 0, 0);
    for (position, recording) in recordings.iter().enumerate() {
        let found = inversions::find(&recording.orders);
        not_compared += found.not_compared;
        if found.inversions.is_empty() {
            continue;
        }
        Places::with(&recording.orders, |places| {
            for inversion in &found.inversions {
                if inversion.meeting == Meeting::Ordered {
                    ordered += 1;
                    continue;
                }
                let steps = told(inversion, places);
                if suppressions.fit(steps.iter().flat_map(|step| [&step.held, &step.wanted])) {
                    suppressed += 1;
                    continue;
                }
                let is_reused = inversion.steps.iter().any(|step| places.may_be_reused(step.held));
                let group = Group {
                    recording: position,
                    is_reused,
                    instances: 1,
                    locks: locks(position, inversion),
                    others: Vec::new(),
                    processes: [position].into(),
                    steps,
                };
                add(&mut groups, group);
            }
        });
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| (group.severity(), group.recording));
    Groups { groups, suppressed, not_compared, ordered }
}

/// The report on what these processes did.
pub(crate) fn report(recordings: &[Recording], suppressions: &Suppressions, help: &[String]) -> Report {
    let Groups { groups, suppressed, not_compared, ordered } = grouped(recordings, suppressions);
    let groups = of_locks(groups);
    let mut made = Made {
        recordings,
        report: Report::empty(SourceKind::Recorded, Verdict::NothingFound),
        numbers: BTreeMap::new(),
    };
    for group in groups.iter().take(MOST_TOLD) {
        made.add(group, help);
    }
    if groups.len() > MOST_TOLD {
        limits::met(MOST_TOLD, "orders of locks that could deadlock", "places");
    }
    let mut report = made.report;
    report.gaps = gaps(recordings, not_compared, suppressed);
    report.gaps.splice(0..0, limits::told().into_iter().map(|met| Gap::new(met.what, met.why)));
    finish(&mut report, recordings, ordered);
    report
}

impl Group {
    fn severity(&self) -> Severity {
        if self.is_reused { Severity::Note } else { Severity::Warning }
    }
}

/// Join groups at the same places. The one with the most information is kept.
fn add(groups: &mut BTreeMap<Vec<String>, Group>, new: Group) {
    let mut key: Vec<String> =
        new.steps.iter().map(|step| format!("{} {}", step.held.key(), step.wanted.key())).collect();
    key.sort();
    match groups.get_mut(&key) {
        None => drop(groups.insert(key, new)),
        Some(known) => {
            known.instances += 1;
            known.processes.extend(&new.processes);
            if new.severity() < known.severity() {
                let (instances, processes) = (known.instances, std::mem::take(&mut known.processes));
                *known = Group { instances, processes, ..new };
            }
        }
    }
}

/// The locks of an inversion.
fn locks(recording: usize, inversion: &Inversion<'_>) -> (usize, BTreeSet<LockId>) {
    (recording, inversion.steps.iter().map(|step| step.held.lock).collect())
}

/// One group for the same locks: further places where they are taken so are named in it.
fn of_locks(groups: Vec<Group>) -> Vec<Group> {
    let mut known: BTreeMap<(usize, BTreeSet<LockId>), usize> = BTreeMap::new();
    let mut kept: Vec<Group> = Vec::new();
    for group in groups {
        let next = kept.len();
        match kept.get_mut(*known.entry(group.locks.clone()).or_insert(next)) {
            None => kept.push(group),
            Some(first) => {
                first.instances += group.instances;
                first.processes.extend(&group.processes);
                let places: Vec<String> = group.steps.iter().map(|step| step.wanted.place()).collect();
                first.others.push(places.join(" and "));
            }
        }
    }
    kept
}

fn told(inversion: &Inversion<'_>, places: &Places<'_>) -> Vec<Told> {
    let step = |step: &inversions::Step<'_>| Told {
        thread: step.dependency.thread,
        held: places.spot(step.held),
        wanted: places.spot(&step.dependency.wanted),
    };
    inversion.steps.iter().map(step).collect()
}

/// A report that is being made.
struct Made<'r> {
    recordings: &'r [Recording],
    report: Report,
    /// Numbers of resources.
    numbers: BTreeMap<(usize, LockId), String>,
}

impl Made<'_> {
    fn add(&mut self, group: &Group, help: &[String]) {
        let Some(recording) = self.recordings.get(group.recording) else { return };
        let process = format!("p{}", group.recording);
        self.process(&process, recording);
        let mut finding = Finding {
            code: CODE.into(),
            severity: group.severity(),
            class: Some(FindingClass::Possible),
            title: title(group),
            message: message(group, &recording.orders),
            certainty: Certainty::Inferred,
            proof: Proof::of(Certainty::Inferred),
            threads: Vec::new(),
            resources: Vec::new(),
            ruled_out: Vec::new(),
            help: help.to_vec(),
            references: Vec::new(),
        };
        for step in &group.steps {
            let tid = self.thread(&process, &recording.orders, step);
            let reference = ThreadReference { process: process.clone(), tid };
            let resource = self.resource(group.recording, &process, &step.held);
            if !finding.resources.contains(&resource) {
                finding.resources.push(resource);
            }
            // The messages describe the others.
            if self.report.findings.is_empty() {
                self.report.scenes.push(scene(step, &recording.orders, &reference));
            }
            finding.threads.push(reference);
        }
        self.report.findings.push(finding);
    }

    fn process(&mut self, id: &str, recording: &Recording) {
        if self.report.processes.iter().any(|process| process.id == id) {
            return;
        }
        self.report.processes.push(Process {
            id: id.into(),
            pid: recording.orders.process,
            exe: recording.orders.program.clone(),
            cmdline: recording.orders.arguments.clone(),
            parent: None,
            python: None,
            cuda: None,
            cluster: None,
            identity: None,
            sockets: Vec::new(),
            gpus: Vec::new(),
            enqueued: Vec::new(),
            threads: Vec::new(),
        });
    }

    /// The thread of a step, with the frames that took what it wanted.
    fn thread(&mut self, process: &str, orders: &Orders, step: &Told) -> i32 {
        let named = orders.threads.get(&step.thread).cloned().unwrap_or_default();
        let Some(process) = self.report.processes.iter_mut().find(|one| one.id == process) else { return named.tid };
        if process.threads.iter().all(|thread| thread.tid != named.tid) {
            let frame = |frame: &places::Line| crate::report::Frame {
                kind: if frame.is_python { FrameKind::Python } else { FrameKind::Native },
                function: frame.function.clone(),
                module: None,
                file: frame.file.clone(),
                line: frame.line,
                pc: None,
                trust: None,
                library: None,
                belongs_to: None,
                module_offset: None,
                locals: Vec::new(),
            };
            process.threads.push(crate::report::Thread {
                tid: named.tid,
                ns_tid: named.tid,
                name: named.name.clone(),
                os_name: named.name,
                role: None,
                state: crate::report::ThreadState::Other,
                at: crate::report::CallSite::default(),
                frames: step.wanted.lines.iter().map(frame).collect(),
                working: None,
                cuda_error: None,
                cuda_call: None,
            });
        }
        named.tid
    }

    fn resource(&mut self, recording: usize, process: &str, held: &Spot) -> String {
        let number = format!("r{}", self.numbers.len() + 1);
        let id = self.numbers.entry((recording, held.taken.lock)).or_insert(number).clone();
        if self.report.resources.iter().all(|known| known.id != id) {
            let kind = recorded::KINDS.iter().find(|(of, _)| *of == held.taken.kind);
            self.report.resources.push(Resource {
                id: id.clone(),
                kind: kind.map_or("other", |(_, kind)| kind.name).into(),
                process: process.into(),
                address: Some(held.taken.lock.address.to_string()),
                label: held.called(),
                parts: Label::default(),
                state: serde_json::Map::new(),
            });
        }
        id
    }
}

/// "mutex `ledger` and mutex `journal` are taken in different orders".
fn title(group: &Group) -> String {
    let mut names: Vec<String> = Vec::new();
    let (ends, locks): (Vec<&Told>, Vec<&Told>) = group.steps.iter().partition(|step| is_end(&step.held));
    for step in locks {
        let name = step.held.called();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.split_last() {
        Some((last, others)) if !ends.is_empty() => {
            let names = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
            format!("a thread is joined under {names}, which it waits for itself")
        }
        Some((last, [])) => format!("locks of one place ({last}) are taken in different orders"),
        Some((last, others)) => format!("{} and {last} are taken in different orders", others.join(", ")),
        None => String::new(),
    }
}

/// Whether it is no lock, but the end of a thread.
fn is_end(spot: &Spot) -> bool {
    spot.taken.kind == LockKind::ThreadEnd
}

/// A sentence: who took which lock, and why it did not hang or may not.
fn message(group: &Group, orders: &Orders) -> String {
    let spots = || group.steps.iter().flat_map(|step| [&step.held, &step.wanted]);
    // The addresses distinguish two locks of one name.
    let called = |spot: &Spot| {
        let (name, lock) = (spot.called(), spot.taken.lock);
        let is_unique = spots().all(|other| other.taken.lock == lock || other.called() != name);
        if is_unique { name } else { format!("{name} ({})", lock.address) }
    };
    // Threads may share the lines, as in a helper that takes both locks. Then its callers distinguish them.
    let places = |step: &Told| [step.held.place(), step.wanted.place()];
    let are_alike = |step: &Told| group.steps.iter().filter(|other| places(other) == places(step)).count() > 1;
    let step = |step: &Told| {
        let who = who(step.thread, orders);
        let caller = step.wanted.caller().filter(|_| are_alike(step) || step.wanted.is_called_from_elsewhere());
        if is_end(&step.held) {
            return format!("{who}, which is joined, took {} at {}", called(&step.wanted), step.wanted.place());
        }
        if is_end(&step.wanted) {
            let (at, held) = (step.wanted.place(), called(&step.held));
            return format!("{who} joined it at {at} while it held {held}, taken at {}", step.held.place());
        }
        format!(
            "{who} took {} at {}{} while it held {}, taken at {}",
            called(&step.wanted),
            step.wanted.place(),
            caller.map(|caller| format!(" (called at {caller})")).unwrap_or_default(),
            called(&step.held),
            step.held.place()
        )
    };
    let mut text = format!("{}.", group.steps.iter().map(step).collect::<Vec<_>>().join("; "));
    text += " Each could wait for the other if they came there at the same time.";
    if !group.others.is_empty() {
        let named = group.others.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
        let rest = group.others.len().saturating_sub(NAMED);
        let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
        text += &format!(" The same locks are taken in different orders at {named}{more}, too.");
    }
    if group.is_reused {
        text += " A lock of them lies in memory that may have had another one before: nothing told of its beginning or end.";
    }
    if group.instances > 1 {
        let processes = group.processes.len();
        let of = if processes > 1 { format!(", in {processes} processes") } else { String::new() };
        text += &format!(" Seen of {} pairs of threads and locks{of}.", group.instances);
    }
    text
}

fn who(thread: u32, orders: &Orders) -> String {
    match orders.threads.get(&thread) {
        Some(named) => format!("{} ({})", named.name, named.tid),
        None => format!("thread {thread}"),
    }
}

/// The steps of one thread, at the lines of source.
fn scene(step: &Told, orders: &Orders, reference: &ThreadReference) -> Participant {
    let place = |spot: &Spot, does: String| {
        let line = spot.line();
        let text = spot.text.clone();
        ParticipantPlace {
            file: line.and_then(|line| line.file.clone()),
            line: line.and_then(|line| line.line),
            function: line.and_then(|line| line.function.clone()),
            changed: false,
            lines: vec![ParticipantLine { line: line.and_then(|line| line.line), text, does, column: None }],
        }
    };
    let first = place(&step.held, format!("takes {}", step.held.called()));
    let then = place(&step.wanted, format!("then takes {}", step.wanted.called()));
    let mut places = vec![first];
    match places.last_mut() {
        // In one function: one place with both lines.
        Some(last) if last.file.is_some() && (&last.file, &last.function) == (&then.file, &then.function) => {
            last.lines.extend(then.lines);
            last.line = then.line;
        }
        _ => places.push(then),
    }
    Participant { who: who(step.thread, orders), threads: vec![reference.clone()], places }
}

/// A count in a recorder's file of entries that it had no room for.
type Lost = (fn(&Orders) -> u64, &'static str, &'static str);
const LOST: [Lost; 3] = [
    (|orders| orders.lost, "times a lock was taken", "the recorder had no room for it, or the disk had none"),
    (
        |orders| orders.not_held,
        "times a lock was taken with more held than the recorder writes down",
        "a thread had 64 locks, or the process 4096 threads: it is in no order",
    ),
    (
        |orders| orders.placeless,
        "places in Python",
        "the recorder had no room for their texts: the orders are told without",
    ),
];

/// Parts of the run that the recorder did not see.
fn gaps(recordings: &[Recording], not_compared: usize, suppressed: usize) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for (of, what, why) in LOST {
        let lost: u64 = recordings.iter().fold(0, |all, recording| all.saturating_add(of(&recording.orders)));
        if lost > 0 {
            let most = recordings.iter().max_by_key(|recording| of(&recording.orders));
            let named = most.map(|recording| format!(", most of them in `{}`", recording.path)).unwrap_or_default();
            gaps.push(Gap::new(format!("{lost} {what}"), format!("{why}{named}")));
        }
    }
    if not_compared > 0 {
        gaps.push(Gap::new(
            format!("{not_compared} times a lock was taken under another"),
            format!("they were compared with no other: of the same two locks {MOST_ALIKE} ways are"),
        ));
    }
    if suppressed > 0 {
        gaps.push(Gap::new(
            format!("{suppressed} orders of locks that could deadlock"),
            "the file of suppressions names a place of theirs",
        ));
    }
    gaps.extend(Unseen::of(recordings).gaps());
    gaps.push(Gap::new(
        "locks that no function of the C library takes",
        "the recorder sees pthread's and CPython's: not those of Rust and Go, atomics, a PyMutex that C code takes, and \
         static programs; nor orders between processes that share a lock",
    ));
    let nowhere: BTreeSet<i32> =
        recordings.iter().filter(|one| has_no_lines(&one.orders)).map(|one| one.orders.process).collect();
    if !nowhere.is_empty() {
        let what = format!("lines of Python in {}", unseen::count(nowhere.len(), "process"));
        let why =
            "the recorder reads them of CPython 3.8 to 3.14: locks of other versions are known by their addresses";
        gaps.insert(0, Gap::new(what, why));
    }
    gaps
}

/// Whether locks of Python were taken at places without a known line.
fn has_no_lines(orders: &Orders) -> bool {
    let is_python = |taken: &Taken| matches!(taken.kind, LockKind::PythonLock | LockKind::PythonRecursiveLock);
    orders.sites.is_empty() && orders.dependencies.iter().any(|one| is_python(&one.wanted))
}

fn finish(report: &mut Report, recordings: &[Recording], ordered: usize) {
    let dependencies: usize = recordings.iter().map(|recording| recording.orders.dependencies.len()).sum();
    let processes = if recordings.len() == 1 { "1 process".into() } else { format!("{} processes", recordings.len()) };
    let mut seen = format!("{processes}, in which a lock was taken under another in {dependencies} ways");
    if ordered > 0 {
        let pairs = unseen::count(ordered, "pair");
        seen +=
            &format!("; {pairs} of them in different orders by threads of which one was joined before the other began");
    }
    let count = report.findings.len();
    if let Some(first) = report.findings.first() {
        report.verdict = Verdict::CouldDeadlock;
        report.sentence = match count {
            1 => first.title.clone(),
            _ => format!("{}; and {} more", first.title, count - 1),
        };
        report.summary = format!("{} Nothing hung. Recorded: {seen}.", first.message);
    } else {
        report.sentence = "no orders of locks that could deadlock were seen".into();
        report.summary = format!("Recorded: {seen}.");
    }
}
