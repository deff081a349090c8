//! `driver-library-mismatch`: the driver's library and the driver in the kernel are not of one version.
//!
//! In: the judged look. Out: drafts of the finding. Which devices may use a newer library is not known here.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::circumstances::{CudaLibrary, branch};
use crate::waits::{Party, cuda};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "driver-library-mismatch",
        title: "libcuda and the kernel's driver are of different versions",
        severity: Severity::Warning,
        what: "The libcuda in the process (the part of NVIDIA's driver that runs in the program) and the part in the kernel are of different versions. Mixes that are not supported give errors, and some of them calls that do not return.",
        cause: "libcuda has to fit the driver in the kernel. The host has the right one, and the container runtime brings it into a container. But an image, or a folder in LD_LIBRARY_PATH, can bring another: then the soft link libcuda.so.1 leads to that. A newer library works with an older kernel driver only where forward compatibility covers the branch and the hardware, which is data-centre GPUs; elsewhere CUDA says 804 (cudaErrorCompatNotSupportedOnDevice). Any other mix is 803 (cudaErrorSystemDriverMismatch). An update of the host's driver under a container that goes on running gives such a mix too.",
        example: Example {
            file: "driver_library_mismatch.py",
            program: include_str!("examples/driver_library_mismatch.py"),
            command: "python3 driver_library_mismatch.py",
            needs: Requirement::GpuAndCompatibilityPackage,
        },
        help: &[
            "let the loader find the host's own libcuda: no compat folder in LD_LIBRARY_PATH, no libcuda in the image",
            "or update the driver of the host to the library's branch",
            "or use an image with the CUDA that the host's driver brings",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Numba,
                text: "Numba loads the libcuda.so.1 that the loader finds; NUMBA_CUDA_DRIVER names another place. `numba -s` prints what it found. Unset the variable where it points into an image's compat folder.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "CuPy's wheels have CUDA's runtime in them, never libcuda: install the wheel whose CUDA the host's driver has (cupy-cuda12x, cupy-cuda13x), and read `cupy.show_config()`.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "PyTorch's wheels have CUDA's runtime in them, never libcuda: choose a wheel whose CUDA is no newer than the driver (`nvidia-smi` prints the driver's CUDA), and compare `torch.version.cuda`. A conda package named cuda-compat brings a libcuda: remove it.",
            },
            Fix {
                with: Toolkit::C,
                text: "link with the stub of libcuda (`-L/usr/local/cuda/lib64/stubs -lcuda`), but never put the folder of stubs or of compat into an rpath or LD_LIBRARY_PATH. cuDriverGetVersion and cudaRuntimeGetVersion give both versions.",
            },
            Fix {
                with: Toolkit::Shell,
                text: "`ldconfig -p | grep libcuda` and `cat /proc/driver/nvidia/version` in the container show both sides. Start it with `docker run --gpus all` and no compat folder in LD_LIBRARY_PATH, and restart containers after an update of the host's driver.",
            },
        ],
        references: &["https://docs.nvidia.com/deploy/cuda-compatibility/"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let Some(kernel) = context.look.image.kernel.gpu_driver.as_deref() else { return Vec::new() };
    let drivers = context.look.observations.cuda.iter().filter(|library| library.is_driver());
    drivers.filter_map(|library| draft(context, library, kernel)).collect()
}

fn draft(context: &Context<'_>, library: &CudaLibrary, kernel: &str) -> Option<Draft> {
    let version = library.version.as_deref().filter(|version| *version != kernel)?;
    let image = context.look.image.processes.get(library.process)?;
    let (own, of_kernel) = (library.branch()?, branch(kernel)?);
    let runtimes =
        context.look.observations.cuda.iter().filter(|one| !one.is_driver() && one.process == library.process);
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
