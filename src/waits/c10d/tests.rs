//! Made-up objects of c10d and gloo: facts from names alone, facts from structure, and data that is not used.

use super::nccl;
use super::recorder::Recorder;
use crate::image::{Addr, RegisterSource, TaskState};
use crate::origin::PythonFolders;
use crate::threads::{Frame, FrameKind};
use crate::waits::collective::Collective;
use crate::waits::testing::{Bytes, LOCK, Made, observe_made};
use crate::waits::{Certainty, Observations};

/// Tables of functions lie in a library, objects on the heap.
const TABLES: u64 = 0x5200_0000;
const HEAP: u64 = 0x5300_0000;
const WORK: u64 = HEAP + 0x100;
const GLOO: u64 = HEAP + 0x400;
const TRANSPORT: u64 = HEAP + 0x500;
const PAIRS: u64 = HEAP + 0x700;
const EXPECTED: u64 = HEAP + 0x800;
const RANKS: u64 = HEAP + 0x900;
/// The stack of the first thread from its stack pointer on; each frame has 0x40 bytes.
const FRAMES: u64 = 0x6000_0200;

const WAIT: &str = "c10d::Work::wait(std::chrono::duration<long, std::ratio<(long)1, (long)1000> >)";
const EXECUTE: &str =
    "c10d::ProcessGroupGloo::AsyncWork::execute(c10::intrusive_ptr<c10d::ProcessGroupGloo::AsyncWork>)";

/// Thread 10 asleep on an unowned futex inside these functions, as rank 0 of 4.
fn thread(names: &[&str]) -> Made {
    let mut made = Made::new(&[10]);
    made.u32(LOCK, 5);
    made.futex(0, LOCK, 0x80, 5);
    made.frames(0, names);
    for (name, value) in [("RANK", "0"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "x"), ("LOCAL_RANK", "0")] {
        made.environment.push((name.into(), value.into()));
    }
    made
}

/// The object at `at` has the `place`th table of functions, which is of `class`.
fn has_class(made: &mut Made, at: u64, place: u64, class: &str) {
    let table = TABLES + 0x100 * place;
    made.zero(table, 0x40);
    made.u64(at, table + 16);
    made.objects.push((table, format!("{{vtable({class})}}")));
}

fn vector(made: &mut Made, at: u64, begin: u64, length: u64) {
    for (word, value) in [begin, begin + length, begin + length].into_iter().enumerate() {
        made.u64(at + 8 * word as u64, value);
    }
}

/// A thread that works on all_reduce #4 of a group of 4 as rank 0, and expects these ranks.
fn works(expects: &[u32]) -> Made {
    let mut made = thread(&["futex", EXECUTE, "c10d::ProcessGroupGloo::runLoop(int)"]);
    made.zero(HEAP, 0x1000);
    made.map(TABLES, Some("/lib/libtorch_cpu.so"), false);
    made.map(HEAP, None, true);
    has_class(&mut made, WORK, 0, "c10d::AsyncAllreduceWork");
    has_class(&mut made, TRANSPORT, 1, "gloo::transport::tcp::Context");
    made.u64(WORK + 120, 1 << 32);
    made.u64(WORK + 192, GLOO);
    made.u64(WORK + 192 + 88, 4);
    made.u64(GLOO, 4 << 32);
    made.u64(GLOO + 32, TRANSPORT);
    made.u64(TRANSPORT + 8, 4 << 32);
    vector(&mut made, TRANSPORT + 56, PAIRS, 32);
    vector(&mut made, TRANSPORT + 112, EXPECTED, 56);
    made.u64(EXPECTED, 4 << 56);
    vector(&mut made, EXPECTED + 8, RANKS, 4 * expects.len() as u64);
    for (place, rank) in expects.iter().enumerate() {
        made.u32(RANKS + 4 * place as u64, *rank);
    }
    made.u64(FRAMES + 0x48, WORK);
    made
}

fn only(seen: &Observations) -> &Collective {
    assert_eq!(seen.waits.len(), 1, "{:?}", seen.waits);
    &seen.collectives[0].1
}

#[test]
fn names_alone_suffice_for_the_kind_and_what_is_missing_is_a_gap() {
    let seen = observe_made(vec![thread(&["futex", WAIT, "main"])]);
    assert_eq!((seen.waits[0].resource.kind.name, seen.waits[0].certainty), ("collective", Certainty::Exact));
    assert!(only(&seen).peers.is_empty() && only(&seen).seq.is_none());
    assert!(seen.gaps.iter().any(|gap| gap.what.starts_with("which ranks")), "{:?}", seen.gaps);
    assert!(observe_made(vec![thread(&["futex", "compute()", "main"])]).collectives.is_empty());
}

