//! Whether anything may still come to a thread that polls and did not leave its call.
//!
//! In: two ranks of which one waits for the other. Out: whether nothing is under way between them. A call that lasted proves by itself nothing: a message
//! of gigabytes takes longer than both rounds. Within one machine, by one look, what the other rank had sent before it entered its own call
//! has come, since this one has polled for it since then; what it sends still, or takes still, are the messages that are not over.
//! Between machines a network may hold them back, and so it does between two looks, whose times are not the same.

use super::digest::RankWait;
use super::gather::Rank;
use super::standing::is_told;

/// Whether nothing is under way to `waiter` from `other`, both of which have not left their calls.
pub(super) fn is_held((waiter, wait): (&Rank<'_>, &RankWait), (other, theirs): (&Rank<'_>, &RankWait)) -> bool {
    if is_told(waiter, wait) {
        return true;
    }
    let open = |wait: &RankWait| {
        let collective = wait.collective.as_ref()?;
        collective.open_sends.zip(collective.open_receives)
    };
    let Some(((sends, receives), (sent, received))) = open(wait).zip(open(theirs)) else { return false };
    // A rank in an operation of a group receives, whether or not it has a message for it.
    let can_receive = receives > 0 || sends == 0;
    std::ptr::eq(waiter.look, other.look)
        && theirs.polled_ms.is_some()
        && (sent == 0 || !can_receive)
        && (sends == 0 || received == 0)
}

#[cfg(test)]
mod tests {
    use super::super::digest::{Digest, Member, RankWait};
    use super::super::report;
    use super::super::tests::{look, member, operation, twice, waits};
    use crate::report::Verdict;
    use crate::waits::collective::Collective;

    /// An operation that MPICH says little of.
    fn call(op: &str, peer: u32, (sends, receives): (u32, u32)) -> Collective {
        Collective {
            backend: "mpich".into(),
            mark: None,
            matched: None,
            returns_to: Some("0x1234".into()),
            open_sends: Some(sends),
            open_receives: Some(receives),
            ..operation(op, &[peer])
        }
    }

    const RECEIVES: (u32, u32) = (0, 1);
    const SENDS: (u32, u32) = (1, 0);

    fn polled(mut member: Member, polled_ms: Option<u64>) -> Member {
        member.waits.iter_mut().for_each(|wait: &mut RankWait| wait.polled_ms = polled_ms);
        member
    }

    /// The verdict over two ranks that wait for each other in these calls, one look a round for both.
    fn verdict(calls: [(&str, (u32, u32)); 2], polled_ms: [Option<u64>; 2]) -> Verdict {
        verdict_of(calls, polled_ms, true)
    }

    fn verdict_of(calls: [(&str, (u32, u32)); 2], polled_ms: [Option<u64>; 2], together: bool) -> Verdict {
        let rank = |round: u8, number: u32| {
            let ((op, open), ms) = (calls[number as usize], polled_ms[number as usize]);
            polled(waits(member(number, 2), call(op, 1 - number, open)), ms.filter(|_| round == 2))
        };
        let members = |round: u8| vec![rank(round, 0), rank(round, 1)];
        let digest = match together {
            false => twice(members(1), members(2)),
            true => {
                let first = look(1, "node", &[], members(1));
                let mut digest = Digest::default();
                digest.add(look(2, "node", &[&first], members(2)));
                digest.add(first);
                digest
            }
        };
        report(&digest).verdict
    }

    #[test]
    fn who_polls_and_gets_nothing_waits_for_ever() {
        let long = [Some(300), Some(20)];
        assert_eq!(verdict([("recv", RECEIVES); 2], long), Verdict::Deadlock);
        assert_eq!(verdict([("send", SENDS); 2], long), Verdict::Deadlock);
    }

    #[test]
    fn what_may_still_come_is_no_proof() {
        let long = [Some(300), Some(300)];
        for calls in [
            // One of them sends something beside: it may be what the other waits for.
            [("recv", (1, 1)), ("recv", RECEIVES)],
            [("recv", RECEIVES), ("recv", (1, 1))],
            // It has begun to receive before it sent.
            [("send", SENDS), ("send", (1, 1))],
        ] {
            assert_eq!(verdict(calls, long), Verdict::Blocked, "{calls:?}");
        }
    }

    #[test]
    fn who_has_not_polled_may_not_have_seen_it() {
        let receives = [("recv", RECEIVES); 2];
        for polled in [[None, Some(300)], [Some(300), None], [Some(19), Some(300)], [Some(300), Some(0)], [None, None]]
        {
            assert_eq!(verdict(receives, polled), Verdict::Blocked, "{polled:?}");
        }
    }

    #[test]
    fn who_has_left_the_call_moves() {
        let left = |mut member: Member| {
            member.waits[0].left = true;
            member
        };
        let members = || (0..2).map(|rank| waits(member(rank, 2), call("recv", 1 - rank, RECEIVES)));
        let first = look(1, "node", &[], members().collect());
        let mut digest = Digest::default();
        digest.add(look(2, "node", &[&first], members().map(left).collect()));
        digest.add(first);
        let report = report(&digest);
        assert!(!report.summary.contains("Not confirmed"), "{}", report.summary);
        assert_eq!(report.verdict.exit_code(), 0);
    }

    #[test]
    fn two_looks_have_not_the_same_time() {
        assert_eq!(verdict_of([("recv", RECEIVES); 2], [Some(300), Some(300)], false), Verdict::Blocked);
    }
}
