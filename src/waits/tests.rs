//! Every row of the tables in libc.md as a made-up process, with the expected result.

use super::testing::{ARCHITECTURE, LOCK, Made, PD, STACK, number, observe_made};
use super::{Certainty, Gone, Observations, Party, Scope, Strength};
use crate::arch::system_calls::{self as calls, SystemCall};
use crate::image::{Addr, Mapping};
use crate::limits::{self, libc::INSIDE_FRAMES, waits::SEARCHED_FRAMES};
use crate::python::{Gil, Python, PythonThread};

const WAITER: i32 = 10;
const OTHER: i32 = 11;

/// A process of a waiter (10) and two others (11, 12).
fn process() -> Made {
    Made::new(&[WAITER, OTHER, 12])
}

/// One row: the words of the lock, the futex, and (kind, offset of the lock, holder, certainty, mode).
struct Row {
    name: &'static str,
    words: &'static [(u64, u32)],
    futex: (u64, u64, u64),
    kind: &'static str,
    base: u64,
    holder: Option<i32>,
    mode: Option<&'static str>,
}

const fn row(
    name: &'static str,
    words: &'static [(u64, u32)],
    futex: (u64, u64, u64),
    kind: &'static str,
    holder: Option<i32>,
    mode: Option<&'static str>,
) -> Row {
    Row { name, words, futex, kind, base: 0, holder, mode }
}

const MUTEX: &str = "pthread_mutex";
const RWLOCK: &str = "pthread_rwlock";
const W: u32 = 0x8000_0000;

/// libc.md section 1: wait table, values of __lock, rwlock words.
const TABLE: &[Row] = &[
    row("normal", &[(0, 2), (8, 11), (12, 1)], (0, 0x80, 2), MUTEX, Some(11), None),
    row("recursive", &[(0, 2), (4, 3), (8, 11), (16, 1)], (0, 0x80, 2), MUTEX, Some(11), None),
    row("errorcheck", &[(0, 2), (8, 11), (16, 2)], (0, 0x80, 2), MUTEX, Some(11), None),
    row("adaptive", &[(0, 2), (8, 11), (16, 3)], (0, 0x80, 2), MUTEX, Some(11), None),
    row("pshared", &[(0, 2), (8, 11), (16, 0x80)], (0, 0, 2), MUTEX, Some(11), None),
    row("timed lock", &[(0, 2), (8, 11)], (0, 0x189, 2), MUTEX, Some(11), None),
    row("timed clocklock", &[(0, 2), (8, 11)], (0, 0x89, 2), MUTEX, Some(11), None),
    row("timed lock, pshared", &[(0, 2), (8, 11), (16, 0x80)], (0, 0x109, 2), MUTEX, Some(11), None),
    row("timed robust", &[(0, W | 11), (8, 11), (16, 0x90)], (0, 0x109, 0x8000_000b), MUTEX, Some(11), None),
    // WAIT_BITSET without a time-out is how Rust's own mutexes wait: what is beside them is their data.
    row("a mutex of Rust beside numbers", &[(0, 2), (8, 11)], (0, 0x89, 2), "futex", None, None),
    row("a number that no thread has", &[(0, 2), (8, 0x6800_0000)], (0, 0x80, 2), "futex", None, None),
    row("self", &[(0, 2), (8, 10)], (0, 0x80, 2), MUTEX, Some(10), None),
    row("PI", &[(0, W | 11), (8, 11), (16, 0x20)], (0, 0x86, 0), MUTEX, Some(11), None),
    row("PI 2.27", &[(0, W | 11), (8, 11), (16, 0x20)], (0, 0x86, 1), MUTEX, Some(11), None),
    row("PI clocklock", &[(0, W | 11), (8, 11), (16, 0x20)], (0, 0x8d, 0), MUTEX, Some(11), None),
    row("robust", &[(0, W | 11), (8, 11), (16, 0x90)], (0, 0, 0x8000_000b), MUTEX, Some(11), None),
    row("robust PI", &[(0, W | 11), (8, 11), (16, 0xb0)], (0, 6, 0), MUTEX, Some(11), None),
    row(
        "robust inconsistent",
        &[(0, W | 12), (8, 0x7fff_ffff), (16, 0x90)],
        (0, 0, 0x8000_000c),
        MUTEX,
        Some(12),
        None,
    ),
    row("wrlock, writer", &[(0, 3), (8, 1), (12, 3), (24, 11)], (12, 0x189, 3), RWLOCK, Some(11), Some("write")),
    row("rdlock, writer", &[(0, 0xb), (8, 3), (12, 1), (24, 11)], (8, 0x189, 3), RWLOCK, Some(11), Some("read")),
    row("rdlock, writers", &[(0, 0x13), (8, 3), (12, 3), (24, 11)], (8, 0x189, 3), RWLOCK, Some(11), Some("read")),
    row("wrlock behind that", &[(0, 0x13), (8, 3), (12, 3), (24, 11)], (12, 0x189, 3), RWLOCK, Some(11), Some("write")),
    row("wrlock pshared", &[(0, 3), (8, 1), (12, 3), (24, 11)], (12, 0x109, 3), RWLOCK, Some(11), Some("write")),
    row("wrlock, reader", &[(0, 0xa), (8, 2), (12, 1)], (8, 0x189, 2), RWLOCK, None, Some("write")),
    row("wrlock, 3 readers", &[(0, 0x1a), (8, 2), (12, 1)], (8, 0x189, 2), RWLOCK, None, Some("write")),
    row("second wrlock", &[(0, 0x12), (8, 2), (12, 3)], (12, 0x189, 3), RWLOCK, None, Some("write")),
    // A place in the queue, distinguished from the lock by the address of __writers.
    Row {
        base: 4,
        ..row(
            "reader behind writer",
            &[(0, 0xe), (8, 2), (12, 1), (48, 2)],
            (0, 0x189, 0xe),
            RWLOCK,
            None,
            Some("read"),
        )
    },
    row("sem_wait", &[(0, 0), (4, 1)], (0, 0x189, 0), "semaphore", None, None),
    row("sem pshared", &[(0, 0), (4, 2), (8, 0x80)], (0, 0x109, 0), "semaphore", None, None),
    row("lll lock", &[(0, 2), (16, 0xffff)], (0, 0x80, 2), "futex", None, None),
    row("unknown futex", &[(0, 77)], (0, 0x80, 77), "futex", None, None),
];

