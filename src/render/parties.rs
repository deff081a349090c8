//! The participants: holds and waits of each party by number, and the evidence for each edge.
//!
//! In: a [`View`]. Out: [`Parties`]: for a cycle its members; for a lost owner the waiters and what is known of the owner; else
//! the threads of the first finding. Neither escapes nor lays out anything.

use std::collections::HashMap;

use super::known_how;
use super::view::{Key, View, lost_owner};
use crate::report::{Certainty, Edge, Gone, Hold, Proof, Severity, Wait, evidence};

/// Parties of a report without a cycle.
const MOST: usize = 10;
/// At most this many members of a cycle are listed one by one.
const MEMBERS: usize = 16;

/// `holds X in CALL` or `waits for X in CALL`.
pub(super) struct Statement {
    pub(super) what: String,
    pub(super) call: Option<String>,
}

/// One of those who wait for each other.
pub(super) struct Party<'a> {
    pub(super) name: String,
    pub(super) thread: Option<Key<'a>>,
    pub(super) statements: Vec<Statement>,
}

/// How it is known that one party waits for another.
pub(super) struct EdgeLine {
    pub(super) from: usize,
    pub(super) to: Option<usize>,
    pub(super) evidence: String,
    /// In a word or two.
    pub(super) known_how: &'static str,
}

/// The numbered parties and the edges between them.
pub(super) struct Parties<'a> {
    pub(super) parties: Vec<Party<'a>>,
    pub(super) edges: Vec<EdgeLine>,
    /// The sentence about members that are not listed one by one.
    more: Option<String>,
    /// Participating threads, listed or not.
    members: Vec<Key<'a>>,
}

/// The name of an edge's waiter.
pub(super) fn waiter_name(view: &View, edge: &Edge) -> String {
    match (edge.waiter, &edge.waiter_resource) {
        (None, Some(resource)) => view.resource_name(resource),
        (tid, _) => view.party_name(&edge.process, tid),
    }
}

impl<'a> Parties<'a> {
    /// The parties of the report behind `view`.
    pub(super) fn of(view: &View<'a>) -> Parties<'a> {
        let mut parties = Parties { parties: Vec::new(), edges: Vec::new(), more: None, members: Vec::new() };
        let report = view.report;
        if let Some(cycle) = report.cycles.first() {
            parties.add_cycle(view, &cycle.edges);
            let edges = report.cycles.iter().flat_map(|cycle| &cycle.edges);
            parties.members.extend(edges.filter_map(waiting_thread));
        } else if report.holds.iter().any(|hold| hold.gone.is_some()) && report.verdict.exit_code() != 0 {
            parties.add_orphans(view);
        }
        if parties.is_empty() {
            parties.add_finding(view);
        }
        parties
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parties.is_empty()
    }

    /// All participating threads, also those that are not listed one by one, and the members of other cycles.
    pub(super) fn members(&self) -> impl Iterator<Item = Key<'a>> {
        self.members.iter().copied()
    }

