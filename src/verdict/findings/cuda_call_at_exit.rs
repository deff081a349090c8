//! `cuda-call-at-exit`: CUDA is called while the program ends.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit, is_libc};
use crate::report::Severity;
use crate::symbols::plain_name;
use crate::threads::{Frame, FrameKind};
use crate::waits::model::Role;
use crate::waits::{Party, Wait};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "cuda-call-at-exit",
        title: "CUDA is called while the program ends",
        severity: Severity::Warning,
        what: "The program is ending: one thread runs destructors and exit functions. That thread, or another one beside it, is inside of CUDA, which is being taken down at the same time.",
        cause: "exit() runs the functions that were registered with atexit and the destructors of static objects, the last registered first. CUDA takes itself down in the same way. A destructor that calls CUDA, or a thread that goes on using it, comes before, amidst or behind that: it gets cudaErrorCudartUnloading (\"driver shutting down\", 4, earlier 29), waits for work that nobody ends, or waits for a lock that the taking down holds.",
        example: Example {
            file: "cuda_call_at_exit.cpp",
            program: include_str!("examples/cuda_call_at_exit.cpp"),
            command: "c++ -g cuda_call_at_exit.cpp -o hang -lcuda && ./hang",
            needs: Requirement::Gpu,
        },
        help: &[
            "finish with CUDA before main returns: stop and join the threads that use it, then free what static objects own by a function of your own",
            "or register the clean-up with atexit after the context was created (after cudaFree(0)): it then runs before CUDA's own",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "release what owns device memory before the program ends: in a `finally`, a `with`, or by atexit.register, which runs before the interpreter and then CUDA go. Use no daemon threads that call CUDA: join them.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "join threads that use `numba.cuda` before the program ends, and close the context explicitly where needed: `numba.cuda.close()`.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "drop global arrays before the program ends, and return the pool's memory: `cupy.get_default_memory_pool().free_all_blocks()`.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "call `torch.distributed.destroy_process_group()` before the end, and let data loaders end (`persistent_workers` live as long as their iterator). An extension must not keep tensors in static variables: their destructors run at exit.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "do not keep CUDA objects in static variables of a module. Give the module a function that frees them, and register it: `py::module_::import(\"atexit\").attr(\"register\")(py::cpp_function(&shut_down))`.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "statics are not dropped in Rust, but thread-locals and objects of Python are: free device memory in a function that Python's atexit calls.",
            },
            Fix {
                with: Toolkit::C,
                text: "stop and join the threads that use CUDA, and free what static objects own, before main returns. A function that is registered with atexit after the context was made (after cudaFree(0)) runs before CUDA's own.",
            },
        ],
        references: &["pytorch/pytorch#97142", "NVIDIA/cccl#7063", "eclipse-omr/omr#38"],
    },
    rule,
};

/// Functions of the C library, and of the loader, that end a program.
const ENDS: [&str; 6] = ["exit", "run_exit_handlers", "cxa_finalize", "dl_fini", "dl_call_fini", "call_tls_dtors"];

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (process, threads) in context.look.threads.iter().enumerate() {
        for thread in threads {
            let Some(end) = thread.frames.iter().position(is_end) else { continue };
            let party = Party::Thread(process, thread.tid);
            let inner = &thread.frames[..end];
            let who = context.names.party_in_full(&party);
            let wait = context.look.observations.waits.iter().find(|wait| wait.waiter == party);
            let call = context.names.call(&party, wait.and_then(|wait| wait.frame)).phrase();
            if inner.iter().any(|frame| context.names.is_driver(frame)) {
                let by = destructor(inner).map(|by| format!(" It was called by {by}.")).unwrap_or_default();
                drafts.push(Draft {
                    message: format!("{who} ends the program and is{call} meanwhile.{by}"),
                    parties: vec![party],
                    ..Draft::default()
                });
                continue;
            }
            // It waits in there, and another thread is still inside CUDA.
            let others: Vec<Party> = threads
                .iter()
                .filter(|other| other.tid != thread.tid)
                .map(|other| (Party::Thread(process, other.tid), other))
                .filter(|(other, _)| !is_idle(context, other))
                .filter(|(_, other)| other.frames.iter().any(|frame| context.names.is_driver(frame)))
                .map(|(other, _)| other)
                .collect();
            if let (Some(first), true) = (others.first(), wait.is_some()) {
                let by = destructor(inner).map(|by| format!(" ({by})")).unwrap_or_default();
                drafts.push(Draft {
                    message: format!(
                        "{who} ends the program{call}{by}, while {} is still inside CUDA{}.",
                        context.names.party(first),
                        context.names.call(first, None).phrase()
                    ),
                    parties: std::iter::once(party).chain(others).collect(),
                    ..Draft::default()
                });
            }
        }
    }
    drafts
}

fn is_end(frame: &Frame) -> bool {
    frame.kind == FrameKind::Native && frame.function.as_deref().is_some_and(|name| ENDS.contains(&plain_name(name)))
}

/// Whether a thread is one of the driver's own that has nothing to do.
fn is_idle(context: &Context<'_>, party: &Party) -> bool {
    let waits = &context.look.observations.waits;
    let is_idle = |wait: &Wait| {
        let resource = context.look.observations.resource(&wait.resource);
        resource.is_some_and(|resource| resource.role == Some(Role::IdleWork))
    };
    waits.iter().any(|wait| wait.waiter == *party && is_idle(wait))
}

/// The outermost frame that the end called: a destructor, or a function of atexit, with its library.
fn destructor(inner: &[Frame]) -> Option<String> {
    let called = inner.iter().rfind(|frame| frame.kind != FrameKind::Boundary && !is_libc(frame))?;
    let module = called.module.as_deref().map(|module| format!(" in {module}")).unwrap_or_default();
    match called.function.as_deref() {
        Some(function) => Some(format!("{function}{module}")),
        None => called.module.as_deref().map(|module| format!("a destructor or atexit function of {module}")),
    }
}
