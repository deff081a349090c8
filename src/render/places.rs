//! Places of source as a reader can go there: short where they are read, whole where they are followed.
//!
//! In: a [`ParticipantPlace`] and a [`Style`]. Out: `orders/service.py:14`, and the address that a terminal can open. Nothing is looked up.

use std::fmt::Write as _;
use std::path::Path;

use super::Style;
use super::view::keep_together;
use crate::report::{ParticipantPlace, installed, short_word};

/// `orders/service.py:14`: the path below the working directory, or the rest of an installed file's path.
pub(super) fn shown(place: &ParticipantPlace, style: &Style) -> Option<String> {
    let file = place.file.as_deref()?;
    let below = style.working_directory.as_deref().and_then(|folder| Path::new(file).strip_prefix(folder).ok());
    let short =
        below.and_then(Path::to_str).filter(|rest| !rest.is_empty()).or_else(|| installed(file)).unwrap_or(file);
    let short = short_word(short);
    Some(keep_together(&place.line.map_or_else(|| short.to_string(), |line| format!("{short}:{line}"))))
}

/// `file://host/srv/orders/service.py`, if the terminal follows links.
pub(super) fn address(place: &ParticipantPlace, style: &Style) -> Option<String> {
    let file = place.file.as_deref().filter(|file| style.links && file.starts_with('/'))?;
    let mut address = "file://".to_owned();
    for byte in file.bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => address.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => address.push(byte.into()),
            // Writing to a String cannot fail.
            byte => drop(write!(address, "%{byte:02X}")),
        }
    }
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_short_where_they_are_read_and_whole_where_they_are_followed() {
        let place = |file: &str| ParticipantPlace {
            file: Some(file.to_owned()),
            line: Some(14),
            function: None,
            changed: false,
            lines: Vec::new(),
        };
        let style = Style { working_directory: Some("/srv".into()), links: true, ..Style::plain() };
        let seen = |file: &str| (shown(&place(file), &style).unwrap(), address(&place(file), &style));
        assert_eq!(seen("/srv/orders/a.py"), ("orders/a.py:14".into(), Some("file:///srv/orders/a.py".into())));
        assert_eq!(seen("/opt/ü b\u{1b}.py").1.as_deref(), Some("file:///opt/%C3%BC%20b%1B.py"));
        assert_eq!(seen("/opt/lib/python3.11/site-packages/x/y.py").0, "x/y.py:14");
        assert_eq!(seen("<string>"), ("<string>:14".into(), None));
        assert_eq!(address(&place("/srv/a.py"), &Style::plain()), None);
    }
}
