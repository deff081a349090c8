//! The walk through objects: containers, instances, classes, modules.
//!
//! In: objects. Out: what each leads to is reached, by the rule for its type.

use super::super::inspect::Inspector;
use super::super::objects::METHOD_OBJECT;
use super::super::uses::CodePart;
use super::tables::{
    BUILTIN_CONTAINERS, CALLED_BY_NAME, DESCRIPTORS, INERT, LIBRARY_MODULES, MAKES_INSTANCES, ONLY_DESCRIBES,
    READABLE_TYPES,
};
use super::{Extent, NODE_WORDS, Walk, awaited_by, module_of_processes};
use crate::image::Addr;
use crate::limits::python::MOST_CONTAINED;

impl Walk<'_, '_> {
    /// Values under names: those that code names now, the others once code does.
    pub(super) fn named(&mut self, items: Vec<(Addr, Addr)>, is_called: bool, is_standard: bool) {
        for (key, value) in items {
            let Some(name) = self.inspector.objects().text(key) else { continue };
            let is_special = name.starts_with("__") && name.ends_with("__") && !CALLED_BY_NAME.contains(&name.as_str());
            let is_called_by_itself = is_special
                && self.inspector.objects().is_callable(value)
                && (is_called || !MAKES_INSTANCES.contains(&name.as_str()))
                && !(is_standard && ONLY_DESCRIBES.contains(&name.as_str()));
            if is_called_by_itself || self.reached.all_names.contains(name.as_str()) {
                self.todo.push(value);
            } else {
                self.unnamed.entry(name.into()).or_default().push(value);
            }
        }
    }

    /// Whether a method of this name runs only when its class is called.
    pub(super) fn makes_instances(&self, key: Addr) -> bool {
        self.inspector.objects().text(key).is_some_and(|name| MAKES_INSTANCES.contains(&name.as_str()))
    }

    pub(super) fn contained(&mut self, items: Vec<Addr>) {
        if items.len() as u64 > MOST_CONTAINED {
            self.gives_up(format!("it can reach a container of more than {MOST_CONTAINED} items"));
        }
        self.todo.extend(items);
    }

    pub(super) fn object(&mut self, object: Addr) {
        let objects = self.inspector.objects();
        let Some(class) = objects.class_name(object) else { return };
        if &*class == "int" {
            self.reached.numbers.extend(objects.unsigned(object));
        }
        if let Some((_, at)) = DESCRIPTORS.iter().find(|(name, _)| *name == &*class) {
            let number = at.and_then(|at| objects.number_at(object, at));
            self.reached.descriptors.push((number, class.to_string()));
        }
        if INERT.contains(&&*class) {
            return;
        }
        if self.extent == Extent::Thread {
            self.callbacks(object);
        }
        if let Some(bound) = objects.bound(object) {
            self.reached.bound.insert((bound.name, bound.object));
        }
        match &*class {
            "function" => {
                let Some(function) = objects.function(object) else { return };
                self.todo.extend(function.brings);
                let (code, globals) = (function.code, Some(function.globals));
                self.code(CodePart { code, globals, module: function.module, ahead_of: None }, false);
            }
            "builtin_function_or_method" | "builtin_method" | "method-wrapper" => {
                let bound = objects.bound(object);
                if &*class != "method-wrapper" && !self.library_only() {
                    self.function_of_c(object, bound.as_ref().map_or("", |bound| bound.name.as_str()));
                }
                let owner = bound.map(|bound| bound.object);
                let is_module = |owner: &Addr| objects.class_name(*owner).as_deref() == Some("module");
                self.todo.extend(owner.filter(|owner| !is_module(owner)));
                // `lock.release.__call__`: a wrapper of a method has its object at the same place.
                self.todo.extend(objects.field(object, METHOD_OBJECT).filter(|_| &*class == "method-wrapper"));
            }
            "cell" => self.todo.extend(objects.field(object, 0)),
            // Behind the items that it counts, a node of a context keeps what its memory had before (Python/hamt.c: the count,
            // the bitmap, the items).
            "hamt_bitmap_node" => {
                let count = objects.field(object, 0).map_or(0, |count| count.0).min(NODE_WORDS);
                self.todo.extend((0..count).filter_map(|item| objects.field(object, 16 + item * 8)));
            }
            "weakref" | "weakref.ReferenceType" | "weakref.KeyedRef" => self.todo.extend(objects.field(object, 0)),
            // PyModuleObject.md_dict is the first word behind the head.
            "module" => {
                let Some(dict) = objects.field(object, 0) else { return };
                let items = objects.items(dict).unwrap_or_default();
                self.replaced(dict, &items);
                self.module(items);
            }
            "generator" | "coroutine" | "async_generator" => {
                let frames = self.inspector.frames();
                if let Some((frame, code)) = frames.of_generator(object) {
                    let of_library = frames.code_origin(code).is_none_or(|of| of.waits_for_caller());
                    self.open_frame(frame, code, of_library);
                    if self.library_only() && !of_library {
                        // A caller that ends it first ends the coroutine that it awaits.
                        let awaited = frames.at(frame, code).map(|open| open.suspended_stack()).unwrap_or_default();
                        let is_coroutine = |slot: &Addr| objects.class_name(*slot).as_deref() == Some("coroutine");
                        self.todo.extend(awaited.into_iter().rev().take(2).filter(is_coroutine));
                    }
                }
            }
            _ if objects.is_class(object) => self.class(object, true),
            _ => self.instance(object, &class),
        }
    }

