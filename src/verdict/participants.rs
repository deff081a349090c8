//! The head of a report: the participants, at the lines of source where each took something and waits.
//!
//! In: a report, whose cycles, holds and waits name the participants; then the available lines of source. Out:
//! [`Participant`]s: the relevant frame of each, its texts, and the threads that do the same. This module judges
//! nothing and reads no file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::image::SourceLines;
use crate::limits::verdict::{HOLDERS_NAMED, SCENES_TOLD};
use crate::report::{
    CallSite, Callback, Certainty, Edge, Frame, Gone, Hold, Library, Participant, ParticipantLine, ParticipantPlace,
    Process, Report, Resource, Severity, TakenAt, Thread, ThreadReference, Verdict, Wait, base_name, short_function,
};
use crate::waits::kinds::{Holding, Topic};

/// Up to this many threads that do the same are listed one by one.
const FEW: usize = 2;

/// Participants whose texts are not known yet.
#[derive(Debug, Default)]
pub(crate) struct Participants {
    parties: Vec<Party>,
}

/// A participant.
#[derive(Debug)]
struct Party {
    names: Vec<String>,
    threads: Vec<ThreadReference>,
    process: String,
    statements: Vec<Statement>,
    /// The common features of threads that do the same.
    alike: Vec<String>,
}

/// An action of a participant, and its place.
#[derive(Debug)]
struct Statement {
    place: Place,
    /// The line where it happens; that of a hold may not be known.
    line: Option<u32>,
    /// Its name in the source, to see whether the line names it.
    name: Option<String>,
    /// The function that is called there, without its class.
    call: Option<String>,
    /// In full, and where the line names what it is about.
    long: String,
    short: String,
    is_wait: bool,
}

/// A function that a participant is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    file: Option<String>,
    line: Option<u32>,
    function: Option<String>,
}

impl Participants {
    /// Those who take part in what a report says.
    pub(crate) fn of(report: &Report) -> Participants {
        let drawing = Drawing::of(report);
        let mut parties = drawing.parties();
        join_alike(&mut parties);
        // One more takes no more room than the words for it.
        if parties.len() > SCENES_TOLD + 1 {
            parties.truncate(SCENES_TOLD);
        }
        Participants { parties }
    }

    /// The lines that it would show, by process and by the name that code has for the file.
    pub(crate) fn wanted(&self) -> BTreeMap<(String, String), BTreeSet<u32>> {
        let mut wanted: BTreeMap<(String, String), BTreeSet<u32>> = BTreeMap::new();
        for party in &self.parties {
            for statement in &party.statements {
                if let (Some(file), Some(line)) = (&statement.place.file, statement.line) {
                    wanted.entry((party.process.clone(), file.clone())).or_default().insert(line);
                }
            }
        }
        wanted
    }

    /// The scenes, with the lines of source that were found; `sources` by process.
    pub(crate) fn told(self, sources: &HashMap<String, Vec<SourceLines>>) -> Vec<Participant> {
        let scene = |party: Party| {
            let sources = sources.get(&party.process).map(Vec::as_slice).unwrap_or_default();
            let more = party.threads.len().max(party.names.len()).saturating_sub(1);
            let first = party.names.into_iter().next().unwrap_or_default();
            let who = if more == 0 { first } else { format!("{first} and {more} more") };
            Participant { who, threads: party.threads, places: places(party.statements, sources) }
        };
        self.parties.into_iter().map(scene).collect()
    }
}

