//! Names of functions that run on a GPU, for people.
//!
//! In: symbols of the compilers. Out: names without parameters and marks.

use crate::symbols::demangle;

/// A function's name for people, by its symbol. One that a kernel calls and nobody else has the kernel's name before its own:
/// `$kernel$function` (seen with nvcc 13.0).
pub(super) fn name_of(symbol: &str) -> String {
    let own = symbol.strip_prefix('$').and_then(|both| both.rsplit('$').next()).unwrap_or(symbol);
    short_name(&demangle(own))
}

/// A function's name without its parameters and the compiler's marks: `at::cuda::(anonymous namespace)::spin_kernel`.
pub(crate) fn short_name(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name.strip_prefix("void ").unwrap_or(name);
    let mut depth = 0usize;
    while let Some(letter) = rest.chars().next() {
        if depth == 0 && letter == '(' {
            match rest.strip_prefix("(anonymous namespace)") {
                Some(behind) => {
                    out += "(anonymous namespace)";
                    rest = behind;
                    continue;
                }
                None => break,
            }
        }
        if let Some(behind) = rest.strip_prefix("[abi:").and_then(|behind| behind.split_once(']')) {
            rest = behind.1;
            continue;
        }
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        out.push(letter);
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }
    without_long_templates(out.trim_end())
}

/// A name that nobody can read has only the first part of its templates' arguments.
fn without_long_templates(name: &str) -> String {
    const READABLE: usize = 100;
    match name.find('<').filter(|_| name.len() > READABLE) {
        Some(at) => format!("{}<...>", name.get(..at).unwrap_or_default()),
        None => name.to_owned(),
    }
}
