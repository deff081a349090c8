//! `run --provoke`: predicted deadlocks happen, and those that cannot do not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{compile, lockscope, testdata};
use crate::python::Python;
use crate::python_locks::pythons;

/// A run of lockscope: its status, and what it said.
struct Run {
    status: i32,
    said: String,
    report: Value,
}

impl Run {
    /// Whether it said this, however its lines are wrapped.
    fn says(&self, words: &str) -> bool {
        self.said.split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
    }

    /// The report of a hang that was made to happen.
    fn has_happened(&self, case: &str, finding: &str) {
        assert_eq!(self.status, 124, "{case}: {}", self.said);
        assert!(self.says("made to happen: predicted by"), "{case}: {}", self.said);
        assert_eq!(self.report["verdict"], "deadlock", "{case}: {}", self.said);
        assert_eq!(self.report["findings"][0]["code"], finding, "{case}: {}", self.said);
        let by = self.report["made_to_happen"].as_str().expect("who predicted it");
        assert!(by.starts_with("predicted by"), "{by}");
    }
}

fn words(words: &[&Path]) -> Vec<PathBuf> {
    words.iter().map(|word| word.to_path_buf()).collect()
}

fn run(options: &[&str], command: &[PathBuf]) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = lockscope();
    run.env_remove("GITHUB_ACTIONS").arg("run").args(options).arg("--report-dir").arg(folder.path()).arg("--");
    let Output { status, stdout, stderr } = run.args(command).output().expect("lockscope runs");
    let files = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_hang = |path: &PathBuf| path.display().to_string().contains("/hang-");
    let json = files.filter(is_hang).find(|path| path.extension().is_some_and(|ending| ending == "json"));
    let report =
        json.map_or(Value::Null, |path| serde_json::from_slice(&std::fs::read(path).expect("a report")).expect("JSON"));
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    Run { status: status.code().expect("a status"), said, report }
}

/// The snapshot of a hang that was made to happen, in a folder.
fn snapshot(command: &[PathBuf]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = lockscope();
    run.env_remove("GITHUB_ACTIONS").args(["run", "--provoke", "--report-dir"]).arg(folder.path()).arg("--");
    let output = run.args(command).output().expect("lockscope runs");
    let mut files = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let snapshot = files.find(|path| path.extension().is_some_and(|ending| ending == "zst"));
    let snapshot = snapshot.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (folder, snapshot)
}

/// The orders of a snapshot, in a file beside it.
fn reproducer(snapshot: &Path) -> PathBuf {
    let orders = snapshot.with_file_name("hang.orders");
    let mut core = lockscope();
    core.arg("core").arg(snapshot).args(["-q", "--reproducer"]).arg(&orders);
    assert_eq!(core.status().expect("lockscope runs").code(), Some(1));
    orders
}

/// Predictions of a run in which nothing hung, in a folder.
fn recorded(command: &[PathBuf]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = lockscope();
    run.env_remove("GITHUB_ACTIONS").args(["run", "--record", "--report-dir"]).arg(folder.path()).arg("--");
    let output = run.args(command).output().expect("lockscope runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn native() -> PathBuf {
    compile("native/provoked.c", "provoked", &["-g", "-O1"])
}

fn native_case(case: &str) -> Vec<PathBuf> {
    words(&[&native(), Path::new(case)])
}

/// The command of a case of testdata/python/provoked.py.
fn python_case(python: &Python, case: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
    let (folder, command) = python.in_a_folder();
    let mut line = vec![PathBuf::from(command.get_program())];
    line.extend(command.get_args().map(PathBuf::from));
    line.extend([testdata("python/provoked.py"), PathBuf::from(case)]);
    (folder, line)
}

/// Pythons whose frames the recorder knows.
fn known_pythons() -> Vec<(String, Python)> {
    let is_known = |(version, python): &(String, Python)| {
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).expect("a version");
        !version.ends_with('t') && (8..=14).contains(&minor) && python.root().is_none()
    };
    pythons().into_iter().filter(is_known).collect()
}

/// The newest of them.
fn newest_python() -> (String, Python) {
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    known_pythons().into_iter().max_by_key(|(version, _)| minor(version)).expect("a Python")
}

#[test]
fn orders_of_native_locks_are_made_to_hang() {
    for case in ["differ", "three", "written", "transfers"] {
        run(&["--provoke"], &native_case(case)).has_happened(case, "lock-order-cycle");
    }
    // Spinlocks record no owner, and their waiters use a processor: that all partners met makes the proof.
    let spun = run(&["--provoke", "--timeout", "60s"], &native_case("spun"));
    assert_eq!(spun.status, 124, "{}", spun.said);
    assert!(spun.says("made to happen: predicted by the run before"), "{}", spun.said);
    assert!(!spun.says("given by --timeout"), "{}", spun.said);
}

