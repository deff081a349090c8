//! Waits that the kernel knows, and locks that record no owner: live and from a snapshot.

use std::io::Read;
use std::process::Command;

use crate::harness::{Target, attach, compile, wait_until};
use crate::post_mortem::looks;

/// Wait until each process of the target sleeps in one of these system calls, seen several times.
pub(crate) fn asleep_in(target: &Target, calls: &[&str]) {
    let mut seen = 0;
    wait_until("the target comes to its waits", || {
        let asleep = target.pids.iter().all(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            calls.iter().any(|call| line.starts_with(&format!("{call} ")))
        });
        seen = if asleep { seen + 1 } else { 0 };
        seen >= 10
    });
}

fn start(case: &str, folder: &std::path::Path) -> Target {
    let program = compile("native/kernel_waits.c", "kernel_waits", &[]);
    Target::start(Command::new(program).arg(case).arg(folder))
}

#[test]
fn pipes_and_file_locks_between_processes() {
    for (case, calls, finding, words) in [
        ("both-write", &["1"][..], "pipe-cycle", &["send_all", "room in pipe:["][..]),
        ("waits-for-writer", &["1", "61"], "pipe-cycle", &["send_all", "waits_for_writer", "child process"]),
        ("two-files", &["73"], "file-lock-cycle", &["jobs.lock", "status.lock", "/proc/locks"]),
        ("two-open-files", &["72"], "file-lock-cycle", &["jobs.lock", "status.lock", "OFDLCK"]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let target = start(case, folder.path());
        asleep_in(&target, calls);
        for look in looks(&target) {
            assert_eq!(look.verdict(), "deadlock", "{case}: {}", look.text);
            assert_eq!(look.findings(), [finding], "{case}");
            assert_eq!(look.json["cycles"][0]["edges"].as_array().map(Vec::len), Some(2), "{case}");
            for word in words {
                assert!(look.says(word), "{case}: no {word} in\n{}", look.text);
            }
        }
    }
}

#[test]
fn a_lock_that_a_parent_and_its_child_share_is_held_by_both() {
    for (case, verdict, findings) in
        [("children-with-files", "deadlock", &["file-lock-cycle"][..]), ("children-that-go-on", "blocked", &[])]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let target = start(case, folder.path());
        asleep_in(&target, &["61", "73"]);
        for look in looks(&target) {
            assert_eq!((look.verdict(), look.findings()), (verdict, findings.to_vec()), "{case}: {}", look.text);
            assert!(look.says("jobs.lock") && look.says("status.lock"), "{case}: {}", look.text);
        }
    }
}

#[test]
fn a_lock_of_an_open_file_that_a_third_process_could_give_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("shared-open-file", folder.path());
    asleep_in(&target, &["72"]);
    for look in looks(&target) {
        assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
        assert!(look.says("jobs.lock"), "{}", look.text);
    }
}

#[test]
fn message_queues_and_watched_files() {
    let program = compile("native/message_queues.c", "message_queues", &["-lrt"]);
    for (case, call, verdict, words) in [
        ("both-receive", "243", "suspected-deadlock", &["message queue /lockscope-answers-", "other end open in"][..]),
        ("at-work", "243", "blocked", &["message queue /lockscope-answers-"]),
        ("system-v", "70", "blocked", &["System V message queue"]),
        ("watches", "0", "blocked", &["watches by inotify"]),
    ] {
        let target = Target::start(Command::new(&program).arg(case));
        if target.pids == [0] {
            crate::harness::skipped!("no POSIX message queues");
            continue;
        }
        asleep_in(&target, &[call, "34"]);
        for look in looks(&target) {
            assert_eq!(look.verdict(), verdict, "{case}: {}", look.text);
            let text = unwrapped(&look.text);
            assert!(words.iter().all(|word| text.contains(word)), "{case}: {}", look.text);
        }
        crate::harness::signal_process(target.pid(), "TERM");
    }
}

