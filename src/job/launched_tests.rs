//! Accounts of Slurm, as its programs printed them (testdata/jobs/slurm: three nodes, one of them lost), and lists of
//! Kubernetes' pods in the shape of its API: their facts about ranks without a sample.

use serde_json::{Value, json};

use super::digest::{Digest, Look, Member};
use super::report as told;
use super::tests::{look, member, operation, twice, waits};
use super::witness::Witness;
use crate::launcher::JobEngine;
use crate::report::{ClusterPart, Gap, Job, Report, Verdict};

/// Ranks that wait in a barrier, each with the node that it is on.
fn ranks(job: &Job, on: &[(u32, &str)], size: Option<u32>) -> Digest {
    let one = |rank: u32| {
        let mut one = waits(member(rank, 0), operation("barrier", &[]));
        one.identity.job = Some(job.clone());
        one.identity.size = size;
        one
    };
    let first: Vec<Look> = on.iter().map(|(rank, node)| look(1, node, &[], vec![one(*rank)])).collect();
    let seen: Vec<&Look> = first.iter().collect();
    let mut digest = Digest::default();
    on.iter().for_each(|(rank, node)| digest.add(look(2, node, &seen, vec![one(*rank)])));
    first.into_iter().for_each(|look| digest.add(look));
    digest
}

fn with(mut digest: Digest, files: &[(&str, &[u8])]) -> Report {
    for (name, bytes) in files {
        digest.add_witness(Witness::read(bytes, name).expect("a witness").expect("a whole one"));
    }
    let again = Digest::read(&digest.write(), "all").expect("a digest");
    assert_eq!(again, digest);
    told(&digest)
}

fn job(engine: JobEngine, id: Option<&str>, step: Option<&str>) -> Job {
    Job { engine, id: id.map(str::to_owned), step: step.map(str::to_owned) }
}

fn gap<'r>(report: &'r Report, what: &str) -> &'r str {
    let found = report.gaps.iter().find(|gap| gap.what == what).map(|gap: &Gap| gap.why.as_str());
    found.unwrap_or_else(|| panic!("no gap of {what}: {:?}", report.gaps))
}

const LOST: &[u8] = include_bytes!("../../testdata/jobs/slurm/lost-node.txt");
const SINFO: &[u8] = include_bytes!("../../testdata/jobs/slurm/sinfo.json");
const SQUEUE: &[u8] = include_bytes!("../../testdata/jobs/slurm/squeue.json");

#[test]
fn slurm_says_which_node_the_missing_ranks_were_on() {
    let seen = || {
        ranks(
            &job(JobEngine::Slurm, Some("41"), Some("0")),
            &[(0, "n1"), (1, "n1.cluster"), (4, "n3"), (5, "n3")],
            None,
        )
    };
    let report = with(seen(), &[("scontrol.txt", LOST)]);
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
    let why = gap(&report, "ranks 2-3 of 6");
    let said = "no look is from node n2, which is DOWN and NOT_RESPONDING (Not responding), by Slurm's account";
    assert!(why.ends_with(said), "{why}");
    // All have come: nothing is amiss.
    let all = ranks(&job(JobEngine::Slurm, Some("41"), Some("0")), &[(0, "n1"), (1, "n2"), (2, "n3")], Some(3));
    let report = with(all, &[("scontrol.txt", LOST)]);
    assert!(!report.gaps.iter().any(|gap| gap.why.contains("Slurm")), "{:?}", report.gaps);
    // The step alone names the node that the job has lost.
    let text = String::from_utf8_lossy(LOST);
    let (jobs, _) = text.split_once("NodeName=").expect("jobs and steps first");
    let why = gap(&with(seen(), &[("scontrol.txt", jobs.as_bytes())]), "ranks 2-3 of 6").to_owned();
    assert!(why.ends_with("no look is from node n2, which the job has lost, by Slurm's account"), "{why}");
    // Without names of hosts, nothing shows which nodes were sampled.
    let named = seen();
    let redacted = named.looks().cloned().map(|mut look| {
        look.host.name = None;
        look.named()
    });
    let mut nameless = Digest::default();
    redacted.for_each(|look| nameless.add(look));
    assert!(!gap(&with(nameless, &[("s.txt", LOST)]), "ranks 2-3 of 6").contains("n2"));
}

