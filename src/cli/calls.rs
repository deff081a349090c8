//! Whether calls of ranks last from one round of `lockscope job` to the next.
//!
//! In: looks at ranks of this node. Out: the same, with how long threads ran within the calls that they are in. Where nothing of a library's own
//! tells two calls apart, as with MPICH, the kernel counts whether a thread comes out of one. Which call that is a first look tells, and
//! only another one tells that it was in it when counting had begun: so there are two looks in a first round then.

use std::time::{Duration, Instant};

use super::CliError;
use crate::image::Addr;
use crate::image::live::lasting::Lasting;
use crate::job::{LEAST_POLLED, Look, RankWait};
use crate::report::Gap;

/// Longest time that is waited for threads to run for long enough: of many on few processors each gets little.
const FOR_POLLS: Duration = Duration::from_secs(2);
/// Calls that are counted at once, with a descriptor each; of further ones a gap says that it is not known.
const MOST_COUNTED: usize = 512;
/// Between two questions.
const TURN: Duration = Duration::from_millis(20);

/// Calls that are counted.
#[derive(Debug, Default)]
pub(super) struct Calls {
    list: Vec<Counted>,
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
    /// Counting began before the first round saw it in the call: if it has not come out since, it is in the same one.
    is_before: bool,
}

impl Calls {
    /// The look of the first round, within which all that can be counted is counted.
    pub(super) fn first_look(&mut self, mut look: impl FnMut() -> Result<Look, CliError>) -> Result<Look, CliError> {
        let first = look()?;
        self.begin(&first, true);
        if self.list.is_empty() {
            return Ok(first);
        }
        let again = look()?;
        self.list.retain_mut(|one| {
            let ran = one.lasting.ran();
            one.before = ran.unwrap_or_default();
            ran.is_some()
        });
        // Who was somewhere else meanwhile may come out of this call as well, but will not be known to have stayed in it.
        self.begin(&again, false);
        Ok(again)
    }

    /// Count from now on those that are not counted yet. `is_before` says that another look of this round comes after that.
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
                    self.list.push(Counted { tid: wait.tid, returns_to, lasting, before: Duration::ZERO, is_before });
                }
                // It has ended.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => self.refused = Some(why(&error)),
            }
        }
    }

    /// Wait until each thread that has not come out has run for long enough, or for two seconds.
    pub(super) fn wait_until_polled(&mut self) {
        let begin = Instant::now();
        let is_short = |one: &mut Counted| one.is_before && one.ran().is_some_and(|ran| ran < LEAST_POLLED);
        while begin.elapsed() < FOR_POLLS && self.list.iter_mut().any(is_short) {
            std::thread::sleep(TURN);
        }
    }

    /// Say in the look of the second round how long the threads ran in their calls, and which have come out of them.
    pub(super) fn put_into(mut self, mut look: Look) -> Look {
        for wait in look.members.iter_mut().flat_map(|member| &mut member.waits) {
            let its = |one: &&mut Counted| one.tid == wait.tid && Some(one.returns_to.as_str()) == returns_to(wait);
            let Some(counted) = self.list.iter_mut().find(its) else { continue };
            match counted.ran() {
                None => wait.left = true,
                Some(ran) => {
                    wait.polled_ms = u64::try_from(ran.as_millis()).ok().filter(|_| counted.is_before);
                }
            }
        }
        look.gaps.extend(self.refused.map(|why| Gap::new("whether all calls lasted from one round to the next", why)));
        look.named()
    }
}

impl Counted {
    /// How long it has run since the first round without coming out.
    fn ran(&mut self) -> Option<Duration> {
        self.lasting.ran()?.checked_sub(self.before)
    }
}

/// Where the call returns to in which a thread waits.
fn returns_to(wait: &RankWait) -> Option<&str> {
    wait.collective.as_ref()?.returns_to.as_deref()
}

/// Of `0x7f12`.
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
