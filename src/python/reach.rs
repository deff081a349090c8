//! What code can reach: the objects that a thread, or a callback, could still do something to.
//!
//! In: frames or objects to begin at. Out: [`Reached`]: objects, and the names of attributes and globals that the code uses.
//! It is the walk of a garbage collector, with one rule more: an attribute or global is followed only if code that was reached
//! names it. Functions of the standard library do nothing to objects that they were not given: their variables are followed,
//! their globals are not. What the interpreter and the library call without being told to by a name is followed for a thread as
//! well: hooks, handlers of logs, callbacks of weak references. Code that can name anything (`getattr`, `eval`), objects of C whose
//! inside is not known, too many objects: then [`Reached::anything`] says so, and nothing is ruled out. Partial deadlock detection by reachability is known from Go's collector
//! (doi:10.1145/3676641.3715990).

use std::collections::{HashMap, HashSet};

use super::PythonFrame;
use super::inspect::{Inspector, frames_of};
use super::library::is_library;
pub(crate) use super::reach_tables::USES_DESCRIPTORS;
use super::reach_tables::{
    CALLED_BY_ITSELF, DESCRIPTORS, INERT, INSTALLED, LIBRARY_MODULES, NAMES_ANYTHING, READABLE_TYPES, RECEIVING,
};
use crate::image::Addr;
use crate::limits::python::{MOST_CONTAINED, MOST_REACHED};

/// How far a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All that a thread may still run: what its event loop knows of, too.
    Thread,
    /// What code has at hand and names.
    Code,
    /// The same without what the program's own code has at hand.
    Library,
}

/// What was reached.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    objects: HashSet<Addr>,
    names: HashSet<String>,
    /// Methods with their objects.
    bound: HashSet<(String, Addr)>,
    raises: bool,
    /// Some code releases without having taken, and is not the end of a block.
    gives_away: bool,
    /// Names of exceptions of libraries: code that does not name them raises none of them.
    exceptions: HashSet<String>,
    /// Numbers that variables have: descriptors may be among them.
    numbers: HashSet<u64>,
    /// Descriptors of objects, where these are known, with their classes.
    descriptors: Vec<(Option<i32>, String)>,
    /// Why more may be within reach than was found.
    pub(crate) anything: Option<String>,
}

impl Reached {
    /// Whether an object is within reach.
    pub(crate) fn has(&self, object: Addr) -> bool {
        self.objects.contains(&object)
    }

    /// Whether code uses a name.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// One of these methods of this object that is within reach as such.
    pub(crate) fn method_of(&self, object: Addr, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.calls(name, object))
    }

    /// Whether this method of this object is within reach as such.
    pub(crate) fn calls(&self, method: &str, object: Addr) -> bool {
        self.bound.contains(&(method.to_owned(), object))
    }

    /// How one of these descriptors is within reach, as an object or as a number.
    pub(crate) fn has_descriptor(&self, descriptors: &[i32]) -> Option<String> {
        let is_it = |number: &Option<i32>| number.is_none_or(|number| descriptors.contains(&number));
        let object = self.descriptors.iter().find(|(number, _)| is_it(number));
        let number = || descriptors.iter().find(|number| self.numbers.contains(&u64::from(number.unsigned_abs())));
        object
            .map(|(_, class)| format!("it can reach a {class}"))
            .or_else(|| number().map(|number| format!("it can reach the number {number}")))
    }

    /// Whether code releases what other code takes.
    pub(crate) fn gives_away(&self) -> bool {
        self.gives_away
    }

    /// Whether an exception's class is within reach: the code may raise.
    pub(crate) fn may_raise(&self) -> bool {
        self.raises || self.exceptions.iter().any(|name| self.names.contains(name))
    }
}

/// What the code on a thread's stack can reach, by the position of its state.
pub(crate) fn by_thread(inspector: &Inspector<'_>, state: usize) -> Reached {
    let mut walk = Walk::new(inspector, Extent::Thread);
    walk.called_by_itself();
    if let Some(thread) = inspector.python.threads.get(state) {
        for frame in frames_of(thread) {
            match is_outermost(frame) {
                true => walk.outermost(frame),
                false => walk.frame(frame),
            }
        }
    }
    walk.finish()
}

/// What callbacks can reach. With `library_only` what the program's own code has at hand is left out.
pub(crate) fn from(inspector: &Inspector<'_>, roots: impl IntoIterator<Item = Addr>, library_only: bool) -> Reached {
    let mut walk = Walk::new(inspector, if library_only { Extent::Library } else { Extent::Code });
    walk.todo.extend(roots);
    walk.finish()
}

