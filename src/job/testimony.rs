//! Accounts of witnesses, added to the samples of their ranks.
//!
//! In: a [`Digest`]. Out: the same with waits in operations that no sample showed, for the ranks of the one job that it
//! is of; ranks without a sample get one that says so. A witness's word is of one moment: it never makes a wait stand
//! still, and where another witness saw the same operation end it is not believed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::digest::{Digest, Doing, Look, Member, RankWait};
use super::gather::key_of;
use super::links::called;
use super::ranks::named;
use super::witness::{Account, Witness};
use crate::launcher::JobEngine;
use crate::report::{Certainty, Gap, Identity, Job, ThreadState, Verdict};
use crate::waits::collective::Collective;

/// Operations to which all ranks give as much.
const ALIKE: [&str; 3] = ["all_reduce", "broadcast", "reduce"];

/// An account, and whose it is.
#[derive(Debug, Clone)]
struct Said {
    account: Account,
    source: String,
}

/// The digest with what its witnesses say.
pub(super) fn applied(digest: &Digest) -> Cow<'_, Digest> {
    let is_of_operations = |witness: &&Witness| !witness.accounts.is_empty() || !witness.gaps.is_empty();
    let witnesses: Vec<&Witness> = digest.witnesses().filter(is_of_operations).collect();
    if witnesses.is_empty() {
        return Cow::Borrowed(digest);
    }
    let mut gaps: Vec<Gap> = witnesses.iter().flat_map(|witness| witness.gaps.iter().cloned()).collect();
    let jobs: BTreeSet<String> = ranks(digest).filter_map(|(_, member)| key_of(&member.identity)).collect();
    let mut said = Vec::new();
    if jobs.len() > 1 {
        let why = "these files are of several jobs, and they do not say of which one they speak: merge each job alone";
        gaps.push(Gap::new(
            witnesses
                .iter()
                .map(|witness| witness.source.as_str())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(", "),
            why,
        ));
    } else {
        let of = |witness: &&Witness| {
            let source = witness.source.clone();
            witness
                .accounts
                .iter()
                .map(move |account| Said { account: account.clone(), source: source.clone() })
                .collect::<Vec<_>>()
        };
        said = witnesses.iter().flat_map(of).collect();
        leave_out_the_past(&mut said, &mut gaps);
        tell_data_apart(&mut said);
    }
    let mut looks: Vec<Look> = digest.looks().cloned().collect();
    let mut by_rank: BTreeMap<u32, Vec<Said>> = BTreeMap::new();
    for one in &said {
        by_rank.entry(one.account.rank).or_default().push(one.clone());
    }
    // The first operation that a rank waits for comes first.
    by_rank.values_mut().for_each(|list| list.sort_by_key(|one| (one.account.inside.is_none(), one.account.since)));
    let behind = behind(&said);
    for member in looks.iter_mut().flat_map(|look| &mut look.members).filter(|member| !member.identity.helper) {
        let Some(list) = member.identity.rank.and_then(|rank| by_rank.get(&rank)) else { continue };
        let pids = [member.identity.ns_pid, member.pid];
        for one in list.iter().filter(|one| one.account.pid.is_none_or(|pid| pids.contains(&pid))) {
            add(member, one, &behind);
        }
    }
    looks.extend(without_a_look(digest, &by_rank, &behind, &mut gaps));
    if let Some(first) = looks.first_mut() {
        first.gaps.extend(gaps);
    }
    Cow::Owned(digest.with_looks(looks))
}

/// The ranks in a digest.
fn ranks(digest: &Digest) -> impl Iterator<Item = (&Look, &Member)> {
    let members = digest.looks().flat_map(|look| look.members.iter().map(move |member| (look, member)));
    members.filter(|(_, member)| !member.identity.helper && member.identity.rank.is_some())
}

/// If another rank of the group has left an operation by now, no rank waits in it: the files are of different moments.
fn leave_out_the_past(said: &mut [Said], gaps: &mut Vec<Gap>) {
    let mut left: BTreeMap<String, u64> = BTreeMap::new();
    for Said { account, .. } in said.iter() {
        let is_message = account.inside.as_ref().is_some_and(|one| one.size.is_none());
        let over = match (&account.inside, account.last) {
            (Some(inside), _) if !is_message => inside.seq.and_then(|seq| seq.checked_sub(1)),
            (None, last) => last,
            _ => None,
        };
        if let Some(over) = over {
            let most = left.entry(account.group.clone()).or_default();
            *most = (*most).max(over);
        }
    }
    let mut past = BTreeSet::new();
    for one in said.iter_mut() {
        let done = left.get(&one.account.group).copied().unwrap_or(0);
        let is_over = |inside: &Collective| inside.synchronises && inside.seq.is_some_and(|seq| seq <= done);
        if one.account.inside.as_ref().is_some_and(is_over) {
            one.account.inside = None;
            past.insert(one.account.rank);
        }
    }
    if !past.is_empty() {
        let past: Vec<u32> = past.into_iter().collect();
        let why = "what a file says that they are in, another one saw end: the files were written at different moments";
        let verb = if past.len() == 1 { "was" } else { "were" };
        gaps.push(Gap::new(format!("which operation {} {verb} in", named(&past)), why));
    }
}

/// Where ranks give different data to one operation, its name has them: these calls do not match.
fn tell_data_apart(said: &mut [Said]) {
    type Key = (String, Option<u64>, String);
    let key = |account: &Account| -> Option<Key> {
        let inside = account.inside.as_ref().filter(|one| ALIKE.contains(&one.op.as_str()))?;
        Some((account.group.clone(), inside.seq, inside.op.clone())).filter(|_| !account.data.is_empty())
    };
    let mut data: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
    for one in said.iter() {
        if let Some(key) = key(&one.account) {
            data.entry(key).or_default().insert(one.account.data.clone());
        }
    }
    for one in said.iter_mut() {
        let differs = key(&one.account).and_then(|key| data.get(&key)).is_some_and(|all| all.len() > 1);
        if let Some(inside) = one.account.inside.as_mut().filter(|_| differs) {
            inside.op = format!("{} of {}", inside.op, one.account.data);
        }
    }
}

