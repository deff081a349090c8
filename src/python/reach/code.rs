//! The walk through code: frames, functions, the names that they use, what they import, functions of C.
//!
//! In: code objects and frames. Out: their names and constants, and the objects behind these, are reached.

use std::collections::HashSet;

use super::super::PythonFrame;
use super::super::ahead::{self, Ahead};
use super::tables::{C_DOORS, IMPORT_HOOKS, NAMES_ANYTHING, PLAIN_C_MODULES, PLAIN_LIBRARY};
use super::{Extent, Walk};
use crate::image::Addr;

impl Walk<'_, '_> {
    /// Whether an object is nothing but the standard library's: a function of its, or of C without an object.
    pub(super) fn is_standard(&self, object: Addr) -> bool {
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
    pub(super) fn is_of_program(&self, object: Addr) -> bool {
        let codes = self.functions(object).into_iter().filter_map(|one| self.inspector.objects().function(one));
        let mut files = codes.filter_map(|function| self.file_of(function.code, function.module));
        files.any(|file| !self.inspector.is_standard(&file))
    }

    /// The file of code. Code that was made out of text, as by attrs, is of the module that its function names.
    pub(super) fn file_of(&self, code: Addr, module: Option<Addr>) -> Option<String> {
        let objects = self.inspector.objects();
        let file = self.inspector.frames().code_file(code)?;
        let of_module = || self.file_of_module(&objects.text(module?)?);
        if file.starts_with('<') { of_module().or(Some(file)) } else { Some(file) }
    }

    pub(super) fn file_of_module(&self, name: &str) -> Option<String> {
        let objects = self.inspector.objects();
        let dict = objects.field(*self.inspector.modules().loaded.get(name)?, 0)?;
        objects.text(objects.item(dict, "__file__")?)
    }

    /// An object's function, or those of its class.
    pub(super) fn functions(&self, object: Addr) -> Vec<Addr> {
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

    /// A timer calls its function after its wait. A thread's own function has been called already.
    pub(super) fn outermost(&mut self, frame: &PythonFrame) {
        let objects = self.inspector.objects();
        let own = self.inspector.frame(frame).and_then(|open| open.first());
        let is_timer = |own: &Addr| objects.class_name(*own).is_some_and(|class| class.ends_with("Timer"));
        if let Some(own) = own.filter(is_timer) {
            self.todo
                .extend(["function", "args", "kwargs"].into_iter().filter_map(|name| objects.attribute(own, name)));
        }
    }

    pub(super) fn frame(&mut self, frame: &PythonFrame) {
        self.open_frame(frame.address, frame.code, frame.origin.waits_for_caller());
    }

    pub(super) fn open_frame(&mut self, address: Addr, code: Addr, of_library: bool) {
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
        let unit = open.unit_of_call();
        if unit.is_some_and(|unit| !self.positions.insert((code, unit))) {
            return;
        }
        let constants = self.inspector.frames().constants(code);
        let version = self.inspector.python.version;
        match unit.and_then(|unit| ahead::of_frame(&open, unit, &constants, version)) {
            // The whole code follows if it is reached as a function, too.
            Some(ahead) => self.used(code, open.globals(), None, is_running, Some(ahead)),
            None => self.code(code, open.globals(), None, is_running),
        }
    }

    /// The coroutine in which anyio runs what a task group starts: it has the group at hand, to report its end. As with
    /// what any task wakes when it ends, that is another matter.
    pub(super) fn is_wrapper(&self, code: Addr) -> bool {
        self.library_only() && self.inspector.frames().code_origin(code).is_some_and(|of| of.is_package("anyio"))
    }

    /// The names that code uses, and the globals under them.
    pub(super) fn code(&mut self, code: Addr, globals: Option<Addr>, module: Option<Addr>, is_running: bool) {
        if self.codes.insert(code) {
            self.used(code, globals, module, is_running, None);
        }
    }

    /// The same, with the part of it that is ahead of a frame.
    fn used(
        &mut self,
        code: Addr,
        globals: Option<Addr>,
        module: Option<Addr>,
        is_running: bool,
        ahead: Option<Ahead>,
    ) {
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
        let mut names: HashSet<String> = names.into_iter().collect();
        let named = globals.map(|dict| self.inspector.globals_in(dict)).unwrap_or_default();
        let is_of_library =
            |file: &String| self.inspector.origin(file).waits_for_caller() || self.inspector.is_standard(file);
        let of_library = file.as_ref().is_none_or(is_of_library);
        if !of_library {
            let is_end = || frames.code_name(code).is_some_and(|name| name.ends_with("__exit__"));
            self.reached.gives_away |= names.contains("release") && !names.contains("acquire") && !is_end();
        }
        let constants = match ahead {
            Some(ahead) => {
                // That it takes what it releases says more than where it stands.
                let takes = names.take("acquire").into_iter();
                names = ahead.names.into_iter().chain(takes).collect();
                ahead.constants
            }
            None => frames.constants(code),
        };
        self.imports(code, &names, of_library);
        let is_plain = of_library && self.is_plain_module(&named);
        self.todo.extend(named.iter().filter(|(name, _)| names.contains(name)).map(|(_, value)| *value));
        let common = names.iter().filter(|name| !named.iter().any(|(known, _)| known == *name));
        let common: Vec<Addr> =
            common.filter_map(|name| self.inspector.modules().builtins.get(name)).copied().collect();
        self.todo.extend(common);
        for constant in constants {
            match self.inspector.objects().class_name(constant).as_deref() {
                Some("code") => self.code(constant, globals, module, is_running),
                // A plain module builds the names that it looks up out of these strings.
                Some("str") if is_plain && names.contains("getattr") => {
                    if let Some(name) = self.inspector.objects().text(constant) {
                        self.name(name, true);
                    }
                }
                // "{0.name}" has names of attributes in it.
                Some("str") if !of_library && (names.contains("format") || names.contains("format_map")) => {
                    let text = self.inspector.objects().text(constant).filter(|text| text.contains('{'));
                    let words =
                        text.iter().flat_map(|text| text.split(|one: char| !one.is_alphanumeric() && one != '_'));
                    words.for_each(|word| self.name(word.to_owned(), false));
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
    pub(super) fn is_plain_module(&self, globals: &[(String, Addr)]) -> bool {
        let name = globals.iter().find(|(name, _)| name == "__name__").map(|(_, value)| *value);
        let name = name.and_then(|name| self.inspector.objects().text(name)).unwrap_or_default();
        PLAIN_LIBRARY.contains(&name.split('.').next().unwrap_or(&name))
    }

    /// An import of a module that is not loaded runs unknown code. The imports of the standard library are its own,
    /// unless the program has installed a hook there.
    fn imports(&mut self, code: Addr, names: &HashSet<String>, of_library: bool) {
        let frames = self.inspector.frames();
        let Some(imports) = frames.imports(code, self.inspector.python.version) else {
            let variables = frames.variables_in(code);
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
        for (module, taken) in imports.iter().filter(|(module, _)| names.contains(module)) {
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

    pub(super) fn late_import(&mut self, module: &str, of_library: bool) {
        if !of_library {
            self.gives_up(format!("its code imports {module}, which is not loaded"));
        }
        self.hooks(IMPORT_HOOKS);
    }

    pub(super) fn name(&mut self, name: String, of_library: bool) {
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
    pub(super) fn function_of_c(&mut self, function: Addr, bound_name: &str) {
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
}
