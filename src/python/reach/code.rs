//! The walk through code: frames, functions, the names that they use, what they import, functions of C.
//!
//! In: code objects and frames. Out: their names and constants, and the objects behind these, are reached.

use std::rc::Rc;

use super::super::PythonFrame;
use super::super::ahead;
use super::super::uses::{CodePart, Uses};
use super::tables::{C_DOORS, IMPORT_HOOKS, PLAIN_C_MODULES};
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
        // Cells as they are: code may put something else into one that it shares.
        self.todo.extend(open.raw_variables().into_iter().filter(|value| !value.is_null()));
        self.todo.extend(open.living_stack().unwrap_or_else(|| open.stack()));
        let is_running = self.extent == Extent::Thread;
        let unit = open.unit_of_call();
        if unit.is_some_and(|unit| !self.positions.insert((code, unit))) {
            return;
        }
        if self.library_only() || !is_running && self.is_for_caller(code, None) {
            return;
        }
        let version = self.inspector.python.version;
        let ahead = |unit| ahead::of_frame(&open, unit, &self.inspector.frames().constants(code), version);
        let whole = CodePart { code, globals: open.globals(), module: None, ahead_of: None };
        match unit.and_then(|unit| self.uses(CodePart { ahead_of: Some(unit), ..whole }, || ahead(unit))) {
            // The whole code follows if it is reached as a function, too.
            Some(uses) => self.follow(&uses, whole, is_running),
            None => self.code(whole, is_running),
        }
    }

    /// The coroutine in which anyio runs what a task group starts: it has the group at hand, to report its end. As with
    /// what any task wakes when it ends, that is another matter.
    pub(super) fn is_wrapper(&self, code: Addr) -> bool {
        self.library_only() && self.inspector.frames().code_origin(code).is_some_and(|of| of.is_package("anyio"))
    }

    /// The names that code uses, and the globals under them.
    pub(super) fn code(&mut self, part: CodePart, is_running: bool) {
        if self.library_only() || !self.codes.insert(part.code) {
            return;
        }
        // Code makes an event loop or a lock do something only by naming it; what these call stands in their parts.
        if !is_running && self.is_for_caller(part.code, part.module) {
            if self.extent != Extent::Thread {
                return;
            }
            let name = self.inspector.frames().code_name(part.code).unwrap_or_default();
            let name = name.rsplit('.').next().unwrap_or(&name);
            if !self.reached.uses(name) {
                self.codes.remove(&part.code);
                self.unnamed_code.entry(name.into()).or_default().push(part);
                return;
            }
        }
        match self.uses(part, || None) {
            Some(uses) => self.follow(&uses, part, is_running),
            None => self.gives_up("code that it can reach could not be read".into()),
        }
    }

    fn follow(&mut self, uses: &Uses, whole: CodePart, is_running: bool) {
        self.reached.gives_away |= uses.gives_away;
        for module in &uses.late {
            self.late_import(module, uses.of_library);
        }
        self.todo.extend(&uses.objects);
        for inner in &uses.inner {
            self.code(CodePart { code: *inner, ..whole }, is_running);
        }
        if let Some(name) = &uses.opens {
            let own = self.inspector.frames().code_name(whole.code).unwrap_or_default();
            self.gives_up(format!("its code can call {own}, which uses {name}, by which it may reach anything"));
        }
        for name in &uses.names {
            self.name(name, uses.of_library);
        }
        self.reached.stored.extend(uses.stored.iter().cloned());
    }

    pub(super) fn late_import(&mut self, module: &str, of_library: bool) {
        if !of_library {
            self.gives_up(format!("its code imports {module}, which is not loaded"));
        }
        self.hooks(IMPORT_HOOKS);
    }

    pub(super) fn name(&mut self, name: &Rc<str>, of_library: bool) {
        if !of_library && self.reached.names.insert(Rc::clone(name)) {
            let is_exception = ["Error", "Exception", "Exit", "Interrupt", "Expired"];
            self.reached.raises |=
                is_exception.iter().any(|end| name.ends_with(end)) || matches!(&**name, "exit" | "_exit");
            for part in self.unnamed_code.remove(name).unwrap_or_default() {
                self.code(part, false);
            }
        }
        if self.reached.all_names.insert(Rc::clone(name)) {
            self.todo.extend(self.unnamed.remove(name).unwrap_or_default());
        }
    }

    /// A function of C: what it does is known by its module, or not at all.
    pub(super) fn function_of_c(&mut self, function: Addr, bound_name: &str) {
        let Some(module) = self.inspector.objects().module_of_c_function(function) else { return };
        match bound_name {
            "print" => ["write", "flush"].into_iter().for_each(|name| self.name(&name.into(), true)),
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