#[test]
fn an_operation_is_told_with_its_number_and_who_has_not_come() {
    let seen = observe_made(vec![works(&[1, 3])]);
    let collective = only(&seen);
    assert_eq!((collective.op.as_str(), collective.seq, collective.backend.as_str()), ("all_reduce", Some(4), "gloo"));
    assert_eq!((collective.rank, collective.size), (Some(0), Some(4)));
    assert_eq!(collective.peers, [1, 3]);
    assert!(collective.synchronises && seen.gaps.is_empty(), "{:?}", seen.gaps);
    assert_eq!(seen.resources[0].label.to_string(), "all_reduce #4");
}

#[test]
fn of_a_group_of_some_ranks_no_numbers_are_guessed() {
    let mut made = works(&[1]);
    made.environment[1].1 = "8".into();
    let seen = observe_made(vec![made]);
    assert!(only(&seen).peers.is_empty() && only(&seen).size == Some(4));
    assert_eq!(seen.gaps.len(), 1);
}

#[test]
fn what_does_not_look_so_is_not_believed() {
    let without_it = |change: &dyn Fn(&mut Made)| {
        let mut made = works(&[1]);
        change(&mut made);
        observe_made(vec![made]).collectives.first().is_none_or(|(_, one)| one.peers.is_empty())
    };
    assert!(without_it(&|made| made.u64(WORK, TABLES + 0x316)), "a table without a name");
    assert!(without_it(&|made| made.u32(WORK + 104, 1)), "it is done");
    assert!(without_it(&|made| made.u32(TRANSPORT + 8, 7)), "a rank beyond the size");
    assert!(without_it(&|made| made.u32(TRANSPORT + 8, 2)), "another rank than the group's");
    assert!(without_it(&|made| made.u64(TRANSPORT + 64, PAIRS + 8)), "too few pairs");
    assert!(without_it(&|made| made.u64(TRANSPORT + 120, u64::MAX)), "a vector whose end lies behind its room");
    assert!(without_it(&|made| made.u64(EXPECTED + 16, RANKS + (1 << 40))), "more ranks than there are");
    assert!(without_it(&|made| made.u32(RANKS, 4)), "a rank that the group has not");
}

/// A `std::string` at `at`.
fn string(bytes: &mut Bytes, at: u64, text: &str) {
    let letters = if text.len() < 16 { at + 16 } else { at + 0x100_0000 };
    for (word, value) in [letters, text.len() as u64, text.len() as u64, 0].into_iter().enumerate() {
        let place = |byte: usize| at + 8 * word as u64 + byte as u64;
        bytes.0.extend(value.to_le_bytes().into_iter().enumerate().map(|(byte, value)| (place(byte), value)));
    }
    bytes.0.extend(text.bytes().enumerate().map(|(index, byte)| (letters + index as u64, byte)));
}

#[test]
fn the_key_that_a_store_waits_for_is_told() {
    let name = "c10d::TCPStore::doWait(c10::ArrayRef<std::string>, std::chrono::duration<long>)";
    let mut made = thread(&["poll", name, "c10d::TCPStore::wait(std::vector<std::string> const&)", "main"]);
    string(&mut made.bytes, HEAP, "/default_pg/0//epoch/7/done");
    vector(&mut made, FRAMES + 0x88, HEAP, 32);
    let seen = observe_made(vec![made]);
    assert_eq!(seen.resources[0].label.to_string(), "key `default_pg/0//epoch/7/done` of the store");
    assert_eq!(seen.resources[0].key.kind.name, "store_key");
    let seen = observe_made(vec![thread(&["poll", name, "main"])]);
    assert_eq!((seen.resources[0].label.to_string().as_str(), seen.gaps.len()), ("a key of the store", 1));
}

/// A recorder with these: group, its description, name, number, whether it is retired.
fn recorder(entries: &[(&str, &str, &str, u64, bool)]) -> Bytes {
    const ENTRY: u64 = 512;
    let (at, list, names, tree) = (HEAP, HEAP + 0x1000, HEAP + 0x80_0000, HEAP + 0x90_0000);
    let mut made = Made::new(&[1]);
    made.zero(at, 0x1000);
    made.zero(list, ENTRY * entries.len() as u64);
    made.zero(tree, 0x100);
    made.u32(at, 1);
    vector(&mut made, at + 48, list, ENTRY * entries.len() as u64);
    made.u64(at + 72, 2000);
    made.u64(at + 80, entries.len() as u64);
    made.u64(at + 88, entries.len() as u64);
    for (index, (group, description, name, seq, retired)) in entries.iter().enumerate() {
        let entry = list + ENTRY * index as u64;
        made.u64(entry, index as u64);
        made.u64(entry + 88, *seq);
        made.u32(entry + 504, u32::from(*retired));
        string(&mut made.bytes, entry + 24, description);
        string(&mut made.bytes, entry + 56, group);
        string(&mut made.bytes, entry + 112, name);
    }
    // A map of one group.
    made.u64(at + 160 + 8, tree);
    made.u64(at + 160 + 32, 1);
    string(&mut made.bytes, tree + 32, "default_pg");
    string(&mut made.bytes, tree + 64, "0");
    vector(&mut made, tree + 96, names, 16);
    made.u64(names, 0);
    made.u64(names + 8, 3);
    made.bytes
}

