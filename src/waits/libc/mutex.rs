//! `pthread_mutex_t` of every kind, and the {lock, count, owner pointer} lock of FILE.
//!
//! In: a [`Case`]. Out: the mutex and its owner: from `__owner`, or for priority-inheriting and robust ones from the
//! lock word, because their `__owner` lags and is special after an owner's death.

use super::layout::{OWNER_DIED, TID_MASK, WAITERS, mutex as layout};
use super::once::ALLOCATION;
use super::{Case, HolderRule};
use crate::arch::Register;
use crate::arch::system_calls::Waits;
use crate::image::Addr;
use crate::limits::libc::{GREATEST_OWNER, LOWEST_ADDRESS, MOST_USERS, PARKED_BYTES, PARKED_FRAMES};
use crate::origin::is_c_library;
use crate::symbols::base_symbol;
use crate::waits::blocked_call::{FUTEX_WAIT, FUTEX_WAIT_BITSET, Futex};
use crate::waits::blocked_on::{BlockedOn, Owner, Ownership};
use crate::waits::kinds;
use crate::waits::thread::{Process, ThreadView};

/// Calls that wait for a mutex.
pub(super) const ENTRY_POINTS: &[&str] =
    &["pthread_mutex_", "lll_lock", "lll_timedlock", "lll_clocklock", "pthread_cond_"];
/// Calls that wait for a FILE.
pub(super) const FILE_ENTRY_POINTS: &[&str] =
    &["f", "put", "get", "vf", "printf", "vprintf", "IO_", "lll_lock", "perror", "exit", "ungetc", "setv"];

/// How the function is called in which a refused waiter sleeps.
const LOCK: &str = "pthread_mutex_";

/// The kernel keeps the owner: LOCK_PI names the mutex itself.
pub(super) fn inheriting(case: &Case<'_, '_>) -> Option<BlockedOn> {
    case.futex.inherits_priority().then(|| from_word(case, case.futex.word, "")).flatten()
}

/// Whether this is how glibc waits for a mutex: WAIT, or WAIT_BITSET where there is a time-out. Others (Rust's own
/// mutexes) use WAIT_BITSET without one, and beside their word there is anything.
fn waits(futex: &Futex) -> bool {
    futex.command == FUTEX_WAIT || futex.command == FUTEX_WAIT_BITSET && futex.timed
}

/// Robust: the wait's value is the lock word with its waiters bit.
pub(super) fn robust(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    let kind = case.word(futex.word, layout::KIND)?;
    // A token of Rust's park is -1, and beside it there is anything.
    let a_task = (futex.value & TID_MASK) as i32 <= GREATEST_OWNER;
    let waited_for = waits(&futex) && futex.value & WAITERS != 0 && a_task;
    (waited_for && kind & layout::ROBUST != 0 && kind & !layout::KIND_BITS == 0)
        .then(|| from_word(case, futex.word, ""))
        .flatten()
}

/// Robust, in memory that was not captured (a file that processes share is left out of cores): the value that the
/// thread sleeps with is the lock word as it was when the kernel put it to sleep, and the thread was not woken since.
pub(super) fn not_captured(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    let owner = (futex.value & TID_MASK) as i32;
    let shaped = waits(&futex) && futex.value & WAITERS != 0 && futex.value & OWNER_DIED == 0;
    if !shaped || !(1..=GREATEST_OWNER).contains(&owner) || case.word(futex.word, 0).is_some() {
        return None;
    }
    let state = vec![("lock", i64::from(futex.value)), ("owner", i64::from(owner))];
    let resource = case.resource(kinds::PTHREAD_MUTEX, "mutex", futex.word, state);
    let known = format!(
        "it sleeps with the value {:#x}, the word of a robust mutex: owner {owner}; the word itself was not captured",
        futex.value
    );
    Some(case.below.refined(resource, ENTRY_POINTS, vec![known.clone()]).owned(Ownership::Tid(Owner {
        tid: owner,
        died: false,
        mode: None,
        lock: futex.word,
        size: case.process.architecture().glibc_mutex_size(),
        evidence: vec![known],
    })))
}

/// A priority-inheriting mutex that the kernel refused (locked by the caller itself, or its owner exited): glibc 2.31
/// and later sleep for ever on a zero word of the waiter's own stack.
pub(super) fn refused_and_parked(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    let sp = case.thread.sp()?;
    let near = futex.word.within(sp - 256, 256 + PARKED_BYTES);
    if futex.value != 0 || futex.timed || futex.command == 6 || !near || case.word(futex.word, 0)? != 0 {
        return None;
    }
    refused(case)
}

