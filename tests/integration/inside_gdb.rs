//! scripts/ship/gdb/lockscope.py in Debian's gdb, in batch mode: on a process that gdb has, and on a core that it has
//! opened.

use std::path::Path;
use std::process::Command;

use crate::harness::{Target, compile, own_program};

/// What gdb prints when these commands follow the script.
fn gdb(words: &[&str], commands: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/ship/gdb/lockscope.py");
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-iex", "set debuginfod enabled off"]).args(words);
    gdb.arg("-ex").arg(format!("source {}", script.display()));
    gdb.arg("-ex").arg(format!("set lockscope-program {}", own_program()));
    let output = gdb.args(commands.iter().flat_map(|command| ["-ex", command])).output().expect("gdb runs");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
}

#[test]
fn gdb_says_why_its_process_or_core_hangs() {
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let target = Target::start(Command::new(&program).arg("abba")).settle(3);
    let folder = tempfile::tempdir().expect("a folder");
    let core = folder.path().join("core").display().to_string();
    let page = folder.path().join("hang.html").display().to_string();
    let commands =
        ["lockscope", "lockscope frame 1", &format!("lockscope -o {page}"), &format!("gcore {core}"), "detach"];
    let live = gdb(&["-p", &target.pid().to_string()], &commands);
    let opened = gdb(&[&program.display().to_string(), &core], &commands[..2]);
    for text in [&live, &opened] {
        for words in ["deadlock: ", "`ledger_lock`", "lockscope frame 2: thread", "pthread_mutex_lock"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    assert!(std::fs::read_to_string(page).is_ok_and(|page| page.contains("<svg ")), "{live}");
}

#[test]
fn without_a_process_or_a_report_it_says_what_to_do() {
    let text = gdb(&[], &["lockscope"]);
    assert!(text.contains("`attach PID`"), "{text}");
    assert!(gdb(&[], &["lockscope frame"]).contains("there is no report yet"));
    let target = Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba"));
    let pid = target.pid().to_string();
    let text = gdb(&["-p", &pid], &["set lockscope-program /nonexistent", "lockscope"]);
    assert!(text.contains("set lockscope-program"), "{text}");
}

#[test]
fn names_of_the_program_move_no_cursor_of_gdbs() {
    let target = Target::start(&mut Command::new(compile("hostile/names.c", "names", &[]))).settle(1);
    let text = gdb(&["-p", &target.pid().to_string()], &["lockscope"]);
    let said: Vec<&str> = text.lines().skip_while(|line| !line.contains("self-deadlock")).collect();
    assert!(said.iter().any(|line| line.starts_with("lockscope frame 1: ")), "{text}");
    assert!(!said.iter().any(|line| line.contains(['\u{1b}', '\u{7}', '\u{202e}'])), "{text}");
}
