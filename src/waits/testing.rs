//! A made-up process for the tests of this folder: bytes, threads, frames.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CapturedProcess, Observations, observe};
use crate::arch::Architecture;
use crate::arch::system_calls::{FUTEX, SystemCall};
use crate::image::{Addr, Fault, Image, Mapping, Memory, ProcessImage, RegisterSet, Registers, ThreadImage};
use crate::modules::Modules;
use crate::origin::{NativeCode, Origin};
use crate::python::Python;
use crate::symbols::{Mangling, Symbol, SymbolCache, Symbols, Tables};
use crate::threads::{Frame, FrameKind, Thread};
use crate::unwind::{NativeFrame, NativeStack, StackEnd, Trust};

/// The machine of the processes that are made up.
pub(super) const ARCHITECTURE: Architecture = Architecture::X86_64;

/// The number of a system call there.
pub(super) fn number(call: &SystemCall) -> i64 {
    ARCHITECTURE.number_of(call).expect("a call of this machine")
}

/// Bytes at addresses; what is not there is not mapped.
#[derive(Debug, Default, Clone)]
pub(super) struct Bytes(pub(super) BTreeMap<u64, u8>);

impl Memory for Bytes {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        for slot in buffer.iter_mut() {
            match self.0.get(&address.0.wrapping_add(done as u64)) {
                Some(byte) => *slot = *byte,
                None => break,
            }
            done += 1;
        }
        if done == 0 { Err(Fault::Unmapped(address)) } else { Ok(done) }
    }
}

/// A process under construction.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) bytes: Bytes,
    pub(super) threads: Vec<ThreadImage>,
    pub(super) stacks: Vec<Thread>,
    pub(super) pid: i32,
    pub(super) parent: Option<i32>,
    pub(super) parent_threads: Vec<(i32, String)>,
    pub(super) shares_memory_of: Option<i32>,
    pub(super) mappings: Vec<Mapping>,
    pub(super) python: Option<Python>,
    pub(super) environment: Vec<(String, String)>,
    /// Names of data of the process's files.
    pub(super) objects: Vec<(u64, String)>,
}

/// Thread descriptors are 0x1000 apart from here, so are stacks from `STACK`.
pub(super) const PD: u64 = 0x7000_0000;
pub(super) const STACK: u64 = 0x6000_0000;
/// Where the tests put their lock.
pub(super) const LOCK: u64 = 0x5000_0000;

impl Made {
    /// A process with glibc threads of these ids, all running user code.
    pub(super) fn new(tids: &[i32]) -> Made {
        let mut made = Made {
            bytes: Bytes::default(),
            threads: Vec::new(),
            stacks: Vec::new(),
            pid: tids[0],
            parent: None,
            parent_threads: Vec::new(),
            shares_memory_of: None,
            mappings: Vec::new(),
            python: None,
            environment: Vec::new(),
            objects: Vec::new(),
        };
        for (index, &tid) in tids.iter().enumerate() {
            made.zero(PD + 0x1000 * index as u64, 0x700);
            made.zero(STACK + 0x1000 * index as u64, 0x1000);
            let pd = made.pd(index);
            made.u64(pd, pd);
            made.u64(pd + 0x10, pd);
            made.u32(pd + 0x2d0, tid as u32);
            made.u32(pd + 0x628, 2);
            made.threads.push(ThreadImage {
                name: format!("t{tid}"),
                asleep_ms: Some(7),
                start_ticks: Some(100),
                ..ThreadImage::new(tid)
            });
            made.set(index, -1, 1, [0; 6]);
        }
        made.zero(LOCK - 0x40, 0x140);
        made
    }

    pub(super) fn pd(&self, index: usize) -> u64 {
        PD + 0x1000 * index as u64
    }

    pub(super) fn sp(index: usize) -> u64 {
        STACK + 0x1000 * index as u64 + 0x200
    }

    pub(super) fn zero(&mut self, at: u64, size: u64) {
        for byte in at..at + size {
            self.bytes.0.insert(byte, 0);
        }
    }

    pub(super) fn u32(&mut self, at: u64, value: u32) {
        for (i, byte) in value.to_le_bytes().into_iter().enumerate() {
            self.bytes.0.insert(at + i as u64, byte);
        }
    }

    pub(super) fn u64(&mut self, at: u64, value: u64) {
        self.u32(at, value as u32);
        self.u32(at + 4, (value >> 32) as u32);
    }

