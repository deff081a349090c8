//! One answer where several observers report the holders of a resource.
//!
//! In: the holds that families add, [`Account`]s of observers that know some or all holders, and gaps of observers without any
//! ([`Unnamed`]). Out: holds that do not contradict each other, and the gaps that are left. Passes only add; weaker results are
//! removed here and nowhere else, by rank, so that the order of passes decides nothing. The resource's own word ranks first, then
//! observed or derived holders, then candidates.

use super::model::{Hold, ResourceKey, Strength};
use crate::image::Gap;

/// One observer's list of the holders of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// The resource.
    pub(crate) resource: ResourceKey,
    /// The holders.
    pub(crate) holds: Vec<Hold>,
    /// Whether the list is complete.
    pub(crate) is_all: bool,
}

/// A gap about the holders of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Unnamed {
    /// The resource.
    pub(crate) resource: ResourceKey,
    /// The gap.
    pub(crate) gap: Gap,
    /// Whether the reason ends with the number of candidates.
    pub(crate) counts_candidates: bool,
}

/// Resolve all accounts into `holds`. Returns the gaps that no complete account explains.
pub(super) fn resolve(mut accounts: Vec<Account>, unnamed: Vec<Unnamed>, holds: &mut Vec<Hold>) -> Vec<Gap> {
    // The strongest has the last word.
    accounts.sort_by_key(|account| account.holds.iter().map(|hold| hold.strength).min());
    let resolved = |account: Account| {
        let resource = account.resource.clone();
        one(account, holds).then_some(resource)
    };
    let explained: Vec<ResourceKey> = accounts.into_iter().filter_map(resolved).collect();
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

/// Resolve one account. Returns whether it names all holders.
fn one(account: Account, holds: &mut Vec<Hold>) -> bool {
    let Account { resource, holds: seen, is_all } = account;
    let names_itself =
        |hold: &Hold| hold.resource == resource && hold.strength == Strength::Recorded && hold.source.is_none();
    // The resource names its holder: the account adds only the place and the time.
    if holds.iter().any(names_itself) {
        for hold in holds.iter_mut().filter(|hold| hold.resource == resource) {
            if let Some(seen) = seen.iter().find(|seen| seen.holder == hold.holder) {
                supplement(hold, seen);
            }
        }
        return false;
    }
    // An incomplete account replaces only the holds of its own holders.
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
            let gaps = resolve(accounts, vec![nobody()], &mut holds);
            assert_eq!(holders(&holds), [(Party::Thread(0, 3), Strength::Recorded)]);
            assert!(gaps.is_empty(), "{gaps:?}");
        }
    }

    #[test]
    fn beside_an_account_of_some_others_remain_and_are_counted() {
        let mut holds = vec![hold(1, Strength::Candidate, None), hold(2, Strength::Candidate, None)];
        let gaps = resolve(vec![account(Strength::Recorded, &[2], false)], vec![nobody()], &mut holds);
        let expected = [(Party::Thread(0, 1), Strength::Candidate), (Party::Thread(0, 2), Strength::Recorded)];
        assert_eq!(holders(&holds), expected);
        assert_eq!(gaps[0].why, "there are 2, 2 threads are possible");
    }

    #[test]
    fn the_word_of_the_resource_is_believed_before_all_others() {
        let mut holds = vec![hold(1, Strength::Recorded, None)];
        let seen = Hold { since_ms: Some(7), ..hold(1, Strength::Recorded, Some(HoldSource::Recorder)) };
        let other = hold(2, Strength::Recorded, Some(HoldSource::Recorder));
        resolve(vec![Account { resource: key(), holds: vec![seen, other], is_all: true }], Vec::new(), &mut holds);
        assert_eq!(holders(&holds), [(Party::Thread(0, 1), Strength::Recorded)]);
        assert_eq!(holds[0].since_ms, Some(7));
    }
}
