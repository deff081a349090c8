//! One annotation for GitHub Actions: a workflow command that puts the verdict on the line of the program where it hangs.
//!
//! In: a report and the folder of the checkout. Out: one line. GitHub shows ten annotations a step; one a hang is written.

use std::path::Path;

use super::headline;
use super::markdown::cut;
use crate::report::{Report, ThreadReference, Verdict, installed};

/// Most bytes of the message.
const MOST_MESSAGE: usize = 4 << 10;

/// `::error file=...,line=...,title=...::...`, without a newline.
pub(crate) fn annotation(report: &Report, what: &str, checkout: &Path) -> String {
    let place = place(report, checkout)
        .map(|(file, line)| format!("file={},line={line},", property(&super::escape(&file))))
        .unwrap_or_default();
    let title = property(&super::escape(&format!("lockscope: {} in {what}", report.verdict.words())));
    let message = format!("{}\n{}", headline(report), report.summary);
    let message = message.lines().map(super::escape).collect::<Vec<_>>().join("\n");
    // A deadlock that did not happen is no error.
    let command = if report.verdict == Verdict::CouldDeadlock { "warning" } else { "error" };
    format!("::{command} {place}title={title}::{}", data(&cut(&message, MOST_MESSAGE)))
}

/// The innermost line of the checkout among the threads that take part.
fn place(report: &Report, checkout: &Path) -> Option<(String, u32)> {
    let finding = report.findings.first()?;
    finding.threads.iter().find_map(|ThreadReference { process, tid }| {
        let process = report.processes.iter().find(|one| one.id == *process)?;
        let thread = process.threads.iter().find(|thread| thread.tid == *tid)?;
        thread.frames.iter().find_map(|frame| {
            let file = Path::new(frame.file.as_deref()?).strip_prefix(checkout).ok()?.to_str()?;
            installed(&format!("/{file}")).is_none().then_some((file.to_string(), frame.line?))
        })
    })
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::seed;

    #[test]
    fn an_annotation_is_one_line_at_a_place_of_the_checkout() {
        let mut report = seed();
        report.findings[0].title = "100% stuck:\r\n::error ::forged".into();
        let thread = &mut report.processes[0].threads[0];
        report.findings[0].threads = vec![ThreadReference { process: "p0".into(), tid: thread.tid }];
        let frame = thread.frames.iter_mut().find(|frame| frame.kind == crate::report::FrameKind::Python).unwrap();
        (frame.file, frame.line) = (Some("/src/repo/a,b/train.py".into()), Some(7));
        let line = annotation(&report, "`make`", Path::new("/src/repo"));
        assert!(
            line.starts_with("::error file=a%2Cb/train.py,line=7,title=lockscope%3A deadlock in `make`::100%25 stuck:"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
        let thread = &mut report.processes[0].threads[0];
        let frame = thread.frames.iter_mut().find(|frame| frame.kind == crate::report::FrameKind::Python).unwrap();
        frame.file = Some("/src/repo/x\u{1b}[31m\n::error::.py".into());
        let line = annotation(&report, "`make`", Path::new("/src/repo"));
        assert!(line.starts_with("::error file=x\\u{1b}[31m\\n%3A%3Aerror%3A%3A.py,line=7,"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
        assert!(!annotation(&report, "x", Path::new("/elsewhere")).contains("file="));
    }
}
