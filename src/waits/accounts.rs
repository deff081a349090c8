//! One answer where several observers say who has a resource.
//!
//! In: the holds that families add, [`Account`]s of those who know some or all holders of a resource, and the gaps of those who know
//! none ([`Unnamed`]). Out: holds of which none contradicts another, and the gaps that are left. Passes only add; what they added is
//! taken away here, by rank, so that their order decides nothing: the resource's own word comes first, then what was seen or derived
//! from code, then candidates.

use super::model::{Hold, ResourceKey, Strength};
use crate::image::Gap;

/// One observer's word on who has a resource.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// What they have.
    pub(crate) resource: ResourceKey,
    /// The holders.
    pub(crate) holds: Vec<Hold>,
    /// Nobody else has it.
    pub(crate) is_all: bool,
}

/// A gap about who has a resource.
#[derive(Debug, Clone)]
pub(crate) struct Unnamed {
    /// What they have.
    pub(crate) resource: ResourceKey,
    /// What is not known, and why.
    pub(crate) gap: Gap,
    /// Whether the reason ends with the number of candidates.
    pub(crate) counts_candidates: bool,
}

/// Bring all accounts together with the holds; the gaps that are left.
pub(super) fn settle(mut accounts: Vec<Account>, unnamed: Vec<Unnamed>, holds: &mut Vec<Hold>) -> Vec<Gap> {
    // The strongest has the last word.
    accounts.sort_by_key(|account| account.holds.iter().map(|hold| hold.strength).min());
    let settled = |account: Account| {
        let resource = account.resource.clone();
        one(account, holds).then_some(resource)
    };
    let explained: Vec<ResourceKey> = accounts.into_iter().filter_map(settled).collect();
    let left = unnamed.into_iter().filter(|unnamed| !explained.contains(&unnamed.resource));
    left.map(|Unnamed { resource, mut gap, counts_candidates }| {
        if counts_candidates {
            gap.why += &match holds.iter().filter(|hold| hold.resource == resource).count() {
                0 => ", no captured thread is possible".to_owned(),
                1 => ", 1 thread is possible".to_owned(),
                count => format!(", {count} threads are possible"),
            };
        }
        gap
    })
    .collect()
}

/// Settle one account: whether it names all holders.
fn one(account: Account, holds: &mut Vec<Hold>) -> bool {
    let Account { resource, holds: seen, is_all } = account;
    let names_itself =
        |hold: &Hold| hold.resource == resource && hold.strength == Strength::Recorded && hold.source.is_none();
    // Where and since when is added to the resource's own word.
    if holds.iter().any(names_itself) {
        for hold in holds.iter_mut().filter(|hold| hold.resource == resource) {
            if let Some(seen) = seen.iter().find(|seen| seen.holder == hold.holder) {
                supplement(hold, seen);
            }
        }
        return false;
    }
    // Where these are not all, others remain what they are.
    holds.retain(|hold| hold.resource != resource || !is_all && seen.iter().all(|seen| seen.holder != hold.holder));
    holds.extend(seen);
    is_all
}

/// The additional facts of another observer.
fn supplement(hold: &mut Hold, seen: &Hold) {
    hold.since_ms = seen.since_ms;
    hold.source = seen.source;
    hold.frame = hold.frame.or(seen.frame);
    hold.taken = hold.taken.take().or_else(|| seen.taken.clone());
    hold.mode = hold.mode.or(seen.mode);
    hold.evidence.extend(seen.evidence.iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Addr;
    use crate::waits::kinds;
    use crate::waits::model::{HoldSource, Party, Scope};

    fn key() -> ResourceKey {
        ResourceKey { kind: kinds::PTHREAD_RWLOCK, scope: Scope::Process(0), address: Addr(0x1000) }
    }

    fn hold(tid: i32, strength: Strength, source: Option<HoldSource>) -> Hold {
        Hold { source, strength, ..crate::waits::holders::exact_hold(&key(), Party::Thread(0, tid), None, Vec::new()) }
    }

    fn holders(holds: &[Hold]) -> Vec<(Party, Strength)> {
        holds.iter().map(|hold| (hold.holder.clone(), hold.strength)).collect()
    }

    fn account(strength: Strength, tids: &[i32], is_all: bool) -> Account {
        let holds = tids.iter().map(|tid| hold(*tid, strength, Some(HoldSource::Recorder))).collect();
        Account { resource: key(), holds, is_all }
    }

    fn nobody() -> Unnamed {
        let gap = Gap::new("readers", "there are 2");
        Unnamed { resource: key(), gap, counts_candidates: true }
    }

    #[test]
    fn a_whole_account_takes_the_place_of_candidates_and_of_gaps_in_any_order() {
        let candidates = || vec![hold(1, Strength::Candidate, None), hold(2, Strength::Candidate, None)];
        let weak = account(Strength::Inferred, &[1], true);
        let strong = account(Strength::Recorded, &[3], true);
        for accounts in [vec![weak.clone(), strong.clone()], vec![strong, weak]] {
            let mut holds = candidates();
            let gaps = settle(accounts, vec![nobody()], &mut holds);
            assert_eq!(holders(&holds), [(Party::Thread(0, 3), Strength::Recorded)]);
            assert!(gaps.is_empty(), "{gaps:?}");
        }
    }

    #[test]
    fn beside_an_account_of_some_others_remain_and_are_counted() {
        let mut holds = vec![hold(1, Strength::Candidate, None), hold(2, Strength::Candidate, None)];
        let gaps = settle(vec![account(Strength::Recorded, &[2], false)], vec![nobody()], &mut holds);
        let expected = [(Party::Thread(0, 1), Strength::Candidate), (Party::Thread(0, 2), Strength::Recorded)];
        assert_eq!(holders(&holds), expected);
        assert_eq!(gaps[0].why, "there are 2, 2 threads are possible");
    }

    #[test]
    fn the_word_of_the_resource_is_believed_before_all_others() {
        let mut holds = vec![hold(1, Strength::Recorded, None)];
        let seen = Hold { since_ms: Some(7), ..hold(1, Strength::Recorded, Some(HoldSource::Recorder)) };
        let other = hold(2, Strength::Recorded, Some(HoldSource::Recorder));
        settle(vec![Account { resource: key(), holds: vec![seen, other], is_all: true }], Vec::new(), &mut holds);
        assert_eq!(holders(&holds), [(Party::Thread(0, 1), Strength::Recorded)]);
        assert_eq!(holds[0].since_ms, Some(7));
    }
}
