//! Targets: the places where a thread is held back, so that an order of locks which was predicted to deadlock does.
//!
//! In: the file that [`VARIABLE`] names, which `src/recorder/targets.rs` of lockscope writes: places, and pairs of them
//! ([`Member`]), a first lock and a second one. Out: calls of [`mod@stand`](crate::stand) for a thread that is about to
//! take a second lock while it holds the first; and counts, which lockscope reads from the same file. All processes of
//! a command share it. Where no file is named, a taking costs one look at a flag.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, CLOSE, MMAP, OPENAT, READ, system_call};
use crate::held::{self, GIL, PYTHON_LOCK, PYTHON_RLOCK, THREAD_END, is_current};
use crate::loaded::{self, Mapping};
use crate::python::{self, Part};
use crate::sites;
use crate::stand::{self, Wanted};
use crate::start;
use crate::table::{Held, MOST_SITES, Row, Table, table};

/// The variable that names the file.
const VARIABLE: &[u8] = b"LOCKSCOPE_PROVOKE=";
const MAGIC: [u8; 16] = *b"LOCKSCOPE-PRV-1\0";
/// Places and pairs that a file has at most; of places a mask has a bit for each.
const MOST: usize = 128;
const NAME: usize = 120;

const NATIVE: u32 = 1;
const PYTHON: u32 = 2;
const INTERPRETER: u32 = 3;
const ANYWHERE: u32 = 4;
const THREAD: u32 = 5;
/// No lock is needed: a thread is held that is going to wait to be woken, or one comes that wakes it.
const NOTHING: u32 = 6;

/// The beginning of the file. Times are in nanoseconds.
#[repr(C)]
pub(crate) struct Head {
    magic: [u8; 16],
    place_count: u32,
    member_count: u32,
    /// For how long a thread is held at a place the first time; each time after that twice as long, up to the longest.
    first_limit: u64,
    longest: u64,
    /// How long threads are held at one place in all.
    budget: u64,
    /// When it is over, by the monotonic clock.
    until: u64,
}

/// Where a lock is taken.
#[repr(C)]
pub(crate) struct Place {
    kind: u32,
    /// A line of Python, or 0 for any.
    line: u32,
    /// Offsets in the file, of the addresses that a call returns to.
    begin: u64,
    end: u64,
    /// The last part of a path, and a function of Python; both end by a zero.
    file: [u8; NAME],
    function: [u8; NAME],
    /// The frame that called it: a line, or 0 for any, and the last part of a path.
    caller_line: u64,
    caller_file: [u8; NAME],
}

/// A lock that is taken at the one place while one is held that was taken at the other.
#[repr(C)]
pub(crate) struct Member {
    first: u32,
    second: u32,
    /// The number, and one more, of the member that is held until this one has passed; or 0.
    lets_go: u64,
    /// How often the second place was passed with the first lock held, and without.
    passed: AtomicU64,
    alone: AtomicU64,
    /// How often and how long a thread was held there, and how often it may not be.
    pub(crate) held: AtomicU64,
    pub(crate) time: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// How often all partners stood at their places.
    pub(crate) met: AtomicU64,
}

/// All of it.
#[repr(C)]
pub(crate) struct File {
    head: Head,
    places: [Place; MOST],
    members: [Member; MOST],
}

static FILE: AtomicPtr<File> = AtomicPtr::new(core::ptr::null_mut());
static IS_ARMED: AtomicBool = AtomicBool::new(false);

/// Whether any place is a target.
#[inline(always)]
pub(crate) fn is_armed() -> bool {
    IS_ARMED.load(Ordering::Relaxed)
}

