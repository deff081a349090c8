//! Which thread of the kernel a thread state of Python is of.
//!
//! In: the threads of a process. Out: for what Python says of a thread, the kernel's id of it. Prepared once, since there may be
//! ten thousand of either. It reads no thread states.

use std::collections::HashMap;

use super::EvalEntry;
use crate::image::{Addr, Memory, MemoryExt, ProcessImage};

/// The threads of a process, by all that Python may know of them.
#[derive(Debug)]
pub(crate) struct KernelThreads<'a> {
    image: &'a ProcessImage,
    /// By `pthread_self()`.
    by_descriptor: HashMap<Addr, i32>,
    /// By their ids inside of the process's PID namespace.
    by_number: HashMap<u64, i32>,
    /// Where their stacks end, in order of address.
    by_stack: Vec<(Addr, i32)>,
}

impl<'a> KernelThreads<'a> {
    pub(crate) fn new(image: &'a ProcessImage) -> KernelThreads<'a> {
        let (mut by_descriptor, mut by_number, mut by_stack) = (HashMap::new(), HashMap::new(), Vec::new());
        for thread in &image.threads {
            let registers = thread.registers.as_ref();
            if let Some(descriptor) = registers.and_then(|registers| registers.thread_descriptor()) {
                by_descriptor.entry(descriptor).or_insert(thread.tid);
            }
            if let Ok(number) = u64::try_from(thread.ns_tid) {
                by_number.entry(number).or_insert(thread.tid);
            }
            by_stack.extend(registers.and_then(|registers| Some((registers.general.sp()?, thread.tid))));
        }
        by_stack.sort_unstable();
        KernelThreads { image, by_descriptor, by_number, by_stack }
    }

    /// The memory of the process.
    pub(super) fn memory(&self) -> &'a dyn Memory {
        &*self.image.memory
    }

    /// The thread on whose stack the state's frames stand. Until 3.12 a sub-interpreter comes with a thread state of
    /// the thread that created it, and later code there uses that very state: its ident is another thread's.
    pub(super) fn on_stack(&self, entries: &[EvalEntry]) -> Option<i32> {
        let anchor = entries.iter().find_map(|entry| entry.anchor)?;
        let stack = self.image.mapping(anchor)?;
        let behind = self.by_stack.partition_point(|(top, _)| *top <= anchor);
        let (top, tid) = self.by_stack.get(behind.checked_sub(1)?)?;
        stack.contains(*top).then_some(*tid)
    }

    /// The thread of a thread state. pthread_self is the thread pointer on glibc, which no PID namespace changes;
    /// `native_thread_id` is the id inside the target's namespace; a word of `struct pthread` has held it in glibc 2.27 to 2.43.
    pub(crate) fn of(&self, ident: u64, native: Option<u64>) -> Option<i32> {
        let by_number = || {
            let in_descriptor = Addr(ident) + self.image.architecture.descriptor_layout().glibc_tid;
            let number = native.or_else(|| self.image.memory.u32(in_descriptor).ok().map(u64::from))?;
            self.by_number.get(&number).copied()
        };
        self.by_descriptor.get(&Addr(ident)).copied().or_else(by_number)
    }
}
