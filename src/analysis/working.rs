//! The working of a sample: what was read of each thread, for those who want to check it.
//!
//! In: a report and the sample that it was made of. Out: the report's threads with their [`Working`]. Reads nothing but
//! memory that the sample has read already, and decides nothing.

use std::collections::HashMap;

use crate::arch::Architecture;
use crate::image::{Addr, Image, MemoryExt, ProcessImage, Register, Syscall, ThreadImage};
use crate::limits::analysis::{FRAMES_WITH_REGISTERS, LOCK_WORDS};
use crate::report::{NativeFrame, Report, Resource, SystemCall, Words, Working};
use crate::symbols::Symbols;
use crate::threads::Thread;

/// Memory is read by pages: what lies behind this one may not be at hand.
const PAGE: u64 = 4096;

/// Add the working to all threads.
pub(super) fn add(report: &mut Report, image: &Image, symbols: &[Symbols<'_>], threads: &[Vec<Thread>]) {
    let wanted = Wanted::of(report);
    let mut all = Vec::with_capacity(image.processes.len());
    for ((process, reported), (symbols, threads)) in
        image.processes.iter().zip(&report.processes).zip(symbols.iter().zip(threads))
    {
        let merged: HashMap<i32, &Thread> = threads.iter().map(|thread| (thread.tid, thread)).collect();
        let of_thread = |thread: &ThreadImage| {
            let memory = wanted.memory(&reported.id, process, thread.tid);
            working(process.architecture, thread, merged.get(&thread.tid).copied(), symbols, memory)
        };
        all.push(process.threads.iter().map(of_thread).collect::<Vec<_>>());
    }
    for (reported, workings) in report.processes.iter_mut().zip(all) {
        for (thread, working) in reported.threads.iter_mut().zip(workings) {
            thread.working = Some(working);
        }
    }
}

fn working(
    architecture: Architecture,
    thread: &ThreadImage,
    merged: Option<&Thread>,
    symbols: &Symbols<'_>,
    memory: Vec<Words>,
) -> Working {
    let call = thread.registers.and_then(|registers| registers.syscall()).or(thread.syscall);
    let registers = thread.registers.iter().flat_map(|registers| {
        registers.general.iter().map(|(register, value)| named(architecture, register, value)).collect::<Vec<_>>()
    });
    let native = merged.map(|merged| &merged.native);
    Working {
        system_call: call.map(|call| system_call(architecture, &call)),
        registers: registers.collect(),
        native: native
            .iter()
            .flat_map(|native| &native.frames)
            .enumerate()
            .map(|(index, frame)| native_frame(frame, symbols, index < FRAMES_WITH_REGISTERS))
            .collect(),
        end: native.map(|native| native.end.to_string()).or(thread.missing.clone()).unwrap_or_default(),
        memory,
    }
}

fn system_call(architecture: Architecture, call: &Syscall) -> SystemCall {
    SystemCall {
        number: call.number,
        name: architecture.system_call(call.number).map(|row| row.name.to_owned()),
        arguments: call.arguments.iter().map(|argument| format!("{argument:#x}")).collect(),
    }
}

fn named(architecture: Architecture, register: Register, value: u64) -> (String, String) {
    (architecture.register_name(register).to_owned(), format!("{value:#x}"))
}

fn native_frame(frame: &crate::unwind::NativeFrame, symbols: &Symbols<'_>, with_registers: bool) -> NativeFrame {
    let module = symbols.modules().at(frame.lookup).map(|module| &symbols.modules().list[module]);
    let architecture = frame.registers.architecture();
    let saved = architecture.callee_saved().iter().filter(|_| with_registers);
    NativeFrame {
        function: symbols.function(frame.lookup).map(|symbol| symbol.name.to_string()),
        module: module.map(|module| module.name.to_string()),
        module_offset: module.map(|module| format!("{:#x}", frame.pc - module.start)),
        pc: frame.pc.to_string(),
        sp: frame.sp.to_string(),
        cfa: frame.cfa.map(|cfa| cfa.to_string()),
        trust: crate::verdict::frames::trust(frame.trust),
        registers: saved.filter_map(|one| Some(named(architecture, *one, frame.registers.get(*one)?))).collect(),
    }
}

/// The resources that each thread waits for and holds, each once.
struct Wanted<'a> {
    resources: HashMap<&'a str, &'a Resource>,
    of_threads: HashMap<(&'a str, i32), Vec<&'a str>>,
}

impl<'a> Wanted<'a> {
    fn of(report: &'a Report) -> Wanted<'a> {
        let waits = report.waits.iter().map(|wait| (wait.process.as_str(), wait.tid, wait.resource.as_str()));
        let holds = report.holds.iter().map(|hold| (hold.process.as_str(), hold.tid, hold.resource.as_str()));
        let mut of_threads: HashMap<(&str, i32), Vec<&str>> = HashMap::new();
        for (process, tid, resource) in waits.chain(holds) {
            let Some(tid) = tid else { continue };
            let ids = of_threads.entry((process, tid)).or_default();
            if !ids.contains(&resource) {
                ids.push(resource);
            }
        }
        let resources = report.resources.iter().map(|resource| (resource.id.as_str(), resource));
        Wanted { resources: resources.collect(), of_threads }
    }

    /// The words of those resources that lie in the thread's own process.
    fn memory(&self, process: &'a str, image: &ProcessImage, tid: i32) -> Vec<Words> {
        let ids = self.of_threads.get(&(process, tid)).into_iter().flatten();
        let resources =
            ids.filter_map(|id| self.resources.get(id).copied()).filter(|resource| resource.process == process);
        resources.filter_map(|resource| words(resource, image)).collect()
    }
}

fn words(resource: &Resource, image: &ProcessImage) -> Option<Words> {
    let address = resource.address.as_deref()?;
    let start = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
    let to_page_end = (PAGE - start % PAGE) / 4;
    let word = |index: u64| image.memory.u32(Addr(start) + 4 * index).ok().map(|word| format!("{word:#010x}"));
    let words: Vec<String> = (0..LOCK_WORDS.min(to_page_end)).map_while(word).collect();
    (!words.is_empty()).then(|| Words { resource: resource.id.clone(), address: address.to_owned(), words })
}