#[test]
fn a_recorder_says_what_was_enqueued_last_in_each_group() {
    let entries = [
        ("0", "default_pg", "gloo:all_reduce", 1, true),
        ("1", "undefined", "gloo:barrier", 1, true),
        ("0", "default_pg", "gloo:all_reduce", 2, false),
    ];
    let found = Recorder::read(&recorder(&entries), Addr(HEAP)).expect("a recorder");
    assert_eq!(found.ranks.get("0"), Some(&vec![0, 3]));
    assert_eq!(found.first_open("gloo").map(|entry| (entry.seq, entry.group.as_str())), Some((2, "0")));
    assert_eq!(found.first_open("nccl"), None);
    let said: Vec<(String, u64, bool)> =
        found.enqueued().into_iter().map(|one| (one.group, one.last, one.over)).collect();
    assert_eq!(said, [("default_pg".to_owned(), 2, false), ("group 1".to_owned(), 1, true)]);
}

#[test]
fn what_is_no_recorder_is_none() {
    let good = recorder(&[("0", "default_pg", "gloo:all_reduce", 1, true), ("0", "", "gloo:barrier", 2, false)]);
    let without = |at: u64, value: u8| {
        let mut bytes = good.clone();
        bytes.0.insert(at, value);
        Recorder::read(&bytes, Addr(HEAP)).is_none()
    };
    assert!(!without(HEAP, 1));
    assert!(without(HEAP, 7), "neither on nor off");
    assert!(without(HEAP + 49, 0xff), "a vector that begins behind its end");
    assert!(without(HEAP + 0x1000 + 512, 9), "entries without numbers in order");
    assert!(Recorder::read(&Bytes::default(), Addr(HEAP)).is_none());
}

/// Thread 10 on a processor inside of these functions, as rank 0 of 4.
fn polls(names: &[&str]) -> Made {
    let mut made = thread(names);
    made.set(0, -1, 1, [0; 6]);
    made.threads[0].state = TaskState::Running;
    made
}

const ASKS: &str = "ncclPollProxyResponse(ncclComm*, ncclProxyConnector*, void*, void*)";
const RECEIVES: &str = "c10d::ProcessGroupNCCL::recv(std::vector<at::Tensor, std::allocator<at::Tensor> >&, int, int)";

#[test]
fn nccl_waits_for_a_peer_before_it_gives_anything_to_a_gpu() {
    let connects = ["recvConnect(ncclComm*, ncclConnect*, int, int, ncclConnector*)", "asyncJobLaunch(void*)"];
    let names = ["recv", ASKS, connects[0], connects[1], "pncclGroupEnd", RECEIVES, "main"];
    let seen = observe_made(vec![polls(&names)]);
    let wait = &seen.waits[0];
    assert_eq!((wait.resource.kind.name, wait.spinning, wait.timed), ("collective", true, false));
    assert_eq!((only(&seen).backend.as_str(), only(&seen).op.as_str()), ("nccl", "ncclGroupEnd"));
    assert_eq!(seen.resources[0].label.to_string(), "ncclGroupEnd with other ranks, for recv");
    assert!(only(&seen).returns_to.is_some() && !only(&seen).synchronises);
    assert_eq!(seen.gaps.len(), 1, "nothing says which ranks: {:?}", seen.gaps);
    // Its own threads for that, which another one waits for.
    let serves = ["accept", "ncclSocketReady(ncclSocket*, int*)", "recvProxyConnect", "ncclProxyService(void*)"];
    let seen = observe_made(vec![polls(&serves)]);
    assert_eq!((seen.waits[0].spinning, seen.gaps.len(), only(&seen).op.as_str()), (true, 0, "ncclProxyService"));
    let seen = observe_made(vec![polls(&[ASKS, connects[0], "ncclAsyncJobMain(void*)", "start_thread"])]);
    assert_eq!(seen.resources[0].label.to_string(), "ncclAsyncJobMain with other ranks");
}

