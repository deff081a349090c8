//! What a command that lockscope starts finds: actions of signals, and standard files, as lockscope found them.
//!
//! They are noted before `main`, since Rust's runtime changes both.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

/// Null in the place of the standard files: a process that is left behind must keep nobody's pipe open.
pub(crate) fn leave_standard_files() {
    if let Ok(nowhere) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&nowhere);
        let _ = nix::unistd::dup2_stdout(&nowhere);
        let _ = nix::unistd::dup2_stderr(&nowhere);
    }
}

/// Signals whose inherited action a command must find as it was: lockscope needs another one of each.
const KEPT_FOR_COMMANDS: [i32; 3] = [libc::SIGCHLD, libc::SIGPIPE, libc::SIGXFSZ];
/// Which of them were ignored when this process started.
static IGNORED_AT_START: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Which of the standard files were closed then.
static CLOSED_AT_START: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Runs before Rust's runtime, which ignores SIGPIPE, and opens /dev/null where a standard file is closed.
extern "C" fn note_actions() {
    for (file, is_closed) in (0..).zip(&CLOSED_AT_START) {
        // SAFETY: asks for the flags of a descriptor, and changes nothing.
        is_closed.store(unsafe { libc::fcntl(file, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
    for (signal, is_ignored) in KEPT_FOR_COMMANDS.into_iter().zip(&IGNORED_AT_START) {
        // SAFETY: all zeroes is a valid sigaction, which the call fills in; it changes nothing.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            action
        };
        is_ignored.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
    }
}

// SAFETY: the C library calls each entry once before `main`; this one needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_ACTIONS: extern "C" fn() = note_actions;

/// Take the actions that a process needs which starts commands and writes reports: children that end are seen, and a file that may not
/// grow is an error of the write.
pub(crate) fn take_actions() {
    // SAFETY: both are actions of the kernel's own, and no handler is replaced.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Become a command that finds the actions of signals, and standard files that are closed, as this process found them; returns only if that fails.
pub(crate) fn become_command(command: &mut std::process::Command) -> std::io::Error {
    let restore = || {
        for (signal, is_ignored) in KEPT_FOR_COMMANDS.into_iter().zip(&IGNORED_AT_START) {
            let action = if is_ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: as above.
            unsafe { libc::signal(signal, action) };
        }
        for (file, _) in (0..).zip(&CLOSED_AT_START).filter(|(_, is_closed)| is_closed.load(Ordering::Relaxed)) {
            // SAFETY: what the runtime has opened there is nobody's.
            unsafe { libc::close(file) };
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, restore) };
    std::os::unix::process::CommandExt::exec(command)
}
