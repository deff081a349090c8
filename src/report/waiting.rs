//! What is waited for, who waits, who holds, and the cycles of these.
//!
//! In: nothing. Out: types of the report.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CallSite, Callback};
use crate::waits::kinds::{self, Kind, Topic};
use crate::waits::label::{Called, Label};
use crate::waits::model::{Certainty, Gone, HoldSource, Needs, TakenAt};

/// A lock or another thing waited for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Resource {
    /// `r1`, `r2`, ...
    pub id: String,
    /// A kind of the contract.
    #[schemars(extend("examples" = crate::waits::kind_names()))]
    pub kind: String,
    /// Process in which `address` lies.
    pub process: String,
    /// Address.
    pub address: Option<String>,
    /// For people.
    pub label: String,
    /// The parts that `label` is made of. (Since 1.1.)
    #[serde(flatten)]
    pub parts: Label,
    /// Words of it.
    pub state: serde_json::Map<String, serde_json::Value>,
}

impl Resource {
    /// What is true of its kind; a word that this version does not know is as unknown as `other`.
    pub fn properties(&self) -> &'static Kind {
        crate::waits::kind_named(&self.kind).unwrap_or(kinds::OTHER)
    }

    /// Its label in parts; a report that has none has the label alone.
    fn parts(&self) -> Cow<'_, Label> {
        match (self.parts.is_empty(), self.label.is_empty()) {
            (false, _) => Cow::Borrowed(&self.parts),
            (true, false) => Cow::Owned(self.label.as_str().into()),
            (true, true) => Cow::Owned(self.kind.as_str().into()),
        }
    }

    /// As sentences call it, with its address.
    pub(crate) fn called(&self) -> Called {
        let parts = self.parts();
        // A label alone may have the address already.
        let address = self.address.as_deref().filter(|_| !self.parts.is_empty() || self.label.is_empty());
        match self.properties().topic {
            Topic::Gil => parts.called().definite(),
            // It is known by who it is.
            Topic::Thread => parts.called(),
            _ => parts.called_with_address(address),
        }
    }

    /// As sentences call it where one such thing is known by its name: without the address of one that has a name.
    pub(crate) fn called_shortly(&self) -> Called {
        if self.parts.name.is_some() && !self.is_gil() { self.parts.called() } else { self.called() }
    }

    /// What many things like it are called together.
    pub(crate) fn called_in_general(&self) -> Called {
        if self.is_gil() { self.called() } else { self.parts().called_in_general() }
    }

    /// Whether it is an interpreter's lock.
    pub fn is_gil(&self) -> bool {
        self.properties().topic == Topic::Gil
    }
}

/// One wait.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Wait {
    /// Process of the waiter.
    pub process: String,
    /// Waiting thread; null when a resource waits.
    pub tid: Option<i32>,
    /// The resource that waits, for a waiter that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter_resource: Option<String>,
    /// What it waits for.
    pub resource: String,
    /// `read`, `write`, ...
    pub mode: Option<String>,
    /// `all` or `any` holders must let go.
    pub needs: Needs,
    /// Ends by a time-out.
    pub timed: bool,
    /// Sleeping since.
    pub since_ms: Option<u64>,
    /// Index of the waiting frame.
    pub frame: Option<usize>,
    /// The frame that a person should read.
    #[serde(flatten)]
    pub at: CallSite,
    /// The line where it waits, of a waiter that has no frames: a task. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TakenAt>,
    /// It waits in a function that was called back, by the call that took what the waiter holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// How sure.
    pub certainty: Certainty,
    /// How it is known.
    pub evidence: Vec<String>,
}

/// One hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Hold {
    /// Process of the holder.
    pub process: String,
    /// Holding thread (its former tid when gone); null when a whole process holds.
    pub tid: Option<i32>,
    /// Its id in `resources`, where a task or a kernel of the GPU holds. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_resource: Option<String>,
    /// Its rank, where a rank of a job holds. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_rank: Option<u32>,
    /// Why the holder can never let go.
    pub gone: Option<Gone>,
    /// What it holds.
    pub resource: String,
    /// `read`, `write`.
    pub mode: Option<String>,
    /// Index of the frame that took it.
    pub frame: Option<usize>,
    /// The line where it was taken, where that is known: the frame has gone on since. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<TakenAt>,
    /// How long ago it was taken, in milliseconds, where the recorder saw it. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// `recorder`: the recorder saw it being taken (`lockscope run --record`). (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<HoldSource>,
    /// The frame that a person should read.
    #[serde(flatten)]
    pub at: CallSite,
    /// How sure.
    pub certainty: Certainty,
    /// How it is known.
    pub evidence: Vec<String>,
}

/// A cycle of the wait-for graph.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Cycle {
    /// The weakest of its edges.
    pub certainty: Certainty,
    /// Edges in order: the holder of one is the waiter of the next.
    pub edges: Vec<Edge>,
}

/// One edge: `waiter` waits for `resource`, which `holder` holds.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Edge {
    /// Process of the waiter.
    pub process: String,
    /// Waiting thread.
    pub waiter: Option<i32>,
    /// The resource that waits, for a waiter that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter_resource: Option<String>,
    /// The resource.
    pub resource: String,
    /// Process of the holder.
    pub holder_process: String,
    /// Holding thread; null when a process or a resource holds.
    pub holder: Option<i32>,
    /// The resource that holds, for a holder that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_resource: Option<String>,
}
