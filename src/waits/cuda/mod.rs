//! The CUDA layer: threads that wait for the GPU, what stands between them and it, and the driver's own locks.
//!
//! In: the stacks of a process and the observations of the families below. Out: waits for streams, events and the
//! device, also by threads that spin instead of sleeping. The holders of these are the threads that run a host
//! function, which the GPU waits for. Only a core of the GPU shows the work on the GPU itself (`kernels`). Otherwise,
//! where nothing on the CPU stands behind a wait, the chain ends at the GPU.

pub(crate) mod calls;
pub(crate) mod driver;
mod driver_locks;
pub(crate) mod kernels;
mod last_error;
mod libraries;
mod lost_device;
mod queued;
mod stacks;

use std::cell::OnceCell;

use crate::arch::system_calls::SCHED_YIELD;
use crate::code::Code;
use crate::image::gpu::has_device_file;
use crate::image::{Addr, TaskState};
use crate::waits::blocked_on::{BlockedOn, Ownership, ThreadWait};
use crate::waits::circumstances::CudaLibrary;
use crate::waits::family::{Family, Registered};
use crate::waits::holders::{Blocked, exact_hold};
use crate::waits::kinds::{self, Kind};
use crate::waits::label::Label;
use crate::waits::model::{Certainty, Hold, Needs, Party, Resource, ResourceKey, Role, Scope, Strength};
use crate::waits::observations::Observations;
use crate::waits::thread::{Process, ThreadView};
use calls::On;
use libraries::Libraries;
use stacks::{Entry, Stack};

/// The name that the driver gives its event thread when it is initialised (driver 580).
pub(crate) const EVENT_THREAD: &str = "cuda-EvtHandlr";

/// The rule that finds the thread which can end a wait for the GPU: it runs a host function that the GPU waits for.
#[derive(Debug)]
struct HostFunctions;

/// The family's data about one process.
#[derive(Debug, Default)]
struct Kept {
    libraries: OnceCell<Libraries>,
    stacks: OnceCell<Vec<Stack>>,
}

/// The family.
#[derive(Debug)]
struct Cuda(Vec<Kept>);

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered {
    kinds: &[kinds::CUDA_STREAM, kinds::CUDA_EVENT, kinds::CUDA_DEVICE, kinds::CUDA_KERNEL, kinds::CUDA_DRIVER_WORK],
    open,
};

/// Open the family.
fn open<'s>(processes: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    Box::new(Cuda(processes.iter().map(|_| Kept::default()).collect()))
}

impl Cuda {
    /// Libraries of CUDA that are on stacks; `None` of a process that is none of the sample's.
    fn libraries(&self, process: &Process<'_>) -> Option<&Libraries> {
        let kept = self.0.get(process.context.process)?;
        Some(kept.libraries.get_or_init(|| Libraries::find(&process.context)))
    }

    /// The CUDA activity of each thread, in the order of the threads; empty without CUDA.
    fn stacks(&self, process: &Process<'_>) -> &[Stack] {
        let (Some(kept), Some(libraries)) = (self.0.get(process.context.process), self.libraries(process)) else {
            return &[];
        };
        kept.stacks.get_or_init(|| {
            let read = |thread| stacks::read(process, libraries, thread);
            if libraries.is_empty() { Vec::new() } else { process.threads.iter().map(read).collect() }
        })
    }
}

