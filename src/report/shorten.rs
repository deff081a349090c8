//! Paths and names of functions, as short as a reader can still recognise them; and sentences with such names in them.
//!
//! In: strings as files and debug information have them. Out: the part for people. It escapes and wraps nothing.

use std::borrow::Cow;

use super::Report;

/// Longer names lose what is inside `<...>`, and then their arguments.
const LONG: usize = 72;
/// A word that is longer still loses its middle.
const LONG_WORD: usize = 96;
/// The name for something whose name has no letter.
const NAMELESS: &str = "(no name)";

/// A name or word that is not longer than anybody reads: what is too much is left out before the end.
pub(crate) fn word(word: &str) -> Cow<'_, str> {
    const END: usize = 24;
    let count = word.chars().count();
    if count <= LONG_WORD {
        return word.into();
    }
    let head = word.chars().take(LONG_WORD - END - 1);
    let end = word.chars().skip(count - END);
    head.chain(std::iter::once('…')).chain(end).collect::<String>().into()
}

/// Each word of a sentence, shortened.
fn words(sentence: &str) -> String {
    // Also what stands between the words stays as it is.
    sentence.split_inclusive(char::is_whitespace).fold(String::new(), |mut short, piece| {
        let end = piece.trim_end_matches(char::is_whitespace);
        short += &word(end);
        short += &piece[end.len()..];
        short
    })
}

/// The sentences and labels of a report with names that can be read. The names themselves stay whole: they are data.
pub(crate) fn sentences(report: &mut Report) {
    let evidence = report.waits.iter_mut().map(|wait| &mut wait.evidence);
    let evidence = evidence.chain(report.holds.iter_mut().map(|hold| &mut hold.evidence)).flatten();
    let labels = report.resources.iter_mut().map(|resource| &mut resource.label);
    let messages = report.findings.iter_mut().map(|finding| &mut finding.message);
    for text in evidence.chain(labels).chain(messages).chain([&mut report.summary]) {
        if text.len() > LONG_WORD {
            *text = words(text);
        }
    }
}

/// The part of a path that a reader needs: below site-packages or the standard library, else the file's name.
pub(crate) fn path(path: &str) -> &str {
    installed(path).unwrap_or_else(|| base_name(path))
}

/// The part of a path below site-packages or Python's standard library: such a file is none of the program's own.
pub(crate) fn installed(path: &str) -> Option<&str> {
    for packages in ["/site-packages/", "/dist-packages/"] {
        if let Some((_, rest)) = path.rsplit_once(packages) {
            return Some(rest);
        }
    }
    if let Some((_, rest)) = path.rsplit_once("/lib/python")
        && let Some((version, rest)) = rest.split_once('/')
        && version.starts_with(|digit: char| digit.is_ascii_digit())
    {
        return Some(rest);
    }
    None
}

/// The last part of a path.
pub(crate) fn base_name(path: &str) -> &str {
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path);
    if name.trim().is_empty() { NAMELESS } else { name }
}

/// A function's name without the C library's symbol version, and without what makes a long one long.
pub(crate) fn function(name: &str) -> String {
    if let Some((plain, version)) = name.split_once('@')
        && !plain.is_empty()
        && version.trim_start_matches('@').starts_with("GLIBC")
    {
        return plain.to_owned();
    }
    if name.trim().is_empty() {
        return NAMELESS.to_owned();
    }
    if name.chars().count() <= LONG {
        return name.to_owned();
    }
    let short = without_type_arguments(name);
    if short.chars().count() <= LONG { short } else { word(&without_arguments(&short)).into_owned() }
}