/// Statements by their functions; the function of the wait is the last.
fn places(statements: Vec<Statement>, sources: &[SourceLines]) -> Vec<ParticipantPlace> {
    let mut places: Vec<(Place, bool, Vec<Statement>)> = Vec::new();
    let (placed, unplaced): (Vec<_>, Vec<_>) = statements.into_iter().partition(|one| one.place != Place::default());
    for statement in placed {
        let same = |place: &Place| (&place.file, &place.function) == (&statement.place.file, &statement.place.function);
        match places.iter_mut().find(|(place, ..)| same(place)) {
            Some((place, is_wait, of_it)) => {
                // Where it waits is where it is now.
                if statement.is_wait {
                    *place = statement.place.clone();
                }
                *is_wait |= statement.is_wait;
                of_it.push(statement);
            }
            None => places.push((statement.place.clone(), statement.is_wait, vec![statement])),
        }
    }
    places.sort_by_key(|(_, is_wait, _)| *is_wait);
    match places.last_mut() {
        Some((.., of_it)) => of_it.extend(unplaced),
        None if unplaced.is_empty() => {}
        None => places.push((Place::default(), true, unplaced)),
    }
    let told = places.into_iter().map(|(place, _, mut statements)| {
        let source = sources.iter().find(|source| Some(&source.name) == place.file.as_ref());
        statements.sort_by_key(|statement| (statement.is_wait, statement.line));
        let lines: Vec<ParticipantLine> = statements.into_iter().map(|statement| line(statement, source)).collect();
        ParticipantPlace {
            file: source.map(|source| source.path.clone()).or(place.file),
            line: place.line,
            function: place.function,
            changed: source.is_some_and(|source| source.is_newer) && lines.iter().any(|line| line.text.is_some()),
            lines,
        }
    });
    told.collect()
}

fn line(statement: Statement, source: Option<&SourceLines>) -> ParticipantLine {
    let of_line = |number: u32| source?.lines.iter().find(|(known, _)| *known == number).map(|(_, text)| text.clone());
    let text = statement.line.and_then(of_line).filter(|text| !text.trim().is_empty());
    let named_at = text.as_ref().zip(statement.name.as_deref()).and_then(|(text, name)| names(text, name));
    let call = || statement.call.as_deref().and_then(|call| names(text.as_ref()?, call));
    let column = named_at.or_else(call);
    let does = if named_at.is_some() { statement.short } else { statement.long };
    ParticipantLine { line: statement.line, text, does, column }
}

/// Those who do the same are one: threads, which may be in several cycles, or tasks.
fn join_alike(parties: &mut Vec<Party>) {
    let mut counts: HashMap<Vec<String>, BTreeSet<(String, i32, String)>> = HashMap::new();
    for party in parties.iter() {
        let thread = party.threads.first().map(|one| (one.process.clone(), one.tid, String::new()));
        let task = || (party.process.clone(), 0, party.names.first().cloned().unwrap_or_default());
        counts.entry(party.alike.clone()).or_default().insert(thread.unwrap_or_else(task));
    }
    let mut known: HashMap<Vec<String>, usize> = HashMap::new();
    let mut joined: Vec<Party> = Vec::new();
    for party in parties.drain(..) {
        let is_one_of_many = counts.get(&party.alike).is_some_and(|members| members.len() > FEW);
        let first = known.get(&party.alike).filter(|_| is_one_of_many).and_then(|at| joined.get_mut(*at));
        match first {
            Some(first) if party.threads.is_empty() => first.names.extend(party.names),
            Some(first) => {
                let new = party.threads.into_iter().filter(|thread| !first.threads.contains(thread));
                first.threads.extend(new.collect::<Vec<_>>());
            }
            None => {
                known.insert(party.alike.clone(), joined.len());
                joined.push(party);
            }
        }
    }
    *parties = joined;
}

/// Process, thread and resource of a waiter.
type Waiter<'r> = (&'r str, Option<i32>, Option<&'r str>);

/// A report with indices over it.
struct Drawing<'r> {
    report: &'r Report,
    resources: HashMap<&'r str, &'r Resource>,
    holds: HashMap<&'r str, Vec<&'r Hold>>,
    waits: HashMap<Waiter<'r>, Vec<&'r Wait>>,
    threads: HashMap<(&'r str, i32), &'r Thread>,
    processes: HashMap<&'r str, &'r Process>,
    /// How many resources have the same last parts in their names.
    members: HashMap<&'r str, usize>,
}

