//! Random programs that know which of their threads can never go on, with time limits, handlers, events, gates and bystanders:
//! none of the others may stand in a deadlock, be told to wait for ever, or wait for a lock that is told to be orphaned.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Target, attach, testdata};
use crate::python_locks::pythons;

/// Programs of one process.
const PROGRAMS: usize = 5;

#[derive(Debug, Default)]
struct Score {
    programs: usize,
    /// Threads that can never go on, and how many of these are told of.
    dead: usize,
    told: usize,
    wrong: Vec<String>,
}

#[test]
fn no_thread_that_can_go_on_is_told_to_be_dead() {
    let pythons = pythons();
    let wanted = |version: &str| ["3.8.", "3.11.", "3.13."].iter().any(|one| version.starts_with(one));
    let mut score = Score::default();
    for (version, python) in pythons.iter().filter(|(version, _)| wanted(version) || pythons.len() < 3) {
        for seed in 0..10 {
            let mut command = python.command();
            command.arg(python.sees(&testdata("python/ends.py"))).args([seed.to_string(), PROGRAMS.to_string()]);
            let target = Target::start(&mut command);
            let truth: Value = serde_json::from_str(&target.said[0]).expect("valid JSON");
            let target = target.settle(truth["asleep"].as_u64().expect("a number") as usize);
            let look = attach(&target.pids, &[]);
            score.programs += PROGRAMS;
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let dead: BTreeSet<String> =
                list(&truth["dead"]).iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect();
            let name = |tid: &Value| {
                let threads = list(&look.json["processes"][0]["threads"]);
                let thread = threads.into_iter().find(|thread| thread["tid"] == *tid);
                thread.and_then(|thread| Some(thread["name"].as_str()?.to_owned())).unwrap_or_default()
            };
            // A ring with a time limit in it is suspected, and said to end by itself.
            let waits = list(&look.json["waits"]);
            let is_timed = |tid: &Value| waits.iter().any(|wait| wait["tid"] == *tid && wait["timed"] == true);
            let lasts = |edges: &Value| !list(edges).iter().any(|edge| is_timed(&edge["waiter"]));
            let rings: Vec<Value> =
                list(&look.json["cycles"]).into_iter().filter(|cycle| lasts(&cycle["edges"])).collect();
            assert!(look.verdict() != "deadlock" || !rings.is_empty(), "seed {seed} on {version}: {}", look.text);
            let in_rings = rings.iter().flat_map(|cycle| list(&cycle["edges"])).map(|edge| name(&edge["waiter"]));
            let lasts = |finding: &Value| !list(&finding["threads"]).iter().any(|thread| is_timed(&thread["tid"]));
            let findings = list(&look.json["findings"]).into_iter();
            let findings = findings.filter(|finding| finding["severity"] == "error" && lasts(finding));
            let in_findings = findings.flat_map(|finding| list(&finding["threads"])).map(|thread| name(&thread["tid"]));
            let told: BTreeSet<String> =
                in_rings.chain(in_findings).filter(|name| name.starts_with('p') && name.contains('t')).collect();
            score.dead += dead.len();
            score.told += told.intersection(&dead).count();
            let wrong: Vec<&String> = told.difference(&dead).collect();
            if !wrong.is_empty() {
                score.wrong.push(format!("{wrong:?} of seed {seed} on {version}:\n{}", look.text));
            }
        }
    }
    println!("{score:?}");
    assert!(score.wrong.is_empty(), "{}", score.wrong.join("\n"));
    assert!(score.told * 20 >= score.dead, "too little was told: {score:?}");
}
