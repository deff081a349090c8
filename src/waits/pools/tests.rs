//! The family on made-up stacks.

use super::POOL_WORK;
use crate::waits::model::Role;
use crate::waits::testing::{LOCK, Made, observe_made};
use crate::waits::{Certainty, Needs, Observations, Party, Strength};

/// A thread that handed work to rayon's.
const CALLER: &[&str] =
    &["syscall", "std::sys::pal::unix::futex::futex_wait", "rayon_core::latch::LockLatch::wait", "app::main"];
/// A worker without work.
const IDLE: &[&str] = &[
    "syscall",
    "<std::sys::sync::condvar::futex::Condvar>::wait",
    "rayon_core::sleep::Sleep::sleep",
    "<rayon_core::registry::WorkerThread>::wait_until_cold",
    "rayon_core::registry::main_loop",
    "start_thread",
];
/// A worker that runs a closure of the program.
const AT_WORK: &[&str] = &[
    "syscall",
    "app::fill::{closure#0}",
    "<rayon_core::job::StackJob<L, F, R> as rayon_core::job::Job>::execute",
    "<rayon_core::registry::WorkerThread>::wait_until_cold",
    "rayon_core::registry::main_loop",
    "start_thread",
];

/// Threads that sleep on a word of their own each, from LOCK on.
fn made(stacks: &[&[&str]]) -> Made {
    let tids: Vec<i32> = (10..).take(stacks.len()).collect();
    let mut made = Made::new(&tids);
    for (index, stack) in stacks.iter().enumerate() {
        let word = LOCK + 0x10 * index as u64;
        made.u32(word, 7);
        made.futex(index, word, 0x80, 7);
        made.frames(index, stack);
    }
    made
}

fn waits(seen: &Observations) -> Vec<(i32, &str)> {
    let tid = |party: &Party| if let Party::Thread(_, tid) = party { *tid } else { 0 };
    seen.waits.iter().map(|wait| (tid(&wait.waiter), wait.resource.kind.name)).collect()
}

#[test]
fn who_handed_work_out_waits_for_those_that_run_work_and_not_for_idle_ones() {
    let seen = observe_made(vec![made(&[CALLER, IDLE, AT_WORK])]);
    assert_eq!(waits(&seen), [(10, "pool_work"), (11, "pool_work"), (12, "futex")]);
    let holds: Vec<_> =
        seen.holds.iter().map(|hold| (hold.resource.address.0, hold.holder.clone(), hold.frame)).collect();
    assert_eq!(holds, [(LOCK, Party::Thread(0, 12), Some(1))]);
    assert!(seen.holds.iter().all(|hold| hold.strength == Strength::Inferred));
    assert_eq!((seen.waits[0].needs, seen.waits[0].certainty), (Needs::Any, Certainty::Inferred));
    let idle = seen.resources.iter().find(|one| one.role == Some(Role::IdleWork)).expect("the idle worker's");
    assert_eq!((idle.key.kind, idle.key.address.0), (POOL_WORK, LOCK + 0x10));
}

#[test]
fn a_worker_that_waits_in_the_midst_of_work_is_one_that_handed_out_more() {
    let mut stack = IDLE[..4].to_vec();
    stack.extend(["rayon_core::join::join_context", "app::sum"]);
    stack.extend(&AT_WORK[2..]);
    let seen = observe_made(vec![made(&[&stack, AT_WORK])]);
    assert_eq!(waits(&seen), [(10, "pool_work"), (11, "futex")]);
    let holders: Vec<_> = seen.holds.iter().map(|hold| hold.holder.clone()).collect();
    assert_eq!(holders, [Party::Thread(0, 11)]);
}

#[test]
fn where_all_are_idle_nobody_has_the_work_and_others_wait_for_other_things() {
    let own = &["syscall", "app::Queue::take", "app::main"];
    let seen = observe_made(vec![made(&[CALLER, IDLE, own])]);
    assert_eq!(waits(&seen), [(10, "pool_work"), (11, "pool_work"), (12, "futex")]);
    assert!(seen.holds.is_empty(), "{:?}", seen.holds);
}

#[test]
fn without_a_worker_of_the_library_a_wait_in_it_is_what_it_was() {
    let seen = observe_made(vec![made(&[CALLER])]);
    assert_eq!(waits(&seen), [(10, "futex")]);
}

