//! Functions that the garbage collector, or the end of a last reference, may call on any thread.
//!
//! In: an inspector. Out: groups of things that are called when an object dies, each with everything that it can reach.
//! These are the `__del__` of the existing instances, callbacks of weak references, functions of `weakref.finalize`,
//! and the rest of generators that were suspended inside a `try` or a `with`. The search covers all objects that the
//! collector tracks, garbage included. If these cannot be known, [`Finaliser::reached`] of a group that stands for all
//! says so.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::heap;
use super::inspect::Inspector;
use super::reach::{self, Reached};
use crate::image::Addr;

/// Something that is called when an object dies.
#[derive(Debug)]
pub(crate) struct Finaliser {
    /// "Thing.__del__".
    pub(crate) name: String,
    /// Everything that it reaches, its object included.
    pub(crate) reached: Reached,
}

/// How instances of a class end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Plain,
    Finaliser(Addr),
    Callback,
    Suspended,
}

/// All of them, but for objects that are known to live on.
pub(crate) fn all(inspector: &Inspector<'_>, alive: &HashSet<Addr>) -> Vec<Finaliser> {
    let objects = inspector.objects();
    let at_hand = heap::at_hand(inspector);
    let Some(tracked) = heap::tracked(inspector) else {
        let why = "something that dies may call anything: not all objects of the process could be read";
        return vec![Finaliser { name: "a finaliser".to_owned(), reached: Reached::unknown(why) }];
    };
    let mut ends: HashMap<Addr, End> = HashMap::new();
    let mut roots: BTreeMap<String, Vec<Addr>> = BTreeMap::new();
    let is_kept = |object: Addr| alive.contains(&object) || at_hand.contains(&object);
    for object in tracked.iter().copied() {
        let Some(class) = objects.class(object) else { continue };
        match *ends.entry(class).or_insert_with(|| end_of(inspector, class)) {
            End::Plain => {}
            // It is called when what the reference refers to dies: the reference itself may be at hand.
            End::Callback if objects.field(object, 0).is_some_and(is_kept) => {}
            End::Finaliser(_) | End::Suspended if is_kept(object) => {}
            End::Finaliser(function) => {
                let name = format!("{}.__del__", objects.name_of_class(class).unwrap_or_default());
                roots.entry(name).or_default().extend([object, function]);
            }
            End::Callback => {
                let callback = objects.callback_of_weak_reference(object);
                if let Some(callback) = callback.filter(|callback| !reach::only_forgets(inspector, *callback)) {
                    roots.entry("a weak reference's callback".to_owned()).or_default().push(callback);
                }
            }
            End::Suspended => {
                let frames = inspector.frames();
                let open = frames.of_generator(object).and_then(|(frame, code)| frames.at(frame, code));
                if open.is_some_and(|open| open.is_protected()) {
                    roots.entry("the rest of a suspended generator".to_owned()).or_default().push(object);
                }
            }
        }
    }
    for class in inspector.globals("weakref", "finalize") {
        let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
        let registry = dict.and_then(|dict| objects.item(dict, "_registry"));
        let told = registry.and_then(|registry| objects.items(registry)).unwrap_or_default();
        let told: Vec<Addr> = told.into_iter().flat_map(|(_, told)| objects.words_of(told)).collect();
        if !told.is_empty() {
            roots.entry("what weakref.finalize keeps".to_owned()).or_default().extend(told);
        }
    }
    let walk = |(name, roots)| Finaliser { name, reached: reach::from_or_open(inspector, roots) };
    roots.into_iter().map(walk).collect()
}

fn end_of(inspector: &Inspector<'_>, class: Addr) -> End {
    let objects = inspector.objects();
    let name = objects.name_of_class(class).unwrap_or_default();
    if matches!(&*name, "generator" | "coroutine" | "async_generator") {
        return End::Suspended;
    }
    let order = objects.class_parts(class).map(|(_, order)| order).unwrap_or_default();
    let is_weak = |base: &Addr| {
        objects.name_of_class(*base).is_some_and(|name| matches!(&*name, "weakref" | "weakref.ReferenceType"))
    };
    if is_weak(&class) || order.iter().any(is_weak) {
        return End::Callback;
    }
    let finaliser = order.into_iter().filter(|base| objects.is_heap_class(*base)).find_map(|base| {
        let (dict, _) = objects.class_parts(base)?;
        objects.item(dict?, "__del__")
    });
    // For a type of C, that type's own code calls it.
    let is_plain = |function: &Addr| {
        matches!(objects.class_name(*function).as_deref(), None | Some("wrapper_descriptor" | "method_descriptor"))
    };
    finaliser.filter(|function| !is_plain(function)).map_or(End::Plain, End::Finaliser)
}
