//! Sentences about a cluster.
//!
//! In: [`Members`] and a [`Judgement`]. Out: the summary of the report, and the words for requests and processes. It decides nothing.

use std::collections::BTreeMap;

use super::judge::{Cause, Judgement};
use super::link::{By, Link, Thread};
use super::members::{Members, OfCluster};
use super::ray;
use super::ray_tasks;
use crate::launcher::JobEngine;
use crate::limits::job::MOST_SAID;
use crate::report::{ClusterRequest, ClusterThing};

/// The data of the sentences.
pub(super) struct Sentences<'j> {
    pub(super) members: &'j Members<'j>,
    pub(super) judgement: &'j Judgement<'j>,
}

impl Sentences<'_> {
    fn one(&self, place: usize) -> &OfCluster<'_> {
        &self.members.list[place]
    }

    pub(super) fn summary(&self) -> String {
        let text = match &self.judgement.cause {
            Cause::Inside(places) => {
                let Some(one) = places.first().map(|place| self.one(*place)) else { return String::new() };
                let message = one.now.finding.as_ref().map(|inside| inside.message.clone()).unwrap_or_default();
                let more = match places.len() {
                    1 => String::new(),
                    count => format!(" So {} more.", are(count - 1, "process")),
                };
                let tasks: Vec<String> = one
                    .cluster
                    .running
                    .iter()
                    .filter(|task| one.now.finding.iter().any(|told| told.tids.contains(&task.tid)))
                    .map(|task| format!("thread {} runs task `{}`", task.tid, task.task))
                    .collect();
                let tasks = if tasks.is_empty() { String::new() } else { format!(" There {}.", tasks.join(", ")) };
                format!("{}: {message}{tasks}{more}", capital(&in_full(one)))
            }
            Cause::Ring(ring) if self.members.engine() == JobEngine::Ray => self.ring_of_actors(ring),
            Cause::Ring(ring) => self.ring(ring),
            Cause::Full(places) => self.full(places),
            Cause::Last(chain) => self.last(chain),
            Cause::HeldBack(key, thread, by) => {
                let of = if let By::Runs(other) = by { format!("task `{other}`") } else { "another task".to_owned() };
                format!("Task `{key}` waits for {of}, {}; that thread {}.", self.by(*thread, by), self.doing(*thread))
            }
            Cause::Nothing => return self.nothing(),
        };
        let behind = self.behind();
        if behind.is_empty() { text } else { format!("{text} {behind}") }
    }

    /// "Lock `b` is held by task K in worker A, which waits for lock `a`; that is held by task J in worker B, which waits for lock `b`."
    fn ring(&self, ring: &[(Thread, Link)]) -> String {
        let request = |at: &Thread| self.judgement.stuck.waits.get(at).map(|waits| waits.request);
        let mut text = String::new();
        for (position, (at, link)) in ring.iter().enumerate().take(MOST_SAID) {
            let what = match position {
                0 => request(at)
                    .map(|request| match called(self.members, request) {
                        what if what.starts_with("the ") => what,
                        what => format!("the {what}"),
                    })
                    .unwrap_or_default(),
                _ => "; that".to_owned(),
            };
            let verb = if matches!(link.by, By::Holds { .. }) { "is held by" } else { "is to come from" };
            let next = request(&link.to);
            let waits =
                next.map(|next| format!("{}{}", called(self.members, next), at_place(&next.place))).unwrap_or_default();
            text += &format!("{what} {verb} {}, which waits for {waits}", self.who(link.to));
        }
        match ring.len().saturating_sub(MOST_SAID) {
            0 => format!("{}.", capital(&text)),
            more => format!("{}; and so on for {more} more.", capital(&text)),
        }
    }

    /// "Actor A runs `A.ask`, which waits for a task of actor B; that one runs `B.ask`, which waits for a task of actor A."
    fn ring_of_actors(&self, ring: &[(Thread, Link)]) -> String {
        let mut text = String::new();
        for (position, (at, link)) in ring.iter().enumerate().take(MOST_SAID) {
            let who = if position == 0 { in_full(self.one(at.0)) } else { format!("; {}", in_full(self.one(at.0))) };
            let runs = self
                .members
                .task_of(at.0, at.1)
                .map(|task| format!(" runs `{}`, which", task.task))
                .unwrap_or_default();
            let place =
                self.judgement.stuck.waits.get(at).map(|waits| at_place(&waits.request.place)).unwrap_or_default();
            let (By::Runs(task) | By::Occupies(task)) = &link.by else { continue };
            text += &format!("{who}{runs} waits{place} for {}", ray::called(self.members, task));
        }
        match ring.len().saturating_sub(MOST_SAID) {
            0 => format!("{}.", capital(&text)),
            more => format!("{}; and so on for {more} more.", capital(&text)),
        }
    }

    fn by(&self, to: Thread, by: &By) -> String {
        match by {
            By::Occupies(_) if self.members.engine() == JobEngine::Ray => format!("while {} runs there", self.who(to)),
            By::Runs(_) if self.members.engine() == JobEngine::Ray => {
                format!("which runs in {}", in_full(self.one(to.0)))
            }
            By::Holds { .. } => format!("which is held by {}", self.who(to)),
            By::Runs(key) => match self.members.task_of(to.0, to.1) {
                Some(task) if task.task == *key => format!("which thread {} of {} runs", to.1, in_full(self.one(to.0))),
                _ => format!("which {} runs", self.who(to)),
            },
            By::Occupies(key) => format!("and task `{key}` waits for a thread of {}", in_full(self.one(to.0))),
            By::Nobody => "which nobody is left to set".to_owned(),
        }
    }

    /// "task `abba-1` in worker 0 at tcp://.. (host, python 120)".
    fn who(&self, thread: Thread) -> String {
        let one = self.one(thread.0);
        match self.members.task_of(thread.0, thread.1) {
            Some(task) => format!("task `{}` in {}", task.task, in_full(one)),
            None if thread.1 == one.now.main.tid => in_full(one),
            None => format!("thread {} of {}", thread.1, in_full(one)),
        }
    }

    fn full(&self, places: &[usize]) -> String {
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        let (mut threads, mut ready) = (0, Vec::new());
        let mut at = "";
        for (place, one) in places.iter().map(|place| (*place, self.one(*place))) {
            if ray_tasks::is_of_it(one.cluster) {
                ready.extend(ray::ready(self.members, place));
            }
            ready.extend(one.cluster.ready.iter().map(|key| format!("`{key}`")));
            for task in one.cluster.running.iter().filter(|task| !task.has_seceded) {
                threads += 1;
                if let Some(request) = one.cluster.requests.iter().find(|request| request.tid == task.tid) {
                    *wanted.entry(called(self.members, request)).or_default() += 1;
                    at = &request.place;
                }
            }
        }
        let more = |list: Vec<String>| {
            let count = list.len();
            let mut text = list.into_iter().take(MOST_SAID).collect::<Vec<_>>().join(", ");
            if count > MOST_SAID {
                text += &format!(" and {} more", count - MOST_SAID);
            }
            text
        };
        let workers: Vec<String> = places.iter().map(|place| in_full(self.one(*place))).collect();
        let unread: usize = places.iter().map(|place| self.one(*place).cluster.ready_beyond).sum();
        let count = ready.len() + unread;
        ready.sort();
        let (all, of) = if threads == 1 { ("The only thread", "") } else { ("All", " threads") };
        let all = if threads == 1 {
            format!("{all} of {}", more(workers))
        } else {
            format!("{all} {threads}{of} of {}", more(workers))
        };
        let wait = if threads == 1 { "waits" } else { "wait" };
        let tasks = if count == 1 { "task" } else { "tasks" };
        let have = if count == 1 { "has" } else { "have" };
        format!(
            "{all} {wait} for {}{}, and {count} {tasks} that would have to run for it {have} no thread: {}.",
            more(wanted.into_keys().collect()),
            at_place(at),
            more(ready),
        )
    }

    fn last(&self, chain: &[(Thread, Option<By>)]) -> String {
        let mut text = String::new();
        // The sentence about a chain of thousands has only the first links and the end.
        let hidden = chain.len().saturating_sub(MOST_SAID + 1);
        for (position, (at, by)) in chain.iter().enumerate() {
            if hidden > 0 && (MOST_SAID..MOST_SAID + hidden).contains(&position) {
                if position == MOST_SAID {
                    text += &format!(
                        ", and so on for {hidden} more, to {}",
                        self.who(chain.last().map_or(*at, |(end, _)| *end))
                    );
                }
                continue;
            }
            let one = self.one(at.0);
            let request = one.cluster.requests.iter().find(|request| request.tid == at.1);
            match (request, by) {
                (Some(request), Some(by)) => {
                    let to = chain.get(position + 1).map(|(to, _)| *to).unwrap_or(*at);
                    let begin =
                        if position == 0 { format!("{} waits", self.who(*at)) } else { ", and waits".to_owned() };
                    let through = match by {
                        By::Runs(key) if !request.names.contains(key) => format!(", which needs task `{key}`"),
                        _ => String::new(),
                    };
                    let (what, place) = (called(self.members, request), at_place(&request.place));
                    text += &format!("{begin} for {what}{place}{through}, {}", self.by(to, by));
                }
                (Some(request), None) => {
                    let begin =
                        if position == 0 { format!("{} waits", self.who(*at)) } else { ", and waits".to_owned() };
                    text += &format!("{begin} for {}{}", called(self.members, request), at_place(&request.place));
                }
                (None, _) => {
                    text += &format!("; that thread {}", self.doing(*at));
                }
            }
        }
        format!("{}.", capital(&text))
    }

    /// The activity of a thread that waits for nobody in the cluster.
    fn doing(&self, thread: Thread) -> String {
        let doing = self.members.task_of(thread.0, thread.1).map(|task| task.doing.clone());
        doing.filter(|doing| !doing.is_empty()).unwrap_or_else(|| "was not seen to wait".to_owned())
    }

    fn nothing(&self) -> String {
        let count = self.members.list.len();
        let busy: usize = self.members.list.iter().map(|one| one.cluster.running.len()).sum();
        format!(
            "{}, which run {}, and no wait that lasts for another one is known.",
            capital(&are_there(count, "process", "processes")),
            are_there(busy, "task", "tasks")
        )
    }

    /// "2 more threads wait because of this: task `sum` in worker 1 ..".
    fn behind(&self) -> String {
        let victims = &self.judgement.victims;
        let held_back: Vec<String> = self.judgement.held_back.iter().map(|key| format!("`{key}`")).collect();
        let tasks = match held_back.len() {
            0 => String::new(),
            1 => format!("1 task is held back by the scheduler because of this: {}.", held_back.join(", ")),
            count => format!("{count} tasks are held back by the scheduler because of this: {}.", listed(&held_back)),
        };
        if victims.is_empty() {
            return tasks;
        }
        let part = |thread: &Thread| {
            let request = self.judgement.stuck.waits.get(thread).map(|waits| waits.request);
            let what =
                request.map(|request| format!(" for {}{}", called(self.members, request), at_place(&request.place)));
            format!("{}{}", self.who(*thread), what.unwrap_or_default())
        };
        let mut parts: Vec<String> = victims.iter().take(MOST_SAID).map(part).collect();
        if victims.len() > MOST_SAID {
            parts.push(format!("and {} more", victims.len() - MOST_SAID));
        }
        let wait = if victims.len() == 1 {
            "1 more thread waits".to_owned()
        } else {
            format!("{} more threads wait", victims.len())
        };
        format!("{wait} because of this: {}. {tasks}", parts.join("; ")).trim_end().to_owned()
    }
}