    /// Map 0x4000 bytes of a file, or of none.
    pub(super) fn map(&mut self, start: u64, path: Option<&str>, write: bool) {
        self.mappings.push(Mapping {
            read: true,
            write,
            inode: u64::from(path.is_some()),
            path: path.map(str::to_owned),
            ..Mapping::new(Addr(start), Addr(start + 0x4000))
        });
    }

    /// Put a thread into a system call.
    pub(super) fn set(&mut self, index: usize, number: i64, result: i64, arguments: [u64; 6]) {
        let mut general = RegisterSet::new(ARCHITECTURE);
        ARCHITECTURE.general_registers().for_each(|register| general.set(register, 0));
        general.set_sp(Addr(Self::sp(index)));
        general.set_pc(Addr(0x40_1000));
        let thread_pointer = Addr(self.pd(index));
        let registers = Registers { general, system_call: number, thread_pointer, descriptor: None };
        self.threads[index].registers = Some(ARCHITECTURE.in_system_call(registers, result, arguments));
    }

    /// Put a thread to sleep on a futex.
    pub(super) fn futex(&mut self, index: usize, word: u64, operation: u64, value: u64) {
        let result = if matches!(operation & 0x7f, 6 | 13) { -513 } else { -512 };
        self.set(index, number(&FUTEX), result, [word, operation, value, 0, 0, 0]);
    }

    /// Give a thread native frames of these names, 0x40 bytes of stack each.
    pub(super) fn frames(&mut self, index: usize, names: &[&str]) {
        let sp = Self::sp(index);
        let registers = self.threads[index].registers.map_or_else(|| RegisterSet::new(ARCHITECTURE), |r| r.general);
        let (mut native, mut frames) = (Vec::new(), Vec::new());
        for (n, name) in names.iter().enumerate() {
            let at = Addr(sp + 0x40 * n as u64);
            native.push(NativeFrame {
                pc: Addr(0x40_1000),
                lookup: Addr(0x40_1000),
                sp: at,
                cfa: Some(at + 0x40),
                registers: if n == 0 { registers } else { RegisterSet::new(ARCHITECTURE) },
                trust: Trust::Cfi,
                signal: false,
            });
            let mangling = if name.contains("::") { Mangling::Rust } else { Mangling::Plain };
            let code = NativeCode { function: Some(name), mangling, file: None };
            let origin = code.origin(&Origin::default());
            let named = Frame::of(FrameKind::Native, Some((*name).into()));
            frames.push(Frame { native: Some(n), mangling, origin, ..named });
        }
        let tid = self.threads[index].tid;
        self.stacks.push(Thread {
            tid,
            name: format!("n{tid}"),
            native: NativeStack { frames: native, end: StackEnd::Bottom },
            python: None,
            frames,
        });
    }
}

/// The observations for these processes.
pub(super) fn observe_made(made: Vec<Made>) -> Observations {
    let (mut images, mut rest, mut caches) = (Vec::new(), Vec::new(), Vec::new());
    for one in made {
        images.push(ProcessImage {
            architecture: ARCHITECTURE,
            pid: one.pid,
            ns_pid: one.pid,
            parent: one.parent,
            parent_threads: one.parent_threads,
            shares_memory_of: one.shares_memory_of,
            threads: one.threads,
            mappings: one.mappings,
            memory: Arc::new(one.bytes),
            environment: one.environment,
            ..ProcessImage::unknown()
        });
        rest.push((one.stacks, one.python));
        let named = |(at, name): (u64, String)| {
            (Addr(at), Some(Symbol { name: name.into(), address: Addr(at), size: 64, mangling: Mangling::Cpp }))
        };
        let objects = one.objects.into_iter().map(named).collect();
        caches.push(SymbolCache { objects, ..SymbolCache::default() });
    }
    let image = Image { processes: images, ..Image::default() };
    let modules: Vec<Modules> = image.processes.iter().map(|_| Modules::default()).collect();
    let tables = Tables::default();
    let symbols: Vec<Symbols<'_>> = image
        .processes
        .iter()
        .zip(&modules)
        .zip(caches)
        .map(|((process, modules), cache)| Symbols::with_cache(modules, &tables, process, cache))
        .collect();
    let contexts: Vec<CapturedProcess<'_>> = rest
        .iter()
        .enumerate()
        .map(|(process, (threads, python))| CapturedProcess {
            process,
            image: &image.processes[process],
            all: &image,
            symbols: &symbols[process],
            threads,
            python: python.as_ref(),
            gpu: None,
            gpu_cores: &[],
        })
        .collect();
    observe(&contexts)
}
