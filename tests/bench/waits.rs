//! What reading the waits of a process costs, by thread: `cargo bench --bench waits -- [THREADS]` (5,000).
//!
//! Starts testdata/native/many_threads.c, looks at it, and prints the time of each stage after the capture. The waits
//! are to cost at most 20 microseconds a thread beyond unwinding. It judges nothing: machines differ.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    let count = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(5000);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::temp_dir().join(format!("many-threads-{}", std::process::id()));
    let source = root.join("testdata/native/many_threads.c");
    let compiled = Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.expect("cc runs").success());
    let mut child =
        Command::new(&program).arg(count.to_string()).stdout(Stdio::piped()).spawn().expect("the target starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("READY");
    assert!(line.contains("READY"), "it could not start its threads");
    let pid = i32::try_from(child.id()).expect("a pid");
    while asleep(pid) < count {
        std::thread::yield_now();
    }
    measure(pid);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    std::fs::remove_file(program).expect("removed");
}

/// Threads that sleep in a futex (call 202).
fn asleep(pid: i32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let calls = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok());
    calls.filter(|call| call.starts_with("202 ")).count()
}

fn measure(pid: i32) {
    let measured = lockscope::internals::stages::measure(pid).expect("it can be looked at");
    println!("{} threads, stopped for {:.1} ms", measured.threads, measured.pause_us as f64 / 1e3);
    for (stage, time) in measured.stages {
        println!(
            "{stage:<22} {:>9.1} ms {:>8.1} us a thread",
            time.as_secs_f64() * 1e3,
            time.as_secs_f64() * 1e6 / measured.threads as f64
        );
    }
    let [waits, resources, holds] = measured.found.expect("the second reading gives as many waits");
    println!("{waits} waits, {resources} resources, {holds} holds");
}
