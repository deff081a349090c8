//! Threads that wait for a thing of Rust's standard library which nobody gives: rust_waits CASE.
use std::io::Write;
use std::sync::{Barrier, Condvar, Mutex};
use std::thread;

static IS_OPEN: Mutex<bool> = Mutex::new(false);
static OPENED: Condvar = Condvar::new();
static MET: Barrier = Barrier::new(2);

fn wait_for_condition() {
    let mut open = IS_OPEN.lock().unwrap();
    while !*open {
        open = OPENED.wait(open).unwrap();
    }
}

fn main() {
    println!("READY pids={}", std::process::id());
    std::io::stdout().flush().unwrap();
    match std::env::args().nth(1).as_deref() {
        Some("condition") => wait_for_condition(),
        Some("condition_in_a_scope") => thread::scope(|_| wait_for_condition()),
        Some("park") => thread::park(),
        Some("park_in_a_scope") => thread::scope(|_| thread::park()),
        Some("barrier") => drop(MET.wait()),
        // The thread of the scope waits for the condition, and the main thread for the scope.
        _ => thread::scope(|scope| drop(scope.spawn(wait_for_condition))),
    }
}
