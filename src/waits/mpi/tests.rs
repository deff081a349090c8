//! The family on made-up memory.

use crate::image::TaskState;
use crate::waits::collective::Collective;
use crate::waits::testing::{Made, STACK, observe_made};
use crate::waits::{Certainty, Needs, Observations};

/// Classes lie in the data of a library, objects on the heap.
const CLASSES: u64 = 0x5200_0000;
const HEAP: u64 = 0x5300_0000;
const REQUEST: u64 = HEAP + 0x100;
const COMMUNICATOR: u64 = HEAP + 0x1000;
const GROUP: u64 = HEAP + 0x2000;
const PROCESS: u64 = HEAP + 0x3000;

/// Sizes as Open MPI 5.0 has them; the decoder takes them from the classes.
const OBJECT: u64 = 16;
const ITEM: u64 = 40;
const FREE_LIST_ITEM: u64 = 56;
const OMPI_REQUEST: u64 = 160;
const BASE_REQUEST: u64 = 512;

/// A class with its name, parent and size at the `place`th place; its address.
fn class(made: &mut Made, place: u64, name: &str, parent: u64, size: u64) -> u64 {
    let at = CLASSES + 0x100 * place;
    let letters = at + 0x80;
    made.zero(at, 0x100);
    made.u64(at, letters);
    made.u64(at + 8, parent);
    made.u64(at + 56, size);
    for (index, byte) in name.bytes().enumerate() {
        made.bytes.0.insert(letters + index as u64, byte);
    }
    at
}

/// Thread 10, on a CPU inside these functions.
fn thread(names: &[&str]) -> Made {
    let mut made = Made::new(&[10]);
    made.threads[0].state = TaskState::Running;
    made.frames(0, names);
    made
}

/// A rank that polls in MPI_Recv for `peer` of the job, with `tag`.
fn receives(peer: i32, tag: i32) -> Made {
    let mut made = thread(&["opal_progress", "ompi_sync_wait_mt", "mca_pml_ob1_recv", "PMPI_Recv", "main"]);
    made.zero(HEAP, 0x4000);
    made.map(CLASSES, Some("/lib/libmpi.so.40"), true);
    made.map(HEAP, None, true);
    let object = class(&mut made, 0, "opal_object_t", CLASSES, OBJECT);
    let item = class(&mut made, 1, "opal_list_item_t", object, ITEM);
    let free = class(&mut made, 2, "opal_free_list_item_t", item, FREE_LIST_ITEM);
    let request = class(&mut made, 3, "ompi_request_t", free, OMPI_REQUEST);
    let base = class(&mut made, 4, "mca_pml_base_request_t", request, BASE_REQUEST);
    let received = class(&mut made, 5, "mca_pml_base_recv_request_t", base, BASE_REQUEST + 8);
    let own = class(&mut made, 6, "mca_pml_ob1_recv_request_t", received, 640);
    let subscriber = class(&mut made, 7, "opal_infosubscriber_t", object, 80);
    let communicator = class(&mut made, 8, "ompi_communicator_t", subscriber, 400);
    let mutex = class(&mut made, 9, "opal_mutex_t", object, 64);
    let group = class(&mut made, 10, "ompi_group_t", object, 80);
    let opal_process = class(&mut made, 11, "opal_proc_t", item, 100);
    let process = class(&mut made, 12, "ompi_proc_t", opal_process, 160);
    made.u64(REQUEST, own);
    made.u64(REQUEST + 64, u64::MAX);
    made.u64(REQUEST + 88, STACK + 0x240);
    made.u32(REQUEST + 96, 2);
    made.u64(REQUEST + 176, COMMUNICATOR);
    made.u32(REQUEST + 488, peer as u32);
    made.u32(REQUEST + 492, tag as u32);
    made.u64(REQUEST + 496, if peer < 0 { 0 } else { PROCESS });
    made.u64(REQUEST + 504, 7);
    made.u64(COMMUNICATOR, communicator);
    made.u64(COMMUNICATOR + 80, mutex);
    for (index, byte) in b"MPI_COMM_WORLD".iter().enumerate() {
        made.bytes.0.insert(COMMUNICATOR + 144 + index as u64, *byte);
    }
    made.u64(COMMUNICATOR + 144 + 64 + 32, GROUP);
    made.u64(GROUP, group);
    made.u32(GROUP + 16, 4);
    made.u32(GROUP + 20, 2);
    made.u64(PROCESS, process);
    made.u32(PROCESS + ITEM + 4, peer as u32);
    made.u64(STACK + 0x260, REQUEST);
    made
}

