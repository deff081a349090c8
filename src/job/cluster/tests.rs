//! Clusters that are made up: what the verdict over them is, and what is no proof.

use super::super::digest::{Digest, Doing, Look, Member};
use super::super::report as told;
use crate::launcher::JobEngine;
use crate::report::{
    ClusterLease, ClusterMember, ClusterPart, ClusterRequest, ClusterRole, ClusterThing, Granted, Host, Identity,
    Report, RunningTask, ThreadState, Verdict, WaitingTask,
};

const SCHEDULER: &str = "tcp://10.0.0.1:8786";

/// A process of the cluster, with its threads 1000 + number * 10 and on.
pub(in super::super) fn member(number: i32, role: ClusterPart) -> Member {
    let pid = 100 + number;
    let role = ClusterRole {
        role,
        address: Some(format!("tcp://10.0.0.{pid}:1")),
        name: Some(number.to_string()),
        id: None,
        threads: (role == ClusterPart::Worker).then_some(2),
        ..ClusterRole::default()
    };
    let cluster = ClusterMember {
        engine: JobEngine::Dask,
        scheduler: Some(SCHEDULER.into()),
        roles: vec![role],
        ..ClusterMember::default()
    };
    Member {
        pid,
        program: "python3".into(),
        identity: Identity { ns_pid: pid, start_ticks: Some(7), ..Identity::default() },
        verdict: Verdict::Blocked,
        finding: None,
        main: Doing { tid: pid, name: "main".into(), state: ThreadState::Sleeping, place: String::new(), wait: None },
        waits: Vec::new(),
        others: 3,
        free_thread: None,
        connections: Vec::new(),
        carried: Vec::new(),
        threads: 1,
        classes: Vec::new(),
        helpers: Vec::new(),
        enqueued: Vec::new(),
        cluster: Some(cluster),
        on_gpu: false,
        witnessed: None,
    }
}

pub(in super::super) fn cluster(member: &mut Member) -> &mut ClusterMember {
    member.cluster.as_mut().expect("of a cluster")
}

/// Thread `tid` runs a task.
fn runs(mut member: Member, tid: i32, task: &str) -> Member {
    let running =
        RunningTask { tid, task: task.into(), doing: "is sleeping at x.py:1 f".into(), ..RunningTask::default() };
    cluster(&mut member).running.push(running);
    member
}

/// Thread `tid` asks for something, by a request of this mark.
fn asks(mut member: Member, tid: i32, what: ClusterThing, name: &str, mark: &str) -> Member {
    cluster(&mut member).requests.push(ClusterRequest {
        tid,
        what,
        names: vec![name.into()],
        request: mark.into(),
        place: "x.py:9 f".into(),
        ..ClusterRequest::default()
    });
    member
}

/// Thread `tid` is inside of a lock.
fn has(mut member: Member, tid: i32, name: &str, lease: &str) -> Member {
    cluster(&mut member).leases.push(ClusterLease {
        what: ClusterThing::Lock,
        name: name.into(),
        most: 1,
        leases: vec![lease.into()],
        tid: Some(tid),
        is_entered: true,
        ..ClusterLease::default()
    });
    member
}

/// Looks of both rounds, in which the members are the same, each node seen alone.
fn both(members: &[Member]) -> Report {
    rounds(members, members)
}

fn rounds(first: &[Member], second: &[Member]) -> Report {
    let mut digest = Digest::default();
    let look = |round: u8, member: &Member, saw: Vec<String>| {
        let host = Host {
            name: Some(format!("node{}", member.pid)),
            boot_id: Some(member.pid.to_string()),
            ..Host::default()
        };
        let look =
            Look { round, host, saw: saw.into_iter().collect(), members: vec![member.clone()], ..Look::default() };
        look.named()
    };
    let earlier: Vec<Look> = first.iter().map(|member| look(1, member, Vec::new())).collect();
    let names: Vec<String> = earlier.iter().map(|look| look.id.clone()).collect();
    second.iter().map(|member| look(2, member, names.clone())).for_each(|look| digest.add(look));
    earlier.into_iter().for_each(|look| digest.add(look));
    told(&digest)
}

/// Two tasks that have a lock each and want the other's.
fn opposite(marks: [&str; 2], leases: [&str; 2]) -> Vec<Member> {
    let one = has(runs(member(0, ClusterPart::Worker), 1000, "one"), 1000, "a", leases[0]);
    let other = has(runs(member(1, ClusterPart::Worker), 1010, "other"), 1010, "b", leases[1]);
    vec![asks(one, 1000, ClusterThing::Lock, "b", marks[0]), asks(other, 1010, ClusterThing::Lock, "a", marks[1])]
}

