//! Facts about GPUs from outside the target: the kernel's driver, and how busy the devices are.
//!
//! In: texts of the kernel's driver and of nvidia-smi. Out: [`GpuUse`] and versions, plain data. It makes no query
//! itself.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use serde::{Deserialize, Serialize};

use super::gpu_errors::DriverError;
use super::{Addr, Gap, Mapping, ProcessImage};
use crate::nccl_ras::Answer;

/// How busy the devices were at the sample.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuUse {
    /// Devices, in nvidia-smi's order.
    pub devices: Vec<Device>,
    /// Why nothing or not all is known.
    pub missing: Option<String>,
    /// Errors of devices in the kernel's log, where that may be read.
    #[serde(default)]
    pub errors: Vec<DriverError>,
    /// The answers of NCCL's RAS about the jobs of the processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<Heard>,
    /// The sources that gave no answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// An answer of NCCL's RAS: what stood still between two of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heard {
    /// Where it listens.
    pub address: String,
    /// The processes of the sample that it mentions.
    pub processes: Vec<i32>,
    pub answer: Answer,
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// nvidia-smi's number for it.
    pub index: u32,
    /// Share of the last sample, of up to a second, in which a kernel ran, in percent.
    pub busy_percent: Option<u32>,
    /// Processes that use it, where the container lets one see them.
    pub processes: Vec<i32>,
}

/// The query to nvidia-smi for devices, and for processes on them.
pub(crate) const DEVICES: [&str; 2] = ["--query-gpu=index,uuid,utilization.gpu", "--format=csv,noheader,nounits"];
/// The same for processes.
pub(crate) const PROCESSES: [&str; 2] = ["--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits"];

impl GpuUse {
    /// From the answers to [`DEVICES`] and [`PROCESSES`].
    pub(crate) fn parse(devices: &str, processes: &str) -> GpuUse {
        let cells = |line: &str| -> Vec<String> { line.split(',').map(|cell| cell.trim().to_owned()).collect() };
        let users: Vec<Vec<String>> = processes.lines().map(cells).collect();
        let device = |line: &str| {
            let cells = cells(line);
            let [index, uuid, busy] = cells.as_slice() else { return None };
            let own = users.iter().filter(|user| user.first() == Some(uuid));
            let processes = own.filter_map(|user| user.get(1)?.parse().ok()).collect();
            Some(Device { index: index.parse().ok()?, busy_percent: busy.parse().ok(), processes })
        };
        GpuUse { devices: devices.lines().filter_map(device).collect(), ..GpuUse::default() }
    }

    /// The devices that a process has: by nvidia-smi's list of processes, else by the device files that it mapped.
    pub(crate) fn of(&self, image: &ProcessImage) -> Vec<&Device> {
        let listed: Vec<&Device> = self.devices.iter().filter(|device| device.processes.contains(&image.pid)).collect();
        if !listed.is_empty() {
            return listed;
        }
        let mapped: Vec<u32> = image.mappings.iter().filter_map(device_number).collect();
        self.devices.iter().filter(|device| mapped.contains(&device.index)).collect()
    }

    /// Errors in the kernel's log that were written while `process` lived, and for its work or for a device that it uses.
    pub(crate) fn errors_of<'a>(&'a self, process: &'a ProcessImage) -> impl Iterator<Item = &'a DriverError> {
        /// Milliseconds in a tick of the start time (proc_pid_stat(5), USER_HZ).
        const TICK: u64 = 10;
        let began = process.thread(process.pid).and_then(|main| main.start_ticks);
        let mapped: Vec<u32> = process.mappings.iter().filter_map(device_number).collect();
        self.errors.iter().filter(move |error| {
            let is_later = began.is_some_and(|ticks| error.at_ms / TICK >= ticks);
            let is_own = error.pid == Some(process.pid);
            let uses_it = error.device.is_some_and(|device| mapped.contains(&device));
            is_later && (is_own || uses_it && (error.pid.is_none() || error.is_the_end()))
        })
    }

    /// Whether kernels run on the devices of a process: `None` where nothing says so, or says whose they are.
    pub(crate) fn runs_kernels_of(&self, image: &ProcessImage) -> Option<bool> {
        let shared = |device: &Device| device.processes.iter().any(|pid| *pid != image.pid);
        let devices = self.of(image);
        if devices.iter().any(|device| device.busy_percent.is_some_and(|busy| busy > 0) && !shared(device)) {
            return Some(true);
        }
        let is_idle = !devices.is_empty() && devices.iter().all(|device| device.busy_percent == Some(0));
        is_idle.then_some(false)
    }
}

/// The number of the device whose file is mapped: `/dev/nvidia0`.
fn device_number(mapping: &Mapping) -> Option<u32> {
    mapping.path.as_deref()?.strip_prefix("/dev/nvidia")?.parse().ok()
}