/// The waits of `tid` as (kind, address).
fn waits_of(seen: &Observations, tid: i32) -> Vec<(&'static str, u64)> {
    let of = |w: &&super::Wait| w.waiter == Party::Thread(0, tid);
    seen.waits.iter().filter(of).map(|w| (w.resource.kind.name, w.resource.address.0)).collect()
}

fn gap(seen: &Observations, text: &str) -> bool {
    seen.gaps.iter().any(|g| format!("{}: {}", g.what, g.why).contains(text))
}

#[test]
fn every_row_of_the_tables() {
    for restarted in [false, true] {
        for row in TABLE {
            let mut made = process();
            for &(offset, word) in row.words {
                made.u32(LOCK + offset, word);
            }
            let (offset, operation, value) = row.futex;
            made.futex(0, LOCK + offset, operation, value);
            let timed = restarted || row.name.starts_with("timed");
            if timed && !restarted {
                made.set(0, number(&calls::FUTEX), -516, [LOCK + offset, operation, value, 0x1234, 0, 0]);
            }
            if restarted {
                if matches!(operation & 0x7f, 6 | 13) || row.name.contains("Rust") {
                    continue;
                }
                made.set(0, number(&calls::RESTART_SYSCALL), -516, [LOCK + offset, operation, value, 0x1234, 0, 0]);
            }
            let seen = observe_made(vec![made]);
            let name = row.name;
            assert_eq!(waits_of(&seen, WAITER), [(row.kind, LOCK + row.base)], "{name}: {seen:#?}");
            assert_eq!(seen.waits[0].mode, row.mode, "{name}");
            assert_eq!(seen.waits[0].timed, timed, "{name}");
            assert_eq!(seen.waits[0].since_ms, Some(7), "{name}");
            assert!(!seen.waits[0].evidence.is_empty(), "{name}");
            let holders: Vec<_> =
                seen.holds.iter().map(|h| (h.holder.clone(), h.strength.certainty(), h.gone)).collect();
            let expected: Vec<_> = row.holder.iter().map(|&t| (Party::Thread(0, t), Certainty::Exact, None)).collect();
            assert_eq!(holders, expected, "{name}");
            assert_eq!(seen.resources.len(), 1, "{name}");
        }
    }
}