/// "worker 0 at tcp://10.0.0.2:4321 (node7, python3.11 120)".
pub(super) fn in_full(one: &OfCluster<'_>) -> String {
    let host = one.look.host.name.as_deref().map(|name| format!("{name}, ")).unwrap_or_default();
    format!("{} ({host}{} {})", one.called, one.now.program, one.now.pid)
}

/// "lock `table_b`", "the result of task `sum` and 3 more".
pub(super) fn called(members: &Members<'_>, request: &ClusterRequest) -> String {
    if members.engine() == JobEngine::Ray {
        let more = request.names.len().saturating_sub(1);
        let first = request.names.first().map(|task| ray::called(members, task));
        return match (request.what, first, more) {
            (_, None, _) => "results of tasks".to_owned(),
            (ClusterThing::Wait, Some(first), 1..) => format!("any result of {first} and {more} more"),
            (_, Some(first), 0) => format!("the result of {first}"),
            (_, Some(first), more) => format!("the results of {first} and {more} more"),
        };
    }
    let noun = match request.what {
        ClusterThing::Lock => "distributed.Lock",
        ClusterThing::Semaphore => "distributed.Semaphore",
        ClusterThing::Event => "distributed.Event",
        ClusterThing::Queue => "distributed.Queue",
        ClusterThing::Variable => "distributed.Variable",
        ClusterThing::Result => "the result of task",
        _ => "an answer of Dask to",
    };
    let more = match request.names.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    match request.names.first() {
        Some(name) => format!("{noun} `{name}`{more}"),
        None => match request.what {
            ClusterThing::Result => "results of tasks".to_owned(),
            _ => format!("a {noun}").replace("a an ", "an "),
        },
    }
}

/// A few names.
pub(super) fn listed(names: &[String]) -> String {
    let mut text = names.iter().take(4 * MOST_SAID).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > 4 * MOST_SAID {
        text += &format!(" and {} more", names.len() - 4 * MOST_SAID);
    }
    text
}

fn are(count: usize, noun: &str) -> String {
    if count == 1 { format!("is 1 {noun}") } else { format!("are {count} {noun}es") }
}

pub(super) fn are_there(count: usize, one: &str, several: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {several}") }
}

pub(super) fn at_place(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" at {place}") }
}

pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
