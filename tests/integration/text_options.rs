//! What text tells on request: one thread, every thread, stacks apart, and each step of decoding as gdb shows it too.

use std::process::Command;

use crate::harness::{Target, attach, compile, lockscope, threads};
use crate::python_locks::{pythons, start};

/// Standard output and exit status of one look.
fn text(pid: i32, words: &[&str]) -> (String, Option<i32>) {
    let output = lockscope().arg("attach").arg(pid.to_string()).args(words).output().expect("it runs");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (said, output.status.code())
}

#[test]
fn what_the_steps_say_is_what_gdb_shows() {
    let target = Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba")).settle(3);
    let look = attach(&[target.pid()], &[]);
    let waiter = look.json["cycles"][0]["edges"][0]["waiter"].to_string();
    // Of a thread that was left asleep the kernel keeps all registers but rax.
    let (said, code) = text(target.pid(), &["--thread", &waiter, "-v", "--stop"]);
    assert_eq!(code, Some(1), "{said}");
    for words in ["in futex(0x", "registers: rax=", "CFA 0x", "__owner = ", "native frames; the end: first function"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // "        in gdb: x/16xw 0x5581a8c0c0e0", and the lines of words before it.
    let lines: Vec<&str> = said.lines().collect();
    let at = lines.iter().position(|line| line.contains("in gdb: x/")).expect("memory is shown");
    let command = lines[at].split("in gdb: ").nth(1).expect("a command");
    let shown = lines[..at].iter().rev().take_while(|line| line.trim_start().starts_with("0x"));
    let mut shown: Vec<Vec<&str>> = shown.map(|line| line.split_whitespace().collect()).collect();
    shown.reverse();
    let gdb = Command::new("gdb")
        .args([
            "-q",
            "-nx",
            "-batch",
            "-iex",
            "set debuginfod enabled off",
            "-p",
            &target.pid().to_string(),
            "-ex",
            command,
        ])
        .output()
        .expect("gdb runs");
    let gdb = String::from_utf8_lossy(&gdb.stdout).into_owned();
    let words = gdb.lines().filter_map(|line| line.split_once(":\t")).map(|(_, words)| words);
    let words: Vec<&str> = words.flat_map(str::split_whitespace).collect();
    assert_eq!(shown.concat(), words, "{said}\n{gdb}");
    assert!(shown.concat().len() >= 10, "{said}");
}

#[test]
fn one_thread_all_threads_and_a_thread_that_is_not_there() {
    let target = Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba")).settle(3);
    let tids = threads(target.pid());
    let (all, _) = text(target.pid(), &["--all"]);
    assert_eq!(all.lines().filter(|line| line.starts_with("stack of ")).count(), tids.len(), "{all}");
    let (one, _) = text(target.pid(), &["--thread", &tids[0].to_string()]);
    assert_eq!(one.lines().filter(|line| line.starts_with("stack of ")).count(), 1, "{one}");
    // Process 1 has threads, but none here.
    let (none, code) = text(target.pid(), &["--thread", "1"]);
    assert_eq!(code, Some(2), "{none}");
    assert!(none.contains("there is no thread 1") && none.contains("--all"), "{none}");
}

#[test]
fn raw_stacks_are_those_before_merging_on_each_python() {
    for (version, python) in pythons() {
        let (_folder, target, _) = start(&python, "lock_order");
        let look = attach(&target.pids, &[]);
        let party = look.json["cycles"][0]["edges"][0]["waiter"].to_string();
        let (raw, _) = text(target.pid(), &["--thread", &party, "--raw"]);
        let (merged, _) = text(target.pid(), &["--thread", &party]);
        let stacks = raw.split_once("native stack of ").and_then(|(_, rest)| rest.split_once("Python stack of "));
        let (native, python) = stacks.unwrap_or_else(|| panic!("{version}: {raw}"));
        assert!(!native.contains(".py:") && merged.contains(".py:"), "{version}: {raw}\n{merged}");
        assert!(python.contains("hangs.py:"), "{version}: {raw}");
        // Merging puts Python frames in the place of native ones, so that there are more of these before.
        let frames =
            |text: &str| text.lines().filter(|line| line.trim_start_matches(['>', ' ']).starts_with('#')).count();
        let of_python = merged.lines().filter(|line| line.contains(".py:") && line.contains('#')).count();
        assert!(frames(native) > frames(&merged) - of_python, "{version}: {raw}\n{merged}");
        assert_eq!(frames(python), of_python, "{version}: {raw}\n{merged}");
    }
}

#[test]
fn threads_that_do_the_same_are_one_line() {
    let program = "import queue, threading\n\
                   q = queue.Queue()\n\
                   for i in range(37): threading.Thread(target=q.get, name=f'pool_{i}').start()\n\
                   import os; print(f'READY pids={os.getpid()}', flush=True); q.join(); threading.Event().wait()";
    let target = Target::start(Command::new("python3").args(["-c", program])).settle(38);
    let (said, _) = text(target.pid(), &[]);
    let line = said.lines().find(|line| line.starts_with("  37 threads")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("  wait for Queue") && line.contains("Queue.get"), "{said}");
    assert!(said.contains("and 33 more"), "{said}");
}
