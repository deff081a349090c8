//! Made-up jobs: their verdicts, the promises of merging, and the errors for bad files.

use std::collections::BTreeSet;

use super::digest::{Digest, DigestError, Doing, HeldBy, Look, Member, RankWait, Seen, Told};
use super::report as told;
use crate::launcher::JobEngine;
use crate::report::{Certainty, Gap, Host, Identity, Job, Report, ThreadState, Verdict};
use crate::waits::collective::Collective;

/// A rank of a job of `size`, on a node.
pub(super) fn member(rank: u32, size: u32) -> Member {
    let identity = Identity {
        ns_pid: 100 + rank as i32,
        start_ticks: Some(7),
        job: Some(Job { engine: JobEngine::Mpi, id: Some("j".into()), step: None }),
        rank: Some(rank),
        size: Some(size),
        ..Identity::default()
    };
    Member {
        pid: 100 + rank as i32,
        program: "prog".into(),
        identity,
        verdict: Verdict::Running,
        finding: None,
        main: Doing {
            tid: 100 + rank as i32,
            name: "main".into(),
            state: ThreadState::Running,
            place: format!("prog.py:{rank} main"),
            wait: None,
        },
        waits: Vec::new(),
        others: 0,
        free_thread: None,
        connections: Vec::new(),
        carried: Vec::new(),
        threads: 1,
        classes: Vec::new(),
        helpers: Vec::new(),
        enqueued: Vec::new(),
        cluster: None,
        on_gpu: false,
        witnessed: None,
    }
}

/// An operation with a request whose words are known.
pub(super) fn operation(op: &str, peers: &[u32]) -> Collective {
    Collective {
        backend: "openmpi".into(),
        group: Some("MPI_COMM_WORLD".into()),
        op: op.into(),
        peers: peers.to_vec(),
        tag: matches!(op, "recv" | "send").then_some(5),
        request: Some("0x10".into()),
        mark: Some("still".into()),
        matched: Some(false),
        synchronises: matches!(op, "barrier" | "allreduce"),
        ..Collective::default()
    }
}

/// The rank waits in this operation.
pub(super) fn waits(mut member: Member, collective: Collective) -> Member {
    member.verdict = Verdict::Blocked;
    member.main.wait = Some(format!("{} {:?}", collective.op, collective.peers));
    member.waits.push(RankWait {
        tid: member.main.tid,
        holds_up_main: true,
        label: format!("{} {:?}", collective.op, collective.peers),
        place: member.main.place.clone(),
        timed: false,
        certainty: Certainty::Exact,
        since_ms: None,
        polled_ms: None,
        polled_by: Vec::new(),
        left: false,
        collective: Some(collective),
        connection: None,
        held_by: None,
    });
    member
}

pub(super) fn look(round: u8, node: &str, saw: &[&Look], members: Vec<Member>) -> Look {
    Look {
        round,
        host: Host { name: Some(node.into()), boot_id: Some(node.into()), kernel: None },
        began: format!("2026-01-01T00:00:0{round}.000Z"),
        ended: format!("2026-01-01T00:00:0{round}.500Z"),
        saw: saw.iter().map(|look| look.id.clone()).collect(),
        members,
        ..Look::default()
    }
    .named()
}

/// A digest of both rounds, in which all nodes have one rank and have seen each other.
pub(super) fn twice(first: Vec<Member>, second: Vec<Member>) -> Digest {
    let node = |rank: u32| format!("node{rank}");
    let number = |member: &Member| member.identity.rank.expect("a rank");
    let first: Vec<Look> = first.into_iter().map(|one| look(1, &node(number(&one)), &[], vec![one])).collect();
    let seen: Vec<&Look> = first.iter().collect();
    let mut digest = Digest::default();
    for one in second {
        digest.add(look(2, &node(number(&one)), &seen, vec![one]));
    }
    first.into_iter().for_each(|look| digest.add(look));
    digest
}

fn still(members: Vec<Member>) -> Report {
    told(&twice(members.clone(), members))
}