#[test]
fn slurms_json_says_the_same_and_one_line_as_well() {
    let seen = || ranks(&job(JobEngine::Slurm, Some("41"), Some("0")), &[(0, "n1"), (1, "n3")], Some(3));
    let report = with(seen(), &[("squeue.json", SQUEUE), ("sinfo.json", SINFO)]);
    // The job has no more than its living nodes.
    assert!(!gap(&report, "rank 2 of 3").contains("n2"));
    let later = json!({"meta": {"slurm": {"version": {"major": "24"}}}, "jobs": [{"job_id": {"set": true, "number": 41},
        "job_state": ["RUNNING"], "nodes": "n[1-3]", "state_reason": "None"}],
        "nodes": [{"name": "n2", "hostname": "n2", "state": ["DOWN", "NOT_RESPONDING"], "reason": "power"}]});
    let report = with(seen(), &[("scontrol.json", &serde_json::to_vec(&later).expect("JSON"))]);
    assert!(
        gap(&report, "rank 2 of 3").contains("node n2, which is DOWN and NOT_RESPONDING (power)"),
        "{:?}",
        report.gaps
    );
    let line = b"JobId=41 JobName=x UserId=root(0) JobState=NODE_FAIL Reason=NodeDown NodeList=n[1,3] NumNodes=2\n";
    let report = with(seen(), &[("scontrol.txt", line)]);
    assert_eq!(gap(&report, "job 41"), "it is NODE_FAIL (NodeDown), by Slurm's account");
}

#[test]
fn ranks_of_other_launchers_are_joined_with_slurm_by_their_nodes() {
    let seen =
        |nodes: [&str; 2]| ranks(&job(JobEngine::Mpi, Some("prte-1"), None), &[(0, nodes[0]), (1, nodes[1])], Some(3));
    let report = with(seen(["n1", "n3"]), &[("scontrol.txt", LOST)]);
    assert!(gap(&report, "rank 2 of 3").contains("node n2, which is DOWN"), "{:?}", report.gaps);
    let report = with(seen(["elsewhere", "beyond"]), &[("scontrol.txt", LOST)]);
    assert!(gap(&report, "Slurm's account").contains("other jobs"), "{:?}", report.gaps);
    let other = ranks(&job(JobEngine::Slurm, Some("7"), Some("0")), &[(0, "n1")], Some(2));
    assert!(gap(&with(other, &[("scontrol.txt", LOST)]), "Slurm's account").contains("other jobs"));
}

/// A pod of the indexed job `train`, in this state.
fn pod(index: u32, suffix: &str, status: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("train-{index}-{suffix}"), "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string()},
            "labels": {"batch.kubernetes.io/job-name": "train", "job-name": "train"},
            "ownerReferences": [{"kind": "Job", "name": "train"}]},
        "spec": {"hostname": format!("train-{index}"), "nodeName": "n1", "containers": [{"name": "rank", "image": "i",
            "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations"}}}]}]},
        "status": status,
    })
}

fn runs() -> Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "rank", "restartCount": 0, "ready": true, "state": {"running": {}}}]})
}

fn pods(list: &[Value]) -> Vec<u8> {
    serde_json::to_vec(&json!({"apiVersion": "v1", "kind": "List", "items": list})).expect("JSON")
}

fn in_pods(seen: &[u32]) -> Digest {
    let names: Vec<String> = seen.iter().map(|rank| format!("train-{rank}")).collect();
    let on: Vec<(u32, &str)> = seen.iter().copied().zip(names.iter().map(String::as_str)).collect();
    ranks(&job(JobEngine::Kubernetes, None, None), &on, None)
}

#[test]
fn pods_say_what_became_of_their_ranks() {
    let terminated = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let cases = [
        (
            json!({"phase": "Failed", "containerStatuses": [{"name": "rank", "restartCount": 0, "state": terminated}]}),
            true,
            "has failed, container `rank` has ended: OOMKilled, status 137",
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
            true,
            "has failed: Evicted (The node was low on resource: memory)",
        ),
        (json!({"phase": "Succeeded"}), true, "has ended"),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]}),
            false,
            "is pending: Unschedulable (0/3 nodes are available: 3 Insufficient nvidia.com/gpu)",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": [{"name": "rank", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
            false,
            "is pending, container `rank` waits: ImagePullBackOff",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [{"name": "rank", "restartCount": 4, "lastState": terminated,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}}]}),
            false,
            "runs, but container `rank` waits: CrashLoopBackOff (back-off 40s), after OOMKilled, status 137",
        ),
        (json!({"phase": "Unknown", "reason": "NodeLost"}), false, "is out of reach: NodeLost"),
        (runs(), false, "runs"),
    ];
    for (status, is_over, said) in cases {
        let list = pods(&[pod(0, "a", runs()), pod(1, "b", runs()), pod(2, "c", status)]);
        let report = with(in_pods(&[0, 1]), &[("pods.json", &list)]);
        let told = report.job.as_ref().expect("a job");
        assert_eq!((told.size, told.missing.as_str()), (Some(3), "2"), "{said}");
        let text = if is_over { report.summary.as_str() } else { gap(&report, "rank 2 of 3") };
        assert!(text.to_lowercase().contains(&format!("pod train-2-c {said}").to_lowercase()), "{said}: {text}");
        let expected = if is_over { Verdict::Stuck } else { Verdict::Blocked };
        assert_eq!(report.verdict, expected, "{said}: {}", report.summary);
    }
}

