//! Objects that code can reach: a thread, or a callback, could still act on them.
//!
//! In: frames or objects to begin at. Out: [`Reached`]: objects, and the names of attributes and globals that the code uses.
//! It is the walk of a garbage collector with one rule more: an attribute or a global is followed only if some code that was
//! reached names it, wherever that code is from. Special methods need no name.
//!
//! The answer errs to one side. Code that can name anything (`getattr`, `eval`), an import of a module that is not loaded,
//! a function of C that is not known to be plain, an object of C whose inside is not known, too many objects:
//! [`Reached::anything`] then has the reason, and nothing is ruled out.
//!
//! Go's collector detects partial deadlocks by reachability, too (doi:10.1145/3676641.3715990).

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::inspect::{Inspector, frames_of};
use super::objects::Objects;
use super::reach_tables::{
    BUILTIN_CONTAINERS, C_DOORS, CALLED_BY_ITSELF, CALLED_BY_NAME, DESCRIPTORS, IMPORT_HOOKS, INERT, LIBRARY_MODULES,
    LOG_HANDLERS, LOGS, MAKES_INSTANCES, NAMES_ANYTHING, NAMES_CLASSES, ONLY_DESCRIBES, PLAIN_C_MODULES, PLAIN_LIBRARY,
    READABLE_TYPES, RECEIVING,
};
pub(crate) use super::reach_tables::{CANCELS, USES_DESCRIPTORS};
use super::{PythonFrame, PythonThread};
use crate::image::Addr;
use crate::limits::python::{HOOKS_IN_INTERPRETER, LARGEST_STATE, MOST_CONTAINED, MOST_REACHED};

/// Two words for each of the 32 ways on from a node of a context.
const NODE_WORDS: u64 = 64;

/// The tasks that await a task of C, behind the head from 3.14 on (`fut_awaited_by`).
const AWAITED_BY: ((u8, u8), u64) = ((3, 14), 80);

/// How far a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All that a thread may still run: what its event loop knows of, too.
    Thread,
    /// Everything that code has at hand or names.
    Code,
    /// The same without what the program's own code has at hand.
    Library,
}

