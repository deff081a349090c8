//! What code gets when it asks an object for an attribute.
//!
//! In: an object, a name. Out: the [`Value`], where no code runs for it: what the object, its class or its module has, a
//! method of Python, or the answer to a question. What is computed (properties, `__getattr__`) is none.

use std::collections::BTreeSet;

use super::value::Value;
use super::{Change, TimedCall};
use crate::image::Addr;
use crate::python::inspect::Inspector;
use crate::python::objects::Objects;

/// A method of the standard library's own that only asks: module, class and name.
type Question = (&'static str, &'static str, &'static str);

/// By Lib/threading.py, 3.8 to 3.14.
const QUESTIONS: &[Question] = &[("threading", "Event", "is_set"), ("threading", "Thread", "is_alive")];

/// The attribute of a value with this name. The changes that would make it another one are in it, or are added.
pub(super) fn attribute(
    inspector: &Inspector<'_>,
    call: &TimedCall,
    owner: Value,
    name: String,
    changes: &mut BTreeSet<Change>,
) -> Option<Value> {
    let (object, objects) = (owner.object()?, inspector.objects());
    if let Some(dict) = module_dict(objects, object) {
        // A module's own code knows it as a global.
        return Some(Value::Shared(objects.item(dict, &name)?, Change::Global(name, Some(dict))));
    }
    // Another object may come to stand in its place. Modules and classes stay.
    if !objects.is_class(object) {
        owner.object_that_stays(changes);
    }
    let is_known = name == call.method || call.queries.iter().any(|(query, _)| *query == name);
    if object == call.object && is_known && objects.attribute(object, &name).is_none() {
        return Some(Value::Method(name));
    }
    question(inspector, object, &name).or_else(|| of_object(objects, owner, object, &name, changes))
}

/// The answer to a method of the standard library's own that only asks, and what would change it.
fn question(inspector: &Inspector<'_>, object: Addr, method: &str) -> Option<Value> {
    let objects = inspector.objects();
    let (_, order) = objects.class_parts(objects.class(object)?)?;
    let has = |class: &Addr| {
        let dict = objects.class_parts(*class).and_then(|(dict, _)| dict);
        dict.is_some_and(|dict| objects.item(dict, method).is_some())
    };
    let own = objects.attribute(object, method).is_none().then(|| order.into_iter().find(has))??;
    let is = |(module, class, name): &&Question| {
        *name == method && inspector.globals(module, class).any(|known| known == own)
    };
    let attribute = |name: &str| objects.unsigned(objects.attribute(object, name)?);
    match QUESTIONS.iter().find(is)? {
        (_, "Event", _) => Some(Value::Asks(attribute("_flag")? != 0, Change::Of(object))),
        _ => {
            let ident = attribute("_ident")?;
            Some(Value::Asks(inspector.with_ident(ident).is_some(), Change::End(ident)))
        }
    }
}

/// An attribute of an object or its class that is read without running code.
fn of_object(
    objects: &Objects<'_>,
    owner: Value,
    object: Addr,
    name: &str,
    changes: &mut BTreeSet<Change>,
) -> Option<Value> {
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
    let item = |class: &Addr| Some((*class, objects.item(dict_of(class)?, name)?));
    let Some((class, found)) = order.iter().find_map(item) else { return shared(own?) };
    match &*objects.class_name(found)? {
        "member_descriptor" => shared(objects.member(object, name)?),
        "function" if own.is_none() => {
            changes.insert(Change::Of(object));
            Some(Value::Function(found, Some(Box::new(owner))))
        }
        // What the class has for all, until the object has its own.
        "bool" | "int" | "NoneType" | "str" | "list" | "dict" => {
            changes.insert(Change::Of(class));
            shared(own.unwrap_or(found))
        }
        // It is computed.
        _ => None,
    }
}

/// The dictionary of a module's globals; `None` for other objects.
fn module_dict(objects: &Objects<'_>, object: Addr) -> Option<Addr> {
    // PyModuleObject.md_dict is the first word behind the head.
    (objects.class_name(object).as_deref() == Some("module")).then(|| objects.field(object, 0)).flatten()
}
