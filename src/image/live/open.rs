//! Whether lockscope can sample a process, checked before it does anything to the process.
//!
//! In: ids. Out: nothing, or the [`AttachError`] to show. Nothing is stopped, and nothing of the process is changed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::EXEC_ATTEMPTS;
use super::denial::{DenialFacts, explain_denied};
use super::error::AttachError;
use super::files;
use super::proc_fs::{self, ProcFs, Stat};
use crate::arch::Architecture;
use crate::sys::{Span, read_spans};

/// Refuse a process that cannot be sampled; otherwise return its stat. A tracer is not checked here: that takes a file
/// of each thread, which is read with the other facts.
pub(super) fn check(proc_fs: &ProcFs, pid: i32) -> Result<Stat, AttachError> {
    if u32::try_from(pid) == Ok(std::process::id()) {
        return Err(AttachError::OwnProcess { pid });
    }
    let directory = proc_fs.process(pid);
    let stat = proc_fs::stat(&directory).filter(|_| pid > 0).ok_or(AttachError::NoSuchProcess { pid })?;
    let status = proc_fs::status(&directory).unwrap_or_default();
    if let Some(process) = status.tgid.filter(|&process| process != pid) {
        return Err(AttachError::IsThread { tid: pid, pid: process });
    }
    let Some(living) = proc_fs.living_thread(pid) else {
        return Err(AttachError::Exited { pid, parent: stat.parent });
    };
    let name = || proc_fs::name(&directory).unwrap_or_default();
    if stat.is_kernel_thread() {
        return Err(AttachError::KernelThread { pid, name: name() });
    }
    let mut living = living;
    for attempt in 1.. {
        let Err(error) = may_read(proc_fs, living) else { break };
        let is_gone = matches!(error.raw_os_error(), Some(nix::libc::ESRCH | nix::libc::ENOENT));
        match proc_fs.living_thread(pid) {
            // An exec ends all threads but one.
            Some(other) if is_gone && attempt < EXEC_ATTEMPTS => living = other,
            _ if is_gone => return Err(AttachError::Ended { pid }),
            _ => return Err(denied(proc_fs, pid)),
        }
    }
    check_program(proc_fs, pid, living)?;
    Ok(stat)
}

/// Whether the memory of a thread's process may be read, which takes the permission of ptrace and has no effect.
/// Opening the file takes more: CAP_SYS_PTRACE alone does not overrule the permissions of another user's file.
pub(super) fn may_read(proc_fs: &ProcFs, living: i32) -> io::Result<()> {
    match read_spans(living, &[Span { start: 0, length: 1 }], &mut [0]) {
        Ok(_) | Err(Errno::EFAULT) => Ok(()),
        Err(_) => File::open(proc_fs.process(living).join("mem")).map(drop),
    }
}

/// The error for a process that has a tracer already, in any of its threads.
pub(super) fn traced(proc_fs: &ProcFs, pid: i32) -> Option<AttachError> {
    let tids = proc_fs.threads(pid).unwrap_or_default();
    let tracer = tids.into_iter().find_map(|tid| {
        proc_fs::status(&proc_fs.task(pid, tid)).map(|status| status.tracer).filter(|&tracer| tracer != 0)
    })?;
    // A thread is named there, of a process whose name is another one.
    let tracer = proc_fs::status(&proc_fs.process(tracer)).and_then(|status| status.tgid).unwrap_or(tracer);
    let name = proc_fs::name(&proc_fs.process(tracer)).unwrap_or_else(|| "a process that is not visible here".into());
    Some(AttachError::AlreadyTraced { pid, tracer, name })
}

/// The same once another lockscope, which samples this process for a moment, has released it.
pub(super) fn traced_for_long(proc_fs: &ProcFs, pid: i32) -> Option<AttachError> {
    /// Longer than a sample stops its target by default.
    const PATIENCE: Duration = Duration::from_secs(2);
    const NAP: Duration = Duration::from_millis(2);
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let own_name = proc_fs::name(&proc_fs.process(own));
    let begin = Instant::now();
    loop {
        match traced(proc_fs, pid) {
            Some(AttachError::AlreadyTraced { tracer, name, .. })
                if tracer != own
                    && (Some(&name) == own_name.as_ref() || !proc_fs.process(tracer).exists())
                    && begin.elapsed() < PATIENCE =>
            {
                // Or it has ended meanwhile.
                std::thread::sleep(NAP);
            }
            found => return found,
        }
    }
}