impl<'r> Drawing<'r> {
    fn of(report: &'r Report) -> Drawing<'r> {
        let mut drawing = Drawing {
            report,
            resources: report.resources.iter().map(|one| (one.id.as_str(), one)).collect(),
            holds: HashMap::new(),
            waits: HashMap::new(),
            threads: HashMap::new(),
            processes: report.processes.iter().map(|one| (one.id.as_str(), one)).collect(),
            members: HashMap::new(),
        };
        for name in report.resources.iter().filter_map(|one| one.parts.name.as_deref()) {
            last_parts(name).for_each(|parts| *drawing.members.entry(parts).or_default() += 1);
        }
        for hold in &report.holds {
            drawing.holds.entry(&hold.resource).or_default().push(hold);
        }
        for wait in &report.waits {
            let waiter = (wait.process.as_str(), wait.tid, wait.waiter_resource.as_deref());
            drawing.waits.entry(waiter).or_default().push(wait);
        }
        for process in &report.processes {
            let threads = process.threads.iter().map(|thread| ((process.id.as_str(), thread.tid), thread));
            drawing.threads.extend(threads);
        }
        drawing
    }

    fn parties(&self) -> Vec<Party> {
        let report = self.report;
        if let [first, more @ ..] = report.cycles.as_slice() {
            let mut parties = self.of_cycle(&first.edges);
            // Further cycles add only participants that do the same as one of the first cycle.
            let known: BTreeSet<Vec<String>> = parties.iter().map(|party| party.alike.clone()).collect();
            let others = more.iter().flat_map(|cycle| self.of_cycle(&cycle.edges));
            parties.extend(others.filter(|party| known.contains(&party.alike)));
            return parties;
        }
        if report.verdict == Verdict::OrphanedLock {
            let parties = self.of_orphans();
            if !parties.is_empty() {
                return parties;
            }
        }
        let grave = report.findings.first().filter(|finding| finding.severity != Severity::Note);
        let about_tasks = grave.filter(|finding| finding.threads.is_empty());
        let things = about_tasks.map_or(&report.awaited, |finding| &finding.resources);
        let tasks: Vec<Party> = self.of_tasks(things);
        if !tasks.is_empty() {
            return tasks;
        }
        let mut threads: Vec<(&str, i32)> =
            grave.iter().flat_map(|finding| &finding.threads).map(|one| (one.process.as_str(), one.tid)).collect();
        let mut resources: Vec<String> = grave.map(|one| one.resources.clone()).unwrap_or_default();
        if threads.is_empty() {
            threads.extend(report.foremost.iter().map(|one| (one.process.as_str(), one.tid)));
            let waits = threads.iter().flat_map(|(process, tid)| self.waits.get(&(*process, Some(*tid), None)));
            resources.extend(waits.flatten().map(|wait| wait.resource.clone()));
        }
        if threads.is_empty() {
            threads.extend(self.foremost());
        }
        threads.into_iter().filter_map(|(process, tid)| self.of_thread(process, tid, &resources)).collect()
    }

    /// The tasks that have units of these resources, and those that wait for one of them.
    fn of_tasks(&self, resources: &'r [String]) -> Vec<Party> {
        let of_these = resources.iter().flat_map(|id| self.holds.get(id.as_str()).into_iter().flatten());
        let taken: Vec<&Hold> =
            of_these.copied().filter(|hold| hold.holder_resource.is_some() && hold.taken.is_some()).collect();
        let waits = || self.report.waits.iter().filter(|wait| wait.waiter_resource.is_some());
        let is_awaited = |wait: &&Wait| resources.contains(&wait.resource);
        let has = |hold: &Hold, wait: &Wait| hold.holder_resource == wait.waiter_resource;
        // A task that waits for several others is named once.
        let mut named = BTreeSet::new();
        let holders = waits().filter(|wait| !is_awaited(wait) && taken.iter().any(|hold| has(hold, wait)));
        let holders: Vec<&Wait> = holders.filter(|wait| named.insert(&wait.waiter_resource)).collect();
        let party = |wait: &'r Wait| {
            let own = taken.iter().filter(|hold| has(hold, wait));
            let mut statements: Vec<Statement> = own.map(|hold| self.hold(hold)).collect();
            statements.push(self.waited(wait, None));
            let mut alike = vec![self.general(&wait.resource)];
            alike.extend(statements.iter().map(|one| format!("{:?} {:?}", one.place, one.line)));
            let who = self.party_name(&wait.process, None, wait.waiter_resource.as_deref());
            self.party(who, &wait.process, None, statements, alike)
        };
        holders.into_iter().chain(waits().filter(is_awaited)).map(party).collect()
    }

