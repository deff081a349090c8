//! The names of lockscope's own processes, so that a watch passes them over.
//!
//! In: names that they take, and processes that are met in a tree. Out: whether one is lockscope's own. Any program can take such a
//! name: but for the monitor of tests, which may be of another copy of lockscope, the program must be this very one too, or that of the
//! monitor below which it stands.

use std::path::PathBuf;

/// The name of a monitor of tests: it watches the processes around it, and is no part of the watched tree.
pub(crate) const MONITOR: &str = "lockscope-tests";
/// The one that ends a command's group after lockscope was killed.
pub(super) const GUARD: &str = "lockscope-guard";
/// The sampling process, between `lockscope run` and its command.
pub(super) const LOOKER: &str = "lockscope-look";
/// The command's parent where the one that looks must be above it.
pub(super) const KEEPER: &str = "lockscope-keep";
/// The one that reads memory in the sampler's place.
const COPIER: &str = "lockscope-copy";
/// The one that lets a sampler go on that is stopped itself.
const RESUMER: &str = "lockscope-wake";

/// Be called so from now on.
pub(crate) fn take_name(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        let _ = nix::sys::prctl::set_name(&name);
    }
}

/// Whether the process `pid` of this name is lockscope's own. `above` are monitors of tests from which it may descend.
pub(super) fn is_own(pid: i32, name: &str, above: &[i32]) -> bool {
    match name {
        MONITOR => true,
        GUARD | LOOKER | KEEPER | COPIER | RESUMER => {
            // Links of the kernel: to read one touches no file system.
            let link =
                |of: &str, what: &str| -> Option<PathBuf> { std::fs::read_link(format!("/proc/{of}/{what}")).ok() };
            let same = |of: &str, what| {
                let theirs = link(&pid.to_string(), what);
                theirs.is_some() && theirs == link(of, what)
            };
            let is_of = |of: &str| same(of, "exe") && same(of, "ns/mnt");
            is_of("self") || above.iter().any(|monitor| is_of(&monitor.to_string()))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_hides_nothing() {
        let mut other = std::process::Command::new("sleep").arg("20").spawn().expect("sleep starts");
        let pid = other.id() as i32;
        assert!(!is_own(pid, GUARD, &[]) && !is_own(pid, "sleep", &[]));
        assert!(is_own(std::process::id() as i32, LOOKER, &[]) && is_own(pid, MONITOR, &[]));
        assert!(is_own(pid, LOOKER, &[pid]), "of the copy that a monitor is of");
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }
}
