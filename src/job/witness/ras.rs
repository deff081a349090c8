//! An answer of NCCL's RAS: how many operations each rank of each communicator has launched.
//!
//! In: the answer. Out: an [`Account`] for each rank of a communicator that is all of a job. It counts and names no line; messages
//! between two ranks are not counted. A rank that has launched fewer of one kind keeps all others in the next of it.

use super::Account;
use crate::limits::job::LARGEST_JOB;
use crate::nccl_ras::{Answer, Communicator};
use crate::report::Gap;
use crate::waits::collective::Collective;

/// One account for each rank of each communicator.
pub(super) fn accounts(answer: &Answer) -> (Vec<Account>, Vec<Gap>) {
    // Ranks are those of the communicator: the largest ones are the job's.
    let largest = answer.communicators.iter().filter_map(|one| one.size).max().unwrap_or(0);
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    let mut others = 0_usize;
    for communicator in &answer.communicators {
        if communicator.size.unwrap_or(0) == largest && largest < LARGEST_JOB {
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
    (found, gaps)
}

fn of_communicator(communicator: &Communicator, found: &mut Vec<Account>, gaps: &mut Vec<Gap>) {
    let group = format!("communicator {}", communicator.hash);
    if communicator.missing > 0 {
        gaps.push(Gap::new(
            format!("{} ranks of {group}", communicator.missing),
            "they do not answer NCCL's RAS: they have ended, or their machine is out of reach",
        ));
    }
    for (rank, ahead) in communicator.ranks.iter().zip(communicator.inside()) {
        let inside = ahead.map(|(kind, launched)| Collective {
            backend: "nccl".to_owned(),
            group: Some(group.clone()),
            op: kind.to_owned(),
            seq: Some(launched),
            rank: Some(rank.rank),
            size: communicator.size,
            synchronises: true,
            ..Collective::default()
        });
        found.push(Account {
            rank: rank.rank,
            pid: rank.pid,
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
