//! Every wait of testdata/native/waits.c and waits.cpp on every C library that is at hand: the kind, the address and
//! the recorded owner; no owner where none is recorded.
//!
//! Beside this machine's own, these are musl (by `musl-gcc`) and the root file systems of LOCKSCOPE_LIBCS and
//! LOCKSCOPE_ROOTS, separated by colons; one of them must have a compiler, and its glibc be the oldest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, testdata};

/// What a program says of one of its threads.
struct Row {
    tid: i64,
    kind: String,
    address: Option<u64>,
    owner: i64,
    what: String,
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.strip_prefix("WAIT ")?.splitn(5, ' ');
    let tid = words.next()?.parse().ok()?;
    let kind = words.next()?.to_string();
    let address = words.next()?.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).expect("an address"));
    let owner = words.next()?.parse().ok()?;
    Some(Row { tid, kind, address, owner, what: words.next()?.trim().to_string() })
}

/// What is wrong with what was reported of a row.
fn difference(row: &Row, look: &Look, checks_address: bool) -> Option<String> {
    let list = |name: &str| look.json[name].as_array().expect("a list").clone();
    let waits: Vec<Value> = list("waits").into_iter().filter(|wait| wait["tid"] == row.tid).collect();
    let [wait] = waits.as_slice() else { return Some(format!("{} waits", waits.len())) };
    let resource = list("resources").into_iter().find(|one| one["id"] == wait["resource"]).expect("a resource");
    if resource["kind"] != row.kind.as_str() {
        return Some(format!("kind {}", resource["kind"]));
    }
    let digits = resource["address"].as_str().and_then(|address| address.strip_prefix("0x"));
    let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let address = address.or_else(|| resource["state"]["address"].as_u64());
    if checks_address && row.address.is_some() && address != row.address {
        return Some(format!("address {address:x?}, not {:x?}", row.address));
    }
    let holds = list("holds").into_iter().filter(|hold| hold["resource"] == wait["resource"]);
    let exact: Vec<(Value, Value)> = holds
        .filter(|hold| hold["certainty"] == "exact")
        .map(|hold| (hold["tid"].clone(), hold["gone"].clone()))
        .collect();
    let wanted = match row.owner {
        0 => Vec::new(),
        exited if exited < 0 => vec![(Value::from(-exited), Value::from("exited"))],
        tid => vec![(Value::from(tid), Value::Null)],
    };
    if exact != wanted {
        return Some(format!("owners {exact:?}, not {wanted:?}"));
    }
    let timed = row.what.ends_with("timed") || row.what.ends_with("with a clock");
    (wait["timed"] != timed).then(|| format!("timed: {}", wait["timed"]))
}

/// Run a program and compare; how many rows there were.
fn compare(library: &str, command: &mut Command, checks_address: bool) -> usize {
    let target = Target::start(command);
    let rows: Vec<Row> = target.said.iter().filter_map(|line| row(line)).collect();
    let look = attach(&target.pids, &[]);
    for row in &rows {
        if let Some(difference) = difference(row, &look, checks_address) {
            panic!("{library}: {command:?}: {}: {difference}\n{}", row.what, look.text);
        }
    }
    rows.len()
}

/// A C library: its root file system, or this machine's own.
struct Library {
    name: String,
    root: Option<PathBuf>,
}

impl Library {
    /// A program of a folder of ours, run on this library.
    fn command(&self, program: &Path, words: &[&str]) -> Command {
        match &self.root {
            None => {
                let mut command = Command::new(program);
                command.args(words);
                command
            }
            Some(root) => {
                let inside = self.copy(program);
                let mut command = Command::new("bash");
                // Without a /proc of its own, it reads that of this machine.
                let script = "exec 9</proc; root=$1; shift; exec chroot \"$root\" \"$@\"";
                command.args(["-c", script, "bash"]).arg(root).arg(inside).args(words);
                command
            }
        }
    }

    /// Where the library sees a file of ours.
    fn copy(&self, file: &Path) -> PathBuf {
        let name = Path::new("/tmp").join(file.file_name().expect("a name"));
        match &self.root {
            None => file.to_path_buf(),
            Some(root) => {
                let copy = root.join(name.strip_prefix("/").expect("/"));
                let fresh = copy.with_extension(std::process::id().to_string());
                std::fs::copy(file, &fresh).expect("copied");
                std::fs::rename(&fresh, &copy).expect("renamed");
                name
            }
        }
    }
}