#[test]
fn a_woken_thread_waits_for_nothing() {
    for (word, operation, value) in [(1, 0x80, 2), (0, 0x189, 2), (5, 0x80, 0)] {
        let mut made = process();
        made.u32(LOCK, word);
        made.u32(LOCK + 8, 11);
        made.futex(0, LOCK, operation, value);
        let seen = observe_made(vec![made]);
        assert!(seen.waits.is_empty() && seen.holds.is_empty(), "{seen:#?}");
    }
}

#[test]
fn upper_halves_of_argument_registers_are_ignored() {
    let mut made = process();
    made.u32(LOCK, 2);
    made.u32(LOCK + 8, 11);
    made.futex(0, LOCK, 0xdead_0000_0080, 0xffff_ffff_0000_0002);
    assert_eq!(waits_of(&observe_made(vec![made]), WAITER), [(MUTEX, LOCK)]);
}

#[test]
fn conditions_of_both_layouts() {
    for (offset, operation, references) in
        [(40, 0x80, 36), (44, 0x189, 36), (32, 0x189, 28), (36, 0x189, 28), (40, 0x0, 36), (32, 0x109, 28)]
    {
        let mut made = process();
        made.u32(LOCK + references, 1 << 3 | 2);
        made.futex(0, LOCK + offset, operation, 0);
        made.u64(Made::sp(0) + 0x58, LOCK);
        made.u64(Made::sp(0) + 0x60, LOCK + 0x80);
        let seen = observe_made(vec![made]);
        assert_eq!(waits_of(&seen, WAITER), [("pthread_cond", LOCK)], "{offset}");
        let state = &seen.resources[0].state;
        assert!(state.contains(&("waiters", 1)) && state.contains(&("mutex", LOCK as i64 + 0x80)), "{state:?}");
        assert!(seen.holds.is_empty());
    }
}

#[test]
fn joins_of_both_forms() {
    for (offset, operation, value) in [(0x2d0, 0, 11), (0x2d0, 0x109, 11), (0x628, 0x109, 2)] {
        let mut made = process();
        made.futex(0, PD + 0x1000 + offset, operation, value);
        let seen = observe_made(vec![made]);
        assert_eq!(waits_of(&seen, WAITER), [("thread", PD + 0x1000)], "{offset:#x}");
        assert_eq!(seen.holds[0].holder, Party::Thread(0, 11));
        assert_eq!(seen.resources[0].label.to_string(), "thread `t11` (11)");
    }
}

/// Without eBPF, only the call of a sleeping thread is known. On 64-bit Arm no descriptor points to itself.
#[test]
fn a_thread_without_registers_is_joined_by_its_place_in_the_list_of_stacks() {
    const TID: u64 = PD + 0x1000 + 0x2d0;
    const HEAD: u64 = LOCK;
    let made = |back: u64| {
        let mut made = process();
        made.threads[1].registers = None;
        made.u64(PD + 0x1000 + 0x10, 0);
        made.u64(TID - 16, HEAD);
        made.u64(HEAD + 8, back);
        made.futex(0, TID, 0x109, 11);
        waits_of(&observe_made(vec![made]), WAITER)
    };
    assert_eq!(made(TID - 16), [("thread", PD + 0x1000)]);
    assert_eq!(made(TID), [("futex", TID)], "its neighbour is no link");
}

#[test]
fn file_lock_names_its_owner_by_pthread_self() {
    let mut made = process();
    made.u32(LOCK, 2);
    made.u64(LOCK + 8, PD + 0x2000);
    made.futex(0, LOCK, 0x80, 2);
    let seen = observe_made(vec![made]);
    assert_eq!(waits_of(&seen, WAITER), [("stdio_file", LOCK)]);
    assert_eq!(seen.holds[0].holder, Party::Thread(0, 12));
    // Nothing but the call of a sleeping thread is known, and its descriptor stands in the list of stacks.
    let mut made = process();
    made.threads[2].registers = None;
    made.u64(PD + 0x2000 + 0x10, 0);
    made.u64(PD + 0x2000 + 0x2c0, PD + 0x1000 + 0x2c0);
    made.u64(PD + 0x1000 + 0x2c8, PD + 0x2000 + 0x2c0);
    made.u32(LOCK, 2);
    made.u64(LOCK + 8, PD + 0x2000);
    made.futex(0, LOCK, 0x80, 2);
    let seen = observe_made(vec![made]);
    assert_eq!(waits_of(&seen, WAITER), [("stdio_file", LOCK)]);
    assert_eq!(seen.holds[0].holder, Party::Thread(0, 12));
}