/// The error for a process that the kernel refuses.
pub(super) fn denied(proc_fs: &ProcFs, pid: i32) -> AttachError {
    AttachError::Denied { pid, explanation: explain_denied(&DenialFacts::read(proc_fs, pid)) }
}

/// Only 64-bit programs of the machine that lockscope runs on can be stopped and decoded.
fn check_program(proc_fs: &ProcFs, pid: i32, living: i32) -> Result<(), AttachError> {
    const ELF_CLASS_64: u8 = 2;
    let directory = proc_fs.process(living);
    let mut header = [0; 20];
    if !files::program_answers(&directory) {
        return Ok(());
    }
    let read = File::open(directory.join("exe")).and_then(|mut file| file.read_exact(&mut header));
    if read.is_err() || !header.starts_with(b"\x7fELF") {
        // A program that cannot be read says nothing against it.
        return Ok(());
    }
    let program = || proc_fs::program(&directory).map(|path| path.display().to_string()).unwrap_or_default();
    if header[4] != ELF_CLASS_64 {
        return Err(AttachError::ThirtyTwoBit { pid, program: program() });
    }
    match Architecture::of_elf(u16::from_le_bytes([header[18], header[19]])) {
        Ok(own) if own == Architecture::NATIVE => Ok(()),
        Ok(other) => Err(AttachError::OtherProcessor { pid, program: program(), machine: other.name().to_owned() }),
        Err(other) => Err(AttachError::OtherProcessor { pid, program: program(), machine: other.name }),
    }
}

/// All descendants of a process, parents before children.
pub(super) fn descendants(proc_fs: &ProcFs, pid: i32) -> Vec<i32> {
    let mut seen = BTreeSet::from([pid]);
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        found.extend(proc_fs.children(parent).into_iter().filter(|&child| seen.insert(child)));
    }
    found.remove(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &std::path::Path, pid: i32, flags: u32, status: &str) {
        for directory in [root.join(pid.to_string()), root.join(format!("{pid}/task/{pid}"))] {
            std::fs::create_dir_all(&directory).expect("directory");
            let stat = format!("{pid} (it) S 1 1 1 0 -1 {flags} {}", "0 ".repeat(43));
            std::fs::write(directory.join("stat"), stat).expect("stat");
            std::fs::write(directory.join("status"), status).expect("status");
            std::fs::write(directory.join("comm"), "it\n").expect("comm");
            std::fs::write(directory.join("mem"), "").expect("mem");
        }
    }

    fn elf(class: u8, machine: u8) -> Vec<u8> {
        let mut bytes = b"\x7fELF".to_vec();
        bytes.extend([class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, machine, 0]);
        bytes
    }

    #[test]
    fn refusals() {
        let root = tempfile::tempdir().expect("temporary directory");
        let proc_fs = ProcFs::new(root.path());
        put(root.path(), 2, 0x20_0000, "Tgid:\t2\n");
        put(root.path(), 11, 0, "Tgid:\t11\n");
        put(root.path(), 12, 0, "Tgid:\t12\nTracerPid:\t11\n");
        put(root.path(), 13, 0, "Tgid:\t12\n");
        for (pid, class, machine) in [(14, 1, 3), (15, 2, 183), (16, 2, 62)] {
            put(root.path(), pid, 0, &format!("Tgid:\t{pid}\n"));
            std::fs::write(root.path().join(format!("{pid}/exe")), elf(class, machine)).expect("exe");
        }
        let said = |pid| check(&proc_fs, pid).map_err(|error| error.to_string());
        assert!(said(99).is_err_and(|text| text.contains("no process 99")));
        assert!(said(2).is_err_and(|text| text.contains("thread of the kernel")));
        let traced = traced_for_long(&proc_fs, 12).map(|error| error.to_string());
        assert!(traced.is_some_and(|text| text.contains("already traced by it (pid 11)")));
        assert!(traced_for_long(&proc_fs, 11).is_none());
        assert!(said(13).is_err_and(|text| text.contains("thread of process 12")));
        assert!(said(14).is_err_and(|text| text.contains("32-bit")));
        assert!(said(15).is_err_and(|text| text.contains("another processor")));
        assert!(said(16).is_ok() && said(11).is_ok() && said(12).is_ok());
        assert!(said(std::process::id() as i32).is_err_and(|text| text.contains("lockscope itself")));
        assert!(said(-1).is_err());
    }
}
