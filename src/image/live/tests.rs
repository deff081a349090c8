//! Samples of real processes, all of them children of these tests.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::copier::Wanted;
use super::copying::Kept;
use super::memory::{Begun, Ranges};
use super::proc_fs::{ProcFs, parse_maps, stat, status, system_call};
use super::*;
use crate::arch::system_calls as calls;
use crate::image::{Addr, Registers};
use crate::image::{Fault, MemoryExt};
use crate::sys::Span;

/// A child that ends with its test.
struct Target {
    child: Child,
    _directory: Option<tempfile::TempDir>,
}

impl Target {
    fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().expect("child");
        Target { child, _directory: None }
    }

    /// Compile and start a program.
    fn compile(source: &str) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let file = directory.path().join("program.c");
        let program = directory.path().join("program");
        std::fs::write(&file, source).expect("source");
        let headers = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/testdata/hostile");
        let compiled = Command::new("cc").args(["-pthread", headers, "-o"]).args([&program, &file]).status();
        assert!(compiled.expect("a C compiler").success());
        let mut target = Target::start(&mut Command::new(program));
        target._directory = Some(directory);
        target
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn open(&self) -> LiveTarget {
        open(&[self.pid()]).expect("open")
    }

    fn state(&self) -> Option<char> {
        stat(&proc_fs().process(self.pid())).map(|stat| stat.state)
    }

    fn tracer(&self) -> Option<i32> {
        status(&proc_fs().process(self.pid())).map(|status| status.tracer)
    }

    fn until_in_call(&self, number: i64) {
        until("the call", || system_call(&proc_fs().process(self.pid())).is_some_and(|call| call.number == number));
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn proc_fs() -> ProcFs {
    ProcFs::new("/proc")
}

/// To sample them with a stop, even if they sleep.
fn open(pids: &[i32]) -> Result<LiveTarget, AttachError> {
    // The machines that run tests may be loaded.
    let max_pause = Some(Duration::from_secs(2));
    LiveTarget::open(Options { pids: pids.to_vec(), max_pause, stopping: Stopping::Always, ..Options::default() })
}

/// To sample it as by default; `None` where no eBPF program may be loaded.
fn open_asleep(target: &Target) -> Option<LiveTarget> {
    let live = LiveTarget::open(Options { pids: vec![target.pid()], ..Options::default() }).expect("open");
    let why = locked(live.sleepers.as_ref().expect("a reader")).unavailable().cloned();
    if let Some(why) = why {
        println!("skip: {why}");
        return None;
    }
    Some(live)
}

/// How often each thread was switched out.
fn switches(target: &Target) -> Vec<(i32, Option<(u64, u64)>)> {
    let of = |tid: i32| (tid, status(&proc_fs().task(target.pid(), tid)).and_then(|status| status.switches));
    proc_fs().threads(target.pid()).expect("threads").into_iter().map(of).collect()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The number of a system call here.
fn number(call: &calls::SystemCall) -> i64 {
    Architecture::NATIVE.number_of(call).expect("a call of this machine")
}

#[test]
fn what_has_ended_is_denied_to_nobody() {
    let mut child = Command::new("true").spawn().expect("it starts");
    let pid = i32::try_from(child.id()).expect("an id");
    while !proc_fs::stat(&ProcFs::new("/proc").process(pid)).expect("it is not waited for").is_dead() {
        std::thread::yield_now();
    }
    assert!(may_attach(pid).is_ok());
    child.wait().expect("it has ended");
}

#[test]
fn a_sleeping_process() {
    let target = Target::start(Command::new("sleep").arg("60"));
    target.until_in_call(number(&calls::CLOCK_NANOSLEEP));
    let begin = Instant::now();
    let mut live = target.open();
    std::thread::sleep(Duration::from_millis(300));
    let slept = begin.elapsed().as_millis() as u64;
    let image = live.look().expect("look");
    assert_eq!(target.tracer(), Some(0));
    until("its sleep", || target.state() == Some('S'));

    let process = &image.processes[0];
    assert!(image.gaps.is_empty(), "{:?}", image.gaps);
    assert!(image.pause_us > 0);
    assert_eq!(process.cmdline, ["sleep", "60"]);
    assert_eq!(process.parent, Some(std::process::id() as i32));
    assert!(process.exe.as_deref().is_some_and(Path::is_absolute));
    let [thread] = process.threads.as_slice() else { panic!("one thread") };
    assert_eq!((thread.name.as_str(), thread.state), ("sleep", TaskState::Sleeping));
    let call = thread.registers.as_ref().and_then(Registers::syscall).expect("a system call");
    assert_eq!((call.number, call.result), (number(&calls::CLOCK_NANOSLEEP), -516));
    assert_eq!(thread.wchan.as_deref(), Some("hrtimer_nanosleep"));
    assert!(thread.cpu_used.is_some_and(|(used, interval)| used < interval && interval >= 20_000_000));
    if let Some(asleep) = thread.asleep_ms {
        assert!(asleep + 50 >= slept && asleep < slept + 5_000, "{asleep} ms, slept {slept} ms");
    }

    // The stack was copied, libc's text is that of the file, the heap is read late and copied the next time.
    assert!(process.memory.u64(call.sp).is_ok());
    let text = process.mapping(call.pc).expect("text");
    let file = process.files.mapped(text).expect("libc");
    let at = (call.pc - text.start + text.offset) as usize;
    assert_eq!(process.memory.bytes(call.pc, 16).expect("text"), file[at..at + 16]);
    assert_eq!(file[at - 2..at], [0x0f, 0x05]);
    assert_eq!(process.memory.u8(Addr(1)), Err(Fault::Unmapped(Addr(1))));
    assert_eq!(live.late_reads(), 0);
    let heap = process.mappings.iter().find(|m| m.path.as_deref() == Some("[heap]")).expect("heap").start;
    let word = process.memory.u64(heap + 8).expect("heap");
    assert_eq!(live.late_reads(), 1);

    let image = live.look().expect("second look");
    assert_eq!(image.processes[0].memory.u64(heap + 8), Ok(word));
    assert_eq!(live.late_reads(), 0);
    assert_eq!(image.processes[0].threads[0].asleep_ms, None, "the first look woke it");
    let call = image.processes[0].threads[0].registers.as_ref().and_then(Registers::syscall).expect("a call");
    assert_eq!(call.number, number(&calls::CLOCK_NANOSLEEP), "restarted under another, and remembered");
}

#[test]
fn a_process_that_sleeps_is_not_stopped() {
    let target = Target::start(Command::new("sleep").arg("60"));
    target.until_in_call(number(&calls::CLOCK_NANOSLEEP));
    until("its sleep", || target.state() == Some('S'));
    let Some(mut live) = open_asleep(&target) else { return };
    let before = switches(&target);
    let mut looks = Vec::new();
    for _ in 0..3 {
        let image = live.look().expect("look");
        assert_eq!((image.pause_us, image.rounds), (0, 0));
        looks.push(image.processes[0].threads[0].clone());
    }
    assert_eq!(switches(&target), before);
    for (earlier, later) in looks.iter().zip(&looks[1..]) {
        assert_eq!(later.source, RegisterSource::TaskIterator);
        assert_eq!(later.stood_since(earlier), Some(true));
        let call = later.registers.as_ref().and_then(Registers::asleep).expect("a system call");
        assert_eq!(call.number, number(&calls::CLOCK_NANOSLEEP));
    }
}

#[test]
fn only_those_that_move_are_stopped() {
    let target = Target::compile(include_str!("testdata/busy.c"));
    // One runs, twenty sleep without end, twenty for ten milliseconds each time.
    until("its threads", || proc_fs().threads(target.pid()).is_ok_and(|tids| tids.len() == 42));
    let named = |name: &str| {
        let is_named = |tid: &i32| proc_fs::name(&proc_fs().task(target.pid(), *tid)).as_deref() == Some(name);
        proc_fs().threads(target.pid()).expect("threads").into_iter().filter(is_named).collect::<Vec<_>>()
    };
    let asleep = |tid: &i32| system_call(&proc_fs().task(target.pid(), *tid)).is_some();
    until("sleep", || named("sleeper").len() == 20 && named("sleeper").iter().all(asleep));
    let Some(mut live) = open_asleep(&target) else { return };
    let (busy, sleepers) = (named("busy"), named("sleeper"));
    let of_sleepers = || switches(&target).into_iter().filter(|(tid, _)| sleepers.contains(tid)).collect::<Vec<_>>();
    let before = of_sleepers();
    for _ in 0..20 {
        let image = live.look().expect("look");
        for thread in &image.processes[0].threads {
            assert!(thread.registers.is_some() && !thread.moved, "{thread:?}");
            let wanted = if busy.contains(&thread.tid) { Some(RegisterSource::Stop) } else { None };
            let wanted = if sleepers.contains(&thread.tid) { Some(RegisterSource::TaskIterator) } else { wanted };
            assert!(wanted.is_none_or(|wanted| thread.source == wanted), "{thread:?}");
        }
    }
    assert_eq!(of_sleepers(), before, "a look woke one");
}

#[test]
fn without_ebpf_proc_tells_of_sleepers_until_more_is_needed() {
    let target = Target::start(Command::new("sleep").arg("60"));
    target.until_in_call(number(&calls::CLOCK_NANOSLEEP));
    until("its sleep", || target.state() == Some('S'));
    let mut live = LiveTarget::open(Options { pids: vec![target.pid()], ..Options::default() }).expect("open");
    live.sleepers = Some(Arc::new(Mutex::new(SleepReader::by_kernel_files(&proc_fs()))));
    let before = switches(&target);
    let image = live.look().expect("look");
    let thread = &image.processes[0].threads[0];
    assert_eq!((image.pause_us, thread.source), (0, RegisterSource::KernelFiles));
    assert!(thread.registers.is_none() && thread.syscall.is_some() && image.gaps.is_empty());
    assert_eq!(switches(&target), before);
    assert!(live.stop(BTreeSet::from([thread.tid])), "another look tells more");
    assert!(!live.stop(BTreeSet::from([thread.tid])), "and no further one");
    let image = live.look().expect("look");
    let thread = &image.processes[0].threads[0];
    assert!(image.pause_us > 0 && thread.source == RegisterSource::Stop && thread.registers.is_some());
}

#[test]
fn calls_go_on_unbroken() {
    let mut target = Target::compile(include_str!("testdata/harmless.c"));
    until("its threads", || {
        let tids = proc_fs().threads(target.pid()).unwrap_or_default();
        tids.len() == 7 && tids.iter().all(|&tid| system_call(&proc_fs().task(target.pid(), tid)).is_some())
    });
    let mut live = target.open();
    let mut repaired = 0;
    for _ in 0..20 {
        let image = live.look().expect("look");
        let calls = image.processes[0].threads.iter().filter_map(|thread| thread.registers?.syscall());
        repaired += calls.filter(|call| call.result == -514).count();
        assert!(image.processes[0].threads.iter().all(|thread| thread.missing.is_none()));
    }
    assert!(repaired >= 20, "{repaired}");
    let mut said = String::new();
    let mut output = target.child.stdout.take().expect("stdout");
    std::io::Read::read_to_string(&mut output, &mut said).expect("output");
    assert!(target.child.wait().expect("exit").success(), "{said}");
}

#[test]
fn a_stopped_process_stays_stopped() {
    let target = Target::start(Command::new("sleep").arg("60"));
    target.until_in_call(number(&calls::CLOCK_NANOSLEEP));
    kill(Pid::from_raw(target.pid()), Signal::SIGSTOP).expect("stop");
    until("the stop", || target.state() == Some('T'));
    let mut live = target.open();
    for _ in 0..2 {
        let image = live.look().expect("look");
        let thread = &image.processes[0].threads[0];
        assert_eq!(thread.state, TaskState::Stopped);
        assert!(thread.registers.is_some());
        until("the stop again", || target.state() == Some('T') && target.tracer() == Some(0));
    }
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(target.state(), Some('T'));
    kill(Pid::from_raw(target.pid()), Signal::SIGCONT).expect("continue");
    until("its sleep", || target.state() == Some('S'));
}

#[test]
fn a_thread_that_cannot_stop() {
    let target = Target::compile(include_str!("testdata/vfork.c"));
    until("vfork", || target.state() == Some('D'));
    let image = target.open().look().expect("look");
    assert_eq!(image.rounds, 1, "it will not come when it is asked again");
    let thread = &image.processes[0].threads[0];
    assert!(thread.registers.is_none());
    let why = thread.missing.as_deref().unwrap_or_default();
    assert!(why.starts_with("did not come to its stop (state D"), "{why}");
    assert!(
        thread
            .syscall
            .is_some_and(|call| Architecture::NATIVE.system_call(call.number).is_some_and(|row| row.name == "vfork"))
    );
    assert_eq!(image.gaps.len(), 1);
    assert_eq!(target.tracer(), Some(0), "free, though it was not detached");
    // When vfork ends, it is not caught by a stop of ours.
    until("the child's end", || target.state() == Some('S'));
    assert_eq!(target.tracer(), Some(0));
}

#[test]
fn a_process_without_its_main_thread() {
    let target = Target::compile(include_str!("testdata/leaderless.c"));
    until("the main thread's end", || target.state() == Some('Z'));
    let image = target.open().look().expect("look");
    let process = &image.processes[0];
    assert_eq!(process.threads.len(), 2);
    assert_eq!(process.threads[0].state, TaskState::Zombie);
    let registers = process.threads[1].registers.as_ref().expect("registers");
    let pointer = registers.general.sp().expect("stack pointer");
    assert!(process.memory.u64(pointer).is_ok());
    assert!(process.exe.is_some() && !process.cmdline.is_empty());
    let text = registers.general.pc().and_then(|pc| process.mapping(pc)).expect("text");
    assert!(process.files.mapped(text).is_some());
}

#[test]
fn a_process_with_a_traced_thread_is_refused_and_left_alone() {
    let target = Target::compile(include_str!("testdata/sleepers.c"));
    let threads = || proc_fs().threads(target.pid()).expect("threads");
    until("all threads", || threads().len() == 201);
    let all = threads();
    for &traced in [all.first(), all.last()].into_iter().flatten() {
        std::thread::scope(|scope| {
            let (ask, asked) = std::sync::mpsc::channel::<()>();
            let (tell, told) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                ptrace::seize(Pid::from_raw(traced), ptrace::Options::empty()).expect("seize");
                tell.send(()).expect("tell");
                let _ = asked.recv();
            });
            told.recv().expect("seized");
            let refused = target.open().look().expect_err("refused");
            assert!(matches!(refused, AttachError::AlreadyTraced { .. }), "{refused}");
            let other = Target::start(Command::new("sleep").arg("60"));
            let refused = open(&[other.pid(), target.pid()]).expect("open").look().expect_err("it was named, too");
            assert!(matches!(refused, AttachError::AlreadyTraced { .. }), "{refused}");
            drop(ask);
        });
        let tracer = || status(&proc_fs().task(target.pid(), traced)).map(|status| status.tracer);
        until("its release", || tracer() == Some(0));
    }
    assert_eq!(target.open().look().expect("a look").processes[0].threads.len(), 201);
}

