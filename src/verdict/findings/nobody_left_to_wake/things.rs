//! Headlines and advice for a thread that nobody is left to wake, by the kind of thing that it waits for.
//!
//! In: a kind of wake-up, and the terms to tell it in. Out: the end of a headline, and advice. It decides nothing.

use crate::waits::kinds::World;
use crate::waits::model::Completion;

/// Advice where all who could release a semaphore wait for another unit of it.
const ONE_UNIT: &str = "take no second unit while you hold one: split the work, or take all units that it needs at once. A larger \
                        number only moves the load at which it hangs";
/// How tasks end without a word, whatever they were to do.
const LOST_TASK: &str = "look for a task that ended early: an exception of a task that nobody awaits is only logged, and a task \
                         that nobody refers to may be collected while it runs";
/// How threads do.
const LOST_THREAD: &str =
    "look for a thread that ended early, by an error or a return before the call, or was never started";
/// Shows it the next time.
const TIME_OUT: &str = "wait with a time-out, and look at what is left when the time is over";

/// The missing act where a task awaits something, and the advice.
pub(super) fn of_task(completion: Completion) -> (&'static str, Vec<String>) {
    let (missing, advice) = match completion {
        Completion::Put => (
            "nobody is left that puts anything into it",
            "let each producer put an end mark, or cancel the consumers, when the last producer ends (3.13: `Queue.shutdown()`)",
        ),
        Completion::Get => (
            "nobody is left that takes anything out of it",
            "keep a consumer running for as long as something is put, or give the queue no `maxsize`",
        ),
        Completion::Set => (
            "nobody is left that sets it",
            "set the event in a `finally` of the task that is responsible for it, so that it is set after an error, too",
        ),
        Completion::Notify => (
            "nobody is left that notifies it",
            "wait with `wait_for(predicate)`, and notify in a `finally`: a notification before the wait is lost",
        ),
        Completion::Release => (
            "nobody is left that could release it",
            "take it with `async with`, and do not await within it what needs the same semaphore",
        ),
        Completion::Unlock => (
            "the task that took it can no longer release it",
            "take it with `async with`: that releases it after an error and a cancellation, too",
        ),
        Completion::Arrive => (
            "too few tasks are left that could arrive",
            "let a task that gives up call `abort()` of the barrier, so that the others raise BrokenBarrierError",
        ),
        Completion::Resolve => (
            "nobody is left that could complete it",
            "set a result or an exception on every path, and give the wait a limit (`asyncio.timeout`)",
        ),
        Completion::Send => (
            "nobody is left that sends to it",
            "close the other end of the connection when nothing more is sent, and give each read a limit (`asyncio.timeout`)",
        ),
        Completion::Close => (
            "nobody is left that closes its connections",
            "close each connection before wait_closed(), which waits for all of them from 3.12 on (3.13: `Server.close_clients()`)",
        ),
        Completion::Unpark => ("nobody is left that wakes it", "wake it on every path, after an error, too"),
    };
    // The code shows which task took a lock, also where that has ended.
    let lost = (completion != Completion::Unlock).then(|| LOST_TASK.into());
    (missing, std::iter::once(advice.into()).chain(lost).collect())
}

/// The same of a lock in a process that was forked, where no thread has it.
pub(super) fn of_a_copy() -> (&'static str, Vec<String>) {
    let help = [
        "fork before threads are started, or start the child by exec (Python: `multiprocessing.set_start_method(\"spawn\")`)",
        "or renew the lock in the child: `os.register_at_fork(after_in_child=...)`, `pthread_atfork`",
        "if it was not locked at the fork, look for the function that took it and returned without releasing it",
    ];
    (
        "no thread of its process has it: it may have been locked when the process was forked",
        help.map(String::from).into(),
    )
}

/// Advice for tasks that each have a unit and want another one.
pub(super) fn of_units() -> Vec<String> {
    vec![ONE_UNIT.into(), TIME_OUT.into()]
}

