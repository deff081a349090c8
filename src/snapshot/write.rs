//! The file: an ELF core with the pages of the first process's last look, and two notes of lockscope's own.
//!
//! In: recorded looks. Out: the bytes. Registers, the process, its mapped files and the auxiliary vector stand in the
//! kernel's notes as well, so that gdb opens it.

use std::collections::HashMap;

use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, Writer};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::model::{Run, Saved, SavedLook, SavedProcess};
use super::recorder::{BLOCK, Blocks, PAGE};
use super::{NOTE_LOOKS, NOTE_PAGES, OWNER, VERSION};
use crate::arch::Architecture;
use crate::image::core::CoreFile;
use crate::image::core::notes::{self, prpsinfo, prstatus};
use crate::image::{Addr, Gap, Registers};
use crate::limits::snapshot::MOST_LOADS;

/// A sample with its blocks of memory, one map a process.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) look: SavedLook,
    pub(super) blocks: Vec<Blocks>,
}

/// Drop variables, arguments and the environment. Returns the remaining raw memory, for the user to know.
pub(super) fn redact(looks: &mut [Kept]) -> Option<Gap> {
    let mut stacks = 0;
    for kept in looks.iter_mut() {
        if let Some(taken) = &mut kept.look.taken {
            taken.host.name = None;
        }
        for (process, blocks) in kept.look.processes.iter_mut().zip(&mut kept.blocks) {
            process.cmdline.clear();
            process.sources.clear();
            if let Some(help) = &mut process.help {
                help.drop_locals();
            }
            // Argument and environment strings lie between the kernel's random bytes and the end of the stack.
            if let Some(random) = notes::auxiliary(&process.auxiliary, notes::AT_RANDOM)
                && let Some(stack) = process.mappings.iter().find(|mapping| mapping.contains(Addr(random)))
            {
                blank(blocks, random.saturating_add(16), stack.end.0);
            }
            stacks = stacks.max(process.threads.iter().filter(|thread| thread.registers.is_some()).count());
        }
    }
    let last = looks.last_mut()?;
    let size: usize = last.blocks.iter().flat_map(|blocks| blocks.values()).map(Vec::len).sum();
    let remains = Gap::new(
        "command line, environment and local variables",
        format!(
            "left out on request (--redact); {} KiB of raw memory remain, among them the stacks of {stacks} threads and \
             the memory around locks and Python frames: they hold what functions had in their variables",
            size / 1024
        ),
    );
    looks.iter_mut().for_each(|kept| kept.look.gaps.push(remains.clone()));
    Some(remains)
}

fn blank(blocks: &mut Blocks, start: u64, end: u64) {
    for (block, bytes) in blocks.range_mut((start & !(BLOCK - 1))..end) {
        let from = start.saturating_sub(*block).min(bytes.len() as u64) as usize;
        let to = (end - block).min(bytes.len() as u64) as usize;
        bytes[from..to].fill(0);
    }
}

/// Put the file together; `None` without a sample.
pub(super) fn file(looks: Vec<Kept>, redacted: bool) -> Option<Vec<u8>> {
    let (mut looks, blocks): (Vec<SavedLook>, Vec<Vec<Blocks>>) =
        looks.into_iter().map(|kept| (kept.look, kept.blocks)).unzip();
    let own = blocks.last()?.first()?;
    let mut store = Store { own, blob: Vec::new(), known: HashMap::new() };
    for (look, blocks) in looks.iter_mut().zip(&blocks) {
        for (position, (process, blocks)) in look.processes.iter_mut().zip(blocks).enumerate() {
            process.pages = runs(blocks, |block, bytes| store.place(position, block, bytes));
        }
    }
    let blob = store.blob;
    let first = looks.last()?.processes.first()?;
    let architecture = first.architecture;
    let mut out = kernel_notes(first);
    let saved = Saved { version: VERSION, lockscope: env!("CARGO_PKG_VERSION").into(), redacted, looks };
    let json = serde_json::to_vec(&saved).ok()?;
    note(&mut out, OWNER, NOTE_LOOKS, &packed(&json));
    note(&mut out, OWNER, NOTE_PAGES, &packed(&blob));
    elf(architecture, &out, own)
}

