//! Attributes of objects, as code gets them.
//!
//! In: an object, a name. Out: the [`Value`], where no code runs for it: what the object, its class or its module has, a
//! method of Python, or the answer to a question. Computed ones (properties, `__getattr__`) are none.

use std::collections::BTreeSet;

use super::value::Value;
use super::{Change, TimedCall};
use crate::image::Addr;
use crate::origin::OriginKind;
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;

/// A method of the standard library's own that only asks: module, class and name.
type Question = (&'static str, &'static str, &'static str);

/// By Lib/threading.py, 3.8 to 3.14.
const QUESTIONS: &[Question] = &[("threading", "Event", "is_set"), ("threading", "Thread", "is_alive")];

/// Hooks that a method which waits calls.
const HOOKS: [&str; 4] = ["_qsize", "_get", "_put", "_init"];

/// Whether a call's method, its queries and the hooks that these call are the library's own, whatever the class is called.
pub(super) fn is_of_library(inspector: &Inspector<'_>, call: &TimedCall) -> bool {
    let mut names = std::iter::once(call.method).chain(call.queries.iter().map(|(query, _)| *query)).chain(HOOKS);
    let own = |name: &str| inspector.objects().attribute(call.object, name).is_some();
    let is_own = |name: &str| found(inspector, call.object, name).is_none_or(|(_, one)| is_librarys(inspector, one));
    names.all(|name| !own(name) && is_own(name))
}

/// Whether a class has this for a method of the standard library, or of C.
fn is_librarys(inspector: &Inspector<'_>, method: Addr) -> bool {
    let objects = inspector.objects();
    match objects.class_name(method).as_deref() {
        Some("function") => {
            let code = objects.function(method).map(|function| function.code);
            let origin = code.and_then(|code| inspector.frames().code_origin(code));
            origin.is_some_and(|origin| origin.kind == OriginKind::Stdlib)
        }
        Some("method_descriptor") => true,
        _ => false,
    }
}

/// The first class of an object that has the name, and what it has.
fn found(inspector: &Inspector<'_>, object: Addr, name: &str) -> Option<(Addr, Addr)> {
    let objects = inspector.objects();
    let (_, order) = objects.class_parts(objects.class(object)?)?;
    order.into_iter().find_map(|class| Some((class, objects.item(objects.class_parts(class)?.0?, name)?)))
}

/// The attribute of a value with this name. The changes that would make it another one are in it, or are added.
pub(super) fn attribute(
    inspector: &Inspector<'_>,
    call: &TimedCall,
    owner: Value,
    name: String,
    changes: &mut BTreeSet<Change>,
) -> Option<Value> {
    // Another object may come to stand in its place.
    let (object, objects) = (owner.object_that_stays(changes)?, inspector.objects());
    if let Some(dict) = module_dict(objects, object) {
        // A module's own code knows it as a global.
        return Some(Value::Shared(objects.item(dict, &name)?, Change::Global(name, Some(dict))));
    }
    let is_known = name == call.method || call.queries.iter().any(|(query, _)| *query == name);
    if object == call.object && is_known && objects.attribute(object, &name).is_none() {
        return Some(Value::Method(name));
    }
    question(inspector, object, &name).or_else(|| of_object(inspector, owner, object, &name, changes))
}

/// The answer to a method of the standard library's own that only asks, and what would change it.
fn question(inspector: &Inspector<'_>, object: Addr, method: &str) -> Option<Value> {
    let objects = inspector.objects();
    let (own, function) = found(inspector, object, method)?;
    if objects.attribute(object, method).is_some() || !is_librarys(inspector, function) {
        return None;
    }
    let is = |(module, class, name): &&Question| {
        *name == method && inspector.globals(module, class).any(|known| known == own)
    };
    let attribute = |name: &str| objects.unsigned(objects.attribute(object, name)?);
    match QUESTIONS.iter().find(is)? {
        (_, "Event", _) => Some(Value::Asks(attribute("_flag")? != 0, Change::Of(object))),
        _ => {
            let ident = attribute("_ident")?;
            lives(inspector, object, ident)?.then_some(Value::Asks(true, Change::End(ident)))
        }
    }
}

/// Whether a Thread of `threading` lives; `None` where that is not known.
fn lives(inspector: &Inspector<'_>, thread: Addr, ident: u64) -> Option<bool> {
    let objects = inspector.objects();
    // A thread that has ended is in the list no more, and another one may have its ident.
    let is_listed = |list: Addr| {
        let items = objects.items(list).unwrap_or_default();
        items.into_iter().any(|(key, one)| one == thread && objects.unsigned(key) == Some(ident))
    };
    let is_active = inspector.globals("threading", "_active").any(is_listed);
    // The main thread says that it has ended (up to 3.12 by this word) while it waits for the others.
    let has_stopped = objects.attribute(thread, "_is_stopped").and_then(|word| objects.unsigned(word)) == Some(1);
    let state = inspector.with_ident(ident)?;
    let ends = state
        .entries
        .iter()
        .flat_map(|entry| &entry.frames)
        .any(|frame| frame.origin.kind == OriginKind::Stdlib && &*frame.function == "_shutdown");
    (is_active && !has_stopped && !ends).then_some(true)
}

/// An attribute of an object or its class that is read without running code.
fn of_object(
    inspector: &Inspector<'_>,
    owner: Value,
    object: Addr,
    name: &str,
    changes: &mut BTreeSet<Change>,
) -> Option<Value> {
    let objects = inspector.objects();
    let shared = |value: Addr| Some(Value::Shared(value, Change::Of(object)));
    let (_, order) = objects.class_parts(objects.class(object)?)?;
    let dict_of = |class: &Addr| objects.class_parts(*class).and_then(|(dict, _)| dict);
    let computes = |class: &Addr| {
        let has = |dict: Addr| objects.item(dict, "__getattribute__").is_some();
        objects.is_heap_class(*class) && dict_of(class).is_none_or(has)
    };
    if order.iter().any(computes) {
        return None;
    }
    let own = objects.attribute(object, name);
    // A class may compute an attribute for those who ask it.
    let is_plain = |value: Addr| !objects.is_class(object) || is_data(objects, value);
    let Some((class, found)) = found(inspector, object, name) else { return shared(own.filter(|own| is_plain(*own))?) };
    match &*objects.class_name(found)? {
        "member_descriptor" => shared(objects.member(object, name)?),
        "function" if own.is_none() => {
            changes.extend([Change::Of(object), Change::Of(class)]);
            Some(Value::Function(found, Some(Box::new(owner))))
        }
        // The class has it for all objects, until one has its own.
        _ if is_data(objects, found) => {
            changes.insert(Change::Of(class));
            shared(own.unwrap_or(found))
        }
        // It is computed.
        _ => None,
    }
}

/// Whether an object is of a class of the interpreter's that makes nothing of itself where it is looked up.
fn is_data(objects: &Objects<'_>, object: Addr) -> bool {
    let class = objects.class_name(object);
    matches!(class.as_deref(), Some("bool" | "int" | "NoneType" | "str" | "list" | "dict"))
        && objects.class(object).is_some_and(|class| !objects.is_heap_class(class))
}

/// The dictionary of a module's globals; `None` for other objects.
fn module_dict(objects: &Objects<'_>, object: Addr) -> Option<Addr> {
    // PyModuleObject.md_dict is the first word behind the head.
    (objects.class_name(object).as_deref() == Some("module")).then(|| objects.field(object, 0)).flatten()
}