#[test]
fn parked_on_a_priority_inheriting_mutex() {
    // Relock by the owner itself, and an owner that exited.
    for (word, gone) in [(10u32, None), (W | 99, Some(Gone::Exited))] {
        let mut made = process();
        made.u32(LOCK, word);
        made.u32(LOCK + 4, 1);
        made.u32(LOCK + 8, word & !W);
        made.u32(LOCK + 12, 1);
        made.u32(LOCK + 16, 0x20);
        made.futex(0, Made::sp(0) + 8, 0x80, 0);
        made.u64(Made::sp(0) + 0x30, LOCK);
        let seen = observe_made(vec![made]);
        assert_eq!(waits_of(&seen, WAITER), [(MUTEX, LOCK)]);
        assert_eq!(seen.holds[0].gone, gone);
    }
}

#[test]
fn a_mutex_between_two_owners_is_a_gap() {
    let mut made = process();
    made.u32(LOCK, 2);
    made.futex(0, LOCK, 0x80, 2);
    made.frames(0, &["__lll_lock_wait", "___pthread_mutex_lock", "main"]);
    let seen = observe_made(vec![made]);
    assert_eq!(waits_of(&seen, WAITER), [(MUTEX, LOCK)]);
    assert_eq!(seen.waits[0].frame, Some(1));
    assert!(seen.holds.is_empty() && gap(&seen, "changing hands"));
}

#[test]
fn readers_are_candidates() {
    let mut made = process();
    made.u32(LOCK, 0x12);
    made.u32(LOCK + 8, 2);
    made.u32(LOCK + 12, 1);
    made.futex(0, LOCK + 8, 0x189, 2);
    made.frames(0, &["pthread_rwlock_wrlock", "main"]);
    made.set(1, number(&calls::CLOCK_NANOSLEEP), -516, [0, 0, 0, 0, 0, 0]);
    made.frames(1, &["clock_nanosleep", "reader"]);
    made.u64(Made::sp(1) + 0x48, LOCK);
    let seen = observe_made(vec![made]);
    assert_eq!(seen.holds.len(), 1);
    let hold = &seen.holds[0];
    assert_eq!((hold.holder.clone(), hold.strength), (Party::Thread(0, 11), Strength::Candidate));
    assert_eq!((hold.frame, hold.mode), (Some(1), Some("read")));
    assert!(gap(&seen, "glibc records no reader ids; 2 hold it"));
    assert!(seen.resources.iter().any(|r| r.state.contains(&("readers", 2))));
}

#[test]
fn the_waiting_call_is_no_evidence_that_its_thread_reads() {
    let mut made = process();
    made.u32(LOCK, 0xa);
    made.u32(LOCK + 8, 2);
    made.u32(LOCK + 12, 1);
    made.futex(0, LOCK + 8, 0x189, 2);
    made.frames(0, &["pthread_rwlock_wrlock", "main"]);
    made.u64(Made::sp(0) + 0x50, LOCK);
    let seen = observe_made(vec![made]);
    assert!(seen.holds.is_empty(), "{:?}", seen.holds);
}

/// A process whose thread 10 waits for a mutex of `owner`.
fn owned_by(owner: u32) -> Made {
    let mut made = process();
    made.u32(LOCK, 2);
    made.u32(LOCK + 8, owner);
    made.futex(0, LOCK, 0x80, 2);
    made
}

