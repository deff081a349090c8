//! The graph over hand-made observations.

use super::*;
use crate::image::Addr;
use crate::limits::graph::MOST_CYCLES;
use crate::waits::{Gone, Needs, ResourceKey, Scope, kinds};

fn key(number: u64) -> ResourceKey {
    ResourceKey { kind: kinds::PTHREAD_MUTEX, scope: Scope::Process(0), address: Addr(0x1000 + number * 0x40) }
}

fn thread(tid: i32) -> Party {
    Party::Thread(0, tid)
}

#[derive(Default)]
struct Build(Observations);

impl Build {
    fn wait(&mut self, tid: i32, lock: u64) -> &mut Wait {
        self.party_waits(thread(tid), lock)
    }

    fn party_waits(&mut self, waiter: Party, lock: u64) -> &mut Wait {
        self.0.waits.push(Wait {
            waiter,
            resource: key(lock),
            mode: None,
            needs: Needs::All,
            timed: false,
            retried: false,
            since_ms: None,
            frame: None,
            certainty: Certainty::Exact,
            evidence: vec![],
            spinning: false,
            place: None,
        });
        self.0.waits.last_mut().unwrap()
    }

    fn hold(&mut self, holder: Party, lock: u64) -> &mut Hold {
        self.0.holds.push(Hold {
            holder,
            gone: None,
            resource: key(lock),
            mode: None,
            taken: None,
            since_ms: None,
            source: None,
            frame: None,
            strength: Strength::Recorded,
            evidence: vec![],
        });
        self.0.holds.last_mut().unwrap()
    }

    /// `tids[i]` holds lock i and waits for lock i + 1.
    fn ring(&mut self, tids: &[i32], first_lock: u64) {
        for (i, tid) in tids.iter().enumerate() {
            self.hold(thread(*tid), first_lock + i as u64);
            self.wait(*tid, first_lock + ((i + 1) % tids.len()) as u64);
        }
    }

    fn cycles(&self) -> Cycles {
        WaitGraph::new(&self.0, &[]).cycles()
    }
}

#[test]
fn two_locks_in_two_orders() {
    let mut build = Build::default();
    build.ring(&[1, 2], 0);
    let cycles = build.cycles();
    assert_eq!(cycles.list.len(), 1);
    let cycle = &cycles.list[0];
    assert!(cycle.proven && !cycle.timed && cycle.certainty == Certainty::Exact);
    assert_eq!(
        cycle.edges[0],
        CycleEdge { waiter: thread(1), resource: key(1), holder: thread(2), wait: Some(0), hold: Some(1) }
    );
    assert_eq!(cycle.edges[1].waiter, thread(2));
    assert_eq!(cycle.edges[1].holder, thread(1));
}

#[test]
fn ring_of_three_and_self_and_separate_rings_with_victims() {
    let mut build = Build::default();
    build.ring(&[1, 2, 3], 0);
    build.ring(&[4], 10);
    build.ring(&[5, 6], 20);
    build.wait(7, 0);
    build.hold(thread(7), 30);
    build.wait(8, 30);
    build.hold(thread(9), 40);
    build.wait(10, 40);
    let graph = WaitGraph::new(&build.0, &[]);
    let cycles = graph.cycles();
    assert_eq!(cycles.list.iter().map(|c| c.edges.len()).collect::<Vec<_>>(), [1, 2, 3]);
    let members = |cycles: &[Cycle]| cycles.iter().flat_map(Cycle::parties).collect::<BTreeSet<_>>();
    assert_eq!(graph.held_up_by(&members(&cycles.list)), [thread(7), thread(8)]);
    assert_eq!(graph.held_up_by(&members(&cycles.list[..1])), []);
    assert_eq!(graph.held_up_by(&[thread(9)].into()), [thread(10)]);
    assert_eq!(graph.roots(), [Root { party: thread(9), waiting: [thread(10)].into() }]);
}

