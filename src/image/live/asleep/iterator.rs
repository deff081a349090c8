//! Registers of sleeping threads by eBPF: a task iterator reports all of them in one pass, and wakes no thread.
//!
//! In: process ids. Out: a [`Record`] a thread. The program is `task_registers.bpf.c`. scripts/check/bpf-object builds
//! it beforehand, so that no compiler is needed where lockscope runs. At load, the offsets of the kernel's fields come
//! from the running kernel's type information (BTF). This module does not decide which parts of a record are credible.
//!
//! It needs Linux 5.15, CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and a kernel built with BTF.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use aya_obj::Object;
use aya_obj::btf::Btf;
use aya_obj::generated::bpf_insn;
use object::{Object as _, ObjectSection};

use super::{CALLS, Mark, Task, kernel_types};
use crate::arch::{Architecture, Registers};
use crate::image::FileBytes;
use crate::image::live::proc_fs::{self, ProcFs};
use crate::limits::image::MOST_FOLLOWED;
use crate::limits::live::MOST_RECORDS;
use crate::sys;

/// The program, as scripts/check/bpf-object builds it.
#[cfg(target_arch = "x86_64")]
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("task_registers.x86_64.bpf.o"));
/// The program, as scripts/check/bpf-object builds it.
#[cfg(target_arch = "aarch64")]
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("task_registers.aarch64.bpf.o"));
/// Where its own types are.
const TYPES_OF_OBJECT: &str = ".BTF";
/// Its names in `task_registers.bpf.c`.
const PROGRAM: &str = "task_registers";
const PROCESSES: &str = "wanted";
/// The function of the kernel that goes over all tasks.
const OVER_TASKS: &str = "bpf_iter_task";
/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Why there is no iterator. The text goes into the report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::image::live) enum Unavailable {
    /// The kernel would refuse.
    #[error("eBPF needs CAP_BPF and CAP_PERFMON, or root; grant them with setcap or run as root")]
    NoCapability,
    /// No type information.
    #[error("this kernel was built without BTF ({TYPES} is not there)")]
    NoTypes,
    /// It did refuse, or is too old.
    #[error("the kernel does not take the eBPF program ({0})")]
    Refused(String),
    /// The thread that loads it could not be started, or failed.
    #[error("no thread could load the eBPF program")]
    NoThread,
}

/// One thread as the iterator reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Its process.
    pub(super) process: i32,
    /// Its id, in lockscope's own PID namespace.
    pub(super) thread: i32,
    /// Shows by comparison whether it has run since.
    pub(super) mark: Mark,
    /// The fields that /proc reports, too.
    pub(super) task: Task,
    /// The registers with which it will continue in user space. `None` where the kernel has none, as for its own
    /// workers.
    pub(super) registers: Option<Registers>,
}

/// Aligned as the header of an object file requires.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// The loaded program.
///
/// It goes over the threads of one process after the other where the kernel can do that (Linux 6.1). Elsewhere it goes
/// over the whole machine, which takes a millisecond for two thousand threads. A pass over one process ends early when
/// the thread that it stands at ends. The kernel keeps threads in the order in which they came. So such a pass lacks
/// the last of the threads that existed before it, and includes none that came meanwhile. It returns fewer threads than
/// the process had when the pass began.
#[derive(Debug)]
pub(super) struct TaskIterator {
    proc_fs: ProcFs,
    program: OwnedFd,
    /// The processes to report.
    processes: OwnedFd,
    /// Over all threads of the machine.
    over_all: OwnedFd,
    /// Over those of each process; `None` where the kernel cannot, or they are many.
    over_each: Option<BTreeMap<i32, OwnedFd>>,
}

/// More processes than that are found among all threads of the machine.
const FEW_PROCESSES: usize = 16;
/// How often a pass over one process is taken again that ended early.
const PASSES: u32 = 3;

