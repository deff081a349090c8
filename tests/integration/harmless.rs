//! A look leaves no trace: no call ends early, no thread stays stopped, whatever happens to lockscope.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Target, attach, compile, lockscope, signal_process, status_field, threads, wait_until};

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
fn sixty_looks_end_no_call_early() {
    let target = start();
    for _ in 0..60 {
        assert_eq!(attach(&target.pids, &[]).code, 0);
    }
    let counts = target.finish("TERM");
    for call in ["epoll_wait", "sigtimedwait", "semop", "nanosleep", "read", "sem_wait"] {
        assert!(counts.contains(&format!("{call}=0\n")), "{counts}");
    }
}

#[test]
fn looks_that_are_ended_leave_nothing_stopped() {
    let target = start();
    let pid = target.pid();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    // Forty times by SIGKILL, the others as a user or a scheduler does it.
    for signal in ["KILL", "KILL", "INT", "TERM"].repeat(20) {
        let mut look = lockscope()
            .args(["attach", &pid.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("lockscope runs");
        // xorshift: another moment each time, the same moments each run.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::park_timeout(Duration::from_micros(random % 45_000));
        signal_process(look.id() as i32, signal);
        look.wait().expect("reaped");
        wait_until("every thread runs on untraced", || {
            threads(pid).iter().all(|tid| {
                status_field(pid, *tid, "TracerPid").as_deref() == Some("0")
                    && status_field(pid, *tid, "State").is_some_and(|s| s.starts_with('S'))
            })
        });
    }
}
