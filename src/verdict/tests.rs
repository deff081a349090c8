//! Judgement over hand-made samples.

use super::*;
use crate::gpu::{Device, GpuCore, GpuCores, Kernel, Place};
use crate::image::{Addr, Mapping, ProcessImage, ThreadImage};
use crate::report::{Capture, Severity, Source, SourceKind};
use crate::threads::{Frame, FrameKind};
use crate::unwind::{NativeStack, StackEnd};
use crate::waits::circumstances::{CudaLibrary, Fits, KernelWord};
use crate::waits::model::KnownWakers;
use crate::waits::{Hold, Resource, ResourceKey, Scope, Strength, Wait};

struct Participant {
    image: Image,
    threads: Vec<Vec<Thread>>,
    seen: Observations,
    gpu_cores: GpuCores,
}

fn key(kind: &'static str) -> ResourceKey {
    let kind = crate::waits::kind_named(kind).expect("a kind that a family lists");
    ResourceKey { kind, scope: Scope::Process(0), address: Addr(0x1000) }
}

impl Participant {
    /// Threads with frames written as "function" (native), "module!" or "function@file:line" (Python).
    fn new(threads: &[(i32, &str, &[&str])]) -> Participant {
        let images =
            threads.iter().map(|(tid, name, _)| ThreadImage { name: name.to_string(), ..ThreadImage::new(*tid) });
        let process = ProcessImage {
            pid: threads[0].0,
            ns_pid: threads[0].0,
            threads: images.collect(),
            ..ProcessImage::unknown()
        };
        let merged = threads.iter().map(|(tid, name, frames)| Thread {
            tid: *tid,
            name: name.to_string(),
            native: NativeStack { frames: vec![], end: StackEnd::Bottom },
            python: None,
            frames: frames.iter().map(|text| frame(text)).collect(),
        });
        Participant {
            threads: vec![merged.collect()],
            image: Image { processes: vec![process], ..Image::default() },
            seen: Observations {
                cuda: vec![CudaLibrary { name: "libcuda.so.1".into(), ..CudaLibrary::default() }],
                ..Observations::default()
            },
            gpu_cores: GpuCores::default(),
        }
    }

    fn wait(&mut self, tid: i32, kind: &'static str, mode: Option<&'static str>) -> &mut Wait {
        self.seen.waits.push(Wait {
            waiter: Party::Thread(0, tid),
            resource: key(kind),
            mode,
            needs: Needs::All,
            timed: false,
            retried: false,
            since_ms: None,
            frame: Some(0),
            certainty: Certainty::Exact,
            evidence: vec![],
            spinning: false,
            place: None,
        });
        self.seen.waits.last_mut().unwrap()
    }

    fn hold(&mut self, holder: Party, kind: &'static str) -> &mut Hold {
        self.seen.holds.push(Hold {
            holder,
            gone: None,
            resource: key(kind),
            mode: None,
            taken: None,
            since_ms: None,
            source: None,
            frame: None,
            strength: Strength::Recorded,
            evidence: vec![],
        });
        self.seen.holds.last_mut().unwrap()
    }

    /// Only these parties are left to end a wait for this resource.
    fn enclose(&mut self, kind: &'static str, wake_sources: &[Party]) {
        self.seen.known_wakers.push(KnownWakers {
            resource: key(kind),
            why: String::new(),
            certainty: Certainty::Inferred,
            ruled_out: Vec::new(),
            whole_process: true,
            is_reportable: true,
        });
        let wake_source = |by: &Party| WakeSource {
            resource: key(kind),
            waiter: None,
            by: Waker::Party(by.clone()),
            what: String::new(),
        };
        self.seen.wake_sources.extend(wake_sources.iter().map(wake_source));
    }

    fn input(&self) -> JudgeInput<'_> {
        JudgeInput {
            image: &self.image,
            threads: &self.threads,
            python: &[],
            observations: &self.seen,
            gpu: None,
            gpu_cores: &self.gpu_cores,
        }
    }

    fn judge(&self) -> Judgement {
        judge(&self.input(), None)
    }
}

