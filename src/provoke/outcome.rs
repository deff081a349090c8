//! Why a predicted deadlock did not happen.
//!
//! In: a prediction, and what was counted at its places. Out: a sentence. A deadlock that did happen is the report's.

use std::time::Duration;

use super::{Member, Prediction};
use crate::recorder::targets::Counts;

/// Facts about a prediction after the last run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// By member.
    pub(crate) counts: Vec<Counts>,
    /// The reason why two members could not meet, if it held in every recorded run.
    pub(crate) apart: Option<String>,
}

impl Seen {
    /// Whether all partners stood at their places.
    pub(crate) fn has_met(&self) -> bool {
        self.counts.iter().any(|counts| counts.met > 0)
    }

    /// How often a thread was held.
    pub(crate) fn tries(&self) -> u64 {
        self.counts.iter().map(|counts| counts.tries).sum()
    }
}

/// The reason, as the end of a sentence; `nearest` are places that were reached, near one that was not.
pub(crate) fn reason(prediction: &Prediction, seen: &Seen, nearest: &[String]) -> String {
    let members = || prediction.members.iter().zip(&seen.counts);
    if let Some((member, _)) = members().find(|(_, counts)| counts.passed + counts.alone == 0) {
        let nearest = match nearest {
            [] => String::new(),
            places => format!("; nearest places that were reached: {}", places.join(", ")),
        };
        return format!("never reached: {} at {}{nearest}", member.second.lock, member.second.shortly());
    }
    if let Some((member, counts)) = members().find(|(_, counts)| counts.passed == 0) {
        return format!(
            "the first lock was not held: {} was taken at {} {}, without {} of {}",
            member.second.lock,
            member.second.shortly(),
            times(counts.alone),
            member.first.lock,
            member.first.shortly()
        );
    }
    if let Some(apart) = &seen.apart {
        return apart.clone();
    }
    if seen.tries() == 0 && members().any(|(_, counts)| counts.refused > 0) {
        return "no thread may be held there: it was in a signal handler, had a real-time policy, or was the only one"
            .into();
    }
    if prediction.is_wake_up() {
        return format!("no wake-up was lost: it did not come meanwhile: {}", tried(seen));
    }
    if seen.has_met() {
        let met = seen.counts.iter().map(|counts| counts.met).max().unwrap_or_default();
        return format!("all stood at their places {} and went on: what they took was free again", times(met));
    }
    format!("never in {} at once: {}", if members().count() == 2 { "both places" } else { "all places" }, tried(seen))
}

/// "12 tries, 3.4 s".
pub(crate) fn tried(seen: &Seen) -> String {
    let (tries, time) = (seen.tries(), seen.counts.iter().map(|counts| counts.time).sum::<Duration>());
    format!("{tries} {}, {:.1} s", if tries == 1 { "try" } else { "tries" }, time.as_secs_f64())
}

/// "`orders.c:12` 5 times, `orders.c:20` once": how often each second place was passed with the first lock held.
pub(crate) fn passed(prediction: &Prediction, seen: &Seen) -> String {
    let of = |(member, counts): (&Member, &Counts)| format!("{} {}", member.second.shortly(), times(counts.passed));
    prediction.members.iter().zip(&seen.counts).map(of).collect::<Vec<_>>().join(", ")
}

fn times(count: u64) -> String {
    match count {
        0 => "never".into(),
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provoke::{At, NativePlace, Place};

    fn prediction() -> Prediction {
        let place = |lock: &str, line| {
            let source = Some(("src/app.c".into(), line));
            Place { lock: format!("mutex `{lock}`"), at: At::Native(NativePlace { source, ..NativePlace::default() }) }
        };
        let member = |thread: &str, first, second| Member { thread: thread.into(), first, second };
        Prediction {
            title: "orders differ".into(),
            members: vec![member("payer", place("a", 1), place("b", 2)), member("clerk", place("b", 3), place("a", 4))],
        }
    }

    #[test]
    fn each_reason_is_told_from_the_counts() {
        let told = |counts: [Counts; 2]| reason(&prediction(), &Seen { counts: counts.into(), ..Seen::default() }, &[]);
        let passed = Counts { passed: 2, tries: 1, time: Duration::from_millis(1500), ..Counts::default() };
        assert_eq!(told([passed, Counts::default()]), "never reached: mutex `a` at app.c:4");
        let alone = Counts { alone: 3, ..Counts::default() };
        let expected =
            "the first lock was not held: mutex `a` was taken at app.c:4 3 times, without mutex `b` of app.c:3";
        assert_eq!(told([passed, alone]), expected);
        assert_eq!(told([passed, passed]), "never in both places at once: 2 tries, 3.0 s");
        let refused = Counts { passed: 1, refused: 1, ..Counts::default() };
        assert!(told([refused, refused]).starts_with("no thread may be held there"));
        assert!(told([Counts { met: 1, ..passed }, passed]).contains("once and went on"));
        let gated = Seen { counts: vec![passed; 2], apart: Some("one thread does both".into()) };
        assert_eq!(reason(&prediction(), &gated, &[]), "one thread does both");
    }
}