    /// The functions that are called when this object dies.
    pub(super) fn callbacks(&mut self, object: Addr) {
        let objects = self.inspector.objects();
        for callback in objects.callbacks_at_death(object) {
            if self.is_of_program(callback) || acts(self.inspector, callback) {
                self.todo.push(callback);
            } else if objects.class_name(callback).as_deref() == Some("finalize") {
                let registry =
                    objects.class(callback).and_then(|class| objects.item(objects.class_parts(class)?.0?, "_registry"));
                let items = registry.and_then(|registry| objects.items(registry)).unwrap_or_default();
                let own = items.into_iter().filter(|(key, _)| *key == callback);
                self.todo.extend(own.flat_map(|(_, told)| objects.words_of(told)).collect::<Vec<_>>());
            }
        }
    }

    /// Adds only the named items of a module. This includes names that Python calls by itself in a class.
    pub(super) fn module(&mut self, items: Vec<(Addr, Addr)>) {
        for (key, value) in items {
            let Some(name) = self.inspector.objects().text(key) else { continue };
            match self.reached.all_names.contains(name.as_str()) {
                true => self.todo.push(value),
                false => self.unnamed.entry(name.into()).or_default().push(value),
            }
        }
    }

    /// Functions of the program that stand among the globals of a module of the standard library: its own code calls them, as
    /// `warnings.warn` calls `showwarning`.
    pub(super) fn replaced(&mut self, dict: Addr, globals: &[(Addr, Addr)]) {
        let objects = self.inspector.objects();
        let file = objects.item(dict, "__file__").and_then(|file| objects.text(file));
        if file.is_none_or(|file| !self.inspector.is_standard(&file)) {
            return;
        }
        let is_foreign = |value: &Addr| match objects.class_name(*value).as_deref() {
            Some("function") => objects.function(*value).is_some_and(|function| function.globals != dict),
            Some("method") => true,
            _ => false,
        };
        let foreign = globals.iter().map(|(_, value)| *value).filter(is_foreign);
        let functions: Vec<Addr> = foreign.filter(|value| self.is_of_program(*value)).collect();
        self.todo.extend(functions);
    }

    /// The class of an instance that was reached.
    pub(super) fn class_of_instance(&mut self, class: Addr) {
        if !self.reached.objects.contains(&class) && self.typed.insert(class) {
            self.class(class, false);
        }
    }

    /// A class, with what calling it runs where it is at hand itself.
    pub(super) fn class(&mut self, class: Addr, is_called: bool) {
        let objects = self.inspector.objects();
        let of_library = self.is_of_library(class);
        match objects.makes_exceptions(class) {
            true if of_library => self.reached.exceptions.extend(objects.name_of_class(class)),
            makes => self.reached.raises |= makes,
        }
        // Methods of the classes of an event loop or a lock are not read (`code`), nor are those that a decorator adds.
        let is_left = || self.library_only() || self.waits_for_caller(class);
        if !objects.is_heap_class(class) || of_library && is_left() {
            return;
        }
        let Some((dict, order)) = objects.class_parts(class) else { return };
        let items = dict.and_then(|dict| objects.items(dict)).unwrap_or_default();
        // The metaclass.
        self.todo.extend(objects.class(class).filter(|meta| objects.is_heap_class(*meta)));
        // The library, and C code, call the methods that a class of the program overrides.
        if !of_library && order.iter().any(|base| self.is_of_library(*base) || self.is_of_c(*base)) {
            let is_function = |value: &Addr| objects.class_name(*value).as_deref() == Some("function");
            let overrides = items.iter().filter(|(key, _)| is_called || !self.makes_instances(*key));
            self.todo.extend(overrides.map(|(_, value)| *value).filter(is_function).collect::<Vec<_>>());
        }
        for base in order {
            match is_called {
                true => self.todo.push(base),
                false => self.class_of_instance(base),
            }
        }
        let functions = items.iter().map(|(_, value)| *value);
        let is_function = |value: &Addr| objects.class_name(*value).as_deref() == Some("function");
        let is_standard = functions.filter(is_function).all(|function| self.is_standard(function));
        self.named(items, is_called, is_standard);
    }