#[test]
fn candidates_never_close_a_cycle() {
    let mut build = Build::default();
    build.ring(&[1, 2], 0);
    build.0.holds[0].strength = Strength::Candidate;
    assert!(build.cycles().list.is_empty());

    let mut build = Build::default();
    build.ring(&[1], 0);
    build.0.holds[0].strength = Strength::Candidate;
    assert!(build.cycles().list.is_empty(), "the only candidate is the waiter itself");
}

#[test]
fn any_wait_with_a_way_out_is_no_cycle_and_a_knot_is() {
    let mut build = Build::default();
    build.ring(&[1, 2], 0);
    build.0.waits[0].needs = Needs::Any;
    assert!(build.cycles().list[0].proven, "a single holder: any is all");
    build.hold(thread(3), 1);
    assert!(build.cycles().list.is_empty(), "thread 3 can let go");
    build.wait(3, 0);
    let knot = build.cycles();
    assert_eq!(knot.list.len(), 2);
    assert!(knot.list.iter().all(|cycle| cycle.proven));
    build.wait(1, 50).needs = Needs::Any;
    assert!(build.cycles().list.is_empty(), "a second thing to wait for, held by nobody");
}

#[test]
fn weak_branch_of_a_knot_proves_nothing() {
    let mut build = Build::default();
    build.ring(&[1, 2], 0);
    build.0.waits[0].needs = Needs::Any;
    build.hold(thread(3), 1);
    build.wait(3, 0).timed = true;
    let cycles = build.cycles();
    assert_eq!(cycles.list.len(), 2);
    assert!(cycles.list.iter().all(|cycle| !cycle.proven));
}

#[test]
fn timed_or_inferred_edges_prove_nothing_and_binding_ones_do() {
    let mut build = Build::default();
    build.ring(&[1, 2], 0);
    build.0.waits[0].timed = true;
    let cycles = build.cycles();
    assert!(cycles.list[0].timed && !cycles.list[0].proven);
    build.0.waits[0].timed = false;
    build.0.holds[0].strength = Strength::Inferred;
    assert!(!build.cycles().list[0].proven);
    build.0.holds[0].strength = Strength::Sole;
    let cycles = build.cycles();
    assert!(cycles.list[0].proven);
    assert_eq!(cycles.list[0].certainty, Certainty::Inferred);
}

#[test]
fn an_orphan_is_no_cycle() {
    let mut build = Build::default();
    build.hold(Party::Absent(0, 99), 0).gone = Some(Gone::Exited);
    build.wait(1, 0);
    let graph = WaitGraph::new(&build.0, &[]);
    assert!(graph.cycles().list.is_empty());
    assert_eq!(graph.roots()[0].party, Party::Absent(0, 99));
}

#[test]
fn a_process_lets_go_by_any_of_its_threads() {
    let mut build = Build::default();
    build.hold(Party::Process(1), 0);
    build.wait(1, 0);
    build.hold(thread(1), 1);
    build.party_waits(Party::Thread(1, 11), 1);
    let two = [vec![1], vec![11, 12]];
    let graph = WaitGraph::new(&build.0, &two);
    assert!(graph.cycles().list.is_empty(), "12 can let go");
    assert_eq!(graph.roots()[0].party, Party::Process(1));
    let one = [vec![1], vec![11]];
    let cycles = WaitGraph::new(&build.0, &one).cycles();
    assert_eq!(cycles.list.len(), 1);
    assert_eq!(cycles.list[0].edges[0].holder, Party::Process(1));
    assert_eq!(cycles.list[0].edges[1].waiter, Party::Thread(1, 11));
    assert!(cycles.list[0].crosses_processes());
}

#[test]
fn a_resource_that_waits_is_a_party() {
    let mut build = Build::default();
    build.wait(1, 0);
    build.party_waits(Party::Resource(key(0)), 1);
    build.hold(thread(2), 1);
    build.wait(2, 2);
    build.hold(thread(1), 2);
    let cycles = build.cycles();
    assert_eq!(cycles.list.len(), 1);
    let edges = &cycles.list[0].edges;
    assert_eq!(edges.len(), 3);
    assert_eq!((&edges[0].holder, edges[0].hold), (&Party::Resource(key(0)), None));
    assert_eq!(edges[1].waiter, Party::Resource(key(0)));
    assert!(cycles.list[0].proven);
}

