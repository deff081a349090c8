//! Words of the command line as values: processes, durations, signals, sizes.
//!
//! In: a word. Out: its value, or what is wrong with it. It does not touch the system.

use std::time::Duration;

use nix::sys::signal::Signal;

/// A process as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcessName {
    /// By its id.
    Pid(i32),
    /// By its name, or its program's.
    Name(String),
}

/// `1234` or `gunicorn`.
pub(super) fn process(text: &str) -> Result<ProcessName, String> {
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(ProcessName::Pid(pid)),
        Ok(_) => Err("ids of processes start at 1".to_string()),
        Err(_) if text.trim().is_empty() => Err("names no process".to_string()),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err("no process has an id so high".to_string()),
        Err(_) => Ok(ProcessName::Name(text.to_owned())),
    }
}

/// `4G`, `512M`, `100000`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = match text.chars().next_back().map(|unit| unit.to_ascii_uppercase()) {
        Some('K') => (&text[..text.len() - 1], 1 << 10),
        Some('M') => (&text[..text.len() - 1], 1 << 20),
        Some('G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let size = number.parse().ok().and_then(|number: u64| number.checked_mul(unit)).filter(|size| *size > 0);
    size.ok_or_else(|| "not a number of bytes, as in 512M or 4G".to_owned())
}

/// As timeout(1) takes them: `30`, `1.5m`, `2h`; and what [`duration`] takes.
pub(super) fn period(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    match text.char_indices().last() {
        Some((at, 'h')) => seconds(text[..at].trim(), 3600.0),
        Some((at, 'd')) => seconds(text[..at].trim(), 86_400.0),
        Some((_, last)) if last.is_ascii_digit() => seconds(text, 1.0),
        _ => duration(text),
    }
}

/// `TERM`, `SIGTERM`, `15`.
pub(super) fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let named = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let numbered = || text.parse().ok().and_then(|number: i32| Signal::try_from(number).ok());
    named.parse().ok().or_else(numbered).ok_or_else(|| "no signal has that name or number".to_string())
}

/// `50ms`, `2s`, `1.5s`, `800us`, `1m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "" => return Err("needs a unit, as in 50ms or 2s".to_string()),
        other => return Err(format!("unknown unit `{other}`; known are us, ms, s and m")),
    };
    seconds(number, unit)
}

/// So many times `unit` seconds.
fn seconds(number: &str, unit: f64) -> Result<Duration, String> {
    let number: f64 = number.parse().map_err(|_| "not a number with a unit, as in 50ms or 2s".to_string())?;
    match Duration::try_from_secs_f64(number * unit) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be more than nothing and less than for ever".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("800 us"), Ok(Duration::from_micros(800)));
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["", "50", "ms", "0s", "-1s", "1h", "1e9s", "1.2.3s", "99999999999999999999999999m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn periods_are_those_of_timeout_and_signals_have_names() {
        for (text, seconds) in [("30", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86_400.0), ("500ms", 0.5)] {
            assert_eq!(period(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for wrong in ["", "0", "h", "-1", "1y"] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
        for text in ["TERM", "sigterm", "15"] {
            assert_eq!(signal(text), Ok(Signal::SIGTERM));
        }
        assert!(signal("NONE").is_err() && signal("0").is_err());
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("4G", 4 << 30), ("512m", 512 << 20), ("2K", 2048), ("100000", 100_000)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "G", "0", "-1", "1.5G", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
