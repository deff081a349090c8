//! CUDA: the programs of scripts/measure/gpu on a stand-in for the driver, and what a real GPU showed of them.
//!
//! The truth of each program stands beside it, in scripts/measure/gpu/workloads.py.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Look, Target, attach, compile, core, own_program, testdata};
use crate::python::{Python, pythons};

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/measure/gpu")
}

/// The stand-in, under the name by which the loader looks for the driver.
fn driver() -> PathBuf {
    compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"])
}

fn text(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Looks at each program on the stand-in, as the measurement on a real GPU does.
fn table_on_the_stand_in(python: &Python, options: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = python.command();
    run.arg(scripts().join("table.py")).args(options).arg(own_program()).arg(folder.path());
    run.env("LD_LIBRARY_PATH", driver().parent().expect("a folder")).env("PYTHONDONTWRITEBYTECODE", "1");
    println!("{}", text(&mut run));
}

/// The oldest Python and the newest one that need no folder of their own to run in.
fn oldest_and_newest() -> [Python; 2] {
    let mut own = pythons().into_iter().filter(|(_, python)| python.root().is_none()).map(|(_, python)| python);
    let oldest = own.next().expect("a Python");
    let newest = own.next_back().expect("two Pythons");
    [oldest, newest]
}

#[test]
fn programs_on_the_stand_in_are_told_right() {
    for python in oldest_and_newest() {
        table_on_the_stand_in(&python, &[]);
    }
}

/// Somebody waits for a stream, that for a host function, and it for what the first would give; and the same with somebody else who
/// gives it later.
#[test]
fn rings_through_host_functions_are_closed_and_others_are_not() {
    let [_, newest] = oldest_and_newest();
    for programs in ["--rings", "--pools"] {
        table_on_the_stand_in(&newest, &[programs]);
    }
}

/// Whether the kernel counts here how often a thread executes an instruction, as this process itself may ask.
const COUNTS: &str = "
import ctypes, os, struct
attributes = bytearray(128)
struct.pack_into('<II', attributes, 0, 5, 128)            # a breakpoint
struct.pack_into('<Q', attributes, 40, 1 << 5 | 1 << 6)   # of user space
struct.pack_into('<IQQ', attributes, 52, 4, 0x10000, 8)   # on execution
number = {'x86_64': 298, 'aarch64': 241}[os.uname().machine]
print(ctypes.CDLL(None).syscall(number, (ctypes.c_char * 128).from_buffer(attributes), 0, -1, -1, 0) >= 0)
";

#[test]
fn who_spins_for_a_gpu_makes_no_progress_until_it_comes_out() {
    let [_, newest] = oldest_and_newest();
    let run = |case: &str| {
        let mut command = crate::harness::lockscope();
        command.args(["run", "--hang-after", "3s", "--timeout", "240s", "--"]).arg(newest.command().get_program());
        command.arg(scripts().join("workloads.py")).arg(case);
        command.env("LD_LIBRARY_PATH", driver().parent().expect("a folder")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.output().expect("it runs")
    };
    let output = run("healthy-rounds");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    if text(newest.command().args(["-c", COUNTS])).trim() != "True" {
        return crate::harness::skipped!("time that is spun away: the kernel does not count returns from calls here");
    }
    let output = run("endless-kernel");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(said.contains("has made no progress for the time given by --hang-after"), "{said}");
}

#[test]
fn the_recorder_changes_nothing_that_is_told_of_them() {
    let [_, newest] = oldest_and_newest();
    table_on_the_stand_in(&newest, &["--record"]);
}

#[test]
fn an_error_that_a_thread_handles_is_read_on_every_python() {
    let driver = driver();
    for (version, python) in pythons() {
        let mut command = python.command();
        command
            .arg(python.sees(&scripts().join("workloads.py")))
            .arg("failed-launch")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("LD_LIBRARY_PATH", python.sees(&driver).parent().expect("a folder"));
        let target = Target::start(&mut command).settle(2);
        let look = attach(&target.pids, &[]);
        let place = format!("Python {version}:\n{}", look.text);
        assert!(look.findings().contains(&"failed-launch"), "{place}");
        assert!(look.says("CudaError: cuStreamSynchronize: error 700"), "{place}");
    }
}

/// Verdicts, findings and cycle of each program.
fn truth() -> Value {
    const PRINT: &str = "import json, pools, workloads as w; print(json.dumps({n: [c.verdicts, c.findings, c.cycle] for n, c in w.CASES.items()}))";
    let (_, python) = pythons().into_iter().find(|(_, python)| python.root().is_none()).expect("a Python");
    let mut run = python.command();
    run.args(["-c", PRINT]).current_dir(scripts()).env("PYTHONDONTWRITEBYTECODE", "1");
    serde_json::from_str(&text(&mut run)).expect("JSON")
}

fn snapshot(name: &str) -> Look {
    core(&[testdata(&format!("gpu/{name}.snapshot.zst"))], &[])
}

#[test]
fn what_a_real_gpu_showed_is_still_seen() {
    let truth = truth();
    let mut count = 0;
    for entry in std::fs::read_dir(testdata("gpu")).expect("a folder").flatten() {
        let file = entry.file_name();
        let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".snapshot.zst")) else { continue };
        count += 1;
        let look = snapshot(name);
        let place = format!("{name}:\n{}", look.text);
        let list = |position: usize| truth[name][position].as_array().cloned().unwrap_or_default();
        assert!(list(0).iter().any(|verdict| verdict == look.verdict()), "{place}");
        for finding in list(1) {
            assert!(look.findings().contains(&finding.as_str().expect("a name")), "{finding} {place}");
        }
        if truth[name][2].is_array() {
            assert_eq!(serde_json::json!(look.cycles()), serde_json::json!([truth[name][2]]), "{place}");
        }
        assert_eq!(look.json["processes"][0]["cuda"]["libcuda"], "580.159.04", "{place}");
        assert_eq!(look.json["processes"][0]["cuda"]["kernel_driver"], "580.159.04", "{place}");
        assert!(!look.findings().contains(&"driver-library-mismatch"), "{place}");
    }
    assert!(count >= 12, "{count} snapshots");
}

