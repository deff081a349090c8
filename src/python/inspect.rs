//! Questions to the objects of one process: whose `with` block, which variable, what name.
//!
//! In: a walked [`Python`] and its memory. Out: answers of a sentence each, read on demand and kept. This module knows
//! no lock; `waits::cpython` decides which objects mean a wait.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use super::at_hand::AtHand;
pub(crate) use super::at_hand::Referrer;
use super::objects::Objects;
use super::uses;
use super::values::{Frame, Frames};
use super::{Python, PythonFrame, PythonThread};
use crate::image::{Addr, AddrMap, Memory};
use crate::limits;
use crate::limits::python::{
    LONGEST_KEY, MOST_HANDLERS, MOST_REFERRED, NAMING_FRAMES, NAMING_ITEMS, NAMING_OBJECTS, REFERRING_FRAMES,
    SEARCHED_FRAMES,
};
use crate::origin::{Origin, OriginKind};

/// Classes whose instances have no attributes of interest.
const PLAIN: &[&str] = &[
    "str",
    "int",
    "float",
    "bool",
    "bytes",
    "tuple",
    "list",
    "dict",
    "set",
    "frozenset",
    "function",
    "type",
    "module",
    "code",
    "NoneType",
    "method",
    "builtin_function_or_method",
    "cell",
    "generator",
    "coroutine",
];

/// A `with` block that a frame has entered and not left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entered {
    /// Position in [`Python::threads`].
    pub(crate) state: usize,
    /// How many frames lie further in.
    pub(crate) depth: usize,
    /// The frame.
    pub(crate) frame: Addr,
    /// The object after `with`.
    pub(crate) object: Addr,
    /// The line of the `with`.
    pub(crate) line: Option<u32>,
}

/// The globals of a module, in the order of their table.
pub(crate) type Globals = Rc<Vec<(String, Addr)>>;

/// The names that all code of a process has at hand.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// The modules that are loaded, by name.
    pub(crate) loaded: HashMap<String, Addr>,
    /// The contents of `builtins`.
    pub(crate) builtins: HashMap<String, Addr>,
}

/// The items of a container: how each is reached, and its key as text.
type Items = AddrMap<(Reach, String)>;

/// One process's Python, open for questions.
#[derive(Debug)]
pub(crate) struct Inspector<'a> {
    pub(crate) python: &'a Python,
    /// Positions of thread states, by their kernel threads.
    by_thread: HashMap<i32, Vec<usize>>,
    /// Living threads, by the ident that `threading` uses.
    by_ident: HashMap<u64, usize>,
    frames: Frames<'a>,
    entered: OnceCell<Vec<Entered>>,
    joinable: OnceCell<AddrMap<Addr>>,
    at_hand: OnceCell<AtHand>,
    globals: RefCell<AddrMap<Globals>>,
    modules: OnceCell<Modules>,
    tracked: OnceCell<Option<Vec<Addr>>>,
    /// The globals in a dictionary that code names. It is kept because many threads run the same code.
    named: RefCell<HashMap<(Addr, Addr), Globals>>,
    /// Whether instances of a class have no attributes of interest.
    plain: RefCell<AddrMap<bool>>,
    /// The items of containers, each with its key as text.
    ways: RefCell<AddrMap<Rc<Items>>>,
    /// Answers about its code.
    pub(super) reach: uses::Memo,
}

impl<'a> Inspector<'a> {
    /// `None` when the layout of this build is not known.
    pub(crate) fn new(memory: &'a dyn Memory, python: &'a Python) -> Option<Self> {
        let layout = python.layout.as_ref()?;
        let (mut by_thread, mut by_ident) = (HashMap::<i32, Vec<usize>>::new(), HashMap::new());
        for (position, state) in python.threads.iter().enumerate() {
            if let Some(tid) = state.tid {
                by_thread.entry(tid).or_default().push(position);
                by_ident.entry(state.ident).or_insert(position);
            }
        }
        Some(Inspector {
            python,
            by_thread,
            by_ident,
            frames: Frames::new(memory, layout, &python.folders),
            entered: OnceCell::new(),
            modules: OnceCell::new(),
            tracked: OnceCell::new(),
            joinable: OnceCell::new(),
            at_hand: OnceCell::new(),
            globals: RefCell::default(),
            named: RefCell::default(),
            plain: RefCell::default(),
            ways: RefCell::default(),
            reach: uses::Memo::default(),
        })
    }

