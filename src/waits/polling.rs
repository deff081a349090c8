//! Facts from the code of a thread that sleeps for a time, about a lock on a file that it will request again.
//!
//! In: a thread that runs Python, innermost frames first. Out: [`Polled`]: the next attempt, the kind of lock, and the
//! files, where the code knows them by name alone. Other code finds out whether such a lock has a holder.

use super::thread::{Process, ThreadView};
use crate::python::PythonFrame;
use crate::python::inspect::Inspector;

/// The frames of Python, from the one that sleeps on outwards, in which the lock request may be.
const INNERMOST: usize = 3;
/// Where the package filelock has its code: it closes the file after each try, and knows it by its name.
const FILELOCK: &str = "filelock";
/// The names by which code requests a lock, and the names in /proc/locks.
const CALLS: &[(&str, &[&str])] = &[("flock", &["FLOCK"]), ("lockf", &["POSIX"])];
/// With this flag the call returns at once if another process has the lock.
const AT_ONCE: &str = "LOCK_NB";

/// A lock that a thread will request again.
#[derive(Debug)]
pub(crate) struct Polled {
    /// The name of that wait for people.
    pub(crate) what: String,
    /// The kinds of locks, as /proc/locks has them.
    pub(crate) kinds: &'static [&'static str],
    /// The names that the file may have; none where it is open.
    pub(crate) paths: Vec<String>,
}

/// The lock that a sleeping thread will request again.
pub(crate) fn polled(process: &Process<'_>, thread: &ThreadView<'_>) -> Option<Polled> {
    let inspector = Inspector::new(process.memory(), process.context.python?)?;
    let frames: Vec<&PythonFrame> = inspector.stack(thread.image.tid).take(INNERMOST).collect();
    by_filelock(&inspector, &frames).or_else(|| by_own_code(&inspector, &frames))
}

fn by_own_code(inspector: &Inspector<'_>, frames: &[&PythonFrame]) -> Option<Polled> {
    frames.iter().find_map(|frame| {
        let open = inspector.frame(frame).filter(|open| open.uses(AT_ONCE))?;
        let (name, kinds) = CALLS.iter().find(|(name, _)| open.uses(name))?;
        let what = format!("{} asks for it by {name} with {AT_ONCE}, and sleeps before it asks again", frame.function);
        Some(Polled { what, kinds, paths: Vec::new() })
    })
}

fn by_filelock(inspector: &Inspector<'_>, frames: &[&PythonFrame]) -> Option<Polled> {
    let own: Vec<&&PythonFrame> = frames.iter().filter(|frame| frame.origin.is_package(FILELOCK)).collect();
    if own.is_empty() {
        return None;
    }
    let objects = inspector.objects();
    let mut paths = Vec::new();
    for (_, value) in own
        .into_iter()
        .filter_map(|frame| inspector.frame(frame))
        .flat_map(|open| open.variables().into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Vec<_>>())
    {
        let attributes = objects.attributes(value).unwrap_or_default();
        let texts = attributes.into_iter().map(|(_, attribute)| attribute).chain([value]);
        paths.extend(texts.filter_map(|text| objects.text(text)).filter(|text| !text.is_empty()));
    }
    (!paths.is_empty()).then(|| Polled {
        what: "filelock asks again for the lock".to_owned(),
        kinds: &["FLOCK"],
        paths,
    })
}
