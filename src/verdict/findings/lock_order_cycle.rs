//! `lock-order-cycle`: locks are taken in different orders.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::graph::CycleEdge;
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "lock-order-cycle",
        title: "locks are taken in different orders",
        severity: Severity::Error,
        what: "Each thread holds one lock and waits for the next one, which another of them holds. None can go on.",
        cause: "Code that takes the same locks in different orders does this as soon as two threads are in it at the same time. It is seldom visible in one place: a method takes its object's lock and calls another object's method, which takes that one's, and elsewhere the call goes the other way. Callbacks, destructors and log calls under a lock add an order that nobody meant.\n\nOne of the locks may be a CUDA stream: a host function waits for a lock, and the thread that has this lock waits for the stream.",
        example: Example {
            file: "lock_order_cycle.py",
            program: include_str!("examples/lock_order_cycle.py"),
            command: "python3 lock_order_cycle.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "take the locks in one order everywhere",
            "take several at once: std::scoped_lock(a, b), std::lock",
            "hold only one at a time: copy what is needed, release, then take the other",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "sort the locks by something fixed before taking several (`for lock in sorted(locks, key=id): stack.enter_context(lock)` with contextlib.ExitStack). With asyncio.Lock the same rule holds among tasks.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "functions of `Stream.add_callback` run under the stream: take no lock in them that a thread holds while it calls `stream.synchronize()`.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "functions of `Stream.launch_host_func` run under the stream: take no lock in them that a thread holds while it calls `stream.synchronize()` or copies to the host.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "do not take a lock in hooks and in functions of autograd (they run on autograd's threads) that a thread holds while it calls `backward()`, and none around `torch.cuda.synchronize()` that a host function needs.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "call back into Python only after the lock was released: Python code may take any lock, and the GIL is one too.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "`with lock_a, lock_b:` takes them one after the other: keep one order in all functions.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "take several locks in one order; with parking_lot's feature `deadlock_detection` a test can look for cycles.",
            },
            Fix {
                with: Toolkit::C,
                text: "take several at once with std::scoped_lock(a, b) or std::lock, which avoid the cycle in any order; in C, order them by address, or try the second with pthread_mutex_trylock and release the first where that fails. ThreadSanitizer (-fsanitize=thread) reports orders that differ even where they did not meet.",
            },
        ],
        references: &["rapidsai/dask-cuda#501"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = context.cycle_drafts(|cycle| {
        cycle.edges.len() > 1
            && !cycle.is_about(Topic::Gil)
            && cycle.edges.iter().filter(|edge| is_wait_for_lock(edge) || is_gpu(edge)).count() >= 2
    });
    for draft in &mut drafts {
        let cycle = draft.cycle.and_then(|position| context.cycles.get(position));
        if cycle.is_some_and(|cycle| cycle.edges.iter().any(is_gpu)) {
            draft.help = vec![
                "take no lock in a host function that a thread may have while it waits for the stream".into(),
                "release the lock before the synchronising call".into(),
            ];
        }
    }
    drafts
}

/// A wait for the GPU, which waits for a host function.
fn is_gpu(edge: &CycleEdge) -> bool {
    edge.resource.kind.is_gpu()
}

fn is_wait_for_lock(edge: &CycleEdge) -> bool {
    edge.resource.kind.is_lock()
}