#[test]
fn owners_that_are_gone() {
    let seen = observe_made(vec![owned_by(99)]);
    assert_eq!(seen.holds[0].holder, Party::Absent(0, 99));
    assert_eq!(seen.holds[0].gone, Some(Gone::Exited));

    let mut child = owned_by(99);
    (child.parent, child.parent_threads) = (Some(1), vec![(99, "logger".into())]);
    let seen = observe_made(vec![child]);
    assert_eq!(seen.holds[0].gone, Some(Gone::LeftInParent));
    assert!(seen.holds[0].evidence.iter().any(|e| e.contains("'logger'")), "{seen:#?}");

    let mut child = owned_by(21);
    child.parent = Some(20);
    let seen = observe_made(vec![child, Made::new(&[20, 21])]);
    assert_eq!(seen.holds[0].gone, Some(Gone::LeftInParent));
}

fn shared(inode: u64) -> Mapping {
    Mapping {
        start: Addr(LOCK),
        end: Addr(LOCK + 0x1000),
        read: true,
        write: true,
        execute: false,
        shared: true,
        offset: 0x2000,
        device: (0, 1),
        inode,
        path: Some("/dev/shm/x".into()),
        deleted: false,
    }
}

#[test]
fn owners_in_other_processes() {
    for (inode, captured) in [(5, true), (6, false)] {
        let (mut waiter, mut other) = (owned_by(21), Made::new(&[20, 21]));
        waiter.mappings.push(shared(5));
        other.mappings.push(shared(inode));
        let seen = observe_made(vec![waiter, other]);
        assert_eq!(seen.waits[0].resource.scope, Scope::Shared((0, 1), 5, 0x2000));
        if captured {
            assert_eq!(seen.holds[0].holder, Party::Thread(1, 21));
        } else {
            assert!(seen.holds.is_empty() && gap(&seen, "outside the capture"));
        }
    }
    let mut dead = process();
    dead.mappings.push(shared(5));
    dead.u32(LOCK, W | 0x4000_0000 | 77);
    dead.u32(LOCK + 16, 0x20);
    dead.futex(0, LOCK, 6, 0);
    assert_eq!(observe_made(vec![dead]).holds[0].gone, Some(Gone::ProcessDead));
}

#[test]
fn owner_ids_are_those_of_the_namespace() {
    let mut made = owned_by(2);
    made.u32(PD + 0x1000 + 0x2d0, 2);
    let seen = observe_made(vec![made]);
    assert_eq!(seen.holds[0].holder, Party::Thread(0, OTHER));
}

#[test]
fn a_reused_id_is_not_exact() {
    let mut made = owned_by(11);
    made.threads[1].start_ticks = Some(900);
    let seen = observe_made(vec![made]);
    assert_eq!(seen.holds[0].strength, Strength::Inferred);
    let mut made = owned_by(11);
    made.threads[1].start_ticks = Some(900);
    made.frames(1, &["work"]);
    made.u64(Made::sp(1) + 0x10, LOCK);
    assert_eq!(observe_made(vec![made]).holds[0].strength, Strength::Recorded);
}

#[test]
fn musl_words() {
    type Case = (&'static [(u64, u32)], u64, u64, &'static str, Option<i32>);
    let cases: [Case; 4] = [
        (&[(4, W | 16)], 4, 0xffff_ffff_8000_0010, MUTEX, None),
        (&[(0, 1), (4, W | 11)], 4, 0x8000_000b, MUTEX, Some(11)),
        (&[(0, 2), (4, W | 12)], 4, 0x8000_000c, MUTEX, Some(12)),
        (&[(0, ALL)], 0, 0xffff_ffff, "futex", None),
    ];
    const ALL: u32 = 0xffff_ffff;
    for (words, offset, value, kind, holder) in cases {
        let mut made = process();
        for index in 0..3 {
            let pd = made.pd(index);
            made.u32(pd + 0x2d0, 0);
            made.u32(pd + 48, 10 + index as u32);
        }
        for &(at, word) in words {
            made.u32(LOCK + at, word);
        }
        made.futex(0, LOCK + offset, 0x80, value);
        let seen = observe_made(vec![made]);
        assert_eq!(waits_of(&seen, WAITER), [(kind, LOCK)]);
        assert_eq!(seen.holds.first().map(|h| h.holder.clone()), holder.map(|t| Party::Thread(0, t)));
    }
    let mut made = process();
    for index in 0..3 {
        let pd = made.pd(index);
        made.u32(pd + 0x2d0, 0);
        made.u32(pd + 48, 10 + index as u32);
    }
    made.u32(PD + 0x1000 + 56, 2);
    made.futex(0, PD + 0x1000 + 56, 0x80, 2);
    assert_eq!(waits_of(&observe_made(vec![made]), WAITER), [("thread", PD + 0x1000)]);
}

