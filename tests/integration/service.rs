//! `lockscope watch --service`: by name, through restarts, one event a hang, commands, metrics; an idle server is no event.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::harness::{Target, lockscope, signal_process, status_field, testdata, wait_until};
use crate::python::pythons;

/// A watch that runs; ended by SIGTERM, or with this.
struct Service {
    child: Option<Child>,
    events: BufReader<ChildStdout>,
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Processes that end with this.
struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Service {
    fn start(words: &[&str]) -> Service {
        let mut watch = lockscope();
        watch.arg("watch").args(words).env_remove("LOCKSCOPE").stdin(Stdio::null());
        let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let events = BufReader::new(child.stdout.take().expect("piped"));
        // From then on SIGTERM ends it as it is to.
        let pid = i32::try_from(child.id()).expect("an id");
        let blocked = || u64::from_str_radix(&status_field(pid, pid, "SigBlk").unwrap_or_default(), 16).unwrap_or(0);
        wait_until("it takes signals", || blocked() >> 14 & 1 == 1 || status_field(pid, pid, "State").is_none());
        Service { child: Some(child), events }
    }

    fn event(&mut self) -> Value {
        let mut line = String::new();
        self.events.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// End it; its exit status, the rest of its lines, and what it said.
    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        signal_process(i32::try_from(self.child.as_ref().expect("it runs").id()).expect("an id"), "TERM");
        self.wait()
    }

    /// Wait for its end; the same.
    fn wait(&mut self) -> (Option<i32>, Vec<String>, String) {
        let rest = self.events.by_ref().lines().map(|line| line.expect("a line")).collect();
        let output = self.child.take().expect("it runs").wait_with_output().expect("ends");
        (output.status.code(), rest, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A copy of a script under a name of its own, in a folder.
fn script(folder: &Path, name: &str) -> std::path::PathBuf {
    let copy = folder.join(name);
    std::fs::copy(testdata("python/servers.py"), &copy).expect("copied");
    copy
}

fn start(script: &Path, case: &str) -> Option<Target> {
    let python = pythons().into_values().find(|python| python.root().is_none())?;
    Some(Target::start(python.command().arg(script).arg(case)))
}

fn number(file: &Path, sample: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(sample))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn each_hang_is_one_event_through_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("hangs-{}.py", std::process::id());
    let script = script(folder.path(), &name);
    let (metrics, told) = (folder.path().join("lockscope.prom"), folder.path().join("told"));
    let reports = folder.path().join("reports");
    let exec = format!(
        "printf '%s %s %s\\n' \"$LOCKSCOPE_EVENT\" \"$LOCKSCOPE_NAME\" \"$LOCKSCOPE_CODE\" >> {}; cat >> {0}",
        told.display()
    );
    let mut service = Service::start(&[
        "--service",
        "--json",
        "--exec",
        &exec,
        "--metrics-file",
        &metrics.display().to_string(),
        "--report-dir",
        &reports.display().to_string(),
        &name,
    ]);
    for round in 1..=2 {
        let Some(target) = start(&script, "workers") else { return };
        let target = target.settle(6);
        let event = service.event();
        assert_eq!((&event["event"], &event["code"]), (&"hang".into(), &"lock-order-cycle".into()), "{event}");
        assert_eq!((&event["pid"], &event["name"]), (&target.pid().into(), &name.as_str().into()), "{event}");
        assert!(event["places"][0].as_str().is_some_and(|place| place.contains(&name)), "{event}");
        let report = event["report"].as_str().expect("a report");
        assert!(std::fs::read_to_string(report).expect("readable").starts_with("deadlock: "));
        let counted =
            || number(&metrics, &format!("lockscope_hangs_total{{name=\"{name}\",code=\"lock-order-cycle\"}}"));
        wait_until("it is counted", || counted() == Some(f64::from(round)));
        let hung = || number(&metrics, &format!("lockscope_hung_processes{{name=\"{name}\"}}"));
        wait_until("it is said to hang", || hung() == Some(1.0));
        drop(target);
        wait_until("its end is seen", || number(&metrics, "lockscope_hung_processes") == Some(0.0));
    }
    let (code, rest, said) = service.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(rest.is_empty(), "{rest:?}");
    let told = std::fs::read_to_string(told).expect("the command ran");
    assert_eq!(told.matches(&format!("hang {name} lock-order-cycle\n")).count(), 2, "{told}");
    assert!(told.contains("\"event\":\"hang\""), "{told}");
    assert!(std::fs::read_to_string(&metrics).expect("readable").ends_with("# EOF\n"));
}

#[test]
fn an_idle_server_is_no_event() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), &format!("idle-{}.py", std::process::id()));
    let Some(target) = start(&script, "idle") else { return };
    // One that it stands still beside shows that looks were taken.
    let Some(hung) = start(&script, "workers") else { return };
    let hung = hung.settle(6);
    let pids = [target.pid().to_string(), hung.pid().to_string()];
    // A loaded machine needs longer; something that hangs at the end of the time is the exit status.
    let seen = ["5s", "20s", "80s", "240s"].into_iter().any(|timeout| {
        let mut service = Service::start(&["--json", "--hang-after", "1s", "--timeout", timeout, &pids[0], &pids[1]]);
        let (code, events, said) = service.wait();
        assert_eq!(code, Some(i32::from(!events.is_empty())), "{said}");
        let of_hung = |event: &str| serde_json::from_str::<Value>(event).is_ok_and(|event| event["pid"] == hung.pid());
        assert!(events.len() <= 1 && events.iter().all(|event| of_hung(event)), "{events:?}");
        !events.is_empty()
    });
    assert!(seen, "a deadlock was not seen in four minutes");
    // The example of `watch --help`, as it ends with the first hang.
    let mut alone = lockscope();
    alone.args(["watch", "--hang-after", "1s", &pids[0]]).stdin(Stdio::null()).stderr(Stdio::null());
    let mut alone = alone.spawn().expect("it starts");
    let mut service = Service::start(&["--json", "--hang-after", "1s", &pids[1]]);
    service.event();
    assert!(alone.try_wait().expect("asked").is_none(), "an idle server was taken for a hang");
    let _ = alone.kill().and_then(|()| alone.wait());
    service.end();
}