    /// The modules of all interpreters.
    pub(crate) fn modules(&self) -> &Modules {
        self.modules.get_or_init(|| {
            let objects = self.objects();
            let mut modules = Modules::default();
            for interpreter in &self.python.interpreters {
                let Some(dict) = objects.pointer(interpreter.modules_field) else { continue };
                modules.loaded.extend(self.globals_in(dict).iter().cloned());
            }
            // PyModuleObject.md_dict is the first word behind the head.
            if let Some(dict) = modules.loaded.get("builtins").and_then(|module| objects.field(*module, 0)) {
                modules.builtins.extend(self.globals_in(dict).iter().cloned());
            }
            modules
        })
    }

    /// All objects that the collector tracks, found by `find` the first time.
    pub(super) fn tracked(&self, find: impl FnOnce() -> Option<Vec<Addr>>) -> Option<&[Addr]> {
        self.tracked.get_or_init(find).as_deref()
    }

    pub(crate) fn objects(&self) -> &Objects<'a> {
        self.frames.objects()
    }

    pub(crate) fn frames(&self) -> &Frames<'a> {
        &self.frames
    }

    /// Whose code a file is.
    pub(crate) fn origin(&self, file: &str) -> Origin {
        self.python.folders.of(file)
    }

    /// Thread states of a kernel thread.
    pub(crate) fn states(&self, tid: i32) -> impl Iterator<Item = (usize, &'a PythonThread)> {
        let positions = self.by_thread.get(&tid).into_iter().flatten();
        let threads = &self.python.threads;
        positions.filter_map(|position| Some((*position, threads.get(*position)?)))
    }

    /// The thread state of a living thread that `threading` knows by this ident.
    pub(crate) fn with_ident(&self, ident: u64) -> Option<&'a PythonThread> {
        self.python.threads.get(*self.by_ident.get(&ident)?)
    }

    /// The Python frames of a thread, innermost first.
    pub(crate) fn stack(&self, tid: i32) -> impl Iterator<Item = &'a PythonFrame> {
        self.states(tid).flat_map(|(_, state)| frames_of(state))
    }

    /// The contents of a frame.
    pub(crate) fn frame(&self, frame: &PythonFrame) -> Option<Frame<'_, 'a>> {
        self.frames.at(frame.address, frame.code)
    }

    /// Thread states of living threads, with their positions.
    pub(crate) fn living(&self) -> impl Iterator<Item = (usize, &'a PythonThread)> {
        self.python.threads.iter().enumerate().filter(|(_, state)| state.tid.is_some())
    }

    /// The exception in whose handler a thread is: its class and text.
    pub(crate) fn handled(&self, state: &PythonThread) -> Option<(String, Option<String>)> {
        let (objects, layout) = (self.objects(), self.python.layout.as_ref()?);
        let mut entry = objects.pointer(state.tstate + layout.thread_exceptions)?;
        for _ in 0..MOST_HANDLERS {
            let value = objects.pointer(entry + layout.exception_value)?;
            let known = if value.is_null() { None } else { objects.exception(value) };
            if known.is_some() {
                return known;
            }
            entry = objects.pointer(entry + layout.exception_next).filter(|next| !next.is_null())?;
        }
        limits::met(MOST_HANDLERS, "the exception that a thread handles", "generators inside each other");
        None
    }

    /// All `with` blocks that living threads are in.
    pub(crate) fn entered(&self) -> &[Entered] {
        self.entered.get_or_init(|| {
            let mut list = Vec::new();
            for (state, thread) in self.living() {
                for (depth, frame) in frames_of(thread).enumerate() {
                    let objects = self.frame(frame).map(|open| open.entered_with_lines()).unwrap_or_default();
                    list.extend(objects.into_iter().map(|block| Entered {
                        state,
                        depth,
                        frame: frame.address,
                        object: block.object,
                        line: block.line,
                    }));
                }
            }
            list
        })
    }

    /// `threading.Thread` objects that have not ended, by the lock that joins wait for (up to 3.12).
    pub(crate) fn joinable(&self) -> &AddrMap<Addr> {
        self.joinable.get_or_init(|| {
            let objects = self.objects();
            let active = self.globals("threading", "_active").filter_map(|dict| objects.items(dict));
            let locked = |(_, thread)| Some((objects.attribute(thread, "_tstate_lock")?, thread));
            active.flatten().filter_map(locked).collect()
        })
    }

    /// A global of a module, in each interpreter.
    pub(crate) fn globals(&self, module: &'static str, name: &'static str) -> impl Iterator<Item = Addr> + use<'_, 'a> {
        let objects = self.objects();
        self.python.interpreters.iter().filter_map(move |interpreter| {
            let modules = objects.pointer(interpreter.modules_field)?;
            objects.global(modules, module, name)
        })
    }

    /// Whether a file is of the standard library.
    pub(crate) fn is_standard(&self, file: &str) -> bool {
        self.origin(file).kind == OriginKind::Stdlib
    }

    /// Whether an object is a number, a text, a container or code: it has no attributes of interest.
    pub(crate) fn is_plain(&self, object: Addr) -> bool {
        let Some(class) = self.objects().class(object) else { return true };
        if let Some(known) = self.plain.borrow().get(&class) {
            return *known;
        }
        let is_plain = self.objects().class_name(object).is_none_or(|class| PLAIN.contains(&&*class));
        self.plain.borrow_mut().insert(class, is_plain);
        is_plain
    }

    /// The frames that refer to an object, those of one thread together, its innermost first: in a variable, in an
    /// attribute of one, in a global that the code names, or in an attribute of that.
    pub(crate) fn referrers(&self, object: Addr) -> Vec<Referrer> {
        self.at_hand.get_or_init(|| self.all_at_hand()).frames(object)
    }

    fn all_at_hand(&self) -> AtHand {
        let mut all = AtHand::default();
        let mut left = MOST_REFERRED;
        for (state, thread) in self.living() {
            for (depth, frame) in frames_of(thread).enumerate().take(REFERRING_FRAMES) {
                let Some(open) = self.frame(frame) else { continue };
                let place = Referrer { state, depth };
                let mut count = 1;
                for (_, value) in open.variables() {
                    all.variable(place, value);
                    count += 1 + self.add_attributes(value, &mut all);
                }
                if let Some(dict) = open.globals()
                    && all.code(place, (dict, open.code()))
                {
                    for (_, value) in self.named_globals(&open).iter() {
                        all.global((dict, open.code()), *value);
                        count += 1 + self.add_attributes(*value, &mut all);
                    }
                }
                left = left.saturating_sub(count);
                if left == 0 {
                    limits::met(MOST_REFERRED, "objects that frames of Python have at hand", "objects");
                    return all;
                }
            }
        }
        all
    }

    /// Add the attributes of an object, if they are not known; how many these are.
    fn add_attributes(&self, object: Addr, all: &mut AtHand) -> usize {
        if !all.is_new(object) || self.is_plain(object) {
            return 0;
        }
        let attributes = self.objects().attributes(object).unwrap_or_default();
        attributes.iter().for_each(|(_, value)| all.attribute(object, *value));
        attributes.len()
    }

    /// Tell of threads too deep to be searched whole for `with` blocks, or for objects at hand.
    pub(crate) fn tell_deep_threads(&self) {
        let deep = |most: usize| self.living().any(|(_, state)| frames_of(state).nth(most).is_some());
        let frames = self.living().any(|(_, state)| all_frames_of(state).nth(SEARCHED_FRAMES).is_some());
        if frames {
            limits::met(SEARCHED_FRAMES, "`with` blocks of deep Python stacks", "frames of one thread");
        }
        if deep(REFERRING_FRAMES) {
            limits::met(
                REFERRING_FRAMES,
                "locks that frames of deep Python stacks have at hand",
                "frames of one thread",
            );
        }
    }

    /// The globals of the module whose dictionary this is.
    pub(super) fn globals_in(&self, dict: Addr) -> Globals {
        if let Some(known) = self.globals.borrow().get(&dict) {
            return Rc::clone(known);
        }
        let objects = self.objects();
        let text = |(key, value): (Addr, Addr)| Some((objects.text(key)?, value));
        let read: Globals = Rc::new(objects.items(dict).unwrap_or_default().into_iter().filter_map(text).collect());
        self.globals.borrow_mut().insert(dict, Rc::clone(&read));
        read
    }

    /// The globals that the code of a frame names.
    pub(crate) fn named_globals(&self, frame: &Frame<'_, '_>) -> Globals {
        let Some(dict) = frame.globals() else { return Globals::default() };
        if let Some(known) = self.named.borrow().get(&(dict, frame.code())) {
            return Rc::clone(known);
        }
        let globals = self.globals_in(dict);
        let named: Globals = Rc::new(globals.iter().filter(|(name, _)| frame.uses(name)).cloned().collect());
        self.named.borrow_mut().insert((dict, frame.code()), Rc::clone(&named));
        named
    }

    /// How the program calls an object, as seen from these frames: "jobs", "Cache._lock", "src.lock".
    pub(crate) fn name_of<'f>(&self, object: Addr, frames: impl Iterator<Item = &'f PythonFrame>) -> Option<String> {
        self.name_and_reach(object, frames).map(|(_, name)| name)
    }

    /// The same with how far the name reaches: a parameter may have the name that another lock has elsewhere.
    pub(crate) fn name_and_reach<'f>(
        &self,
        object: Addr,
        frames: impl Iterator<Item = &'f PythonFrame>,
    ) -> Option<(Reach, String)> {
        let open: Vec<Frame<'_, '_>> = frames.take(NAMING_FRAMES).filter_map(|frame| self.frame(frame)).collect();
        // No name reaches further.
        if let Some(name) = open.iter().find_map(|frame| self.global_name(object, frame)) {
            return Some((Reach::Global, name));
        }
        let names = open.iter().enumerate().flat_map(|(depth, frame)| {
            let names = self.names_in(object, frame).into_iter();
            names.map(move |(reach, name)| (reach, depth, name))
        });
        names.min_by_key(|(reach, depth, _)| (*reach, *depth)).map(|(reach, _, name)| (reach, name))
    }

    /// The name that the module of a frame has for an object.
    fn global_name(&self, object: Addr, frame: &Frame<'_, '_>) -> Option<String> {
        let globals = self.globals_in(frame.globals()?);
        globals.iter().find(|(_, value)| *value == object).map(|(name, _)| name.clone())
    }

    /// The names that a frame has for an object beside those of its module.
    fn names_in(&self, object: Addr, frame: &Frame<'_, '_>) -> Vec<(Reach, String)> {
        let objects = self.objects();
        let mut names = Vec::new();
        let variables = frame.variables();
        let is_name = |name: &str| name != "self" && !name.starts_with('.');
        let is_library = |code: Addr| self.frames.code_origin(code).is_some_and(|of| of.kind == OriginKind::Stdlib);
        if is_library(frame.code()) {
            return self.names_in_library(object, &variables);
        }
        let variable = variables.iter().find(|(name, value)| *value == object && is_name(name));
        names.extend(variable.map(|(name, _)| (Reach::Local, (*name).to_owned())));
        let named = self.named_globals(frame);
        let owners = variables.iter().map(|(name, value)| (*name, *value));
        for (owner, value) in owners.chain(named.iter().map(|(name, value)| (name.as_str(), *value))) {
            if self.is_plain(value) {
                names.extend(self.way_in(value, object).map(|(reach, way)| (reach, format!("{owner}{way}"))));
                continue;
            }
            let items = objects.attributes(value).unwrap_or_default();
            let is_own = owner == "self";
            let class = if is_own { objects.class_name(value) } else { None };
            let owner = class.as_deref().map_or(owner, |class| class.rsplit('.').next().unwrap_or(class));
            // Another class's private attribute says less than a variable, also where a container in it has the object.
            let through = |attribute: &str, reach| {
                if is_own || !attribute.starts_with('_') { reach } else { Reach::PrivateAttribute }
            };
            if let Some(attribute) =
                items.iter().find(|(_, value)| *value == object).and_then(|(key, _)| objects.text(*key))
            {
                names.push((through(&attribute, Reach::Attribute), format!("{owner}.{attribute}")));
                continue;
            }
            // A dictionary or list of locks, and a subclass that is one itself.
            names.extend(self.way_in(value, object).map(|(reach, way)| (reach, format!("{owner}{way}"))));
            let by_key = items.iter().find_map(|(name, value)| {
                let (attribute, (reach, way)) = (objects.text(*name)?, self.way_in(*value, object)?);
                Some((through(&attribute, reach), format!("{owner}.{attribute}{way}")))
            });
            names.extend(by_key);
        }
        names
    }

    /// The names that a frame of the standard library has for an object. Its variables say nothing to the program; an attribute
    /// of the object whose method runs does.
    fn names_in_library(&self, object: Addr, variables: &[(&str, Addr)]) -> Vec<(Reach, String)> {
        let objects = self.objects();
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let Some(own) = variable("self").filter(|own| !self.is_plain(*own)) else { return Vec::new() };
        let short = |object: Addr| Some(objects.class_name(object)?.rsplit('.').next()?.to_owned());
        let attributes = objects.attributes(own).unwrap_or_default();
        let Some(attribute) = attributes.iter().find(|(_, value)| *value == object).map(|(key, _)| *key) else {
            return Vec::new();
        };
        // A descriptor that knows for which attribute of the program's class it is.
        let described = objects.named(&attributes, "attrname").and_then(|name| objects.text(name));
        let name = match (described, variable("instance").and_then(short)) {
            (Some(described), Some(class)) => Some(format!("{class}.{described}")),
            _ => short(own).zip(objects.text(attribute)).map(|(class, attribute)| format!("{class}.{attribute}")),
        };
        name.map(|name| vec![(Reach::Attribute, name)]).unwrap_or_default()
    }

    /// The way, as Python writes it, from a dictionary, list or tuple to an object: `['eu']`, `[3].lock`. Keys are short
    /// texts and numbers.
    fn way_in(&self, container: Addr, object: Addr) -> Option<(Reach, String)> {
        let known = self.ways.borrow().get(&container).cloned();
        let ways = known.unwrap_or_else(|| {
            let read = Rc::new(self.ways_in(container));
            self.ways.borrow_mut().insert(container, Rc::clone(&read));
            read
        });
        ways.get(&object).cloned()
    }

    fn ways_in(&self, container: Addr) -> AddrMap<(Reach, String)> {
        let keyed = self.keyed(container);
        // An item itself, whose way is shorter, takes the place of what is in another.
        let in_items = keyed.iter().take(NAMING_OBJECTS).flat_map(|(item, key)| {
            let plain = self.is_plain(*item);
            let attributes = if plain { Vec::new() } else { self.objects().attributes(*item).unwrap_or_default() };
            attributes.into_iter().filter_map(move |(name, value)| {
                let name = self.objects().text(name)?;
                let reach = if name.starts_with('_') { Reach::PrivateAttribute } else { Reach::Item };
                Some((value, (reach, format!("[{key}].{name}"))))
            })
        });
        let items = keyed.iter().map(|(item, key)| (*item, (Reach::Item, format!("[{key}]"))));
        in_items.chain(items).collect()
    }

    /// The items of a dictionary, list or tuple with their keys.
    fn keyed(&self, container: Addr) -> Vec<(Addr, String)> {
        let objects = self.objects();
        let class = objects.class_name(container);
        if let Some("list" | "tuple") = class.as_deref() {
            let items = objects.sequence(container, NAMING_ITEMS).unwrap_or_default();
            return items.into_iter().enumerate().map(|(position, item)| (item, position.to_string())).collect();
        }
        let items = objects.items_up_to(container, NAMING_ITEMS).unwrap_or_default();
        let key = |key: Addr| {
            let text = objects.text(key).filter(|text| text.len() <= LONGEST_KEY && !text.contains(['\'', '\\', '\n']));
            text.map(|text| format!("'{text}'")).or_else(|| objects.unsigned(key).map(|number| number.to_string()))
        };
        items.into_iter().filter_map(|(name, value)| Some((value, key(name)?))).collect()
    }
}

/// How far a name reaches, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// A global of a module.
    Global,
    /// An attribute of the object that the code is a method of, or a public attribute.
    Attribute,
    /// An item of a container that one of these names leads to.
    Item,
    /// A variable of a function.
    Local,
    /// An attribute that another class keeps for itself, as a Condition does with its lock.
    PrivateAttribute,
}

/// Frames of a thread state, innermost first, a bounded number.
pub(crate) fn frames_of(state: &PythonThread) -> impl Iterator<Item = &PythonFrame> {
    all_frames_of(state).take(SEARCHED_FRAMES)
}

fn all_frames_of(state: &PythonThread) -> impl Iterator<Item = &PythonFrame> {
    state.entries.iter().flat_map(|entry| &entry.frames)
}
