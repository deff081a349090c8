//! C++ and Rust names as people write them.

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
    use super::demangle;

    #[test]
    fn names_become_readable() {
        assert_eq!(demangle("_ZNSt6thread4joinEv"), "std::thread::join()");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("pthread_mutex_lock"), "pthread_mutex_lock");
        assert_eq!(demangle("_ZZZZ"), "_ZZZZ");
    }
}
