//! What NCCL's RAS says of a job whose ranks wait for their GPUs.

use std::net::TcpListener;

use crate::harness::{Look, Target, attach, compile, testdata};
use crate::post_mortem::looks;
use crate::python::pythons;

/// A rank on the stand-in for the driver, with a RAS that answers as `case` says, and its port.
fn rank(case: &str) -> (Target, u16) {
    let driver = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    // Nothing of NCCL is called: a process that has it mapped is a rank.
    compile("fakecuda/libcuda.c", "libnccl.so.2", &["-shared", "-fPIC"]);
    let (_, python) = pythons().into_iter().rfind(|(_, python)| python.root().is_none()).expect("a Python");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let mut command = python.command();
    command.arg(testdata("python/nccl_ras.py")).arg(case).arg(free.to_string()).arg(driver.parent().expect("a folder"));
    command.env("NCCL_RAS_ADDR", format!("localhost:{free}"));
    (Target::start(&mut command).settle(1), free)
}

fn is_missing(look: &Look) -> bool {
    look.findings().contains(&"missing-rank")
}

#[test]
fn who_has_launched_fewer_is_named_live_and_in_snapshots() {
    let (target, port) = rank("missing");
    for look in looks(&target) {
        assert_eq!(look.verdict(), "blocked", "{}", look.text);
        assert!(is_missing(&look), "{}", look.text);
        let said =
            format!("By NCCL's RAS (127.0.0.1:{port}), rank 0 (process {} on 192.0.2.2) has launched", target.pids[0]);
        let message = look.json["findings"].to_string();
        assert!(message.contains(&said), "{said}: {message}");
        assert!(message.contains("AllReduce 7 times in communicator 0xabc7, rank 1 (process "), "{message}");
        assert!(message.contains(" on 192.0.2.2) 6 times, and none of its ranks"), "{message}");
    }
}

#[test]
fn who_goes_on_or_is_of_another_job_is_not() {
    for case in ["moves", "other", "even"] {
        let (target, _) = rank(case);
        {
            let look = attach(&target.pids, &[]);
            assert_eq!(look.verdict(), "blocked", "{case}: {}", look.text);
            assert!(!is_missing(&look), "{case}: {}", look.text);
            assert!(!look.says("NCCL's RAS"), "{case}: {}", look.text);
        }
    }
}

#[test]
fn who_gives_no_answer_is_a_gap() {
    for (case, why) in [("silent", "no answer within"), ("old", "answers otherwise than NCCL 2.28")] {
        let (target, port) = rank(case);
        {
            let look = attach(&target.pids, &[]);
            assert!(!is_missing(&look), "{case}: {}", look.text);
            let gaps = look.json["gaps"].to_string();
            assert!(gaps.contains(&format!("NCCL's RAS at 127.0.0.1:{port}")) && gaps.contains(why), "{case}: {gaps}");
        }
    }
}
