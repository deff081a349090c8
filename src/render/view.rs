//! Names for the things of a report: threads, resources, calls; and who waits because of whom.
//!
//! In: a [`Report`]. Out: short strings, neither escaped nor wrapped; spaces that must not become line breaks are
//! no-break spaces. Lays nothing out.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::python::library;
use crate::report::{Certainty, Frame, Hold, Needs, Process, Report, Resource, Thread, Wait};
use crate::waits::kinds::Holding;

/// Stands for a space inside a name until the lines are broken.
pub(super) const NO_BREAK: char = '\u{a0}';

/// A thread's key: process id string and tid.
pub(super) type Key<'a> = (&'a str, i32);

/// A report with indices over it.
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
    processes: HashMap<&'a str, &'a Process>,
    threads: HashMap<Key<'a>, &'a Thread>,
    resources: HashMap<&'a str, &'a Resource>,
    waits: HashMap<Key<'a>, Vec<&'a Wait>>,
    holds: HashMap<&'a str, Vec<&'a Hold>>,
    arrow: &'static str,
}

impl<'a> View<'a> {
    /// Index `report`; `arrow` stands between a call and its caller.
    pub(super) fn new(report: &'a Report, arrow: &'static str) -> View<'a> {
        let mut view = View {
            report,
            processes: report.processes.iter().map(|process| (process.id.as_str(), process)).collect(),
            threads: HashMap::new(),
            resources: report.resources.iter().map(|resource| (resource.id.as_str(), resource)).collect(),
            waits: HashMap::new(),
            holds: HashMap::new(),
            arrow,
        };
        for process in &report.processes {
            for thread in &process.threads {
                view.threads.insert((process.id.as_str(), thread.tid), thread);
            }
        }
        for wait in &report.waits {
            if let Some(tid) = wait.tid {
                view.waits.entry((wait.process.as_str(), tid)).or_default().push(wait);
            }
        }
        for hold in &report.holds {
            view.holds.entry(hold.resource.as_str()).or_default().push(hold);
        }
        view
    }

    pub(super) fn thread(&self, process: &str, tid: i32) -> Option<&'a Thread> {
        self.threads.get(&(process, tid)).copied()
    }

    pub(super) fn resource(&self, id: &str) -> Option<&'a Resource> {
        self.resources.get(id).copied()
    }

    pub(super) fn waits_of<'b>(&'b self, process: &'b str, tid: i32) -> &'b [&'a Wait] {
        self.waits.get(&(process, tid)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn holds_of<'b>(&'b self, resource: &'b str) -> &'b [&'a Hold] {
        self.holds.get(resource).map_or(&[], Vec::as_slice)
    }

    /// What a thread holds.
    pub(super) fn holds_by(&self, process: &str, tid: i32) -> impl Iterator<Item = &'a Hold> {
        self.report.holds.iter().filter(move |hold| hold.process == process && hold.tid == Some(tid))
    }

    /// `MainThread (533)`; with several processes `python3 885: MainThread (533)`.
    pub(super) fn thread_name(&self, process: &str, tid: i32) -> String {
        let name = match self.thread(process, tid) {
            Some(thread) if !thread.name.is_empty() => format!("{} ({tid})", thread.name),
            _ => format!("thread {tid}"),
        };
        let name = match self.report.processes.len() {
            0 | 1 => name,
            _ => format!("{}: {name}", self.process_name(process)),
        };
        keep_together(&name)
    }

    /// A thread, or where no thread is known its whole process.
    pub(super) fn party_name(&self, process: &str, tid: Option<i32>) -> String {
        tid.map_or_else(|| self.process_name(process), |tid| self.thread_name(process, tid))
    }

    /// Who holds something; one that is gone is nobody of its process.
    pub(super) fn holder_name(&self, hold: &Hold) -> String {
        if hold.gone.is_some() { lost_owner(hold) } else { self.party_name(&hold.process, hold.tid) }
    }

    /// `python3 885`.
    pub(super) fn process_name(&self, id: &str) -> String {
        match self.processes.get(id) {
            Some(process) => {
                let program = process.exe.as_deref().or(process.cmdline.first().map(String::as_str));
                keep_together(&format!("{} {}", program.map_or("process", base_name), process.pid))
            }
            None => keep_together(&format!("process {id}")),
        }
    }

    /// `the GIL`, `rwlock 0x33b84080`, "rwlock `g_ctx` 0x7f10 in libcuda.so.1".
    pub(super) fn resource_name(&self, id: &str) -> String {
        let Some(resource) = self.resource(id) else { return keep_together(&format!("resource {id}")) };
        let label = if resource.label.is_empty() { resource.kind.as_str() } else { resource.label.as_str() };
        if resource.is_gil() {
            return if label.starts_with("the ") { label.to_string() } else { format!("the {label}") };
        }
        match &resource.address {
            Some(address) if !label.contains(address.as_str()) => {
                let cut = label.find(" inside ").or_else(|| label.find(" in ")).unwrap_or(label.len());
                format!("{} {address}{}", &label[..cut], &label[cut..])
            }
            _ => label.to_string(),
        }
    }

    /// `waits for rwlock 0x33b84080 (read)`.
    pub(super) fn wait_statement(&self, wait: &Wait) -> String {
        let mut statement = format!("waits for {}", self.resource_name(&wait.resource));
        if let Some(mode) = &wait.mode {
            statement.push_str(&format!(" ({mode})"));
        }
        if wait.timed {
            statement.push_str(" (with a time-out)");
        }
        statement
    }

    /// What somebody is to a resource that he is said to have: "holds the GIL", "belongs to child process 12".
    pub(super) fn held(&self, id: &str) -> String {
        let holding = self.resource(id).map_or(Holding::Holds, |resource| resource.properties().holding);
        holding.held(&self.resource_name(id))
    }

    /// `holds rwlock 0x33b84080 (write)`.
    pub(super) fn hold_statement(&self, hold: &Hold) -> String {
        let mode = hold.mode.as_ref().map(|mode| format!(" ({mode})")).unwrap_or_default();
        let name = self.resource_name(&hold.resource);
        if hold.certainty == Certainty::Candidate {
            let may = self.resource(&hold.resource).map_or(Holding::Holds, |one| one.properties().holding).infinitive();
            return format!("may {may} {name}{mode}");
        }
        format!("{}{mode}", self.held(&hold.resource))
    }

    /// The call in which a thread waits: the API, and the line of the program that called it. `outer` is the frame
    /// of the call that took what this thread holds: Python below it is a callback of that call.
    pub(super) fn wait_call(&self, wait: &Wait, outer: Option<usize>) -> Option<String> {
        let thread = self.thread(&wait.process, wait.tid?)?;
        let index = wait.frame.filter(|&index| index < thread.frames.len())?;
        let outer = outer
            .filter(|&outer| outer > index && thread.frames.get(outer).is_some_and(|frame| frame.kind != "python"));
        if let Some(outer) = outer {
            let inside = &thread.frames[index..outer];
            if let Some(callback) = inside.iter().rev().find(|frame| frame.kind == "python") {
                let place = place(callback).map(|place| format!(" at {place}")).unwrap_or_default();
                return Some(format!("its callback {}{place}", function_name(callback)));
            }
            let gil = self.resource(&wait.resource).is_some_and(|resource| resource.is_gil());
            if gil && thread.frames[outer..].iter().take_while(|f| f.kind != "python").any(is_driver_call) {
                let call = function_name(&thread.frames[self.api_frame(thread, index)]);
                return Some(format!("its callback, on the way into Python ({call})"));
            }
        }
        Some(self.call(thread, index))
    }

    /// The call that took what is held.
    pub(super) fn hold_call(&self, hold: &Hold) -> Option<String> {
        let thread = self.thread(&hold.process, hold.tid?)?;
        let index = hold.frame.filter(|&index| index < thread.frames.len())?;
        Some(self.call(thread, index))
    }

    /// What a thread waits for, or its state; and the call in which it does.
    pub(super) fn doing(&self, process: &str, thread: &Thread) -> (String, Option<String>) {
        match self.waits_of(process, thread.tid) {
            [wait] => (self.wait_statement(wait), self.wait_call(wait, None)),
            [wait, more @ ..] => {
                (format!("{} or {} more", self.wait_statement(wait), more.len()), self.wait_call(wait, None))
            }
            [] => (thread.state.clone(), self.where_is(thread)),
        }
    }

    /// Frames of a thread that wait or took something, with words for it.
    pub(super) fn marks(&self, process: &str, thread: &Thread) -> Vec<(usize, String)> {
        let waiting: BTreeSet<usize> =
            self.waits_of(process, thread.tid).iter().filter_map(|wait| wait.frame).collect();
        let took = self
            .holds_by(process, thread.tid)
            .filter_map(|hold| Some((hold.frame?, format!("took {}", self.resource_name(&hold.resource)))));
        waiting.into_iter().map(|frame| (frame, "waits here".to_string())).chain(took).collect()
    }

    /// Each thread with the id of its process.
    pub(super) fn each_thread(&self) -> impl Iterator<Item = (&'a str, &'a Thread)> + use<'a> {
        let processes = self.report.processes.iter();
        processes.flat_map(|process| process.threads.iter().map(move |thread| (process.id.as_str(), thread)))
    }

    /// What a thread is doing, for one line: its waiting call, else its innermost frame with a name.
    pub(super) fn where_is(&self, thread: &Thread) -> Option<String> {
        let index = thread.frames.iter().position(|frame| frame.function.is_some())?;
        Some(self.call(thread, index))
    }

    /// `cuLaunchKernel <- train.py:56 step`.
    fn call(&self, thread: &Thread, index: usize) -> String {
        let frames = &thread.frames;
        if frames[index].kind == "python" {
            let python = frames[index..].iter().filter(|frame| frame.kind == "python");
            return match library::call(python, |frame| frame.file.as_deref()) {
                Some((called, caller)) => {
                    format!("{} {}{NO_BREAK}{}", function_name(called), self.arrow, line_and_function(caller))
                }
                None => line_and_function(&frames[index]),
            };
        }
        let api = self.api_frame(thread, index);
        let outside = &frames[api + 1..];
        // A function of the program itself says where it is; an API says who called it.
        let is_library = |frame: &Frame| is_libc(frame) || is_rust_library(frame);
        let own = frames[api].file.is_some() && !is_library(&frames[api]) && !is_driver_call(&frames[api]);
        let caller = outside
            .iter()
            .find(|frame| frame.kind == "python")
            .or_else(|| outside.iter().filter(|_| !own).find(|frame| frame.file.is_some() && !is_library(frame)));
        let call = if own { line_and_function(&frames[api]) } else { function_name(&frames[api]) };
        match caller {
            Some(caller) => format!("{call} {}{NO_BREAK}{}", self.arrow, line_and_function(caller)),
            None => call,
        }
    }

    /// From the frame at `index` outwards to the next Python frame: the outermost driver API, else the frame itself
    /// unless it is an inner function of libc, then the first public one.
    fn api_frame(&self, thread: &Thread, index: usize) -> usize {
        let native = thread.frames[index..].iter().take_while(|frame| frame.kind != "python");
        let native: Vec<&Frame> = native.collect();
        if let Some(driver) = native.iter().rposition(|frame| is_driver_call(frame)) {
            return index + driver;
        }
        let inner = |frame: &Frame| {
            frame.kind == "boundary"
                || frame
                    .function
                    .as_deref()
                    .is_none_or(|f| f.starts_with("__") || f.starts_with("futex") || f == "syscall")
        };
        match native.iter().position(|frame| !inner(frame)) {
            Some(public) => index + public,
            None => index,
        }
    }

    /// Threads that wait, over any number of steps, for a thread of `roots` or for a holder that is gone.
    pub(super) fn victims(&self, roots: &HashSet<Key<'a>>) -> HashSet<Key<'a>> {
        let mut stuck = roots.clone();
        loop {
            let before = stuck.len();
            for wait in &self.report.waits {
                let Some(tid) = wait.tid else { continue };
                let mut holders = self
                    .holds_of(&wait.resource)
                    .iter()
                    .filter(|hold| hold.certainty != Certainty::Candidate)
                    .map(|hold| hold.tid.is_some_and(|tid| stuck.contains(&(hold.process.as_str(), tid))))
                    .peekable();
                let caught = holders.peek().is_some()
                    && match wait.needs {
                        Needs::All => holders.any(|holder_stuck| holder_stuck),
                        Needs::Any => holders.all(|holder_stuck| holder_stuck),
                    };
                if caught {
                    stuck.insert((wait.process.as_str(), tid));
                }
            }
            if stuck.len() == before {
                break;
            }
        }
        stuck.difference(roots).copied().collect()
    }
}