#[test]
fn what_stopped_a_process_is_named() {
    let program = compile("native/message_queues.c", "message_queues", &["-lrt"]);
    for (signal, advice) in [("STOP", "kill -CONT"), ("TTIN", "< /dev/null"), ("TTOU", "stty -tostop"), ("TSTP", "fg")]
    {
        let target = Target::start(Command::new(&program).arg("watches"));
        asleep_in(&target, &["0"]);
        crate::harness::signal_process(target.pid(), signal);
        wait_until("it stops", || {
            crate::harness::status_field(target.pid(), target.pid(), "State")
                .is_some_and(|state| state.starts_with('T'))
        });
        for look in looks(&target) {
            let text = unwrapped(&look.text);
            assert!(text.contains(&format!("by SIG{signal}")) && text.contains(advice), "{signal}: {}", look.text);
        }
    }
}

#[test]
fn of_a_cycle_through_a_process_that_was_not_captured_the_gap_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("both-write", folder.path());
    asleep_in(&target, &["1"]);
    let look = attach(&target.pids[..1], &["--no-tree"]);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    assert!(look.says(&format!("({})", target.pids[1])), "{}", look.text);
}

#[test]
fn a_pipe_that_only_its_reader_could_write_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("own-pipe", folder.path());
    asleep_in(&target, &["0"]);
    for look in looks(&target) {
        assert_eq!((look.verdict(), look.code), ("stuck", 1), "{}", look.text);
        assert_eq!(look.findings(), ["pipe-without-writer"]);
        assert!(unwrapped(&look.text).contains("neither data nor its end can ever come"), "{}", look.text);
    }
}

/// A text without its lines' ends: where these fall depends on how many digits a process id has.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_arena_whose_owner_fork_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start("allocates-after-fork", folder.path());
    if target.pids == [0] {
        return crate::harness::skipped!("this C library has no _Fork");
    }
    for look in looks(&target) {
        assert_eq!(look.verdict(), "orphaned-lock", "{}", look.text);
        assert_eq!(look.findings(), ["fork-orphaned-lock"]);
        assert!(look.says("allocates_after_fork") && look.says("malloc"), "{}", look.text);
    }
}

#[test]
fn static_variables_whose_initialisers_wait_for_each_other() {
    for (name, flags) in [("initialisers", &["-O0"][..]), ("initialisers-optimised", &["-O2"])] {
        let flags: Vec<&str> = flags.iter().copied().chain(["-lstdc++"]).collect();
        let target = Target::start(&mut Command::new(compile("native/initialisers.cpp", name, &flags))).settle(3);
        for look in looks(&target) {
            assert_eq!(look.verdict(), "suspected-deadlock", "{name}: {}", look.text);
            assert_eq!(look.findings(), ["static-init-cycle"], "{name}");
            assert_eq!(look.cycles(), [["draw", "layout"]], "{name}");
            assert!(look.says("the_palette") && look.says("the_fonts"), "{name}: {}", look.text);
        }
    }
}

/// A case of conversations.c: the calls that its processes sleep in, and what is true of it.
struct Conversation {
    case: &'static str,
    calls: &'static [&'static str],
    verdict: &'static str,
    finding: Option<&'static str>,
    mentions: &'static [&'static str],
}

