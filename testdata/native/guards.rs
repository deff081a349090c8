// Threads with locks of Rust's standard library: ./guards CASE
// orders: two threads take two of them in opposite orders: a deadlock.
// members: the same with two members of a static variable.
// dropped: a thread has dropped the guard of its first lock, and waits for the second: no deadlock.
// given: the same, where the guard was given to a function that has dropped it.
// sometimes: the same, where only one way through the function drops it.
// emptied: the same, where the guard was taken out of an option.
// earlier: a thread takes one lock again and again, until another one has it: its stack has the guard of the time before.
// condition: a thread waits for a condition, and has given its lock back for that.
// In these a lock that seems to be taken is another's, who keeps it without a guard and sleeps.
// The line that takes what is held, and that which waits, end with a comment: // takes, // waits.
// Prints "READY pids=P" when all are about to wait, and ends by SIGALRM after two minutes.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard};
use std::thread;

struct Account {
    balance: Mutex<i64>,
}

/// Its locks have names by their members.
struct Store {
    index: Mutex<i64>,
    journal: Mutex<i64>,
}
static STORE: Store = Store { index: Mutex::new(0), journal: Mutex::new(0) };

fn store(from: &'static Mutex<i64>, to: &'static Mutex<i64>, both: &Barrier) {
    let mut first = from.lock().unwrap();
    if both.wait().is_leader() {
        ready();
    }
    let mut second = to.lock().unwrap();
    *first -= 5;
    *second += 5;
}

unsafe extern "C" {
    fn alarm(seconds: u32) -> u32;
    fn pause() -> i32;
}

fn ready() {
    println!("READY pids={}", std::process::id());
}

fn transfer(from: &Account, to: &Account, both: &Barrier) {
    let mut first = from.balance.lock().unwrap(); // takes
    if both.wait().is_leader() {
        ready();
    }
    let mut second = to.balance.lock().unwrap(); // waits
    *first -= 5;
    *second += 5;
}

fn dropped(from: &Account, to: &Account, turns: &Barrier) {
    let mut first = from.balance.lock().unwrap();
    *first -= 5;
    drop(first);
    turns.wait();
    turns.wait();
    let mut second = to.balance.lock().unwrap();
    *second += 5;
}

fn finish(mut guard: MutexGuard<'_, i64>, to: &Account, turns: &Barrier) {
    *guard -= 5;
    drop(guard);
    turns.wait();
    turns.wait();
    let mut second = to.balance.lock().unwrap();
    *second += 5;
}

fn given(from: &Account, to: &Account, turns: &Barrier) {
    let first = from.balance.lock().unwrap();
    finish(first, to, turns);
}

fn sometimes(from: &Account, to: &Account, turns: &Barrier, now: bool) {
    let mut first = from.balance.lock().unwrap();
    *first -= 5;
    if now {
        drop(first);
    }
    turns.wait();
    turns.wait();
    let mut second = to.balance.lock().unwrap();
    *second += 5;
}

fn emptied(from: &Account, to: &Account, turns: &Barrier) {
    let mut first = Some(from.balance.lock().unwrap());
    first.take();
    turns.wait();
    turns.wait();
    let mut second = to.balance.lock().unwrap();
    *second += 5;
}

static ROUNDS: AtomicUsize = AtomicUsize::new(0);

fn count(account: &Account) {
    let last = account.balance.lock().unwrap();
    drop(last);
}

fn earlier(from: &Account, turns: &Barrier) {
    turns.wait();
    loop {
        count(from);
        ROUNDS.fetch_add(1, Relaxed);
    }
}

fn condition(from: &Account, changed: &Condvar, turns: &Barrier) {
    let first = from.balance.lock().unwrap();
    turns.wait();
    let first = changed.wait(first).unwrap();
    drop(first);
}

/// Keeps a lock and leaves no guard of it.
fn keep(account: &Account) {
    std::mem::forget(account.balance.lock().unwrap());
}

/// Takes `to`, then wants `from`.
fn other(from: &Account, to: &Account, turns: &Barrier) {
    let mut second = to.balance.lock().unwrap();
    turns.wait();
    let mut first = from.balance.lock().unwrap();
    *first += 5;
    *second -= 5;
}

fn main() {
    unsafe { alarm(120) };
    let case = std::env::args().nth(1).unwrap_or_default();
    let accounts = Arc::new([Account { balance: 100.into() }, Account { balance: 100.into() }]);
    if case == "orders" {
        let both = Arc::new(Barrier::new(2));
        let (others, others_barrier) = (accounts.clone(), both.clone());
        let thread = thread::spawn(move || transfer(&others[0], &others[1], &others_barrier));
        let (own, own_barrier) = (accounts.clone(), both.clone());
        let second = thread::spawn(move || transfer(&own[1], &own[0], &own_barrier));
        thread.join().unwrap();
        second.join().unwrap();
        return;
    }
    if case == "members" {
        let both = Arc::new(Barrier::new(2));
        let other = both.clone();
        let thread = thread::spawn(move || store(&STORE.index, &STORE.journal, &other));
        store(&STORE.journal, &STORE.index, &both);
        thread.join().unwrap();
        return;
    }
    let turns = Arc::new(Barrier::new(2));
    let changed = Arc::new(Condvar::new());
    let (own, own_turns, own_changed, own_case) = (accounts.clone(), turns.clone(), changed.clone(), case.clone());
    thread::Builder::new()
        .name("careful".into())
        .spawn(move || match own_case.as_str() {
            "dropped" => dropped(&own[0], &own[1], &own_turns),
            "given" => given(&own[0], &own[1], &own_turns),
            "emptied" => emptied(&own[0], &own[1], &own_turns),
            "earlier" => earlier(&own[0], &own_turns),
            "sometimes" => sometimes(&own[0], &own[1], &own_turns, own.len() == 2),
            _ => condition(&own[0], &own_changed, &own_turns),
        })
        .unwrap();
    turns.wait();
    while case == "earlier" && ROUNDS.load(Relaxed) < 1000 {
        thread::yield_now();
    }
    keep(&accounts[0]);
    let taken = Arc::new(Barrier::new(2));
    let (others, others_taken) = (accounts.clone(), taken.clone());
    thread::Builder::new()
        .name("other".into())
        .spawn(move || other(&others[0], &others[1], &others_taken))
        .unwrap();
    taken.wait();
    if !["condition", "earlier"].contains(&case.as_str()) {
        turns.wait();
    }
    ready();
    loop {
        unsafe { pause() };
    }
}
