//! Targets of the recorder for the places of a prediction, in the files as they lie on the disk now.
//!
//! In: a [`Prediction`]. Out: for each of its members the two places as the recorder can tell them: offsets of return
//! addresses in a module, or a line of Python. In a module of the same build the offset counts; in another one the
//! lines of the function that have the source line, or all of the function. A line of Python that has moved is found by
//! its text.

use std::path::Path;

use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind, elf};

use super::{At, NativePlace, Place, Prediction, PythonPlace};
use crate::image::{Addr, Mapping, ProcessImage, live};
use crate::limits::provoke::{LARGEST_FUNCTION, LARGEST_SOURCE, MOST_SYMBOLS};
use crate::modules::Modules;
use crate::recorder::targets::Target;
use crate::report::base_name;
use crate::symbols::{Symbols, Tables, demangle};

/// Names of the files of Python's import system begin so.
pub(crate) const IMPORT_SYSTEM: &str = "<frozen importlib";

/// Why a prediction has no targets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    /// The recorder knew no place.
    #[error("nothing is known of where {0} is taken: the recorder reads lines of CPython 3.8 to 3.14")]
    Unknown(String),
    /// It belongs to the import system.
    #[error("{0} is a lock of Python's import system, at which no thread is held")]
    Import(String),
    /// There is no such function any more.
    #[error("`{module}` was built anew and has no function `{function}`")]
    Function {
        /// The module.
        module: String,
        /// The function.
        function: String,
    },
    /// Another build, and no name.
    #[error("`{0}` was built anew, and the place in it has no name")]
    OtherBuild(String),
    /// Nothing says where.
    #[error("the place in `{0}` has neither an offset nor a function")]
    Nowhere(String),
}

/// First and second place of each member.
pub(crate) fn targets(prediction: &Prediction) -> Result<Vec<[Target; 2]>, Unresolved> {
    prediction.members.iter().map(|member| Ok([target(&member.first)?, target(&member.second)?])).collect()
}

fn target(place: &Place) -> Result<Target, Unresolved> {
    match &place.at {
        At::Gil => Ok(Target::Gil),
        At::Anywhere => Ok(Target::Anywhere),
        At::ThreadEnd => Ok(Target::ThreadEnd),
        At::Waits => Ok(Target::Waits),
        At::Wakes => Ok(Target::Wakes),
        At::Unknown => Err(Unresolved::Unknown(place.lock.clone())),
        At::Native(native) => self::native(native),
        At::Python(python) if python.file.starts_with(IMPORT_SYSTEM) => Err(Unresolved::Import(place.lock.clone())),
        At::Python(python) => Ok(self::python(python)),
    }
}

fn native(place: &NativePlace) -> Result<Target, Unresolved> {
    let module = base_name(&place.module).to_owned();
    let exact = place.offset.map(|offset| [offset, offset + 1]);
    // The file may lie in a container: then only the offset is known.
    let other = Module::open(&place.module).filter(|module| exact.is_none() || !module.is_build(place));
    let [begin, end] = match (other, exact) {
        (Some(found), _) => found.range(place)?,
        (None, Some(exact)) => exact,
        (None, None) => return Err(Unresolved::Nowhere(module)),
    };
    Ok(Target::Native { module, begin, end })
}

/// The build-id of the file at a path, in hexadecimal digits.
pub(crate) fn build_of(path: &str) -> Option<String> {
    Module::open(path)?.build
}

/// A segment: its address in the file's own numbering, its place in the file, and whether it is code.
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    is_code: bool,
}

/// A module's file.
struct Module {
    path: String,
    bytes: crate::image::FileBytes,
    build: Option<String>,
    segments: Vec<Segment>,
}

