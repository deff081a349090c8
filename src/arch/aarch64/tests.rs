//! Words of real code, and registers as a kernel gave them: Debian's glibc 2.41 and Linux 6.12 in an emulated machine.

use crate::arch::instructions::{Effect, Flow, Place, Target, Width};
use crate::arch::{Architecture, Register, RegisterSet, Registers, Syscall};
use crate::memory::{Addr, Fault, Memory};

const AARCH64: Architecture = Architecture::Aarch64;

/// Words of code or data at an address.
#[derive(Debug)]
struct Words(u64, Vec<u64>);

impl Words {
    fn of_code(at: u64, code: &[u32]) -> Words {
        let pair = |pair: &[u32]| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32;
        Words(at, code.chunks(2).map(pair).collect())
    }
}

impl Memory for Words {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let bytes: Vec<u8> = self.1.iter().flat_map(|word| word.to_le_bytes()).collect();
        let from = address.0.checked_sub(self.0).and_then(|at| bytes.get(at as usize..)).unwrap_or_default();
        let length = from.len().min(buffer.len());
        buffer[..length].copy_from_slice(&from[..length]);
        if length == 0 { Err(Fault::Unmapped(address)) } else { Ok(length) }
    }
}

fn one(word: u32, at: u64) -> (Flow, Vec<Effect>) {
    let code = word.to_le_bytes();
    let mut decoder = AARCH64.decoder(&code, Addr(at));
    let instruction = decoder.next().expect("an instruction");
    (instruction.flow, decoder.effects().iter().collect())
}

fn x(number: u16) -> Register {
    Register(number)
}

fn on(base: Register, displacement: i64) -> Option<Place> {
    Some(Place { base: Some(base), index: None, displacement: displacement as u64, is_thread_local: false })
}

const SP: Register = Register(31);

#[test]
fn what_instructions_do() {
    let fixed = |address| Some(Place { base: None, index: None, displacement: address, is_thread_local: false });
    let store = |from, to| Effect::Store { to, from: Some(x(from)), width: Width::Whole };
    let load = |to, from| Effect::Load { to: x(to), from, width: Width::Whole };
    let cases: Vec<(u32, Vec<Effect>)> = vec![
        // stp x29, x30, [sp, #-32]!
        (0xa9be7bfd, vec![Effect::Subtract { to: SP, amount: 32 }, store(29, on(SP, 0)), store(30, on(SP, 8))]),
        // mov x29, sp
        (0x910003fd, vec![Effect::Copy { to: x(29), from: SP, width: Width::Whole }]),
        // str x19, [sp, #16]
        (0xf9000bf3, vec![store(19, on(SP, 16))]),
        // mov x19, x0
        (0xaa0003f3, vec![Effect::Copy { to: x(19), from: x(0), width: Width::Whole }]),
        // mov w0, #1
        (0x52800020, vec![Effect::Constant { to: x(0), value: 1 }]),
        // ldr w0, [x19]
        (0xb9400260, vec![Effect::Load { to: x(0), from: on(x(19), 0), width: Width::Half }]),
        // ldp x29, x30, [sp], #32
        (0xa8c27bfd, vec![load(29, on(SP, 0)), load(30, on(SP, 8)), Effect::Add { to: SP, amount: 32 }]),
        // sub x0, x0, #0x720
        (0xd11c8000, vec![Effect::Subtract { to: x(0), amount: 0x720 }]),
        // adrp x16, 1af000, at 21970; add x16, x16, #0xd40
        (0xd0000c70, vec![Effect::Address { to: x(16), of: fixed(0x1af000) }]),
        (0x91350210, vec![Effect::Add { to: x(16), amount: 0xd40 }]),
        // add x0, x1, x2, lsl #3
        (
            0x8b020c20,
            vec![Effect::Address {
                to: x(0),
                of: Some(Place { index: Some((x(2), 8)), ..on(x(1), 0).expect("a place") }),
            }],
        ),
        // ldr x0, [x1, x2, lsl #3]
        (0xf8627820, vec![load(0, Some(Place { index: Some((x(2), 8)), ..on(x(1), 0).expect("a place") }))]),
        // ldr x1, [x0], #8; stur x1, [x29, #-8]
        (0xf8408401, vec![load(1, on(x(0), 0)), Effect::Add { to: x(0), amount: 8 }]),
        (0xf81f83a1, vec![store(1, on(x(29), -8))]),
    ];
    for (word, effects) in cases {
        assert_eq!(one(word, 0x21970), (Flow::Next, effects), "{word:08x}");
    }
    // ldp x0, x1, [x0]: what is loaded over the base comes last.
    assert_eq!(one(0xa9400400, 0).1, [load(1, on(x(0), 8)), load(0, on(x(0), 0))]);
    let written = |word: u32| {
        let all: Vec<Register> = one(word, 0).1.iter().flat_map(|effect| effect.writes().iter()).collect();
        all
    };
    // tst x0, #1; fmov d0, x0; scvtf d0, x0; st2g x0, [x2, #64]!; ldg x0, [x1].
    assert_eq!(written(0xf240001f), []);
    assert_eq!(written(0x9e670000), []);
    assert_eq!(written(0x9e620000), []);
    assert_eq!(written(0xd9a04c40), [x(2)]);
    assert_eq!(written(0xd9600020), [x(0)]);
    // mrs x0, tpidr_el0; cmp w0, #1; ccmp; str q0, [sp]; fmov x0, d0; svc #0; cas w0, w1, [x2]; and sp, x0, #-16.
    assert_eq!(written(0xd53bd040), [x(0)]);
    assert_eq!(written(0x7100041f), []);
    assert_eq!(written(0xfa401844), []);
    assert_eq!(written(0x3d8003e0), []);
    assert_eq!(written(0x9e660000), [x(0)]);
    assert_eq!(written(0xd4000001), [x(0)]);
    assert!(written(0x88a07c41).contains(&x(0)));
    assert_eq!(written(0x927cec1f), [SP]);
}

