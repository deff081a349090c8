//! Threads of a cluster that can never go on, and the threads that each of them waits for.
//!
//! In: [`Members`]. Out: [`Stuck`]: the largest set in which each thread waits for another thread of the set, or for a
//! task that only threads of the set could run ([`Reduction::greatest`]). A thread is not in the set if a holder that goes on, a worker
//! with a free thread, or an unknown process could still end its wait. Requests with a time-out, and requests that changed since
//! the first round, are never in the set.

use std::collections::{BTreeMap, BTreeSet};

use super::link::{By, Link, Thread};
use super::members::{Lasted, Members};
use super::ray;
use super::ray_tasks;
use crate::launcher::JobEngine;
use crate::limits::job::{MOST_STEPS, MOST_WAITING};
use crate::reduction::{Id, Reduction, Rule};
use crate::report::{ClusterLease, ClusterPart, ClusterRequest, ClusterThing};

/// Whether any process may answer this kind of request, so that it has no holder.
fn is_for_anybody(request: &ClusterRequest) -> bool {
    matches!(request.what, ClusterThing::Event | ClusterThing::Queue | ClusterThing::Variable)
}

/// The threads that cannot go on.
#[derive(Debug, Default)]
pub(super) struct Stuck<'d> {
    /// Each with what it waits for.
    pub(super) waits: BTreeMap<Thread, Waits<'d>>,
    /// Those that are in a deadlock inside of their process.
    pub(super) inside: BTreeSet<Thread>,
}

/// The wait of one of them.
#[derive(Debug)]
pub(super) struct Waits<'d> {
    pub(super) request: &'d ClusterRequest,
    pub(super) lasted: Lasted,
    pub(super) links: Vec<Link>,
}

impl<'d> Stuck<'d> {
    /// The threads of a cluster that cannot go on.
    pub(super) fn of(members: &'d Members<'_>) -> Stuck<'d> {
        let mut inside = BTreeSet::new();
        let mut requests: Requests<'d> = BTreeMap::new();
        for (place, one) in members.list.iter().enumerate() {
            let told = one.now.finding.iter().filter(|_| one.now.verdict.exit_code() != 0);
            inside.extend(told.flat_map(|told| &told.tids).map(|tid| (place, *tid)));
            for request in one.cluster.requests.iter().filter(|request| !request.timed) {
                let lasted = one.request_lasted(request);
                if lasted != Lasted::No {
                    requests.insert((place, request.tid), (request, lasted));
                }
            }
        }
        let cluster = Cluster::of(members);
        requests.retain(|thread, _| !inside.contains(thread));
        let stuck = cluster.never_answered(&requests, &inside);
        let waits = stuck.iter().filter_map(|thread| {
            let (request, lasted) = requests.get(thread)?;
            Some((*thread, Waits { request, lasted: *lasted, links: cluster.links(request, &stuck)? }))
        });
        Stuck { waits: waits.collect(), inside }
    }
}

/// The running tasks and the leases of a cluster.
pub(super) struct Cluster<'d> {
    members: &'d Members<'d>,
    running: BTreeMap<&'d str, Thread>,
    ready: BTreeMap<&'d str, usize>,
    waiting: BTreeMap<&'d str, &'d [String]>,
    /// Leases by what they are of and its name, each with the place of the process that has it.
    leases: BTreeMap<(ClusterThing, &'d str), Vec<(usize, &'d ClusterLease)>>,
}

/// The nodes that may be blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Node<'n> {
    Thread(Thread),
    /// The task of this key.
    Task(&'n str),
    /// The worker at this place, for tasks that wait for a thread of it.
    Worker(usize),
    /// A thing that any process could give.
    Anybody,
}

/// Blocked while all of these are.
fn while_all<'n>(threads: impl IntoIterator<Item = Thread>, graph: &mut Reduction<Node<'n>>) -> Rule {
    Rule::All(threads.into_iter().map(|thread| graph.node(Node::Thread(thread))).collect())
}

/// Requests with whether they were there before, by their threads.
type Requests<'d> = BTreeMap<Thread, (&'d ClusterRequest, Lasted)>;

