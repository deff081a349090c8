//! The working of a look: what was read of each thread, for those who want to check it.
//!
//! In: a report and the look that it was made of. Out: the report's threads with their [`Working`]. Reads nothing but memory
//! that the look has read already, and decides nothing.

use crate::image::{Addr, Image, MemoryExt, ProcessImage, Register, Syscall, ThreadImage};
use crate::report::{NativeFrame, Report, SystemCall, Words, Working};
use crate::symbols::Symbols;
use crate::threads::Thread;
use crate::waits::kernel::call_name;

/// Words of memory shown of a lock: the largest of glibc, a read-write lock, has 14.
const WORDS: u64 = 16;
/// Innermost frames whose registers are told: what waits is among them, and of thousands of threads they would fill the memory.
const WITH_REGISTERS: usize = 12;
/// Memory is read by pages: what lies behind this one may not be at hand.
const PAGE: u64 = 4096;

/// Add the working to all threads.
pub(super) fn add(report: &mut Report, image: &Image, symbols: &[Symbols<'_>], threads: &[Vec<Thread>]) {
    for (position, process) in image.processes.iter().enumerate() {
        for (index, thread) in process.threads.iter().enumerate() {
            let Some(id) = report.processes.get(position).map(|process| process.id.clone()) else { continue };
            let memory = memory(report, &id, process, thread.tid);
            let merged = threads[position].iter().find(|merged| merged.tid == thread.tid);
            let reported = report.processes.get_mut(position).and_then(|process| process.threads.get_mut(index));
            if let Some(reported) = reported {
                reported.working = Some(working(thread, merged, &symbols[position], memory));
            }
        }
    }
}

fn working(thread: &ThreadImage, merged: Option<&Thread>, symbols: &Symbols<'_>, memory: Vec<Words>) -> Working {
    let call = thread.registers.and_then(|registers| registers.syscall()).or(thread.syscall);
    let registers = thread.registers.map(|registers| registers.general).unwrap_or_default();
    let native = merged.map(|merged| &merged.native);
    Working {
        system_call: call.map(|call| system_call(&call)),
        registers: registers.iter().map(|(register, value)| named(register, value)).collect(),
        native: native
            .iter()
            .flat_map(|native| &native.frames)
            .enumerate()
            .map(|(index, frame)| native_frame(frame, symbols, index < WITH_REGISTERS))
            .collect(),
        end: native.map(|native| native.end.to_string()).or(thread.missing.clone()).unwrap_or_default(),
        memory,
    }
}

fn system_call(call: &Syscall) -> SystemCall {
    SystemCall {
        number: call.number,
        name: call_name(call.number).map(str::to_owned),
        arguments: call.arguments.iter().map(|argument| format!("{argument:#x}")).collect(),
    }
}

fn named(register: Register, value: u64) -> (String, String) {
    (register.name().to_owned(), format!("{value:#x}"))
}

fn native_frame(frame: &crate::unwind::NativeFrame, symbols: &Symbols<'_>, with_registers: bool) -> NativeFrame {
    let module = symbols.modules().at(frame.lookup).map(|module| &symbols.modules().list[module]);
    let saved = Register::CALLEE_SAVED.into_iter().filter(|_| with_registers);
    NativeFrame {
        function: symbols.function(frame.lookup).map(|symbol| symbol.name),
        module: module.map(|module| module.name.clone()),
        module_offset: module.map(|module| format!("{:#x}", frame.pc - module.start)),
        pc: frame.pc.to_string(),
        sp: frame.sp.to_string(),
        cfa: frame.cfa.map(|cfa| cfa.to_string()),
        trust: frame.trust.as_str().into(),
        registers: saved.filter_map(|one| Some(named(one, frame.registers.get(one)?))).collect(),
    }
}

/// The words of what a thread waits for and holds in its own process.
fn memory(report: &Report, process: &str, image: &ProcessImage, tid: i32) -> Vec<Words> {
    let waits = report.waits.iter().filter(|wait| wait.process == process && wait.tid == Some(tid));
    let holds = report.holds.iter().filter(|hold| hold.process == process && hold.tid == Some(tid));
    let mut ids: Vec<&str> = Vec::new();
    for id in waits.map(|wait| wait.resource.as_str()).chain(holds.map(|hold| hold.resource.as_str())) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids.into_iter().filter_map(|id| words(report, process, image, id)).collect()
}

fn words(report: &Report, process: &str, image: &ProcessImage, id: &str) -> Option<Words> {
    let resource = report.resources.iter().find(|resource| resource.id == id && resource.process == process)?;
    let address = resource.address.as_deref()?;
    let start = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
    let to_page_end = (PAGE - start % PAGE) / 4;
    let word = |index: u64| image.memory.u32(Addr(start) + 4 * index).ok().map(|word| format!("{word:#010x}"));
    let words: Vec<String> = (0..WORDS.min(to_page_end)).map_while(word).collect();
    (!words.is_empty()).then(|| Words { resource: id.to_owned(), address: address.to_owned(), words })
}