#[test]
fn where_instructions_lead() {
    let flow = |word, at| one(word, at).0;
    assert_eq!(flow(0x94017c06, 0x23e88), Flow::Call(Target::Code(Addr(0x82ea0))));
    assert_eq!(flow(0x17fffff8, 0x8e038), Flow::Jump(Target::Code(Addr(0x8e018))));
    assert_eq!(flow(0x35ffffa0, 0x8e034), Flow::Branch(Addr(0x8e028)));
    assert_eq!(flow(0x34ffff00, 0x8e024), Flow::Branch(Addr(0x8e004)));
    // b.eq 8; tbnz w0, #3, 12; blr x1; br x2; ret; retaa; brk #1; udf; paciasp; bti c; svc #0.
    assert_eq!(flow(0x54000040, 0x1000), Flow::Branch(Addr(0x1008)));
    assert_eq!(flow(0x37180060, 0x1000), Flow::Branch(Addr(0x100c)));
    assert_eq!(flow(0xd63f0020, 0), Flow::Call(Target::Register(Register(1))));
    assert_eq!(flow(0xd61f0040, 0), Flow::Jump(Target::Register(Register(2))));
    assert_eq!(flow(0xd65f03c0, 0), Flow::Return);
    assert_eq!(flow(0xd65f0bff, 0), Flow::Return);
    assert_eq!(flow(0xd4200020, 0), Flow::Trap);
    assert_eq!(flow(0, 0), Flow::Trap);
    for word in [0xd503233f, 0xd503245f, 0xd4000001] {
        assert_eq!(flow(word, 0), Flow::Next, "{word:08x}");
    }
}

#[test]
fn a_stub_of_the_linker_jumps_through_its_slot() {
    let code: Vec<u8> =
        [0xd0000c70u32, 0xf946a211, 0x91350210, 0xd61f0220].iter().flat_map(|word| word.to_le_bytes()).collect();
    let flows: Vec<Flow> = AARCH64.decoder(&code, Addr(0x21970)).map(|instruction| instruction.flow).collect();
    assert_eq!(flows[..3], [Flow::Next; 3]);
    assert_eq!(flows[3], Flow::Jump(Target::Slot(Addr(0x1afd40))));
}

#[test]
fn any_word_is_read() {
    for word in (0..=u32::MAX).step_by(40_009) {
        let _ = one(word, u64::MAX - 3);
    }
}

fn stopped(pc: u64, values: &[(u16, u64)]) -> Registers {
    let mut general = RegisterSet::new(AARCH64);
    AARCH64.general_registers().for_each(|register| general.set(register, 0));
    values.iter().for_each(|(number, value)| general.set(Register(*number), *value));
    general.set_pc(Addr(pc));
    Registers { general, system_call: -1, thread_pointer: Addr(0), descriptor: None }
}

