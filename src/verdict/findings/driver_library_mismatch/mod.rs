//! `driver-library-mismatch`: the driver's library and the driver in the kernel are not of one version.
//!
//! In: the judged sample. Out: drafts of the finding. Which devices may use a newer library is not known here.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::circumstances::{CudaLibrary, branch};
use crate::waits::{Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "driver-library-mismatch",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "driver_library_mismatch.py",
        program: include_str!("example.py"),
        command: "python3 driver_library_mismatch.py",
        needs: Requirement::GpuAndCompatibilityPackage,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let Some(kernel) = context.input.image.kernel.gpu_driver.as_deref() else { return Vec::new() };
    let drivers = context.input.observations.cuda.iter().filter(|library| library.is_driver());
    drivers.filter_map(|library| draft(context, library, kernel)).collect()
}

fn draft(context: &Context<'_>, library: &CudaLibrary, kernel: &str) -> Option<Draft> {
    let version = library.version.as_deref().filter(|version| *version != kernel)?;
    let image = context.input.image.processes.get(library.process)?;
    let (own, of_kernel) = (library.branch()?, branch(kernel)?);
    let runtimes =
        context.input.observations.cuda.iter().filter(|one| !one.is_driver() && one.process == library.process);
    let runtime = runtimes.filter_map(|one| one.version.as_deref()).next();
    let covered = library.fits.as_ref().is_some_and(|fits| fits.branches.contains(&of_kernel));
    // Forward compatibility as it is meant: CUDA runs.
    if own > of_kernel && covered && image.threads.iter().any(|thread| thread.name == cuda::EVENT_THREAD) {
        return None;
    }
    let path = &library.path;
    let (why, help) = if own > of_kernel && covered {
        (
            "It is newer than the kernel's driver. It may run there by forward compatibility, which only data-centre GPUs \
             have; on others CUDA says 804.",
            vec![
                format!(
                    "keep {path} out of the loader's way (LD_LIBRARY_PATH, /etc/ld.so.conf.d), so that the host's own libcuda is found"
                ),
                format!("or install driver {own} or newer on the host"),
                format!("or use an image with the CUDA of driver {of_kernel}"),
            ],
        )
    } else if own > of_kernel {
        (
            "It is newer than the kernel's driver, and its note on forward compatibility does not name that driver's branch.",
            vec![
                format!("install driver {own} or newer on the host"),
                format!("or use an image with the CUDA of driver {of_kernel}, without a compat folder"),
            ],
        )
    } else if own < of_kernel {
        (
            "It is older than the kernel's driver: an image that has a libcuda of its own hides the one of the host.",
            vec![format!(
                "remove {path} from the image: the container runtime brings the host's libcuda (nvidia-container-toolkit, --gpus all)"
            )],
        )
    } else {
        (
            "Both are of one branch: the host's driver was updated while this container or program ran, or the image has a copy.",
            vec![
                "restart the container, so that it gets the library of the driver that runs now".into(),
                "on the host itself: reload the driver's modules, or reboot".into(),
            ],
        )
    };
    let cuda = library.fits.as_ref().map(|fits| format!(", CUDA {}", fits.cuda)).unwrap_or_default();
    let runtime = runtime.map(|version| format!(" The program uses libcudart {version}.")).unwrap_or_default();
    Some(Draft {
        message: format!(
            "Process {} has libcuda {version}{cuda} from {path}; the kernel has driver {kernel}. {why}{runtime}",
            image.pid
        ),
        parties: vec![Party::Thread(library.process, image.pid)],
        help,
        ..Draft::default()
    })
}
