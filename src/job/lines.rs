//! Processes and threads of a report, in a line each.
//!
//! In: a [`Report`], and one of its processes or threads. Out: what a digest keeps of it. Which of them are kept is decided elsewhere.

use super::digest::Doing;
use crate::report::{CallSite, Process, Report, Thread, Wait, base_name, installed, short_function};

/// Whether it has its rank from a process that is the rank.
pub(super) fn is_helper(process: &Process) -> bool {
    process.identity.as_ref().is_some_and(|identity| identity.helper)
}

/// Its program.
pub(super) fn program(process: &Process) -> String {
    let path = process.exe.as_deref().or(process.cmdline.first().map(String::as_str));
    path.map_or("process", base_name).to_owned()
}

/// The activity of a thread.
pub(super) fn doing(report: &Report, process: &Process, thread: &Thread) -> Doing {
    let wait = report.waits.iter().find(|wait| wait.process == process.id && wait.tid == Some(thread.tid));
    let label = |wait: &Wait| label(report, &wait.resource);
    Doing {
        tid: thread.tid,
        name: thread.name.clone(),
        state: thread.state,
        place: place(thread, wait.map_or(&thread.at, |wait| &wait.at)),
        wait: wait.map(label),
    }
}

fn label(report: &Report, resource: &str) -> String {
    let found = report.resources.iter().find(|one| one.id == resource);
    found.map(|one| one.label.clone()).unwrap_or_default()
}

/// The line of the program where a thread waits or is, else its innermost function.
pub(super) fn place(thread: &Thread, site: &CallSite) -> String {
    let told = [site.caller, site.call].into_iter().flatten().filter_map(|index| thread.frames.get(index));
    let own = told.chain(&thread.frames).find_map(|frame| {
        let file = frame.file.as_deref().filter(|file| frame.library.is_none() && installed(file).is_none())?;
        let function = frame.function.as_deref().map(short_function).unwrap_or_default();
        Some(format!("{}:{} {function}", base_name(file), frame.line?).trim_end().to_owned())
    });
    let named = || thread.frames.iter().find_map(|frame| Some(short_function(frame.function.as_deref()?).to_string()));
    own.or_else(named).unwrap_or_default()
}