/// Ranks 0 and 1 receive from each other, and rank 2 is in a barrier.
pub(super) fn crossed() -> Vec<Member> {
    vec![
        waits(member(0, 3), operation("recv", &[1])),
        waits(member(1, 3), operation("recv", &[0])),
        waits(member(2, 3), operation("barrier", &[0])),
    ]
}

#[test]
fn two_that_receive_from_each_other_are_in_a_deadlock() {
    let report = still(crossed());
    assert_eq!(report.verdict, Verdict::Deadlock, "{}", report.summary);
    assert!(report.summary.starts_with("Rank 0 (node0, prog 100) waits for recv [1] at prog.py:0 main; rank 1"));
    assert!(report.summary.contains("1 more rank waits because of this: rank 2 in barrier"), "{}", report.summary);
    assert_eq!(report.cycles[0].edges.len(), 2);
    assert_eq!(report.findings[0].code, "rank-cycle");
    assert_eq!(report.holds[0].holder_rank, Some(1));
    assert!(report.gaps.is_empty(), "{:?}", report.gaps);
}

/// All ranks on one machine, twice the same.
fn on_one_node(members: &[Member]) -> Report {
    let first = look(1, "node", &[], members.to_vec());
    let mut digest = Digest::default();
    digest.add(look(2, "node", &[&first], members.to_vec()));
    digest.add(first);
    told(&digest)
}

/// The rank's main thread needs a lock that this rank has, for so long.
fn needs_lock_of(mut member: Member, holder: u32, since_ms: u64) -> Member {
    member.verdict = Verdict::Blocked;
    member.waits.push(RankWait {
        label: "flock on f".into(),
        place: "prog.py:8 locked".into(),
        since_ms: Some(since_ms),
        collective: None,
        held_by: Some(HeldBy {
            pid: 100 + holder as i32,
            is_lock: true,
            through: "mutex m at prog.py:7 main, held by process prog 9, which waits for ".into(),
            evidence: "/proc/locks".into(),
        }),
        ..waits(super::tests::member(9, 10), operation("recv", &[])).waits.remove(0)
    });
    member
}

#[test]
fn what_a_process_of_a_rank_holds_closes_a_cycle() {
    let ring = |since_ms: u64| {
        [waits(member(0, 3), operation("recv", &[1])), needs_lock_of(member(1, 3), 0, since_ms), crossed().remove(2)]
    };
    let report = on_one_node(&ring(60_000));
    assert_eq!(report.verdict, Verdict::Deadlock, "{}", report.summary);
    let said = "rank 1 (node, prog 101) waits for mutex m at prog.py:7 main, held by process prog 9, which waits for \
                flock on f at prog.py:8 locked, held by rank 0. 1 more rank waits because of this: rank 2 in barrier";
    assert!(report.summary.contains(said), "{}", report.summary);
    assert_eq!((report.cycles[0].edges.len(), report.findings[0].code.as_str()), (2, "rank-cycle"));
    assert_eq!(on_one_node(&ring(10)).verdict, Verdict::Blocked, "it woke between the rounds");
    let mut timed = ring(60_000);
    timed[1].waits[0].timed = true;
    assert_eq!(on_one_node(&timed).verdict, Verdict::SuspectedDeadlock);
    // The number of a process of another machine is another process's.
    assert_eq!(still(ring(60_000).to_vec()).verdict, Verdict::Blocked);
    // The lock of a third rank, which goes on, is no cycle.
    let late = [ring(60_000)[0].clone(), needs_lock_of(member(1, 3), 2, 60_000), member(2, 3)];
    let report = on_one_node(&late);
    assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
    assert!(report.summary.starts_with("2 ranks wait for rank 2 ("), "{}", report.summary);
    // Its own: a helper of its waits for what only it could write.
    let report = on_one_node(&[needs_lock_of(member(0, 2), 0, 60_000), waits(member(1, 2), operation("recv", &[0]))]);
    assert_eq!(report.verdict, Verdict::Deadlock, "{}", report.summary);
    assert!(report.summary.contains("held by rank 0. 1 more rank waits because of this: rank 1"), "{}", report.summary);
}

