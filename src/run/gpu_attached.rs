//! Cores of the GPUs of running processes that were started with the variables for them.
//!
//! In: a sample of processes. Out: the same with the kernels on their GPUs, or with the reason why no core was
//! requested. The descriptors of a process show which FIFO its driver reads, and its variables where the driver writes.
//! A core ends the processes, or makes their calls of CUDA fail, so it needs the user's explicit request.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::gpu_dump::{FILE, FLAGS, PIPE, TRIGGERED, is_proven};
use super::gpu_trigger::{self, CoreName, Driver, IsLeft, innermost_id};
use crate::analysis::Outcome;
use crate::image::Gap;
use crate::limits::run::MOST_ENTRIES;

/// The driver's default names of its files, if no variable names them (seen with driver 580).
const OWN_PIPE: &str = "corepipe_%h_%p";
const OWN_FILE: &str = "core_%t_%h_%p.nvcudmp";
/// Without this flag a core has all memory of the GPU, as large as that is.
const NO_MEMORY: &str = "skip_global_memory";

/// Add to a sample what ran on the GPUs of its processes.
pub(crate) fn add(outcome: &mut Outcome) {
    let mut drivers = Vec::new();
    let pids: Vec<i32> = outcome.report.processes.iter().map(|process| process.pid).collect();
    for pid in pids {
        match driver(pid) {
            Ok(driver) => drivers.push(driver),
            Err(why) => outcome.report.gaps.push(Gap::new(format!("a core of the GPU of process {pid}"), why)),
        }
    }
    gpu_trigger::ask(outcome, drivers, IsLeft::Alone);
}

/// The driver in a process; or the reason why it cannot write a core.
fn driver(pid: i32) -> Result<Driver, String> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let environment = std::fs::read(proc.join("environ")).map_err(|error| format!("its environment: {error}"))?;
    let variables: HashMap<String, String> = environment
        .split(|byte| *byte == 0)
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line);
            line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        })
        .collect();
    is_proven(&proc.join("root"), &|name| variables.contains_key(name))?;
    let id = innermost_id(pid).ok_or("its id is not known")?;
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let value = |name: &str| variables.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let filled = |pattern: &str| pattern.replace("%p", &id.to_string()).replace("%h", &host);
    let named = filled(value(PIPE).unwrap_or(OWN_PIPE));
    let pipe = pipe(&proc, &named).ok_or_else(|| match value(TRIGGERED) {
        Some(set) if set != "0" => "its driver has no FIFO for it: CUDA is not initialised, or is older".to_owned(),
        _ => format!("it was not started with {TRIGGERED}=1, as `lockscope run --gpu-core` does"),
    })?;
    if !value(FLAGS).is_some_and(|flags| flags.split(',').any(|flag| flag.trim() == NO_MEMORY)) {
        return Err(format!(
            "it was started without {NO_MEMORY} in {FLAGS}: its core would have all memory of the GPU"
        ));
    }
    let file = filled(value(FILE).unwrap_or(OWN_FILE));
    let (folder, name) = file.rsplit_once('/').map_or(("", file.as_str()), |(folder, name)| (folder, name));
    let start = if file.starts_with('/') { "root" } else { "cwd" };
    let folder = proc.join(start).join(folder.trim_start_matches('/'));
    let core =
        CoreName::within(&folder, name).map_err(|error| format!("the folder where it would be written: {error}"))?;
    Ok(Driver { id, pids: vec![pid], pipe, core })
}

/// The descriptor of a process that is the FIFO of this name.
fn pipe(proc: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(proc.join("fd")).ok()?;
    let file = name.rsplit('/').next()?;
    let mut descriptors = entries.flatten().take(MOST_ENTRIES).map(|entry| entry.path());
    descriptors.find(|descriptor| {
        let target = std::fs::read_link(descriptor).unwrap_or_default();
        target.file_name().is_some_and(|name| name == file)
            && std::fs::metadata(descriptor).is_ok_and(|metadata| metadata.file_type().is_fifo())
    })
}
