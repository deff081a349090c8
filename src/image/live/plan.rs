//! The memory to copy under the stop: stacks, targets of registers and system call arguments, and pages that an earlier
//! sample needed.
//!
//! In: registers, the map, wanted pages. Out: spans of pages, clipped to memory that can change. It reads nothing.

use std::collections::BTreeSet;

use super::memory::{PAGE, is_changeable, is_readable, page_spans};
use crate::image::{Mapping, Registers, Syscall};
use crate::limits::live::{STACK_OF_FEW, STACK_OF_MANY};
use crate::sys::Span;

/// Bytes below the stack pointer: the red zone, and some to spare.
const BELOW_STACK_POINTER: u64 = 256;
const FEW_THREADS: usize = 32;

/// The most pages that this many threads may need: their stacks, thread descriptors, and targets of registers and
/// arguments.
pub(super) fn most_pages(threads: usize) -> usize {
    const BESIDE_THE_STACK: usize = 2 * 15;
    let stack = if threads <= FEW_THREADS { STACK_OF_FEW } else { STACK_OF_MANY };
    threads.saturating_mul((stack / PAGE) as usize + BESIDE_THE_STACK)
}

/// The spans for the threads of a process. `blocked` has the system calls of the threads that were not stopped.
pub(super) fn of_threads(mappings: &[Mapping], stopped: &[Registers], blocked: &[Syscall]) -> Vec<Span> {
    let count = stopped.len() + blocked.len();
    let stack = if count <= FEW_THREADS { STACK_OF_FEW } else { STACK_OF_MANY };
    let mut ranges = Vec::new();
    let mut around = |address: u64, before: u64, after: u64| {
        clip(mappings, address.saturating_sub(before), address.saturating_add(after), &mut ranges);
    };
    for registers in stopped {
        for register in registers.general.architecture().callee_saved() {
            around(registers.general.get(*register).unwrap_or(0), 64, 256);
        }
        let (before, behind) = registers.general.architecture().around_thread_pointer();
        around(registers.thread_pointer.0, before, behind);
    }
    let calls = stopped.iter().filter_map(Registers::syscall).chain(blocked.iter().copied());
    for argument in calls.flat_map(|call| call.arguments) {
        around(argument, 64, 128);
    }
    let pointers = stopped.iter().filter_map(|registers| registers.general.sp()).chain(blocked.iter().map(|c| c.sp));
    for pointer in pointers {
        // Up to the end of its own mapping: what follows is not its stack.
        if let Some(mapping) = Mapping::of(mappings, pointer) {
            let end = mapping.end.0.min(pointer.0.saturating_add(stack));
            clip(mappings, pointer.0.saturating_sub(BELOW_STACK_POINTER).max(mapping.start.0), end, &mut ranges);
        }
    }
    page_spans(ranges)
}

/// The spans of single pages that are not among those `held`.
pub(super) fn of_pages(mappings: &[Mapping], pages: &BTreeSet<u64>, held: &[Span]) -> Vec<Span> {
    let is_held = |page: u64| {
        let after = held.partition_point(|span| span.start <= page);
        held[..after].last().is_some_and(|span| page - span.start < span.length as u64)
    };
    let mut ranges = Vec::new();
    for &page in pages.iter().filter(|&&page| !is_held(page)) {
        clip(mappings, page, page.saturating_add(PAGE), &mut ranges);
    }
    page_spans(ranges)
}

/// Add the parts of `[start, end)` that can be read and can change.
fn clip(mappings: &[Mapping], start: u64, end: u64, ranges: &mut Vec<(u64, u64)>) {
    let first = mappings.partition_point(|mapping| mapping.end.0 <= start);
    for mapping in mappings[first..].iter().take_while(|mapping| mapping.start.0 < end) {
        if is_readable(mapping) && is_changeable(mapping) {
            ranges.push((start.max(mapping.start.0), end.min(mapping.end.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Architecture;
    use crate::arch::system_calls::FUTEX;
    use crate::image::live::proc_fs::parse_maps;
    use crate::image::{Addr, RegisterSet};

    const MAPS: &[u8] = b"10000-14000 r-xp 00000000 fe:01 7 /bin/x\n\
        20000-30000 rw-p 00000000 00:00 0 [heap]\n\
        40000-41000 ---p 00000000 00:00 0 \n\
        41000-4a000 rw-p 00000000 00:00 0 \n\
        50000-60000 rw-s 00000000 00:05 9 /dev/nvidia0\n";

    #[test]
    fn stack_arguments_and_descriptor() {
        let architecture = Architecture::X86_64;
        let number = architecture.number_of(&FUTEX).expect("a futex call");
        let mut general = RegisterSet::new(architecture);
        general.set_sp(Addr(0x46f10));
        for (register, value) in architecture.arguments().iter().zip([0x2fff0, 0x50000]) {
            general.set(*register, value);
        }
        general.set(architecture.callee_saved()[0], 0x10010);
        let registers = Registers { general, system_call: number, thread_pointer: Addr(0x41f00), descriptor: None };
        let spans = of_threads(&parse_maps(MAPS), &[registers], &[]);
        assert_eq!(
            spans,
            [
                Span { start: 0x2f000, length: 0x1000 },
                Span { start: 0x41000, length: 0x2000 },
                Span { start: 0x46000, length: 0x4000 },
            ]
        );
    }

    #[test]
    fn wanted_pages_that_are_mapped_still() {
        let pages = BTreeSet::from([0x10000, 0x20000, 0x21000, 0x50000, 0x90000, !0xfff]);
        let spans = |held: &[Span]| of_pages(&parse_maps(MAPS), &pages, held);
        assert_eq!(spans(&[]), [Span { start: 0x20000, length: 0x2000 }]);
        assert_eq!(spans(&[Span { start: 0x1f000, length: 0x2000 }]), [Span { start: 0x21000, length: 0x1000 }]);
    }
}
