//! Whole texts of reports made by hand.

use std::collections::HashMap;

use super::super::{Detail, Style};
use super::render;
use crate::report::*;

fn frame(kind: FrameKind, function: &str, place: Option<(&str, u32)>, module: Option<&str>) -> Frame {
    Frame {
        kind,
        function: Some(function.to_string()),
        module: module.map(str::to_string),
        file: place.map(|(file, _)| file.to_string()),
        line: place.map(|(_, line)| line),
        pc: Some("0x7f0000001000".to_string()),
        trust: Some(Trust::Cfi),
        library: None,
        belongs_to: None,
        module_offset: None,
        locals: Vec::new(),
    }
}

fn native(function: &str, module: &str) -> Frame {
    let library = if module == "libcuda.so.1" { Some(Library::Cuda) } else { None };
    let library = if module == "libc.so.6" { Some(Library::C) } else { library };
    let owners = [("libcuda.so.1", "CUDA"), ("libc.so.6", "the C library"), ("python3.12", "CPython")];
    let belongs_to = owners.iter().find(|(of, _)| *of == module).map(|(_, owner)| (*owner).to_owned());
    Frame { library, belongs_to, ..frame(FrameKind::Native, function, None, Some(module)) }
}

/// The call to read, and its caller.
fn at(call: usize, caller: Option<usize>) -> CallSite {
    CallSite { call: Some(call), caller }
}

fn python(function: &str, file: &str, line: u32) -> Frame {
    frame(FrameKind::Python, function, Some((file, line)), None)
}

fn thread(tid: i32, name: &str, frames: Vec<Frame>) -> Thread {
    Thread {
        tid,
        ns_tid: tid,
        name: name.into(),
        os_name: "python3".into(),
        role: None,
        state: ThreadState::Sleeping,
        at: CallSite::default(),
        frames,
        working: None,
        cuda_error: None,
        cuda_call: None,
    }
}

fn resource(id: &str, kind: &str, label: &str, address: Option<&str>) -> Resource {
    Resource {
        id: id.into(),
        kind: kind.into(),
        process: "p0".into(),
        address: address.map(str::to_string),
        label: label.into(),
        parts: label.into(),
        state: serde_json::Map::new(),
    }
}

fn wait(tid: i32, resource: &str, mode: Option<&str>, frame: Option<usize>, evidence: &str) -> Wait {
    Wait {
        process: "p0".into(),
        tid: Some(tid),
        waiter_resource: None,
        resource: resource.into(),
        mode: mode.map(str::to_string),
        needs: Needs::All,
        timed: false,
        retried: false,
        since_ms: None,
        frame,
        at: CallSite::default(),
        place: None,
        callback: None,
        certainty: Certainty::Exact,
        proof: Proof::Recorded,
        evidence: vec![evidence.to_string()],
        could_end: Vec::new(),
        by_holders_alone: false,
    }
}

fn hold(tid: i32, resource: &str, mode: Option<&str>, frame: Option<usize>, evidence: &str) -> Hold {
    Hold {
        holder_resource: None,
        process: "p0".into(),
        tid: Some(tid),
        gone: None,
        not_captured: false,
        holder_rank: None,
        resource: resource.into(),
        mode: mode.map(str::to_string),
        frame,
        taken: None,
        since_ms: None,
        source: None,
        at: CallSite::default(),
        certainty: Certainty::Exact,
        proof: Proof::Recorded,
        evidence: vec![evidence.to_string()],
    }
}

fn edge(waiter: i32, resource: &str, holder: i32) -> Edge {
    Edge {
        process: "p0".into(),
        waiter: Some(waiter),
        waiter_resource: None,
        resource: resource.into(),
        holder_process: "p0".into(),
        holder: Some(holder),
        holder_resource: None,
        proof: Proof::Recorded,
    }
}

/// A report of nothing.
pub(in crate::render) fn empty() -> Report {
    Report {
        lockscope: "0.1.0".into(),
        capture: Capture { looks: 1, ..Capture::default() },
        ..Report::empty(SourceKind::Live, Verdict::Blocked)
    }
}

/// A report with the scenes that the verdict makes of it, without lines of source.
pub(in crate::render) fn with_scenes(mut report: Report) -> Report {
    report.scenes = crate::verdict::participants::Participants::of(&report).told(&HashMap::new());
    report
}

/// The seed case of the design.
pub(in crate::render) fn seed() -> Report {
    with_scenes(seed_alone())
}

