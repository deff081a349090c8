//! The activity of ranks, in words.
//!
//! In: the kept data of a rank. Out: parts of sentences. Other modules decide which rank is reported, and why.

use super::digest::{Doing, Helper, Member, RankWait};
use super::helpers;
use super::links::called;
use crate::limits::job::MOST_SAID;
use crate::waits::collective::Collective;

/// "waits for lock x at y.py:3", "is running at y.py:3", by whichever source says so.
pub(super) fn doing(member: &Member) -> String {
    let own = match &member.main {
        // Only a witness knows of this rank.
        main if main.tid == 0 && main.wait.is_none() => "was not looked at".to_owned(),
        main => of_thread(main),
    };
    match &member.witnessed {
        Some(said) => format!("{own} and {said}"),
        None => own,
    }
}

/// Whom of its own processes a rank waits for: "a worker of a PyTorch DataLoader (python3.11 6845), which is sleeping at x.py:5 get".
pub(super) fn helped_by(member: &Member) -> Option<String> {
    let part = |helper: &Helper| {
        let name = helpers::called(helper.role.as_deref(), &helper.program, helper.pid);
        format!("{name}, which {}", of_thread(&helper.main))
    };
    let mut parts: Vec<String> = member.helpers.iter().take(MOST_SAID).map(part).collect();
    if member.helpers.len() > MOST_SAID {
        parts.push(format!("{} more", member.helpers.len() - MOST_SAID));
    }
    (!parts.is_empty()).then(|| parts.join(", or "))
}

/// "waits for lock x at y.py:3", "is running at y.py:3".
pub(super) fn of_thread(thread: &Doing) -> String {
    let at = place_phrase(&thread.place);
    match &thread.wait {
        Some(wait) => format!("waits for {wait}{at}"),
        None => format!("is {}{at}", thread.state.as_str()),
    }
}

/// The object that a rank waits for. For a GPU also the operation that it is in, if a witness knows: "the GPU, which is
/// in recv from rank 1 of default_pg".
pub(super) fn waited_for(wait: &RankWait) -> String {
    let of_witness = |collective: &&Collective| collective.witness.is_some() && !wait.label.contains(&collective.op);
    let Some(collective) = wait.collective.as_ref().filter(of_witness) else { return wait.label.clone() };
    let peer = match (collective.op.as_str(), collective.peers.as_slice()) {
        ("send", [peer]) => format!(" to rank {peer}"),
        (_, [peer]) => format!(" from rank {peer}"),
        _ => String::new(),
    };
    let group = collective.group.as_deref().filter(|group| !group.is_empty());
    let group = group.map(|group| format!(" of {group}")).unwrap_or_default();
    format!("{}, which is in {}{peer}{group}", wait.label, called(collective))
}

/// The activity of a rank, without the numbers of others, so that ranks of one group have equal texts.
pub(super) fn doing_as_group(member: &Member) -> String {
    let collective = member.waits.iter().find(|wait| wait.holds_up_main).and_then(|wait| {
        let collective = wait.collective.as_ref()?;
        let group = collective.group.as_deref().filter(|group| !group.is_empty());
        let group = group.map(|group| format!(" of {group}")).unwrap_or_default();
        Some(format!("in {}{group}{}", called(collective), place_phrase(&wait.place)))
    });
    collective.unwrap_or_else(|| doing(member))
}

/// " at y.py:3".
pub(super) fn place_phrase(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(" at {place}") }
}

/// With a capital letter.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
