//! Sockets and their other ends on this machine: unix sockets by sock_diag, TCP by /proc.
//!
//! In: the inodes that are waited for, and a process in whose network namespace they are. Out: [`Socket`]s. The sockets
//! themselves are not touched. The netlink packages are those of the rust-netlink project (MIT, no dependency beside
//! each other): the kernel names a unix socket's peer nowhere else.

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

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{SOCK_DGRAM, TCP_ESTABLISHED, TCP_LISTEN};
use netlink_packet_sock_diag::unix::nlas::{Nla, UnixDiagName};
use netlink_packet_sock_diag::unix::{ShowFlags, StateFlags, UnixRequest, UnixResponse};
use netlink_sys::{Socket as Netlink, SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};
use nix::sched::{CloneFlags, setns};

use super::proc_fs::ProcFs;
use crate::image::descriptors::Socket;
use crate::limits;
use crate::limits::live::MOST_ANSWERS;

/// The sockets of the network namespaces read up to now: one answer serves all processes of a namespace.
#[derive(Debug, Default)]
pub(super) struct Sockets(HashMap<PathBuf, BTreeMap<u64, Socket>>);

impl Sockets {
    /// The known sockets among `inodes`, as process `pid` sees them.
    pub(super) fn of(&mut self, proc_fs: &ProcFs, pid: i32, inodes: &BTreeSet<u64>) -> Vec<Socket> {
        if inodes.is_empty() {
            return Vec::new();
        }
        let all = self.seen_by(proc_fs, pid);
        inodes.iter().filter_map(|inode| all?.get(inode).cloned()).collect()
    }

    /// All sockets that process `pid` can see, by inode; `None` if it is gone.
    pub(super) fn seen_by(&mut self, proc_fs: &ProcFs, pid: i32) -> Option<&BTreeMap<u64, Socket>> {
        let directory = proc_fs.process(pid);
        let namespace = std::fs::read_link(directory.join("ns/net")).ok()?;
        Some(self.0.entry(namespace).or_insert_with(|| {
            let mut sockets = tcp(&directory);
            sockets.extend(unix(&directory));
            sockets
        }))
    }
}

/// Unix sockets by inode.
fn unix(directory: &Path) -> BTreeMap<u64, Socket> {
    let request = UnixRequest {
        state_flags: StateFlags::all(),
        inode: 0,
        show_flags: ShowFlags::NAME | ShowFlags::PEER | ShowFlags::RQLEN,
        cookie: [0xff; 8],
    };
    let answer = inside(directory, || {
        let mut sockets = BTreeMap::new();
        let is_whole = dump(SockDiagMessage::UnixRequest(request), |answer| {
            if let SockDiagMessage::UnixResponse(response) = answer {
                let socket = of_unix(&response);
                sockets.insert(socket.inode, socket);
            }
        })?;
        Some((sockets, is_whole))
    });
    let (sockets, is_whole) = answer.unwrap_or((BTreeMap::new(), true));
    if !is_whole {
        limits::met(MOST_ANSWERS, "sockets of a network namespace", "bytes of the kernel's answer");
    }
    sockets
}

/// Run `ask` in the network namespace of a process: the kernel answers for the namespace of the calling thread.
pub(super) fn inside<T: Send>(directory: &Path, ask: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    let namespace = |directory: &Path| std::fs::read_link(directory.join("ns/net")).ok();
    let is_own = namespace(Path::new("/proc/self"))? == namespace(directory)?;
    let ask = || {
        if !is_own {
            // This thread alone, which ends thereafter.
            setns(File::open(directory.join("ns/net")).ok()?, CloneFlags::CLONE_NEWNET).ok()?;
        }
        ask()
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("sockets".to_owned());
        builder.spawn_scoped(scope, ask).ok()?.join().ok()?
    })
}

/// Have the kernel list all sockets of a kind. Returns whether the list is complete.
pub(super) fn dump(request: SockDiagMessage, mut take: impl FnMut(SockDiagMessage)) -> Option<bool> {
    let mut netlink = Netlink::new(NETLINK_SOCK_DIAG).ok()?;
    netlink.bind_auto().ok()?;
    netlink.connect(&NetlinkAddress::new(0, 0)).ok()?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    netlink.send(&bytes, 0).ok()?;
    let mut total = 0;
    while total < MOST_ANSWERS {
        let (answer, _) = netlink.recv_from_full().ok()?;
        total += answer.len().max(1);
        let mut at = 0;
        while let Some(rest) = answer.get(at..).filter(|rest| !rest.is_empty()) {
            let Ok(message) = NetlinkMessage::<SockDiagMessage>::deserialize(rest) else {
                return Some(true);
            };
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => take(answer),
                NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Some(true),
                _ => {}
            }
            match message.header.length {
                0 => return Some(true),
                // Messages are padded to four bytes.
                length => at += (length as usize).next_multiple_of(4),
            }
        }
    }
    Some(false)
}

fn of_unix(response: &UnixResponse) -> Socket {
    let inode = u64::from(response.header.inode);
    let (listens, is_datagram) = (response.header.state == TCP_LISTEN, response.header.kind == SOCK_DGRAM);
    let mut socket = Socket { inode, listens, is_datagram, ..Socket::default() };
    let mut name = None;
    for attribute in &response.nlas {
        match attribute {
            Nla::Peer(peer) => socket.peer = Some(u64::from(*peer)),
            Nla::ReceiveQueueLength(bytes, _) => socket.unread = u64::from(*bytes),
            Nla::Name(UnixDiagName::Pathname(path)) => name = Some(path.to_string_lossy().into_owned()),
            // As /proc/net/unix writes it.
            Nla::Name(UnixDiagName::Abstract(bytes)) => name = Some(format!("@{}", String::from_utf8_lossy(bytes))),
            _ => {}
        }
    }
    socket.label = match name {
        Some(name) => format!("unix socket {name}"),
        None => format!("unix socket [{inode}]"),
    };
    socket
}

