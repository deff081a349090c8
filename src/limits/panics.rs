//! Libraries that panic on foreign data.
//!
//! py-spy panics on damaged memory, addr2line where a file changes between two of its reads, layout-rs where rounding
//! meets one of its assertions. In: the call. Out: its result, or nothing; never a word on the user's terminal. Nothing
//! here knows the purpose of the call: the caller reports what is missing now.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// The hook that keeps quiet where [`IS_QUIET`] says so, put in once and never taken out.
static INSTALLED: Once = Once::new();

thread_local! {
    /// Whether panics of this thread are not reported.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The result of a call that may panic, without the panic's message on the user's terminal; `None` where it panicked.
/// This covers this thread only: the hook belongs to the whole process, and panics of other threads are reported as
/// usual.
pub(crate) fn without_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    INSTALLED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(before);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_quiet_in_its_own_thread_only() {
        assert_eq!(without_panic(|| 5), Some(5));
        let inner = without_panic(|| {
            let elsewhere = std::thread::spawn(|| IS_QUIET.get()).join();
            assert!(IS_QUIET.get() && elsewhere.is_ok_and(|quiet| !quiet));
            panic!("not told");
        });
        assert_eq!(inner, None::<()>);
        assert!(!IS_QUIET.get());
    }
}