#[test]
fn several_processes_of_which_one_is_gone() {
    let first = Target::start(Command::new("sleep").arg("60"));
    let second = Target::start(Command::new("sleep").arg("60"));
    let gone = {
        let mut child = Command::new("true").spawn().expect("child");
        child.wait().expect("exit");
        child.id() as i32
    };
    assert!(matches!(open(&[gone]), Err(AttachError::NoSuchProcess { .. })));
    let mut live = open(&[first.pid(), gone, second.pid(), first.pid()]).expect("open");
    let image = live.look().expect("look");
    let pids: Vec<i32> = image.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [first.pid(), second.pid()]);
    assert_eq!(image.gaps.len(), 1);
    drop(second);
    let image = live.look().expect("look without the second");
    assert_eq!((image.processes.len(), image.gaps.len()), (1, 2));
    drop(first);
    assert!(matches!(live.look(), Err(AttachError::Ended { .. })));
}

#[test]
fn descendants_belong_to_the_tree() {
    let target = Target::start(Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]));
    let pid = target.pid();
    until("the grandchild", || proc_fs().children(pid).len() == 1);
    let grandchild = proc_fs().children(pid)[0];
    until("its sleep", || {
        system_call(&proc_fs().process(grandchild)).is_some_and(|call| call.number == number(&calls::CLOCK_NANOSLEEP))
    });
    let options = Options { pids: vec![pid], tree: true, ..Options::default() };
    let image = LiveTarget::open(options).expect("open").look().expect("look");
    assert_eq!(image.processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [pid, grandchild]);
    kill(Pid::from_raw(grandchild), Signal::SIGKILL).expect("end the grandchild");
}

