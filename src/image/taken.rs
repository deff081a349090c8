//! When and where a sample was taken.
//!
//! In: nothing. Out: plain data, which a snapshot keeps. A core says none of it.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

/// The identity of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[non_exhaustive]
pub struct Host {
    /// Its name; not in a snapshot that was written with `--redact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A random id of the boot: equal on one machine until the next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Release of its kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// When and where a sample was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Taken {
    /// The machine.
    pub host: Host,
    /// When the sample began and ended, by its clock (RFC 3339, UTC).
    pub began: String,
    pub ended: String,
}

impl Taken {
    /// When the sample began and ended, since 1970; `None` where that is not known.
    pub(crate) fn span(&self) -> Option<Range<Duration>> {
        let since_1970 = |time: &str| {
            let time = DateTime::parse_from_rfc3339(time).ok()?;
            Some(Duration::from_millis(time.timestamp_millis().try_into().ok()?))
        };
        // Both were cut to whole milliseconds.
        Some(since_1970(&self.began)?..since_1970(&self.ended)? + Duration::from_millis(1))
    }
}

/// A time as reports write it: `2026-03-01T12:00:00.123Z`.
pub(crate) fn timestamp(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_ends_with_the_millisecond_that_it_ended_in() {
        let taken = |ended: &str| Taken {
            began: "2026-03-01T12:00:00.123Z".to_owned(),
            ended: ended.to_owned(),
            ..Taken::default()
        };
        let span = taken("2026-03-01T12:00:01.322Z").span().unwrap();
        assert_eq!(span.end - span.start, Duration::from_millis(1200));
        assert_eq!(taken("").span(), None);
    }

    #[test]
    fn times_are_utc_to_the_millisecond() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_366_400_007);
        assert_eq!(timestamp(time), "2026-03-01T12:00:00.007Z");
    }
}
