//! Locks that record nobody and whose calls tell who has them: initialisers that run once, OpenMP's sections, Rust's RwLock.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Look, Target, attach, compile, compile_rust, skipped, testdata};
use crate::post_mortem::looks;

fn is_suspected(name: &str, look: &Look, finding: &str, words: &[&str]) {
    assert_eq!(look.verdict(), "suspected-deadlock", "{name}: {}", look.text);
    assert_eq!(look.findings(), [finding], "{name}");
    for word in words {
        assert!(look.says(word), "{name}: no {word} in\n{}", look.text);
    }
}

fn is_healthy(name: &str, target: &Target) {
    for _ in 0..5 {
        let look = attach(&target.pids, &[]);
        assert_eq!((look.verdict(), look.code), ("blocked", 0), "{name}: {}", look.text);
        assert!(look.cycles().is_empty(), "{name}");
    }
}

#[test]
fn initialisers_that_run_once() {
    let library = compile("native/calls_when_loaded.c", "calls_when_loaded.so", &["-shared", "-fPIC"]);
    for level in ["-O0", "-O2"] {
        let flags = [level, "-rdynamic", "-lstdc++", "-ldl"];
        let program = compile("native/initialised_once.cpp", &format!("initialised_once{level}"), &flags);
        let start = |case: &str, asleep| Target::start(Command::new(&program).arg(case).arg(&library)).settle(asleep);
        for look in looks(&start("reentered", 1)) {
            is_suspected(level, &look, "static-init-cycle", &["settings", "took once control"]);
        }
        for look in looks(&start("loader", 3)) {
            is_suspected(level, &look, "loader-lock-cycle", &["settings", "_dl_load_lock"]);
            assert_eq!(look.cycles(), [["constructor", "initialiser"]], "{level}");
        }
        is_healthy(level, &start("nested", 1));
    }
}

#[test]
fn critical_sections_of_openmp() {
    for level in ["-O0", "-O2"] {
        let program = compile("native/critical_sections.c", &format!("critical_sections{level}"), &[level, "-fopenmp"]);
        let start = |case: &str, asleep| Target::start(Command::new(&program).arg(case)).settle(asleep);
        for look in looks(&start("nameless", 1)) {
            is_suspected(level, &look, "self-deadlock", &["critical section without a name", "GOMP_critical_start()"]);
        }
        is_healthy(level, &start("branches", 1));
    }
    // Optimised, both branches of a case go on in the same instructions: there, one of the two holders is not told, and none
    // is told wrongly.
    let cases = [
        ("orders", ["critical section `table`", "GOMP_critical_name_start("]),
        ("locks", ["OpenMP lock `table`", "omp_set_lock("]),
    ];
    for (case, words) in cases {
        for (level, verdict) in [("-O0", "suspected-deadlock"), ("-O2", "stuck")] {
            let program =
                compile("native/critical_sections.c", &format!("critical_sections{level}"), &[level, "-fopenmp"]);
            for look in looks(&Target::start(Command::new(program).arg(case)).settle(2)) {
                assert_eq!(look.verdict(), verdict, "{case} {level}: {}", look.text);
                assert!(level == "-O2" || look.findings() == ["lock-order-cycle"], "{case}: {}", look.text);
                assert!(words.iter().all(|word| level == "-O2" || look.says(word)), "{case}: {}", look.text);
            }
        }
    }
}

/// A program built by clang with its own runtime of OpenMP, whose waiters for a lock burn CPU; `None` where there is none.
fn by_clang(source: &str, level: &str) -> Option<PathBuf> {
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-by-clang{level}"));
    let mut clang = Command::new("clang-19");
    clang.args(["-g", level, "-fopenmp", "-o"]).arg(&built).arg(testdata(&format!("native/{source}.c")));
    clang.status().is_ok_and(|status| status.success()).then_some(built)
}

#[test]
fn critical_sections_of_llvm() {
    for level in ["-O0", "-O2"] {
        let Some(program) = by_clang("critical_sections", level) else {
            return skipped!("OpenMP of LLVM: no clang-19 with libomp-19-dev");
        };
        let start = |case: &str| Target::start(Command::new(&program).arg(case));
        // They were ready before they asked: until each burns CPU in its wait, looks are of no use.
        let spinning = |case: &str, threads: usize| start(case).settle_spinning(threads);
        for look in looks(&spinning("nameless", 1)) {
            is_suspected(level, &look, "self-deadlock", &["critical section without a name", "__kmpc_critical("]);
        }
        is_healthy(level, &spinning("branches", 1));
        // Optimised, both branches go on in the same instructions, as above.
        if level == "-O0" {
            for (case, name) in [("orders", "critical section `table`"), ("locks", "OpenMP lock `table`")] {
                for look in looks(&spinning(case, 2)) {
                    is_suspected(level, &look, "lock-order-cycle", &[name]);
                }
            }
        }
        let contended = start("contended");
        for _ in 0..10 {
            let look = attach(&contended.pids, &[]);
            assert_eq!((look.code, look.cycles().len()), (0, 0), "{level}: {}", look.text);
        }
        let program = by_clang("openmp", level).expect("it compiled the other");
        for look in looks(&Target::start(&mut Command::new(program)).settle(3)) {
            assert_eq!(look.verdict(), "suspected-deadlock", "{level}: {}", look.text);
            assert!(look.says("OpenMP barrier") && look.says("`results`"), "{level}: {}", look.text);
        }
    }
}

#[test]
fn a_reader_of_rust_that_wants_to_write() {
    let Some(program) = compile_rust("native/upgrade.rs", "upgrade", &[]) else { return skipped!("no rustc") };
    let start = |case: &str| Target::start(Command::new(&program).arg(case)).settle(1);
    for look in looks(&start("itself")) {
        is_suspected("itself", &look, "self-deadlock", &["Rust RwLock `upgrade::TABLE`", "read_then_write"]);
    }
    is_healthy("given back", &start("given-back"));
}