    /// Whether a class is written in C and brings something: `object` does not.
    pub(super) fn is_of_c(&self, class: Addr) -> bool {
        let objects = self.inspector.objects();
        let name = objects.name_of_class(class);
        name.is_none_or(|name| &*name != "object" && (name.contains('.') || !objects.is_heap_class(class)))
    }

    pub(super) fn is_of_library(&mut self, class: Addr) -> bool {
        if let Some(known) = self.of_library.get(&class) {
            return *known;
        }
        let of_library = self.has_library_module(class);
        self.of_library.insert(class, of_library);
        of_library
    }

    /// Where a class on the heap says that it is from.
    pub(super) fn module_of(&self, class: Addr) -> Option<String> {
        let objects = self.inspector.objects();
        let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
        dict.and_then(|dict| objects.item(dict, "__module__")).and_then(|module| objects.text(module))
    }

    /// Whether a class is of code that waits on behalf of its caller.
    pub(super) fn waits_for_caller(&self, class: Addr) -> bool {
        let file = self.module_of(class).and_then(|module| self.file_of_module(&module));
        file.is_some_and(|file| self.inspector.origin(&file).waits_for_caller())
    }

    pub(super) fn has_library_module(&self, class: Addr) -> bool {
        self.module_of(class).is_some_and(|module| {
            let first = module.split('.').next().unwrap_or(&module);
            LIBRARY_MODULES.contains(&first)
        })
    }

    /// Whether a `threading.Thread` has not run yet: any code that has it may start it.
    pub(super) fn may_be_started(&self, thread: Addr) -> bool {
        let objects = self.inspector.objects();
        let flag = objects.attribute(thread, "_started").and_then(|event| objects.attribute(event, "_flag"));
        flag.and_then(|flag| objects.unsigned(flag)) == Some(0)
    }

    pub(super) fn instance(&mut self, object: Addr, name: &str) {
        let objects = self.inspector.objects();
        let Some(class) = objects.class(object) else { return };
        let contained = match objects.items(object) {
            Some(items) => Some(items.into_iter().flat_map(|(key, value)| [key, value]).collect()),
            None => objects.sequence(object, MOST_CONTAINED + 1),
        };
        if let Some(items) = contained {
            self.contained(items);
            if BUILTIN_CONTAINERS.contains(&name) {
                return;
            }
            // The fields of a subclass beside its items: attributes, a factory.
            self.todo.extend(objects.words_of(object));
        }
        let of_library = self.is_of_library(class);
        if of_library && name.ends_with("Condition") {
            // It has methods of its lock at hand, which it calls for the lock's holder.
            self.todo.extend(["_lock", "_waiters"].into_iter().filter_map(|name| objects.attribute(object, name)));
            self.class_of_instance(class);
            return;
        }
        if self.library_only() && !of_library && objects.is_heap_class(class) {
            return;
        }
        if of_library && module_of_processes(&self.module_of(class)) {
            self.receives.get_or_insert_with(|| name.to_owned());
        }
        if of_library && name == "CancelStatus" {
            // It notifies others when its scope is cancelled; the scope itself leads to these.
            return;
        }
        if of_library && name == "CancelScope" && !self.library_only() {
            self.scopes.push(object);
            return;
        }
        self.class_of_instance(class);
        let attributes = objects.attributes(object);
        // The loop itself is where one begins, and what a thread runs is its own.
        let by_name = !of_library
            || name.ends_with("Thread")
            || name.ends_with("Timer")
            || name.ends_with("EventLoop")
            || name == "Nursery";
        if name.ends_with("Task") {
            // A task goes on with its coroutine, and cancelling it cancels what it awaits. Tasks that it wakes at its
            // end are followed only for the whole reach of a thread.
            let is_own = |class: &str| class == "coroutine" || class.ends_with("Future") || class.ends_with("Task");
            let is_followed = |word: &Addr| {
                self.extent == Extent::Thread || objects.class_name(*word).is_some_and(|class| is_own(&class))
            };
            let awaited_by = awaited_by(self.inspector, object);
            let words = objects.words_of(object).into_iter().filter(|word| Some(*word) != awaited_by);
            self.todo.extend(words.filter(is_followed));
            return;
        }
        if self.extent == Extent::Thread && name.ends_with("EventLoop") {
            let parts = ["_scheduled", "_ready", "_selector", "_signal_handlers"];
            let runs: Vec<Addr> = parts.into_iter().filter_map(|part| objects.attribute(object, part)).collect();
            if runs.len() < parts.len() {
                self.gives_up(format!("what its event loop, a {name}, may still run could not be read"));
            }
            // Exceptions go to its own handler, if it has one.
            self.todo.extend(runs.into_iter().chain(objects.attribute(object, "_exception_handler")));
        }
        if name.ends_with("Thread") && self.may_be_started(object) {
            let own = ["_target", "_args", "_kwargs"].into_iter().filter_map(|name| objects.attribute(object, name));
            self.todo.extend(own);
        }
        match attributes {
            Some(items) if by_name => {
                self.named(items, false, false);
                if self.has_part_of_c(class) {
                    self.todo.extend(objects.words_of(object));
                }
            }
            Some(items) => {
                self.todo.extend(items.into_iter().map(|(_, value)| value));
                // Objects written in C have their references beside the items.
                self.todo.extend(objects.words_of(object));
            }
            None => {
                if objects.has_managed_dict(class) {
                    // Before such an instance stands what its dictionary is found by; before others lies another object.
                    self.todo.extend(objects.objects_in(Addr(object.0.saturating_sub(32)), 4));
                }
                self.todo.extend(objects.words_of(object));
                self.inside_of_c(object, class, name);
            }
        }
    }

