//! Where a lock was taken, and what it is called.
//!
//! In: what the recorder wrote of it, and the files of the process as they lie on the disk now. Out: [`Spot`]s with
//! lines of source. A program that was built anew since has other lines, and nothing shows it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::image::live::own_files;
use crate::image::{Addr, Files, Mapping, ProcessImage};
use crate::modules::Modules;
use crate::origin::takes_locks_for_callers;
use crate::recorder::LockKind;
use crate::recorder::orders::{MappedCode, Orders, Taken};
use crate::report::{base_name, short_function};
use crate::symbols::{Symbols, Tables};

/// Frames that distinguish two places.
const KEY_DEPTH: usize = 2;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) function: Option<String>,
    pub(super) is_python: bool,
}

/// A lock that was taken, with names.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) taken: Taken,
    /// The program's name for the lock.
    pub(super) name: Option<String>,
    /// The frames, from the innermost on.
    pub(super) lines: Vec<Line>,
    /// Module and offset, where nothing else is known.
    pub(super) offset: Option<String>,
    /// The text of the line.
    pub(super) text: Option<String>,
}

impl Spot {
    /// The line that matters: the program's own.
    pub(super) fn line(&self) -> Option<&Line> {
        let is_own =
            |line: &&Line| line.file.as_deref().is_some_and(|file| !line.is_python || !takes_locks_for_callers(file));
        self.lines.iter().find(is_own).or_else(|| self.lines.first())
    }

    /// `orders.py:12`, or what is known instead.
    pub(super) fn place(&self) -> String {
        match self.line() {
            Some(Line { file: Some(file), line: Some(line), .. }) => format!("{}:{line}", base_name(file)),
            Some(Line { function: Some(function), .. }) => short_function(function),
            _ if self.taken.at.is_null() => "a line that is not known".into(),
            _ => self.offset.clone().unwrap_or_else(|| self.taken.at.to_string()),
        }
    }

    /// `orders.py:30` of the frame that called the one of [`place`](Self::place), where it is known.
    pub(super) fn caller(&self) -> Option<String> {
        let own = self.line()?;
        let caller = self.lines.iter().skip_while(|line| !std::ptr::eq(*line, own)).nth(1)?;
        Some(format!("{}:{}", base_name(caller.file.as_deref()?), caller.line?))
    }

    /// Whether the frame that called the one of [`place`](Self::place) is of a file in another folder: a line of a library says little
    /// about who uses it.
    pub(super) fn is_called_from_elsewhere(&self) -> bool {
        let own = self.lines.iter().position(|line| self.line().is_some_and(|own| std::ptr::eq(line, own)));
        let [folder, callers] = [0, 1].map(|further| {
            let file = own.and_then(|own| self.lines.get(own + further)?.file.as_deref());
            file.and_then(|file| file.rsplit_once('/')).map(|(folder, _)| folder)
        });
        folder.is_some() && callers.is_some() && folder != callers
    }

    /// The identity of a place: file and line, with those of the caller, which distinguish the users of a helper; or
    /// module and offset.
    pub(super) fn key(&self) -> String {
        let known = self.lines.iter().filter_map(|line| Some(format!("{}:{}", line.file.as_deref()?, line.line?)));
        let known: Vec<String> = known.take(KEY_DEPTH).collect();
        if known.is_empty() { self.offset.clone().unwrap_or_default() } else { known.join(" ") }
    }

    /// "mutex `ledger`", "the GIL", "Lock of orders.py:12".
    pub(super) fn called(&self) -> String {
        let noun = match self.taken.kind {
            LockKind::Mutex => "mutex",
            LockKind::ReadWriteLock => "rwlock",
            LockKind::Spinlock => "spinlock",
            LockKind::Semaphore => "semaphore",
            LockKind::PythonLock => "Lock",
            LockKind::PythonRecursiveLock => "RLock",
            LockKind::Gil => return "the GIL".into(),
            LockKind::ThreadEnd => return "the end of a thread".into(),
        };
        match &self.name {
            Some(name) => format!("{noun} `{name}`"),
            None => format!("{noun} {}", self.taken.lock.address),
        }
    }
}

/// Code as a process has it, of the file that lies at its path now.
pub(super) fn mapping(code: &MappedCode) -> Option<Mapping> {
    let metadata = std::fs::metadata(&code.path).ok()?;
    let mut mapping = Mapping::new(code.start, code.end);
    (mapping.read, mapping.execute, mapping.offset) = (true, true, code.offset);
    mapping.path = Some(code.path.clone());
    mapping.inode = metadata.ino();
    Some(mapping)
}

/// Names of one process.
pub(super) struct Places<'o> {
    orders: &'o Orders,
    symbols: Symbols<'o>,
    files: Arc<dyn Files>,
    texts: RefCell<BTreeMap<(String, u32), Option<String>>>,
}

