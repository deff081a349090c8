//! `gil-vs-native-lock`: the GIL and a native lock are taken in both orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::cpython::EXTENSION;
use crate::waits::kinds::{Giver, Topic, World};
use crate::waits::{Party, ResourceKey};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "gil-vs-native-lock",
        title: "Python GIL <-> native lock",
        severity: Severity::Error,
        what: "One thread holds Python's global interpreter lock (the GIL) and waits for a lock of native code. The thread that holds this native lock waits for the GIL.",
        cause: "The GIL is a lock like any other, and taken in two orders it deadlocks like any other. The usual way: a thread releases the GIL, takes a mutex, and asks for the GIL again before it unlocks, because it calls back into Python, drops a reference, logs, or simply returns to Python from the call that locked. Meanwhile a second thread, with the GIL, asks for the mutex.\n\nThe mutex is often one that nobody thinks of: of an allocator, of a logger, of a static variable's initialiser, of a thread pool.",
        example: Example {
            file: "gil_vs_native_lock.py",
            program: include_str!("examples/gil_vs_native_lock.py"),
            command: "python3 gil_vs_native_lock.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "release the GIL before taking the native lock (Py_BEGIN_ALLOW_THREADS, py::gil_scoped_release, nogil)",
            "or release the native lock before asking for the GIL again: never call Python under it",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "with ctypes use CDLL, not PyDLL, for functions that take locks. Do not lock in one call and unlock in a later one: each return to Python needs the GIL.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "`@jit(nogil=True)` code that calls a native library runs without the GIL, and an `objmode` block in it takes the GIL again: use no `objmode` between lock and unlock of that library.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "an allocator of your own (`cupy.cuda.set_allocator`, `cupy.cuda.PythonFunctionAllocator`) is Python that runs inside of allocations: it must take no lock under which another thread calls CuPy.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "do not touch Python objects under a lock of C++ (tensors that own Python objects, hooks, `THPObjectPtr`), and enter functions that lock with the GIL released: `pybind11::gil_scoped_release`. Hooks of Python (`Tensor.register_hook`, `saved_tensors_hooks`) run on threads of autograd: they must not take a lock under which another thread calls `backward()` with the GIL held.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "open `py::gil_scoped_release` before the lock is taken, so that whoever waits for the mutex does not hold the GIL, and close the scope of the mutex before that of the release ends. Never create `py::gil_scoped_acquire` under a mutex. For values that are made once use `py::gil_safe_call_once_and_store` in place of a static variable.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "lock and unlock inside one `with nogil:` block that contains no `with gil:`. From Cython 3.1 on, `cython.pymutex` is a lock that releases the GIL while it waits.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "lock inside `py.detach(|| ...)` (`py.allow_threads` before PyO3 0.26), and do not call `Python::attach` while the guard lives. Where Python must be called under the lock, take it with `MutexExt::lock_py_attached`, which detaches while it waits; for values that are made once use `PyOnceLock` (before: `GILOnceCell`).",
            },
            Fix {
                with: Toolkit::C,
                text: "Py_BEGIN_ALLOW_THREADS, then lock, work, unlock, then Py_END_ALLOW_THREADS. No PyGILState_Ensure, Py_DECREF or callback under the lock. From Python 3.13 on, PyMutex_Lock releases the GIL while it waits.",
            },
        ],
        references: &["NVIDIA/cuda-python#2840", "pytorch/pytorch#97833"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| context.gil_waiter(cycle).is_some() && cycle.edges.len() > 1);
    let seen = context.look.observations;
    for end in context.dead_ends {
        let wanted = &seen.hopeless[end.hopeless].resource;
        let mut waiters = end.waits.iter().map(|wait| &seen.waits[*wait].waiter);
        // What the thread keeps others from: the GIL, while it waits for a native lock whose holder nothing names; or a
        // native lock, under which Python was called and waits.
        let keeps = |waiter: &Party| {
            let mut holds = seen.holds.iter().filter(|hold| hold.holder == *waiter);
            holds.find(|hold| {
                let opposed = match hold.resource.kind.topic {
                    Topic::Gil => wanted.kind.world != World::Python,
                    _ => wanted.kind.world == World::Python && is_native(context, &hold.resource),
                };
                opposed && seen.waits.iter().any(|wait| wait.resource == hold.resource)
            })
        };
        let Some((waiter, hold)) = waiters.find_map(|waiter| Some((waiter, keeps(waiter)?))) else { continue };
        drafts.push(Draft {
            message: format!(
                "{} {} and waits for {}, and those who could give that wait for {}.",
                context.names.party_in_full(waiter),
                context.names.held(&hold.resource),
                context.names.resource(wanted),
                context.names.resource(&hold.resource),
            ),
            parties: vec![waiter.clone()],
            resources: vec![wanted.clone(), hold.resource.clone()],
            ..Draft::default()
        });
    }
    drafts
}

/// Whether a lock is one of native code: of libc, or an extension's own.
fn is_native(context: &Context<'_>, key: &ResourceKey) -> bool {
    let resource = || context.look.observations.resource(key);
    key.kind.world == World::Native && key.kind.is_lock() && key.kind.giver == Giver::Holder
        || resource().is_some_and(|resource| resource.word(EXTENSION).is_some())
}