    /// For a process in which nothing is wrong: its main thread, or one that runs.
    fn foremost(&self) -> Option<(&'r str, i32)> {
        let process = self.report.processes.first()?;
        let runs = |thread: &&Thread| {
            thread.state == crate::report::ThreadState::Running
                && !self.waits.contains_key(&(process.id.as_str(), Some(thread.tid), None))
        };
        let running = process.threads.iter().find(runs).filter(|_| self.report.verdict == Verdict::Running);
        let main = process.threads.iter().find(|thread| thread.tid == process.pid);
        running.or(main).map(|thread| (process.id.as_str(), thread.tid))
    }

    fn of_cycle(&self, edges: &'r [Edge]) -> Vec<Party> {
        let before = |position: usize| edges.get((position + edges.len() - 1) % edges.len().max(1));
        let party = |(position, edge): (usize, &'r Edge)| {
            let wait = self.wait_of(edge);
            let resource = edge.waiter_resource.as_deref();
            let mut statements = Vec::new();
            let mut alike = Vec::new();
            let held = before(position).map(|before| (before, self.hold_of(before)));
            // A waiter that is no thread shows its hold only if it took it at a line, as a task does. Otherwise it is
            // only waited for.
            if let Some((before, hold)) =
                held.filter(|(_, hold)| resource.is_none() || hold.is_some_and(|hold| hold.taken.is_some()))
            {
                alike.push(self.general(&before.resource));
                // If the resource is no lock, its waiter names the one that has to give it.
                let held = self.held(hold, before);
                if self.kind(&before.resource) == Holding::Holds || held.line.is_some() {
                    statements.push(held);
                }
            }
            alike.push(self.general(&edge.resource));
            let of_holder = edge.holder_resource.as_deref();
            let holder = self.party_seen_from(&edge.process, &edge.holder_process, edge.holder, of_holder);
            let is_itself =
                edge.waiter.is_some() && (edge.waiter, &edge.process) == (edge.holder, &edge.holder_process);
            let is_lock =
                self.resources.get(edge.resource.as_str()).is_none_or(|one| one.properties().holding == Holding::Holds);
            let holders = match (is_itself, is_lock) {
                (true, true) => "itself".to_owned(),
                (true, false) => "this thread itself".to_owned(),
                (false, _) => holder,
            };
            statements.push(match wait {
                Some(wait) => self.waited(wait, Some(holders)),
                None => self.unplaced(format!("waits for {}", self.name(&edge.resource))),
            });
            alike.extend(statements.iter().map(|one| format!("{:?} {:?}", one.place, one.line)));
            let who = self.party_name(&edge.process, edge.waiter, resource);
            if edge.waiter.is_none() {
                alike.push(who.clone());
            }
            self.party(who, &edge.process, edge.waiter, statements, alike)
        };
        edges.iter().enumerate().map(party).collect()
    }

    /// The waiters for an owner that is gone, then that owner.
    fn of_orphans(&self) -> Vec<Party> {
        let lost: Vec<&Hold> = self.report.holds.iter().filter(|hold| hold.gone.is_some()).collect();
        let mut parties = Vec::new();
        for hold in &lost {
            let why = match hold.gone {
                Some(Gone::LeftInParent) => "which is only in the parent",
                Some(Gone::ProcessDead) => "whose process is dead",
                Some(Gone::Exited) | None => "which has exited",
            };
            let owner = self.owner(hold);
            for wait in self.report.waits.iter().filter(|wait| wait.resource == hold.resource) {
                let statement = self.waited(wait, Some(format!("{owner}, {why}")));
                let mut alike =
                    vec![self.general(&wait.resource), format!("{:?} {:?}", statement.place, statement.line)];
                let who = self.party_name(&wait.process, wait.tid, wait.waiter_resource.as_deref());
                if wait.tid.is_none() {
                    alike.push(who.clone());
                }
                parties.push(self.party(who, &wait.process, wait.tid, vec![statement], alike));
            }
            if let Some(taken) = &hold.taken {
                let name = self.name(&hold.resource);
                let when = if hold.gone == Some(Gone::LeftInParent) { "at the fork" } else { "when it ended" };
                let statement = Statement {
                    place: taken_in(taken),
                    line: Some(taken.line),
                    name: self.source_name(&hold.resource),
                    call: None,
                    long: format!("held {name} {when}"),
                    short: format!("held it {when}"),
                    is_wait: false,
                };
                let who = format!("{owner}, {why}");
                let alike = vec![name, "lost".into(), who.clone()];
                parties.push(self.party(who, &hold.process, None, vec![statement], alike));
            }
        }
        parties
    }

