//! How much of foreign data is looked at, and that it is said when there was more.
//!
//! In: whatever a loop or a copy meets. Out: the constants of the table (`table.rs`), and [`Met`], one for each bound that
//! was met where the report would not say so by itself; it becomes a gap. They are kept by the thread that looks, as the
//! budget of memory is. Nothing here knows what is looked at. Beside them, libraries that panic on such data (`panics`).

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
    /// What is bounded, and why so.
    why: &'static str,
    /// How it is told that it was met.
    when: When,
    /// What is said then, or why nothing needs to be.
    said: &'static str,
}

/// How it is told that a bound was met.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// By a [`Met`], which becomes a gap of the report.
    Gap,
    /// By another word of the report, or by a gap of the stage that meets it.
    Told,
    /// The data are refused as a whole, which is an error or leaves a field of the report empty.
    Refused,
    /// No such thing is as large: these bytes are something else, which other decoders look at.
    Shape,
    /// What lies beyond says nothing of what is looked for: no information is lost.
    Beyond,
}

/// A bound that was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Met {
    /// Of what not all was looked at.
    pub(crate) what: String,
    /// How much was.
    pub(crate) why: String,
}

impl Met {
    /// Of `what`, "tasks of process 5", no more than `most` `units` were taken in.
    pub(crate) fn of(most: impl Display, what: impl Into<String>, units: &str) -> Met {
        Met { what: what.into(), why: format!("lockscope takes in no more than {most} {units}") }
    }
}

/// So many are named; the last says that there are more.
const MOST_TOLD: usize = 32;

thread_local! {
    static MET: RefCell<Vec<Met>> = const { RefCell::new(Vec::new()) };
}

/// Begin a look: nothing was met yet.
pub(crate) fn begin() {
    MET.with_borrow_mut(Vec::clear);
}

/// The bounds that were met since that was last asked, each once.
pub(crate) fn told() -> Vec<Met> {
    MET.with_borrow_mut(std::mem::take)
}

/// Tell that `most` was met: of `what`, "tasks of process 5", no more than so many `units` are taken in.
pub(crate) fn met(most: impl Display, what: impl Into<String>, units: &str) {
    tell(Met::of(most, what, units));
}

/// Tell it once.
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
    /// The first `most` items; where there is one more, that is told as [`met`] does.
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
