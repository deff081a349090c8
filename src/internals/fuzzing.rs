//! Doors for fuzzers: each takes bytes that may be anything and must come back, without panic and in bounded time.
//!
//! In: bytes. Out: nothing, or for the mutation tests a snapshot taken apart and put together again. No part of the
//! library's interface.

use std::path::PathBuf;
use std::sync::Arc;

use crate::analysis;
use crate::arch::Architecture;
use crate::arch::system_calls::FUTEX;
use crate::gpu::GpuCore;
use crate::image::core::{CoreFile, Places, elf, notes};
use crate::image::{
    Addr, Fault, FileBytes, Files, Mapping, Memory, ProcessImage, RegisterSet, Registers, ThreadImage, budget,
};
use crate::job;
use crate::modules::Modules;
use crate::render::{self, Format, Style};
use crate::symbols::{Symbols, Tables};
use crate::unwind;
use crate::{python, snapshot, waits};

/// Where fuzzed memory begins.
const BASE: u64 = 0x10000;

/// Analyse a core or a snapshot from end to end. Returns whether that was possible.
pub fn core(bytes: &[u8]) -> bool {
    let path = PathBuf::from("fuzzed");
    budget::begin();
    let Ok(core) = CoreFile::from_bytes(bytes.to_vec()) else { return false };
    // No file of this machine: what is found must not depend on it.
    let places = Places { sysroot: Some("/nonexistent".into()), ..Places::default() };
    let Ok(outcome) = analysis::opened(&[path], vec![core], &[], &places, analysis::Keep::Nothing, true) else {
        return false;
    };
    let mut out = Vec::new();
    for format in [Format::Text, Format::Json, Format::Dot] {
        let _ = render::render(&outcome.report, format, &Style::plain(), &mut out);
    }
    true
}

/// A core of GPUs. Whether it is one.
pub fn gpu_core(bytes: &[u8]) -> bool {
    budget::begin();
    let Ok(bytes) = elf::Bytes::of(bytes.to_vec()) else { return false };
    GpuCore::is_one(&bytes) && GpuCore::read(&bytes, "fuzzed").is_ok()
}

/// A digest or what a witness wrote, beside a digest that is whole: the verdict over both. Whether it is one of these.
pub fn job(bytes: &[u8]) -> bool {
    const WHOLE: &[u8] = include_bytes!("../../testdata/jobs/gloo/receive/all.digest.json");
    crate::limits::begin();
    let mut digest = job::Digest::default();
    match job::Witness::read(bytes, "fuzzed_rank_1") {
        Some(Ok(witness)) => digest.add_witness(witness),
        Some(Err(_)) => return false,
        None => match job::Digest::read(bytes, "fuzzed") {
            Ok(read) => digest.merge(read),
            Err(_) => return false,
        },
    }
    let alone = digest.write();
    let is_known = digest.later_version().is_none();
    assert!(
        !is_known || job::Digest::read(&alone, "again").is_ok_and(|again| again.write() == alone),
        "what was written is read as it was"
    );
    let mut out = Vec::new();
    for more in [None, job::Digest::read(WHOLE, "whole").ok()] {
        digest.merge(more.unwrap_or_default());
        let report = job::report(&digest);
        for format in [Format::Text, Format::Json, Format::Html] {
            let _ = render::render(&report, format, &Style::plain(), &mut out);
        }
    }
    true
}

/// The notes of a core, each parser with all bytes.
pub fn notes(bytes: &[u8]) {
    let _ = notes::thread(Architecture::X86_64, bytes);
    let _ = notes::process(bytes);
    let _ = notes::files(bytes);
    let _ = notes::auxiliary(bytes, notes::AT_PHDR);
}

/// /proc/PID/maps.
pub fn maps(bytes: &[u8]) {
    let _ = crate::image::live::parse_maps(bytes);
}

/// /proc/PID/cmdline and /proc/PID/environ.
pub fn arguments(bytes: &[u8]) {
    let _ = crate::image::live::parse_arguments(bytes);
    let _ = crate::image::environment::relevant(bytes);
}

