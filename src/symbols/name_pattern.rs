//! Names of functions as a table gives them: exact, or how they begin, whatever inline namespace a build has.
//!
//! In: the name of a function as [`base_symbol`](super::base_symbol) gives it, and a pattern. Out: whether they fit. In a pattern
//! `::*::` stands for an inline namespace or for none: `absl::*::Mutex::Lock()` is `absl::Mutex::Lock()` and
//! `absl::lts_20240722::Mutex::Lock()`, and not `absl::a<b::Mutex>::Mutex::Lock()`.

const ANY_NAMESPACE: &str = "::*::";

/// Whether `name` is one that `pattern` stands for.
pub(crate) fn is_named(name: &str, pattern: &str) -> bool {
    if is_plain(pattern) { name == pattern } else { behind(name, pattern).any(str::is_empty) }
}

/// Whether `name` begins with a text that `pattern` stands for.
pub(crate) fn begins_with(name: &str, pattern: &str) -> bool {
    if is_plain(pattern) { name.starts_with(pattern) } else { behind(name, pattern).next().is_some() }
}

/// Whether a pattern stands for itself alone. Most do, and each frame of each thread is compared with hundreds of them.
fn is_plain(pattern: &str) -> bool {
    !pattern.as_bytes().contains(&b'*')
}

/// The rest of a name behind a pattern, for each way in which it fits.
fn behind<'n>(name: &'n str, pattern: &'n str) -> Box<dyn Iterator<Item = &'n str> + 'n> {
    let Some((outer, inner)) = pattern.split_once(ANY_NAMESPACE) else {
        return Box::new(name.strip_prefix(pattern).into_iter());
    };
    let Some(rest) = name.strip_prefix(outer).and_then(|rest| rest.strip_prefix("::")) else {
        return Box::new(std::iter::empty());
    };
    let is_namespace = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let within = rest.split_once("::").filter(|(space, _)| is_namespace(space)).map(|(_, within)| within);
    Box::new(std::iter::once(rest).chain(within).flat_map(move |rest| behind(rest, inner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_namespace_is_any_or_none_and_never_two() {
        let lock = "absl::*::Mutex::Lock()";
        assert!(is_named("absl::Mutex::Lock()", lock));
        assert!(is_named("absl::debian3::Mutex::Lock()", lock));
        assert!(!is_named("absl::a::b::Mutex::Lock()", lock));
        assert!(!is_named("absl::debian3::Mutex::Lock() const", lock));
        assert!(!is_named("absl::call<x::Mutex::Lock()", lock));
        assert!(!is_named("mine::Mutex::Lock()", lock));
        let guard = "absl::*::MutexLock::MutexLock(absl::*::Mutex*)";
        assert!(is_named("absl::MutexLock::MutexLock(absl::Mutex*)", guard));
        assert!(is_named("absl::debian3::MutexLock::MutexLock(absl::debian3::Mutex*)", guard));
        assert!(!is_named("absl::debian3::MutexLock::MutexLock(absl::debian3::Mutex&)", guard));
    }

    #[test]
    fn without_a_star_it_is_the_text_itself() {
        assert!(is_named("pthread_mutex_lock", "pthread_mutex_lock"));
        assert!(!is_named("pthread_mutex_lock_all", "pthread_mutex_lock"));
        assert!(begins_with("pthread_mutex_lock_all", "pthread_mutex_lock"));
        assert!(begins_with("absl::debian3::Mutex::Await(int)", "absl::*::Mutex::"));
        assert!(!begins_with("absl::any_invocable<absl::Mutex::>", "absl::*::Mutex::"));
    }
}