/// "thread 543, gone".
pub(super) fn lost_owner(hold: &Hold) -> String {
    let name = hold.tid.map_or_else(|| "lost owner".to_string(), |tid| format!("thread {tid}"));
    keep_together(&format!("{name}, gone"))
}

/// A function's name without a symbol version, else module and offset.
pub(super) fn function_name(frame: &Frame) -> String {
    let name = match (&frame.function, &frame.module) {
        (Some(function), _) => match function.split_once('@') {
            Some((name, version)) if !name.is_empty() && version.trim_start_matches('@').starts_with("GLIBC") => {
                name.to_string()
            }
            _ => without_arguments(function),
        },
        (None, Some(module)) => {
            let module = base_name(module);
            match (&frame.module_offset, &frame.pc) {
                (Some(offset), _) => format!("{module}+{offset}"),
                (None, Some(pc)) => format!("{module} at {pc}"),
                (None, None) => module.to_string(),
            }
        }
        (None, None) => frame.pc.clone().unwrap_or_else(|| "??".to_string()),
    };
    keep_together(&name)
}

/// `train.py:56`.
pub(super) fn place(frame: &Frame) -> Option<String> {
    let file = short_path(frame.file.as_deref()?);
    Some(keep_together(&match frame.line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_string(),
    }))
}

