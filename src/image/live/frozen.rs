//! Whether a process is frozen by its control group (docker pause, systemd, batch systems).
//!
//! In: a process. Out: the control group that is frozen. Nothing is thawed. A frozen process looks like any other in
//! /proc but for state D in the older kind of groups; its threads come to no stop there.

use std::path::{Path, PathBuf};

use super::proc_fs::ProcFs;

/// Where control groups are mounted: both kinds, alone and side by side (systemd's hybrid layout).
const OLDER: &str = "/sys/fs/cgroup/freezer";
const NEWER: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The frozen control group of a process, as /proc names it.
pub(super) fn group(proc_fs: &ProcFs, pid: i32) -> Option<String> {
    let text = std::fs::read_to_string(proc_fs.process(pid).join("cgroup")).ok()?;
    text.lines()
        .filter_map(parse)
        .find(|(is_newer, group)| is_frozen(*is_newer, group))
        .map(|(_, group)| group.to_owned())
}

/// `6:freezer:/paused`, `0::/system.slice/x.service`: whether it is the newer kind, and the group's path.
fn parse(line: &str) -> Option<(bool, &str)> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    let is_newer = controllers.is_empty();
    (is_newer || controllers.split(',').any(|controller| controller == "freezer")).then_some((is_newer, group))
}

fn is_frozen(is_newer: bool, group: &str) -> bool {
    let below = group.trim_start_matches('/');
    let read = |mount: &str, file: &str| {
        let path: PathBuf = Path::new(mount).join(below).join(file);
        std::fs::read_to_string(path).unwrap_or_default()
    };
    match is_newer {
        // "populated 1\nfrozen 1"
        true => NEWER.iter().any(|mount| read(mount, "cgroup.events").lines().any(|line| line == "frozen 1")),
        // "FROZEN", and "FREEZING" while some task has not come to it.
        false => read(OLDER, "freezer.state").starts_with("FR"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_kinds() {
        assert_eq!(parse("6:freezer:/paused"), Some((false, "/paused")));
        assert_eq!(parse("4:cpu,freezer:/a:b"), Some((false, "/a:b")));
        assert_eq!(parse("0::/system.slice/x.service"), Some((true, "/system.slice/x.service")));
        assert_eq!(parse("8:pids:/"), None);
        assert_eq!(parse("damaged"), None);
    }
}