/// The frames of `threading` below each thread's own function: when that returns, they only note that the thread has ended.
fn is_outermost(frame: &PythonFrame) -> bool {
    let name = frame.function.rsplit('.').next().unwrap_or(&frame.function);
    frame.file.ends_with("/threading.py") && matches!(name, "_bootstrap" | "_bootstrap_inner" | "run")
}

/// Whether instances of a module's classes hand on what other processes send.
fn module_of_processes(module: &Option<String>) -> bool {
    matches!(module.as_deref(), Some("multiprocessing.connection" | "multiprocessing.queues"))
}

struct Walk<'w, 'a> {
    inspector: &'w Inspector<'a>,
    extent: Extent,
    /// The class of something by which objects come from other processes.
    receives: Option<String>,
    reached: Reached,
    todo: Vec<Addr>,
    /// Values under names that no code was seen to use yet.
    unnamed: HashMap<String, Vec<Addr>>,
    codes: HashSet<Addr>,
    of_library: HashMap<Addr, bool>,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(inspector: &'w Inspector<'a>, extent: Extent) -> Self {
        Walk {
            inspector,
            extent,
            receives: None,
            reached: Reached::default(),
            todo: Vec::new(),
            unnamed: HashMap::new(),
            codes: HashSet::new(),
            of_library: HashMap::new(),
        }
    }

    fn finish(mut self) -> Reached {
        self.all();
        if let Some(class) = &self.receives
            && RECEIVING.iter().any(|name| self.reached.uses(name))
        {
            let why = format!("it can receive from a {class}, and what comes from another process may be anything");
            self.gives_up(why);
        }
        self.reached
    }

    fn all(&mut self) {
        while let Some(object) = self.todo.pop() {
            if object.is_null() || !self.reached.objects.insert(object) {
                continue;
            }
            if self.reached.objects.len() > MOST_REACHED {
                self.gives_up(format!("it can reach more than {MOST_REACHED} objects"));
                break;
            }
            self.object(object);
        }
    }

    fn library_only(&self) -> bool {
        self.extent == Extent::Library
    }

    /// What the program has put where the interpreter or the library calls it on any thread.
    fn called_by_itself(&mut self) {
        let objects = self.inspector.objects();
        for (module, name) in CALLED_BY_ITSELF {
            for value in self.inspector.globals(module, name) {
                let items = objects.sequence(value, MOST_CONTAINED).unwrap_or_else(|| vec![value]);
                let referents = items.into_iter().map(|item| match objects.class_name(item).as_deref() {
                    Some("weakref" | "weakref.ReferenceType") => objects.field(item, 0).unwrap_or(item),
                    _ => item,
                });
                let own: Vec<Addr> = referents.filter(|object| self.is_of_program(*object)).collect();
                // By which names it is called, only the library knows.
                self.todo.extend(own.iter().flat_map(|object| self.functions(*object)).collect::<Vec<_>>());
                self.todo.extend(own);
            }
        }
    }

    /// Whether an object's code, or that of its class, is the program's.
    fn is_of_program(&self, object: Addr) -> bool {
        let codes = self.functions(object).into_iter().filter_map(|one| self.inspector.objects().function(one));
        let mut files = codes.filter_map(|function| self.inspector.frames().code_file(function.code));
        files.any(|file| !INSTALLED.iter().any(|part| file.contains(part)))
    }

    /// An object's function, or those of its class.
    fn functions(&self, object: Addr) -> Vec<Addr> {
        let objects = self.inspector.objects();
        let functions = match objects.class_name(object).as_deref() {
            Some("function") => vec![object],
            Some("method") => objects.field(object, 0).into_iter().collect(),
            _ => {
                let dict = objects.class(object).and_then(|class| objects.class_parts(class)?.0);
                let items = dict.and_then(|dict| objects.items(dict)).unwrap_or_default();
                items.into_iter().map(|(_, value)| value).collect()
            }
        };
        let is_function = |value: &Addr| objects.class_name(*value).as_deref() == Some("function");
        functions.into_iter().filter(is_function).collect()
    }

    fn gives_up(&mut self, why: String) {
        self.reached.anything.get_or_insert(why);
    }

