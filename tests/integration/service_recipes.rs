//! Recipes for services and for what comes after a crash: systemd units, a liveness probe, core_pattern, coredumpctl, problem matchers;
//! with them a core on standard input, SARIF, and the line for alerts.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Target, is_root, lockscope, own_program, skipped, testdata};
use crate::python::pythons;
use crate::recipes::recipe;

/// A snapshot is a core, too: of two locks that are taken in different orders.
fn core() -> PathBuf {
    testdata("snapshots/lock-order.snapshot.zst")
}

fn with_core_on_stdin(words: &[&str]) -> Output {
    let mut command = lockscope();
    command.args(words).stdin(File::open(core()).expect("readable"));
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_core_comes_on_standard_input() {
    let piped = with_core_on_stdin(&["core", "-"]);
    let named = lockscope().arg("core").arg(core()).output().expect("it runs");
    assert_eq!((piped.status.code(), named.status.code()), (Some(1), Some(1)), "{piped:?}");
    let named = text(&named.stdout).replace(&core().display().to_string(), "standard input");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&text(&piped.stdout)), words(&named));
    assert!(named.contains("from standard input"), "{named}");
    // The bytes beyond the limit are missing, and a message says so.
    let cut = with_core_on_stdin(&["core", "-", "--most-input", "2K"]);
    assert_eq!(cut.status.code(), Some(2), "{cut:?}");
    assert!(text(&cut.stderr).contains("longer than --most-input (2048 bytes)"), "{cut:?}");
    let twice = with_core_on_stdin(&["core", "-", "-"]);
    assert!(twice.status.code() == Some(2) && text(&twice.stderr).contains("one core only"), "{twice:?}");
    let empty = lockscope().args(["core", "-"]).stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
}

#[test]
fn sarif_has_a_result_for_each_finding() {
    let output = with_core_on_stdin(&["core", "-", "--format", "sarif"]);
    let log: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&log["version"], &result["ruleId"]), (&"2.1.0".into(), &"lock-order-cycle".into()), "{log}");
    assert_eq!(log["runs"][0]["tool"]["driver"]["rules"][0]["id"], "lock-order-cycle");
    let place = &result["locations"][0]["physicalLocation"];
    assert!(place["region"]["startLine"].as_u64().is_some_and(|line| line > 0), "{result}");
    assert!(result["relatedLocations"].as_array().is_some_and(|others| !others.is_empty()), "{result}");
    // The ending of a file says it, too.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hang.sarif");
    let output = with_core_on_stdin(&["core", "-", "-o", &file.display().to_string()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let written: Value = serde_json::from_slice(&std::fs::read(file).expect("written")).expect("JSON");
    assert_eq!(written["runs"][0]["results"][0]["ruleId"], "lock-order-cycle");
}

/// The line for alerts.
fn short() -> String {
    text(&with_core_on_stdin(&["core", "-", "--format", "short"]).stdout).trim_end_matches('\n').to_owned()
}

#[test]
fn the_line_for_alerts_says_which_process_where_and_why() {
    let line = short();
    let words: Vec<&str> = line.split('\t').collect();
    let [verdict, code, pid, _host, places @ .., sentence] = words.as_slice() else { panic!("{line}") };
    assert_eq!((*verdict, *code), ("deadlock", "lock-order-cycle"), "{line}");
    assert!(pid.parse::<u32>().is_ok(), "{line}");
    let is_place = |place: &&str| {
        place.rsplit_once(':').is_some_and(|(file, line)| !file.is_empty() && line.parse::<u32>().is_ok())
    };
    assert!(places.len() == 2 && places.iter().all(is_place), "{line}");
    assert!(sentence.contains("are taken in different orders"), "{line}");
}

/// Python's own words for the groups of the first match.
const MATCH: &str = "import json, re, sys
tasks = json.load(open(sys.argv[1]))
matcher = tasks['problemMatcher'][0] if 'problemMatcher' in tasks else tasks['tasks'][0]['problemMatcher']
pattern = matcher['pattern'][0] if isinstance(matcher['pattern'], list) else matcher['pattern']
found = re.search(pattern['regexp'], sys.argv[2])
print(json.dumps({name: found.group(pattern[name]) for name in ('code', 'file', 'line', 'message')}))
";

#[test]
fn problem_matchers_read_the_line_for_alerts() {
    let line = short();
    for name in ["problem-matcher.json", "vscode-tasks.json"] {
        let python = Command::new("python3").args(["-c", MATCH]).arg(recipe(name)).arg(&line).output();
        let Ok(output) = python else { return skipped!("no python3") };
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!(found["code"], "lock-order-cycle", "{name}");
        let (file, number) = (found["file"].as_str().expect("a file"), found["line"].as_str().expect("a line"));
        assert!(line.contains(&format!("\t{file}:{number}\t")), "{name}: {found}");
        assert!(found["message"].as_str().is_some_and(|message| line.ends_with(message)), "{name}: {found}");
    }
}

#[test]
fn core_pattern_leaves_a_report_of_each_crash() {
    let own = own_program();
    let folder = tempfile::tempdir().expect("a folder");
    // The process is still there while its core is read: this one's root is as good as another's.
    let pid = std::process::id().to_string();
    let mut script = Command::new("sh");
    script.arg(recipe("core-pattern.sh")).arg(&pid).env("LOCKSCOPE", own).env("LOCKSCOPE_CRASHES", folder.path());
    let output = script.env_remove("TMPDIR").stdin(File::open(core()).expect("readable")).output().expect("sh runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = std::fs::read_to_string(folder.path().join(format!("{pid}.txt"))).expect("written");
    assert!(report.starts_with("deadlock: "), "{report}");
    assert!(folder.path().join(format!("{pid}.json")).exists());
}

#[test]
fn a_core_that_systemd_has_kept_is_piped() {
    let own = own_program();
    let folder = tempfile::tempdir().expect("a folder");
    // A stub of coredumpctl: it writes the dump of a process to standard output.
    let stub = folder.path().join("coredumpctl");
    let program = format!("#!/bin/sh\n[ \"$*\" = '--quiet dump 442' ] && exec cat {}\n", core().display());
    std::fs::write(&stub, program).expect("written");
    let programs = Path::new(own).parent().expect("a folder").display().to_string();
    let mut script = Command::new("sh");
    script
        .arg(recipe("coredumpctl.sh"))
        .args(["442", "--format", "short"])
        .env("COREDUMPCTL", format!("sh {}", stub.display()));
    script.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap_or_default()));
    let output = script.output().expect("sh runs");
    assert!(text(&output.stdout).starts_with("deadlock\tlock-order-cycle\t"), "{output:?}");
}