#[test]
fn events_beyond_the_most_of_an_hour_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("many-{}.py", std::process::id());
    let script = script(folder.path(), &name);
    let metrics = folder.path().join("lockscope.prom");
    let all: Vec<Target> = (0..3).filter_map(|_| start(&script, "workers")).map(|target| target.settle(6)).collect();
    if all.is_empty() {
        return;
    }
    let mut service =
        Service::start(&["--json", "--most-events", "1", "--metrics-file", &metrics.display().to_string(), &name]);
    service.event();
    wait_until("the others are counted", || number(&metrics, "lockscope_events_held_back_total") == Some(2.0));
    let (code, rest, said) = service.end();
    assert_eq!((code, rest.len()), (Some(0), 0), "{said}");
    assert!(said.contains("1 events in an hour"), "{said}");
}

#[test]
fn fifty_processes_are_watched_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("sleepy-{}", std::process::id());
    // A name of its own, so that nothing else is watched.
    let program = folder.path().join(&name);
    std::fs::copy("/bin/sleep", &program).expect("copied");
    let start = |_| Command::new(&program).arg("600").spawn().expect("it starts");
    let _sleepers = Sleepers((0..50).map(start).collect());
    let metrics = folder.path().join("lockscope.prom");
    let service = Service::start(&["--metrics-file", &metrics.display().to_string(), &name]);
    wait_until("all are watched", || number(&metrics, "lockscope_watched_processes") == Some(50.0));
    wait_until("looks are taken", || number(&metrics, "lockscope_looks_total").is_some_and(|looks| looks >= 10.0));
    let (code, _, said) = service.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_is_not_there_yet_is_waited_for_and_what_was_named_by_its_id_is_not() {
    let service = Service::start(&["--service", "no-such-program-of-lockscope"]);
    let (code, _, said) = service.end();
    assert_eq!(code, Some(0), "{said}");
    let output = lockscope().args(["watch", "--service", "2000000000"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