#[test]
fn neighbours_of_a_mutex_make_no_condition() {
    // Two mutexes side by side, the address of the first beside another pointer on the stack.
    let mut made = process();
    made.u32(LOCK + 40, 2);
    made.u32(LOCK + 48, 11);
    made.u32(LOCK + 36, 8);
    made.futex(0, LOCK + 40, 0x80, 2);
    made.u64(Made::sp(0) + 0x58, LOCK);
    made.u64(Made::sp(0) + 0x60, LOCK + 0x80);
    assert_eq!(waits_of(&observe_made(vec![made]), WAITER), [(MUTEX, LOCK + 40)]);
}

#[test]
fn a_restarted_call_that_may_be_no_futex_stays_in_sight() {
    let mut made = process();
    made.set(0, number(&calls::RESTART_SYSCALL), -516, [LOCK, 9, 1000, 0, 0, 0]);
    let seen = observe_made(vec![made]);
    assert_eq!((seen.waits[0].resource.kind.name, seen.waits[0].timed), ("system_call", true));
}

#[test]
fn other_system_calls() {
    type Case = (&'static SystemCall, i64, [u64; 6], &'static str, bool);
    let cases: [Case; 9] = [
        (&calls::READ, -512, [3, 0, 0, 0, 0, 0], "descriptor", false),
        (&calls::READ, -512, [0, 0, 0, 0, 0, 0], "stdin", false),
        (&calls::POLL, -516, [LOCK, 1, 0xffff_ffff, 0, 0, 0], "events", false),
        (&calls::POLL, -516, [LOCK, 1, 1000, 0, 0, 0], "events", true),
        (&calls::CLOCK_NANOSLEEP, -516, [1, 0, 0, 0, 0, 0], "timer", true),
        (&calls::RESTART_SYSCALL, -516, [1, 0, 0, 0, 0, 0], "timer", true),
        (&calls::EPOLL_WAIT, -4, [4, 0, 0, 0xffff_ffff, 0, 0], "events", false),
        (&calls::WAIT4, -512, [55, 0, 0, 0, 0, 0], "process", false),
        (&calls::FLOCK, -512, [3, 2, 0, 0, 0, 0], "file_lock", false),
    ];
    for (call, result, arguments, kind, timed) in cases {
        let mut made = process();
        made.set(0, number(call), result, arguments);
        let seen = observe_made(vec![made]);
        assert_eq!(seen.waits.len(), 1, "{}", call.name);
        assert_eq!((seen.waits[0].resource.kind.name, seen.waits[0].timed), (kind, timed), "{}", call.name);
    }
    let mut made = process();
    made.set(0, number(&calls::WAIT4), 55, [55, 0, 0, 0, 0, 0]);
    assert!(observe_made(vec![made]).waits.is_empty(), "a call that returned is no wait");
    let mut parent = process();
    parent.set(0, number(&calls::WAIT4), -512, [55, 0, 0, 0, 0, 0]);
    let mut child = Made::new(&[55]);
    child.parent = Some(10);
    assert_eq!(observe_made(vec![parent, child]).holds[0].holder, Party::Process(1));
}

/// How a thread waits for Rust's own mutex at `lock`, with another lock's address in its caller's frame.
fn rust_waiter(made: &mut Made, index: usize, lock: u64, other: u64) {
    made.u32(lock, 2);
    made.futex(index, lock, 0x89, 2);
    made.frames(index, &["syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended", "work"]);
    made.u64(Made::sp(index) + 0x88, other);
}

