//! The targets of waits in calls of the CUDA driver and runtime, and how these calls take the driver's lock of the
//! context.
//!
//! In: the name of an exported function. Out: rows of two tables. Names stand here without `cu` or `cuda` in front and
//! without the version behind (`_v2`, `_ptsz`).

use crate::origin::is_cuda_call;

/// The target of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// The stream in this argument.
    Stream(usize),
    /// The event in this argument.
    Event(usize),
    /// All work of the context.
    Device,
}

/// A call that waits for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    name: &'static str,
    /// For what.
    pub(super) on: On,
    /// It only waits: any thread in it waits. The others sometimes wait and sometimes work.
    pub(super) only_waits: bool,
}

const fn waits(name: &'static str, on: On) -> Call {
    Call { name, on, only_waits: true }
}

const fn may_wait(name: &'static str) -> Call {
    Call { name, on: On::Device, only_waits: false }
}

/// Sources: "API synchronization behavior" in the reference manuals of driver and runtime, CUDA 13.0; the calls that free
/// or load wait for running kernels as measured with driver 580.159.04 (scripts/measure/gpu/workloads.py).
const CALLS: &[Call] = &[
    waits("StreamSynchronize", On::Stream(0)),
    waits("EventSynchronize", On::Event(0)),
    waits("CtxSynchronize", On::Device),
    waits("DeviceSynchronize", On::Device),
    waits("ThreadSynchronize", On::Device),
    waits("GLUnmapBufferObject", On::Device),
    may_wait("MemFree"),
    may_wait("Free"),
    may_wait("FreeHost"),
    may_wait("FreeArray"),
    may_wait("MemFreeHost"),
    may_wait("HostUnregister"),
    may_wait("MemHostUnregister"),
    may_wait("Memcpy"),
    may_wait("MemcpyHtoD"),
    may_wait("MemcpyDtoH"),
    may_wait("MemcpyDtoD"),
    may_wait("ModuleLoad"),
    may_wait("ModuleLoadData"),
    may_wait("ModuleLoadDataEx"),
    may_wait("ModuleLoadFatBinary"),
    may_wait("ModuleUnload"),
    may_wait("ModuleGetFunction"),
    may_wait("LibraryLoadData"),
    may_wait("LibraryLoadFromFile"),
    may_wait("LibraryGetModule"),
    may_wait("LibraryUnload"),
    may_wait("KernelGetFunction"),
    may_wait("CtxDestroy"),
    may_wait("DevicePrimaryCtxReset"),
    may_wait("DevicePrimaryCtxRelease"),
    may_wait("DeviceReset"),
    may_wait("EventDestroy"),
    may_wait("StreamDestroy"),
];

/// Whether a call launches a kernel all of whose blocks must have room at a time.
pub(super) fn is_cooperative_launch(name: &str) -> bool {
    plain(name) == Some("LaunchCooperativeKernel")
}

/// The name of a function without what surrounds it in those of templates: `cudaError cudaLaunchCooperativeKernel<float>(float*, dim3)`.
pub(super) fn bare(name: &str) -> &str {
    let name = name.split(['(', '<']).next().unwrap_or(name);
    name.rsplit(' ').next().unwrap_or(name)
}

/// For a call that makes a stream wait for a word in memory: the word's size in bytes.
pub(super) fn bytes_of_value(name: &str) -> Option<usize> {
    match plain(name)? {
        "StreamWaitValue32" => Some(4),
        "StreamWaitValue64" => Some(8),
        _ => None,
    }
}

/// How a call takes the lock of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
}

/// Where and when [`LOCKS`] was measured.
pub(super) const MEASURED_ON: &str = "driver 580.159.04, H200";

/// The lock of the context, one `pthread_rwlock_t`. Measured by making each call while another thread sits in the
/// callback of cuOccupancyMaxPotentialBlockSize, which has the lock for writing.
const LOCKS: &[(&str, Mode)] = &[
    ("LaunchKernel", Mode::Read),
    ("EventRecord", Mode::Read),
    ("OccupancyMaxActiveBlocksPerMultiprocessor", Mode::Read),
    ("StreamAddCallback", Mode::Write),
    ("LaunchHostFunc", Mode::Write),
    ("MemAlloc", Mode::Write),
    ("MemFree", Mode::Write),
    ("MemcpyHtoD", Mode::Write),
    ("MemcpyDtoH", Mode::Write),
    ("ModuleLoadData", Mode::Write),
    ("ModuleUnload", Mode::Write),
    ("ModuleGetFunction", Mode::Write),
    ("StreamCreate", Mode::Write),
    ("StreamDestroy", Mode::Write),
    ("EventCreate", Mode::Write),
    ("EventDestroy", Mode::Write),
    ("FuncSetAttribute", Mode::Write),
    ("MemHostAlloc", Mode::Write),
    ("MemFreeHost", Mode::Write),
    ("OccupancyMaxPotentialBlockSize", Mode::Write),
];

/// The waiting call of this name, if there is one.
pub(super) fn call(name: &str) -> Option<&'static Call> {
    let plain = plain(name)?;
    CALLS.iter().find(|row| row.name.eq_ignore_ascii_case(plain))
}

/// Whether the call of this name loads code onto the GPU.
pub(crate) fn loads_code(name: &str) -> bool {
    const LOADS: [&str; 4] = ["ModuleLoad", "LibraryLoad", "ModuleGetFunction", "KernelGetFunction"];
    plain(name).is_some_and(|plain| LOADS.iter().any(|prefix| plain.starts_with(prefix)))
}

/// How the call of this name takes the lock of its context.
pub(super) fn mode(name: &str) -> Option<Mode> {
    let plain = plain(name)?;
    LOCKS.iter().find(|(known, _)| known.eq_ignore_ascii_case(plain)).map(|(_, mode)| *mode)
}

/// Without what stands in front and behind.
fn plain(name: &str) -> Option<&str> {
    let name = name.split('@').next()?;
    let name = name.split('_').next().filter(|first| !first.is_empty())?;
    Some(if is_cuda_call(name) { name.strip_prefix("cuda").or(name.strip_prefix("cu")).unwrap_or(name) } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_all_their_names() {
        for name in ["cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cudaStreamSynchronize", "streamSynchronize"] {
            assert_eq!(call(name).map(|call| (call.on, call.only_waits)), Some((On::Stream(0), true)), "{name}");
        }
        assert_eq!(call("cuCtxSynchronize_v2").map(|call| call.on), Some(On::Device));
        assert!(is_cooperative_launch(bare("cudaError cudaLaunchCooperativeKernel<float>(float*, dim3, dim3)")));
        assert!(
            is_cooperative_launch(bare("cuLaunchCooperativeKernel_ptsz")) && !is_cooperative_launch("cuLaunchKernel")
        );
        assert_eq!(["cuStreamWaitValue32_v2", "cuStreamWaitValue64"].map(bytes_of_value), [Some(4), Some(8)]);
        assert!(call("cuStreamQuery").is_none() && call("").is_none() && call("_start").is_none());
        assert_eq!(mode("cuMemAlloc_v2"), Some(Mode::Write));
        assert_eq!(mode("cudaLaunchKernel"), Some(Mode::Read));
    }
}
