//! Native locks: the verdict, the cycle and the finding of each program of testdata/native/deadlocks.c.

use std::process::Command;

use crate::harness::{Target, attach, compile};

/// What is true of a case.
pub(crate) struct Truth {
    pub(crate) case: &'static str,
    /// Threads asleep in futex when the hang is complete.
    pub(crate) asleep: usize,
    pub(crate) verdict: &'static str,
    pub(crate) finding: &'static str,
    pub(crate) cycle: &'static [&'static str],
    mentions: &'static [&'static str],
}

pub(crate) const HANGS: &[Truth] = &[
    Truth {
        case: "abba",
        asleep: 3,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["reader", "writer"],
        mentions: &["ledger_lock", "journal_lock", "deadlocks.c:49", "first_then_second"],
    },
    Truth {
        case: "abba-recursive",
        asleep: 3,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["reader", "writer"],
        mentions: &["ledger_lock"],
    },
    Truth {
        case: "abba-inheriting",
        asleep: 3,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["reader", "writer"],
        mentions: &["ledger_lock"],
    },
    Truth {
        // The kernel refuses the lock that closes the ring, and glibc parks that thread for ever.
        case: "abba-both-inheriting",
        asleep: 3,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["reader", "writer"],
        mentions: &["ledger_lock", "journal_lock"],
    },
    Truth {
        case: "abba-robust",
        asleep: 3,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["reader", "writer"],
        mentions: &["ledger_lock"],
    },
    Truth {
        case: "ring",
        asleep: 4,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["ring-0", "ring-1", "ring-2"],
        mentions: &["index_lock"],
    },
    Truth {
        case: "self",
        asleep: 2,
        verdict: "deadlock",
        finding: "self-deadlock",
        cycle: &["twice"],
        mentions: &["lock_twice", "ledger_lock"],
    },
    Truth {
        case: "self-inheriting",
        asleep: 2,
        verdict: "deadlock",
        finding: "self-deadlock",
        cycle: &["twice"],
        mentions: &["lock_twice"],
    },
    Truth {
        case: "rwlocks",
        asleep: 3,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["render", "simulate"],
        mentions: &["scene_lock", "physics_lock", "__cur_writer"],
    },
    Truth {
        case: "upgrade",
        asleep: 2,
        verdict: "suspected-deadlock",
        finding: "self-deadlock",
        cycle: &["upgrade"],
        mentions: &["scene_lock", "read_then_write"],
    },
    Truth {
        case: "two-upgrades",
        asleep: 3,
        verdict: "suspected-deadlock",
        finding: "self-deadlock",
        cycle: &["upgrade-0"],
        mentions: &["scene_lock", "read_both_then_write", "upgrade-1"],
    },
    Truth {
        case: "join-ring",
        asleep: 3,
        verdict: "deadlock",
        finding: "join-cycle",
        cycle: &["join-0", "join-1", "join-2"],
        mentions: &["join_next"],
    },
    Truth {
        case: "join-under-lock",
        asleep: 2,
        verdict: "deadlock",
        finding: "join-cycle",
        cycle: &["deadlocks", "worker"],
        mentions: &["join_under_lock", "ledger_lock"],
    },
    Truth {
        case: "exit-holding",
        asleep: 2,
        verdict: "orphaned-lock",
        finding: "owner-exited",
        cycle: &[],
        mentions: &["ledger_lock", "take_ledger"],
    },
    Truth {
        case: "fork-held",
        asleep: 1,
        verdict: "orphaned-lock",
        finding: "fork-orphaned-lock",
        cycle: &[],
        mentions: &["ledger_lock", "logger"],
    },
    Truth {
        case: "pshared",
        asleep: 2,
        verdict: "deadlock",
        finding: "lock-order-cycle",
        cycle: &["left", "right"],
        mentions: &["pshared"],
    },
];

pub(crate) fn start(case: &str, asleep: usize) -> Target {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    Target::start(Command::new(program).arg(case)).settle(asleep)
}

#[test]
fn every_hang_is_named() {
    for truth in HANGS {
        let target = start(truth.case, truth.asleep);
        let look = attach(&target.pids, &[]);
        let case = truth.case;
        assert_eq!(look.verdict(), truth.verdict, "{case}: {}", look.text);
        assert_eq!(look.code, 1, "{case}");
        assert!(look.findings().contains(&truth.finding), "{case}: {:?}", look.findings());
        let cycles: Vec<Vec<String>> = look.cycles();
        match truth.cycle {
            [] => assert!(cycles.is_empty(), "{case}: {cycles:?}"),
            names => assert!(cycles.iter().any(|c| c == names), "{case}: {cycles:?}"),
        }
        for word in truth.mentions {
            assert!(look.says(word), "{case}: {word} is not in\n{}", look.text);
        }
    }
}

#[test]
fn a_child_alone_names_the_thread_of_its_parent() {
    let target = start("fork-held", 1);
    let look = attach(&target.pids[..1], &[]);
    assert_eq!(look.verdict(), "orphaned-lock", "{}", look.text);
    assert!(look.says("logger"), "{}", look.text);
}

#[test]
fn the_tree_brings_the_other_process_in() {
    let target = start("pshared", 2);
    let alone = attach(&target.pids[..1], &["--no-tree"]);
    assert_ne!(alone.verdict(), "deadlock", "{}", alone.text);
    for options in [["--tree"].as_slice(), &[]] {
        let tree = attach(&target.pids[..1], options);
        assert_eq!(tree.verdict(), "deadlock", "{}", tree.text);
    }
}

