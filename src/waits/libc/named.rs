//! Objects whose words alone say too little, known by the function that waits: once, barrier, static initialisers.
//!
//! In: a [`Case`] with named frames. Out: the object, without a holder: none of them records one, and
//! [`super::initialisers`] looks for it.

use super::super::family::Decoded;
use super::Case;

/// (function prefixes, kind, noun, offset of the futex word in the object).
/// Offsets: libc.md sections 1 and 4.
type Row = (&'static [&'static str], &'static str, &'static str, u64);

const TABLE: &[Row] = &[
    (&["cxa_guard_acquire"], "static_guard", "guard of a static variable", 0),
    (&["pthread_barrier_wait"], "pthread_barrier", "barrier", 4),
    (&["pthread_once", "call_once"], "pthread_once", "once control", 0),
    (&["sem_wait", "sem_timedwait", "sem_clockwait", "new_sem_wait"], "semaphore", "semaphore", 0),
];

/// Decode by the name of one of the innermost frames.
pub fn decode(case: &Case<'_, '_>) -> Option<Decoded> {
    let (names, kind, noun, offset) = TABLE.iter().find(|(names, ..)| case.inside(names))?;
    let base = case.futex.word - *offset;
    let mut state = vec![("word", i64::from(case.futex.value))];
    if *kind == "pthread_barrier" {
        // struct pthread_barrier { in, current_round, count, shared, out } (nptl/internaltypes.h).
        let fields = [("in", 0), ("round", 4), ("count", 8)];
        state = fields.iter().filter_map(|&(name, at)| Some((name, i64::from(case.word(base, at)?)))).collect();
    }
    let resource = case.resource(kind, noun, base, state);
    let evidence = vec![case.word_is(noun, base, "word"), format!("the thread is inside {}", names[0])];
    Some(case.below.refined(resource, names, evidence))
}
