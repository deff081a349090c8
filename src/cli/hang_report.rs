//! Reports of a hang: on standard error, into the report directory, for JUnit and for GitHub.
//!
//! In: what is watched, and the last sample. Standard error comes first, so that a full disk takes nothing away from
//! the log. It samples nothing and ends nothing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{CliError, Color, ReportArguments, output, private_file};
use crate::analysis::Outcome;
use crate::render::junit::{self, HungTest, TestResult};
use crate::render::{self, Detail, Format, Style, github, markdown};
use crate::report::{Report, Verdict};
use crate::run::{LastLook, Reason, suite};

/// Places that one line names.
const MOST_PLACES: usize = 3;
/// GitHub limits a step's summary to 1 MiB in all.
const MOST_SUMMARY: u64 = 1 << 20;

/// The watched command, process or test, as the report names it.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    /// "`make`", "process 12", or the node id of a test.
    pub(super) name: String,
    /// It is a test, by its runner's own account.
    pub(super) is_test: bool,
    /// Since when.
    pub(super) since: Instant,
    /// The tests that ended before it.
    pub(super) ended: Vec<TestResult>,
}

impl Watched {
    /// A command or a process, watched from now on.
    pub(super) fn command(name: String) -> Watched {
        Watched { name, is_test: false, since: Instant::now(), ended: Vec::new() }
    }
}

/// Where reports go.
#[derive(Debug)]
pub(super) struct HangReporter {
    directory: Option<PathBuf>,
    junit: Option<PathBuf>,
    /// Names the files, so that processes can share a directory.
    pid: i32,
    /// The style of the report on standard error.
    style: Style,
    /// How many hangs were reported before. The files of a second hang must not replace those of the first.
    before: u64,
    /// Nothing but errors goes to standard error: another program reads the files.
    is_silent: bool,
}

/// A hang in words, for a test that is ended inside of its process.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// One line.
    pub(super) headline: String,
    /// The report, and where it was written to.
    pub(super) text: String,
    /// A hang that an earlier test left behind. It was reported when that test was ended.
    pub(super) is_known: bool,
}

impl HangReporter {
    /// Make the directory, and see that all can be written, before anything depends on it.
    pub(super) fn prepare(arguments: &ReportArguments, pid: i32, color: Color) -> Result<HangReporter, CliError> {
        let directory = arguments.folder().map(writable).transpose()?;
        let junit = arguments.junit.as_deref().map(|file| -> Result<PathBuf, CliError> {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = file.file_name().ok_or_else(|| CliError::new(format!("`{}` names no file", file.display())))?;
            Ok(writable(folder)?.join(name))
        });
        // Logs of CI systems show colours, and are no terminals: only who asks for them gets them.
        let style = Style { color: output::is_colored(color, false), ..Style::plain() };
        Ok(HangReporter { directory, junit: junit.transpose()?, pid, style, before: 0, is_silent: arguments.quiet })
    }

    /// From now on say nothing, and write files only.
    pub(super) fn be_silent(&mut self) {
        self.is_silent = true;
    }

    /// From now on, reports are about another hang.
    pub(super) fn next(&mut self) {
        self.before += 1;
    }

    /// The same for who ends the test: it says all this, and writes the files that are its own. `was_left`: a test before it has left
    /// all that is wrong.
    pub(super) fn tell_inside(&self, reason: Reason, look: &LastLook, is_known: bool, was_left: bool) -> Told {
        let outcome = match look {
            Ok(outcome) => outcome,
            Err(error) => {
                let headline = format!("{}; it could not be looked at: {error}", why(reason));
                return Told { text: headline.clone(), headline, is_known };
            }
        };
        let kept = self.directory.as_deref().map(|directory| self.keep_all(directory, outcome));
        let files = match kept {
            None => String::new(),
            Some(Ok(files)) => format!("{}\n", named_together(&files)),
            Some(Err(error)) => format!("{error}\n"),
        };
        let text = String::from_utf8_lossy(&text(&outcome.report, &Style::plain())).into_owned();
        let headline = headline(reason, &outcome.report, self.pid, was_left);
        Told { headline, text: format!("{}\n{files}", text.trim_end()), is_known }
    }

