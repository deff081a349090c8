//! The outside of an ELF core: where which memory lies in the file, and the notes.
//!
//! In: a path. Out: a [`CoreFile`]. Sizes and offsets that the file states are checked against its length. Memory is
//! read on request and never mapped, so that a file that shrinks meanwhile is an error and no signal.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};

use super::error::CoreError;
use crate::arch::Architecture;
use crate::image::{Addr, budget, saturated};
use crate::limits::core::{LARGEST_NOTES, LARGEST_UNPACKED, MOST_NOTES, MOST_SEGMENTS};
use crate::memory::copy_into;

type Header = elf::FileHeader64<LittleEndian>;
type Segment = elf::ProgramHeader64<LittleEndian>;

/// The number of bytes unpacked in one step.
const PIECE: usize = 8 << 20;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The bytes of the file, wherever they are.
#[derive(Debug)]
pub(crate) enum Bytes {
    Disk(File, u64),
    Unpacked(Vec<u8>),
}

/// One piece of the process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) start: Addr,
    pub(crate) end: Addr,
    /// Where its bytes lie in the file, and how many there are: the rest was not dumped.
    pub(crate) offset: u64,
    pub(crate) stored: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) execute: bool,
}

/// One note.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
}

/// A core file, opened.
#[derive(Debug)]
pub(crate) struct CoreFile {
    /// The machine that its process ran on.
    pub(crate) architecture: Architecture,
    bytes: Bytes,
    /// In order of address, without overlap.
    pub(crate) loads: Vec<Load>,
    pub(crate) notes: Vec<Note>,
    /// The defects that do not make it useless.
    pub(crate) problems: Vec<String>,
    /// It announces more than the file holds.
    pub(crate) cut: Option<Cut>,
}

/// How much there is of a file that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    present: u64,
    announced: u64,
}

impl Cut {
    /// Whether these pieces end behind the file's end.
    fn of_pieces<'s>(pieces: impl Iterator<Item = &'s Segment>, present: u64) -> Option<Cut> {
        let ends = pieces.map(|piece| piece.p_offset(LittleEndian).saturating_add(piece.p_filesz(LittleEndian)));
        let announced = ends.max()?;
        (announced > present).then_some(Cut { present, announced })
    }

    /// As an error about the file at `path`.
    pub(crate) fn of(self, path: String) -> CoreError {
        CoreError::Cut { path, present: self.present, announced: self.announced }
    }
}

/// Notes come first, and describe the threads. A file that ends in them has no memory, and maybe not every thread.
fn cut_in_notes(segments: &[Segment], present: u64) -> Option<Cut> {
    let notes = segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_NOTE);
    Cut::of_pieces(notes, present)?;
    Cut::of_pieces(segments.iter(), present)
}

impl Bytes {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Bytes::Disk(_, length) => *length,
            Bytes::Unpacked(bytes) => bytes.len() as u64,
        }
    }

    /// Read what there is at `offset`, at most `buffer.len()` bytes.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        match self {
            Bytes::Disk(file, _) => file.read_at(buffer, offset).unwrap_or(0),
            Bytes::Unpacked(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                copy_into(buffer, rest)
            }
        }
    }

    /// Exactly these bytes.
    pub(crate) fn slice(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(length).filter(|end| *end <= self.length())?;
        let mut buffer = vec![0; usize::try_from(end - offset).ok()?];
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(offset + done as u64, buffer.get_mut(done..)?) {
                0 => return None,
                read => done += read,
            }
        }
        Some(buffer)
    }
}