#[test]
fn a_thread_that_may_act_keeps_a_cycle_from_being_one() {
    let asleep = |mut member: Member| {
        member.others = 1;
        member.free_thread = Some(Doing { tid: 9, state: ThreadState::Sleeping, wait: None, ..member.main.clone() });
        member
    };
    let mut members = crossed();
    members[1] = asleep(members[1].clone());
    let report = still(members.clone());
    assert_eq!(report.verdict, Verdict::Blocked);
    let said = "Not confirmed, since thread 9 of rank 1 may still act: it is sleeping at prog.py:1 main: Rank 0 (";
    assert!(report.summary.starts_with(said), "{}", report.summary);
    // One that has the same nature in a rank behind the cycle changes nothing.
    let mut behind = crossed();
    behind[2] = asleep(behind[2].clone());
    assert_eq!(still(behind).verdict, Verdict::Deadlock);
}

#[test]
fn the_deepest_cause_leads() {
    let in_something = |mut member: Member, verdict: Verdict| {
        member.verdict = verdict;
        member.finding = Some(Told {
            code: "lock-order-cycle".into(),
            title: "locks in two orders".into(),
            message: "A holds one and waits for two.".into(),
            tids: Vec::new(),
            certainty: Certainty::Exact,
        });
        member
    };
    let first = in_something(waits(member(0, 2), operation("recv", &[1])), Verdict::Deadlock);
    let report = still(vec![first.clone(), in_something(member(1, 2), Verdict::Stuck)]);
    assert_eq!(report.verdict, Verdict::Stuck);
    assert!(report.summary.starts_with("rank 1 ("), "{}", report.summary);
    assert!(
        report.summary.ends_with("1 more rank waits because of this: rank 0 in recv at prog.py:0 main."),
        "{}",
        report.summary
    );
    assert_eq!(still(vec![first, member(1, 2)]).verdict, Verdict::Deadlock);
}

#[test]
fn another_thread_that_waits_for_a_rank_is_as_stuck_as_that_rank() {
    let with_thread = |operation: Collective| {
        let mut members = crossed();
        let of_thread = waits(member(1, 3), operation).waits.remove(0);
        members[1].waits.push(RankWait { tid: 9, holds_up_main: false, ..of_thread });
        members[1].others = 1;
        members
    };
    let verdict = |members: Vec<Member>| still(members).verdict;
    assert_eq!(verdict(with_thread(operation("recv", &[0]))), Verdict::SuspectedDeadlock);
    assert_eq!(verdict(with_thread(operation("recv", &[2]))), Verdict::SuspectedDeadlock, "rank 2 waits for rank 0");
    let mut goes_on = with_thread(operation("recv", &[2]));
    goes_on[2] = member(2, 3);
    assert_eq!(verdict(goes_on), Verdict::Blocked);
    let from_anybody = Collective { any: true, ..operation("recv", &[]) };
    assert_eq!(verdict(with_thread(from_anybody)), Verdict::Blocked);
}

#[test]
fn a_synchronous_send_and_its_receive_are_a_transfer() {
    let mut send = operation("ssend", &[1]);
    send.tag = Some(5);
    let report = still(vec![waits(member(0, 2), send), waits(member(1, 2), operation("recv", &[0]))]);
    assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
    assert!(report.cycles.is_empty());
}

#[test]
fn a_group_that_was_not_read_is_no_other_one() {
    let mut unknown = operation("barrier", &[]);
    unknown.group = None;
    let report = still(vec![waits(member(0, 2), operation("barrier", &[])), waits(member(1, 2), unknown)]);
    assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
    assert!(report.cycles.is_empty());
}

#[test]
fn waits_of_which_nothing_says_that_they_stood_still_are_no_deadlock() {
    let mut alike = crossed();
    for wait in alike.iter_mut().flat_map(|member| &mut member.waits) {
        wait.collective.as_mut().expect("an operation").mark = None;
    }
    let report = still(alike);
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
    assert!(report.summary.starts_with("Not confirmed, since nothing that could be read says"), "{}", report.summary);
    assert!(report.cycles.is_empty());
}

