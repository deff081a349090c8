//! Places whose orders of locks are known and not reported: a checked-in file, as sanitizers have.
//!
//! In: its text: a line each, `#` begins a comment. A line is a file, a file and line (`orders.py:12`), or a function;
//! `*` stands for anything. Out: whether a place fits. A line fits a path by its last parts.

use super::places::Spot;

/// The suppressed places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suppressions {
    patterns: Vec<String>,
}

/// The fault in a file of suppressions.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} fits every place")]
pub(crate) struct SuppressionsError {
    /// Which line.
    pub(crate) line: usize,
}

impl Suppressions {
    /// Read a file.
    pub(crate) fn parse(text: &str) -> Result<Suppressions, SuppressionsError> {
        let mut patterns = Vec::new();
        for (position, line) in text.lines().enumerate() {
            let pattern = line.split('#').next().unwrap_or_default().trim();
            if pattern.is_empty() {
                continue;
            }
            if pattern.chars().all(|letter| letter == '*') {
                return Err(SuppressionsError { line: position + 1 });
            }
            patterns.push(pattern.to_owned());
        }
        Ok(Suppressions { patterns })
    }

    /// Whether any of these places is named.
    pub(super) fn fit<'s>(&self, spots: impl Iterator<Item = &'s Spot>) -> bool {
        !self.patterns.is_empty()
            && spots.flat_map(|spot| &spot.lines).any(|line| {
                let function = line.function.as_deref();
                self.fits(line.file.as_deref(), line.line, function)
            })
    }

    fn fits(&self, file: Option<&str>, line: Option<u32>, function: Option<&str>) -> bool {
        let with_line = file.zip(line).map(|(file, line)| format!("{file}:{line}"));
        self.patterns.iter().any(|pattern| {
            let is_path = |path: &str| is_like(pattern, path) || is_like(&format!("*/{pattern}"), path);
            file.is_some_and(is_path)
                || with_line.as_deref().is_some_and(is_path)
                || function.is_some_and(|function| is_like(pattern, function))
        })
    }
}

/// Whether a text is as the pattern says, in which `*` stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_by_file_line_or_function() {
        let of = |text: &str| Suppressions::parse(text).expect("suppressions");
        let fits = |text: &str| of(text).fits(Some("/srv/app/orders.py"), Some(12), Some("place_order"));
        for text in
            ["orders.py", "app/orders.py", "orders.py:12", "place_order", "/srv/*", "place_*", "a\norders.py # known"]
        {
            assert!(fits(text), "{text}");
        }
        for text in ["", "# orders.py", "orders", "ders.py", "orders.py:1", "orders.py:123", "place", "*x*"] {
            assert!(!fits(text), "{text}");
        }
        assert_eq!(Suppressions::parse("a\n**").err(), Some(SuppressionsError { line: 2 }));
    }
}