/// TCP sockets by inode, with the inode of the other end where it is in the same namespace.
fn tcp(directory: &Path) -> BTreeMap<u64, Socket> {
    let rows = rows(directory);
    let by_ends: BTreeMap<(SocketAddr, SocketAddr), &Row> =
        rows.iter().map(|row| ((row.local, row.remote), row)).collect();
    let listeners: Vec<&Row> = rows.iter().filter(|row| row.listens && row.inode != 0).collect();
    let socket = |row: &Row| {
        let label = match row.listens {
            true => format!("TCP {}", row.local),
            false => format!("TCP {} to {}", row.local, row.remote),
        };
        let other = by_ends.get(&(row.remote, row.local)).filter(|_| !row.listens);
        let peer = other.map(|other| other.inode).filter(|inode| *inode != 0);
        // The other end belongs to no file until it is accepted.
        let is_unaccepted = other.is_some_and(|other| other.is_open && other.inode == 0);
        let unaccepted_by = if is_unaccepted { listener(&listeners, row.remote) } else { None };
        let remote = (!row.listens).then_some(row.remote);
        let (inode, listens, unread) = (row.inode, row.listens, row.unread);
        (inode, Socket { inode, label, listens, peer, unaccepted_by, unread, remote, ..Socket::default() })
    };
    rows.iter().filter(|row| row.inode != 0).map(socket).collect()
}

/// The one socket that listens at an address, or at its port on all addresses.
fn listener(listeners: &[&Row], at: SocketAddr) -> Option<u64> {
    let fits = |local: SocketAddr| local == at || local.port() == at.port() && local.ip().is_unspecified();
    let mut listening = listeners.iter().filter(|row| fits(row.local));
    match (listening.next(), listening.next()) {
        (Some(only), None) => Some(only.inode),
        _ => None,
    }
}

/// All TCP sockets of the network namespace of a process.
pub(super) fn rows(directory: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for file in ["net/tcp", "net/tcp6"] {
        let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        rows.extend(text.lines().skip(1).filter_map(parse_tcp));
    }
    rows
}

/// A line of /proc/net/tcp.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// As the kernel numbers it (net/tcp_states.h).
    pub(super) state: u8,
    pub(super) listens: bool,
    /// Both ends are open.
    pub(super) is_open: bool,
    pub(super) unread: u64,
    pub(super) unsent: u64,
    /// Whose it is.
    pub(super) user: u32,
    pub(super) inode: u64,
}

/// `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345 1 ...`
fn parse_tcp(line: &str) -> Option<Row> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (unsent, unread) = words.get(4)?.split_once(':')?;
    let state = u8::from_str_radix(words.get(3)?, 16).ok()?;
    Some(Row {
        local: parse_address(words.get(1)?)?,
        remote: parse_address(words.get(2)?)?,
        state,
        listens: state == TCP_LISTEN,
        is_open: state == TCP_ESTABLISHED,
        unread: u64::from_str_radix(unread, 16).ok()?,
        unsent: u64::from_str_radix(unsent, 16).ok()?,
        user: words.get(7)?.parse().ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// `0100007F:1F90`: words of the address in the byte order of the machine, the port as a number.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<[u8; 4]>> = (0..address.len())
        .step_by(8)
        .map(|at| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes()))
        .collect();
    let address = match words?.as_slice() {
        [word] => IpAddr::V4(Ipv4Addr::from(*word)),
        words @ [_, _, _, _] => {
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            // A socket of the newer protocol may talk to one of the older.
            let address = Ipv6Addr::from(bytes);
            address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::image::descriptors::socket_inode;

    fn inode(socket: &impl AsRawFd) -> u64 {
        let target = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a link");
        socket_inode(&target.to_string_lossy()).expect("a socket")
    }

    fn of(inodes: &[u64]) -> Vec<Socket> {
        let own = i32::try_from(std::process::id()).expect("a pid");
        Sockets::default().of(&ProcFs::new("/proc"), own, &inodes.iter().copied().collect())
    }

    #[test]
    fn unix_sockets_know_their_peers() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let sockets = of(&[inode(&one)]);
        assert_eq!(sockets.len(), 1, "{sockets:?}");
        assert_eq!((sockets[0].peer, sockets[0].listens), (Some(inode(&other)), false));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.sock");
        let listener = UnixListener::bind(&path).expect("bound");
        let sockets = of(&[inode(&listener)]);
        assert!(sockets[0].listens && sockets[0].label.contains("x.sock"), "{sockets:?}");
    }

    #[test]
    fn tcp_sockets_of_one_machine_know_their_peers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let sockets = of(&[inode(&client), inode(&listener)]);
        let by = |inode: u64| sockets.iter().find(|socket| socket.inode == inode).expect("found");
        assert_eq!(by(inode(&client)).peer, Some(inode(&server)));
        assert!(by(inode(&listener)).listens);
    }

    #[test]
    fn lines_of_both_protocols() {
        let line = "   1: 0100007F:1F90 0100007F:A1B2 01 00000000:0000002A 00:00000000 00000000  0  0 777 1 0 20";
        let row = parse_tcp(line).expect("a row");
        assert_eq!((row.local.to_string().as_str(), row.unread, row.inode), ("127.0.0.1:8080", 42, 777));
        let mapped = parse_address("0000000000000000FFFF00000100007F:0050").expect("an address");
        assert_eq!(mapped.to_string(), "127.0.0.1:80");
        assert_eq!(parse_tcp("sl local_address rem_address st"), None);
        assert_eq!(parse_address("0100007:1"), None);
    }
}
