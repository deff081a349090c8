//! Actors that are made up: what the verdict over them is, what is no proof, and what Ray's list of tasks adds.

use serde_json::{Value, json};

use super::super::digest::{Digest, Look, Member};
use super::super::report as told;
use super::super::witness::Witness;
use super::tests::{cluster, member};
use crate::launcher::JobEngine;
use crate::report::{ClusterPart, ClusterRequest, ClusterThing, Host, Report, RunningTask, Verdict};

/// The id of the task `own` of actor `actor`; of no actor where that is none.
fn task(own: u8, actor: Option<u8>) -> String {
    let actor = actor.map_or("ff".repeat(12), |actor| format!("{actor:02x}").repeat(12));
    format!("{}{actor}01000000", format!("{own:02x}").repeat(8))
}

/// An actor with one thread.
fn actor(number: u8) -> Member {
    let mut member = member(i32::from(number), ClusterPart::Worker);
    let of = cluster(&mut member);
    of.engine = JobEngine::Ray;
    of.roles[0].actor = Some(task(0, Some(number))[16..].to_owned());
    of.roles[0].name = Some("Partner".into());
    of.roles[0].id = Some(format!("worker-{number}"));
    of.roles[0].threads = Some(1);
    member
}

/// Its thread `tid` runs a method, and waits for a task.
fn waits(mut member: Member, tid: i32, wanted: &str) -> Member {
    let of = cluster(&mut member);
    of.running.push(RunningTask { tid, task: "Partner.ask".into(), ..RunningTask::default() });
    of.requests.push(ClusterRequest {
        tid,
        what: ClusterThing::Result,
        names: vec![wanted.to_owned()],
        request: wanted.to_owned(),
        place: "x.py:9 ask".into(),
        is_undone: true,
        ..ClusterRequest::default()
    });
    member
}

fn mutual() -> Vec<Member> {
    vec![waits(actor(1), 101, &task(9, Some(2))), waits(actor(2), 102, &task(8, Some(1)))]
}

fn rounds(first: &[Member], second: &[Member], witness: Option<&Value>) -> Report {
    let mut digest = Digest::default();
    let look = |round: u8, members: &[Member], saw: Vec<String>| {
        let host = Host { name: Some("node".into()), boot_id: Some("b".into()), ..Host::default() };
        Look { round, host, saw: saw.into_iter().collect(), members: members.to_vec(), ..Look::default() }.named()
    };
    let earlier = look(1, first, Vec::new());
    let later = look(2, second, vec![earlier.id.clone()]);
    if !first.is_empty() {
        digest.add(earlier);
    }
    digest.add(later);
    if let Some(list) = witness {
        let bytes = serde_json::to_vec(list).expect("JSON");
        digest.add_witness(Witness::read(&bytes, "tasks.json").expect("a witness").expect("a whole one"));
    }
    let again = Digest::read(&digest.write(), "all").expect("a digest");
    assert_eq!(again, digest);
    told(&digest)
}

fn both(members: &[Member], witness: Option<&Value>) -> Report {
    rounds(members, members, witness)
}

fn said(task: &str, name: &str, state: &str, worker: Option<&str>) -> Value {
    json!({"task_id": task, "name": name, "state": state, "worker_id": worker, "attempt_number": 0})
}

#[test]
fn actors_that_wait_for_each_other_are_in_a_deadlock() {
    let report = both(&mutual(), None);
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::Deadlock, "rank-cycle"));
    let expected = "Actor Partner 01010101 (node, python3 101) runs `Partner.ask`, which waits at x.py:9 ask for a task of actor Partner 02020202; \
                    actor Partner 02020202 (node, python3 102) runs `Partner.ask`, which waits at x.py:9 ask for a task of actor Partner 01010101.";
    assert_eq!(report.summary, expected);
    assert_eq!(report.cycles[0].edges.len(), 2);
    assert_eq!(report.job.as_ref().map(|job| job.engine), Some(JobEngine::Ray));
    let list = json!([said(&task(9, Some(2)), "Partner.answer", "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY", None)]);
    let report = both(&mutual(), Some(&list));
    assert_eq!(report.verdict, Verdict::Deadlock);
    assert!(
        report.summary.contains("waits at x.py:9 ask for task `Partner.answer` of actor Partner 02020202"),
        "{}",
        report.summary
    );
}

