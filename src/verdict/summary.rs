//! The sentence at the top of the report.
//!
//! In: the judged sample. Out: one or two sentences that a tired engineer can act on. It decides nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::busy_threads;
use super::context::Context;
use super::kept;
use crate::graph::{Cycle, Root};
use crate::limits::verdict::ROOTS_TOLD;
use crate::report::{self, Finding, Severity, Verdict};
use crate::waits::kinds::Topic;
use crate::waits::model::Role;
use crate::waits::{Gone, Hold, Party, ResourceKey};

/// The summary for a verdict.
pub(super) fn sentence(context: &Context<'_>, verdict: Verdict, roots: &[Root], victims: &[Party]) -> String {
    let text = match (verdict, context.cycles.first()) {
        (Verdict::Deadlock | Verdict::SuspectedDeadlock, Some(cycle)) => {
            let count = |topic: Option<Topic>| victims.iter().filter(|party| topic_of(party) == topic).count();
            let more = report::stuck_behind(count(None), count(Some(Topic::Task)));
            let more = more.map(|more| format!(" {more}.")).unwrap_or_default();
            format!("{}{more}", cycle_sentence(context, cycle))
        }
        (Verdict::OrphanedLock, _) => match context.orphans.iter().find(|orphan| orphan.blocks_for_ever) {
            Some(orphan) => orphan_sentence(context, orphan),
            None => String::new(),
        },
        (Verdict::Stuck, _) => context.dead_ends.first().map(|end| dead_end_sentence(context, end)).unwrap_or_default(),
        _ => census(context, roots),
    };
    capitalised(&text)
}

/// The topic of a resource that waits; none of a thread.
fn topic_of(party: &Party) -> Option<Topic> {
    match party {
        Party::Resource(key) => Some(key.kind.topic),
        _ => None,
    }
}

/// The sentence that comes first: the title of the first finding, else the main thread's wait or place.
pub(super) fn first_sentence(context: &Context<'_>, verdict: Verdict, findings: &[Finding], roots: &[Root]) -> String {
    if let Some(finding) =
        findings.first().filter(|finding| finding.severity != Severity::Note && !finding.title.is_empty())
    {
        return finding.title.clone();
    }
    let (input, names) = (context.input, context.names);
    let Some(first) = input.image.processes.first() else { return String::new() };
    let threads: usize = input.image.processes.iter().map(|process| process.threads.len()).sum();
    if verdict == Verdict::Running {
        let busy: Vec<i32> = busy_threads(input, 0);
        let told = busy.iter().find(|tid| **tid == first.pid).or(busy.first()).map(|tid| Party::Thread(0, *tid));
        if let Some(told) = told {
            let call = names.call(&told, None).phrase();
            return match busy.len() {
                1 if threads == 1 => format!("its only thread, {}, burns CPU{call}", names.party(&told)),
                1 => format!("1 of {threads} threads burns CPU: {}{call}", names.party(&told)),
                count => format!("{count} of {threads} threads burn CPU; {}{call}", names.party(&told)),
            };
        }
    }
    // The main thread; where it is not there, the one that most others wait for.
    let main = Party::Thread(0, first.pid);
    let most = roots.iter().max_by_key(|root| root.waiting.len()).map(|root| root.party.clone());
    let told = if names.thread(0, first.pid).is_some() { Some(main) } else { most };
    let Some(told) = told else { return String::new() };
    let mut waits = input.observations.waits.iter().filter(|wait| wait.waiter == told);
    let Some(wait) = waits.next() else {
        return format!("{}{}", names.party(&told), names.call(&told, None).phrase());
    };
    let more = match waits.count() {
        0 => String::new(),
        more => format!(" or {more} more"),
    };
    format!(
        "{} waits for {}{more}{}",
        names.party(&told),
        names.waited_for(wait),
        names.call(&told, wait.frame).phrase()
    )
}

/// The holds and waits of a cycle, once around.
pub(super) fn cycle_sentence(context: &Context<'_>, cycle: &Cycle) -> String {
    let names = context.names;
    let mut parts = Vec::new();
    for (position, edge) in cycle.edges.iter().enumerate() {
        let before = &cycle.edges[(position + cycle.edges.len() - 1) % cycle.edges.len()];
        let wait = edge.wait.map(|wait| &context.input.observations.waits[wait]);
        let wanted = wait.map_or_else(|| names.resource(&edge.resource), |wait| names.waited_for(wait));
        let mut call = names.call(&edge.waiter, wait.and_then(|wait| wait.frame));
        if edge.resource.kind.topic == Topic::Gil {
            // The function that waits for the GIL is the interpreter's own and says nothing.
            call.api = None;
        }
        let verb = if wait.is_some_and(|wait| wait.spinning) { "spins on" } else { "waits for" };
        let waits = match wait {
            Some(_) => format!("{verb} {wanted}{}", call.phrase()),
            None => format!("waits for {wanted}"),
        };
        let who = names.party_in_full(&edge.waiter);
        parts.push(if cycle.edges.len() == 1 {
            format!("{who} {} and {waits}, which it can never get", names.held(&edge.resource))
        } else if before.hold.is_none() {
            // A resource that waits is what the one before waits for: it holds nothing.
            format!("that {waits}")
        } else if position == 0 {
            format!("{who} {} and {waits}", names.held(&before.resource))
        } else {
            format!("{who} {} and {waits}", before.resource.kind.holding.held_that())
        });
    }
    parts.join("; ") + "."
}

