//! Names: functions, data, source lines and inlined calls of addresses.
//!
//! In: [`Modules`] and the debug files behind
//! [`Files`](crate::image::Files). Out: a name only where the symbol's size covers the address; otherwise the
//! caller prints module+offset. It reads no memory of the target and opens no file itself.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod cache;
mod demangle;
pub(crate) mod lines;
mod name_pattern;
mod paths;
mod proportion;
pub(crate) mod table;
mod variables;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

pub(crate) use cache::SymbolCache;
pub(crate) use demangle::{Mangling, demangle};
use lines::Lines;
pub(crate) use name_pattern::{begins_with, is_named};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, SymbolIndex};
pub(crate) use paths::{LockPath, Step, is_of_library};
use table::Table;
pub(crate) use variables::Variable;

use crate::arch::instructions::Target;
use crate::image::{Addr, FileBytes, Gap, ProcessImage, budget};
use crate::limits::without_panic;
use crate::modules::{Module, Modules};

/// A function or object that covers an address.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Symbol {
    /// Demangled name.
    pub name: Arc<str>,
    /// Address of its first byte in the process.
    pub address: Addr,
    /// Its size in bytes.
    pub size: u64,
    /// How the name was written in the file, which says what language it is of.
    #[serde(default)]
    pub mangling: Mangling,
}

/// One source position; an address in inlined code has several, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SourceFrame {
    /// Demangled function name, from debug information.
    pub function: Option<Arc<str>>,
    /// Path as the compiler recorded it.
    pub file: Option<Arc<str>>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Whether this is an inlined call.
    pub inlined: bool,
}

/// Looks names up, module by module, parsing each symbol table and each debug file at the first question only.
/// Answers are kept: most questions come more than once, and a snapshot takes them along.
#[derive(Debug)]
pub(crate) struct Symbols<'a> {
    modules: &'a Modules,
    tables: &'a Tables,
    image: &'a ProcessImage,
    cache: RefCell<SymbolCache>,
    called: RefCell<HashMap<Target, Called>>,
}

/// The first address and the name of a called function, as far as they are known.
pub(crate) type Called = (Option<Addr>, Option<String>);

/// The parsed parts of the files of a process's modules, by position of the module. They serve as long as the modules
/// do.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    list: Vec<OfModule>,
    shared: Rc<SharedTables>,
}

/// The parsed parts of one module's file.
#[derive(Debug, Default)]
struct OfModule {
    symbols: OnceCell<Rc<Table>>,
    lines: OnceCell<Option<Rc<Lines>>>,
}

/// The parsed parts of files that several processes map: thousands may map one C library.
#[derive(Debug, Default)]
pub(crate) struct SharedTables {
    /// By a module's file and its debug file.
    symbols: RefCell<HashMap<[Option<FileKey>; 2], Rc<Table>>>,
    lines: RefCell<HashMap<FileKey, Option<Rc<Lines>>>>,
    /// By file.
    exported: RefCell<HashMap<FileKey, Exported>>,
    slots: RefCell<HashMap<FileKey, HashMap<u64, SymbolIndex>>>,
}

/// Address and size of exported symbols by name; none for a name that the file does not export.
type Exported = HashMap<String, Option<(u64, u64)>>;

/// Bytes of a file, which are the same where they lie at the same place.
#[derive(Debug)]
struct FileKey(FileBytes);

impl PartialEq for FileKey {
    fn eq(&self, other: &FileKey) -> bool {
        self.0.identity() == other.0.identity()
    }
}

impl Eq for FileKey {}

impl std::hash::Hash for FileKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.identity().hash(state);
    }
}

impl SharedTables {
    fn table(&self, file: Option<&FileBytes>, debug: Option<&FileBytes>) -> Rc<Table> {
        let key = [file, debug].map(|bytes| bytes.cloned().map(FileKey));
        if let Some(known) = self.symbols.borrow().get(&key) {
            return known.clone();
        }
        let made = Rc::new(Table::collect(file, debug));
        self.symbols.borrow_mut().insert(key, made.clone());
        made
    }

    /// A symbol that a module exports, without making a table of its names.
    fn exported(&self, module: &Module, name: &str) -> Option<Symbol> {
        let file = module.file.as_ref()?;
        let mut all = self.exported.borrow_mut();
        let of_file = all.entry(FileKey(file.clone())).or_default();
        let found = match of_file.get(name) {
            Some(known) => *known,
            None => {
                let found = table::find_dynamic(file, name, false);
                of_file.insert(name.to_owned(), found);
                found
            }
        };
        let (address, size) = found?;
        let address = Addr(address.wrapping_add(module.bias));
        Some(Symbol { name: name.into(), address, size, mangling: Mangling::of(name) })
    }