/// Where a frame is: `train.py:56`, else its module.
pub(super) fn place_or_module(frame: &Frame) -> Option<String> {
    let module = || frame.module.as_deref().filter(|_| frame.function.is_some());
    place(frame).or_else(|| module().map(|module| keep_together(base_name(module))))
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// Keep a name on one line: its spaces do not break.
pub(super) fn keep_together(name: &str) -> String {
    name.replace(' ', "\u{a0}")
}

/// A function's name with the arguments of its templates or generics left out where they make it long: what is inside
/// `<...>` behind a word becomes `…`.
fn without_arguments(name: &str) -> String {
    const LONG: usize = 72;
    if name.chars().count() <= LONG {
        return name.to_string();
    }
    let mut short = String::new();
    let mut depth = 0u32;
    let mut before = ' ';
    for letter in name.chars() {
        // Not the comparison operators of C++, the arrow, or the `<T as Trait>` that a path of Rust begins with.
        let behind_word = before.is_alphanumeric() || "_:}".contains(before);
        match letter {
            '<' if depth > 0 || (behind_word && !short.ends_with("operator")) => {
                if depth == 0 {
                    short.push_str("<…>");
                }
                depth += 1;
            }
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
        before = letter;
    }
    short
}

/// `train.py:56 step`.
fn line_and_function(frame: &Frame) -> String {
    match place(frame) {
        Some(place) => format!("{place} {}", function_name(frame)),
        None => function_name(frame),
    }
}

/// What a reader needs of a path: below site-packages or the standard library, else the file's name.
fn short_path(path: &str) -> &str {
    for packages in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, rest)) = path.rsplit_once(packages) {
            return rest;
        }
    }
    if let Some((_, rest)) = path.rsplit_once("/lib/python")
        && let Some((version, rest)) = rest.split_once('/')
        && version.starts_with(|digit: char| digit.is_ascii_digit())
    {
        return rest;
    }
    base_name(path)
}