impl<'d> Cluster<'d> {
    pub(super) fn of(members: &'d Members<'d>) -> Cluster<'d> {
        let mut cluster = Cluster {
            members,
            running: BTreeMap::new(),
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            leases: BTreeMap::new(),
        };
        for (place, one) in members.list.iter().enumerate() {
            for lease in &one.cluster.leases {
                cluster.leases.entry((lease.what, &lease.name)).or_default().push((place, lease));
            }
            if ray_tasks::is_of_it(one.cluster) {
                // The names of Ray's tasks are functions, which many tasks share, so their ids count here.
                cluster.running.extend(one.ids.iter().map(|(tid, id)| (*id, (place, *tid))));
                continue;
            }
            cluster.running.extend(one.cluster.running.iter().map(|task| (task.task.as_str(), (place, task.tid))));
            cluster.ready.extend(one.cluster.ready.iter().map(|task| (task.as_str(), place)));
            cluster.waiting.extend(one.cluster.waiting.iter().map(|task| (task.task.as_str(), task.on.as_slice())));
        }
        cluster
    }

    /// The threads that no thread outside could answer, with those of `inside`.
    fn never_answered(&self, requests: &Requests<'_>, inside: &BTreeSet<Thread>) -> BTreeSet<Thread> {
        let mut graph = Reduction::default();
        for thread in inside {
            graph.set(Node::Thread(*thread), Rule::Always);
        }
        for (thread, (request, _)) in requests {
            let rule = self.rule(request, &mut graph);
            graph.set(Node::Thread(*thread), rule);
        }
        let of_thread = |node| if let Node::Thread(thread) = node { Some(thread) } else { None };
        graph.greatest().into_nodes().filter_map(of_thread).collect()
    }

    /// When the thread of a request is blocked.
    fn rule<'n>(&self, request: &'n ClusterRequest, graph: &mut Reduction<Node<'n>>) -> Rule
    where
        'd: 'n,
    {
        match request.what {
            ClusterThing::Lock | ClusterThing::Semaphore => match self.holders(request) {
                (holders, true) if !holders.is_empty() => while_all(holders.iter().map(|link| link.to), graph),
                _ => Rule::Never,
            },
            ClusterThing::Result if self.is_of_ray() => {
                let ways = request.names.iter().flat_map(|task| ray::ways(self.members, &self.running, task));
                let parts: Vec<Rule> = ways.map(|links| while_all(links.iter().map(|link| link.to), graph)).collect();
                Rule::Any(parts.into_iter().map(|part| graph.part(part)).collect())
            }
            ClusterThing::Result => Rule::Any(request.names.iter().map(|key| self.key(key, graph)).collect()),
            _ if is_for_anybody(request) => Rule::All(vec![self.anybody(graph)]),
            _ => Rule::Never,
        }
    }

    /// The node of a task, with those of all tasks that it waits for.
    fn key<'n>(&self, key: &'n str, graph: &mut Reduction<Node<'n>>) -> Id
    where
        'd: 'n,
    {
        let mut open: Vec<&'n str> = vec![key];
        while let Some(key) = open.pop() {
            if graph.has_rule(&Node::Task(key)) {
                continue;
            }
            let rule = match (self.running.get(key), self.ready.get(key)) {
                (Some(thread), _) if self.run_lasted(*thread) != Lasted::No => while_all([*thread], graph),
                (None, Some(place)) if self.members.list[*place].readiness_lasted(key) != Lasted::No => {
                    Rule::All(vec![self.worker(*place, graph)])
                }
                (None, None) => {
                    let on = self.waiting.get(key).copied().unwrap_or_default();
                    open.extend(on.iter().map(String::as_str));
                    Rule::Any(on.iter().map(|key| graph.node(Node::Task(key))).collect())
                }
                _ => Rule::Never,
            };
            graph.set(Node::Task(key), rule);
        }
        graph.node(Node::Task(key))
    }

    /// The node of a worker, which takes no task while all its threads are blocked.
    fn worker<'n>(&self, place: usize, graph: &mut Reduction<Node<'n>>) -> Id {
        if !graph.has(&Node::Worker(place)) {
            let rule = self.occupying(place).map_or(Rule::Never, |own| while_all(own, graph));
            graph.set(Node::Worker(place), rule);
        }
        graph.node(Node::Worker(place))
    }

    /// The node of whatever any process could give: only tasks that wait for a thread are left to give it, no worker has a free thread, and
    /// all clients wait, too.
    fn anybody<'n>(&self, graph: &mut Reduction<Node<'n>>) -> Id {
        if !graph.has(&Node::Anybody) {
            let (mut needed, mut workers, mut has_ready) = (Vec::new(), 0, false);
            for (place, one) in self.members.list.iter().enumerate() {
                if one.is_worker() {
                    needed.push(self.worker(place, graph));
                    workers += 1;
                    has_ready |= !one.cluster.ready.is_empty();
                } else if one.cluster.roles.iter().any(|role| role.role == ClusterPart::Client) {
                    needed.push(graph.node(Node::Thread((place, one.now.main.tid))));
                }
            }
            let rule = if has_ready && workers > 0 { Rule::All(needed) } else { Rule::Never };
            graph.set(Node::Anybody, rule);
        }
        graph.node(Node::Anybody)
    }

    /// The threads of `stuck` that a request of one of them waits for.
    fn links(&self, request: &ClusterRequest, stuck: &BTreeSet<Thread>) -> Option<Vec<Link>> {
        match request.what {
            ClusterThing::Lock | ClusterThing::Semaphore => Some(self.holders(request).0),
            ClusterThing::Result if self.is_of_ray() => {
                let mut ways = request.names.iter().flat_map(|task| ray::ways(self.members, &self.running, task));
                ways.find(|links| links.iter().all(|link| stuck.contains(&link.to)))
            }
            ClusterThing::Result => {
                let mut seen = BTreeSet::new();
                request.names.iter().find_map(|key| self.of_key(key, stuck, MOST_STEPS, &mut seen))
            }
            _ => Some(self.nobody()),
        }
    }

    fn is_of_ray(&self) -> bool {
        self.members.engine() == JobEngine::Ray
    }

    /// The holders of a lock, and whether these are as many as may hold it.
    pub(super) fn holders(&self, request: &ClusterRequest) -> (Vec<Link>, bool) {
        let mut holders = Vec::new();
        let mut most = 1;
        let wanted = request.names.first().map_or("", String::as_str);
        let own = self.leases.get(&(request.what, wanted)).filter(|_| !request.names.is_empty());
        for (place, lease) in own.into_iter().flatten() {
            if lease.leases.iter().all(|id| self.members.has_run_out(&lease.name, id)) {
                continue;
            }
            most = lease.most;
            let Some(one) = self.members.list.get(*place) else { continue };
            let lasted = one.lease_lasted(lease);
            if let Some(tid) = lease.tid.filter(|_| lasted != Lasted::No) {
                holders.push(Link { to: (*place, tid), by: By::Holds { is_entered: lease.is_entered }, lasted });
            }
        }
        let is_all = holders.len() as u64 >= most;
        (holders, is_all)
    }

    /// The threads that keep the task of a key from being done. A task that several others wait for is `seen` once;
    /// otherwise the number of ways to it doubles with each step.
    fn of_key<'k>(
        &self,
        key: &'k str,
        stuck: &BTreeSet<Thread>,
        steps: usize,
        seen: &mut BTreeSet<&'k str>,
    ) -> Option<Vec<Link>>
    where
        'd: 'k,
    {
        if !seen.insert(key) {
            return None;
        }
        if let Some(thread) = self.running.get(key) {
            let link = Link { to: *thread, by: By::Runs(key.to_owned()), lasted: self.run_lasted(*thread) };
            return (stuck.contains(thread) && link.lasted != Lasted::No).then(|| vec![link]);
        }
        if let Some(place) = self.ready.get(key) {
            let occupying = self.occupying(*place).filter(|own| own.iter().all(|thread| stuck.contains(thread)))?;
            let lasted = self.members.list[*place].readiness_lasted(key);
            let link = |to| Link { to, by: By::Occupies(key.to_owned()), lasted };
            return (lasted != Lasted::No).then(|| occupying.into_iter().map(link).collect());
        }
        let on = self.waiting.get(key)?;
        on.iter().find_map(|key| self.of_key(key, stuck, steps.checked_sub(1)?, seen))
    }

    /// Whether the task that a thread runs was there in the first round.
    fn run_lasted(&self, (place, tid): Thread) -> Lasted {
        let task = self.members.task_of(place, tid);
        task.map_or(Lasted::Unknown, |task| self.members.list[place].task_lasted(task))
    }

    /// The threads of a worker, if all are taken by tasks.
    fn occupying(&self, place: usize) -> Option<Vec<Thread>> {
        let cluster = self.members.list.get(place)?.cluster;
        let count: u32 =
            cluster.roles.iter().filter(|role| role.role == ClusterPart::Worker).filter_map(|role| role.threads).sum();
        let own = cluster.running.iter().filter(|task| !task.has_seceded).map(|task| (place, task.tid));
        let own: Vec<Thread> = own.collect();
        (count > 0 && own.len() >= count as usize).then_some(own)
    }

    /// Links to the threads that all workers are taken by.
    fn nobody(&self) -> Vec<Link> {
        let workers = self.members.list.iter().enumerate().filter(|(_, one)| one.is_worker());
        let taken = workers.flat_map(|(place, _)| self.occupying(place).unwrap_or_default());
        taken.map(|to| Link { to, by: By::Nobody, lasted: Lasted::Yes }).take(MOST_WAITING).collect()
    }

    /// Workers whose threads all wait for the cluster, while tasks wait for a thread. The report shows them even if
    /// they prove nothing.
    pub(super) fn full(&self) -> Vec<usize> {
        let is_full = |place: &usize| {
            let one = &self.members.list[*place];
            let waits = |tid: i32| {
                let request = one.cluster.requests.iter().find(|request| request.tid == tid);
                request.is_some_and(|request| one.request_lasted(request) != Lasted::No)
            };
            let count: u32 = one.cluster.roles.iter().filter_map(|role| role.threads).sum();
            let own = || one.cluster.running.iter().filter(|task| !task.has_seceded);
            count > 0
                && own().count() >= count as usize
                && own().all(|task| waits(task.tid))
                && !one.cluster.ready.is_empty()
        };
        (0..self.members.list.len()).filter(is_full).collect()
    }

    /// Tasks that the scheduler holds back until one of these threads, or of those behind them, has done its own.
    pub(super) fn held_back(&self, threads: &BTreeSet<Thread>) -> Vec<String> {
        let is_behind = |key: &str| {
            let mut open: Vec<&str> = vec![key];
            let mut seen: BTreeSet<&str> = BTreeSet::new();
            while let Some(key) = open.pop().filter(|_| seen.len() < MOST_WAITING) {
                if self.running.get(key).is_some_and(|thread| threads.contains(thread)) {
                    return true;
                }
                let on = self.waiting.get(key).copied().unwrap_or_default();
                open.extend(on.iter().map(String::as_str).filter(|key| seen.insert(key)));
            }
            false
        };
        self.waiting.keys().filter(|key| is_behind(key)).map(|key| (*key).to_owned()).collect()
    }

    /// The first task that the scheduler holds back, and the thread that runs what it waits for.
    pub(super) fn first_held_back(&self) -> Option<(String, Thread, By)> {
        self.waiting.keys().find_map(|key| {
            let (thread, by) = self.of_tasks(&[(*key).to_owned()])?;
            let task = self.members.task_of(thread.0, thread.1)?;
            let lasted = self.members.list[thread.0].task_lasted(task);
            (lasted != Lasted::No).then(|| ((*key).to_owned(), thread, by))
        })
    }

    /// The thread that a request leads to, if there is one: the holder of the lock, or the thread that runs the task or
    /// its dependency.
    pub(super) fn leads_to(&self, request: &ClusterRequest) -> Option<(Thread, By)> {
        if matches!(request.what, ClusterThing::Lock | ClusterThing::Semaphore) {
            return self.holders(request).0.into_iter().next().map(|link| (link.to, link.by));
        }
        if request.what == ClusterThing::Result && self.is_of_ray() {
            let to = |task: &String| ray::leads_to(self.members, &self.running, task);
            return request.names.iter().find_map(to);
        }
        if request.what == ClusterThing::Result { self.of_tasks(&request.names) } else { None }
    }

    /// The thread that runs one of these tasks, or what it waits for.
    fn of_tasks(&self, keys: &[String]) -> Option<(Thread, By)> {
        keys.iter().find_map(|key| {
            let mut key = key.as_str();
            for _ in 0..MOST_STEPS {
                if let Some(thread) = self.running.get(key) {
                    return Some((*thread, By::Runs(key.to_owned())));
                }
                key = self.waiting.get(key)?.first()?;
            }
            None
        })
    }
}
