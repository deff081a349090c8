//! The files that a dead process had mapped, as far as this machine has the very same ones.
//!
//! In: the paths that the core names, and where to look. Out: [`FileBytes`] of files whose build-id is that of the
//! core; another build is refused and said. Where the core has no page to compare with, the file is used and said.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};

use super::elf::CoreFile;
use super::notes::FileRange;
use crate::image::disk::{self, Disk};
use crate::image::{FileBytes, Files, Gap, Mapping, SourceLines, saturated};

type Header = elf::FileHeader64<LittleEndian>;
/// How the kernel calls files that memfd_create made.
pub(super) const IN_MEMORY: &str = "/memfd:";

pub(super) type Segment = elf::ProgramHeader64<LittleEndian>;

/// Where files of the dead process may be. Its default is this machine, each at its own path; then each field can be set.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Places {
    /// The program itself.
    pub exe: Option<PathBuf>,
    /// A copy of the file system that the process saw.
    pub sysroot: Option<PathBuf>,
    /// Folders with separate debug files, as /usr/lib/debug.
    pub debug_directories: Vec<PathBuf>,
}

impl Places {
    /// Where the file at `path` of the dead process may be, the surest place first.
    fn of(&self, path: &str, is_program: bool) -> Vec<PathBuf> {
        let mut list = Vec::new();
        if is_program {
            list.extend(self.exe.clone());
        }
        list.extend(self.sysroot.iter().map(|root| root.join(path.trim_start_matches('/'))));
        list.push(PathBuf::from(path));
        list
    }

    /// A separate debug file.
    fn debug_file(
        &self,
        disk: &Disk,
        build_id: Option<&[u8]>,
        link: Option<&str>,
        module_path: &str,
    ) -> Option<FileBytes> {
        let usual = disk::debug_files(build_id, link, module_path);
        let below = |root: &PathBuf, path: &str, prefix: &str| {
            root.join(path.trim_start_matches(prefix).trim_start_matches('/'))
        };
        let own = self
            .debug_directories
            .iter()
            .flat_map(|root| usual.iter().map(move |path| below(root, path, "/usr/lib/debug")));
        let roots = self.sysroot.iter().flat_map(|root| usual.iter().map(move |path| below(root, path, "/")));
        let here = usual.iter().map(PathBuf::from);
        own.chain(roots).chain(here).find_map(|path| disk.open(&path, |_| true))
    }
}

/// [`Files`] of a snapshot, which says the build of each module: files of this machine that are of that very build.
#[derive(Debug)]
pub(crate) struct SnapshotFiles {
    places: Places,
    builds: HashMap<String, Option<Vec<u8>>>,
    sources: Vec<SourceLines>,
    disk: Disk,
}

impl SnapshotFiles {
    /// The files of modules with these build-ids, by path; lines of source are those that were kept.
    pub(crate) fn new(places: Places, builds: HashMap<String, Option<Vec<u8>>>, sources: Vec<SourceLines>) -> Self {
        SnapshotFiles { places, builds, sources, disk: Disk::default() }
    }
}

impl Files for SnapshotFiles {
    fn mapped(&self, mapping: &Mapping) -> Option<FileBytes> {
        let path = mapping.path.as_deref().filter(|_| mapping.is_file())?;
        let wanted = self.builds.get(path)?.as_deref()?;
        let candidates = self.places.of(path, false).into_iter().chain(self.places.exe.clone());
        candidates
            .filter_map(|path| self.disk.open(&path, |_| true))
            .find(|bytes| build_id(bytes).as_deref() == Some(wanted))
    }

    fn source(&self, name: &str, _lines: &BTreeSet<u32>) -> Option<SourceLines> {
        self.sources.iter().find(|source| source.name == name).cloned()
    }

    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes> {
        self.places.debug_file(&self.disk, build_id, link, module_path)
    }
}

/// The result for a path.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// The same build.
    Same(FileBytes),
    /// Nothing in the core to compare with.
    Unchecked(FileBytes),
    /// Another build, as the reason says.
    Other(String),
    /// No such file here.
    Missing,
}

/// [`Files`] of a core.
#[derive(Debug)]
pub(super) struct CoreFiles {
    places: Places,
    core: Arc<CoreFile>,
    ranges: Vec<FileRange>,
    /// The path that `--exe` stands for.
    program: Option<String>,
    disk: Disk,
    known: Mutex<HashMap<String, Found>>,
}

impl CoreFiles {
    /// The files of a core that maps `ranges`; `program` is the path of its executable.
    pub(super) fn new(
        places: Places,
        core: Arc<CoreFile>,
        mut ranges: Vec<FileRange>,
        program: Option<String>,
    ) -> Self {
        // Mappings carry the path without the kernel's mark.
        ranges.iter_mut().for_each(|range| range.path.truncate(without_mark(&range.path).len()));
        let program = program.map(|path| without_mark(&path).to_owned());
        CoreFiles { places, core, ranges, program, disk: Disk::default(), known: Mutex::default() }
    }

    /// The file at `path` of the dead process, compared with the core.
    pub(super) fn find(&self, path: &str) -> Found {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Called at each read of a page that the core omits: only the first call costs more than a table access.
        if let Some(found) = known.get(path) {
            return found.clone();
        }
        let found = self.search(path);
        known.insert(path.to_owned(), found.clone());
        found
    }

