//! The kernel's notes in a core: registers, the process, mapped files, the auxiliary vector.
//!
//! In: the bytes of notes. Out: plain values. No casts: every field is read at its offset and every length checked;
//! what is short is left out. Layouts: include/uapi/linux/elfcore.h of 64-bit machines, the same since 2.6; the
//! registers inside are the machine's ([`Architecture::registers`]).

use crate::arch::Architecture;
use crate::image::{Addr, Registers, saturated};
use crate::limits::core::MOST_FILES;

/// Kinds of notes with the owner "CORE" (linux/elf.h).
pub(crate) const NT_PRSTATUS: u32 = 1;
pub(crate) const NT_PRPSINFO: u32 = 3;
pub(crate) const NT_AUXV: u32 = 6;
pub(crate) const NT_FILE: u32 = 0x4649_4c45;
/// The owner of notes about what only some machines have.
pub(crate) const LINUX: &[u8] = b"LINUX";

/// Entries of the auxiliary vector (linux/auxvec.h).
pub(crate) const AT_PHDR: u64 = 3;
pub(crate) const AT_PHNUM: u64 = 5;
pub(crate) const AT_RANDOM: u64 = 25;
pub(crate) const AT_SYSINFO_EHDR: u64 = 33;

/// `struct elf_prstatus`: pr_pid, pr_reg; what follows these.
pub(crate) mod prstatus {
    pub(crate) const PID: usize = 32;
    pub(crate) const REGISTERS: usize = 112;
    /// pr_fpvalid, with padding.
    pub(crate) const BEHIND_REGISTERS: usize = 8;
}

/// `struct elf_prpsinfo`: pr_pid, pr_ppid, pr_fname, pr_psargs; its size.
pub(crate) mod prpsinfo {
    pub(crate) const PID: usize = 24;
    pub(crate) const PARENT: usize = 28;
    pub(crate) const NAME: usize = 40;
    pub(crate) const NAME_SIZE: usize = 16;
    pub(crate) const ARGUMENTS: usize = 56;
    pub(crate) const ARGUMENTS_SIZE: usize = 80;
    pub(crate) const SIZE: usize = 136;
}

/// A thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadNote {
    pub(crate) tid: i32,
    pub(crate) registers: Registers,
}

/// The process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessNote {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
}

/// A mapped file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileRange {
    pub(crate) start: Addr,
    pub(crate) end: Addr,
    /// In bytes.
    pub(crate) offset: u64,
    pub(crate) path: String,
}

fn word(data: &[u8], offset: usize) -> Option<u64> {
    data.get(offset..)?.first_chunk().copied().map(u64::from_le_bytes)
}

fn number(data: &[u8], offset: usize) -> Option<i32> {
    data.get(offset..)?.first_chunk().copied().map(i32::from_le_bytes)
}

/// NT_PRSTATUS.
pub(crate) fn thread(architecture: Architecture, data: &[u8]) -> Option<ThreadNote> {
    let registers = architecture.registers(data.get(prstatus::REGISTERS..)?)?;
    Some(ThreadNote { tid: number(data, prstatus::PID)?, registers })
}

/// NT_PRPSINFO.
pub(crate) fn process(data: &[u8]) -> Option<ProcessNote> {
    let text = |offset: usize, size: usize| {
        let bytes = data.get(offset..offset + size)?;
        let text = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let arguments = text(prpsinfo::ARGUMENTS, prpsinfo::ARGUMENTS_SIZE)?;
    Some(ProcessNote {
        pid: number(data, prpsinfo::PID)?,
        parent: number(data, prpsinfo::PARENT)?,
        name: text(prpsinfo::NAME, prpsinfo::NAME_SIZE)?,
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
    })
}

/// NT_FILE: a count, the unit of the offsets, (start, end, offset) of each, then the names.
pub(crate) fn files(data: &[u8]) -> Vec<FileRange> {
    let (Some(count), Some(unit)) = (word(data, 0), word(data, 8)) else { return Vec::new() };
    let possible = (data.len() as u64).saturating_sub(16) / 24;
    let announced = count.min(MOST_FILES);
    let mut names = usize::try_from(announced.saturating_mul(24).saturating_add(16))
        .ok()
        .and_then(|at| data.get(at..))
        .unwrap_or_default()
        .split(|byte| *byte == 0);
    (0..saturated(announced.min(possible)))
        .filter_map(|position| {
            let at = 16 + position * 24;
            let path = names.next().filter(|name| !name.is_empty())?;
            let (start, end) = (Addr(word(data, at)?), Addr(word(data, at + 8)?));
            let offset = word(data, at + 16)?.checked_mul(unit)?;
            let path = String::from_utf8_lossy(path).into_owned();
            (start < end).then_some(FileRange { start, end, offset, path })
        })
        .collect()
}

/// NT_AUXV: the value of one entry.
pub(crate) fn auxiliary(data: &[u8], key: u64) -> Option<u64> {
    data.chunks_exact(16).find(|entry| word(entry, 0) == Some(key)).and_then(|entry| word(entry, 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::RegisterSet;

    #[test]
    fn lying_counts_give_what_is_there() {
        let mut data = Vec::new();
        for value in [1u64 << 40, 4096, 0x1000, 0x3000, 2] {
            data.extend(value.to_le_bytes());
        }
        assert!(files(&data).is_empty());
        data[..8].copy_from_slice(&1u64.to_le_bytes());
        data.extend(b"/lib/x\0");
        let expected = FileRange { start: Addr(0x1000), end: Addr(0x3000), offset: 8192, path: "/lib/x".into() };
        assert_eq!(files(&data), [expected]);
        assert!(files(&data[..30]).is_empty());
        assert!(files(&[]).is_empty());
    }

    #[test]
    fn short_notes_are_none() {
        let architecture = Architecture::X86_64;
        assert!(thread(architecture, &[0; 280]).is_none());
        assert!(process(&[0; 100]).is_none());
        assert!(auxiliary(&[0; 15], 3).is_none());
        let mut general = RegisterSet::new(architecture);
        general.set_sp(Addr(9));
        let registers = Registers { general, system_call: -1, thread_pointer: Addr(0), descriptor: None };
        let mut data = vec![0; prstatus::REGISTERS];
        data[prstatus::PID] = 7;
        data.extend(architecture.user_registers(&registers));
        let thread = thread(architecture, &data).unwrap();
        assert_eq!((thread.tid, thread.registers.general.sp()), (7, Some(Addr(9))));
    }
}