/// Read which file is meant, if any.
pub(crate) fn begin(environment: impl Iterator<Item = &'static CStr>) {
    let Some(variable) = environment.map(CStr::to_bytes_with_nul).find(|one| one.starts_with(VARIABLE)) else { return };
    let path = variable.get(VARIABLE.len()..).unwrap_or_default();
    if path.first() != Some(&b'/') {
        return;
    }
    const READ_WRITE: usize = 2 | 0o2000000;
    const SHARED: usize = 1;
    let file = system_call(OPENAT, [usize::MAX - 99, path.as_ptr() as usize, READ_WRITE, 0, 0, 0]);
    if file < 0 {
        return;
    }
    // A file that is too short would end the process at the first look beyond its end.
    let mut magic = [0u8; 16];
    let read = system_call(READ, [file as usize, magic.as_mut_ptr() as usize, magic.len(), 0, 0, 0]);
    let end = system_call(arch::LSEEK, [file as usize, 0, 2, 0, 0, 0]);
    if read == 16 && magic == MAGIC && end == size_of::<File>() as isize {
        let memory = system_call(MMAP, [0, size_of::<File>(), 3, SHARED, file as usize, 0]);
        if memory > 0 {
            FILE.store(memory as *mut File, Ordering::Release);
            IS_ARMED.store(true, Ordering::Release);
        }
    }
    system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
}

/// Nobody is held from now on: the process ends, or becomes another program.
pub(crate) fn disarm() {
    if IS_ARMED.swap(false, Ordering::Relaxed) {
        stand::let_all_go();
    }
}

fn file() -> Option<&'static File> {
    // SAFETY: a mapping that stays.
    unsafe { FILE.load(Ordering::Acquire).as_ref() }
}

impl File {
    fn needs_nothing(&self, member: &Member) -> bool {
        self.places.get(member.first as usize).is_some_and(|place| place.kind == NOTHING)
    }

    fn places(&self) -> impl Iterator<Item = (u128, &Place)> {
        self.places.iter().take(self.head.place_count as usize).enumerate().map(|(place, one)| (1 << place, one))
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().take(self.head.member_count as usize)
    }
}

/// A lock of the C library is about to be taken, by a call that waits.
#[inline(always)]
pub(crate) fn before(lock: usize, kind: u8, mode: u8, at: usize) {
    if is_armed() && is_place(at as u64) {
        candidate(&Wanted { lock: lock as u64, kind, mode }, at as u64, 0);
    }
}

/// A mutex is about to be locked: the program's, or the one that guards who has the GIL.
#[inline(always)]
pub(crate) fn before_mutex(mutex: usize, mode: u8, at: usize) {
    if is_armed() {
        match python::part_of_gil(mutex) {
            Part::None => before(mutex, held::MUTEX, mode, at),
            Part::Mutex => candidate(&Wanted { lock: mutex as u64 | 1, kind: GIL, mode }, 0, 0),
            Part::Switch => {}
        }
    }
}

/// A lock of Python is about to be taken, with the GIL, by a call that waits; the number of the text of its frames.
pub(crate) fn before_python(table: &'static Table, lock: usize, kind: u8, mode: u8) -> u32 {
    let site = sites::here(table);
    if is_site(table, site) {
        candidate(&Wanted { lock: lock as u64, kind, mode }, 0, site);
    }
    site
}

