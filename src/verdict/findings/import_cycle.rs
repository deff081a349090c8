//! `import-cycle`: a module is imported by a thread that the import itself waits for.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::report::Severity;
use crate::waits::kinds::Topic;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "import-cycle",
        title: "an import waits for a thread that waits for the import",
        severity: Severity::Error,
        what: "While the body of a module runs, its thread has the import lock of that module. Another thread wants to import the module and waits for that lock, and the body of the module waits for that thread.",
        cause: "Python sees cycles of imports among threads and breaks them, but it does not see a wait for a thread. A module that starts a thread, a pool or a server in its body and waits for it hangs as soon as that thread imports the module, or something that imports it. Unpickling, codecs (`\"x\".encode(\"idna\")`), time.strptime and lazily loaded packages import too. Programs that do all their work at the top of a module that somebody imports hang so most often.",
        example: Example {
            file: "import_cycle.py",
            program: include_str!("examples/import_cycle.py"),
            command: "python3 -c 'import import_cycle'",
            needs: Requirement::Nothing,
        },
        help: &[
            "start no thread from the body of a module and wait for it there: do it in a function that is called after the import",
            "import what the thread needs before it is started, at the top of its own module",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "put the work into a function (`def main()`, and `if __name__ == \"__main__\": main()`), and call it after the import. Import what threads need at the top of their own module, before they are started.",
            },
            Fix {
                with: Toolkit::Numba,
                text: "functions that are compiled with `parallel=True` start a pool of threads: do not call them in the body of a module. Compiling ahead in the body with given signatures is safe.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "make no DataLoader with workers and no process group in the body of a module: with spawn the workers import that module again.",
            },
            Fix {
                with: Toolkit::Pybind11,
                text: "the initialiser of a module (PYBIND11_MODULE) runs under the import lock: start no thread there that imports or needs the GIL and is waited for.",
            },
            Fix {
                with: Toolkit::Cython,
                text: "code at the top of a .pyx file runs under the import lock, as in Python.",
            },
            Fix {
                with: Toolkit::PyO3,
                text: "a `#[pymodule]` function runs under the import lock: start no thread there and wait for it; `py.import` in a `PyOnceLock` belongs into the functions.",
            },
            Fix {
                with: Toolkit::C,
                text: "PyInit_name runs under the import lock: start threads in a function of the module that is called afterwards.",
            },
        ],
        references: &["python/cpython#125037"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    context.cycle_drafts(|cycle| cycle.is_about(Topic::ImportLock))
}
