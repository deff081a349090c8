//! py-spy as a second pair of eyes: thread names, names of functions, lines, locals.
//!
//! In: the process id and the project's own walk. Out: the walk, with py-spy's additions, or a gap with the reason.
//! py-spy reads the running process after the release, never under the stop, so a failure costs only names. It runs
//! only for tasks that the own walk cannot do: local variables, frames without a line, CPython 3.6. Packagers can leave
//! it out: it is the default feature `py-spy`.

#[cfg(feature = "py-spy")]
mod asked;
#[cfg(not(feature = "py-spy"))]
mod left_out;

#[cfg(feature = "py-spy")]
use asked as py_spy;
#[cfg(not(feature = "py-spy"))]
use left_out as py_spy;

use crate::image::{Gap, ProcessImage};
use crate::python::Python;

/// Let py-spy add names; `locals` asks for local variables too.
pub(super) fn enrich(pid: i32, python: &mut Python, locals: bool) {
    if python.threads.is_empty() {
        return;
    }
    if let Err(reason) = py_spy::add(pid, python, locals) {
        python.gaps.push(Gap::new(
            format!("thread names{} of process {pid}", if locals { " and local variables" } else { "" }),
            reason,
        ));
    }
}

/// CPython 3.6, which has no `_PyRuntime` to start from: threads and frames are those of py-spy, its GIL stays a gap.
pub(super) fn threads_of_3_6(image: &ProcessImage) -> Option<Python> {
    let named = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.starts_with("libpython3.6") || name.starts_with("python3.6")
    };
    let exe = image.exe.as_ref().and_then(|exe| exe.to_str());
    let mut files = image.mappings.iter().filter_map(|mapping| mapping.path.as_deref()).chain(exe);
    if !files.any(named) {
        return None;
    }
    let mut python = Python::unreadable((3, 6, 0));
    python.gaps.push(Gap::new(
        format!("the GIL of process {}", image.pid),
        "CPython 3.6 keeps it in static variables without a name; who holds it is not decoded",
    ));
    if let Err(reason) = py_spy::threads(image, &mut python) {
        python.gaps.push(Gap::new(format!("Python frames of process {}", image.pid), reason));
    }
    Some(python)
}