#[test]
fn healthy_programs_are_left_in_peace() {
    let cases = [
        ("contention", 0, &["running"][..]),
        ("idle-workers", 4, &["blocked"][..]),
        ("join-ring-cancelled", 3, &["blocked"][..]),
    ];
    for (case, asleep, verdicts) in cases {
        let target = start(case, asleep);
        for _ in 0..5 {
            let look = attach(&target.pids, &[]);
            assert!(verdicts.contains(&look.verdict()), "{case}: {}", look.text);
            assert_eq!(look.code, 0, "{case}");
            assert!(look.cycles().is_empty(), "{case}");
        }
    }
}

#[test]
fn a_process_in_a_namespace_of_its_own() {
    if nix::unistd::geteuid().is_root() {
        let program = compile("native/deadlocks.c", "deadlocks", &[]);
        let mut command = Command::new("unshare");
        let mut target = Target::start(command.args(["--pid", "--fork", "--mount-proc"]).arg(program).arg("abba"));
        // It says that it is process 1; outside it is the child of unshare.
        assert_eq!(target.pids, [1]);
        let unshare = target.child_id();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).expect("readable");
        target.pids = vec![children.trim().parse().expect("one child")];
        let target = target.settle(3);
        let look = attach(&target.pids, &[]);
        assert_eq!(look.verdict(), "deadlock", "{}", look.text);
        assert_eq!(look.cycles(), [["reader", "writer"]]);
        assert!(look.says("ledger_lock"), "{}", look.text);
    } else {
        crate::harness::skipped!("a PID namespace needs root");
    }
}

/// The kind of a lock decides nothing: a thread that waits for ever keeps the loader's as it keeps a mutex.
#[test]
fn a_lock_of_any_kind_behind_a_wait_without_end_is_stuck() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let library = compile("native/waits_when_loaded.c", "waits_when_loaded.so", &["-shared", "-fPIC"]);
    for (case, lock) in [("mutex-behind-semaphore", "ledger_lock"), ("loader-behind-semaphore", "loader's lock")] {
        let target = Target::start(Command::new(&program).arg(case).arg(&library)).settle(3);
        let look = attach(&target.pids, &[]);
        assert_eq!(look.verdict(), "stuck", "{case}: {}", look.text);
        assert!(look.says(lock) && look.says("sem_wait"), "{case}: {}", look.text);
    }
}

#[test]
fn who_has_the_units_of_a_semaphore_stands_first() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let look = attach(&Target::start(Command::new(&program).arg("pool-of-units")).settle(3).pids, &[]);
    assert_eq!(look.verdict(), "stuck", "{}", look.text);
    assert!(look.says("2 threads each have a unit of connections and wait for another one"), "{}", look.text);
    let scenes = look.json["scenes"].as_array().expect("a list");
    assert_eq!(scenes.len(), 2, "{}", look.text);
    for scene in scenes {
        let functions: Vec<&str> =
            scene["places"].as_array().expect("a list").iter().filter_map(|place| place["function"].as_str()).collect();
        assert_eq!(functions, ["pay", "audit"], "{}", look.text);
        assert_eq!(scene["places"][0]["lines"][0]["does"], "has a unit of it", "{}", look.text);
    }
    let twin = attach(&Target::start(Command::new(&program).arg("pool-with-one-that-goes-on")).settle(2).pids, &[]);
    assert_eq!((twin.verdict(), twin.code), ("blocked", 0), "{}", twin.text);
}

#[test]
fn a_program_whose_file_is_gone() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("gone");
    std::fs::copy(program, &copy).expect("copied");
    let target = Target::start(Command::new(&copy).arg("rwlocks")).settle(3);
    std::fs::remove_file(&copy).expect("removed");
    // Another file has its name now.
    std::fs::write(&copy, "#!/bin/sh\n").expect("written");
    let look = attach(&target.pids, &[]);
    assert_eq!(look.verdict(), "deadlock", "{}", look.text);
    assert!(look.says("scene_lock"), "{}", look.text);
}

/// The pause is over long before it could ask all of them to stop.
#[test]
fn threads_for_which_the_pause_is_too_short_are_told_of() {
    let program = compile("native/many_threads.c", "many_threads", &[]);
    let target = Target::start(Command::new(&program).arg("600")).settle(600);
    let look = attach(&[target.pid()], &["--stop", "--max-pause", "1ms"]);
    let threads = look.json["processes"][0]["threads"].as_array().expect("a list").len();
    assert_eq!(threads, crate::harness::threads(target.pid()).len());
    let gaps = look.json["gaps"].to_string();
    assert!(gaps.contains("registers of ") && gaps.contains("raise --max-pause"), "{gaps}");
    assert!(look.json["gaps"].as_array().is_some_and(|gaps| gaps.len() < 20), "{gaps}");
    // And with the time that it takes all are seen.
    let look = attach(&[target.pid()], &["--stop", "--max-pause", "10s"]);
    assert!(!look.json["gaps"].to_string().contains("registers of "), "{}", look.text);
    assert_eq!(look.json["waits"].as_array().expect("a list").len(), threads, "{}", look.text);
}
