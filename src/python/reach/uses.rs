//! Reads what a code object uses.
//!
//! In: a code object with its globals and its module. Out: [`Uses`], which is kept for other walks. Nothing is followed here.

use std::collections::HashSet;
use std::rc::Rc;

use super::super::ahead::Ahead;
use super::super::uses::{CodePart, Uses};
use super::Walk;
use super::tables::{NAMES_ANYTHING, PLAIN_LIBRARY};
use crate::image::Addr;

impl Walk<'_, '_> {
    /// Whether code waits on behalf of its caller, or its file is not known.
    pub(super) fn is_for_caller(&self, code: Addr, module: Option<Addr>) -> bool {
        let memo = &self.inspector.reach.waits;
        if let Some(known) = memo.borrow().get(&(code, module)) {
            return *known;
        }
        let file = self.file_of(code, module);
        let waits = file.is_none_or(|file| self.inspector.origin(&file).waits_for_caller());
        memo.borrow_mut().insert((code, module), waits);
        waits
    }

    /// The uses of code; `None` where it cannot be read. For a part of it `ahead` reads that.
    pub(super) fn uses(&self, part: CodePart, ahead: impl FnOnce() -> Option<Ahead>) -> Option<Rc<Uses>> {
        let memo = &self.inspector.reach.uses;
        if let Some(known) = memo.borrow().get(&part) {
            return known.clone();
        }
        let uses = self.read_uses(part, ahead).map(Rc::new);
        memo.borrow_mut().insert(part, uses.clone());
        uses
    }

    fn read_uses(&self, part: CodePart, ahead: impl FnOnce() -> Option<Ahead>) -> Option<Uses> {
        let CodePart { code, globals, module, ahead_of } = part;
        let (frames, objects) = (self.inspector.frames(), self.inspector.objects());
        let mut names: HashSet<String> = frames.names_in(code)?.into_iter().collect();
        let named = globals.map(|dict| self.inspector.globals_in(dict)).unwrap_or_default();
        let is_standard = || self.file_of(code, module).is_some_and(|file| self.inspector.is_standard(&file));
        let of_library = self.is_for_caller(code, module) || is_standard();
        let is_end = || frames.code_name(code).is_some_and(|name| name.ends_with("__exit__"));
        let gives_away = !of_library && names.contains("release") && !names.contains("acquire") && !is_end();
        let mut uses = Uses { of_library, gives_away, ..Uses::default() };
        let constants = match ahead_of {
            Some(_) => {
                let ahead = ahead()?;
                uses.stored.extend(ahead.stored.into_iter().map(Rc::from));
                // That it takes what it releases says more than where it stands.
                let takes = names.take("acquire").into_iter();
                names = ahead.names.into_iter().chain(takes).collect();
                ahead.constants
            }
            None => frames.constants(code),
        };
        self.imports(code, &names, &mut uses);
        let is_plain = of_library && self.is_plain_module(&named);
        uses.objects.extend(named.iter().filter(|(name, _)| names.contains(name)).map(|(_, value)| *value));
        let own: HashSet<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
        let common = names.iter().filter(|name| !own.contains(name.as_str()));
        uses.objects.extend(common.filter_map(|name| self.inspector.modules().builtins.get(name)).copied());
        for constant in constants {
            match objects.class_name(constant).as_deref() {
                Some("code") => uses.inner.push(constant),
                // A plain module builds the names that it looks up out of these strings.
                Some("str") if is_plain && names.contains("getattr") => {
                    uses.names.extend(objects.text(constant).map(Rc::from));
                }
                // "{0.name}" has names of attributes in it.
                Some("str") if !of_library && (names.contains("format") || names.contains("format_map")) => {
                    let text = objects.text(constant).filter(|text| text.contains('{'));
                    let words =
                        text.iter().flat_map(|text| text.split(|one: char| !one.is_alphanumeric() && one != '_'));
                    uses.names.extend(words.map(Rc::from));
                }
                _ => {}
            }
        }
        let opens = |name: &&String| !is_plain && NAMES_ANYTHING.contains(&name.as_str());
        uses.opens = names.iter().find(opens).map(|name| Rc::from(name.as_str()));
        uses.names.extend(names.into_iter().map(Rc::from));
        Some(uses)
    }

    /// Whether code of this module of the standard library looks up by computed names only what its callers ask for.
    fn is_plain_module(&self, globals: &[(String, Addr)]) -> bool {
        let name = globals.iter().find(|(name, _)| name == "__name__").map(|(_, value)| *value);
        let name = name.and_then(|name| self.inspector.objects().text(name)).unwrap_or_default();
        PLAIN_LIBRARY.contains(&name.split('.').next().unwrap_or(&name))
    }

    /// The modules that code imports by these names.
    fn imports(&self, code: Addr, names: &HashSet<String>, uses: &mut Uses) {
        let frames = self.inspector.frames();
        let loaded = &self.inspector.modules().loaded;
        let Some(imports) = frames.imports(code, self.inspector.python.version) else {
            let variables = frames.variables_in(code);
            let may_import = |name: &&String| variables.contains(name) && !loaded.contains_key(*name);
            uses.late.extend(names.iter().find(may_import).cloned());
            uses.objects.extend(names.iter().filter_map(|name| loaded.get(name)));
            return;
        };
        for (module, taken) in imports.iter().filter(|(module, _)| names.contains(module)) {
            match loaded.get(module).copied() {
                None => {
                    // Relative to its package.
                    let end = format!(".{module}");
                    let near = loaded.iter().filter(|(name, _)| uses.of_library && name.ends_with(&end));
                    let near: Vec<Addr> = near.map(|(_, module)| *module).collect();
                    if near.is_empty() {
                        uses.late.push(module.clone());
                    }
                    uses.objects.extend(near);
                }
                Some(found) => {
                    let top = module.split('.').next().and_then(|top| loaded.get(top)).copied();
                    uses.objects.extend(top.into_iter().chain([found]));
                    let dict = self.inspector.objects().field(found, 0);
                    let items = dict.map(|dict| self.inspector.globals_in(dict)).unwrap_or_default();
                    let has = |name: &str| items.iter().any(|(known, _)| known == name);
                    if let Some(name) = taken.iter().find(|name| has("__path__") && !has(name) && *name != "*") {
                        uses.late.push(format!("{module}.{name}"));
                    }
                }
            }
        }
        if !imports.is_empty() {
            uses.objects.extend(self.inspector.modules().builtins.get("__import__"));
        }
    }
}