impl TaskIterator {
    /// Whether it is worth trying; costs next to nothing.
    pub(super) fn is_possible(proc_fs: &ProcFs) -> Result<(), Unavailable> {
        // linux/capability.h.
        const SYS_ADMIN: u64 = 1 << 21;
        const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;
        let status = proc_fs::status(&proc_fs.root().join("thread-self")).unwrap_or_default();
        let held = status.effective_capabilities.unwrap_or(0);
        if held & SYS_ADMIN == 0 && held & PERFMON_AND_BPF != PERFMON_AND_BPF {
            return Err(Unavailable::NoCapability);
        }
        if Path::new(TYPES).exists() { Ok(()) } else { Err(Unavailable::NoTypes) }
    }

    /// Load it for the threads of `pids`: two milliseconds, most of them to find its types among the kernel's.
    pub(super) fn load(proc_fs: &ProcFs, pids: &[i32]) -> Result<TaskIterator, Unavailable> {
        let entries = u32::try_from(pids.len().max(MOST_FOLLOWED)).unwrap_or(u32::MAX);
        let processes = sys::bpf_set(entries).map_err(refused)?;
        let program = Program::made(&kernel_types()?, &processes)?;
        let load = |log: &mut [u8]| sys::bpf_program(&program.instructions, &program.licence, program.over, log);
        let program = load(&mut []).or_else(|_| {
            // Once more to hear why.
            let mut log = vec![0; LOG];
            load(&mut log).map_err(|error| Unavailable::Refused(reason(error, &log)))
        })?;
        let over_all = sys::bpf_link(program.as_fd(), None).map_err(refused)?;
        let over_each = Some(BTreeMap::new());
        let mut iterator = TaskIterator { proc_fs: proc_fs.clone(), program, processes, over_all, over_each };
        iterator.add(pids)?;
        Ok(iterator)
    }

    /// Also report the threads of these.
    pub(super) fn add(&mut self, pids: &[i32]) -> Result<(), Unavailable> {
        pids.iter().try_for_each(|pid| self.ask_for(*pid, false)).map_err(refused)?;
        if let Some(mut over_each) = self.over_each.take() {
            let link = |&pid: &i32| Some((pid, sys::bpf_link(self.program.as_fd(), Some(pid)).ok()?));
            over_each.extend(pids.iter().take(FEW_PROCESSES + 1).map_while(link));
            let has_all = over_each.len() <= FEW_PROCESSES && pids.iter().all(|pid| over_each.contains_key(pid));
            self.over_each = Some(over_each).filter(|_| has_all);
        }
        Ok(())
    }

    /// Report the threads of this one, on request with the functions of the kernel that they are in.
    fn ask_for(&self, pid: i32, with_calls: bool) -> Result<(), nix::errno::Errno> {
        sys::bpf_insert(self.processes.as_fd(), pid, with_calls.into())
    }

    /// All threads of one of the processes, and in which functions of the kernel they are.
    pub(super) fn read_with_calls(&mut self, pid: i32) -> io::Result<Vec<Record>> {
        self.ask_for(pid, true)?;
        let told = self.read(&[pid]);
        self.ask_for(pid, false)?;
        told
    }

    /// All threads of these of the processes, now.
    pub(super) fn read(&mut self, pids: &[i32]) -> io::Result<Vec<Record>> {
        let each = self.over_each.as_ref().and_then(|over_each| self.one_by_one(over_each, pids));
        let all = || Ok(pass(&self.over_all)?.into_iter().filter(|record| pids.contains(&record.process)).collect());
        each.unwrap_or_else(all)
    }