/// The same in glibc 2.27, which sleeps in pause().
pub(super) fn refused_and_paused(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    below: &BlockedOn,
) -> Option<BlockedOn> {
    let row = below.call.and_then(|call| call.row(process.architecture()));
    let in_pause = row.is_some_and(|row| row.waits == Waits::AnySignal);
    if !in_pause || !thread.inside(PARKED_FRAMES, &[LOCK]) {
        return None;
    }
    let futex = Futex { word: Addr(0), value: 0, operation: 0, command: 0, timed: false };
    refused(&Case { process, thread, below, futex, by_name: None })
}

/// Find the mutex that the kernel refused among registers and stack words.
fn refused(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let registers = case.thread.registers(PARKED_FRAMES).into_iter().map(|(_, _, value)| value);
    let words = case.thread.top(case.process, PARKED_BYTES);
    let own = case.thread.libc_tid;
    let is_one = |base: Addr, may_live: bool| {
        let kind = case.word(base, layout::KIND)?;
        let tid = (case.word(base, 0)? & TID_MASK) as i32;
        let shaped = base.0.is_multiple_of(8)
            && kind & !layout::KIND_BITS == 0
            && kind & layout::INHERIT != 0
            // Lock elision is not for this protocol.
            && kind & layout::ELISION == 0
            && (1..=GREATEST_OWNER).contains(&tid);
        if !shaped {
            return None;
        }
        // The decoder tries stack words of all sorts. So every field must fit a mutex (libc.md, values of `__lock` and
        // friends). Otherwise the semaphore that CPython 3.13 keeps on the stack passes for one now and then (seen).
        let (count, owner, users) =
            (case.word(base, layout::COUNT)?, case.word(base, layout::OWNER)?, case.word(base, layout::USERS)?);
        let shaped = (1..=MOST_USERS).contains(&count)
            && (owner == tid as u32 || matches!(owner, 0x7fff_ffff | 0x7fff_fffe))
            && (1..=MOST_USERS).contains(&users);
        // Refused means: the waiter has it itself or would close a ring (EDEADLK), or its owner is no task any more (ESRCH).
        let is_refused = tid == own || may_live || case.process.libc_tid(tid).is_none();
        (shaped && tid != 0 && is_refused).then_some(base)
    };
    // Some builds keep only the address of `__kind` in a register.
    let find = |values: Vec<u64>, may_live: bool| {
        let mut values = values.into_iter().filter(|value| *value >= LOWEST_ADDRESS).map(Addr);
        values.find_map(|value| is_one(value, may_live).or_else(|| is_one(value - layout::KIND, may_live)))
    };
    // The caller's registers and the stack may lead to a mutex that the waiter has.
    let all = || registers.chain(words.into_iter().map(|(_, word)| word)).collect();
    let base = find(of_the_call(case), true).or_else(|| find(all(), false))?;
    from_word(case, base, "the kernel refused the lock and glibc sleeps for ever on a word of its own")
}

/// The register values of the C library's own frame that its caller did not put there. There are some only where the
/// frame, or the call that led to it, has a name.
fn of_the_call(case: &Case<'_, '_>) -> Vec<u64> {
    let is_lock = |name: &str| base_symbol(name).starts_with(LOCK);
    let by_name = || case.thread.names(PARKED_FRAMES).filter(|(_, name)| is_lock(name)).last().map(|(frame, _)| frame);
    // `pthread_mutex_lock` ends by a jump into an inner function, which has a name in debug symbols only.
    let by_call = || {
        let mut entries = case.thread.nameless_entries(case.process).take_while(|(frame, _)| *frame < PARKED_FRAMES);
        entries.find(|(_, name)| is_lock(name)).map(|(frame, _)| frame)
    };
    let Some(frame) = by_name().or_else(by_call) else { return Vec::new() };
    let all = case.thread.registers(PARKED_FRAMES + 1);
    let of = |wanted: usize| all.iter().filter(move |(frame, ..)| *frame == wanted);
    let is_callers =
        |register: &Register, value: u64| of(frame + 1).any(|(_, other, known)| (other, *known) == (register, value));
    of(frame).filter(|(_, register, value)| !is_callers(register, *value)).map(|(.., value)| *value).collect()
}

