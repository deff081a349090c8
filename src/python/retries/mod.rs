//! Whether a thread that waits with a time-out asks again for the same thing for ever.
//!
//! In: the frames around a call that waits, the object whose method it calls, and what that method does when its time is
//! up ([`TimedCall`]). Out: whether that never ends by itself. The code is executed here from the time-out on
//! ([`execution`]), as far as its effect is known ([`value`], [`lookup`]): constants, variables, containers, jumps, functions of
//! Python that it calls and returns to, a handler for the time-out's exception. Each other call on the way must be one
//! of the same method of the same object, or only ask. Code that returns to where it was, with the same variables, does
//! that until something changes that it has asked for: a flag, an event, the end of a thread. These are the
//! [`Change`]s. Anything else (another call, a counter, code of another version) may be a way out, and ends the
//! execution.

mod execution;
mod function;
mod lookup;
mod value;

use super::PythonFrame;
use super::inspect::Inspector;
use crate::image::Addr;

/// The effect of a method's time-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeOut {
    /// It returns False.
    False,
    /// It returns None.
    Nothing,
    /// It raises an exception of the class with this name in a module.
    Raises(&'static str, &'static str),
}

/// A call that waits with a time-out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedCall {
    /// The object whose method it is.
    pub(crate) object: Addr,
    pub(crate) method: &'static str,
    pub(crate) time_out: TimeOut,
    /// Methods of the object that only ask, and what they return for as long as the wait would last.
    pub(crate) queries: &'static [(&'static str, bool)],
}

/// A change by which other code may end the loop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// An object: one of its attributes, what it contains, or its state.
    Of(Addr),
    /// The global variable with this name, in this dictionary.
    Global(String, Option<Addr>),
    /// The thread that `threading` knows by this ident, by its end.
    End(u64),
}

/// Code that asks again after each time-out.
pub(crate) struct Loop<'f> {
    /// The function that goes round.
    pub(crate) frame: &'f PythonFrame,
    /// The changes that alone would end it.
    pub(crate) until: Vec<Change>,
}

/// The loop in which a call is made again after each time-out; `None` where it may end by itself. `frames` begin with the one that
/// calls, and go outwards; `passed` is an object that the call was given.
pub(crate) fn around<'f>(
    inspector: &Inspector<'_>,
    frames: &[&'f PythonFrame],
    call: &TimedCall,
    passed: Option<Addr>,
) -> Option<Loop<'f>> {
    if !lookup::is_of_library(inspector, call) {
        return None;
    }
    let mut execution = execution::Execution::new(inspector, frames, call)?;
    if passed.is_some_and(|object| !execution.outlives(object)) {
        return None;
    }
    execution.run()?;
    let objects = inspector.objects();
    let is_queue = matches!(call.time_out, TimeOut::Raises("queue", _));
    let attributes = is_queue.then(|| objects.attributes(call.object)).flatten().unwrap_or_default();
    // Code that has only the container of a queue's items can change these.
    let values = attributes.into_iter().map(|(_, value)| value);
    let containers = values.filter(|value| objects.sequence(*value, 1).is_some() || objects.items(*value).is_some());
    execution.changes.extend(containers.map(Change::Of));
    Some(Loop { frame: execution.outermost()?, until: execution.changes.into_iter().collect() })
}