    /// The same, one process after the other; `None` where one cannot be read this way.
    fn one_by_one(&self, over_each: &BTreeMap<i32, OwnedFd>, pids: &[i32]) -> Option<io::Result<Vec<Record>>> {
        let mut all = Vec::new();
        for &pid in pids {
            let link = over_each.get(&pid)?;
            match (0..PASSES).find_map(|_| self.pass_over_one(pid, link).transpose())? {
                Ok(records) => all.extend(records),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(all))
    }

    /// One pass over one process; `None` if it may have ended early.
    fn pass_over_one(&self, pid: i32, link: &OwnedFd) -> io::Result<Option<Vec<Record>>> {
        // The `stat` file of the main thread, which stays in that directory after it has exited.
        let Some(before) = proc_fs::stat(&self.proc_fs.task(pid, pid)) else { return Ok(None) };
        let records = pass(link)?;
        Ok((records.len() >= before.threads.max(1)).then_some(records))
    }
}

/// One pass of a program that was linked.
fn pass(link: &OwnedFd) -> io::Result<Vec<Record>> {
    let mut file = sys::bpf_iterate(link.as_fd())?.take((MOST_RECORDS * RECORD) as u64);
    let mut bytes = Vec::new();
    // The kernel gives up to some pages a call, whole records only.
    file.read_to_end(&mut bytes)?;
    Ok(bytes.chunks_exact(RECORD).filter_map(parse).collect())
}

/// The kernel's type information: five megabytes, which Linux 6.16 and later give without copying them.
fn kernel_types() -> Result<FileBytes, Unavailable> {
    let file = File::open(TYPES).map_err(refused)?;
    let copied = || std::fs::read(TYPES).map(FileBytes::new);
    sys::map_file(&file).map(FileBytes::new).or_else(|_| copied()).map_err(refused)
}

/// The program as this kernel takes it.
struct Program {
    instructions: Vec<bpf_insn>,
    licence: CString,
    /// The number of [`OVER_TASKS`] among the kernel's types.
    over: u32,
}

impl Program {
    /// With the places of the kernel's fields, and its table of processes.
    fn made(kernel: &[u8], processes: &OwnedFd) -> Result<Program, Unavailable> {
        let file = object::File::parse(&OBJECT.0).map_err(refused)?;
        let own = file.section_by_name(TYPES_OF_OBJECT).ok_or_else(|| missing(TYPES_OF_OBJECT))?;
        let types =
            kernel_types::reduced(kernel, own.data().map_err(refused)?, OVER_TASKS).ok_or_else(|| missing(TYPES))?;
        let over = types.function.ok_or_else(|| missing(OVER_TASKS))?;
        let mut object = Object::parse(&OBJECT.0).map_err(refused)?;
        let types = Btf::parse(&types.types, object.endianness).map_err(refused)?;
        object.relocate_btf(&types).map_err(refused)?;
        let code: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let map = object.maps.get(PROCESSES).ok_or_else(|| missing(PROCESSES))?.clone();
        let maps = [(PROCESSES, processes.as_raw_fd(), &map)];
        object.relocate_maps(maps.into_iter(), &code).map_err(refused)?;
        object.relocate_calls(&code).map_err(refused)?;
        let program = object.programs.get(PROGRAM).ok_or_else(|| missing(PROGRAM))?;
        let function = object.functions.get(&program.function_key()).ok_or_else(|| missing(PROGRAM))?;
        Ok(Program { instructions: function.instructions.clone(), licence: object.license.clone(), over })
    }
}

/// Room for what the kernel says of a program that it refuses.
const LOG: usize = 1 << 16;

/// Why a program was refused: the line of the kernel's log with the reason, which comes before the counts at the end.
fn reason(error: nix::errno::Errno, log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default());
    let last = text.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("processed "));
    last.map_or_else(|| error.desc().to_owned(), |line| format!("{}: {line}", error.desc()))
}

fn missing(name: &str) -> Unavailable {
    Unavailable::Refused(format!("it lacks {name}"))
}

/// With the causes: the outer errors of the library say little.
fn refused(error: impl std::error::Error) -> Unavailable {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    Unavailable::Refused(text)
}

/// Bytes of registers in a record.
const REGISTERS: usize = Architecture::NATIVE.asleep_registers_size();
/// Bytes of a name with the 0 byte at its end.
const NAME: usize = 16;
/// Bytes of `struct record` in `task_registers.bpf.c`: eight words of 4 bytes, the name, six words of 8, the registers, the calls.
const RECORD: usize = 8 * 4 + NAME + 6 * 8 + REGISTERS + CALLS * 8;

