//! The code that depends on the machine: storage of a thread, system calls, and the entries that know the caller.
//!
//! In: nothing. Out: [`thread`], [`system_call`], and the macro `interposed`. x86-64 for now.

use core::arch::{asm, global_asm};
use core::ffi::CStr;

use crate::table::{MOST_FUNCTIONS, Row};

/// The storage of a thread. It is of the initial kind, which needs no allocation. A library may have it if it is loaded
/// from the start.
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
    /// Whether it is held before a lock ([`stand`](crate::stand)).
    pub(crate) standing: usize,
    /// How often its end was told while it had locks.
    pub(crate) ends: usize,
    /// The frames by which it took the lock of Python that it gave back last, where waits are recorded.
    pub(crate) given_site: usize,
    /// Which lock that was, and how the thread had taken the same lock before.
    pub(crate) given_lock: usize,
    pub(crate) given_before: usize,
}

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".hidden lockscope_recorder_thread",
    ".globl lockscope_recorder_thread",
    ".type lockscope_recorder_thread,@object",
    ".size lockscope_recorder_thread,112",
    ".p2align 4",
    "lockscope_recorder_thread: .zero 112",
    ".text",
);

const _: () = assert!(size_of::<Thread>() <= 112);

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

/// Where glibc and musl keep a thread's id, from the thread pointer on (src/arch/x86_64/thread_pointer.rs).
pub(crate) const ID_OFFSETS: [usize; 2] = [0x2d0, 48];

/// `e_machine` of programs for it.
pub(crate) const MACHINE: u16 = 62;

/// The kernel's function that reads clocks, in the library that it maps into each process.
pub(crate) const CLOCK: &CStr = c"__vdso_clock_gettime";

pub(crate) const READ: usize = 0;
pub(crate) const CLOSE: usize = 3;
pub(crate) const LSEEK: usize = 8;
pub(crate) const MMAP: usize = 9;
pub(crate) const MUNMAP: usize = 11;
pub(crate) const RT_SIGACTION: usize = 13;
pub(crate) const RT_SIGPROCMASK: usize = 14;
pub(crate) const MADVISE: usize = 28;
pub(crate) const GETPID: usize = 39;
pub(crate) const READLINK: usize = 267;
pub(crate) const SCHED_GETSCHEDULER: usize = 145;
pub(crate) const SCHED_YIELD: usize = 24;
pub(crate) const PRCTL: usize = 157;
pub(crate) const GETTID: usize = 186;
pub(crate) const FUTEX: usize = 202;
pub(crate) const EXIT_GROUP: usize = 231;
pub(crate) const TGKILL: usize = 234;
pub(crate) const OPENAT: usize = 257;
pub(crate) const FACCESSAT: usize = 269;
pub(crate) const FALLOCATE: usize = 285;
pub(crate) const PRLIMIT: usize = 302;
pub(crate) const PROCESS_VM_READV: usize = 310;
pub(crate) const SECCOMP: usize = 317;
pub(crate) const EXECVEAT: usize = 322;
pub(crate) const STATX: usize = 332;

/// `PR_SET_SECCOMP`, the first argument of `prctl`.
pub(crate) const SET_SECCOMP: usize = 22;

/// A system call of the recorder's own, past the C library: `errno` stays as it is. A result below zero is an error: EPERM
/// for all calls of a process that has given itself a filter.
#[inline]
pub(crate) fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    const EPERM: isize = 1;
    if crate::filters::is_filtered() {
        return -EPERM;
    }
    raw_call(number, arguments)
}

/// A system call that the program asked for.
#[inline]
pub(crate) fn raw_call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the calls made here write to nothing but buffers of the recorder's own, and to what the program gave.
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

/// The entry of the function of CUDA's driver with this number: it goes on to that function, with the same arguments.
pub(crate) fn call_entry(number: usize) -> usize {
    unsafe extern "C" {
        /// The first of the entries; each takes 16 bytes.
        fn lockscope_recorder_calls();
    }
    lockscope_recorder_calls as *const () as usize + number * 16
}

