//! Whether anything may still come to a thread that polls and did not leave its call.
//!
//! In: two ranks, the first waiting for the second. Out: whether messages may still be under way between them. A long
//! call alone proves nothing: a message of gigabytes takes longer than both rounds. Within one machine, every message
//! that the other rank sent before it entered its own call has arrived, if this rank has polled for it since then. Only
//! unfinished messages, which it still sends or takes, remain. The two samples need not be the same: the time that this
//! rank polled while both were in their calls counts. Between machines a network may hold messages back.

use chrono::{DateTime, TimeDelta, Utc};

use super::digest::RankWait;
use super::gather::Rank;
use super::standing::{LEAST_POLLED, is_reportable};

/// Whether nothing is under way to `waiter` from `other`. Neither has left its call.
pub(super) fn is_held((waiter, wait): (&Rank<'_>, &RankWait), (other, theirs): (&Rank<'_>, &RankWait)) -> bool {
    if is_reportable(waiter, wait) {
        return true;
    }
    let open = |wait: &RankWait| {
        let collective = wait.collective.as_ref()?;
        collective.open_sends.zip(collective.open_receives)
    };
    let Some(((sends, receives), (sent, received))) = open(wait).zip(open(theirs)) else { return false };
    // A rank in an operation of a group receives, whether or not it has a message for it.
    let can_receive = receives > 0 || sends == 0;
    theirs.polled_ms.is_some()
        && has_polled_beside((waiter, wait), other)
        && (sent == 0 || !can_receive)
        && (sends == 0 || received == 0)
}

/// Whether `waiter` has polled for long enough while the other rank was in its call, too.
fn has_polled_beside((waiter, wait): (&Rank<'_>, &RankWait), other: &Rank<'_>) -> bool {
    let machine = |rank: &Rank<'_>| rank.look.host.boot_id.clone();
    if machine(waiter).is_none() || machine(waiter) != machine(other) {
        return false;
    }
    let Some(((begin, end), (from, until))) = in_calls(waiter).zip(in_calls(other)) else { return false };
    let millis = |ms: u64| i64::try_from(ms).ok().and_then(TimeDelta::try_milliseconds);
    let Some(polled) = wait.polled_ms.and_then(millis) else { return false };
    let counted = wait
        .polled_by
        .iter()
        .filter_map(|(after, ran)| Some((begin.checked_add_signed(millis(*after)?)?, millis(*ran)?)))
        .filter(|(at, _)| *at < end);
    let mut ran_by = vec![(begin, TimeDelta::zero())];
    ran_by.extend(counted);
    let least = ran_by.last().map_or(polled, |(_, ran)| *ran);
    ran_by.push((end, polled.max(least)));
    // Nobody runs for longer than it takes.
    let is_possible =
        |((at, ran), (next, now)): (Told, Told)| now >= ran && now - ran <= next - at + TimeDelta::milliseconds(1);
    if !parts(&ran_by).all(is_possible) {
        ran_by = vec![(begin, TimeDelta::zero()), (end, polled)];
    }
    // In each part of its time it ran as far as possible while it was alone.
    let beside = |((at, ran), (next, now)): (Told, Told)| {
        let common = (next.min(until) - at.max(from)).max(TimeDelta::zero());
        (now - ran - (next - at - common)).clamp(TimeDelta::zero(), common).num_milliseconds()
    };
    parts(&ran_by).map(beside).sum::<i64>() >= LEAST_POLLED.as_millis() as i64
}

/// How long a thread had run by when.
type Told = (DateTime<Utc>, TimeDelta);

/// Each with the next one.
fn parts(ran_by: &[Told]) -> impl Iterator<Item = (Told, Told)> {
    ran_by.iter().copied().zip(ran_by.iter().copied().skip(1))
}

/// From when until when a rank whose calls are counted is known to be in one: from the end of its first sample to that
/// of its last.
fn in_calls(rank: &Rank<'_>) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let (_, before) = rank.before?;
    before.end().zip(rank.look.end())
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

    /// The verdict over two ranks that wait for each other in these calls, one sample a round for both.
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
    fn between_machines_a_message_may_be_held_back() {
        assert_eq!(verdict_of([("recv", RECEIVES); 2], [Some(300), Some(300)], false), Verdict::Blocked);
    }

    /// The verdict on two ranks of one machine that were sampled one after the other. Both polled for `polled_ms`, and
    /// the second was first seen in its call at `from`.
    fn one_by_one(polled_ms: u64, from: &str) -> Verdict {
        counted_by(polled_ms, &[], from)
    }

    fn counted_by(polled_ms: u64, by: &[(u64, u64)], from: &str) -> Verdict {
        let rank = |number: u32| waits(member(number, 2), call("recv", 1 - number, RECEIVES));
        let mut first = [look(1, "node", &[], vec![rank(0)]), look(1, "node", &[], vec![rank(1)])];
        first[1].ended = format!("2026-01-01T00:00:0{from}Z");
        let first = first.map(|mut look| {
            look.partial = true;
            look.named()
        });
        let mut digest = Digest::default();
        for number in 0..2 {
            let mut members = vec![polled(rank(number), Some(polled_ms))];
            members[0].waits[0].polled_by = by.to_vec();
            let mut second = look(2, "node", &first.iter().collect::<Vec<_>>(), members);
            second.partial = true;
            digest.add(second.named());
        }
        first.into_iter().for_each(|look| digest.add(look));
        report(&digest).verdict
    }

    #[test]
    fn who_polls_while_the_other_is_in_its_call_has_seen_all_that_it_sent() {
        assert_eq!(one_by_one(20, "1.500"), Verdict::Deadlock);
        // 900 of its 1000 ms it may have polled before the other came to its call.
        assert_eq!(one_by_one(920, "2.400"), Verdict::Deadlock);
        assert_eq!(one_by_one(919, "2.400"), Verdict::Blocked);
        assert_eq!(one_by_one(990, "not a time"), Verdict::Blocked);
    }

    #[test]
    fn when_it_polled_is_told_the_better_the_more_often_it_was_asked() {
        assert_eq!(counted_by(300, &[], "2.400"), Verdict::Blocked);
        assert_eq!(counted_by(300, &[(400, 100), (900, 280)], "2.400"), Verdict::Deadlock);
        assert_eq!(counted_by(300, &[(400, 100), (900, 281)], "2.400"), Verdict::Blocked);
        // It ran 70 ms of 100 ms. Half of the 100 ms were beside the other, so at least 20 ms overlapped.
        assert_eq!(counted_by(300, &[(850, 230), (950, 300)], "2.400"), Verdict::Deadlock);
        // Impossible values are not believed.
        let most = i64::MAX as u64;
        for by in
            [[(900, 0), (890, 10)], [(u64::MAX, most), (0, most)], [(most, 0), (9, most)], [(2000, 0), (3000, 300)]]
        {
            assert_eq!(counted_by(300, &by, "2.400"), Verdict::Blocked, "{by:?}");
        }
    }
}
