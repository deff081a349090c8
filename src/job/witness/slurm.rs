//! Slurm's accounts of jobs, steps and nodes. These are `scontrol show job`, `show step` and `show node`, in any order
//! behind each other, also with `--oneliner`; and the JSON of `squeue`, `sinfo` and newer `scontrol`s (seen with 22.05;
//! later versions give states as lists).
//!
//! In: the text, or the JSON. Out: a [`JobAccount`] for each job and step, a [`PlaceAccount`] for each node. Slurm
//! counts the tasks of a step but does not say which node has which. lockscope infers that from the nodes that were
//! sampled.

use serde_json::Value;

use super::node_list::nodes;
use super::{JobAccount, PlaceAccount, PlaceKind, Places};
use crate::launcher::JobEngine;
use crate::limits::Bounded;
use crate::limits::job::MOST_PLACES;

/// How a record begins.
const BEGINNINGS: [&str; 3] = ["JobId=", "StepId=", "NodeName="];
/// A job, step or node that does what it should.
const WELL: [&str; 10] = [
    "RUNNING",
    "COMPLETING",
    "IDLE",
    "ALLOCATED",
    "MIXED",
    "CLOUD",
    "COMPLETED",
    "RESERVED",
    "PLANNED",
    "DYNAMIC_NORM",
];
/// Slurm's texts for no value.
const NOTHING: [&str; 5] = ["", "(null)", "None", "N/A", "Unknown"];

/// Whether a text is one, by how it begins.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let begin = bytes.trim_ascii_start();
    BEGINNINGS.iter().any(|word| begin.starts_with(word.as_bytes()))
}

/// The records of a text.
pub(super) fn of_text(text: &str) -> Places {
    let (mut found, mut room) = (Places::default(), MOST_PLACES);
    let mut record: Vec<&str> = Vec::new();
    let begins = |line: &str| BEGINNINGS.iter().any(|word| line.starts_with(word));
    let lines = text.lines().bounded(16 * MOST_PLACES, || "an account of Slurm's".to_owned(), "lines");
    for line in lines {
        if begins(line) {
            found.add_record(&std::mem::take(&mut record), &mut room);
        }
        record.push(line);
    }
    found.add_record(&record, &mut room);
    found
}

/// Whether a value is one, by its shape.
pub(super) fn is_json(value: &Value) -> bool {
    let is_slurms = value.get("meta").is_some_and(|meta| meta.get("Slurm").or_else(|| meta.get("slurm")).is_some());
    is_slurms && ["jobs", "nodes"].iter().any(|key| value.get(key).is_some_and(Value::is_array))
}

/// The jobs and nodes of a value.
pub(super) fn of_json(value: &Value) -> Places {
    let list = |key: &str| {
        let list = value.get(key).and_then(Value::as_array).into_iter().flatten();
        list.bounded(MOST_PLACES, || "an account of Slurm's".to_owned(), "jobs and nodes")
    };
    let (mut found, mut room) = (Places::default(), MOST_PLACES);
    for job in list("jobs") {
        let Some(id) = job.get("job_id").and_then(number) else { continue };
        let states = words(job.get("job_state"));
        found.jobs.push(JobAccount {
            engine: JobEngine::Slurm,
            id: id.to_string(),
            step: None,
            ranks: None,
            nodes: nodes(job.get("nodes").and_then(Value::as_str).unwrap_or_default(), &mut room),
            fate: fate(&states, job.get("state_reason").and_then(Value::as_str)),
        });
    }
    for node in list("nodes") {
        let text = |key: &str| node.get(key).and_then(Value::as_str);
        let Some(name) = text("name").filter(|name| !name.is_empty()) else { continue };
        let states = [words(node.get("state")), words(node.get("state_flags"))].concat();
        found.places.push(place(name, text("hostname"), fate(&states, text("reason"))));
    }
    found
}

impl Places {
    fn add_record(&mut self, lines: &[&str], room: &mut usize) {
        let value = |key: &str| value(lines, key);
        let states = |text: Option<&str>| -> Vec<String> {
            text.unwrap_or_default().split('+').map(|word| word.trim_end_matches('*').to_owned()).collect()
        };
        let list = value("NodeList").filter(|list| !NOTHING.contains(list)).unwrap_or_default();
        if let Some(id) = value("JobId") {
            self.jobs.push(JobAccount {
                engine: JobEngine::Slurm,
                id: id.to_owned(),
                step: None,
                ranks: None,
                nodes: nodes(list, room),
                fate: fate(&states(value("JobState")), value("Reason")),
            });
        } else if let Some((id, step)) = value("StepId").and_then(|id| id.split_once('.')) {
            // Ranks are in steps with numbers; others are the batch script, and what holds the allocation.
            if step.parse::<u32>().is_ok() {
                self.jobs.push(JobAccount {
                    engine: JobEngine::Slurm,
                    id: id.to_owned(),
                    step: Some(step.to_owned()),
                    ranks: value("Tasks").and_then(|tasks| tasks.parse().ok()),
                    nodes: nodes(list, room),
                    fate: fate(&states(value("State")), None),
                });
            }
        } else if let Some(name) = value("NodeName") {
            let reason = reason_of_node(lines);
            self.places.push(place(name, value("NodeHostName"), fate(&states(value("State")), reason)));
        }
    }
}

/// The value of the first `KEY=VALUE` of a record.
fn value<'t>(lines: &[&'t str], key: &str) -> Option<&'t str> {
    let mut tokens = lines.iter().flat_map(|line| line.split_ascii_whitespace());
    tokens.find_map(|token| token.strip_prefix(key)?.strip_prefix('='))
}

/// The reason why a node is out: the administrator's words, without the name.
fn reason_of_node<'t>(lines: &[&'t str]) -> Option<&'t str> {
    let rest = lines.iter().find_map(|line| Some(line.split_once(" Reason=")?.1))?;
    Some(rest.split(" [").next().unwrap_or(rest).trim())
}

/// The reason why it does not run: its states that no healthy one has.
fn fate(states: &[String], reason: Option<&str>) -> Option<String> {
    let ill: Vec<&str> =
        states.iter().map(String::as_str).filter(|state| !WELL.contains(state) && !state.is_empty()).collect();
    if ill.is_empty() {
        return None;
    }
    let why =
        reason.filter(|reason| !NOTHING.contains(reason)).map(|reason| format!(" ({reason})")).unwrap_or_default();
    Some(format!("is {}{why}", ill.join(" and ")))
}

fn place(name: &str, host: Option<&str>, fate: Option<String>) -> PlaceAccount {
    let mut hosts = vec![name.to_owned()];
    hosts.extend(host.filter(|host| *host != name && !host.is_empty()).map(str::to_owned));
    PlaceAccount { kind: PlaceKind::Node, name: name.to_owned(), hosts, fate, ..PlaceAccount::default() }
}

/// A number, as it stood in older versions, or with words of whether there is one.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.get("number").and_then(Value::as_u64))
}

/// One word, as in older versions, or a list of them.
fn words(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(word)) => vec![word.to_ascii_uppercase()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_ascii_uppercase).collect(),
        _ => Vec::new(),
    }
}