/// The waiters for something that can never come.
pub(super) fn dead_end_sentence(context: &Context<'_>, end: &super::DeadEnd) -> String {
    let names = context.names;
    let seen = context.input.observations;
    let known_wakers = &seen.known_wakers[end.known_wakers];
    let Some(wait) = end.waits.first().map(|wait| &seen.waits[*wait]) else { return String::new() };
    let others = match end.waits.len() {
        1 => String::new(),
        2 => " 1 more waits for it.".to_owned(),
        count => format!(" {} more wait for it.", count - 1),
    };
    let (who, what) = (names.party_in_full(&wait.waiter), names.waited_for(wait));
    let could = seen.holds.iter().filter(|hold| hold.resource == known_wakers.resource && hold.gone.is_none());
    let role = context.names.described(&known_wakers.resource).and_then(|one| one.role);
    let call = if matches!(role, Some(Role::UnfinishedItems { .. })) { "call task_done()" } else { "give it" };
    // Another waiter for a lock has never had it.
    let waits_too = |hold: &&Hold| {
        let mut waits = end.waits.iter().map(|wait| &seen.waits[*wait]);
        wait.resource.kind.is_lock() && waits.any(|wait| wait.waiter == hold.holder)
    };
    let could = wait_themselves(context, could.filter(|hold| !waits_too(hold)), call);
    format!(
        "{who} waits for {what}{}; {}.{others}{could}{}",
        names.call(&wait.waiter, wait.frame).phrase(),
        known_wakers.why,
        kept::sentence(context, wait)
    )
}

/// " Only io-service (5) could give it, in f at a.py:3, and waits for the GIL itself.": those who do the same together.
fn wait_themselves<'h>(context: &Context<'_>, could: impl Iterator<Item = &'h Hold>, give: &str) -> String {
    let names = context.names;
    let mut told: Vec<(String, String, Vec<String>)> = Vec::new();
    for hold in could {
        let Some(wait) = context.input.observations.waits.iter().find(|wait| wait.waiter == hold.holder) else {
            continue;
        };
        let (call, what) = (names.call(&hold.holder, hold.frame).phrase(), names.waited_for(wait));
        let who = names.party(&hold.holder);
        match told.iter_mut().find(|known| (&known.0, &known.1) == (&call, &what)) {
            Some(known) => known.2.push(who),
            None => told.push((call, what, vec![who])),
        }
    }
    let sentence = |(call, what, who): (String, String, Vec<String>)| match who.as_slice() {
        [only] => format!(" {only} could {give}{call}, and waits for {what} itself."),
        [first, more @ ..] => {
            format!(" {first} and {} more could {give}{call}, and wait for {what} themselves.", more.len())
        }
        [] => String::new(),
    };
    told.into_iter().map(sentence).collect()
}

/// An owner without an id.
const UNNAMED: &str = "its owner";

/// The waiters for a lock that nobody can release.
pub(super) fn orphan_sentence(context: &Context<'_>, orphan: &super::Orphan) -> String {
    let names = context.names;
    let hold = &context.input.observations.holds[orphan.hold];
    let wait = orphan.waits.first().map(|wait| &context.input.observations.waits[*wait]);
    let (who, place) = match wait {
        Some(wait) => (names.party_in_full(&wait.waiter), names.call(&wait.waiter, wait.frame).phrase()),
        None => ("nobody".into(), String::new()),
    };
    let owner = match &hold.holder {
        Party::Thread(_, tid) | Party::Absent(_, tid) if *tid != 0 => format!("thread {tid}"),
        _ => UNNAMED.into(),
    };
    let why = match orphan.gone {
        Gone::Exited => format!("{owner} exited without releasing it"),
        Gone::LeftInParent if owner == UNNAMED => {
            let was = if hold.resource.kind.is_wake_up() { "was to wake it" } else { "held it" };
            format!("whoever {was} is a thread of the parent process, and fork copies no other threads")
        }
        Gone::LeftInParent => {
            format!("{owner} of the parent process held it at the fork, and only the forking thread exists here")
        }
        Gone::ProcessDead => format!("the process of {owner} is dead"),
    };
    let others = match orphan.waits.len() {
        0 | 1 => String::new(),
        2 => " 1 more waits for it.".to_owned(),
        count => format!(" {} more wait for it.", count - 1),
    };
    format!("{who} waits for {}{place}, but {why}.{others}", names.resource(&hold.resource))
}