#[test]
fn one_round_is_no_proof() {
    let mut digest = Digest::default();
    digest.add(look(1, "node", &[], crossed()));
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::Blocked);
    assert!(report.summary.starts_with("Not confirmed"), "{}", report.summary);
    assert!(report.gaps.iter().any(|gap| gap.why.contains("--round 2")));
}

#[test]
fn bytes_that_moved_are_no_standstill() {
    let mut second = crossed();
    second[0].waits[0].collective.as_mut().expect("an operation").mark = Some("moved".into());
    let report = told(&twice(crossed(), second));
    assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
    assert!(report.cycles.is_empty());
}

/// Adds a connection between ranks 0 and 1 beside these waits. Its two ends have carried `counts` bytes.
pub(super) fn connected(mut members: Vec<Member>, counts: [Option<u64>; 2]) -> Vec<Member> {
    let ends = [("10.0.0.1:1".to_owned(), "10.0.0.2:2".to_owned()), ("10.0.0.2:2".to_owned(), "10.0.0.1:1".to_owned())];
    for ((member, end), count) in members.iter_mut().zip(ends).zip(counts) {
        member.connections.push(end);
        member.carried.push(count);
    }
    members
}

#[test]
fn who_talks_to_a_rank_that_misses_in_an_operation_stands_not_still() {
    // Rank 0 is in a barrier that rank 1 has not entered, which receives from rank 0.
    let ring = || vec![waits(member(0, 2), operation("barrier", &[])), waits(member(1, 2), operation("recv", &[0]))];
    assert_eq!(still(ring()).verdict, Verdict::Deadlock, "{}", still(ring()).summary);
    let talks = |counts| connected(ring(), counts);
    let report = told(&twice(talks([Some(7), Some(9)]), talks([Some(7), Some(10)])));
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
}

#[test]
fn a_message_that_is_on_its_way_is_waited_for_by_nobody() {
    let mut members = crossed();
    members[0].waits[0].collective.as_mut().expect("an operation").matched = Some(true);
    assert_eq!(still(members).verdict.exit_code(), 0);
    let transfer = vec![waits(member(0, 2), operation("send", &[1])), waits(member(1, 2), operation("recv", &[0]))];
    assert_eq!(still(transfer).verdict.exit_code(), 0, "a send and its receive");
    let sends = vec![waits(member(0, 2), operation("send", &[1])), waits(member(1, 2), operation("send", &[0]))];
    assert_eq!(still(sends).verdict, Verdict::Deadlock, "two sends that wait to be received");
}

#[test]
fn without_words_of_the_request_nothing_is_proven() {
    let mut members = crossed();
    for member in &mut members {
        member.waits[0].collective.as_mut().expect("an operation").mark = None;
    }
    let report = still(members);
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
    assert!(report.summary.contains("nothing that could be read says"), "{}", report.summary);
}

#[test]
fn who_did_not_see_the_others_proves_nothing() {
    let members = crossed();
    let first: Vec<Look> = members.iter().map(|one| look(1, &one.pid.to_string(), &[], vec![one.clone()])).collect();
    let mut digest = Digest::default();
    for (own, one) in first.iter().zip(&members) {
        digest.add(look(2, &one.pid.to_string(), &[own], vec![one.clone()]));
    }
    first.into_iter().for_each(|look| digest.add(look));
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::SuspectedDeadlock);
    assert!(report.gaps.iter().any(|gap| gap.why.contains("does not name")), "{:?}", report.gaps);
}

#[test]
fn another_thread_may_do_what_is_waited_for() {
    let mut members = crossed();
    members[0].others = 1;
    assert_eq!(still(members).verdict, Verdict::SuspectedDeadlock);
    let mut members = crossed();
    members[0].waits[0].timed = true;
    assert_eq!(still(members).verdict, Verdict::SuspectedDeadlock);
    let mut members = crossed();
    members[0].waits[0].collective.as_mut().expect("an operation").any = true;
    assert_eq!(still(members).verdict, Verdict::Blocked, "from anybody");
}