impl Family for Cuda {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        let stacks = self.stacks(process);
        let stack = stacks.get(thread.position)?;
        let idle = stack.is_drivers_own && stack.host_function.is_none();
        match (&stack.entry, below) {
            (_, Some(below)) if idle => own_work(process, thread, below),
            (Some(entry), Some(below)) if is_lock(below) => Some(named_lock(entry, below)),
            (Some(entry), _) => for_gpu(process, stacks, thread, entry, below),
            _ => None,
        }
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for (position, process) in blocked.processes().iter().enumerate() {
            let mapped = driver::mapped(&process.context);
            let others = self.libraries(process).into_iter().flat_map(|libraries| libraries.names(&process.context));
            let others = others.filter(|name| mapped.iter().all(|known| known.name != *name));
            let others =
                others.map(|name| CudaLibrary { process: position, name: name.to_owned(), ..CudaLibrary::default() });
            out.cuda.extend(others);
            out.cuda.extend(mapped);
        }
        for (wait, HostFunctions) in blocked.by_rule() {
            let process = blocked.process(wait);
            host_functions(process, self.stacks(process), wait, out);
            kernels::running(process, wait, out);
            lost_device::no_end(process, wait, out);
            if let Some(entry) = self.stacks(process).get(wait.thread).and_then(|stack| stack.entry.as_ref())
                && let Some(thread) = process.threads.get(wait.thread)
            {
                out.queued.extend(queued::before(process, thread, entry.native));
            }
        }
        for process in blocked.processes() {
            kernels::words(process, out);
            out.last_errors.extend(last_error::of_threads(process));
        }
        driver_locks::refine(blocked, |process| self.stacks(process), out);
    }

    /// A thread of the driver's own runs code of the program only once work of the GPU is done that comes before it.
    fn idle(&self, process: &Process<'_>, thread: usize) -> Option<String> {
        let stack = self.stacks(process).get(thread)?;
        let is_idle = stack.is_drivers_own && stack.host_function.is_none() && runs_kernels(process) == Some(false);
        is_idle.then(|| "is of the CUDA driver, which has nothing to call back for: no kernel runs".into())
    }
}

/// Whether the families below found a lock with owners.
fn is_lock(below: &BlockedOn) -> bool {
    [kinds::PTHREAD_RWLOCK, kinds::PTHREAD_MUTEX, kinds::GIL].contains(&below.resource.key.kind)
}

/// A thread that the driver made waits for the driver's own work: whatever it polls says nothing about the program.
fn own_work(process: &Process<'_>, thread: &ThreadView<'_>, below: &BlockedOn) -> Option<BlockedOn> {
    if is_lock(below) {
        return None;
    }
    let scope = Scope::System(format!("cuda-work:{}:{}", process.context.process, thread.image.tid));
    let resource = Resource {
        key: ResourceKey { kind: kinds::CUDA_DRIVER_WORK, scope, address: Addr(0) },
        process: process.context.process,
        label: "work for the CUDA driver".into(),
        state: Vec::new(),
        role: Some(Role::IdleWork),
    };
    let evidence = vec!["the CUDA driver made this thread, and it waits in the driver's own code".to_owned()];
    Some(BlockedOn { needs: Needs::Any, ..below.refined(resource, &["poll", "epoll", "pthread_", "sem_"], evidence) })
}

/// A lock of the driver's own has no name: the call that takes it says most.
fn named_lock(entry: &Entry, below: &BlockedOn) -> BlockedOn {
    let mut better = below.clone();
    let label = &mut better.resource.label;
    if label.name.is_none() && below.resource.key.kind != kinds::GIL {
        label.function = Some(entry.name.clone());
    }
    better
}

