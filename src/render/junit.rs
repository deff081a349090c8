//! JUnit's XML, which every CI system shows: the tests that ended before, and the one that hangs, as a failure with the report.
//!
//! In: results of tests and a [`HungTest`]. Out: one test suite. Names are split as pytest splits them, so that a CI system
//! finds the history of a test. Files are named in the form that Jenkins and Azure make attachments of.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde::Deserialize;

use super::markdown::cut;
use super::{escape, escape_lines};

/// Most bytes of one text: GitLab takes files of 30 MB, and a suite can have thousands of failures.
const MOST_TEXT: usize = 256 << 10;
const MOST_MESSAGE: usize = 4 << 10;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TestOutcome {
    /// It passed.
    Passed,
    /// Its own code failed.
    Failed,
    /// It was not run.
    Skipped,
    /// A requirement of it failed.
    Error,
}

/// A test that ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TestResult {
    /// Its node id.
    pub name: String,
    /// How it ended.
    pub outcome: TestOutcome,
    /// How long it took.
    pub time: Duration,
    /// Why it failed or was skipped.
    pub text: String,
    /// The same in one line, where the runner says it.
    pub reason: Option<String>,
}

impl TestResult {
    /// Why in one line: what the runner says; else pytest marks the first line of an error; else the last line is the
    /// best one.
    pub(crate) fn reason(&self) -> &str {
        let marked = || self.text.lines().find_map(|line| line.strip_prefix("E   ")).map(str::trim);
        let last = || self.text.lines().rev().find(|line| !line.trim().is_empty());
        self.reason.as_deref().or_else(marked).or_else(last).unwrap_or_default()
    }
}

/// A test, or a whole command, that hangs.
#[derive(Debug, Clone)]
pub(crate) struct HungTest {
    /// A node id, or the command.
    pub name: String,
    /// How long it ran.
    pub time: Duration,
    /// `deadlock`, `timeout`: one word.
    pub kind: String,
    /// One sentence.
    pub message: String,
    /// The report as text.
    pub text: String,
    /// Reports and snapshots, by absolute paths.
    pub attachments: Vec<PathBuf>,
}

/// Write the file.
pub(crate) fn render(
    suite_name: &str,
    ended: &[TestResult],
    hung: &HungTest,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut suite = TestSuite::new(suite_name);
    suite.add_test_cases(ended.iter().map(case_of));
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status
        .set_type(hung.kind.as_str())
        .set_message(harmless_line(&hung.message, MOST_MESSAGE))
        .set_description(harmless(&hung.text, MOST_TEXT));
    let mut case = named(&hung.name, hung.time, status);
    if !hung.attachments.is_empty() {
        let lines =
            hung.attachments.iter().map(|path| format!("[[ATTACHMENT|{}]]\n", escape(&path.display().to_string())));
        case.set_system_out(lines.collect::<String>());
    }
    suite.add_test_case(case);
    suite.set_time(ended.iter().map(|result| result.time).sum::<Duration>() + hung.time);
    let mut report = Report::new("lockscope");
    report.add_test_suite(suite);
    report.serialize(out).map_err(io::Error::other)
}

/// Write the file of a command that ended by itself, with what was found besides as properties.
pub(crate) fn render_passed(
    name: &str,
    time: Duration,
    properties: &[(String, String)],
    attachments: &[PathBuf],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut case = named(name, time, TestCaseStatus::success());
    for (name, value) in properties {
        case.add_property((name.as_str(), harmless_line(value, MOST_MESSAGE).as_str()));
    }
    if !attachments.is_empty() {
        let lines = attachments.iter().map(|path| format!("[[ATTACHMENT|{}]]\n", escape(&path.display().to_string())));
        case.set_system_out(lines.collect::<String>());
    }
    let mut suite = TestSuite::new("lockscope");
    suite.add_test_case(case);
    let mut report = Report::new("lockscope");
    report.add_test_suite(suite);
    report.serialize(out).map_err(io::Error::other)
}

/// The same in an attribute, which is one line: parsers would make blanks of line breaks, and a log that shows the file would have
/// lines that begin with what the target says.
fn harmless_line(text: &str, most: usize) -> String {
    escape(&cut(text, most))
}

