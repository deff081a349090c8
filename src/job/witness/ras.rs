//! An answer of NCCL's RAS (`VERBOSE STATUS` with `SET FORMAT json`, NCCL 2.28 and later): how many operations each rank of each
//! communicator has launched.
//!
//! In: the answer. Out: an [`Account`] for each rank of a communicator that is all of a job. It counts and names no line; messages
//! between two ranks are not counted. A rank that has launched fewer of one kind keeps all others in the next of it.

use serde_json::Value;

use super::Account;
use crate::limits::job::LARGEST_JOB;
use crate::report::Gap;
use crate::waits::collective::Collective;

/// Nobody leaves these before all have entered; of Broadcast and Reduce one end may.
const SYNCHRONISING: [&str; 3] = ["AllReduce", "AllGather", "ReduceScatter"];

/// Whether an answer is one, by its shape.
pub(super) fn is_one(value: &Value) -> bool {
    value.get("nccl_version").is_some() && value.get("communicators").is_some_and(Value::is_array)
}

/// One account for each rank of each communicator.
pub(super) fn accounts(value: &Value) -> Result<(Vec<Account>, Vec<Gap>), String> {
    let communicators = value.get("communicators").and_then(Value::as_array).ok_or("it has no communicators")?;
    // Ranks are those of the communicator: the largest ones are the job's.
    let size = |communicator: &Value| communicator.get("size").and_then(Value::as_u64).unwrap_or(0);
    let largest = communicators.iter().map(size).max().unwrap_or(0);
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    let mut others = 0_usize;
    for communicator in communicators {
        if size(communicator) == largest && largest < u64::from(LARGEST_JOB) {
            of_communicator(communicator, &mut found, &mut gaps);
        } else {
            others += 1;
        }
    }
    if others > 0 {
        let what =
            if others == 1 { "1 smaller communicator".to_owned() } else { format!("{others} smaller communicators") };
        gaps.push(Gap::new(
            what,
            "NCCL's RAS numbers their ranks anew, and does not say which ranks of the job they are",
        ));
    }
    Ok((found, gaps))
}

fn of_communicator(communicator: &Value, found: &mut Vec<Account>, gaps: &mut Vec<Gap>) {
    let text = |name: &str| communicator.get(name).and_then(Value::as_str).unwrap_or_default();
    let group = format!("communicator {}", text("hash"));
    let ranks: &[Value] = communicator.get("ranks").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
    let counts = |rank: &Value, kind: &str| rank.get("collective_counts").and_then(|counts| number(counts, kind));
    let size = number(communicator, "size").and_then(|size| u32::try_from(size).ok());
    let missing = communicator.get("missing_ranks").and_then(Value::as_array).map_or(0, Vec::len);
    if missing > 0 {
        gaps.push(Gap::new(
            format!("{missing} ranks of {group}"),
            "they do not answer NCCL's RAS: they have ended, or their machine is out of reach",
        ));
    }
    for rank in ranks {
        let Some(own) = number(rank, "rank").and_then(|own| u32::try_from(own).ok()) else { continue };
        // What it launched and somebody else did not, it cannot have left.
        let ahead = SYNCHRONISING.iter().find_map(|kind| {
            let launched = counts(rank, kind)?;
            ranks
                .iter()
                .filter_map(|other| counts(other, kind))
                .any(|other| other < launched)
                .then_some((*kind, launched))
        });
        let inside = ahead.map(|(kind, launched)| Collective {
            backend: "nccl".to_owned(),
            group: Some(group.clone()),
            op: kind.to_owned(),
            seq: Some(launched),
            rank: Some(own),
            size,
            synchronises: true,
            ..Collective::default()
        });
        let pid = rank.get("pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
        found.push(Account {
            rank: own,
            pid,
            group: group.clone(),
            ranks: Vec::new(),
            last: ahead.map(|(_, launched)| launched),
            inside,
            data: String::new(),
            place: String::new(),
            since: None,
        });
    }
}
