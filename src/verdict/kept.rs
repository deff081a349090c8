//! Locks that are kept during a wait without end: by the waiter itself, or by a generator that has stopped.
//!
//! In: the judged sample, a waiter or an awaited lock. Out: the hold that explains the wait, and a sentence about it. It
//! changes no verdict.

use super::context::Context;
use crate::report::short_path;
use crate::waits::kinds;
use crate::waits::model::{Hold, TakenAt};
use crate::waits::{Party, ResourceKey, Wait};

/// A lock that a suspended generator keeps.
pub(super) struct ByGenerator<'a> {
    pub(super) hold: &'a Hold,
    pub(super) generator: &'a ResourceKey,
}

/// A lock that a thread keeps while it waits for something else.
pub(super) struct Meanwhile<'a> {
    pub(super) hold: &'a Hold,
    /// The wait of a thread that needs the lock.
    pub(super) wait: &'a Wait,
    /// That thread could end the wait.
    pub(super) gives: bool,
}

/// The suspended generator that keeps a lock.
pub(super) fn by_generator<'a>(context: &Context<'a>, key: &ResourceKey) -> Option<ByGenerator<'a>> {
    let holds = context.input.observations.holds.iter().filter(|hold| hold.resource == *key && hold.is_known());
    holds.into_iter().find_map(|hold| match &hold.holder {
        Party::Resource(generator) if generator.kind == kinds::PY_GENERATOR => Some(ByGenerator { hold, generator }),
        _ => None,
    })
}

/// The lock that a waiter for `awaited` keeps and that another waiter needs. A lock that a possible giver needs
/// comes first, then one without a time limit, and then the one that was taken last.
pub(super) fn meanwhile<'a>(context: &Context<'a>, waiter: &Party, awaited: &ResourceKey) -> Option<Meanwhile<'a>> {
    let seen = context.input.observations;
    let kept = seen.holds.iter().filter(|hold| {
        hold.holder == *waiter && hold.gone.is_none() && hold.is_known() && hold.resource.kind.is_lock()
    });
    let needed = kept.filter(|hold| hold.resource != *awaited).filter_map(|hold| {
        let waits = seen.waits.iter().filter(|wait| wait.resource == hold.resource && wait.waiter != *waiter);
        let could = |party: &Party| seen.holds.iter().any(|hold| hold.resource == *awaited && hold.holder == *party);
        let wait = waits.min_by_key(|wait| (!could(&wait.waiter), wait.timed))?;
        Some(Meanwhile { hold, wait, gives: could(&wait.waiter) })
    });
    needed.min_by_key(|kept| (!kept.gives, kept.wait.timed, kept.hold.frame))
}

/// " Meanwhile reader keeps `guard`, taken at app.py:26, and postman waits for it in deliver at app.py:30.", or nothing.
pub(super) fn sentence(context: &Context<'_>, wait: &Wait) -> String {
    let names = context.names;
    let at = |taken: &TakenAt| format!("{}:{}", short_path(&taken.file), taken.line);
    if let Some(kept) = by_generator(context, &wait.resource) {
        let place = kept.hold.taken.as_ref().map(|taken| format!(" at {}", at(taken))).unwrap_or_default();
        let generator = names.bare(kept.generator);
        return format!(" The generator {generator} took it{place}, and has neither ended nor been closed.");
    }
    let Some(kept) = meanwhile(context, &wait.waiter, &wait.resource) else { return String::new() };
    let place = kept.hold.taken.as_ref().map(|taken| format!(", taken at {},", at(taken))).unwrap_or_default();
    format!(
        " Meanwhile {} keeps {}{place} and {} waits for it{}.",
        names.party_by_name(&wait.waiter),
        names.resource(&kept.hold.resource),
        names.party(&kept.wait.waiter),
        names.call(&kept.wait.waiter, kept.wait.frame).phrase()
    )
}
