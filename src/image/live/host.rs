//! The machine that lockscope runs on.
//!
//! In: nothing. Out: a [`Host`]; what cannot be read is left out.

use std::path::Path;

use crate::image::taken::Host;

/// This machine.
pub(crate) fn this(proc_root: &Path) -> Host {
    let read = |name: &str| std::fs::read_to_string(proc_root.join("sys/kernel").join(name)).ok();
    let word = |name: &str| read(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    Host { name: word("hostname"), boot_id: word("random/boot_id"), kernel: word("osrelease") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_a_boot() {
        let host = this(Path::new("/proc"));
        assert_eq!(host.boot_id.as_deref().map(str::len), Some(36), "{host:?}");
        assert!(host.kernel.is_some_and(|kernel| kernel.contains('.')));
        assert_eq!(this(Path::new("/nonexistent")), Host::default());
    }
}