impl Bytes {
    /// Open a file; a compressed one is unpacked.
    pub(crate) fn open(path: &Path) -> Result<Bytes, CoreError> {
        let name = || path.display().to_string();
        let unreadable = |source| CoreError::Unreadable { path: name(), source };
        // Checked before it is opened: opening a FIFO would wait for its writer.
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        let kind = metadata.file_type();
        if !kind.is_file() {
            let what = match () {
                () if kind.is_dir() => "a folder",
                () if kind.is_fifo() => "a pipe",
                () if kind.is_socket() => "a socket",
                () => "a device",
            };
            return Err(CoreError::NotRegular { path: name(), what });
        }
        if metadata.len() == 0 {
            return Err(CoreError::Empty { path: name() });
        }
        let file = File::open(path).map_err(unreadable)?;
        let bytes = Bytes::Disk(file, metadata.len());
        let mut magic = [0; 4];
        match bytes.read_at(0, &mut magic) {
            4 if magic == ZSTD_MAGIC => {
                let file = File::open(path).map_err(unreadable)?;
                Ok(Bytes::Unpacked(unpack(std::io::BufReader::new(file), &name)?))
            }
            _ => Ok(bytes),
        }
    }

    /// Bytes that are in memory already, maybe packed.
    pub(crate) fn of(bytes: Vec<u8>) -> Result<Bytes, CoreError> {
        let bytes = match bytes.starts_with(&ZSTD_MAGIC) {
            true => unpack(bytes.as_slice(), &|| "bytes".into())?,
            false => bytes,
        };
        Ok(Bytes::Unpacked(bytes))
    }
}

impl CoreFile {
    /// A core that is in memory already, maybe packed.
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<CoreFile, CoreError> {
        CoreFile::parse(Bytes::of(bytes)?, "bytes")
    }

    /// The process's memory in a file whose bytes are at hand.
    pub(crate) fn parse(bytes: Bytes, path: &str) -> Result<CoreFile, CoreError> {
        let path = || path.to_owned();
        let damaged = |why: &str| CoreError::Damaged { path: path(), why: why.to_owned() };
        let start = bytes.slice(0, 64.min(bytes.length())).unwrap_or_default();
        if !start.starts_with(b"\x7fELF") {
            return Err(CoreError::NotElf { path: path() });
        }
        match start.get(4) {
            Some(2) => {}
            Some(1) => return Err(CoreError::OtherArchitecture { path: path(), architecture: "32 bits".into() }),
            _ => return Err(damaged("its ELF header says neither 32 nor 64 bits")),
        }
        let header = Header::parse(&*start).map_err(|_| damaged("its ELF header is cut"))?;
        let machine = header.e_machine.get(LittleEndian);
        if start.get(5) != Some(&1) {
            return Err(CoreError::OtherArchitecture { path: path(), architecture: "a big-endian one".into() });
        }
        let architecture = Architecture::of_elf(machine.0)
            .map_err(|other| CoreError::OtherArchitecture { path: path(), architecture: other.name })?;
        match header.e_type.get(LittleEndian) {
            elf::ET_CORE => {}
            elf::ET_EXEC => return Err(CoreError::NotCore { path: path(), what: "a program" }),
            elf::ET_DYN => return Err(CoreError::NotCore { path: path(), what: "a program or a library" }),
            _ => return Err(CoreError::NotCore { path: path(), what: "an ELF file of another type" }),
        }
        let segments = segments(&bytes, header).ok_or_else(|| damaged("its program headers lie outside of it"))?;
        if let Some(cut) = cut_in_notes(&segments, bytes.length()) {
            return Err(cut.of(path()));
        }
        let mut core =
            CoreFile { architecture, bytes, loads: Vec::new(), notes: Vec::new(), problems: Vec::new(), cut: None };
        core.cut = Cut::of_pieces(segments.iter(), core.bytes.length());
        core.read_loads(&segments);
        core.read_notes(&segments);
        Ok(core)
    }

