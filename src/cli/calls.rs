//! Whether calls of ranks last from one round of `lockscope job` to the next.
//!
//! In: samples of ranks of this node. Out: the same, with the time that threads ran within their calls. If nothing of a
//! library's own distinguishes two calls, as with MPICH, the kernel counts whether a thread leaves one. A first sample
//! names the call. Only another sample shows that the thread was in it when counting had begun, so the first round then
//! takes two samples. Both rounds must run in one process: if two processes took a round each, the second would not
//! have the counts of the first.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::CliError;
use crate::image::Addr;
use crate::image::live::lasting::{Lasting, Stay};
use crate::job::{LEAST_POLLED, Look, RankWait};
use crate::report::Gap;

/// Longest time that is waited for threads to run for long enough: of many on few processors each gets little.
const FOR_POLLS: Duration = Duration::from_secs(2);
/// Calls that are counted at once, with a descriptor each; of further ones a gap says that it is not known.
const MOST_COUNTED: usize = 512;
/// How often it is written down how much a thread has run: each time some bytes of a digest.
const MOST_TIMES: usize = 16;
/// Between two questions.
const TURN: Duration = Duration::from_millis(20);

/// Calls that are counted.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Counted>,
    /// When the first round was over.
    since: Option<DateTime<Utc>>,
    /// Why some are not.
    refused: Option<String>,
}

/// A thread in a call.
#[derive(Debug)]
struct Counted {
    tid: i32,
    returns_to: String,
    lasting: Lasting,
    /// How long it had run when the first round was over.
    before: Duration,
    /// How long it has run since then, by the last question before the sample of the second round.
    polled: Duration,
    /// Counting began before the first round saw it in the call: if it has not come out since, it is in the same one.
    is_before: bool,
    /// How much it had run since then, how many milliseconds after.
    by: Vec<(u64, u64)>,
}

impl Calls {
    /// The sample of the first round, within which all that can be counted is counted.
    pub(super) fn first_look(&mut self, mut look: impl FnMut() -> Result<Look, CliError>) -> Result<Look, CliError> {
        let first = look()?;
        if !self.begin_with(&first) {
            return Ok(first);
        }
        let again = look()?;
        self.settle(&again);
        Ok(again)
    }

    /// Begin to count what this sample shows; whether anything is counted, so that another sample of the first round is
    /// wanted.
    pub(super) fn begin_with(&mut self, first: &Look) -> bool {
        self.begin(first, true);
        self.are_counted()
    }

    /// The other sample of the first round: a thread that was in a call in both has not left it since counting began,
    /// if nothing was counted.
    pub(super) fn settle(&mut self, again: &Look) {
        self.list.retain_mut(|one| {
            let stay = one.lasting.stay();
            if let Stay::Within(ran) = stay {
                one.before = ran;
            }
            matches!(stay, Stay::Within(_))
        });
        self.since = again.end();
        // Threads that were in another call meanwhile are counted from now on. Their leaving can be shown then, but not
        // their staying.
        self.begin(again, false);
    }

    /// Count from now on those that are not counted yet. `is_before` says that another sample of this round comes after
    /// that.
    fn begin(&mut self, look: &Look, is_before: bool) {
        for wait in look.members.iter().flat_map(|member| &member.waits).filter(|wait| wait.holds_up_main) {
            let Some((returns_to, address)) = returns_to(wait).and_then(|text| Some((text, address(text)?))) else {
                continue;
            };
            if self.list.iter().any(|one| (one.tid, one.returns_to.as_str()) == (wait.tid, returns_to)) {
                continue;
            }
            if self.list.len() == MOST_COUNTED {
                self.refused = Some(format!("there are more than {MOST_COUNTED}"));
                return;
            }
            match Lasting::of(wait.tid, address) {
                Ok(lasting) => {
                    let returns_to = returns_to.to_owned();
                    self.list.push(Counted {
                        tid: wait.tid,
                        returns_to,
                        lasting,
                        before: Duration::ZERO,
                        polled: Duration::ZERO,
                        is_before,
                        by: Vec::new(),
                    });
                }
                // It has ended.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => self.refused = Some(why(&error)),
            }
        }
    }