#[test]
fn all_in_one_operation_are_in_no_cycle() {
    let all = |peers: [u32; 3]| {
        (0..3).map(|rank| waits(member(rank, 3), operation("allreduce", &[peers[rank as usize]]))).collect::<Vec<_>>()
    };
    let report = still(all([1, 2, 0]));
    assert_eq!(report.verdict, Verdict::Blocked);
    assert_eq!(report.summary, "All 3 ranks are in allreduce, and nobody is missing.");
}

#[test]
fn the_rank_in_a_deadlock_of_its_own_is_the_cause() {
    let barrier = |rank| waits(member(rank, 4), operation("barrier", &[]));
    let mut members = vec![barrier(0), barrier(1), member(2, 4), barrier(3)];
    members[2].verdict = Verdict::Deadlock;
    members[2].finding = Some(Told {
        code: "lock-order-cycle".into(),
        title: "locks in two orders".into(),
        message: "A holds one and waits for two.".into(),
        tids: Vec::new(),
        certainty: Certainty::Exact,
    });
    let report = still(members);
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::Deadlock, "lock-order-cycle"));
    assert!(report.summary.starts_with("rank 2 (node2, prog 102): A holds"), "{}", report.summary);
    assert!(report.summary.contains("3 more ranks wait because of this"), "{}", report.summary);
}

#[test]
fn whoever_is_late_is_named() {
    let barrier = |rank| {
        let mut member = member(rank, 3);
        member.main.place = "prog.py:9 main".into();
        waits(member, operation("barrier", &[]))
    };
    let report = still(vec![barrier(0), member(1, 3), barrier(2)]);
    assert_eq!(report.verdict, Verdict::Running);
    assert!(
        report.summary.starts_with("2 ranks wait for rank 1 (node1, prog 101), which is running"),
        "{}",
        report.summary
    );
    assert_eq!(report.job.expect("ranks").groups[0].ranks, "1", "the rare one first");
}

#[test]
fn calls_that_do_not_match_are_told_first() {
    let mut members: Vec<Member> = (0..4).map(|rank| waits(member(rank, 4), operation("allreduce", &[]))).collect();
    members[1] = waits(member(1, 4), operation("barrier", &[]));
    let report = still(members);
    assert_eq!(report.verdict, Verdict::Deadlock);
    assert!(
        report.summary.starts_with("Rank 1 is in barrier, where ranks 0,2-3 are in allreduce of MPI_COMM_WORLD."),
        "{}",
        report.summary
    );
}

#[test]
fn who_is_missing_is_said_and_who_has_ended_makes_it_stuck() {
    let barrier = |rank| waits(member(rank, 3), operation("barrier", &[]));
    let report = still(vec![barrier(0), barrier(2)]);
    assert_eq!(report.verdict.exit_code(), 0);
    assert!(report.gaps[0].what.contains("rank 1 of 3"), "{:?}", report.gaps);
    // The launcher of the node says that it started three.
    let on_one_node = |rank: u32| {
        let mut member = barrier(rank);
        (member.identity.local_rank, member.identity.local_size) = (Some(rank), Some(3));
        member
    };
    let first = look(1, "node", &[], vec![on_one_node(0), on_one_node(2)]);
    let second = look(2, "node", &[&first], vec![on_one_node(0), on_one_node(2)]);
    let mut digest = Digest::default();
    digest.add(first);
    digest.add(second);
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::Stuck, "{}", report.summary);
    assert!(report.summary.starts_with("Rank 1 has ended, and others wait for it."), "{}", report.summary);
}

