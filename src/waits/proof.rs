//! The proof that a wait or a hold stands on: [`Proof`].
//!
//! In: a wait or a hold. Out: the kind of proof that it stands on. No family says it of its own: it follows from how sure the rule is
//! and from what that rule read. Verdicts, and what may be done because of them, depend on it.

use super::model::{Certainty, Hold, Strength, Wait};

/// The proof of a link or a finding, the weakest first. A whole is as strong as its weakest part.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Proof {
    /// Something was not found: no other party that could end the wait, no other end, no call that gave the lock back.
    Absence,
    /// Instructions that the holder executed: it took the lock, and cannot have given it back on the way to where it stands.
    Code,
    /// Memory, registers or the kernel name the owner.
    Recorded,
}

impl Proof {
    /// The proof of a report of version 1.1 or older, which states none: the weakest.
    pub(crate) fn unstated() -> Proof {
        Proof::Absence
    }

    /// The proof behind a link between ranks or workers, which states its certainty alone.
    pub(crate) fn of(certainty: Certainty) -> Proof {
        if certainty == Certainty::Exact { Proof::Recorded } else { Proof::Absence }
    }

    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Proof::Absence => "absence",
            Proof::Code => "code",
            Proof::Recorded => "recorded",
        }
    }

    /// In plain words, of a whole: beside the heading of how it is known.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Proof::Absence => "in part by absence: nobody else was found",
            Proof::Code => "in part by code that was executed",
            Proof::Recorded => "each owner is recorded",
        }
    }
}

impl Wait {
    /// The proof that it waits for just this.
    pub(crate) fn proof(&self) -> Proof {
        Proof::of(self.certainty)
    }
}

impl Hold {
    /// The proof that this holder has it.
    pub(crate) fn proof(&self) -> Proof {
        match self.strength {
            Strength::Sharer | Strength::Recorded => Proof::Recorded,
            Strength::Sole => Proof::Code,
            Strength::Inferred | Strength::SoleCandidate | Strength::Candidate => Proof::Absence,
        }
    }
}
