//! Lists of Kubernetes' pods and jobs: `kubectl get pods -o json`, `kubectl get jobs,pods -o json` (v1 `Pod`, batch/v1 `Job`; the fields
//! are those of the API's reference).
//!
//! In: the list. Out: a [`PlaceAccount`] for each pod, with its rank where it is one's: by the variables that its manifest sets, as a
//! launcher's, or by its index in an indexed job. A [`JobAccount`] for each job that says how many ranks it has.

use serde_json::Value;

use super::{JobAccount, PlaceAccount, PlaceKind, Places};
use crate::launcher::{JobEngine, membership};
use crate::limits::Bounded;
use crate::limits::job::{LONGEST_HOST_NAME, LONGEST_NODE_NAME, MOST_PLACES};

/// Where an indexed job writes a pod's index: a label since 1.28, before that an annotation.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Labels that say to which job a pod belongs, of Kubernetes and of Kubeflow's training operator; or to which cluster, of KubeRay and of
/// Dask's operator.
const JOBS: [&str; 5] = [
    "batch.kubernetes.io/job-name",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
    "dask.org/cluster-name",
    "job-name",
];
/// Whether a value is such a list, by its shape.
pub(super) fn is_one(value: &Value) -> bool {
    value.get("apiVersion").is_some_and(Value::is_string) && items(value).next().is_some()
}

/// The pods and jobs of a list, or the one that a value is.
fn items(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let kind = |value: &'_ Value| value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let outer = kind(value);
    // Lists of one kind may leave it out of their items.
    let of_list = match outer.as_str() {
        "PodList" => Some("Pod"),
        "JobList" => Some("Job"),
        _ => None,
    };
    let list = if outer.ends_with("List") { value.get("items").and_then(Value::as_array) } else { None };
    let alone = list.is_none().then_some(value);
    list.into_iter().flatten().chain(alone).filter_map(move |item| {
        let own = item.get("kind").and_then(Value::as_str).or(of_list)?;
        ["Pod", "Job"].contains(&own).then_some((own, item))
    })
}

/// The contents of a list.
pub(super) fn places(value: &Value) -> Places {
    let mut found = Places::default();
    for (kind, item) in items(value).bounded(MOST_PLACES, || "a list of Kubernetes' pods".to_owned(), "pods") {
        let Some(name) = text(item, "/metadata/name").filter(|name| name.len() <= LONGEST_NODE_NAME) else { continue };
        match kind {
            "Pod" => found.places.push(pod(item, name)),
            _ => found.jobs.push(JobAccount {
                engine: JobEngine::Kubernetes,
                id: name.to_owned(),
                step: None,
                ranks: (text(item, "/spec/completionMode") == Some("Indexed"))
                    .then(|| u32::try_from(item.pointer("/spec/completions")?.as_u64()?).ok())
                    .flatten(),
                nodes: Vec::new(),
                fate: condition(item, "Failed", "True").map(|why| format!("has failed{why}")),
            }),
        }
    }
    found
}

fn text<'v>(value: &'v Value, at: &str) -> Option<&'v str> {
    value.pointer(at).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn list<'v>(value: &'v Value, at: &str) -> &'v [Value] {
    value.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn pod(pod: &Value, name: &str) -> PlaceAccount {
    let marked = |part: &str, key: &str| {
        pod.pointer(part).and_then(|marks| marks.get(key)).and_then(Value::as_str).filter(|text| !text.is_empty())
    };
    let index = marked("/metadata/labels", INDEX).or_else(|| marked("/metadata/annotations", INDEX));
    let owner = || list(pod, "/metadata/ownerReferences").first().and_then(|owner| text(owner, "/name"));
    let mut variables: Vec<(String, String)> = list(pod, "/spec/containers")
        .iter()
        .flat_map(|container| list(container, "/env"))
        .filter_map(|variable| Some((text(variable, "/name")?.to_owned(), text(variable, "/value")?.to_owned())))
        .collect();
    variables.extend(index.map(|index| ("JOB_COMPLETION_INDEX".to_owned(), index.to_owned())));
    let member = membership(&variables);
    let is_of_node = pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true);
    let host = match is_of_node {
        true => text(pod, "/spec/nodeName"),
        false => text(pod, "/spec/hostname").or(Some(name.get(..LONGEST_HOST_NAME).unwrap_or(name))),
    };
    let phase = text(pod, "/status/phase").unwrap_or_default();
    PlaceAccount {
        kind: PlaceKind::Pod,
        name: name.to_owned(),
        hosts: host.map(str::to_owned).into_iter().collect(),
        job: JOBS.iter().find_map(|key| marked("/metadata/labels", key)).or_else(owner).map(str::to_owned),
        rank: member.as_ref().map(|member| member.rank),
        size: member.and_then(|member| member.size),
        fate: fate(pod, phase),
        is_over: ["Failed", "Succeeded"].contains(&phase),
        began: text(pod, "/metadata/creationTimestamp").map(str::to_owned),
    }
}