#[test]
fn a_rank_that_was_left_out_has_not_ended() {
    let barrier = |rank: u32| {
        let mut member = waits(member(rank, 3), operation("barrier", &[]));
        (member.identity.local_rank, member.identity.local_size) = (Some(rank), Some(3));
        member
    };
    let traced = || Gap::new("process 901", "process 901 is already traced by gdb (pid 7)");
    let without = |round: u8, saw: &[&Look]| {
        let look = Look { gaps: vec![traced()], ..look(round, "node", saw, vec![barrier(0), barrier(2)]) };
        look.without([(0, barrier(0).pid), (1, 901), (2, barrier(2).pid)])
    };
    let whole = look(1, "node", &[], vec![barrier(0), barrier(1), barrier(2)]);
    for (first, words) in [(without(1, &[]), "there is no look at it"), (whole, "it was not looked at in both rounds")]
    {
        let mut digest = Digest::default();
        digest.add(without(2, &[&first]));
        digest.add(first);
        let report = told(&Digest::read(&digest.write(), "x").expect("a digest"));
        assert_eq!(report.job.as_ref().map(|job| job.ended.as_str()), Some(""), "{}", report.summary);
        let gap = report.gaps.iter().find(|gap| gap.what == "rank 1 of 3").expect("a gap");
        assert!(gap.why.starts_with(words) && gap.why.ends_with("traced by gdb (pid 7)"), "{gap:?}");
        assert!(report.gaps.iter().all(|gap| gap.what != "process 901"), "{:?}", report.gaps);
    }
}

#[test]
fn pods_of_one_machine_do_not_speak_for_each_other() {
    let in_pod = |rank: u32| {
        let mut member = waits(member(rank, 2), operation("barrier", &[]));
        member.identity.namespaces.pid = Some(u64::from(rank));
        member
    };
    let first = look(1, "node", &[], vec![in_pod(0)]);
    let mut digest = Digest::default();
    // The other pod has a second round, and this one has none.
    digest.add(look(1, "node", &[], vec![in_pod(1)]));
    digest.add(look(2, "node", &[&first], vec![in_pod(1)]));
    digest.add(first);
    let report = told(&digest);
    let job = report.job.as_ref().expect("a job");
    assert_eq!((job.reported.as_str(), job.ended.as_str()), ("0-1", ""), "{}", report.summary);
}

#[test]
fn a_clock_stands_for_the_machine_that_has_it_and_no_other() {
    // Both have seen the same set, which lacks the first sample of the first machine: only that one knows by its clock.
    let ring = |rank: u32| waits(member(rank, 2), operation("recv", &[1 - rank]));
    let first = [look(1, "a", &[], vec![ring(0)]), look(1, "b", &[], vec![ring(1)])];
    let names: BTreeSet<String> = (0..100).map(|n| n.to_string()).chain([first[1].id.clone()]).collect();
    let (seen, mut digest) = Seen::of(names);
    for (rank, node) in ["a", "b"].into_iter().enumerate() {
        digest.add(Look { saw_set: seen.set.clone(), ..look(2, node, &[], vec![ring(rank as u32)]) }.named());
    }
    first.into_iter().for_each(|look| digest.add(look));
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::SuspectedDeadlock, "{}", report.summary);
    assert!(report.gaps.iter().any(|gap| gap.why.contains("does not name that of the first")), "{:?}", report.gaps);
}

#[test]
fn connections_join_what_has_no_numbers() {
    let ends = [("10.0.0.1:1", "10.0.0.2:2"), ("10.0.0.2:2", "10.0.0.1:1")];
    let members: Vec<Member> = (0..2)
        .map(|rank| {
            let mut member = member(rank, 2);
            let (local, remote) = ends[rank as usize];
            let end = (local.to_owned(), remote.to_owned());
            member.connections.push(end.clone());
            member.verdict = Verdict::Blocked;
            member.waits.push(RankWait {
                tid: member.main.tid,
                holds_up_main: true,
                label: format!("data on TCP {local} to {remote}"),
                place: "ring.py:3 main".into(),
                timed: false,
                certainty: Certainty::Exact,
                since_ms: Some(60_000),
                polled_ms: None,
                polled_by: Vec::new(),
                left: false,
                collective: None,
                connection: Some(end),
                held_by: None,
            });
            member
        })
        .collect();
    assert_eq!(still(members.clone()).verdict, Verdict::Deadlock);
    let mut awake = members;
    awake[0].waits[0].since_ms = Some(10);
    assert_eq!(still(awake).verdict, Verdict::Blocked, "it has slept for less than the time between the looks");
}

