//! The report of one judged sample: owned, with ids instead of positions.
//!
//! In: a [`JudgeInput`] and its [`Judgement`]. Out: a [`Report`]. It judges nothing and prints nothing.

use std::collections::{HashMap, HashSet};

use super::frames::{self, ThreadFrames};
use super::names::Names;
use super::{JudgeInput, Judgement, call_sites};
use crate::gpu::{GpuCore, Kernel, SourceLine};
use crate::image::gpu::Heard;
use crate::image::launch::Connection;
use crate::image::{Addr, ProcessImage, TaskState, ThreadImage};
use crate::launcher::{self, JobEngine};
use crate::limits::live::MOST_ANCESTORS;
use crate::limits::verdict::SOURCES_TOLD;
use crate::report::{self, Report};
use crate::threads::{FrameKind, Role};
use crate::waits::kinds::Topic;
use crate::waits::{Observations, Party, ResourceKey, Scope, Wait, WakeSource, Waker};

/// Make the report; `written` is what it says of frames, where that is known already.
pub(crate) fn report(
    input: &JudgeInput<'_>,
    judgement: Judgement,
    written: Option<Vec<Vec<ThreadFrames>>>,
    source: report::Source,
    capture: report::Capture,
) -> Report {
    let names = Names::new(input);
    let seen = input.observations;
    let mut gaps = input.image.gaps.clone();
    gaps.extend(input.python.iter().flatten().flat_map(|python| python.gaps.iter().cloned()));
    gaps.extend(seen.gaps.iter().cloned());
    gaps.extend(judgement.gaps);
    let callbacks = Callbacks::of(input, &names);
    let wakers = Wakers::of(seen);
    let roles = &judgement.roles;
    let mut written =
        written.unwrap_or_else(|| input.threads.iter().map(|threads| frames::all(threads)).collect()).into_iter();
    let process = |position| process(input, &names, roles, position, written.next().unwrap_or_default());
    Report {
        schema: "lockscope.report".into(),
        version: report::VERSION.into(),
        lockscope: env!("CARGO_PKG_VERSION").into(),
        source,
        host: input.image.taken.as_ref().map(|taken| taken.host.clone()),
        verdict: judgement.verdict,
        summary: judgement.summary,
        sentence: judgement.sentence,
        scenes: Vec::new(),
        foremost: judgement.foremost.iter().filter_map(|party| names.reference(party)).collect(),
        awaited: judgement.awaited.iter().map(|key| names.resource_id(key)).collect(),
        processes: (0..input.image.processes.len()).map(process).collect(),
        resources: names.keys().iter().map(|key| resource(input, &names, key)).collect(),
        waits: seen
            .waits
            .iter()
            .map(|wait| {
                let (process, tid, waiter_resource) = party(&names, &wait.waiter);
                report::Wait {
                    process,
                    tid,
                    waiter_resource,
                    resource: names.resource_id(&wait.resource),
                    mode: wait.mode.map(String::from),
                    needs: wait.needs,
                    timed: wait.timed,
                    retried: wait.retried,
                    since_ms: wait.since_ms,
                    frame: wait.frame,
                    at: call_site(&names, &wait.waiter, wait.frame),
                    place: wait.place.clone(),
                    callback: callbacks.of_wait(&names, wait),
                    certainty: wait.certainty,
                    proof: wait.proof(),
                    evidence: wait.evidence.clone(),
                    by_holders_alone: !wakers.may_end(seen, wait),
                    could_end: wakers.that_go_on(seen, wait),
                }
            })
            .collect(),
        holds: seen
            .holds
            .iter()
            .map(|hold| {
                let (process, tid, holder_resource) = party(&names, &hold.holder);
                report::Hold {
                    process,
                    tid,
                    holder_resource,
                    holder_rank: None,
                    gone: hold.gone,
                    not_captured: hold.gone.is_none() && matches!(hold.holder, Party::Absent(..)),
                    resource: names.resource_id(&hold.resource),
                    mode: hold.mode.map(String::from),
                    frame: hold.frame,
                    taken: hold.taken.clone(),
                    since_ms: hold.since_ms,
                    source: hold.source,
                    at: call_site(&names, &hold.holder, hold.frame),
                    certainty: hold.strength.certainty(),
                    proof: hold.proof(),
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
                        let (process, waiter, waiter_resource) = party(&names, &edge.waiter);
                        let (holder_process, holder, holder_resource) = party(&names, &edge.holder);
                        report::Edge {
                            process,
                            waiter,
                            waiter_resource,
                            resource: names.resource_id(&edge.resource),
                            holder_process,
                            holder,
                            holder_resource,
                            proof: edge.proof(seen),
                        }
                    })
                    .collect(),
            })
            .collect(),
        victims: judgement.victims.iter().filter_map(|party| names.reference(party)).collect(),
        victim_resources: judgement.victims.iter().filter_map(|party| names.id_if_resource(party)).collect(),
        findings: judgement.findings,
        gaps,
        job: None,
        made_to_happen: None,
        nccl_ras: input.gpu.into_iter().flat_map(|gpu| &gpu.heard).map(nccl_ras).collect(),
        capture,
    }
}

