//! Locks in memory that processes share, whose owner is another process: one that has ended, or one that lives; and processes that
//! have one address space.

use std::process::Command;

use crate::harness::{Target, attach, compile, skipped};
use crate::post_mortem::looks;

/// From within another PID namespace not all processes are seen.
fn sees_all_processes() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() == "pid:[4026531836]")
}

fn start(case: &str) -> Target {
    let program = compile("native/shared_owner.c", "shared_owner", &["-pthread"]);
    Target::start(Command::new(program).arg(case)).settle(1)
}

#[test]
fn an_owner_that_no_process_has_any_more() {
    if !sees_all_processes() {
        return skipped!("not in the first PID namespace");
    }
    for (case, word) in [
        ("dead", "no other process maps this memory"),
        ("dead-beside-others", "of the 2 processes that map this memory none has a thread with the id"),
        ("dead-rwlock", "__cur_writer"),
    ] {
        for look in looks(&start(case)) {
            assert_eq!(look.verdict(), "orphaned-lock", "{case}: {}", look.text);
            assert_eq!(look.findings(), ["dead-process-holds-lock"], "{case}");
            let words = look.text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(word), "{case}: no {word} in\n{}", look.text);
        }
    }
}

#[test]
fn an_owner_in_a_process_that_was_not_captured_may_give_it_back() {
    let target = start("living");
    for look in looks(&target) {
        assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    }
}

#[test]
fn processes_with_one_address_space_are_one() {
    let program = compile("native/borrowed_memory.c", "borrowed_memory", &["-pthread"]);
    let start = |case: &str, asleep| Target::start(Command::new(&program).arg(case)).settle(asleep);
    let ring = start("ring", 3);
    for look in looks(&ring) {
        assert_eq!((look.verdict(), look.code), ("deadlock", 1), "{}", look.text);
        assert_eq!(look.cycles().concat(), ["launcher", "launcher", "rehash"], "{}", look.text);
        assert!(look.says("have one address space"), "{}", look.text);
    }
    // The child is looked at since its parent waits for it.
    assert_eq!(attach(&ring.pids[..1], &[]).verdict(), "deadlock");
    for (case, asleep) in [("living", 2), ("poster", 1)] {
        let target = start(case, asleep);
        for look in looks(&target) {
            assert_eq!((look.verdict(), look.code), ("blocked", 0), "{case}: {}", look.text);
        }
    }
}
