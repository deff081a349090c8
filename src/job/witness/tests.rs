//! Files of witnesses: those that PyTorch wrote (testdata/jobs), and made ones of NCCL, whose shapes are those of PyTorch 2.15 and NCCL
//! 2.28 on two GPUs.

use serde_json::{Value, json};

use super::pickle::{self, PickleError};
use super::{Witness, WitnessError};
use crate::job::digest::Digest;
use crate::report::Report;

fn entry(group: (&str, &str), seq: u64, name: &str, over: bool, size: u64) -> Value {
    let is_message = name.contains("recv") || name.contains("send");
    json!({
        "record_id": seq, "process_group": [group.0, group.1], "is_p2p": is_message,
        "collective_seq_id": if is_message { 0 } else { seq }, "p2p_seq_id": if is_message { seq } else { 0 },
        "profiling_name": name, "input_sizes": [[size]], "input_dtypes": ["Float"],
        "state": if over { "completed" } else { "scheduled" }, "retired": over, "time_created_ns": 1000 + seq,
        "frames": [
            {"name": "all_reduce", "filename": "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "line": 7},
            {"name": "step", "filename": "/srv/train.py", "line": 88},
        ],
    })
}

const WORLD: (&str, &str) = ("0", "default_pg");

fn dump(entries: Vec<Value>) -> Value {
    json!({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}, "entries": entries})
}

/// The report over dumps, the first of rank 0.
fn told(dumps: &[Value]) -> Report {
    let mut digest = Digest::default();
    for (rank, dump) in dumps.iter().enumerate() {
        digest.add_witness(witness(dump, &format!("trace_rank_{rank}.json")));
    }
    let report = crate::job::report(&digest);
    // A merged file has the same accounts.
    let again = Digest::read(&digest.write(), "all").expect("a digest");
    assert_eq!(again, digest);
    report
}

fn witness(value: &Value, file: &str) -> Witness {
    Witness::read(&serde_json::to_vec(value).expect("JSON"), file).expect("a witness").expect("a good one")
}

#[test]
fn who_has_not_enqueued_it_is_named() {
    let ahead =
        || dump(vec![entry(WORLD, 3, "nccl:all_reduce", true, 8), entry(WORLD, 4, "nccl:all_reduce", false, 8)]);
    let behind = dump(vec![entry(WORLD, 3, "nccl:all_reduce", true, 8)]);
    let report = told(&[ahead(), behind, ahead()]);
    assert_eq!(report.verdict.as_str(), "blocked");
    assert!(report.summary.contains("wait for rank 1"), "{}", report.summary);
    assert!(
        report.summary.contains("has entered nothing of default_pg after #3 at train.py:88 step"),
        "{}",
        report.summary
    );
    assert!(report.summary.contains("ranks 0,2 in all_reduce #4 at train.py:88 step"), "{}", report.summary);
    assert!(report.gaps.iter().any(|gap| gap.why.contains("only PyTorch's Flight Recorder tells of them")));
}

#[test]
fn calls_that_do_not_match_are_named() {
    let in_call = |name: &str, size: u64| dump(vec![entry(WORLD, 4, name, false, size)]);
    let report = told(&[in_call("nccl:all_reduce", 8), in_call("nccl:broadcast", 8), in_call("nccl:all_reduce", 8)]);
    assert!(
        report.summary.starts_with("Rank 1 is in broadcast #4, where ranks 0,2 are in all_reduce #4"),
        "{}",
        report.summary
    );
    let report = told(&[in_call("nccl:all_reduce", 8), in_call("nccl:all_reduce", 4), in_call("nccl:all_reduce", 8)]);
    let said = "Rank 1 is in all_reduce of Float [4] #4, where ranks 0,2 are in all_reduce of Float [8] #4";
    assert!(report.summary.starts_with(said), "{}", report.summary);
    // Their healthy twin: all are in it, and nobody is missing.
    let report = told(&[in_call("nccl:all_reduce", 8), in_call("nccl:all_reduce", 8), in_call("nccl:all_reduce", 8)]);
    assert!(report.summary.contains("All 3 ranks are in all_reduce #4, and nobody is missing"), "{}", report.summary);
}