#[test]
fn who_works_inside_of_nccl_waits_for_nobody() {
    for names in [
        &["memcpy", "ncclTopoCompute(ncclTopoSystem*)", "pncclCommInitRankConfig", RECEIVES, "main"][..],
        &["cuLaunchKernelEx", "pncclGroupEnd", RECEIVES, "main"],
        // Its own services, in a thread of theirs.
        &["poll", "ncclProxyService(void*)", "start_thread"],
        &["recv", "bootstrapRoot(void*)", "start_thread"],
    ] {
        assert!(observe_made(vec![polls(names)]).collectives.is_empty(), "{names:?}");
    }
    let names = ["recv", ASKS, "pncclGroupEnd", RECEIVES, "main"];
    let mut asleep = thread(&names);
    asleep.threads[0].state = TaskState::Sleeping;
    asleep.set(0, -1, 1, [0; 6]);
    asleep.threads[0].source = RegisterSource::KernelFiles;
    assert!(observe_made(vec![asleep]).collectives.is_empty(), "neither asleep in a call nor at work");
}

/// A rank that makes a communicator, in a group of `size` ranks.
fn makes(size: u64) -> Made {
    let all_reduce = "c10d::ProcessGroupNCCL::allreduce(std::vector<at::Tensor>&, c10d::AllreduceOptions const&)";
    let made = ["socketProgressOpt(int, ncclSocket*)", "bootstrapInit(int)", "ncclCommInitRankFunc(ncclAsyncJob*)"];
    let mut made = polls(&["recv", made[0], made[1], made[2], "pncclCommInitRankConfig", all_reduce, "main"]);
    made.zero(HEAP, 0x1000);
    made.map(TABLES, Some("/lib/libtorch_cuda.so"), false);
    made.map(HEAP, None, true);
    has_class(&mut made, WORK, 0, "c10d::ProcessGroupNCCL");
    made.u64(WORK + 8, u64::MAX);
    made.u64(WORK + 16, size << 32);
    made.u64(FRAMES + 0x48, WORK);
    made
}

#[test]
fn all_ranks_come_to_the_making_of_a_communicator() {
    let seen = observe_made(vec![makes(4)]);
    assert_eq!(seen.resources[0].label.to_string(), "ncclCommInitRankConfig with other ranks, for all_reduce");
    assert_eq!((only(&seen).rank, only(&seen).size, only(&seen).synchronises), (Some(0), Some(4), true));
    assert!(seen.gaps.is_empty(), "{:?}", seen.gaps);
    // Nothing shows the members of a smaller group.
    let seen = observe_made(vec![makes(2)]);
    assert_eq!((only(&seen).size, only(&seen).synchronises, seen.gaps.len()), (Some(2), false, 1));
    // A value that cannot be a rank of a group is ignored.
    for size in [0, u64::from(u32::MAX)] {
        assert_eq!(only(&observe_made(vec![makes(size)])).size, None);
    }
}

#[test]
fn of_several_operations_the_one_that_was_enqueued_last_is_waited_for() {
    let entries = [
        ("0", "default_pg", "nccl:recv 0<-3", 1, false),
        ("0", "default_pg", "nccl:send 0->3", 2, false),
        ("0", "default_pg", "nccl:recv 0<-1", 3, false),
        ("0", "default_pg", "nccl:recv 0<-2", 4, true),
    ];
    let found = Recorder::read(&recorder(&entries), Addr(HEAP)).expect("a recorder");
    assert_eq!(nccl::last_open(&found, "recv").map(|entry| entry.seq), Some(3));
    assert_eq!(nccl::last_open(&found, "send").map(|entry| entry.seq), Some(2));
    assert_eq!(nccl::last_open(&found, "all_reduce"), None);
}

#[test]
fn who_makes_a_group_is_in_the_same_call_whether_in_nccl_or_before_a_key() {
    let connects = ["recv", "socketWait(ncclSocket*, int)", "bootstrapSplit(unsigned long)", "pncclCommSplit", "call"];
    let waits = ["poll", "c10d::TCPStore::doWait(c10::ArrayRef<std::string>)", "call"];
    let seen: Vec<Collective> = [polls(&connects), thread(&waits)]
        .into_iter()
        .map(|mut made| {
            let native = made.stacks[0].frames[0].clone();
            let folders = PythonFolders { packages: vec!["/lib".into()], ..PythonFolders::default() };
            let file = "/lib/torch/distributed/distributed_c10d.py";
            made.stacks[0].frames.push(Frame {
                kind: FrameKind::Python,
                function: Some("new_group".into()),
                origin: folders.of(file),
                file: Some(file.into()),
                python: Some(Addr(HEAP)),
                native: None,
                ..native
            });
            let seen = observe_made(vec![made]);
            assert_eq!(seen.resources[0].label.to_string(), "new_group with other ranks");
            only(&seen).clone()
        })
        .collect();
    assert_eq!(operation(&seen[0]), operation(&seen[1]));
    assert!(seen.iter().all(|one| one.synchronises && one.size == Some(4)));
}

/// The values that identify one operation across ranks.
fn operation(collective: &Collective) -> (&str, &str, Option<&str>, Option<u64>) {
    (&collective.backend, &collective.op, collective.group.as_deref(), collective.seq)
}
