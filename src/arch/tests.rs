//! Properties of every machine, and that no other module knows a machine.

use std::path::{Path, PathBuf};

use super::instructions::{Effect, Flow, Place, Target, Width};
use super::system_calls::Early;
use super::*;
use crate::memory::{Fault, MemoryExt};

const X86_64: Architecture = Architecture::X86_64;

#[test]
fn a_machine_is_known_by_its_number_in_elf_files() {
    assert_eq!(Architecture::of_elf(X86_64.elf_machine()), Ok(X86_64));
    let name = |machine| Architecture::of_elf(machine).expect_err("another machine").to_string();
    assert_eq!((name(243).as_str(), name(9999).as_str()), ("RISC-V", "ELF machine 9999"));
}

#[test]
fn numbers_of_system_calls_are_in_order_and_names_unique() {
    let table = X86_64.numbers();
    assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let mut names: Vec<&str> = table.iter().map(|(_, call)| call.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table.len());
    // asm-generic/unistd.h has these.
    let aarch64 = Architecture::Aarch64;
    assert!(aarch64.numbers().windows(2).all(|pair| pair[0].0 < pair[1].0));
    for (number, name) in [(98, "futex"), (22, "epoll_pwait"), (73, "ppoll"), (449, "futex_waitv")] {
        assert_eq!(aarch64.system_call(number).map(|call| call.name), Some(name));
    }
    // asm/unistd_64.h has these three.
    for (number, name) in [(40, "sendfile"), (202, "futex"), (469, "file_setattr")] {
        assert_eq!(X86_64.system_call(number).map(|call| call.name), Some(name));
    }
    assert_eq!(X86_64.system_call(-1), None);
    assert_eq!(X86_64.number_of(&system_calls::FUTEX_WAITV), Some(449));
    assert!(X86_64.is_restart(219) && !X86_64.is_restart(202));
}

/// The C library's headers are another source of the numbers.
#[test]
#[cfg(target_arch = "x86_64")]
fn numbers_of_system_calls_agree_with_those_of_libc() {
    use nix::libc;
    for (name, number) in [
        ("read", libc::SYS_read),
        ("poll", libc::SYS_poll),
        ("pause", libc::SYS_pause),
        ("sched_yield", libc::SYS_sched_yield),
        ("sendfile", libc::SYS_sendfile),
        ("wait4", libc::SYS_wait4),
        ("flock", libc::SYS_flock),
        ("restart_syscall", libc::SYS_restart_syscall),
        ("clock_nanosleep", libc::SYS_clock_nanosleep),
        ("waitid", libc::SYS_waitid),
        ("ppoll", libc::SYS_ppoll),
        ("preadv2", libc::SYS_preadv2),
        ("pwritev2", libc::SYS_pwritev2),
        ("epoll_pwait2", libc::SYS_epoll_pwait2),
        ("futex_waitv", libc::SYS_futex_waitv),
        ("mseal", libc::SYS_mseal),
    ] {
        assert_eq!(X86_64.system_call(number).map(|call| call.name), Some(name));
    }
}

fn registers() -> Registers {
    let mut general = RegisterSet::new(X86_64);
    X86_64.general_registers().zip(100..).for_each(|(register, value)| general.set(register, value));
    Registers { general, system_call: 7, thread_pointer: Addr(0x7000), descriptor: None }
}

#[test]
fn registers_are_written_as_they_are_read() {
    let bytes = X86_64.user_registers(&registers());
    assert_eq!(bytes.len(), X86_64.user_registers_size());
    assert_eq!(X86_64.registers(&bytes), Some(registers()));
    assert_eq!(X86_64.registers(&bytes[1..]), None);
    // struct user_regs_struct of sys/user.h: rip is its 17th word, rsp its 20th.
    let word = |at: usize| bytes[at * 8];
    assert_eq!((u64::from(word(16)), u64::from(word(19))), (116, 107));
}

#[test]
fn only_an_interrupted_call_is_restarted() {
    let with = |result: i64, number: i64| {
        let registers =
            X86_64.in_system_call(Registers { system_call: number, ..registers() }, result, [1, 2, 3, 4, 5, 6]);
        X86_64.restarted(&X86_64.user_registers(&registers), None).and_then(|restart| X86_64.registers(&restart.again))
    };
    let restarted = with(-4, 232).expect("epoll_wait after a stop");
    let call = restarted.syscall().expect("still a call");
    assert_eq!((call.result, call.number, call.arguments), (-514, 232, [1, 2, 3, 4, 5, 6]));
    assert!(restarted.asleep().is_some());
    assert_eq!(with(-512, 202), None, "the kernel restarts it by itself");
    assert_eq!(with(-4, -1), None, "no call");
    assert_eq!(with(4, 232), None, "a call that is over");
    assert_eq!(X86_64.restarted(&[0; 8], None), None);
}