/// The same of a thread.
pub(super) fn of_thread(completion: Completion, world: World) -> (&'static str, Vec<String>) {
    let is_python = world == World::Python;
    let (missing, advice) = match (completion, is_python) {
        (Completion::Put, true) => (
            "no producer is left that could put anything into it",
            "let each producer put an end mark in a `finally`, one for each consumer (3.13: `Queue.shutdown()`)",
        ),
        (Completion::Put, false) => (
            "a sender lives, and no thread is left that sends",
            "drop each sender that the waiting thread keeps, before it receives: recv() returns an error once all senders are gone",
        ),
        (Completion::Get, true) => (
            "no consumer is left that could take anything out of it",
            "keep a consumer running for as long as something is put, or give the queue no `maxsize`",
        ),
        (Completion::Get, false) => (
            "a receiver lives, and no thread is left that receives",
            "drop the receiver when its thread ends: send() returns an error then",
        ),
        (Completion::Set, _) => (
            "no thread is left that could set it",
            "set it in a `finally` of the thread that is responsible for it, so that it is set after an error, too, and hand the \
             error over to whoever waits",
        ),
        (Completion::Notify, true) => (
            "no thread is left that could notify it",
            "wait with `wait_for(predicate)`, and change what it tests under the same lock: a notification before the wait is lost",
        ),
        (Completion::Notify, false) => (
            "no thread is left that could signal it",
            "change the predicate and signal under the mutex, and test it before each wait: a signal before the wait is lost",
        ),
        (Completion::Release, _) => ("everyone who could release it waits as well, or has ended", ONE_UNIT),
        (Completion::Unlock, _) => (
            "the thread that took it can no longer release it",
            "take it in a `with` block or by a guard, so that it is released on every path",
        ),
        (Completion::Arrive, true) => (
            "no thread is left that could come",
            "let a party that gives up call `abort()` of the barrier, so that the others raise BrokenBarrierError",
        ),
        (Completion::Arrive, false) => (
            "no thread is left that could come",
            "count the parties where they are started: each must come on every path, or leave (C++: `arrive_and_drop`)",
        ),
        (Completion::Resolve, _) => (
            "no thread is left that could complete it",
            "set a result or an exception on every path; a pool whose workers have ended, or that was shut down, completes nothing",
        ),
        (Completion::Send, _) => ("no thread is left that could send", "close the other end when nothing more is sent"),
        (Completion::Close, _) => ("no thread is left that could close it", "close it in a `finally`"),
        (Completion::Unpark, _) => (
            "no thread is left that could unpark it",
            "let each thread that has a handle of it call unpark() on every path, and test a condition before each park(): the token \
             of an earlier unpark() may be used up",
        ),
    };
    let lost = match completion {
        // The report lists the holders of the units.
        Completion::Release => None,
        _ => Some(LOST_THREAD.to_owned()),
    };
    (missing, std::iter::once(advice.to_owned()).chain(lost).chain([TIME_OUT.to_owned()]).collect())
}

/// The act of a thread that would end the wait: "consumer holds `other`, which producer needs to notify it".
pub(super) fn act(completion: Option<Completion>, world: World) -> &'static str {
    match (completion, world) {
        (Some(Completion::Put), World::Python) => "put into it",
        (Some(Completion::Put), _) => "send",
        (Some(Completion::Get), World::Python) => "take from it",
        (Some(Completion::Get), _) => "receive",
        (Some(Completion::Set), _) => "set it",
        (Some(Completion::Notify), World::Python) => "notify it",
        (Some(Completion::Notify), _) => "signal it",
        (Some(Completion::Release | Completion::Unlock), _) => "release it",
        (Some(Completion::Arrive), _) => "come",
        (Some(Completion::Resolve), _) => "complete it",
        (Some(Completion::Send), _) => "send",
        (Some(Completion::Close), _) => "close it",
        (Some(Completion::Unpark), _) => "unpark it",
        (None, _) => "go on",
    }
}

/// Advice where a host function waits, and `other` for the GPU behind it.
pub(super) fn in_a_host_function(other: &str, act: &str) -> Vec<String> {
    vec![
        "let a host function only hand on what it has, and return: the GPU and all other host functions wait for it".into(),
        "do what may have to wait in a thread of the program, which the host function tells by a queue without a limit or an \
         event"
            .into(),
        format!("or {act} before {other} waits for the GPU"),
    ]
}

/// Advice where a thread waits for `completion` while it holds a lock that `other` needs; `in_a_loop`: `other` runs an event loop.
pub(super) fn under_a_lock(
    lock: &str,
    who: &str,
    other: &str,
    completion: Option<Completion>,
    in_a_loop: bool,
) -> Vec<String> {
    let of_condition = [
        format!("let {who} release {lock} before it waits: a condition releases its own lock only"),
        format!("or make {lock} the lock of the condition, so that one lock guards both"),
    ];
    let first = format!("let {who} release {lock} before it waits");
    match completion {
        Some(Completion::Notify) => of_condition.into(),
        _ if in_a_loop => vec![
            first,
            format!("or let {other} take {lock} by `asyncio.to_thread`: a loop must never wait for a lock of threads"),
        ],
        _ => vec![first, format!("or let {other} do its part without {lock}")],
    }
}
