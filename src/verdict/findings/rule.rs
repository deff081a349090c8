//! The shape of a finding's rule, and what many rules ask.
//!
//! In: the judged sample ([`Context`]). Out: drafts of findings about cycles, lost owners and waits without end, and
//! answers about the frames of their parties. Each finding imports this file. It knows no finding.

use crate::graph::{Cycle, CycleEdge};
use crate::limits::verdict::{NAMED_IN_A_TITLE, OUTERMOST_FRAMES};
use crate::origin::OriginKind;
use crate::report::Severity;
use crate::threads::{Frame, FrameKind};
use crate::verdict::names::{is_driver_function, source_line};
use crate::verdict::summary;
use crate::waits::kinds::{Kind, Topic};
use crate::waits::model::Role;
use crate::waits::{Gone, Party, ResourceKey, WakeSource, Waker};

pub(super) use super::explanation::{Example, Requirement};
use super::explanation::{Explanation, parse};
pub(super) use crate::verdict::Orphan;
pub(super) use crate::verdict::context::{Context, Draft};

/// One finding: its texts and its rule.
pub(super) struct Rule {
    /// Its name in the JSON contract.
    pub(super) code: &'static str,
    /// How bad it is.
    pub(super) severity: Severity,
    /// The text beside the rule, as [`super::explanation`] reads it.
    pub(super) explanation: &'static str,
    /// A program that hangs so.
    pub(super) example: Example,
    /// Recognises it in a judged sample.
    pub(super) rule: fn(&Context<'_>) -> Vec<Draft>,
}

impl Rule {
    /// Its text, and what is wrong with that.
    pub(super) fn read(&self) -> (Explanation, Vec<String>) {
        parse(self.code, self.severity, self.example, self.explanation)
    }
}

/// A function that the driver called back.
pub(super) struct Callback {
    /// `its callback <lambda> at compiler.py:288`.
    pub(super) function: String,
    /// The entry point that called it.
    pub(super) api: String,
}

/// The Python function that a function of CPython called, and the position of the caller's frame. `callers` are beginnings
/// of names of CPython's functions, without underscores.
pub(super) fn called_by(frames: &[Frame], callers: &[&str]) -> Option<(usize, String)> {
    let calls = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default().trim_start_matches('_');
        frame.kind == FrameKind::Native && callers.iter().any(|caller| name.starts_with(caller))
    };
    let caller = frames.iter().position(calls)?;
    let called = frames[..caller].iter().rfind(|frame| frame.kind == FrameKind::Python)?;
    Some((caller, called.function.as_deref()?.to_owned()))
}

/// Whether a frame is the C library's.
pub(super) fn is_libc(frame: &Frame) -> bool {
    frame.origin.kind == OriginKind::CLibrary
}

