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

mod code;
mod objects;
mod tables;
mod uses;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::inspect::{Inspector, frames_of};
use super::objects::Objects;
use super::uses::CodePart;
use super::{PythonFrame, PythonThread};
use crate::image::Addr;
use crate::limits::python::{HOOKS_IN_INTERPRETER, LARGEST_STATE, MOST_CONTAINED, MOST_REACHED};
pub(super) use objects::only_forgets;
use tables::{CALLED_BY_ITSELF, DESCRIPTORS, HOOKS, LOG_HANDLERS, LOGS, NAMES_ANYTHING, NAMES_CLASSES, RECEIVING};
pub(crate) use tables::{CANCELS, USES_DESCRIPTORS};

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
    names: HashSet<Rc<str>>,
    /// Names that any code uses.
    all_names: HashSet<Rc<str>>,
    /// Names of globals that code which has begun puts something else in the place of.
    stored: HashSet<Rc<str>>,
    /// Methods with their objects.
    bound: HashSet<(String, Addr)>,
    raises: bool,
    /// Some code releases without having taken, and is not the end of a block.
    gives_away: bool,
    /// Names of exceptions of libraries: code that does not name them raises none of them.
    exceptions: HashSet<Rc<str>>,
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

    /// Whether some code may put something else in the place of a global with this name.
    pub(crate) fn changes_global(&self, name: &str) -> bool {
        self.uses_anywhere(name) || self.stored.contains(name) || self.computes_names()
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
    let (_, at) = DESCRIPTORS.iter().find(|(name, _)| *name == &*class)?;
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

/// The objects that code can reach which goes on in these frames.
pub(crate) fn from_frames<'f>(inspector: &Inspector<'_>, frames: impl Iterator<Item = &'f PythonFrame>) -> Reached {
    let mut walk = Walk::new(inspector, Extent::Code);
    frames.for_each(|frame| walk.frame(frame));
    walk.finish()
}

/// Whether instances of a module's classes hand on what other processes send.
fn module_of_processes(module: &Option<String>) -> bool {
    matches!(module.as_deref(), Some("multiprocessing.connection" | "multiprocessing.queues"))
}

struct Walk<'w, 'a> {
    inspector: &'w Inspector<'a>,
    extent: Extent,
    /// Whether it is over as soon as anything may be within reach.
    stops_when_open: bool,
    /// The class of something by which objects come from other processes.
    receives: Option<String>,
    /// Cancel scopes of tasks: they lead to the tasks in them, but only for code that cancels.
    scopes: Vec<Addr>,
    /// Whether the code cancels, whatever names it uses.
    cancels: bool,
    reached: Reached,
    todo: Vec<Addr>,
    /// Values under names that no code was seen to use yet.
    unnamed: HashMap<Rc<str>, Vec<Addr>>,
    codes: HashSet<Addr>,
    /// The places of frames whose code was followed from there on: code and instruction.
    positions: HashSet<(Addr, u64)>,
    /// Functions of event loops and locks that no code of the program was seen to name yet.
    unnamed_code: HashMap<Rc<str>, Vec<CodePart>>,
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
            receives: None,
            scopes: Vec::new(),
            cancels: false,
            reached: Reached::default(),
            todo: Vec::new(),
            unnamed: HashMap::new(),
            codes: HashSet::new(),
            positions: HashSet::new(),
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
            // `sys.modules` itself has no hooks.
            let near = objects.objects_in(interpreter.modules_field + 8, HOOKS_IN_INTERPRETER / 8);
            let version = self.inspector.python.version;
            let is_of_it = |row: &&(u8, u8, u64, u64)| (row.0, row.1) == (version.0, version.1);
            let far = HOOKS.iter().filter(is_of_it);
            let far = far.flat_map(|(_, _, at, size)| objects.objects_in(interpreter.modules_field + *at, size / 8));
            let words = near.into_iter().chain(far);
            let lists = words.flat_map(|word| match objects.class_name(word).as_deref() {
                Some("list") => objects.sequence(word, MOST_CONTAINED).unwrap_or_default(),
                // The registry of codecs' error handlers, among dictionaries of other things.
                Some("dict") => {
                    let registry = objects.item(word, "xmlcharrefreplace").and_then(|_| objects.items(word));
                    registry.into_iter().flatten().map(|(_, value)| value).collect()
                }
                _ => vec![word],
            });
            let hooks: Vec<Addr> = lists.filter(|object| self.is_hook(*object)).collect();
            self.todo.extend(hooks);
        }
    }

    /// Whether what an interpreter refers to by itself is code of the program: search functions and error handlers for codecs, audit
    /// hooks, what `sys.monitoring` calls.
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

    fn gives_up(&mut self, why: String) {
        self.reached.anything.get_or_insert(why);
    }
}
