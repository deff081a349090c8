//! Threads that spin in a call which only waits, as CUDA's synchronising calls do: the time that they use is no progress.
//!
//! In: reports of samples, and the time between passes over the tree. Out: how much time such threads have used since
//! the pass before. That a thread has not left its call is counted by the processor ([`Lasting`]); two samples show that
//! it was in the call when counting began. Where the kernel counts nothing, all time that is used is progress.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::image::Addr;
use crate::image::live::lasting::{Lasting, Stay};
use crate::limits::run::MOST_SPINNERS;
use crate::report::{Certainty, Report, ThreadState};

/// The threads that are counted, by their ids.
#[derive(Debug, Default)]
pub(super) struct Spinners(BTreeMap<i32, Counted>);

#[derive(Debug)]
struct Counted {
    returns_to: Addr,
    lasting: Lasting,
    /// How long it had run at the last pass.
    ran: Duration,
    /// A sample saw it in the call after counting had begun.
    is_confirmed: bool,
}

impl Spinners {
    /// Take in a sample.
    pub(super) fn looked(&mut self, report: Option<&Report>) {
        let seen: BTreeMap<i32, Addr> = report.map(spinning).unwrap_or_default();
        self.0.retain(|tid, one| seen.get(tid) == Some(&one.returns_to));
        for (tid, returns_to) in seen {
            if let Some(one) = self.0.get_mut(&tid) {
                match one.lasting.stay() {
                    Stay::Within(ran) if !one.is_confirmed => (one.is_confirmed, one.ran) = (true, ran),
                    _ => {}
                }
            } else if self.0.len() < MOST_SPINNERS
                && let Ok(lasting) = Lasting::of(tid, returns_to)
            {
                self.0.insert(tid, Counted { returns_to, lasting, ran: Duration::ZERO, is_confirmed: false });
            }
        }
    }

    /// The time that they have used since the last call of this, in milliseconds. Those that have left their call are
    /// forgotten.
    pub(super) fn used_ms(&mut self) -> u64 {
        let mut used = Duration::ZERO;
        self.0.retain(|_, one| match one.lasting.stay() {
            Stay::Within(ran) => {
                if one.is_confirmed {
                    used += ran.saturating_sub(one.ran) + TICK;
                }
                one.ran = ran;
                true
            }
            Stay::Left | Stay::Unknown => false,
        });
        u64::try_from(used.as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether it is one of them.
    pub(super) fn has(&self, tid: i32) -> bool {
        self.0.get(&tid).is_some_and(|one| one.is_confirmed)
    }
}

/// The clock by which the kernel tells how much a process has used ticks every 10 ms (proc_pid_stat(5), USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// The threads that run in a call that only waits, and where each call returns to.
fn spinning(report: &Report) -> BTreeMap<i32, Addr> {
    let exact = report.waits.iter().filter(|wait| wait.certainty == Certainty::Exact && !wait.timed);
    exact
        .filter_map(|wait| {
            let process = report.processes.iter().find(|process| process.id == wait.process)?;
            let thread = process.threads.iter().find(|thread| Some(thread.tid) == wait.tid)?;
            if thread.state != ThreadState::Running {
                return None;
            }
            let mut callers = thread.frames.get(wait.frame?..)?.iter().filter_map(|frame| frame.pc.as_deref());
            let own = callers.next()?;
            let returns_to = callers.find(|pc| *pc != own)?;
            let returns_to = u64::from_str_radix(returns_to.strip_prefix("0x")?, 16).ok()?;
            Some((thread.tid, Addr(returns_to)))
        })
        .collect()
}