impl Context<'_> {
    pub(super) fn cycle_drafts(&self, is: impl Fn(&Cycle) -> bool) -> Vec<Draft> {
        let cycles = self.cycles.iter().enumerate().filter(|(_, cycle)| is(cycle));
        cycles
            .map(|(position, cycle)| {
                let mut message = summary::cycle_sentence(self, cycle);
                if cycle.timed {
                    message += " A wait in this cycle has a time-out: it ends by itself, and may begin again.";
                }
                if let Some(request) = self.request_that_ends(cycle) {
                    message += &format!(" It is not proven, since {request}.");
                }
                Draft {
                    cycle: Some(position),
                    title: None,
                    message,
                    parties: cycle.parties().collect(),
                    resources: cycle.edges.iter().map(|edge| edge.resource.clone()).collect(),
                    help: Vec::new(),
                    first_help: None,
                }
            })
            .collect()
    }

    /// An event that ends a wait of a cycle once it is requested, as the handler of a signal.
    fn request_that_ends(&self, cycle: &Cycle) -> Option<&str> {
        let mut sources = self.input.observations.wake_sources.iter().filter(|source| source.by == Waker::OnRequest);
        let ends = |source: &&WakeSource| {
            cycle.edges.iter().any(|edge| edge.resource == source.resource && source.is_for(&edge.waiter))
        };
        sources.find(ends).map(|source| source.what.as_str())
    }

    /// The things of a cycle in a title: "`inventory.lock` and `billing.lock`", "16 locks".
    pub(super) fn things_of(&self, cycle: &Cycle) -> String {
        let mut keys: Vec<&ResourceKey> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for key in cycle.edges.iter().map(|edge| &edge.resource) {
            let name = self.names.bare(key);
            // Locks of two processes may have one name.
            let is_another = names.contains(&name) && !key.address.is_null() && !keys.contains(&key);
            if is_another {
                names.push(format!("{name} ({})", key.address));
            } else if !names.contains(&name) {
                names.push(name);
            }
            keys.push(key);
        }
        let are_nameless = cycle.edges.iter().all(|edge| self.names.label(&edge.resource).name.is_none());
        if let (Some(first), true) = (cycle.edges.first(), are_nameless && names.len() > 1) {
            let noun = self.names.label(&first.resource).noun;
            let is_one_kind = cycle.edges.iter().all(|edge| edge.resource.kind == first.resource.kind);
            // The nouns of semaphores in a set have their numbers.
            let is_one_noun = cycle.edges.iter().all(|edge| self.names.label(&edge.resource).noun == noun);
            match (is_one_kind, is_one_noun) {
                (false, _) => return format!("{} locks", names.len()),
                (true, true) => return format!("{} {}", names.len(), several(&noun)),
                (true, false) => {}
            }
        }
        // In the order in which the first one takes them: what it has, then what it waits for.
        names.rotate_right(1);
        match names.as_slice() {
            [first, middle @ .., last] if names.len() <= NAMED_IN_A_TITLE => {
                let middle: String = middle.iter().map(|name| format!(", {name}")).collect();
                format!("{first}{middle} and {last}")
            }
            [only] => only.clone(),
            many => format!("{} locks", many.len()),
        }
    }

    /// A sentence for a cycle of one, in which a thread waits for its own hold: "MainThread waits for `Cache._lock`".
    pub(super) fn again(&self, cycle: &Cycle) -> Option<String> {
        let [edge] = cycle.edges.as_slice() else { return None };
        Some(format!("{} waits for {}", self.names.party_by_name(&edge.waiter), self.names.bare(&edge.resource)))
    }

    /// Give drafts of cycles a title that names what is about.
    pub(super) fn titled(&self, mut drafts: Vec<Draft>, title: impl Fn(&Cycle) -> Option<String>) -> Vec<Draft> {
        for draft in &mut drafts {
            let cycle = draft.cycle.and_then(|position| self.cycles.get(position));
            draft.title = draft.title.take().or_else(|| cycle.and_then(&title));
        }
        drafts
    }

    pub(super) fn orphan_drafts(&self, gone: Gone) -> Vec<Draft> {
        self.orphan_drafts_of(self.orphans.iter().filter(|orphan| orphan.gone == gone))
    }

    pub(super) fn orphan_drafts_of<'o>(&self, orphans: impl Iterator<Item = &'o Orphan>) -> Vec<Draft> {
        let seen = self.input.observations;
        orphans
            .map(|orphan| Draft {
                title: self.title_of_orphan(orphan),
                message: summary::orphan_sentence(self, orphan),
                parties: orphan.waits.iter().map(|wait| seen.waits[*wait].waiter.clone()).collect(),
                resources: vec![seen.holds[orphan.hold].resource.clone()],
                ..Draft::default()
            })
            .collect()
    }

    /// "`cache_lock` was copied by fork while another thread held it".
    pub(super) fn title_of_orphan(&self, orphan: &Orphan) -> Option<String> {
        let hold = self.input.observations.holds.get(orphan.hold)?;
        let name = self.names.bare(&hold.resource);
        match orphan.gone {
            Gone::LeftInParent if hold.resource.kind.is_lock() => {
                Some(format!("{name} was copied by fork while another thread held it"))
            }
            Gone::Exited if hold.resource.kind.is_lock() => {
                Some(format!("the owner of {name} exited without releasing it"))
            }
            Gone::ProcessDead if hold.resource.kind.is_lock() => Some(format!("a dead process holds {name}")),
            _ => None,
        }
    }

    /// The waits without end for resources of some kinds, but those for results whose tasks are lost.
    pub(super) fn dead_end_drafts(&self, is: impl Fn(&Kind) -> bool) -> Vec<Draft> {
        self.drafts_of_dead_ends(|key| is(key.kind) && !self.is_lost_task(key))
    }

    /// Whether a thread runs an event loop.
    pub(super) fn runs_a_loop(&self, party: &Party) -> bool {
        let seen = self.input.observations;
        let loops = seen.resources.iter().filter(|resource| matches!(resource.role, Some(Role::EventLoop { .. })));
        let mut holds = loops.flat_map(|resource| seen.holds.iter().filter(move |hold| hold.resource == resource.key));
        holds.any(|hold| hold.holder == *party)
    }

    /// Whether a resource is a result whose task is lost.
    pub(super) fn is_lost_task(&self, key: &ResourceKey) -> bool {
        let resource = self.names.described(key);
        resource.is_some_and(|resource| resource.role == Some(Role::LostTask))
    }

    /// The waits without end for some resources.
    pub(super) fn drafts_of_dead_ends(&self, is: impl Fn(&ResourceKey) -> bool) -> Vec<Draft> {
        let seen = self.input.observations;
        let ends = self.dead_ends.iter().filter(|end| is(&seen.known_wakers[end.known_wakers].resource));
        ends.map(|end| Draft {
            message: summary::dead_end_sentence(self, end),
            parties: end.waits.iter().map(|wait| seen.waits[*wait].waiter.clone()).collect(),
            resources: vec![seen.known_wakers[end.known_wakers].resource.clone()],
            ..Draft::default()
        })
        .collect()
    }

    /// For a thread that waits for its own hold: the frames from the wait out to the code that took it.
    pub(super) fn between(&self, cycle: &Cycle) -> Option<&[Frame]> {
        let [edge] = cycle.edges.as_slice() else { return None };
        let frames = self.names.frames(&edge.waiter);
        let taken = self.input.observations.holds[edge.hold?].frame?;
        frames.get(self.frame_of(edge)..taken)
    }

    pub(super) fn frame_of(&self, edge: &CycleEdge) -> usize {
        edge.wait.and_then(|wait| self.input.observations.waits[wait].frame).unwrap_or(0)
    }

    /// The edge that waits for a GIL.
    pub(super) fn gil_waiter<'c>(&self, cycle: &'c Cycle) -> Option<&'c CycleEdge> {
        cycle.edges.iter().find(|edge| edge.resource.kind.topic == Topic::Gil)
    }

    /// Whether the wait is inside a call of the driver: driver frames between it and the Python code that called.
    pub(super) fn in_driver(&self, edge: &CycleEdge) -> bool {
        let frames = self.names.frames(&edge.waiter).iter().skip(self.frame_of(edge));
        frames.take_while(|frame| frame.kind != FrameKind::Python).any(|frame| self.names.is_driver(frame))
    }

    /// The driver further out than the wait: it called the code that waits.
    pub(super) fn callback(&self, edge: &CycleEdge) -> Option<Callback> {
        let frames = self.names.frames(&edge.waiter);
        let start = self.frame_of(edge);
        let driver = start + 1 + frames.get(start + 1..)?.iter().position(|frame| self.names.is_driver(frame))?;
        let python = frames[start..driver].iter().rfind(|frame| frame.kind == FrameKind::Python);
        let function = match python {
            Some(frame) => {
                let name = frame.function.as_deref().unwrap_or("?");
                source_line(frame).map_or(format!("its callback {name}"), |at| format!("its callback {name} at {at}"))
            }
            None => "a callback".into(),
        };
        let outer = frames[driver..].iter().take_while(|frame| frame.kind != FrameKind::Python);
        let api = outer.filter(|frame| is_driver_function(frame)).last().and_then(|frame| frame.function.as_deref());
        Some(Callback { function, api: api.unwrap_or("a call that is not named").to_owned() })
    }

    /// The waiter's outermost code is the driver's: a thread that the driver made, running a host function.
    pub(super) fn on_driver_thread(&self, edge: &CycleEdge) -> bool {
        let frames = self.names.frames(&edge.waiter);
        let Some(driver) = frames.iter().rposition(|frame| self.names.is_driver(frame)) else { return false };
        let outer = &frames[driver..];
        let inner = frames[..driver].iter().rposition(|frame| !self.names.is_driver(frame)).map_or(0, |at| at + 1);
        driver > self.frame_of(edge)
            && outer.iter().all(|frame| frame.kind != FrameKind::Python)
            && !frames[inner..].iter().any(is_driver_function)
            && outer.len() <= OUTERMOST_FRAMES
    }
}

/// Several of these things: "mutexes", "locks made of a futex".
fn several(noun: &str) -> String {
    let one = [" made of ", " inside ", " of ", " in "].iter().filter_map(|joint| noun.find(joint)).min();
    let (one, rest) = noun.split_at(one.unwrap_or(noun.len()));
    let ending = if one.ends_with('x') { "es" } else { "s" };
    format!("{one}{ending}{rest}")
}
