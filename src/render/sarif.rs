//! Findings as SARIF 2.1.0, for code scanning of CI systems and the problem lists of editors.
//!
//! In: a report and a [`Style`], whose working directory is the root of the sources. Out: one run: a result for each finding, at the line
//! where its first member waits, with the lines of the others beside it. A report without a finding has no result.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::{Style, short};
use crate::report::{Finding, Report, Severity};

/// Lines of further members that a result has.
const MOST_RELATED: usize = 32;
/// The name of the folder that relative addresses are below.
const ROOT: &str = "SRCROOT";

/// A line of source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    file: String,
    line: u32,
    /// The statement about it: waits, holds.
    does: String,
}

/// Write `report` as SARIF.
pub(crate) fn render(report: &Report, style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
    let root = style.working_directory.as_deref();
    let results: Vec<Value> =
        report.findings.iter().enumerate().map(|(position, finding)| result(report, position, finding, root)).collect();
    let mut rules: Vec<Value> = Vec::new();
    for finding in &report.findings {
        if !rules.iter().any(|rule| rule["id"] == finding.code.as_str()) {
            let help = format!("lockscope explain {}", finding.code);
            rules.push(json!({"id": finding.code, "name": finding.code, "help": {"text": help}}));
        }
    }
    let mut run = json!({
        "tool": {"driver": {"name": "lockscope", "version": report.lockscope, "rules": rules}},
        "columnKind": "utf16CodeUnits",
        "results": results,
        "properties": {"verdict": report.verdict.as_str()},
    });
    if let Some(root) = root.and_then(Path::to_str) {
        run["originalUriBaseIds"] = json!({ROOT: {"uri": format!("file://{}/", escaped(root.trim_end_matches('/')))}});
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

fn result(report: &Report, position: usize, finding: &Finding, root: Option<&Path>) -> Value {
    let lines = lines(report, position, finding);
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let mut message = super::escape(&finding.title);
    if !finding.message.is_empty() {
        message += &format!("\n{}", super::escape(&finding.message));
    }
    for help in &finding.help {
        message += &format!("\nhelp: {}", super::escape(help));
    }
    let mut result = json!({
        "ruleId": finding.code,
        "level": level,
        "message": {"text": message},
        "partialFingerprints": {"lockscope/v1": fingerprint(finding, &lines)},
    });
    if let [first, more @ ..] = lines.as_slice() {
        result["locations"] = json!([location(first, root, None)]);
        let related = more.iter().take(MOST_RELATED).enumerate();
        let related: Vec<Value> = related.map(|(at, line)| location(line, root, Some(at + 1))).collect();
        if !related.is_empty() {
            result["relatedLocations"] = Value::from(related);
        }
    }
    result
}

/// Where the members of a finding are: those of the first are in the scenes, each with what happens there.
fn lines(report: &Report, position: usize, finding: &Finding) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |line: Line| {
        if !lines.iter().any(|known| (&known.file, known.line) == (&line.file, line.line)) {
            lines.push(line);
        }
    };
    if position == 0 {
        // The line of a wait is the last of its scene, and the one to go to.
        for scene in &report.scenes {
            let of_place = |place: &crate::report::ParticipantPlace| {
                let line = |one: &crate::report::ParticipantLine| {
                    let (file, line) = (place.file.clone()?, one.line.or(place.line)?);
                    Some(Line { file, line, does: format!("{}: {}", scene.who, one.does) })
                };
                place.lines.iter().filter_map(line).collect::<Vec<_>>()
            };
            scene.places.iter().flat_map(of_place).collect::<Vec<_>>().into_iter().rev().for_each(&mut add);
        }
    }
    if lines.is_empty() {
        for reference in &finding.threads {
            let Some(process) = report.processes.iter().find(|one| one.id == reference.process) else { continue };
            let Some(thread) = process.threads.iter().find(|one| one.tid == reference.tid) else { continue };
            // A place without a line is none that an editor could go to.
            let place = short::place(report, process, thread);
            let placed = place.as_deref().and_then(|place| place.rsplit_once(':'));
            if let Some((file, line)) = placed.and_then(|(file, line)| Some((file, line.parse().ok()?))) {
                let line = Line { file: file.to_owned(), line, does: thread.name.clone() };
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    lines
}

fn location(line: &Line, root: Option<&Path>, id: Option<usize>) -> Value {
    let below = root.and_then(|root| Path::new(&line.file).strip_prefix(root).ok()).and_then(Path::to_str);
    let artifact = match below {
        Some(below) => json!({"uri": escaped(below), "uriBaseId": ROOT}),
        None if line.file.starts_with('/') => json!({"uri": format!("file://{}", escaped(&line.file))}),
        None => json!({"uri": escaped(&line.file)}),
    };
    let mut location = json!({
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line.line.max(1)}},
        "message": {"text": super::escape(&line.does)},
    });
    if let Some(id) = id {
        location["id"] = Value::from(id);
    }
    location
}

/// The same in each run: the finding, and the files and lines of its members.
fn fingerprint(finding: &Finding, lines: &[Line]) -> String {
    let mut places: Vec<String> = lines.iter().map(|line| format!("{}:{}", line.file, line.line)).collect();
    places.sort();
    [vec![finding.code.clone()], places].concat().join(" ")
}

/// A path as part of an address.
fn escaped(path: &str) -> String {
    let mut address = String::new();
    for byte in path.bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => address.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => address.push(byte.into()),
            // Writing to a String cannot fail.
            byte => drop(write!(address, "%{byte:02X}")),
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::seed;

    fn log(report: &Report, root: Option<&str>) -> Value {
        let mut out = Vec::new();
        let style = Style { working_directory: root.map(Into::into), ..Style::plain() };
        render(report, &style, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn each_finding_is_a_result_at_its_line() {
        let report = seed();
        let log = log(&report, Some("/home/me"));
        let run = &log["runs"][0];
        assert_eq!(
            (log["version"].as_str(), run["tool"]["driver"]["name"].as_str()),
            (Some("2.1.0"), Some("lockscope"))
        );
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), report.findings.len());
        let first = &results[0];
        assert_eq!(
            (first["ruleId"].as_str(), first["level"].as_str()),
            (Some(&*report.findings[0].code), Some("error"))
        );
        let place = &first["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uriBaseId"], ROOT);
        assert!(place["artifactLocation"]["uri"].as_str().unwrap().ends_with(".py"), "{place}");
        assert!(place["region"]["startLine"].as_u64().is_some_and(|line| line > 0));
        assert_eq!(run["originalUriBaseIds"][ROOT]["uri"], "file:///home/me/");
    }

    #[test]
    fn what_is_not_wrong_has_no_result_and_addresses_are_escaped() {
        let mut report = seed();
        report.findings.clear();
        assert_eq!(log(&report, None)["runs"][0]["results"], json!([]));
        assert_eq!(escaped("/a b/ü%.py"), "/a%20b/%C3%BC%25.py");
    }
}
