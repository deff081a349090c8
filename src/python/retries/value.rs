//! Values while code is executed, as far as they are known, and what follows from them.
//!
//! In: objects of the process, and values made from them. Out: truth, identity, numbers, elements, and in `changes` the
//! ways in which another thread could make them others.

use std::collections::BTreeSet;

use super::Change;
use crate::image::Addr;
use crate::limits::python::MOST_ELEMENTS_OF_A_LOOP;
use crate::python::objects::Objects;

/// A value on the stack or in a variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    /// Not known, and of no effect where it is not used.
    Unknown,
    /// An object that a constant or a variable of the function has.
    Own(Addr),
    /// An object that another thread may put another one in the place of, and by which change.
    Shared(Addr, Change),
    /// The exception of the time-out.
    TimeOut,
    /// A truth value that was computed on the way.
    Truth(bool),
    Number(i64),
    /// The result of a call that has none.
    Nothing,
    /// A tuple or list that was made on the way.
    Made(Vec<Value>),
    /// The elements that an iterator has still to give, the next one last.
    Elements(Vec<Value>),
    /// The method of the call that waits, or one of its object that only asks.
    Method(String),
    /// A method of another object that only asks: its answer now, and what would change that.
    Asks(bool, Change),
    /// A function of Python, and the object whose method it is.
    Function(Addr, Option<Box<Value>>),
}

/// A value that can be compared.
#[derive(PartialEq, PartialOrd)]
enum Plain {
    Number(i64),
    Text(String),
}

impl Value {
    /// The object that it is, if it is one of the process.
    pub(super) fn object(&self) -> Option<Addr> {
        match self {
            Value::Own(object) | Value::Shared(object, _) => Some(*object),
            _ => None,
        }
    }

    /// The same, where what it decides depends on nobody putting another object in its place.
    pub(super) fn object_that_stays(&self, changes: &mut BTreeSet<Change>) -> Option<Addr> {
        if let Value::Shared(_, change) = self {
            changes.insert(change.clone());
        }
        self.object()
    }

    /// Whether it counts as true.
    pub(super) fn truth(&self, objects: &Objects<'_>, changes: &mut BTreeSet<Change>) -> Option<bool> {
        match self {
            Value::Truth(truth) => Some(*truth),
            Value::Nothing => Some(false),
            Value::Number(number) => Some(*number != 0),
            Value::Made(elements) => Some(!elements.is_empty()),
            Value::Own(_) | Value::Shared(..) => {
                let object = self.object_that_stays(changes)?;
                match objects.is_none(object) {
                    true => Some(false),
                    false => match count(objects, object, changes) {
                        Some(count) => Some(count != 0),
                        None => number(objects, object).map(|number| number != 0),
                    },
                }
            }
            _ => None,
        }
    }

    pub(super) fn is_none(&self, objects: &Objects<'_>, changes: &mut BTreeSet<Change>) -> Option<bool> {
        match self {
            Value::Truth(_) | Value::Number(_) | Value::Made(_) | Value::TimeOut => Some(false),
            Value::Nothing => Some(true),
            Value::Own(_) | Value::Shared(..) => Some(objects.is_none(self.object_that_stays(changes)?)),
            _ => None,
        }
    }

    /// How many elements it has.
    pub(super) fn length(&self, objects: &Objects<'_>, changes: &mut BTreeSet<Change>) -> Option<i64> {
        match self {
            Value::Made(elements) => i64::try_from(elements.len()).ok(),
            _ => count(objects, self.object_that_stays(changes)?, changes),
        }
    }

