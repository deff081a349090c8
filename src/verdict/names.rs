//! How threads, locks and calls are called in sentences, and the ids that they have in the report.
//!
//! In: a [`JudgeInput`]. Out: words and ids. It decides nothing.

use std::collections::{HashMap, HashSet};

use super::{JudgeInput, call_sites};
use crate::report;
use crate::threads::{Frame, FrameKind, Thread};
use crate::waits::kinds::Topic;
use crate::waits::label::{Called, Label};
use crate::waits::model::Scope;
use crate::waits::{Party, Resource, ResourceKey, Wait};

/// Names and ids for one judgement.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    input: &'a JudgeInput<'a>,
    ids: HashMap<&'a ResourceKey, usize>,
    keys: Vec<&'a ResourceKey>,
    /// The description of each resource, so that thousands of waits search nothing.
    resources: HashMap<&'a ResourceKey, &'a Resource>,
    threads: HashMap<(usize, i32), &'a Thread>,
    /// Resources that others of the same process are called like.
    twins: HashSet<&'a ResourceKey>,
}

/// Words for a [`CallSite`](crate::report::CallSite).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallPhrase {
    /// The function with a known name: the driver's entry point, else the one that waits.
    pub api: Option<String>,
    /// The line of the program that called it, as "train.py:56"; without `api` the line that waits.
    pub line: Option<String>,
    /// The function there.
    pub function: Option<String>,
}

impl CallPhrase {
    /// " in cuLaunchKernel, called by step at train.py:56", or less where less is known.
    pub(crate) fn phrase(&self) -> String {
        let mut text = String::new();
        if let Some(api) = &self.api {
            text += &format!(" in {api}");
        }
        match (&self.line, &self.function, text.is_empty()) {
            (Some(line), Some(function), false) => text += &format!(", called by {function} at {line}"),
            (Some(line), Some(function), true) => text += &format!(" in {function} at {line}"),
            (Some(line), None, _) => text += &format!(" at {line}"),
            (None, Some(function), false) => text += &format!(", called by {function}"),
            (None, Some(function), true) => text += &format!(" in {function}"),
            (None, None, _) => {}
        }
        text
    }
}

impl<'a> Names<'a> {
    /// Names for one judgement.
    pub(crate) fn new(input: &'a JudgeInput<'a>) -> Self {
        let seen = input.observations;
        let processes = input.threads.iter().enumerate();
        let threads = processes.flat_map(|(process, threads)| threads.iter().map(move |one| ((process, one.tid), one)));
        let mut names = Names {
            input,
            ids: HashMap::new(),
            keys: Vec::new(),
            resources: seen.resources.iter().map(|resource| (&resource.key, resource)).collect(),
            threads: threads.collect(),
            twins: HashSet::new(),
        };
        // A key that a decoder used without describing it still gets an id: nothing in the report dangles.
        let holders = seen.holds.iter().map(|hold| &hold.holder).chain(seen.waits.iter().map(|wait| &wait.waiter));
        let parties = holders.filter_map(|party| if let Party::Resource(key) = party { Some(key) } else { None });
        let keys = seen.resources.iter().map(|resource| &resource.key);
        let used = seen.waits.iter().map(|wait| &wait.resource).chain(seen.holds.iter().map(|hold| &hold.resource));
        for key in keys.chain(used).chain(parties) {
            let next = names.keys.len();
            if *names.ids.entry(key).or_insert(next) == next {
                names.keys.push(key);
            }
        }
        let mut named: HashMap<(&Scope, String), Vec<&'a ResourceKey>> = HashMap::new();
        for key in &names.keys {
            let label = names.own_label(key);
            if label.name.is_some() && label.at.is_none() {
                named.entry((&key.scope, label.to_string())).or_default().push(key);
            }
        }
        names.twins = named.into_values().filter(|keys| keys.len() > 1).flatten().collect();
        names
    }

    /// All resources in order of their ids.
    pub(crate) fn keys(&self) -> &[&'a ResourceKey] {
        &self.keys
    }