#[test]
fn locks_in_opposite_orders_are_a_deadlock_in_two_rounds_only() {
    let members = opposite(["r1", "r2"], ["l1", "l2"]);
    let report = both(&members);
    assert_eq!(report.verdict, Verdict::Deadlock, "{}", report.summary);
    let said = "The distributed.Lock `b` is held by task `other` in worker 1 at tcp://10.0.0.101:1 (node101, python3 101), which waits for \
                distributed.Lock `a` at x.py:9 f; that is held by task `one` in worker 0";
    assert!(report.summary.starts_with(said), "{}", report.summary);
    assert_eq!((report.findings[0].code.as_str(), report.cycles[0].edges.len()), ("lock-order-cycle", 2));
    let mut digest = Digest::default();
    digest.add(Look { round: 1, members: members.clone(), ..Look::default() });
    assert_eq!(told(&digest).verdict, Verdict::SuspectedDeadlock);
}

#[test]
fn a_request_or_a_lease_that_is_another_one_by_now_is_in_no_ring() {
    let before = opposite(["r1", "r2"], ["l1", "l2"]);
    for now in [opposite(["r1", "r3"], ["l1", "l2"]), opposite(["r1", "r2"], ["l3", "l2"])] {
        let report = rounds(&before, &now);
        assert_eq!((report.verdict, report.cycles.len()), (Verdict::Blocked, 0), "{}", report.summary);
    }
    // Locks may have time-outs, and leases run out: the scheduler knows.
    let mut timed = before.clone();
    cluster(&mut timed[0]).requests[0].timed = true;
    assert_eq!(both(&timed).verdict, Verdict::Blocked);
    let mut scheduler = member(2, ClusterPart::Scheduler);
    cluster(&mut scheduler).granted.push(Granted { name: "a".into(), most: Some(1), leases: vec!["l9".into()] });
    let report = both(&[before, vec![scheduler]].concat());
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
}

#[test]
fn looks_that_did_not_see_each_other_prove_nothing() {
    let mut digest = Digest::default();
    for member in opposite(["r1", "r2"], ["l1", "l2"]) {
        let host = Host { boot_id: Some(member.pid.to_string()), ..Host::default() };
        let first = Look { round: 1, host: host.clone(), members: vec![member.clone()], ..Look::default() }.named();
        let saw = [first.id.clone()].into();
        digest.add(first);
        digest.add(Look { round: 2, host, saw, members: vec![member], ..Look::default() });
    }
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::SuspectedDeadlock, "{}", report.summary);
    assert!(report.gaps.iter().any(|gap| gap.why.contains("does not name")), "{:?}", report.gaps);
}

#[test]
fn a_task_that_has_the_lock_which_the_one_it_waits_for_wants_is_in_a_ring_with_it() {
    let one = has(runs(member(0, ClusterPart::Worker), 1000, "outer"), 1000, "table", "l1");
    let other = asks(runs(member(1, ClusterPart::Worker), 1010, "inner"), 1010, ClusterThing::Lock, "table", "r2");
    let members = [asks(one, 1000, ClusterThing::Result, "inner", "r1"), other];
    let report = both(&members);
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::Deadlock, "rank-cycle"));
    // A thread that runs goes on, and all behind it.
    let mut goes_on = members;
    cluster(&mut goes_on[1]).requests.clear();
    assert_eq!(both(&goes_on).verdict, Verdict::Blocked);
}

#[test]
fn workers_without_a_thread_for_what_theirs_wait_for_are_suspected() {
    let full = |what: ClusterThing, names: [&str; 2]| {
        let mut worker = member(0, ClusterPart::Worker);
        for (tid, name) in [1000, 1001].into_iter().zip(names) {
            worker = asks(runs(worker, tid, &format!("outer-{tid}")), tid, what, name, name);
        }
        cluster(&mut worker).ready = vec!["inner-0".into(), "inner-1".into()];
        worker
    };
    let results = full(ClusterThing::Result, ["inner-0", "inner-1"]);
    let report = both(std::slice::from_ref(&results));
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::SuspectedDeadlock, "executor-self-wait"));
    assert!(report.summary.contains("2 tasks that would have to run for it have no thread"), "{}", report.summary);
    // A third thread, or one that was given away, runs them.
    let mut more = results.clone();
    cluster(&mut more).roles[0].threads = Some(3);
    assert_eq!(both(&[more]).verdict, Verdict::Blocked);
    let mut seceded = results;
    cluster(&mut seceded).running[0].has_seceded = true;
    assert_eq!(both(&[seceded]).verdict, Verdict::Blocked);
    // A client that does not wait may set an event; one that waits may not.
    let events = full(ClusterThing::Event, ["done-0", "done-1"]);
    assert_eq!(both(&[events.clone(), member(1, ClusterPart::Client)]).verdict, Verdict::Blocked);
    let client = asks(member(1, ClusterPart::Client), 101, ClusterThing::Result, "outer-1000", "r");
    assert_eq!(both(&[events, client]).verdict, Verdict::SuspectedDeadlock);
}