/// A process whose main thread waits for a kernel that stands at these addresses and has a word of the host's memory.
fn waits_for_a_kernel(addresses: &[u64], word: Option<u32>) -> Participant {
    let mut scene =
        Participant::new(&[(5, "main", &["cudaDeviceSynchronize", "main"]), (6, "writer", &["pthread_mutex_lock"])]);
    scene.wait(5, "cuda_device", None);
    scene.wait(6, "pthread_mutex", None);
    scene.hold(Party::Thread(0, 5), "pthread_mutex");
    let place = Place { addresses: addresses.to_vec(), ..Place::default() };
    let kernel = Kernel { name: "waits_for_flag".into(), number: 1, places: vec![place], ..Kernel::default() };
    let device = Device { kernels: vec![kernel.clone()], ..Device::default() };
    scene.seen.kernel_words.push(KernelWord {
        process: 0,
        kernel: crate::waits::cuda::kernels::key(0, &device, &kernel),
        argument: 1,
        address: Addr(0x7000),
        word,
        known_to: vec![Party::Thread(0, 5), Party::Thread(0, 6)],
    });
    scene.gpu_cores = GpuCores::of_first(GpuCore { devices: vec![device], ..GpuCore::default() });
    scene
}

#[test]
fn a_kernel_in_a_small_loop_may_wait_for_a_word_of_the_host() {
    let codes = |scene: &Participant| scene.judge().findings.into_iter().map(|one| one.code).collect::<Vec<_>>();
    let scene = waits_for_a_kernel(&[0x1000, 0x1010], Some(0));
    assert_eq!(codes(&scene), ["spinning-on-memory"]);
    let message = &scene.judge().findings[0].message;
    assert!(message.contains("Its argument 1 is 0x7000, a word of the host's memory, which is 0x0"), "{message}");
    assert!(message.contains("writer (6) has that address, and waits for pthread mutex"), "{message}");
    assert!(!message.contains("main (5) has that address"), "{message}");
    // Far apart, of no known value, or of a thread that waits for nothing.
    assert_eq!(codes(&waits_for_a_kernel(&[0x1000, 0x2000], Some(0))), ["kernel-never-ends"]);
    assert_eq!(codes(&waits_for_a_kernel(&[0x1000], None)), ["kernel-never-ends"]);
    let mut scene = waits_for_a_kernel(&[0x1000], Some(0));
    scene.seen.waits.remove(0);
    assert_eq!(codes(&scene), Vec::<String>::new());
}

/// As if the waits of all that a sample suspects had ended meanwhile.
fn refuted(judgement: &Judgement) -> Confirmed {
    Confirmed { refuted: judgement.suspicions.iter().cloned().collect(), ..Confirmed::default() }
}

fn frame(text: &str) -> Frame {
    let python = text.split_once('@');
    let (file, line) = match python.and_then(|(_, place)| place.rsplit_once(':')) {
        Some((file, line)) => (Some(file), line.parse().ok()),
        None => (None, None),
    };
    let module = text.strip_suffix('!');
    let kind = if python.is_some() { FrameKind::Python } else { FrameKind::Native };
    let function = python.map_or(text, |(function, _)| function);
    let function = if module.is_none() { function } else { "" };
    Frame { line, pc: Some(Addr(0x40)), ..testing::frame(kind, function, file, module) }
}

const LAUNCH: &[&str] =
    &["pthread_rwlock_rdlock", "libcuda.so.1!", "cuLaunchKernel", "ffi_call", "step@/w/train.py:56"];
const CALLBACK: &[&str] = &[
    "pthread_cond_timedwait",
    "take_gil",
    "<lambda>@/x/compiler.py:288",
    "ffi_closure",
    "libcuda.so.1!",
    "cuOccupancyMaxPotentialBlockSize",
    "ffi_call",
    "f@/usr/lib/python3/dist-packages/numba/cuda/driver.py:1011",
];

fn seed(holder: &[&str], waiter: &[&str], lock: &'static str) -> Participant {
    let mut scene = Participant::new(&[(533, "MainThread", holder), (543, "occupancy", waiter)]);
    scene.wait(533, lock, Some("read"));
    scene.hold(Party::Thread(0, 533), "gil");
    scene.wait(543, "gil", None);
    scene.hold(Party::Thread(0, 543), lock);
    scene
}

