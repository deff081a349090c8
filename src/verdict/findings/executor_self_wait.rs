//! `executor-self-wait`: the threads of a pool wait for work that stands in the pool's own queue.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "executor-self-wait",
        title: "a pool's threads wait for work that only they could do",
        severity: Severity::Error,
        what: "Tasks of a pool of threads wait for the results of other tasks of the same pool, which stand in its queue. Every thread of the pool waits, so nobody runs them.",
        cause: "A task that runs in a pool submits another task to the same pool and waits for its result. The new task stands in the queue until a thread is free. With few tasks at a time one always is, and under load, or on a machine with fewer cores, none ever is. Libraries that share one pool (a global executor, the default one of an event loop) do this to each other.",
        example: Example {
            file: "executor_self_wait.py",
            program: include_str!("examples/executor_self_wait.py"),
            command: "python3 executor_self_wait.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "do not wait in a task for tasks of the same pool: call the function directly, or return the future and let the caller chain it",
            "use a second pool for the inner tasks, one for each level",
            "a larger max_workers only moves the number of tasks at which it hangs",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "call the function directly, or return the future and let the caller chain it (`add_done_callback`, `asyncio.gather`). Or make a second `ThreadPoolExecutor` for the inner tasks. In asyncio the default executor of `asyncio.to_thread` is shared by all: give `run_in_executor` one of your own.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "do not call `future.result()` or `.wait()` in a function that `torch.futures.Future.then` or torch.distributed.rpc runs: return the future, and mark functions that wait with `@rpc.functions.async_execution`.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "rayon runs other tasks while one waits in `rayon::join` or `scope`, but not while it waits for a channel, a mutex or the GIL: detach with `py.detach` before entering rayon.",
            },
            Fix {
                with: Toolkit::C,
                text: "waiting for a future inside a pool needs a pool that runs other tasks meanwhile (oneTBB's task_group::wait, OpenMP's taskwait); with a simple queue of threads use one pool for each level.",
            },
        ],
        references: &["python/cpython#141617", "TileDB-Inc/TileDB#1757"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let is_queued = |cycle: &Cycle| {
        cycle.edges.iter().any(|edge| {
            let resource = context.look.observations.resource(&edge.resource);
            resource.is_some_and(|resource| resource.role == Some(Role::QueuedFuture))
        })
    };
    context.cycle_drafts(is_queued)
}