/// The command of a shape of testdata/provoke-bank/shapes.c.
fn native_shape(shape: &[&str]) -> Vec<PathBuf> {
    let program = compile("provoke-bank/shapes.c", "shapes", &["-g", "-O1"]);
    std::iter::once(program).chain(shape.iter().map(PathBuf::from)).collect()
}

#[test]
fn a_thread_that_is_joined_under_the_lock_that_it_takes_is_made_to_hang() {
    let joined = run(&["--provoke"], &native_shape(&["join", "mutex"]));
    assert_eq!(joined.status, 124, "{}", joined.said);
    assert!(joined.says("a thread is joined under mutex"), "{}", joined.said);
    assert!(joined.says("made to happen: predicted by the run before"), "{}", joined.said);
    let before = run(&["--provoke"], &native_shape(&["join", "mutex", "before"]));
    assert_eq!(before.status, 0, "{}", before.said);
    assert!(before.says("there is nothing to make happen"), "{}", before.said);
}

#[test]
fn a_wake_up_that_comes_before_its_wait_is_lost() {
    let lost = run(&["--provoke"], &native_shape(&["wake-up", "mutex"]));
    assert_eq!(lost.status, 124, "{}", lost.said);
    assert!(lost.says("made to happen: predicted by the run before"), "{}", lost.said);
    // A wait that is guarded by what it waits for needs none.
    let guarded = run(&["--provoke"], &native_shape(&["wake-up", "mutex", "flag"]));
    assert_eq!(guarded.status, 0, "{}", guarded.said);
}

#[test]
fn locks_that_destructors_of_threads_take_are_made_to_hang() {
    run(&["--provoke"], &native_shape(&["destructor", "mutex"])).has_happened("destructor", "lock-order-cycle");
}

#[test]
fn what_could_not_hang_is_run_once() {
    for case in ["gated", "joined", "one-thread", "tried", "read", "fixed"] {
        let run = run(&["--provoke"], &native_case(case));
        assert_eq!(run.status, 0, "{case}: {}", run.said);
        assert!(run.says("there is nothing to make happen"), "{case}: {}", run.said);
        assert_eq!(run.said.matches("cannot hang").count(), 1, "{case}: {}", run.said);
    }
}

#[test]
fn what_cannot_happen_never_does_and_the_reason_is_told() {
    let differ = recorded(&native_case("differ"));
    let orders = format!("--provoke={}", differ.path().join("orders").display());
    for (case, reason) in [
        ("gated", "a third lock lay around both: mutex `gate`"),
        ("joined", "one thread had ended, or not begun, when the other came there"),
        ("one-thread", "one thread does both"),
        ("tried", "never reached: mutex `ledger` at provoked.c"),
        ("fixed", "never reached: mutex `ledger` at provoked.c"),
    ] {
        let run = run(&[&orders], &native_case(case));
        assert_eq!(run.status, 0, "{case}: {}", run.said);
        assert!(run.says(reason), "{case}: {}", run.said);
        assert!(run.says("passed with the first lock held"), "{case}: {}", run.said);
    }
    run(&[&orders], &native_case("differ")).has_happened("differ", "lock-order-cycle");
}

#[test]
fn orders_of_python_are_made_to_hang_on_each_version() {
    for (version, python) in known_pythons() {
        // Of frames that are objects one case is enough.
        let has_old_frames = ["3.8.", "3.9.", "3.10."].iter().any(|old| version.starts_with(old));
        let cases: &[&str] =
            if has_old_frames { &["differ"] } else { &["differ", "bare", "recursive", "logging", "gil"] };
        for case in cases {
            let (_folder, command) = python_case(&python, case);
            let finding = if *case == "gil" { "gil-vs-native-lock" } else { "lock-order-cycle" };
            run(&["--provoke"], &command).has_happened(&format!("{case} {version}"), finding);
        }
    }
}

#[test]
fn a_deadlock_with_cudas_driver_is_made_to_happen_on_the_stand_in() {
    let driver = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    let (version, python) = newest_python();
    let (_folder, mut command) = python_case(&python, "cuda");
    command.push(driver);
    run(&["--provoke"], &command).has_happened(&version, "gil-vs-driver-callback");
}

#[test]
fn what_cannot_happen_in_python_never_does() {
    let (version, python) = newest_python();
    let (_folder, command) = python_case(&python, "differ");
    let differ = recorded(&command);
    let orders = format!("--provoke={}", differ.path().join("orders").display());
    for case in ["gated", "joined", "one-thread", "tried", "timed", "fixed"] {
        let (_folder, command) = python_case(&python, case);
        let run = run(&[&orders], &command);
        assert_eq!(run.status, 0, "{case} {version}: {}", run.said);
        assert!(run.says("not made to happen"), "{case} {version}: {}", run.said);
    }
}

