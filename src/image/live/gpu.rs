//! Queries nvidia-smi for the use of the devices, the kernel's log for their errors, and NCCL's RAS for the ranks that
//! launched each operation.
//!
//! In: the sampled processes. Out: [`GpuUse`], within a time limit: a program that hangs in the kernel's driver is left
//! alone. lockscope runs the program nvidia-smi, since it may not load its library, and the program exists wherever a
//! driver does. The program must be in fixed folders and belong to root: when root starts lockscope, PATH may come from
//! any user.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{kernel_log, nccl_ras};
use crate::image::Image;
use crate::image::gpu::{DEVICES, GpuUse, PROCESSES};
use crate::limits::live::LONGEST_ANSWER;

/// Measured: 30 ms with the driver loaded; without persistence mode it loads the driver first, which takes seconds.
const LIMIT: Duration = Duration::from_millis(1000);
/// Where distributions, NVIDIA's container toolkit, WSL and NixOS put it.
const PLACES: [&str; 5] = [
    "/usr/bin/nvidia-smi",
    "/usr/local/bin/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/run/current-system/sw/bin/nvidia-smi",
];

/// Make the queries; to NCCL's RAS only on request.
pub(crate) fn ask(image: &Image, nccl_ras: bool) -> GpuUse {
    let end = Instant::now() + LIMIT;
    // Both at once: each takes as long as the other.
    let (devices, processes) = (start(&DEVICES), start(&PROCESSES));
    let errors = kernel_log::gpu_errors();
    let known = match (devices, processes) {
        (Ok(devices), Ok(processes)) => match (answer(devices, end), answer(processes, end)) {
            (Some(devices), Some(processes)) => GpuUse::parse(&devices, &processes),
            (Some(devices), None) => GpuUse::parse(&devices, ""),
            _ => missing(format!("nvidia-smi gave no answer within {} ms", LIMIT.as_millis())),
        },
        (Err(error), _) | (_, Err(error)) => missing(format!("nvidia-smi could not be run ({error})")),
    };
    let (heard, gaps) = if nccl_ras { nccl_ras::ask(image) } else { Default::default() };
    GpuUse { errors, heard, gaps, ..known }
}

fn missing(why: String) -> GpuUse {
    GpuUse { missing: Some(why), ..GpuUse::default() }
}

fn start(question: &[&str]) -> std::io::Result<Child> {
    let program = PLACES.iter().map(Path::new).find(|path| is_roots(path)).ok_or(std::io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    // Nothing of the environment either: it can name libraries to load.
    command.args(question).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Whether a program, and each folder on the way to it, belongs to root, and nobody else may write to any of them.
fn is_roots(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let is_roots = |metadata: &std::fs::Metadata| metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    path.metadata().is_ok_and(|metadata| metadata.is_file())
        && path.ancestors().all(|part| part.metadata().is_ok_and(|metadata| is_roots(&metadata)))
}

/// Its output until it ends; `None` when that takes too long or fails.
fn answer(mut child: Child, end: Instant) -> Option<String> {
    let mut pipe = child.stdout.take()?;
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let is_there = poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|ready| ready > 0);
        let read = if is_there { pipe.read(&mut piece).ok() } else { None };
        match read {
            Some(0) => break,
            Some(read) if text.len() < LONGEST_ANSWER => text.extend_from_slice(&piece[..read]),
            _ => {
                // A process that hangs in the driver does not even die: it is not waited for.
                let _ = (child.kill(), child.try_wait());
                return None;
            }
        }
    }
    let good = child.wait().is_ok_and(|status| status.success());
    good.then(|| String::from_utf8_lossy(&text).into_owned())
}