/// A seccomp filter may not know restart_syscall.
#[test]
fn only_what_another_call_would_go_on_with_is_made_again_as_itself() {
    let with = |result: i64, number: i64| {
        let registers = Registers { system_call: number, ..registers() };
        let registers = X86_64.in_system_call(registers, result, [1, 2, 3, 4, 5, 6]);
        X86_64.made_again_as_itself(&X86_64.user_registers(&registers)).and_then(|again| X86_64.registers(&again))
    };
    let call = with(-516, 35).and_then(|registers| registers.syscall()).expect("nanosleep after a stop");
    assert_eq!((call.result, call.number, call.arguments), (-514, 35, [1, 2, 3, 4, 5, 6]));
    assert_eq!(with(-512, 202), None, "the kernel makes it again as itself");
    assert_eq!(with(-516, -1), None, "no call");
    assert_eq!(X86_64.made_again_as_itself(&[0; 8]), None);
    assert!(!X86_64.hides_restarts() && Architecture::Aarch64.hides_restarts());
}

/// Code at address 0x1000.
#[derive(Debug)]
struct Code(&'static [u8]);

impl Memory for Code {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let from = address.0.checked_sub(0x1000).and_then(|at| self.0.get(at as usize..)).unwrap_or_default();
        let length = from.len().min(buffer.len());
        buffer[..length].copy_from_slice(&from[..length]);
        if length == 0 { Err(Fault::Unmapped(address)) } else { Ok(length) }
    }
}

#[test]
fn the_number_of_a_call_is_read_from_its_code() {
    // mov $0xca,%eax; xor $0x80,%sil; syscall
    let code = Code(&[0xb8, 0xca, 0, 0, 0, 0x40, 0x80, 0xf6, 0x80, 0x0f, 0x05]);
    let call = Syscall { number: 219, arguments: [0; 6], result: -516, sp: Addr(0), pc: Addr(0x1000 + 11) };
    assert_eq!(X86_64.number_by_code(&call, &code), Some(202));
    let through_register = Code(&[0x89, 0xf8, 0x90, 0x90, 0x90, 0x0f, 0x05]);
    let call = Syscall { pc: Addr(0x1000 + 7), ..call };
    assert_eq!(X86_64.number_by_code(&call, &through_register), None);
}

#[test]
fn a_thread_set_back_to_its_call_is_in_it() {
    // mov $0xca,%eax; syscall; nop
    let code = Code(&[0xb8, 0xca, 0, 0, 0, 0x0f, 0x05, 0x90]);
    let beside = |system_call: i64, pc: u64, behind: u64, number: u64| {
        let mut registers = Registers { system_call, ..registers() };
        let numbers = [(x86_64::registers::RIP, pc), (Register(0), number), (Register(2), behind)];
        numbers.iter().for_each(|(register, value)| registers.general.set(*register, *value));
        registers.with_call_made_again(&code).asleep()
    };
    let at = |pc, behind, number| beside(-1, pc, behind, number);
    let call = at(0x1005, 0x1007, 202).expect("set back to the call");
    assert_eq!((call.number, call.result, call.pc), (202, -512, Addr(0x1007)));
    assert_eq!(at(0x1005, 0x7fff, 202), None, "it comes to this call for the first time");
    assert_eq!(at(0x1000, 0x1002, 202), None, "another instruction");
    assert_eq!(at(0x1007, 0x1009, 202), None, "code that cannot be read");
    assert_eq!(at(0x1005, 0x1007, u64::MAX), None, "no number of a call");
    for number in [202, 219] {
        let call = beside(202, 0x1005, 0x1007, number).expect("it has not left the kernel yet");
        assert_eq!((call.number, call.result, call.pc), (202, -512, Addr(0x1007)));
    }
    assert_eq!(beside(202, 0x1005, 0x1007, 0), None, "a call that has come to its end");
    assert_eq!(beside(202, 0x1005, 0x7fff, 202), None, "code that goes to this call again");
}

#[test]
fn code_before_a_return_address_is_a_call() {
    // nop; nop; call rel32; then call *%rax.
    let code = Code(&[0x90, 0x90, 0xe8, 1, 0, 0, 0, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]);
    assert!(X86_64.is_behind_call(Addr(0x1007), &code));
    assert!(X86_64.is_behind_call(Addr(0x100e), &code));
    assert!(!X86_64.is_behind_call(Addr(0x100c), &code));
    assert!(code.u8(Addr(0x1000)).is_ok() && !X86_64.is_behind_call(Addr(0x1003), &code));
}