    fn read_loads(&mut self, segments: &[Segment]) {
        let length = self.bytes.length();
        let (mut cut, mut overlaps) = (0u64, 0);
        for segment in segments.iter().filter(|s| s.p_type(LittleEndian) == elf::PT_LOAD) {
            let (start, size) = (segment.p_vaddr(LittleEndian), segment.p_memsz(LittleEndian));
            let (offset, stored) = (segment.p_offset(LittleEndian), segment.p_filesz(LittleEndian).min(size));
            let Some(end) = start.checked_add(size).filter(|end| *end > start) else { continue };
            let present = length.saturating_sub(offset).min(stored);
            cut = cut.saturating_add(stored - present);
            let flags = segment.p_flags(LittleEndian);
            self.loads.push(Load {
                start: Addr(start),
                end: Addr(end),
                offset,
                stored: present,
                read: flags.contains(elf::PF_R),
                write: flags.contains(elf::PF_W),
                execute: flags.contains(elf::PF_X),
            });
        }
        self.loads.sort_by_key(|load| load.start);
        let mut last = Addr(0);
        self.loads.retain(|load| {
            let fits = load.start >= last;
            overlaps += usize::from(!fits);
            last = if fits { load.end } else { last };
            fits
        });
        if cut > 0 {
            self.problems.push(format!(
                "{} KiB of memory that it announces are not in it: it was cut (disk full, `ulimit -c`, a copy that stopped)",
                cut.div_ceil(1024)
            ));
        }
        if overlaps > 0 {
            self.problems.push(format!("{overlaps} pieces of its memory lie over others and are left out"));
        }
    }

    fn read_notes(&mut self, segments: &[Segment]) {
        let mut left = LARGEST_NOTES;
        let mut cut = false;
        for segment in segments.iter().filter(|s| s.p_type(LittleEndian) == elf::PT_NOTE) {
            let (offset, size) = (segment.p_offset(LittleEndian), segment.p_filesz(LittleEndian));
            let present = self.bytes.length().saturating_sub(offset).min(size).min(left);
            left -= present;
            cut |= present != size;
            // The notes themselves are copies of it.
            if present == 0 || !budget::take(present, || "notes of a core".into()) {
                cut |= size > 0;
                continue;
            }
            let data = self.bytes.slice(offset, present).unwrap_or_default();
            let before = self.notes.len();
            let mut whole = self.read_segment(&data, segment.p_align(LittleEndian));
            budget::give_back(present);
            let kept = self.notes.iter().skip(before);
            let taken: usize = kept.map(|note| size_of::<Note>() + note.name.len() + note.data.len()).sum();
            if !budget::take(taken as u64, || "notes of a core".into()) {
                self.notes.truncate(before);
                whole = false;
            }
            cut |= !whole;
        }
        if cut {
            self.problems.push("its notes are cut: threads and file names may be missing".into());
        }
    }

