//! Work that was handed to the threads of a library: who waits for it, who does it, who is idle.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Look, Target, attach, compile, core, skipped, testdata};
use crate::post_mortem::looks;

fn is_suspected(name: &str, look: &Look, words: &[&str]) {
    assert_eq!(look.verdict(), "suspected-deadlock", "{name}: {}", look.text);
    assert_eq!(look.findings(), ["pool-work-cycle"], "{name}: {}", look.text);
    assert_eq!(look.cycles()[0].len(), 2, "{name}: {}", look.text);
    for word in words {
        assert!(look.says(word), "{name}: no {word} in\n{}", look.text);
    }
}

fn is_healthy(name: &str, target: &Target) {
    for _ in 0..5 {
        let look = attach(&target.pids, &[]);
        assert_eq!(look.code, 0, "{name}: {}", look.text);
        assert!(look.cycles().is_empty(), "{name}: {}", look.text);
        assert!(look.says("the work of "), "{name}: {}", look.text);
    }
}

#[test]
fn a_task_of_openmp_wants_what_its_waiter_has() {
    for level in ["-O0", "-O2"] {
        let program = compile("native/tasks_of_openmp.c", &format!("tasks_of_openmp{level}"), &[level, "-fopenmp"]);
        let start = |case: &str, asleep| Target::start(Command::new(&program).arg(case)).settle(asleep);
        for case in ["under-lock", "under-lock-beside"] {
            for look in looks(&start(case, 2)) {
                is_suspected(level, &look, &["the work of OpenMP", "totals_lock", "GOMP_taskwait"]);
            }
        }
        is_healthy(level, &start("at-work", 1));
        is_healthy(level, &start("own-lock", 2));
    }
}

/// The program, where TBB is there to be compiled with.
fn parallel_loop(level: &str) -> Option<PathBuf> {
    let known = Command::new("pkg-config").args(["--exists", "tbb"]).status().is_ok_and(|status| status.success());
    let flags = [level, "-std=c++17", "-ltbb", "-lstdc++"];
    known.then(|| compile("native/parallel_loop.cpp", &format!("parallel_loop{level}"), &flags))
}

#[test]
fn the_body_of_a_loop_of_tbb_wants_what_its_waiter_has() {
    for level in ["-O0", "-O2"] {
        let Some(program) = parallel_loop(level) else { return skipped!("no libtbb-dev") };
        let start = |case: &str, asleep| Target::start(Command::new(&program).arg(case)).settle(asleep);
        for look in looks(&start("under-lock", 2)) {
            is_suspected(level, &look, &["the work of TBB", "cache_lock"]);
        }
        is_healthy(level, &start("at-work", 1));
    }
}

/// A real one, of PyTorch 2.11 on a GPU: the hook that a thread of autograd runs wants the lock around `backward()`.
#[test]
fn a_hook_of_autograd_wants_what_its_waiter_has() {
    let look = core(&[testdata("gpu/cores/torch-autograd.snapshot.zst")], &[]);
    is_suspected(
        "torch-autograd",
        &look,
        &["the work of PyTorch's autograd", "torch_autograd.<locals>.hook", "lock_stats"],
    );
    assert!(look.cycles()[0].contains(&"pt_autograd_0".to_owned()), "{:?}", look.cycles());
}

/// A real one, of Arrow 13: the only thread of the pool that reads files waits for a file to be read. The work stands in its own queue.
#[test]
fn a_pool_of_arrow_waits_for_what_stands_in_its_own_queue() {
    let look = core(&[testdata("snapshots/arrow-own-pool.snapshot.zst")], &[]);
    assert_eq!(look.verdict(), "suspected-deadlock", "{}", look.text);
    assert_eq!(look.findings(), ["executor-self-wait"], "{}", look.text);
    assert_eq!(look.cycles()[0].len(), 1, "{}", look.text);
    for word in ["the work of Arrow", "EnsureCompleteMetadata", "in its pool's queue", "arrow_pool.py:9"] {
        assert!(look.says(word), "no {word} in\n{}", look.text);
    }
}