#[test]
fn two_that_receive_from_each_other_are_a_cycle_that_is_not_proven() {
    let config = json!({"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}});
    let receives = |ends: &str| {
        let entries = vec![entry(WORLD, 1, &format!("nccl:recv {ends}"), false, 8)];
        json!({"version": "2.10", "pg_config": config, "entries": entries})
    };
    let report = told(&[receives("0<-1"), receives("1<-0")]);
    assert_eq!(report.verdict.as_str(), "blocked");
    let said = "Not confirmed, since it was seen in one round";
    assert!(
        report.summary.starts_with(said) && report.summary.contains("recv from rank 1 of default_pg"),
        "{}",
        report.summary
    );
    // A send that meets the receive is on its way.
    let sends =
        json!({"version": "2.10", "pg_config": config, "entries": [entry(WORLD, 1, "nccl:send 1->0", false, 8)]});
    let report = told(&[receives("0<-1"), sends]);
    assert!(!report.summary.contains("Not confirmed"), "{}", report.summary);
}

#[test]
fn what_another_one_saw_end_nobody_waits_in() {
    let early = || dump(vec![entry(WORLD, 4, "nccl:all_reduce", false, 8)]);
    let late = dump(vec![entry(WORLD, 4, "nccl:all_reduce", true, 8), entry(WORLD, 5, "nccl:all_reduce", false, 8)]);
    let report = told(&[early(), late, early()]);
    let gap = report.gaps.iter().find(|gap| gap.what == "which operation ranks 0,2 were in");
    assert!(gap.is_some_and(|gap| gap.why.contains("written at different moments")), "{:?}", report.gaps);
    assert!(!report.summary.contains("all_reduce #4"), "{}", report.summary);
}

#[test]
fn ras_tells_who_has_launched_fewer() {
    let rank = |rank: u32, count: u64| json!({"rank": rank, "host": "192.0.2.2", "pid": 560 + rank, "collective_counts": {"Broadcast": 0, "AllReduce": count}});
    let answer = |counts: [u64; 2]| {
        let ranks: Vec<Value> = counts.iter().zip(0..).map(|(count, number)| rank(number, *count)).collect();
        let idle = json!({"hash": "0x8", "size": 1, "ranks": []});
        json!({"nccl_version": "2.28.3", "communicators": [{"hash": "0x7", "size": 2, "ranks": ranks, "missing_ranks": []}, idle]})
    };
    let mut digest = Digest::default();
    // As a connection gives it.
    let said = [&b"SERVER PROTOCOL 2\nOK\n"[..], &serde_json::to_vec(&answer([2, 1])).expect("JSON")].concat();
    digest.add_witness(Witness::read(&said, "ras").expect("a witness").expect("a good one"));
    let report = crate::job::report(&digest);
    assert!(
        report.summary.contains("rank 1 (process 561), which was not looked at and has entered fewer operations"),
        "{}",
        report.summary
    );
    assert!(report.gaps.iter().any(|gap| gap.what == "1 smaller communicator"), "{:?}", report.gaps);
    let mut digest = Digest::default();
    digest.add_witness(witness(&answer([2, 2]), "ras.json"));
    let report = crate::job::report(&digest);
    assert!(report.findings.is_empty() && !report.summary.contains("wait for rank"), "{}", report.summary);
}

/// `bytes` between the beginning and the end of a pickle.
fn pickled(bytes: &[u8]) -> Result<Value, PickleError> {
    pickle::read(&[&[0x80, 2][..], bytes, b"."].concat())
}

#[test]
fn a_pickle_is_read_as_data_and_never_run() {
    assert_eq!(pickled(b"}(X\x01\0\0\0aK\x07X\x01\0\0\0b](K\x01\x88Neu"), Ok(json!({"a": 7, "b": [1, true, null]})));
    assert_eq!(pickled(b"\x8a\x02\0\xff"), Ok(json!(-256)));
    assert_eq!(pickled(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff"), Ok(json!(-1)));
    assert_eq!(pickled(b"G\x3f\xf8\0\0\0\0\0\0"), Ok(json!(1.5)));
    // A pickle of os.system('true').
    assert_eq!(pickled(b"cposix\nsystem\n(X\x04\0\0\0truetR"), Err(PickleError::NotPlain("instruction 0x63".into())));
    for cut in [&b"X\xff\0\0\0a"[..], b"\x8a\x05\0", b"J\0"] {
        assert_eq!(pickle::read(&[&[0x80, 2][..], cut].concat()), Err(PickleError::Cut), "{cut:?}");
    }
    for senseless in [&b""[..], b"a", b"K\x01K\x02a", b"e", b"h\x09", b"(", b"}(K\x01u"] {
        assert!(matches!(pickled(senseless), Err(PickleError::Senseless(_))), "{senseless:?}");
    }
}

#[test]
fn a_pickle_that_stands_for_more_than_memory_ends() {
    // A list that has itself in it.
    assert_eq!(pickled(b"]q\0h\0a"), Err(PickleError::TooMuch));
    // Lists of two of the one before, forty deep.
    let mut doubling = b"]q\0".to_vec();
    for level in 1..30u8 {
        doubling.extend([b']', b'q', level, b'(', b'h', level - 1, b'h', level - 1, b'e']);
    }
    assert_eq!(pickled(&doubling), Err(PickleError::TooMuch));
    // A text of a megabyte, named ten thousand times.
    let mut text = [&b"](X\0\0\x10\0"[..], &vec![b'x'; 1 << 20], b"q\0"].concat();
    text.extend(b"h\0".repeat(10_000));
    text.push(b'e');
    assert_eq!(pickled(&text), Err(PickleError::TooMuch));
}

#[test]
fn files_that_only_look_like_it_are_told() {
    let why = |bytes: &[u8], file: &str| match Witness::read(bytes, file) {
        Some(Err(WitnessError::Damaged { why, .. })) => why,
        other => panic!("{other:?}"),
    };
    let good = serde_json::to_vec(&dump(Vec::new())).expect("JSON");
    assert!(why(&good, "trace.json").contains("its name ends in no number"));
    assert!(why(&[0x80, 2, b'}', b'.'], "trace_0").contains("it has no `entries`"));
    let later = String::from_utf8_lossy(&good).replace("2.10", "3.0");
    assert!(why(later.as_bytes(), "trace_0.json").contains("version `3.0`"));
    assert!(Witness::read(b"{\"schema\": \"lockscope.report\"}", "r.json").is_none());
    assert!(Witness::read(b"\x7fELF", "core").is_none());
}
