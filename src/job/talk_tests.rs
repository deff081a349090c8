//! Ranks between which something goes over TCP while they wait for each other.

use super::digest::{Member, RankWait};
use super::report as told;
use super::tests::{connected, crossed, twice};
use crate::report::Verdict;

#[test]
fn who_talks_stands_not_still() {
    let both = |first, second| told(&twice(connected(crossed(), first), connected(crossed(), second)));
    for counts in [[Some(7), Some(9)], [None, None]] {
        assert_eq!(both(counts, counts).verdict, Verdict::Deadlock);
    }
    // One end is enough to see it.
    for second in [[Some(8), Some(9)], [Some(7), Some(10)], [None, Some(10)]] {
        let report = both([Some(7), Some(9)], second);
        assert_eq!(report.verdict.exit_code(), 0, "{}", report.summary);
        assert!(report.cycles.is_empty(), "{}", report.summary);
    }
}

/// The bytes of a store are no evidence about GPUs.
#[test]
fn heartbeats_of_a_store_are_no_data_of_nccls() {
    let on_gpus = || -> Vec<Member> {
        let mut members = crossed();
        let of_nccl = |wait: &mut RankWait| {
            let collective = wait.collective.as_mut().expect("an operation");
            collective.backend = "nccl".into();
            (collective.mark, collective.matched) = (None, None);
        };
        members.iter_mut().flat_map(|member| &mut member.waits).for_each(of_nccl);
        members
    };
    let after = |bytes: u64| {
        told(&twice(connected(on_gpus(), [Some(7), Some(9)]), connected(on_gpus(), [Some(7 + bytes), Some(9)])))
    };
    let unproven = "Not confirmed, since nothing that could be read says whether these waits stood still";
    for bytes in [0, 300, 4000] {
        let report = after(bytes);
        assert_eq!(report.verdict, Verdict::Blocked);
        assert!(report.summary.starts_with(unproven), "{bytes}: {}", report.summary);
    }
    let report = after(64 << 20);
    assert!(!report.summary.contains("Not confirmed"), "{}", report.summary);
}