#[test]
fn predictions_that_are_none_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let provoke = |path: &Path| run(&[&format!("--provoke={}", path.display())], &[PathBuf::from("true")]);
    let missing = provoke(&folder.path().join("nowhere"));
    assert_eq!((missing.status, missing.says("cannot read")), (125, true), "{}", missing.said);
    let empty = provoke(folder.path());
    assert_eq!((empty.status, empty.says("there is no file of a recorder")), (125, true), "{}", empty.said);
    let other = folder.path().join("1-2.orders");
    std::fs::write(&other, "other").expect("a file");
    let other = provoke(&other);
    assert_eq!((other.status, other.says("it is no file of orders")), (125, true), "{}", other.said);
}

#[test]
fn a_hang_is_made_to_happen_again_from_its_snapshot() {
    let (_folder, snapshot) = snapshot(&native_case("differ"));
    let orders = reproducer(&snapshot);
    let provoke = format!("--provoke={}", orders.display());
    run(&[&provoke], &native_case("differ")).has_happened("differ", "lock-order-cycle");
    // After the fix the same line is a test that passes.
    let fixed = run(&[&provoke], &native_case("fixed"));
    assert_eq!(fixed.status, 0, "{}", fixed.said);
    assert!(fixed.says("never reached: mutex `ledger`"), "{}", fixed.said);
    assert!(fixed.says("nearest places that were reached: provoked.c:"), "{}", fixed.said);
    // A program that was built anew has its functions and lines elsewhere.
    let rebuilt = compile("native/provoked.c", "provoked-rebuilt", &["-g", "-O0", "-fno-inline", "-DREBUILT"]);
    let text = std::fs::read_to_string(&orders).expect("orders");
    assert!(text.contains("lockscope-orders 1") && text.contains("function: pay"), "{text}");
    let native = format!("module: {}", native().display());
    std::fs::write(&orders, text.replace(&native, &format!("module: {}", rebuilt.display()))).expect("written");
    run(&[&provoke], &words(&[&rebuilt, Path::new("differ")])).has_happened("rebuilt", "lock-order-cycle");
}

#[test]
fn hangs_of_python_are_made_to_happen_again_from_their_snapshots() {
    let (version, python) = newest_python();
    for (case, finding) in [("differ", "lock-order-cycle"), ("gil", "gil-vs-native-lock")] {
        let (_folder, command) = python_case(&python, case);
        let (_kept, snapshot) = snapshot(&command);
        let provoke = format!("--provoke={}", reproducer(&snapshot).display());
        run(&[&provoke], &command).has_happened(&format!("{case} {version}"), finding);
    }
}

#[test]
fn a_report_without_a_cycle_has_no_orders() {
    let folder = tempfile::tempdir().expect("a folder");
    let orders = folder.path().join("hang.orders");
    let mut sleeper = Command::new("sleep").arg("60").spawn().expect("it starts");
    let mut attach = lockscope();
    let output = attach.args(["attach", "-q", "--reproducer"]).arg(&orders).arg(sleeper.id().to_string()).output();
    let said = String::from_utf8_lossy(&output.expect("lockscope runs").stderr).into_owned();
    let _ = (sleeper.kill(), sleeper.wait());
    assert!(said.contains("was not written: the report has no cycle"), "{said}");
    assert!(!orders.exists());
}

#[test]
fn damaged_orders_are_told_with_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let orders = folder.path().join("hang.orders");
    let place = "first: mutex `a`\nmodule: /nowhere/app\noffset: 0x10\nsecond: mutex `b`\nmodule: /nowhere/app\n";
    let whole = format!("lockscope-orders 1\ndeadlock: a and b\nthread: x\n{place}thread: y\n{place}");
    for (text, reason) in [
        (String::new(), "it is no file of orders"),
        ("{}".to_owned(), "it is no file of orders"),
        (whole.replace("orders 1", "orders 9"), "its version is `9`"),
        (whole.replace("offset: 0x10", "offset: ten"), "line 6: `ten` is no offset such as 0x12ab"),
        (whole.replacen("second", "socond", 1), "line 7: there is no key `socond`"),
        (whole.replacen("thread: y", "", 1), "line 10: the thread has two of `first`"),
        ("x".repeat(2 << 20), "it is too large for a file of orders"),
    ] {
        std::fs::write(&orders, text).expect("written");
        let run = run(&[&format!("--provoke={}", orders.display())], &[PathBuf::from("true")]);
        assert_eq!(run.status, 125, "{reason}: {}", run.said);
        assert!(run.says(reason), "{reason}: {}", run.said);
    }
    // An unknown place is reported, and the command runs.
    std::fs::write(&orders, whole).expect("written");
    let unknown = run(&[&format!("--provoke={}", orders.display())], &native_case("fixed"));
    assert_eq!(unknown.status, 0, "{}", unknown.said);
    assert!(unknown.says("the place in `app` has neither an offset nor a function"), "{}", unknown.said);
    assert!(unknown.says("cannot hang"), "{}", unknown.said);
}
