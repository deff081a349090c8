//! Modules with locks that the recorder cannot see: those that call no function of pthread, or one of their own.
//!
//! In: the files that recorded processes had loaded, as they lie on the disk now. Out: [`Unseen`], which maps kinds of
//! locks to the files that have such locks of their own. The file's content shows this: a text of the lock's own code,
//! a section, or a function that it defines or imports. A module that has such locks need not use them. A module
//! without these signs may have built locks from atomics. Nothing is run.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use super::Recording;
use super::places::mapping;
use crate::image::Gap;
use crate::image::live::own_files;
use crate::limits::forecast::{LARGEST_SEARCHED, MOST_MODULES};
use crate::limits::symbols::MOST_SYMBOLS;
use crate::limits::{self, Bounded};
use crate::origin::is_c_library;
use crate::report::base_name;

/// Modules that a gap names.
const NAMED: usize = 5;

/// Locks that call nothing that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Own {
    RustStandardLibrary,
    Go,
    StaticPthread,
    PythonWithoutGil,
    PyMutex,
    Abseil,
    ReentrantOfC,
    OpenMp,
}

impl Own {
    fn what(self) -> &'static str {
        match self {
            Own::RustStandardLibrary => "locks of Rust's std",
            Own::Go => "locks of Go",
            Own::StaticPthread => "locks of a statically linked pthread",
            Own::PythonWithoutGil => "locks of a Python without a GIL",
            Own::PyMutex => "PyMutexes that C code takes",
            Own::Abseil => "locks of Abseil",
            Own::ReentrantOfC => "re-entrant locks of C code (Cython's FastRLock and its like)",
            Own::OpenMp => "locks and critical sections of OpenMP",
        }
    }
}

/// Texts that are in all files of the kind, and in no others: the lock's panic messages, and the paths of its source.
/// For Rust's std since 1.62 (before, its locks were pthread's), and for Abseil's mutex.cc. Each text is in two parts,
/// the second first, because the whole text would be among lockscope's own constants.
const RUST: [[&[u8]; 2]; 2] = [[b"locks on RwLock", b"too many active read "], [b"std/src/sys", b"library/"]];
const ABSEIL: [[&[u8]; 2]; 1] = [[b" into Mutex code", b"detected illegal recursion"]];
/// Functions that code of OpenMP imports to take a lock or to enter a critical section. The runtime then takes a futex
/// itself or polls. These are the exports of libgomp of GCC 12 and libomp of LLVM 19.
const OPEN_MP: [&[u8]; 10] = [
    b"omp_set_lock",
    b"omp_set_nest_lock",
    b"omp_test_lock",
    b"omp_test_nest_lock",
    b"GOMP_critical_start",
    b"GOMP_critical_name_start",
    b"__kmpc_critical",
    b"__kmpc_critical_with_hint",
    b"__kmpc_set_lock",
    b"__kmpc_set_nest_lock",
];
/// Where Go's linker writes what a program was built of.
const GO: &str = ".go.buildinfo";

/// Locks in processes that the recorder could not see.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    modules: BTreeMap<Own, BTreeSet<String>>,
    unread: BTreeSet<String>,
    /// Processes that did not come to their end.
    cut_off: usize,
}

impl Unseen {
    /// The unseen locks of these recordings.
    pub(super) fn of(recordings: &[Recording]) -> Unseen {
        let mut unseen = Unseen::default();
        let files = own_files();
        let mut known = BTreeSet::new();
        for recording in recordings {
            unseen.cut_off += usize::from(recording.orders.has_all_code == Some(false));
            for code in &recording.orders.code {
                if !is_file(&code.path) || !known.insert(&code.path) {
                    continue;
                }
                if known.len() > MOST_MODULES {
                    limits::met(MOST_MODULES, "modules of recorded processes", "modules");
                    return unseen;
                }
                let name = base_name(&code.path).to_owned();
                match mapping(code).and_then(|mapping| files.mapped(&mapping)) {
                    Some(bytes) => own_locks(&name, &bytes).into_iter().for_each(|own| {
                        unseen.modules.entry(own).or_default().insert(name.clone());
                    }),
                    None => drop(unseen.unread.insert(name)),
                }
            }
        }
        unseen
    }

    pub(super) fn gaps(&self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = self
            .modules
            .iter()
            .map(|(own, modules)| {
                Gap::new(
                    format!("{} in {}", own.what(), count(modules.len(), "module")),
                    format!("the recorder does not see them: {}", listed(modules)),
                )
            })
            .collect();
        if !self.unread.is_empty() {
            gaps.push(Gap::new(
                format!("locks of their own of {}", count(self.unread.len(), "module")),
                format!("their files cannot be read here: {}", listed(&self.unread)),
            ));
        }
        if self.cut_off > 0 {
            gaps.push(Gap::new(
                format!("modules of {}", count(self.cut_off, "process")),
                "ended past the C library, as by a signal, before it could say which it had: only those that took locks of \
                 pthread are known, and not whether others have locks of their own",
            ));
        }
        gaps
    }
}