    /// Records how long each thread has run by now, for ranks that were sampled at other times.
    pub(super) fn sample(&mut self) {
        let Some(since) = self.since else { return };
        for one in self.list.iter_mut().filter(|one| one.is_before) {
            let asked = Utc::now();
            let Stay::Within(ran) = one.stay() else { continue };
            // If the reading was interrupted in between, the time of the value is unknown.
            if (Utc::now() - asked).num_milliseconds() > 0 {
                continue;
            }
            if one.by.len() >= MOST_TIMES {
                one.by = one.by.iter().skip(1).step_by(2).copied().collect();
            }
            let after = (asked - since).to_std().ok();
            one.by.extend(after.and_then(millis).zip(millis(ran)));
        }
    }

    /// Whether there are any that are counted.
    pub(super) fn are_counted(&self) -> bool {
        !self.list.is_empty()
    }

    /// Wait until each thread that has not come out has run for long enough, or for two seconds.
    pub(super) fn wait_until_polled(&mut self) {
        let begin = Instant::now();
        while !self.have_polled(begin) {
            std::thread::sleep(TURN);
        }
    }

    /// Whether there is nothing to wait for any more, or two seconds are over since `begin`.
    pub(super) fn have_polled(&mut self, begin: Instant) -> bool {
        let mut is_short = false;
        for one in self.list.iter_mut().filter(|one| one.is_before) {
            if let Stay::Within(ran) = one.stay() {
                one.polled = ran;
                is_short |= ran < LEAST_POLLED;
            }
        }
        begin.elapsed() >= FOR_POLLS || !is_short
    }

    /// Say in the sample of the second round how long the threads ran in their calls, and which have come out of them.
    pub(super) fn put_into(mut self, mut look: Look) -> Look {
        let ended = look.end();
        for wait in look.members.iter_mut().flat_map(|member| &mut member.waits) {
            let its = |one: &&mut Counted| one.tid == wait.tid && Some(one.returns_to.as_str()) == returns_to(wait);
            let Some(counted) = self.list.iter_mut().find(its) else { continue };
            match counted.stay() {
                Stay::Left => wait.left = true,
                Stay::Within(ran) => {
                    // Its run after the end of the sample does not count: it may be too late for other ranks. On a
                    // machine with much to do that end may be long ago, and what was known before the sample remains.
                    let late = ended.and_then(|ended| (Utc::now() - ended).to_std().ok()).unwrap_or_default();
                    let polled = ran.saturating_sub(late).max(counted.polled);
                    wait.polled_ms = millis(polled).filter(|_| counted.is_before);
                    wait.polled_by = std::mem::take(&mut counted.by);
                }
                Stay::Unknown => self.refused = Some("the kernel did not count all the time".to_owned()),
            }
        }
        look.gaps.extend(self.refused.map(|why| Gap::new("whether all calls lasted from one round to the next", why)));
        look.named()
    }
}

impl Counted {
    /// Its stay since the first round.
    fn stay(&mut self) -> Stay {
        match self.lasting.stay() {
            Stay::Within(ran) => ran.checked_sub(self.before).map_or(Stay::Unknown, Stay::Within),
            other => other,
        }
    }
}

/// Where the call returns to in which a thread waits.
fn returns_to(wait: &RankWait) -> Option<&str> {
    wait.collective.as_ref()?.returns_to.as_deref()
}

fn millis(time: Duration) -> Option<u64> {
    u64::try_from(time.as_millis()).ok()
}

/// Parses `0x7f12`.
fn address(text: &str) -> Option<Addr> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok().map(Addr)
}

/// Why the kernel counts nothing.
fn why(error: &std::io::Error) -> String {
    let next = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; kernel.perf_event_paranoid of 2 or less allows it for one's own processes, CAP_PERFMON for all"
        }
        _ => "",
    };
    format!("the kernel does not count returns from calls here: {error}{next}")
}
