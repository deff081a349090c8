//! The examples of `lockscope explain`: each is saved and started as its reader is told to, hangs, and is named by `lockscope
//! run`, which ends all that it started.

use std::path::{Path, PathBuf};
use std::process::Command;

use lockscope::internals::{Explanation, Requirement, explanations};
use serde_json::Value;

use crate::harness::{compile, lockscope, testdata};
use crate::python::{Python, all_pythons};

/// A plain shared mutex does not say that its owner is dead: where lockscope does not see all processes (in a container) the
/// report has a gap with the owner's id in place of the finding.
const NOT_TOLD: [&str; 1] = ["dead-process-holds-lock"];

/// Where the examples find what they need.
struct Machine {
    folder: tempfile::TempDir,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Machine {
    /// With this interpreter as `python3`.
    fn with(python: &Python) -> Machine {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("python3");
        std::os::unix::fs::symlink(python.command().get_program(), link).expect("linked");
        let path = std::env::var("PATH").unwrap_or_default();
        let environment = vec![("PATH", PathBuf::from(format!("{}:{path}", folder.path().display())))];
        Machine { folder, environment }
    }

    /// And with the stand-in for the CUDA driver.
    fn and_a_gpu(mut self) -> Machine {
        let driver = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
        // Under both names: to be linked with, and to be loaded.
        for name in ["libcuda.so", "libcuda.so.1"] {
            std::os::unix::fs::symlink(&driver, self.folder.path().join(name)).expect("linked");
        }
        for variable in ["LIBRARY_PATH", "LD_LIBRARY_PATH"] {
            self.environment.push((variable, self.folder.path().to_path_buf()));
        }
        self.environment.push(("CPATH", testdata("fakecuda/include")));
        self
    }

    /// Save an example, start it, and give the codes of what lockscope finds.
    fn run(&self, finding: &Explanation) -> Vec<String> {
        let is_reportable =
            |codes: &[String]| codes.iter().any(|code| code == finding.code) || NOT_TOLD.contains(&finding.code);
        // On a busy machine a program takes longer to come to its hang than is time for it on others.
        for timeout in ["20s", "120s"] {
            let (codes, errors) = self.run_for(finding, timeout);
            if is_reportable(&codes) {
                return codes;
            }
            println!("{} is found to be {codes:?} within {timeout}: {errors}", finding.code);
        }
        panic!("{} is not found", finding.code);
    }

    /// The same with this limit of time; and what lockscope wrote.
    fn run_for(&self, finding: &Explanation, timeout: &str) -> (Vec<String>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        save(finding, folder.path());
        let reports = folder.path().join("reports");
        let mut run = lockscope();
        // A wait that spins on the GPU is no standstill: the time limit is the look at it.
        run.args(["run", "--hang-after", "4s", "--stuck-after", "6s", "--timeout", timeout, "--report-dir"])
            .arg(&reports);
        run.args(["--", "sh", "-c", finding.example.command]).current_dir(folder.path());
        run.envs(self.environment.iter().cloned()).env_remove("LOCKSCOPE").stdin(std::process::Stdio::null());
        let output = run.output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(124), "{} does not hang: {errors}", finding.code);
        let mut files = std::fs::read_dir(&reports).expect("reports").flatten().map(|entry| entry.path());
        let json = files.find(|path| path.extension().is_some_and(|ending| ending == "json")).expect("a report");
        let report: Value = serde_json::from_slice(&std::fs::read(json).expect("readable")).expect("JSON");
        let codes = report["findings"].as_array().expect("a list").iter().filter_map(|one| one["code"].as_str());
        (codes.map(str::to_owned).collect(), errors)
    }
}

fn save(finding: &Explanation, folder: &Path) -> PathBuf {
    let file = folder.join(finding.example.file);
    std::fs::write(&file, finding.example.program).expect("written");
    file
}

fn is_python(finding: &Explanation) -> bool {
    finding.example.file.ends_with(".py")
}

/// The oldest and the newest interpreter of this machine's own, with a GIL or without; asyncio has what the examples use from
/// 3.8 on.
fn pythons(has_gil: bool) -> Vec<(String, Python)> {
    let is_one = |version: &str, python: &Python| {
        version.ends_with('t') != has_gil && !version.starts_with("3.7.") && python.root().is_none()
    };
    let mut found: Vec<_> = all_pythons().into_iter().filter(|(version, python)| is_one(version, python)).collect();
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    found.sort_by_key(|(version, _)| minor(version));
    if found.len() > 2 {
        found.drain(1..found.len() - 1);
    }
    found
}

/// Examples with this requirement.
fn examples(requirement: Requirement) -> Vec<&'static Explanation> {
    explanations().filter(|finding| finding.example.needs == requirement).collect()
}

#[test]
fn examples_without_a_gpu_are_named() {
    for (position, (version, python)) in pythons(true).iter().enumerate() {
        let machine = Machine::with(python);
        // Those of C are the same with each interpreter.
        for finding in examples(Requirement::Nothing).iter().filter(|finding| position == 0 || is_python(finding)) {
            let codes = machine.run(finding);
            if NOT_TOLD.contains(&finding.code) && codes.is_empty() {
                println!("{} hangs, and lockscope does not say why", finding.example.file);
                continue;
            }
            assert_eq!(codes, [finding.code], "Python {version}");
        }
    }
}

#[test]
fn examples_for_python_without_a_gil_are_named() {
    let examples = examples(Requirement::PythonWithoutGil);
    let Some((_, python)) = pythons(false).pop() else {
        return crate::harness::skipped!("{} examples: no Python without a GIL", examples.len());
    };
    for finding in examples {
        assert_eq!(Machine::with(&python).run(finding), [finding.code]);
    }
}

#[test]
fn examples_for_a_gpu_are_named_on_the_stand_in() {
    let (_, python) = pythons(true).pop().expect("a Python");
    let machine = Machine::with(&python).and_a_gpu();
    for finding in examples(Requirement::Gpu) {
        let mut codes = machine.run(finding);
        // Who waits for whom is told beside the cause.
        let beside = ["waiting-for-gpu", "pipe-cycle", "nobody-left-to-wake"];
        codes.retain(|code| code == finding.code || !beside.contains(&code.as_str()));
        assert_eq!(codes, [finding.code]);
    }
}

#[test]
fn examples_that_nothing_can_run_here_are_programs() {
    let (_, python) = pythons(true).pop().expect("a Python");
    let folder = tempfile::tempdir().expect("a folder");
    for requirement in [
        Requirement::GpuCore,
        Requirement::GpuAndCompatibilityPackage,
        Requirement::TwoGpusAndPyTorch,
        Requirement::Mpi,
    ] {
        for finding in examples(requirement) {
            let check = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
            let mut run = Command::new(python.command().get_program());
            run.args(["-c", check]);
            if !is_python(finding) {
                run = Command::new("cc");
                run.args(["-fsyntax-only", "-Wall", "-Werror", "-I"]).arg(testdata("fakecuda/include"));
            }
            let done = run.arg(save(finding, folder.path())).output().expect("it runs");
            assert!(done.status.success(), "{}: {}", finding.code, String::from_utf8_lossy(&done.stderr));
            let needs = requirement.describe().expect("something");
            crate::harness::skipped!("{} is only compiled: it needs {needs}", finding.example.file);
        }
    }
}