/// Whether a mapping is of a file of the GPU's driver, which is never read.
pub(crate) fn is_device(mapping: &Mapping) -> bool {
    mapping.path.as_deref().is_some_and(|path| path.starts_with("/dev/nvidia") || path == "/dev/dxg")
}

/// Whether an address is of the process's own memory, which it can write: what is reserved for the GPU's cannot be read, and files of
/// the device never are.
pub(crate) fn is_of_host(image: &ProcessImage, address: Addr) -> bool {
    image.mapping(address).is_some_and(|mapping| mapping.read && mapping.write && !is_device(mapping))
}

/// Whether a process has a GPU's device file mapped; under Windows' subsystem for Linux that is /dev/dxg.
pub(crate) fn has_device_file(mappings: &[Mapping]) -> bool {
    mappings.iter().any(|mapping| device_number(mapping).is_some() || mapping.path.as_deref() == Some("/dev/dxg"))
}

/// Whether a process has NCCL mapped.
pub(crate) fn has_nccl(process: &ProcessImage) -> bool {
    process.mappings.iter().any(|mapping| mapping.path.as_deref().is_some_and(|path| path.contains("/libnccl.so")))
}

/// Whether a process has a GPU's device file, or the driver's library, mapped.
pub(crate) fn uses_cuda(mappings: &[Mapping]) -> bool {
    let is_driver = |path: &str| path.rsplit('/').next().is_some_and(|file| file.starts_with("libcuda.so"));
    let has_driver = |mapping: &Mapping| mapping.execute && mapping.path.as_deref().is_some_and(is_driver);
    has_device_file(mappings) || mappings.iter().any(has_driver)
}

/// The version in `/proc/driver/nvidia/version`: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ...`.
pub(crate) fn kernel_driver(text: &str) -> Option<String> {
    let words = text.lines().find(|line| line.starts_with("NVRM"))?.split_whitespace();
    words.into_iter().find(|word| is_version(word)).map(str::to_owned)
}

/// Whether this is a version: numbers with dots between, `580.159.04`.
pub(crate) fn is_version(word: &str) -> bool {
    word.contains('.') && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ThreadImage;

    #[test]
    fn answers_are_read_as_nvidia_smi_writes_them() {
        let devices = "0, GPU-9724cb6b-6fc2-39a9-14b2-6b7ad16833cf, 97\n1, GPU-1, [N/A]\n";
        let known = GpuUse::parse(devices, "GPU-9724cb6b-6fc2-39a9-14b2-6b7ad16833cf, 543\n");
        assert_eq!(known.devices.len(), 2);
        assert_eq!((known.devices[0].busy_percent, &known.devices[0].processes), (Some(97), &vec![543]));
        assert_eq!((known.devices[1].busy_percent, known.devices[1].index), (None, 1));
        assert!(GpuUse::parse("No devices were found\n", "").devices.is_empty());
    }

    #[test]
    fn versions_of_both_kernel_modules_are_found() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (a@b)\nGCC version: 15.3.0\n";
        assert_eq!(kernel_driver(open).as_deref(), Some("580.159.04"));
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n";
        assert_eq!(kernel_driver(closed).as_deref(), Some("535.54.03"));
        assert_eq!(kernel_driver(""), None);
    }

    #[test]
    fn an_error_concerns_who_lived_and_used_the_device() {
        let mut process = ProcessImage { pid: 5, ..ProcessImage::unknown() };
        process.threads = vec![ThreadImage { start_ticks: Some(1000), ..ThreadImage::new(5) }];
        let concerns = |process: &ProcessImage, at_ms, number, pid, device| {
            let error = DriverError { at_ms, bus: "0:0".into(), number, pid, device };
            GpuUse { errors: vec![error], ..GpuUse::default() }.errors_of(process).count() == 1
        };
        assert!(concerns(&process, 10_000, 31, Some(5), None));
        assert!(!concerns(&process, 9_000, 31, Some(5), None), "of another process with that id, before");
        assert!(!concerns(&process, 10_000, 79, None, Some(0)), "it uses no device");
        let mapping = Mapping { path: Some("/dev/nvidia0".into()), ..Mapping::new(Addr(0x1000), Addr(0x2000)) };
        process.mappings = vec![mapping];
        assert!(concerns(&process, 10_000, 79, None, Some(0)));
        assert!(concerns(&process, 10_000, 79, Some(6), Some(0)), "whoever's work it was, the device is gone");
        assert!(!concerns(&process, 10_000, 31, Some(6), Some(0)), "another's kernel");
        assert!(!concerns(&process, 10_000, 79, None, Some(1)), "another device");
    }
}