#[test]
fn the_last_pod_of_a_rank_counts_and_one_that_came_again_is_told() {
    let failed = json!({"phase": "Failed"});
    let list = pods(&[pod(0, "a", runs()), pod(1, "new", runs()), pod(1, "old", failed.clone())]);
    let report = with(in_pods(&[0]), &[("pods.json", &list)]);
    assert_eq!(report.verdict, Verdict::Blocked, "{}", report.summary);
    assert!(gap(&report, "rank 1 of 2").contains("pod train-1-new runs"), "{:?}", report.gaps);
    let again = json!({"phase": "Running", "containerStatuses": [{"name": "rank", "restartCount": 2, "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]});
    let report = with(in_pods(&[0, 1]), &[("pods.json", &pods(&[pod(0, "a", runs()), pod(1, "b", again)]))]);
    let said = "pod train-1-b runs, but container `rank` was started again 2 times, after Error, status 1, by Kubernetes' list of pods";
    assert_eq!(gap(&report, "rank 1"), said);
    // A job whose pods are not all listed says how many there are.
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"completions": 4, "parallelism": 4, "completionMode": "Indexed"}});
    let report = with(in_pods(&[0, 1]), &[("pods.json", &pods(&[job, pod(0, "a", runs()), pod(1, "b", runs())]))]);
    assert!(gap(&report, "ranks 2-3 of 4").starts_with("no file has a look at them"), "{:?}", report.gaps);
}

#[test]
fn pods_with_several_ranks_are_places_and_those_of_other_jobs_are_left_alone() {
    // Under torchrun a pod's index is its node's.
    let on = [(0, "train-0"), (1, "train-0"), (2, "train-1"), (3, "train-1")];
    let seen = || ranks(&job(JobEngine::Torchrun, Some("t"), None), &on, Some(6));
    let failed = json!({"phase": "Failed", "reason": "Evicted"});
    let list = pods(&[pod(0, "a", runs()), pod(1, "b", runs()), pod(2, "c", failed)]);
    let report = with(seen(), &[("pods.json", &list)]);
    let why = gap(&report, "ranks 4-5 of 6");
    assert!(
        why.ends_with("no look is from pod train-2-c, which has failed: Evicted, by Kubernetes' list of pods"),
        "{why}"
    );
    assert_eq!(report.verdict, Verdict::Blocked);
    let report =
        with(ranks(&job(JobEngine::Torchrun, Some("t"), None), &[(0, "elsewhere")], Some(2)), &[("pods.json", &list)]);
    assert!(gap(&report, "Kubernetes' list of pods").contains("names of the hosts"), "{:?}", report.gaps);
    // Kubeflow writes ranks into manifests, as a launcher does.
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    let mut own = pod(7, "x", json!({"phase": "Unknown"}));
    own["metadata"]["annotations"] = json!({});
    own["spec"]["containers"][0]["env"] =
        json!([variable("RANK", "1"), variable("WORLD_SIZE", "2"), variable("MASTER_ADDR", "m")]);
    let mut first = own.clone();
    first["spec"]["hostname"] = json!("train-master");
    first["spec"]["containers"][0]["env"][0] = variable("RANK", "0");
    let report = with(
        ranks(&job(JobEngine::Torchrun, None, None), &[(0, "train-master")], None),
        &[("pods.json", &pods(&[own, first]))],
    );
    assert!(gap(&report, "rank 1 of 2").contains("pod train-7-x is out of reach"), "{:?}", report.gaps);
}

#[test]
fn witnesses_of_places_prove_no_deadlock() {
    let members: Vec<Member> = (0..2).map(|rank| waits(member(rank, 3), operation("recv", &[1 - rank]))).collect();
    let alone = told(&twice(members.clone(), members.clone()));
    let mut digest = Digest::default();
    members.iter().for_each(|one| digest.add(look(1, "n1", &[], vec![one.clone()])));
    let once =
        with(digest, &[("scontrol.txt", LOST), ("pods.json", &pods(&[pod(0, "a", json!({"phase": "Failed"}))]))]);
    assert_eq!((alone.verdict, once.verdict), (Verdict::Deadlock, Verdict::Blocked), "{}", once.summary);
}

#[test]
fn accounts_that_make_no_sense_are_no_witnesses_or_say_nothing() {
    for none in [
        &b"{}"[..],
        b"{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}",
        b"JobID 7",
        b"{\"meta\": {\"Slurm\": 1}}",
    ] {
        assert!(Witness::read(none, "x.json").is_none(), "{}", String::from_utf8_lossy(none));
    }
    let odd = [
        b"JobId=\nNodeName= State=\nStepId=. Tasks=x\nStepId=1".to_vec(),
        pods(&[json!({"kind": "Pod", "metadata": {"name": 7}, "status": []}), pod(u32::MAX, "x", json!(null))]),
        b"NodeName=a State=DOWN+ Reason= [\n".to_vec(),
    ];
    for bytes in odd {
        let report = with(in_pods(&[0, 1]), &[("odd", &bytes)]);
        assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
    }
}

/// Two workers of Dask in pods, each seen once.
fn workers(engine: JobEngine) -> Digest {
    let mut digest = Digest::default();
    for number in 1..3 {
        let mut member = super::cluster::tests::member(number, ClusterPart::Worker);
        super::cluster::tests::cluster(&mut member).engine = engine;
        digest.add(look(2, &format!("dask-worker-{number}"), &[], vec![member]));
    }
    digest
}

fn pod_of_cluster(label: &str, name: &str, status: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {label: "etl"}, "ownerReferences": [{"kind": "DaskWorkerGroup", "name": name}]},
        "spec": {"containers": [{"name": "worker", "image": "i"}]}, "status": status})
}

