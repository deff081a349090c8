//! The report of one judged look: owned, with ids instead of positions.
//!
//! In: a [`Look`] and its [`Judgement`]. Out: a [`Report`]. It judges nothing and prints nothing.

use super::names::Names;
use super::{Judgement, Look};
use crate::image::Addr;
use crate::report::{self, Report};
use crate::threads::{Frame, FrameKind, role};
use crate::waits::{Party, Scope};

/// Make the report.
pub fn report(look: &Look<'_>, judgement: Judgement, source: report::Source, capture: report::Capture) -> Report {
    let names = Names::new(look);
    let seen = look.observations;
    let mut gaps = look.image.gaps.clone();
    gaps.extend(look.python.iter().flatten().flat_map(|python| python.gaps.iter().cloned()));
    gaps.extend(seen.gaps.iter().cloned());
    gaps.extend(judgement.gaps);
    Report {
        schema: "lockscope.report".into(),
        version: report::VERSION.into(),
        lockscope: env!("CARGO_PKG_VERSION").into(),
        source,
        verdict: judgement.verdict,
        summary: judgement.summary,
        processes: (0..look.image.processes.len()).map(|position| process(look, &names, position)).collect(),
        resources: names.keys().iter().map(|key| resource(look, &names, key)).collect(),
        waits: seen
            .waits
            .iter()
            .map(|wait| {
                let (process, tid, waiter_resource) = party(look, &names, &wait.waiter);
                report::Wait {
                    process,
                    tid,
                    waiter_resource,
                    resource: names.resource_id(&wait.resource),
                    mode: wait.mode.map(String::from),
                    needs: wait.needs,
                    timed: wait.timed,
                    since_ms: wait.since_ms,
                    frame: wait.frame,
                    certainty: wait.certainty,
                    evidence: wait.evidence.clone(),
                }
            })
            .collect(),
        holds: seen
            .holds
            .iter()
            .map(|hold| {
                let (process, tid, _) = party(look, &names, &hold.holder);
                report::Hold {
                    process,
                    tid,
                    gone: hold.gone,
                    resource: names.resource_id(&hold.resource),
                    mode: hold.mode.map(String::from),
                    frame: hold.frame,
                    certainty: hold.certainty,
                    evidence: hold.evidence.clone(),
                }
            })
            .collect(),
        cycles: judgement
            .cycles
            .iter()
            .map(|cycle| report::Cycle {
                certainty: cycle.certainty,
                edges: cycle
                    .edges
                    .iter()
                    .map(|edge| {
                        let (process, waiter, waiter_resource) = party(look, &names, &edge.waiter);
                        let (holder_process, holder, holder_resource) = party(look, &names, &edge.holder);
                        report::Edge {
                            process,
                            waiter,
                            waiter_resource,
                            resource: names.resource_id(&edge.resource),
                            holder_process,
                            holder,
                            holder_resource,
                        }
                    })
                    .collect(),
            })
            .collect(),
        findings: judgement.findings,
        gaps,
        capture,
    }
}

/// Process, thread and resource of a party.
fn party(look: &Look<'_>, names: &Names<'_>, party: &Party) -> (String, Option<i32>, Option<String>) {
    match party {
        Party::Absent(process, 0) => (names.process_id(*process), None, None),
        Party::Thread(process, tid) | Party::Absent(process, tid) => (names.process_id(*process), Some(*tid), None),
        Party::Process(process) => (names.process_id(*process), None, None),
        Party::Resource(key) => (names.process_id(home(look, key)), None, Some(names.resource_id(key))),
    }
}

/// The process in which a resource was seen.
fn home(look: &Look<'_>, key: &crate::waits::ResourceKey) -> usize {
    let described = look.observations.resource(key);
    described.map_or(if let Scope::Process(process) = key.scope { process } else { 0 }, |resource| resource.process)
}

fn resource(look: &Look<'_>, names: &Names<'_>, key: &crate::waits::ResourceKey) -> report::Resource {
    let described = look.observations.resource(key);
    let label = described.map_or_else(|| names.resource(key), |resource| resource.label.clone());
    let state = described.map(|resource| resource.state.as_slice()).unwrap_or_default();
    report::Resource {
        id: names.resource_id(key),
        kind: key.kind.name.into(),
        process: names.process_id(home(look, key)),
        address: hex(key.address),
        label,
        state: state.iter().map(|(name, value)| (name.to_string(), (*value).into())).collect(),
    }
}

fn process(look: &Look<'_>, names: &Names<'_>, position: usize) -> report::Process {
    let image = &look.image.processes[position];
    let threads = image.threads.iter().map(|thread| {
        let merged = names.thread(position, thread.tid);
        report::Thread {
            tid: thread.tid,
            ns_tid: thread.ns_tid,
            name: merged.map_or(&thread.name, |merged| &merged.name).clone(),
            os_name: thread.name.clone(),
            role: merged.and_then(|merged| role(merged, &thread.name)).map(str::to_owned),
            state: thread.state.as_str().into(),
            frames: merged.map(|merged| merged.frames.iter().map(frame).collect()).unwrap_or_default(),
            working: None,
        }
    });
    report::Process {
        id: names.process_id(position),
        pid: image.pid,
        exe: image.exe.as_ref().map(|path| path.display().to_string()),
        cmdline: image.cmdline.clone(),
        parent: image.parent,
        python: look.python.get(position).and_then(Option::as_ref).map(|python| report::PythonInfo {
            version: format!("{}.{}.{}", python.version.0, python.version.1, python.version.2),
            free_threaded: python.free_threaded,
        }),
        cuda: cuda(look, position),
        threads: threads.collect(),
    }
}

/// Driver and runtime by the libraries that are mapped.
fn cuda(look: &Look<'_>, position: usize) -> Option<report::CudaInfo> {
    let mut libraries = look.observations.cuda.iter().filter(|library| library.process == position).peekable();
    libraries.peek()?;
    let (mut libcuda, mut libcudart) = (None, None);
    for library in libraries {
        *if library.is_driver() { &mut libcuda } else { &mut libcudart } = library.version.clone();
    }
    Some(report::CudaInfo { libcuda, libcudart, kernel_driver: look.image.kernel.gpu_driver.clone() })
}

fn frame(frame: &Frame) -> report::Frame {
    let kind = match frame.kind {
        FrameKind::Native => "native",
        FrameKind::Inline => "inline",
        FrameKind::Python => "python",
        FrameKind::Boundary => "boundary",
    };
    report::Frame {
        kind: kind.into(),
        function: frame.function.clone(),
        module: frame.module.clone(),
        file: frame.file.clone(),
        line: frame.line,
        pc: frame.pc.map(|pc| pc.to_string()),
        trust: frame.trust.map(|trust| trust.as_str().into()),
        module_offset: frame.module_offset.map(|offset| format!("{offset:#x}")),
        locals: frame.locals.clone(),
    }
}

fn hex(address: Addr) -> Option<String> {
    (!address.is_null()).then(|| address.to_string())
}