pub(crate) fn roots() -> Vec<PathBuf> {
    let lists = ["LOCKSCOPE_LIBCS", "LOCKSCOPE_ROOTS"].map(|name| std::env::var(name).unwrap_or_default());
    let folders = lists.iter().flat_map(|list| list.split(':')).filter(|folder| !folder.is_empty());
    folders.map(PathBuf::from).collect()
}

/// Compile waits.c in a root file system, with the oldest glibc: the program runs on all later ones.
fn compiled_in(root: &Path, name: &str, flags: &[&str]) -> PathBuf {
    for file in ["waits.c", "waiting.h"] {
        std::fs::copy(testdata("native").join(file), root.join("tmp").join(file)).expect("copied");
    }
    let mut cc = Command::new("chroot");
    cc.arg(root).args(["cc", "-pthread", "-o"]).arg(Path::new("/tmp").join(name)).arg("/tmp/waits.c").args(flags);
    assert!(cc.arg("-ldl").status().expect("chroot runs").success(), "{cc:?}");
    root.join("tmp").join(name)
}

/// Groups of waits.c, and how many rows each has at least on any glibc.
const GROUPS: [(&str, usize); 8] = [
    ("locks", 120),
    ("spinlock", 1),
    ("loader", 3),
    ("exit", 0),
    ("arena", 1),
    ("arena-in-handler", 1),
    ("fork", 0),
    ("locale", 1),
];

#[test]
fn every_wait_of_every_glibc() {
    let parks = compile("native/parks_when_loaded.c", "parks_when_loaded.so", &["-shared", "-fPIC"]);
    let own = compile("native/waits.c", "waits", &["-ldl"]);
    let stripped = compile("native/waits.c", "waits-stripped", &["-O2", "-s", "-ldl"]);
    let mut cases = vec![(Library { name: "this machine's".into(), root: None }, vec![own, stripped])];
    let roots = roots();
    match roots.iter().find(|root| root.join("usr/bin/cc").exists()) {
        Some(oldest) => {
            let programs =
                [compiled_in(oldest, "waits-old", &["-g", "-O1"]), compiled_in(oldest, "waits-old-s", &["-O2", "-s"])];
            for root in &roots {
                let name = std::fs::read_to_string(root.join("complete")).unwrap_or_default().trim().replace('\t', " ");
                println!("{}: {name}", root.display());
                cases.push((Library { name, root: Some(root.clone()) }, programs.to_vec()));
            }
        }
        None => crate::harness::skipped!("no root file system with a compiler; see scripts/check/other-libcs"),
    }
    for (library, programs) in &cases {
        for program in programs {
            let parks = library.copy(&parks);
            for (group, least) in GROUPS {
                let mut command = library.command(program, &[group, &parks.display().to_string()]);
                let rows = compare(&library.name, &mut command, true);
                assert!(rows >= least, "{}: only {rows} rows of {group}", library.name);
            }
        }
    }
}

#[test]
fn every_wait_of_musl() {
    let there = Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return crate::harness::skipped!("no musl-gcc");
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("waits-musl-{}", std::process::id()));
    let mut cc = Command::new("musl-gcc");
    cc.args(["-g", "-O1", "-pthread", "-o"]).arg(&program).arg(testdata("native/waits.c"));
    assert!(cc.status().expect("runs").success());
    // A barrier of musl is known by the node that its round has on a stack, not by its own address.
    let library = Library { name: "musl".into(), root: None };
    assert!(compare("musl", &mut library.command(&program, &["locks"]), false) >= 80);
    assert_eq!(compare("musl", &mut library.command(&program, &["spinlock"]), true), 1);
    std::fs::remove_file(program).expect("removed");
}

#[test]
fn every_wait_of_the_cpp_library() {
    let program = compile("native/waits.cpp", "waits-cpp", &["-std=c++20", "-lstdc++"]);
    let own = Library { name: "this machine's".into(), root: None };
    assert_eq!(compare(&own.name, &mut own.command(&program, &[]), true), 17);
    // What is compiled here runs on a C library as new as this machine's only.
    for root in roots().into_iter().filter(|root| !root.join("usr/bin/cc").exists()) {
        let library = Library { name: root.display().to_string(), root: Some(root) };
        assert_eq!(compare(&library.name, &mut library.command(&program, &[]), true), 17);
    }
}
