//! Where the interpreter says that its library and the installed packages are.
//!
//! In: `sys.modules` of each interpreter; where that cannot be read, paths of mapped files. Out: [`PythonFolders`]. It
//! decides nothing of a single file.

use std::collections::HashSet;

use super::layout::Layout;
use super::objects::Objects;
use super::walk::Interpreter;
use crate::image::{Addr, MemoryExt, ProcessImage};
use crate::limits::python::MOST_CONTAINED;
use crate::origin::{PACKAGE_FOLDERS, PythonFolders};

/// Modules of the library that each program imports, with a function of each: its code knows the file that it was
/// compiled from, which a bundle without sources keeps of another machine.
const LANDMARKS: [(&str, &str); 2] = [("os", "getenv"), ("threading", "current_thread")];
/// The plugin's module that stays in a process.
const OWN_MODULES: [&str; 2] = ["lockscope._coverage", "lockscope"];

/// The folders of a process.
pub(super) fn find(
    image: &ProcessImage,
    layout: &Layout,
    interpreters: &[Interpreter],
    (major, minor, _): (u8, u8, u8),
) -> PythonFolders {
    let mut folders = PythonFolders::default();
    let objects = Objects::new(&*image.memory, layout);
    for interpreter in interpreters {
        let modules = image.memory.pointer(interpreter.address + layout.interpreter_modules).ok();
        if let Some(modules) = modules.and_then(|modules| objects.items(modules)) {
            by_modules(&objects, &modules, &mut folders);
        }
    }
    if folders.stdlib.is_empty() {
        folders.from_mappings = Some((major, minor));
        folders.stdlib = by_mappings(image, &format!("python{major}.{minor}"));
    }
    folders
}

fn by_modules(objects: &Objects<'_>, modules: &[(Addr, Addr)], folders: &mut PythonFolders) {
    let globals = |name: &str| objects.items(objects.field(objects.named(modules, name)?, 0)?);
    let text = |globals: &[(Addr, Addr)], name: &str| objects.text(objects.named(globals, name)?);
    for (position, (module, function)) in LANDMARKS.into_iter().enumerate() {
        let Some(globals) = globals(module) else { continue };
        let Some(folder) = text(&globals, "__file__").as_deref().and_then(|file| folder_of(file, module)) else {
            continue;
        };
        // A program may have a module `threading` of its own; `os` is there before the program is.
        if position > 0 && !folders.stdlib.contains(&folder) {
            continue;
        }
        let code = objects.named(&globals, function).and_then(|function| objects.function(function));
        let compiled = code.and_then(|function| objects.code_file(function.code));
        let compiled = compiled.as_deref().and_then(|file| folder_of(file, module));
        add(&mut folders.stdlib, Some(folder));
        add(&mut folders.stdlib, compiled);
    }
    let Some(sys) = globals("sys") else { return };
    let entries = objects.named(&sys, "path").and_then(|path| objects.sequence(path, MOST_CONTAINED));
    for entry in entries.unwrap_or_default() {
        add(&mut folders.packages, objects.text(entry).filter(|entry| is_of_packages(entry)));
    }
    if objects.named(&sys, "_MEIPASS").is_some() {
        let names =
            objects.named(&sys, "stdlib_module_names").and_then(|names| objects.sequence(names, MOST_CONTAINED));
        folders.bundled = names.unwrap_or_default().into_iter().filter_map(|name| objects.text(name)).collect();
    }
    for own in OWN_MODULES {
        let file = globals(own).and_then(|globals| text(&globals, "__file__"));
        let folder = file.as_deref().and_then(|file| file.rsplit_once('/'));
        folders.lockscope = folders.lockscope.take().or_else(|| folder.map(|(folder, _)| folder.to_owned()));
    }
}

/// The folder of a module's own file: "/usr/lib/python3.11" of "/usr/lib/python3.11/os.py".
fn folder_of(file: &str, module: &str) -> Option<String> {
    let (folder, name) = file.rsplit_once('/')?;
    let stem = name.strip_suffix(".py").or_else(|| name.strip_suffix(".pyc"))?;
    (stem == module && !folder.is_empty()).then(|| folder.to_owned())
}

fn add(list: &mut Vec<String>, folder: Option<String>) {
    if let Some(folder) = folder.filter(|folder| !list.contains(folder)) {
        list.push(folder);
    }
}

/// Whether an entry of `sys.path` is a folder of packages: as `site` makes it, or a wheel that pex has unpacked.
fn is_of_packages(entry: &str) -> bool {
    let name = entry.rsplit('/').next().unwrap_or(entry);
    entry.starts_with('/') && (PACKAGE_FOLDERS.contains(&name) || name.ends_with(".whl"))
}

/// The library lies beside its extension modules, or in `lib` of a folder above the interpreter's.
fn by_mappings(image: &ProcessImage, own: &str) -> Vec<String> {
    const EXTENSIONS: &str = "lib-dynload";
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let exe = image.exe.as_ref().and_then(|exe| exe.to_str());
    for path in image.mappings.iter().filter_map(|mapping| mapping.path.as_deref()).chain(exe) {
        if !seen.insert(path) {
            continue;
        }
        let Some((folder, name)) = path.rsplit_once('/') else { continue };
        match folder.rsplit_once('/') {
            Some((above, EXTENSIONS)) => add(&mut found, Some(above.to_owned())),
            _ if name == own || name.starts_with(&format!("lib{own}")) => {
                for folder in std::iter::successors(Some(folder), |folder| Some(folder.rsplit_once('/')?.0)) {
                    add(&mut found, Some(format!("{folder}/{own}")));
                    add(&mut found, Some(format!("{folder}/lib/{own}")));
                }
            }
            _ => {}
        }
    }
    found
}