    /// Its elements in their order; of a dictionary the keys.
    pub(super) fn elements(&self, objects: &Objects<'_>, changes: &mut BTreeSet<Change>) -> Option<Vec<Value>> {
        if let Value::Made(elements) = self {
            return Some(elements.clone());
        }
        let container = self.object_that_stays(changes)?;
        let shared = |object: Addr| Value::Shared(object, Change::Of(container));
        let elements: Vec<Value> = match &*exact_class(objects, container)? {
            "tuple" => objects.sequence(container, MOST_ELEMENTS_OF_A_LOOP)?.into_iter().map(Value::Own).collect(),
            "list" => objects.sequence(container, MOST_ELEMENTS_OF_A_LOOP)?.into_iter().map(shared).collect(),
            "dict" => objects
                .items_up_to(container, MOST_ELEMENTS_OF_A_LOOP)?
                .into_iter()
                .map(|(key, _)| shared(key))
                .collect(),
            _ => return None,
        };
        let is_whole = count(objects, container, changes) == i64::try_from(elements.len()).ok();
        is_whole.then_some(elements)
    }

    /// The element at an index or key.
    pub(super) fn element(&self, key: &Value, objects: &Objects<'_>, changes: &mut BTreeSet<Change>) -> Option<Value> {
        let key = key.plain(objects, changes)?;
        let container = self.object();
        if container.and_then(|container| exact_class(objects, container)).as_deref() != Some("dict") {
            let Plain::Number(index) = key else { return None };
            return self.elements(objects, changes)?.into_iter().nth(usize::try_from(index).ok()?);
        }
        let container = self.object_that_stays(changes)?;
        changes.insert(Change::Of(container));
        let is_it = |of: &Addr| plain(objects, *of).is_some_and(|of| of == key);
        let found = objects.items_up_to(container, MOST_ELEMENTS_OF_A_LOOP)?.into_iter().find(|(of, _)| is_it(of))?;
        Some(Value::Shared(found.1, Change::Of(container)))
    }

    /// Whether it is smaller, equal or greater than another one; `None` where they cannot be compared.
    pub(super) fn order(
        &self,
        other: &Value,
        objects: &Objects<'_>,
        changes: &mut BTreeSet<Change>,
    ) -> Option<std::cmp::Ordering> {
        let (left, right) = (self.plain(objects, changes)?, other.plain(objects, changes)?);
        left.partial_cmp(&right).filter(|_| matches!(left, Plain::Number(_)) == matches!(right, Plain::Number(_)))
    }

    fn plain(&self, objects: &Objects<'_>, changes: &mut BTreeSet<Change>) -> Option<Plain> {
        match self {
            Value::Number(number) => Some(Plain::Number(*number)),
            Value::Truth(truth) => Some(Plain::Number((*truth).into())),
            _ => plain(objects, self.object_that_stays(changes)?),
        }
    }
}

fn plain(objects: &Objects<'_>, object: Addr) -> Option<Plain> {
    number(objects, object).map(Plain::Number).or_else(|| objects.text(object).map(Plain::Text))
}

/// The class of an object, where it is one of the interpreter's own.
fn exact_class(objects: &Objects<'_>, object: Addr) -> Option<std::rc::Rc<str>> {
    let class = objects.class(object).filter(|class| !objects.is_heap_class(*class))?;
    objects.name_of_class(class)
}

fn number(objects: &Objects<'_>, object: Addr) -> Option<i64> {
    let is_number = matches!(&*exact_class(objects, object)?, "bool" | "int");
    i64::try_from(objects.unsigned(object).filter(|_| is_number)?).ok()
}

/// How many elements a container has, which other code may change; `None` for other objects.
fn count(objects: &Objects<'_>, object: Addr, changes: &mut BTreeSet<Change>) -> Option<i64> {
    let class = exact_class(objects, object)?;
    if !matches!(&*class, "list" | "dict" | "collections.deque" | "tuple") {
        return None;
    }
    if &*class != "tuple" {
        changes.insert(Change::Of(object));
    }
    // The number of its elements stands first behind the head.
    objects.field(object, 0).and_then(|count| i64::try_from(count.0).ok())
}

/// Classes whose objects end without that any code runs.
const QUIET: &[&str] = &["NoneType", "bool", "int", "float", "str", "bytes"];

/// Whether no code runs at the end of an object.
pub(super) fn ends_quietly(objects: &Objects<'_>, object: Addr) -> bool {
    object.is_null() || exact_class(objects, object).is_some_and(|class| QUIET.contains(&&*class))
}
