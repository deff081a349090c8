//! What the garbage collector may call on any thread: finalisers of the program's classes (`__del__`), and what `weakref.finalize`
//! keeps.
//!
//! In: an inspector. Out: names, and what each of them can reach. Objects in a ring of garbage are known to nobody but the collector,
//! and not looked for: of a finaliser's object only its class is known, so that names decide what it may do. Finalisers of libraries
//! know nothing of the program's objects.

use std::collections::HashSet;

use super::inspect::{Inspector, frames_of};
use super::library::is_library;
use super::reach::{self, Reached};
use super::reach_tables::INSTALLED;
use crate::image::Addr;

/// Something that is called when an object dies.
#[derive(Debug)]
pub(crate) struct Finaliser {
    /// "Thing.__del__".
    pub(crate) name: String,
    /// What it reaches, beside its object.
    pub(crate) reached: Reached,
    /// What it is called with is known: nothing else is within its reach.
    pub(crate) is_whole: bool,
}

/// All of them.
pub(crate) fn all(inspector: &Inspector<'_>) -> Vec<Finaliser> {
    let objects = inspector.objects();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for class in classes(inspector).into_iter().filter(|class| seen.insert(*class)) {
        let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
        let Some(function) = dict.and_then(|dict| objects.item(dict, "__del__")) else { continue };
        if is_of_program(inspector, function) {
            let name = format!("{}.__del__", objects.name_of_class(class).unwrap_or_default());
            found.push(Finaliser { name, reached: reach::from(inspector, [function, class], false), is_whole: false });
        }
    }
    for class in inspector.globals("weakref", "finalize") {
        let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
        let registry = dict.and_then(|dict| objects.item(dict, "_registry"));
        let told = registry.and_then(|registry| objects.items(registry)).unwrap_or_default();
        let roots: Vec<Addr> = told.into_iter().flat_map(|(_, told)| objects.words_of(told)).collect();
        if !roots.is_empty() {
            let name = "what weakref.finalize keeps".to_owned();
            found.push(Finaliser { name, reached: reach::from(inspector, roots, false), is_whole: true });
        }
    }
    found
}

/// Classes that the program's modules and the frames of its threads have.
fn classes(inspector: &Inspector<'_>) -> Vec<Addr> {
    let objects = inspector.objects();
    let mut values = Vec::new();
    for interpreter in &inspector.python.interpreters {
        let modules = objects.pointer(interpreter.modules_field);
        let modules = modules.and_then(|modules| objects.items(modules)).unwrap_or_default();
        for dict in modules.into_iter().filter_map(|(_, module)| objects.field(module, 0)) {
            let file = objects.item(dict, "__file__").and_then(|file| objects.text(file));
            let name = || objects.item(dict, "__name__").and_then(|name| objects.text(name));
            // A program on the command line has no file.
            if file.map_or_else(|| name().as_deref() == Some("__main__"), |file| !is_installed(&file)) {
                values.extend(objects.items(dict).unwrap_or_default().into_iter().map(|(_, value)| value));
            }
        }
    }
    for frame in inspector.living().flat_map(|(_, state)| frames_of(state)).filter(|frame| !is_library(&frame.file)) {
        if let Some(open) = inspector.frame(frame) {
            values.extend(open.variables().into_iter().map(|(_, value)| objects.out_of_cell(value)));
        }
    }
    values.retain(|value| objects.is_class(*value) && objects.is_heap_class(*value));
    values
}

fn is_installed(file: &str) -> bool {
    INSTALLED.iter().any(|part| file.contains(part))
}

fn is_of_program(inspector: &Inspector<'_>, function: Addr) -> bool {
    let code = inspector.objects().function(function).map(|function| function.code);
    code.and_then(|code| inspector.frames().code_file(code)).is_some_and(|file| !is_installed(&file))
}