/// A wait for the GPU: asleep in the driver on something without an owner, or spinning there.
fn for_gpu(
    process: &Process<'_>,
    stacks: &[Stack],
    thread: &ThreadView<'_>,
    entry: &Entry,
    below: Option<&BlockedOn>,
) -> Option<BlockedOn> {
    let call = calls::call(&entry.name);
    // Where the driver has no device, a thread inside it works.
    if !call.is_some_and(|call| call.only_waits) && !has_device(process, stacks) {
        return None;
    }
    let asleep =
        below.filter(|below| below.call.is_none_or(|call| call.row(process.architecture()) != Some(&SCHED_YIELD)));
    let spins = asleep.is_none();
    let runs = thread.image.state == TaskState::Running && thread.image.registers.is_some();
    if spins && below.is_none() && !runs {
        return None;
    }
    let mut evidence = Vec::new();
    match (asleep, below) {
        (Some(below), _) => {
            const WITHOUT_OWNER: [&Kind; 9] = [
                kinds::FUTEX,
                kinds::SEMAPHORE,
                kinds::PTHREAD_COND,
                kinds::TIMER,
                kinds::EVENTFD,
                kinds::DESCRIPTOR,
                kinds::SIGNAL,
                kinds::EVENTS,
                kinds::SYSTEM_CALL,
            ];
            if !WITHOUT_OWNER.contains(&below.resource.key.kind)
                || below.also.iter().any(|one| one.resource.key.kind == kinds::PIPE)
            {
                return None;
            }
            evidence.push(format!("it sleeps in {} on {}", entry.name, below.resource.label));
            evidence.extend(below.evidence.iter().cloned());
        }
        (None, Some(_)) => evidence.push(format!("it calls sched_yield again and again inside {}", entry.name)),
        (None, None) => evidence.push(format!("it spins inside {}: on a CPU, in no system call", entry.name)),
    }
    evidence.extend(collective(process, thread, entry));
    evidence.extend(without_kernels(process));
    let on = call.map_or(On::Device, |call| call.on);
    let resource = resource(process, thread, entry, on, &mut evidence);
    let certainty = match call {
        Some(call) if call.only_waits => Certainty::Exact,
        _ if spins => {
            evidence.push("the call works at times and waits at others: it was in the same place in each look".into());
            Certainty::Inferred
        }
        _ => Certainty::Inferred,
    };
    Some(BlockedOn {
        certainty,
        spinning: spins,
        transient: false,
        // Where the driver sleeps with a time-out it checks repeatedly.
        timed: false,
        at: thread.merged(entry.native),
        ownership: Ownership::private(HostFunctions),
        ..BlockedOn::of(resource, below, evidence)
    })
}

/// Evidence from a core of the GPU without running kernels: then the thread waits for something else.
fn without_kernels(process: &Process<'_>) -> Option<String> {
    let cores = process.context.gpu_cores;
    let idle = !cores.is_empty() && cores.iter().all(|core| core.kernels().next().is_none());
    idle.then(|| {
        "the GPU core has no kernel of this process: the GPU waits for a value in memory, an event, a host function or another \
         device, or had ended"
            .to_owned()
    })
}

/// The collective of NCCL that made the call, with its communicator.
fn collective(process: &Process<'_>, thread: &ThreadView<'_>, entry: &Entry) -> Option<String> {
    /// Where the communicator stands among the arguments (nccl.h 2.28).
    const COLLECTIVES: [(&str, usize); 7] = [
        ("ncclAllReduce", 5),
        ("ncclBroadcast", 5),
        ("ncclBcast", 4),
        ("ncclAllGather", 4),
        ("ncclReduceScatter", 5),
        ("ncclSend", 4),
        ("ncclRecv", 4),
    ];
    let calls = thread.names(usize::MAX).filter(|(native, _)| *native > entry.native);
    let of_nccl = |name: &str| COLLECTIVES.iter().find(|(known, _)| known == &name);
    let (native, (name, argument)) = calls.filter_map(|(native, name)| Some((native, of_nccl(name)?))).last()?;
    let code = Code::new(process.context.image, process.context.symbols);
    let communicator = code.parameter(&thread.thread?.native.frames, native, *argument);
    let communicator = communicator.map(|at| format!(" with the communicator {}", Addr(at))).unwrap_or_default();
    Some(format!("it was called by {name}{communicator}"))
}

/// Whether the driver was initialised with a device: its file is mapped, or a thread of the driver's lives.
fn has_device(process: &Process<'_>, stacks: &[Stack]) -> bool {
    let image = process.context.image;
    has_device_file(&image.mappings)
        || image.threads.iter().any(|thread| thread.name == EVENT_THREAD)
        || stacks.iter().any(|stack| stack.is_drivers_own)
}

