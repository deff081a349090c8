//! Descendants that a process waits for: its children, and processes with the other end of a pipe or socket that it
//! reads, or with the same shared memory.
//!
//! In: what captured processes wait for outside of themselves. Out: the ids of descendants that this leads to. Nothing is stopped,
//! and what cannot be read leads to nobody.

use std::collections::BTreeSet;

use super::open::descendants;
use super::proc_fs::{self, ProcFs};
use crate::sys;

/// Something outside of a process that it waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Awaited {
    /// The end of a child, which the process may have named.
    Child {
        /// The waiting process.
        of: i32,
        /// The id that it knows the child by.
        named: Option<i32>,
    },
    /// The other end of something that this process may write or read.
    End {
        /// The process with that end.
        pid: i32,
    },
    /// A word in shared memory: the awaited processes map it.
    Memory {
        /// The waiting process.
        of: i32,
        /// Device and inode of the mapping.
        file: ((i32, i32), u64),
    },
    /// Whatever threads of this process give each other: a child with the same address space gives it, too.
    AddressSpace {
        /// The waiting process.
        of: i32,
    },
}

/// The descendants of `captured` that are meant, without those that are captured.
pub(super) fn resolve(proc_fs: &ProcFs, captured: &BTreeSet<i32>, awaited: &BTreeSet<Awaited>) -> Vec<i32> {
    let mut below: Option<BTreeSet<i32>> = None;
    let mut found = BTreeSet::new();
    for one in awaited {
        match one {
            Awaited::Child { of, named } => {
                let children = proc_fs.children(*of);
                let is_named = |pid: &i32| Some(*pid) == *named || named.is_some() && inner_id(proc_fs, *pid) == *named;
                match children.iter().copied().find(is_named) {
                    Some(child) => drop(found.insert(child)),
                    None => found.extend(children),
                }
            }
            Awaited::End { pid } => {
                let below = below.get_or_insert_with(|| all_below(proc_fs, captured));
                found.extend(Some(*pid).filter(|pid| below.contains(pid)));
            }
            Awaited::AddressSpace { of } => {
                let children = proc_fs.children(*of).into_iter();
                found.extend(children.filter(|pid| sys::have_same_memory(*of, *pid) == Some(true)));
            }
            Awaited::Memory { of, file: (device, inode) } => {
                found.extend(descendants(proc_fs, *of).into_iter().filter(|pid| {
                    let maps = proc_fs::mappings(&proc_fs.shared(*pid)).unwrap_or_default();
                    maps.iter().any(|mapping| mapping.shared && (mapping.device, mapping.inode) == (*device, *inode))
                }));
            }
        }
    }
    found.into_iter().filter(|pid| !captured.contains(pid)).collect()
}

fn all_below(proc_fs: &ProcFs, captured: &BTreeSet<i32>) -> BTreeSet<i32> {
    captured.iter().flat_map(|pid| descendants(proc_fs, *pid)).collect()
}

fn inner_id(proc_fs: &ProcFs, pid: i32) -> Option<i32> {
    proc_fs::status(&proc_fs.process(pid))?.innermost_id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 has the children 2 and 3; 4 is below 3, and maps shared memory.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (pid, children) in [(1, "2 3"), (2, ""), (3, "4"), (4, ""), (9, "")] {
            let task = root.path().join(format!("{pid}/task/{pid}"));
            std::fs::create_dir_all(&task).expect("a folder");
            std::fs::write(task.join("children"), children).expect("children");
            let inner = if pid == 3 { 77 } else { pid };
            let status = format!("Tgid:\t{pid}\nNStgid:\t{pid}\t{inner}\nNSpid:\t{pid}\t{inner}\n");
            std::fs::write(root.path().join(format!("{pid}/status")), status).expect("status");
            let maps = "7f0000000000-7f0000001000 rw-s 00000000 00:01 42 /dev/zero (deleted)\n";
            std::fs::write(root.path().join(format!("{pid}/maps")), if pid == 4 { maps } else { "" }).expect("maps");
        }
        root
    }

    #[test]
    fn whom_a_process_waits_for_is_found_below_it() {
        let root = tree();
        let found = |captured: &[i32], one: Awaited| {
            let captured = captured.iter().copied().collect();
            resolve(&ProcFs::new(root.path()), &captured, &BTreeSet::from([one]))
        };
        assert_eq!(found(&[1], Awaited::Child { of: 1, named: Some(2) }), [2]);
        assert_eq!(found(&[1], Awaited::Child { of: 1, named: Some(77) }), [3]);
        assert_eq!(found(&[1], Awaited::Child { of: 1, named: None }), [2, 3]);
        assert_eq!(found(&[1, 2], Awaited::Child { of: 1, named: None }), [3]);
        assert_eq!(found(&[1], Awaited::End { pid: 4 }), [4]);
        // A process of another user is not sampled without a request.
        assert_eq!(found(&[1], Awaited::End { pid: 9 }), [] as [i32; 0]);
        assert_eq!(found(&[1], Awaited::Memory { of: 1, file: ((0, 1), 42) }), [4]);
        assert_eq!(found(&[1], Awaited::Memory { of: 1, file: ((0, 1), 43) }), [] as [i32; 0]);
    }
}