#[test]
fn a_stream_held_by_a_thread_is_part_of_the_cycle() {
    let mut build = Build::default();
    build.wait(1, 0);
    build.hold(Party::Resource(key(5)), 0);
    build.hold(thread(2), 5);
    build.wait(2, 2);
    build.hold(thread(1), 2);
    let edges = build.cycles().list[0].edges.clone();
    assert_eq!(edges.len(), 3);
    assert_eq!((&edges[1].waiter, &edges[1].holder, edges[1].wait), (&Party::Resource(key(5)), &thread(2), None));
}

#[test]
fn long_chains_and_rings_do_not_overflow_the_stack() {
    let mut build = Build::default();
    for i in 0..10_000 {
        build.hold(thread(i), i as u64);
        build.wait(i, i as u64 + 1);
    }
    let graph = WaitGraph::new(&build.0, &[]);
    assert!(graph.cycles().list.is_empty());
    assert_eq!(graph.roots()[0].waiting.len(), 10_000);
    build.hold(thread(0), 10_000);
    let cycles = WaitGraph::new(&build.0, &[]).cycles();
    assert_eq!(cycles.list[0].edges.len(), 10_000);
}

#[test]
fn dense_graphs_are_bounded() {
    let mut build = Build::default();
    for i in 0..20 {
        build.hold(thread(i), i as u64);
        for j in (0..20).filter(|j| *j != i) {
            build.wait(i, j as u64);
        }
    }
    let cycles = build.cycles();
    assert_eq!(cycles.list.len(), MOST_CYCLES);
    assert!(cycles.list.iter().all(|c| c.edges.len() == 2));
    assert_eq!(cycles.more, 190 - MOST_CYCLES);
    assert!(!cycles.exhausted);
}

#[test]
fn no_thread_waits_for_itself_by_an_end_that_its_process_has() {
    let threads = [vec![1, 2]];
    let pipe = |number| ResourceKey { kind: kinds::PIPE, ..key(number) };
    let mut build = Build::default();
    build.wait(1, 0).resource = pipe(0);
    build.wait(2, 1).resource = pipe(1);
    for number in 0..2 {
        build.hold(Party::Process(0), number).resource = pipe(number);
    }
    assert!(WaitGraph::new(&build.0, &threads).cycles().list.is_empty(), "idle threads with wake-up pipes");
    // A file lock that the process holds is another thing.
    (build.0.waits[0].resource, build.0.holds[0].resource) = (key(0), key(0));
    assert_eq!(WaitGraph::new(&build.0, &threads).cycles().list.len(), 1);
    // One of two threads is to write to the pipe and wants a lock that the reader has.
    let mut build = Build::default();
    build.wait(1, 0).resource = pipe(0);
    build.hold(Party::Process(0), 0).resource = pipe(0);
    build.wait(2, 1);
    build.hold(thread(1), 1);
    let cycles = WaitGraph::new(&build.0, &threads).cycles();
    assert_eq!(cycles.list.iter().map(|cycle| cycle.edges.len()).collect::<Vec<_>>(), [2]);
}

#[test]
fn who_is_held_up_follows_processes_and_any_of_several() {
    // A reader of a pipe that only process 0 writes to; its threads are 1 and 2, in a cycle, and 3, who joins 1.
    let mut build = Build::default();
    build.ring(&[1, 2], 0);
    build.hold(thread(1), 10);
    build.wait(3, 10);
    build.hold(Party::Process(0), 20);
    build.wait(4, 20);
    // A thread that waits for any of two resources; another thread can still give one.
    build.hold(thread(5), 30);
    for resource in [10, 30] {
        build.wait(6, resource);
        build.0.waits.last_mut().expect("a wait").needs = Needs::Any;
    }
    let cycle = BTreeSet::from([thread(1), thread(2)]);
    let graph = WaitGraph::new(&build.0, &[vec![1, 2, 3]]);
    assert_eq!(graph.held_up_by(&cycle), [thread(3), thread(4)]);
    // A thread of that process that runs may still write.
    let graph = WaitGraph::new(&build.0, &[vec![1, 2, 3, 9]]);
    assert_eq!(graph.held_up_by(&cycle), [thread(3)]);
    let all = cycle.into_iter().chain([thread(5)]).collect();
    assert_eq!(graph.held_up_by(&all), [thread(3), thread(6)]);
}

