//! The final report of a test runner that was ended: failures, a summary, and the tests that did not run. It also notes
//! the failures for the runner's next run.
//!
//! In: the results so far, the test that hangs, the tests that were to run. Out: text, and the file of pytest's `--lf`.
//! It samples nothing and ends nothing.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::render;
use crate::render::junit::{TestOutcome, TestResult};

/// Tests that did not run, by name.
const MOST_NAMED: usize = 20;
/// The longest file with the failures of earlier runs that is read. A longer one is written anew.
const LONGEST_LAST_FAILED: u64 = 32 << 20;
const WIDTH: usize = 80;

/// A run of tests that was ended.
#[derive(Debug)]
pub(super) struct Journal<'j> {
    pub(super) ended: &'j [TestResult],
    /// The test that hangs; none where it was between tests.
    pub(super) hung: Option<&'j str>,
    pub(super) headline: &'j str,
    /// The captured output of the test.
    pub(super) captured: &'j str,
    pub(super) plan: &'j [String],
    pub(super) time: Duration,
}

impl Journal<'_> {
    /// The tests of the plan that have not begun.
    pub(super) fn not_run(&self) -> Vec<&str> {
        let begun: BTreeSet<&str> = self.ended.iter().map(|one| one.name.as_str()).chain(self.hung).collect();
        self.plan.iter().map(String::as_str).filter(|test| !begun.contains(test)).collect()
    }

    fn failed(&self) -> impl Iterator<Item = &TestResult> {
        self.ended.iter().filter(|one| matches!(one.outcome, TestOutcome::Failed | TestOutcome::Error))
    }

    fn count(&self, outcome: TestOutcome) -> usize {
        self.ended.iter().filter(|one| one.outcome == outcome).count()
    }

    /// As pytest says it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: &str| {
            // Writing to memory cannot fail.
            let _ = writeln!(text, "{words}");
        };
        if self.failed().next().is_some() || !self.captured.is_empty() {
            line(&rule(" FAILURES ", '='));
        }
        for one in self.failed() {
            line(&rule(&format!(" {} ", render::escape(&one.name)), '_'));
            line(&render::escape_lines(one.text.trim_end()));
        }
        if !self.captured.is_empty() {
            line(&rule(&format!(" {} ", render::escape(self.hung.unwrap_or("between tests"))), '_'));
            line(&rule(" Captured output ", '-'));
            line(&render::escape_lines(self.captured.trim_end()));
        }
        line(&rule(" short test summary info ", '='));
        for one in self.failed() {
            let word = if one.outcome == TestOutcome::Failed { "FAILED" } else { "ERROR" };
            let reason = one.reason();
            let reason = if reason.is_empty() { String::new() } else { format!(" - {reason}") };
            line(&render::escape(&format!("{word} {}{reason}", one.name)));
        }
        let hung = self.hung.map_or("ERROR outside of the tests".to_owned(), |test| format!("FAILED {test}"));
        line(&render::escape(&format!("{hung} - {}", self.headline)));
        let not_run = self.not_run();
        if !not_run.is_empty() {
            let named: Vec<&str> = not_run.iter().take(MOST_NAMED).copied().collect();
            let more = not_run.len() - named.len();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            line(&render::escape(&format!("not run: {}{more}", named.join(", "))));
        }
        let mut counts = vec![
            (self.count(TestOutcome::Failed) + usize::from(self.hung.is_some()), "failed"),
            (self.count(TestOutcome::Passed), "passed"),
            (self.count(TestOutcome::Skipped), "skipped"),
            (self.count(TestOutcome::Error) + usize::from(self.hung.is_none()), "errors"),
            (not_run.len(), "not run"),
        ];
        counts.retain(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.iter().map(|(count, word)| format!("{count} {word}")).collect();
        let seconds = self.time.as_secs_f64();
        line(&rule(&format!(" {} in {seconds:.2}s (lockscope had to end pytest) ", counts.join(", ")), '='));
        text
    }

    /// Add the failed tests to the file that `--lf` reads, as pytest does.
    pub(super) fn note_failures(&self, file: &Path) -> std::io::Result<()> {
        use std::io::Read;
        let mut before = String::new();
        if let Ok(file) = std::fs::File::open(file) {
            let _ = file.take(LONGEST_LAST_FAILED).read_to_string(&mut before);
        }
        let mut known: Map<String, Value> = serde_json::from_str(&before).unwrap_or_default();
        for one in self.ended {
            match one.outcome {
                TestOutcome::Passed | TestOutcome::Skipped => drop(known.remove(&one.name)),
                TestOutcome::Failed | TestOutcome::Error => drop(known.insert(one.name.clone(), Value::Bool(true))),
            }
        }
        if let Some(test) = self.hung {
            known.insert(test.to_owned(), Value::Bool(true));
        }
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file, format!("{:#}", Value::Object(known)))
    }
}

fn rule(words: &str, with: char) -> String {
    let left = WIDTH.saturating_sub(words.chars().count());
    let side = |count: usize| with.to_string().repeat(count.max(1));
    format!("{}{words}{}", side(left / 2), side(left - left / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, outcome: TestOutcome, text: &str) -> TestResult {
        TestResult { name: name.into(), outcome, time: Duration::ZERO, text: text.into(), reason: None }
    }

    #[test]
    fn the_summary_is_pytests_and_names_what_did_not_run() {
        let ended = [
            result("a.py::good", TestOutcome::Passed, ""),
            result("a.py::bad", TestOutcome::Failed, "    assert 1 == 2\nE   assert 1 == 2\n"),
            TestResult {
                reason: Some("stuck: it waits".into()),
                ..result("a.py::told", TestOutcome::Failed, "stuck: it waits\nlooked twice")
            },
        ];
        let plan = ["a.py::good", "a.py::bad", "a.py::hangs", "a.py::last"].map(str::to_owned);
        let journal = Journal {
            ended: &ended,
            hung: Some("a.py::hangs"),
            headline: "deadlock: `a` and `b`",
            captured: "",
            plan: &plan,
            time: Duration::from_millis(2500),
        };
        assert_eq!(
            journal.text(),
            "=================================== FAILURES ===================================\n\
             __________________________________ a.py::bad ___________________________________\n    assert 1 == 2\n\
             E   assert 1 == 2\n\
             __________________________________ a.py::told __________________________________\n\
             stuck: it waits\nlooked twice\n\
             =========================== short test summary info ============================\n\
             FAILED a.py::bad - assert 1 == 2\nFAILED a.py::told - stuck: it waits\n\
             FAILED a.py::hangs - deadlock: `a` and `b`\nnot run: a.py::last\n\
             ===== 3 failed, 1 passed, 1 not run in 2.50s (lockscope had to end pytest) =====\n"
        );
    }

    #[test]
    fn the_next_run_knows_what_failed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("v/cache/lastfailed");
        let ended = [result("good", TestOutcome::Passed, ""), result("bad", TestOutcome::Failed, "")];
        let mut journal =
            Journal { ended: &ended, hung: Some("hangs"), headline: "", captured: "", plan: &[], time: Duration::ZERO };
        journal.note_failures(&file).expect("written");
        let ended = [result("bad", TestOutcome::Passed, "")];
        (journal.ended, journal.hung) = (&ended, None);
        journal.note_failures(&file).expect("written");
        let text = std::fs::read_to_string(&file).expect("read");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), serde_json::json!({"hangs": true}));
    }
}
