//! `event-loop-blocked`: a thread waits inside of a callback of its event loop, and none of the loop's tasks goes on.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "event-loop-blocked",
        title: "an event loop's thread waits, and none of its tasks can go on",
        severity: Severity::Warning,
        what: "A callback of an event loop waits in a call that blocks its thread, so the loop does not run and none of its tasks can go on.",
        cause: "A loop runs one callback at a time. A coroutine that calls a function which waits (a threading.Lock, time.sleep, a synchronous client, a wait for the GPU) keeps the whole loop from running until that returns. When what it waits for is in the hands of another task of the same loop, it never does: a lock that is held across an await is released only by a coroutine that the loop cannot resume, and `asyncio.run_coroutine_threadsafe(...).result()` in the loop's own thread waits for itself.",
        example: Example {
            file: "event_loop_blocked.py",
            program: include_str!("examples/event_loop_blocked.py"),
            command: "python3 event_loop_blocked.py",
            needs: Requirement::Nothing,
        },
        help: &[
            "use asyncio.Lock in coroutines, and never hold a threading.Lock across an await",
            "move calls that wait into a thread: await asyncio.to_thread(function)",
            "asyncio.run(main(), debug=True) logs every callback that takes longer than 0.1 s",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "`await asyncio.sleep`, asyncio.Lock and asyncio.Queue in coroutines; `await asyncio.to_thread(function)` for what blocks. Never hold a threading.Lock across an await. `asyncio.run(main(), debug=True)` logs every callback that takes longer than 0.1 s.",
            },
            Fix { with: Toolkit::Numba, text: "`await stream.async_done()` in place of `stream.synchronize()`." },
            Fix {
                with: Toolkit::CuPy,
                text: "`await asyncio.to_thread(stream.synchronize)`; copies to the host (`cupy.asnumpy`) wait as well.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "`.item()`, `.cpu()` and `torch.cuda.synchronize()` wait for the GPU: run them by `asyncio.to_thread`, or poll `event.query()` with `await asyncio.sleep(0.001)`.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "a bound function that waits should release the GIL (`py::call_guard<py::gil_scoped_release>()`), so that to_thread helps.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "do not call `runtime.block_on` in a coroutine: `pyo3_async_runtimes::tokio::future_into_py` makes an awaitable of it. In tokio itself use `spawn_blocking`.",
            },
            Fix {
                with: Toolkit::C,
                text: "release the GIL in extension functions that wait, so that they can be run in a thread; or give Python a file descriptor for `loop.add_reader`.",
            },
        ],
        references: &["Azure/azure-sdk-for-python#11591", "crewAIInc/crewAI#4827"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let loops = seen.resources.iter().filter_map(|resource| {
        let Some(Role::EventLoop { tasks }) = resource.role else { return None };
        let hold = seen.holds.iter().find(|hold| hold.resource == resource.key)?;
        let wait = seen.waits.iter().find(|wait| wait.waiter == hold.holder)?;
        let names = context.names;
        let message = format!(
            "{} runs an event loop and waits for {}{} in a callback of it; {tasks} task{} of the loop cannot go on.",
            names.party_in_full(&hold.holder),
            names.waited_for(wait),
            names.call(&hold.holder, wait.frame).phrase(),
            if tasks == 1 { "" } else { "s" },
        );
        Some(Draft {
            message,
            parties: vec![hold.holder.clone()],
            resources: vec![resource.key.clone()],
            ..Draft::default()
        })
    });
    loops.collect()
}
