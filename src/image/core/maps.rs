//! The map of a dead process, put together from a core's segments and its list of mapped files.
//!
//! In: an opened core. Out: [`Mapping`]s as /proc/PID/maps would have had them, as far as a core tells: a core of gdb
//! has no segments for what it did not store, so that the rights of such a range come from the file itself.

use std::hash::{DefaultHasher, Hash, Hasher};

use object::LittleEndian;
use object::elf;
use object::read::elf::ProgramHeader;

use super::elf::{CoreFile, Load};
use super::files::CoreFiles;
use super::notes::FileRange;
use crate::image::{Addr, Mapping};

/// Places that have a name without being a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// The vDSO's ELF header.
    pub(super) vdso: Option<Addr>,
    /// An address on the main thread's stack.
    pub(super) stack: Option<Addr>,
}

/// All mappings, in order of address; `ranges` are in order too and do not overlap.
pub(super) fn mappings(core: &CoreFile, ranges: &[FileRange], files: &CoreFiles, known: &Known) -> Vec<Mapping> {
    let mut list: Vec<Mapping> = core.loads.iter().map(|load| of_load(load, ranges, known)).collect();
    let is_stored = |range: &&FileRange| {
        let ahead = core.loads.partition_point(|load| load.end <= range.start);
        core.loads.get(ahead).is_some_and(|load| load.start < range.end)
    };
    let page = core.architecture.page_size();
    list.extend(ranges.iter().filter(|range| !is_stored(range)).map(|range| of_range(range, files, page)));
    list.sort_by_key(|mapping| mapping.start);
    list
}

fn of_load(load: &Load, ranges: &[FileRange], known: &Known) -> Mapping {
    let after = ranges.partition_point(|range| range.start <= load.start);
    let range = ranges.get(..after).and_then(<[FileRange]>::last).filter(|range| load.start < range.end);
    let holds = |address: Option<Addr>| address.is_some_and(|at| load.start <= at && at < load.end);
    let (read, write, execute) = (load.read, load.write, load.execute);
    let mut mapping = Mapping { read, write, execute, ..Mapping::new(load.start, load.end) };
    match range {
        Some(range) => name(&mut mapping, range),
        None if holds(known.vdso) => mapping.path = Some("[vdso]".into()),
        None if holds(known.stack) => mapping.path = Some("[stack]".into()),
        None => {}
    }
    mapping
}

fn of_range(range: &FileRange, files: &CoreFiles, page: u64) -> Mapping {
    // A range that begins in the middle of a segment, and one whose last page reaches into the next: by its start.
    let segment = files.segments(&range.path).into_iter().find(|segment| {
        segment.p_type(LittleEndian) == elf::PT_LOAD
            && (segment.p_offset(LittleEndian) & !(page - 1)) <= range.offset
            && range.offset < segment.p_offset(LittleEndian).saturating_add(segment.p_filesz(LittleEndian))
    });
    let has = |flag| segment.as_ref().is_some_and(|segment| segment.p_flags(LittleEndian).contains(flag));
    let mut mapping = Mapping {
        read: segment.is_none() || has(elf::PF_R),
        // Nothing that was written to is left out of a core: what is here only by name is as good as constant, so that
        // it has no right to write.
        execute: has(elf::PF_X),
        ..Mapping::new(range.start, range.end)
    };
    name(&mut mapping, range);
    mapping
}

/// Give a mapping its file. A core has no inode: the path stands for it, and for memory without a file the place
/// too, where parent and child of a fork have it alike.
fn name(mapping: &mut Mapping, range: &FileRange) {
    const SHARED: [&str; 4] = ["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"];
    let path = range.path.strip_suffix(" (deleted)").unwrap_or(&range.path);
    let mut hash = DefaultHasher::new();
    path.hash(&mut hash);
    mapping.shared = SHARED.iter().any(|prefix| path.starts_with(prefix));
    if mapping.shared && !path.starts_with("/dev/shm/") {
        range.start.hash(&mut hash);
    }
    mapping.inode = hash.finish() | 1;
    mapping.offset = range.offset.wrapping_add(mapping.start - range.start);
    mapping.deleted = path.len() < range.path.len();
    mapping.path = Some(path.to_owned());
}