fn nccl_ras(heard: &Heard) -> report::NcclRas {
    report::NcclRas { address: heard.address.clone(), communicators: heard.answer.communicators.clone() }
}

/// The call site of this frame.
fn call_site(names: &Names<'_>, party: &Party, frame: Option<usize>) -> report::CallSite {
    frame.map_or_else(Default::default, |frame| call_sites::call_site(names.frames(party), frame))
}

/// The wake sources of each resource.
struct Wakers<'a>(HashMap<&'a ResourceKey, Vec<&'a WakeSource>>);

impl<'a> Wakers<'a> {
    fn of(seen: &'a Observations) -> Wakers<'a> {
        let mut by_resource: HashMap<&ResourceKey, Vec<&WakeSource>> = HashMap::new();
        for wake_source in &seen.wake_sources {
            by_resource.entry(&wake_source.resource).or_default().push(wake_source);
        }
        Wakers(by_resource)
    }

    /// The wake sources of a wait.
    fn for_wait(&self, wait: &Wait) -> impl Iterator<Item = &'a WakeSource> {
        let sources = self.0.get(&wait.resource).map(Vec::as_slice).unwrap_or_default().iter().copied();
        sources.filter(|one| one.is_for(&wait.waiter))
    }

    /// Sentences about the first sources of a wait that are not known to wait themselves.
    fn that_go_on(&self, seen: &Observations, wait: &Wait) -> Vec<String> {
        let lasts = |party: &Party| seen.waits.iter().any(|own| own.waiter == *party && own.has_one_end());
        let going = self
            .for_wait(wait)
            .filter(|one| !matches!(&one.by, Waker::Party(party) if *party == wait.waiter || lasts(party)));
        going.map(|one| one.what.clone()).take(SOURCES_TOLD).collect()
    }

    /// Whether something beside its holders may end a wait, unless somebody requests that.
    fn may_end(&self, seen: &Observations, wait: &Wait) -> bool {
        let is_holder = |party: &Party| {
            let of = |holder: &Party| match (holder, party) {
                (Party::Process(own), Party::Thread(process, _)) => own == process,
                (holder, party) => holder == party,
            };
            seen.holds.iter().any(|hold| hold.resource == wait.resource && of(&hold.holder))
        };
        self.for_wait(wait).any(|one| match &one.by {
            Waker::ByItself => true,
            Waker::OnRequest => false,
            Waker::Party(party) => *party != wait.waiter && !is_holder(party),
        })
    }
}

/// The outermost frames at which threads took what others wait for.
struct Callbacks<'a>(HashMap<&'a Party, usize>);

impl<'a> Callbacks<'a> {
    fn of(input: &JudgeInput<'a>, names: &Names<'_>) -> Callbacks<'a> {
        let wanted: HashSet<&ResourceKey> = input.observations.waits.iter().map(|wait| &wait.resource).collect();
        let holds =
            input.observations.holds.iter().filter(|hold| hold.gone.is_none() && wanted.contains(&hold.resource));
        let mut outermost = HashMap::new();
        for hold in holds {
            let native =
                |frame: &usize| names.frames(&hold.holder).get(*frame).is_some_and(|f| f.kind != FrameKind::Python);
            if let Some(frame) = hold.frame.filter(native) {
                let known = outermost.entry(&hold.holder).or_insert(frame);
                *known = frame.max(*known);
            }
        }
        Callbacks(outermost)
    }

    fn of_wait(&self, names: &Names<'_>, wait: &Wait) -> Option<report::Callback> {
        let taken = *self.0.get(&wait.waiter)?;
        call_sites::callback(names.frames(&wait.waiter), wait.frame?, taken, wait.resource.kind.topic == Topic::Gil)
    }
}

