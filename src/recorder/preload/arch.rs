//! What depends on the machine: storage of a thread, system calls, and the entries that know who called.
//!
//! In: nothing. Out: [`thread`], [`system_call`], and the macro `interposed`. x86-64 for now.

use core::arch::{asm, global_asm};

use crate::table::Row;

/// What a thread keeps: storage of the initial kind, which needs no allocation. A library that is there from the start may have it.
#[repr(C)]
pub(crate) struct Thread {
    /// Its row of the table, or null before its first lock.
    pub(crate) row: *mut Row,
    /// The address of the mutex and of the condition variable that were made last, to know the GIL by.
    pub(crate) made: usize,
    pub(crate) made_count: usize,
    /// Whether the thread is inside a method of a lock of Python, which counts and not the calls within.
    pub(crate) inside_method: usize,
    /// The recursive lock that was given back to wait for a condition, and how often it had been taken.
    pub(crate) given_back: usize,
    pub(crate) given_back_count: usize,
    /// Its number, once it has one.
    pub(crate) number: usize,
}

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".hidden lockscope_recorder_thread",
    ".globl lockscope_recorder_thread",
    ".type lockscope_recorder_thread,@object",
    ".size lockscope_recorder_thread,64",
    ".p2align 4",
    "lockscope_recorder_thread: .zero 64",
    ".text",
);

const _: () = assert!(size_of::<Thread>() <= 64);

/// The storage of the calling thread, zero at first.
#[inline(always)]
pub(crate) fn thread() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the thread pointer, and the offset of the storage that the loader has written down.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + lockscope_recorder_thread@gottpoff]",
            "add {0}, qword ptr fs:[0]",
            out(reg) thread,
            options(pure, readonly, nostack),
        );
    }
    thread
}

/// `pthread_self()`: the thread pointer, in glibc and in musl.
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the thread pointer.
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack)) };
    pointer
}

/// `e_machine` of programs for it.
pub(crate) const MACHINE: u16 = 62;

pub(crate) const READ: usize = 0;
pub(crate) const CLOSE: usize = 3;
pub(crate) const MMAP: usize = 9;
pub(crate) const MUNMAP: usize = 11;
pub(crate) const MADVISE: usize = 28;
pub(crate) const GETPID: usize = 39;
pub(crate) const READLINK: usize = 267;
pub(crate) const PRCTL: usize = 157;
pub(crate) const GETTID: usize = 186;
pub(crate) const TGKILL: usize = 234;
pub(crate) const OPENAT: usize = 257;
pub(crate) const FALLOCATE: usize = 285;
pub(crate) const PRLIMIT: usize = 302;

/// A system call, past the C library: `errno` stays as it is. What is below zero is an error.
#[inline]
pub(crate) fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the calls made here write nothing but to buffers of the recorder's own.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// What a thread begins with: it is told, and goes on with what the program gave. No frame of the recorder's stays on its stack.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn begin_thread() {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {}",
        "add rsp, 8",
        "mov rdi, rdx",
        "jmp rax",
        sym crate::orders::started,
    )
}

/// Functions of the C library that come here first. Each goes on to a function with the same arguments, four at most, and as the
/// fifth and sixth the address that it returns to and the stack pointer of the caller.
macro_rules! interposed {
    ($($name:ident => $body:path;)*) => { $(
        /// Goes on to the function of the recorder, which calls the C library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!("mov r8, qword ptr [rsp]", "lea r9, [rsp + 8]", "jmp {}", sym $body)
        }
    )* };
}
pub(crate) use interposed;