#[test]
fn gil_against_driver_callback() {
    let scene = seed(LAUNCH, CALLBACK, "pthread_rwlock");
    let judgement = scene.judge();
    assert_eq!(judgement.verdict, Verdict::Deadlock);
    assert_eq!(judge(&scene.input(), Some(&Confirmed::default())).verdict, Verdict::Deadlock, "proven by one look");
    assert_eq!(
        judgement.summary,
        "Thread 533 'MainThread' holds the GIL and waits for pthread rwlock 0x1000 (read) in cuLaunchKernel, called by \
         step at train.py:56; thread 543 'occupancy' holds that and waits for the GIL in <lambda> at compiler.py:288."
    );
    let finding = &judgement.findings[0];
    assert_eq!(finding.code, "gil-vs-driver-callback");
    assert!(finding.message.ends_with("called from cuOccupancyMaxPotentialBlockSize."), "{}", finding.message);
    assert_eq!(finding.help[1], "release the GIL around the driver call that MainThread makes");
    assert_eq!(finding.threads.iter().map(|t| t.tid).collect::<Vec<_>>(), [533, 543]);
    assert_eq!(judgement.findings.len(), 1, "a cycle is explained once");

    let capture = Capture { threads: 2, pause_us: 0, total_us: 0, looks: 1, ..Capture::default() };
    let report =
        assemble::report(&scene.input(), judgement, None, Source { kind: SourceKind::Core, path: None }, capture);
    assert_eq!(report.cycles[0].edges[0].resource, "r1");
    assert_eq!(report.cycles[0].edges[1].holder, Some(533));
    assert_eq!(report.resources[1].kind, "gil");
    assert_eq!(report.processes[0].threads[0].frames[0].pc.as_deref(), Some("0x40"));
}

#[test]
fn other_cycles_have_their_names() {
    let code =
        |scene: &Participant| scene.judge().findings.first().map(|finding| finding.code.clone()).unwrap_or_default();
    let host = ["take_gil", "g@h.py:1", "ffi_closure", "libcuda.so.1!", "start_thread", "clone3"];
    assert_eq!(code(&seed(&["cuStreamSynchronize", "m@t.py:1"], &host, "cuda_stream")), "gil-vs-host-function");
    assert_eq!(code(&seed(&["pthread_mutex_lock"], &["take_gil"], "pthread_mutex")), "gil-vs-native-lock");
    assert_eq!(code(&seed(&["pthread_join"], &["take_gil"], "thread")), "join-cycle");

    let mut scene = Participant::new(&[(1, "a", &["f"]), (2, "b", &["g"])]);
    scene.wait(1, "pthread_mutex", None);
    scene.hold(Party::Thread(0, 1), "pthread_rwlock");
    scene.wait(2, "pthread_rwlock", None);
    scene.hold(Party::Thread(0, 2), "pthread_mutex");
    assert_eq!(code(&scene), "lock-order-cycle");
    scene.seen.waits[0].timed = true;
    let judgement = scene.judge();
    assert_eq!(judgement.verdict, Verdict::SuspectedDeadlock);
    let denied = judge(&scene.input(), Some(&refuted(&judgement)));
    assert!(denied.cycles.is_empty() && denied.findings.is_empty() && denied.gaps.len() == 1);
    assert_eq!(denied.verdict, Verdict::Blocked);

    let mut scene = Participant::new(&[(1, "a", &["f"])]);
    scene.wait(1, "pthread_mutex", None);
    scene.hold(Party::Thread(0, 1), "pthread_mutex");
    assert_eq!(code(&scene), "self-deadlock");
}

