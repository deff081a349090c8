//! C++ and Rust names as people write them.

use std::fmt::{self, Write};

use crate::limits::symbols::{LONGEST_MANGLED, LONGEST_READABLE};

/// The scheme that made a symbol's name from the program's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mangling {
    /// A snapshot of a version that did not note it, or there is no symbol.
    #[default]
    Unknown,
    /// Not at all: C, assembly, `extern "C"`.
    Plain,
    /// By the Itanium C++ ABI.
    Cpp,
    /// By rustc: its own scheme, or the older one that looks like C++'s with a hash at the end.
    Rust,
}

impl Mangling {
    /// The scheme of a name as it stands in a file. Source: <https://doc.rust-lang.org/rustc/symbol-mangling/>.
    pub(crate) fn of(name: &str) -> Mangling {
        if has_hash(name) || name.starts_with("_R") && rustc_demangle::try_demangle(name).is_ok() {
            Mangling::Rust
        } else if name.starts_with("_Z") {
            Mangling::Cpp
        } else {
            Mangling::Plain
        }
    }
}

/// `17h` and 16 hexadecimal digits are the last component of Rust's older scheme, before a suffix like `.llvm.42`; no C++
/// compiler makes it.
fn has_hash(name: &str) -> bool {
    let is_hash = |rest: &str| {
        let (digits, end) = rest.split_at_checked(16).unwrap_or_default();
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && (end == "E" || end.starts_with("E."))
    };
    name.starts_with("_ZN")
        && name.match_indices("17h").any(|(at, found)| name.get(at + found.len()..).is_some_and(is_hash))
}

/// A text that refuses to grow beyond a length: parts of a name may name each other, and double it at each step.
struct Bounded {
    text: String,
    /// Pieces that may still come: one without a letter takes time as well.
    left: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
        if self.text.len() + piece.len() > LONGEST_READABLE {
            return Err(fmt::Error);
        }
        self.text.push_str(piece);
        Ok(())
    }
}

/// The text that `write` makes; `None` where it would be too long.
fn bounded(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> Option<String> {
    let mut text = Bounded { text: String::new(), left: LONGEST_READABLE };
    write(&mut text).ok().map(|()| text.text)
}

/// The readable form of a symbol's name; C names stay as they are, up to a length.
pub(crate) fn demangle(name: &str) -> String {
    // A name of more than this is a template of templates that nobody can read.
    if name.len() <= LONGEST_MANGLED {
        if let Ok(rust) = rustc_demangle::try_demangle(name) {
            if let Some(readable) = bounded(|text| write!(text, "{rust:#}")) {
                return readable;
            }
        } else if name.starts_with("_Z")
            && let Ok(symbol) = cpp_demangle::Symbol::new(name)
            && let Some(readable) = bounded(|text| symbol.structured_demangle(text, &Default::default()))
        {
            return readable;
        }
    }
    shortened(name).to_owned()
}

/// A text of a file, such as the name of a function or of a source file, up to a length.
pub(crate) fn shortened(name: &str) -> &str {
    let end = (0..=LONGEST_MANGLED.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.get(..end.unwrap_or(0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Mangling, demangle};

    #[test]
    fn names_become_readable() {
        assert_eq!(demangle("_ZNSt6thread4joinEv"), "std::thread::join()");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("pthread_mutex_lock"), "pthread_mutex_lock");
        assert_eq!(demangle("_ZZZZ"), "_ZZZZ");
    }

    /// Each part is a template of two of the part before.
    #[test]
    fn names_that_grow_by_powers_stay_as_they_are() {
        let part = |number: usize| match number {
            0 => "S_".to_owned(),
            1..=10 => format!("S{}_", number - 1),
            _ => format!("S{}_", char::from(b'A' + (number - 11) as u8)),
        };
        let parts: String = (1..30).map(|step| format!("S_I{0}{0}E", part(step))).collect();
        let name = format!("_Z1fI1BIiiE{parts}Evv");
        assert_eq!(demangle(&name), name);
        let growing = format!("_Z1f1BIiiE{parts}");
        assert!(demangle(&growing).len() <= super::LONGEST_READABLE);
        assert_eq!(demangle(&"a".repeat(8 << 20)).len(), super::LONGEST_MANGLED);
    }

    #[test]
    fn the_scheme_tells_the_language() {
        for (name, scheme) in [
            ("_ZNSt6thread4joinEv", Mangling::Cpp),
            ("_ZN8pybind1112cpp_function10dispatcherEP7_objectS2_S2_.cold", Mangling::Cpp),
            ("_ZN3foo3barE", Mangling::Cpp),
            ("_ZN4core3fmt5write17h0123456789abcdefE", Mangling::Rust),
            ("_ZN4core3fmt5write17h0123456789abcdefE.llvm.42", Mangling::Rust),
            (
                "_ZN4core3ops8function6FnOnce40call_once$u7b$$u7b$vtable.shim$u7d$$u7d$17h0123456789abcdefE",
                Mangling::Rust,
            ),
            ("_ZN3foo17h0123E", Mangling::Cpp),
            ("_RNvC6_123foo3bar", Mangling::Rust),
            ("_Reply", Mangling::Plain),
            ("pthread_mutex_lock", Mangling::Plain),
            ("", Mangling::Plain),
        ] {
            assert_eq!(Mangling::of(name), scheme, "{name}");
        }
    }
}
