//! Capture of live processes: read first, stop last, release, and only then think.
//!
//! In: process ids. Out: [`Image`]s, one a look. Before the stop everything is read that /proc tells of a running
//! process; the stop itself (module `stop`) takes registers, stacks and the pages that the analysis of an earlier look
//! asked for; what it did not take is read from the running process and counted ([`LiveTarget::late_reads`]). No lock
//! is decoded here.

mod error;
mod files;
mod memory;
mod proc_fs;
mod stop;
pub(crate) mod sys;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use error::AttachError;
use error::Permission;
use files::LiveFiles;
use memory::LiveMemory;
use nix::errno::Errno;
use proc_fs::Proc;
use stop::{Plan, Stopped};

use super::{Gap, Image, ProcessImage, TaskState, ThreadImage};

/// What to look at and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Process ids.
    pub pids: Vec<i32>,
    /// All descendants too.
    pub tree: bool,
    /// Longest stop.
    pub max_pause: Duration,
    /// `/proc`, or a made-up one in tests.
    pub proc_root: PathBuf,
}

/// The time between the two samples of CPU time (design, verdict `running`).
const SAMPLE: Duration = Duration::from_millis(20);

/// Above this many threads /proc/TID/sched is left unread: it costs the kernel 50 us and more a thread.
const MOST_SCHED: usize = 64;

/// Descendants taken at most.
const MOST_PROCESSES: usize = 1024;

/// Live processes that can be looked at several times.
#[derive(Debug)]
pub struct LiveTarget {
    proc: Proc,
    max_pause: Duration,
    processes: Vec<Tracked>,
    gaps: Vec<Gap>,
    sampled: Instant,
}

#[derive(Debug)]
struct Tracked {
    pid: i32,
    files: Arc<LiveFiles>,
    /// Pages that an analysis wanted and the stop had not copied.
    wanted: BTreeSet<u64>,
    memory: Option<Arc<LiveMemory>>,
    cpu: HashMap<i32, u64>,
}

