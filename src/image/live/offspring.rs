//! Descendants of captured processes that no wait leads to: those that sleep, which may be what hangs, and those that have died.
//!
//! In: captured processes. Out: the ids of descendants that sleep ([`asleep`]), and children that are zombies
//! ([`dead`]). Nothing is stopped, and no memory is read.
//!
//! A server's workers are in the session of the process that started them. Whatever began a session of its own is somebody else's
//! work, as the services of an init process are: it is counted, and looked at only when the user says so.

use std::collections::BTreeSet;

use super::open::descendants;
use super::proc_fs::{self, ProcFs, Stat};
use crate::image::descriptors::DeadChild;

/// Descendants that sleep.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asleep {
    /// In the session of the captured process above them, parents before children.
    pub(super) of_session: Vec<i32>,
    /// In others.
    pub(super) of_others: Vec<i32>,
}

/// The descendants of `captured` that sleep with all of their threads, without those that are captured.
pub(super) fn asleep(proc_fs: &ProcFs, captured: &BTreeSet<i32>) -> Asleep {
    let mut found = Asleep::default();
    let mut seen = captured.clone();
    // lockscope may be a child of the target, and has children of its own.
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    seen.insert(own);
    seen.extend(descendants(proc_fs, own));
    for &pid in captured {
        let Some(above) = proc_fs::stat(&proc_fs.process(pid)) else { continue };
        // The descendants of the topmost ones are all.
        if captured.contains(&above.parent) {
            continue;
        }
        for below in descendants(proc_fs, pid) {
            if !seen.insert(below) {
                continue;
            }
            match proc_fs::stat(&proc_fs.process(below)).filter(|_| sleeps(proc_fs, below)) {
                Some(Stat { session, .. }) if session == above.session => found.of_session.push(below),
                Some(_) => found.of_others.push(below),
                None => {}
            }
        }
    }
    found
}

/// Whether each thread of a process that lives sleeps.
fn sleeps(proc_fs: &ProcFs, pid: i32) -> bool {
    let states = proc_fs.threads(pid).unwrap_or_default().into_iter();
    let mut living = states
        .filter_map(|tid| proc_fs::stat(&proc_fs.task(pid, tid)))
        .map(|stat| stat.state)
        .filter(|state| !proc_fs::has_exited(*state))
        .peekable();
    living.peek().is_some() && living.all(|state| matches!(state, 'S' | 'D'))
}

/// The children of `captured` that have died and were not waited for yet.
pub(super) fn dead(proc_fs: &ProcFs, captured: &BTreeSet<i32>) -> Vec<DeadChild> {
    let children = captured.iter().flat_map(|parent| proc_fs.children(*parent).into_iter().map(|pid| (*parent, pid)));
    let dead = children.filter(|(_, pid)| !captured.contains(pid)).filter_map(|(parent, pid)| {
        let (stat, name) = proc_fs::stat_and_name(&proc_fs.process(pid))?;
        // The main thread may have ended before the others.
        let has_ended = stat.is_dead() && proc_fs.living_thread(pid).is_none();
        has_ended.then_some(DeadChild { pid, parent, name, status: stat.exit_code })
    });
    dead.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with its children, state, session and status; one thread each.
    fn put(root: &std::path::Path, pid: i32, children: &str, state: char, session: i32, status: i32) {
        let task = root.join(format!("{pid}/task/{pid}"));
        std::fs::create_dir_all(&task).expect("a folder");
        let parent = i32::from(pid != 1);
        let stat = format!("{pid} (it) {state} {parent} 1 {session} 0 -1 0 {}{status}", "0 ".repeat(42));
        std::fs::write(root.join(format!("{pid}/stat")), &stat).expect("stat");
        std::fs::write(task.join("stat"), &stat).expect("stat");
        std::fs::write(task.join("children"), children).expect("children");
    }

    #[test]
    fn who_sleeps_and_who_has_died() {
        let root = tempfile::tempdir().expect("a folder");
        put(root.path(), 1, "2 3 4 5", 'S', 1, 0);
        put(root.path(), 2, "6", 'S', 1, 0);
        put(root.path(), 3, "", 'R', 1, 0);
        put(root.path(), 4, "", 'S', 4, 0);
        put(root.path(), 5, "", 'Z', 1, 3 << 8);
        put(root.path(), 6, "", 'D', 1, 0);
        let proc_fs = ProcFs::new(root.path());
        let of = |captured: &[i32]| asleep(&proc_fs, &captured.iter().copied().collect());
        assert_eq!(of(&[1]), Asleep { of_session: vec![2, 6], of_others: vec![4] });
        assert_eq!(of(&[1, 2]), Asleep { of_session: vec![6], of_others: vec![4] });
        let dead = dead(&proc_fs, &BTreeSet::from([1]));
        let dead: Vec<_> = dead.iter().map(|one| (one.pid, one.parent, one.described())).collect();
        assert_eq!(dead, [(5, 1, "it (5) exited with status 3".to_owned())]);
    }
}
