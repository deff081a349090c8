//! Which processes a service watches: those of names and units, found again after restarts, and those of ids.
//!
//! In: the arguments of `watch`, and /proc. Out: [`Target`]s. It takes no sample.

use std::collections::BTreeSet;

use crate::cli::{CliError, ProcessName, WatchArguments, output, processes};
use crate::image::live;
use crate::render::escape;
use crate::run::sample::start_time;

/// A process to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) pid: i32,
    /// When it started: another process may get its id.
    pub(super) started: u64,
    /// The name or unit by which it was found; for an id, the kernel's name.
    pub(super) name: String,
}

impl Target {
    /// `gunicorn (442)`.
    pub(super) fn described(&self) -> String {
        format!("{} ({})", self.name, self.pid)
    }
}

/// The ids, names and units to search for.
#[derive(Debug)]
pub(super) struct Targets {
    ids: Vec<i32>,
    names: Vec<String>,
    units: Vec<String>,
    /// Messages about missing and refused processes, each printed once.
    said: BTreeSet<String>,
    is_first: bool,
}

impl Targets {
    pub(super) fn of(arguments: &WatchArguments) -> Targets {
        let ids = arguments.processes.iter().filter_map(|one| match one {
            ProcessName::Pid(pid) => Some(*pid),
            ProcessName::Name(_) => None,
        });
        let names = arguments.processes.iter().filter_map(|one| match one {
            ProcessName::Name(name) => Some(name.clone()),
            ProcessName::Pid(_) => None,
        });
        Targets {
            ids: ids.collect(),
            names: names.collect(),
            units: arguments.units.clone(),
            said: BTreeSet::new(),
            is_first: true,
        }
    }

    /// Whether nothing can come any more: only ids were given, and their processes have ended.
    pub(super) fn are_over(&self) -> bool {
        self.names.is_empty() && self.units.is_empty() && self.ids.iter().all(|pid| start_time(*pid).is_none())
    }

    /// All present processes that lockscope may attach to. A process that was named by its id must be there at first.
    pub(super) fn search(&mut self) -> Result<Vec<Target>, CliError> {
        let mut found: Vec<Target> = Vec::new();
        for pid in self.ids.clone() {
            match start_time(pid) {
                Some(started) => found.push(Target { pid, started, name: processes::name_of(pid) }),
                None if self.is_first => {
                    return Err(CliError::new(live::AttachError::NoSuchProcess { pid }.to_string()));
                }
                None => {}
            }
        }
        let of = |name: &String, pids: Vec<i32>| -> Vec<Target> {
            let target = |pid: i32| Some(Target { pid, started: start_time(pid)?, name: name.clone() });
            pids.into_iter().filter_map(target).collect()
        };
        for name in self.names.clone() {
            let pids = of(&name, processes::topmost_named(&name));
            self.say_missing(&name, pids.is_empty(), "no process is called");
            found.extend(pids);
        }
        for unit in self.units.clone() {
            let pids = of(&unit, processes::topmost_of_unit(&unit));
            self.say_missing(&unit, pids.is_empty(), "no process runs in the unit");
            found.extend(pids);
        }
        let mut seen = BTreeSet::new();
        found.retain(|target| seen.insert(target.pid));
        let (is_first, all) = (std::mem::take(&mut self.is_first), found.len());
        let mut refused = None;
        found.retain(|target| match live::may_attach(target.pid) {
            Ok(()) => true,
            Err(error) => {
                let sentence = format!("lockscope: {} is not watched: {error}", target.described());
                if self.said.insert(sentence.clone()) {
                    output::say(&escape(&sentence));
                }
                refused = Some(error);
                false
            }
        });
        match refused {
            Some(error) if is_first && found.is_empty() && all > 0 => Err(CliError::new(error.to_string())),
            _ => Ok(found),
        }
    }

    /// Say once that nothing has this name; again only when it was there meanwhile.
    fn say_missing(&mut self, name: &str, is_missing: bool, what: &str) {
        let sentence = format!("lockscope: {what} `{name}` now; it is waited for");
        if !is_missing {
            self.said.remove(&sentence);
        } else if self.said.insert(sentence.clone()) {
            output::say(&escape(&sentence));
        }
    }
}