    /// Where the text of the next report goes, if there is a folder for reports.
    pub(super) fn text_file(&self, is_part: bool) -> Option<PathBuf> {
        let what = if is_part { "beside" } else { "hang" };
        Some(self.directory.as_ref()?.join(self.file(what, "txt")))
    }

    /// The test was ended inside of its process, and the suite goes on: what GitHub Actions shows of it.
    pub(super) fn report_to_ci(&self, test: &str, look: &LastLook) {
        if let (Ok(outcome), true) = (look, is_on_github()) {
            // The runner has begun a line, and a command has to stand at the beginning of one.
            output::say("");
            report_to_github(&outcome.report, test);
        }
    }

    /// Remove the JUnit file of an earlier run: a CI system would take it for this one's.
    pub(super) fn remove_stale_junit(&self) {
        if let Some(file) = &self.junit {
            private_file::forget(file);
        }
    }

    /// Where children are to put their reports.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// It hangs.
    pub(super) fn report_hang(&self, watched: &Watched, reason: Reason, look: &LastLook) {
        self.report(watched, &format!("{} {}", watched.name, why(reason)), look);
    }

    /// Another program ends it.
    pub(super) fn report_end_from_outside(&self, watched: &Watched, look: &LastLook) {
        let sentence = format!("{} is being ended from outside (SIGTERM); this is where it stood", watched.name);
        self.report(watched, &sentence, look);
    }

    /// Something in it hangs, and the rest goes on.
    pub(super) fn report_partial_hang(&self, watched: &Watched, report: &Report) {
        self.say(&format!("lockscope: a part of {} hangs, and the rest goes on", watched.name));
        self.print(report);
        if let Some(directory) = &self.directory {
            self.written(self.keep(directory, "beside", report));
        }
    }

    /// It hangs, by all that is seen, and is not ended yet: `until` says when it will be.
    pub(super) fn report_early(&self, watched: &Watched, until: &str, report: &Report) {
        self.say(&format!("lockscope: {} seems to hang{until}", watched.name));
        self.print(report);
        if let Some(directory) = &self.directory {
            self.written(self.keep(directory, "early", report));
        }
    }

    /// Reports the lock orders of a recorded command that has ended.
    pub(super) fn report_orders(&self, watched: &Watched, report: &Report) {
        let mut files = Vec::new();
        if report.verdict == Verdict::CouldDeadlock {
            self.say(&format!("lockscope: {} did not hang, and could", watched.name));
            self.print(report);
            if is_on_github() {
                report_to_github(report, &watched.name);
            }
        }
        // The last gap is in every report, so it is no news.
        let lost = report.gaps.split_last().map(|(_, lost)| lost).unwrap_or_default();
        if report.verdict == Verdict::NothingFound {
            for gap in lost.iter().take(MOST_PLACES) {
                self.say(&format!("lockscope: not all was recorded: {}: {}", gap.what, gap.why));
            }
            if let Some(more) = lost.len().checked_sub(MOST_PLACES).filter(|more| *more > 0) {
                self.say(&format!(
                    "lockscope: not all was recorded: {more} more gaps stand in the report (--report-dir)"
                ));
            }
        }
        if let Some(directory) = &self.directory {
            files = self.written(self.keep(directory, "orders", report));
        }
        let Some(file) = self.junit.as_ref().filter(|_| report.verdict == Verdict::CouldDeadlock) else { return };
        let properties: Vec<(String, String)> = report
            .findings
            .iter()
            .map(|finding| (format!("lockscope.{}", finding.code), finding.title.clone()))
            .collect();
        let mut bytes = Vec::new();
        let written = junit::render_passed(&watched.name, watched.since.elapsed(), &properties, &files, &mut bytes);
        if let Err(error) =
            written.map_err(|error| CliError::new(error.to_string())).and_then(|()| output::named(file, &bytes))
        {
            output::say(&error.to_string());
        }
    }