impl Module {
    fn open(path: &str) -> Option<Module> {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        let bytes = live::own_files().mapped(&mapping(path, &metadata, 0, 1, 0))?;
        let (build, segments) = {
            let file = ElfFile64::<LittleEndian>::parse(&*bytes).ok()?;
            let headers = file.elf_header().program_headers(LittleEndian, &*bytes).ok()?;
            let loaded = headers.iter().filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD);
            let segment = |header: &elf::ProgramHeader64<LittleEndian>| Segment {
                address: header.p_vaddr(LittleEndian),
                offset: header.p_offset(LittleEndian),
                size: header.p_filesz(LittleEndian),
                is_code: header.p_flags(LittleEndian).contains(elf::PF_X),
            };
            let digits = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect();
            (file.build_id().ok().flatten().map(digits), loaded.map(segment).collect())
        };
        Some(Module { path: path.to_owned(), bytes, build, segments })
    }

    /// Whether a place is of this build; one that says nothing is taken for it.
    fn is_build(&self, place: &NativePlace) -> bool {
        place.build.is_none() || place.build == self.build
    }

    fn offset(&self, address: u64) -> Option<u64> {
        let within = |segment: &&Segment| (segment.address..segment.address + segment.size).contains(&address);
        let segment = self.segments.iter().find(within)?;
        Some(address - segment.address + segment.offset)
    }

    /// The offsets that calls at the place return to: of its line, or of its function.
    fn range(&self, place: &NativePlace) -> Result<[u64; 2], Unresolved> {
        let name = base_name(&self.path).to_owned();
        let Some(function) = &place.function else {
            return Err(match place.offset {
                Some(_) => Unresolved::OtherBuild(name),
                None => Unresolved::Nowhere(name),
            });
        };
        let missing = || Unresolved::Function { module: name.clone(), function: function.clone() };
        let [begin, end] = self.function(function).ok_or_else(missing)?;
        let line = place.source.as_ref().and_then(|(file, line)| self.line([begin, end], file, *line));
        let [begin, end] = line.unwrap_or([begin, end]);
        // A call returns to what follows.
        match (self.offset(begin), self.offset(end - 1)) {
            (Some(begin), Some(last)) => Ok([begin + 1, last + 2]),
            _ => Err(missing()),
        }
    }

    /// The addresses of a function, by the name that people see.
    fn function(&self, name: &str) -> Option<[u64; 2]> {
        let file = ElfFile64::<LittleEndian>::parse(&*self.bytes).ok()?;
        let is_it = |symbol: &str| symbol == name || demangle(symbol) == name;
        let found =
            file.symbols().chain(file.dynamic_symbols()).take(MOST_SYMBOLS).find(|symbol| {
                symbol.kind() == SymbolKind::Text && symbol.size() > 0 && symbol.name().is_ok_and(is_it)
            })?;
        Some([found.address(), found.address().checked_add(found.size())?])
    }

    /// The addresses of a line within those of a function.
    fn line(&self, [begin, end]: [u64; 2], file: &str, line: u32) -> Option<[u64; 2]> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        let mut image = ProcessImage::unknown();
        image.files = live::own_files();
        for segment in self.segments.iter().filter(|segment| segment.is_code) {
            let end = segment.address.checked_add(segment.size)?;
            image.mappings.push(mapping(&self.path, &metadata, segment.address, end, segment.offset));
        }
        let modules = Modules::of(&image);
        let tables = Tables::of(&modules);
        let symbols = Symbols::new(&modules, &tables, &image);
        // An inlined call has several lines: each counts.
        let is_it = |address: &u64| {
            let places = symbols.source(Addr(*address));
            places.iter().any(|place| {
                place.line == Some(line) && place.file.as_deref().is_some_and(|its| base_name(its) == base_name(file))
            })
        };
        let mut found = (begin..end.min(begin.saturating_add(LARGEST_FUNCTION))).filter(is_it);
        let first = found.next()?;
        Some([first, found.last().unwrap_or(first) + 1])
    }
}

fn mapping(path: &str, metadata: &std::fs::Metadata, start: u64, end: u64, offset: u64) -> Mapping {
    let mut mapping = Mapping::new(Addr(start), Addr(end));
    (mapping.read, mapping.execute, mapping.offset) = (true, true, offset);
    mapping.path = Some(path.to_owned());
    mapping.inode = std::os::unix::fs::MetadataExt::ino(metadata);
    mapping
}

fn python(place: &PythonPlace) -> Target {
    let moved = place.text.as_deref().and_then(|text| where_it_is(&place.file, place.line, text));
    let line = moved.unwrap_or(place.line);
    Target::Python {
        file: base_name(&place.file).to_owned(),
        line,
        function: place.function.rsplit('.').next().unwrap_or_default().to_owned(),
        // Its lines may have moved as well.
        caller: place.caller.clone().filter(|_| line == place.line).map(|(file, line)| (base_name(&file).into(), line)),
    }
}

/// The line of a file that has a text now, the nearest to where it was; 0 where there is none any more.
fn where_it_is(file: &str, line: u32, text: &str) -> Option<u32> {
    let is_small = std::fs::metadata(Path::new(file)).is_ok_and(|file| file.is_file() && file.len() <= LARGEST_SOURCE);
    let source = std::fs::read_to_string(file).ok().filter(|_| is_small)?;
    let numbered = source.lines().zip(1u32..).filter(|(one, _)| one.trim() == text.trim());
    Some(numbered.map(|(_, number)| number).min_by_key(|number| number.abs_diff(line)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python_place(file: &Path, line: u32, text: &str) -> Target {
        python(&PythonPlace {
            file: file.display().to_string(),
            line,
            function: "Account.pay".into(),
            text: Some(text.into()),
            caller: Some(("/src/main.py".into(), 9)),
        })
    }

    #[test]
    fn a_line_that_moved_is_found_by_its_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pay.py");
        std::fs::write(&file, "a = 1\nwith one:\n    with two:\n        pass\nwith one:\n").expect("written");
        let at = |line, caller| Target::Python { file: "pay.py".into(), line, function: "pay".into(), caller };
        assert_eq!(python_place(&file, 3, "with two:"), at(3, Some(("main.py".into(), 9))));
        assert_eq!(python_place(&file, 1, "with two:"), at(3, None));
        assert_eq!(python_place(&file, 4, "with one:"), at(5, None));
        assert_eq!(python_place(&file, 3, "with three:"), at(0, None));
        // A file that is not here says nothing.
        assert_eq!(python_place(&folder.path().join("other"), 3, "x"), {
            Target::Python {
                file: "other".into(),
                line: 3,
                function: "pay".into(),
                caller: Some(("main.py".into(), 9)),
            }
        });
    }
}