    /// The notes of one segment; whether that was all.
    fn read_segment(&mut self, data: &[u8], align: u64) -> bool {
        // The kernel says 0 or 4 here, and means 4.
        let align = if align == 8 { 8 } else { 4 };
        let Ok(mut notes) = NoteIterator::<Header>::new(LittleEndian, align, data) else { return true };
        loop {
            match notes.next() {
                Ok(Some(_)) if self.notes.len() >= MOST_NOTES => return false,
                Ok(Some(note)) => self.notes.push(Note {
                    name: note.name().to_vec(),
                    kind: note.n_type(LittleEndian).0,
                    data: note.desc().to_vec(),
                }),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// The piece that holds `address`.
    pub(crate) fn load(&self, address: Addr) -> Option<&Load> {
        let after = self.loads.partition_point(|load| load.start <= address);
        self.loads.get(..after)?.last().filter(|load| address < load.end)
    }

    /// Read stored memory; 0 where none is.
    pub(crate) fn read(&self, address: Addr, buffer: &mut [u8]) -> usize {
        let Some(load) = self.load(address) else { return 0 };
        let into = address - load.start;
        let present = saturated(load.stored.saturating_sub(into).min(buffer.len() as u64));
        if present == 0 {
            return 0;
        }
        buffer.get_mut(..present).map_or(0, |buffer| self.bytes.read_at(load.offset + into, buffer))
    }

    /// Notes of this owner and kind.
    pub(crate) fn notes_of<'n>(&'n self, name: &'n [u8], kind: u32) -> impl Iterator<Item = &'n Note> {
        self.notes.iter().filter(move |note| note.kind == kind && note.name == name)
    }
}

/// The program headers, also where there are too many for their counter.
fn segments(bytes: &Bytes, header: &Header) -> Option<Vec<Segment>> {
    let size = size_of::<Segment>() as u64;
    if u64::from(header.e_phentsize.get(LittleEndian)) != size {
        return None;
    }
    let mut count = u64::from(header.e_phnum.get(LittleEndian));
    if count == u64::from(elf::PN_XNUM) {
        // The true number stands in the first section header.
        let section = bytes.slice(header.e_shoff.get(LittleEndian), 64)?;
        count = u64::from(u32::from_le_bytes(section.get(44..48)?.try_into().ok()?));
    }
    if count > MOST_SEGMENTS {
        return None;
    }
    let table = bytes.slice(header.e_phoff.get(LittleEndian), count * size)?;
    let (segments, _) = object::pod::slice_from_bytes::<Segment>(&table, saturated(count)).ok()?;
    Some(segments.to_vec())
}

fn unpack(packed: impl Read, name: &dyn Fn() -> String) -> Result<Vec<u8>, CoreError> {
    let damaged = |why: String| CoreError::Damaged { path: name(), why };
    log::info!("unpacking {}", name());
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
    let decoder = decoder.map_err(|error| damaged(format!("it cannot be unpacked ({error})")))?;
    let mut bytes = Vec::new();
    let mut decoder = decoder;
    // A piece at a time, so that the buffer never has twice the room.
    let unpacked = loop {
        let fits = bytes.len() as u64 + PIECE as u64 <= LARGEST_UNPACKED && budget::take(PIECE as u64, name);
        if !fits {
            let size = LARGEST_UNPACKED >> 20;
            return Err(damaged(format!("it unpacks to more than {size} MiB; unpack it on disk with `zstd -d` first")));
        }
        bytes.reserve_exact(PIECE);
        match decoder.by_ref().take(PIECE as u64).read_to_end(&mut bytes) {
            Ok(PIECE) => {}
            done => break done,
        }
    };
    // The unpacked part of a cut file is treated like a cut core.
    match unpacked {
        Ok(_) => Ok(bytes),
        Err(_) if bytes.len() > 64 => Ok(bytes),
        Err(error) => Err(damaged(format!("it cannot be unpacked ({error})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core of these pieces: (address, size in memory, place in the file, size in the file).
    fn core(loads: &[[u64; 4]]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0\x01\0\0\0".to_vec();
        for word in [0, 64, 0] {
            bytes.extend(u64::to_le_bytes(word));
        }
        bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, loads.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
        for [address, size, offset, stored] in loads {
            bytes.extend([1, 0, 0, 0, 6, 0, 0, 0]);
            for word in [offset, address, &0, stored, size, &4096] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn pieces_that_announce_more_than_there_is() {
        let most = u64::MAX - 0x2000;
        let bytes = core(&[[0x1000, most, 0, most], [0x1800, most, 0, most], [0x1900, 64, u64::MAX, 64]]);
        let opened = CoreFile::from_bytes(bytes.clone()).unwrap();
        assert_eq!(opened.loads.len(), 1, "what lies over another is left out");
        assert_eq!(opened.loads[0].stored, bytes.len() as u64);
        assert_eq!(opened.problems.len(), 2, "{:?}", opened.problems);
        let mut buffer = [0; 4];
        assert_eq!((opened.read(Addr(0x1000), &mut buffer), &buffer), (4, b"\x7fELF"));
        assert_eq!(opened.read(Addr(0x1000 + bytes.len() as u64), &mut buffer), 0);
    }
}
