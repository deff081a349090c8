//! The kernel functions that threads sleep in, read for a few of the threads that sleep at one place.
//!
//! In: where each thread is in the kernel, by return addresses. Out: the names from /proc (wchan). Thousands of threads
//! sleep at a few places, and /proc takes longest of all for the name of a function (7 us a thread).

use std::collections::HashMap;

use super::at_once::Told;
use super::proc_fs::{self, ProcFs};

/// The number of threads to read for each place. A thread may have moved on since its place was read, so they must
/// agree.
const ASKED: usize = 2;

/// The functions that are known.
#[derive(Debug, Default)]
pub(super) struct WaitChannels(HashMap<Vec<u64>, String>);

impl WaitChannels {
    /// Read the names for places where several threads of a process sleep.
    pub(super) fn ask<'t>(proc_fs: &ProcFs, pid: i32, threads: impl Iterator<Item = (i32, &'t Told)>) -> WaitChannels {
        let mut places: HashMap<&[u64], (usize, Vec<i32>)> = HashMap::new();
        for (tid, told) in threads {
            let Some(place) = place(told) else { continue };
            let (count, some) = places.entry(place).or_default();
            *count += 1;
            if some.len() < ASKED {
                some.push(tid);
            }
        }
        let function = |tid: &i32| proc_fs::wait_channel(&proc_fs.task(pid, *tid));
        let known = places.into_iter().filter(|(_, (count, _))| *count > ASKED).filter_map(|(place, (_, some))| {
            let mut names = some.iter().map(function);
            let first = names.next()??;
            names.all(|name| name.as_ref() == Some(&first)).then(|| (place.to_vec(), first))
        });
        WaitChannels(known.collect())
    }

    /// The function that a thread sleeps in; `None` where the thread needs its own read.
    pub(super) fn of(&self, told: &Told) -> Option<String> {
        self.0.get(place(told)?).cloned()
    }
}

/// Where a thread sleeps.
fn place(told: &Told) -> Option<&[u64]> {
    let calls = &told.task.calls[..];
    (told.is_asleep() && calls.first().is_some_and(|&innermost| innermost != 0)).then_some(calls)
}
