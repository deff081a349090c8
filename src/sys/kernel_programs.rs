//! Programs that the kernel runs for lockscope, and counters of executions.
//!
//! In: instructions, descriptors. Out: descriptors of what was loaded. What the programs do stands in `image::live::asleep`.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_insn;
use nix::errno::Errno;
use nix::libc;

/// An event that counts how often a thread gets to the instruction at `address`, by a breakpoint of the processor's that stops nobody; also
/// while others run. A read gives three words: how often, for how many nanoseconds the thread ran since then, and for how many of these
/// it was counted.
pub(crate) fn count_executions(thread: i32, address: u64) -> Result<File, Errno> {
    /// `struct perf_event_attr` as of its second version (linux/perf_event.h, PERF_ATTR_SIZE_VER1).
    #[repr(C)]
    struct Event {
        kind: u32,
        size: u32,
        config: u64,
        period: u64,
        sample: u64,
        read: u64,
        flags: u64,
        wakeup: u32,
        breakpoint: u32,
        address: u64,
        length: u64,
    }
    /// PERF_TYPE_BREAKPOINT, HW_BREAKPOINT_X.
    const BREAKPOINT: u32 = 5;
    const EXECUTED: u32 = 4;
    /// PERF_FORMAT_TOTAL_TIME_ENABLED and RUNNING.
    const TIMES: u64 = 0b11;
    /// `pinned`, `exclude_kernel`, `exclude_hv`.
    const FLAGS: u64 = 1 << 2 | 1 << 5 | 1 << 6;
    /// PERF_FLAG_FD_CLOEXEC.
    const CLOSE_ON_EXEC: u64 = 8;
    let event = Event {
        kind: BREAKPOINT,
        size: size_of::<Event>() as u32,
        config: 0,
        period: 0,
        sample: 0,
        read: TIMES,
        flags: FLAGS,
        wakeup: 0,
        breakpoint: EXECUTED,
        address,
        // For instructions it has to be the size of a word, whatever they are as long as.
        length: size_of::<libc::c_long>() as u64,
    };
    // SAFETY: the attributes have the size that they say, and outlive the call; any processor, no group.
    let result = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const event, thread, -1, -1, CLOSE_ON_EXEC) };
    let file = Errno::result(result)?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { File::from_raw_fd(file as i32) })
}

/// A table of eBPF (BPF_MAP_TYPE_HASH) with room for `entries` numbers, with values of one byte.
pub(crate) fn bpf_set(entries: u32) -> Result<OwnedFd, Errno> {
    /// The first fields of `union bpf_attr` for BPF_MAP_CREATE (linux/bpf.h; the same for the other calls below).
    #[repr(C)]
    struct Create {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    const HASH: u32 = 1;
    // SAFETY: plain numbers, in the layout that the command takes.
    let result = unsafe { bpf(0, &Create { kind: HASH, key_size: 4, value_size: 1, entries }) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// Put a number into a table of [`bpf_set`], with its value for the program.
pub(crate) fn bpf_insert(set: BorrowedFd<'_>, key: i32, value: u8) -> Result<(), Errno> {
    /// For BPF_MAP_UPDATE_ELEM.
    #[repr(C)]
    struct Update {
        set: u64,
        key: *const i32,
        value: *const u8,
        flags: u64,
    }
    let update = Update { set: set.as_raw_fd() as u64, key: &raw const key, value: &raw const value, flags: 0 };
    // SAFETY: both pointers lead to as many bytes as the table was made for, which outlive the call.
    unsafe { bpf(2, &update) }.map(drop)
}

/// Load a program of eBPF that iterates over what the kernel's function number `over` does. On refusal the kernel's words about it are
/// put into `log`.
pub(crate) fn bpf_program(
    instructions: &[bpf_insn],
    licence: &CStr,
    over: u32,
    log: &mut [u8],
) -> Result<OwnedFd, Errno> {
    /// For BPF_PROG_LOAD.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: *const bpf_insn,
        licence: *const libc::c_char,
        log_level: u32,
        log_size: u32,
        log: *mut u8,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
        /// Type information of the program, for its debuggers.
        debugging: [u32; 9],
        attach_to: u32,
    }
    const TRACING: u32 = 26;
    let load = Load {
        kind: TRACING,
        count: u32::try_from(instructions.len()).map_err(|_| Errno::E2BIG)?,
        instructions: instructions.as_ptr(),
        licence: licence.as_ptr(),
        log_level: u32::from(!log.is_empty()),
        log_size: u32::try_from(log.len()).map_err(|_| Errno::E2BIG)?,
        log: if log.is_empty() { std::ptr::null_mut() } else { log.as_mut_ptr() },
        kernel_version: 0,
        flags: 0,
        name: *b"lockscope\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: ITERATOR,
        debugging: [0; 9],
        attach_to: over,
    };
    // SAFETY: the pointers lead to as many instructions and bytes as their counts say, and to a text that ends; all outlive the call.
    let program = unsafe { bpf(5, &load) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

/// For programs that iterate, when they are loaded and linked.
const ITERATOR: u32 = 28;

/// Link a program of [`bpf_program`] so that it can be read: over all tasks, or (Linux 6.1) over those of one process.
pub(crate) fn bpf_link(program: BorrowedFd<'_>, process: Option<i32>) -> Result<OwnedFd, Errno> {
    /// For BPF_LINK_CREATE.
    #[repr(C)]
    struct Link {
        program: i32,
        target: u32,
        attach_type: u32,
        flags: u32,
        tasks: *const Tasks,
        length: u32,
        unused: u32,
    }
    /// The part of `union bpf_iter_link_info` that is about tasks.
    #[repr(C)]
    struct Tasks {
        thread: u32,
        process: i32,
        descriptor: u32,
        unused: u32,
    }
    let tasks = process.map(|process| Tasks { thread: 0, process, descriptor: 0, unused: 0 });
    let link = Link {
        program: program.as_raw_fd(),
        target: 0,
        attach_type: ITERATOR,
        flags: 0,
        tasks: tasks.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
        length: if tasks.is_some() { size_of::<Tasks>() as u32 } else { 0 },
        unused: 0,
    };
    // SAFETY: the pointer, where it is not null, leads to as many bytes as its length states, which outlive the call.
    let link = unsafe { bpf(28, &link) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// A file with the output of a program of [`bpf_link`], from its beginning.
pub(crate) fn bpf_iterate(link: BorrowedFd<'_>) -> Result<File, Errno> {
    /// For BPF_ITER_CREATE.
    #[repr(C)]
    struct Iterate {
        link: i32,
        flags: u32,
    }
    // SAFETY: plain numbers.
    let file = unsafe { bpf(33, &Iterate { link: link.as_raw_fd(), flags: 0 }) }?;
    // SAFETY: a descriptor that was just made, and that nobody else knows.
    Ok(unsafe { File::from_raw_fd(file) })
}

/// # Safety
///
/// `attributes` are laid out as the command takes them, and what they point to may be read, or written, as the command does.
unsafe fn bpf<T>(command: i32, attributes: &T) -> Result<i32, Errno> {
    // SAFETY: the size is that of `attributes`; the caller vouches for what they point to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    Errno::result(result).map(|result| result as i32)
}
