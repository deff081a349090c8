//! The answer of NCCL's RAS: how many operations each rank of each communicator has launched.
//!
//! In: an answer (`VERBOSE STATUS` with `SET FORMAT json`, NCCL 2.28 and later). Out: an [`Answer`], and the ranks that
//! lag behind in it. This module opens no connection. RAS does not count messages between two ranks. In Broadcast and
//! Reduce one end may leave before the other comes.

// All of its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Nobody leaves these before all have entered.
const SYNCHRONISING: [&str; 3] = ["AllReduce", "AllGather", "ReduceScatter"];

/// The state of a job by RAS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) communicators: Vec<Communicator>,
}

/// Ranks that work together in NCCL. They are numbered within it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NcclCommunicator")]
#[non_exhaustive]
pub struct Communicator {
    /// NCCL's name for it.
    pub hash: String,
    /// How many ranks it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// How many of its ranks do not answer RAS.
    #[serde(default)]
    pub missing: usize,
    /// Those that do.
    pub ranks: Vec<Rank>,
}

/// A rank of a communicator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NcclRank")]
#[non_exhaustive]
pub struct Rank {
    /// Its number there.
    pub rank: u32,
    /// The address of its machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Its process, as its own namespace numbers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// How many operations of each kind it has launched: `AllReduce`.
    pub launched: BTreeMap<String, u64>,
}

/// Some ranks have launched an operation that others have not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lag<'a> {
    /// `AllReduce`.
    pub(crate) operation: &'a str,
    /// How many of these the first have launched.
    pub(crate) launched: u64,
    pub(crate) ahead: Vec<&'a Rank>,
    pub(crate) behind: Vec<(&'a Rank, u64)>,
}

impl Answer {
    /// Whether this is one, by its shape.
    pub(crate) fn is_one(value: &Value) -> bool {
        value.get("nccl_version").is_some() && value.get("communicators").is_some_and(Value::is_array)
    }

    /// Parse the output of a connection: lines of the protocol, then the answer.
    pub(crate) fn read(text: &str) -> Option<Answer> {
        let value = json(text.get(text.find('{')?..)?.as_bytes())?;
        Answer::is_one(&value).then(|| Answer::of(&value))
    }

    /// Read an answer. Anything not understood is left out.
    pub(crate) fn of(value: &Value) -> Answer {
        let communicators = list(value, "communicators").iter().map(communicator).collect();
        Answer { communicators }
    }

    /// The communicators in which nobody has launched anything between this answer and a later one.
    pub(crate) fn that_stood_still(&self, later: &Answer) -> Answer {
        let stands = |one: &&Communicator| later.communicators.contains(one);
        Answer { communicators: self.communicators.iter().filter(stands).cloned().collect() }
    }

    /// Whether it speaks of this process, by the number that the process has for itself.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.communicators.iter().any(|communicator| communicator.rank_of(pid).is_some())
    }
}

impl Communicator {
    /// The rank of a process.
    pub(crate) fn rank_of(&self, pid: i32) -> Option<&Rank> {
        self.ranks.iter().find(|rank| rank.pid == Some(pid))
    }

    /// Operations that some ranks have launched more often than others. Only operations that no rank leaves before all
    /// have entered them count.
    pub(crate) fn lags(&self) -> Vec<Lag<'_>> {
        let lag = |operation: &'static str| {
            let counts: Vec<(&Rank, u64)> =
                self.ranks.iter().filter_map(|rank| Some((rank, *rank.launched.get(operation)?))).collect();
            let launched = counts.iter().map(|(_, count)| *count).max()?;
            let (ahead, behind): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(_, count)| *count == launched);
            let ahead = ahead.into_iter().map(|(rank, _)| rank).collect();
            (!behind.is_empty()).then_some(Lag { operation, launched, ahead, behind })
        };
        SYNCHRONISING.into_iter().filter_map(lag).collect()
    }

    /// For each rank, an operation that it has launched and another has not: it cannot have left that operation. In the
    /// order of the ranks.
    pub(crate) fn inside(&self) -> Vec<Option<(&'static str, u64)>> {
        let least = SYNCHRONISING.map(|operation| {
            let counts = self.ranks.iter().filter_map(|rank| rank.launched.get(operation));
            (operation, counts.min().copied().unwrap_or(0))
        });
        let ahead = |rank: &Rank| {
            least.iter().find_map(|(operation, least)| {
                rank.launched
                    .get(*operation)
                    .filter(|launched| *launched > least)
                    .map(|launched| (*operation, *launched))
            })
        };
        self.ranks.iter().map(ahead).collect()
    }
}

fn communicator(value: &Value) -> Communicator {
    Communicator {
        hash: text(value, "hash"),
        size: number(value, "size").and_then(|size| u32::try_from(size).ok()),
        missing: list(value, "missing_ranks").len(),
        ranks: list(value, "ranks").iter().filter_map(rank).collect(),
    }
}

