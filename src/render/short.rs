//! One line for alerts and logs, with tabs between: verdict, code of the first finding, process, host, where each member stands in the
//! program's own code, and one sentence.
//!
//! In: a report. Out: `deadlock<TAB>lock-order-cycle<TAB>442<TAB>web-1<TAB>/srv/app.py:14<TAB>/srv/app.py:20<TAB>inventory.lock and
//! billing.lock are taken in different orders`. The sentence is the last word, and there are as many places as members have one. A `-`
//! stands for an unknown word. Paths are as the report has them; no name of the target brings a tab or a line of its own.

use std::io;

use super::{escape, headline, view};
use crate::report::{Frame, Process, Report, Thread, installed};

/// Places: a pool of hundreds of threads is one line, too.
const MOST_PLACES: usize = 16;
/// Stands for an unknown word.
const NOTHING: &str = "-";

/// Write `report` as one line.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let code = report.findings.first().map_or(NOTHING, |finding| finding.code.as_str());
    let process = concerned(report);
    let host = report.host.as_ref().and_then(|host| host.name.clone());
    let mut words = vec![
        report.verdict.as_str().to_owned(),
        code.to_owned(),
        process.map_or(NOTHING.to_owned(), |process| process.pid.to_string()),
        host.filter(|name| !name.is_empty()).unwrap_or(NOTHING.to_owned()),
    ];
    words.extend(places(report));
    // Backticks are for where they can be made code of.
    words.push(headline(report).replace('`', ""));
    let words: Vec<String> = words.iter().map(|word| escape(word)).collect();
    writeln!(out, "{}", words.join("\t"))
}

/// The process that the first finding is about; else the first.
fn concerned(report: &Report) -> Option<&Process> {
    let of_finding = report.findings.first().and_then(|finding| finding.threads.first());
    let of_scene = || report.scenes.first().and_then(|scene| scene.threads.first());
    let id = of_finding.or_else(of_scene).map(|one| one.process.as_str());
    report.processes.iter().find(|process| Some(process.id.as_str()) == id).or(report.processes.first())
}

/// Where each member stands in the program's own code, each place once.
pub(crate) fn places(report: &Report) -> Vec<String> {
    let of_thread = |one: &crate::report::ThreadReference| {
        let (process, thread) = thread(report, &one.process, one.tid)?;
        place(report, process, thread)
    };
    // Scenes show tasks as well.
    let in_scenes = report.scenes.iter().map(|scene| {
        let placed =
            scene.places.iter().rev().find_map(|place| Some(format!("{}:{}", place.file.as_deref()?, place.line?)));
        placed.or_else(|| scene.threads.first().and_then(of_thread))
    });
    let mut places: Vec<String> = Vec::new();
    let mut add = |place: Option<String>| match place {
        Some(place) if places.len() < MOST_PLACES && !places.contains(&place) => places.push(place),
        _ => {}
    };
    in_scenes.for_each(&mut add);
    match report.findings.first() {
        Some(finding) if report.scenes.is_empty() => finding.threads.iter().map(of_thread).for_each(&mut add),
        None if report.scenes.is_empty() => {
            let main = report.processes.first().and_then(main_thread);
            add(main.and_then(|(process, thread)| place(report, process, thread)));
        }
        _ => {}
    }
    places
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
    // Without lines: the first function that is no library's.
    let of_program = |frame: &&Frame| frame.library.is_none();
    told.chain(outside()).find_map(own_line).or_else(|| outside().filter(of_program).find_map(view::place_or_module))
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
        report.scenes.clear();
        let words: Vec<String> = line(&report).trim_end().split('\t').map(str::to_owned).collect();
        let pid = report.processes[0].pid.to_string();
        let sentence = headline(&report).replace('`', "");
        let expected = ["deadlock", &report.findings[0].code, &pid, "-", "/srv/a\\tb\\n.py:7", &sentence];
        assert_eq!(words, expected);
    }

    #[test]
    fn where_nothing_was_found_it_is_the_main_thread() {
        let mut report = seed();
        report.findings.clear();
        report.scenes.clear();
        report.verdict = crate::report::Verdict::Blocked;
        let line = line(&report);
        assert!(line.starts_with("blocked\t-\t") && line.lines().count() == 1, "{line}");
    }
}