    /// The holds of a thread among these resources, and its wait; or that it runs.
    fn of_thread(&self, process: &'r str, tid: i32, resources: &[String]) -> Option<Party> {
        let thread = self.threads.get(&(process, tid))?;
        let is_own = |hold: &&&Hold| hold.process == process && hold.tid == Some(tid) && hold.gone.is_none();
        let of_resources = resources.iter().flat_map(|id| self.holds.get(id.as_str()).into_iter().flatten());
        // That a thread holds itself, for those who join it, is not shown.
        let of_resources = of_resources.filter(|hold| self.kind(&hold.resource) != Holding::Is);
        let held = of_resources.filter(is_own).map(|hold| (*hold, self.hold(hold)));
        let (holds, mut statements): (Vec<&Hold>, Vec<Statement>) = held.unzip();
        let waits = self.waits.get(&(process, Some(tid), None)).map(Vec::as_slice).unwrap_or_default();
        match waits {
            [] => {
                let place = self.place(thread, &thread.at, None);
                let does =
                    if self.report.verdict == Verdict::Running { "runs" } else { thread.state.as_str() }.to_owned();
                let line = place.line;
                statements.push(Statement { place, line, ..self.unplaced(does) });
            }
            [wait, more @ ..] => {
                let mut statement = self.waited(wait, None);
                if !more.is_empty() {
                    let others = format!(", or for {} more", more.len());
                    statement.long += &others;
                    statement.short += &others;
                }
                statements.push(statement);
            }
        }
        let mut alike: Vec<String> = holds.iter().map(|hold| self.general(&hold.resource)).collect();
        alike.extend(waits.iter().map(|wait| self.general(&wait.resource)));
        alike.extend(statements.iter().map(|one| format!("{:?} {:?}", one.place, one.line)));
        let who = self.party_name(process, Some(tid), None);
        Some(self.party(who, process, Some(tid), statements, alike))
    }

    fn party(
        &self,
        who: String,
        process: &str,
        tid: Option<i32>,
        statements: Vec<Statement>,
        mut alike: Vec<String>,
    ) -> Party {
        alike.push(process.to_owned());
        let threads = tid.map(|tid| ThreadReference { process: process.to_owned(), tid });
        Party {
            names: vec![who],
            threads: threads.into_iter().collect(),
            process: process.to_owned(),
            statements,
            alike,
        }
    }

    fn unplaced(&self, does: String) -> Statement {
        let place = Place::default();
        Statement { place, line: None, name: None, call: None, long: does.clone(), short: does, is_wait: true }
    }

    /// The statement about the resource that the edge before waits for, and the waiter of this edge has.
    fn held(&self, hold: Option<&'r Hold>, before: &'r Edge) -> Statement {
        match hold {
            Some(hold) => self.hold(hold),
            None => Statement { is_wait: false, ..self.unplaced(self.holding(&before.resource)) },
        }
    }

