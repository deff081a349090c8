//! When and where a sample was taken.
//!
//! In: nothing. Out: plain data, which a snapshot keeps. A core says none of it.

use std::time::SystemTime;

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

/// A time as reports write it: `2026-03-01T12:00:00.123Z`.
pub(crate) fn timestamp(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_utc_to_the_millisecond() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_366_400_007);
        assert_eq!(timestamp(time), "2026-03-01T12:00:00.007Z");
    }
}
