//! C++ and Rust names as people write them.

/// How a symbol's name was made of what the program calls it.
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
    /// Of a name as it stands in a file. Source: <https://doc.rust-lang.org/rustc/symbol-mangling/>.
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

/// The readable form of a symbol's name; C names stay as they are.
pub(crate) fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") {
        // A name of more than this is a template of templates that nobody can read.
        const LONGEST: usize = 4096;
        if name.len() <= LONGEST
            && let Ok(symbol) = cpp_demangle::Symbol::new(name)
            && let Ok(readable) = symbol.demangle()
        {
            return readable;
        }
    }
    name.to_string()
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
