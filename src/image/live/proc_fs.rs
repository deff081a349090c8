//! The content of /proc about processes and threads, as plain values.
//!
//! In: a proc root (injectable, so that tests need no live process) and ids. Out: parsed values; a file that is
//! missing, unreadable or in an unknown form is `None`. Nothing here attaches, reads memory or decides anything.
//!
//! `stat` is parsed by the `procfs` crate. Its parsers of `maps` and `status` are not used: the first slices names
//! such as `/SYSVx` out of bounds and refuses paths that are not UTF-8, the second refuses a file that lacks any of
//! some thirty fields, as sandboxes' files do.

// Its input is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use procfs::FromRead;

use crate::image::{Addr, Descriptor, Mapping, Syscall};
use crate::limits::Bounded;
use crate::limits::live::{LONGEST_COMMAND_LINE, MOST_ARGUMENTS, MOST_DESCRIPTORS};

/// The proc file system at some root.
#[derive(Debug, Clone)]
pub(super) struct ProcFs {
    root: PathBuf,
}

/// From `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// Process that the task belongs to.
    pub(super) tgid: Option<i32>,
    /// Id in the task's innermost PID namespace.
    pub(super) innermost_id: Option<i32>,
    /// Tracer, 0 for none.
    pub(super) tracer: i32,
    /// Effective user id.
    pub(super) effective_uid: Option<u32>,
    /// Effective capabilities.
    pub(super) effective_capabilities: Option<u64>,
    /// Permitted capabilities.
    pub(super) permitted_capabilities: Option<u64>,
    /// 0 none, 1 strict, 2 filter.
    pub(super) seccomp: Option<u32>,
    /// Voluntary and involuntary context switches.
    pub(super) switches: Option<(u64, u64)>,
    /// Signals that have come, to it or to its process.
    pub(super) pending: u64,
    /// Signals that it blocks.
    pub(super) blocked: u64,
    /// Signals that its process has handlers for.
    pub(super) caught: u64,
}

/// From `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// State letter.
    pub(super) state: char,
    /// Parent process.
    pub(super) parent: i32,
    /// Kernel's PF_ flags.
    pub(super) flags: u32,
    /// Start time in clock ticks since boot.
    pub(super) start_ticks: u64,
    /// Threads of its process.
    pub(super) threads: usize,
    /// CPU that it last ran on.
    pub(super) processor: Option<i32>,
    /// Where its arguments and its environment begin; zero for who may not know.
    pub(super) program: (u64, u64),
    /// Its session.
    pub(super) session: i32,
    /// Its exit status as `waitpid` reports it; `None` for who may not know.
    pub(super) exit_code: Option<i32>,
}

impl Stat {
    /// PF_FORKNOEXEC (linux/sched.h): forked, and no exec since.
    pub(super) fn is_copy(&self) -> bool {
        const FORKED_WITHOUT_EXEC: u32 = 0x40;
        self.flags & FORKED_WITHOUT_EXEC != 0
    }

    /// Whether it has exited.
    pub(super) fn is_dead(&self) -> bool {
        has_exited(self.state)
    }

    /// Whether it is a thread of the kernel (PF_KTHREAD).
    pub(super) fn is_kernel_thread(&self) -> bool {
        self.flags & 0x0020_0000 != 0
    }

    /// Whether it ends, or has ended (`PF_EXITING`, linux/sched.h): its memory is gone some time before its state says so.
    pub(super) fn ends(&self) -> bool {
        self.is_dead() || self.flags & 0x4 != 0
    }
}