#[test]
fn merging_is_a_union_in_any_order_and_grouping() {
    let whole = twice(crossed(), crossed());
    let parts: Vec<Digest> = whole
        .looks()
        .map(|look| {
            let mut one = Digest::default();
            one.add(look.clone());
            one
        })
        .collect();
    let text = |report: &Report| serde_json::to_string(report).expect("JSON");
    for shift in 0..parts.len() {
        let mut merged = Digest::default();
        for part in parts.iter().cycle().skip(shift).take(parts.len() + 2) {
            merged.merge(part.clone());
        }
        assert_eq!(merged.write(), whole.write());
        assert_eq!(text(&told(&merged)), text(&told(&whole)));
    }
    let (left, right) = parts.split_at(3);
    let join = |parts: &[Digest]| {
        parts.iter().cloned().fold(Digest::default(), |mut all, one| {
            all.merge(one);
            all
        })
    };
    let mut merged = join(right);
    merged.merge(join(left));
    assert_eq!(merged.write(), whole.write());
}

#[test]
fn a_digest_is_read_as_it_was_written() {
    let digest = twice(crossed(), crossed());
    assert_eq!(Digest::read(&digest.write(), "x").expect("read"), digest);
}

#[test]
fn bad_files_are_told_apart() {
    let bytes = twice(crossed(), crossed()).write();
    let why = |bytes: &[u8]| Digest::read(bytes, "x").expect_err("refused");
    assert!(matches!(why(b"{}"), DigestError::NotOne { .. }));
    assert!(matches!(why(b""), DigestError::NotOne { .. }));
    assert!(why(&bytes[..bytes.len() / 2]).to_string().contains("it is cut"));
    let text = String::from_utf8(bytes).expect("text");
    let changed = text.replace("prog.py:1 main", "prog.py:9 main");
    assert!(why(changed.as_bytes()).to_string().contains("was changed"));
    let newer = text.replace("\"version\":\"1.8\"", "\"version\":\"2.0\"");
    assert!(matches!(why(newer.as_bytes()), DigestError::Newer { .. }));
    let later = text.replace("\"version\":\"1.8\"", "\"version\":\"1.9\"").replace("\"round\"", "\"wind\":3,\"round\"");
    let later = Digest::read(later.as_bytes(), "x").expect("additions are skipped");
    let mut both = Digest::read(text.as_bytes(), "x").expect("a digest");
    assert_eq!((later.later_version(), both.later_version()), (Some("1.9"), None));
    both.merge(later);
    assert_eq!(both.later_version(), Some("1.9"), "it cannot be written again without a loss");
    for step in (0..text.len()).step_by(97) {
        let _ = Digest::read(&text.as_bytes()[..step], "x");
    }
}

#[test]
fn jobs_and_attempts_are_not_mixed() {
    let mut other = waits(member(0, 3), operation("recv", &[1]));
    other.identity.job = Some(Job { engine: JobEngine::Mpi, id: Some("another".into()), step: None });
    let mut digest = twice(crossed(), crossed());
    digest.add(look(1, "elsewhere", &[], vec![other]));
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::Deadlock);
    assert!(report.gaps.iter().any(|gap| gap.what.contains("another")), "{:?}", report.gaps);
    let mut digest = twice(crossed(), crossed());
    let mut again = member(0, 3);
    again.identity.attempt = Some(1);
    digest.add(look(1, "node0", &[], vec![again]));
    let report = told(&digest);
    assert_eq!(report.verdict.exit_code(), 0, "the ranks of the first attempt are gone");
    assert!(report.gaps.iter().any(|gap| gap.why.contains("started again")), "{:?}", report.gaps);
}

