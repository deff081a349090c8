//! The libraries whose own threads do the work that others hand them, by names of functions, modules and threads.
//!
//! In: nothing. Out: the constant table, and what a merged frame is to one of its rows. A row is as its library's sources name
//! things; it was compared with the stacks of the release that its comment names.

use crate::origin::OriginKind;
use crate::symbols::base_symbol;
use crate::threads::{Frame, FrameKind};

/// A library with workers.
#[derive(Debug)]
pub(super) struct Library {
    /// The name of its work for people.
    pub(super) work_of: &'static str,
    /// How the names of its own functions begin.
    own: &'static [&'static str],
    /// How the files of its own modules begin.
    modules: &'static [&'static str],
    /// Parts of the name of a function that a worker is in for as long as it lives.
    workers: &'static [&'static str],
    /// How the kernel's names of its workers begin.
    threads: &'static [&'static str],
    /// A thread is a worker whose outermost frames lie in the library's modules.
    begins_in_module: bool,
    /// Parts of the name of a function that runs one piece of work.
    runs: &'static [&'static str],
    /// Parts of the name of a function that waits for work. Empty: any of its own functions may.
    waits: &'static [&'static str],
}

/// A frame's relation to a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its own code.
    Own,
    /// A function that runs one piece of work.
    Runs,
    /// Code of the language or the C library: any program may use it.
    Anybody,
    /// Code of the program, or of another library.
    Foreign,
}

/// The names of a native frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NativeName<'f> {
    function: Option<&'f str>,
    module: Option<&'f str>,
}

impl<'f> NativeName<'f> {
    /// None for a frame of Python.
    pub(super) fn of(frame: &'f Frame) -> Option<NativeName<'f>> {
        let is_native = frame.kind != FrameKind::Python;
        is_native.then_some(NativeName { function: frame.function.as_deref(), module: frame.module.as_deref() })
    }
}

const NONE: Library = Library {
    work_of: "",
    own: &[],
    modules: &[],
    workers: &[],
    threads: &[],
    begins_in_module: false,
    runs: &[],
    waits: &[],
};

/// All of them.
pub(super) const LIBRARIES: &[Library] = &[
    // rayon-core 1.12 and 1.13: registry.rs, job.rs, latch.rs. Polars 1 and 2 have it, too.
    Library {
        work_of: "rayon",
        own: &["rayon::", "rayon_core::"],
        workers: &[
            "rayon_core::registry::main_loop",
            "rayon_core::registry::ThreadBuilder",
            "rayon_core::registry::DefaultSpawn",
            "WorkerThread::wait_until_out_of_work",
        ],
        runs: &[
            "rayon_core::job::Job>::execute",
            "rayon_core::job::JobRef",
            "rayon_core::job::{impl#",
            "rayon_core::registry::WorkerThread::execute",
        ],
        ..NONE
    },
    // polars-async and polars-stream of Polars 2.1.
    Library {
        work_of: "Polars",
        own: &["polars_async::", "polars_stream::"],
        workers: &["polars_async::executor::Executor>::runner", "polars_async::executor::Executor::runner"],
        runs: &["polars_async::executor::task::"],
        waits: &["polars_stream::execute", "polars_async::executor::Executor>::block_on", "TaskScope"],
        ..NONE
    },
    // torch/csrc/autograd/engine.cpp of PyTorch 1.6 to 2.11.
    Library {
        work_of: "PyTorch's autograd",
        own: &["torch::autograd::", "c10::"],
        workers: &["autograd::Engine::thread_init", "PythonEngine::thread_init", "Engine::reentrant_thread_init"],
        threads: &["pt_autograd_"],
        runs: &["autograd::Engine::evaluate_function", "autograd::Node::operator()"],
        waits: &["Engine::execute"],
        ..NONE
    },
    // oneTBB 2021: its library has few names, and names none of the loops of its workers.
    Library {
        work_of: "TBB",
        own: &["tbb::"],
        modules: &["libtbb.so"],
        begins_in_module: true,
        runs: &["::execute(tbb::detail::d1::execution_data"],
        waits: &["execute_and_wait", "d1::wait", "r1::wait(", "task_group", "task_arena", "isolate_within_arena"],
        ..NONE
    },
    // arrow/util/thread_pool.cc, future.cc of Arrow 26.
    Library {
        work_of: "Arrow",
        own: &["arrow::", "parquet::"],
        modules: &["libarrow", "libparquet"],
        workers: &["arrow::internal::ThreadPool::LaunchWorkersUnlocked"],
        runs: &["arrow::internal::FnOnce<void ()>::"],
        waits: &["FutureImpl", "ThreadPool::WaitForIdle", "ThreadPool::Shutdown", "SerialExecutor::RunLoop"],
        ..NONE
    },
    // libgomp of GCC 12 and LLVM's runtime: tasks. (What waits at a barrier is known by the barrier.)
    Library {
        work_of: "OpenMP",
        own: &["GOMP_", "gomp_", "omp_", "kmp", "ompt_"],
        modules: &["libgomp", "libomp", "libiomp"],
        begins_in_module: true,
        workers: &["gomp_thread_start", "kmp_launch_worker", "kmp_launch_thread", "GOMP_parallel", "kmp_fork_call"],
        runs: &["._omp_fn", ".omp_outlined", ".omp_task_entry"],
        waits: &["GOMP_taskwait", "GOMP_taskgroup_end", "kmpc_omp_taskwait", "kmpc_end_taskgroup"],
        ..NONE
    },
    // tsl/platform, Eigen's ThreadPoolTempl of XLA in jaxlib and TensorFlow. Their modules have few names.
    Library {
        work_of: "XLA",
        own: &["xla::", "tsl::", "Eigen::", "tensorflow::", "jax::"],
        modules: &["libjax_common", "xla_extension", "libtensorflow", "_pywrap_tensorflow"],
        workers: &["ThreadPoolTempl<"],
        threads: &["tf_"],
        runs: &["std::_Function_handler<void ()", "std::function<void ()>::operator()"],
        // Threads of its own that are no workers wait inside of it, too, for other events.
        waits: &[
            "BlockUntilReady",
            "BlockHostUntilReady",
            "BlockingCounter",
            "Eigen::Barrier",
            "Notification",
            "Await",
            "xla::Semaphore",
        ],
        ..NONE
    },
];

/// How the names of functions begin that are of no library in particular.
const ANYBODYS: &[&str] = &[
    "rust_",
    "rustc",
    "parking_lot",
    "lock_api::",
    "crossbeam_",
    "absl::",
    "gnu_cxx::",
    "syscall",
    "futex_",
    "lll_",
    "pthread_",
    "sem_",
    "start_thread",
    "clone",
    "nsync::",
    "condvar",
];

impl Library {
    /// Whether a thread of this name is one of its workers.
    pub(super) fn names(&self, thread: &str) -> bool {
        self.threads.iter().any(|prefix| thread.starts_with(prefix))
    }