    fn hold(&self, hold: &'r Hold) -> Statement {
        let mode = hold.mode.as_ref().map(|mode| format!(" ({mode})")).unwrap_or_default();
        let kind = self.kind(&hold.resource);
        let thread = hold.tid.and_then(|tid| self.threads.get(&(hold.process.as_str(), tid)));
        let now = thread.map(|thread| self.place(thread, &hold.at, None)).unwrap_or_default();
        let (place, line) = match &hold.taken {
            Some(taken) => (taken_in(taken), Some(taken.line)),
            // If a library took something for the program, the place of the wait is shown.
            None if kind != Holding::Holds => (Place::default(), None),
            None => (now, None),
        };
        let task = hold.taken.as_ref().and_then(|taken| taken.task.as_deref());
        let suspended = hold.taken.as_ref().and_then(|taken| taken.suspended_at.as_deref());
        let suspended = suspended.map(|at| format!(" at {at}")).unwrap_or_default();
        let task = task.map(|task| format!(", in task {task}, which is suspended{suspended}")).unwrap_or_default();
        let ago = since(hold.since_ms).map(|since| format!(" (for {since})")).unwrap_or_default() + &task;
        let name = self.name(&hold.resource);
        // Taken by code that gives it back later, though any thread may give one back.
        let has_unit = hold.taken.is_some() && self.topic(&hold.resource) == Some(Topic::Units);
        let long = match hold.certainty {
            Certainty::Candidate if kind == Holding::Holds && has_unit => format!("has a unit of {name}"),
            Certainty::Candidate => kind.possibly(&name, hold.taken.is_some()) + &mode,
            _ => format!("{}{mode}{ago}", self.holding(&hold.resource)),
        };
        let short = match (kind, hold.certainty) {
            (Holding::Holds, Certainty::Candidate) if has_unit => "has a unit of it".to_owned(),
            (Holding::Holds, Certainty::Candidate) => format!("may hold it{mode}"),
            (Holding::Holds, _) => format!("holds it{mode}{ago}"),
            _ => long.clone(),
        };
        Statement { place, line, name: self.source_name(&hold.resource), call: None, long, short, is_wait: false }
    }

    /// A wait; `holder` is the holder of the awaited resource, if known.
    fn waited(&self, wait: &'r Wait, holder: Option<String>) -> Statement {
        let thread = wait.tid.and_then(|tid| self.threads.get(&(wait.process.as_str(), tid)));
        let place = match (thread, &wait.place) {
            (Some(thread), _) => self.place(thread, &wait.at, wait.callback),
            (None, Some(place)) => taken_in(place),
            (None, None) => Place::default(),
        };
        let resource = self.resources.get(wait.resource.as_str());
        let kind = resource.map_or(Holding::Holds, |one| one.properties().holding);
        let work = resource.and_then(|one| one.parts.function.as_deref());
        let by = match holder {
            Some(holder) => kind.by(&holder, work),
            None => self.holders(wait).and_then(|(holder, is_thing)| match is_thing {
                true => kind.by_thing(&holder, work),
                false => kind.by(&holder, work),
            }),
        };
        let name = self.name(&wait.resource);
        // A connection's label names who has its other end.
        let is_named = |by: &String| {
            let who = by.strip_prefix("other end open in ").filter(|_| kind == Holding::OtherEnd);
            who.is_some_and(|who| {
                name.ends_with(&format!("({who})")) || name.ends_with(')') && who.contains("not captured")
            })
        };
        let by = by.filter(|by| !is_named(by)).map(|by| format!(", {by}")).unwrap_or_default();
        let (verb, so_far) = match since(wait.since_ms) {
            Some(since) => (format!("waiting for {since}"), format!(" ({since} so far)")),
            None => ("waits".to_owned(), String::new()),
        };
        let mode = wait.mode.as_ref().filter(|_| !resource.is_some_and(|one| one.is_gil()));
        let mode = mode.map(|mode| format!(" ({mode})")).unwrap_or_default();
        let timed = match (wait.timed, wait.retried) {
            (true, _) => " (with a time-out)",
            (false, true) => " (again after each time-out)",
            (false, false) => "",
        };
        let known = thread.and_then(|thread| known_call(thread, &wait.at));
        let call = known.map(|call| format!(" in {call}")).unwrap_or_default();
        let called = thread.and_then(|thread| thread.frames.get(wait.at.call?)?.function.as_deref());
        Statement {
            call: called.map(|function| member(&short_function(function)).to_owned()),
            line: place.line,
            place,
            name: self.source_name(&wait.resource),
            long: format!("waits for {name}{mode}{timed}{call}{so_far}{by}"),
            short: format!("{verb}{mode}{timed}{by}"),
            is_wait: true,
        }
    }