fn seed_alone() -> Report {
    let main = vec![
        native("__futex_abstimed_wait_common64", "libc.so.6"),
        native("pthread_rwlock_rdlock", "libc.so.6"),
        frame(FrameKind::Native, "", None, Some("libcuda.so.1")),
        native("cuLaunchKernel", "libcuda.so.1"),
        python("step", "/home/me/train.py", 56),
        python("<module>", "/home/me/train.py", 90),
    ];
    let mut main = main;
    main[2].function = None;
    main[2].module_offset = Some("0x2b1f40".into());
    let callback = vec![
        native("__futex_abstimed_wait_common64", "libc.so.6"),
        native("pthread_cond_timedwait", "libc.so.6"),
        native("take_gil", "python3.12"),
        python("<lambda>", "/usr/lib/python3/dist-packages/numba/cuda/compiler.py", 288),
        native("ffi_call", "libffi.so.8"),
        native("cuOccupancyMaxPotentialBlockSize", "libcuda.so.1"),
        python("get_max", "/usr/lib/python3/dist-packages/numba/cuda/driver.py", 1011),
    ];
    let worker = || vec![native("pthread_cond_timedwait", "libc.so.6"), python("run", "/home/me/pool.py", 12)];
    let threads = vec![
        thread(533, "MainThread", main),
        thread(543, "occupancy", callback),
        thread(550, "worker-0", worker()),
        thread(551, "worker-1", worker()),
        thread(560, "cuda-EvtHandlr", vec![native("poll", "libc.so.6")]),
    ];
    let at_frame = |wait: Wait, call, caller| Wait { at: at(call, caller), ..wait };
    let in_callback = |wait: Wait, frame| Wait { callback: Some(Callback { frame: Some(frame) }), ..wait };
    let victim = |tid| ThreadReference { process: "p0".into(), tid };
    Report {
        verdict: Verdict::Deadlock,
        summary: "MainThread (533) holds the GIL and waits for a rwlock that occupancy (543) holds".into(),
        processes: vec![Process {
            cluster: None,
            identity: None,
            sockets: Vec::new(),
            id: "p0".into(),
            pid: 533,
            exe: Some("/usr/bin/python3.12".into()),
            cmdline: vec!["python3".into(), "train.py".into()],
            parent: None,
            python: Some(PythonInfo { version: "3.12.3".into(), free_threaded: false }),
            cuda: None,
            gpus: Vec::new(),
            enqueued: Vec::new(),
            threads,
        }],
        resources: vec![
            resource("r1", "pthread_rwlock", "rwlock", Some("0x33b84080")),
            resource("r2", "gil", "GIL", Some("0x955e28")),
            resource("r3", "other", "poll", None),
        ],
        waits: vec![
            at_frame(wait(533, "r1", Some("read"), Some(1), "the futex word is 0x33b84088 = rwlock + 8"), 3, Some(4)),
            in_callback(wait(543, "r2", None, Some(2), "543 sleeps on the GIL's condition"), 3),
            at_frame(wait(550, "r2", None, Some(0), "550 sleeps on the GIL's condition"), 0, Some(1)),
            at_frame(wait(551, "r2", None, Some(0), "551 sleeps on the GIL's condition"), 0, Some(1)),
            at_frame(wait(560, "r3", None, Some(0), "system call poll"), 0, None),
        ],
        holds: vec![
            Hold { at: at(5, Some(6)), ..hold(543, "r1", Some("write"), Some(5), "__cur_writer = 543") },
            hold(533, "r2", None, None, "its holder is 533's thread state"),
        ],
        cycles: vec![Cycle { certainty: Certainty::Exact, edges: vec![edge(533, "r1", 543), edge(543, "r2", 533)] }],
        victims: vec![victim(550), victim(551)],
        findings: vec![Finding {
            code: "gil-vs-driver-callback".into(),
            severity: Severity::Error,
            class: None,
            title: "Python GIL <-> lock inside the CUDA driver".into(),
            message: "A Python callback runs under a lock of the driver.".into(),
            certainty: Certainty::Exact,
            proof: Proof::Recorded,
            threads: Vec::new(),
            resources: Vec::new(),
            ruled_out: Vec::new(),
            help: vec![
                "give CUDA a native callback instead of a Python function".into(),
                "release the GIL around the driver call that MainThread makes".into(),
            ],
            references: vec!["numba/numba#4581".into()],
        }],
        gaps: vec![Gap::new("readers of rwlock 0x99", "glibc records no reader ids")],
        capture: Capture { threads: 5, pause_us: 812, total_us: 21_034, looks: 2, ..Capture::default() },
        ..empty()
    }
}

