//! Lines of source files, as facts: what stands where a thread took something or waits.
//!
//! In: the bytes of a file. Out: [`SourceLines`]: the requested lines. The capture decides which files may be read
//! (`live::sources`); the verdict decides which lines are needed.

use std::collections::BTreeSet;

use crate::limits::image::LONGEST_SOURCE_LINE;

/// Ends of the names of files that hold source. No other file is read for the sake of its text: that code has its name is a claim of
/// the target's alone.
const SUFFIXES: &[&str] = &[
    "py", "pyw", "pyx", "pxd", "pxi", "c", "h", "cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "h++", "inl", "ipp",
    "tcc", "tpp", "cu", "cuh", "rs", "go", "f", "f90", "f95", "f03", "f08", "jl", "d", "zig", "swift", "m", "mm", "s",
];

/// Some lines of a source file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SourceLines {
    /// The name that code has for the file.
    pub name: String,
    /// Its absolute path, as the target sees it.
    pub path: String,
    /// It was changed after the process began: these may not be the lines that run.
    pub is_newer: bool,
    /// The lines with their numbers.
    pub lines: Vec<(u32, String)>,
}

/// Whether a file is one of source, by its name.
pub(super) fn is_source(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let suffix =
        name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, suffix)| suffix.to_ascii_lowercase());
    suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix.as_str()))
}

/// The wanted lines of a file's text; none of a file that holds no text.
pub(super) fn lines_of(bytes: &[u8], wanted: &BTreeSet<u32>) -> Option<Vec<(u32, String)>> {
    if bytes.contains(&0) {
        return None;
    }
    let lines = (1u32..).zip(bytes.split(|byte| *byte == b'\n')).filter(|(number, _)| wanted.contains(number));
    let text = |line: &[u8]| {
        let text = String::from_utf8_lossy(line).replace('\t', "    ");
        text.trim_end().chars().take(LONGEST_SOURCE_LINE).collect::<String>()
    };
    Some(lines.map(|(number, line)| (number, text(line))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_called_source_is_source() {
        for path in ["/srv/a.py", "bank.c", "/src/lib.RS", "/x/kernel.cu"] {
            assert!(is_source(path), "{path}");
        }
        for path in ["/etc/shadow", "/home/me/.netrc", "/x.py/secret", ".py", "/root/.ssh/id.key", "", "a.py/"] {
            assert!(!is_source(path), "{path}");
        }
    }

    #[test]
    fn wanted_lines_of_text_only() {
        let wanted = BTreeSet::from([2, 3, 9]);
        let lines = lines_of(b"one\n\ttwo  \r\nthree\n", &wanted);
        assert_eq!(lines, Some(vec![(2, "    two".to_owned()), (3, "three".to_owned())]));
        assert_eq!(lines_of(b"one\0\ntwo\n", &wanted), None);
        let long = lines_of("ü".repeat(10_000).as_bytes(), &BTreeSet::from([1])).unwrap();
        assert_eq!(long[0].1.chars().count(), LONGEST_SOURCE_LINE);
    }
}