/// Whether a state letter is that of a task that has exited.
pub(super) fn has_exited(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

impl ProcFs {
    /// The proc file system mounted at `root`.
    pub(super) fn new(root: impl Into<PathBuf>) -> Self {
        ProcFs { root: root.into() }
    }

    /// Its root.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of a process, or of any thread: the kernel finds those too, without listing them.
    pub(super) fn process(&self, pid: i32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    /// Directory with the maps and descriptors that the threads of a process share. A main thread that has ended has none.
    pub(super) fn shared(&self, pid: i32) -> PathBuf {
        self.process(self.living_thread(pid).unwrap_or(pid))
    }

    /// Directory of a thread.
    pub(super) fn task(&self, pid: i32, tid: i32) -> PathBuf {
        self.process(pid).join("task").join(tid.to_string())
    }

    /// Thread ids of a process, ascending.
    pub(super) fn threads(&self, pid: i32) -> io::Result<Vec<i32>> {
        let mut tids: Vec<i32> = std::fs::read_dir(self.process(pid).join("task"))?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        tids.sort_unstable();
        Ok(tids)
    }

    /// Version of NVIDIA's driver in the kernel.
    pub(super) fn gpu_driver(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join("driver/nvidia/version")).ok()?;
        crate::image::gpu::kernel_driver(&text)
    }

    /// A thread of the process that has not exited: the main one, if it lives. The process's maps, memory and links
    /// are empty in the directory of a main thread that has exited.
    pub(super) fn living_thread(&self, pid: i32) -> Option<i32> {
        /// An exec lets the thread that called it have the id of the main one, which had exited in the list.
        const ATTEMPTS: usize = 3;
        let lives = |tid: &i32| stat(&self.task(pid, *tid)).is_some_and(|stat| !stat.is_dead());
        // Mostly it is the main one, and there may be thousands of others to list.
        let living = |_| Some(pid).filter(lives).or_else(|| self.threads(pid).ok()?.into_iter().find(lives));
        (0..ATTEMPTS).find_map(living)
    }

    /// Direct children of a process.
    pub(super) fn children(&self, pid: i32) -> Vec<i32> {
        /// With more threads it is cheaper to ask all processes for their parent: there is a file for each thread.
        const MANY_THREADS: usize = 512;
        let threads = self.threads(pid).unwrap_or_default();
        let asked = if threads.len() > MANY_THREADS { Vec::new() } else { threads };
        let lists: Vec<String> = asked
            .into_iter()
            .filter_map(|tid| std::fs::read_to_string(self.task(pid, tid).join("children")).ok())
            .collect();
        if !lists.is_empty() {
            return lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect();
        }
        // A kernel without CONFIG_PROC_CHILDREN: read the parent of every process.
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&id: &i32| stat(&self.process(id)).is_some_and(|stat| stat.parent == pid))
            .collect()
    }

    /// Time since boot in milliseconds, by the clock of start times.
    pub(super) fn uptime_ms(&self) -> Option<u64> {
        let seconds: f64 = text(&self.root.join("uptime"))?.split_whitespace().next()?.parse().ok()?;
        Some((seconds * 1e3) as u64)
    }

    /// Yama's ptrace scope, where the kernel has Yama.
    pub(super) fn yama_scope(&self) -> Option<i32> {
        text(&self.root.join("sys/kernel/yama/ptrace_scope"))?.trim().parse().ok()
    }
}

/// A file that the kernel writes in one read. The standard library reads seven times for a file that reports no length,
/// and a sample of 10,000 threads reads 80,000 of them.
fn at_one_go(path: &Path) -> io::Result<Vec<u8>> {
    const USUAL: usize = 4096;
    let mut file = std::fs::File::open(path)?;
    let (mut bytes, mut length) = (vec![0; USUAL], 0);
    loop {
        length += file.read(bytes.get_mut(length..).unwrap_or_default())?;
        if length < bytes.len() {
            bytes.truncate(length);
            return Ok(bytes);
        }
        bytes.resize(bytes.len() * 2, 0);
    }
}

/// A file's text without the end of line, lossily decoded.
pub(super) fn text(path: &Path) -> Option<String> {
    let bytes = at_one_go(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
}

/// The name (comm) of the task whose directory this is.
pub(super) fn name(directory: &Path) -> Option<String> {
    text(&directory.join("comm"))
}

/// At most `most` bytes of a file, which may have no end: the kernel shows as arguments whatever a process says they are
/// (PR_SET_MM_MAP), gigabytes of it. Whether that was all.
pub(super) fn beginning(path: &Path, most: u64) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    let whole = bytes.len() as u64 <= most;
    bytes.truncate(most as usize);
    // The bytes before an error are the result.
    let _ = read;
    (bytes, whole)
}

/// Its argument vector; whether that is all of it.
pub(super) fn command_line(directory: &Path) -> (Vec<String>, bool) {
    let (bytes, whole) = beginning(&directory.join("cmdline"), LONGEST_COMMAND_LINE);
    let (arguments, all) = parse_arguments(&bytes);
    (arguments, whole && all)
}

/// Parse `cmdline`: strings with a 0 byte behind each; whether these are all.
pub(crate) fn parse_arguments(bytes: &[u8]) -> (Vec<String>, bool) {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return (Vec::new(), true);
    }
    let mut list = bytes.split(|&byte| byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned());
    let arguments = list.by_ref().take(MOST_ARGUMENTS).collect();
    (arguments, list.next().is_none())
}

