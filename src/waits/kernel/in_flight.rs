//! Whether a descriptor on its way through a unix socket may be the end of an awaited pipe.
//!
//! In: the kernel's facts about the socket and the pipe, and the ancestors of processes. Out: the wake source, or why
//! there is none. The sender must have had the pipe. A process that began before the pipe was made cannot have
//! inherited it. So it got the pipe from a process that had it, through a socket that they had in common. Where any of
//! this is unknown, there is a wake source.

use crate::image::descriptors::{InFlight, KernelFacts, Lineage};
use crate::waits::model::Waker;

/// Start times have steps of 10 ms. The time of a pipe has the steps of the kernel's clock, of at most 10 ms (HZ=100).
const COARSE_MS: u64 = 20;

/// The effect of descriptors in flight on a wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// They may be what ends it.
    pub(super) wake_sources: Vec<(Waker, String)>,
    /// They cannot.
    pub(super) ruled_out: Vec<String>,
}

/// Judge all that are on their way, for a pipe or socket whose two ends are called `names`; `havers` have one of these.
pub(super) fn judge(kernel: &KernelFacts, names: &[&str], havers: &[i32]) -> Judged {
    let made_ms = kernel.made.iter().find(|made| names.contains(&made.target.as_str())).map(|made| made.at_ms);
    let mut judged = Judged::default();
    for sent in &kernel.in_flight {
        let what = match sent.count {
            1 => "a descriptor is on its way through a unix socket".to_owned(),
            count => format!("{count} descriptors are on their way through a unix socket"),
        };
        // A process whose descriptors cannot be read may have the socket too.
        let is_foreign = kernel.unread == 0 && made_ms.is_some_and(|made_ms| is_foreign(kernel, sent, havers, made_ms));
        match is_foreign {
            false => {
                let is_near = |pid: &i32| havers.contains(pid);
                // Where a process with an end of it has the socket, too, the receiver is likely to get that end by itself.
                let is_own = sent.ends.iter().chain(&sent.acquainted).any(is_near);
                let by = if is_own { Waker::ByItself } else { Waker::OnRequest };
                judged.wake_sources.push((by, format!("{what} of process {}, and may be its other end", sent.pid)));
            }
            true => judged.ruled_out.push(format!(
                "{what} of process {}, but those who have that socket began before the pipe was made, and have none in \
                 common with who has the pipe",
                sent.pid
            )),
        }
    }
    judged
}

/// Whether no process that has the socket can ever have had the pipe.
fn is_foreign(kernel: &KernelFacts, sent: &InFlight, havers: &[i32], made_ms: u64) -> bool {
    let lineages = &kernel.lineages;
    let is_acquainted = sent.acquainted.iter().any(|pid| havers.contains(pid));
    let programs: Option<Vec<(u64, u64)>> =
        havers.iter().map(|pid| find(lineages, *pid).map(|one| one.program)).collect();
    let Some(programs) = programs.filter(|all| !all.contains(&(0, 0))) else { return false };
    let is_ancestor = |pid: i32| havers.iter().any(|haver| ancestors(lineages, *haver).any(|one| one.pid == pid));
    // Processes that forked from each other without a new program may have had the same open files at any time.
    let is_kin = |one: &Lineage| havers.contains(&one.pid) || programs.contains(&one.program);
    let is_strange = |pid: i32| {
        let line = || std::iter::once(pid).filter_map(|pid| find(lineages, pid)).chain(ancestors(lineages, pid));
        // A process older than the pipe inherited it from no process, and its children did not inherit it from it.
        let older = line().position(|one| one.began_ms.saturating_add(COARSE_MS) < made_ms);
        let is_own = |older: usize| line().take(older + 1).any(is_kin);
        // A process that init adopted may descend from any other.
        let is_adopted = |older: usize| older > 0 && line().nth(older).is_none_or(|one| one.pid <= 1);
        !is_ancestor(pid) && older.is_some_and(|older| !is_own(older) && !is_adopted(older))
    };
    !is_acquainted && !sent.ends.is_empty() && sent.ends.iter().all(|pid| is_strange(*pid))
}

fn find(lineages: &[Lineage], pid: i32) -> Option<&Lineage> {
    lineages.iter().find(|one| one.pid == pid)
}

/// From whom a process descends, parent first.
fn ancestors(lineages: &[Lineage], pid: i32) -> impl Iterator<Item = &Lineage> {
    let parent = |one: &&Lineage| find(lineages, one.parent);
    // As many as there are, since a snapshot may say that they descend from each other.
    std::iter::successors(find(lineages, pid), parent).skip(1).take(lineages.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::descriptors::Made;

    /// Init (1) has a shell (10); this has the waiter (20), which began at 5 s and made the pipe at 8 s, and others (30, 31).
    fn facts() -> KernelFacts {
        let one = |pid, parent, began_ms, program| Lineage { pid, parent, began_ms, program: (program, program) };
        KernelFacts {
            in_flight: vec![InFlight { pid: 30, count: 1, ends: vec![30, 31], acquainted: vec![30, 31] }],
            lineages: vec![
                one(1, 0, 1, 1),
                one(10, 1, 2_000, 2),
                one(20, 10, 5_000, 3),
                one(30, 10, 6_000, 4),
                one(31, 10, 9_000, 5),
            ],
            made: vec![Made { target: "pipe:[7]".to_owned(), at_ms: 8_000 }],
            ..KernelFacts::default()
        }
    }

    fn is_wake_source(facts: &KernelFacts) -> bool {
        let judged = judge(facts, &["pipe:[7]"], &[20]);
        assert_eq!(judged.wake_sources.len() + judged.ruled_out.len(), 1);
        !judged.wake_sources.is_empty()
    }

    #[test]
    fn a_bystander_is_no_hope() {
        assert!(!is_wake_source(&facts()));
    }

    #[test]
    fn whoever_can_have_had_the_pipe_is() {
        let changes: [fn(&mut KernelFacts); 11] = [
            // The waiter itself has the socket, or its parent, who may have lent it.
            |facts| facts.in_flight[0].ends.push(20),
            |facts| facts.in_flight[0].ends.push(10),
            // They had a socket in common.
            |facts| facts.in_flight[0].acquainted.push(20),
            // No process has the other end.
            |facts| facts.in_flight[0].ends.clear(),
            // A child of the waiter, or what init was given, from after the pipe was made.
            |facts| facts.lineages[4].parent = 20,
            |facts| facts.lineages[4].parent = 1,
            // A fork of the same program.
            |facts| facts.lineages[3].program = (3, 3),
            // Not known: who it is, when the pipe was made, what the waiter is, what others have.
            |facts| facts.in_flight[0].ends.push(99),
            |facts| facts.made.clear(),
            |facts| facts.lineages[2].program = (0, 0),
            |facts| facts.unread = 1,
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut facts = facts();
            change(&mut facts);
            assert!(is_wake_source(&facts), "change {at}");
        }
    }

    #[test]
    fn a_circle_of_parents_has_an_end() {
        let mut facts = facts();
        (facts.lineages[1].parent, facts.lineages[1].began_ms) = (31, 9_000);
        (facts.lineages[0].parent, facts.made[0].at_ms) = (31, 0);
        assert!(is_wake_source(&facts));
    }
}