    /// What a timer is to call, it calls when it has waited. A thread's own function has been called.
    fn outermost(&mut self, frame: &PythonFrame) {
        let objects = self.inspector.objects();
        let own = self.inspector.frame(frame).and_then(|open| open.first());
        let is_timer = |own: &Addr| objects.class_name(*own).is_some_and(|class| class.ends_with("Timer"));
        if let Some(own) = own.filter(is_timer) {
            self.todo
                .extend(["function", "args", "kwargs"].into_iter().filter_map(|name| objects.attribute(own, name)));
        }
    }

    fn frame(&mut self, frame: &PythonFrame) {
        self.open_frame(frame.address, frame.code, is_library(&frame.file));
    }

    fn open_frame(&mut self, address: Addr, code: Addr, of_library: bool) {
        if self.library_only() && !of_library || self.is_wrapper(code) {
            return;
        }
        let Some(open) = self.inspector.frames().at(address, code) else {
            self.gives_up("one of its frames could not be read".into());
            return;
        };
        self.todo.extend(open.variables().into_iter().map(|(_, value)| value));
        self.todo.extend(open.stack());
        if !of_library {
            self.code(code, open.globals());
        }
    }

    /// The coroutine in which anyio runs what a task group starts: it has the group at hand, to tell it of the end. As with what
    /// any task wakes when it ends, that is another matter.
    fn is_wrapper(&self, code: Addr) -> bool {
        self.library_only() && self.inspector.frames().code_file(code).is_some_and(|file| file.contains("/anyio/"))
    }

    /// The names that code uses, and the globals under them.
    fn code(&mut self, code: Addr, globals: Option<Addr>) {
        if !self.codes.insert(code) {
            return;
        }
        let frames = self.inspector.frames();
        if frames.code_file(code).is_none_or(|file| is_library(&file)) || self.library_only() {
            return;
        }
        let Some(names) = frames.names_in(code) else {
            self.gives_up("code that it can reach could not be read".into());
            return;
        };
        let names: HashSet<String> = names.into_iter().collect();
        let is_end = || frames.code_name(code).is_some_and(|name| name.ends_with("__exit__"));
        self.reached.gives_away |= names.contains("release") && !names.contains("acquire") && !is_end();
        let named = globals.map(|dict| self.inspector.globals_in(dict));
        for (name, value) in named.iter().flat_map(|named| named.iter()) {
            if names.contains(name) {
                self.todo.push(*value);
            }
        }
        for interpreter in &self.inspector.python.interpreters {
            let modules = self.inspector.objects().pointer(interpreter.modules_field);
            let modules = modules.map(|modules| self.inspector.globals_in(modules));
            let imported = modules.iter().flat_map(|modules| modules.iter()).filter(|(name, _)| names.contains(name));
            self.todo.extend(imported.map(|(_, module)| *module));
        }
        for name in names {
            self.name(name);
        }
        for constant in frames.constants(code) {
            if self.inspector.objects().class_name(constant).as_deref() == Some("code") {
                self.code(constant, globals);
            }
        }
    }

    fn name(&mut self, name: String) {
        if NAMES_ANYTHING.contains(&name.as_str()) {
            self.gives_up(format!("its code uses {name}, by which it may reach anything"));
        }
        let is_exception = ["Error", "Exception", "Exit", "Interrupt", "Expired"];
        self.reached.raises |=
            is_exception.iter().any(|end| name.ends_with(end)) || matches!(name.as_str(), "exit" | "_exit");
        self.todo.extend(self.unnamed.remove(&name).unwrap_or_default());
        self.reached.names.insert(name);
    }

    /// Values under names: those that code names now, the others once code does.
    fn named(&mut self, items: Vec<(Addr, Addr)>) {
        for (key, value) in items {
            let Some(name) = self.inspector.objects().text(key) else { continue };
            let is_called_by_itself = name.starts_with("__") && name.ends_with("__") && name != "__dict__";
            if is_called_by_itself || self.reached.names.contains(&name) {
                self.todo.push(value);
            } else {
                self.unnamed.entry(name).or_default().push(value);
            }
        }
    }

    fn contained(&mut self, items: Vec<Addr>) {
        if items.len() as u64 > MOST_CONTAINED {
            self.gives_up(format!("it can reach a container of more than {MOST_CONTAINED} items"));
        }
        self.todo.extend(items);
    }

