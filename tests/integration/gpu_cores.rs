//! Cores of real GPUs beside the snapshots of their processes: scripts/measure/gpu/cores.py made both, right after each other.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Look, Target, attach, core, lockscope, testdata, wait_until};

/// A case: the core of each process, what is found, and words of the text.
type Case = (&'static str, &'static [&'static str], &'static [&'static str]);

const NEVER_ENDS: &[&str] = &["kernel-never-ends"];

const CASES: [Case; 22] = [
    (
        "spin-lock",
        NEVER_ENDS,
        &["kernels.cu:82 in acquire (kernels.cu:74)", "7 threads of 7 blocks", "1 of its 8 blocks was not"],
    ),
    ("lock-order-on-device", NEVER_ENDS, &["takes_two_locks <<<(2, 1, 1), (1, 1, 1)>>>", "in acquire (kernels.cu:74)"]),
    ("device-flag", NEVER_ENDS, &["512 threads of 4 blocks, all at kernels.cu:118"]),
    (
        "host-flag-in-cpp",
        NEVER_ENDS,
        &["the word at 0x7ff78fe00000, which is argument 1", "2 wait for kernel `waits_for_flag` on GPU 0"],
    ),
    ("registered-flag", NEVER_ENDS, &["the word at 0x7f64d5f0a000, which is argument 1 of kernel waits_for_flag"]),
    ("barrier", NEVER_ENDS, &["288 at kernels.cu:161, 96 at kernels.cu:158"]),
    (
        "grid-barrier",
        NEVER_ENDS,
        &["<<<(8, 1, 1), (64, 1, 1)>>>", "1 of its 8 blocks was not on the GPU", "grid_group::sync"],
    ),
    (
        "cooperative",
        &["cooperative-launch-starved", "kernel-never-ends"],
        &[
            "it launched kernel all_blocks_meet by cudaLaunchCooperativeKernel in cooperative() at kernels.cu:210",
            "Meanwhile on GPU 0 occupies_multiprocessors <<<(4, 1, 1), (64, 1, 1)>>> has 4 blocks",
            "at kernels.cu:189",
        ],
    ),
    (
        "later-block",
        NEVER_ENDS,
        &["264 of its 528 blocks were not on the GPU", "270336 threads of 264 blocks, all at kernels.cu:216"],
    ),
    ("cluster", NEVER_ENDS, &["128 at kernels.cu:231", "cluster_group::sync"]),
    ("arrival", NEVER_ENDS, &["at kernels.cu:257 in wait_for_phase (kernels.cu:245)"]),
    ("calls", NEVER_ENDS, &["at kernels.cu:269 in wait_at_depth, called from kernels.cu:274"]),
    (
        "two-streams-eager",
        &["kernel-never-ends", "kernel-never-ends"],
        &["first_endless", "second_endless <<<(2, 2, 2), (8, 4, 2)>>>", "0x4004000000000000"],
    ),
    ("event-of-another-stream", NEVER_ENDS, &["first_endless", "at kernels.cu:285"]),
    ("two-contexts", NEVER_ENDS, &["first_endless"]),
    ("graph", NEVER_ENDS, &["first_endless"]),
    (
        "stream-waits-value",
        &["stream-waits-value", "waiting-for-gpu"],
        &[
            "no kernel runs",
            "the GPU core has no kernel of this process",
            "it queued cuStreamWaitValue32_v2 in stream_waits_value() at kernels.cu:397",
            "is 1, and it is 0.",
        ],
    ),
    ("illegal-address", &["gpu-error-behind-hang"], &["kernel writes_to failed at kernels.cu:388: illegal address"]),
    ("misaligned", &["gpu-error-behind-hang"], &["kernel writes_between failed at kernels.cu:389: misaligned address"]),
    ("assertion", &["gpu-error-behind-hang"], &["kernel asserts failed at kernels.cu:390: assertion failed"]),
    ("triton-lock", NEVER_ENDS, &["all at triton_kernels.py:8", "4 blocks, 16 warps, 512 threads"]),
    ("torch-item", NEVER_ENDS, &["at::cuda::(anonymous namespace)::spin_kernel", "cudaStreamSynchronize"]),
];

fn files(name: &str) -> Vec<PathBuf> {
    let file = |ending: &str| testdata("gpu/cores").join(format!("{name}{ending}"));
    let cores = ["", ".rank0", ".rank1"].map(|rank| file(&format!("{rank}.gpucore.zst")));
    [file(".snapshot.zst")].into_iter().chain(cores).filter(|file| file.exists()).collect()
}

fn everything(look: &Look) -> String {
    format!("{}{}", look.text.split_whitespace().collect::<Vec<_>>().join(" "), look.json)
}

#[test]
fn who_waits_for_which_kernel_and_on_which_line_it_is() {
    for (name, findings, words) in CASES {
        let look = core(&files(name), &[]);
        assert_eq!(look.findings(), findings, "{name}: {}", look.text);
        let all = everything(&look);
        for word in words {
            assert!(all.contains(word), "{name}: {word}: {}", look.text);
        }
        let gaps = look.json["gaps"].as_array().expect("a list");
        let of_cores = gaps.iter().filter(|gap| gap["what"].as_str().is_some_and(|what| what.contains("GPU core")));
        assert_eq!(of_cores.count(), 0, "{name}: {gaps:?}");
    }
}

/// All work of a context includes its kernel; in which stream one is the driver does not say.
#[test]
fn a_kernel_has_what_is_waited_for() {
    let certainty = |name: &str| {
        let look = core(&files(name), &[]);
        let resources = look.json["resources"].as_array().expect("a list").clone();
        let is_kernel = |id: &Value| resources.iter().any(|one| one["id"] == *id && one["kind"] == "cuda_kernel");
        let holds = look.json["holds"].as_array().expect("a list").iter();
        assert!(resources.iter().any(|one| is_kernel(&one["id"])), "{name}: {resources:?}");
        holds
            .filter(|hold| hold["evidence"].to_string().contains("GPU core"))
            .map(|hold| hold["certainty"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(certainty("device-flag"), ["inferred"]);
    assert_eq!(certainty("two-streams-eager"), ["candidate", "candidate"]);
    assert_eq!(certainty("event-of-another-stream"), ["candidate"]);
}

/// Each rank's core is given to its process, whatever the order of the files.
#[test]
fn collectives_are_told_of_each_rank() {
    for name in ["nccl-both-receive", "nccl-two-orders", "nccl-rank-in-deadlock"] {
        let mut files = files(name);
        assert_eq!(files.len(), 3, "{name}");
        files.rotate_left(1);
        let look = core(&files, &[]);
        let processes = look.json["processes"].as_array().expect("a list");
        let operations: Vec<Option<&str>> = processes
            .iter()
            .map(|process| process["gpus"][0]["kernels"][0]["collective"]["operation"].as_str())
            .collect();
        let truth = match name {
            "nccl-both-receive" => [Some("SendRecv"), Some("SendRecv")],
            "nccl-two-orders" => [Some("AllReduce"), Some("Broadcast")],
            _ => [Some("AllReduce"), None],
        };
        assert_eq!(operations, truth, "{name}");
        let verdict = if name == "nccl-rank-in-deadlock" { "deadlock" } else { "blocked" };
        assert_eq!(look.verdict(), verdict, "{name}: {}", look.text);
        // By names alone: two that receive from each other are in the same operation.
        let is_mismatch = look.findings().contains(&"collective-mismatch");
        assert_eq!(is_mismatch, name == "nccl-two-orders", "{name}: {}", look.text);
    }
}

#[test]
fn a_core_of_the_gpu_alone_tells_its_kernels() {
    let look = core(&files("barrier")[1..], &[]);
    assert_eq!((look.verdict(), look.findings()), ("blocked", vec!["kernel-never-ends"]));
    let kernel = &look.json["processes"][0]["gpus"][0]["kernels"][0];
    assert_eq!((kernel["name"].as_str(), kernel["threads"].as_u64()), (Some("half_comes_to_the_barrier"), Some(384)));
    assert!(everything(&look).contains("a core of a GPU has none"), "{}", look.text);
}

#[test]
fn a_core_of_somebody_elses_gpu_is_given_to_nobody() {
    let look = core(&[files("barrier")[0].clone(), files("calls")[1].clone()], &[]);
    assert!(everything(&look).contains("its contexts are in the memory of none of these processes"), "{}", look.text);
    assert_eq!(look.findings(), ["waiting-for-gpu"]);
}

/// Does what NVIDIA's driver does: makes a FIFO, writes a core when a byte comes, removes the FIFO, says so here, and ends the process.
const LIKE_A_DRIVER: &str = r#"
import json, os, shutil, signal, sys
signal.alarm(100)
core, said = sys.argv[1:]
place = lambda name: os.environ[name].replace("%p", str(os.getpid()))
os.mkfifo(place("CUDA_COREDUMP_PIPE"), 0o640)
pipe = os.open(place("CUDA_COREDUMP_PIPE"), os.O_RDWR)
os.read(pipe, 1)
shutil.copyfile(core, place("CUDA_COREDUMP_FILE"))
os.unlink(place("CUDA_COREDUMP_PIPE"))
with open(said, "w") as file:
    json.dump({name: value for name, value in os.environ.items() if name.startswith("CUDA_")}, file)
if "GOES_ON" not in os.environ:
    os.abort()
while True:
    signal.pause()
"#;

/// Run the above under a time limit: the exit status, what lockscope said, what the program said, the report.
fn run_with_cores(variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String, Option<Value>, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let (said, reports) = (folder.path().join("said"), folder.path().join("reports"));
    let mut run = lockscope();
    run.arg("run").args(arguments).args(["--timeout", "3s", "--report-dir"]).arg(&reports);
    run.args(["--", "python3", "-c", LIKE_A_DRIVER]).arg(&files("barrier")[1]).arg(&said);
    run.env_remove("LOCKSCOPE").env("TMPDIR", folder.path()).envs(variables.iter().copied());
    let output = run.stdin(std::process::Stdio::null()).output().expect("it runs");
    let left = std::fs::read_dir(folder.path()).expect("a folder").flatten();
    let left: Vec<_> =
        left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("gpu")).collect();
    assert!(left.is_empty(), "{left:?}");
    let mut written = std::fs::read_dir(&reports).expect("reports").flatten().map(|entry| entry.path());
    let json = written.find(|path| path.extension().is_some_and(|ending| ending == "json")).expect("a report");
    let read = |path: &std::path::Path| serde_json::from_slice(&std::fs::read(path).ok()?).ok();
    let report = read(&json).expect("JSON");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), read(&said), report)
}

#[test]
fn a_command_that_is_ended_leaves_a_core_of_its_gpu_first() {
    for variables in [&[][..], &[("GOES_ON", "1")]] {
        leaves_a_core(variables);
    }
}

fn leaves_a_core(variables: &[(&str, &str)]) {
    let (status, errors, said, report) = run_with_cores(variables, &["--gpu-core"]);
    assert_eq!(status, Some(124), "{errors}");
    let said = said.expect("a byte came");
    let is = |name: &str, value: &str| assert_eq!(said[name], value, "{said}");
    is("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1");
    // With that flag calls of CUDA can return success though a kernel failed.
    assert!(!said["CUDA_COREDUMP_GENERATION_FLAGS"].as_str().expect("flags").contains("skip_abort"));
    // Without the FIFO there is no core (driver 580).
    assert_eq!(said["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"], Value::Null);
    // Read, and found to be another process's.
    assert!(
        report["gaps"].to_string().contains("its contexts are in the memory of none of these processes"),
        "{report}"
    );
}

#[test]
fn what_the_user_has_set_is_respected() {
    let pipe = tempfile::tempdir().expect("a folder");
    let name = pipe.path().join("own_%p").display().to_string();
    let core = pipe.path().join("core").display().to_string();
    let own = [("CUDA_COREDUMP_PIPE", name.as_str()), ("CUDA_COREDUMP_FILE", core.as_str())];
    let (status, errors, said, _) = run_with_cores(&own, &["--gpu-core", "--kill-after", "1s"]);
    assert_eq!((status, said), (Some(124), None), "{errors}");
    assert!(errors.contains("CUDA_COREDUMP_PIPE is set already"), "{errors}");
}

#[test]
fn nothing_is_set_unless_it_is_asked_for() {
    let pipe = tempfile::tempdir().expect("a folder");
    let name = pipe.path().join("own_%p").display().to_string();
    let own = [("CUDA_COREDUMP_PIPE", name.as_str())];
    let (status, errors, said, _) = run_with_cores(&own, &["--kill-after", "1s"]);
    assert_eq!((status, said), (Some(124), None), "{errors}");
    assert!(!errors.contains("core of the GPU"), "{errors}");
}

/// What the driver writes unasked when a kernel fails, before it ends the process.
const FAILS: &str = r#"
import os, shutil, sys
shutil.copyfile(sys.argv[1], os.environ["CUDA_COREDUMP_FILE"].replace("%p", str(os.getpid())))
os.abort()
"#;

#[test]
fn a_kernel_that_fails_is_told_with_its_line() {
    let mut run = lockscope();
    run.args(["run", "--gpu-core", "--", "python3", "-c", FAILS]).arg(&files("illegal-address")[1]);
    let output = run.env_remove("LOCKSCOPE").stdin(std::process::Stdio::null()).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(134), "{errors}");
    assert!(errors.contains("lockscope: kernel writes_to failed at kernels.cu:388: illegal address"), "{errors}");
}

/// The program above with these variables, once it reads its FIFO; what a look that asks for a core says.
fn triggered(variables: &[(&str, &str)]) -> (Look, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("python3");
    command.args(["-c", LIKE_A_DRIVER]).arg(&files("barrier")[1]).arg(folder.path().join("said"));
    command.current_dir(folder.path()).env("CUDA_COREDUMP_PIPE", "pipe_%p").env("CUDA_COREDUMP_FILE", "gpu_%p.core");
    command.envs(variables.iter().copied());
    let mut child = command.spawn().expect("it starts");
    let pid = child.id() as i32;
    let reads = || {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|one| std::fs::read_link(one.path()).ok()).any(|to| to.ends_with(format!("pipe_{pid}")))
    };
    wait_until("it reads its FIFO", reads);
    let look = attach(&[pid], &["--trigger-gpu-core"]);
    let was_asked = folder.path().join("said").exists();
    let _ = (child.kill(), child.wait());
    (look, was_asked)
}

#[test]
fn a_core_is_asked_for_where_the_user_says_so() {
    let light = ("CUDA_COREDUMP_GENERATION_FLAGS", "skip_global_memory");
    let is_on = ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1");
    let (look, was_asked) = triggered(&[is_on, light, ("GOES_ON", "1")]);
    // Read, though its process may be gone, and found to be another process's.
    assert!(
        was_asked && everything(&look).contains("its contexts are in the memory of none of these processes"),
        "{}",
        look.text
    );
    let (look, was_asked) = triggered(&[is_on]);
    assert!(!was_asked && everything(&look).contains("would have all memory of the GPU"), "{}", look.text);
    let (look, was_asked) = triggered(&[is_on, light, ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")]);
    assert!(!was_asked && everything(&look).contains("under MPS"), "{}", look.text);
    let other = Target::start(Command::new("sh").args(["-c", "echo READY pids=$$; exec sleep 100"]));
    let look = attach(&other.pids, &["--trigger-gpu-core"]);
    assert!(
        everything(&look).contains("it was not started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1"),
        "{}",
        look.text
    );
}

/// A launch that was refused and that nobody looked at, on an H100, with the runtime linked in and as a library.
#[test]
fn errors_that_nobody_has_asked_for_are_seen_on_a_real_gpu() {
    let cases = [
        ("refused-launch", "is 1 (cudaErrorInvalidValue)", "that never ran"),
        ("refused-launch-shared", "is 1 (cudaErrorInvalidValue)", "that never ran"),
        ("trap-unasked", "is 719 (cudaErrorLaunchFailure)", "every call of CUDA in the process fails"),
    ];
    for (name, number, words) in cases {
        let look = core(&[testdata(&format!("gpu/cores/{name}.snapshot.zst"))], &[]);
        assert_eq!(look.findings(), ["gpu-error-behind-hang"], "{name}: {}", look.text);
        assert!(look.says(number) && look.says(words), "{name}: {}", look.text);
    }
}
