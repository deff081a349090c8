//! Resources, their waiters and holders, and the cycles of these.
//!
//! In: nothing. Out: types of the report.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CallSite, Callback};
use crate::waits::kinds::{self, Kind, Topic, World};
use crate::waits::label::{Called, Label, Wanted};
use crate::waits::model::{Certainty, Gone, HoldSource, Needs, TakenAt};
use crate::waits::proof::Proof;

/// A lock or another object that something waits for.
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
    /// Its name for people.
    pub label: String,
    /// The parts that `label` is made of. (Since 1.1.)
    #[serde(flatten)]
    pub parts: Label,
    /// Further facts, by name.
    pub state: serde_json::Map<String, serde_json::Value>,
}

impl Resource {
    /// The properties of its kind. A word that this version does not know has the properties of `other`.
    pub fn properties(&self) -> &'static Kind {
        crate::waits::kind_named(&self.kind).unwrap_or(kinds::OTHER)
    }

    /// Its label in parts. A report without parts has the label alone.
    fn parts(&self) -> Cow<'_, Label> {
        match (self.parts.is_empty(), self.label.is_empty()) {
            (false, _) => Cow::Borrowed(&self.parts),
            (true, false) => Cow::Owned(self.label.as_str().into()),
            (true, true) => Cow::Owned(self.kind.as_str().into()),
        }
    }

    /// Its name in sentences, with its address.
    pub(crate) fn called(&self) -> Called {
        let parts = self.parts();
        // A label alone may have the address already.
        let address = self.address.as_deref().filter(|_| !self.parts.is_empty() || self.label.is_empty());
        match self.properties().topic {
            Topic::Gil => parts.called().definite(),
            // It is known by who it is.
            Topic::Thread | Topic::Task => parts.called(),
            // The address of a loop, or of a future that a task awaits, helps no reader.
            _ if self.properties().world == World::EventLoop && !self.properties().is_lock() => parts.called(),
            _ => parts.called_with_address(address),
        }
    }

    /// Its name in sentences, without the address if it has a name of its own.
    pub(crate) fn called_shortly(&self) -> Called {
        if self.parts.name.is_some() && !self.is_gil() { self.parts.called() } else { self.called() }
    }

    /// A common name for many things like it.
    pub(crate) fn called_in_general(&self) -> Called {
        if self.is_gil() { self.called() } else { self.parts().called_in_general() }
    }

    /// Whether a wait for it is one for work that may come at any time: a connection, an event, a signal, a time.
    pub fn brings_work(&self) -> bool {
        let names = [kinds::TIMER, kinds::SIGNAL, kinds::EVENTS, kinds::STDIN, kinds::EVENT_LOOP, kinds::PROCESS];
        self.parts().wanted == Some(Wanted::Connection) || names.contains(&self.properties())
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
    /// Waiting thread; null if a resource waits.
    pub tid: Option<i32>,
    /// The resource that waits, for a waiter that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter_resource: Option<String>,
    /// The resource that it waits for.
    pub resource: String,
    /// `read`, `write`, ...
    pub mode: Option<String>,
    /// `all` or `any` holders must release it.
    pub needs: Needs,
    /// Whether the wait ends by a time-out.
    pub timed: bool,
    /// Whether each try has a time-out and the code around it asks again for ever: then `timed` is not set. (Since 1.2.)
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
    /// The time since the thread went to sleep, in milliseconds.
    pub since_ms: Option<u64>,
    /// Index of the waiting frame.
    pub frame: Option<usize>,
    /// The call site that matters.
    #[serde(flatten)]
    pub at: CallSite,
    /// The line of the wait, for a waiter without frames: a task. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TakenAt>,
    /// It waits in a callback of the call that took the waiter's hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Its certainty.
    pub certainty: Certainty,
    /// Its proof: `recorded`, `code` or `absence`. (Since 1.2.)
    #[serde(default = "Proof::unstated")]
    pub proof: Proof,
    /// The evidence, in sentences.
    pub evidence: Vec<String>,
    /// Sentences about threads and events that could end it beside its holders, and do not wait as far as is known: the first few.
    /// (Since 1.2.)
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub could_end: Vec<String>,
    /// Nothing but its holders can end it, as far as is known. Not in JSON.
    #[serde(skip)]
    pub by_holders_alone: bool,
}

/// One hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Hold {
    /// Process of the holder.
    pub process: String,
    /// Holding thread (its former tid when gone); null if a whole process holds.
    pub tid: Option<i32>,
    /// Its id in `resources`, if a task or a kernel of the GPU holds. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_resource: Option<String>,
    /// Its rank, if a rank of a job holds. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_rank: Option<u32>,
    /// The reason why the holder can never release it.
    pub gone: Option<Gone>,
    /// Whether the holder is a process that was not captured; `process` is the waiter's then. (Since 1.2.)
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_captured: bool,
    /// The resource that it holds.
    pub resource: String,
    /// `read`, `write`.
    pub mode: Option<String>,
    /// Index of the frame that took it.
    pub frame: Option<usize>,
    /// The line where it was taken, if known: the frame has gone on since. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<TakenAt>,
    /// The time since it was taken, in milliseconds, if the recorder saw it. (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// `recorder`: the recorder saw the call that took it (`lockscope run --record`). (Since 1.1.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<HoldSource>,
    /// The call site that matters.
    #[serde(flatten)]
    pub at: CallSite,
    /// Its certainty.
    pub certainty: Certainty,
    /// Its proof: `recorded`, `code` or `absence`. (Since 1.2.)
    #[serde(default = "Proof::unstated")]
    pub proof: Proof,
    /// The evidence, in sentences.
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

impl Cycle {
    /// The proof of the whole: the weakest of its edges.
    pub fn proof(&self) -> Proof {
        self.edges.iter().map(|edge| edge.proof).min().unwrap_or(Proof::Absence)
    }
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
    /// Holding thread; null if a process or a resource holds.
    pub holder: Option<i32>,
    /// The resource that holds, for a holder that is no thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_resource: Option<String>,
    /// Its proof: the weaker of its wait's and its hold's. (Since 1.2.)
    #[serde(default = "Proof::unstated")]
    pub proof: Proof,
}
