//! Names for Python locks: from the variables of their holders, and different for any two locks.
//!
//! In: locks with the names that their waiters have for them, and their holders. Out: better names. Two threads that
//! run one function have one name for two locks, as parameters have. Then the variable of another frame of the program
//! gives the name. Where no frame has a distinct name for each, their addresses distinguish them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Cpython, Facts};
use crate::image::Addr;
use crate::limits::python::{NAMING_FRAMES, NAMING_THREADS};
use crate::python::PythonFrame;
use crate::python::inspect::{Reach, frames_of};
use crate::waits::holders::Blocked;
use crate::waits::kinds;
use crate::waits::model::{Party, Resource};
use crate::waits::observations::Observations;

/// Name the locks.
pub(super) fn find(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    of_holders(family, blocked, out);
    for process in blocked.processes() {
        if let Some(facts) = family.facts(process) {
            tell_apart(facts, process.context.process, &mut out.resources);
        }
    }
}

fn is_lock(resource: &Resource) -> bool {
    [kinds::PY_LOCK, kinds::PY_RLOCK].contains(&resource.key.kind)
}

/// Locks that get names here; those of tasks have one by what waits for them.
fn may_have_a_twin(resource: &Resource) -> bool {
    is_lock(resource) || resource.key.kind == kinds::ASYNCIO_LOCK
}

/// A lock is called what its holder calls it, where the waiter has a name for it that reaches less far.
fn of_holders(family: &Cpython<'_>, blocked: &Blocked<'_>, out: &mut Observations) {
    for resource in out.resources.iter_mut().filter(|one| is_lock(one)) {
        let process = blocked.processes().get(resource.process);
        let Some(facts) = process.and_then(|process| family.facts(process)) else { continue };
        let name = |party: &Party| match party {
            Party::Thread(of, tid) if *of == resource.process => {
                let frames = facts.inspector.stack(*tid).filter(|frame| !frame.origin.waits_for_caller());
                facts.inspector.name_and_reach(resource.key.address, frames)
            }
            _ => None,
        };
        let holders = out.holds.iter().filter(|hold| hold.resource == resource.key);
        let by_holder = holders.filter(|hold| hold.is_known()).find_map(|hold| name(&hold.holder));
        let by_waiter =
            out.waits.iter().filter(|wait| wait.resource == resource.key).find_map(|wait| name(&wait.waiter));
        let Some((reach, by_holder)) = by_holder else { continue };
        if by_waiter.is_none_or(|(of_waiter, _)| reach <= of_waiter) {
            resource.label.name = Some(by_holder);
        }
    }
}

/// Give locks with the same name distinct names.
fn tell_apart(facts: &Facts<'_>, process: usize, resources: &mut [Resource]) {
    let mut named: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (position, resource) in resources.iter().enumerate() {
        if may_have_a_twin(resource) && resource.process == process && resource.label.name.is_some() {
            named.entry(resource.label.to_string()).or_default().push(position);
        }
    }
    named.retain(|_, twins| twins.len() > 1);
    if named.is_empty() {
        return;
    }
    let is_own = |frame: &&PythonFrame| !frame.origin.waits_for_caller();
    let coroutines = facts.tasks().iter().take(NAMING_THREADS).flat_map(|task| &task.coroutines);
    let suspended: Vec<PythonFrame> =
        coroutines.filter_map(|coroutine| facts.inspector.frames().suspended(*coroutine)).collect();
    let threads = facts.inspector.living().take(NAMING_THREADS);
    let running = threads.flat_map(|(_, state)| frames_of(state).filter(is_own).take(NAMING_FRAMES));
    let mut frames: Vec<&PythonFrame> = running.chain(suspended.iter().filter(is_own)).collect();
    // Code that runs twice may have the same names for other locks.
    let mut runs: HashMap<Addr, usize> = HashMap::new();
    frames.iter().for_each(|frame| *runs.entry(frame.code).or_default() += 1);
    frames.retain(|frame| runs.get(&frame.code) == Some(&1));
    for twins in named.into_values() {
        let objects: Vec<Addr> = twins.iter().map(|position| resources[*position].key.address).collect();
        let Some(names) = own_names(facts, &frames, &objects) else { continue };
        for (position, (name, function)) in twins.into_iter().zip(names) {
            resources[position].label.name = Some(name);
            resources[position].label.function = function;
        }
    }
}

/// A name for each of these, with the function whose variable it is: all of them names that the frame of one function has.
fn own_names(facts: &Facts<'_>, frames: &[&PythonFrame], objects: &[Addr]) -> Option<Vec<(String, Option<String>)>> {
    frames.iter().find_map(|frame| {
        let name = |object: &Addr| facts.inspector.name_and_reach(*object, std::iter::once(*frame));
        let names: Vec<(Reach, String)> = objects.iter().map(name).collect::<Option<_>>()?;
        let unique: BTreeSet<&String> = names.iter().map(|(_, name)| name).collect();
        let of = |reach: Reach| (reach != Reach::Global).then(|| frame.function.to_string());
        (unique.len() == names.len()).then(|| names.iter().map(|(reach, name)| (name.clone(), of(*reach))).collect())
    })
}