/// Parse one `struct record`.
fn parse(bytes: &[u8]) -> Option<Record> {
    let mut rest = bytes;
    let mut half = || Some(u32::from_le_bytes(*take(&mut rest)?));
    let (process, thread, state, on_cpu) = (half()? as i32, half()? as i32, half()?, half()?);
    let (innermost, traced, processor, _unused) = (half()? as i32, half()?, half()? as i32, half()?);
    let name = *take::<NAME>(&mut rest)?;
    let mut word = || Some(u64::from_le_bytes(*take(&mut rest)?));
    let (voluntary, involuntary, exec_start) = (word()?, word()?, word()?);
    let (started, used, turns) = (word()?, word()?, word()?);
    let registers = take::<REGISTERS>(&mut rest)?;
    let mut calls = [0; CALLS];
    for call in &mut calls {
        *call = u64::from_le_bytes(*take(&mut rest)?);
    }
    Some(Record {
        process,
        thread,
        mark: Mark {
            state: letter(state),
            on_cpu: on_cpu != 0,
            switches: (voluntary, involuntary),
            // A thread that slept had 0 (Linux 6.18), as after a move to another processor: it is no time.
            ran: Some(exec_start).filter(|ran| *ran != 0),
        },
        task: Task {
            name,
            innermost_id: innermost,
            has_tracer: traced != 0,
            processor: (processor >= 0).then_some(processor),
            started,
            used: (used, turns),
            calls,
        },
        registers: Architecture::NATIVE.asleep_registers(registers),
    })
}

/// The next `N` bytes.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(first)
}