/// A snapshot's notes with other JSON, for the tests of damaged ones.
pub(crate) fn with_looks(core: &CoreFile, json: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for one in &core.notes {
        let packed = (one.name == OWNER && one.kind == NOTE_LOOKS).then(|| packed(json));
        note(&mut out, &one.name, one.kind, packed.as_deref().unwrap_or(&one.data));
    }
    let mut blocks = Blocks::new();
    for load in &core.loads {
        for block in (load.start.0..load.end.0).step_by(BLOCK as usize) {
            let mut bytes = vec![0; BLOCK.min(load.end.0 - block) as usize];
            let read = core.read(Addr(block), &mut bytes);
            bytes.truncate(read);
            blocks.insert(block, bytes);
        }
    }
    elf(core.architecture, &out, &blocks)
}

/// zstd.
pub(crate) fn packed(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Where blocks go that are not the core's own, each content once.
struct Store<'a> {
    own: &'a Blocks,
    blob: Vec<u8>,
    known: HashMap<&'a [u8], u64>,
}

impl<'a> Store<'a> {
    fn place(&mut self, process: usize, block: u64, bytes: &'a [u8]) -> Option<u64> {
        if process == 0 && self.own.get(&block).is_some_and(|own| own == bytes) {
            return None;
        }
        if let Some(at) = self.known.get(bytes) {
            return Some(*at);
        }
        let at = self.blob.len() as u64;
        self.blob.extend_from_slice(bytes);
        self.known.insert(bytes, at);
        Some(at)
    }
}

/// Blocks in a row whose bytes stand in a row.
fn runs<'b>(blocks: &'b Blocks, mut place: impl FnMut(u64, &'b [u8]) -> Option<u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (&block, bytes) in blocks {
        let (at, length) = (place(block, bytes), bytes.len() as u64);
        if let Some(last) = runs.last_mut()
            && last.start + last.length == block
            && last.at.map(|at| at + last.length) == at
        {
            last.length += length;
        } else {
            runs.push(Run { start: block, length, at });
        }
    }
    runs
}

fn kernel_notes(process: &SavedProcess) -> Vec<u8> {
    let mut out = Vec::new();
    let main = process.threads.iter().filter(|thread| thread.tid == process.pid);
    let others = process.threads.iter().filter(|thread| thread.tid != process.pid);
    let mut first = true;
    for thread in main.chain(others) {
        let Some(registers) = &thread.registers else { continue };
        note(&mut out, b"CORE", notes::NT_PRSTATUS, &status(thread.tid, registers));
        for (kind, data) in process.architecture.notes(registers) {
            note(&mut out, notes::LINUX, kind, &data);
        }
        if std::mem::take(&mut first) {
            note(&mut out, b"CORE", notes::NT_PRPSINFO, &information(process));
            if !process.auxiliary.is_empty() {
                note(&mut out, b"CORE", notes::NT_AUXV, &process.auxiliary);
            }
            note(&mut out, b"CORE", notes::NT_FILE, &files(process));
        }
    }
    out
}

fn status(tid: i32, registers: &Registers) -> Vec<u8> {
    let mut data = vec![0; prstatus::REGISTERS];
    data[prstatus::PID..prstatus::PID + 4].copy_from_slice(&tid.to_le_bytes());
    data.extend(registers.general.architecture().user_registers(registers));
    data.extend([0; prstatus::BEHIND_REGISTERS]);
    data
}