#[test]
fn the_liveness_probe_fails_for_a_hang_alone() {
    let own = own_program();
    let text = std::fs::read_to_string(recipe("kubernetes-liveness.yml")).expect("readable");
    let line = text.lines().find(|line| line.contains("lockscope attach")).expect("the command");
    let command = line.split('\'').nth(1).expect("in quotes");
    let probe = |pid: i32| {
        let command = command.replace("lockscope attach --quiet 1;", &format!("{own} attach --quiet {pid};"));
        let status = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status().expect("sh runs");
        status.success()
    };
    let Some(python) = pythons().into_values().find(|python| python.root().is_none()) else { return };
    let start = |case: &str| Target::start(python.command().arg(testdata("python/servers.py")).arg(case));
    let (hung, idle) = (start("workers").settle(6), start("idle"));
    assert!((0..20).any(|_| !probe(hung.pid())), "a hang passed the probe");
    assert!(probe(idle.pid()), "an idle server did not pass");
    assert!(probe(2_000_000_000), "a look that is not possible is no hang");
}

#[test]
fn units_of_systemd_are_valid() {
    let own = own_program();
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["lockscope-watch@.service", "lockscope-look@.service", "lockscope-look@.timer"] {
        let unit = std::fs::read_to_string(recipe(name)).expect("readable").replace("/usr/local/bin/lockscope", own);
        // The command line of each is one that the program takes.
        if let Some(line) = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")) {
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            let output = lockscope().args(&words).arg("--help").output().expect("it runs");
            assert!(output.status.success(), "{name}: {output:?}");
        }
        std::fs::write(folder.path().join(name), unit).expect("written");
    }
    let verify = |name: &str| {
        let unit = folder.path().join(name.replace('@', "@nginx"));
        std::fs::copy(folder.path().join(name), &unit).expect("copied");
        Command::new("systemd-analyze").arg("verify").arg(unit).output()
    };
    for name in ["lockscope-watch@.service", "lockscope-look@.service"] {
        let Ok(output) = verify(name) else { return skipped!("no systemd-analyze") };
        let said = text(&output.stderr);
        let own: Vec<&str> = said.lines().filter(|line| line.contains("lockscope")).collect();
        assert!(own.is_empty(), "{name}: {said}");
    }
}

#[test]
fn a_unit_is_found_by_its_control_group() {
    let groups = Path::new("/sys/fs/cgroup");
    if !is_root() || !groups.join("cgroup.procs").exists() {
        return skipped!("no control groups that this user may make");
    }
    let unit = format!("lockscope-test-{}.service", std::process::id());
    let group = groups.join(&unit);
    if let Err(error) = std::fs::create_dir(&group) {
        return skipped!("no control group can be made: {error}");
    }
    let python = pythons().into_values().find(|python| python.root().is_none()).expect("a Python of this machine");
    let target = Target::start(python.command().arg(testdata("python/servers.py")).arg("workers")).settle(6);
    let joined = target.pids.iter().all(|pid| std::fs::write(group.join("cgroup.procs"), pid.to_string()).is_ok());
    let name = unit.trim_end_matches(".service");
    let output = lockscope()
        .args(["watch", "--json", "--stuck-after", "2s", "--timeout", "40s", "--unit", name])
        .output()
        .expect("it runs");
    let pid = target.pid();
    drop(target);
    // It is empty as soon as the last process is gone.
    for _ in 0..100 {
        if std::fs::remove_dir(&group).is_ok() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    assert!(joined, "processes join the group");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let events: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(events.len() == 1 && events[0]["pid"] == pid && events[0]["name"] == name, "{events:?}");
}
