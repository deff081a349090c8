//! What could still end a wait: hangs, their healthy twins, and the same hangs beside others that do not matter. The truth of
//! each case stands in the program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use serde_json::Value;

use crate::harness::{Look, Target, attach, core, testdata};
use crate::post_mortem::snapshot;
use crate::python::{Python, pythons};

/// A case of a program.
struct Case {
    name: String,
    /// It has descriptors on their way through a unix socket.
    sends_descriptors: bool,
    /// Its truth is that it goes on.
    is_healthy: bool,
}

/// The cases: the functions that say a truth, and those that call one of them.
fn cases(program: &str) -> Vec<Case> {
    let source = std::fs::read_to_string(testdata(program)).expect("readable").replace("\nasync def ", "\ndef ");
    let functions = source.split("\ndef ").skip(1).filter_map(|text| text.split_once('('));
    let said: Vec<&str> =
        functions.clone().filter(|(_, body)| body.contains("    truth(")).map(|(name, _)| name).collect();
    let is_case = |(name, body): &(&str, &str)| {
        said.contains(name) || said.iter().any(|other| body.contains(&format!("\n    {other}(")))
    };
    let case = |(name, body): (&str, &str)| {
        let sends_descriptors = ["SCM_RIGHTS", "start_sender("].iter().any(|word| body.contains(word));
        let is_healthy = body.contains("truth(\"blocked\"");
        Case { name: name.to_owned(), sends_descriptors, is_healthy }
    };
    functions.filter(is_case).map(case).collect()
}

/// A case that has come to its waits, and what is true of it.
fn start(python: &Python, program: &str, case: &[&str]) -> (Target, Value) {
    let program = python.sees(&testdata(program));
    let target = Target::start(python.command().arg(program).args(case));
    let said = target.said.iter().find_map(|line| line.strip_prefix("TRUTH ")).expect("a truth");
    let truth: Value = serde_json::from_str(said).expect("valid JSON");
    let asleep = truth["asleep"].as_u64().expect("a number") as usize;
    let target = match asleep {
        // Beside a busy thread nobody sleeps in one call for long: `caught` tries again.
        _ if truth["asks_again"] == true || case.contains(&"busy") => target,
        0 => target.settle_asleep(),
        asleep => target.settle(asleep),
    };
    (target, truth)
}

fn check(look: &Look, truth: &Value, place: &str) {
    let place = format!("{place}:\n{}\n{}", look.text, look.json["gaps"]);
    assert!(has_right_verdict(look, truth), "{} in {place}", look.verdict());
    assert_eq!(look.code, i32::from(!["blocked", "running"].contains(&look.verdict())), "{place}");
    if let (Some(finding), true) = (truth["finding"].as_str(), look.code == 1) {
        assert!(look.findings().contains(&finding), "{finding} is not in {place}");
    }
    let missing = missing_words(look, truth);
    assert!(missing.is_empty(), "{missing:?} are not in {place}");
}

fn missing_words<'t>(look: &Look, truth: &'t Value) -> Vec<&'t str> {
    let said = look.json.to_string();
    let words = truth["words"].as_array().expect("a list").iter().filter_map(Value::as_str);
    words.filter(|word| !look.says(word) && !said.contains(*word)).collect()
}

/// Who is healthy may be met at work.
fn has_right_verdict(look: &Look, truth: &Value) -> bool {
    let mut verdicts = truth["verdicts"].as_array().expect("a list").iter();
    verdicts.any(|verdict| verdict == look.verdict() || verdict == "blocked" && look.verdict() == "running")
}

/// A look; of who asks again and again one that has met it between two tries, since it waits for nothing while it tries.
fn caught(truth: &Value, take: impl Fn() -> Look) -> Look {
    const LOOKS: usize = 20;
    let looks = if truth["asks_again"] == true { LOOKS } else { 1 };
    let mut look = take();
    for _ in 1..looks {
        if missing_words(&look, truth).is_empty() && has_right_verdict(&look, truth) {
            break;
        }
        look = take();
    }
    look
}

fn of(version: &str) -> Option<Python> {
    pythons().into_iter().find(|(known, _)| known.starts_with(version)).map(|(_, python)| python)
}