    fn report(&self, watched: &Watched, sentence: &str, look: &LastLook) {
        let report = look.as_ref().ok().map(|outcome| &outcome.report);
        let test = report.filter(|_| !watched.is_test).and_then(suite::shown_in);
        let in_test = test.as_ref().map(|test| format!(", in the test {test}")).unwrap_or_default();
        self.say(&format!("lockscope: {sentence}{in_test}"));
        let mut files = Vec::new();
        match look {
            Ok(outcome) => {
                self.print(&outcome.report);
                if let Some(directory) = &self.directory {
                    files = self.written(self.keep_all(directory, outcome));
                }
                if is_on_github() {
                    report_to_github(&outcome.report, test.as_deref().unwrap_or(&watched.name));
                }
            }
            Err(error) => self.say(&format!("lockscope: it could not be looked at any more: {error}")),
        }
        let in_directory = self.directory.as_ref().map(|directory| directory.join(self.file("hang", "xml")));
        if self.junit.is_none() && in_directory.is_none() {
            return;
        }
        let bytes = match junit_file(watched, test.as_deref(), sentence, report, &files) {
            Ok(bytes) => bytes,
            Err(error) => return output::say(&error.to_string()),
        };
        for file in self.junit.iter().chain(&in_directory) {
            if let Err(error) = output::named(file, &bytes) {
                output::say(&error.to_string());
            }
        }
    }

    fn file(&self, what: &str, ending: &str) -> String {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let host = private_file::name_part(&host.to_string_lossy());
        let again = if self.before == 0 { String::new() } else { format!("-{}", self.before + 1) };
        format!("{what}-{host}-{}{again}.{ending}", self.pid)
    }

    fn say(&self, line: &str) {
        if !self.is_silent {
            output::say(&render::escape(line));
        }
    }

    fn print(&self, report: &Report) {
        if !self.is_silent {
            let _ = std::io::stderr().lock().write_all(&text(report, &self.style));
        }
    }

    /// The report in each form, and a snapshot.
    fn keep_all(&self, directory: &Path, outcome: &Outcome) -> Result<Vec<PathBuf>, CliError> {
        let mut kept = self.keep(directory, "hang", &outcome.report)?;
        kept.push(self.keep_snapshot(directory, outcome)?);
        Ok(kept)
    }

    /// The report in each form.
    fn keep(&self, directory: &Path, what: &str, report: &Report) -> Result<Vec<PathBuf>, CliError> {
        let forms = [("txt", Format::Text), ("html", Format::Html), ("json", Format::Json), ("md", Format::Markdown)];
        let write = |(ending, format)| {
            let path = directory.join(self.file(what, ending));
            output::report(&path, report, format, Detail::default()).map(|()| path)
        };
        forms.into_iter().map(write).collect()
    }

    fn keep_snapshot(&self, directory: &Path, outcome: &Outcome) -> Result<PathBuf, CliError> {
        let path = directory.join(self.file("hang", "snapshot.zst"));
        output::snapshot(&path, outcome).map(|_| path)
    }

    /// Say what became of files.
    fn written(&self, files: Result<Vec<PathBuf>, CliError>) -> Vec<PathBuf> {
        match files {
            Ok(files) => {
                self.say(&format!("lockscope: {}", named_together(&files)));
                files
            }
            Err(error) => {
                output::say(&error.to_string());
                Vec::new()
            }
        }
    }
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Hang => "hangs",
        Reason::NoProgress => "has made no progress for the time given by --hang-after",
        Reason::Timeout => "has run for the time given by --timeout",
        Reason::TestTimeout => "has run for longer than its time limit",
    }
}