#[test]
fn lost_owners() {
    for (gone, code) in [
        (Gone::Exited, "owner-exited"),
        (Gone::LeftInParent, "fork-orphaned-lock"),
        (Gone::ProcessDead, "dead-process-holds-lock"),
    ] {
        let mut scene = Participant::new(&[(1, "a", &["f"])]);
        scene.wait(1, "pthread_mutex", None);
        scene.hold(Party::Absent(0, 99), "pthread_mutex").gone = Some(gone);
        let judgement = scene.judge();
        assert_eq!(judgement.verdict, Verdict::OrphanedLock);
        assert_eq!(judgement.findings[0].code, code);
        assert!(judgement.summary.contains("99"), "{}", judgement.summary);
        assert_eq!(judge(&scene.input(), Some(&refuted(&judgement))).verdict, Verdict::Blocked);
    }
}

#[test]
fn running_blocked_and_stopped() {
    let mut scene = Participant::new(&[(1, "MainThread", &["poll", "m@t.py:4"]), (2, "w", &["spin"])]);
    let judgement = scene.judge();
    assert_eq!(judgement.verdict, Verdict::Blocked);
    assert!(judgement.summary.contains("MainThread (1) in poll, called by m at t.py:4"), "{}", judgement.summary);
    scene.image.processes[0].threads[1].cpu_used = Some((49, 1_000));
    assert_eq!(scene.judge().verdict, Verdict::Blocked);
    scene.image.processes[0].threads[1].cpu_used = Some((50, 1_000));
    assert_eq!(scene.judge().verdict, Verdict::Running);
    scene.wait(2, "cuda_stream", None).spinning = true;
    assert_eq!(scene.judge().verdict, Verdict::Blocked);
    scene.image.processes[0].threads[1].state = TaskState::Stopped;
    let finding = &scene.judge().findings[0];
    assert_eq!((finding.code.as_str(), finding.severity), ("traced-or-stopped", Severity::Warning));
    assert!(finding.help[0].contains("kill -CONT 1"));
}

#[test]
fn threads_that_take_turns_at_locks_run_though_all_sleep_at_the_look() {
    use crate::arch::Architecture;
    use crate::arch::system_calls::FUTEX;
    use crate::image::{RegisterSet, Registers};
    let machine = Architecture::X86_64;
    let asleep = |time_out: u64| {
        let general = RegisterSet::new(machine);
        let number = machine.number_of(&FUTEX).expect("a call of this machine");
        let registers = Registers { general, system_call: number, thread_pointer: Addr(0), descriptor: None };
        machine.in_system_call(registers, -512, [0x1000, 0x80, 2, time_out, 0, 0])
    };
    let made = |turns: [u64; 2], time_out: u64| {
        let mut scene = Participant::new(&[(1, "a", &["f"]), (2, "b", &["g"])]);
        for (thread, turns) in scene.image.processes[0].threads.iter_mut().zip(turns) {
            thread.registers = Some(asleep(time_out));
            thread.turns = Some(turns);
        }
        scene.wait(1, "pthread_mutex", None);
        scene.wait(2, "pthread_mutex", None);
        scene.judge().verdict
    };
    assert_eq!(made([9, 7], 0), Verdict::Running);
    // One alone may be woken by signals; with a time-out, or on its way from a stop, it gets on no further.
    assert_eq!(made([9, 0], 0), Verdict::Blocked);
    assert_eq!(made([9, 7], 0x2000), Verdict::Blocked);
    assert_eq!(made([2, 2], 0), Verdict::Blocked);
}

#[test]
fn a_reader_behind_a_writer_is_a_note() {
    let mut scene = Participant::new(&[(1, "a", &["f"]), (2, "b", &["g"]), (3, "c", &["h"])]);
    // The place in the queue of the lock at 0x1000: a resource of its own (waits::libc::rwlock).
    let queue = ResourceKey { address: Addr(0x1004), ..key("pthread_rwlock") };
    scene.wait(1, "pthread_rwlock", Some("read")).resource = queue.clone();
    scene.wait(2, "pthread_rwlock", Some("write"));
    let hold = scene.hold(Party::Thread(0, 2), "pthread_rwlock");
    (hold.mode, hold.strength, hold.resource) = (Some("write"), Strength::Inferred, queue.clone());
    let hold = scene.hold(Party::Thread(0, 3), "pthread_rwlock");
    (hold.mode, hold.strength) = (Some("read"), Strength::Candidate);
    scene.seen.resources.push(Resource {
        key: key("pthread_rwlock"),
        process: 0,
        label: "rwlock".into(),
        state: vec![("readers", 2)],
        role: None,
    });
    let role = Some(crate::waits::model::Role::BehindWriter);
    scene.seen.resources.push(Resource { key: queue, process: 0, label: "rwlock".into(), state: Vec::new(), role });
    let judgement = scene.judge();
    assert_eq!(judgement.verdict, Verdict::Blocked);
    assert_eq!(judgement.findings[0].code, "reader-behind-writer");
}

