//! The reach of a task of an event loop: it can run its code, and at its end it calls the registered callbacks.
//!
//! In: a task. Out: its reach. Whether it could end another wait by that is found in [`task_waits`](super::task_waits).

use std::cell::OnceCell;

use super::Facts;
use super::tasks::Task;
use crate::python::reach::{self, Reached};
use crate::waits::kinds;

/// A task and its reach, which is found when it is first needed.
pub(super) struct OfTask<'f> {
    facts: &'f Facts<'f>,
    pub(super) task: &'f Task,
    reached: OnceCell<Reached>,
}

impl<'f> OfTask<'f> {
    pub(super) fn new(facts: &'f Facts<'f>, task: &'f Task) -> Self {
        OfTask { facts, task, reached: OnceCell::new() }
    }

    /// All that it can reach; the reason alone if that may be anything.
    pub(super) fn reached(&self) -> &Reached {
        self.reached.get_or_init(|| of_task(self.facts, self.task))
    }
}

/// Its code, and the callbacks for its end.
fn of_task(facts: &Facts<'_>, task: &Task) -> Reached {
    let objects = facts.inspector.objects();
    if task.kind == kinds::TRIO_TASK {
        // Its object leads to its nursery and its run, which leads everywhere. Other code finds the effects of its end.
        return reach::from_or_open(&facts.inspector, task.coroutines.iter().copied());
    }
    let event_loop = objects.field(task.object, 0);
    let own = objects.words_of(task.object).into_iter().filter(|word| Some(*word) != event_loop);
    reach::from_or_open(&facts.inspector, own.chain(task.coroutines.iter().copied()))
}
