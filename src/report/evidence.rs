//! The sentence that says how a link between two parties is known.
//!
//! In: the wait and the hold of a link. Out: what was read of each, said once, and how long it has lasted. Every format says it so.

use super::{Hold, Wait};

/// Waits shorter than this many milliseconds are not reported.
const A_WHILE: u64 = 1000;

/// The evidence for a wait, and for the hold that it waits for.
pub(crate) fn evidence(wait: Option<&Wait>, hold: Option<&Hold>) -> String {
    let mut told: Vec<&str> = Vec::new();
    let said = wait.iter().flat_map(|wait| &wait.evidence).chain(hold.iter().flat_map(|hold| &hold.evidence));
    for sentence in said {
        // If one sentence begins with the whole of another, only the longer one is kept.
        if let Some(shorter) = told.iter_mut().find(|known| sentence.starts_with(**known)) {
            *shorter = sentence;
        } else if !told.iter().any(|known| known.starts_with(sentence.as_str())) {
            told.push(sentence);
        }
    }
    let mut evidence = told.join("; ");
    if evidence.is_empty() {
        evidence.push_str("no evidence recorded");
    }
    if let Some(since) = wait.and_then(|wait| wait.since_ms).filter(|since| *since >= A_WHILE) {
        evidence.push_str(&format!("; asleep for {:.1} s", since as f64 / 1000.0));
    }
    evidence
}