/// For each group, the highest number of an operation that some rank is in.
fn behind(said: &[Said]) -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for Said { account, .. } in said {
        if let Some(seq) = account.inside.as_ref().filter(|one| one.size.is_some()).and_then(|one| one.seq) {
            let most = found.entry(account.group.clone()).or_default();
            *most = (*most).max(seq);
        }
    }
    found
}

/// Adds a witness's account of a rank to a sample of it.
fn add(member: &mut Member, said: &Said, behind: &BTreeMap<String, u64>) {
    let Said { account, source } = said;
    let Some(inside) = &account.inside else {
        let is_behind = behind.get(&account.group).is_some_and(|most| account.last.is_none_or(|last| last < *most));
        if is_behind && member.witnessed.is_none() {
            let at = if account.place.is_empty() { String::new() } else { format!(" at {}", account.place) };
            member.witnessed = Some(match account.last {
                Some(last) => format!("has entered nothing of {} after #{last}{at}, by {source}", account.group),
                None => format!("has entered fewer operations of {}, by {source}", account.group),
            });
        }
        return;
    };
    // The sample's own account of the same operation is of the same moment as the rest of it.
    let is_known = |wait: &RankWait| {
        wait.collective.as_ref().is_some_and(|own| own.seq == inside.seq && own.backend == inside.backend)
    };
    if member.waits.iter().any(is_known) {
        return;
    }
    let collective = Collective { witness: Some(source.clone()), ..inside.clone() };
    let group = &account.group;
    let label = match collective.peers.as_slice() {
        [peer] if collective.op == "send" => format!("send #{} to rank {peer} of {group}", collective.seq.unwrap_or(0)),
        [peer] => format!("{} from rank {peer} of {group}", collective.op),
        _ => format!("{} of {group}", called(&collective)),
    };
    let is_first = !member.waits.iter().any(|wait| wait.collective.as_ref().is_some_and(|own| own.witness.is_some()));
    member.waits.push(RankWait {
        tid: member.main.tid,
        holds_up_main: is_first,
        label: label.clone(),
        place: if account.place.is_empty() { member.main.place.clone() } else { account.place.clone() },
        timed: false,
        certainty: Certainty::Inferred,
        since_ms: None,
        polled_ms: None,
        polled_by: Vec::new(),
        left: false,
        collective: Some(collective),
        connection: None,
        held_by: None,
    });
    if member.main.wait.is_none() {
        member.main.wait = Some(label);
    }
}

/// Ranks that only witnesses know, as samples of their own.
fn without_a_look(
    digest: &Digest,
    by_rank: &BTreeMap<u32, Vec<Said>>,
    behind: &BTreeMap<String, u64>,
    gaps: &mut Vec<Gap>,
) -> Option<Look> {
    let seen: BTreeSet<u32> = ranks(digest).filter_map(|(_, member)| member.identity.rank).collect();
    let first = ranks(digest).next().map(|(_, member)| &member.identity);
    let job = first.and_then(|identity| identity.job.clone());
    let sizes = by_rank.values().flatten().map(|one| {
        one.account
            .inside
            .as_ref()
            .and_then(|inside| inside.size)
            .unwrap_or(0)
            .max(u32::try_from(one.account.ranks.len()).unwrap_or(0))
    });
    let size = first.and_then(|identity| identity.size).or_else(|| sizes.max().filter(|size| *size > 0));
    let unseen: Vec<(u32, &Vec<Said>)> =
        by_rank.iter().filter(|(rank, _)| !seen.contains(rank)).map(|(rank, list)| (*rank, list)).collect();
    if unseen.is_empty() {
        return None;
    }
    let sources: BTreeSet<&str> =
        unseen.iter().flat_map(|(_, list)| list.iter().map(|one| one.source.as_str())).collect();
    let why = format!(
        "only {} tells of them: what their threads do is not known",
        sources.into_iter().collect::<Vec<_>>().join(" and ")
    );
    gaps.push(Gap::new(format!("looks at {}", named(&unseen.iter().map(|(rank, _)| *rank).collect::<Vec<_>>())), why));
    let member = |(rank, list): &(u32, &Vec<Said>)| {
        let pid = list.iter().find_map(|one| one.account.pid).unwrap_or(0);
        let job = job.clone().unwrap_or(Job { engine: JobEngine::Torch, id: None, step: None });
        let mut member = Member {
            pid,
            program: "process".to_owned(),
            identity: Identity { ns_pid: pid, job: Some(job), rank: Some(*rank), size, ..Identity::default() },
            verdict: Verdict::Blocked,
            finding: None,
            main: Doing {
                tid: 0,
                name: "MainThread".to_owned(),
                state: ThreadState::Other,
                place: String::new(),
                wait: None,
            },
            waits: Vec::new(),
            others: 0,
            free_thread: None,
            connections: Vec::new(),
            carried: Vec::new(),
            threads: 0,
            classes: Vec::new(),
            helpers: Vec::new(),
            enqueued: Vec::new(),
            cluster: None,
            on_gpu: false,
            witnessed: None,
        };
        list.iter().for_each(|one| add(&mut member, one, behind));
        member
    };
    let round = digest.looks().map(|look| look.round).max().unwrap_or(1);
    Some(Look { round, members: unseen.iter().map(member).collect(), ..Look::default() })
}
