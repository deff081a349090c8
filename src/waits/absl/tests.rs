//! The family on made-up memory.

use crate::waits::testing::{LOCK, Made, STACK, observe_made};
use crate::waits::{Certainty, Observations, Party, Strength};

/// Identities of two waiters.
const IDENTITIES: [u64; 2] = [0x5100_0000, 0x5100_0100];
/// `MuHowS` of a writer and of a reader.
const WRITES: u64 = 0x5100_0400;
const READS: u64 = 0x5100_0440;
const LISTS: [u64; 2] = [0x5100_0500, 0x5100_0600];
const OTHER_LOCK: u64 = LOCK + 8;

/// Thread 10 waits to write what is at LOCK, and thread 11 what is behind it; a writer has each. The futex word is where
/// this version has it.
fn process(futex_word: u64) -> Made {
    let mut made = Made::new(&[10, 11]);
    made.zero(IDENTITIES[0], 0x800);
    made.u64(READS + 16, 0x100);
    for (index, lock) in [LOCK, OTHER_LOCK].into_iter().enumerate() {
        let own = IDENTITIES[index];
        made.u64(own, own);
        made.u32(own + 28, 1);
        made.u64(own + 32, parameters(index));
        made.u64(parameters(index), WRITES);
        made.u64(parameters(index) + 32, own);
        made.u64(lock, own | 0x0c);
        made.u64(Made::sp(index) + 0x40, lock);
        made.futex(index, own + futex_word, 0x80, 0);
    }
    made
}

fn parameters(index: usize) -> u64 {
    STACK + 0x1000 * index as u64 + 0x300
}

fn waits(seen: &Observations) -> Vec<(&str, u64)> {
    seen.waits.iter().map(|wait| (wait.resource.kind.name, wait.resource.address.0)).collect()
}

#[test]
fn the_mutex_is_the_one_whose_ring_has_the_waiter_in_every_version() {
    for futex_word in [64, 128] {
        let seen = observe_made(vec![process(futex_word)]);
        assert_eq!(waits(&seen), [("absl_mutex", LOCK), ("absl_mutex", OTHER_LOCK)], "{futex_word}");
        assert!(seen.waits.iter().all(|wait| wait.certainty == Certainty::Exact && wait.mode == Some("write")));
    }
}

#[test]
fn who_waits_for_a_condition_while_nobody_has_the_mutex_waits_to_be_woken() {
    const WAITED_ON: u64 = 0x5100_0000;
    for (has_condition, is_free, kind) in
        [(true, true, "absl_condition"), (true, false, "absl_mutex"), (false, true, "absl_mutex")]
    {
        let mut made = process(64);
        made.u64(parameters(0) + 8, if has_condition { WAITED_ON } else { 0 });
        made.u64(LOCK, IDENTITIES[0] | if is_free { 0x04 } else { 0x0c });
        let seen = observe_made(vec![made]);
        assert_eq!(waits(&seen)[0], (kind, LOCK), "{has_condition} {is_free}");
    }
}

#[test]
fn its_own_account_names_the_holder() {
    let mut made = process(64);
    for (index, held) in [OTHER_LOCK, LOCK].into_iter().enumerate() {
        made.u64(IDENTITIES[index] + 56, LISTS[index]);
        made.u32(LISTS[index], 1);
        made.u64(LISTS[index] + 8, held);
    }
    let seen = observe_made(vec![made]);
    let holds: Vec<_> = seen.holds.iter().map(|hold| (hold.resource.address.0, hold.holder.clone())).collect();
    assert_eq!(holds, [(LOCK, Party::Thread(0, 11)), (OTHER_LOCK, Party::Thread(0, 10))]);
    assert!(seen.holds.iter().all(|hold| hold.strength == Strength::Recorded));
}

#[test]
fn without_an_account_whoever_has_it_at_hand_is_a_candidate_and_nobody_can_release_it() {
    let mut made = process(64);
    made.u64(Made::sp(0) + 0x80, OTHER_LOCK);
    let seen = observe_made(vec![made]);
    let holds: Vec<_> = seen.holds.iter().map(|hold| (hold.resource.address.0, hold.holder.clone())).collect();
    assert_eq!(holds, [(OTHER_LOCK, Party::Thread(0, 10))]);
    assert_eq!(seen.holds[0].strength, Strength::Candidate);
    assert!(seen.gaps.iter().any(|gap| gap.why.contains("the lock records no owner")), "{:?}", seen.gaps);
}

#[test]
fn readers_are_counted_by_the_last_waiter() {
    let mut made = process(64);
    made.u64(LOCK, IDENTITIES[0] | 0x05);
    made.u64(IDENTITIES[0] + 40, 0x200);
    made.u64(parameters(1), READS);
    let seen = observe_made(vec![made]);
    assert_eq!(seen.waits[1].mode, Some("read"));
    assert_eq!(seen.resources[0].state, [("writer", 0), ("readers", 2)]);
    assert!(
        seen.gaps.iter().any(|gap| gap.why.starts_with("Abseil records no reader ids; 2 hold it")),
        "{:?}",
        seen.gaps
    );
}

#[test]
fn a_condition_variable_is_not_the_ring_that_leads_to_its_waiters() {
    let mut made = process(64);
    made.u64(LOCK, IDENTITIES[0] | 0x02);
    made.u64(parameters(0) + 24, LOCK + 16);
    // The identity itself, which is on the stack as well, begins with a pointer into the ring.
    made.u64(Made::sp(0) + 0x38, IDENTITIES[0]);
    let seen = observe_made(vec![made]);
    assert_eq!(waits(&seen)[0], ("absl_condvar", LOCK));
    assert_eq!(seen.resources[0].state, [("mutex", LOCK as i64 + 16)]);
}

#[test]
fn what_no_ring_has_is_a_futex() {
    let mut made = process(64);
    made.u64(LOCK, 0x08);
    // A ring that never comes back.
    made.u64(OTHER_LOCK, IDENTITIES[0] | 0x0c);
    made.u64(IDENTITIES[0], IDENTITIES[0] + 0x200);
    made.u64(IDENTITIES[0] + 0x200, IDENTITIES[0] + 0x200);
    let seen = observe_made(vec![made]);
    assert!(waits(&seen).iter().all(|(kind, _)| *kind == "futex"), "{:?}", waits(&seen));
}
