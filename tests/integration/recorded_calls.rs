//! `run --record`: calls into CUDA's driver, which programs ask for by name.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Look, Target, compile};
use crate::post_mortem::looks;
use crate::recorded::preload;

/// A program on the stand-in for the driver.
fn command(case: &str) -> Command {
    let driver = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    let program: PathBuf = compile("native/recorded_cuda.c", "recorded_cuda", &["-g", "-O1", "-rdynamic"]);
    let mut command = Command::new(program);
    command.arg(driver).arg(case);
    command
}

fn start(case: &str, asleep: usize) -> Target {
    Target::start(command(case).env("LD_PRELOAD", preload())).settle(asleep)
}

/// The last call of a thread: function, first argument, answer, error and the function that answered it first.
fn last_call(look: &Look, name: &str) -> [Value; 5] {
    let threads = look.json["processes"][0]["threads"].as_array().expect("threads");
    let call = &threads.iter().find(|thread| thread["name"] == name).expect("a thread")["cuda_call"];
    let error = &call["error"];
    [&call["function"], &call["arguments"][0], &call["result"], &error["number"], &error["function"]].map(Value::clone)
}

#[test]
fn a_call_that_failed_is_told_though_nobody_kept_its_error() {
    let target = start("failed", 2);
    for look in looks(&target) {
        let [function, _, result, number, first] = last_call(&look, "worker");
        let expected = (json!("cuCtxSynchronize"), json!(700), json!(700), json!("cuCtxSynchronize"));
        assert_eq!((function, result, number, first), expected, "{}", look.text);
        assert!(look.findings().contains(&"gpu-error-behind-hang"), "{}", look.text);
        assert!(look.says("cuCtxSynchronize has answered 700 (cudaErrorIllegalAddress) to thread"), "{}", look.text);
        assert!(!look.says("liblockscope_recorder"), "{}", look.text);
    }
    // Refused arguments are no such error; and without the recorder nobody knows.
    let target = start("refused", 2);
    for look in looks(&target) {
        let [function, .., number, _] = last_call(&look, "worker");
        assert_eq!((function, number), (json!("cuStreamWaitValue32"), json!(1)), "{}", look.text);
        assert!(!look.findings().contains(&"gpu-error-behind-hang"), "{}", look.text);
    }
    let target = Target::start(&mut command("failed")).settle(2);
    for look in looks(&target) {
        assert_eq!(last_call(&look, "worker"), [const { Value::Null }; 5], "{}", look.text);
    }
}

#[test]
fn who_is_in_a_call_is_told_with_its_arguments() {
    let target = start("passes", 1);
    for look in looks(&target) {
        let [function, stream, result, ..] = last_call(&look, "recorded_cuda");
        assert_eq!((function, result), (json!("cuStreamSynchronize"), Value::Null), "{}", look.text);
        assert!(stream.as_str().is_some_and(|stream| stream.len() > 6), "{stream}: {}", look.text);
        let evidence = look.json["waits"].to_string();
        assert!(evidence.contains("'recorded_cuda' call cuStreamSynchronize(0x"), "{evidence}");
    }
}

#[test]
fn a_call_within_a_call_comes_back_to_the_outer_one() {
    let target = start("within", 2);
    for look in looks(&target) {
        let [function, _, result, ..] = last_call(&look, "worker");
        assert_eq!((function, result), (json!("cuOccupancyMaxPotentialBlockSize"), Value::Null), "{}", look.text);
    }
}

#[test]
fn names_are_answered_as_without_it() {
    let run = |recorded: bool| {
        let mut command = command("same");
        if recorded {
            command.env("LD_PRELOAD", preload());
        }
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let plain = run(false);
    assert_eq!(plain, (Some(0), "1 1 1 1 1 1 1 1 500 1\n".to_owned()));
    assert_eq!(run(true), plain);
}
