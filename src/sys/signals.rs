//! Signals of this process: those that wait while a target stands still, and who continued it.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

/// The signal that a sampler gets when its supervisor ends: no kernel and no program sends it otherwise (signal(7):
/// unused).
pub(crate) const SUPERVISOR_ENDED: nix::sys::signal::Signal = nix::sys::signal::Signal::SIGSTKFLT;
/// Signals that would end or stop this process, and wait as long as a target stands still on its account.
const DEFERRED: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP, SUPERVISOR_ENDED as i32];
/// Those that came meanwhile, a bit each.
static CAME: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// Whether there is a stop at the moment.
static IS_DEFERRING: AtomicBool = AtomicBool::new(false);
/// How many stops there are at the moment, and the signals whose action was replaced by the first.
static DEFERRING: std::sync::Mutex<(usize, [bool; DEFERRED.len()])> =
    std::sync::Mutex::new((0, [false; DEFERRED.len()]));

extern "C" fn take_note(signal: i32) {
    let bit = 1 << signal;
    CAME.fetch_or(bit, Ordering::SeqCst);
    // On another thread this may begin just before the last stop ends, and get here when what came was sent again already.
    if !IS_DEFERRING.load(Ordering::SeqCst) && CAME.fetch_and(!bit, Ordering::SeqCst) & bit != 0 {
        // SAFETY: may be called in a handler; sends a signal to this very process, which it was sent before.
        unsafe { libc::kill(libc::getpid(), signal) };
    }
}

/// SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP and [`SUPERVISOR_ENDED`] wait until this is dropped, where they have their default action. An action, not a
/// mask: another thread with another mask would take them, and their default is the end of all threads.
#[derive(Debug)]
pub(crate) struct DeferredSignals(());

impl DeferredSignals {
    /// From now on.
    pub(crate) fn begin() -> DeferredSignals {
        let mut deferring = DEFERRING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        deferring.0 += 1;
        if deferring.0 == 1 {
            IS_DEFERRING.store(true, Ordering::SeqCst);
            for (signal, replaced) in DEFERRED.into_iter().zip(&mut deferring.1) {
                *replaced = action(signal, None) == Some(libc::SIG_DFL)
                    && action(signal, Some(take_note as extern "C" fn(i32) as libc::sighandler_t)).is_some();
            }
        }
        DeferredSignals(())
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        let mut deferring = DEFERRING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        deferring.0 = deferring.0.saturating_sub(1);
        if deferring.0 > 0 {
            return;
        }
        for (signal, replaced) in DEFERRED.into_iter().zip(&mut deferring.1) {
            if std::mem::take(replaced) {
                action(signal, Some(libc::SIG_DFL));
            }
        }
        IS_DEFERRING.store(false, Ordering::SeqCst);
        drop(deferring);
        let came = CAME.swap(0, Ordering::SeqCst);
        for signal in DEFERRED.into_iter().filter(|signal| came & (1 << signal) != 0) {
            // SAFETY: sends a signal to this very process, which it was sent before.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }
}

/// The process that may continue this process without a note, and whether another process did.
static RESUMER: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
static CONTINUED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_continue(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo_t with SA_SIGINFO, which for a signal that was sent has the sender.
    let sender = unsafe { (*info).si_pid() };
    if sender != RESUMER.load(Ordering::SeqCst) {
        CONTINUED.store(true, Ordering::SeqCst);
    }
}

/// Take note of each SIGCONT from now on that is not of `resumer`, where that signal has its default action.
pub(crate) fn note_continues(resumer: i32) {
    RESUMER.store(resumer, Ordering::SeqCst);
    CONTINUED.store(false, Ordering::SeqCst);
    if action(libc::SIGCONT, None) != Some(libc::SIG_DFL) {
        return;
    }
    // SAFETY: sigaction is plain data for which all zeroes is a valid value.
    let mut noted: libc::sigaction = unsafe { std::mem::zeroed() };
    noted.sa_sigaction = note_continue as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    noted.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler reads and stores atomics only.
    unsafe { libc::sigaction(libc::SIGCONT, &noted, std::ptr::null_mut()) };
}

/// Whether there was one since; the default action is back.
pub(crate) fn was_continued_by_others() -> bool {
    let own = note_continue as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    if action(libc::SIGCONT, None) == Some(own) {
        action(libc::SIGCONT, Some(libc::SIG_DFL));
    }
    CONTINUED.load(Ordering::SeqCst)
}

/// The action of a signal, after it was set if a new one is given.
fn action(signal: i32, new: Option<libc::sighandler_t>) -> Option<libc::sighandler_t> {
    // SAFETY: all zeroes is a valid sigaction: the default action, no flag, an empty mask.
    let (mut old, mut set): (libc::sigaction, libc::sigaction) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    set.sa_flags = libc::SA_RESTART;
    let asked = new.map_or(std::ptr::null(), |handler| {
        set.sa_sigaction = handler;
        &raw const set
    });
    // SAFETY: both structures are valid and outlive the call; the handler only sets bits of an atomic word.
    let result = unsafe { libc::sigaction(signal, asked, &mut old) };
    (result == 0).then_some(old.sa_sigaction)
}
