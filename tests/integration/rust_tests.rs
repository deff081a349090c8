//! Tests of Rust under libtest, whose runner wakes each minute to name slow tests: a test that waits for ever ends the program, one
//! that waits for a thread with a clock does not.

use std::process::Command;

use crate::harness::{Target, attach, compile_rust, lockscope, skipped};

#[test]
fn a_test_that_waits_for_ever_is_ended_and_one_that_is_late_is_not() {
    let Some(program) = compile_rust("native/rust_tests.rs", "rust_tests", &["--test"]) else {
        return skipped!("no rustc");
    };
    let output = lockscope()
        .args(["run", "--stuck-after", "5s", "--"])
        .arg(&program)
        .arg("waits_for_ever")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // Its own alarm would be status 142.
    assert_eq!(output.status.code(), Some(124), "{text}");
    assert!(text.contains("nobody-left-to-wake") && text.contains("rust_tests::waits_for_ever"), "{text}");

    let late = Target::start(Command::new(&program).args(["waits_for_a_while", "--nocapture"])).settle(2);
    for _ in 0..5 {
        let look = attach(&late.pids, &[]);
        assert_eq!((look.verdict(), look.code), ("blocked", 0), "{}", look.text);
    }
}