/// The stream, event or device that a call waits for.
fn resource(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    entry: &Entry,
    on: On,
    evidence: &mut Vec<String>,
) -> Resource {
    let position = process.context.process;
    let (kind, noun, argument) = match on {
        On::Stream(argument) => (kinds::CUDA_STREAM, "CUDA stream", Some(argument)),
        On::Event(argument) => (kinds::CUDA_EVENT, "CUDA event", Some(argument)),
        On::Device => (kinds::CUDA_DEVICE, "the GPU", None),
    };
    let code = Code::new(process.context.image, process.context.symbols);
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let handle = argument.and_then(|number| code.parameter(frames, entry.native, number)).map(Addr);
    let (scope, label): (Scope, Label) = match (argument, handle) {
        (None, _) => (Scope::Process(position), Label::from(noun).with_detail(Some("all work of the context"))),
        (Some(_), None) => {
            // The stream or event is unknown, so the resource belongs to this thread alone.
            let own = format!("{kind}:{position}:{}", thread.image.tid);
            (Scope::System(own), format!("a {noun}").into())
        }
        // The handles 0, 1 and 2 are the default streams (cuda.h: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD).
        (Some(_), Some(Addr(0..=2))) if kind == kinds::CUDA_STREAM => {
            (Scope::Process(position), "the default CUDA stream".into())
        }
        (Some(number), Some(handle)) => {
            evidence.push(format!("argument {} of {} is {handle}", number + 1, entry.name));
            (Scope::Process(position), Label::from(noun).at(handle))
        }
    };
    let address = handle.filter(|handle| handle.0 > 2).unwrap_or_default();
    Resource { key: ResourceKey { kind, scope, address }, process: position, label, state: Vec::new(), role: None }
}

/// Threads that run a host function: the GPU goes on when it returns.
fn host_functions(process: &Process<'_>, stacks: &[Stack], wait: &ThreadWait, out: &mut Observations) {
    let runs = |(position, stack): (usize, &Stack)| Some((position, stack.host_function?));
    let running: Vec<_> = stacks.iter().enumerate().filter_map(runs).collect();
    let resource = &wait.blocked_on.resource;
    let busy = runs_kernels(process) == Some(true);
    for (position, host_function) in &running {
        let thread = &process.threads[*position];
        let mut evidence = vec![format!(
            "{} runs a host function: the CUDA driver made the thread and called the program's code in it",
            thread.describe()
        )];
        let mut strength = Strength::Inferred;
        if busy {
            strength = Strength::Candidate;
            evidence.push("a kernel runs on the GPU, which may be what is waited for: a candidate".into());
        } else if running.len() > 1 && resource.key.kind != kinds::CUDA_DEVICE {
            strength = Strength::Candidate;
            evidence.push(format!("{} threads run host functions, of one stream each: a candidate", running.len()));
        } else {
            evidence.push(match resource.key.kind == kinds::CUDA_DEVICE {
                true => "all work of the context includes host functions".to_owned(),
                false => "nothing says that it is of another stream".to_owned(),
            });
        }
        let hold = exact_hold(&resource.key, Party::Thread(process.context.process, thread.image.tid), None, evidence);
        out.holds.push(Hold { strength, frame: called(thread, host_function.driver), ..hold });
    }
}

/// Whether the GPU has kernels of this process to run: by a core of it, by nvidia-smi, or since it has no device open.
fn runs_kernels(process: &Process<'_>) -> Option<bool> {
    let image = process.context.image;
    match process.context.gpu_cores {
        [] if !has_device_file(&image.mappings) => Some(false),
        [] => process.context.gpu?.runs_kernels_of(image),
        cores => Some(cores.iter().any(|core| core.kernels().next().is_some())),
    }
}

/// The function of the program that the driver's frame called: of Python where there is one.
fn called(thread: &ThreadView<'_>, driver: usize) -> Option<usize> {
    let driver = thread.merged(driver)?;
    let inner = &thread.thread?.frames[..driver];
    inner.iter().rposition(|frame| frame.python.is_some()).or_else(|| driver.checked_sub(1))
}