#[test]
fn threads_are_counted_as_each_version_says_it() {
    let before = include_bytes!("../../testdata/jobs/gloo/lock/all.digest.json");
    let old = Digest::read(before, "old").expect("a digest");
    let counts = |digest: &Digest| -> Vec<usize> {
        digest.looks().flat_map(|look| &look.members).map(Member::count_of_threads).collect()
    };
    assert_eq!(counts(&old), [7, 7, 7, 8, 7, 7, 7, 8]);
    // The same without classes: one number for each rank.
    let mut new = Digest::default();
    for mut look in old.looks().cloned() {
        look.classes = None;
        for member in &mut look.members {
            (member.threads, member.classes) = (member.count_of_threads(), Vec::new());
        }
        new.add(look.named());
    }
    assert_eq!(counts(&new).iter().sum::<usize>(), counts(&old).iter().sum::<usize>());
    let bytes = new.write();
    assert!(bytes.len() < before.len() * 9 / 10, "{} of {}", bytes.len(), before.len());
    assert_eq!(Digest::read(&bytes, "new"), Ok(new));
}

#[test]
fn hostile_digests_have_an_end() {
    let mut members = Vec::new();
    for rank in 0..300 {
        let mut operation = operation("allreduce", &[rank, u32::MAX, 0, 299 - rank]);
        operation.seq = Some(u64::from(rank));
        members.push(waits(member(rank, u32::MAX), operation));
    }
    let mut look = look(2, "node", &[], members.clone());
    look.members.extend(members);
    look.members[0].classes = vec![(usize::MAX, usize::MAX)];
    look.members[5].identity.local_size = Some(u32::MAX);
    look.members[5].identity.local_rank = Some(u32::MAX);
    look.began = "not a time".into();
    let mut digest = Digest::default();
    digest.add(Look { id: String::new(), saw: BTreeSet::from(["x".to_owned()]), ..look });
    let report = told(&digest);
    assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
    assert!(told(&Digest::default()).summary.contains("No look"));
}

/// All ranks of a job of `size`: each receives from the next. Their samples name the samples that they saw by a set.
fn large_ring(size: u32) -> Digest {
    let ring = |rank: u32| waits(member(rank, size), operation("recv", &[(rank + 1) % size]));
    let node = |rank: u32| format!("node{rank}");
    let first: Vec<Look> = (0..size).map(|rank| look(1, &node(rank), &[], vec![ring(rank)])).collect();
    let (seen, mut digest) = Seen::of(first.iter().map(|look| look.id.clone()).collect());
    for rank in 0..size {
        let second = look(2, &node(rank), &[], vec![ring(rank)]);
        digest.add(Look { saw_set: seen.set.clone(), partial: true, ..second }.named());
    }
    first.into_iter().for_each(|look| digest.add(look));
    digest
}

#[test]
fn what_thousands_have_seen_stands_in_the_file_once() {
    let digest = large_ring(100);
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::Deadlock, "{}", report.summary);
    let bytes = digest.write();
    assert_eq!(Digest::read(&bytes, "x"), Ok(digest));
    let per_rank = |digest: &Digest| digest.write().len() / digest.looks().count();
    assert!(per_rank(&large_ring(400)) < per_rank(&large_ring(100)) + 100, "linear in the number of ranks");
    let text = String::from_utf8(bytes).expect("JSON");
    let at = text.find("\"sets\":{\"").expect("a set") + 60;
    let changed = format!("{}{}{}", &text[..at], if &text[at..=at] == "0" { "1" } else { "0" }, &text[at + 1..]);
    assert!(matches!(Digest::read(changed.as_bytes(), "x"), Err(DigestError::Damaged { .. })));
}

#[test]
fn a_rank_that_did_not_answer_again_has_not_ended() {
    let mut members = crossed();
    members.iter_mut().for_each(|member| member.identity.launcher = Some((1, 1)));
    let partial = |round: u8, saw: &[&Look], member: &Member| {
        let look = look(round, "node", saw, vec![member.clone()]);
        Look { partial: true, ..look }.named()
    };
    let first: Vec<Look> = members.iter().map(|member| partial(1, &[], member)).collect();
    let seen: Vec<&Look> = first.iter().collect();
    let mut digest = Digest::default();
    members[..2].iter().for_each(|member| digest.add(partial(2, &seen, member)));
    first.iter().for_each(|look| digest.add(look.clone()));
    let job = told(&digest).job.expect("a job");
    assert_eq!((job.reported.as_str(), job.ended.as_str()), ("0-2", ""));
}
