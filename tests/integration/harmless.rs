//! A look leaves no trace: no call ends early, no thread stays stopped, whatever happens to lockscope.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Target, as_from_a_terminal, attach, compile, lockscope, own_program, signal_process, skipped, status_field,
    testdata, threads, wait_until,
};

fn start() -> Target {
    let target = Target::start(&mut Command::new(compile("native/harmless.c", "harmless", &[])));
    let pid = target.pid();
    // epoll_wait, rt_sigtimedwait (twice), semop or semtimedop, (clock_)nanosleep, read, futex.
    let blocked =
        |tid: &i32| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).is_ok_and(|l| l != "running\n");
    wait_until("all calls block", || threads(pid).len() == 7 && threads(pid).iter().all(blocked));
    target
}

#[test]
fn sixty_stops_end_no_call_early() {
    let target = start();
    for _ in 0..60 {
        assert_eq!(attach(&target.pids, &["--stop"]).code, 0);
    }
    let counts = target.finish("TERM");
    for call in ["epoll_wait", "sigtimedwait", "semop", "nanosleep", "read", "sem_wait"] {
        assert!(counts.contains(&format!("{call}=0\n")), "{counts}");
    }
}

/// A program whose threads have all come to sleep in their calls.
fn start_zoo() -> Target {
    let target = Target::start(&mut Command::new(compile("native/zoo.c", "zoo", &[])));
    let pid = target.pid();
    let asleep = |tid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).is_ok_and(|l| l != "running\n")
            && status_field(pid, *tid, "State").is_some_and(|state| state.starts_with('S'))
    };
    wait_until("all calls of the zoo block", || threads(pid).iter().all(asleep));
    target
}

/// Lines of the zoo that tell of a call that returned.
fn early(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains(" last ") && !line.contains("=0 ")).collect()
}

#[test]
fn a_hundred_stops_of_the_zoo_end_no_call_early() {
    let target = start_zoo();
    let count = threads(target.pid()).len();
    for _ in 0..looks(100) {
        let look = attach(&target.pids, &AMPLE);
        assert_eq!(look.json["capture"]["threads"], count);
    }
    let said = target.finish("TERM");
    assert_eq!(said.lines().filter(|line| line.contains(" last ")).count(), count - 1, "{said}");
    assert!(early(&said).is_empty(), "{:?}", early(&said));
}

#[test]
fn looks_at_the_same_moment_wait_for_each_other() {
    const AT_ONCE: usize = 6;
    let target = start();
    for _ in 0..5 {
        let pid = target.pid().to_string();
        let looks = [(); AT_ONCE].map(|()| {
            let mut look = lockscope();
            look.args(["attach", "--stop", &pid]).stdout(Stdio::piped()).stderr(Stdio::piped());
            look.spawn().expect("lockscope runs")
        });
        for look in looks {
            let output = look.wait_with_output().expect("it ends");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|code| code < 2), "{:?} {errors}", output.status);
        }
    }
}

#[test]
fn looks_without_a_stop_wake_nobody() {
    looks_wake_nobody(&["--no-stop"]);
}

#[test]
fn looks_wake_no_sleeper() {
    looks_wake_nobody(&[]);
}

/// Not even a context switch: how often each thread was switched out is the same after all looks.
fn looks_wake_nobody(words: &[&str]) {
    let target = start_zoo();
    let pid = target.pid();
    let count = threads(pid).len();
    let switches = |tid: i32| {
        let of_task = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).expect("its status");
        of_task.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = || threads(pid).into_iter().map(|tid| (tid, switches(tid))).collect::<Vec<_>>();
    let before = all();
    for _ in 0..looks(50) {
        let look = attach(&target.pids, words);
        let capture = &look.json["capture"];
        if words.is_empty() && capture["registers"]["asleep_by_ebpf"] == 0 {
            return skipped!("no eBPF program tells registers here, so that some sleepers are stopped");
        }
        assert_eq!((&capture["threads"], &capture["pause_us"]), (&count.into(), &0.into()));
        let read = &capture["registers"];
        let asleep = read["asleep_by_ebpf"].as_u64().unwrap_or(0) + read["asleep_by_proc"].as_u64().unwrap_or(0);
        assert_eq!((asleep, &read["by_stop"]), (count as u64, &0.into()), "{}", look.json["gaps"]);
    }
    assert_eq!(all(), before);
    let said = target.finish("TERM");
    assert!(early(&said).is_empty(), "{:?}", early(&said));
}