    fn object(&mut self, object: Addr) {
        let objects = self.inspector.objects();
        let Some(class) = objects.class_name(object) else { return };
        if class == "int" {
            self.reached.numbers.extend(objects.unsigned(object));
        }
        if let Some((_, at)) = DESCRIPTORS.iter().find(|(name, _)| *name == class) {
            let number = at.and_then(|at| objects.number_at(object, at));
            self.reached.descriptors.push((number, class.clone()));
        }
        if INERT.contains(&class.as_str()) {
            return;
        }
        if self.extent == Extent::Thread {
            self.callbacks(object);
        }
        if let Some(bound) = objects.bound(object) {
            self.reached.bound.insert((bound.name, bound.object));
        }
        match class.as_str() {
            "function" => {
                let Some(function) = objects.function(object) else { return };
                self.todo.extend(function.brings);
                self.code(function.code, Some(function.globals));
            }
            "builtin_function_or_method" | "builtin_method" | "method-wrapper" => {
                let owner = objects.bound(object).map(|bound| bound.object);
                let is_module = |owner: &Addr| objects.class_name(*owner).as_deref() == Some("module");
                self.todo.extend(owner.filter(|owner| !is_module(owner)));
            }
            "cell" => self.todo.extend(objects.field(object, 0)),
            "weakref" | "weakref.ReferenceType" | "weakref.KeyedRef" => self.todo.extend(objects.field(object, 0)),
            // PyModuleObject.md_dict is the first word behind the head.
            "module" => {
                let items = objects.field(object, 0).and_then(|dict| objects.items(dict));
                self.module(items.unwrap_or_default());
            }
            "generator" | "coroutine" | "async_generator" => {
                let frames = self.inspector.frames();
                if let Some((frame, code)) = frames.of_generator(object) {
                    let of_library = frames.code_file(code).is_none_or(|file| is_library(&file));
                    self.open_frame(frame, code, of_library);
                    if self.library_only() && !of_library {
                        // Whoever ends it ends first what it awaits.
                        let awaited = frames.at(frame, code).map(|open| open.suspended_stack()).unwrap_or_default();
                        let is_coroutine = |slot: &Addr| objects.class_name(*slot).as_deref() == Some("coroutine");
                        self.todo.extend(awaited.into_iter().rev().take(2).filter(is_coroutine));
                    }
                }
            }
            _ if objects.is_class(object) => self.class(object),
            _ => self.instance(object, &class),
        }
    }