fn text(report: &Report, width: usize) -> String {
    let mut out = Vec::new();
    render(report, &Style { width, ..Style::plain() }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn assert_text(actual: &str, expected: &str) {
    assert!(actual == expected, "got:\n{actual}\nexpected:\n{expected}");
}

#[test]
fn the_seed_case_reads_as_designed() {
    assert_text(&text(&seed(), 100), include_str!("../../../testdata/render/seed-100.txt"));
}

#[test]
fn the_seed_case_fits_sixty_columns() {
    let text = text(&seed(), 60);
    assert_text(&text, include_str!("../../../testdata/render/seed-60.txt"));
    assert!(text.lines().all(|line| line.chars().count() <= 60));
}

#[test]
fn more_width_than_needed_changes_nothing() {
    assert_text(&text(&seed(), 200), &text(&seed(), 300));
}

#[test]
fn an_empty_report_does_not_panic() {
    for width in [0, 1, 60, 200] {
        assert!(text(&empty(), width).starts_with("blocked:"));
    }
}

#[test]
fn a_report_whose_parts_do_not_fit_together_does_not_panic() {
    let mut report = seed();
    report.processes.clear();
    report.resources.clear();
    text(&report, 80);
    let mut report = seed();
    let nowhere = || at(999, Some(999));
    report.waits.iter_mut().for_each(|wait| (wait.frame, wait.at) = (Some(999), nowhere()));
    report.holds.iter_mut().for_each(|hold| (hold.frame, hold.at) = (Some(999), nowhere()));
    report.cycles.push(Cycle { certainty: Certainty::Exact, edges: Vec::new() });
    text(&report, 80);
    report.cycles.remove(0);
    text(&report, 80);
}

#[test]
fn a_lost_owner_is_named() {
    let mut report = seed();
    report.verdict = Verdict::OrphanedLock;
    report.cycles.clear();
    report.victims.clear();
    report.waits.truncate(1);
    report.holds.truncate(1);
    report.holds[0].gone = Some(Gone::Exited);
    report.holds[0].tid = Some(999);
    report.processes[0].threads.truncate(1);
    report.findings[0].code = "owner-exited".into();
    report.findings[0].title = "the owner of a lock exited".into();
    let text = text(&with_scenes(report), 120);
    assert!(text.starts_with("orphaned lock: the owner of a lock exited"), "{text}");
    assert!(
        text.split_whitespace().collect::<Vec<_>>().join(" ").contains("held by thread 999, which has exited"),
        "{text}"
    );
    let known = "  MainThread (533) -> thread 999, gone  recorded: the futex word is 0x33b84088 = rwlock + 8; __cur_writer = 543";
    assert!(text.contains(known), "{text}");
}

#[test]
fn a_healthy_process_is_ok() {
    let mut report = seed();
    report.verdict = Verdict::Running;
    report.cycles.clear();
    report.victims.clear();
    report.holds.clear();
    report.findings.clear();
    report.summary = "MainThread (533) runs".into();
    let text = text(&report, 100);
    assert!(text.starts_with("running: MainThread (533) runs\n"), "{text}");
    assert!(text.contains("  2 threads  wait for the GIL  in  pthread_cond_timedwait <- pool.py:12 run\n"), "{text}");
}

#[test]
fn names_are_neither_cut_nor_obeyed() {
    let mut report = seed();
    let long = "std::map<int, std::string>::operator[](int const &)".to_string();
    report.processes[0].threads[0].frames[3].function = Some(long.clone());
    report.processes[0].threads[1].name = "evil\x1b[2J\nname".into();
    let text = text(&report, 40);
    assert!(text.contains(&long), "{text}");
    assert!(!text.contains('\x1b'));
    assert!(text.contains("evil\\u{1b}[2J\\nname (543)"), "{text}");
}

#[test]
fn several_processes_are_named_with_their_threads() {
    let mut report = seed();
    let mut second = report.processes[0].clone();
    second.id = "p1".into();
    second.pid = 900;
    report.processes.push(second);
    assert!(text(&report, 160).contains("python3.12 533: MainThread (533)"));
}

#[test]
fn a_function_of_the_program_says_its_own_line() {
    let mut report = seed();
    let threads = &mut report.processes[0].threads;
    let place = Some(("/src/bank.c", 12));
    threads[0].frames = vec![
        native("__lll_lock_wait", "libc.so.6"),
        Frame { file: Some("./nptl/pthread_mutex_lock.c".into()), ..native("pthread_mutex_lock", "libc.so.6") },
        frame(FrameKind::Native, "transfer", place, Some("bank")),
        frame(FrameKind::Native, "main", Some(("/src/bank.c", 40)), Some("bank")),
    ];
    (report.waits[0].frame, report.waits[0].at) = (Some(1), at(1, Some(2)));
    (report.holds[1].frame, report.holds[1].at) = (Some(2), at(2, None));
    let text = text(&with_scenes(report), 120);
    // Without the source, the number of the line stands once.
    assert!(text.contains("  --> /src/bank.c:12 transfer ") && !text.contains("   12 |"), "{text}");
}

#[test]
fn long_stacks_and_many_threads_are_folded() {
    let mut report = seed();
    let deep: Vec<Frame> = (0..5000).map(|line| python("recurse", "/r.py", line)).collect();
    report.processes[0].threads[0].frames.extend(deep);
    report.processes[0].threads.extend((1000..1100).map(|tid| thread(tid, "w", Vec::new())));
    // Threads with different activities are listed one by one, up to a number.
    let each = (2000..2100).map(|tid| thread(tid, "v", vec![python("step", "/v.py", tid as u32)]));
    let each = each.map(|one| Thread { at: at(0, None), ..one });
    report.processes[0].threads.extend(each);
    let text = text(&report, 100);
    assert!(text.contains("     ... 4956 frames ...\n"), "{text}");
    assert!(
        text.contains("  100 threads  sleeping\n       w (1000), w (1001), w (1002), w (1003), and 96 more"),
        "{text}"
    );
    assert!(text.contains("  and 83 more threads"), "{text}");
    assert!(text.lines().count() < 130);
    let all = detailed(&report, Detail { all: true, ..Detail::default() });
    assert!(all.contains("stack of v (2099):\n  #0   step  v.py:2099"), "{all}");
    assert_eq!(all.matches("\nstack of ").count(), report.processes[0].threads.len());
}

/// The functions of a stack that stand in no run.
fn shown(frames: Vec<Frame>) -> Vec<String> {
    let thread = thread(1, "t", frames);
    let runs = crate::render::fold::runs(&thread, |_| false);
    let is_shown = |index: &usize| !runs.iter().any(|run| run.frames.contains(index));
    (0..thread.frames.len()).filter(is_shown).filter_map(|index| thread.frames[index].function.clone()).collect()
}

fn of(owner: &str, frame: Frame) -> Frame {
    Frame { belongs_to: Some(owner.to_owned()), ..frame }
}

#[test]
fn a_finaliser_of_a_package_and_its_occasion_are_not_folded() {
    let stack = |method: &str| {
        vec![
            of("redis", python("Lock.acquire", "/redis/lock.py", 1)),
            of("redis", python("Pool.release", "/redis/pool.py", 2)),
            of("redis", python(method, "/redis/client.py", 3)),
            native("_PyEval_Vector", "python3.12"),
            native("PyObject_CallOneArg", "python3.12"),
            native("gc_collect_main.constprop.0", "python3.12"),
            native("gc_alloc", "python3.12"),
            native("PyList_New", "python3.12"),
            python("main", "/app.py", 4),
        ]
    };
    assert_eq!(shown(stack("PubSub.__del__")), ["PubSub.__del__", "gc_collect_main.constprop.0", "main"]);
    assert_eq!(shown(stack("on_death")), ["on_death", "gc_collect_main.constprop.0", "main"]);
    let mut plain = stack("close");
    plain.remove(5);
    assert_eq!(shown(plain), ["main"]);
}

#[test]
fn a_callback_of_a_library_is_not_folded() {
    let called = |module: &str| {
        shown(vec![
            of("jax", python("acquire", "/jax/a.py", 1)),
            of("jax", python("wait", "/jax/a.py", 2)),
            of("jax", python("callback", "/jax/b.py", 2)),
            native("PyObject_Call", "python3.12"),
            native("call", module),
            native("_PyEval_Vector", "python3.12"),
            python("main", "/app.py", 4),
        ])
    };
    assert_eq!(called("libcuda.so.1"), ["callback", "main"]);
    assert_eq!(called("python3.12"), ["main"]);
}

fn detailed(report: &Report, detail: Detail) -> String {
    let mut out = Vec::new();
    render(report, &Style { detail, ..Style::plain() }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn one_thread_is_told_of_with_what_it_waits_for_and_who_wants_what_it_holds() {
    let text = detailed(&seed(), Detail { thread: Some(533), ..Detail::default() });
    for line in [
        "  waits for rwlock 0x33b84080 (read)  in  cuLaunchKernel <- train.py:56 step  (recorded)",
        "  occupancy (543) holds rwlock 0x33b84080 (write) (recorded)",
        "    MainThread (533) holds the GIL (recorded): a cycle",
        "  holds the GIL  (recorded)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("stack of MainThread (533):") && !text.contains("stack of occupancy"), "{text}");
}

#[test]
fn the_steps_of_decoding_carry_addresses_values_and_what_to_type() {
    let mut report = seed();
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    report.processes[0].threads[0].working = Some(Working {
        system_call: Some(SystemCall { number: 202, name: Some("futex".into()), arguments: vec!["0x33b84088".into()] }),
        registers: vec![pair("rdi", "0x33b84088")],
        native: vec![NativeFrame {
            function: Some("pthread_rwlock_rdlock".into()),
            module: Some("libc.so.6".into()),
            module_offset: Some("0xa296a".into()),
            pc: "0x7f0000001000".into(),
            sp: "0x7ffe00001000".into(),
            cfa: Some("0x7ffe00001040".into()),
            trust: Trust::Cfi,
            registers: vec![pair("rbx", "0x33b84080")],
        }],
        end: "first function of the thread".into(),
        memory: vec![Words {
            resource: "r1".into(),
            address: "0x33b84080".into(),
            words: vec!["0x0000021f".into(); 6],
        }],
    });
    let text = detailed(&report, Detail { thread: Some(533), steps: true, raw: true, ..Detail::default() });
    for words in [
        "in futex(0x33b84088)",
        "rdi=0x33b84088",
        "CFA 0x7ffe00001040;",
        "x/6xw 0x33b84080",
        "thread find 533",
        "native stack of MainThread (533):\n  #0   0x7f0000001000  pthread_rwlock_rdlock  libc.so.6+0xa296a",
        "Python stack of MainThread (533):\n  #0   step  /home/me/train.py:56",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn colour_marks_the_verdict() {
    let mut out = Vec::new();
    render(&seed(), &Style { width: 100, color: true, unicode: true, ..Style::plain() }, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("\x1b[1;31mdeadlock:\x1b[0m "));
    assert!(text.contains("MainThread (533) → occupancy (543)"));
}

/// A cycle of `members` threads: each holds a mutex and waits for the next one's.
pub(in crate::render) fn ring(members: usize) -> Report {
    let mut report = empty();
    let tid = |index: usize| 1000 + index as i32;
    let stack =
        || vec![native("pthread_mutex_lock", "libc.so.6"), frame(FrameKind::Native, "step", Some(("/r.c", 7)), None)];
    report.verdict = Verdict::Deadlock;
    report.processes = seed().processes;
    report.processes[0].threads = (0..members).map(|index| thread(tid(index), "member", stack())).collect();
    report.resources = (0..members)
        .map(|index| {
            resource(&format!("r{index}"), "pthread_mutex", "mutex", Some(&format!("{:#x}", 0x5000 + 64 * index)))
        })
        .collect();
    let next = |index: usize| (index + 1) % members;
    report.holds = (0..members).map(|index| hold(tid(index), &format!("r{index}"), None, Some(1), "owner")).collect();
    report.waits = (0..members)
        .map(|index| wait(tid(index), &format!("r{}", next(index)), None, Some(0), "futex"))
        .map(|wait| Wait { at: at(0, Some(1)), ..wait })
        .collect();
    let edge = |index: usize| Edge {
        process: "p0".into(),
        waiter: Some(tid(index)),
        waiter_resource: None,
        resource: format!("r{}", next(index)),
        holder_process: "p0".into(),
        holder: Some(tid(next(index))),
        holder_resource: None,
        proof: Proof::Recorded,
    };
    report.cycles = vec![Cycle { certainty: Certainty::Exact, edges: (0..members).map(edge).collect() }];
    with_scenes(report)
}

#[test]
fn a_long_cycle_is_told_by_its_first_members() {
    let text = text(&ring(500), 100);
    assert!(text.contains("member (1000) and 499 more"), "{text}");
    assert!(text.contains("  484 threads  wait for mutex"), "{text}");
    assert!(!text.contains("stuck behind it"), "{text}");
    assert!(text.lines().count() < 200, "{text}");
    assert!(!self::text(&ring(17), 100).contains("more member"));
}
