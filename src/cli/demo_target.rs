//! The process that `lockscope demo` samples: two threads that lock two accounts in opposite order.
//!
//! It says `READY` on standard output once each thread holds its first lock, and ends by itself after a minute or
//! with its parent.

use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;

use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::{CliError, output};
use crate::sys::ErrorCheckMutex;

/// Seconds after which the target ends, whatever became of lockscope.
pub(super) const LIFETIME_SECONDS: u32 = 60;

/// An account with a lock of its own.
struct Account {
    lock: ErrorCheckMutex,
}

/// Deadlock, on purpose.
pub(super) fn run() -> Result<ExitCode, CliError> {
    nix::unistd::alarm::set(LIFETIME_SECONDS);
    // A refusal does not matter: the alarm ends it, too.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let savings = Arc::new(Account { lock: ErrorCheckMutex::new() });
    let current = Arc::new(Account { lock: ErrorCheckMutex::new() });
    let both_hold_one = Arc::new(Barrier::new(3));
    let threads = [("transfer-a", &savings, &current), ("transfer-b", &current, &savings)].map(|(name, from, to)| {
        let (from, to, barrier) = (Arc::clone(from), Arc::clone(to), Arc::clone(&both_hold_one));
        thread::Builder::new().name(name.to_string()).spawn(move || transfer(&from, &to, &barrier))
    });
    both_hold_one.wait();
    output::to_stdout(b"READY\n")?;
    for thread in threads {
        let thread = thread.map_err(|error| CliError::new(format!("cannot start a thread: {error}")))?;
        let _ = thread.join();
    }
    Err(CliError::new("the demo did not deadlock"))
}

/// Lock both accounts, in the order in which they were named: the mistake.
#[inline(never)]
fn transfer(from: &Account, to: &Account, both_hold_one: &Barrier) {
    from.lock.lock();
    both_hold_one.wait();
    to.lock.lock();
    to.lock.unlock();
    from.lock.unlock();
}