/// The program's path as the target sees it.
pub(super) fn program(directory: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(directory.join("exe")).ok()?;
    match target.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => Some(PathBuf::from(path)),
        None => Some(target),
    }
}

/// Its `status`.
pub(super) fn status(directory: &Path) -> Option<Status> {
    Some(parse_status(&text(&directory.join("status"))?))
}

/// Its `stat`.
pub(super) fn stat(directory: &Path) -> Option<Stat> {
    parse_stat(&at_one_go(&directory.join("stat")).ok()?)
}

/// The same, and its name (comm), which stands there too.
pub(super) fn stat_and_name(directory: &Path) -> Option<(Stat, String)> {
    let bytes = at_one_go(&directory.join("stat")).ok()?;
    let stat = parse_stat(&bytes)?;
    let (from, to) = (bytes.iter().position(|&byte| byte == b'(')? + 1, bytes.iter().rposition(|&byte| byte == b')')?);
    Some((stat, String::from_utf8_lossy(bytes.get(from..to)?).trim_end_matches('\n').to_owned()))
}

/// All descriptors by number and name.
pub(super) fn descriptors(directory: &Path) -> io::Result<Vec<Descriptor>> {
    let entries = std::fs::read_dir(directory.join("fd"))?;
    let one = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        Some(Descriptor { number, target, ..Descriptor::default() })
    };
    let mut list: Vec<Descriptor> = entries
        .flatten()
        .bounded(MOST_DESCRIPTORS, || format!("open files of {}", directory.display()), "descriptors")
        .filter_map(one)
        .collect();
    list.sort_by_key(|descriptor| descriptor.number);
    Ok(list)
}

/// The rest of the line that begins with `name`.
pub(super) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

/// Its mappings.
pub(super) fn mappings(directory: &Path) -> io::Result<Vec<Mapping>> {
    Ok(parse_maps(&map_text(directory)?))
}

/// The text of its mappings.
pub(super) fn map_text(directory: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(directory.join("maps"))
}

/// Kernel function that it sleeps in.
pub(super) fn wait_channel(directory: &Path) -> Option<String> {
    text(&directory.join("wchan")).filter(|channel| !channel.is_empty() && channel != "0")
}

/// CPU time used, in nanoseconds, and how often it got a processor.
pub(super) fn cpu_time(directory: &Path) -> Option<(u64, u64)> {
    let text = text(&directory.join("schedstat"))?;
    let mut words = text.split_whitespace();
    Some((words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?))
}

/// When it last got a CPU, in milliseconds of the scheduler's clock **of the CPU that it ran on**.
pub(super) fn last_ran(directory: &Path) -> Option<f64> {
    parse_last_ran(&text(&directory.join("sched"))?)
}

/// How often a thread was switched out, and when it last ran, by the scheduler's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Voluntary and involuntary context switches.
    pub(super) switches: (u64, u64),
    /// `se.exec_start` in nanoseconds; `None` on a kernel without that file.
    pub(super) ran: Option<u64>,
}

/// Its counters and the start of its sleep, from `sched`, and from `status` where the kernel has no such file.
pub(super) fn schedule(directory: &Path) -> Option<Schedule> {
    let of_scheduler = text(&directory.join("sched")).and_then(|text| parse_schedule(&text));
    of_scheduler.or_else(|| Some(Schedule { switches: status(directory)?.switches?, ran: None }))
}

/// The system call that it is in.
pub(super) fn system_call(directory: &Path) -> Option<Syscall> {
    parse_syscall(&text(&directory.join("syscall"))?)
}

/// Parse `status`; fields that are absent stay unknown.
pub(super) fn parse_status(text: &str) -> Status {
    let mut status = Status::default();
    let (mut voluntary, mut involuntary) = (None, None);
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key {
            "Tgid" => status.tgid = value.parse().ok(),
            "TracerPid" => status.tracer = value.parse().unwrap_or(0),
            "NSpid" => status.innermost_id = value.split_whitespace().last().and_then(|id| id.parse().ok()),
            "Uid" => status.effective_uid = value.split_whitespace().nth(1).and_then(|id| id.parse().ok()),
            "CapEff" => status.effective_capabilities = u64::from_str_radix(value, 16).ok(),
            "CapPrm" => status.permitted_capabilities = u64::from_str_radix(value, 16).ok(),
            "SigPnd" | "ShdPnd" => status.pending |= u64::from_str_radix(value, 16).unwrap_or(0),
            "SigBlk" => status.blocked = u64::from_str_radix(value, 16).unwrap_or(0),
            "SigCgt" => status.caught = u64::from_str_radix(value, 16).unwrap_or(0),
            "Seccomp" => status.seccomp = value.parse().ok(),
            "voluntary_ctxt_switches" => voluntary = value.parse().ok(),
            "nonvoluntary_ctxt_switches" => involuntary = value.parse().ok(),
            _ => {}
        }
    }
    status.switches = voluntary.zip(involuntary);
    status
}

