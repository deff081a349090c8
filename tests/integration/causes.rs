//! `nobody-left-to-wake` by what the thing is: each has its own headline and its own advice.

use std::process::Command;

use lockscope::internals::explanations;

use crate::harness::{Look, Target, attach, compile, compile_rust, skipped, testdata};
use crate::python::pythons;

/// Its first finding says these words in the title, and these in the advice.
fn check(case: &str, look: &Look, title: &str, advice: &str) {
    assert_eq!((look.verdict(), look.code), ("stuck", 1), "{case}: {}", look.text);
    let finding = &look.json["findings"][0];
    assert_eq!(finding["code"], "nobody-left-to-wake", "{case}: {}", look.text);
    let told = finding["title"].as_str().expect("a title");
    assert!(told.contains(title), "{case}: {told}");
    let help = finding["help"].to_string();
    assert!(help.contains(advice), "{case}: {help}");
}

#[test]
fn each_thing_of_python_has_its_own_headline_and_advice() {
    for (version, python) in pythons() {
        for (case, threads, title, advice) in [
            (
                "queue",
                1,
                "consumer waits for `jobs`, and no producer is left that could put anything into it",
                "end mark",
            ),
            ("full_queue", 1, "producer waits for `jobs`, and no consumer is left", "maxsize"),
            ("event", 1, "server waits for `loaded`, and no thread is left that could set it", "hand the error over"),
            ("barrier", 2, "early waits for `meeting`: 1 party has not come, and no thread is left", "abort()"),
            (
                "condition",
                1,
                "listener waits for `changed`, and no thread is left that could notify it",
                "wait_for(predicate)",
            ),
            (
                "condition_under_a_lock",
                2,
                "consumer waits for `not_empty` and holds `registry_lock`, which producer needs to notify it",
                "let consumer release `registry_lock` before it waits",
            ),
            ("pool_of_units", 2, "2 threads each have a unit of `slots` and wait for another one", "second unit"),
            (
                "units_behind_helpers",
                2,
                "details waits for a unit of `slots`, and the thread that has one waits as well",
                "second unit",
            ),
            ("future", 1, "reader waits for `result`, and no thread is left that could complete it", "every path"),
        ] {
            let mut command = python.command();
            command.arg(python.sees(&testdata("python/causes.py"))).arg(case);
            // The main thread waits as well.
            let target = Target::start(&mut command).settle(threads + 1);
            check(&format!("Python {version}, {case}"), &attach(&target.pids, &[]), title, advice);
        }
    }
}

#[test]
fn the_example_of_explain_has_a_case_for_each_thing() {
    let Some(python) = pythons().into_values().next_back() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let finding = explanations().find(|finding| finding.code == "nobody-left-to-wake").expect("it is explained");
    let file = folder.path().join(finding.example.file);
    // It says when it is about to hang, as a target does.
    let hangs = format!("import os; print('READY pids=%d' % os.getpid(), flush=True)\n{}", finding.example.program);
    std::fs::write(&file, hangs).expect("written");
    for (case, title) in [
        ("queue", "`results`, and no producer is left"),
        ("event", "`loaded`, and no thread is left that could set it"),
        ("barrier", "`meeting`: 1 party has not come"),
        ("condition", "`changed`, and no thread is left that could notify it"),
        ("nested", "`changed` and holds `registry`, which"),
        ("semaphore", "`slots`, and everyone who could release it waits as well, or has ended"),
        ("future", "and no thread is left that could complete it"),
    ] {
        assert!(finding.cause.contains(&format!("(`{case}`)")), "explain does not name {case}");
        let target = Target::start(python.command().arg(python.sees(&file)).arg(case));
        let mut looks = (0..40).map(|_| attach(&target.pids, &[]));
        let look = looks.find(|look| look.code == 1).unwrap_or_else(|| attach(&target.pids, &[]));
        check(case, &look, title, "");
    }
}

#[test]
fn the_root_comes_before_those_who_wait_for_it() {
    for (version, python) in pythons() {
        let mut command = python.command();
        command.arg(python.sees(&testdata("python/causes.py"))).arg("root");
        let target = Target::start(&mut command).settle(3);
        let look = attach(&target.pids, &[]);
        check(&version, &look, "loader waits for `jobs`, and no producer is left", "end mark");
    }
}

