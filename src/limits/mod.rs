//! Limits on foreign data, and the record of each limit that was exceeded.
//!
//! In: the data that a loop or a copy meets. Out: the constants of the table (`table.rs`), and [`Met`], one for each
//! exceeded bound that the report would not show by itself; it becomes a gap. The thread that takes the sample keeps
//! them, as it keeps the budget of memory. Nothing here knows the data. Also here: libraries that panic on such data
//! (`panics`).

mod panics;
mod table;

use std::cell::RefCell;
use std::fmt::Display;

pub(crate) use panics::without_panic;
pub(crate) use table::*;

/// One bound over foreign data, for the tests, which hold the source against the table.
#[cfg(test)]
#[derive(Debug)]
struct Row {
    /// The part of lockscope that it is for.
    area: &'static str,
    /// The constant's name.
    name: &'static str,
    /// How much.
    value: i128,
    /// The bounded amount, and the reason for the bound.
    why: &'static str,
    /// How the report shows that it was exceeded.
    when: When,
    /// The text that is reported then, or why none is needed.
    said: &'static str,
}

/// How the report shows that a bound was exceeded.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// By a [`Met`], which becomes a gap of the report.
    Gap,
    /// By another word of the report, or by a gap of the stage that meets it.
    Told,
    /// The data are refused as a whole, which is an error or leaves a field of the report empty.
    Refused,
    /// No object of this kind is as large: these bytes are something else, for other decoders.
    Shape,
    /// The data beyond are irrelevant to the search: no information is lost.
    Beyond,
}

/// A bound that was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Met {
    /// The data that was not read completely.
    pub(crate) what: String,
    /// How much was.
    pub(crate) why: String,
}

impl Met {
    /// From `what`, "tasks of process 5", lockscope read no more than `most` `units`.
    pub(crate) fn of(most: impl Display, what: impl Into<String>, units: &str) -> Met {
        Met { what: what.into(), why: format!("lockscope takes in no more than {most} {units}") }
    }
}

/// At most this many limits are listed; the last entry reports that more were exceeded.
const MOST_TOLD: usize = 32;

thread_local! {
    static MET: RefCell<Vec<Met>> = const { RefCell::new(Vec::new()) };
}

/// Begin a sample: no limit was exceeded yet.
pub(crate) fn begin() {
    MET.with_borrow_mut(Vec::clear);
}

/// The limits that were exceeded since the last call, each once.
pub(crate) fn told() -> Vec<Met> {
    MET.with_borrow_mut(std::mem::take)
}

/// Report that `most` was exceeded: from `what`, "tasks of process 5", lockscope reads no more than `most` `units`.
pub(crate) fn met(most: impl Display, what: impl Into<String>, units: &str) {
    tell(Met::of(most, what, units));
}

/// Report it once.
pub(crate) fn tell(met: Met) {
    MET.with_borrow_mut(|list| {
        if list.len() < MOST_TOLD && !list.contains(&met) {
            list.push(met);
            if list.len() + 1 == MOST_TOLD {
                let why = "more of lockscope's limits were met than are told one by one".to_owned();
                list.push(Met { what: "further data of the target".to_owned(), why });
            }
        }
    });
}

/// Iterators over foreign data.
pub(crate) trait Bounded: Iterator + Sized {
    /// The first `most` items; one further item is reported as by [`met`].
    fn bounded(self, most: usize, what: impl FnOnce() -> String, units: &str) -> impl Iterator<Item = Self::Item>;
}

impl<Items: Iterator> Bounded for Items {
    fn bounded(mut self, most: usize, what: impl FnOnce() -> String, units: &str) -> impl Iterator<Item = Self::Item> {
        let (mut left, mut what) = (most, Some(what));
        std::iter::from_fn(move || {
            let item = self.next()?;
            match left.checked_sub(1) {
                Some(rest) => {
                    left = rest;
                    Some(item)
                }
                None => {
                    if let Some(what) = what.take() {
                        met(most, what(), units);
                    }
                    None
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