fn information(process: &SavedProcess) -> Vec<u8> {
    let mut data = vec![0; prpsinfo::SIZE];
    let mut put = |at: usize, bytes: &[u8], size: usize| {
        let length = bytes.len().min(size);
        data[at..at + length].copy_from_slice(&bytes[..length]);
    };
    put(prpsinfo::PID, &process.pid.to_le_bytes(), 4);
    put(prpsinfo::PARENT, &process.parent.unwrap_or(0).to_le_bytes(), 4);
    let main = process.threads.iter().find(|thread| thread.tid == process.pid);
    put(prpsinfo::NAME, main.map_or("", |thread| &thread.name).as_bytes(), prpsinfo::NAME_SIZE - 1);
    put(prpsinfo::ARGUMENTS, process.cmdline.join(" ").as_bytes(), prpsinfo::ARGUMENTS_SIZE - 1);
    data
}

fn files(process: &SavedProcess) -> Vec<u8> {
    let mapped: Vec<_> = process.mappings.iter().filter(|mapping| mapping.is_file()).collect();
    let mut data = Vec::new();
    for value in [mapped.len() as u64, PAGE] {
        data.extend(value.to_le_bytes());
    }
    for mapping in &mapped {
        for value in [mapping.start.0, mapping.end.0, mapping.offset / PAGE] {
            data.extend(value.to_le_bytes());
        }
    }
    for mapping in &mapped {
        data.extend(mapping.path.as_deref().unwrap_or("").bytes());
        data.push(0);
    }
    data
}

fn note(out: &mut Vec<u8>, owner: &[u8], kind: u32, data: &[u8]) {
    for value in [owner.len() as u32 + 1, data.len() as u32, kind] {
        out.extend(value.to_le_bytes());
    }
    out.extend(owner);
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(data);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The core's own memory, with zeros between blocks that stand near to each other where there are too many.
fn loads(blocks: &Blocks) -> Vec<Run> {
    let mut loads = runs(blocks, |block, _| Some(block));
    let mut gap = BLOCK;
    while loads.len() > MOST_LOADS {
        loads.dedup_by(|next, last| {
            let is_near = next.start.saturating_sub(last.start + last.length) <= gap;
            last.length = if is_near { next.start + next.length - last.start } else { last.length };
            is_near
        });
        gap *= 4;
    }
    loads
}

fn elf(architecture: Architecture, notes: &[u8], blocks: &Blocks) -> Option<Vec<u8>> {
    let loads = loads(blocks);
    let mut buffer = Vec::new();
    let mut writer = Writer::new(object::Endianness::Little, true, &mut buffer);
    writer.reserve_file_header();
    writer.reserve_program_headers(u32::try_from(loads.len() + 1).ok()?);
    let notes_at = writer.reserve(notes.len() as u64, 4);
    let places: Vec<u64> = loads.iter().map(|load| writer.reserve(load.length, BLOCK)).collect();
    let header = FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_CORE,
        e_machine: elf::Machine(architecture.elf_machine()),
        e_entry: 0,
        e_flags: elf::FileFlags(0),
    };
    writer.write_file_header(&header).ok()?;
    writer.write_align_program_headers();
    writer.write_program_header(&ProgramHeader {
        p_type: elf::PT_NOTE,
        p_flags: elf::ProgramFlags(0),
        p_offset: notes_at,
        p_vaddr: 0,
        p_paddr: 0,
        p_filesz: notes.len() as u64,
        p_memsz: 0,
        p_align: 4,
    });
    for (load, place) in loads.iter().zip(&places) {
        writer.write_program_header(&ProgramHeader {
            p_type: elf::PT_LOAD,
            p_flags: elf::PF_R | elf::PF_W,
            p_offset: *place,
            p_vaddr: load.start,
            p_paddr: 0,
            p_filesz: load.length,
            p_memsz: load.length,
            p_align: BLOCK,
        });
    }
    writer.write_align(4);
    writer.write(notes);
    for load in &loads {
        writer.write_align(BLOCK);
        let (mut at, end) = (load.start, load.start.saturating_add(load.length));
        for (&block, bytes) in blocks.range(load.start..end) {
            writer.write(&vec![0; (block - at) as usize]);
            writer.write(bytes);
            at = block + bytes.len() as u64;
        }
    }
    Some(buffer)
}