#[test]
fn tasks_are_told_of_by_their_root() {
    // Groups of tasks are of 3.11.
    let has_groups = |version: &str| ["3.11.", "3.12.", "3.13."].iter().any(|minor| version.starts_with(minor));
    let Some((_, python)) = pythons().into_iter().find(|(version, _)| has_groups(version)) else {
        return skipped!("no Python with groups of tasks");
    };
    for (case, title, advice) in [
        ("task_lock", "awaits asyncio.Lock `lock`, and the task that took it can no longer release it", "async with"),
        ("task_root", "awaits asyncio.Event `loaded` (wait), and nobody is left that sets it", "finally"),
    ] {
        let mut command = python.command();
        command.arg(python.sees(&testdata("python/causes.py"))).arg(case);
        let target = Target::start(&mut command);
        let mut looks = (0..40).map(|_| attach(&target.pids, &[]));
        let look = looks.find(|look| look.code == 1).unwrap_or_else(|| attach(&target.pids, &[]));
        check(case, &look, title, advice);
        // A task that waits for the root has no finding of its own.
        let errors = look.findings().iter().filter(|code| **code == "nobody-left-to-wake").count();
        assert_eq!(errors, 1, "{case}: {}", look.text);
    }
}

#[test]
fn a_loop_and_a_thread_that_wait_for_each_other_are_a_deadlock() {
    for (version, python) in pythons() {
        let mut command = python.command();
        command.arg(python.sees(&testdata("python/causes.py"))).arg("loop_and_thread");
        let target = Target::start(&mut command).settle(2);
        let mut looks = (0..40).map(|_| attach(&target.pids, &[]));
        let look = looks.find(|look| look.code == 1).unwrap_or_else(|| attach(&target.pids, &[]));
        let finding = &look.json["findings"][0];
        assert_eq!((look.verdict(), &finding["code"]), ("deadlock", &"executor-self-wait".into()), "{version}");
        let title = finding["title"].as_str().expect("a title");
        let expected = "worker waits in result() for work of the event loop of MainThread, which waits for ";
        assert!(title.starts_with(expected) && title.ends_with("`state_lock`"), "{version}: {title}");
        assert!(finding["help"].to_string().contains("before run_coroutine_threadsafe"), "{version}: {finding}");
    }
}

#[test]
fn a_condition_under_another_mutex_names_that_mutex() {
    let program = compile("native/nested_monitor.cpp", "nested_monitor", &["-lstdc++"]);
    let target = Target::start(&mut Command::new(program)).settle(3);
    let look = attach(&target.pids, &[]);
    check("C++", &look, "which nested_monitor (", "release `registry_mutex` before it waits");
    assert!(look.says("waits for not_empty and holds registry_mutex"), "{}", look.text);
    assert!(look.text.contains("not_empty.wait(guard"), "{}", look.text);
}

#[test]
fn a_channel_whose_sender_is_kept_says_so() {
    let Some(program) = compile_rust("native/kept_sender.rs", "kept_sender", &[]) else { return skipped!("no rustc") };
    let target = Target::start(&mut Command::new(program)).settle(1);
    let look = attach(&target.pids, &[]);
    check("Rust", &look, "waits in a channel: a sender lives, and no thread is left that sends", "drop each sender");
}

#[test]
fn each_thing_of_rust_has_its_own_headline_and_advice() {
    let Some(program) = compile_rust("native/rust_waits.rs", "rust_waits", &[]) else { return skipped!("no rustc") };
    for (case, thing, title, advice) in [
        ("condition", "Rust Condvar", "no thread is left that could signal it", "change the predicate"),
        ("condition_in_a_scope", "Rust Condvar", "no thread is left that could signal it", "change the predicate"),
        ("park", "token of std::thread::park", "no thread is left that could unpark it", "call unpark()"),
        ("park_in_a_scope", "token of std::thread::park", "no thread is left that could unpark it", "call unpark()"),
        ("barrier", "Rust Barrier", "no thread is left that could come", "count the parties"),
        ("scope", "the end of the threads of a scope", "", ""),
    ] {
        let threads = if case == "scope" { 2 } else { 1 };
        let target = Target::start(Command::new(&program).arg(case)).settle(threads);
        let look = attach(&target.pids, &[]);
        check(case, &look, title, advice);
        assert!(look.says(thing), "{case}: {}", look.text);
    }
}