#[test]
fn the_code_says_which_call_a_thread_is_in() {
    // mov x8, #98; svc #0; cmn x0, #1, lsl #12; ret.
    let code = Words::of_code(0x1000, &[0xd2800c48, 0xd4000001, 0xb140041f, 0xd65f03c0]);
    let futex = [(0, 0x5000), (1, 0x80), (2, 2), (8, 98)];
    let asleep = |pc: u64, values: &[(u16, u64)]| stopped(pc, values).settled(7, &code).expect("code").asleep();
    let call = asleep(0x1004, &futex).expect("asleep");
    assert_eq!((call.number, call.pc, &call.arguments[..3]), (98, Addr(0x1008), &[0x5000u64, 0x80, 2][..]));
    assert_eq!(asleep(0x1008, &futex), None, "the call is over");
    // epoll_pwait after a stop: its first argument is lost, and it stands behind the call.
    let call = asleep(0x1008, &[(0, -4i64 as u64), (8, 22)]).expect("interrupted");
    assert_eq!((call.number, call.pc, call.result), (22, Addr(0x1008), -4));
    assert!(stopped(0x9000, &futex).settled(7, &code).is_none(), "no code, nothing known");
    let restarted = Syscall { number: 128, arguments: [0; 6], result: -512, sp: Addr(0), pc: Addr(0x1008) };
    assert!(AARCH64.is_restart(restarted.number));
    assert_eq!(AARCH64.number_by_code(&restarted, &code), Some(98));
}

#[test]
fn the_description_of_a_thread_ends_at_its_thread_pointer() {
    let (pointer, tid) = (0x10_0900, 4711);
    let with = |at: u64, word: u64| {
        let mut words = vec![0; 0x200];
        words[(at as usize - 0x10_0000) / 8] = word;
        let registers = Registers { thread_pointer: Addr(pointer), ..stopped(0x10_0000, &[]) };
        registers.settled(tid, &Words(0x10_0000, words)).expect("code").thread_descriptor()
    };
    // glibc 2.41, 2.36; musl; a word that is another thread's id.
    assert_eq!(with(pointer - 0x720 + 0xd0, 4711), Some(Addr(pointer - 0x720)));
    assert_eq!(with(pointer - 0x740 + 0xd0, 4711), Some(Addr(pointer - 0x740)));
    assert_eq!(with(pointer - 200, pointer - 200), Some(Addr(pointer - 200)));
    assert_eq!(with(pointer - 0x720 + 0xd0, 4712), None);
}

#[test]
fn return_addresses_are_read_without_their_authentication_codes() {
    assert_eq!(AARCH64.returned_to(0x0020_ffff_84c3_9750), Addr(0xffff_84c3_9750));
    assert_eq!(AARCH64.returned_to(0xaaaa_cbbc_0abc), Addr(0xaaaa_cbbc_0abc));
    // bl, blr x1, blraa x0, x1; a load is none, nor is what stands at no instruction's place.
    let code = Words::of_code(0x1000, &[0x94017c06, 0xd63f0020, 0xd73f0801, 0xf946a211]);
    let behind: Vec<bool> = (1..=4).map(|word| AARCH64.is_behind_call(Addr(0x1000 + word * 4), &code)).collect();
    assert_eq!(behind, [true, true, true, false]);
    assert!(!AARCH64.is_behind_call(Addr(0x1006), &code));
}

#[test]
fn a_frame_pointer_leads_to_the_pair_at_the_bottom_of_a_frame() {
    let memory = Words(0x7000, vec![0x7100, 0x0020_ffff_84c3_9750]);
    let registers = stopped(0x1000, &[(29, 0x7000), (31, 0x6ff0)]).general;
    let found = AARCH64.step_by_frame_pointer(&registers, Addr(0x6ff0), &memory).expect("a caller");
    assert_eq!((found.pc(), found.get(x(29)), found.sp()), (Some(Addr(0xffff_84c3_9750)), Some(0x7100), None));
    assert!(AARCH64.step_by_frame_pointer(&registers, Addr(0x7008), &memory).is_none(), "it lies below");
    let leaf =
        AARCH64.step_from_leaf(&stopped(0x1000, &[(30, 0x2004), (31, 0x6ff0)]).general, &memory).expect("a caller");
    assert_eq!((leaf.pc(), leaf.sp()), (Some(Addr(0x2004)), Some(Addr(0x6ff0))));
}

#[test]
fn a_signal_handler_returns_to_what_it_interrupted() {
    // The code of the vDSO, and below a struct rt_sigframe whose registers are their own numbers.
    let mut words = vec![0xd400_0001_d280_1168];
    words.extend(std::iter::repeat_n(0, 39));
    words.extend(0..34);
    let memory = Words(0x1000, words);
    let found = AARCH64.interrupted(Addr(0x1000), Addr(0x1008), &memory).expect("a signal frame");
    assert_eq!(
        (found.get(x(0)), found.get(x(19)), found.sp(), found.pc()),
        (Some(0), Some(19), Some(Addr(31)), Some(Addr(32)))
    );
    assert_eq!(AARCH64.interrupted(Addr(0x1008), Addr(0x1008), &memory), None);
}