/// What a thread at work is in the midst of cannot be known before it is stopped: such calls are counted.
#[test]
fn calls_of_threads_at_work_are_counted() {
    const LOOKS: usize = 30;
    let target = Target::start(Command::new(compile("native/zoo.c", "zoo", &[])).arg("running"));
    for _ in 0..LOOKS {
        attach(&target.pids, &["--stop"]);
    }
    let said = target.finish("TERM");
    println!("calls cut short in {LOOKS} looks at threads at work: {}", said.replace('\n', ", "));
    let worked =
        |line: &str| line.rsplit(" of ").next().and_then(|count| count.parse::<u64>().ok()).is_some_and(|n| n > 0);
    assert_eq!(said.lines().filter(|line| worked(line)).count(), 4, "{said}");
}

/// How many looks are ended by each signal: LOCKSCOPE_KILLS, else enough to see a mistake that is not rare.
fn kills() -> u32 {
    number("LOCKSCOPE_KILLS", 60)
}

/// How many looks are taken that nothing ends: LOCKSCOPE_LOOKS, else `few`.
fn looks(few: u32) -> u32 {
    number("LOCKSCOPE_LOOKS", few)
}

fn number(variable: &str, usual: u32) -> u32 {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Pseudo-random numbers: other moments each time, the same each run.
struct Moments(u64);

impl Moments {
    fn next(&mut self, below: Duration) -> Duration {
        // xorshift
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % u64::try_from(below.as_micros()).unwrap_or(1).max(1))
    }
}

/// A limit that no thread misses on a busy machine: one that does is let go before it came to its stop, and then its call returns
/// early, whoever is sent a signal.
/// All are stopped, also those that sleep.
const AMPLE: [&str; 3] = ["--stop", "--max-pause", "10s"];

/// Begin a look, and end it by a signal at a random moment of the time that it would take. How long after its end the last
/// thread of the target stood free, and whether the signal came before the look was over.
fn end_a_look(pid: i32, signal: &str, moments: &mut Moments, usual: Duration) -> (Duration, bool) {
    let mut look = as_from_a_terminal(own_program())
        .args(["attach", &pid.to_string()])
        .args(AMPLE)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lockscope runs");
    std::thread::park_timeout(moments.next(usual));
    let in_time = look.try_wait().expect("its state").is_none();
    signal_process(look.id() as i32, signal);
    look.wait().expect("reaped");
    let ended = Instant::now();
    wait_until("every thread runs on untraced", || {
        threads(pid).iter().all(|tid| {
            status_field(pid, *tid, "TracerPid").as_deref() == Some("0")
                && status_field(pid, *tid, "State").is_some_and(|state| !state.starts_with(['t', 'T']))
        })
    });
    (ended.elapsed(), in_time)
}

/// The zoo after looks that were ended by a signal; what it says, and how many looks the signal ended.
fn end_looks_at_the_zoo(signal: &str) -> (String, u32) {
    let target = start_zoo();
    let began = Instant::now();
    attach(&target.pids, &AMPLE);
    let usual = began.elapsed();
    let (mut moments, mut longest, mut ended) = (Moments(0x2545_f491_4f6c_dd1d), Duration::ZERO, 0);
    let mut looks = 0;
    // Some are over before their signal comes.
    while ended < kills() && looks < 3 * kills() {
        let (freed, in_time) = end_a_look(target.pid(), signal, &mut moments, usual);
        longest = longest.max(freed);
        ended += u32::from(in_time);
        looks += 1;
    }
    let said = target.finish("TERM");
    let counts = early(&said);
    println!(
        "{ended} of {looks} looks ended by SIG{signal}: all threads free within {longest:?}; early returns: {counts:?}"
    );
    (said, ended)
}