#[test]
fn a_reader_of_what_a_writer_holds_is_in_no_queue() {
    let mut scene = Participant::new(&[(1, "a", &["f"]), (2, "b", &["g"]), (3, "c", &["h"])]);
    let other = ResourceKey { address: Addr(0x2000), ..key("pthread_rwlock") };
    // 2 holds the lock that 1 wants to read, and waits to write another one, which 3 holds and gives back soon.
    scene.wait(1, "pthread_rwlock", Some("read"));
    scene.wait(2, "pthread_rwlock", Some("write")).resource = other.clone();
    scene.hold(Party::Thread(0, 2), "pthread_rwlock").mode = Some("write");
    let hold = scene.hold(Party::Thread(0, 3), "pthread_rwlock");
    (hold.mode, hold.resource) = (Some("write"), other);
    assert!(scene.judge().findings.iter().all(|finding| finding.code != "reader-behind-writer"));
}

/// The findings for a process with this libcuda on a machine with that kernel driver.
fn mismatch(library: &str, kernel: &str, branches: &[u64]) -> Vec<Finding> {
    let mut scene = Participant::new(&[(1, "MainThread", &["poll", "m@t.py:1"])]);
    scene.image.kernel.gpu_driver = Some(kernel.into());
    scene.seen.cuda = vec![
        CudaLibrary {
            name: format!("libcuda.so.{library}"),
            path: format!("/usr/local/cuda/compat/libcuda.so.{library}"),
            version: Some(library.into()),
            fits: Some(Fits { cuda: "12.9".into(), branches: branches.to_vec() }),
            ..CudaLibrary::default()
        },
        CudaLibrary { name: "libcudart.so.12".into(), version: Some("12".into()), ..CudaLibrary::default() },
    ];
    let mut findings = scene.judge().findings;
    findings.retain(|finding| finding.code == "driver-library-mismatch");
    findings
}

#[test]
fn libraries_of_another_driver_have_three_repairs() {
    assert!(mismatch("580.65.06", "580.65.06", &[535]).is_empty());
    for (library, kernel, branches, words) in [
        ("580.65.06", "535.54.03", vec![535, 550], ["804", "LD_LIBRARY_PATH"]),
        ("580.65.06", "470.82.01", vec![535, 550], ["does not name", "install driver 580"]),
        ("535.54.03", "580.65.06", vec![], ["older", "nvidia-container-toolkit"]),
        ("580.65.06", "580.159.04", vec![], ["one branch", "restart the container"]),
    ] {
        let findings = mismatch(library, kernel, &branches);
        let [finding] = findings.as_slice() else { panic!("{library} on {kernel}: {findings:?}") };
        let all = format!("{} {}", finding.message, finding.help.join(" "));
        for word in words.iter().chain(&["CUDA 12.9", "/compat/", "libcudart 12"]) {
            assert!(all.contains(word), "{word}: {all}");
        }
    }
}

#[test]
fn forward_compatibility_that_works_is_no_mismatch() {
    let mut scene =
        Participant::new(&[(1, "MainThread", &["poll"]), (2, "cuda-EvtHandlr", &["poll", "libcuda.so.1!"])]);
    scene.image.kernel.gpu_driver = Some("535.54.03".into());
    let fits = Some(Fits { cuda: "13.0".into(), branches: vec![535] });
    let version = Some("580.65.06".into());
    scene.seen.cuda =
        vec![CudaLibrary { name: "libcuda.so.580.65.06".into(), version, fits, ..CudaLibrary::default() }];
    assert!(scene.judge().findings.is_empty());
}