fn only(seen: &Observations) -> &Collective {
    assert_eq!(seen.waits.len(), 1, "{:?}", seen.waits);
    &seen.collectives[0].1
}

#[test]
fn who_polls_inside_a_call_waits_whatever_the_implementation() {
    for name in ["MPI_Recv", "PMPI_Recv", "MPI_Recv_c"] {
        let seen = observe_made(vec![thread(&["MPIDI_progress_test", name, "main"])]);
        let wait = &seen.waits[0];
        assert_eq!((wait.resource.kind.name, wait.certainty, wait.spinning), ("collective", Certainty::Exact, true));
        assert_eq!(only(&seen).op, "recv");
        assert!(only(&seen).peers.is_empty() && only(&seen).mark.is_none());
    }
    assert!(observe_made(vec![thread(&["MPI_Isend", "main"])]).waits.is_empty());
    assert!(observe_made(vec![thread(&["compute", "main"])]).waits.is_empty());
}

#[test]
fn a_barrier_is_for_all_and_one_of_several_requests_is_for_any() {
    let seen = observe_made(vec![thread(&["MPI_Barrier", "main"])]);
    assert!(only(&seen).synchronises && seen.waits[0].needs == Needs::All);
    let seen = observe_made(vec![thread(&["PMPI_Waitany", "main"])]);
    assert!(only(&seen).any && seen.waits[0].needs == Needs::Any);
}

#[test]
fn a_request_of_open_mpi_says_whom_it_waits_for() {
    let seen = observe_made(vec![receives(1, 40)]);
    let collective = only(&seen);
    assert_eq!(collective.peers, [1]);
    assert_eq!((collective.tag, collective.seq, collective.matched), (Some(40), Some(7), Some(false)));
    assert_eq!(
        (collective.group.as_deref(), collective.rank, collective.size),
        (Some("MPI_COMM_WORLD"), Some(2), Some(4))
    );
    assert_eq!(seen.resources[0].label.to_string(), "MPI_Recv from rank 1 (tag 40)");
}

#[test]
fn its_words_tell_whether_anything_moved() {
    let mark = |made: Made| only(&observe_made(vec![made])).mark.clone();
    let mut moved = receives(1, 40);
    moved.u64(REQUEST + 560, 4096);
    assert_eq!(mark(receives(1, 40)), mark(receives(1, 40)));
    assert_ne!(mark(receives(1, 40)), mark(moved));
}

#[test]
fn a_message_that_has_come_is_no_message_that_is_missing() {
    let mut made = receives(1, 40);
    made.u32(REQUEST + 64, 1);
    made.u32(REQUEST + 68, 40);
    assert_eq!(only(&observe_made(vec![made])).matched, Some(true));
}

#[test]
fn from_anybody_is_from_nobody_in_particular() {
    let collective = only(&observe_made(vec![receives(-1, 40)])).clone();
    assert!(collective.peers.is_empty() && collective.any);
}

#[test]
fn a_request_that_does_not_lead_to_the_waiter_is_not_its() {
    let mut made = receives(1, 40);
    made.u64(REQUEST + 88, 1);
    assert!(only(&observe_made(vec![made])).peers.is_empty());
    let mut without_threads = receives(1, 40);
    without_threads.u64(REQUEST + 88, 0);
    assert_eq!(only(&observe_made(vec![without_threads])).peers, [1], "pending, and the only one");
    let mut of_a_collective = receives(1, -16);
    of_a_collective.u64(REQUEST + 88, 0);
    assert!(
        only(&observe_made(vec![of_a_collective])).peers.is_empty(),
        "MPI_Recv is about no request of a collective"
    );
    let mut hostile = receives(1, 40);
    hostile.u64(CLASSES + 0x600 + 8, CLASSES + 0x600);
    assert!(only(&observe_made(vec![hostile])).peers.is_empty(), "a class that is its own parent");
    let mut hostile = receives(1, 40);
    hostile.u64(CLASSES + 0x600 + 56, u64::MAX);
    assert!(only(&observe_made(vec![hostile])).peers.is_empty(), "a class without an end");
}
