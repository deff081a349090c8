//! Which frames are the standard library's, or of an event loop beside it, and what the program called of it.
//!
//! In: files and frames as any list has them. Out: the call that a person knows: `Queue.get`, called at app.py:31. It reads
//! no memory.

/// Files of the standard library, and of event loops beside it, whose functions wait for the program's sake.
const FILES: &[&str] = &[
    "/threading.py",
    "/queue.py",
    "/concurrent/futures/",
    "/multiprocessing/",
    "/logging/",
    "/subprocess.py",
    "/asyncio/",
    "/selectors.py",
    "<frozen importlib",
    "/importlib/",
    // All of trio's own code is in files that begin so.
    "/trio/_",
    "/anyio/",
];

/// Whether a frame of this file is the library's own.
pub(crate) fn is_library(file: &str) -> bool {
    FILES.iter().any(|part| file.contains(part))
}

/// Of Python frames from the innermost on that are the library's: the outermost of these, which says what was called, and the
/// frame that called it, the program's.
pub(crate) fn call<F>(
    frames: impl Iterator<Item = F>,
    file: impl for<'a> Fn(&'a F) -> Option<&'a str>,
) -> Option<(F, F)> {
    let mut frames = frames.peekable();
    let mut called = None;
    while let Some(frame) = frames.next_if(|frame| file(frame).is_some_and(is_library)) {
        called = Some(frame);
    }
    called.zip(frames.next())
}