#[test]
fn registers_and_notes_are_written_as_they_are_read() {
    let mut registers = stopped(0x1000, &[(0, 1), (30, 2), (31, 3)]);
    let bytes = AARCH64.user_registers(&registers);
    assert_eq!((bytes.len(), AARCH64.registers(&bytes)), (272, Some(registers)));
    assert_eq!(AARCH64.registers(&bytes[1..]), None);
    registers.thread_pointer = Addr(0xffff_aac9_e740);
    let notes = AARCH64.notes(&registers);
    let mut read = AARCH64.registers(&bytes).expect("registers");
    notes.iter().for_each(|(kind, data)| AARCH64.take_note(&mut read, *kind, data));
    assert_eq!(read, registers);
    AARCH64.take_note(&mut read, 0x401, &[1, 2]);
    assert_eq!(read, registers, "a note that is cut");
}

/// The record of the kernel's program for a thread that sleeps in epoll_pwait.
#[test]
fn a_sleeping_thread_is_in_its_call_as_a_stop_would_show_it() {
    let record = |pc: u64, flags: u64, number: i64| {
        let mut bytes = AARCH64.user_registers(&stopped(pc, &[(0, 7), (1, 0x5000), (8, 22), (31, 0x9000)]));
        bytes[33 * 8..].copy_from_slice(&flags.to_le_bytes());
        [7, number as u64, 0x10_0900].iter().for_each(|word: &u64| bytes.extend(word.to_le_bytes()));
        assert_eq!(bytes.len(), AARCH64.asleep_registers_size());
        bytes
    };
    // Z and C are set, as after a comparison.
    const FLAGS: u64 = 0x6000_0000;
    let registers = AARCH64.asleep_registers(&record(0x1008, FLAGS, 22)).expect("of user space");
    assert_eq!((registers.general.pc(), registers.thread_pointer), (Some(Addr(0x1004)), Addr(0x10_0900)));
    let call = registers.asleep().expect("asleep");
    assert_eq!((call.number, call.pc, call.arguments[0]), (22, Addr(0x1008), 7));
    // The code says the same.
    let code = Words::of_code(0x1000, &[0xd28002c8, 0xd4000001]);
    assert_eq!(registers.settled(7, &code).and_then(|registers| registers.asleep()), Some(call));
    // In no call, as one that waits for a page.
    let waiting = AARCH64.asleep_registers(&record(0x1008, FLAGS, -1)).expect("of user space");
    assert_eq!((waiting.general.pc(), waiting.asleep()), (Some(Addr(0x1008)), None));
    // The kernel's own workers: EL1h; and what is too short.
    assert_eq!(AARCH64.asleep_registers(&record(0x1008, 5, -1)), None);
    assert_eq!(AARCH64.asleep_registers(&record(0, 0, -1)), None);
    assert_eq!(AARCH64.asleep_registers(&record(0x1008, FLAGS, 22)[1..]), None);
}

/// The registers after a stop inside epoll_pwait.
#[test]
fn an_interrupted_call_is_made_again_by_its_instruction() {
    let arguments = [7, 0x5000, 16, 0xffff_ffff, 0, 8];
    let slept = Syscall { number: 22, arguments, result: 0, sp: Addr(0x9000), pc: Addr(0x1008) };
    let values = |x0: i64| [(0, x0 as u64), (1, 0x5000), (2, 16), (3, 0xffff_ffff), (5, 8), (8, 22), (31, 0x9000)];
    let bytes = |x0: i64| {
        let mut bytes = AARCH64.user_registers(&stopped(0x1008, &values(x0)));
        bytes[33 * 8 + 3] = 0x60;
        bytes
    };
    let restart = AARCH64.restarted(&bytes(-4), Some(&slept)).expect("made again");
    let mut wanted = AARCH64.user_registers(&stopped(0x1004, &values(7)));
    wanted[33 * 8 + 3] = 0x60;
    assert_eq!((restart.again, restart.said), (wanted, Some(bytes(-4))), "the flags stay");
    assert!(AARCH64.needs_call_before() && AARCH64.is_interrupted(&bytes(-4)) && !AARCH64.is_interrupted(&bytes(0)));
    assert_eq!(AARCH64.restarted(&bytes(0), Some(&slept)), None, "it has come to its end");
    assert_eq!(AARCH64.restarted(&bytes(-4), None), None, "its first argument is lost");
    assert_eq!(AARCH64.restarted(&bytes(-4), Some(&Syscall { number: 137, ..slept })), None);
    assert_eq!(AARCH64.restarted(&bytes(-4)[1..], Some(&slept)), None);
}
