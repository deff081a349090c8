//! Descriptors on their way through unix sockets (SCM_RIGHTS), and who can have sent them.
//!
//! In: the descriptors of every process, one after the other. Out: [`InFlight`], a row a socket: the processes that
//! have the socket or its other end, their ancestors, and when the awaited pipes were made. The kernel does not report
//! which descriptors are in flight. Later analysis judges from these facts whether one may be the end of a pipe.
//! lockscope peeks at no message: that would give it the descriptors, too.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::ClockId;

use super::proc_fs::{self, ProcFs, descriptors, field};
use super::sockets::Sockets;
use crate::image::Descriptor;
use crate::image::descriptors::{InFlight, KernelFacts, Lineage, Made, socket_inode};
use crate::limits::live::MOST_SOCKETS_ASKED;

/// Queries sockets for descriptors in flight.
#[derive(Debug, Default)]
pub(super) struct Asker {
    /// How many sockets were queried.
    asked: usize,
    /// There were more.
    passed_over: bool,
    /// A process with the receiving socket, and how many there are, by the socket.
    found: BTreeMap<u64, (i32, u64)>,
}

impl Asker {
    /// Query the sockets of one process (`scm_fds: 1` in fdinfo, since Linux 5.4).
    pub(super) fn ask(&mut self, pid: i32, directory: &Path, list: &[Descriptor]) {
        for descriptor in list {
            let Some(inode) = socket_inode(&descriptor.target) else { continue };
            if self.asked >= MOST_SOCKETS_ASKED {
                self.passed_over = true;
                return;
            }
            self.asked += 1;
            let path = directory.join("fdinfo").join(descriptor.number.to_string());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let count = field(&text, "scm_fds:").and_then(|count| count.parse().ok()).unwrap_or(0);
            if count > 0 {
                self.found.insert(inode, (pid, count));
            }
        }
    }

    /// Add what was found, and what is needed to judge it: nothing where no descriptor is on its way.
    pub(super) fn finish(
        self,
        proc_fs: &ProcFs,
        ends: &BTreeSet<String>,
        sockets: &mut Sockets,
        facts: &mut KernelFacts,
    ) {
        facts.sockets_passed_over |= self.passed_over;
        if self.found.is_empty() {
            return;
        }
        let all = All::read(proc_fs, ends, sockets);
        for (inode, (pid, count)) in self.found {
            let other = all.peers.get(&inode).copied();
            // Without a process that has another end, the sender may be any that knew its name or has closed its end.
            let is_known = other.is_some_and(|other| all.owners.contains_key(&other));
            let owners: BTreeSet<i32> =
                [Some(inode), other].into_iter().flatten().flat_map(|inode| all.owners_of(inode)).collect();
            let acquainted: BTreeSet<i32> = owners.iter().flat_map(|pid| all.acquaintances(*pid)).collect();
            facts.in_flight.push(InFlight {
                pid,
                count,
                ends: if is_known { owners.into_iter().collect() } else { Vec::new() },
                acquainted: acquainted.into_iter().collect(),
            });
        }
        facts.made = all.made;
        let concerned = facts.in_flight.iter().flat_map(|sent| sent.ends.iter().copied());
        facts.lineages = lineages(proc_fs, concerned.chain(all.holders));
    }
}

/// The descriptors of all processes.
#[derive(Debug, Default)]
struct All {
    /// The processes that have a socket.
    owners: BTreeMap<u64, BTreeSet<i32>>,
    /// The sockets of a process.
    sockets: BTreeMap<i32, BTreeSet<u64>>,
    /// The other end of a unix socket.
    peers: BTreeMap<u64, u64>,
    /// The processes with an end of an awaited pipe.
    holders: BTreeSet<i32>,
    /// When what is waited for was made.
    made: Vec<Made>,
}