/// A copier that copies from this very process.
fn copier() -> Copier {
    Copier::start(&proc_fs(), 64, &[std::process::id() as i32], None).expect("a copier")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

const PAGE: usize = 4096;

/// This many whole pages of this process, with the number of bytes before them.
fn own_pages(count: usize) -> (Vec<u8>, usize) {
    let bytes = vec![0; (count + 1) * PAGE];
    let offset = bytes.as_ptr().align_offset(PAGE);
    (bytes, offset)
}

fn bytes_of(ranges: &Ranges) -> BTreeMap<u64, Vec<u8>> {
    let bytes = |kept: &Kept| {
        let mut bytes = vec![0; kept.len()];
        assert_eq!(kept.read(0, &mut bytes), Some(kept.len()));
        bytes
    };
    ranges.iter().map(|(start, kept)| (*start, bytes(kept))).collect()
}

#[test]
fn what_a_copier_copied_stays_as_long_as_it_is_kept() {
    let (mut bytes, offset) = own_pages(2);
    let first = bytes.as_ptr() as usize + offset;
    let tid = std::process::id() as i32;
    let mut copier = Copier::spawn(&proc_fs(), 64, &[]).expect("a copier");
    let room = copier.room();
    let mut copy = |copier: &mut Copier, value: u8| {
        bytes[offset..offset + 2 * PAGE].fill(value);
        let span = Span { start: first as u64, length: 2 * PAGE };
        let copies = copier.copy(&[Wanted { tid, process: 0, span, touch: false }], soon());
        assert!(copies.is_complete && copies.unfit == 0);
        copier.ranges(&copies, 0)
    };
    let expected = |value: u8| BTreeMap::from([(first as u64, vec![value; 2 * PAGE])]);
    let one = copy(&mut copier, 1);
    assert_eq!(copier.room(), room - 2);
    let two = copy(&mut copier, 2);
    // A text is no danger to them either.
    let maps = copier.maps(tid, soon()).expect("the own map");
    assert!(parse_maps(&maps).iter().any(|mapping| mapping.start.0 <= first as u64 && first as u64 <= mapping.end.0));
    assert!(bytes_of(&one) == expected(1) && bytes_of(&two) == expected(2));
    drop((one, two));
    assert_eq!(copier.room(), room);
    let three = copy(&mut copier, 3);
    assert_eq!((bytes_of(&three) == expected(3), copier.room()), (true, room - 2));
    // The copier ends, and what it has copied is there still.
    drop(copier);
    assert!(bytes_of(&three) == expected(3));
}

#[test]
fn a_copier_copies_what_is_in_memory_and_goes_on_behind_what_faults() {
    let (mut bytes, offset) = own_pages(5);
    let first = bytes.as_ptr() as usize + offset;
    for page in 0..4 {
        bytes[offset + page * PAGE] = page as u8 + 1;
    }
    let tid = std::process::id() as i32;
    let wanted = |start: u64, pages: usize, touch: bool| Wanted {
        tid,
        process: 0,
        span: Span { start, length: pages * PAGE },
        touch,
    };
    let mut copier = copier();
    // Nothing is mapped at address 0.
    let order = [wanted(0, 2, true), wanted(first as u64, 4, false)];
    let copies = copier.copy(&order, soon());
    assert!(copies.is_complete && copies.refusal.is_none());
    assert_eq!((copies.not_reached(0), copies.unfit), (0, 0));
    let ranges = bytes_of(&copier.ranges(&copies, 0));
    let (start, copied) = ranges.first_key_value().expect("one range");
    assert_eq!((ranges.len(), *start, copied.len()), (1, first as u64, 4 * PAGE));
    assert_eq!([copied[0], copied[3 * PAGE]], [1, 4]);
    // The other way, where a child of lockscope may not read.
    let file = std::fs::File::open("/proc/self/mem").expect("the own memory");
    let mut given = Copier::spawn(&proc_fs(), 64, &[Some(file.into())]).expect("a copier");
    let copies = given.copy(&order, soon());
    assert!(bytes_of(&given.ranges(&copies, 0)) == ranges);
    // The copier reports more than there is room for.
    assert_eq!(copier.copy(&[wanted(first as u64, 70, false)], soon()).unfit, 6 * 4096);
    let maps = copier.maps(tid, soon()).expect("the own map");
    assert!(parse_maps(&maps).iter().any(|mapping| mapping.start.0 <= first as u64 && first as u64 <= mapping.end.0));
    let none = copier.copy(&[wanted(first as u64, 1, false)], Instant::now());
    assert!(none.is_complete || none.not_reached(0) <= 4096, "no time at all");
}

#[test]
fn a_second_copier_takes_half_of_much_and_reads_ahead() {
    const PAGES: usize = 1500;
    let (mut bytes, offset) = own_pages(PAGES);
    let first = bytes.as_ptr() as usize + offset;
    for page in 0..PAGES {
        bytes[offset + page * PAGE] = page as u8;
    }
    let tid = std::process::id() as i32;
    let wanted = |page: usize| Wanted {
        tid,
        process: 0,
        span: Span { start: (first + page * PAGE) as u64, length: PAGE },
        touch: false,
    };
    let order: Vec<Wanted> = (0..PAGES).map(wanted).collect();
    let expected: Vec<u8> = (0..PAGES).map(|page| page as u8).collect();
    let firsts = |ranges: &Ranges| bytes_of(ranges).values().map(|page| page[0]).collect::<Vec<u8>>();
    let mut copier = Copier::spawn(&proc_fs(), PAGES, &[]).expect("a copier").with_second();
    let room = copier.room();
    let copies = copier.copy(&order, soon());
    assert!(copies.is_complete && (copies.unfit, copies.not_reached(0)) == (0, 0));
    let ranges = copier.ranges(&copies, 0);
    assert_eq!((firsts(&ranges) == expected, room - copier.room()), (true, PAGES / 2), "half each");
    drop(ranges);
    // Pages that are not in memory are left out, and each page is reported once.
    let mut ahead: Vec<Wanted> = order[..100].to_vec();
    ahead.push(Wanted { span: Span { start: 0, length: PAGE }, ..wanted(0) });
    assert!(copier.begin_ahead(0, &ahead) && !copier.begin_ahead(1, &ahead), "one after the other");
    let small = copier.copy(&order[..2], soon());
    assert!(small.is_complete && firsts(&copier.ranges(&small, 0)) == expected[..2], "the first one serves");
    assert!(matches!(copier.read_ahead(1), Begun::Left), "it is of another process");
    let mut came = Ranges::new();
    loop {
        match copier.read_ahead(0) {
            Begun::Some(ranges) => came.extend(ranges),
            Begun::All(ranges) => {
                came.extend(ranges);
                break;
            }
            Begun::Left => panic!("it was left"),
        }
    }
    assert!(firsts(&came) == expected[..100]);
    drop(came);
    // Another look does not wait for it.
    assert!(copier.begin_ahead(0, &order));
    copier.stop_ahead();
    assert!(copier.copy(&order, soon()).is_complete);
    // One that is gone is done without.
    let second = copier.free_second().expect("the second one").id();
    kill(Pid::from_raw(second), Signal::SIGKILL).expect("it was there");
    assert!(copier.begin_ahead(0, &ahead));
    while !matches!(copier.read_ahead(0), Begun::Left) {}
    assert!(!copier.begin_ahead(0, &ahead) && copier.copy(&order, soon()).is_complete);
}

#[test]
fn a_copier_that_serves_does_for_another_look() {
    let own = [std::process::id() as i32];
    let start = |pages: usize, spare: Copier| Copier::start(&proc_fs(), pages, &own, Some(spare)).expect("a copier");
    let first = copier();
    let id = first.id();
    let second = start(64, first);
    assert_eq!(second.id(), id);
    // It has no room for so much.
    let third = start(65, second);
    assert_ne!(third.id(), id);
    // Nor does one serve that has ended, or that has files of others.
    let id = third.id();
    kill(Pid::from_raw(id), Signal::SIGKILL).expect("end it");
    let mut fourth = start(65, third);
    assert_ne!(fourth.id(), id);
    assert!(fourth.maps(own[0], soon()).is_some());
    let file = std::fs::File::open("/proc/self/mem").expect("the own memory");
    let with_file = Copier::spawn(&proc_fs(), 64, &[Some(file.into())]).expect("a copier");
    let id = with_file.id();
    assert_ne!(start(64, with_file).id(), id);
}

#[test]
fn who_may_try_again_soon_sleeps_for_a_short_time() {
    const SOURCE: &str = r#"
        #include <sys/select.h>
        #include <time.h>
        #include <unistd.h>
        int main(void) {
            struct timespec then = {SECONDS, 0};
            struct timeval left = {SECONDS, 0};
            (void)then; (void)left;
            CALL;
            return 0;
        }"#;
    let absolute = "clock_gettime(CLOCK_MONOTONIC, &then); then.tv_sec += SECONDS; \
                    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, 0)";
    let calls =
        ["nanosleep(&then, 0)", "clock_nanosleep(CLOCK_REALTIME, 0, &then, 0)", absolute, "select(0, 0, 0, 0, &left)"];
    let is_brief = |call: &str, seconds: &str| {
        let target = Target::compile(&SOURCE.replace("CALL", call).replace("SECONDS", seconds));
        until("its sleep", || {
            let call = system_call(&proc_fs().process(target.pid()));
            call.and_then(|call| Architecture::NATIVE.system_call(call.number)?.sleep(&call.arguments)).is_some()
        });
        let process = target.open().look().expect("look").processes.remove(0);
        sleeping::is_brief(&proc_fs(), &process)
    };
    for call in calls {
        assert!(is_brief(call, "50"), "{call}");
        assert!(!is_brief(call, "1000"), "{call}");
    }
    assert!(!is_brief("select(0, 0, 0, 0, 0)", "1"), "without an end");
}

#[test]
fn memory_that_its_process_serves_is_not_waited_for() {
    let target = Target::compile(include_str!("../../../testdata/hostile/userfault.c"));
    let maps = || crate::image::live::proc_fs::mappings(&proc_fs().process(target.pid())).unwrap_or_default();
    let area = || maps().into_iter().find(|mapping| mapping.end - mapping.start == 1 << 20 && mapping.write);
    // Without privilege there is none.
    until("its area, or its failure", || area().is_some() || target.state() == Some('S'));
    let mut live = target.open();
    let process = live.look().expect("look").processes.remove(0);
    let Some(area) = area() else { return println!("skip: no userfaultfd") };
    kill(Pid::from_raw(target.pid()), Signal::SIGSTOP).expect("stop the server");
    until("the stop", || target.state() == Some('T'));
    let begin = Instant::now();
    let silent = process.memory.u8(area.start + (1 << 19));
    assert!(silent.is_err(), "{silent:?}");
    let took = begin.elapsed();
    // The second page of that place is not waited for: no limit of time goes by again, however busy the machine.
    for page in 0..64 {
        assert!(process.memory.u8(area.start + (1 << 18) + page * 4096).is_err());
    }
    assert!(took < Duration::from_secs(20));
    assert_eq!(process.memory.u8(area.start), Ok(1), "what is in memory is read");
    let gaps = live.late_gaps();
    assert!(gaps.len() == 1 && gaps[0].why.contains("userfaultfd"), "{gaps:?}");
    kill(Pid::from_raw(target.pid()), Signal::SIGCONT).expect("continue");
}

/// The exec waits until the tracer has taken the exit status of a thread, and the tracer's next call waits for the exec.
#[test]
fn an_exec_does_not_wait_for_who_traces_its_threads() {
    let target = Target::compile(include_str!("testdata/execs.c"));
    let pid = target.pid();
    let others = || {
        let tids = proc_fs().threads(pid).unwrap_or_default();
        tids.into_iter().filter(|&tid| tid != pid).collect::<Vec<_>>()
    };
    let waits =
        |tid| system_call(&proc_fs().task(pid, tid)).is_some_and(|call| call.number == number(&calls::RT_SIGTIMEDWAIT));
    until("both threads", || others().first().is_some_and(|&tid| waits(tid)) && waits(pid));
    let thread = others()[0];
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let tracer = std::thread::spawn(move || {
        ptrace::seize(Pid::from_raw(thread), ptrace::Options::empty()).expect("a thread");
        ready.send(nix::unistd::gettid().as_raw()).expect("heard");
        may_go_on.recv().expect("told");
        ptrace::seize(Pid::from_raw(pid), ptrace::Options::empty())
    });
    let tracer_id = is_ready.recv().expect("it has the thread");
    let own = || proc_fs().task(std::process::id() as i32, tracer_id);
    let is_in_ptrace = || system_call(&own()).is_some_and(|call| call.number == crate::sys::PTRACE_CALL);
    kill(Pid::from_raw(pid), Signal::SIGUSR1).expect("end the thread");
    until("its end", || stat(&proc_fs().task(pid, thread)).is_some_and(|stat| stat.is_dead()));
    kill(Pid::from_raw(pid), Signal::SIGUSR2).expect("begin the exec");
    until("the exec", || target.state() == Some('D'));
    // A tracer that is elsewhere takes them by itself when it comes to it.
    reaping::free_an_exec(&proc_fs(), tracer_id, &[pid]);
    assert_eq!(others(), [thread]);
    go_on.send(()).expect("told");
    until("the tracer's call", || is_in_ptrace() && stat(&own()).is_some_and(|stat| stat.state == 'S'));
    reaping::free_an_exec(&proc_fs(), tracer_id, &[pid]);
    assert_eq!(tracer.join().expect("it returned"), Ok(()));
    let name = || std::fs::read_to_string(proc_fs().process(pid).join("comm")).unwrap_or_default();
    until("the new program", || name() == "sleep\n");
}