#[test]
fn pods_say_why_a_worker_of_a_cluster_has_no_look() {
    let killed = json!({"phase": "Failed", "containerStatuses": [{"name": "worker", "restartCount": 0,
        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]});
    let again = json!({"phase": "Running", "containerStatuses": [{"name": "worker", "restartCount": 1,
        "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]});
    for (engine, label) in [(JobEngine::Dask, "dask.org/cluster-name"), (JobEngine::Ray, "ray.io/cluster")] {
        let list = |third: &Value, second: &Value| {
            pods(&[
                pod_of_cluster(label, "dask-worker-1", runs()),
                pod_of_cluster(label, "dask-worker-2", second.clone()),
                pod_of_cluster(label, "dask-worker-3", third.clone()),
            ])
        };
        let report = with(workers(engine), &[("pods.json", &list(&killed, &runs()))]);
        let why = gap(&report, "further processes of the cluster");
        let said = "pod dask-worker-3, which has failed, container `worker` has ended: OOMKilled, status 137, by Kubernetes' list of pods";
        assert!(why.contains(said), "{engine:?}: {why}");
        let report = with(workers(engine), &[("pods.json", &list(&killed, &again))]);
        let why = gap(&report, "pod dask-worker-2");
        assert!(why.contains("was started again once") && why.contains("OOMKilled"), "{engine:?}: {why}");
        // All are there and well.
        let whole =
            pods(&[pod_of_cluster(label, "dask-worker-1", runs()), pod_of_cluster(label, "dask-worker-2", runs())]);
        let report = with(workers(engine), &[("pods.json", &whole)]);
        assert!(!report.gaps.iter().any(|gap| gap.why.contains("Kubernetes")), "{:?}", report.gaps);
    }
    // Slurm does not name a cluster's processes either: its job is the one that has their nodes.
    let scontrol = "JobId=41 JobName=etl\n   JobState=RUNNING Reason=None NodeList=dask-worker-[1-3] NumNodes=3\n\n\
                    NodeName=dask-worker-3 NodeHostName=dask-worker-3 State=DOWN Reason=Not responding [root@2026-01-01T00:00:00]\n";
    let report = with(workers(JobEngine::Dask), &[("scontrol.txt", scontrol.as_bytes())]);
    let why = gap(&report, "further processes of the cluster");
    assert!(why.contains("node dask-worker-3, which is DOWN"), "{why}");
    // Files about ranks have no facts about a cluster, and a gap says so.
    let trace = include_bytes!("../../testdata/jobs/skipped/nccl_trace_rank_0");
    let report = with(workers(JobEngine::Dask), &[("nccl_trace_rank_0", trace)]);
    assert!(gap(&report, "PyTorch's Flight Recorder").contains("the looks are at a cluster"), "{:?}", report.gaps);
}
