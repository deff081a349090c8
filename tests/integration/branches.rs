//! Readers of a lock that records none of them: a call that took it counts on the paths that lead past it, and no further.

use std::process::Command;

use crate::harness::{Target, attach, compile};

/// How the program is built: whoever has no names is read by addresses alone.
const BUILDS: &[(&str, &[&str])] = &[("-O0", &["-O0"]), ("-O2", &["-O2"]), ("-O2 -s", &["-O2", "-s"])];

#[test]
fn a_reader_that_surely_has_the_lock_is_named() {
    for (build, options) in BUILDS {
        let program = compile("native/branches.c", &format!("branches{build}").replace(' ', ""), options);
        for case in ["own", "helper", "loop", "both"] {
            let target = Target::start(Command::new(&program).arg(case)).settle(2);
            let look = attach(&target.pids, &[]);
            assert_eq!(look.verdict(), "suspected-deadlock", "{case} {build}: {}", look.text);
            assert_eq!(look.findings().first(), Some(&"self-deadlock"), "{case} {build}: {}", look.text);
            assert!(look.cycles().iter().any(|cycle| cycle == &["keeper"]), "{case} {build}: {}", look.text);
        }
    }
}

#[test]
fn a_reader_that_may_have_given_the_lock_back_is_in_no_cycle() {
    for (build, options) in BUILDS {
        let program = compile("native/branches.c", &format!("branches{build}").replace(' ', ""), options);
        for case in ["gave-back", "not-taken", "one-gave-back", "round-before", "looped-back", "another-before"] {
            let target = Target::start(Command::new(&program).arg(case)).settle(3);
            for _ in 0..2 {
                let look = attach(&target.pids, &[]);
                assert_eq!(look.verdict(), "blocked", "{case} {build}: {}", look.text);
                assert_eq!(look.code, 0, "{case} {build}: {}", look.text);
            }
        }
    }
}

#[test]
fn a_reader_whose_call_lies_beside_its_stub_is_named() {
    let program = compile("native/near_stub.c", "near_stub", &["-O2"]);
    let target = Target::start(&mut Command::new(program)).settle(2);
    let look = attach(&target.pids, &[]);
    assert_eq!(look.findings().first(), Some(&"join-cycle"), "{}", look.text);
    assert!(look.says("pthread_rwlock_rdlock"), "{}", look.text);
}