/// The loader's list of libraries, with the program headers at the beginning: lists may be circles.
pub fn link_map(bytes: &[u8]) {
    let mut image = image(bytes, false);
    for (key, value) in [(notes::AT_PHDR, BASE), (notes::AT_PHNUM, 16), (notes::AT_RANDOM, BASE + 64)] {
        image.auxiliary.extend([key, value].into_iter().flat_map(u64::to_le_bytes));
    }
    snapshot::keep_roots(&image);
}

/// An ELF file with frame information and symbols, mapped at the beginning.
pub fn elf(bytes: &[u8]) {
    let image = image(bytes, true);
    let modules = Modules::of(&image);
    let tables = Tables::of(&modules);
    let symbols = Symbols::new(&modules, &tables, &image);
    for stack in unwind::stacks(&image, &modules) {
        for frame in stack.frames.iter().take(64) {
            let _ =
                (symbols.function(frame.lookup), symbols.function_start(frame.lookup), symbols.source(frame.lookup));
            let _ = crate::code::Code::new(&image, &symbols).calls_before(frame, None);
        }
    }
    for place in (0..bytes.len() as u64).step_by(97).take(64) {
        let at = Addr(BASE + place);
        let _ = (symbols.function(at), symbols.object(at), symbols.function_start(at), symbols.source(at));
        let _ = symbols.slot(at);
    }
    let _ = symbols.find(0, "_PyRuntime");
}

/// CPython's structures, the first byte choosing the version; `_PyRuntime` stands at the beginning.
pub fn python(bytes: &[u8]) {
    let Some((version, memory)) = bytes.split_first() else { return };
    let image = image(memory, false);
    let python = python::walk_foreign(&image, Addr(BASE), usize::from(*version));
    waits::cpython::ask_everything(&*image.memory, &python);
}

/// The JSON of a snapshot.
pub fn looks_of(bytes: &[u8]) -> Option<Vec<u8>> {
    snapshot::looks_of(&CoreFile::from_bytes(bytes.to_vec()).ok()?)
}

/// Put a snapshot's JSON in the place of another one's; its pages stay.
pub fn with_looks(bytes: &[u8], json: &[u8]) -> Option<Vec<u8>> {
    snapshot::with_looks(&CoreFile::from_bytes(bytes.to_vec()).ok()?, json)
}

/// A process with this memory, and one thread in the middle of it.
fn image(bytes: &[u8], is_file: bool) -> ProcessImage {
    let end = Addr(BASE + (bytes.len() as u64).next_multiple_of(4096).max(4096));
    let mut general = RegisterSet::new(Architecture::X86_64);
    let middle = BASE + ((bytes.len() as u64 / 2) & !7);
    let architecture = Architecture::X86_64;
    architecture.general_registers().for_each(|register| general.set(register, middle));
    let registers = Registers {
        general,
        system_call: Architecture::X86_64.number_of(&FUTEX).unwrap_or(-1),
        thread_pointer: Addr(BASE),
        descriptor: None,
    };
    let thread = ThreadImage { registers: Some(registers), ..ThreadImage::new(1) };
    let mapping = Mapping {
        read: true,
        write: !is_file,
        execute: is_file,
        inode: u64::from(is_file),
        path: is_file.then(|| "/fuzzed".to_owned()),
        ..Mapping::new(Addr(BASE), end)
    };
    ProcessImage {
        architecture,
        pid: 1,
        ns_pid: 1,
        threads: vec![thread],
        mappings: vec![mapping],
        memory: Arc::new(Bytes(bytes.to_vec())),
        files: Arc::new(OneFile(FileBytes::new(bytes.to_vec()))),
        ..ProcessImage::unknown()
    }
}

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let offset = address.0.checked_sub(BASE).and_then(|offset| usize::try_from(offset).ok());
        let rest = offset.and_then(|offset| self.0.get(offset..)).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(Fault::Unmapped(address))?;
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
}

#[derive(Debug)]
struct OneFile(FileBytes);

impl Files for OneFile {
    fn mapped(&self, _mapping: &Mapping) -> Option<FileBytes> {
        Some(self.0.clone())
    }

    fn debug_file(&self, _build_id: Option<&[u8]>, _link: Option<&str>, _module_path: &str) -> Option<FileBytes> {
        None
    }
}