#[test]
fn a_driver_lock_left_in_the_parent_is_cuda_after_fork() {
    let mut scene = Participant::new(&[(
        7,
        "python3",
        &["pthread_rwlock_wrlock", "libcuda.so.1!", "cuMemAlloc_v2", "load@worker.py:3"],
    )]);
    scene.wait(7, "pthread_rwlock", Some("write"));
    scene.hold(Party::Absent(0, 3), "pthread_rwlock").gone = Some(Gone::LeftInParent);
    let judgement = scene.judge();
    let codes: Vec<&str> = judgement.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!((judgement.verdict, codes[0]), (Verdict::OrphanedLock, "cuda-after-fork"));
    // The same lock outside the driver is not CUDA's.
    scene.threads[0][0].frames = vec![frame("pthread_rwlock_wrlock"), frame("load@worker.py:3")];
    assert!(scene.judge().findings.iter().all(|finding| finding.code != "cuda-after-fork"));
}

#[test]
fn a_thread_in_cuda_beside_one_that_ends_the_program_is_told() {
    let mut scene = Participant::new(&[
        (1, "main", &["pthread_join", "libjobs.so!", "__cxa_finalize", "exit", "main"]),
        (2, "worker", &["libcuda.so.1!", "cuLaunchKernel", "work"]),
    ]);
    scene.wait(1, "thread", None);
    let findings = scene.judge().findings;
    let found = findings.iter().find(|finding| finding.code == "cuda-call-at-exit").expect("found");
    assert!(found.message.contains("libjobs.so") && found.message.contains("cuLaunchKernel"), "{}", found.message);
    assert_eq!(found.threads.len(), 2);
    scene.threads[0].remove(1);
    assert!(scene.judge().findings.iter().all(|finding| finding.code != "cuda-call-at-exit"));
}

#[test]
fn the_command_for_a_core_of_the_gpu_is_exact() {
    let mut scene = Participant::new(&[(5, "MainThread", &["libcuda.so.1!", "cuCtxSynchronize", "m@t.py:1"])]);
    scene.wait(5, "cuda_device", None).spinning = true;
    let help = |scene: &Participant| {
        let findings = scene.judge().findings;
        let finding = findings.iter().find(|finding| finding.code == "waiting-for-gpu").expect("found");
        finding.help.join(" ")
    };
    assert!(help(&scene).contains("next time start the program with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1"));
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    scene.image.processes[0].environment = vec![set("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1")];
    assert!(help(&scene).contains("`echo 1 > /proc/5/cwd/corepipe_$(hostname)_5`"));
    scene.image.processes[0].environment.push(set("CUDA_COREDUMP_PIPE", "/tmp/gpu-%p"));
    assert!(help(&scene).contains("`echo 1 > /tmp/gpu-5`"));
    let target = "/tmp/w/corepipe_vm_5".to_owned();
    scene.image.processes[0].descriptors =
        vec![crate::image::Descriptor { number: 35, target, reads: true, ..crate::image::Descriptor::default() }];
    assert!(help(&scene).contains("`echo 1 > /proc/5/fd/35`"));
    assert!(help(&scene).contains("cuda-gdb -p 5 "));
}

fn library(path: &str) -> Mapping {
    Mapping {
        start: Addr(0x7000_0000),
        end: Addr(0x7000_1000),
        read: true,
        write: false,
        execute: true,
        shared: false,
        offset: 0,
        device: (8, 1),
        inode: 1,
        path: Some(path.into()),
        deleted: false,
    }
}

