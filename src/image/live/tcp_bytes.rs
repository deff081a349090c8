//! How many bytes TCP connections have carried, by the kernel's own count (sock_diag).
//!
//! In: a process in the network namespace of the connections. Out: a number for each connection, by its inode. Two
//! samples of a job compare these numbers. A connection that carries bytes is at work, however equal the waits of its
//! two ends look. Without the kernel option `INET_DIAG` nothing is known.

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

use std::collections::HashMap;
use std::path::Path;

use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};

use super::sockets::{dump, inside};

/// Where `tcpi_bytes_acked` and `tcpi_bytes_received` lie in `struct tcp_info` (linux/tcp.h, since 4.1).
const ACKNOWLEDGED: usize = 120;
const RECEIVED: usize = 128;

/// The bytes that the connections of a network namespace have carried, both ways together, by their inodes.
pub(super) fn of_namespace(directory: &Path) -> HashMap<u64, u64> {
    inside(directory, || {
        let mut found = HashMap::new();
        for (family, socket_id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let request = InetRequest {
                family,
                protocol: IPPROTO_TCP,
                extensions: ExtensionFlags::INFO,
                states: StateFlags::ESTABLISHED,
                socket_id,
            };
            dump(SockDiagMessage::InetRequest(request), |answer| {
                if let SockDiagMessage::InetResponse(response) = answer {
                    found.extend(carried(&response));
                }
            })?;
        }
        Some(found)
    })
    .unwrap_or_default()
}

/// The inode of a connection, and what it has carried.
fn carried(response: &InetResponse) -> Option<(u64, u64)> {
    let info = response.nlas.iter().find_map(|attribute| match attribute {
        Nla::TcpInfo(info) => Some(info.as_slice()),
        _ => None,
    })?;
    let number = |at: usize| Some(u64::from_ne_bytes(info.get(at..at.checked_add(8)?)?.try_into().ok()?));
    Some((u64::from(response.header.inode), number(ACKNOWLEDGED)?.wrapping_add(number(RECEIVED)?)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::image::descriptors::socket_inode;

    #[test]
    fn what_a_connection_carries_is_counted_at_both_ends() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
            let (mut server, _) = listener.accept().expect("accepted");
            let inode = |stream: &TcpStream| {
                let target = std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).expect("a link");
                socket_inode(&target.to_string_lossy()).expect("a socket")
            };
            let inodes = [inode(&client), inode(&server)];
            let counts = || {
                let all = of_namespace(Path::new("/proc/self"));
                inodes.map(|inode| all.get(&inode).copied())
            };
            let before = counts();
            if before == [None, None] {
                // This kernel does not count.
                continue;
            }
            assert_eq!(counts(), before, "nothing moves");
            client.write_all(&[0; 1000]).expect("written");
            server.read_exact(&mut [0; 1000]).expect("read");
            // The other end's word for it may be on its way.
            let after = counts();
            assert_eq!(after[1], before[1].map(|count| count + 1000), "{before:?} {after:?}");
        }
    }
}
