//! How a process was started and its TCP connections, from /proc.
//!
//! In: a process with its variables. Out: a [`Launch`]. Read after the release; nothing is opened but files of /proc, and what
//! cannot be read is left out.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::proc_fs::{self, ProcFs, descriptors};
use super::sockets::{self, Row};
use super::tcp_bytes;
use crate::image::descriptors::socket_inode;
use crate::image::launch::{Connection, Launch, Namespaces};
use crate::image::{Descriptor, Mapping, ProcessImage, environment};
use crate::launcher::{self, Membership};
use crate::limits::Bounded;
use crate::limits::image::LARGEST_ENVIRONMENT;
use crate::limits::job::MOST_PROCESSES;
use crate::limits::live::{MOST_ADDRESSES, MOST_ANCESTORS, MOST_CONNECTIONS};

/// The sockets of the network namespaces read up to now: one answer serves all processes of a namespace.
#[derive(Debug, Default)]
pub(super) struct Networks {
    rows: HashMap<Option<u64>, HashMap<u64, Row>>,
    bytes: HashMap<Option<u64>, HashMap<u64, u64>>,
}

impl Networks {
    /// The TCP sockets of a network namespace by their inodes, as a process in it sees them.
    pub(super) fn rows(&mut self, namespace: Option<u64>, directory: &Path) -> &HashMap<u64, Row> {
        let read = || sockets::rows(directory).into_iter().map(|row| (row.inode, row)).collect();
        self.rows.entry(namespace).or_insert_with(read)
    }

    /// How many bytes the TCP connections of a network namespace have carried, by their inodes.
    fn bytes(&mut self, namespace: Option<u64>, directory: &Path) -> &HashMap<u64, u64> {
        self.bytes.entry(namespace).or_insert_with(|| tcp_bytes::of_namespace(directory))
    }
}

/// The number of a namespace of a process, `net` say; `None` where it may not be read.
pub(super) fn namespace(directory: &Path, name: &str) -> Option<u64> {
    std::fs::metadata(directory.join("ns").join(name)).ok().map(|metadata| metadata.ino())
}

/// How this process was started, and where it is; its connections are left out.
pub(super) fn read(proc_fs: &ProcFs, process: &ProcessImage) -> Launch {
    let directory = proc_fs.process(process.pid);
    let number = |name: &str| namespace(&directory, name);
    let namespaces = Namespaces { pid: number("pid"), net: number("net"), ipc: number("ipc") };
    let (inherited_rank, launcher) = ancestry(proc_fs, process.pid, &process.environment);
    Launch { namespaces, inherited_rank, launcher, addresses: addresses(&directory), connections: Vec::new() }
}

/// The TCP connections that it has now, each once. A process without a socket needs no read of the machine's
/// connections, which may be many.
pub(super) fn connections(
    proc_fs: &ProcFs,
    process: &ProcessImage,
    namespaces: &Namespaces,
    networks: &mut Networks,
) -> Vec<Connection> {
    let directory = proc_fs.process(process.pid);
    let read = process.descriptors.is_empty().then(|| descriptors(&directory).unwrap_or_default());
    let all = read.as_deref().unwrap_or(&process.descriptors);
    let sockets: Vec<(&Descriptor, u64)> =
        all.iter().filter_map(|descriptor| Some((descriptor, socket_inode(&descriptor.target)?))).collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    // Those of ranks are compared with a later look; nobody else's are.
    let bytes: HashMap<u64, u64> = if may_be_rank(process) {
        let all = networks.bytes(namespaces.net, &directory);
        sockets.iter().filter_map(|(_, inode)| Some((*inode, *all.get(inode)?))).collect()
    } else {
        HashMap::new()
    };
    let rows = networks.rows(namespaces.net, &directory);
    let mut seen = BTreeSet::new();
    let connection = |(descriptor, inode): (&Descriptor, u64)| {
        let row = rows.get(&inode).filter(|row| !row.listens && seen.insert(inode))?;
        Some(Connection {
            descriptor: descriptor.number,
            local: row.local,
            remote: row.remote,
            state: row.state,
            unread: row.unread,
            unsent: row.unsent,
            bytes: bytes.get(&inode).copied(),
        })
    };
    let found = sockets.into_iter().filter_map(connection);
    found.bounded(MOST_CONNECTIONS, || format!("TCP connections of process {}", process.pid), "connections").collect()
}

/// Whether it is a rank by its variables, or has the library by whose objects a rank is known that no variable names.
fn may_be_rank(process: &ProcessImage) -> bool {
    let is_torch = |mapping: &Mapping| mapping.path.as_deref().is_some_and(|path| path.contains("/libtorch_cpu.so"));
    launcher::membership(&process.environment).is_some() || process.mappings.iter().any(is_torch)
}

/// A process of this machine that is a rank of a job.
#[derive(Debug, Clone)]
pub(crate) struct Ranked {
    pub(crate) pid: i32,
    /// Whose it is.
    pub(crate) user: Option<u32>,
    /// Its place in the job.
    pub(crate) membership: Membership,
    /// It inherited the rank from a process that is the rank.
    pub(crate) inherited: bool,
    /// The process that started the ranks.
    pub(crate) launcher: Option<(i32, u64)>,
    /// Slurm's name for the job around it.
    pub(crate) slurm_job: Option<String>,
}

/// All processes of this machine but this one.
pub(super) fn others(proc_fs: &ProcFs) -> impl Iterator<Item = i32> {
    let own = std::process::id();
    let entries = std::fs::read_dir(proc_fs.root()).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pids = pids.filter(move |pid| u32::try_from(*pid) != Ok(own));
    pids.bounded(MOST_PROCESSES, || "the processes of this machine".to_owned(), "processes")
}