/// The letter that /proc would show (fs/proc/array.c, include/linux/sched.h: the same since Linux 4.14).
fn letter(state: u32) -> char {
    const INTERRUPTIBLE: u32 = 1;
    const UNINTERRUPTIBLE: u32 = 2;
    const STOPPED: u32 = 4;
    const TRACED: u32 = 8;
    const EXITING: u32 = 0x10 | 0x20 | 0x40 | 0x80;
    match state {
        _ if state & EXITING != 0 => 'X',
        _ if state & TRACED != 0 => 't',
        _ if state & STOPPED != 0 => 'T',
        _ if state & UNINTERRUPTIBLE != 0 => 'D',
        _ if state & INTERRUPTIBLE != 0 => 'S',
        // Also on its way to being woken (TASK_WAKING).
        _ => 'R',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Addr;

    /// As a library that reads all types of the kernel finds them.
    #[test]
    fn fields_lie_where_all_types_of_the_kernel_say() {
        let Ok(kernel) = std::fs::read(TYPES) else {
            return println!("skip: this kernel was built without BTF");
        };
        let mut object = Object::parse(&OBJECT.0).expect("an object");
        object.relocate_btf(&Btf::parse(&kernel, object.endianness).expect("types")).expect("fits");
        let own = object::File::parse(&OBJECT.0).expect("an object");
        let own = own.section_by_name(TYPES_OF_OBJECT).expect("types").data().expect("bytes");
        let few = kernel_types::reduced(&kernel, own, OVER_TASKS).expect("types");
        assert!(few.types.len() < 16 << 10, "{} bytes", few.types.len());
        let mut by_few = Object::parse(&OBJECT.0).expect("an object");
        by_few.relocate_btf(&Btf::parse(&few.types, by_few.endianness).expect("types")).expect("fits");
        let code = |object: &Object| -> Vec<Vec<(u8, i16, i32)>> {
            let word = |one: &bpf_insn| (one.code, one.off, one.imm);
            object.functions.values().map(|function| function.instructions.iter().map(word).collect()).collect()
        };
        assert!(!code(&object).is_empty());
        assert_eq!(code(&by_few), code(&object));
    }

    /// While threads end all the time, all living ones are reported.
    #[test]
    fn threads_that_end_meanwhile_hide_no_others() {
        use std::sync::Barrier;
        const ROUNDS: usize = 60;
        const FEW: usize = 30;
        let (proc_fs, own) = (ProcFs::new("/proc"), std::process::id() as i32);
        let loaded = TaskIterator::is_possible(&proc_fs).and_then(|()| TaskIterator::load(&proc_fs, &[own]));
        let mut iterator = match loaded {
            Ok(iterator) => iterator,
            Err(why) => return println!("skip: {why}"),
        };
        for round in 0..ROUNDS {
            let (gate, end) = (Barrier::new(2 * FEW + 1), Barrier::new(FEW + 1));
            let told = std::thread::scope(|scope| {
                let mut living = Vec::new();
                for _ in 0..FEW {
                    // One that ends, and behind it in the kernel's list one that stays.
                    scope.spawn(|| gate.wait());
                    let (tell, told) = std::sync::mpsc::channel();
                    let (gate, end) = (&gate, &end);
                    scope.spawn(move || {
                        tell.send(nix::unistd::gettid().as_raw()).expect("somebody listens");
                        gate.wait();
                        end.wait();
                    });
                    living.push(told.recv().expect("its id"));
                }
                gate.wait();
                let readings = [(); 4].map(|()| iterator.read(&[own]).expect("a reading"));
                end.wait();
                let has = |reading: &Vec<Record>, tid: i32| reading.iter().any(|record| record.thread == tid);
                readings.iter().all(|reading| living.iter().all(|tid| has(reading, *tid)))
            });
            assert!(told, "round {round}");
        }
    }

    #[test]
    fn many_processes_are_found_among_all() {
        let proc_fs = ProcFs::new("/proc");
        let own = std::process::id() as i32;
        let loaded = TaskIterator::is_possible(&proc_fs).and_then(|()| TaskIterator::load(&proc_fs, &[own]));
        let mut iterator = match loaded {
            Ok(iterator) => iterator,
            Err(why) => return println!("skip: {why}"),
        };
        let thread = nix::unistd::gettid().as_raw();
        let has_own =
            |records: &[Record]| records.iter().any(|record| (record.process, record.thread) == (own, thread));
        assert!(has_own(&iterator.read(&[own]).expect("a reading")));
        let others: Vec<i32> = (1 << 22..).take(FEW_PROCESSES).collect();
        iterator.add(&others).expect("room for them");
        assert!(iterator.over_each.is_none());
        assert!(has_own(&iterator.read(&[own]).expect("a reading")));
        assert!(iterator.read(&others).expect("a reading").is_empty(), "only of those that are asked for");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_record_and_damaged_ones() {
        let mut bytes = Vec::new();
        for half in [7u32, 8, 1, 0, 9, 0, 11, 0] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(b"worker 1\0\0\0\0\0\0\0\0");
        // The number of the call is the 16th register, its result the 11th, the code segment the 18th.
        let mut words: Vec<u64> = [3, 4, 5, 12, 13, 14].into_iter().chain(101..=123).chain(21..=28).collect();
        (words[6 + 15], words[6 + 10], words[6 + 17]) = (202, -38i64 as u64, 0x33);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(bytes.len(), RECORD);
        let record = parse(&bytes).expect("a record");
        assert_eq!((record.process, record.thread), (7, 8));
        assert_eq!(record.mark, Mark { state: 'S', on_cpu: false, switches: (3, 4), ran: Some(5) });
        assert_eq!((record.task.name(), record.task.innermost_id), ("worker 1".to_owned(), 9));
        assert_eq!((record.task.processor, record.task.has_tracer), (Some(11), false));
        assert_eq!((record.task.started, record.task.used), (12, (13, 14)));
        assert_eq!(record.task.calls, [21, 22, 23, 24, 25, 26, 27, 28]);
        let registers = record.registers.expect("of user space");
        assert_eq!((registers.thread_pointer, registers.system_call), (Addr(122), 202));
        assert_eq!(registers.general.get(Architecture::NATIVE.result()), None);
        assert_eq!((registers.general.pc(), registers.general.sp()), (Some(Addr(117)), Some(Addr(120))));
        assert_eq!(registers.asleep().map(|call| call.number), Some(202));
        for length in 0..RECORD {
            assert_eq!(parse(&bytes[..length]), None);
        }
        // The kernel's own code segment.
        bytes[96 + 17 * 8] = 0x10;
        assert_eq!(parse(&bytes).expect("a record").registers, None);
    }

    #[test]
    fn states_have_the_letters_of_proc() {
        // TASK_KILLABLE, TASK_IDLE, TASK_FREEZABLE | TASK_INTERRUPTIBLE, TASK_WAKING, EXIT_DEAD.
        for (state, wanted) in
            [(0, 'R'), (1, 'S'), (0x102, 'D'), (0x402, 'D'), (0x2001, 'S'), (0x200, 'R'), (0x10, 'X')]
        {
            assert_eq!(letter(state), wanted, "{state:#x}");
        }
    }
}