/// A build in which lock 0 is held by nobody and only `wake sources` could give it.
fn known_wakers(wake_sources: &[Waker]) -> Build {
    let mut build = Build::default();
    build.wait(1, 0);
    for by in wake_sources {
        let wake_source = WakeSource { resource: key(0), waiter: None, by: by.clone(), what: String::new() };
        build.0.wake_sources.push(wake_source);
    }
    build.0.known_wakers.push(crate::waits::model::KnownWakers {
        resource: key(0),
        why: String::new(),
        certainty: Certainty::Exact,
        ruled_out: Vec::new(),
        whole_process: true,
        is_reportable: true,
    });
    build
}

#[test]
fn what_nobody_holds_never_comes_once_each_way_leads_to_who_can_never_go_on() {
    let never = |build: &Build| WaitGraph::new(&build.0, &[vec![1, 2, 3]]).never_comes(&key(0));
    assert!(never(&known_wakers(&[])), "nobody could");
    assert!(!never(&known_wakers(&[Waker::ByItself])) && !never(&known_wakers(&[Waker::OnRequest])));
    let by = |tid: i32| Waker::Party(thread(tid));
    assert!(!never(&known_wakers(&[by(2)])), "a thread that goes on");
    let mut waits_too = known_wakers(&[by(2)]);
    waits_too.wait(2, 0);
    assert!(never(&waits_too));
    waits_too.wait(3, 5).timed = true;
    waits_too.0.wake_sources.push(WakeSource { resource: key(0), waiter: None, by: by(3), what: String::new() });
    assert!(!never(&waits_too), "one whose wait has a time-out");
    // There is no result for a wait whose possible wakers are unknown.
    let mut open = known_wakers(&[]);
    open.0.known_wakers.clear();
    assert!(!never(&open));
}

#[test]
fn any_thread_of_a_process_may_give_what_it_can() {
    let mut build = known_wakers(&[Waker::Party(Party::Process(0))]);
    build.ring(&[2, 3], 10);
    let never = |build: &Build| WaitGraph::new(&build.0, &[vec![1, 2, 3]]).never_comes(&key(0));
    assert!(never(&build), "the others are in a ring");
    build.0.waits[1].timed = true;
    assert!(!never(&build), "which ends by itself");
}

#[test]
fn hope_for_what_somebody_holds_opens_a_ring_or_makes_it_a_suspicion() {
    let ring = |waiter: Option<Party>, by: Waker| {
        let mut build = Build::default();
        build.ring(&[1, 2], 0);
        build.0.wake_sources.push(WakeSource { resource: key(1), waiter, by, what: String::new() });
        let cycles = build.cycles().list;
        cycles.first().map(|cycle| cycle.proven)
    };
    assert_eq!(ring(None, Waker::Party(thread(3))), None, "another thread releases it");
    assert_eq!(ring(None, Waker::Party(thread(2))), Some(true), "who is in the ring does not");
    assert_eq!(ring(None, Waker::OnRequest), Some(false), "a signal may come");
    // Thread 1 waits for lock 1.
    assert_eq!(ring(Some(thread(1)), Waker::ByItself), None, "its own time-out");
    assert_eq!(ring(Some(thread(1)), Waker::OnRequest), Some(false));
    assert_eq!(ring(Some(thread(9)), Waker::ByItself), Some(true), "another's");
}

#[test]
fn what_only_hope_keeps_is_found() {
    let of = |wake_sources: &[Waker]| {
        let build = known_wakers(wake_sources);
        let graph = WaitGraph::new(&build.0, &[vec![1]]);
        graph.kept_by_wake_source([key(0)].iter()).len()
    };
    assert_eq!(of(&[Waker::OnRequest, Waker::Party(Party::Process(0))]), 1);
    assert_eq!((of(&[]), of(&[Waker::OnRequest, Waker::Party(thread(7))])), (0, 0));
}