    /// The description of a resource.
    pub(crate) fn described(&self, key: &ResourceKey) -> Option<&'a Resource> {
        self.resources.get(key).copied()
    }

    /// `r1`, `r2`, ...
    pub(crate) fn resource_id(&self, key: &ResourceKey) -> String {
        self.ids.get(key).map_or_else(|| "r0".into(), |position| format!("r{}", position + 1))
    }

    /// Its id, if a party is a resource.
    pub(crate) fn id_if_resource(&self, party: &Party) -> Option<String> {
        match party {
            Party::Resource(key) => Some(self.resource_id(key)),
            _ => None,
        }
    }

    /// `p0`, `p1`, ...
    pub(crate) fn process_id(&self, process: usize) -> String {
        format!("p{process}")
    }

    /// The merged thread.
    pub(crate) fn thread(&self, process: usize, tid: i32) -> Option<&'a Thread> {
        self.threads.get(&(process, tid)).copied()
    }

    /// Its frames, innermost first; empty for a party that is no captured thread.
    pub(crate) fn frames(&self, party: &Party) -> &'a [Frame] {
        match party {
            Party::Thread(process, tid) => self.thread(*process, *tid).map_or(&[], |thread| &thread.frames),
            _ => &[],
        }
    }

    fn is_gone(&self, party: &Party) -> bool {
        self.input.observations.holds.iter().any(|hold| hold.holder == *party && hold.gone.is_some())
    }

    fn pid(&self, process: usize) -> i32 {
        self.input.image.processes.get(process).map_or(0, |image| image.pid)
    }

    fn thread_name(&self, process: usize, tid: i32) -> Option<&'a str> {
        let merged = self.thread(process, tid).map(|thread| thread.name.as_str());
        let kernel = || self.input.image.processes.get(process)?.thread(tid).map(|thread| thread.name.as_str());
        merged.or_else(kernel).filter(|name| !name.trim().is_empty())
    }

    /// "MainThread (533)", "process 12", "the GIL".
    pub(crate) fn party(&self, party: &Party) -> String {
        match party {
            Party::Thread(process, tid) => {
                let pid = self.pid(*process);
                let place = match self.input.image.processes.len() > 1 && pid != *tid {
                    true => format!(" of process {pid}"),
                    false => String::new(),
                };
                match self.thread_name(*process, *tid) {
                    Some(name) => format!("{name} ({tid}){place}"),
                    None => format!("thread {tid}{place}"),
                }
            }
            Party::Process(process) => format!("process {}", self.pid(*process)),
            Party::Resource(key) => self.resource(key),
            Party::Absent(_, 0) if self.is_gone(party) => "a thread that is gone".into(),
            Party::Absent(_, 0) => "a process that was not captured".into(),
            Party::Absent(_, tid) if self.is_gone(party) => format!("thread {tid} (gone)"),
            Party::Absent(_, pid) => format!("process {pid}, which was not captured"),
        }
    }

    /// "MainThread", for texts that have its id already.
    pub(crate) fn party_by_name(&self, party: &Party) -> String {
        match party {
            Party::Thread(process, tid) => {
                self.thread_name(*process, *tid).map_or_else(|| format!("thread {tid}"), str::to_owned)
            }
            other => self.party(other),
        }
    }

    /// "thread 885 'MainThread'": for the beginning of a sentence.
    pub(crate) fn party_in_full(&self, party: &Party) -> String {
        match party {
            Party::Thread(process, tid) => match self.thread_name(*process, *tid) {
                Some(name) => format!("thread {tid} '{name}'"),
                None => format!("thread {tid}"),
            },
            other => self.party(other),
        }
    }

    /// "the GIL", "rwlock 0x33b84080 in libcuda.so.1".
    pub(crate) fn resource(&self, key: &ResourceKey) -> String {
        self.called(key).to_string()
    }

    /// In a title: the name alone, where the program has one.
    pub(crate) fn bare(&self, key: &ResourceKey) -> String {
        let label = self.label(key);
        match &label.name {
            Some(name) if label.offset == 0 => match &label.at {
                Some(at) => format!("`{name}` ({at})"),
                None => format!("`{name}`"),
            },
            _ => self.called(key).to_string(),
        }
    }

    /// The common name of many things like it, if that differs from its own name.
    pub(crate) fn resource_in_general(&self, key: &ResourceKey) -> Option<String> {
        let label = self.label(key);
        label.is_one_of_many().then(|| label.called_in_general().to_string())
    }

    /// Its label; of one that no decoder described what its kind is called, and where it is.
    pub(crate) fn label(&self, key: &ResourceKey) -> Label {
        let label = self.own_label(key);
        // Two things never bear the same name: a reader would take them for one.
        let is_told_apart = label.name.is_none() || label.at.is_some() || key.address.is_null();
        if is_told_apart || !self.twins.contains(key) { label } else { label.at(key.address) }
    }

    fn own_label(&self, key: &ResourceKey) -> Label {
        match self.described(key).filter(|resource| !resource.label.is_empty()) {
            Some(resource) => resource.label.clone(),
            None if key.kind.topic == Topic::Gil => key.kind.noun.into(),
            None => Label::from(key.kind.noun).at(key.address),
        }
    }

    fn called(&self, key: &ResourceKey) -> Called {
        let called = self.label(key).called();
        if key.kind.topic == Topic::Gil { called.definite() } else { called }
    }

    /// A holder's relation to a resource: "holds the GIL", "runs in child process 12".
    pub(crate) fn held(&self, key: &ResourceKey) -> String {
        key.kind.holding.held(&self.called(key))
    }

    /// The object of a wait, with its mode: "rwlock 0x33b84080 (read)".
    pub(crate) fn waited_for(&self, wait: &Wait) -> String {
        let label = self.resource(&wait.resource);
        match wait.mode {
            Some(mode) if wait.resource.kind.topic != Topic::Gil => format!("{label} ({mode})"),
            _ => label,
        }
    }

    /// The call that waits at this frame of `party`, or where it is.
    pub(crate) fn call(&self, party: &Party, frame: Option<usize>) -> CallPhrase {
        let frames = self.frames(party);
        let site = frame.map_or_else(|| call_sites::anywhere(frames), |frame| call_sites::call_site(frames, frame));
        let at = |index: Option<usize>| index.and_then(|index| frames.get(index));
        let function = |frame: &Frame| frame.function.as_deref().map(report::short_function);
        let Some(called) = at(site.call) else { return CallPhrase::default() };
        match at(site.caller) {
            Some(caller) => CallPhrase { api: function(called), line: source_line(caller), function: function(caller) },
            None if site.is_own_line(called.file.is_some(), call_sites::library_of(called)) => {
                CallPhrase { api: None, line: source_line(called), function: function(called) }
            }
            None => CallPhrase { api: function(called), ..CallPhrase::default() },
        }
    }

    /// Whether this frame is code of the CUDA driver or runtime: by its function, or by the library that it lies in.
    pub(crate) fn is_driver(&self, frame: &Frame) -> bool {
        let is_cudas = |module: &str| self.input.observations.cuda.iter().any(|library| library.name == module);
        is_driver_function(frame) || frame.kind == FrameKind::Native && frame.module.as_deref().is_some_and(is_cudas)
    }

    /// The thread as the report refers to it; `None` for a party that is no thread.
    pub(crate) fn reference(&self, party: &Party) -> Option<report::ThreadReference> {
        match party {
            Party::Thread(process, tid) => {
                Some(report::ThreadReference { process: self.process_id(*process), tid: *tid })
            }
            _ => None,
        }
    }
}

/// "train.py:56".
pub(crate) fn source_line(frame: &Frame) -> Option<String> {
    let short = report::short_word(report::short_path(frame.file.as_deref()?));
    Some(frame.line.map_or_else(|| short.to_string(), |line| format!("{short}:{line}")))
}

/// Whether this is an entry point of the CUDA driver or runtime: `cuLaunchKernel`, `cudaMalloc`.
pub(crate) fn is_driver_function(frame: &Frame) -> bool {
    call_sites::library_of(frame) == Some(report::Library::Cuda)
}