impl Places<'_> {
    /// Have the names of a process as long as `ask` runs.
    pub(super) fn with(orders: &Orders, ask: impl FnOnce(&Places<'_>)) {
        let files = own_files();
        let mut image = ProcessImage::unknown();
        image.files = files.clone();
        image.mappings.extend(orders.code.iter().filter_map(mapping));
        image.mappings.sort_by_key(|mapping| mapping.start);
        let modules = Modules::of(&image);
        let tables = Tables::of(&modules);
        let symbols = Symbols::new(&modules, &tables, &image);
        ask(&Places { orders, symbols, files, texts: RefCell::default() });
    }

    /// Where a lock was taken.
    pub(super) fn spot(&self, taken: &Taken) -> Spot {
        let native = || if taken.at.is_null() { Vec::new() } else { self.native(taken.at) };
        let python: Vec<Line> = self
            .orders
            .sites
            .get(&taken.site)
            .into_iter()
            .flatten()
            .map(|frame| Line {
                file: Some(frame.file.clone()),
                line: Some(frame.line),
                function: Some(frame.function.clone()),
                is_python: true,
            })
            .collect();
        // The interpreter's own line says nothing to the reader.
        let mut lines = if taken.kind == LockKind::Gil { Vec::new() } else { native() };
        lines.extend(python);
        let is_native = !matches!(taken.kind, LockKind::PythonLock | LockKind::PythonRecursiveLock | LockKind::Gil);
        let mut spot = Spot {
            taken: taken.clone(),
            name: is_native.then(|| self.name(taken.lock.address)).flatten(),
            lines,
            offset: self.offset(taken.at),
            text: None,
        };
        spot.text = spot.line().and_then(|line| self.text(line.file.as_deref()?, line.line?));
        if spot.name.is_none() && spot.line() == spot.lines.first() {
            spot.name = spot.text.as_deref().filter(|_| taken.kind != LockKind::Gil).and_then(named_in_line);
        }
        spot
    }

    /// Whether a lock lies where memory is used again, and its beginning was not seen.
    pub(super) fn may_be_reused(&self, taken: &Taken) -> bool {
        let is_called = matches!(taken.kind, LockKind::Mutex | LockKind::ReadWriteLock | LockKind::Spinlock);
        is_called && taken.lock.generation == 0 && self.symbols.modules().at(taken.lock.address).is_none()
    }

    fn native(&self, at: Addr) -> Vec<Line> {
        let call = Addr(at.0.wrapping_sub(1));
        let text = |text: Arc<str>| text.to_string();
        let function = self.symbols.function(call).map(|symbol| text(symbol.name));
        let mut lines: Vec<Line> = self
            .symbols
            .source(call)
            .into_iter()
            .map(|place| Line {
                file: place.file.map(text),
                line: place.line,
                function: place.function.map(text),
                is_python: false,
            })
            .collect();
        match lines.last_mut() {
            Some(last) => last.function = function.or_else(|| last.function.take()),
            None if function.is_some() => lines.push(Line { file: None, line: None, function, is_python: false }),
            None => {}
        }
        lines
    }

    fn name(&self, address: Addr) -> Option<String> {
        let object = self.symbols.object(address)?;
        let offset = address - object.address;
        Some(if offset == 0 { object.name.to_string() } else { format!("{}+{offset}", object.name) })
    }

    fn offset(&self, at: Addr) -> Option<String> {
        let code = self.orders.code.iter().find(|code| (code.start..code.end).contains(&at))?;
        Some(format!("{}+{:#x}", base_name(&code.path), at - code.start + code.offset))
    }

    fn text(&self, file: &str, line: u32) -> Option<String> {
        let mut texts = self.texts.borrow_mut();
        let read = || {
            let lines = self.files.source(file, &BTreeSet::from([line]))?;
            lines.lines.into_iter().find(|(number, _)| *number == line).map(|(_, text)| text)
        };
        texts.entry((file.to_owned(), line)).or_insert_with(read).clone()
    }
}

/// The name of the lock in the line of Python that takes it: `with self.lock:`, `lock.acquire()`.
fn named_in_line(line: &str) -> Option<String> {
    let line = line.trim();
    let expression = match line.strip_prefix("with ") {
        Some(rest) => rest.strip_suffix(':').or_else(|| rest.split_once(": ").map(|(first, _)| first))?,
        None => {
            let before = line.split_once(".acquire(")?.0;
            before.rsplit([' ', '(']).next()?
        }
    };
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
    (!expression.is_empty() && expression.chars().all(is_name)).then(|| expression.to_owned())
}

#[cfg(test)]
mod tests {
    use super::named_in_line;

    #[test]
    fn a_line_of_python_names_its_lock() {
        for (line, name) in [
            ("    with self.lock:", Some("self.lock")),
            ("with ledger: pass", Some("ledger")),
            ("if not jobs.mutex.acquire(True, -1):", Some("jobs.mutex")),
            ("lock.acquire()", Some("lock")),
            ("with a, b:", None),
            ("with locks[0]:", None),
            ("call()", None),
        ] {
            assert_eq!(named_in_line(line).as_deref(), name, "{line}");
        }
    }
}