fn says(look: &Look, words: &[&str]) {
    let all = format!("{}{}", look.text.split_whitespace().collect::<Vec<_>>().join(" "), look.json);
    for word in words {
        assert!(all.contains(word), "{word}: {}", look.text);
    }
}

#[test]
fn reports_of_a_real_gpu_name_handles_threads_and_the_gpu() {
    says(
        &snapshot("occupancy-launch"),
        &["__cur_writer", "cuOccupancyMaxPotentialBlockSize", "rwlock of cuLaunchKernel 0x"],
    );
    // The handle comes from the code of the driver, which has no symbols.
    says(
        &snapshot("hostfunc-stream"),
        &["waits for CUDA stream 0x", "argument 1 of cuStreamSynchronize is 0x", "report_progress"],
    );
    says(&snapshot("hostfunc-runtime"), &["argument 1 of cudaStreamSynchronize is 0x", "\"libcudart\":\"13\""]);
    says(&snapshot("hostfunc-stream-yields"), &["inside cuStreamSynchronize"]);
    says(&snapshot("hostfunc-event-sleeps"), &["it sleeps in cuEventSynchronize on semaphore", "CUDA event 0x"]);
    says(
        &snapshot("endless-kernel"),
        &["GPU 0 is busy: a kernel ran in 100 %", "cuda-gdb -p", "event thread of the CUDA driver"],
    );
    says(&snapshot("queue-full"), &["takes the lock of its context for reading", "which launcher", "may have"]);
    says(&snapshot("exit"), &["FlushesOnExit::~FlushesOnExit() in libat_exit.so"]);
    says(&snapshot("fork"), &["was forked by a process that had initialised CUDA"]);
    says(&snapshot("failed-launch-torch"), &["AcceleratorError: CUDA error: device-side assert triggered"]);
    // Of a run with the recorder, on an H100.
    says(
        &snapshot("error-thrown-away"),
        &["cuStreamSynchronize has answered 700 (cudaErrorIllegalAddress) to thread", "gpu-error-behind-hang"],
    );
    // A job of one rank, whose GPU has a kernel of its own before the all-reduce.
    says(
        &snapshot("nccl-behind-a-kernel"),
        &[
            "The first that NCCL was given and has not done is all_reduce #4 of default_pg, by PyTorch's Flight Recorder",
        ],
    );
    says(
        &snapshot("nccl"),
        &["Not there is rank 1", "watchdog of PyTorch's ProcessGroupNCCL", "proxy service of NCCL"],
    );
    says(&snapshot("nccl-launch-blocking"), &["it was called by ncclAllReduce with the communicator 0x"]);
}

/// The program whose thread has an error of CUDA, with the runtime's stand-in as a library or linked in.
fn last_error(linked_in: bool) -> PathBuf {
    let path = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    if linked_in {
        let (source, driver) = (path(testdata("fakecuda/libcudart.c")), path(driver()));
        return compile(
            "native/last_cuda_error.c",
            "last_cuda_error_linked_in",
            &[&source, "-Wl,--no-as-needed", &driver],
        );
    }
    let runtime = path(compile("fakecuda/libcudart.c", "libcudart.so.13", &["-shared", "-fPIC"]));
    compile("native/last_cuda_error.c", "last_cuda_error", &[&runtime])
}

#[test]
fn an_error_that_nobody_has_asked_for_is_told() {
    let folder = driver();
    let folder = folder.parent().expect("a folder");
    for program in [last_error(false), last_error(true)] {
        let look = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            let target = Target::start(command.args(arguments).env("LD_LIBRARY_PATH", folder)).settle(2);
            attach(&target.pids, &[])
        };
        let of_threads = |look: &Look| -> Vec<Value> {
            let threads = look.json["processes"][0]["threads"].as_array().expect("threads");
            threads.iter().map(|thread| thread["cuda_error"]["number"].clone()).collect()
        };
        let refused = look(&["9"]);
        assert_eq!(of_threads(&refused), [Value::Null, 9.into()], "{}", refused.text);
        assert!(refused.findings().contains(&"gpu-error-behind-hang"), "{}", refused.text);
        assert!(refused.says("is 9 (cudaErrorInvalidConfiguration)"), "{}", refused.text);
        assert!(refused.says("If it was to launch a kernel, that never ran"), "{}", refused.text);
        assert!(look(&["719"]).says("from then on every call of CUDA in the process fails"));
        // One that says only that there is no GPU, and none.
        let without = look(&["100"]);
        assert_eq!(of_threads(&without), [Value::Null, 100.into()], "{}", without.text);
        let asked = look(&["719", "asked"]);
        assert_eq!(of_threads(&asked), [Value::Null, Value::Null], "{}", asked.text);
        for look in [without, asked] {
            assert!(!look.findings().contains(&"gpu-error-behind-hang"), "{}", look.text);
        }
    }
}