/// A mutex whose lock word has its owner.
fn from_word(case: &Case<'_, '_>, base: Addr, note: &str) -> Option<BlockedOn> {
    let word = case.word(base, 0)?;
    let kind = case.word(base, layout::KIND).unwrap_or(0);
    let tid = (word & TID_MASK) as i32;
    let resource = case.resource(kinds::PTHREAD_MUTEX, "mutex", base, state(case, base, word, i64::from(tid)));
    let mut evidence = vec![if note.is_empty() {
        case.word_is("mutex", base, "__lock")
    } else {
        format!("mutex {base} (__kind {kind:#x}): {note}")
    }];
    evidence.push(format!("__lock = {word:#x} at {base}: owner {tid}"));
    let decoded = case.below.refined(resource, ENTRY_POINTS, evidence.clone());
    if tid == 0 {
        return Some(decoded.owned(hand_over()));
    }
    let owner = Owner {
        tid,
        died: word & OWNER_DIED != 0,
        mode: None,
        lock: base,
        size: case.process.architecture().glibc_mutex_size(),
        evidence: vec![format!("__lock = {word:#x} at {base}, owner bits {tid}")],
    };
    Some(decoded.owned(Ownership::Tid(owner)))
}

/// Value 2: a mutex of an ordinary kind, a FILE's lock, or a bare lock inside the C library.
pub(super) fn plain(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    let base = futex.word;
    if futex.value != 2 || !waits(&futex) || case.word(base, 0)? != 2 {
        return None;
    }
    if let Some(decoded) = file(case, base) {
        return Some(decoded);
    }
    let kind = case.word(base, layout::KIND).unwrap_or(u32::MAX);
    let owner = case.word(base, layout::OWNER).unwrap_or(0);
    let is_owner = owner <= GREATEST_OWNER as u32 || layout::SPECIAL_OWNERS.contains(&owner);
    let shaped = kind & !layout::KIND_BITS == 0 && is_owner;
    // A holder is counted as its user, too. A lock of another make may have any thread's id there: its creator's.
    let is_used = || case.word(base, layout::USERS).is_none_or(|users| (1..=MOST_USERS).contains(&users));
    if shaped && owner != 0 && (is_of_libc(case) || is_used() && case.process.libc_tid(owner as i32).is_some()) {
        return Some(owned(case, base, owner));
    }
    // A waiter at `__wrphase_futex` of an rwlock has value 2 too; only that uses WAIT_BITSET without an owner.
    if futex.command != 0 {
        return None;
    }
    if shaped && case.inside(&["pthread_mutex_", "pthread_cond_"]) {
        let resource = case.resource(kinds::PTHREAD_MUTEX, "mutex", base, state(case, base, 2, 0));
        let evidence = vec![case.word_is("mutex", base, "__lock"), format!("__owner = 0 at {}", base + layout::OWNER)];
        return Some(case.below.refined(resource, ENTRY_POINTS, evidence).owned(hand_over()));
    }
    Some(unowned_word(case, base))
}

/// Whether the C library itself made the call. Other runtimes also have locks of one word with the value 2 for waiters,
/// with arbitrary data beside it. They call through `syscall`, or from code of their own.
pub(super) fn by_libc(case: &Case<'_, '_>) -> bool {
    let Some(frame) = case.thread.thread.and_then(|thread| thread.native.frames.first()) else { return true };
    if case.thread.inside(1, &["syscall"]) {
        return false;
    }
    let modules = case.process.context.symbols.modules();
    let has_libc = modules.list.iter().any(|module| is_c_library(&module.name));
    // A program that is linked statically has its own.
    !has_libc
        || modules.at(frame.pc).and_then(|at| modules.list.get(at)).is_none_or(|module| is_c_library(&module.name))
}

/// The same for certain: in a program that is linked statically a name must say so.
fn is_of_libc(case: &Case<'_, '_>) -> bool {
    const WAITS: &[&str] = &["__lll_lock_wait", "pthread_", "__pthread_", "___pthread_"];
    let modules = case.process.context.symbols.modules();
    let is_static = !modules.list.is_empty() && !modules.list.iter().any(|module| is_c_library(&module.name));
    by_libc(case) && (!is_static || case.inside(WAITS))
}

/// A mutex with `__owner`.
fn owned(case: &Case<'_, '_>, base: Addr, owner: u32) -> BlockedOn {
    let field = base + layout::OWNER;
    // dl_load_lock and dl_load_write_lock have no symbol of their own: they are members of `_rtld_global`.
    let in_loader = case.process.context.symbols.object(base).is_some_and(|symbol| &*symbol.name == "_rtld_global");
    let (kind, noun) = match in_loader {
        true => (kinds::LOADER_LOCK, format!("dynamic loader's lock{}", loader_lock(case, base))),
        false => (kinds::PTHREAD_MUTEX, "mutex".to_owned()),
    };
    let resource = case.resource(kind, &noun, base, state(case, base, 2, i64::from(owner)));
    let evidence = vec![case.word_is("mutex", base, "__lock = 2"), format!("__owner = {owner} at {field}")];
    let decoded = case.below.refined(resource, ENTRY_POINTS, evidence);
    if layout::SPECIAL_OWNERS.contains(&owner) {
        let why = format!("__owner = {owner:#x} at {field} marks a robust mutex after its owner's death");
        return decoded.owned(Ownership::Unnamed(why));
    }
    decoded.owned(Ownership::Tid(Owner {
        tid: owner as i32,
        died: false,
        mode: None,
        lock: base,
        size: case.process.architecture().glibc_mutex_size(),
        evidence: vec![format!("__owner = {owner} at {field}")],
    }))
}