/// XML cannot contain all that texts can, not even as a reference.
fn harmless(text: &str, most: usize) -> String {
    escape_lines(&cut(text, most))
}

fn case_of(result: &TestResult) -> TestCase {
    let failed = |kind| {
        let mut status = TestCaseStatus::non_success(kind);
        status
            .set_message(harmless_line(result.reason(), MOST_MESSAGE))
            .set_description(harmless(&result.text, MOST_TEXT));
        status
    };
    let status = match result.outcome {
        TestOutcome::Passed => TestCaseStatus::success(),
        TestOutcome::Failed => failed(NonSuccessKind::Failure),
        TestOutcome::Error => failed(NonSuccessKind::Error),
        TestOutcome::Skipped => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(harmless_line(&result.text, MOST_MESSAGE));
            status
        }
    };
    named(&result.name, result.time, status)
}

fn named(name: &str, time: Duration, status: TestCaseStatus) -> TestCase {
    let (class, name) = split(&escape(name));
    let mut case = TestCase::new(name, status);
    case.set_time(time);
    if !class.is_empty() {
        case.set_classname(class);
    }
    case
}

/// `tests/test_a.py::TestB::test_c[x::y]` is test `test_c[x::y]` of class `tests.test_a.TestB`.
fn split(node_id: &str) -> (String, String) {
    let bracket = node_id.find('[').unwrap_or(node_id.len());
    let (path, parameters) = node_id.split_at(bracket);
    let Some((class, name)) = path.rsplit_once("::") else { return (String::new(), node_id.to_string()) };
    let (file, rest) = class.split_once("::").map_or((class, None), |(file, rest)| (file, Some(rest)));
    let mut parts = vec![file.strip_suffix(".py").unwrap_or(file).replace('/', ".")];
    parts.extend(rest.into_iter().flat_map(|rest| rest.split("::")).map(str::to_string));
    (parts.join("."), format!("{name}{parameters}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hung() -> HungTest {
        HungTest {
            name: "tests/test_a.py::TestB::test_c[x::y]".into(),
            time: Duration::from_millis(1500),
            kind: "deadlock".into(),
            message: "MainThread <-> worker \u{1}\u{1b}[31m]]>".into(),
            text: "the \u{0}report \u{ffff}\u{202e} ]]> & <more>".into(),
            attachments: vec!["/reports/hang-a-1.json".into()],
        }
    }

    fn rendered(ended: &[TestResult], hung: &HungTest) -> String {
        let mut bytes = Vec::new();
        render("pytest", ended, hung, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_hung_test_stands_among_those_that_ended() {
        let result = |name: &str, outcome| TestResult {
            name: name.into(),
            outcome,
            time: Duration::from_millis(20),
            text: "def f():\nE   assert 0".into(),
            reason: None,
        };
        let ended = [
            result("test_a.py::test_1", TestOutcome::Passed),
            result("test_a.py::test_2", TestOutcome::Failed),
            result("test_a.py::test_3", TestOutcome::Skipped),
            result("test_a.py::test_4", TestOutcome::Error),
        ];
        let text = rendered(&ended, &hung());
        let report = Report::deserialize_from_str(&text).expect("it is JUnit");
        let suite = &report.test_suites[0];
        assert_eq!((suite.tests, suite.failures, suite.errors, suite.skipped), (5, 2, 1, 1), "{text}");
        let last = suite.test_cases.last().expect("a test");
        assert_eq!(
            (last.classname.as_ref().unwrap().as_str(), last.name.as_str()),
            ("tests.test_a.TestB", "test_c[x::y]")
        );
        assert!(text.contains("[[ATTACHMENT|/reports/hang-a-1.json]]"), "{text}");
    }

    #[test]
    fn hostile_text_leaves_it_xml_and_sizes_are_bounded() {
        let text = rendered(&[], &hung());
        assert!(!text.chars().any(|letter| letter.is_control() && letter != '\n'), "{text:?}");
        assert!(!text.contains(['\u{fffe}', '\u{ffff}', '\u{202e}']), "{text:?}");
        roxmltree::Document::parse(&text).expect("it is XML");
        Report::deserialize_from_str(&text).expect("it is JUnit");
        let long = HungTest { text: "x".repeat(10 << 20), ..hung() };
        assert!(rendered(&[], &long).len() < MOST_TEXT + 4096);
    }
}