    /// The function whose address the dynamic linker writes to `address` of a file.
    fn slot(&self, file: &FileBytes, address: u64) -> Option<String> {
        let key = FileKey(file.clone());
        let mut all = self.slots.borrow_mut();
        let slots = all.entry(key).or_insert_with(|| table::slots(file));
        table::dynamic_name(file, *slots.get(&address)?)
    }

    fn lines(&self, file: &FileBytes, load: impl FnOnce() -> Option<Lines>) -> Option<Rc<Lines>> {
        let key = FileKey(file.clone());
        if let Some(known) = self.lines.borrow().get(&key) {
            return known.clone();
        }
        let made = load().map(Rc::new);
        self.lines.borrow_mut().insert(key, made.clone());
        made
    }
}

impl Tables {
    /// Tables of these modules: each is parsed at the first question to it.
    pub(crate) fn of(modules: &Modules) -> Tables {
        Tables::sharing(modules, &Rc::default())
    }

    /// The same, with those of other processes that map the same files.
    pub(crate) fn sharing(modules: &Modules, shared: &Rc<SharedTables>) -> Tables {
        Tables { list: modules.list.iter().map(|_| OfModule::default()).collect(), shared: shared.clone() }
    }
}

impl<'a> Symbols<'a> {
    /// A symboliser over these modules.
    pub(crate) fn new(modules: &'a Modules, tables: &'a Tables, image: &'a ProcessImage) -> Self {
        Symbols::with_cache(modules, tables, image, SymbolCache::default())
    }

    /// The same, with what is known already.
    pub(crate) fn with_cache(
        modules: &'a Modules,
        tables: &'a Tables,
        image: &'a ProcessImage,
        cache: SymbolCache,
    ) -> Self {
        Symbols { modules, tables, image, cache: RefCell::new(cache), called: RefCell::default() }
    }

    /// All answers so far.
    pub(crate) fn cache(&self) -> SymbolCache {
        self.cache.borrow().clone()
    }