#[test]
fn who_waits_for_whom_is_told_up_to_the_task_that_waits_for_nobody() {
    let mut scheduler = member(2, ClusterPart::Scheduler);
    cluster(&mut scheduler).waiting.push(WaitingTask { task: "sum".into(), on: vec!["part".into()] });
    let client = asks(member(1, ClusterPart::Client), 101, ClusterThing::Result, "sum", "r1");
    let worker = runs(member(0, ClusterPart::Worker), 1000, "part");
    let report = both(&[client, worker.clone(), scheduler.clone()]);
    let said = "The client (node101, python3 101) waits for the result of task `sum` at x.py:9 f, which needs task `part`, which thread 1000 of \
                worker 0";
    assert!(report.summary.starts_with(said), "{}", report.summary);
    assert!(report.summary.ends_with("that thread is sleeping at x.py:1 f."), "{}", report.summary);
    let report = both(&[worker, scheduler]);
    assert!(
        report.summary.starts_with("Task `sum` waits for task `part`, which thread 1000 of worker 0"),
        "{}",
        report.summary
    );
}

/// Workers: each has a lock and waits for the next one's; the last goes on.
fn chain(length: i32) -> Vec<Member> {
    let lock = |number: i32| format!("lock-{number}");
    let link = |number: i32| {
        let tid = 100_000 + number;
        let one = has(
            runs(member(number, ClusterPart::Worker), tid, &format!("task-{number}")),
            tid,
            &lock(number),
            &lock(number),
        );
        if number + 1 < length { asks(one, tid, ClusterThing::Lock, &lock(number + 1), &lock(number)) } else { one }
    };
    (0..length).map(link).collect()
}

#[test]
fn a_chain_of_thousands_is_told_by_its_beginning_and_its_end() {
    let mut digest = Digest::default();
    let first = Look { round: 1, members: chain(4000), ..Look::default() }.named();
    digest.add(Look { round: 2, members: chain(4000), saw: [first.id.clone()].into(), ..Look::default() });
    digest.add(first);
    let report = told(&digest);
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
    assert!(report.summary.starts_with("Task `task-0` in worker 0"), "{}", report.summary);
    assert!(report.summary.contains("and so on for 3993 more, to task `task-3999`"), "{}", report.summary);
    assert!(report.summary.ends_with("that thread is sleeping at x.py:1 f."), "{}", report.summary);
    assert!(report.summary.len() < 2000, "{}", report.summary);
}

#[test]
fn a_ring_of_thousands_has_all_of_them() {
    let close = |mut members: Vec<Member>| {
        let last = members.pop().expect("a worker");
        members.push(asks(last, 100_999, ClusterThing::Lock, "lock-0", "lock-999"));
        members
    };
    let report = both(&close(chain(1000))[..]);
    assert_eq!((report.verdict, report.cycles[0].edges.len()), (Verdict::Deadlock, 1000), "{}", report.summary);
    assert!(report.summary.contains("and so on for 994 more"), "{}", report.summary);
}

#[test]
fn tasks_that_share_what_they_need_are_gone_through_once() {
    // Each of two tasks of a step needs both of the next: the ways double with each step.
    let mut scheduler = member(2, ClusterPart::Scheduler);
    for step in 0..60 {
        for side in ["l", "r"] {
            let on = vec![format!("l{}", step + 1), format!("r{}", step + 1)];
            cluster(&mut scheduler).waiting.push(WaitingTask { task: format!("{side}{step}"), on });
        }
    }
    let client = asks(member(1, ClusterPart::Client), 101, ClusterThing::Result, "l0", "r1");
    let report = both(&[client, scheduler]);
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
    assert!(report.summary.contains("the result of task `l0`"), "{}", report.summary);
}