impl LiveTarget {
    /// Check each process and take the first sample of CPU time. Nothing is stopped.
    pub fn open(options: Options) -> Result<LiveTarget, AttachError> {
        let proc = Proc::new(&options.proc_root);
        let mut pids: Vec<i32> = Vec::new();
        for pid in options.pids {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
        if options.tree {
            for pid in pids.clone() {
                for child in proc.descendants(pid, MOST_PROCESSES) {
                    if !pids.contains(&child) && child != std::process::id() as i32 {
                        pids.push(child);
                    }
                }
            }
        }
        let mut gaps = Vec::new();
        let mut processes = Vec::new();
        let mut first_error = None;
        for pid in pids {
            match check(&proc, pid) {
                Ok(()) => processes.push(Tracked {
                    pid,
                    files: Arc::new(LiveFiles::new(proc_directory(&proc, pid))),
                    wanted: BTreeSet::new(),
                    memory: None,
                    cpu: cpu_times(&proc, pid),
                }),
                Err(error) => {
                    gaps.push(Gap::new(format!("process {pid}"), error.to_string()));
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if processes.is_empty() => Err(error),
            _ => Ok(LiveTarget { proc, max_pause: options.max_pause, processes, gaps, sampled: Instant::now() }),
        }
    }

    /// One joint stop of all processes. They run again when this returns.
    pub fn look(&mut self) -> Result<Image, AttachError> {
        for _ in 0..3 {
            if let Some(image) = self.try_look()? {
                return Ok(image);
            }
        }
        Err(AttachError::KeepsExecuting(self.processes.first().map_or(0, |p| p.pid)))
    }

    /// How many pages of writable memory the analysis of the last image read after the release: facts of another
    /// instant. The next look copies them under the stop.
    pub fn late_reads(&self) -> usize {
        self.processes.iter().filter_map(|p| Some(p.memory.as_ref()?.late().difference(&p.wanted).count())).sum()
    }

    fn try_look(&mut self) -> Result<Option<Image>, AttachError> {
        std::thread::sleep(SAMPLE.saturating_sub(self.sampled.elapsed()));
        let interval = self.sampled.elapsed().as_nanos() as u64;
        let mut facts = Vec::new();
        let mut plans = Vec::new();
        for process in &mut self.processes {
            if let Some(memory) = process.memory.take() {
                process.wanted.append(&mut memory.late());
            }
            let before = ProcessFacts::read(&self.proc, process, interval);
            plans.push(Plan {
                pid: process.pid,
                mappings: before.mappings.clone(),
                wanted: process.wanted.clone(),
                unstoppable: before.uninterruptible(),
            });
            facts.push(before);
        }
        self.sampled = Instant::now();
        let outcome = stop::stop_and_copy(&self.proc, &plans, self.max_pause);
        let mut image =
            Image { processes: Vec::new(), gaps: self.gaps.clone(), pause_us: outcome.pause.as_micros() as u64 };
        for ((process, before), stopped) in self.processes.iter_mut().zip(facts).zip(outcome.processes) {
            if let (Some(errno), true) = (stopped.refused, stopped.threads.is_empty()) {
                return Err(refusal(&self.proc, process.pid, errno));
            }
            if stopped.threads.is_empty() {
                image.gaps.push(Gap::new(format!("process {}", process.pid), "it ended during the look"));
                continue;
            }
            if before.replaced(&self.proc, process.pid) {
                return Ok(None);
            }
            image.processes.push(before.into_image(&self.proc, process, stopped, &mut image.gaps));
        }
        if image.processes.is_empty() {
            return Err(AttachError::Ended(self.processes.first().map_or(0, |p| p.pid)));
        }
        // Those that ended are not asked again.
        self.processes.retain(|p| p.memory.is_some());
        Ok(Some(image))
    }
}

/// What is read of a process before its stop.
struct ProcessFacts {
    mappings: Vec<super::Mapping>,
    exe: Option<PathBuf>,
    cmdline: Vec<String>,
    parent: Option<i32>,
    ns_pid: i32,
    threads: Vec<ThreadImage>,
}

impl ProcessFacts {
    fn read(proc: &Proc, process: &mut Tracked, interval: u64) -> ProcessFacts {
        let pid = process.pid;
        let tids = proc.threads(pid);
        let cpu = cpu_times(proc, pid);
        let now_ms = if tids.len() <= MOST_SCHED { proc.now_ms() } else { None };
        let uptime_ms = proc.uptime_ms();
        let (mut parent, mut ns_pid) = (None, pid);
        let mut threads = Vec::new();
        for &tid in &tids {
            let Some(task) = proc.facts(pid, tid) else { continue };
            parent = Some(task.parent);
            ns_pid = task.ns_pid;
            let used =
                cpu.get(&tid).zip(process.cpu.get(&tid)).map(|(now, then)| (now.saturating_sub(*then), interval));
            threads.push(ThreadImage {
                tid,
                ns_tid: task.ns_tid,
                name: task.name,
                state: task.state,
                registers: None,
                syscall: None,
                wchan: proc.wchan(pid, tid),
                cpu_used: used,
                asleep_ms: now_ms
                    .filter(|_| task.state == TaskState::Sleeping)
                    .and_then(|now| Some((now - proc.last_ran_ms(pid, tid)?).max(0.0) as u64)),
                start_ticks: task.start_ticks,
                age_ms: uptime_ms.zip(task.start_ticks).map(|(now, ticks)| now.saturating_sub(ticks_to_ms(ticks))),
                switches: task.switches,
                missing: None,
            });
        }
        process.cpu = cpu;
        ProcessFacts {
            mappings: proc.mappings(pid, &tids),
            exe: proc.link(pid, &tids, "exe"),
            cmdline: proc.cmdline(pid, &tids),
            parent: parent.filter(|p| *p > 0),
            ns_pid,
            threads,
        }
    }

    fn uninterruptible(&self) -> BTreeSet<i32> {
        self.threads.iter().filter(|t| t.state == TaskState::DiskSleep).map(|t| t.tid).collect()
    }

    /// Whether the process has become another program since: then its map is not the one that was used.
    fn replaced(&self, proc: &Proc, pid: i32) -> bool {
        let stack = |maps: &[super::Mapping]| maps.iter().find(|m| m.path.as_deref() == Some("[stack]")).map(|m| m.end);
        let now = proc.mappings(pid, &proc.threads(pid));
        !now.is_empty() && stack(&now) != stack(&self.mappings)
    }

    fn into_image(self, proc: &Proc, process: &mut Tracked, stopped: Stopped, gaps: &mut Vec<Gap>) -> ProcessImage {
        let pid = process.pid;
        if stopped.undone > 0 {
            gaps.push(Gap::new(
                format!("{} ranges of memory of process {pid}", stopped.undone),
                "the stop would have lasted longer than --max-pause; they were read while it ran",
            ));
        }
        let mut threads = self.threads;
        for (tid, registers) in stopped.threads {
            let position = match threads.iter().position(|t| t.tid == tid) {
                Some(position) => position,
                // It was born between the listing and the stop.
                None => {
                    threads.push(born_late(proc, pid, tid));
                    threads.len() - 1
                }
            };
            let thread = &mut threads[position];
            thread.registers = registers;
            if registers.is_none() {
                let place = thread.wchan.clone().unwrap_or_else(|| "the kernel".into());
                let state = if thread.state == TaskState::DiskSleep { "state D, uninterruptible" } else { "no answer" };
                thread.missing = Some(format!("it did not come to its stop in time ({state}, in {place})"));
                thread.syscall = proc.syscall(pid, tid);
            }
        }
        // A zombie leader has no registers and is no gap; other threads without any ended meanwhile.
        threads.retain(|t| t.registers.is_some() || t.missing.is_some() || t.state == TaskState::Zombie);
        threads.sort_by_key(|t| t.tid);
        let parent_threads = self.parent.map(|parent| parent_threads(proc, parent)).unwrap_or_default();
        let memory = Arc::new(LiveMemory::new(pid, self.mappings.clone(), stopped.copied));
        process.memory = Some(memory.clone());
        ProcessImage {
            pid,
            ns_pid: self.ns_pid,
            parent: self.parent,
            parent_threads,
            exe: self.exe,
            cmdline: self.cmdline,
            threads,
            mappings: self.mappings,
            memory,
            files: process.files.clone(),
            tracer: None,
        }
    }
}

fn ticks_to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1)
}

fn born_late(proc: &Proc, pid: i32, tid: i32) -> ThreadImage {
    let task = proc.facts(pid, tid);
    ThreadImage {
        tid,
        ns_tid: task.as_ref().map_or(tid, |t| t.ns_tid),
        name: task.as_ref().map_or_else(String::new, |t| t.name.clone()),
        state: task.as_ref().map_or(TaskState::Other, |t| t.state),
        registers: None,
        syscall: None,
        wchan: None,
        cpu_used: None,
        asleep_ms: None,
        start_ticks: task.as_ref().and_then(|t| t.start_ticks),
        age_ms: Some(0),
        switches: None,
        missing: None,
    }
}

fn parent_threads(proc: &Proc, parent: i32) -> Vec<(i32, String)> {
    const MOST: usize = 4096;
    proc.threads(parent)
        .into_iter()
        .take(MOST)
        .filter_map(|tid| proc.facts(parent, tid).map(|t| (t.ns_tid, t.name)))
        .collect()
}

fn cpu_times(proc: &Proc, pid: i32) -> HashMap<i32, u64> {
    proc.threads(pid).into_iter().filter_map(|tid| Some((tid, proc.cpu_time(pid, tid)?))).collect()
}

/// `/proc/PID`, or that of a live thread where the leader is a zombie, whose links lead nowhere.
fn proc_directory(proc: &Proc, pid: i32) -> PathBuf {
    let directory = proc.directory(pid);
    if std::fs::read_link(directory.join("exe")).is_ok() {
        return directory;
    }
    proc.threads(pid)
        .into_iter()
        .map(|tid| directory.join("task").join(tid.to_string()))
        .find(|d| std::fs::read_link(d.join("exe")).is_ok())
        .unwrap_or(directory)
}

/// Whether a process can be looked at, without touching it.
fn check(proc: &Proc, pid: i32) -> Result<(), AttachError> {
    if pid == std::process::id() as i32 {
        return Err(AttachError::Itself(pid));
    }
    let tids = proc.threads(pid);
    let Some(leader) = proc.facts(pid, pid) else { return Err(AttachError::NoSuchProcess(pid)) };
    if leader.kernel_thread {
        return Err(AttachError::KernelThread { pid, name: leader.name });
    }
    let tracer = tids.iter().take(64).filter_map(|tid| proc.facts(pid, *tid)).map(|t| t.tracer).find(|t| *t != 0);
    if let Some(tracer_pid) = tracer {
        let tracer = proc.name(tracer_pid).unwrap_or_else(|| "a process outside this namespace".into());
        return Err(AttachError::AlreadyTraced { pid, tracer, tracer_pid });
    }
    if leader.state == TaskState::Zombie && tids.len() <= 1 {
        return Err(AttachError::NoSuchProcess(pid));
    }
    match proc.link(pid, &tids, "exe") {
        None => Err(AttachError::Denied { pid, why: Permission::read(proc.root(), pid).explain() }),
        Some(_) => architecture(proc, pid),
    }
}

/// ELF class and machine of the program.
fn architecture(proc: &Proc, pid: i32) -> Result<(), AttachError> {
    use std::io::Read;
    let mut head = [0u8; 20];
    let read = std::fs::File::open(proc_directory(proc, pid).join("exe")).and_then(|mut f| f.read_exact(&mut head));
    if read.is_err() {
        return Ok(());
    }
    let wrong = |what: &str| Err(AttachError::WrongArchitecture { pid, what: what.into() });
    // e_ident[EI_CLASS] and e_machine (ELF specification, figure 1-3); 62 is EM_X86_64.
    match (head[4], u16::from_le_bytes([head[18], head[19]])) {
        _ if head[..4] != *b"\x7fELF" => wrong("not an ELF file"),
        (1, _) => wrong("a 32-bit program"),
        (2, 62) => Ok(()),
        (_, machine) => wrong(&format!("ELF machine {machine}")),
    }
}

fn refusal(proc: &Proc, pid: i32, errno: Errno) -> AttachError {
    match errno {
        Errno::EPERM | Errno::EACCES => match check(proc, pid) {
            Err(error) => error,
            Ok(()) => AttachError::Denied { pid, why: Permission::read(proc.root(), pid).explain() },
        },
        Errno::ESRCH => AttachError::Ended(pid),
        other => AttachError::System { action: "PTRACE_SEIZE", pid, source: other.into() },
    }
}