#[test]
fn candidates_by_reference_are_found_among_any_number_of_threads() {
    let tids: Vec<i32> = (10..612).collect();
    let mut made = Made::new(&tids);
    let (first, second) = (600, 601);
    rust_waiter(&mut made, first, LOCK, LOCK + 0x40);
    rust_waiter(&mut made, second, LOCK + 0x40, LOCK);
    let seen = observe_made(vec![made]);
    let holds: Vec<_> = seen.holds.iter().map(|hold| (hold.resource.address.0, hold.holder.clone())).collect();
    let thread = |index: usize| Party::Thread(0, tids[index]);
    assert_eq!(holds, [(LOCK, thread(second)), (LOCK + 0x40, thread(first))], "{:#?}", seen.gaps);
    assert!(seen.holds.iter().all(|hold| hold.strength == Strength::Candidate && hold.frame == Some(2)));
    assert!(!gap(&seen, "too deep"));
    // Threads that do not have the lock at hand are no holders.
    let mut made = Made::new(&tids[..3]);
    rust_waiter(&mut made, 2, LOCK, 0);
    assert!(observe_made(vec![made]).holds.is_empty());
}

#[test]
fn what_a_call_that_is_over_left_behind_is_no_reference() {
    let (kept, arguments) = (ARCHITECTURE.callee_saved(), ARCHITECTURE.arguments());
    // Kept by the callee, a word of a frame, and the rest.
    let live = kept.iter().map(|register| (register, true));
    let left_over = [arguments.last(), ARCHITECTURE.caller_saved().last()].into_iter().flatten();
    for (register, holds) in live.chain(left_over.map(|register| (register, false))) {
        let mut made = process();
        rust_waiter(&mut made, 0, LOCK, 0);
        made.set(1, number(&calls::CLOCK_NANOSLEEP), -516, [0; 6]);
        if let Some(registers) = &mut made.threads[1].registers {
            registers.general.set(*register, LOCK);
        }
        made.frames(1, &["clock_nanosleep", "work"]);
        let seen = observe_made(vec![made]);
        let held: Vec<_> = seen.holds.iter().map(|hold| hold.holder.clone()).collect();
        assert_eq!(
            held,
            if holds { vec![Party::Thread(0, OTHER)] } else { Vec::new() },
            "{}",
            ARCHITECTURE.register_name(*register)
        );
        // Nor does it say where an owner took a lock that records him.
        let mut made = owned_by(11);
        made.set(1, number(&calls::CLOCK_NANOSLEEP), -516, [0; 6]);
        if let Some(registers) = &mut made.threads[1].registers {
            registers.general.set(*register, LOCK);
        }
        made.frames(1, &["clock_nanosleep", "work"]);
        let seen = observe_made(vec![made]);
        assert_eq!(seen.holds[0].frame.is_some(), holds, "{}", ARCHITECTURE.register_name(*register));
    }
}

#[test]
fn a_stack_that_is_too_deep_to_be_searched_is_a_gap() {
    let mut made = process();
    rust_waiter(&mut made, 0, LOCK, 0);
    made.frames(1, &["deep"]);
    if let Some(frame) = made.stacks.last_mut().and_then(|stack| stack.native.frames.first_mut()) {
        frame.cfa = Some(frame.sp + (1 << 19));
    }
    assert!(gap(&observe_made(vec![made]), "too deep"));
}

#[test]
fn a_stack_of_too_many_frames_is_a_gap() {
    let frames = |count: usize| {
        let mut made = process();
        rust_waiter(&mut made, 0, LOCK, 0);
        made.frames(1, &vec!["deep"; count]);
        gap(&observe_made(vec![made]), "too deep")
    };
    assert!(frames(SEARCHED_FRAMES + 1) && !frames(SEARCHED_FRAMES));
}

#[test]
fn threads_too_deep_to_tell_whether_they_are_inside_the_allocator_are_told_of() {
    let told = |count: usize| {
        limits::begin();
        let mut made = process();
        made.u32(LOCK, 2);
        made.futex(0, LOCK, 0x80, 2);
        made.frames(0, &["__lll_lock_wait_private", "malloc", "work"]);
        made.frames(1, &vec!["deep"; count]);
        observe_made(vec![made]);
        limits::told()
    };
    let met = told(INSIDE_FRAMES + 1);
    assert!(met.len() == 1 && met[0].what.starts_with("holder of malloc arena lock"), "{met:?}");
    assert!(met[0].why.contains(&INSIDE_FRAMES.to_string()), "{met:?}");
    assert!(told(INSIDE_FRAMES).is_empty());
}

const GIL: u64 = 0x5100_0000;