    /// The modules it names.
    pub(crate) fn modules(&self) -> &'a Modules {
        self.modules
    }

    /// The function that covers `address` (.symtab, .dynsym, .gnu_debugdata, separate debug file).
    pub(crate) fn function(&self, address: Addr) -> Option<Symbol> {
        self.once(|cache| &mut cache.functions, address, || self.covering(address, Table::function))
    }

    /// The data object (global or static variable) that covers `address`.
    pub(crate) fn object(&self, address: Addr) -> Option<Symbol> {
        self.once(|cache| &mut cache.objects, address, || self.covering(address, Table::object))
    }

    /// The first address of the function that covers `address`: by its symbol, or in stripped code by its frame
    /// description.
    pub(crate) fn function_start(&self, address: Addr) -> Option<Addr> {
        if let Some(symbol) = self.function(address) {
            return Some(symbol.address);
        }
        let find = || crate::unwind::function_start(self.module(address)?.0, address);
        self.once(|cache| &mut cache.starts, address, find)
    }

    /// Whether a function begins at `address`.
    pub(crate) fn begins_function(&self, address: Addr) -> bool {
        let Some((module, parsed)) = self.module(address) else { return false };
        self.table(module, parsed).begins_function(address.0.wrapping_sub(module.bias))
            || crate::unwind::function_start(module, address) == Some(address)
    }

    /// The name of the function that the linker's slot at `address` is for, also before it was called first.
    pub(crate) fn slot(&self, address: Addr) -> Option<String> {
        let find = || {
            let (module, _) = self.module(address)?;
            self.tables.shared.slot(module.file.as_ref()?, address.0.wrapping_sub(module.bias))
        };
        self.once(|cache| &mut cache.slots, address, find)
    }

    /// The function that a call of `target` goes to: the answer that was given before, or the one that `find` gives now.
    pub(crate) fn called(&self, target: Target, find: impl FnOnce() -> Called) -> Called {
        if let Some(known) = self.called.borrow().get(&target) {
            return known.clone();
        }
        let found = find();
        self.called.borrow_mut().insert(target, found.clone());
        found
    }

    /// The exported or local symbol of exactly this (mangled) name in module `module`.
    pub(crate) fn find(&self, module: usize, name: &str) -> Option<Symbol> {
        self.once(|cache| cache.named.entry(module).or_default(), name.to_owned(), || self.search(module, name))
    }

    /// Whether a module exports a function or object of exactly this name; what it has for itself alone does not count.
    pub(crate) fn exports(&self, module: usize, name: &str) -> bool {
        let find = || self.tables.shared.exported(self.modules.list.get(module)?, name);
        self.once(|cache| cache.named.entry(module).or_default(), format!("{name}@exported"), find).is_some()
    }

    /// The modules that export a function of exactly this name.
    pub(crate) fn exporters(&self, name: &str) -> impl Iterator<Item = usize> {
        (0..self.modules.list.len()).filter(move |module| self.exports(*module, name))
    }

    /// Whether the linker's slot for a function of this name was met already, as in a snapshot whose files are not here.
    pub(crate) fn has_met_slot(&self, name: &str) -> bool {
        self.cache.borrow().slots.values().flatten().any(|known| known == name)
    }

    /// Whether a module calls a function of exactly this name that another one exports.
    pub(crate) fn imports(&self, module: usize, name: &str) -> bool {
        let find = || {
            let module = self.modules.list.get(module)?;
            let (address, size) = table::find_dynamic(module.file.as_ref()?, name, true)?;
            Some(Symbol { name: name.into(), address: Addr(address), size, mangling: Mangling::of(name) })
        };
        self.once(|cache| cache.named.entry(module).or_default(), format!("{name}@imported"), find).is_some()
    }

    /// Source positions of `address`, innermost inlined call first; empty without debug information.
    pub(crate) fn source(&self, address: Addr) -> Vec<SourceFrame> {
        if !self.cache.borrow().sources.contains_key(&address) && !budget::has_time() {
            return Vec::new();
        }
        self.once(|cache| &mut cache.sources, address, || self.lines_of(address))
    }

    /// Guards and locks among the variables of the functions that `address` is in; empty without debug information.
    pub(crate) fn variables(&self, address: Addr) -> Vec<Variable> {
        if !self.cache.borrow().variables.contains_key(&address) && !budget::has_time() {
            return Vec::new();
        }
        self.once(
            |cache| &mut cache.variables,
            address,
            || {
                let Some((module, parsed)) = self.module(address) else { return Vec::new() };
                let Some(lines) = self.lines(module, parsed) else { return Vec::new() };
                asked_of(module, || lines.variables(address.0.wrapping_sub(module.bias))).unwrap_or_default()
            },
        )
    }

    /// Paths to locks from the variables of the functions that `address` is in, shortest first.
    pub(crate) fn lock_paths(&self, address: Addr) -> Vec<LockPath> {
        self.paths(address, |cache| &mut cache.paths, Lines::lock_paths)
    }

    /// Paths to locks from the data of the unit that `address` is in, shortest first.
    pub(crate) fn data_paths(&self, address: Addr) -> Vec<LockPath> {
        self.paths(address, |cache| &mut cache.data_paths, Lines::data_paths)
    }

    fn paths(
        &self,
        address: Addr,
        kept: impl Fn(&mut SymbolCache) -> &mut BTreeMap<Addr, Vec<LockPath>>,
        ask: impl FnOnce(&Lines, u64) -> Vec<LockPath>,
    ) -> Vec<LockPath> {
        if !kept(&mut self.cache.borrow_mut()).contains_key(&address) && !budget::has_time() {
            return Vec::new();
        }
        self.once(kept, address, || {
            let Some((module, parsed)) = self.module(address) else { return Vec::new() };
            let Some(lines) = self.lines(module, parsed) else { return Vec::new() };
            let paths = asked_of(module, || ask(lines, address.0.wrapping_sub(module.bias)));
            paths.unwrap_or_default().into_iter().map(|path| path.moved(module.bias)).collect()
        })
    }

    /// The answer that was given before, or the one that `find` gives now.
    fn once<K: Ord, V: Clone>(
        &self,
        kept: impl Fn(&mut SymbolCache) -> &mut BTreeMap<K, V>,
        question: K,
        find: impl FnOnce() -> V,
    ) -> V {
        if let Some(known) = kept(&mut self.cache.borrow_mut()).get(&question) {
            return known.clone();
        }
        let found = find();
        kept(&mut self.cache.borrow_mut()).insert(question, found.clone());
        found
    }

    fn module(&self, address: Addr) -> Option<(&'a Module, &'a OfModule)> {
        self.numbered(self.modules.at(address)?)
    }

    fn numbered(&self, module: usize) -> Option<(&'a Module, &'a OfModule)> {
        Some((self.modules.list.get(module)?, self.tables.list.get(module)?))
    }

    fn search(&self, module: usize, name: &str) -> Option<Symbol> {
        let (module, parsed) = self.numbered(module)?;
        // Most requested names are exported: no table is made for them.
        let quickly = if parsed.symbols.get().is_none() { self.tables.shared.exported(module, name) } else { None };
        quickly.or_else(|| self.table(module, parsed).find(name).map(|s| in_process(s, module)))
    }

    fn lines_of(&self, address: Addr) -> Vec<SourceFrame> {
        let Some((module, parsed)) = self.module(address) else { return Vec::new() };
        let Some(lines) = self.lines(module, parsed) else { return Vec::new() };
        asked_of(module, || lines.source(address.0.wrapping_sub(module.bias))).unwrap_or_default()
    }

    fn lines(&self, module: &Module, parsed: &'a OfModule) -> Option<&'a Lines> {
        let lines = parsed.lines.get_or_init(|| {
            log::info!("reading the line tables of {}", module.name);
            let load =
                |file: &FileBytes| self.tables.shared.lines(file, || asked_of(module, || Lines::load(file)).flatten());
            let own = module.file.as_ref().and_then(load);
            own.or_else(|| self.debug_file(module).as_ref().and_then(load))
        });
        lines.as_deref()
    }

    fn covering(&self, address: Addr, ask: impl Fn(&Table, u64) -> Option<Symbol>) -> Option<Symbol> {
        let (module, parsed) = self.module(address)?;
        ask(self.table(module, parsed), address.0.wrapping_sub(module.bias)).map(|s| in_process(s, module))
    }

    fn table(&self, module: &Module, parsed: &'a OfModule) -> &'a Table {
        parsed.symbols.get_or_init(|| {
            log::info!("reading the symbols of {}", module.name);
            self.tables.shared.table(module.file.as_ref(), self.debug_file(module).as_ref())
        })
    }

    /// The separate debug file of a stripped module.
    fn debug_file(&self, module: &Module) -> Option<FileBytes> {
        let bytes = module.file.as_ref()?;
        let file = ElfFile64::<LittleEndian>::parse(&**bytes).ok()?;
        if file.section_by_name(".symtab").is_some() && file.section_by_name(".debug_info").is_some() {
            return None;
        }
        let link = file.gnu_debuglink().ok().flatten().and_then(|(name, _)| std::str::from_utf8(name).ok());
        let found = self.image.files.debug_file(module.build_id.as_deref(), link, &module.path)?;
        // A debug file found by name only may belong to another build.
        let same =
            ElfFile64::<LittleEndian>::parse(&*found).ok()?.build_id().ok().flatten() == module.build_id.as_deref();
        same.then_some(found)
    }
}

/// addr2line's answer about a module. Where it panics, there is no answer, and a gap. It assumes that a second read
/// gives the same bytes, and a mapped file may be rewritten in place meanwhile.
fn asked_of<T>(module: &Module, ask: impl FnOnce() -> T) -> Option<T> {
    let answer = without_panic(ask);
    if answer.is_none() {
        let why = "it is rewritten while it is read, or contradicts itself; look again once it stands still";
        budget::note(Gap::new(format!("source lines of {}", module.name), why));
    }
    answer
}

fn in_process(symbol: Symbol, module: &Module) -> Symbol {
    Symbol { address: symbol.address + module.bias, ..symbol }
}

/// The base symbol of a C function: its name without leading underscores and the version behind `@`, so that `__pthread_mutex_lock`,
/// `___pthread_mutex_lock@@GLIBC_2.2.5` and `pthread_mutex_lock` are the same.
pub(crate) fn base_symbol(name: &str) -> &str {
    name.get(base_range(name)).unwrap_or(name)
}

/// Where in a name its [`base_symbol`] stands.
pub(crate) fn base_range(name: &str) -> std::ops::Range<usize> {
    let whole = name.split('@').next().unwrap_or(name);
    let base = whole.trim_start_matches('_').trim_start_matches("GI_").trim_start_matches('_');
    whole.len() - base.len()..whole.len()
}