/// Parse `stat`.
pub(super) fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    // The crate's parser takes the parentheses for granted.
    let open = bytes.iter().position(|&byte| byte == b'(')?;
    let close = bytes.iter().rposition(|&byte| byte == b')')?;
    let well_formed = bytes.first().is_some_and(u8::is_ascii_digit)
        && open >= 2
        && bytes.get(open - 1) == Some(&b' ')
        && open < close
        && bytes.get(close + 1) == Some(&b' ')
        && bytes.get(close + 2).is_some_and(u8::is_ascii_alphabetic);
    if !well_formed {
        return None;
    }
    let stat = procfs::process::Stat::from_read(bytes).ok()?;
    Some(Stat {
        state: stat.state,
        parent: stat.ppid,
        flags: stat.flags,
        start_ticks: stat.starttime,
        threads: usize::try_from(stat.num_threads).unwrap_or(0),
        processor: stat.processor,
        program: (stat.arg_start.unwrap_or(0), stat.env_start.unwrap_or(0)),
        session: stat.session,
        exit_code: stat.exit_code,
    })
}

/// Parse `maps`; lines in another form are left out.
pub(crate) fn parse_maps(bytes: &[u8]) -> Vec<Mapping> {
    bytes.split(|&byte| byte == b'\n').filter_map(|line| parse_mapping(&String::from_utf8_lossy(line))).collect()
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?;
    let path = fields.next().map(|path| path.trim_start_matches(' ')).unwrap_or("");
    let (path, deleted) = match path.strip_suffix(" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let flag = |index: usize, letter: u8| permissions.get(index) == Some(&letter);
    (start < end).then_some(())?;
    Some(Mapping {
        start: Addr(start),
        end: Addr(end),
        read: flag(0, b'r'),
        write: flag(1, b'w'),
        execute: flag(2, b'x'),
        shared: flag(3, b's'),
        offset: hex(offset)?,
        device: (i32::from_str_radix(major, 16).ok()?, i32::from_str_radix(minor, 16).ok()?),
        inode: inode.parse().ok()?,
        // The kernel escapes the end of line, and nothing else, in this file.
        path: (!path.is_empty()).then(|| path.replace("\\012", "\n")),
        deleted,
    })
}

/// Parse `syscall`: `nr a1 a2 a3 a4 a5 a6 sp pc`, or `running`, or `-1 sp pc` outside a system call.
pub(super) fn parse_syscall(text: &str) -> Option<Syscall> {
    let mut fields = text.split_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut words = fields.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let mut word = || words.next().flatten();
    if number < 0 {
        return None;
    }
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = word()?;
    }
    Some(Syscall { number, arguments, result: 0, sp: Addr(word()?), pc: Addr(word()?) })
}

/// Parse `se.exec_start` out of `sched`. The kernel zeroes it when a thread moves to another processor, also while
/// the thread sleeps: zero is no time.
pub(super) fn parse_last_ran(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("se.exec_start"))?;
    line.split_once(':')?.1.trim().parse().ok().filter(|ran| *ran > 0.0)
}

/// Parse the switches and `se.exec_start` out of `sched`, which has milliseconds with six places.
pub(super) fn parse_schedule(text: &str) -> Option<Schedule> {
    let (mut voluntary, mut involuntary, mut ran) = (None, None, None);
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        match key.trim_end() {
            "nr_voluntary_switches" => voluntary = value.trim().parse().ok(),
            "nr_involuntary_switches" => involuntary = value.trim().parse().ok(),
            "se.exec_start" => ran = value.trim().replace('.', "").parse().ok().filter(|ran| *ran != 0),
            _ => {}
        }
    }
    Some(Schedule { switches: voluntary.zip(involuntary)?, ran })
}