impl All {
    fn read(proc_fs: &ProcFs, ends: &BTreeSet<String>, sockets: &mut Sockets) -> All {
        let mut all = All::default();
        let Ok(entries) = std::fs::read_dir(proc_fs.root()) else { return all };
        let now = since_boot().zip(SystemTime::now().duration_since(UNIX_EPOCH).ok());
        for pid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            let directory = proc_fs.shared(pid);
            for descriptor in descriptors(&directory).unwrap_or_default() {
                if let Some(inode) = socket_inode(&descriptor.target) {
                    all.owners.entry(inode).or_default().insert(pid);
                    all.sockets.entry(pid).or_default().insert(inode);
                }
                if ends.contains(&descriptor.target) {
                    all.holders.insert(pid);
                    let path = directory.join("fd").join(descriptor.number.to_string());
                    let is_known = all.made.iter().any(|made| made.target == descriptor.target);
                    if let (Some((uptime, today)), true) = (now, !is_known && descriptor.target.starts_with("pipe:[")) {
                        let at_ms = made_at(&path, uptime, today);
                        all.made.extend(at_ms.map(|at_ms| Made { target: descriptor.target.clone(), at_ms }));
                    }
                }
            }
            // One answer for all processes of a network namespace.
            let seen = if all.sockets.contains_key(&pid) { sockets.seen_by(proc_fs, pid) } else { None };
            let own = all.sockets.get(&pid).into_iter().flatten();
            let peers: Vec<(u64, u64)> =
                own.filter_map(|inode| Some((*inode, seen?.get(inode)?.peer.filter(|peer| *peer != 0)?))).collect();
            all.peers.extend(peers);
        }
        all
    }

    fn owners_of(&self, socket: u64) -> impl Iterator<Item = i32> {
        self.owners.get(&socket).into_iter().flatten().copied()
    }

    /// The processes that a process has a socket in common with, by either end.
    fn acquaintances(&self, pid: i32) -> BTreeSet<i32> {
        let own = self.sockets.get(&pid).into_iter().flatten();
        let ends = own.flat_map(|inode| [Some(*inode), self.peers.get(inode).copied()]).flatten();
        ends.flat_map(|inode| self.owners_of(inode)).collect()
    }
}

/// The clock of process start times. /proc/uptime has only hundredths of it.
pub(super) fn since_boot() -> Option<Duration> {
    ClockId::CLOCK_BOOTTIME.now().ok().map(Duration::from)
}

/// When a pipe was made, in milliseconds since boot. Its three times are those of its making as long as it was not used, and on
/// newer kernels for ever (measured on Linux 6.18); if they differ it is not known.
fn made_at(path: &Path, uptime: Duration, today: Duration) -> Option<u64> {
    let times = std::fs::metadata(path).ok()?;
    let time = (times.mtime(), times.mtime_nsec());
    if time == (0, 0) || (times.atime(), times.atime_nsec()) != time || (times.ctime(), times.ctime_nsec()) != time {
        return None;
    }
    let made = Duration::new(u64::try_from(time.0).ok()?, u32::try_from(time.1).ok()?);
    let ago = today.checked_sub(made)?;
    u64::try_from(uptime.checked_sub(ago)?.as_millis()).ok()
}

/// These processes and all from whom they descend.
fn lineages(proc_fs: &ProcFs, of: impl Iterator<Item = i32>) -> Vec<Lineage> {
    /// Start times count hundredths of a second for user space (USER_HZ).
    const MS_PER_TICK: u64 = 10;
    let mut known: BTreeMap<i32, Lineage> = BTreeMap::new();
    for pid in of {
        let mut next = pid;
        while next > 0 && !known.contains_key(&next) {
            let Some(stat) = proc_fs::stat(&proc_fs.process(next)) else { break };
            let began_ms = stat.start_ticks.saturating_mul(MS_PER_TICK);
            known.insert(next, Lineage { pid: next, parent: stat.parent, began_ms, program: stat.program });
            next = stat.parent;
        }
    }
    known.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_as_old_as_it_is() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let proc_fs = ProcFs::new("/proc");
        let today = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        let uptime = since_boot().expect("a time");
        let path = Path::new("/proc/self/fd").join(number.to_string());
        let made = made_at(&path, uptime, today).expect("known");
        let own = lineages(&proc_fs, [i32::try_from(std::process::id()).expect("a pid")].into_iter());
        assert!(
            own.iter().all(|one| one.began_ms <= made + 20) && made <= uptime.as_millis() as u64,
            "{made} of {uptime:?}, {own:?}"
        );
        assert!(own.iter().any(|one| one.program.0 != 0), "{own:?}");
        assert_eq!(made_at(Path::new("/proc/self/fd/none"), uptime, today), None);
        assert_eq!(made_at(&path, Duration::ZERO, Duration::MAX), None);
    }
}