const CONVERSATIONS: [Conversation; 16] = [
    Conversation {
        case: "both-send",
        calls: &["44"],
        verdict: "deadlock",
        finding: Some("pipe-cycle"),
        mentions: &["send_all", "room in unix socket", "other end open in"],
    },
    Conversation {
        case: "both-listen",
        calls: &["45"],
        verdict: "deadlock",
        finding: Some("pipe-cycle"),
        mentions: &["data on TCP 127.0.0.1:", "receive"],
    },
    Conversation {
        case: "poll-cycle",
        calls: &["7", "45"],
        verdict: "deadlock",
        finding: Some("pipe-cycle"),
        mentions: &["poll_cycle", "unix socket"],
    },
    Conversation {
        case: "epoll-cycle",
        calls: &["232", "270", "23"],
        verdict: "deadlock",
        finding: Some("pipe-cycle"),
        mentions: &["epoll_wait", "select", "pipe:["],
    },
    Conversation {
        case: "eventfds",
        calls: &["0"],
        verdict: "suspected-deadlock",
        finding: Some("pipe-cycle"),
        mentions: &["eventfd"],
    },
    Conversation {
        case: "set-of-semaphores",
        calls: &["65", "220"],
        verdict: "suspected-deadlock",
        finding: Some("lock-order-cycle"),
        mentions: &["semaphore 1 of System V set", "whose last unit"],
    },
    Conversation {
        case: "semaphores",
        calls: &["202"],
        verdict: "suspected-deadlock",
        finding: Some("lock-order-cycle"),
        mentions: &["semaphore", "both_semaphores"],
    },
    Conversation {
        case: "process-descriptor",
        calls: &["7", "0"],
        verdict: "deadlock",
        finding: Some("pipe-cycle"),
        mentions: &["the end of process"],
    },
    Conversation {
        case: "own-socket",
        calls: &["45"],
        verdict: "stuck",
        finding: Some("pipe-without-writer"),
        mentions: &["nobody else has it"],
    },
    Conversation { case: "server", calls: &["232"], verdict: "blocked", finding: None, mentions: &["or 1 more"] },
    Conversation { case: "self-pipe", calls: &["7"], verdict: "blocked", finding: None, mentions: &["pipe:["] },
    Conversation {
        case: "barrier-short",
        calls: &["202"],
        verdict: "stuck",
        finding: Some("nobody-left-to-wake"),
        mentions: &["2 of 3 parties came", "meeting"],
    },
    Conversation {
        case: "lost-news",
        calls: &["202"],
        verdict: "stuck",
        finding: Some("nobody-left-to-wake"),
        mentions: &["news", "wait_for_news", "both threads"],
    },
    Conversation {
        case: "service",
        calls: &["202"],
        verdict: "blocked",
        finding: None,
        mentions: &["semaphore `end`"],
    },
    Conversation {
        case: "pool-left-behind",
        calls: &["202", "61"],
        verdict: "orphaned-lock",
        finding: Some("fork-orphaned-lock"),
        mentions: &["semaphore `end`", "which fork did not copy"],
    },
    Conversation {
        case: "handler",
        calls: &["202"],
        verdict: "deadlock",
        finding: Some("lock-taken-again-in-signal-handler"),
        mentions: &["on_user_signal", "door"],
    },
];

fn converse(case: &str) -> Target {
    Target::start(Command::new(compile("native/conversations.c", "conversations", &[])).arg(case))
}

/// A set of System V semaphores outlives the processes that use it.
struct RemovedSet(Option<String>);

impl RemovedSet {
    fn of(target: &Target) -> RemovedSet {
        RemovedSet(target.said.iter().find_map(|line| Some(line.strip_prefix("SET ")?.trim().to_owned())))
    }
}

impl Drop for RemovedSet {
    fn drop(&mut self) {
        if let Some(set) = &self.0 {
            let _ = Command::new("ipcrm").args(["-s", set]).status();
        }
    }
}

#[test]
fn sockets_sets_and_semaphores_between_processes() {
    for conversation in CONVERSATIONS {
        let Conversation { case, calls, verdict, finding, mentions } = conversation;
        let target = converse(case);
        let _set = RemovedSet::of(&target);
        asleep_in(&target, calls);
        if matches!(case, "barrier-short" | "lost-news") {
            every_thread_asleep(&target, calls);
        }
        for look in looks(&target) {
            assert_eq!(look.verdict(), verdict, "{case}: {}", look.text);
            assert_eq!(look.findings(), finding.as_slice(), "{case}: {}", look.text);
            // Lines break between words.
            let words = look.text.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in mentions {
                assert!(words.contains(word), "{case}: no {word} in\n{}", look.text);
            }
        }
    }
}

/// The same of all threads.
fn every_thread_asleep(target: &Target, calls: &[&str]) {
    wait_until("all threads come to their waits", || {
        let pid = target.pid();
        crate::harness::threads(pid).into_iter().all(|tid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
            calls.iter().any(|call| line.starts_with(&format!("{call} ")))
        })
    });
}