/// Which of the loader's locks it is: they stand one behind the other, all recursive (struct rtld_global in
/// sysdeps/generic/ldsodefs.h; the third since 2.35).
fn loader_lock(case: &Case<'_, '_>, base: Addr) -> &'static str {
    const NAMES: [&str; 3] = [" _dl_load_lock", " _dl_load_write_lock", " _dl_load_tls_lock"];
    const RECURSIVE: u32 = 1;
    let is_mutex =
        |at: Addr| case.word(at, layout::KIND) == Some(RECURSIVE) && case.word(at, 0).is_some_and(|lock| lock <= 2);
    let before = (1..NAMES.len() as u64)
        .take_while(|back| is_mutex(base - back * case.process.architecture().glibc_mutex_size()))
        .count();
    NAMES[before]
}

/// `_IO_lock_t`: {int lock; int count; void *owner}, the owner being a `pthread_self()`. The lock of exit() has the
/// same form (glibc 2.41, commit f6ba993e0c).
fn file(case: &Case<'_, '_>, base: Addr) -> Option<BlockedOn> {
    use crate::image::MemoryExt;
    let field = base + layout::OWNER;
    let pointer = case.process.memory().pointer(field).ok()?;
    let position = case.process.pthread(pointer)?;
    let noun = if case.inside(&["exit"]) { "lock of exit()" } else { "FILE lock" };
    let tid = case.process.threads[position].image.tid;
    let known = format!("owner = {pointer} at {field} is pthread_self() of {tid}");
    let state = vec![("lock", 2), ("owner", i64::from(tid))];
    let resource = case.resource(kinds::STDIO_FILE, noun, base, state);
    let evidence = vec![case.word_is(noun, base, "lock = 2"), known.clone()];
    Some(case.below.refined(resource, FILE_ENTRY_POINTS, evidence).owned(Ownership::Thread(position, vec![known])))
}

/// A lock of one word, without owner: named after the function that takes it.
fn unowned_word(case: &Case<'_, '_>, base: Addr) -> BlockedOn {
    let entry = || case.thread.nameless_entries(case.process).next();
    let in_allocator =
        case.inside(ALLOCATION) || entry().is_some_and(|(_, name)| ALLOCATION.contains(&base_symbol(&name)));
    let (kind, noun) = if in_allocator {
        (kinds::MALLOC_ARENA, "malloc arena lock")
    } else if by_libc(case) {
        (kinds::FUTEX, "lock inside the C library")
    } else {
        // 2 is by custom "locked, with waiters" (U. Drepper, Futexes Are Tricky).
        (kinds::FUTEX, "lock made of a futex")
    };
    let resource = case.resource(kind, noun, base, vec![("lock", 2)]);
    let evidence = vec![case.word_is(noun, base, "lock = 2")];
    if kind == kinds::MALLOC_ARENA {
        let refined = case.below.refined(resource, ALLOCATION, evidence);
        return refined.owned(Ownership::private(HolderRule::Arena));
    }
    if !by_libc(case) {
        let refined = case.below.refined(resource, ENTRY_POINTS, evidence);
        return refined.owned(Ownership::guess(HolderRule::OwnLock(base)));
    }
    case.below.refined(resource, ENTRY_POINTS, evidence).owned(Ownership::Unnamed("this lock records no owner".into()))
}

/// The words of a mutex for the report.
fn state(case: &Case<'_, '_>, base: Addr, lock: u32, owner: i64) -> Vec<(&'static str, i64)> {
    let mut state = vec![("lock", i64::from(lock)), ("owner", owner)];
    let fields = [("count", layout::COUNT), ("users", layout::USERS), ("kind", layout::KIND)];
    state.extend(fields.iter().filter_map(|&(name, at)| Some((name, i64::from(case.word(base, at)?)))));
    state
}

/// A lock that is between two owners.
fn hand_over() -> Ownership {
    Ownership::Unnamed("it is locked but names no owner: it is changing hands, look again".into())
}