    /// The holders of the awaited resource, and whether these are things, not threads.
    fn holders(&self, wait: &Wait) -> Option<(String, bool)> {
        let holds = self.holds.get(wait.resource.as_str())?;
        let certain: Vec<_> = holds.iter().filter(|hold| hold.certainty > Certainty::Candidate).collect();
        let are_things = certain.iter().all(|hold| hold.holder_resource.is_some());
        let name = |hold: &&&Hold| match hold.gone {
            Some(_) => self.owner(hold),
            None if hold.not_captured => match hold.tid {
                Some(pid) => format!("process {pid}, which was not captured"),
                None => "a process that was not captured".to_owned(),
            },
            None => self.party_seen_from(&wait.process, &hold.process, hold.tid, hold.holder_resource.as_deref()),
        };
        let names: Vec<String> = certain.iter().map(name).collect();
        let shown = names.iter().take(HOLDERS_NAMED).cloned().collect::<Vec<_>>().join(" and ");
        match names.len().saturating_sub(HOLDERS_NAMED) {
            _ if names.is_empty() => None,
            0 => Some((shown, are_things)),
            more => Some((format!("{shown} and {more} more"), are_things)),
        }
    }

    fn owner(&self, hold: &Hold) -> String {
        hold.tid.map_or_else(|| "its owner".to_owned(), |tid| format!("thread {tid}"))
    }

    /// A party beside one of process `from`: a thread of the same process is called without its process.
    fn party_seen_from(&self, from: &str, process: &str, tid: Option<i32>, resource: Option<&str>) -> String {
        self.named_party(process, tid, resource, process != from)
    }

    fn party_name(&self, process: &str, tid: Option<i32>, resource: Option<&str>) -> String {
        self.named_party(process, tid, resource, true)
    }

    fn named_party(&self, process: &str, tid: Option<i32>, resource: Option<&str>, with_process: bool) -> String {
        let several = self.report.processes.len() > 1 && with_process;
        let program = |process: &Process| {
            let path = process.exe.as_deref().or(process.cmdline.first().map(String::as_str));
            format!("{} {}", path.map_or("process", base_name), process.pid)
        };
        let of = self.processes.get(process).map(|process| program(process));
        match (tid, resource) {
            (Some(tid), _) => {
                let name =
                    self.threads.get(&(process, tid)).map(|thread| thread.name.trim()).filter(|name| !name.is_empty());
                let own = name.map_or_else(|| format!("thread {tid}"), |name| format!("{name} ({tid})"));
                match of.filter(|_| several) {
                    Some(of) => format!("{of}: {own}"),
                    None => own,
                }
            }
            (None, Some(resource)) => self.name(resource),
            (None, None) => of.unwrap_or_else(|| format!("process {process}")),
        }
    }

    /// The program's frame that matters for a call.
    fn place(&self, thread: &Thread, site: &CallSite, callback: Option<Callback>) -> Place {
        let frame = |index: usize| thread.frames.get(index);
        let called_back = callback.and_then(|callback| callback.frame).and_then(frame);
        let sites = || [site.call, site.caller].into_iter().flatten().filter_map(frame);
        let own = || sites().find(|frame| frame.belongs_to.is_none() && frame.line.is_some());
        let of_program = || sites().find(|frame| frame.belongs_to.is_none());
        let Some(frame) = called_back.or_else(own).or_else(of_program).or_else(|| sites().next_back()) else {
            return Place::default();
        };
        Place { file: frame.file.clone(), line: frame.line, function: function(frame) }
    }

    /// A holder's relation to it.
    fn kind(&self, id: &str) -> Holding {
        self.resources.get(id).map_or(Holding::Holds, |one| one.properties().holding)
    }

    fn topic(&self, id: &str) -> Option<Topic> {
        self.resources.get(id).map(|one| one.properties().topic)
    }

    fn name(&self, id: &str) -> String {
        self.resources.get(id).map_or_else(|| format!("resource {id}"), |one| one.called_shortly().to_string())
    }

    fn general(&self, id: &str) -> String {
        self.resources.get(id).map_or_else(|| id.to_owned(), |one| one.called_in_general().to_string())
    }