/// Without a cycle: how many run, how many wait, and for what.
fn census(context: &Context<'_>, roots: &[Root]) -> String {
    let (input, names) = (context.input, context.names);
    let total: usize = input.image.processes.iter().map(|process| process.threads.len()).sum();
    let mut busy: Vec<Party> = Vec::new();
    for process in 0..input.image.processes.len() {
        busy.extend(busy_threads(input, process).into_iter().map(|tid| Party::Thread(process, tid)));
    }
    let mut sentences = Vec::new();
    let threads = if total == 1 { "1 thread".to_string() } else { format!("{total} threads") };
    let running = match busy.as_slice() {
        [] => "none is running".into(),
        [only] => format!("1 running ({})", place(context, only)),
        several => format!("{} running (first: {})", several.len(), place(context, &several[0])),
    };
    sentences.push(format!("{threads}, {running}, {} waiting", total.saturating_sub(busy.len())));

    let waiting: BTreeSet<&Party> = input.observations.waits.iter().map(|wait| &wait.waiter).collect();
    let mut main_said = busy.iter().any(|party| is_first(context, party));
    let mut things = Things::new();
    for wait in &input.observations.waits {
        *things.entry(&wait.waiter).or_default() += 1;
    }
    let library_threads = library_threads(context);
    // Roots that have the same waiters keep one list of them.
    let mut lists: HashMap<*const [Party], Rc<[Party]>> = HashMap::new();
    let of_program = |root: &Root| {
        let waiting = lists.entry(Rc::as_ptr(&root.waiting)).or_insert_with(|| {
            root.waiting.iter().filter(|waiter| !library_threads.contains(waiter)).cloned().collect()
        });
        Root { party: root.party.clone(), waiting: Rc::clone(waiting) }
    };
    let roots: Vec<Root> = roots.iter().map(of_program).filter(|root| !root.waiting.is_empty()).collect();
    let roots = once_for_each_set(&things, &roots);
    let (alike, roots) = alike(context, &things, &roots);
    for (what, count) in alike.iter().take(ROOTS_TOLD) {
        sentences.push(format!("{count} wait for a {what} each"));
    }
    let untold: usize = alike.iter().skip(ROOTS_TOLD).map(|(_, count)| count).sum();
    if untold > 0 {
        sentences.push(format!("{untold} wait for other things, each for one"));
    }
    for root in roots.iter().filter(|root| !root.waiting.is_empty()).take(ROOTS_TOLD) {
        main_said |= root.waiting.len() == 1 && is_first(context, &root.waiting[0]);
        main_said |= is_first(context, &root.party);
        sentences.push(root_sentence(context, root, &busy, &things));
    }
    let rest = roots.iter().filter(|root| !root.waiting.is_empty()).count().saturating_sub(ROOTS_TOLD);
    if rest > 0 {
        sentences.push(format!("and {rest} other things are waited for"));
    }
    // Readers ask about the main thread, so it is named even if its wait is unknown.
    if let (false, Some(first)) = (main_said, input.image.processes.first()) {
        let party = Party::Thread(0, first.pid);
        if !waiting.contains(&party) && names.thread(0, first.pid).is_some() {
            sentences.push(place(context, &party));
        } else if let Some(wait) = input.observations.waits.iter().find(|wait| wait.waiter == party) {
            let call = names.call(&party, wait.frame).phrase();
            sentences.push(format!("{} waits for {}{call}", names.party(&party), names.waited_for(wait)));
        }
    }
    sentences.join("; ") + "."
}

