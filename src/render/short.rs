//! One line for alerts and logs: verdict, code of the first finding, and where each thread of it stands, with tabs between.
//!
//! In: a report. Out: `deadlock<TAB>lock-order-cycle<TAB>/srv/app.py:14<TAB>/srv/app.py:20`. Where nothing was found the code is
//! `-`, and the place is the main thread's. Paths are as the report has them; no name of the target brings a tab or a line of its own.

use std::io;

use super::{escape, view};
use crate::report::{Frame, Process, Report, Thread, installed};

/// Places: a pool of hundreds of threads is one line, too.
const MOST_PLACES: usize = 16;

/// Write `report` as one line.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let finding = report.findings.first();
    let code = finding.map_or("-", |finding| finding.code.as_str());
    let mut words = vec![report.verdict.as_str().to_owned(), code.to_owned()];
    let taking_part: Vec<(&Process, &Thread)> = match finding {
        Some(finding) => finding.threads.iter().filter_map(|one| thread(report, &one.process, one.tid)).collect(),
        None => report.processes.first().and_then(|process| main_thread(process)).into_iter().collect(),
    };
    for (process, one) in taking_part {
        let Some(place) = place(report, process, one).map(|place| escape(&place)) else { continue };
        if words.len() < MOST_PLACES + 2 && !words.iter().skip(2).any(|word| *word == place) {
            words.push(place);
        }
    }
    writeln!(out, "{}", words.join("\t"))
}

fn thread<'r>(report: &'r Report, process: &str, tid: i32) -> Option<(&'r Process, &'r Thread)> {
    let process = report.processes.iter().find(|one| one.id == process)?;
    Some((process, process.threads.iter().find(|thread| thread.tid == tid)?))
}

fn main_thread(process: &Process) -> Option<(&Process, &Thread)> {
    let main = process.threads.iter().find(|thread| thread.tid == process.pid);
    Some((process, main.or(process.threads.first())?))
}

/// The line of the program where a thread waits, or is; else the innermost frame that has a name.
pub(super) fn place(report: &Report, process: &Process, thread: &Thread) -> Option<String> {
    let wait = report.waits.iter().find(|wait| wait.process == process.id && wait.tid == Some(thread.tid));
    let site = wait.map_or(&thread.at, |wait| &wait.at);
    let from = wait.and_then(|wait| wait.frame).unwrap_or(0);
    let told = [site.caller, site.call].into_iter().flatten().filter_map(|index| thread.frames.get(index));
    let outside = || thread.frames.iter().skip(from);
    told.chain(outside()).find_map(own_line).or_else(|| outside().find_map(view::place_or_module))
}

/// `/srv/app.py:14`, of a frame that is the program's own.
fn own_line(frame: &Frame) -> Option<String> {
    let file = frame.file.as_deref().filter(|file| frame.library.is_none() && installed(file).is_none())?;
    Some(format!("{file}:{}", frame.line?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::seed;
    use crate::report::{FrameKind, ThreadReference};

    fn line(report: &Report) -> String {
        let mut out = Vec::new();
        render(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_line_whatever_the_target_is_called() {
        let mut report = seed();
        let thread = &mut report.processes[0].threads[0];
        report.findings[0].threads = vec![ThreadReference { process: "p0".into(), tid: thread.tid }; 2];
        for frame in &mut thread.frames {
            frame.file = None;
        }
        let frame = thread.frames.iter_mut().find(|frame| frame.kind == FrameKind::Python).unwrap();
        (frame.file, frame.line, frame.library) = (Some("/srv/a\tb\n.py".into()), Some(7), None);
        assert_eq!(line(&report), format!("deadlock\t{}\t/srv/a\\tb\\n.py:7\n", report.findings[0].code));
    }

    #[test]
    fn where_nothing_was_found_it_is_the_main_thread() {
        let mut report = seed();
        report.findings.clear();
        report.verdict = crate::report::Verdict::Blocked;
        let line = line(&report);
        assert!(line.starts_with("blocked\t-\t") && line.lines().count() == 1, "{line}");
    }
}