/// Process, thread and resource of a party.
fn party(names: &Names<'_>, party: &Party) -> (String, Option<i32>, Option<String>) {
    match party {
        Party::Absent(process, 0) => (names.process_id(*process), None, None),
        Party::Thread(process, tid) | Party::Absent(process, tid) => (names.process_id(*process), Some(*tid), None),
        Party::Process(process) => (names.process_id(*process), None, None),
        Party::Resource(key) => (names.process_id(home(names, key)), None, Some(names.resource_id(key))),
    }
}

/// The process in which a resource was seen.
fn home(names: &Names<'_>, key: &ResourceKey) -> usize {
    names
        .described(key)
        .map_or(if let Scope::Process(process) = key.scope { process } else { 0 }, |resource| resource.process)
}

fn resource(input: &JudgeInput<'_>, names: &Names<'_>, key: &ResourceKey) -> report::Resource {
    let described = names.described(key);
    let parts = names.label(key);
    let state = described.map(|resource| resource.state.as_slice()).unwrap_or_default();
    let words = state.iter().map(|(name, value)| (name.to_string(), (*value).into()));
    let collective = input.observations.collective(key).and_then(|collective| serde_json::to_value(collective).ok());
    let collective = match collective {
        Some(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    report::Resource {
        id: names.resource_id(key),
        kind: key.kind.name.into(),
        process: names.process_id(home(names, key)),
        address: hex(key.address),
        label: parts.to_string(),
        parts,
        state: words.chain(collective).collect(),
    }
}

fn process(
    input: &JudgeInput<'_>,
    names: &Names<'_>,
    roles: &[Vec<Option<&'static Role>>],
    position: usize,
    written: Vec<ThreadFrames>,
) -> report::Process {
    let image = &input.image.processes[position];
    let merged = input.threads.get(position).map(Vec::as_slice).unwrap_or_default();
    let roles = roles.get(position).map(Vec::as_slice).unwrap_or_default();
    let roles: HashMap<i32, &Role> =
        merged.iter().zip(roles).filter_map(|(thread, role)| Some((thread.tid, (*role)?))).collect();
    let mut clusters = input.observations.clusters.iter();
    let cluster = clusters.find(|(of, _)| *of == position).map(|(_, member)| member.clone());
    let mut written: HashMap<i32, ThreadFrames> = merged.iter().map(|thread| thread.tid).zip(written).collect();
    let thread = |one: &ThreadImage| {
        let role = roles.get(&one.tid).copied();
        thread(input, names, position, one, role, written.remove(&one.tid).unwrap_or_default())
    };
    let threads = image.threads.iter().map(thread).collect();
    report::Process {
        id: names.process_id(position),
        pid: image.pid,
        exe: image.exe.as_ref().map(|path| path.display().to_string()),
        cmdline: image.cmdline.clone(),
        parent: image.parent,
        python: input.python.get(position).and_then(Option::as_ref).map(|python| report::PythonInfo {
            version: format!("{}.{}.{}", python.version.0, python.version.1, python.version.2),
            free_threaded: python.free_threaded,
        }),
        cuda: cuda(input, position),
        identity: identity(image)
            .map(|identity| of_job(identity, cluster.as_ref()))
            .map(|identity| of_group(input, position, identity)),
        cluster,
        sockets: image.launch.connections.iter().map(connection).collect(),
        enqueued: input.observations.enqueued.iter().filter(|(of, _)| *of == position).map(enqueued).collect(),
        gpus: input.gpu_cores.of(position).iter().flat_map(gpus).collect(),
        threads,
    }
}

fn thread(
    input: &JudgeInput<'_>,
    names: &Names<'_>,
    process: usize,
    thread: &ThreadImage,
    role: Option<&Role>,
    written: ThreadFrames,
) -> report::Thread {
    let merged = names.thread(process, thread.tid);
    report::Thread {
        tid: thread.tid,
        ns_tid: thread.ns_tid,
        name: merged.map_or(&thread.name, |merged| &merged.name).clone(),
        os_name: thread.name.clone(),
        role: role.map(|role| role.phrase.to_owned()),
        state: state(thread.state),
        at: written.at,
        frames: written.frames,
        working: None,
        cuda_error: cuda_error(input, process, thread.tid),
        cuda_call: cuda_call(input, process, thread.tid),
    }
}

/// The error that CUDA's runtime keeps for a thread.
fn cuda_error(input: &JudgeInput<'_>, position: usize, tid: i32) -> Option<report::CudaError> {
    let party = Party::Thread(position, tid);
    let kept = input.observations.last_errors.iter().find(|kept| kept.thread == party)?;
    Some(report::CudaError { number: kept.error.number, name: kept.error.name() })
}

/// The last call into CUDA's driver that the recorder saw of a thread.
fn cuda_call(input: &JudgeInput<'_>, position: usize, tid: i32) -> Option<report::CudaCall> {
    let party = Party::Thread(position, tid);
    let call = input.observations.driver_calls.iter().find(|call| call.thread == party)?;
    let error = |(number, function, since_ms): &(u32, String, Option<u64>)| report::CudaCallError {
        number: *number,
        function: function.clone(),
        since_ms: *since_ms,
    };
    Some(report::CudaCall {
        function: call.function.clone(),
        arguments: call.arguments.iter().map(|word| format!("{word:#x}")).collect(),
        since_ms: call.since_ms,
        result: call.result,
        error: call.error.as_ref().map(error),
    })
}

/// A process of a cluster that runs several jobs knows its own job, and no launcher names it.
fn of_job(mut identity: report::Identity, cluster: Option<&report::ClusterMember>) -> report::Identity {
    if let Some(cluster) = cluster.filter(|cluster| cluster.job.is_some() && identity.job.is_none()) {
        identity.job = Some(report::Job { engine: cluster.engine, id: cluster.job.clone(), step: None });
    }
    identity
}

/// A rank that no launcher's variable names is known by its back end's object. If its parent has the same object, the
/// process was forked there, and helps that rank.
fn of_group(input: &JudgeInput<'_>, position: usize, mut identity: report::Identity) -> report::Identity {
    let by_objects =
        |position: usize| input.observations.ranks.iter().find(|(of, _)| *of == position).map(|(_, rank)| *rank);
    let Some(own) = by_objects(position).filter(|_| identity.rank.is_none()) else { return identity };
    identity.job = Some(report::Job { engine: JobEngine::Torch, id: None, step: None });
    (identity.rank, identity.size) = (Some(own.rank), Some(own.size));
    let mut at = position;
    for _ in 0..MOST_ANCESTORS {
        let parent = input.image.processes.get(at).and_then(|image| image.parent);
        let above = input.image.processes.iter().position(|image| Some(image.pid) == parent);
        let Some(above) = above.filter(|above| *above != at) else { break };
        identity.helper |= by_objects(above) == Some(own);
        at = above;
    }
    identity
}

fn enqueued((_, one): &(usize, crate::waits::collective::Enqueued)) -> report::Enqueued {
    report::Enqueued {
        backend: one.backend.clone(),
        group: one.group.clone(),
        last: one.last,
        op: one.op.clone(),
        over: one.over,
        size: one.size,
    }
}

/// The identity of a process in its job; `None` if the capture has no data on it, such as a core.
fn identity(image: &ProcessImage) -> Option<report::Identity> {
    let membership = launcher::membership(&image.environment);
    if membership.is_none() && image.launch.namespaces.pid.is_none() {
        return None;
    }
    let main = image.thread(image.pid);
    let mut identity = report::Identity {
        ns_pid: image.ns_pid,
        namespaces: image.launch.namespaces,
        start_ticks: main.and_then(|main| main.start_ticks),
        launcher: image.launch.launcher,
        addresses: image.launch.addresses.clone(),
        ..report::Identity::default()
    };
    if let Some(membership) = membership {
        identity.job = Some(membership.job);
        identity.rank = Some(membership.rank);
        identity.size = membership.size;
        identity.attempt = membership.attempt;
        identity.local_rank = membership.local_rank;
        identity.local_size = membership.local_size;
        identity.helper = image.launch.inherited_rank;
    }
    Some(identity)
}

fn connection(connection: &Connection) -> report::Connection {
    report::Connection {
        fd: connection.descriptor,
        local: connection.local.to_string(),
        remote: connection.remote.to_string(),
        state: connection.state().to_owned(),
        unread: connection.unread,
        unsent: connection.unsent,
        bytes: connection.bytes,
    }
}

/// The GPUs of a core that the process used.
fn gpus(core: &GpuCore) -> impl Iterator<Item = report::Gpu> {
    let used = core.devices.iter().filter(|device| !device.contexts.is_empty() || !device.kernels.is_empty());
    used.map(|device| report::Gpu {
        device: device.number,
        name: device.name.clone(),
        architecture: device.architecture.clone(),
        multiprocessors: device.multiprocessors,
        driver: core.driver.clone(),
        core: core.path.clone(),
        kernels: device.kernels.iter().map(gpu_kernel).collect(),
        errors: device
            .errors
            .iter()
            .map(|error| report::GpuError {
                what: error.what.clone(),
                kernel: error.kernel.clone(),
                address: error.address.map(|address| Addr(address).to_string()),
                lines: gpu_lines(&error.lines),
                threads: error.threads,
            })
            .collect(),
    })
}

/// A kernel, as the report has it.
pub(super) fn gpu_kernel(kernel: &Kernel) -> report::GpuKernel {
    report::GpuKernel {
        name: kernel.name.clone(),
        symbol: kernel.symbol.clone(),
        launch: kernel.number,
        context: Addr(kernel.context).to_string(),
        status: kernel.status.as_str().into(),
        from_gpu: kernel.from_gpu,
        grid: kernel.grid,
        block: kernel.block,
        cluster: kernel.cluster,
        arguments: kernel.arguments.iter().map(|word| Addr(*word).to_string()).collect(),
        collective: kernel.collective.clone().map(|collective| report::GpuCollective {
            operation: collective.operation,
            reduction: collective.reduction,
            element: collective.element,
            algorithm: collective.algorithm,
            protocol: collective.protocol,
        }),
        blocks: kernel.seen.blocks,
        warps: kernel.seen.warps,
        threads: kernel.seen.threads,
        places: kernel
            .places
            .iter()
            .map(|place| report::GpuPlace {
                function: place.function.clone(),
                lines: gpu_lines(&place.lines),
                calls: gpu_lines(&place.calls),
                addresses: place.addresses.iter().map(|address| Addr(*address).to_string()).collect(),
                blocks: place.seen.blocks,
                warps: place.seen.warps,
                threads: place.seen.threads,
                example_block: place.example.0,
                example_thread: place.example.1,
            })
            .collect(),
    }
}

fn gpu_lines(lines: &[SourceLine]) -> Vec<report::GpuLine> {
    let line = |line: &SourceLine| report::GpuLine {
        function: line.function.clone(),
        file: line.file.clone(),
        line: line.line,
    };
    lines.iter().map(line).collect()
}

/// Driver and runtime by the libraries that are mapped.
fn cuda(input: &JudgeInput<'_>, position: usize) -> Option<report::CudaInfo> {
    let mut libraries = input.observations.cuda.iter().filter(|library| library.process == position).peekable();
    libraries.peek()?;
    let (mut libcuda, mut libcudart) = (None, None);
    for library in libraries {
        *if library.is_driver() { &mut libcuda } else { &mut libcudart } = library.version.clone();
    }
    Some(report::CudaInfo { libcuda, libcudart, kernel_driver: input.image.kernel.gpu_driver.clone() })
}

fn state(state: TaskState) -> report::ThreadState {
    match state {
        TaskState::Running => report::ThreadState::Running,
        TaskState::Sleeping => report::ThreadState::Sleeping,
        TaskState::DiskSleep => report::ThreadState::DiskSleep,
        TaskState::Stopped => report::ThreadState::Stopped,
        TaskState::Traced => report::ThreadState::Traced,
        TaskState::Zombie => report::ThreadState::Zombie,
        TaskState::Other => report::ThreadState::Other,
    }
}

fn hex(address: Addr) -> Option<String> {
    (!address.is_null()).then(|| address.to_string())
}