/// One line: what is wrong, and on which lines. `was_left`: an earlier test has left it, and it is no fault of the one that runs.
fn headline(reason: Reason, report: &Report, pid: i32, was_left: bool) -> String {
    let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let relative = |place: &str| {
        let inside = Path::new(place).strip_prefix(&directory).ok();
        inside.map_or_else(|| place.to_owned(), |inside| inside.display().to_string())
    };
    let places: Vec<String> = render::places_of_members(report).iter().map(|place| relative(place)).collect();
    let mut at = places.iter().take(MOST_PLACES).cloned().collect::<Vec<_>>().join(", ");
    if places.len() > MOST_PLACES {
        at += &format!(" and {} more", places.len() - MOST_PLACES);
    }
    let at = if at.is_empty() { at } else { format!(" ({at})") };
    let why = match (reason, was_left) {
        (Reason::TestTimeout, false) => "over its time limit: ".to_owned(),
        (Reason::TestTimeout, true) => "over its time limit; an earlier test has left: ".to_owned(),
        // It came to wait for that, or for a thread that does.
        (_, true) => {
            let here = render::main_thread(report).map(|(here, place)| {
                let place = place.map(|place| format!(" ({})", relative(&place))).unwrap_or_default();
                format!("{here}{place}, and ")
            });
            format!("{}an earlier test has left: ", here.unwrap_or_default())
        }
        (_, false) => String::new(),
    };
    // A summary may be sentences long.
    let title = render::headline(report);
    let first = title.split_once(". ").map_or(title, |(first, _)| first);
    render::escape(&format!("{why}{}: {first}{at}", report.verdict.words()))
}

/// `reports: DIR/hang-host-12.{txt,html}`.
fn named_together(files: &[PathBuf]) -> String {
    let Some(first) = files.first() else { return "no reports were written".to_owned() };
    let stem = first.with_extension("");
    let name = stem.display().to_string();
    let ending = |file: &PathBuf| file.display().to_string().strip_prefix(&format!("{name}.")).map(str::to_owned);
    let endings: Vec<String> = files.iter().filter_map(ending).collect();
    format!("reports: {name}.{{{}}}", endings.join(","))
}

fn text(report: &Report, style: &Style) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    let _ = render::render(report, Format::Text, style, &mut bytes);
    bytes
}

/// A folder that exists now and can be written to.
fn writable(path: &Path) -> Result<PathBuf, CliError> {
    private_file::folder(path).map_err(|error| CliError::new(format!("cannot write to `{}`: {error}", path.display())))
}

fn junit_file(
    watched: &Watched,
    test: Option<&str>,
    sentence: &str,
    report: Option<&Report>,
    attachments: &[PathBuf],
) -> Result<Vec<u8>, CliError> {
    let wrong = report.filter(|report| report.verdict.exit_code() != 0);
    let message = match wrong {
        Some(report) => format!("{}: {}. {}", report.verdict.as_str(), render::headline(report), report.summary),
        None => sentence.to_owned(),
    };
    let hung = HungTest {
        name: test.unwrap_or(&watched.name).to_owned(),
        time: watched.since.elapsed().max(Duration::from_millis(1)),
        kind: wrong.map_or("timeout", |report| report.verdict.as_str()).to_owned(),
        message,
        text: report
            .map(|report| String::from_utf8_lossy(&text(report, &Style::plain())).into_owned())
            .unwrap_or_default(),
        attachments: attachments.to_vec(),
    };
    let suite = if watched.is_test { "pytest" } else { "lockscope run" };
    let mut bytes = Vec::new();
    junit::render(suite, &watched.ended, &hung, &mut bytes)
        .map_err(|error| CliError::new(format!("cannot render JUnit's XML: {error}")))?;
    Ok(bytes)
}

fn is_on_github() -> bool {
    std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true")
}

/// An annotation in the log, and the report in the summary of the step.
fn report_to_github(report: &Report, what: &str) {
    let checkout = std::env::var_os("GITHUB_WORKSPACE").map(PathBuf::from).unwrap_or_default();
    output::say(&github::annotation(report, what, &checkout));
    let Some(summary) = std::env::var_os("GITHUB_STEP_SUMMARY").map(PathBuf::from) else { return };
    let mut bytes = b"\n".to_vec();
    let _ = markdown::render(report, &mut bytes);
    let before = std::fs::metadata(&summary).map_or(0, |metadata| metadata.len());
    if before + bytes.len() as u64 > MOST_SUMMARY {
        return output::say("lockscope: the summary of this step is full");
    }
    let written = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&summary)
        .and_then(|mut file| file.write_all(&bytes));
    if let Err(error) = written {
        output::say(&format!("lockscope: cannot write `{}`: {error}", summary.display()));
    }
}