// Each entry leaves its own address in r11. Then, below the saved frame pointer: six arguments (-48), the function's
// address and later the answer (-56), rax (-64), eight registers of floating point (-192), the outer call (-272), and
// what is handed on of the arguments on the stack: eight words, though a function may have fewer.
global_asm!(
    ".text",
    ".p2align 4",
    ".hidden lockscope_recorder_calls",
    ".globl lockscope_recorder_calls",
    ".type lockscope_recorder_calls,@function",
    "lockscope_recorder_calls:",
    ".rept {most}",
    "lea r11, [rip]",
    "jmp 2f",
    ".p2align 4",
    ".endr",
    "2:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 336",
    "mov [rbp - 48], rdi",
    "mov [rbp - 40], rsi",
    "mov [rbp - 32], rdx",
    "mov [rbp - 24], rcx",
    "mov [rbp - 16], r8",
    "mov [rbp - 8], r9",
    "mov [rbp - 64], rax",
    "movups [rbp - 192], xmm0",
    "movups [rbp - 176], xmm1",
    "movups [rbp - 160], xmm2",
    "movups [rbp - 144], xmm3",
    "movups [rbp - 128], xmm4",
    "movups [rbp - 112], xmm5",
    "movups [rbp - 96], xmm6",
    "movups [rbp - 80], xmm7",
    "lea rax, [rip + lockscope_recorder_calls]",
    "mov rdi, r11",
    "sub rdi, rax",
    "shr rdi, 4",
    "lea rsi, [rbp - 48]",
    "lea rdx, [rbp - 272]",
    "call {begins}",
    "mov [rbp - 56], rax",
    "movups xmm0, [rbp - 192]",
    "movups xmm1, [rbp - 176]",
    "movups xmm2, [rbp - 160]",
    "movups xmm3, [rbp - 144]",
    "movups xmm4, [rbp - 128]",
    "movups xmm5, [rbp - 112]",
    "movups xmm6, [rbp - 96]",
    "movups xmm7, [rbp - 80]",
    "mov rax, [rbp + 16]",
    "mov [rsp], rax",
    "mov rax, [rbp + 24]",
    "mov [rsp + 8], rax",
    "mov rax, [rbp + 32]",
    "mov [rsp + 16], rax",
    "mov rax, [rbp + 40]",
    "mov [rsp + 24], rax",
    "mov rax, [rbp + 48]",
    "mov [rsp + 32], rax",
    "mov rax, [rbp + 56]",
    "mov [rsp + 40], rax",
    "mov rax, [rbp + 64]",
    "mov [rsp + 48], rax",
    "mov rax, [rbp + 72]",
    "mov [rsp + 56], rax",
    "mov rdi, [rbp - 48]",
    "mov rsi, [rbp - 40]",
    "mov rdx, [rbp - 32]",
    "mov rcx, [rbp - 24]",
    "mov r8, [rbp - 16]",
    "mov r9, [rbp - 8]",
    "mov rax, [rbp - 64]",
    "call [rbp - 56]",
    "mov [rbp - 56], rax",
    "mov edi, eax",
    "lea rsi, [rbp - 272]",
    "call {ended}",
    "mov rax, [rbp - 56]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size lockscope_recorder_calls, . - lockscope_recorder_calls",
    most = const MOST_FUNCTIONS,
    begins = sym crate::cuda::begins,
    ended = sym crate::cuda::ended,
);

const _: () = assert!(size_of::<crate::cuda::Outer>() <= 80);

/// `dlsym`. A request for another name than the driver's, or for the next library that has it, goes on to the C library
/// as if nothing stood before it. The C library checks who calls.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dlsym() {
    core::arch::naked_asm!(
        "lea rax, [rdi + 1]", // RTLD_NEXT is -1, RTLD_DEFAULT is 0
        "cmp rax, 1",
        "jbe 3f",
        "test rsi, rsi",
        "jz 3f",
        "cmp word ptr [rsi], {beginning}",
        "jne 3f",
        "movzx eax, byte ptr [rsi + 2]",
        "sub eax, 'A'",
        "cmp eax, 25",
        "ja 3f",
        "jmp {of_driver}",
        "3:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "4: ret",
        beginning = const u16::from_le_bytes(*b"cu"),
        of_driver = sym crate::cuda::dlsym_of_driver,
        real = sym crate::cuda::real_dlsym,
    )
}

/// `syscall` and `prctl`, but for what sets a filter: with no frame, for calls that return twice.
///
/// # Safety
///
/// As the kernel's own calls.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, {seccomp}",
        "je 4f",
        "cmp rdi, {prctl}",
        "jne 2f",
        "cmp esi, {set_seccomp}",
        "je 4f",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "mov rdi, rax",
        "jmp {failed}",
        "4:",
        "jmp {sets_filter}",
        seccomp = const SECCOMP,
        prctl = const PRCTL,
        set_seccomp = const SET_SECCOMP,
        failed = sym crate::filters::failed,
        sets_filter = sym crate::filters::sets_filter,
    )
}

/// See [`syscall`].
///
/// # Safety
///
/// As the kernel's own call.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn prctl() {
    core::arch::naked_asm!(
        "cmp edi, {set_seccomp}",
        "je 4f",
        "mov eax, {prctl}",
        "mov r10, rcx",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "mov rdi, rax",
        "jmp {failed}",
        "4:",
        "mov r9, r8",
        "mov r8, rcx",
        "mov rcx, rdx",
        "mov rdx, rsi",
        "mov rsi, rdi",
        "mov edi, {prctl}",
        // The sixth argument of the call is the word above the return address, which prctl(2) does not look at.
        "jmp {sets_filter}",
        set_seccomp = const SET_SECCOMP,
        prctl = const PRCTL,
        failed = sym crate::filters::failed,
        sets_filter = sym crate::filters::sets_filter,
    )
}

/// The entry of a new thread. It notes the start, and goes on with the program's function. No frame of the recorder's
/// stays on its stack.
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

/// Functions of the C library that come here first. Each goes on to a function with the same arguments, four at most,
/// and as the fifth and sixth the address that it returns to and the stack pointer of the caller.
macro_rules! interposed {
    ($($name:ident => $body:path;)*) => { $(
        /// Goes on to the function of the recorder, which calls the C library's.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!("mov r8, qword ptr [rsp]", "lea r9, [rsp + 8]", "jmp {}", sym $body)
        }
    )* };
}
pub(crate) use interposed;

/// Functions whose further arguments are a list that ends with a null pointer, as those of `execl`: `body(first, list,
/// 0, 0)`. The list comes to lie where the caller has its other end, in front of it those that came in registers; the
/// address to return to waits below meanwhile.
macro_rules! listed {
    ($($name:ident => $body:path;)*) => { $(
        /// Goes on to the function of the recorder, which calls the C library's.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "mov rax, qword ptr [rsp]",
                "mov qword ptr [rsp], r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "xor edx, edx",
                "xor ecx, ecx",
                "call {}",
                "pop rcx",
                "add rsp, 32",
                "mov qword ptr [rsp], rcx",
                "ret",
                sym $body,
            )
        }
    )* };
}
pub(crate) use listed;