    fn search(&self, path: &str) -> Found {
        let own = self.header_in_core(path);
        let mut best = Found::Missing;
        for candidate in self.candidates(path) {
            let Some(bytes) = self.disk.open(&candidate, |_| true) else { continue };
            match compare(own.as_deref(), &bytes) {
                Ok(true) => return Found::Same(bytes),
                Ok(false) if !matches!(best, Found::Unchecked(_)) => best = Found::Unchecked(bytes),
                Err(why) if matches!(best, Found::Missing) => {
                    best = Found::Other(format!("`{}` is another build ({why})", candidate.display()));
                }
                _ => {}
            }
        }
        best
    }

    /// Where the file may be, the surest place first. A wrong one is found out by its build-id.
    fn candidates(&self, path: &str) -> Vec<PathBuf> {
        self.places.of(path, self.program.as_deref() == Some(path))
    }

    /// The core's part of the file's beginning.
    pub(super) fn header_in_core(&self, path: &str) -> Option<Vec<u8>> {
        let range = self.ranges.iter().find(|range| range.path == path && range.offset == 0)?;
        let mut page = vec![0; saturated(4096.min(range.end - range.start))];
        let read = self.core.read(range.start, &mut page);
        page.truncate(read);
        (read >= 64).then_some(page)
    }

    /// Program headers of a file, from the disk or from the core.
    pub(super) fn segments(&self, path: &str) -> Vec<Segment> {
        match self.find(path) {
            Found::Same(bytes) | Found::Unchecked(bytes) => segments(&bytes).map(<[Segment]>::to_vec),
            _ => self.header_in_core(path).and_then(|page| segments(&page).map(<[Segment]>::to_vec)),
        }
        .unwrap_or_default()
    }

    /// The defects of the files of these paths.
    pub(super) fn gaps<'p>(&self, paths: impl Iterator<Item = &'p str>) -> Vec<Gap> {
        const NAMED: usize = 4;
        let (mut missing, mut gaps) = (Vec::new(), Vec::new());
        for path in paths {
            let what = format!("code and names of `{path}`");
            match self.find(path) {
                Found::Same(_) => {}
                Found::Missing if path.starts_with(IN_MEMORY) => gaps.push(Gap::new(
                    what,
                    "it was run from a file in memory, which no folder names: --exe names a copy of the program",
                )),
                Found::Missing => missing.push(path),
                Found::Other(why) => {
                    gaps.push(Gap::new(what, format!("{why}, its bytes are not used; --sysroot names a folder with the right one")));
                }
                Found::Unchecked(_) => gaps.push(Gap::new(
                    what,
                    "the core lacks the file's first page, so that the file of this machine could not be compared and is used unchecked",
                )),
            }
        }
        if !missing.is_empty() {
            let more = missing.len().saturating_sub(NAMED);
            let list = missing.iter().take(NAMED).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            gaps.push(Gap::new(
                format!("code and names of {list}{rest}"),
                "not found on this machine: stacks through them may end early; --sysroot names a folder with these files, --exe the program",
            ));
        }
        gaps
    }
}

impl Files for CoreFiles {
    fn mapped(&self, mapping: &Mapping) -> Option<FileBytes> {
        if !mapping.is_file() {
            return None;
        }
        match self.find(mapping.path.as_deref()?) {
            Found::Same(bytes) | Found::Unchecked(bytes) => Some(bytes),
            Found::Other(_) | Found::Missing => None,
        }
    }

    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes> {
        self.places.debug_file(&self.disk, build_id, link, module_path)
    }
}

/// A path of the kernel's without the mark of a file that no folder names any more.
pub(super) fn without_mark(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// Whether a file is the one whose beginning the core has: its build-id, or without one all headers.
/// `Ok(false)`: nothing to compare with.
fn compare(own: Option<&[u8]>, file: &[u8]) -> Result<bool, String> {
    let Some(own) = own else {
        return if file.starts_with(b"\x7fELF") { Ok(false) } else { Err("it is no ELF file".into()) };
    };
    match (build_id(own), build_id(file)) {
        (Some(own), Some(other)) if own == other => Ok(true),
        (None, None) if same_headers(own, file) => Ok(true),
        (own, other) => {
            let shown = |id: Option<Vec<u8>>| id.map_or("none".into(), |id| hexadecimal(&id));
            Err(format!("build-id {} instead of {}", shown(other), shown(own)))
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn segments(bytes: &[u8]) -> Option<&[Segment]> {
    let header = Header::parse(bytes).ok()?;
    header.program_headers(LittleEndian, bytes).ok()
}

/// NT_GNU_BUILD_ID of a file. The beginning of the file is enough.
pub(crate) fn build_id(bytes: &[u8]) -> Option<Vec<u8>> {
    for segment in segments(bytes)? {
        let Ok(Some(mut notes)) = segment.notes(LittleEndian, bytes) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.n_type(LittleEndian) == elf::NT_GNU_BUILD_ID && note.name() == elf::ELF_NOTE_GNU {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

/// ELF header and program headers, byte for byte: places and sizes of everything in the file.
fn same_headers(own: &[u8], file: &[u8]) -> bool {
    let length = segments(own).map_or(0, |list| 64 + size_of_val(list));
    length > 64 && own.get(..length).is_some_and(|headers| file.get(..length) == Some(headers))
}