#[test]
fn looks_that_are_killed_leave_nothing_stopped() {
    let (said, ended) = end_looks_at_the_zoo("KILL");
    assert!(ended > 0);
    // Threads in these calls are never woken, so that nothing can happen to them.
    let unwoken = ["part_", "linger_close", "submit_and_wait"];
    let harmed: Vec<&str> =
        early(&said).into_iter().filter(|line| unwoken.iter().any(|name| line.starts_with(name))).collect();
    assert!(harmed.is_empty(), "{harmed:?}");
}

#[test]
fn looks_that_are_interrupted_end_no_call_early() {
    let (said, ended) = end_looks_at_the_zoo("INT");
    assert!(ended > 0);
    assert!(early(&said).is_empty(), "{:?}", early(&said));
}

#[test]
fn looks_that_are_ended_leave_nothing_stopped() {
    let target = start();
    let mut moments = Moments(0x2545_f491_4f6c_dd1d);
    // As a user or a scheduler does it.
    for signal in ["HUP", "TERM"].repeat(10) {
        end_a_look(target.pid(), signal, &mut moments, Duration::from_millis(45));
    }
    let counts = target.finish("TERM");
    assert_eq!(counts.matches("=0\n").count(), 6, "{counts}");
}

/// lockscope in the foreground of a terminal, interrupted in the midst of a stop: what became of it each time that it was, and what the
/// target says.
fn interrupted_looks(how: &str, rounds: u32) -> (Vec<String>, String) {
    let target = start_zoo();
    let mut terminal = as_from_a_terminal("python3");
    terminal.arg(testdata("hostile/terminal.py"));
    terminal.args([how, &rounds.to_string(), &target.pid().to_string()]).arg(own_program());
    let output =
        terminal.args(["attach", "--stop", &target.pid().to_string()]).stdin(Stdio::null()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{how}: {said}");
    assert!(output.status.success(), "{said}");
    let lines: Vec<String> = said.lines().filter(|line| line.starts_with("in_the_midst")).map(str::to_owned).collect();
    assert_eq!(lines.len(), rounds as usize, "{said}");
    assert!(!said.contains("never") && !said.contains("then=running"), "{said}");
    let in_the_midst: Vec<String> = lines.into_iter().filter(|line| line.contains("in_the_midst=1")).collect();
    assert!(how == "storm" || !in_the_midst.is_empty(), "{said}");
    (in_the_midst, target.finish("TERM"))
}

#[test]
fn keys_of_a_terminal_in_the_midst_of_a_stop() {
    let (lines, said) = interrupted_looks("ctrl-c", 20);
    // SIGINT, after the release.
    assert!(lines.iter().all(|line| line.ends_with("then=killed status=2")), "{lines:?}");
    assert!(early(&said).is_empty(), "{:?}", early(&said));
    let (lines, said) = interrupted_looks("ctrl-z", 20);
    assert!(lines.iter().all(|line| line.ends_with("then=stopped status=0")), "{lines:?}");
    assert!(early(&said).is_empty(), "{:?}", early(&said));
}

#[test]
fn a_lockscope_that_is_stopped_itself_keeps_nobody_stopped() {
    for how in ["stop", "stop-group", "storm"] {
        let (lines, said) = interrupted_looks(how, 20);
        assert!(lines.iter().all(|line| line.ends_with("status=0")), "{lines:?}");
        // Whoever stopped it finds it stopped.
        assert!(how == "storm" || lines.iter().all(|line| line.contains("then=stopped")), "{lines:?}");
        assert!(early(&said).is_empty(), "{:?}", early(&said));
    }
}

/// As on a machine where hundreds wait for a processor: threads come to their stop when the limit is long over.
#[test]
fn threads_that_come_late_have_their_calls_repaired() {
    let target = start_zoo();
    for microseconds in (1..=100).map(|look| 20 * look) {
        let pause = format!("{}ms", f64::from(microseconds) / 1000.0);
        let look = attach(&target.pids, &["--stop", "--max-pause", &pause]);
        assert!(matches!(look.code, 0 | 1), "{}", look.text);
    }
    let said = target.finish("TERM");
    assert!(early(&said).is_empty(), "{:?}", early(&said));
}