/// Code of this program: the bytes of its section, as far as one look needs, and their address.
#[cfg(target_arch = "x86_64")]
fn own_code() -> (Vec<u8>, Addr) {
    use object::{Object, ObjectSection};
    let bytes = std::fs::read(std::env::current_exe().expect("a program")).expect("readable");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let text = file.section_by_name(".text").expect("code");
    let code = text.data().expect("bytes");
    (code[..code.len().min(512 << 10)].to_vec(), Addr(text.address()))
}

#[test]
#[cfg(target_arch = "x86_64")]
fn direct_branches_leave_out_no_call() {
    let (code, start) = own_code();
    let found: std::collections::HashSet<(Target, Addr)> = X86_64.direct_branches(&code, start).into_iter().collect();
    let mut calls = 0;
    for instruction in X86_64.decoder(&code, start) {
        if let Flow::Call(to @ (Target::Code(_) | Target::Slot(_)))
        | Flow::Jump(to @ (Target::Code(_) | Target::Slot(_))) = instruction.flow
        {
            assert!(found.contains(&(to, instruction.address)), "{instruction:?}");
            calls += 1;
        }
    }
    assert!(calls > 1000, "{calls}");
}

#[test]
fn effects_of_instructions() {
    let first = |code: &[u8]| {
        let mut decoder = X86_64.decoder(code, Addr(0x1000));
        let instruction = decoder.next().expect("an instruction");
        (instruction.flow, decoder.effects().iter().next().expect("an effect"))
    };
    let [rdi, rsi] = [X86_64.arguments()[0], X86_64.arguments()[1]];
    let [rbx, rbp] = [X86_64.callee_saved()[0], X86_64.frame_pointer()];
    let on_stack = |displacement: i64| {
        Some(Place { base: Some(rbp), index: None, displacement: displacement as u64, is_thread_local: false })
    };
    let cases: [(&[u8], Effect); 7] = [
        (&[0x48, 0x89, 0xfb], Effect::Copy { to: rbx, from: rdi, width: Width::Whole }),
        (&[0x89, 0xfb], Effect::Copy { to: rbx, from: rdi, width: Width::Half }),
        (&[0x48, 0x89, 0x7d, 0xf8], Effect::Store { to: on_stack(-8), from: Some(rdi), width: Width::Whole }),
        (&[0x48, 0x8b, 0x75, 0xf0], Effect::Load { to: rsi, from: on_stack(-16), width: Width::Whole }),
        (&[0x53], Effect::Push { from: Some(rbx), stack_pointer: X86_64.stack_pointer() }),
        (&[0xbf, 1, 0, 0, 0], Effect::Constant { to: rdi, value: 1 }),
        (&[0x48, 0x83, 0xec, 0x18], Effect::Subtract { to: X86_64.stack_pointer(), amount: 0x18 }),
    ];
    for (code, effect) in cases {
        assert_eq!(first(code), (Flow::Next, effect), "{code:02x?}");
    }
    // mov %fs:0x10,%rdi
    let (_, thread) = first(&[0x64, 0x48, 0x8b, 0x3c, 0x25, 0x10, 0, 0, 0]);
    assert!(matches!(thread, Effect::Load { from: Some(Place { is_thread_local: true, displacement: 0x10, .. }), .. }));
    // xor %edi,%edi overwrites one register and no other.
    let (_, cleared) = first(&[0x31, 0xff]);
    assert_eq!(cleared.writes().iter().collect::<Vec<_>>(), [rdi]);
    assert_eq!(first(&[0xe8, 0xfb, 0xff, 0xff, 0xff]).0, Flow::Call(Target::Code(Addr(0x1000))));
    assert_eq!(first(&[0xff, 0x25, 0, 0, 0, 0]).0, Flow::Jump(Target::Slot(Addr(0x1006))));
    assert_eq!(first(&[0x0f, 0x05]).0, Flow::Next, "a system call comes back");
    assert_eq!(first(&[0xc3]).0, Flow::Return);
    assert_eq!(X86_64.decoder(&[0x06], Addr(0)).next(), None, "no instruction of 64-bit code");
}