/// An exported function of the CUDA driver, its runtime or NCCL.
fn is_driver_call(frame: &Frame) -> bool {
    let Some(function) = frame.function.as_deref() else { return false };
    ["cuda", "cu", "nccl"].iter().any(|prefix| {
        function.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
    })
}

/// Code of Rust's standard library, inlined or not: its files are named so in debug information.
fn is_rust_library(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(|file| file.starts_with("/rustc/") || file.contains("/lib/rustlib/src/"))
}

fn is_libc(frame: &Frame) -> bool {
    let module = frame.module.as_deref().map(base_name).unwrap_or_default();
    ["libc.", "libc-", "libpthread", "ld-"].iter().any(|prefix| module.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_where_a_reader_knows_them() {
        assert_eq!(short_path("/usr/lib/python3/dist-packages/numba/cuda/driver.py"), "numba/cuda/driver.py");
        assert_eq!(short_path("/usr/lib/python3.12/concurrent/futures/thread.py"), "concurrent/futures/thread.py");
        assert_eq!(short_path("/home/me/train.py"), "train.py");
        assert_eq!(short_path("<string>"), "<string>");
    }

    #[test]
    fn long_names_lose_what_templates_are_made_of() {
        let long = "std::_Function_handler<void (int), main::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)";
        assert_eq!(without_arguments(long), "std::_Function_handler<…>::_M_invoke(std::_Any_data const&, int&&)");
        let long = "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once";
        assert_eq!(
            without_arguments(long),
            "<core::panic::unwind_safe::AssertUnwindSafe<…> as core::ops::function::FnOnce<…>>::call_once"
        );
        let long =
            "Kernel::operator<(std::vector<int, std::allocator<int>> const&, std::map<int, int, std::less<int>>)";
        assert_eq!(without_arguments(long), "Kernel::operator<(std::vector<…> const&, std::map<…>)");
        let long = "do_call<(), spawn::{closure#1}::{closure_env#0}<demo::{closure#0}::{closure_env#0}, fn() -> ()>>";
        assert_eq!(without_arguments(long), "do_call<…>");
        assert_eq!(without_arguments("std::vector<int>::push_back"), "std::vector<int>::push_back");
    }
}
