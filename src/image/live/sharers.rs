//! Which processes map the memory that captured threads wait in, where processes share it.
//!
//! In: captured processes and the calls that their threads sleep in. Out: [`Sharers`] of each file so mapped. All maps
//! of the machine are read, but only where a thread waits in such a file. It opens nothing, and reports no holder of
//! any lock.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::proc_fs::{self, ProcFs};
use crate::arch::system_calls::Waits;
use crate::image::descriptors::Sharers;
use crate::image::{Addr, Mapping, ProcessImage, ThreadImage};
use crate::limits;
use crate::limits::live::SHARING_THREADS;

/// The file of the PID namespace that sees all others (PROC_PID_INIT_INO of linux/proc_ns.h): from within another one further
/// processes may not be seen.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The processes that map the memory that threads of these processes wait in.
pub(super) fn read(proc_fs: &ProcFs, processes: &[ProcessImage]) -> Vec<Sharers> {
    let wanted: BTreeSet<((i32, i32), u64)> = processes.iter().flat_map(waited_in).collect();
    let mut all: Vec<Sharers> =
        wanted.into_iter().map(|(device, inode)| Sharers { device, inode, ..Sharers::default() }).collect();
    if all.is_empty() {
        return all;
    }
    let Ok(entries) = std::fs::read_dir(proc_fs.root()) else { return Vec::new() };
    let namespace = std::fs::read_link(proc_fs.root().join("self/ns/pid")).ok();
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let pids: BTreeSet<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).collect();
    // Where processes of others are hidden (hidepid), so is the first of all.
    let mut sees_all = namespace.is_some_and(|namespace| namespace.as_os_str() == FIRST_NAMESPACE) && pids.contains(&1);
    let mut unread = Vec::new();
    // lockscope maps no memory of others.
    for pid in pids.into_iter().filter(|pid| *pid != own) {
        let directory = proc_fs.shared(pid);
        let mut ids = || {
            let (ids, is_cut) = threads(proc_fs, pid);
            sees_all &= !is_cut;
            ids
        };
        match proc_fs::mappings(&directory) {
            Ok(mappings) => {
                for sharers in &mut all {
                    let has = |one: &Mapping| (one.device, one.inode) == (sharers.device, sharers.inode);
                    if let Some(mapping) = mappings.iter().find(|one| has(one)) {
                        sharers.is_nameless |= links(&directory, mapping) == Some(0);
                        sharers.processes.push((pid, ids()));
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                unread.push((pid, proc_fs::name(&directory).unwrap_or_default(), ids()));
            }
            // It ended meanwhile.
            Err(_) => {}
        }
    }
    for sharers in &mut all {
        sharers.unread.clone_from(&unread);
        sharers.sees_all = sees_all;
    }
    all
}

/// How many names a mapped file has: the path in the maps says of one only that it is gone.
fn links(directory: &Path, mapping: &Mapping) -> Option<u64> {
    let link = format!("map_files/{:x}-{:x}", mapping.start.0, mapping.end.0);
    Some(std::fs::metadata(directory.join(link)).ok()?.nlink())
}

/// The files in whose shared memory threads of a process wait for a word.
fn waited_in(process: &ProcessImage) -> Vec<((i32, i32), u64)> {
    let calls = process.threads.iter().filter_map(ThreadImage::call);
    let is_futex = |number: i64| {
        process
            .architecture
            .system_call(number)
            .is_some_and(|row| matches!(row.waits, Waits::Futex(_) | Waits::Restarted))
    };
    let words = calls.filter(|call| is_futex(call.number)).map(|call| Addr(call.arguments[0]));
    let mappings =
        words.filter_map(|word| process.mapping(word).filter(|mapping| mapping.shared && mapping.inode != 0));
    mappings.map(|mapping| (mapping.device, mapping.inode)).collect()
}

/// The ids that the threads of a process call themselves by, and whether there are more.
fn threads(proc_fs: &ProcFs, pid: i32) -> (Vec<i32>, bool) {
    let all = proc_fs.threads(pid).unwrap_or_default();
    let is_cut = all.len() > SHARING_THREADS;
    if is_cut {
        limits::met(SHARING_THREADS, format!("threads of process {pid}"), "threads of one that shares memory");
    }
    let id = |tid: i32| proc_fs::status(&proc_fs.task(pid, tid)).and_then(|status| status.innermost_id).unwrap_or(tid);
    (all.into_iter().take(SHARING_THREADS).map(id).collect(), is_cut)
}
