//! Threads that sleep are read as a debugger reads them, and none of them notices.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::at_once::{self, Standing};
use super::super::facts::{CpuSample, ProcessFacts, ThreadFacts};
use super::super::memory::locked;
use super::super::proc_fs::{self, ProcFs};
use super::super::sleeps::Clocks;
use super::super::wait_channels::WaitChannels;
use super::*;
use crate::arch::{Architecture, Register};
use crate::memory::Addr;

/// All registers but that of the result, which a sleeping thread has none in.
fn compared() -> impl Iterator<Item = Register> {
    let result = Architecture::NATIVE.result();
    Architecture::NATIVE.general_registers().filter(move |register| *register != result)
}

/// Their names in gdb, with those of the call's number and the thread pointer at the end.
fn names() -> Vec<&'static str> {
    let general = compared().map(|register| Architecture::NATIVE.register_name(register));
    general.chain(Architecture::NATIVE.names_in_gdb()).collect()
}

/// Two hundred sleeping threads; ended with the test.
struct Sleepers {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Sleepers {
    fn start() -> Sleepers {
        let directory = tempfile::tempdir().expect("temporary directory");
        let program = directory.path().join("sleepers");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/image/live/testdata/sleepers.c");
        let compiled = Command::new("cc").args(["-O1", "-pthread", source, "-o"]).arg(&program).status();
        assert!(compiled.expect("a C compiler").success());
        let child = Command::new(&program).spawn().expect("starts");
        let sleepers = Sleepers { child, _directory: directory };
        let begin = Instant::now();
        let asleep = || {
            let reading = kernel_files::read(&ProcFs::new("/proc"), &[sleepers.pid()]);
            reading.len() == 201 && reading.values().all(|sleeper| sleeper.mark.is_still() && sleeper.call.is_some())
        };
        while !asleep() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the threads do not come to sleep");
            std::thread::park_timeout(Duration::from_millis(5));
        }
        sleepers
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// gdb's values for all threads, in the order of [`names`].
fn by_gdb(pid: i32) -> Option<BTreeMap<i32, Vec<u64>>> {
    let formats = names().iter().map(|_| "%lx").collect::<Vec<_>>().join(" ");
    let values = names().iter().map(|name| format!("${name}")).collect::<Vec<_>>().join(", ");
    let command = format!("thread apply all printf \"= {formats}\\n\", {values}");
    let output = Command::new("gdb").args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", &command]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut all = BTreeMap::new();
    let mut thread = None;
    for line in text.lines() {
        if line.starts_with("Thread ") {
            let number = line.split("LWP ").nth(1).or_else(|| line.split("process ").nth(1)).unwrap_or_default();
            thread = number.split(')').next().and_then(|number| number.trim().parse().ok());
        } else if let (Some(values), Some(tid)) = (line.strip_prefix("= "), thread) {
            let values = values.split(' ').map(|value| u64::from_str_radix(value, 16).expect("a number"));
            all.insert(tid, values.collect());
        }
    }
    Some(all)
}

/// The same values from the registers that lockscope read.
fn values(registers: &Registers) -> Vec<u64> {
    let general = compared().map(|register| registers.general.get(register).expect("known"));
    general.chain([registers.system_call as u64, registers.thread_pointer.0]).collect()
}

#[test]
fn all_registers_are_those_that_gdb_sees() {
    let sleepers = Sleepers::start();
    let mut reader = SleepReader::new(&ProcFs::new("/proc"), &[sleepers.pid()]);
    let before = reader.read(&[sleepers.pid()]);
    if let Some(why) = reader.unavailable() {
        return println!("skip: {why}");
    }
    let after = reader.read(&[sleepers.pid()]);
    assert_eq!(before.len(), 201);
    assert!(before.iter().all(|(tid, sleeper)| sleeper.stood_until(&after[tid])), "a reading woke a thread");
    let Some(debugger) = by_gdb(sleepers.pid()) else { return println!("skip: no gdb") };
    assert_eq!(debugger.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let mut distinct = std::collections::BTreeSet::new();
    for (tid, wanted) in &debugger {
        let registers = before[tid].registers.expect("registers of a sleeping thread");
        assert_eq!(&values(&registers), wanted, "thread {tid}: {:?}", names());
        assert!(registers.asleep().is_some(), "thread {tid}");
        distinct.insert(
            Architecture::NATIVE
                .callee_saved()
                .iter()
                .map(|&register| registers.general.get(register))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(distinct.len(), 201, "each thread has values of its own");
    // gdb has stopped and released them: that counts as having run.
    let last = reader.read(&[sleepers.pid()]);
    assert!(before.iter().all(|(tid, sleeper)| !sleeper.stood_until(&last[tid])), "a stop went unnoticed");
}

#[test]
fn proc_tells_the_same_call_and_place() {
    let sleepers = Sleepers::start();
    let proc_fs = ProcFs::new("/proc");
    let mut iterator = SleepReader::new(&proc_fs, &[sleepers.pid()]);
    let mut files = SleepReader::by_kernel_files(&proc_fs);
    let (by_files, again) = (files.read(&[sleepers.pid()]), files.read(&[sleepers.pid()]));
    assert_eq!(by_files.len(), 201);
    assert!(by_files.iter().all(|(tid, sleeper)| sleeper.stood_until(&again[tid])), "a reading woke a thread");
    let by_iterator = iterator.read(&[sleepers.pid()]);
    if let Some(why) = iterator.unavailable() {
        return println!("skip: {why}");
    }
    for (tid, sleeper) in &by_files {
        let call = by_iterator[tid].registers.and_then(|registers| registers.asleep()).expect("asleep");
        let told = sleeper.call.expect("its call");
        assert_eq!((told.number, told.arguments, told.sp, told.pc), (call.number, call.arguments, call.sp, call.pc));
        assert_eq!(by_iterator[tid].mark, sleeper.mark, "the same counters and start of sleep by both ways");
    }
}

/// For many threads, the iterator reports the same values beside the registers as /proc, and the same places of sleep.
#[test]
fn proc_tells_the_same_of_each_thread() {
    let sleepers = Sleepers::start();
    let (proc_fs, pid) = (ProcFs::new("/proc"), sleepers.pid());
    let reader = Arc::new(Mutex::new(SleepReader::new(&proc_fs, &[pid])));
    let Some(told) = at_once::told(&proc_fs, Some(&reader), pid, true) else {
        let why = locked(&reader).unavailable().cloned();
        return println!("skip: {}", why.expect("a reason"));
    };
    assert_eq!(told.keys().copied().collect::<Vec<_>>(), proc_fs.threads(pid).expect("its threads"));
    let channels = WaitChannels::ask(&proc_fs, pid, told.iter().map(|(&tid, told)| (tid, told)));
    let mut at_one_place = 0;
    for (&tid, told) in &told {
        let directory = proc_fs.task(pid, tid);
        let (stat, name) = proc_fs::stat_and_name(&directory).expect("its stat");
        let status = proc_fs::status(&directory).expect("its status");
        assert!(told.is_asleep());
        assert_eq!(told.standing(), Standing::of(&stat), "thread {tid}");
        assert_eq!((told.task.name(), Some(told.task.innermost_id)), (name, status.innermost_id));
        assert_eq!((told.task.has_tracer, Some(told.switches())), (status.tracer != 0, status.switches));
        assert_eq!(told.ran(), proc_fs::last_ran(&directory));
        if let Some(used) = proc_fs::cpu_time(&directory) {
            assert_eq!(told.task.used, used, "thread {tid}");
        }
        if let Some(channel) = channels.of(told) {
            at_one_place += 1;
            assert_eq!(Some(channel), proc_fs::wait_channel(&directory));
        }
    }
    assert!(at_one_place == 0 || at_one_place >= 200, "{at_one_place}");
    println!("{at_one_place} threads sleep at one place of the kernel");
    assert!(at_once::told(&proc_fs, None, pid, true).is_none());
}

#[test]
fn the_facts_of_many_threads_are_those_of_proc() {
    let sleepers = Sleepers::start();
    let (proc_fs, pid) = (ProcFs::new("/proc"), sleepers.pid());
    let reader = Arc::new(Mutex::new(SleepReader::new(&proc_fs, &[pid])));
    if let Some(why) = locked(&reader).unavailable() {
        return println!("skip: {why}");
    }
    let facts = |reader: Option<&Arc<Mutex<SleepReader>>>| {
        let told = at_once::told(&proc_fs, reader, pid, false);
        let sample = CpuSample::take(&proc_fs, pid, told.as_ref());
        assert!(sample.all_sleep());
        std::thread::sleep(sample.time_to_wait());
        let mut clocks = Clocks::start(&proc_fs, sample.processors().clone());
        let (facts, _) =
            ProcessFacts::read((&proc_fs, reader), pid, &sample, (&mut clocks, true), None).expect("its facts");
        assert!(facts.have_all_rested());
        let thread = |(tid, facts): (i32, ThreadFacts)| {
            let used = facts.cpu_used.expect("what it used").0;
            let known = (facts.name, facts.standing, facts.innermost_id, facts.has_tracer, facts.switches);
            (tid, known, facts.wait_channel, facts.call, used, facts.turns)
        };
        (facts.parent, facts.namespace_pid, facts.threads.into_iter().map(thread).collect::<Vec<_>>())
    };
    assert_eq!(facts(Some(&reader)), facts(None));
    // The clocks show how long they sleep even where no thread need have rested, as beside one that runs. No file is
    // read for that.
    let mut clocks = Clocks::start(&proc_fs, BTreeSet::new());
    let ask = (&proc_fs, Some(&reader));
    let (facts, _) = ProcessFacts::read(ask, pid, &CpuSample::begin(), (&mut clocks, false), None).expect("its facts");
    assert!(facts.threads.values().all(|facts| facts.asleep_ms.is_some()));
}

#[test]
fn a_running_thread_is_not_still_by_either_way() {
    // This process: the thread that reads runs itself.
    let (own, thread) = (std::process::id() as i32, nix::unistd::gettid().as_raw());
    let proc_fs = ProcFs::new("/proc");
    for mut reader in [SleepReader::new(&proc_fs, &[own]), SleepReader::by_kernel_files(&proc_fs)] {
        let reading = reader.read(&[own]);
        assert!(!reading[&thread].mark.is_still());
        assert_eq!(reading[&thread].registers, None);
    }
}

#[test]
fn a_process_that_was_not_named_is_not_told() {
    let proc_fs = ProcFs::new("/proc");
    let mut reader = SleepReader::new(&proc_fs, &[1]);
    let reading = reader.read(&[1]);
    assert!(!reading.contains_key(&(std::process::id() as i32)));
    assert!(
        reading.values().filter_map(|sleeper| sleeper.registers).all(|registers| registers.thread_pointer != Addr(1))
    );
}
