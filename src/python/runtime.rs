//! Finding CPython in a process: `_PyRuntime`, the version, the layout that fits.
//!
//! In: modules, symbols and memory. Out: [`Found`]. A version counts when the structures behind it hold together, not
//! because of a file's name. Builds without a GIL and versions without a table are reported.

use super::layout::{self, FIXED, Layout};
use crate::image::{Addr, Memory, MemoryExt, ProcessImage};
use crate::symbols::Symbols;

/// A runtime and how to read it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) runtime: Addr,
    pub(crate) version: (u8, u8, u8),
    pub(crate) free_threaded: bool,
    /// `None`: why it cannot be read.
    pub(crate) layout: Result<Layout, String>,
}

/// Find the runtime.
pub(crate) fn find(image: &ProcessImage, symbols: &Symbols<'_>) -> Option<Found> {
    let exe = image.exe.as_ref().and_then(|e| e.to_str());
    let modules = &symbols.modules().list;
    let libraries = modules.iter().enumerate().filter(|(_, module)| module.name.starts_with("libpython"));
    let programs = modules
        .iter()
        .enumerate()
        .filter(|(_, module)| Some(module.path.as_str()) == exe || module.name.contains("python3"));
    let memory = &*image.memory;
    for (module, file) in libraries.chain(programs) {
        let Some(runtime) = symbols.find(module, "_PyRuntime") else { continue };
        let runtime = runtime.address;
        if let Ok(Some(own)) = layout::self_description(memory, runtime) {
            let layout = own.layout.ok_or_else(|| {
                format!(
                    "CPython {}.{} is newer than the versions known here (3.7 to 3.15)",
                    own.version.0, own.version.1
                )
            });
            return Some(Found { runtime, version: own.version, free_threaded: own.free_threaded, layout });
        }
        let exact = symbols.find(module, "Py_Version").and_then(|s| memory.u32(s.address).ok());
        let hinted = exact
            .map(|hex| layout::version_of(hex.into()))
            .or_else(|| version_in_name(&file.name).or_else(|| version_in_name(exe?)).map(|(a, b)| (a, b, 0)));
        let mut order: Vec<_> = FIXED.to_vec();
        order.sort_by_key(|(version, _)| hinted.is_none_or(|h| (h.0, h.1) != *version));
        let fitting = order.into_iter().find(|(_, layout)| holds_together(image, memory, runtime, layout));
        return Some(match fitting {
            Some((version, layout)) => Found {
                runtime,
                version: (version.0, version.1, hinted.filter(|h| (h.0, h.1) == version).map_or(0, |h| h.2)),
                free_threaded: false,
                layout: Ok(*layout),
            },
            None => Found {
                runtime,
                version: hinted.unwrap_or((3, 0, 0)),
                free_threaded: false,
                layout: Err(
                    "no known layout fits what stands at _PyRuntime: its heap is damaged, or it is no release".into()
                ),
            },
        });
    }
    None
}

/// `python3.8`, `libpython3.8.so.1.0`, `python3.7m`.
fn version_in_name(name: &str) -> Option<(u8, u8)> {
    let rest = name.rsplit('/').next()?.split("python").nth(1)?;
    let mut numbers = rest.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor: String = numbers.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

/// Whether the first interpreter, its first thread and the GIL point to each other as they should.
fn holds_together(image: &ProcessImage, memory: &dyn Memory, runtime: Addr, layout: &Layout) -> bool {
    let check = || {
        let interpreter = memory.pointer(runtime + layout.interpreters_head).ok()?;
        let thread = memory.pointer(interpreter + layout.interpreter_threads).ok()?;
        let back = memory.pointer(thread + layout.thread_interpreter).ok()?;
        let ident = memory.u64(thread + layout.thread_ident).ok()?;
        let gil = match (layout.runtime_gil, layout.interpreter_gil) {
            (Some(offset), _) => runtime + offset,
            (None, Some(offset)) => memory.pointer(interpreter + offset).ok()?,
            (None, None) => return None,
        };
        let locked = memory.i32(gil + layout::gil::LOCKED).ok()?;
        let interval = memory.u64(gil + layout::gil::INTERVAL).ok()?;
        // sys.setswitchinterval takes microseconds; beyond an hour it is something else.
        let gil_fits = (-1..=1).contains(&locked) && (1..3_600_000_000).contains(&interval);
        let ident_fits = image.mapping(Addr(ident)).is_some_and(|m| m.write);
        Some(back == interpreter && gil_fits && ident_fits)
    };
    check().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::version_in_name;

    #[test]
    fn versions_in_names() {
        for (name, version) in [
            ("/usr/bin/python3.8", Some((3, 8))),
            ("libpython3.10.so.1.0", Some((3, 10))),
            ("libpython3.7m.so.1.0", Some((3, 7))),
            ("python3", None),
            ("libpython", None),
            ("node", None),
        ] {
            assert_eq!(version_in_name(name), version, "{name}");
        }
    }
}
