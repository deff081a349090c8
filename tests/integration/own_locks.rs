//! Locks that programs make themselves of a futex: who may have them is told by the calls of the function that waits.

use std::process::Command;

use crate::harness::{Target, compile};
use crate::post_mortem::looks;

#[test]
fn a_ring_of_own_locks_is_a_suspicion_and_what_looks_like_it_is_none() {
    for level in ["-O0", "-O2"] {
        let program = compile("native/own_locks.c", &format!("own_locks{level}"), &[level]);
        for case in ["two-orders", "two-orders-busy", "handed-back", "gates"] {
            let target = Target::start(Command::new(&program).arg(case)).settle(2);
            let is_hang = target.said.iter().any(|line| line.trim() == "TRUTH hang");
            for look in looks(&target) {
                let place = format!("{case} at {level}: {}", look.text);
                if is_hang {
                    assert_eq!(look.verdict(), "suspected-deadlock", "{place}");
                    assert_eq!(look.findings(), ["lock-order-cycle"], "{place}");
                    assert!(look.says("ledger") && look.says("journal"), "{place}");
                } else {
                    assert!(look.cycles().is_empty() && look.code == 0, "{place}");
                }
            }
        }
    }
}

#[test]
fn whoever_is_parked_for_a_lock_of_parking_lot_waits_for_that_lock() {
    for level in ["-O0", "-O2"] {
        let program = compile("native/parked.c", &format!("parked{level}"), &[level]);
        for case in ["two-orders", "two-orders-busy", "one-goes-on"] {
            let target = Target::start(Command::new(&program).arg(case)).settle(2);
            let is_hang = target.said.iter().any(|line| line.trim() == "TRUTH hang");
            for look in looks(&target) {
                let place = format!("{case} at {level}: {}", look.text);
                assert!(look.says("parking_lot RwLock") || look.json.to_string().contains("parking_lot RwLock"));
                if is_hang {
                    assert_eq!(look.verdict(), "suspected-deadlock", "{place}");
                    assert_eq!(look.findings(), ["lock-order-cycle"], "{place}");
                } else {
                    assert!(look.cycles().is_empty() && look.code == 0, "{place}");
                }
            }
        }
    }
}