/// "1 module", "2 processes".
pub(super) fn count(count: usize, noun: &str) -> String {
    let ending = match (count, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

fn listed(names: &BTreeSet<String>) -> String {
    let mut text = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        text += &format!(" and {} more", names.len() - NAMED);
    }
    text
}

/// Whether a path of the kernel's list is that of a file, as libraries are: memory that programs run code in has names
/// there as well.
fn is_file(path: &str) -> bool {
    !["/memfd:", "/dev/", "/SYSV"].iter().any(|beginning| path.starts_with(beginning))
}

/// The locks of its own that a module has, by its file.
pub(super) fn own_locks(name: &str, bytes: &[u8]) -> Vec<Own> {
    let Ok(file) = ElfFile64::<LittleEndian>::parse(bytes) else { return Vec::new() };
    if is_c_library(name) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut add = |own: Own, is_there: bool| found.extend(is_there.then_some(own));
    add(Own::RustStandardLibrary, has_all(&file, name, &RUST));
    add(Own::Abseil, has_all(&file, name, &ABSEIL));
    add(Own::Go, file.section_by_name(GO).is_some());
    let what = || format!("symbols of {name}");
    let (mut has_mutex, mut asks_for_others, mut has_no_gil) = (false, false, false);
    let (mut takes_mutex, mut takes_open_mp) = (false, false);
    let (mut takes_lock, mut asks_who) = (false, false);
    for symbol in file.symbols().chain(file.dynamic_symbols()).bounded(MOST_SYMBOLS, what, "symbols") {
        let is_defined = !symbol.is_undefined();
        match symbol.name_bytes() {
            Ok(b"pthread_mutex_lock") => has_mutex |= is_defined && symbol.kind() == SymbolKind::Text,
            // A library that stands in front of the C library's function calls it, and has looked it up by these.
            Ok(b"dlsym" | b"dlvsym") => asks_for_others |= !is_defined,
            Ok(b"_Py_DecRefShared") => has_no_gil |= is_defined,
            // A lock that its owner may take again asks who that is; CPython's own modules ask for one of them at most.
            Ok(b"PyThread_acquire_lock") => takes_lock |= !is_defined,
            Ok(b"PyThread_get_thread_ident") => asks_who |= !is_defined,
            Ok(b"PyMutex_Lock") => takes_mutex |= !is_defined,
            // A version may stand behind it in .symtab.
            Ok(name) if OPEN_MP.contains(&name.split(|byte| *byte == b'@').next().unwrap_or(name)) => {
                takes_open_mp |= !is_defined;
            }
            _ => {}
        }
    }
    add(Own::StaticPthread, has_mutex && !asks_for_others);
    add(Own::PythonWithoutGil, has_no_gil);
    add(Own::PyMutex, takes_mutex);
    add(Own::ReentrantOfC, takes_lock && asks_who);
    add(Own::OpenMp, takes_open_mp);
    found
}

/// Whether all of these texts stand among a file's constants.
fn has_all(file: &ElfFile64<'_, LittleEndian>, name: &str, texts: &[[&[u8]; 2]]) -> bool {
    let constants = file.sections().filter(|section| {
        matches!(section.kind(), SectionKind::ReadOnlyData | SectionKind::ReadOnlyString)
            && section.name_bytes().is_ok_and(|name| name.starts_with(b".rodata"))
    });
    let mut left = LARGEST_SEARCHED;
    let mut parts = Vec::new();
    for data in constants.filter_map(|section| section.data().ok()) {
        if data.len() > left {
            limits::met(LARGEST_SEARCHED, format!("constants of {name}"), "bytes");
        }
        parts.extend(data.get(..data.len().min(left)));
        left = left.saturating_sub(data.len());
    }
    texts.iter().all(|[end, begin]| {
        let text = [*begin, *end].concat();
        let finder = memmem::Finder::new(&text);
        parts.iter().any(|part| finder.find(part).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_up_to_some_and_counted() {
        let mut unseen = Unseen { cut_off: 2, ..Unseen::default() };
        let names = (0..7).map(|number| format!("lib{number}.so"));
        unseen.modules.insert(Own::Go, names.collect());
        unseen.unread.insert("gone.so".into());
        let gaps: Vec<String> = unseen.gaps().iter().map(|gap| format!("{}: {}", gap.what, gap.why)).collect();
        assert_eq!(
            gaps[0],
            "locks of Go in 7 modules: the recorder does not see them: lib0.so, lib1.so, lib2.so, lib3.so, lib4.so and 2 more"
        );
        assert_eq!(gaps[1], "locks of their own of 1 module: their files cannot be read here: gone.so");
        assert!(gaps[2].starts_with("modules of 2 processes: "), "{}", gaps[2]);
        assert!(Unseen::default().gaps().is_empty());
    }

    /// This test has Rust's std in it, and the C library does not.
    #[test]
    fn own_locks_are_told_by_the_file() {
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert_eq!(own_locks("tests", &own), [Own::RustStandardLibrary]);
        assert_eq!(own_locks("libc.so.6", &own), []);
        assert_eq!(own_locks("liblockscope_recorder-1.so", &own), []);
        // The recorder is Rust without std, and finds the functions that it stands in front of without dlsym.
        let recorder = include_bytes!(concat!(env!("OUT_DIR"), "/liblockscope_recorder.so"));
        assert_eq!(own_locks("other.so", recorder), [Own::StaticPthread]);
        for end in [0, 4, 64, 1000, own.len() / 2] {
            let _ = own_locks("cut", &own[..end]);
        }
    }
}