/// Milliseconds of a time that /proc states in ticks of the clock.
pub(super) fn ticks_to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_with_every_kind_of_path() {
        let text = b"00400000-00401000 r-xp 00000000 fe:01 77                         /opt/my prog (deleted)\n\
            7f00-8000 rw-s 00001000 00:05 3 /dev/nvidia0\n\
            8000-9000 ---p 00000000 00:00 0 \n\
            9000-a000 rw-s 00000000 00:01 0 /SYSVx (deleted)\n\
            a000-b000 r--p 00000000 fe:01 9 /a\\012b\xff\n\
            7fff0000-7fff1000 rw-p 00000000 00:00 0                          [stack]\n\
            nonsense\nb000-a000 r--p 00000000 00:00 0\n";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 6);
        assert_eq!(maps[0].path.as_deref(), Some("/opt/my prog"));
        assert!(maps[0].deleted && maps[0].execute && !maps[0].write && maps[0].is_file());
        assert_eq!((maps[0].device, maps[0].inode), ((0xfe, 1), 77));
        assert!(maps[1].shared && maps[1].write);
        assert_eq!(maps[2].path, None);
        assert!(!maps[2].read);
        assert_eq!(maps[4].path.as_deref(), Some("/a\nb\u{fffd}"));
        assert_eq!(maps[5].path.as_deref(), Some("[stack]"));
    }

    #[test]
    fn status_takes_the_innermost_id_and_lives_without_fields() {
        let status = parse_status(
            "Name:\tx\nTgid:\t7\nTracerPid:\t11\nUid:\t1\t2\t3\t4\nNSpid:\t700\t41\t7\nCapEff:\t0000000000080000\n\
             SigPnd:\t0000000000000200\nShdPnd:\t0000000000010000\nSigBlk:\t0000000000000001\nSigCgt:\t8000000000000000\n\
             Seccomp:\t2\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
        );
        assert_eq!(status.innermost_id, Some(7));
        assert_eq!((status.tgid, status.tracer, status.effective_uid), (Some(7), 11, Some(2)));
        assert_eq!((status.seccomp, status.switches), (Some(2), Some((5, 6))));
        assert_eq!(status.effective_capabilities, Some(1 << 19));
        assert_eq!((status.pending, status.blocked, status.caught), (0x1_0200, 1, 1 << 63));
        assert_eq!(parse_status("rubbish"), Status::default());
    }

    #[test]
    fn stat_with_parentheses_in_the_name_and_damaged_ones() {
        let mut line = b"12 (a) b) S 3 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 ".to_vec();
        line.extend_from_slice("0 ".repeat(30).as_bytes());
        let stat = parse_stat(&line);
        assert_eq!(stat.map(|s| (s.state, s.parent, s.start_ticks)), Some(('S', 3, 4711)));
        for damaged in [&b""[..], b"(", b")(", b"12 (x)", b"1 (x) ", b"12 (x) S", b"( ) S 1", b"  (x) S 1", b"1 (x)  "]
        {
            assert_eq!(parse_stat(damaged), None);
        }
    }

    #[test]
    fn system_calls() {
        let call = parse_syscall("202 0x7f01 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd10 0x7f9e1c");
        assert_eq!(call.map(|c| (c.number, c.arguments[1], c.sp)), Some((202, 0x189, Addr(0x7ffd10))));
        assert_eq!(parse_syscall("running"), None);
        assert_eq!(parse_syscall("-1 0x7ffd10 0x7f9e1c"), None);
        assert_eq!(parse_syscall("202 0x1"), None);
    }

    #[test]
    fn a_schedule_and_one_without_switches() {
        let text = "x (7, #threads: 2)\n---\nse.exec_start      :      12.000345\nnr_switches  :  9\n\
            nr_voluntary_switches : 5\nnr_involuntary_switches  :  4\n";
        assert_eq!(parse_schedule(text), Some(Schedule { switches: (5, 4), ran: Some(12_000_345) }));
        assert_eq!(parse_schedule("se.exec_start : 1.5\n"), None);
    }

    #[test]
    fn last_ran_and_command_line() {
        assert_eq!(parse_last_ran("x (1)\n---\nse.exec_start   :   12.5\n"), Some(12.5));
        assert_eq!(parse_last_ran("se.exec_start"), None);
        assert_eq!(parse_last_ran("se.exec_start   :   0.000000"), None);
        let directory = tempfile::tempdir().expect("temporary directory");
        std::fs::write(directory.path().join("cmdline"), b"a\0\0b c\0").expect("write");
        let words = ["a", "", "b c"].map(str::to_owned).to_vec();
        assert_eq!(command_line(directory.path()), (words, true));
        assert_eq!(command_line(Path::new("/nonexistent")), (Vec::new(), true));
        // Zeros without end.
        std::fs::write(directory.path().join("cmdline"), vec![0; 1 << 20]).expect("write");
        let (words, whole) = command_line(directory.path());
        assert!(words.len() == 4096 && !whole);
    }
}