#[test]
fn workers_of_other_libraries_do_no_work_for_this_one() {
    let arrow = &[
        "syscall",
        "arrow::internal::FnOnce<void ()>::FnImpl::invoke()",
        "arrow::internal::ThreadPool::LaunchWorkersUnlocked(int)",
    ];
    let seen = observe_made(vec![made(&[CALLER, IDLE, arrow])]);
    assert!(seen.holds.is_empty(), "{:?}", seen.holds);
}

#[test]
fn a_worker_asks_again_for_what_it_has_from_a_piece_of_work_further_out() {
    let stack = &[
        "syscall",
        "std::sys::sync::mutex::futex::Mutex::lock_contended",
        "app::inner",
        "<rayon_core::job::HeapJob<B> as rayon_core::job::Job>::execute",
        "<rayon_core::registry::WorkerThread>::wait_until_cold",
        "app::outer",
        "<rayon_core::job::StackJob<L, F, R> as rayon_core::job::Job>::execute",
        "rayon_core::registry::main_loop",
    ];
    let frame = |native: u64| Made::sp(0) + 0x40 * native;
    // A guard in the frame of app::outer; the same word in that of app::inner is only an argument.
    for (native, holders) in [(5, 1), (2, 0)] {
        let mut made = made(&[stack]);
        made.u64(frame(native) + 8, LOCK);
        made.u64(frame(native) + 16, 0);
        let seen = observe_made(vec![made]);
        assert_eq!(seen.holds.len(), holders, "{native}: {:?}", seen.holds);
        assert!(
            seen.holds
                .iter()
                .all(|hold| hold.strength == Strength::SoleCandidate && hold.holder == Party::Thread(0, 10))
        );
    }
}

/// A thread of a pool of one, inside a piece of work, that waits for another.
const WAITS_IN_WORK: &[&str] = &[
    "syscall",
    "arrow::FutureImpl::Wait()",
    "arrow::internal::FnOnce<void ()>::FnImpl<Read>::invoke()",
    "arrow::internal::ThreadPool::LaunchWorkersUnlocked(int)::{lambda()#1}",
    "start_thread",
];
/// The same pool's, without work.
const IDLE_OF_ARROW: &[&str] =
    &["syscall", "arrow::internal::ThreadPool::LaunchWorkersUnlocked(int)::{lambda()#1}", "start_thread"];
/// The pool's object, and a piece of work in its queue, each behind the word with its block's size.
const POOL: u64 = 0x5555_0010;
const PIECE: u64 = 0x5555_0090;

/// The pool's queue has a piece of work that has the future with the word at LOCK, if the flag says so.
fn pool_of_one(stacks: &[&[&str]], is_queued: bool) -> Made {
    let mut made = made(stacks);
    made.map(0x5555_0000, None, true);
    made.zero(0x5555_0000, 0x200);
    made.u64(POOL - 8, 0x81);
    made.u64(POOL + 0x18, PIECE);
    made.u64(PIECE - 8, 0x31);
    if is_queued {
        made.u64(PIECE + 8, LOCK);
    }
    for (index, stack) in stacks.iter().enumerate() {
        let in_loop = stack.iter().position(|name| name.contains("LaunchWorkers")).expect("a loop") as u64;
        made.u64(Made::sp(index) + 0x40 * in_loop + 8, POOL);
    }
    made
}

fn holders(seen: &Observations) -> Vec<Party> {
    seen.holds.iter().map(|hold| hold.holder.clone()).collect()
}

#[test]
fn a_worker_that_waits_for_work_in_its_own_queue_waits_for_itself() {
    let seen = observe_made(vec![pool_of_one(&[WAITS_IN_WORK], true)]);
    assert_eq!(waits(&seen), [(10, "pool_work")]);
    assert_eq!(holders(&seen), [Party::Thread(0, 10)]);
    let evidence = seen.holds[0].evidence.join("; ");
    assert!(evidence.contains("in its pool's queue") && evidence.contains("over 2 blocks"), "{evidence}");
}

#[test]
fn a_worker_whose_queue_does_not_lead_there_waits_for_somebody_else() {
    let seen = observe_made(vec![pool_of_one(&[WAITS_IN_WORK], false)]);
    assert_eq!(waits(&seen), [(10, "pool_work")]);
    assert_eq!(holders(&seen), []);
}

#[test]
fn an_idle_worker_of_the_same_pool_takes_the_work() {
    let seen = observe_made(vec![pool_of_one(&[WAITS_IN_WORK, IDLE_OF_ARROW], true)]);
    assert_eq!(holders(&seen), []);
}
