// A lock of Rust's standard library that readers and writers take: ./upgrade CASE
// itself: a thread reads and, with the guard alive, wants to write: a deadlock with itself.
// given-back: a thread has given its guard back and wants to write, while another reads and sleeps: healthy.
// Prints "READY pids=P" when it is about to hang, and ends by SIGALRM after two minutes.
use std::sync::RwLock;
use std::thread;

static TABLE: RwLock<Vec<u64>> = RwLock::new(Vec::new());

unsafe extern "C" {
    fn alarm(seconds: u32) -> u32;
    fn pause() -> i32;
}

fn ready() {
    println!("READY pids={}", std::process::id());
}

fn read_then_write(table: &RwLock<Vec<u64>>) {
    let entries = table.read().unwrap();
    ready();
    if entries.is_empty() {
        table.write().unwrap().push(1);
    }
}

fn read_and_sleep(table: &RwLock<Vec<u64>>) {
    let entries = table.read().unwrap();
    while entries.is_empty() {
        unsafe { pause() };
    }
}

fn read_before_write(table: &RwLock<Vec<u64>>) {
    let is_empty = {
        let entries = table.read().unwrap();
        entries.is_empty()
    };
    thread::Builder::new().name("reader".into()).spawn(|| read_and_sleep(&TABLE)).unwrap();
    while table.try_write().is_ok() {
        thread::yield_now();
    }
    ready();
    if is_empty {
        table.write().unwrap().push(1);
    }
}

fn main() {
    unsafe { alarm(120) };
    match std::env::args().nth(1).as_deref() {
        Some("itself") => read_then_write(&TABLE),
        _ => read_before_write(&TABLE),
    }
}