/// A lock is about to be taken at a place of the file, or it is the GIL.
#[cold]
#[inline(never)]
fn candidate(wanted: &Wanted, at: u64, site: u32) {
    let (Some(file), Some(table)) = (file(), table()) else { return };
    let own = arch::thread();
    // SAFETY: the storage of this thread, and a row, which lives as long as the process.
    let (is_standing, row) = unsafe { ((*own).standing != 0, (*own).row.as_ref()) };
    // A thread that stands calls for the GIL on the recorder's behalf; a method of a lock is one taking, not several.
    if is_standing || wanted.kind != GIL && held::is_inside_method() {
        return;
    }
    let held = row.map(Row::entries).unwrap_or_default();
    let is_held = |one: &Held| is_current(table, one);
    // It waits for nobody.
    if held.iter().any(|one| is_held(one) && one.lock.load(Ordering::Relaxed) == wanted.lock) {
        return;
    }
    let here = places_of(file, table, wanted.kind, at, site);
    let mut chosen = None;
    for member in file.members().filter(|member| here >> member.second & 1 == 1) {
        if member.lets_go != 0 {
            continue;
        }
        let has = |place: u32| {
            let is_there = |one: &Held| places_of(file, table, one.kind, one.at, one.site) >> place & 1 == 1;
            held.iter().any(|one| is_held(one) && is_there(one))
        };
        // A method may take further locks under the one of the condition.
        if file.needs_nothing(member) && has(member.second) {
            continue;
        }
        if !file.needs_nothing(member) && !has(member.first) {
            member.alone.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        member.passed.fetch_add(1, Ordering::Relaxed);
        if chosen.is_none() && member.time.load(Ordering::Relaxed) < file.head.budget {
            chosen = Some(member);
        }
    }
    if let (Some(member), Some(row)) = (chosen, row) {
        let tries = member.held.load(Ordering::Relaxed).min(16);
        let limit = file.head.first_limit.saturating_mul(1 << tries).min(file.head.longest);
        let left = file.head.until.saturating_sub(start::now());
        // SAFETY: the storage of this thread.
        unsafe { (*own).standing = 1 };
        stand::stand(table, row, wanted, member, limit.min(left));
        // SAFETY: as above.
        unsafe { (*own).standing = 0 };
    }
}

/// The calling thread has woken others at a place, or given back what it took there: who is held until then goes on.
pub(crate) fn woken(at: u64, site: u32) {
    let (Some(file), Some(table)) = (file().filter(|_| is_armed()), table()) else { return };
    if at != 0 && !is_place(at) || site != 0 && !is_site(table, site) {
        return;
    }
    let here = places_of(file, table, if site == 0 { held::MUTEX } else { PYTHON_LOCK }, at, site);
    for member in file.members().filter(|member| member.lets_go != 0 && here >> member.second & 1 == 1) {
        member.passed.fetch_add(1, Ordering::Relaxed);
        if let Some(waiter) = file.members.get(member.lets_go as usize - 1)
            && stand::let_go(waiter)
        {
            member.met.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The calling thread has given a lock of Python back.
#[inline(always)]
pub(crate) fn given() {
    if is_armed() {
        // SAFETY: the storage of this thread.
        let site = core::mem::take(unsafe { &mut (*arch::thread()).given_site });
        if site != 0 {
            woken(0, site as u32);
        }
    }
}

/// Which places of the file a taking is at.
fn places_of(file: &File, table: &Table, kind: u8, at: u64, site: u32) -> u128 {
    let native = if at != 0 && kind != GIL { native_places(at) } else { 0 };
    let text = if site != 0 { sites::text(table, site) } else { &[] };
    let fits = |place: &Place| match place.kind {
        PYTHON => !text.is_empty() && place.is_in(text),
        INTERPRETER => kind == GIL,
        // Threads of Python hold locks of the interpreter and the GIL most of the time.
        ANYWHERE => !matches!(kind, GIL | PYTHON_LOCK | PYTHON_RLOCK | THREAD_END),
        THREAD => kind == THREAD_END,
        _ => false,
    };
    file.places().filter(|(_, place)| fits(place)).fold(native, |mask, (bit, _)| mask | bit)
}

/// Marks of addresses: the address, and whether it is a place of the file.
static ADDRESSES: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];

/// Whether an address that a call returns to is a place of the file.
#[inline(always)]
fn is_place(at: u64) -> bool {
    let Some(known) = ADDRESSES.get(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 52) else { return false };
    let mark = known.load(Ordering::Relaxed);
    if mark >> 1 == at { mark & 1 == 1 } else { looked_up(known, at) }
}

#[cold]
#[inline(never)]
fn looked_up(known: &AtomicU64, at: u64) -> bool {
    let is_it = native_places(at) != 0;
    if mapped(at).is_some() {
        known.store(at << 1 | u64::from(is_it), Ordering::Relaxed);
    }
    is_it
}

/// Code that is mapped: where it begins and ends, where it begins in its file, and which places are of that file.
static CODE: [[AtomicU64; 5]; 1024] = [const { [const { AtomicU64::new(0) }; 5] }; 1024];
static CODE_COUNT: AtomicUsize = AtomicUsize::new(0);

fn mapped(at: u64) -> Option<&'static [AtomicU64; 5]> {
    let used = CODE.get(..CODE_COUNT.load(Ordering::Acquire).min(CODE.len())).unwrap_or_default();
    used.iter().find(|[start, end, ..]| (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&at))
}

/// Keep where code is mapped. One thread at a time reads the list.
fn know(file: &File, mapping: &Mapping<'_>) {
    let count = CODE_COUNT.load(Ordering::Relaxed);
    let Some(entry) = CODE.get(count) else { return };
    let of_it = |place: &Place| place.kind == NATIVE && is_text(&place.file, last_part(mapping.path));
    let places = file.places().filter(|(_, one)| of_it(one)).fold(0, |mask, (bit, _)| mask | bit);
    let words = [mapping.start, mapping.end, mapping.offset, places as u64, (places >> 64) as u64];
    entry.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    CODE_COUNT.store(count + 1, Ordering::Release);
}

/// Which places are at an address.
fn native_places(at: u64) -> u128 {
    let Some(file) = file() else { return 0 };
    // A thread that is passed over while another one reads the list would not be held at all.
    const MOST_ASKED: u32 = 1000;
    for _ in 0..MOST_ASKED {
        if mapped(at).is_some() || loaded::find(at, &mut |mapping| know(file, mapping)) {
            break;
        }
        system_call(arch::SCHED_YIELD, [0; 6]);
    }
    let Some([start, _, offset, low, high]) = mapped(at) else { return 0 };
    let places = u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64;
    let at = at - start.load(Ordering::Relaxed) + offset.load(Ordering::Relaxed);
    file.places()
        .filter(|(bit, one)| places & bit != 0 && (one.begin..one.end).contains(&at))
        .fold(0, |mask, (bit, _)| mask | bit)
}

/// Whether a text of frames is at a place: 0 where nobody has asked yet, else 1 or 2.
static SITES: [AtomicU8; MOST_SITES] = [const { AtomicU8::new(0) }; MOST_SITES];

/// Whether the frames with this number are at a place of the file.
#[inline(always)]
fn is_site(table: &Table, site: u32) -> bool {
    let Some(known) = (site as usize).checked_sub(1).and_then(|place| SITES.get(place)) else { return false };
    match known.load(Ordering::Relaxed) {
        0 => {
            let text = sites::text(table, site);
            let Some(file) = file().filter(|_| !text.is_empty()) else { return false };
            let is_it = file.places().any(|(_, place)| place.kind == PYTHON && place.is_in(text));
            known.store(1 + u8::from(is_it), Ordering::Relaxed);
            is_it
        }
        answer => answer == 2,
    }
}

impl Place {
    /// Whether the innermost frame that is the program's own, or the innermost one, is this place, and so is the one that
    /// called it.
    fn is_in(&self, text: &[u8]) -> bool {
        let all = || text.split(|byte| *byte == b'\n').filter(|frame| !frame.is_empty());
        let is_locks_own = |frame: &&[u8]| {
            let file = frame.split(|byte| *byte == 0x1f).next().unwrap_or_default();
            file.ends_with(b"/threading.py") || file.starts_with(b"<frozen ")
        };
        let own = all().position(|frame| !is_locks_own(&frame)).unwrap_or(0);
        let mut frames = all().skip(own);
        let is_it = |frame: &[u8], file: &[u8], line: u64, function: &[u8]| {
            let mut parts = frame.split(|byte| *byte == 0x1f);
            let (Some(its_file), Some(its_line), Some(its_function)) = (parts.next(), parts.next(), parts.next())
            else {
                return false;
            };
            let its_function = its_function.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
            is_text(file, last_part(its_file))
                && (line == 0
                    || its_line.iter().fold(0, |all, digit| all * 10 + u64::from(digit.wrapping_sub(b'0'))) == line)
                && (function.first() == Some(&0) || is_text(function, its_function))
        };
        frames.next().is_some_and(|frame| is_it(frame, &self.file, u64::from(self.line), &self.function))
            && (self.caller_line == 0
                || frames.next().is_some_and(|frame| is_it(frame, &self.caller_file, self.caller_line, &[0])))
    }
}

/// Whether a text that ends by a zero is this one, or its beginning where it is too long.
fn is_text(text: &[u8], other: &[u8]) -> bool {
    let other = other.get(..other.len().min(NAME - 1)).unwrap_or_default();
    text.strip_prefix(other).is_some_and(|rest| rest.first() == Some(&0))
}

fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::thread;

    use super::*;
    use crate::held::{ALONE, Caller, MUTEX, READING, RWLOCK, WAITS, gives, took};
    use crate::tests::begun;

    const LONG: u64 = 60_000_000_000;
    const TARGETS: usize = 8;
    const FIRST: u32 = TARGETS as u32;

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
        fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
        fn raise(number: i32) -> i32;
    }

    /// The address that the call of a target returns to: code of this program, one byte each.
    fn at(target: usize) -> usize {
        file_of_targets as *const () as usize + target
    }

    fn mapping(at: usize) -> (u64, Vec<u8>) {
        let mut found = None;
        loaded::find(at as u64, &mut |mapping| {
            found = Some((at as u64 - mapping.start + mapping.offset, last_part(mapping.path).to_vec()));
        });
        found.expect("a mapping")
    }

    /// Targets that the tests share out: pairs of any lock and a call of this program.
    pub(crate) fn file_of_targets() -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<File>()];
        // SAFETY: zeros are a file without places.
        let mut file = unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast::<File>()) };
        file.head = Head {
            magic: MAGIC,
            place_count: FIRST + 1,
            member_count: FIRST,
            first_limit: LONG,
            longest: LONG,
            budget: u64::MAX,
            until: u64::MAX,
        };
        for (position, (place, member)) in file.places.iter_mut().zip(&mut file.members).take(TARGETS).enumerate() {
            let (offset, name) = mapping(at(position));
            (place.kind, place.begin, place.end) = (NATIVE, offset, offset + 1);
            place.file.iter_mut().zip(&name).for_each(|(to, byte)| *to = *byte);
            (member.first, member.second) = (FIRST, position as u32);
        }
        if let Some(place) = file.places.get_mut(TARGETS) {
            place.kind = ANYWHERE;
        }
        // SAFETY: as many bytes, without padding.
        unsafe { core::ptr::write_unaligned(bytes.as_mut_ptr().cast::<File>(), file) };
        bytes
    }

    fn member(target: usize) -> &'static Member {
        begun();
        loaded::thread_made();
        file().and_then(|file| file.members.get(target)).expect("a target")
    }

    fn count(count: &AtomicU64) -> u64 {
        count.load(Ordering::Relaxed)
    }

    /// Take a lock, and another one at a target.
    fn both(held: usize, wanted: usize, kind: u8, mode: u8, target: usize) {
        took(held, kind, mode, WAITS, Caller { at: 0, stack: 0 });
        before(wanted, kind, mode, at(target));
        gives(held, kind);
    }

    #[test]
    fn a_ring_goes_on_together() {
        for (first, targets) in [(0x7100_0000, vec![0, 1]), (0x7200_0000, vec![2, 3, 4])] {
            let members: Vec<&Member> = targets.iter().map(|target| member(*target)).collect();
            let lock = move |position: usize| first + 64 * position;
            let size = targets.len();
            // Other tests let all threads go.
            while members.iter().any(|member| count(&member.met) == 0) {
                let begin = |(position, target): (usize, &usize)| {
                    let target = *target;
                    thread::spawn(move || both(lock(position), lock((position + 1) % size), MUTEX, ALONE, target))
                };
                let threads: Vec<_> = targets.iter().enumerate().map(begin).collect();
                threads.into_iter().for_each(|thread| thread.join().expect("it goes on"));
            }
            for member in members {
                assert!(count(&member.passed) >= count(&member.held) && count(&member.held) >= count(&member.met));
            }
        }
    }

    #[test]
    fn readers_are_no_ring_and_all_go_when_they_are_let() {
        let member = member(5);
        let readers: Vec<_> = [(0x7300_0000, 0x7300_0040), (0x7300_0040, 0x7300_0000)]
            .into_iter()
            .map(|(held, wanted)| thread::spawn(move || both(held, wanted, RWLOCK, READING, 5)))
            .collect();
        while count(&member.held) < 2 {
            thread::yield_now();
        }
        // A test that forks may have let them go before.
        assert_eq!(count(&member.met), 0);
        // One that began to stand only now is let go by the next call.
        while readers.iter().any(|reader| !reader.is_finished()) {
            stand::let_all_go();
            thread::yield_now();
        }
        assert_eq!(count(&member.met), 0);
    }

    extern "C" fn lock_in_handler(_: i32) {
        before(0x7400_0040, MUTEX, ALONE, at(6));
    }

    #[test]
    fn a_signal_handler_is_not_held() {
        const SIGUSR2: i32 = 12;
        let member = member(6);
        thread::spawn(move || {
            took(0x7400_0000, MUTEX, ALONE, WAITS, Caller { at: 0, stack: 0 });
            // Where another test reads the list of mappings, the place is not known this time.
            while count(&member.passed) == 0 {
                // SAFETY: a handler that may run at any time.
                unsafe { (signal(SIGUSR2, lock_in_handler), raise(SIGUSR2)) };
            }
            gives(0x7400_0000, MUTEX);
        })
        .join()
        .expect("it ends");
        assert_eq!((count(&member.refused), count(&member.held)), (1, 0));
    }

    #[test]
    fn a_child_is_not_held_before_it_makes_a_thread() {
        let member = member(7);
        // SAFETY: the child takes no lock but the recorder's, and ends.
        unsafe {
            let child = fork();
            if child == 0 {
                both(0x7500_0000, 0x7500_0040, MUTEX, ALONE, 7);
                _exit(i32::from(count(&member.refused) != 1 || count(&member.held) != 0));
            }
            let mut status = -1;
            assert_eq!((waitpid(child, &raw mut status, 0), status), (child, 0));
        }
        // Without a lock it passes, too.
        while count(&member.alone) == 0 {
            before(0x7500_0040, MUTEX, ALONE, at(7));
        }
        assert_eq!((count(&member.alone), count(&member.passed)), (1, 1));
        assert!(!is_place(at(7) as u64 + 100));
    }

    #[test]
    fn frames_of_python_are_compared_by_file_line_and_function() {
        let text = |text: &str| {
            let mut bytes = [0u8; NAME];
            bytes.iter_mut().zip(text.bytes().take(NAME - 1)).for_each(|(to, byte)| *to = byte);
            bytes
        };
        let mut place = Place {
            kind: PYTHON,
            line: 12,
            begin: 0,
            end: 0,
            file: text("pay.py"),
            function: text("pay"),
            caller_line: 0,
            caller_file: text(""),
        };
        let site =
            b"/usr/lib/threading.py\x1f9\x1f__enter__\n/srv/pay.py\x1f12\x1fAccount.pay\n/srv/main.py\x1f7\x1fmain\n";
        assert!(place.is_in(site));
        (place.caller_line, place.caller_file) = (7, text("main.py"));
        assert!(place.is_in(site));
        place.caller_line = 8;
        assert!(!place.is_in(site));
        (place.caller_line, place.line) = (0, 13);
        assert!(!place.is_in(site));
        place.line = 0;
        assert!(place.is_in(site));
        place.function = text("audit");
        assert!(!place.is_in(site) && !place.is_in(b"") && !place.is_in(b"\n\x1f\n"));
    }
}