fn rank(value: &Value) -> Option<Rank> {
    let counts = value.get("collective_counts").and_then(Value::as_object);
    let launched = counts.into_iter().flatten().filter_map(|(kind, count)| Some((kind.clone(), count.as_u64()?)));
    Some(Rank {
        rank: u32::try_from(number(value, "rank")?).ok()?,
        host: text(value, "host"),
        pid: value.get("pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok()),
        launched: launched.collect(),
    })
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &Value, name: &str) -> Option<u64> {
    value.get(name).and_then(Value::as_u64)
}

/// A text of JSON of any shape, where it is one and takes a bounded room. A byte or two can make a value of 32 bytes, or an object of
/// some hundreds.
pub(crate) fn json(bytes: &[u8]) -> Option<Value> {
    const MOST: u64 = 512 << 20;
    (room_of_values(bytes) <= MOST).then(|| serde_json::from_slice(bytes).ok()).flatten()
}

/// Bytes that the values of a text of JSON take: those of a list that grows by doubling, and nodes of objects.
fn room_of_values(bytes: &[u8]) -> u64 {
    const VALUE: u64 = 64;
    const OBJECT: u64 = 704;
    let (mut room, mut in_text, mut is_escaped) = (bytes.len() as u64, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b',' | b'[' => room += VALUE,
            b'{' => room += OBJECT,
            _ => {}
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(counts: &[(u64, u64)]) -> String {
        let rank = |(number, (reduced, gathered)): (usize, &(u64, u64))| {
            json!({"rank": number, "host": "192.0.2.2", "pid": 560 + number,
                   "collective_counts": {"Broadcast": number, "AllReduce": reduced, "AllGather": gathered}})
        };
        let ranks: Vec<Value> = counts.iter().enumerate().map(rank).collect();
        let one = json!({"hash": "0x7", "size": counts.len(), "ranks": ranks, "missing_ranks": [{}]});
        format!("SERVER PROTOCOL 2\nOK\n{}\n", json!({"nccl_version": "2.28.3", "communicators": [one]}))
    }

    fn read(counts: &[(u64, u64)]) -> Answer {
        Answer::read(&answer(counts)).expect("an answer")
    }

    #[test]
    fn values_that_take_too_much_room_are_not_read() {
        let list = |value: &str, count: usize| format!("[{}{value}]", format!("{value},").repeat(count));
        assert!(json(list("0", 1000).as_bytes()).is_some() && json(br#"{"a\\":"{[,\"{","b":1}"#).is_some());
        assert_eq!(json(list("0", 8 << 20).as_bytes()), None);
        assert_eq!(json(list("{}", 1 << 20).as_bytes()), None);
        assert!(room_of_values(format!("\"{}\"", ",".repeat(1 << 20)).as_bytes()) < 2 << 20, "a text is one value");
    }

    #[test]
    fn who_has_launched_fewer_lags_behind() {
        let answer = read(&[(2, 5), (1, 5), (2, 5)]);
        let communicator = &answer.communicators[0];
        assert_eq!((communicator.size, communicator.missing, communicator.ranks.len()), (Some(3), 1, 3));
        let lags = communicator.lags();
        let [lag] = lags.as_slice() else { panic!("{lags:?}") };
        assert_eq!((lag.operation, lag.launched, lag.ahead.len()), ("AllReduce", 2, 2));
        assert_eq!(lag.behind.iter().map(|(rank, count)| (rank.rank, *count)).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(communicator.inside(), [Some(("AllReduce", 2)), None, Some(("AllReduce", 2))]);
        assert!(answer.has(561) && !answer.has(563));
        // All in the same; and each in another one.
        assert_eq!(read(&[(2, 5), (2, 5)]).communicators[0].lags(), []);
        let other = read(&[(2, 5), (1, 6)]);
        let kinds: Vec<&str> = other.communicators[0].lags().iter().map(|lag| lag.operation).collect();
        assert_eq!(kinds, ["AllReduce", "AllGather"]);
    }

    #[test]
    fn who_goes_on_stands_not_still() {
        let (early, late) = (read(&[(2, 5), (1, 5)]), read(&[(2, 5), (2, 5)]));
        assert_eq!(early.that_stood_still(&early), early);
        assert_eq!(early.that_stood_still(&late), Answer::default());
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for text in [
            "",
            "{",
            "ERROR: unknown command",
            "{\"communicators\": []}",
            "{\"nccl_version\": 1, \"communicators\": 7}",
        ] {
            assert_eq!(Answer::read(text), None, "{text}");
        }
        let odd = "{\"nccl_version\": 1, \"communicators\": [7, {\"ranks\": [{}, {\"rank\": -1}, {\"rank\": 3, \"pid\": 1e99}]}]}";
        assert_eq!(Answer::read(odd).expect("an answer").communicators[1].ranks.len(), 1);
    }
}