    /// The position of the frame that a worker is in for as long as it lives, the outermost if there are several: what is
    /// further in is what it does.
    pub(super) fn worker(&self, frames: &[Frame]) -> Option<usize> {
        let is_loop = |frame: &Frame| name(frame).is_some_and(|name| contains_one(name, self.workers));
        let by_name = frames.iter().rposition(is_loop);
        by_name.or_else(|| {
            let outermost = frames.iter().rposition(|frame| self.place(frame) != Place::Anybody)?;
            let is_own = frames.get(outermost).is_some_and(|frame| self.has_module(frame));
            (self.begins_in_module && is_own).then_some(outermost)
        })
    }

    /// The position of the frame that takes one piece of work after the other.
    pub(super) fn innermost_loop(&self, frames: &[Frame]) -> Option<usize> {
        frames.iter().position(|frame| name(frame).is_some_and(|name| contains_one(name, self.workers)))
    }

    /// Whether a thread that has this on its stack may be a worker, or run a piece of work.
    pub(super) fn can_run(&self, code: NativeName<'_>) -> bool {
        let by_name = code
            .function
            .map(bare)
            .is_some_and(|name| contains_one(name, self.workers) || contains_one(name, self.runs));
        by_name || self.begins_in_module && code.module.is_some_and(|module| begins_with_one(module, self.modules))
    }

    /// Whether a function of this name waits for work that another thread handed out.
    pub(super) fn is_wait(&self, name: &str) -> bool {
        self.waits.is_empty() || contains_one(name, self.waits)
    }

    fn has_module(&self, frame: &Frame) -> bool {
        frame.module.as_deref().is_some_and(|module| begins_with_one(module, self.modules))
    }

    /// A frame's relation to it.
    pub(super) fn place(&self, frame: &Frame) -> Place {
        match frame.kind {
            FrameKind::Python => return Place::Foreign,
            FrameKind::Boundary => return Place::Anybody,
            FrameKind::Native | FrameKind::Inline => {}
        }
        if let Some(name) = name(frame) {
            if contains_one(name, self.runs) {
                return Place::Runs;
            }
            if begins_with_one(name, self.own) || contains_one(name, self.workers) {
                return Place::Own;
            }
            if begins_with_one(name, ANYBODYS) {
                return Place::Anybody;
            }
        }
        match frame.origin.kind {
            _ if self.has_module(frame) => Place::Own,
            OriginKind::CLibrary | OriginKind::CppLibrary | OriginKind::RustLibrary | OriginKind::Kernel => {
                Place::Anybody
            }
            _ => Place::Foreign,
        }
    }
}

/// The name of a native function, without what stands before its path: `<rayon_core::registry::WorkerThread>::wait_until`.
fn name(frame: &Frame) -> Option<&str> {
    frame.function.as_deref().filter(|_| frame.kind != FrameKind::Python).map(bare)
}

fn bare(function: &str) -> &str {
    base_symbol(function).trim_start_matches(['<', '&'])
}

/// Brackets around a path say nothing: `<a::Mutex>::lock`, `a::Mutex::lock`.
fn contains_one(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

fn begins_with_one(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}
