//! What reading the waits of a process costs, by thread: `cargo bench --bench waits -- [THREADS]` (5,000).
//!
//! Starts testdata/native/many_threads.c, looks at it, and prints the time of each stage after the capture. The waits
//! are to cost at most 20 microseconds a thread beyond unwinding. It judges nothing: machines differ.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockscope::image::live::{LiveTarget, Options};
use lockscope::modules::Modules;
use lockscope::symbols::{Symbols, Tables};
use lockscope::{threads, unwind, waits};

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
    let options = Options { pids: vec![pid], max_pause: Some(Duration::from_secs(5)), ..Options::default() };
    let mut target = LiveTarget::open(options).expect("it can be looked at");
    let image = target.look().expect("a look");
    let process = &image.processes[0];
    let threads = process.threads.len();
    let say = |what: &str, time: Duration| {
        println!(
            "{what:<22} {:>9.1} ms {:>8.1} us a thread",
            time.as_secs_f64() * 1e3,
            time.as_secs_f64() * 1e6 / threads as f64
        );
    };
    println!("{threads} threads, stopped for {:.1} ms", image.pause_us as f64 / 1e3);
    let at = Instant::now();
    let modules = Modules::of(process);
    let tables = Tables::of(&modules);
    let symbols = Symbols::new(&modules, &tables, process);
    say("modules", at.elapsed());
    let at = Instant::now();
    let stacks = unwind::stacks(process, &modules);
    say("unwinding", at.elapsed());
    let at = Instant::now();
    let merged = threads::merge(process, &symbols, stacks, None);
    say("names", at.elapsed());
    let context = waits::Context {
        process: 0,
        image: process,
        all: &image,
        symbols: &symbols,
        threads: &merged,
        python: None,
        gpu: None,
    };
    let at = Instant::now();
    let seen = waits::observe(&[context]);
    say("waits, first reading", at.elapsed());
    let at = Instant::now();
    let again = waits::observe(&[context]);
    say("waits, once more", at.elapsed());
    assert_eq!(seen.waits.len(), again.waits.len());
    println!("{} waits, {} resources, {} holds", seen.waits.len(), seen.resources.len(), seen.holds.len());
}