#[test]
fn one_round_or_a_result_that_may_be_there_is_no_proof() {
    assert_eq!(rounds(&[], &mutual(), None).verdict, Verdict::SuspectedDeadlock);
    let mut other = mutual();
    let request = &mut cluster(&mut other[1]).requests[0];
    request.names = vec![task(7, Some(1))];
    request.request = task(7, Some(1));
    assert_eq!(rounds(&mutual(), &other, None).verdict, Verdict::Blocked);
    // A result may be on its way, unless Ray says that its task is not done; if it is done nobody waits for its actor.
    let mut unknown = mutual();
    cluster(&mut unknown[0]).requests[0].is_undone = false;
    let report = both(&unknown, None);
    assert_eq!(report.verdict, Verdict::SuspectedDeadlock);
    assert!(
        report.gaps.iter().any(|gap| gap.why.contains("`ray list tasks --detail --format json`")),
        "{:?}",
        report.gaps
    );
    let list = |state: &str| json!([said(&task(9, Some(2)), "Partner.answer", state, None)]);
    assert_eq!(both(&unknown, Some(&list("RUNNING"))).verdict, Verdict::Deadlock);
    assert_eq!(both(&unknown, Some(&list("FINISHED"))).verdict, Verdict::Blocked);
    assert_eq!(both(&mutual(), Some(&list("FINISHED"))).verdict, Verdict::Blocked);
    // A request with a time-out goes on.
    let mut timed = mutual();
    cluster(&mut timed[0]).requests[0].timed = true;
    assert_eq!(both(&timed, None).verdict, Verdict::Blocked);
    // And an actor with a free thread takes the task.
    let mut more = mutual();
    cluster(&mut more[1]).roles[0].threads = Some(2);
    assert_eq!(both(&more, None).verdict, Verdict::Blocked);
    // One of several results is enough.
    let mut any = mutual();
    cluster(&mut any[0]).requests[0].what = ClusterThing::Wait;
    assert_eq!(both(&any, None).verdict, Verdict::Blocked);
}

#[test]
fn an_actor_without_a_thread_for_its_own_tasks_is_told() {
    let mut pool = waits(waits(actor(3), 101, &task(1, Some(3))), 102, &task(2, Some(3)));
    cluster(&mut pool).roles[0].threads = Some(2);
    let driver = {
        let mut driver = waits(member(4, ClusterPart::Client), 104, &task(5, Some(3)));
        cluster(&mut driver).engine = JobEngine::Ray;
        cluster(&mut driver).running.clear();
        driver
    };
    let report = both(&[pool.clone(), driver.clone()], None);
    assert_eq!((report.verdict, report.findings[0].code.as_str()), (Verdict::Deadlock, "executor-self-wait"));
    assert!(report.summary.contains("2 tasks that would have to run for it have no thread"), "{}", report.summary);
    assert!(report.summary.contains("1 more thread waits because of this: the driver"), "{}", report.summary);
    // Where the stacks do not say how many threads it has, Ray says that its task waits for one; else nothing is known.
    cluster(&mut pool).roles[0].threads = None;
    assert_eq!(both(&[pool.clone(), driver.clone()], None).verdict, Verdict::Blocked);
    let waiting = "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY";
    let list = json!([
        said(&task(1, Some(3)), "Pool.inner", waiting, None),
        said(&task(2, Some(3)), "Pool.inner", waiting, None)
    ]);
    let report = both(&[pool, driver], Some(&list));
    assert_eq!(report.verdict, Verdict::SuspectedDeadlock);
    assert!(report.summary.contains("have no thread: `Pool.inner`, `Pool.inner`"), "{}", report.summary);
}

#[test]
fn what_ray_alone_says_of_a_thread_proves_nothing() {
    let plain = |number: u8, wanted: &str| {
        let mut worker = waits(actor(number), 100 + i32::from(number), wanted);
        cluster(&mut worker).roles[0].actor = None;
        worker
    };
    let members = [plain(1, &task(6, None)), plain(2, &task(5, None))];
    assert_eq!(both(&members, None).verdict, Verdict::Blocked);
    let list = json!([
        said(&task(5, None), "ask", "RUNNING", Some("worker-1")),
        said(&task(6, None), "ask", "RUNNING", Some("worker-2")),
    ]);
    let report = both(&members, Some(&list));
    assert_eq!(report.verdict, Verdict::SuspectedDeadlock);
    assert!(report.gaps.iter().any(|gap| gap.why.contains("list of tasks alone")), "{:?}", report.gaps);
}
