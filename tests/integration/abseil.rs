//! Locks of Abseil: testdata/native/abseil.cpp, as Debian's library gives them, by every source of facts.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{Look, Target, attach, compile, core, skipped};
use crate::post_mortem::{essence, gdb_cores, snapshot};

/// How it is compiled: what a look knows differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    /// Guards are made out of line.
    Debug,
    /// Guards are inline.
    Optimised,
    /// Without own names; those of the library are exported.
    Stripped,
    /// Without any name.
    StrippedStatic,
}

const BUILDS: [Build; 4] = [Build::Debug, Build::Optimised, Build::Stripped, Build::StrippedStatic];

/// What pkg-config says; `None` where libabsl-dev is not there.
fn flags(more: &[&str]) -> Option<Vec<String>> {
    let output = Command::new("pkg-config").args(more).arg("absl_synchronization").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
}

impl Build {
    fn program(self) -> Option<PathBuf> {
        let (name, own, library): (_, &[&str], &[&str]) = match self {
            Build::Debug => ("abseil-debug", &["-O0"], &["--libs"]),
            Build::Optimised => ("abseil-optimised", &["-O2"], &["--libs"]),
            Build::Stripped => ("abseil-stripped", &["-O2", "-s"], &["--libs"]),
            Build::StrippedStatic => ("abseil-static", &["-O2", "-s", "-static"], &["--static", "--libs"]),
        };
        let all: Vec<String> = flags(&["--cflags"])?
            .into_iter()
            .chain(own.iter().map(|flag| (*flag).to_owned()))
            .chain(["-Wl,--start-group".to_owned()])
            .chain(flags(library)?)
            .chain(["-Wl,--end-group".to_owned(), "-lstdc++".to_owned()])
            .collect();
        Some(compile("native/abseil.cpp", name, &all.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// Whether the calls of Abseil have names.
    fn has_names(self) -> bool {
        self != Build::StrippedStatic
    }
}

/// The programs, or a note that they are not there.
fn programs() -> &'static [(Build, PathBuf)] {
    static BUILT: OnceLock<Vec<(Build, PathBuf)>> = OnceLock::new();
    let built = BUILT.get_or_init(|| BUILDS.iter().filter_map(|build| Some((*build, build.program()?))).collect());
    if built.is_empty() {
        skipped!("no libabsl-dev or no pkg-config: nothing of Abseil is tried");
    }
    built
}

fn start(program: &PathBuf, words: &[&str], asleep: usize) -> Target {
    Target::start(Command::new(program).args(words)).settle(asleep)
}

/// A case, how many threads sleep in futex at its end, and who is in its cycle.
const HANGS: [(&str, usize, &[&str], &str); 4] = [
    ("abba", 3, &["refiller", "seller"], "lock-order-cycle"),
    ("by-hand", 3, &["refiller", "seller"], "lock-order-cycle"),
    ("reader", 3, &["reader", "refiller"], "lock-order-cycle"),
    ("self", 2, &["twice"], "self-deadlock"),
];

#[test]
fn every_hang_is_named_by_the_code_and_without_names_by_its_only_candidates() {
    for (build, program) in programs() {
        for (case, asleep, cycle, finding) in HANGS {
            let target = start(program, &[case], asleep);
            let look = attach(&target.pids, &[]);
            let what = format!("{case} {build:?}: {}", look.text);
            assert_eq!(look.code, 1, "{what}");
            if build.has_names() {
                assert_eq!(
                    (look.verdict(), look.cycles()),
                    ("suspected-deadlock", vec![cycle.iter().map(|name| (*name).to_owned()).collect()]),
                    "{what}"
                );
                assert!(look.findings().contains(&finding), "{what}");
                assert_eq!(certainties(&look), ["inferred"], "{what}");
            } else {
                // Nobody but these can have the locks; where there is no such candidate, the wait is without end all the same.
                let is_ring = look.verdict() == "suspected-deadlock"
                    && look.cycles() == [cycle.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()]
                    && certainties(&look) == ["candidate"];
                assert!(is_ring || look.verdict() == "stuck" && look.cycles().is_empty(), "{what}");
                assert!(look.says("the lock records no owner") || case == "reader", "{what}");
            }
            assert!(look.says("absl::Mutex"), "{what}");
            if matches!(build, Build::Debug | Build::Optimised) {
                assert!(look.says("`orders`"), "{what}");
            }
        }
    }
}

/// How sure it is of holders of Abseil's mutexes, each once.
fn certainties(look: &Look) -> Vec<String> {
    let of_kind = |id: &str| {
        let resources = look.json["resources"].as_array().expect("a list");
        resources.iter().any(|one| one["id"] == id && one["kind"] == "absl_mutex")
    };
    let holds = look.json["holds"].as_array().expect("a list").iter();
    let mut all: Vec<String> = holds
        .filter(|hold| of_kind(hold["resource"].as_str().unwrap_or_default()))
        .map(|hold| hold["certainty"].as_str().unwrap_or_default().to_owned())
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn without_names_whoever_has_the_mutex_at_hand_is_a_candidate() {
    for (_, program) in programs().iter().filter(|(build, _)| !build.has_names()) {
        let target = start(program, &["abba"], 3);
        let look = attach(&target.pids, &[]);
        assert_eq!(certainties(&look), ["candidate"], "{}", look.text);
        assert!(look.json["gaps"].to_string().contains("the lock records no owner"), "{}", look.text);
    }
}

#[test]
fn where_abseil_keeps_account_its_word_is_taken() {
    for (build, program) in programs() {
        for (case, asleep, cycle, finding) in [HANGS[0], HANGS[1], HANGS[2]] {
            let target = start(program, &[case, "detect"], asleep);
            let look = attach(&target.pids, &[]);
            let what = format!("{case} {build:?}: {}", look.text);
            let names: Vec<String> = cycle.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!((look.verdict(), look.cycles()), ("deadlock", vec![names]), "{what}");
            assert!(look.findings().contains(&finding), "{what}");
            assert_eq!(certainties(&look), ["exact"], "{what}");
        }
    }
}

#[test]
fn a_core_and_a_snapshot_say_the_same() {
    for (build, program) in programs() {
        for words in [&["abba"][..], &["reader"], &["abba", "detect"]] {
            let folder = tempfile::tempdir().expect("a folder");
            let target = start(program, words, 3);
            let live = essence(&attach(&target.pids, &[]));
            let file = folder.path().join("hang.snapshot");
            snapshot(&target.pids, &file, &[]);
            assert_eq!(essence(&core(&[file], &[])), live, "{words:?} {build:?} as a snapshot");
            let cores = gdb_cores(&target.pids, folder.path());
            assert_eq!(essence(&core(&cores, &[])), live, "{words:?} {build:?} as a core of gdb's");
        }
    }
}

#[test]
fn who_is_woken_at_a_condition_does_not_have_the_mutex_that_it_takes_again() {
    for (build, program) in programs() {
        let target = start(program, &["retakes"], 2);
        let look = attach(&target.pids, &[]);
        assert_eq!((look.code, look.cycles()), (0, vec![]), "{build:?}: {}", look.text);
        assert!(look.findings().is_empty(), "{build:?}: {}", look.text);
        if build.has_names() {
            let words: Vec<&str> = look.text.split_whitespace().collect();
            assert!(words.join(" ").contains("(write), held by clerk"), "{build:?}: {}", look.text);
        }
    }
}

#[test]
fn healthy_programs_are_left_in_peace() {
    for (build, program) in programs() {
        let target = start(program, &["healthy"], 0);
        for _ in 0..20 {
            let look = attach(&target.pids, &[]);
            assert_eq!(look.code, 0, "{build:?}: {}", look.text);
            assert!(look.cycles().is_empty(), "{build:?}: {}", look.text);
            assert!(look.findings().is_empty(), "{build:?}: {}", look.text);
        }
    }
}