    fn holding(&self, id: &str) -> String {
        match self.resources.get(id) {
            Some(one) => one.properties().holding.held(&one.called_shortly()),
            None => format!("holds resource {id}"),
        }
    }

    /// Its name in a line of source: the last parts that no other lock's name ends with. `_lock` if it is the only lock of
    /// that name, else `Cache._lock`.
    fn source_name(&self, id: &str) -> Option<String> {
        let name = self.resources.get(id)?.parts.name.as_deref()?;
        let is_one = |parts: &&str| self.members.get(parts).is_none_or(|count| *count == 1);
        Some(last_parts(name).find(is_one).unwrap_or(name).to_owned())
    }

    fn wait_of(&self, edge: &'r Edge) -> Option<&'r Wait> {
        let waiter = (edge.process.as_str(), edge.waiter, edge.waiter_resource.as_deref());
        self.waits.get(&waiter)?.iter().find(|wait| wait.resource == edge.resource).copied()
    }

    fn hold_of(&self, edge: &Edge) -> Option<&'r Hold> {
        let holds = self.holds.get(edge.resource.as_str())?;
        holds.iter().copied().find(|hold| {
            let of_edge = (&edge.holder_process, edge.holder, &edge.holder_resource);
            (&hold.process, hold.tid, &hold.holder_resource) == of_edge
        })
    }
}

fn taken_in(taken: &TakenAt) -> Place {
    let function = Some(short_function(&taken.function));
    Place { file: Some(taken.file.clone()), line: Some(taken.line), function }
}

/// Where a line of source has this name in it, as a whole: `_lock` is in `with self._lock:`, and `lock` is not. C and C++ write
/// `queue->guard` for `queue.guard`, too.
fn names(text: &str, name: &str) -> Option<usize> {
    has_whole(text, name).or_else(|| has_whole(text, &name.replace('.', "->")).filter(|_| name.contains('.')))
}

fn has_whole(text: &str, name: &str) -> Option<usize> {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = text.match_indices(name).filter(|(at, _)| {
        let before = text.get(..*at).and_then(|before| before.chars().next_back());
        let behind = text.get(*at + name.len()..).and_then(|behind| behind.chars().next());
        !before.is_some_and(is_letter) && !behind.is_some_and(is_letter)
    });
    found.next().map(|(at, _)| at).filter(|_| !name.is_empty())
}

/// `guard`, `queue.guard` and `service.queue.guard` of the last; `CONFIG` of `app::CONFIG`.
fn last_parts(name: &str) -> impl Iterator<Item = &str> {
    let starts = name.rmatch_indices(['.', ':']).map(|(at, _)| at + 1).chain([0]);
    // Between the two colons there is no name.
    starts.filter_map(|start| name.get(start..)).filter(|parts| !parts.is_empty() && !parts.starts_with(':'))
}

/// `_lock` of `Cache._lock`.
fn member(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// How long a wait lasts, if it is no mere moment: `12.3 s`, `5 min`.
fn since(milliseconds: Option<u64>) -> Option<String> {
    let milliseconds = milliseconds?;
    match milliseconds / 1000 {
        0 => None,
        seconds @ 1..120 => Some(format!("{seconds}.{} s", milliseconds % 1000 / 100)),
        seconds @ 120..7200 => Some(format!("{} min", seconds / 60)),
        seconds => Some(format!("{} h", seconds / 3600)),
    }
}

/// The call of a library that a program calls by name and whose line of source may not name it.
fn known_call(thread: &Thread, site: &CallSite) -> Option<String> {
    let frame = thread.frames.get(site.call?)?;
    let is_known = matches!(frame.library, Some(Library::Cuda | Library::Nccl | Library::Python));
    frame.function.as_deref().filter(|_| is_known && site.caller.is_some()).map(short_function)
}

fn function(frame: &Frame) -> Option<String> {
    if let Some(function) = &frame.function {
        return Some(short_function(function));
    }
    let module = base_name(frame.module.as_deref()?);
    Some(frame.module_offset.as_ref().map_or_else(|| module.to_owned(), |offset| format!("{module}+{offset}")))
}
