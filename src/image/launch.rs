//! How a process was started and where on the network it is, as plain data: the facts that distinguish it from
//! processes of other hosts, and that join it with them.
//!
//! In: the result of a capture. Out: [`Launch`]. A core has none of this; a snapshot has it.
//! [`launcher`](crate::launcher) interprets the launchers' variables.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// How a process was started and where it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launch {
    /// Its namespaces.
    pub namespaces: Namespaces,
    /// An ancestor, which is no mere wrapper, has the same rank by its environment: this process inherited it.
    #[serde(default)]
    pub inherited_rank: bool,
    /// The nearest ancestor that is not of the rank, with the ticks of its start: what started the ranks of this node.
    #[serde(default)]
    pub launcher: Option<(i32, u64)>,
    /// Addresses of its network namespace, without those of loopback.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Its TCP connections.
    #[serde(default)]
    pub connections: Vec<Connection>,
}

/// Namespaces by their inodes; `None` where they could not be read.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[non_exhaustive]
pub struct Namespaces {
    /// The namespace of process ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    /// The network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<u64>,
    /// The namespace of System V objects and message queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipc: Option<u64>,
}

/// One end of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connection {
    /// Its descriptor; the first of several.
    pub descriptor: i32,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its state as the kernel numbers it (net/tcp_states.h).
    pub state: u8,
    /// Bytes that have come and were not read.
    pub unread: u64,
    /// Bytes that were sent and not acknowledged.
    pub unsent: u64,
    /// Bytes that it has carried since it was opened, both ways together, where the kernel was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Connection {
    /// The word for its state, as ss(8) says it.
    pub(crate) fn state(&self) -> &'static str {
        const NAMES: [&str; 11] = [
            "established",
            "syn-sent",
            "syn-recv",
            "fin-wait-1",
            "fin-wait-2",
            "time-wait",
            "closed",
            "close-wait",
            "last-ack",
            "listening",
            "closing",
        ];
        usize::from(self.state).checked_sub(1).and_then(|at| NAMES.get(at)).copied().unwrap_or("other")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_kernels_numbers() {
        let (local, remote) = ("127.0.0.1:1".parse().expect("an address"), "127.0.0.1:2".parse().expect("an address"));
        let state =
            |state| Connection { descriptor: 3, local, remote, state, unread: 0, unsent: 0, bytes: None }.state();
        assert_eq!(
            [0, 1, 8, 10, 11, 12].map(state),
            ["other", "established", "close-wait", "listening", "closing", "other"]
        );
    }
}