/// All processes that are ranks, by variables that may be read. Nothing of them is stopped.
pub(crate) fn ranks() -> Vec<Ranked> {
    let proc_fs = ProcFs::new("/proc");
    let mut wrappers = BTreeSet::new();
    let rank = |pid: i32| {
        let directory = proc_fs.process(pid);
        let variables = variables(&directory);
        let membership = launcher::membership(&variables)?;
        let stat = proc_fs::stat(&directory).filter(|stat| !stat.is_dead())?;
        let (inherited, launcher) = ancestry(&proc_fs, pid, &variables);
        // A wrapper that only starts the rank is not the launcher.
        if launcher::is_wrapper(&proc_fs::name(&directory).unwrap_or_default()) {
            wrappers.insert(pid);
        }
        let user = proc_fs::status(&directory).and_then(|status| status.effective_uid);
        let slurm_job = variables.into_iter().find(|(name, _)| name == "SLURM_JOB_ID").map(|(_, value)| value);
        Some((stat.parent, Ranked { pid, user, membership, inherited, launcher, slurm_job }))
    };
    let found: Vec<(i32, Ranked)> = others(&proc_fs).filter_map(rank).collect();
    let parents: BTreeSet<i32> = found.iter().map(|(parent, _)| *parent).collect();
    let ranks = found.into_iter().map(|(_, rank)| rank);
    ranks.filter(|rank| !(wrappers.contains(&rank.pid) && parents.contains(&rank.pid))).collect()
}

/// The process that started lockscope, and its ancestors.
pub(crate) fn ancestors() -> BTreeSet<i32> {
    i32::try_from(std::process::id()).map(|own| above(&ProcFs::new("/proc"), own).collect()).unwrap_or_default()
}

/// The parent of a process, its parent, and so on.
fn above(proc_fs: &ProcFs, pid: i32) -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| proc_fs::stat(&proc_fs.process(*pid)).map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(Some(pid), parent).skip(1).take(MOST_ANCESTORS)
}

/// Whether the rank was inherited, and who started the ranks.
fn ancestry(proc_fs: &ProcFs, pid: i32, own: &[(String, String)]) -> (bool, Option<(i32, u64)>) {
    let mut inherited = false;
    if launcher::membership(own).is_none() {
        return (false, None);
    }
    for parent in above(proc_fs, pid) {
        let directory = proc_fs.process(parent);
        let variables = variables(&directory);
        if !launcher::is_same_rank(own, &variables) {
            return (inherited, proc_fs::stat(&directory).map(|stat| (parent, stat.start_ticks)));
        }
        inherited |= !proc_fs::name(&directory).is_some_and(|name| launcher::is_wrapper(&name));
    }
    (inherited, None)
}

/// The variables of a process that say its rank.
pub(super) fn variables(directory: &Path) -> Vec<(String, String)> {
    environment::relevant(&proc_fs::beginning(&directory.join("environ"), LARGEST_ENVIRONMENT).0)
}

/// The addresses of a network namespace that others may know.
fn addresses(directory: &Path) -> Vec<String> {
    let text = |name: &str| std::fs::read_to_string(directory.join("net").join(name)).unwrap_or_default();
    let mut all = of_the_older_protocol(&text("fib_trie"));
    all.extend(text("if_inet6").lines().filter_map(of_the_newer_protocol));
    all.into_iter().filter(|address| !address.is_loopback()).take(MOST_ADDRESSES).map(|one| one.to_string()).collect()
}

/// `|-- 10.0.0.2` with `/32 host LOCAL` on the line behind it.
fn of_the_older_protocol(trie: &str) -> BTreeSet<IpAddr> {
    let lines: Vec<&str> = trie.lines().map(str::trim).collect();
    let pairs = lines.iter().zip(lines.iter().skip(1));
    pairs
        .filter(|(_, behind)| behind.contains("host LOCAL"))
        .filter_map(|(line, _)| line.strip_prefix("|-- ")?.parse().ok())
        .collect()
}

/// `fe80000000000000025056fffe123456 02 40 20 80 eth0`: those that are routed alone.
fn of_the_newer_protocol(line: &str) -> Option<IpAddr> {
    let mut words = line.split_whitespace();
    let address = u128::from_str_radix(words.next()?, 16).ok()?;
    let is_global = words.nth(2)? == "00";
    is_global.then(|| IpAddr::V6(Ipv6Addr::from(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_by_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.2\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<String> = of_the_older_protocol(trie).iter().map(IpAddr::to_string).collect();
        assert_eq!(found, ["10.0.0.2", "127.0.0.1"]);
        let line = "fd000000000000000000000000000001 02 40 00 80     eth0";
        assert_eq!(of_the_newer_protocol(line).map(|address| address.to_string()).as_deref(), Some("fd00::1"));
        assert_eq!(of_the_newer_protocol("fe80000000000000025056fffe123456 02 40 20 80 eth0"), None);
        assert_eq!(of_the_newer_protocol("x"), None);
    }

    #[test]
    fn this_process_has_namespaces_and_its_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let own = i32::try_from(std::process::id()).expect("a pid");
        let process = ProcessImage { pid: own, ..ProcessImage::unknown() };
        let proc_fs = ProcFs::new("/proc");
        let launch = read(&proc_fs, &process);
        assert!(launch.namespaces.pid.is_some() && launch.namespaces.net.is_some());
        let local = client.local_addr().expect("an address");
        let connections = connections(&proc_fs, &process, &launch.namespaces, &mut Networks::default());
        let found = connections.iter().find(|connection| connection.local == local).expect("found");
        assert_eq!((found.remote, found.state()), (listener.local_addr().expect("an address"), "established"));
    }
}
