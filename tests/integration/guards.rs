//! Where a lock was taken and what its variable is called, in C++ and in Rust.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Look, Target, compile, compile_rust, skipped, testdata};
use crate::post_mortem::looks;

/// The lines of a function that end with this comment, by the function's head.
fn line_of(source: &str, head: &str, comment: &str) -> u64 {
    let text = std::fs::read_to_string(testdata(source)).expect("a program");
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.contains(head));
    let (at, _) = lines.find(|(_, line)| line.ends_with(comment)).expect("such a line");
    at as u64 + 1
}

/// Each thread of the cycle is told with the line that took what it holds, and the line where it waits.
fn tells_both_lines(name: &str, look: &Look, source: &str, takes: &str, waits: &str) {
    let expected = [line_of(source, takes, "// takes"), line_of(source, waits, "// waits")];
    let scenes = look.json["scenes"].as_array().expect("scenes");
    assert_eq!(scenes.len(), 2, "{name}: {}", look.text);
    for scene in scenes {
        let places = scene["places"].as_array().expect("places");
        let lines: Vec<u64> = places
            .iter()
            .flat_map(|place| place["lines"].as_array().into_iter().flatten())
            .filter_map(|line| line["line"].as_u64())
            .collect();
        assert_eq!(lines, expected, "{name}: {}", look.text);
    }
}

#[test]
fn cpp_is_told_by_the_lines_of_its_guards() {
    for level in ["-O0", "-O2"] {
        let program = compile("native/guards.cpp", &format!("guards{level}"), &[level, "-lstdc++"]);
        let cases = [
            ("guard", "guarded(", "guarded("),
            ("unique", "unlocked(", "unlocked("),
            ("calls", "called(", "called("),
            ("returned", "void returned(", "opened("),
        ];
        for (case, takes, waits) in cases {
            let name = &format!("{case} {level}");
            let target = Target::start(Command::new(&program).arg(case)).settle(3);
            for look in looks(&target) {
                assert_eq!(look.findings().first(), Some(&"lock-order-cycle"), "{name}: {}", look.text);
                tells_both_lines(name, &look, "native/guards.cpp", takes, waits);
                // Variables of main, which is not inlined.
                let is_named = case == "calls" || look.says("alice.door") && look.says("bob.door");
                assert!(is_named, "{name}: {}", look.text);
            }
        }
    }
}

#[test]
fn locks_in_the_heap_are_called_by_the_way_to_them() {
    let program = compile("native/guards.cpp", "guards-heap", &["-O0", "-lstdc++"]);
    let cases = [
        ("vector", ["row[0].door", "row[1].door"]),
        // Keys are not read.
        ("map", ["by_name[...].door", "by_number[...].door"]),
        ("pointers", ["family.first.door", "family.second.door"]),
    ];
    for (case, names) in cases {
        for look in looks(&Target::start(Command::new(&program).arg(case)).settle(3)) {
            assert_eq!(look.findings().first(), Some(&"lock-order-cycle"), "{case}: {}", look.text);
            for name in names {
                assert!(look.says(&format!("mutex `{name}` of main")), "{case}: {}", look.text);
            }
        }
    }
}

/// The program; `None` where there is no compiler.
fn rust() -> Option<PathBuf> {
    compile_rust("native/guards.rs", "guards-rust", &[])
}

#[test]
fn rust_is_told_by_the_lines_of_its_guards() {
    let Some(program) = rust() else { return skipped!("no rustc") };
    for look in looks(&Target::start(Command::new(program).arg("orders")).settle(3)) {
        assert_eq!(look.verdict(), "suspected-deadlock", "{}", look.text);
        assert_eq!(look.findings().first(), Some(&"lock-order-cycle"), "{}", look.text);
        tells_both_lines("rust", &look, "native/guards.rs", "fn transfer", "fn transfer");
        assert!(look.says("its guard `first`"), "{}", look.text);
        assert!(look.says("`accounts[0].balance` of ") && look.says("`accounts[1].balance` of "), "{}", look.text);
        let certainties: Vec<&str> = look.json["holds"]
            .as_array()
            .expect("holds")
            .iter()
            .filter(|hold| hold["taken"].is_object())
            .filter_map(|hold| hold["certainty"].as_str())
            .collect();
        assert_eq!(certainties, ["inferred", "inferred"], "{}", look.text);
    }
}

#[test]
fn locks_in_a_static_of_rust_are_called_by_their_members() {
    let Some(program) = rust() else { return skipped!("no rustc") };
    for look in looks(&Target::start(Command::new(program).arg("members")).settle(2)) {
        assert_eq!(look.findings().first(), Some(&"lock-order-cycle"), "{}", look.text);
        assert!(
            look.says("STORE.index and STORE.journal are") || look.says("STORE.journal and STORE.index are"),
            "{}",
            look.text
        );
    }
}

/// Whoever has dropped the guard of a lock, or given it away, does not have the lock, whatever stands in his frame.
#[test]
fn a_guard_of_rust_that_is_gone_holds_nothing() {
    let Some(program) = rust() else { return skipped!("no rustc") };
    for case in ["dropped", "given", "sometimes", "emptied", "earlier", "condition"] {
        for look in looks(&Target::start(Command::new(&program).arg(case)).settle(2)) {
            assert!(look.cycles().is_empty(), "{case}: {}", look.text);
            assert_ne!(look.verdict(), "suspected-deadlock", "{case}: {}", look.text);
            let careful = look.json["processes"][0]["threads"].as_array().expect("threads").iter();
            let careful: Vec<_> = careful.filter(|one| one["name"] == "careful").map(|one| &one["tid"]).collect();
            let holds = look.json["holds"].as_array().expect("holds").iter();
            let has = |hold: &&serde_json::Value| careful.contains(&&hold["tid"]) && hold["certainty"] != "candidate";
            assert_eq!(holds.filter(has).count(), 0, "{case}: {}", look.text);
        }
    }
}