/// Words that only a machine's own folder may use: its registers, its decoder, its numbers. The demonstration reads
/// /proc for lockscope's own children, for which libc's names are right.
fn machine_words(line: &str) -> Option<String> {
    const REGISTERS: [&str; 29] = [
        "rax",
        "rbx",
        "rcx",
        "rdx",
        "rsi",
        "rdi",
        "rbp",
        "rsp",
        "rip",
        "eax",
        "edi",
        "esi",
        "r8",
        "r9",
        "r10",
        "r11",
        "r12",
        "r13",
        "r14",
        "r15",
        "orig_rax",
        "fs_base",
        "x29",
        "x30",
        "tpidr_el0",
        "user_regs_struct",
        "iced_x86",
        "EM_X86_64",
        "EM_AARCH64",
    ];
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = line.split(|letter| !is_word(letter)).filter(|word| !word.is_empty());
    for word in words {
        // System calls are called SYS_read and so on; capabilities are SYS_PTRACE.
        let is_call =
            word.strip_prefix("SYS_").is_some_and(|name| name.starts_with(|first: char| first.is_lowercase()));
        let is_register = REGISTERS.iter().any(|register| register.eq_ignore_ascii_case(word));
        if is_register || is_call || word.starts_with("NR_") {
            return Some(word.to_owned());
        }
    }
    let spaceless: String = line.chars().filter(|letter| !letter.is_whitespace()).collect();
    let digits_behind = |text: &str| {
        let (_, rest) = spaceless.split_once(text)?;
        rest.starts_with(|letter: char| letter.is_ascii_digit()).then(|| format!("{text}{rest}"))
    };
    ["call.number==", "call.number!=", "raw.number==", "system_call==", "system_call(", "system_call:", "Register("]
        .into_iter()
        .find_map(digits_behind)
}

#[test]
fn the_search_for_words_of_a_machine_finds_them() {
    for line in [
        "let lock = registers.get(Register::RDI)?;",
        "use iced_x86::Decoder;",
        "if call.number == 202 {",
        "const NR_PAUSE: i64 = 34;",
        "(libc::SYS_write, When::Always)",
        "general.set(Register(7), 0);",
        "/// rbx of frame 3",
        "registers.orig_rax",
        "Registers { general, system_call: 202, thread_pointer }",
    ] {
        assert!(machine_words(line).is_some(), "{line}");
    }
    for line in [
        "let arguments = call.arguments;",
        "if call.number == wanted {",
        "the driver4 of 8 threads",
        "system_call: number",
        "--cap-add=SYS_PTRACE, CAP_SYS_NICE",
    ] {
        assert_eq!(machine_words(line), None, "{line}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of src").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn nothing_else_names_a_register_or_a_system_call_number() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    files.retain(|path| !path.starts_with(root.join("arch")));
    // Compiled by itself, with what depends on the machine in one file of its own.
    files.retain(|path| !path.starts_with(root.join("recorder/preload")));
    // A text with registers in it, as the report shows them.
    files.retain(|path| !path.ends_with("render/text/tests.rs"));
    // The program's own calls, which the C library has no function for.
    files.retain(|path| !path.ends_with("src/sys.rs") && !path.ends_with("cli/demo.rs"));
    assert!(files.len() > 100);
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a source");
        for (line, text) in text.lines().enumerate() {
            if let Some(word) = machine_words(text) {
                found.push(format!("{}:{}: {word}", path.display(), line + 1));
            }
        }
    }
    assert!(found.is_empty(), "these belong into src/arch:\n{}", found.join("\n"));
}

#[test]
fn what_cuts_a_call_short_are_its_arguments() {
    use nix::libc;
    let early = |number: i64, arguments: [u64; 6]| X86_64.system_call(number).expect("a call").early(&arguments);
    let all = libc::MSG_WAITALL as u64;
    assert_eq!(early(libc::SYS_write, [1, 0, 9, 0, 0, 0]), Some(Early::PartOfAWrite));
    assert_eq!(early(libc::SYS_read, [0, 0, 9, 0, 0, 0]), None);
    // io_uring_enter(ring, to_submit, min_complete, ...): what only waits says EINTR, and is restarted.
    assert_eq!(early(libc::SYS_io_uring_enter, [3, 0, 1, 1, 0, 0]), None);
    assert_eq!(early(libc::SYS_io_uring_enter, [3, 2, 1, 1, 0, 0]), Some(Early::Before));
    assert_eq!(early(libc::SYS_recvfrom, [3, 0, 9, 0, 0, 0]), None);
    assert_eq!(early(libc::SYS_recvfrom, [3, 0, 9, all, 0, 0]), Some(Early::Part));
    assert_eq!(early(libc::SYS_io_getevents, [3, 1, 8, 0, 0, 0]), None);
    assert_eq!(early(libc::SYS_io_getevents, [3, 2, 8, 0, 0, 0]), Some(Early::Part));
    assert_eq!(early(333, [3, 2, 8, 0, 0, 0]), Some(Early::Part), "io_pgetevents, which the libc crate lacks");
    assert_eq!(early(libc::SYS_close, [3, 0, 0, 0, 0, 0]), Some(Early::Before));
    assert_eq!(early(libc::SYS_vmsplice, [3, 0, 0, 0, 0, 0]), Some(Early::Part));
}