    /// What is called when this object dies.
    fn callbacks(&mut self, object: Addr) {
        let objects = self.inspector.objects();
        for callback in objects.callbacks_at_death(object) {
            if self.is_of_program(callback) {
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

    /// Of a module only what is named, also of what Python calls by itself in a class.
    fn module(&mut self, items: Vec<(Addr, Addr)>) {
        for (key, value) in items {
            let Some(name) = self.inspector.objects().text(key) else { continue };
            match self.reached.names.contains(&name) {
                true => self.todo.push(value),
                false => self.unnamed.entry(name).or_default().push(value),
            }
        }
    }

    fn class(&mut self, class: Addr) {
        let objects = self.inspector.objects();
        let of_library = self.is_of_library(class);
        match objects.makes_exceptions(class) {
            true if of_library => self.reached.exceptions.extend(objects.name_of_class(class)),
            makes => self.reached.raises |= makes,
        }
        if !objects.is_heap_class(class) || of_library {
            return;
        }
        let Some((dict, order)) = objects.class_parts(class) else { return };
        let items = dict.and_then(|dict| objects.items(dict)).unwrap_or_default();
        // The library calls the methods that a class of the program overrides.
        if order.iter().any(|base| self.is_of_library(*base)) {
            let is_function = |value: &Addr| objects.class_name(*value).as_deref() == Some("function");
            self.todo.extend(items.iter().map(|(_, value)| *value).filter(is_function));
        }
        self.todo.extend(order);
        self.named(items);
    }

    fn is_of_library(&mut self, class: Addr) -> bool {
        if let Some(known) = self.of_library.get(&class) {
            return *known;
        }
        let of_library = self.has_library_module(class);
        self.of_library.insert(class, of_library);
        of_library
    }

    /// Where a class on the heap says that it is from.
    fn module_of(&self, class: Addr) -> Option<String> {
        let objects = self.inspector.objects();
        let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
        dict.and_then(|dict| objects.item(dict, "__module__")).and_then(|module| objects.text(module))
    }

    fn has_library_module(&self, class: Addr) -> bool {
        self.module_of(class).is_some_and(|module| {
            let first = module.split('.').next().unwrap_or(&module);
            LIBRARY_MODULES.contains(&first)
        })
    }

    /// Whether a `threading.Thread` has not run yet: whoever has it may start it.
    fn may_be_started(&self, thread: Addr) -> bool {
        let objects = self.inspector.objects();
        let flag = objects.attribute(thread, "_started").and_then(|event| objects.attribute(event, "_flag"));
        flag.and_then(|flag| objects.unsigned(flag)) == Some(0)
    }

    fn instance(&mut self, object: Addr, name: &str) {
        let objects = self.inspector.objects();
        let Some(class) = objects.class(object) else { return };
        if let Some(items) = objects.items(object) {
            self.contained(items.into_iter().flat_map(|(key, value)| [key, value]).collect());
            return;
        }
        if let Some(items) = objects.sequence(object, MOST_CONTAINED + 1) {
            self.contained(items);
            return;
        }
        let of_library = self.is_of_library(class);
        if of_library && name.ends_with("Condition") {
            // It has methods of its lock at hand, which it calls for whoever has taken that.
            self.todo.extend(["_lock", "_waiters"].into_iter().filter_map(|name| objects.attribute(object, name)));
            self.todo.push(class);
            return;
        }
        if self.library_only() && !of_library && objects.is_heap_class(class) {
            return;
        }
        if of_library && module_of_processes(&self.module_of(class)) {
            self.receives.get_or_insert_with(|| name.to_owned());
        }
        if of_library && name == "CancelStatus" {
            // It tells others when its scope is cancelled, which is found by the scope.
            return;
        }
        self.todo.push(class);
        let attributes = objects.attributes(object);
        // The loop itself is where one begins, and what a thread runs is its own.
        let by_name = !of_library
            || name.ends_with("Thread")
            || name.ends_with("Timer")
            || name.ends_with("EventLoop")
            || name == "Nursery";
        if name.ends_with("Task") {
            // A task goes on with its coroutine, and who cancels it cancels what it awaits; what it wakes when it ends is another
            // matter, unless all is asked for that its thread may run.
            let is_own = |class: &str| class == "coroutine" || class.ends_with("Future") || class.ends_with("Task");
            let is_followed = |word: &Addr| {
                self.extent == Extent::Thread || objects.class_name(*word).is_some_and(|class| is_own(&class))
            };
            self.todo.extend(objects.words_of(object).into_iter().filter(is_followed));
            return;
        }
        if self.extent == Extent::Thread && name.ends_with("EventLoop") {
            let parts = ["_scheduled", "_ready", "_selector", "_signal_handlers"];
            let runs: Vec<Addr> = parts.into_iter().filter_map(|part| objects.attribute(object, part)).collect();
            if runs.len() < parts.len() {
                self.gives_up(format!("what its event loop, a {name}, may still run could not be read"));
            }
            self.todo.extend(runs);
        }
        if name.ends_with("Thread") && self.may_be_started(object) {
            let own = ["_target", "_args", "_kwargs"].into_iter().filter_map(|name| objects.attribute(object, name));
            self.todo.extend(own);
        }
        match attributes {
            Some(items) if by_name => {
                self.named(items);
                if self.has_part_of_c(class) {
                    self.todo.extend(objects.words_of(object));
                }
            }
            Some(items) => {
                self.todo.extend(items.into_iter().map(|(_, value)| value));
                // What is written in C has its references beside them.
                self.todo.extend(objects.words_of(object));
            }
            None => {
                self.todo.extend(objects.words_of(object));
                self.inside_of_c(object, class, name);
            }
        }
    }

    /// Whether instances of a class have what is written in C beside their attributes: such a type says its module in its name.
    fn has_part_of_c(&self, class: Addr) -> bool {
        let objects = self.inspector.objects();
        let order = objects.class_parts(class).map(|(_, order)| order).unwrap_or_default();
        order.into_iter().any(|base| objects.name_of_class(base).is_some_and(|name| name.contains('.')))
    }

    /// What only callers by name, or nobody but the code of its library, can tell of an object of C.
    fn inside_of_c(&mut self, object: Addr, class: Addr, name: &str) {
        let objects = self.inspector.objects();
        if matches!(name, "methodcaller" | "operator.methodcaller" | "attrgetter" | "operator.attrgetter") {
            self.gives_up(format!("it can reach an {name}, by which it may reach anything"));
        }
        let module = name.split_once('.').map(|(module, _)| module.to_owned()).or_else(|| self.module_of(class));
        let is_readable = module.is_none_or(|module| {
            let first = module.split('.').next().unwrap_or(&module);
            READABLE_TYPES.contains(&first) || LIBRARY_MODULES.contains(&first)
        });
        if !is_readable && objects.has_hidden_words(object) {
            self.gives_up(format!("it can reach a {name}, whose inside is not known"));
        }
    }
}
