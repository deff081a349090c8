//! What `lockscope run` leaves where CI systems look, and that incident with it is said and takes nothing from the log.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{compile, lockscope, own_program};
use crate::run::stderr;

/// `lockscope run` over a deadlock.
fn hang(configure: impl FnOnce(&mut Command)) -> Output {
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]);
    let mut run = lockscope();
    run.arg("run").env_remove("LOCKSCOPE").env_remove("GITHUB_ACTIONS");
    configure(&mut run);
    run.arg("--").arg(deadlocks).arg("abba").output().expect("it runs")
}

/// A hang that is only reported goes on until the command's time is over.
#[test]
fn a_command_whose_hang_was_reported_keeps_its_time_limit() {
    let output = hang(|run| {
        run.args(["--on-hang", "report", "--timeout", "4"]);
    });
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert!(stderr(&output).contains("given by --timeout"), "{}", stderr(&output));
}

#[test]
fn junit_names_the_deadlock_and_attaches_the_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, reports) = (folder.path().join("new/junit.xml"), folder.path().join("reports"));
    let output = hang(|run| {
        run.arg("--junit").arg(&file).arg("--report-dir").arg(&reports);
    });
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let xml = std::fs::read_to_string(&file).expect("written");
    let parsed = quick_junit::Report::deserialize_from_str(&xml).expect("JUnit");
    assert_eq!((parsed.tests, parsed.failures), (1, 1), "{xml}");
    for part in ["type=\"deadlock\"", "deadlocks`", "stack of ", "[[ATTACHMENT|"] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
    for line in xml.lines().filter_map(|line| line.split_once("[[ATTACHMENT|")) {
        let path = line.1.trim_end_matches("]]");
        assert!(Path::new(path).is_absolute() && Path::new(path).exists(), "{path}");
    }
    // A healthy run leaves nothing, also not what an earlier one left.
    let healthy = lockscope()
        .args(["run", "--junit"])
        .arg(&file)
        .args(["--", "true"])
        .env_remove("LOCKSCOPE")
        .output()
        .expect("it runs");
    assert_eq!(healthy.status.code(), Some(0));
    assert!(!file.exists(), "a stale file");
}

#[test]
fn github_gets_an_annotation_and_a_summary() {
    let folder = tempfile::tempdir().expect("a folder");
    let summary = folder.path().join("summary.md");
    std::fs::write(&summary, "before\n").expect("written");
    let output = hang(|run| {
        run.env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", &summary);
        run.env("GITHUB_WORKSPACE", env!("CARGO_MANIFEST_DIR"));
    });
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("::")).collect();
    let [line] = lines.as_slice() else { panic!("{text}") };
    assert!(line.starts_with("::error file=testdata/native/"), "{line}");
    assert!(line.contains(",line=") && line.contains("title=lockscope%3A deadlock"), "{line}");
    let markdown = std::fs::read_to_string(&summary).expect("there");
    assert!(
        markdown.starts_with("before\n") && markdown.contains("```mermaid") && markdown.len() < 65_536,
        "{markdown}"
    );

    // Outside of GitHub none of it.
    let quiet = hang(|run| {
        run.env("GITHUB_STEP_SUMMARY", &summary);
    });
    assert!(!stderr(&quiet).contains("::error"));
    assert_eq!(std::fs::read_to_string(&summary).expect("there"), markdown);
}

#[test]
fn a_full_disk_takes_nothing_from_the_log() {
    if !nix::unistd::geteuid().is_root() {
        return crate::harness::skipped!("mounting a small file system needs root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mount = |arguments: &[&str]| Command::new("mount").args(arguments).arg(folder.path()).status();
    assert!(mount(&["-t", "tmpfs", "-o", "size=8k", "tmpfs"]).expect("mount runs").success());
    let output = hang(|run| {
        run.arg("--report-dir").arg(folder.path()).arg("--junit").arg(folder.path().join("junit.xml"));
    });
    let left: Vec<String> = std::fs::read_dir(folder.path())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(Command::new("umount").arg(folder.path()).status().expect("umount runs").success());
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(124), "{text}");
    for words in ["deadlock: ", "stack of ", "No space left on device"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!left.iter().any(|name| name.ends_with(".json")), "half a file: {left:?}");
}

#[test]
fn what_the_kernel_forbids_is_said_at_once() {
    if !nix::unistd::geteuid().is_root() {
        return crate::harness::skipped!("a second user needs root");
    }
    // A program that its user may run but not read is not dumpable: only CAP_SYS_PTRACE may look.
    let folder = tempfile::tempdir().expect("a folder");
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
    };
    open(folder.path(), 0o755);
    let (program, own) = (folder.path().join("sleep"), folder.path().join("lockscope"));
    std::fs::copy("/bin/sleep", &program).expect("copied");
    std::fs::copy(own_program(), &own).expect("copied");
    open(&program, 0o711);
    open(&own, 0o755);
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&own)
        .args(["run", "--"])
        .arg(&program)
        .arg("0.3");
    let output = run.env_remove("LOCKSCOPE").output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("not dumpable"), "{}", stderr(&output));
    // What it may look at needs no privilege at all.
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = folder.path().join("deadlocks");
    std::fs::copy(deadlocks, &target).expect("copied");
    open(&target, 0o755);
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]);
    run.arg(&own).args(["run", "--"]).arg(&target).arg("abba").env_remove("LOCKSCOPE");
    let output = run.output().expect("it runs");
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert!(stderr(&output).contains("deadlock: "), "{}", stderr(&output));
}