/// Things of one kind and place that have one waiter each, as a pool's idle threads have, counted by what they are
/// called without their addresses; and the other roots.
fn alike<'r>(context: &Context<'_>, things: &Things<'_>, roots: &[&'r Root]) -> (Vec<(String, usize)>, Vec<&'r Root>) {
    let called = |root: &Root| match (&root.party, &*root.waiting) {
        (Party::Resource(key), [only]) if things.get(only) == Some(&1) => context.names.resource_in_general(key),
        _ => None,
    };
    let names: Vec<Option<String>> = roots.iter().map(|root| called(root)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names.iter().flatten() {
        *counts.entry(name).or_default() += 1;
    }
    counts.retain(|_, count| *count > 1);
    let rest =
        roots.iter().zip(&names).filter(|(_, name)| name.as_deref().is_none_or(|name| !counts.contains_key(name)));
    let rest = rest.map(|(root, _)| *root).collect();
    let mut alike: Vec<(String, usize)> = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    alike.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    (alike, rest)
}

/// The threads that libraries made for their own work.
pub(super) fn library_threads(context: &Context<'_>) -> BTreeSet<Party> {
    let input = context.input;
    let mut found = BTreeSet::new();
    for (process, (threads, roles)) in input.threads.iter().zip(context.roles).enumerate() {
        let own_work = threads.iter().zip(roles).filter(|(_, role)| role.is_some_and(|role| role.own_work));
        found.extend(own_work.map(|(thread, _)| Party::Thread(process, thread.tid)));
    }
    let idle: BTreeSet<&ResourceKey> = input
        .observations
        .resources
        .iter()
        .filter(|one| one.role == Some(Role::IdleWork))
        .map(|one| &one.key)
        .collect();
    let waits = input.observations.waits.iter().filter(|wait| idle.contains(&wait.resource));
    found.extend(waits.map(|wait| wait.waiter.clone()));
    found
}

/// How many things each thread waits for at once.
type Things<'w> = BTreeMap<&'w Party, usize>;

/// Several resources may have the same waiters at once. Only the first of them is kept.
fn once_for_each_set<'r>(things: &Things<'_>, roots: &'r [Root]) -> Vec<&'r Root> {
    let mut seen: BTreeSet<&[Party]> = BTreeSet::new();
    let stands_for_more = |root: &Root| {
        matches!(root.party, Party::Resource(_))
            && root.waiting.iter().any(|waiter| things.get(waiter).is_some_and(|count| *count > 1))
    };
    roots.iter().filter(|root| !stands_for_more(root) || seen.insert(&root.waiting)).collect()
}

/// "4 wait for the GIL, held by MainThread (533) in step at train.py:56".
fn root_sentence(context: &Context<'_>, root: &Root, busy: &[Party], things: &Things<'_>) -> String {
    let (input, names) = (context.input, context.names);
    let wait = |waiting: &[&Party]| match waiting {
        [only] => format!("{} waits", names.party(only)),
        several => format!("{} wait", several.len()),
    };
    let all: Vec<&Party> = root.waiting.iter().collect();
    match &root.party {
        Party::Resource(key) => {
            let of_it = input.observations.waits.iter().filter(|wait| wait.resource == *key);
            let itself: BTreeSet<&Party> = of_it.map(|wait| &wait.waiter).collect();
            // The others wait for what these hold.
            let direct: Vec<&Party> = all.iter().copied().filter(|waiter| itself.contains(waiter)).collect();
            let direct = if direct.is_empty() { all } else { direct };
            let more = match root.waiting.len() - direct.len() {
                0 => String::new(),
                1 => " (and 1 more because of that)".to_owned(),
                more => format!(" (and {more} more because of that)"),
            };
            let who = wait(&direct);
            let call = match direct.as_slice() {
                [only] => {
                    let wait = input.observations.waits.iter().find(|wait| wait.waiter == **only);
                    names.call(only, wait.and_then(|wait| wait.frame)).phrase()
                }
                _ => String::new(),
            };
            let several = direct.iter().filter_map(|waiter| things.get(*waiter)).max().copied().unwrap_or(1);
            match several {
                1 => format!("{who} for {}{call}{more}", names.resource(key)),
                several => {
                    format!(
                        "{who} for one of {several} things{call}, the first of which is {}{more}",
                        names.resource(key)
                    )
                }
            }
        }
        party => {
            let held: BTreeMap<String, ()> = input
                .observations
                .holds
                .iter()
                .filter(|hold| hold.holder == *party)
                .filter(|hold| input.observations.waits.iter().any(|wait| wait.resource == hold.resource))
                .map(|hold| (names.resource(&hold.resource), ()))
                .collect();
            let held: Vec<String> = held.into_keys().collect();
            let state = if busy.contains(party) { ", which runs" } else { "" };
            format!("{} for {}, held by {}{state}", wait(&all), held.join(" and "), place(context, party))
        }
    }
}

/// A thread and where it is: "worker (5) in f at a.py:3".
fn place(context: &Context<'_>, party: &Party) -> String {
    format!("{}{}", context.names.party(party), context.names.call(party, None).phrase())
}

fn is_first(context: &Context<'_>, party: &Party) -> bool {
    context.input.image.processes.first().is_some_and(|first| *party == Party::Thread(0, first.pid))
}

fn capitalised(text: &str) -> String {
    // Names of threads keep their case; only our own first words are raised.
    match text.strip_prefix("thread ") {
        Some(rest) => format!("Thread {rest}"),
        None => text.to_string(),
    }
}