/// A process with Python on threads 10 and 11; `locked` with the thread state of 11.
fn python(locked: i32) -> Made {
    let mut made = process();
    made.zero(GIL, 216);
    let thread = |tstate, tid| PythonThread {
        tstate: Addr(tstate),
        interpreter: 0,
        ident: 0,
        tid: Some(tid),
        name: None,
        entries: Vec::new(),
        gap: None,
    };
    made.python = Some(Python {
        runtime: Addr(0x100),
        gils: vec![Gil {
            address: Addr(GIL),
            interpreters: vec![0],
            locked,
            last_holder: Addr(0x900),
            switch_number: 5,
            cond: Addr(GIL + 32),
            mutex: Addr(GIL + 80),
            switch_cond: Addr(GIL + 120),
        }],
        threads: vec![thread(0x800, 10), thread(0x900, 11)],
        ..Python::unreadable((3, 12, 1))
    });
    made
}

#[test]
fn the_gil() {
    let cases =
        [(calls::FUTEX, 0, 0), (calls::FUTEX, 1, 0), (calls::RESTART_SYSCALL, 0, 0), (calls::RESTART_SYSCALL, 1, 0)];
    for (call, word, value) in cases {
        let mut made = python(1);
        made.u32(GIL + 32 + 40, word);
        made.set(0, number(&call), -516, [GIL + 32 + 40, 0x89, value, 0x1234, 0, 0xffff_ffff]);
        let seen = observe_made(vec![made]);
        assert_eq!(waits_of(&seen, WAITER), [("gil", GIL)], "also just woken");
        assert!(!seen.waits[0].timed);
        assert_eq!(seen.resources[0].label.to_string(), "GIL");
        assert_eq!(seen.holds[0].holder, Party::Thread(0, 11));
        assert_eq!(seen.holds[0].strength, Strength::Recorded);
    }
    let mut free = python(0);
    free.futex(0, GIL + 32 + 40, 0x89, 0);
    let seen = observe_made(vec![free]);
    assert!(seen.holds.is_empty() && seen.waits.len() == 1);
    for word in [GIL + 80, GIL + 120 + 40] {
        let mut moving = python(1);
        moving.futex(0, word, 0x80, 0);
        assert!(observe_made(vec![moving]).waits.is_empty());
    }
}

#[test]
fn a_thread_on_its_way_to_the_gil() {
    for (index, function, at_hand, expected) in [
        (0, "take_gil", true, 1),
        (0, "PyEval_RestoreThread", true, 1),
        (0, "take_gil", false, 0),
        (0, "compute", true, 0),
        (1, "PyEval_RestoreThread", true, 0),
    ] {
        let mut made = python(1);
        if at_hand {
            made.u64(Made::sp(index) + 0x48, GIL + 32);
        }
        made.frames(index, &["pthread_cond_timedwait", function, "main"]);
        assert_eq!(observe_made(vec![made]).waits.len(), expected, "{function}");
    }
}

#[test]
fn damaged_memory_never_panics() {
    // Every word of lock, descriptor and stack replaced by hostile values, and memory missing at all.
    let hostile = [0, 1, 2, u32::MAX, 0x7fff_ffff, W, STACK as u32, LOCK as u32, LOCK as u32 + 4];
    for (i, &word) in hostile.iter().enumerate() {
        for operation in [0, 0x80, 0x86, 0x189] {
            for value in [0, 3, u64::from(word)] {
                let mut made = python(1);
                for at in (0..0x80).step_by(4) {
                    made.u32(LOCK + at, hostile[(i + at as usize) % hostile.len()]);
                    made.u32(Made::sp(0) + at, word);
                }
                made.futex(0, LOCK + u64::from(word & 15), operation, value);
                observe_made(vec![made]);
            }
        }
    }
    for address in [0, 1, u64::MAX, u64::MAX - 3, 0xffff_ffff_ffff_f000] {
        for operation in [0, 0x80, 0x86, 0x189] {
            let mut made = process();
            made.bytes.0.clear();
            made.futex(0, address, operation, 2);
            if let Some(registers) = &mut made.threads[0].registers {
                registers.general.set_sp(Addr(address));
                registers.thread_pointer = Addr(address);
            }
            made.frames(0, &["pthread_mutex_lock"]);
            observe_made(vec![made]);
        }
    }
}