/// A descriptor on its way through a unix socket may be the other end of any socket: the kernel does not say which it is, and of
/// sockets not when they were made. Cases that send some are alone.
static TURN: RwLock<()> = RwLock::new(());
/// Cases of one test that run side by side: most of the time they wait for their second sample.
const SIDE_BY_SIDE: usize = 3;

/// Judges each case of a program, which has at least so many, on a version of Python, live and from a snapshot.
fn all_cases_are_judged_rightly(program: &str, version: &str, at_least: usize) {
    are_judged_rightly(program, version, &[], at_least, |_| true);
}

/// The same of cases that are meant, with more arguments.
fn are_judged_rightly(program: &str, version: &str, more: &[&str], at_least: usize, is_meant: fn(&Case) -> bool) {
    let Some(python) = of(version) else { return crate::harness::skipped!("no Python {version}") };
    let mut cases = cases(program);
    cases.retain(is_meant);
    assert!(cases.len() >= at_least, "{} cases", cases.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let judge_some = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let place = format!("{} {more:?} of Python {version}", case.name);
            let arguments = [&[case.name.as_str()], more].concat();
            let judged = catch_unwind(AssertUnwindSafe(|| match case.sends_descriptors {
                true => {
                    let _alone = TURN.write().unwrap_or_else(PoisonError::into_inner);
                    is_judged_rightly(&python, program, &arguments, &place);
                }
                false => {
                    let _beside = TURN.read().unwrap_or_else(PoisonError::into_inner);
                    is_judged_rightly(&python, program, &arguments, &place);
                }
            }));
            if judged.is_err() {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(place);
            }
        }
    };
    std::thread::scope(|scope| (0..SIDE_BY_SIDE).for_each(|_| drop(scope.spawn(judge_some))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failed.is_empty(), "judged wrongly, as said above: {failed:#?}");
}

fn is_judged_rightly(python: &Python, program: &str, arguments: &[&str], place: &str) {
    let (target, truth) = start(python, program, arguments);
    check(&caught(&truth, || attach(&target.pids, &[])), &truth, place);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s.snapshot");
    let replayed = caught(&truth, || {
        snapshot(&target.pids, &file, &[]);
        core(std::slice::from_ref(&file), &[])
    });
    drop(target);
    check(&replayed, &truth, &format!("snapshot of {place}"));
}

#[test]
fn wakers_are_judged_rightly_on_3_8() {
    all_cases_are_judged_rightly("python/wakers.py", "3.8.", 90);
}

#[test]
fn wakers_are_judged_rightly_on_3_11() {
    all_cases_are_judged_rightly("python/wakers.py", "3.11.", 90);
}

#[test]
fn wakers_are_judged_rightly_on_3_13() {
    all_cases_are_judged_rightly("python/wakers.py", "3.13.", 90);
}

#[test]
fn tasks_are_judged_rightly_on_3_8() {
    all_cases_are_judged_rightly("python/tasks.py", "3.8.", 80);
}

#[test]
fn tasks_are_judged_rightly_on_3_11() {
    all_cases_are_judged_rightly("python/tasks.py", "3.11.", 80);
}

#[test]
fn tasks_are_judged_rightly_on_3_13() {
    all_cases_are_judged_rightly("python/tasks.py", "3.13.", 80);
}

#[test]
fn tasks_beside_a_busy_thread_are_judged_rightly() {
    // There the hangs are harder to see; who is healthy is seen to run.
    are_judged_rightly("python/tasks.py", "3.11.", &["busy"], 40, |case| !case.is_healthy);
}

/// Each version has instructions of its own, by which code is known to ask again.
#[test]
fn waits_that_are_begun_again_are_judged_rightly_on_newer_versions() {
    for version in ["3.14.", "3.15."] {
        are_judged_rightly("python/wakers.py", version, &[], 5, |case| case.name.contains("_again"));
    }
}

#[test]
fn what_explains_a_hang_is_named_on_3_8() {
    all_cases_are_judged_rightly("python/explained.py", "3.8.", 20);
}

#[test]
fn what_explains_a_hang_is_named_on_3_11() {
    all_cases_are_judged_rightly("python/explained.py", "3.11.", 20);
}

#[test]
fn what_explains_a_hang_is_named_on_3_13() {
    all_cases_are_judged_rightly("python/explained.py", "3.13.", 20);
}