#[test]
fn who_starts_the_ranks_is_none_that_is_missing() {
    let mut scene = Participant::new(&[(10, "MainThread", &["libcuda.so.1!", "cuCtxSynchronize", "step@train.py:9"])]);
    scene.wait(10, "cuda_device", None).spinning = true;
    for (position, pid) in [(1, 11), (2, 12)] {
        let mut other = Participant::new(&[(pid, "MainThread", &["clock_nanosleep", "run@agent.py:5"])]);
        scene.image.processes.append(&mut other.image.processes);
        scene.threads.append(&mut other.threads);
        scene.wait(pid, "timer", None).waiter = Party::Thread(position, pid);
    }
    for (process, rank) in scene.image.processes.iter_mut().zip([Some("0"), None, Some("1")]) {
        process.mappings = vec![library("/usr/lib/libnccl.so.2")];
        process.environment = rank.map(|rank| ("RANK".to_owned(), rank.to_owned())).into_iter().collect();
    }
    let findings = scene.judge().findings;
    let found = findings.iter().find(|finding| finding.code == "missing-rank").expect("found");
    assert!(found.message.contains("Not there is rank 1 (process 12)"), "{}", found.message);
    assert_eq!(found.threads.len(), 1);
    // Without the variable every process may be one.
    scene.image.processes.iter_mut().for_each(|process| process.environment.clear());
    let findings = scene.judge().findings;
    let found = findings.iter().find(|finding| finding.code == "missing-rank").expect("found");
    assert_eq!(found.threads.len(), 2, "{}", found.message);
}

#[test]
fn who_could_be_woken_only_by_members_of_a_cycle_is_held_up_by_it() {
    let lock = "pthread_mutex_lock";
    let mut scene = Participant::new(&[(1, "a", &[lock]), (2, "b", &[lock]), (3, "c", &["pthread_cond_wait"])]);
    let other = ResourceKey { address: Addr(0x2000), ..key("pthread_mutex") };
    scene.wait(1, "pthread_mutex", None);
    scene.hold(Party::Thread(0, 2), "pthread_mutex");
    scene.wait(2, "pthread_mutex", None).resource = other.clone();
    scene.hold(Party::Thread(0, 1), "pthread_mutex").resource = other;
    scene.wait(3, "pthread_cond", None);
    let (a, b) = (Party::Thread(0, 1), Party::Thread(0, 2));
    scene.enclose("pthread_cond", &[a.clone(), b]);
    let judgement = scene.judge();
    assert_eq!((judgement.verdict, judgement.victims), (Verdict::Deadlock, vec![Party::Thread(0, 3)]));
    // A fourth that goes on could wake it.
    let mut scene = Participant::new(&[(1, "a", &[lock]), (3, "c", &["pthread_cond_wait"]), (4, "d", &["work"])]);
    scene.wait(1, "pthread_mutex", None);
    scene.hold(a.clone(), "pthread_mutex");
    scene.wait(3, "pthread_cond", None);
    scene.enclose("pthread_cond", &[a, Party::Thread(0, 4)]);
    let judgement = scene.judge();
    assert_eq!((judgement.verdict, judgement.victims), (Verdict::Deadlock, Vec::new()));
}

#[test]
fn the_report_names_the_victims_and_the_call_to_read() {
    let lock = "pthread_mutex_lock";
    let mut scene =
        Participant::new(&[(1, "a", &[lock, "f@a.py:1"]), (2, "b", &[lock, "g@a.py:2"]), (3, "c", &[lock])]);
    let other = ResourceKey { address: Addr(0x2000), ..key("pthread_mutex") };
    scene.wait(1, "pthread_mutex", None);
    scene.hold(Party::Thread(0, 2), "pthread_mutex");
    scene.wait(2, "pthread_mutex", None).resource = other.clone();
    scene.hold(Party::Thread(0, 1), "pthread_mutex").resource = other;
    scene.wait(3, "pthread_mutex", None);
    let judgement = scene.judge();
    assert!(judgement.summary.contains("1 more thread is stuck behind it"), "{}", judgement.summary);
    let capture = Capture { threads: 3, pause_us: 0, total_us: 0, looks: 1, ..Capture::default() };
    let source = Source { kind: SourceKind::Core, path: None };
    let report = assemble::report(&scene.input(), judgement, None, source, capture);
    assert_eq!(report.victims, [crate::report::ThreadReference { process: "p0".into(), tid: 3 }]);
    assert_eq!(
        (report.findings[0].code.as_str(), report.findings[0].certainty),
        ("lock-order-cycle", Certainty::Exact)
    );
    let first = &report.waits[0];
    assert_eq!((first.at.call, first.at.caller, first.callback), (Some(0), Some(1), None));
    assert!(report.summary.contains("in pthread_mutex_lock, called by f at a.py:1"), "{}", report.summary);
}
