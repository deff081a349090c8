//! The map of a dead process, put together from a core's segments and its list of mapped files.
//!
//! In: an opened core. Out: [`Mapping`]s as /proc/PID/maps would have had them, as far as the core has them. A core of
//! gdb has no segments for memory that it did not store. The rights of that memory come from the file itself.

use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash, Hasher};

use object::LittleEndian;
use object::elf;
use object::read::elf::ProgramHeader;

use super::elf::{CoreFile, Load};
use super::files::{CoreFiles, IN_MEMORY, Segment, without_mark};
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
    let is_missing = |range: &&FileRange| {
        let ahead = core.loads.partition_point(|load| load.end <= range.start);
        core.loads.get(ahead).is_none_or(|load| load.start >= range.end)
    };
    let page = core.architecture.page_size();
    // Ranges of one file that follow each other were mapped by one load of it.
    for load in ranges.chunk_by(|one, next| one.path == next.path) {
        let segments = OnceCell::new();
        let segments = || segments.get_or_init(|| Placed::of(load, files, page));
        list.extend(load.iter().filter(is_missing).map(|range| of_range(range, segments())));
    }
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

/// Where the loadable segments of a file lie in memory: first address, end, flags.
struct Placed(Vec<(u64, u64, elf::ProgramFlags)>);

impl Placed {
    /// The segments of the file behind `load`, its ranges in order of address. The first range belongs to the first
    /// segment. File offsets alone cannot decide: LLD lays the end of one segment and the beginning of the next on one page.
    fn of(load: &[FileRange], files: &CoreFiles, page: u64) -> Placed {
        let Some(first) = load.first() else { return Placed(Vec::new()) };
        let segments = files.segments(&first.path);
        let mut loaded: Vec<&Segment> =
            segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD).collect();
        loaded.sort_by_key(|segment| segment.p_vaddr(LittleEndian));
        let floor = |address: u64| address & !(page - 1);
        let Some(base) = loaded.iter().find(|segment| floor(segment.p_offset(LittleEndian)) == floor(first.offset))
        else {
            return Placed(Vec::new());
        };
        let base = first.start.0.wrapping_sub(floor(base.p_vaddr(LittleEndian)));
        let place = |segment: &&Segment| {
            let start = base.wrapping_add(floor(segment.p_vaddr(LittleEndian)));
            let end = base.wrapping_add(segment.p_vaddr(LittleEndian)).wrapping_add(segment.p_memsz(LittleEndian));
            (start, end, segment.p_flags(LittleEndian))
        };
        Placed(loaded.iter().map(place).collect())
    }

    fn at(&self, address: Addr) -> Option<elf::ProgramFlags> {
        self.0.iter().rfind(|(start, end, _)| (*start..*end).contains(&address.0)).map(|(.., flags)| *flags)
    }
}

fn of_range(range: &FileRange, segments: &Placed) -> Mapping {
    let segment = segments.at(range.start);
    let has = |flag| segment.is_some_and(|flags| flags.contains(flag));
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
    const SHARED: [&str; 4] = ["/dev/shm/", "/dev/zero", IN_MEMORY, "/SYSV"];
    let path = without_mark(&range.path);
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
