//! The toolkits of a finding's participants, so that they get the advice that fits.
//!
//! In: parties and resources of a finding. Out: [`Toolkit`]s, by what frames are (their kind, module and file, the scheme that
//! a symbol's name was mangled by) and by the world of resources. It reads no label, and where nothing is known it names
//! nothing: then the general advice stands alone.

use std::collections::BTreeSet;

use super::explanation::Toolkit;
use super::rule::Context;
use crate::origin::{OriginKind, of_module};
use crate::symbols::Mangling;
use crate::threads::{Frame, FrameKind};
use crate::waits::kinds::World;
use crate::waits::{Party, ResourceKey};

/// Frameworks by the package that code is of: their native code is not the program's.
const PACKAGES: &[(&str, Toolkit)] = &[
    ("torch", Toolkit::PyTorch),
    ("cupy", Toolkit::CuPy),
    ("cupyx", Toolkit::CuPy),
    ("numba", Toolkit::Numba),
    ("numba_cuda", Toolkit::Numba),
];

/// The toolkits of these parties and resources.
pub(super) fn of(context: &Context<'_>, parties: &[Party], resources: &[ResourceKey]) -> BTreeSet<Toolkit> {
    let mut used = BTreeSet::new();
    let as_parties = parties.iter().filter_map(|party| if let Party::Resource(key) = party { Some(key) } else { None });
    used.extend(resources.iter().chain(as_parties).filter_map(|key| of_world(key.kind.world)));
    for party in parties {
        used.extend(of_frames(context.names.frames(party), |frame| context.names.is_driver(frame)));
    }
    used
}

/// Native locks are of C, C++ or Rust: the frames show which.
fn of_world(world: World) -> Option<Toolkit> {
    match world {
        World::Python => Some(Toolkit::Python),
        World::EventLoop => Some(Toolkit::Asyncio),
        World::Native | World::Kernel | World::Gpu => None,
    }
}

/// The toolkits in one thread's frames. `is_driver`: whether a frame is the CUDA driver's, which is no program's own
/// code.
fn of_frames(frames: &[Frame], is_driver: impl Fn(&Frame) -> bool) -> BTreeSet<Toolkit> {
    let mut used = BTreeSet::new();
    let mut plain = false;
    for frame in frames {
        match frame.kind {
            FrameKind::Python => {
                used.insert(Toolkit::Python);
                used.extend(of_package(frame));
            }
            FrameKind::Native if !is_driver(frame) => plain |= of_native(frame, &mut used),
            FrameKind::Native | FrameKind::Inline | FrameKind::Boundary => {}
        }
    }
    // A program of Rust has a plain `main` as well.
    if plain && !used.contains(&Toolkit::Rust) {
        used.insert(Toolkit::C);
    }
    used
}

fn of_package(frame: &Frame) -> Option<Toolkit> {
    PACKAGES.iter().find(|(package, _)| frame.origin.is_package(package)).map(|(_, toolkit)| *toolkit)
}

/// Note the toolkit of a native frame; returns whether it is a function with a name of C in code of the program.
fn of_native(frame: &Frame, used: &mut BTreeSet<Toolkit>) -> bool {
    let (Some(module), Some(function)) = (frame.module.as_deref(), frame.function.as_deref()) else { return false };
    if let Some(toolkit) = of_package(frame) {
        used.insert(toolkit);
        return false;
    }
    // The interpreter, and what compilers and libffi add, say nothing of the program's language.
    let is_whole = |kind: OriginKind| kind != OriginKind::Program && kind != OriginKind::Package;
    let of_all = is_whole(of_module(module).kind) || frame.origin.kind == OriginKind::Interpreter;
    if of_all || frame.origin.is_package("libffi") {
        return false;
    }
    match frame.mangling {
        Mangling::Cpp => {
            used.insert(Toolkit::C);
            if function.contains("pybind11::") {
                used.insert(Toolkit::Pybind11);
            }
            false
        }
        Mangling::Rust => {
            used.insert(Toolkit::Rust);
            if function.contains("pyo3::") {
                used.insert(Toolkit::PyO3);
            }
            false
        }
        Mangling::Plain if function.starts_with("__pyx_") => {
            used.insert(Toolkit::Cython);
            false
        }
        Mangling::Plain => true,
        Mangling::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::testing::{frame, mangled};

    fn native(function: &str, module: &str, mangling: Mangling) -> Frame {
        mangled(FrameKind::Native, function, None, Some(module), mangling)
    }

    fn python(file: &str) -> Frame {
        frame(FrameKind::Python, "f", Some(file), None)
    }

    fn used(frames: &[Frame]) -> Vec<Toolkit> {
        of_frames(frames, |frame| frame.module.as_deref() == Some("libcuda.so.1")).into_iter().collect()
    }

    #[test]
    fn languages_are_told_by_frames() {
        use Mangling::{Cpp, Plain, Rust, Unknown};
        let libc = || native("pthread_mutex_lock", "libc.so.6", Plain);
        let interpreter = || native("_PyEval_EvalFrameDefault", "python3.11", Plain);
        let queue = || native("_queue_SimpleQueue_get", "_queue.cpython-311-x86_64-linux-gnu.so", Plain);
        for (frames, expected) in [
            (vec![libc(), interpreter(), queue(), python("/w/a.py")], vec![Toolkit::Python]),
            (vec![libc(), native("transfer(Account&)", "bank", Cpp), native("main", "bank", Plain)], vec![Toolkit::C]),
            (vec![libc(), native("take", "bank", Plain)], vec![Toolkit::C]),
            (vec![libc(), native("bank::transfer", "bank", Rust), native("main", "bank", Plain)], vec![Toolkit::Rust]),
            (vec![libc(), native("transfer", "bank", Unknown)], vec![]),
            (vec![libc(), native("cuLaunchKernel", "libcuda.so.1", Plain)], vec![]),
            (
                vec![libc(), native("pybind11::cpp_function::dispatcher", "pay.so", Cpp), python("/w/a.py")],
                vec![Toolkit::Python, Toolkit::Pybind11, Toolkit::C],
            ),
            (vec![native("__pyx_pw_3pay_1run", "pay.so", Plain)], vec![Toolkit::Cython]),
            (vec![native("pyo3::marker::Python::with_gil", "pay.so", Rust)], vec![Toolkit::PyO3, Toolkit::Rust]),
            (
                vec![
                    native("at::native::copy_", "libtorch_cpu.so", Cpp),
                    python("/venv/lib/python3.11/site-packages/torch/nn/a.py"),
                ],
                vec![Toolkit::Python, Toolkit::PyTorch],
            ),
        ] {
            assert_eq!(used(&frames), expected, "{frames:?}");
        }
    }
}
