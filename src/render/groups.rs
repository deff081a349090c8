//! Threads that do the same in the same functions of the program, together.
//!
//! In: a [`View`], the participants and the threads that wait because of them. Out: [`Group`]s, victims first, then the
//! largest. Lays nothing out.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::view::{self, Key, View};
use crate::report::{Frame, FrameKind, Library, Thread};

/// Threads that do the same in the same functions of the program.
pub(super) struct Group<'a> {
    /// "idle thread of the pool, ", or nothing.
    pub(super) role: String,
    /// The group's activity: "waits for mutex 0x1000" for one thread, "wait for mutex" for several.
    pub(super) doing: String,
    /// The call in which they do it.
    pub(super) call: Option<String>,
    /// They are a library's own and do their library's work, or none: of no interest, unless they wait because of the parties.
    pub(super) is_idle: bool,
    /// They wait because of the parties.
    pub(super) because: bool,
    /// ", held by orders (12)": the holder that they wait for, if it is one for all.
    holder: String,
    /// Process and thread of each.
    pub(super) members: Vec<(&'a str, &'a Thread)>,
}

impl Group<'_> {
    /// `pool_0 (12), pool_1 (13) and 35 more`, with `most` names.
    pub(super) fn names(&self, view: &View, most: usize) -> String {
        let named = self.members.iter().take(most).map(|(process, thread)| view.thread_name(process, thread.tid));
        let mut names: Vec<String> = named.collect();
        let more = self.members.len() - names.len();
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        names.join(", ")
    }
}

/// Whether two frames have the same name, seen without making it.
fn are_called_alike(one: &Frame, other: &Frame) -> bool {
    one.function.is_some() && one.function == other.function
}

/// Whether a thread runs Python code of the program, directly or in a wait of Python's library. A library's thread is not idle then.
/// Only the innermost frames count: the outer frames of a forked worker are its parent's.
fn runs_program(thread: &Thread) -> bool {
    let mut python = thread.frames.iter().filter(|frame| frame.kind == FrameKind::Python);
    python.find(|frame| frame.library != Some(Library::Python)).is_some_and(|frame| frame.belongs_to.is_none())
}

/// Threads that are not listed individually.
pub(super) fn groups<'a>(view: &View<'a>, told: &HashSet<Key>, victims: &HashSet<Key>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known = HashMap::new();
    let mut before: (Vec<&Frame>, Rc<[String]>) = (Vec::new(), Rc::new([]));
    for (process, thread) in view.each_thread().filter(|(process, thread)| !told.contains(&(*process, thread.tid))) {
        let call = view.call_of(process, thread);
        let because = victims.contains(&(process, thread.tid));
        // Without the address: a pool's 64 condition variables are one group.
        let alike = view.doing_in_general(process, thread);
        // In a library the same call is made on many ways.
        let own: Vec<&Frame> = thread.frames.iter().filter(|frame| frame.belongs_to.is_none()).collect();
        // Mostly they are those of the thread before.
        if own.len() != before.0.len() || !own.iter().zip(&before.0).all(|(one, other)| are_called_alike(one, other)) {
            before.1 = own.iter().map(|frame| view::function_name(frame)).collect();
        }
        before.0 = own;
        let key = (because, thread.role.as_deref(), alike.clone(), call.clone(), Rc::clone(&before.1));
        match known.get(&key) {
            Some(&at) => {
                let group: &mut Group = &mut groups[at];
                group.doing = alike;
                group.members.push((process, thread));
                if group.holder != view.holder_of(process, thread) {
                    group.holder.clear();
                }
            }
            None => {
                known.insert(key, groups.len());
                let role = thread.role.clone().unwrap_or_default();
                let doing = view.doing(process, thread);
                let is_idle = !role.is_empty() && !because && !runs_program(thread);
                groups.push(Group {
                    role,
                    doing,
                    call,
                    is_idle,
                    because,
                    holder: view.holder_of(process, thread),
                    members: vec![(process, thread)],
                });
            }
        }
    }
    // For a library's idle threads, their number suffices.
    let mut told: Vec<Group> = Vec::new();
    for group in groups {
        match told.iter_mut().find(|known| known.is_idle && group.is_idle && known.role == group.role) {
            Some(known) => known.members.extend(group.members),
            None => told.push(group),
        }
    }
    for group in told.iter_mut().filter(|group| group.members.len() > 1) {
        group.doing += &std::mem::take(&mut group.holder);
    }
    told.sort_by_key(|group| (!group.because, group.is_idle, std::cmp::Reverse(group.members.len())));
    told
}