    /// Whether instances of a class have what is written in C beside their attributes.
    pub(super) fn has_part_of_c(&self, class: Addr) -> bool {
        let order = self.inspector.objects().class_parts(class).map(|(_, order)| order).unwrap_or_default();
        order.into_iter().any(|base| self.is_of_c(base))
    }

    /// Judges an object of C: only callers by name, or the code of its library, determine its reach.
    pub(super) fn inside_of_c(&mut self, object: Addr, class: Addr, name: &str) {
        let objects = self.inspector.objects();
        if matches!(name, "methodcaller" | "operator.methodcaller" | "attrgetter" | "operator.attrgetter") {
            self.gives_up(format!("it can reach an {name}, by which it may reach anything"));
        }
        // The part of C in a class of Python is that of its bases.
        let order = objects.class_parts(class).map(|(_, order)| order).unwrap_or_default();
        let mut of_c = order.into_iter().filter(|base| self.is_of_c(*base)).filter_map(|base| {
            let name = objects.name_of_class(base)?;
            name.split_once('.').map(|(module, _)| module.to_owned()).or_else(|| self.module_of(base))
        });
        let is_readable = |module: String| {
            let first = module.split('.').next().unwrap_or(&module);
            READABLE_TYPES.contains(&first) || LIBRARY_MODULES.contains(&first)
        };
        if !of_c.all(is_readable) && objects.has_hidden_words(object) {
            self.gives_up(format!("it can reach a {name}, whose inside is not known"));
        }
    }
}

/// Whether a callback is the library's own, which only forgets what has died.
pub(in crate::python) fn only_forgets(inspector: &Inspector<'_>, callback: Addr) -> bool {
    let objects = inspector.objects();
    match objects.class_name(callback).as_deref() {
        Some("finalize") => return true,
        // Callbacks in C forget what has died, as those of abstract classes and of data of threads do, unless they are methods of a
        // container or a lock.
        Some("builtin_function_or_method") => {
            let bound = objects.bound(callback).map(|bound| bound.object).filter(|object| !object.is_null());
            let is_changed = |object: &Addr| {
                let class = objects.class_name(*object);
                let is_lock = class.as_deref().is_some_and(|class| class.ends_with("lock") || class.ends_with("RLock"));
                let is_tuple = class.as_deref() == Some("tuple");
                is_lock
                    || !is_tuple && objects.sequence(*object, 1).is_some()
                    || objects.items_up_to(*object, 1).is_some()
            };
            return !bound.is_some_and(|object| is_changed(&object));
        }
        _ => {}
    }
    let file = objects.function(callback).and_then(|function| inspector.frames().code_file(function.code));
    let is_library = |file: String| inspector.is_standard(&file) || inspector.origin(&file).waits_for_caller();
    objects.class_name(callback).as_deref() == Some("function") && file.is_some_and(is_library)
}

/// Whether a callback of the library acts on an object of the program: a method of C that does not only forget, or a partial.
fn acts(inspector: &Inspector<'_>, callback: Addr) -> bool {
    let class = inspector.objects().class_name(callback);
    let is_bound = matches!(class.as_deref(), Some("builtin_function_or_method" | "functools.partial" | "method"));
    is_bound && !only_forgets(inspector, callback)
}
