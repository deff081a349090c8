//! Metrics of a service, in OpenMetrics format, in a file that node_exporter's textfile collector reads.
//!
//! In: looks, events, and what is watched. Out: a file, written aside and renamed, so that nobody reads half of it. No port is opened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::events::{Event, Happened};
use crate::cli::CliError;

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// Processes by name: how many are watched, and how many of these hang.
    watched: BTreeMap<String, (u64, u64)>,
    /// Hangs by name and code.
    hangs: BTreeMap<(String, String), u64>,
    looks: u64,
    spent: Duration,
    held_back: u64,
}

impl Metrics {
    /// A look that took this much of a processor.
    pub(super) fn looked(&mut self, cost: Duration) {
        self.looks += 1;
        self.spent += cost;
    }

    /// An event.
    pub(super) fn count(&mut self, event: &Event) {
        if event.event != Happened::Recovered {
            let code = event.code.clone().unwrap_or_else(|| "none".to_owned());
            *self.hangs.entry((event.name.clone(), code)).or_default() += 1;
        }
    }

    /// Whether something has hung.
    pub(super) fn has_hung(&self) -> bool {
        !self.hangs.is_empty()
    }

    /// Take in the watched processes, each with whether it hangs. A name without a process stays, with zeros.
    pub(super) fn set_watched(&mut self, all: Vec<(String, bool)>, held_back: u64) {
        self.watched.values_mut().for_each(|counts| *counts = (0, 0));
        for (name, is_hung) in all {
            let (count, hung) = self.watched.entry(name).or_default();
            *count += 1;
            *hung += u64::from(is_hung);
        }
        self.held_back = held_back;
    }

    fn text(&self, now: f64) -> String {
        let mut text = String::new();
        // Writing to memory cannot fail.
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, String)>| {
            let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
            let ending = if kind == "counter" { "_total" } else { "" };
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{ending}{labels} {value}");
            }
        };
        let by_name = |value: fn(&(u64, u64)) -> u64| {
            let sample =
                |(name, counts): (&String, &(u64, u64))| (labels(&[("name", name)]), value(counts).to_string());
            self.watched.iter().map(sample).collect::<Vec<_>>()
        };
        family("lockscope_watched_processes", "gauge", "Processes that are watched.", by_name(|counts| counts.0));
        family("lockscope_hung_processes", "gauge", "Watched processes that hang now.", by_name(|counts| counts.1));
        let hangs = self.hangs.iter();
        let hangs = hangs.map(|((name, code), count)| (labels(&[("name", name), ("code", code)]), count.to_string()));
        family("lockscope_hangs", "counter", "Hangs, by finding.", hangs.collect());
        let one = |value: String| vec![(String::new(), value)];
        family("lockscope_looks", "counter", "Looks at processes.", one(self.looks.to_string()));
        family(
            "lockscope_look_cpu_seconds",
            "counter",
            "Processor time of looks.",
            one(format!("{:.3}", self.spent.as_secs_f64())),
        );
        let held_back = one(self.held_back.to_string());
        family("lockscope_events_held_back", "counter", "Events beyond the most of an hour.", held_back);
        let written = one(format!("{now:.3}"));
        family("lockscope_written_timestamp_seconds", "gauge", "When this file was written.", written);
        text.push_str("# EOF\n");
        text
    }

    /// Replace the file. Others may read it.
    pub(super) fn write(&self, path: &Path) -> Result<(), CliError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        // The collector reads names that end in .prom, and no others.
        let aside = path.with_extension(format!("{}.lockscope", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o644).open(&aside)?;
            file.write_all(self.text(now).as_bytes())?;
            std::fs::rename(&aside, path)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&aside);
            CliError::new(format!("cannot write `{}`: {error}", path.display()))
        })
    }
}

/// `{name="web",code="join-cycle"}`.
fn labels(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_openmetrics() {
        let mut metrics = Metrics::default();
        metrics.set_watched(vec![("web".into(), true), ("web".into(), false), ("a \"b\\".into(), false)], 3);
        metrics.hangs.insert(("web".into(), "join-cycle".into()), 2);
        metrics.looked(Duration::from_millis(1500));
        let text = metrics.text(12.5);
        for line in [
            "# TYPE lockscope_hangs counter",
            "lockscope_watched_processes{name=\"web\"} 2",
            "lockscope_watched_processes{name=\"a \\\"b\\\\\"} 1",
            "lockscope_hung_processes{name=\"web\"} 1",
            "lockscope_hangs_total{name=\"web\",code=\"join-cycle\"} 2",
            "lockscope_looks_total 1",
            "lockscope_look_cpu_seconds_total 1.500",
            "lockscope_events_held_back_total 3",
            "lockscope_written_timestamp_seconds 12.500",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        // A name stays in the file, so that nobody takes its absence for health.
        metrics.set_watched(Vec::new(), 0);
        assert!(metrics.text(0.0).contains("lockscope_watched_processes{name=\"web\"} 0"));
    }
}
