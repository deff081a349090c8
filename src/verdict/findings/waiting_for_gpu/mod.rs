//! `waiting-for-gpu`: threads wait for the GPU, and nothing on the CPU stands behind it.
//!
//! In: the judged sample. Out: drafts of the finding, one a process. The GPU's own activity is not seen from here.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::ProcessImage;
use crate::limits::verdict::WAITS_TOLD;
use crate::report::Severity;
use crate::waits::{Party, Wait};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "waiting-for-gpu",
    severity: Severity::Note,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "waiting_for_gpu.py",
        program: include_str!("example.py"),
        command: "python3 waiting_for_gpu.py",
        needs: Requirement::Gpu,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let processes = context.input.image.processes.iter().enumerate();
    processes.filter_map(|(position, process)| of_process(context, position, process)).collect()
}

fn of_process(context: &Context<'_>, position: usize, process: &ProcessImage) -> Option<Draft> {
    let seen = context.input.observations;
    let is_held = |wait: &Wait| seen.holds.iter().any(|hold| hold.resource == wait.resource && hold.is_known());
    let waits: Vec<&Wait> = seen
        .waits
        .iter()
        .filter(|wait| wait.resource.kind.is_gpu() && !is_held(wait))
        .filter(|wait| matches!(wait.waiter, Party::Thread(of, _) if of == position))
        .collect();
    // A core of the GPU says which kernels ran: that is a finding of its own.
    let runs = context.input.gpu_cores.of(position).iter().any(|core| core.kernels().next().is_some());
    if waits.is_empty() || runs {
        return None;
    }
    let names = context.names;
    let told = waits.iter().take(WAITS_TOLD).map(|wait| {
        let how = match (wait.since_ms, wait.spinning) {
            (_, true) => " (it spins)".to_owned(),
            (Some(since), _) => format!(" (for {})", duration(since)),
            (None, _) => String::new(),
        };
        let (who, what) = (names.party(&wait.waiter), names.resource(&wait.resource));
        format!("{who} waits for {what}{}{how}", names.call(&wait.waiter, wait.frame).phrase())
    });
    let mut message = told.collect::<Vec<_>>().join("; ");
    if waits.len() > WAITS_TOLD {
        message += &format!("; and {} more threads", waits.len() - WAITS_TOLD);
    }
    message += ". No thread of the process holds that up.";
    message += &held_up(context, &waits);
    message += &given(context, &waits);
    message += &gpu(context, process);
    Some(Draft {
        message,
        parties: waits.iter().map(|wait| wait.waiter.clone()).collect(),
        resources: waits.iter().map(|wait| wait.resource.clone()).collect(),
        help: help(process),
        ..Draft::default()
    })
}

/// " The first that NCCL was given and has not done is all_reduce #4 of default_pg, by PyTorch's Flight Recorder."
fn given(context: &Context<'_>, waits: &[&Wait]) -> String {
    let known = waits.iter().find_map(|wait| context.input.observations.collective(&wait.resource));
    let Some((known, source)) = known.and_then(|known| Some((known, known.witness.as_ref()?))) else {
        return String::new();
    };
    let number = known.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
    let group = known.group.as_ref().map(|group| format!(" of {group}")).unwrap_or_default();
    format!(" The first that NCCL was given and has not done is {}{number}{group}, by {source}.", known.op)
}

/// " MainThread (5) waits for rwlock 0x.., which launcher (6) may have."
fn held_up(context: &Context<'_>, waits: &[&Wait]) -> String {
    let (seen, names) = (context.input.observations, context.names);
    let by_them = seen.holds.iter().filter(|hold| waits.iter().any(|wait| wait.waiter == hold.holder));
    let told = by_them.filter_map(|hold| {
        let mut others = seen.waits.iter().filter(|wait| wait.resource == hold.resource);
        let first = names.party(&others.next()?.waiter);
        let who = match others.count() {
            0 => format!("{first} waits"),
            more => format!("{first} and {more} more wait"),
        };
        let has = if hold.is_known() { "has" } else { "may have" };
        Some(format!(" {who} for {}, which {} {has}.", names.resource(&hold.resource), names.party(&hold.holder)))
    });
    told.take(WAITS_TOLD).collect()
}

/// " GPU 0 is busy: a kernel ran in 100 % of the last sample."
fn gpu(context: &Context<'_>, process: &ProcessImage) -> String {
    let Some(known) = context.input.gpu else { return String::new() };
    if let Some(why) = &known.missing {
        return format!(" Whether the GPU is busy is not known: {why}.");
    }
    let mut text = String::new();
    for device in known.of(process) {
        let Some(busy) = device.busy_percent else { continue };
        let others = device.processes.iter().filter(|pid| **pid != process.pid).count();
        let shared = if others > 0 { format!(", which {others} other processes use too,") } else { String::new() };
        text += &match busy {
            0 => format!(" GPU {}{shared} is idle: no kernel ran in the last sample.", device.index),
            _ => format!(" GPU {}{shared} is busy: a kernel ran in {busy} % of the last sample.", device.index),
        };
    }
    text
}

/// "1.5 s", "20 s", "3 min".
fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..10_000 => format!("{:.1} s", milliseconds as f64 / 1000.0),
        10_000..180_000 => format!("{} s", milliseconds / 1000),
        _ => format!("{} min", milliseconds / 60_000),
    }
}

/// How to see the GPU's side.
fn help(process: &ProcessImage) -> Vec<String> {
    let pid = process.pid;
    let mut help = Vec::new();
    if process.variable("CUDA_ENABLE_USER_TRIGGERED_COREDUMP").is_some_and(|value| value != "0" && !value.is_empty()) {
        // The driver has it open for reading; without CUDA_COREDUMP_PIPE it is corepipe_HOST_PID (seen with driver 580).
        let named = process.variable("CUDA_COREDUMP_PIPE").filter(|pipe| !pipe.is_empty());
        let is_it = |target: &str| target.contains("corepipe") || named.is_some_and(|pipe| target.ends_with(pipe));
        let open = process.descriptors.iter().find(|descriptor| descriptor.reads && is_it(&descriptor.target));
        let pipe = match open {
            Some(descriptor) => format!("/proc/{pid}/fd/{}", descriptor.number),
            None => {
                let pipe =
                    named.unwrap_or("corepipe_%h_%p").replace("%h", "$(hostname)").replace("%p", &pid.to_string());
                if pipe.starts_with('/') { pipe } else { format!("/proc/{pid}/cwd/{pipe}") }
            }
        };
        help.push(format!(
            "write a core of the GPU: `echo 1 > {pipe}` (the program ends by it, unless CUDA_COREDUMP_GENERATION_FLAGS has \
             skip_abort), then `cuda-gdb -ex 'target cudacore FILE' -ex 'info cuda kernels'`"
        ));
    } else {
        help.push(
            "next time start the program with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1: it can then write a core of the GPU on \
             request"
                .into(),
        );
    }
    help.push(format!(
        "see which kernel runs: `cuda-gdb -p {pid} -batch -ex 'info cuda kernels' -ex 'info cuda warps'` (it stops the \
         program, and starts threads in it)"
    ));
    help
}