/// The reason why its container does not go on, the outermost first; or an earlier event of the container.
fn fate(pod: &Value, phase: &str) -> Option<String> {
    let containers: Vec<&Value> = ["/status/initContainerStatuses", "/status/containerStatuses"]
        .into_iter()
        .flat_map(|at| list(pod, at))
        .collect();
    let ended = || containers.iter().find_map(|one| Some(after(one, ended(one.pointer("/state/terminated")?)?)));
    let waits = || {
        containers.iter().find_map(|one| {
            let waiting = one.pointer("/state/waiting")?;
            let before = one.pointer("/lastState/terminated").and_then(ended_before).unwrap_or_default();
            // Every pod is in this state at first, so it is no evidence.
            let reason = text(waiting, "/reason").filter(|reason| *reason != "PodInitializing")?;
            Some(after(one, format!("waits: {reason}{}{before}", in_brackets(text(waiting, "/message")))))
        })
    };
    let again = || {
        let restarted = |one: &&&Value| one.get("restartCount").and_then(Value::as_u64).is_some_and(|count| count > 0);
        let one = containers.iter().find(restarted)?;
        let count = one.get("restartCount").and_then(Value::as_u64).unwrap_or(0);
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let before = one.pointer("/lastState/terminated").and_then(ended_before).unwrap_or_default();
        Some(after(one, format!("was started again {times}{before}")))
    };
    let why =
        || text(pod, "/status/reason").map(|reason| format!(": {reason}{}", in_brackets(text(pod, "/status/message"))));
    let told = |verb: &str, detail: Option<String>| match detail {
        Some(detail) => Some(format!("{verb}{detail}")),
        None => Some(verb.to_owned()),
    };
    let deleted = pod.pointer("/metadata/deletionTimestamp").is_some();
    match phase {
        "Failed" => told("has failed", why().or_else(|| ended().map(|text| format!(", {text}")))),
        "Succeeded" => told("has ended", None),
        "Unknown" => told("is out of reach", why()),
        _ if deleted => told("is being deleted", why().or_else(|| condition(pod, "DisruptionTarget", "True"))),
        "Pending" => {
            let unscheduled = || condition(pod, "PodScheduled", "False");
            told("is pending", waits().map(|text| format!(", {text}")).or_else(unscheduled).or_else(why))
        }
        _ => ended().or_else(waits).or_else(again).map(|text| format!("runs, but {text}")),
    }
}

/// "container `rank` has ended: ..".
fn after(container: &Value, what: String) -> String {
    format!("container `{}` {what}", text(container, "/name").unwrap_or("?"))
}

/// "has ended: OOMKilled, status 137"; nothing of one that did its work.
fn ended(terminated: &Value) -> Option<String> {
    let code = terminated.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
    let reason = text(terminated, "/reason").filter(|reason| *reason != "Completed");
    if code == 0 && reason.is_none() {
        return None;
    }
    Some(format!("has ended: {}, status {code}", reason.unwrap_or("Error")))
}

/// ", after OOMKilled, status 137".
fn ended_before(terminated: &Value) -> Option<String> {
    Some(format!(", after {}", ended(terminated)?.strip_prefix("has ended: ")?))
}

/// Why a condition is as it is: ": Unschedulable (0/3 nodes are available)".
fn condition(item: &Value, kind: &str, status: &str) -> Option<String> {
    let is_it = |one: &&Value| text(one, "/type") == Some(kind) && text(one, "/status") == Some(status);
    let one = list(item, "/status/conditions").iter().find(is_it)?;
    let reason = text(one, "/reason").map(|reason| format!(": {reason}")).unwrap_or_default();
    Some(format!("{reason}{}", in_brackets(text(one, "/message"))))
}

fn in_brackets(message: Option<&str>) -> String {
    message.map(|text| format!(" ({})", text.trim_end_matches('.'))).unwrap_or_default()
}