/// The reached objects.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    objects: HashSet<Addr>,
    /// Names that the program's own code uses.
    names: HashSet<String>,
    /// Names that any code uses.
    all_names: HashSet<String>,
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
    /// The reach of something unknown: it may be anything.
    pub(super) fn unknown(why: &str) -> Reached {
        Reached { anything: Some(why.to_owned()), ..Reached::default() }
    }

    /// Whether an object is within reach.
    pub(crate) fn has(&self, object: Addr) -> bool {
        self.objects.contains(&object)
    }

    /// Whether any code uses a name, that of libraries included.
    pub(crate) fn uses_anywhere(&self, name: &str) -> bool {
        self.all_names.contains(name)
    }

    /// Whether the program's own code uses a name.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// One of these methods of this object that is within reach as such.
    pub(crate) fn method_of(&self, object: Addr, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.calls(name, object))
    }

    /// One of these names that the program's own code uses, or of a method that is within reach as such.
    pub(crate) fn names_or_has(&self, names: &[&'static str]) -> Option<&'static str> {
        let is_at_hand = |name: &str| self.bound.iter().any(|(method, _)| method == name);
        names.iter().copied().find(|name| self.uses(name) || is_at_hand(name))
    }

    /// Whether the program's own code reaches by a computed name what it has at hand.
    pub(crate) fn computes_names(&self) -> bool {
        NAMES_ANYTHING.iter().any(|name| self.uses(name))
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

    /// Whether some object that has a descriptor is within reach.
    pub(crate) fn has_some_descriptor(&self) -> bool {
        !self.descriptors.is_empty()
    }

    /// Adds objects that something else leads to.
    pub(crate) fn also(&mut self, objects: impl IntoIterator<Item = Addr>) {
        self.objects.extend(objects);
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

/// The objects that the code on a thread's stack can reach, by the position of its state.
pub(crate) fn by_thread(inspector: &Inspector<'_>, state: usize) -> Reached {
    let mut walk = Walk::new(inspector, Extent::Thread);
    walk.of_thread(state);
    walk.finish()
}

/// The same. As soon as the reach may be anything, the walk ends with the reason.
pub(crate) fn by_thread_or_open(inspector: &Inspector<'_>, state: usize) -> Reached {
    let mut walk = Walk::new(inspector, Extent::Thread);
    walk.stops_when_open = true;
    walk.of_thread(state);
    walk.finish()
}

/// The task, or the set of tasks, that a task of C has noted as awaiting it. It serves those who look at them: callbacks wake them.
pub(crate) fn awaited_by(inspector: &Inspector<'_>, task: Addr) -> Option<Addr> {
    let ((major, minor, _), (since, offset)) = (inspector.python.version, AWAITED_BY);
    inspector.objects().field(task, offset).filter(|_| (major, minor) >= since)
}

/// The descriptor that an object has, where its class is known to have one.
pub(crate) fn descriptor_of(objects: &Objects<'_>, object: Addr) -> Option<i32> {
    let class = objects.class_name(object)?;
    let (_, at) = DESCRIPTORS.iter().find(|(name, _)| *name == class)?;
    objects.number_at(object, (*at)?)
}

/// The objects that callbacks can reach. `library_only` leaves out everything that the program's own code has at hand.
pub(crate) fn from(inspector: &Inspector<'_>, roots: impl IntoIterator<Item = Addr>, library_only: bool) -> Reached {
    let mut walk = Walk::new(inspector, if library_only { Extent::Library } else { Extent::Code });
    walk.todo.extend(roots);
    walk.finish()
}

/// The same of callbacks.
pub(crate) fn from_or_open(inspector: &Inspector<'_>, roots: impl IntoIterator<Item = Addr>) -> Reached {
    let mut walk = Walk::new(inspector, Extent::Code);
    walk.stops_when_open = true;
    walk.todo.extend(roots);
    walk.finish()
}

/// The same of callbacks by which a library cancels what it has at hand.
pub(crate) fn from_cancelling(inspector: &Inspector<'_>, roots: impl IntoIterator<Item = Addr>) -> Reached {
    let mut walk = Walk::new(inspector, Extent::Code);
    walk.stops_when_open = true;
    walk.cancels = true;
    walk.todo.extend(roots);
    walk.finish()
}

/// Whether instances of a module's classes hand on what other processes send.
fn module_of_processes(module: &Option<String>) -> bool {
    matches!(module.as_deref(), Some("multiprocessing.connection" | "multiprocessing.queues"))
}

/// Code, the dictionary of its globals, and the name of its module.
type UnnamedCode = (Addr, Option<Addr>, Option<Addr>);

struct Walk<'w, 'a> {
    inspector: &'w Inspector<'a>,
    extent: Extent,
    /// Whether it is over as soon as anything may be within reach.
    stops_when_open: bool,
    names_of_classes: HashMap<Addr, Option<Rc<str>>>,
    /// The class of something by which objects come from other processes.
    receives: Option<String>,
    /// Cancel scopes of tasks: they lead to the tasks in them, but only for code that cancels.
    scopes: Vec<Addr>,
    /// Whether the code cancels, whatever names it uses.
    cancels: bool,
    reached: Reached,
    todo: Vec<Addr>,
    /// Values under names that no code was seen to use yet.
    unnamed: HashMap<String, Vec<Addr>>,
    codes: HashSet<Addr>,
    /// Functions of event loops and locks that no code of the program was seen to name yet: code, globals, module.
    unnamed_code: HashMap<String, Vec<UnnamedCode>>,
    /// Classes that were reached through their instances only.
    typed: HashSet<Addr>,
    of_library: HashMap<Addr, bool>,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn new(inspector: &'w Inspector<'a>, extent: Extent) -> Self {
        Walk {
            inspector,
            extent,
            stops_when_open: false,
            names_of_classes: HashMap::new(),
            receives: None,
            scopes: Vec::new(),
            cancels: false,
            reached: Reached::default(),
            todo: Vec::new(),
            unnamed: HashMap::new(),
            codes: HashSet::new(),
            unnamed_code: HashMap::new(),
            typed: HashSet::new(),
            of_library: HashMap::new(),
        }
    }

    fn of_thread(&mut self, state: usize) {
        self.called_by_itself();
        let Some(thread) = self.inspector.python.threads.get(state) else { return };
        self.own_state(thread);
        let outermost = self.outermost_codes();
        for frame in frames_of(thread) {
            match outermost.contains(&frame.code) {
                true => self.outermost(frame),
                false => self.frame(frame),
            }
        }
    }

    fn finish(mut self) -> Reached {
        self.all();
        self.cancelled();
        while !self.typed.is_empty() && NAMES_CLASSES.iter().any(|name| self.reached.uses_anywhere(name)) {
            let classes = std::mem::take(&mut self.typed);
            self.todo.extend(classes);
            self.all();
        }
        if LOGS.iter().any(|name| self.reached.uses(name)) {
            self.hooks(LOG_HANDLERS);
            self.all();
        }
        if let Some(class) = &self.receives
            && RECEIVING.iter().any(|name| self.reached.uses(name))
        {
            let why = format!("it can receive from a {class}, and what comes from another process may be anything");
            self.gives_up(why);
        }
        self.reached
    }

    fn all(&mut self) {
        while let Some(object) = self.todo.pop().filter(|_| !self.stops_when_open || self.reached.anything.is_none()) {
            if object.is_null() || self.reached.objects.contains(&object) || !self.inspector.objects().is_alive(object)
            {
                continue;
            }
            self.reached.objects.insert(object);
            if self.reached.objects.len() > MOST_REACHED {
                self.gives_up(format!("it can reach more than {MOST_REACHED} objects"));
                break;
            }
            self.object(object);
        }
    }

    /// The tasks in the cancel scopes that the code may cancel.
    fn cancelled(&mut self) {
        let objects = self.inspector.objects();
        while !self.scopes.is_empty() {
            let names = CANCELS.iter().any(|name| self.reached.uses(name)) || self.reached.computes_names();
            let names = names || self.cancels;
            let is_cancelled = |scope: &Addr| names || self.reached.bound.iter().any(|(_, object)| object == scope);
            let (cancelled, others): (Vec<Addr>, Vec<Addr>) =
                std::mem::take(&mut self.scopes).into_iter().partition(is_cancelled);
            if cancelled.is_empty() {
                break;
            }
            let values =
                |scope: Addr| objects.attributes(scope).unwrap_or_default().into_iter().map(|(_, value)| value);
            self.todo.extend(cancelled.into_iter().flat_map(|scope| values(scope).chain(objects.words_of(scope))));
            self.scopes = others;
            self.all();
        }
    }

    fn library_only(&self) -> bool {
        self.extent == Extent::Library
    }

    /// Functions that the program has put into globals which the interpreter calls.
    fn hooks(&mut self, globals: &[(&'static str, &'static str)]) {
        let objects = self.inspector.objects();
        for (module, name) in globals {
            for value in self.inspector.globals(module, name) {
                let items = objects.sequence(value, MOST_CONTAINED).unwrap_or_else(|| vec![value]);
                let own: Vec<Addr> = items.into_iter().filter(|item| !self.is_standard(*item)).collect();
                // By which names C code calls it, only that code knows.
                self.todo.extend(own.iter().flat_map(|object| self.functions(*object)).collect::<Vec<_>>());
                self.todo.extend(own);
            }
        }
    }

    /// Hooks: functions that the interpreter calls by itself on any thread, without a name in code.
    fn called_by_itself(&mut self) {
        self.hooks(CALLED_BY_ITSELF);
        let objects = self.inspector.objects();
        for interpreter in &self.inspector.python.interpreters {
            let words = objects.objects_in(interpreter.modules_field, HOOKS_IN_INTERPRETER / 8);
            let lists = words.into_iter().flat_map(|word| match objects.class_name(word).as_deref() {
                Some("list") => objects.sequence(word, MOST_CONTAINED).unwrap_or_default(),
                _ => vec![word],
            });
            let hooks: Vec<Addr> = lists.filter(|object| self.is_hook(*object)).collect();
            self.todo.extend(hooks);
        }
    }

    /// Whether what an interpreter refers to by itself is code of the program: search functions for codecs, audit hooks.
    fn is_hook(&self, object: Addr) -> bool {
        let class = self.inspector.objects().class_name(object);
        matches!(class.as_deref(), Some("function" | "method")) && self.is_of_program(object)
    }

    /// The objects that a thread state refers to: its context, thread locals, trace functions, exceptions.
    fn own_state(&mut self, thread: &PythonThread) {
        let size = self.inspector.python.layout.as_ref().map_or(0, |layout| layout.thread_size);
        self.todo.extend(self.inspector.objects().objects_in(thread.tstate, size.min(LARGEST_STATE) / 8));
    }

    /// The code of `threading` below each thread's own function: when that returns, it only notes that the thread has ended.
    fn outermost_codes(&self) -> HashSet<Addr> {
        let objects = self.inspector.objects();
        let dicts = self.inspector.globals("threading", "Thread").filter_map(|class| objects.class_parts(class)?.0);
        let items = dicts.filter_map(|dict| objects.items(dict)).flatten();
        let outermost = items.filter(|(key, _)| {
            objects.text(*key).is_some_and(|name| matches!(name.as_str(), "_bootstrap" | "_bootstrap_inner" | "run"))
        });
        outermost.filter_map(|(_, value)| objects.function(value)).map(|function| function.code).collect()
    }

    /// Whether an object is nothing but the standard library's: a function of its, or of C without an object.
    fn is_standard(&self, object: Addr) -> bool {
        let objects = self.inspector.objects();
        let of_function = |function: Addr| {
            let file = objects.function(function).and_then(|function| self.file_of(function.code, function.module));
            file.is_some_and(|file| self.inspector.is_standard(&file))
        };
        match objects.class_name(object).as_deref() {
            Some("function") => of_function(object),
            Some("builtin_function_or_method") => objects.module_of_c_function(object).is_some(),
            Some("type") => !self.is_of_program(object),
            _ => false,
        }
    }

    /// Whether an object's code, or that of its class, is the program's.
    fn is_of_program(&self, object: Addr) -> bool {
        let codes = self.functions(object).into_iter().filter_map(|one| self.inspector.objects().function(one));
        let mut files = codes.filter_map(|function| self.file_of(function.code, function.module));
        files.any(|file| !self.inspector.is_standard(&file))
    }

    /// The file of code. Code that was made out of text, as by attrs, is of the module that its function names.
    fn file_of(&self, code: Addr, module: Option<Addr>) -> Option<String> {
        let objects = self.inspector.objects();
        let file = self.inspector.frames().code_file(code)?;
        let of_module = || self.file_of_module(&objects.text(module?)?);
        if file.starts_with('<') { of_module().or(Some(file)) } else { Some(file) }
    }

    fn file_of_module(&self, name: &str) -> Option<String> {
        let objects = self.inspector.objects();
        let dict = objects.field(*self.inspector.modules().loaded.get(name)?, 0)?;
        objects.text(objects.item(dict, "__file__")?)
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

    /// A timer calls its function after its wait. A thread's own function has been called already.
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
        self.open_frame(frame.address, frame.code, frame.origin.waits_for_caller());
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
        self.todo.extend(open.living_stack().unwrap_or_else(|| open.stack()));
        let is_running = self.extent == Extent::Thread;
        self.code(code, open.globals(), None, is_running);
    }

    /// The coroutine in which anyio runs what a task group starts: it has the group at hand, to report its end. As with
    /// what any task wakes when it ends, that is another matter.
    fn is_wrapper(&self, code: Addr) -> bool {
        self.library_only() && self.inspector.frames().code_origin(code).is_some_and(|of| of.is_package("anyio"))
    }

    /// The names that code uses, and the globals under them.
    fn code(&mut self, code: Addr, globals: Option<Addr>, module: Option<Addr>, is_running: bool) {
        if !self.codes.insert(code) {
            return;
        }
        if self.library_only() {
            return;
        }
        // Code makes an event loop or a lock do something only by naming it; what these call stands in their parts.
        let file = self.file_of(code, module);
        if !is_running && file.as_ref().is_none_or(|file| self.inspector.origin(file).waits_for_caller()) {
            if self.extent != Extent::Thread {
                return;
            }
            let name = self.inspector.frames().code_name(code).unwrap_or_default();
            let name = name.rsplit('.').next().unwrap_or(&name).to_owned();
            if !self.reached.uses(&name) {
                self.codes.remove(&code);
                self.unnamed_code.entry(name).or_default().push((code, globals, module));
                return;
            }
        }
        let frames = self.inspector.frames();
        let Some(names) = frames.names_in(code) else {
            self.gives_up("code that it can reach could not be read".into());
            return;
        };
        let names: HashSet<String> = names.into_iter().collect();
        let named = globals.map(|dict| self.inspector.globals_in(dict)).unwrap_or_default();
        let is_of_library =
            |file: &String| self.inspector.origin(file).waits_for_caller() || self.inspector.is_standard(file);
        let of_library = file.as_ref().is_none_or(is_of_library);
        if !of_library {
            let is_end = || frames.code_name(code).is_some_and(|name| name.ends_with("__exit__"));
            self.reached.gives_away |= names.contains("release") && !names.contains("acquire") && !is_end();
        }
        self.imports(code, of_library);
        let is_plain = of_library && self.is_plain_module(&named);
        self.todo.extend(named.iter().filter(|(name, _)| names.contains(name)).map(|(_, value)| *value));
        let common = names.iter().filter(|name| !named.iter().any(|(known, _)| known == *name));
        let common: Vec<Addr> =
            common.filter_map(|name| self.inspector.modules().builtins.get(name)).copied().collect();
        self.todo.extend(common);
        for constant in frames.constants(code) {
            match self.inspector.objects().class_name(constant).as_deref() {
                Some("code") => self.code(constant, globals, module, is_running),
                // A plain module builds the names that it looks up out of these strings.
                Some("str") if is_plain && names.contains("getattr") => {
                    if let Some(name) = self.inspector.objects().text(constant) {
                        self.name(name, true);
                    }
                }
                _ => {}
            }
        }
        for name in names {
            if !is_plain && NAMES_ANYTHING.contains(&name.as_str()) {
                let own = frames.code_name(code).unwrap_or_default();
                self.gives_up(format!("its code can call {own}, which uses {name}, by which it may reach anything"));
            }
            self.name(name, of_library);
        }
    }

    /// Whether code of this module of the standard library looks up by computed names only what its callers ask for.
    fn is_plain_module(&self, globals: &[(String, Addr)]) -> bool {
        let name = globals.iter().find(|(name, _)| name == "__name__").map(|(_, value)| *value);
        let name = name.and_then(|name| self.inspector.objects().text(name)).unwrap_or_default();
        PLAIN_LIBRARY.contains(&name.split('.').next().unwrap_or(&name))
    }

    /// An import of a module that is not loaded runs unknown code. The imports of the standard library are its own,
    /// unless the program has installed a hook there.
    fn imports(&mut self, code: Addr, of_library: bool) {
        let frames = self.inspector.frames();
        let Some(imports) = frames.imports(code, self.inspector.python.version) else {
            let variables = frames.variables_in(code);
            let names = frames.names_in(code).unwrap_or_default();
            let may_import =
                |name: &&String| variables.contains(name) && !self.inspector.modules().loaded.contains_key(*name);
            if let Some(name) = names.iter().find(may_import) {
                self.late_import(name, of_library);
            }
            let loaded: Vec<Addr> =
                names.iter().filter_map(|name| self.inspector.modules().loaded.get(name)).copied().collect();
            self.todo.extend(loaded);
            return;
        };
        for (module, taken) in &imports {
            match self.inspector.modules().loaded.get(module).copied() {
                None => {
                    // Relative to its package.
                    let end = format!(".{module}");
                    let near =
                        self.inspector.modules().loaded.iter().filter(|(name, _)| of_library && name.ends_with(&end));
                    let near: Vec<Addr> = near.map(|(_, module)| *module).collect();
                    if near.is_empty() {
                        self.late_import(module, of_library);
                    }
                    self.todo.extend(near);
                }
                Some(loaded) => {
                    let top =
                        module.split('.').next().and_then(|top| self.inspector.modules().loaded.get(top)).copied();
                    self.todo.extend(top.into_iter().chain([loaded]));
                    let dict = self.inspector.objects().field(loaded, 0);
                    let items = dict.map(|dict| self.inspector.globals_in(dict)).unwrap_or_default();
                    let has = |name: &str| items.iter().any(|(known, _)| known == name);
                    if let Some(name) = taken.iter().find(|name| has("__path__") && !has(name) && *name != "*") {
                        self.late_import(&format!("{module}.{name}"), of_library);
                    }
                }
            }
        }
        if !imports.is_empty() {
            self.todo.extend(self.inspector.modules().builtins.get("__import__").copied());
        }
    }

    fn late_import(&mut self, module: &str, of_library: bool) {
        if !of_library {
            self.gives_up(format!("its code imports {module}, which is not loaded"));
        }
        self.hooks(IMPORT_HOOKS);
    }

    fn name(&mut self, name: String, of_library: bool) {
        if !of_library {
            let is_exception = ["Error", "Exception", "Exit", "Interrupt", "Expired"];
            self.reached.raises |=
                is_exception.iter().any(|end| name.ends_with(end)) || matches!(name.as_str(), "exit" | "_exit");
            self.reached.names.insert(name.clone());
            for (code, globals, module) in self.unnamed_code.remove(&name).unwrap_or_default() {
                self.code(code, globals, module, false);
            }
        }
        self.todo.extend(self.unnamed.remove(&name).unwrap_or_default());
        self.reached.all_names.insert(name);
    }

    /// A function of C: what it does is known by its module, or not at all.
    fn function_of_c(&mut self, function: Addr, bound_name: &str) {
        let Some(module) = self.inspector.objects().module_of_c_function(function) else { return };
        match bound_name {
            "print" => ["write", "flush"].into_iter().for_each(|name| self.name(name.to_owned(), true)),
            "default_int_handler" => self.reached.raises = true,
            _ => {}
        }
        let is_door = C_DOORS.contains(&(module.as_str(), bound_name));
        // The names of code show calls of `__import__` and similar functions. Functions without a module are those that
        // types of C make for their own use.
        if is_door || !module.is_empty() && !PLAIN_C_MODULES.contains(&module.as_str()) {
            self.gives_up(format!("its code can call {bound_name} of {module}, whose doings are not known"));
        }
    }

    /// Values under names: those that code names now, the others once code does.
    fn named(&mut self, items: Vec<(Addr, Addr)>, is_called: bool, is_standard: bool) {
        for (key, value) in items {
            let Some(name) = self.inspector.objects().text(key) else { continue };
            let is_special = name.starts_with("__") && name.ends_with("__") && !CALLED_BY_NAME.contains(&name.as_str());
            let is_called_by_itself = is_special
                && self.inspector.objects().is_callable(value)
                && (is_called || !MAKES_INSTANCES.contains(&name.as_str()))
                && !(is_standard && ONLY_DESCRIBES.contains(&name.as_str()));
            if is_called_by_itself || self.reached.all_names.contains(&name) {
                self.todo.push(value);
            } else {
                self.unnamed.entry(name).or_default().push(value);
            }
        }
    }

    /// Whether a method of this name runs only when its class is called.
    fn makes_instances(&self, key: Addr) -> bool {
        self.inspector.objects().text(key).is_some_and(|name| MAKES_INSTANCES.contains(&name.as_str()))
    }

    fn contained(&mut self, items: Vec<Addr>) {
        if items.len() as u64 > MOST_CONTAINED {
            self.gives_up(format!("it can reach a container of more than {MOST_CONTAINED} items"));
        }
        self.todo.extend(items);
    }

    fn class_name(&mut self, object: Addr) -> Option<Rc<str>> {
        let objects = self.inspector.objects();
        let class = objects.class(object)?;
        self.names_of_classes.entry(class).or_insert_with(|| objects.name_of_class(class).map(Rc::from)).clone()
    }

    fn object(&mut self, object: Addr) {
        let objects = self.inspector.objects();
        let Some(class) = self.class_name(object) else { return };
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
                self.code(function.code, Some(function.globals), function.module, false);
            }
            "builtin_function_or_method" | "builtin_method" | "method-wrapper" => {
                let bound = objects.bound(object);
                if &*class != "method-wrapper" && !self.library_only() {
                    self.function_of_c(object, bound.as_ref().map_or("", |bound| bound.name.as_str()));
                }
                let owner = bound.map(|bound| bound.object);
                let is_module = |owner: &Addr| objects.class_name(*owner).as_deref() == Some("module");
                self.todo.extend(owner.filter(|owner| !is_module(owner)));
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
                let items = objects.field(object, 0).and_then(|dict| objects.items(dict));
                self.module(items.unwrap_or_default());
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

    /// Adds only the named items of a module. This includes names that Python calls by itself in a class.
    fn module(&mut self, items: Vec<(Addr, Addr)>) {
        for (key, value) in items {
            let Some(name) = self.inspector.objects().text(key) else { continue };
            match self.reached.all_names.contains(&name) {
                true => self.todo.push(value),
                false => self.unnamed.entry(name).or_default().push(value),
            }
        }
    }

    /// The class of an instance that was reached.
    fn class_of_instance(&mut self, class: Addr) {
        if !self.reached.objects.contains(&class) && self.typed.insert(class) {
            self.class(class, false);
        }
    }

    /// A class, with what calling it runs where it is at hand itself.
    fn class(&mut self, class: Addr, is_called: bool) {
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
    fn is_of_c(&self, class: Addr) -> bool {
        let objects = self.inspector.objects();
        let name = objects.name_of_class(class);
        name.is_none_or(|name| name != "object" && (name.contains('.') || !objects.is_heap_class(class)))
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

    /// Whether a class is of code that waits on behalf of its caller.
    fn waits_for_caller(&self, class: Addr) -> bool {
        let file = self.module_of(class).and_then(|module| self.file_of_module(&module));
        file.is_some_and(|file| self.inspector.origin(&file).waits_for_caller())
    }

    fn has_library_module(&self, class: Addr) -> bool {
        self.module_of(class).is_some_and(|module| {
            let first = module.split('.').next().unwrap_or(&module);
            LIBRARY_MODULES.contains(&first)
        })
    }

    /// Whether a `threading.Thread` has not run yet: any code that has it may start it.
    fn may_be_started(&self, thread: Addr) -> bool {
        let objects = self.inspector.objects();
        let flag = objects.attribute(thread, "_started").and_then(|event| objects.attribute(event, "_flag"));
        flag.and_then(|flag| objects.unsigned(flag)) == Some(0)
    }

    fn instance(&mut self, object: Addr, name: &str) {
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
            self.todo.extend(runs);
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
    fn has_part_of_c(&self, class: Addr) -> bool {
        let order = self.inspector.objects().class_parts(class).map(|(_, order)| order).unwrap_or_default();
        order.into_iter().any(|base| self.is_of_c(base))
    }

    /// Judges an object of C: only callers by name, or the code of its library, determine its reach.
    fn inside_of_c(&mut self, object: Addr, class: Addr, name: &str) {
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