/// Replaces the text inside `<...>` behind a word by `…`: the arguments of templates and generics.
fn without_type_arguments(name: &str) -> String {
    let mut short = String::new();
    let mut depth = 0u32;
    let mut before = ' ';
    for letter in name.chars() {
        // Not the comparison operators of C++, the arrow, or the `<T as Trait>` that a path of Rust begins with.
        let behind_word = before.is_alphanumeric() || "_:}".contains(before);
        match letter {
            '<' if depth > 0 || (behind_word && !short.ends_with("operator")) => {
                if depth == 0 {
                    short.push_str("<…>");
                }
                depth += 1;
            }
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
        before = letter;
    }
    short
}

/// Replaces the text inside `(...)` by `…`: the arguments of functions. `operator()` and `(anonymous namespace)` are
/// names.
fn without_arguments(name: &str) -> String {
    let mut short = String::new();
    let mut depth = 0u32;
    for (at, letter) in name.char_indices() {
        let rest = &name[at..];
        match letter {
            '(' if depth == 0 && (rest.starts_with("()") || rest.starts_with("(anonymous ")) => short.push(letter),
            '(' => {
                if depth == 0 {
                    short.push_str("(…)");
                }
                depth += 1;
            }
            ')' if depth > 0 => depth -= 1,
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_where_a_reader_knows_them() {
        assert_eq!(path("/usr/lib/python3/dist-packages/numba/cuda/driver.py"), "numba/cuda/driver.py");
        assert_eq!(path("/usr/lib/python3.12/concurrent/futures/thread.py"), "concurrent/futures/thread.py");
        assert_eq!(path("/home/me/train.py"), "train.py");
        assert_eq!(path("<string>"), "<string>");
    }

    #[test]
    fn long_names_lose_what_templates_are_made_of() {
        let long = "std::_Function_handler<void (int), main::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)";
        assert_eq!(function(long), "std::_Function_handler<…>::_M_invoke(std::_Any_data const&, int&&)");
        let long = "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once";
        assert_eq!(
            without_type_arguments(long),
            "<core::panic::unwind_safe::AssertUnwindSafe<…> as core::ops::function::FnOnce<…>>::call_once"
        );
        let long =
            "Kernel::operator<(std::vector<int, std::allocator<int>> const&, std::map<int, int, std::less<int>>)";
        assert_eq!(function(long), "Kernel::operator<(std::vector<…> const&, std::map<…>)");
        let long = "do_call<(), spawn::{closure#1}::{closure_env#0}<demo::{closure#0}::{closure_env#0}, fn() -> ()>>";
        assert_eq!(function(long), "do_call<…>");
        assert_eq!(function("std::vector<int>::push_back"), "std::vector<int>::push_back");
        assert_eq!(function("pthread_cond_wait@@GLIBC_2.3.2"), "pthread_cond_wait");
    }

    #[test]
    fn names_that_are_long_still_lose_their_arguments() {
        let long =
            "(anonymous namespace)::Pool::operator()(std::string const&, jobs::Request const&, jobs::Reply*) const";
        assert_eq!(function(long), "(anonymous namespace)::Pool::operator()(…) const");
        let long =
            "store::Ledger::transfer_between_accounts(store::Account&, store::Account&, long, std::string const&)";
        assert_eq!(function(long), "store::Ledger::transfer_between_accounts(…)");
        assert_eq!(function("f(int)"), "f(int)");
    }

    #[test]
    fn names_without_a_letter_and_endless_ones_can_be_read() {
        assert_eq!((function(""), path(""), base_name(" ")), ("(no name)".to_owned(), "(no name)", "(no name)"));
        let long = "f".repeat(300);
        assert_eq!(function(&long).chars().count(), LONG_WORD);
        assert_eq!(word("short"), "short");
        let sentence = format!("thread 5 '{long}'\twaits  in {long} at a.py:5");
        let short = words(&sentence);
        assert!(
            short.starts_with("thread 5 'fff") && short.ends_with("f at a.py:5") && short.contains("f'\twaits  in f")
        );
        assert!(short.split_whitespace().all(|word| word.chars().count() <= LONG_WORD), "{short}");
        assert_eq!(words("as  it is"), "as  it is");
    }
}