    /// Threads among the listed parties.
    pub(super) fn told(&self) -> impl Iterator<Item = Key<'a>> {
        self.parties.iter().filter_map(|party| party.thread)
    }

    /// "and 484 more members of the cycle: ...".
    pub(super) fn more(&self) -> Option<&str> {
        self.more.as_deref()
    }

    fn add_cycle(&mut self, view: &View<'a>, edges: &'a [Edge]) {
        let told = if edges.len() > MEMBERS + 1 { MEMBERS } else { edges.len() };
        self.more = match edges.len() - told {
            0 => None,
            // One more member takes no more room than this sentence, so the sentence is about two at least.
            count => Some(format!(
                "and {count} more members of the cycle: each waits for what the next one has, and the last one for what 1 has"
            )),
        };
        for (index, edge) in edges.iter().take(told).enumerate() {
            let before = &edges[(index + edges.len() - 1) % edges.len()];
            let wait = wait_of(view, edge);
            let hold = hold_of(view, before);
            let mut statements = Vec::new();
            statements.push(match hold {
                Some(hold) => Statement { what: view.hold_statement(hold), call: view.hold_call(hold) },
                None => Statement { what: view.held(&before.resource), call: None },
            });
            statements.push(match wait {
                Some(wait) => Statement { what: view.wait_statement(wait), call: view.wait_call(wait) },
                None => Statement { what: format!("waits for {}", view.resource_name(&edge.resource)), call: None },
            });
            self.parties.push(Party { name: waiter_name(view, edge), thread: waiting_thread(edge), statements });
            self.edges.push(edge_line(index, Some((index + 1) % edges.len()), wait, hold_of(view, edge)));
        }
    }

    /// Waiters first, then the owners that are gone.
    fn add_orphans(&mut self, view: &View<'a>) {
        let lost: Vec<&'a Hold> = view.report.holds.iter().filter(|hold| hold.gone.is_some()).collect();
        let lost: HashMap<&str, &'a Hold> = lost.into_iter().rev().map(|hold| (hold.resource.as_str(), hold)).collect();
        let of_lost = |wait: &'a Wait| Some((wait, *lost.get(wait.resource.as_str())?));
        let mut waits: Vec<(&'a Wait, &'a Hold)> = view.report.waits.iter().filter_map(of_lost).collect();
        self.members.extend(waits.iter().filter_map(|(wait, _)| Some((wait.process.as_str(), wait.tid?))));
        self.more = match waits.len().saturating_sub(MOST) {
            0 => None,
            1 => Some("and 1 more waits for the same".to_owned()),
            count => Some(format!("and {count} more wait for the same")),
        };
        waits.truncate(MOST);
        for (wait, _) in &waits {
            self.parties.push(Party {
                name: view.party_name(&wait.process, wait.tid),
                thread: wait.tid.map(|tid| (wait.process.as_str(), tid)),
                statements: vec![Statement { what: view.wait_statement(wait), call: view.wait_call(wait) }],
            });
        }
        let mut owners: Vec<&str> = Vec::new();
        for (_, hold) in &waits {
            if owners.contains(&hold.resource.as_str()) {
                continue;
            }
            owners.push(&hold.resource);
            let why = match hold.gone {
                Some(Gone::LeftInParent) => "left behind in the parent by fork",
                Some(Gone::ProcessDead) => "its process is dead",
                Some(Gone::Exited) | None => "exited",
            };
            self.parties.push(Party {
                name: lost_owner(hold),
                thread: None,
                statements: vec![Statement { what: format!("{} ({why})", view.hold_statement(hold)), call: None }],
            });
        }
        for (index, (wait, hold)) in waits.iter().enumerate() {
            let owner = owners.iter().position(|resource| *resource == hold.resource);
            self.edges.push(edge_line(index, owner.map(|owner| waits.len() + owner), Some(wait), Some(hold)));
        }
    }

    /// The threads of the first grave finding, with what they hold of it and what they wait for.
    fn add_finding(&mut self, view: &View<'a>) {
        let Some(finding) = view.report.findings.first().filter(|finding| finding.severity != Severity::Note) else {
            return;
        };
        self.members.extend(finding.threads.iter().map(|one| (one.process.as_str(), one.tid)));
        self.more = match finding.threads.len().saturating_sub(MOST) {
            0 => None,
            1 => Some("and 1 more thread".to_owned()),
            count => Some(format!("and {count} more threads")),
        };
        for reference in finding.threads.iter().take(MOST) {
            let (process, tid) = (reference.process.as_str(), reference.tid);
            let holds: Vec<&Hold> = finding
                .resources
                .iter()
                .flat_map(|resource| view.holds_of(resource))
                .copied()
                .filter(|hold| hold.process == process && hold.tid == Some(tid))
                .collect();
            let mut statements: Vec<Statement> = holds
                .iter()
                .map(|hold| Statement { what: view.hold_statement(hold), call: view.hold_call(hold) })
                .collect();
            for wait in view.waits_of(process, tid) {
                statements.push(Statement { what: view.wait_statement(wait), call: view.wait_call(wait) });
                let to = finding.threads.iter().take(MOST).position(|other| {
                    view.holds_of(&wait.resource)
                        .iter()
                        .any(|hold| hold.process == other.process && hold.tid == Some(other.tid))
                });
                let hold = to.and_then(|to| {
                    let other = &finding.threads[to];
                    let mut holds = view.holds_of(&wait.resource).iter().copied();
                    holds.find(|hold| hold.process == other.process && hold.tid == Some(other.tid))
                });
                self.edges.push(edge_line(self.parties.len(), to, Some(wait), hold));
            }
            if statements.is_empty() {
                let thread = view.thread(process, tid);
                statements.push(Statement {
                    what: thread.map(|thread| thread.state.as_str().to_owned()).unwrap_or_default(),
                    call: thread.and_then(|thread| view.where_is(thread)),
                });
            }
            let thread = Some((process, tid));
            self.parties.push(Party { name: view.thread_name(process, tid), thread, statements });
        }
    }
}

fn waiting_thread(edge: &Edge) -> Option<Key<'_>> {
    edge.waiter.map(|tid| (edge.process.as_str(), tid))
}

/// The wait behind an edge.
fn wait_of<'a>(view: &View<'a>, edge: &Edge) -> Option<&'a Wait> {
    view.report.waits.iter().find(|wait| {
        wait.process == edge.process
            && wait.tid == edge.waiter
            && wait.waiter_resource == edge.waiter_resource
            && wait.resource == edge.resource
    })
}

/// The hold behind an edge.
fn hold_of<'a>(view: &View<'a>, edge: &Edge) -> Option<&'a Hold> {
    let holds = view.holds_of(&edge.resource);
    holds.iter().copied().find(|hold| hold.process == edge.holder_process && hold.tid == edge.holder)
}

fn edge_line(from: usize, to: Option<usize>, wait: Option<&Wait>, hold: Option<&Hold>) -> EdgeLine {
    let evidence = evidence(wait, hold);
    let wait = wait.map(|wait| (wait.certainty, wait.proof));
    let hold = hold.map(|hold| (hold.certainty, hold.proof));
    // The weaker of the two.
    let (certainty, proof) = wait.into_iter().chain(hold).min().unwrap_or((Certainty::Candidate, Proof::Absence));
    let known_how = match (to, known_how(certainty, proof)) {
        // That nobody is left is known by absence, as the heading says.
        (None, "recorded") => "the wait is recorded",
        (_, known) => known,
    };
    EdgeLine { from, to, evidence, known_how }
}
