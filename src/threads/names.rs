//! Names of threads where the capture has none: a core keeps that of the first thread only.
//!
//! In: threads, native stacks, code. Out: a name for threads without one: the text that the program itself gave to
//! `pthread_setname_np` or `prctl(PR_SET_NAME)`, as far as the code of functions that still run says it; else the
//! outermost function that sets a thread apart, written `worker()`. For people only: nothing is decided by a name.

use std::collections::{BTreeMap, HashMap};

use crate::code::{CallSite, Code};
use crate::image::{Addr, MemoryExt, ProcessImage, ThreadImage};
use crate::limits::code::FIRST_BYTES;
use crate::limits::threads::LONGEST_NAME;
use crate::limits::threads::NAMING_FRAMES;
use crate::symbols::{Symbols, base_symbol};
use crate::unwind::NativeStack;

/// PR_SET_NAME (linux/prctl.h).
const PR_SET_NAME: u64 = 15;

/// Names by tid, for the threads of `image` that have none.
pub(crate) fn missing(image: &ProcessImage, symbols: &Symbols<'_>, stacks: &[NativeStack]) -> BTreeMap<i32, String> {
    let mut names = BTreeMap::new();
    if image.threads.iter().all(|thread| !thread.name.is_empty()) {
        return names;
    }
    let mut search = Search {
        image,
        symbols,
        code: Code::new(image, symbols),
        is_of_interest: HashMap::new(),
        names_a_thread: HashMap::new(),
        found: BTreeMap::new(),
    };
    for (thread, stack) in image.threads.iter().zip(stacks) {
        search.thread(thread, stack);
    }
    let program = image.exe.as_ref().and_then(|exe| exe.file_name()).map(|name| name.to_string_lossy());
    let functions: Vec<Vec<String>> = stacks.iter().map(|stack| own_functions(symbols, stack)).collect();
    for (position, thread) in image.threads.iter().enumerate().filter(|(_, thread)| thread.name.is_empty()) {
        let first = || {
            program.as_deref().filter(|_| thread.tid == image.pid).map(|name| name.chars().take(LONGEST_NAME).collect())
        };
        let function = || {
            let of = functions.get(position)?;
            let is_shared = |name: &&String| {
                functions.iter().enumerate().any(|(other, names)| other != position && names.contains(name))
            };
            of.iter().find(|name| !is_shared(name)).or(of.first()).map(|name| format!("{name}()"))
        };
        let name = search.found.remove(&thread.tid).or_else(first).or_else(function);
        names.extend(name.map(|name| (thread.tid, name)));
    }
    names
}

/// Functions of the program and its libraries, outermost first; those of the C library are in every thread.
fn own_functions(symbols: &Symbols<'_>, stack: &NativeStack) -> Vec<String> {
    const COMMON: [&str; 5] = ["libc.so", "libc-2", "libpthread", "ld-linux", "ld-musl"];
    let list = &symbols.modules().list;
    let frames = stack.frames.iter().rev().take(NAMING_FRAMES).filter(|frame| {
        let module = symbols.modules().at(frame.lookup).and_then(|module| list.get(module));
        module.is_some_and(|module| !COMMON.iter().any(|prefix| module.name.starts_with(prefix)))
    });
    let name = |address| Some(symbols.function(address)?.name.split(['(', '<']).next()?.to_owned());
    frames.filter_map(|frame| name(frame.lookup)).filter(|name| !name.is_empty() && name != "_start").collect()
}

struct Search<'a> {
    image: &'a ProcessImage,
    symbols: &'a Symbols<'a>,
    code: Code<'a>,
    /// Whether a call before this place names a thread: the same for all threads that stand there.
    is_of_interest: HashMap<Addr, bool>,
    /// Whether a function names a thread.
    names_a_thread: HashMap<Addr, bool>,
    found: BTreeMap<i32, String>,
}

impl Search<'_> {
    /// The value of `pthread_self()` in a thread.
    fn descriptor(&self, thread: &ThreadImage) -> Option<Addr> {
        thread.registers?.thread_descriptor()
    }

    fn thread(&mut self, thread: &ThreadImage, stack: &NativeStack) {
        let Some(own) = self.descriptor(thread) else { return };
        for frame in stack.frames.iter().rev().take(NAMING_FRAMES) {
            if self.is_of_interest.get(&frame.lookup) == Some(&false) {
                continue;
            }
            let sites = self.code.calls_before(frame, Some(own));
            let mut interest = false;
            for site in &sites {
                if is_naming(site) {
                    interest = true;
                    if self.code.reaches(site.at, frame.lookup) {
                        self.name(site, own, thread);
                    }
                } else if let Some(target) = site.target
                    && self.names_a_thread(target, frame.lookup)
                {
                    interest = true;
                    if !self.code.reaches(site.at, frame.lookup) {
                        continue;
                    }
                    for inner in self.code.calls_of(target, FIRST_BYTES, site.arguments, Some(own)).calls {
                        self.name(&inner, own, thread);
                    }
                }
            }
            self.is_of_interest.insert(frame.lookup, interest);
        }
    }

    /// Whether a function of the same module as the caller names a thread. Other modules are left alone: what names a
    /// thread there is a library's own affair, and reading all of them takes time.
    fn names_a_thread(&mut self, function: Addr, caller: Addr) -> bool {
        let modules = self.symbols.modules();
        if modules.at(function) != modules.at(caller) {
            return false;
        }
        let code = self.code;
        *self
            .names_a_thread
            .entry(function)
            .or_insert_with(|| code.calls_of(function, FIRST_BYTES, [None; 4], None).calls.iter().any(is_naming))
    }

    fn name(&mut self, site: &CallSite, own: Addr, thread: &ThreadImage) {
        let tid = match (function(site), site.arguments[0]) {
            ("pthread_setname_np", Some(pointer)) if pointer == own.0 => thread.tid,
            ("pthread_setname_np", Some(pointer)) => {
                let named = |other: &&ThreadImage| self.descriptor(other) == Some(Addr(pointer));
                let Some(other) = self.image.threads.iter().find(named) else { return };
                other.tid
            }
            ("prctl", Some(PR_SET_NAME)) => thread.tid,
            _ => return,
        };
        let text = site.arguments[1].and_then(|text| self.image.memory.c_string(Addr(text), LONGEST_NAME).ok());
        if let Some(text) = text.filter(|text| !text.is_empty() && !text.contains(|c: char| c.is_control())) {
            self.found.insert(tid, text);
        }
    }
}

fn function(site: &CallSite) -> &str {
    base_symbol(site.function.as_deref().unwrap_or_default())
}

fn is_naming(site: &CallSite) -> bool {
    matches!(function(site), "pthread_setname_np" | "prctl")
}
