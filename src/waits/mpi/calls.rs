//! The calls of MPI that wait, by their names, which every implementation exports.
//!
//! In: the name of a function. Out: a [`Call`]. Nothing is read.

/// The target of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A message.
    Receive,
    /// That a message is taken.
    Send,
    /// The end of operations that were begun before.
    Completion,
    /// All other ranks of the group: no rank leaves before all have come.
    Synchronising,
    /// Some ranks of the group: a root, or those before.
    Collective,
    /// Access to the memory of another rank.
    OneSided,
}

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// `MPI_Recv`.
    pub(super) name: String,
    /// `recv`.
    pub(super) operation: String,
    pub(super) role: Role,
    /// One of several is enough.
    pub(super) any: bool,
}

/// Names without `MPI_`, as the standard (5.0) has them.
const CALLS: &[(&str, Role)] = &[
    ("Recv", Role::Receive),
    ("Mrecv", Role::Receive),
    ("Probe", Role::Receive),
    ("Mprobe", Role::Receive),
    ("Send", Role::Send),
    ("Ssend", Role::Send),
    ("Rsend", Role::Send),
    ("Bsend", Role::Send),
    ("Buffer_detach", Role::Send),
    ("Sendrecv", Role::Completion),
    ("Sendrecv_replace", Role::Completion),
    ("Wait", Role::Completion),
    ("Waitall", Role::Completion),
    ("Waitany", Role::Completion),
    ("Waitsome", Role::Completion),
    ("Barrier", Role::Synchronising),
    ("Allreduce", Role::Synchronising),
    ("Allgather", Role::Synchronising),
    ("Allgatherv", Role::Synchronising),
    ("Alltoall", Role::Synchronising),
    ("Alltoallv", Role::Synchronising),
    ("Alltoallw", Role::Synchronising),
    ("Reduce_scatter", Role::Synchronising),
    ("Reduce_scatter_block", Role::Synchronising),
    ("Comm_dup", Role::Synchronising),
    ("Comm_dup_with_info", Role::Synchronising),
    ("Comm_split", Role::Synchronising),
    ("Comm_split_type", Role::Synchronising),
    ("Comm_create", Role::Synchronising),
    ("Comm_create_group", Role::Synchronising),
    ("Cart_create", Role::Synchronising),
    ("Intercomm_create", Role::Synchronising),
    ("Intercomm_merge", Role::Synchronising),
    ("Comm_free", Role::Synchronising),
    ("Comm_disconnect", Role::Synchronising),
    ("Win_create", Role::Synchronising),
    ("Win_allocate", Role::Synchronising),
    ("Win_allocate_shared", Role::Synchronising),
    ("Win_free", Role::Synchronising),
    ("Win_fence", Role::Synchronising),
    ("File_open", Role::Synchronising),
    ("File_close", Role::Synchronising),
    ("File_write_all", Role::Synchronising),
    ("File_read_all", Role::Synchronising),
    ("File_write_at_all", Role::Synchronising),
    ("File_read_at_all", Role::Synchronising),
    ("Finalize", Role::Synchronising),
    ("Init", Role::Synchronising),
    ("Init_thread", Role::Synchronising),
    ("Bcast", Role::Collective),
    ("Reduce", Role::Collective),
    ("Gather", Role::Collective),
    ("Gatherv", Role::Collective),
    ("Scatter", Role::Collective),
    ("Scatterv", Role::Collective),
    ("Scan", Role::Collective),
    ("Exscan", Role::Collective),
    ("Neighbor_allgather", Role::Collective),
    ("Neighbor_allgatherv", Role::Collective),
    ("Neighbor_alltoall", Role::Collective),
    ("Neighbor_alltoallv", Role::Collective),
    ("Neighbor_alltoallw", Role::Collective),
    ("Comm_spawn", Role::Collective),
    ("Comm_accept", Role::Collective),
    ("Comm_connect", Role::Collective),
    ("Win_lock", Role::OneSided),
    ("Win_lock_all", Role::OneSided),
    ("Win_unlock", Role::OneSided),
    ("Win_unlock_all", Role::OneSided),
    ("Win_flush", Role::OneSided),
    ("Win_flush_all", Role::OneSided),
    ("Win_flush_local", Role::OneSided),
    ("Win_start", Role::OneSided),
    ("Win_complete", Role::OneSided),
    ("Win_post", Role::OneSided),
    ("Win_wait", Role::OneSided),
    ("Fetch_and_op", Role::OneSided),
    ("Compare_and_swap", Role::OneSided),
];

/// The parameters of a call that name requests, from 0: their count, where there is one, and their address (the
/// standard, 5.0).
pub(super) const REQUESTS: [(&str, Option<usize>, usize); 4] =
    [("wait", None, 0), ("waitall", Some(0), 1), ("waitany", Some(0), 1), ("waitsome", Some(0), 1)];

/// Calls that send and receive: the first parameters of both, which are followed by the tags; the communicator stands behind the
/// tag of the receive.
pub(super) const BOTH_WAYS: [(&str, usize, usize); 2] = [("sendrecv", 3, 8), ("sendrecv_replace", 3, 5)];

/// The call with this name, with the profiling interface's letter in front or none, and with the suffix of large counts or none.
pub(super) fn call(name: &str) -> Option<Call> {
    let plain = name.strip_prefix('P').unwrap_or(name).strip_prefix("MPI_")?;
    let known = |wanted: &str| CALLS.iter().find(|(name, _)| *name == wanted);
    let (name, role) = known(plain).or_else(|| known(plain.strip_suffix("_c")?))?;
    let any = matches!(*name, "Waitany" | "Waitsome");
    Some(Call { name: format!("MPI_{name}"), operation: name.to_ascii_lowercase(), role: *role, any })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn calls_are_known_by_all_their_names() {
        for name in ["MPI_Recv", "PMPI_Recv", "MPI_Recv_c", "PMPI_Recv_c"] {
            let call = call(name).expect("a call");
            assert_eq!((call.name.as_str(), call.operation.as_str(), call.role), ("MPI_Recv", "recv", Role::Receive));
        }
        for name in ["MPI_Test", "MPI_Isend", "MPI_Iprobe", "MPI_Comm_rank", "Recv", "PMPI_", ""] {
            assert_eq!(call(name), None, "{name}");
        }
        assert!(call("MPI_Waitany").is_some_and(|call| call.any));
    }

    #[test]
    fn each_name_stands_once() {
        let names: BTreeSet<&str> = CALLS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), CALLS.len());
    }
}
