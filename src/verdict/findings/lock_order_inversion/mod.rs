//! `lock-order-inversion`: locks were taken in orders that could deadlock, and did not.
//!
//! In: nothing of a look: what hung is a `lock-order-cycle`. It is found in what the recorder of `run --record` wrote down
//! (`forecast`), and explained here.

use super::{Example, Requirement, Rule};
use crate::report::Severity;

/// The finding's texts.
pub(super) const RULE: Rule = Rule {
    code: "lock-order-inversion",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "lock_order_inversion.py",
        program: include_str!("example.py"),
        command: "lockscope run --record -- python3 lock_order_inversion.py",
        needs: Requirement::Recorder,
    },
    rule: |_| Vec::new(),
};
