//! `loader-lock-cycle`: a cycle through the lock of the dynamic loader.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "loader-lock-cycle",
        title: "a lock is waited for under the dynamic loader's lock",
        severity: Severity::Error,
        what: "A thread has the lock of the dynamic loader (it loads or unloads a library, or goes through the list of libraries) and waits there for another thread, which needs the loader's lock itself.",
        cause: "dlopen, dlclose, dl_iterate_phdr and the constructors and destructors of libraries run with the loader's lock held. Code that runs there waits for another thread: it joins it, or needs a lock or the GIL that the thread has. And that thread needs the loader's lock: because it loads a library, resolves a symbol, throws an exception, or touches a thread-local variable of a library for the first time.\n\nIn Python each import of a compiled module is a dlopen, so a constructor in any library that it needs is enough.",
        example: Example {
            file: "loader_lock_cycle.c",
            program: include_str!("examples/loader_lock_cycle.c"),
            command: "cc -g -shared -fPIC -pthread -DPLUGIN loader_lock_cycle.c -o plugin.so && cc -g loader_lock_cycle.c -o hang -ldl && ./hang",
            needs: Requirement::Nothing,
        },
        help: &[
            "do not start and join threads, or take locks, in constructors and destructors of libraries: do it in an explicit init function after dlopen returned",
            "in a dl_iterate_phdr callback only copy what is needed; call back into Python, or lock, after it returned",
            "load the libraries that the other thread needs before, from the main thread",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "import compiled modules in the main thread before others are started. A function that ctypes passes to dl_iterate_phdr is Python under the loader's lock: read /proc/self/maps instead.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "`numba.cuda` and llvmlite load libraries at their first use: call `numba.cuda.detect()` or compile one function in the main thread, before threads.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "CuPy loads libraries (NVRTC, cuBLAS, cuDNN) at their first use: use each once before threads are started.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "`import torch` first, in the main thread, and load extensions (`torch.ops.load_library`, `torch.utils.cpp_extension.load`) there too.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "global objects of an extension are made by a constructor of the library: let them start no thread and take no GIL; do that in a function of the module.",
            },
            Fix { with: Toolkit::Cython, text: "the same holds for C++ objects that a .pyx file declares globally." },
            Fix {
                with: Toolkit::PyO3,
                text: "start no thread in a constructor (the crate `ctor`), and none in a static that is made while the library is loaded.",
            },
            Fix {
                with: Toolkit::C,
                text: "do not start and join threads, or take locks, in `__attribute__((constructor))` functions and constructors of global objects: give the library an init function. In a dl_iterate_phdr callback only copy. Link with -Wl,-z,now or set LD_BIND_NOW=1, so that no symbol is resolved later.",
            },
        ],
        references: &["CppMicroServices/CppMicroServices#291", "joblib/threadpoolctl#239", "python/cpython#157573"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::LoaderLock))
}
