//! What code can reach: the objects that a thread, or a callback, could still do something to.
//!
//! In: frames or objects to begin at. Out: [`Reached`]: objects, and the names of attributes and globals that the code uses.
//! It is the walk of a garbage collector, with one rule more: an attribute or global is followed only if code that was reached
//! names it. Functions of the standard library do nothing to objects that they were not given: their variables are followed,
//! their globals are not. Code that can name anything (`getattr`, `eval`), too many objects: then [`Reached::anything`] says
//! so, and nothing is ruled out. Partial deadlock detection by reachability is known from Go's collector
//! (doi:10.1145/3676641.3715990).

use std::collections::{HashMap, HashSet};

use super::PythonFrame;
use super::inspect::{Inspector, frames_of};
use super::library::is_library;
use crate::image::Addr;
use crate::limits::python::{MOST_CONTAINED, MOST_REACHED};

/// Names by which code reaches what it does not name.
const NAMES_ANYTHING: &[&str] = &[
    "getattr",
    "attrgetter",
    "methodcaller",
    "eval",
    "exec",
    "globals",
    "vars",
    "__import__",
    "import_module",
    "__dict__",
    "__globals__",
    "__closure__",
    "__subclasses__",
    "f_locals",
    "f_globals",
    "f_back",
    "_current_frames",
    "get_objects",
    "get_referrers",
    "ctypes",
    "CDLL",
    "loads",
    "Unpickler",
];

/// Modules of the standard library whose instances only do what their callers ask for.
const LIBRARY_MODULES: &[&str] = &[
    "threading",
    "queue",
    "concurrent",
    "asyncio",
    "_asyncio",
    "multiprocessing",
    "logging",
    "subprocess",
    "selectors",
];

/// Classes without references of interest.
const INERT: &[&str] = &[
    "str",
    "int",
    "float",
    "bool",
    "bytes",
    "bytearray",
    "complex",
    "range",
    "NoneType",
    "NotImplementedType",
    "ellipsis",
    "code",
    "_thread.lock",
    "_thread.RLock",
    "Context",
    "_contextvars.Context",
    "method_descriptor",
    "wrapper_descriptor",
    "slot wrapper",
    "getset_descriptor",
    "member_descriptor",
    "classmethod_descriptor",
];

/// What was reached.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    objects: HashSet<Addr>,
    names: HashSet<String>,
    /// Methods with their objects.
    bound: HashSet<(String, Addr)>,
    raises: bool,
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

    /// Whether an exception's class is within reach: the code may raise.
    pub(crate) fn may_raise(&self) -> bool {
        self.raises
    }
}

/// What the code on a thread's stack can reach, by the position of its state.
pub(crate) fn by_thread(inspector: &Inspector<'_>, state: usize) -> Reached {
    let mut walk = Walk::new(inspector, false);
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
    let mut walk = Walk::new(inspector, library_only);
    walk.todo.extend(roots);
    walk.finish()
}

/// The frames of `threading` below each thread's own function: when that returns, they only note that the thread has ended.
fn is_outermost(frame: &PythonFrame) -> bool {
    let name = frame.function.rsplit('.').next().unwrap_or(&frame.function);
    frame.file.ends_with("/threading.py") && matches!(name, "_bootstrap" | "_bootstrap_inner" | "run")
}

struct Walk<'w, 'a> {
    inspector: &'w Inspector<'a>,
    library_only: bool,
    reached: Reached,
    todo: Vec<Addr>,
    /// Values under names that no code was seen to use yet.
    unnamed: HashMap<String, Vec<Addr>>,
    codes: HashSet<Addr>,
    of_library: HashMap<Addr, bool>,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(inspector: &'w Inspector<'a>, library_only: bool) -> Self {
        Walk {
            inspector,
            library_only,
            reached: Reached::default(),
            todo: Vec::new(),
            unnamed: HashMap::new(),
            codes: HashSet::new(),
            of_library: HashMap::new(),
        }
    }

    fn finish(mut self) -> Reached {
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
        self.reached
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
        if self.library_only && !of_library {
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

    /// The names that code uses, and the globals under them.
    fn code(&mut self, code: Addr, globals: Option<Addr>) {
        if !self.codes.insert(code) {
            return;
        }
        let frames = self.inspector.frames();
        if frames.code_file(code).is_none_or(|file| is_library(&file)) || self.library_only {
            return;
        }
        let Some(names) = frames.names_in(code) else {
            self.gives_up("code that it can reach could not be read".into());
            return;
        };
        let names: HashSet<String> = names.into_iter().collect();
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
        if INERT.contains(&class.as_str()) {
            return;
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
                }
            }
            _ if objects.is_class(object) => self.class(object),
            _ => self.instance(object, &class),
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
        self.reached.raises |= objects.makes_exceptions(class);
        if !objects.is_heap_class(class) || self.is_of_library(class) {
            return;
        }
        let Some((dict, order)) = objects.class_parts(class) else { return };
        self.todo.extend(order);
        self.named(dict.and_then(|dict| objects.items(dict)).unwrap_or_default());
    }

    fn is_of_library(&mut self, class: Addr) -> bool {
        if let Some(known) = self.of_library.get(&class) {
            return *known;
        }
        let of_library = self.has_library_module(class);
        self.of_library.insert(class, of_library);
        of_library
    }

    fn has_library_module(&self, class: Addr) -> bool {
        let objects = self.inspector.objects();
        let dict = objects.class_parts(class).and_then(|(dict, _)| dict);
        let module = dict.and_then(|dict| objects.item(dict, "__module__")).and_then(|module| objects.text(module));
        module.is_some_and(|module| {
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
        if self.library_only && !of_library && objects.is_heap_class(class) {
            return;
        }
        self.todo.push(class);
        let attributes = objects.attributes(object);
        // The loop itself is where one begins, and what a thread runs is its own.
        let by_name = !of_library || name.ends_with("Thread") || name.ends_with("Timer") || name.ends_with("EventLoop");
        if name.ends_with("Task") {
            // A task goes on with its coroutine; what it wakes when it ends is another matter.
            let is_coroutine = |word: &Addr| objects.class_name(*word).is_some_and(|class| class == "coroutine");
            self.todo.extend(objects.words_of(object).into_iter().filter(is_coroutine));
            return;
        }
        if name.ends_with("Thread") && self.may_be_started(object) {
            let own = ["_target", "_args", "_kwargs"].into_iter().filter_map(|name| objects.attribute(object, name));
            self.todo.extend(own);
        }
        match attributes {
            Some(items) if by_name => self.named(items),
            Some(items) => {
                self.todo.extend(items.into_iter().map(|(_, value)| value));
                // What is written in C has its references beside them.
                self.todo.extend(objects.words_of(object));
            }
            None => self.todo.extend(objects.words_of(object)),
        }
    }
}