#[test]
fn a_lock_kept_at_a_barrier_keeps_the_others_from_it() {
    let target = converse("barrier-inside");
    every_thread_asleep(&target, &["202"]);
    for look in looks(&target) {
        assert_eq!(look.verdict(), "suspected-deadlock", "{}", look.text);
        assert!(unwrapped(&look.text).contains("has yet to come"), "{}", look.text);
    }
}

#[test]
fn a_barrier_of_openmp_is_held_up_by_the_one_that_does_not_come() {
    let program = compile("native/openmp.c", "openmp", &["-fopenmp"]);
    let target = Target::start(Command::new(program).env("OMP_WAIT_POLICY", "passive"));
    wait_until("the team is there", || crate::harness::threads(target.pid()).len() == 3);
    every_thread_asleep(&target, &["202"]);
    for look in looks(&target) {
        assert_eq!(look.verdict(), "suspected-deadlock", "{}", look.text);
        assert!(look.says("OpenMP barrier") && look.says("mutex `results`"), "{}", look.text);
    }
}

/// A control group that a test made; thawed and removed when dropped.
struct ControlGroup(std::path::PathBuf);

impl ControlGroup {
    /// With one process in it, frozen; `None` where this machine lends none.
    fn frozen(pid: i32) -> Option<ControlGroup> {
        let name = format!("lockscope-test-{pid}");
        let (mount, file, value) = [
            ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN"),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", "1"),
            ("/sys/fs/cgroup", "cgroup.freeze", "1"),
        ]
        .into_iter()
        .find(|(mount, ..)| std::fs::create_dir(std::path::Path::new(mount).join(&name)).is_ok())?;
        let group = ControlGroup(std::path::Path::new(mount).join(name));
        std::fs::write(group.0.join("cgroup.procs"), pid.to_string()).ok()?;
        std::fs::write(group.0.join(file), value).ok()?;
        Some(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            if self.0.join(file).exists() {
                let _ = std::fs::write(self.0.join(file), value);
            }
        }
        // Its process ends first, by its target's drop; what is left is empty.
        let parent = self.0.parent().map(|parent| parent.join("cgroup.procs"));
        let members = std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            let _ = parent.as_ref().map(|parent| std::fs::write(parent, pid));
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_that_its_control_group_keeps_frozen() {
    let target = converse("server");
    asleep_in(&target, &["232"]);
    let Some(group) = ControlGroup::frozen(target.pid()) else {
        return crate::harness::skipped!("no control group can be made here");
    };
    wait_until("it is frozen", || {
        let events = std::fs::read_to_string(group.0.join("cgroup.events")).unwrap_or_default();
        let state = std::fs::read_to_string(group.0.join("freezer.state")).unwrap_or_default();
        events.contains("frozen 1") || state.starts_with("FROZEN")
    });
    let look = attach(&target.pids, &[]);
    assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    assert_eq!(look.findings(), ["traced-or-stopped"]);
    assert!(look.says("is frozen by its control group"), "{}", look.text);
}

#[test]
fn processes_that_talk_are_left_in_peace() {
    let target = converse("talk");
    for _ in 0..10 {
        let look = attach(&target.pids, &[]);
        assert!(matches!(look.verdict(), "running" | "blocked"), "{}", look.text);
        assert!(look.cycles().is_empty());
    }
}

#[test]
fn a_look_cuts_no_write_short() {
    let program = compile("native/kernel_waits.c", "kernel_waits", &[]);
    let mut target = Target::start(Command::new(program).arg("one-write"));
    asleep_in(&target, &["1"]);
    for _ in 0..10 {
        let look = attach(&target.pids, &[]);
        assert!(look.says("write"), "{}", look.text);
    }
    let mut rest = Vec::new();
    target.output.read_to_end(&mut rest).expect("readable");
    assert_eq!(rest.len(), 1 << 20);
    assert_eq!(target.status(), Some(0), "the write returned less than it was given");
}
