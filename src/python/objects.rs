//! Python objects from outside: types, integers, dictionaries, attributes of instances.
//!
//! In: memory, a layout, an object's address. Out: the answer to one question, such as `attribute(thread, "_name")`.
//! Every table is bounded. Memory without the shape of the requested object gives `None`. No Python code runs, so
//! properties and `__getattr__` are not seen, and slots only on request ([`Objects::member`]).

use std::cell::RefCell;
use std::rc::Rc;

use super::layout::{Attributes, DictKeys, Layout};
use super::names::text;
use crate::image::{Addr, AddrMap, Memory, MemoryExt, saturated};
use crate::limits;
use crate::limits::python::{
    LARGEST_INSTANCE, LARGEST_RING, LONGEST_TYPE_NAME, MOST_BASES, MOST_DICT_ENTRIES, MOST_METACLASSES, MOST_WEAK,
};

// `simplequeueobject` behind the head: a list and the position of its first item (up to 3.12), or a ring of items with the
// positions for putting and getting (from 3.13 on) [DWARF of 3.11.7, 3.13.0].
const QUEUE_LIST: u64 = 16;
const RING_GET: u64 = 16;
const RING_ITEMS: u64 = 24;
const RING_CAPACITY: u64 = 32;
const RING_COUNT: u64 = 40;
// Offsets behind the head of an object ([`Layout::head`]), the same from 3.6 to 3.15.
/// `PyTypeObject`: tp_name, tp_basicsize, tp_itemsize, tp_flags, tp_dictoffset.
const NAME: u64 = 8;
const BASIC_SIZE: u64 = 16;
const ITEM_SIZE: u64 = 24;
const FLAGS: u64 = 152;
const DICT_OFFSET: u64 = 272;
/// `PyTypeObject`: tp_dict, tp_mro.
const CLASS_DICT: u64 = 248;
const CLASS_ORDER: u64 = 328;
/// `PyTypeObject`: tp_call, tp_descr_get.
const CLASS_CALL: u64 = 112;
const CLASS_GET: u64 = 256;
/// `PyTypeObject.tp_weaklistoffset`; `PyWeakReference`: wr_object, wr_callback, hash, wr_prev, wr_next.
const WEAK_LIST_OFFSET: u64 = 192;
const WEAK_CALLBACK: u64 = 8;
const WEAK_NEXT: u64 = 32;
/// `PyDictObject`: ma_keys, ma_values.
const DICT_KEYS: u64 = 16;
const DICT_VALUES: u64 = 24;
/// `PyMethodObject`: im_func, im_self; `PyCFunctionObject`: m_ml, m_self, m_module; `PyDescrObject`: d_name.
const METHOD_FUNCTION: u64 = 0;
pub(super) const METHOD_OBJECT: u64 = 8;
const METHOD_MODULE: u64 = 16;
const DESCRIPTOR_NAME: u64 = 8;
/// `PyMemberDescrObject.d_member`, `PyMemberDef.offset`.
const DESCRIPTOR_MEMBER: u64 = 24;
const MEMBER_OFFSET: u64 = 16;
/// `PyListObject.ob_item`.
const LIST_ITEMS: u64 = 8;
/// `PySetObject`: mask, table; entries are a key and a hash.
const SET_MASK: u64 = 16;
const SET_TABLE: u64 = 24;
/// `dequeobject`: leftblock, rightblock, leftindex, rightindex; a block is a link, 64 items and a link.
const DEQUE_BLOCKS: u64 = 8;
const DEQUE_INDICES: u64 = 24;
const DEQUE_BLOCK_ITEMS: u64 = 64;
/// `Py_TPFLAGS_MANAGED_DICT`, `Py_TPFLAGS_LONG_SUBCLASS`, `Py_TPFLAGS_LIST_SUBCLASS`, `Py_TPFLAGS_TUPLE_SUBCLASS`,
/// `Py_TPFLAGS_UNICODE_SUBCLASS`, `Py_TPFLAGS_DICT_SUBCLASS`.
const IS_MANAGED: u64 = 1 << 4;
const IS_LONG: u64 = 1 << 24;
const IS_LIST: u64 = 1 << 25;
const IS_TUPLE: u64 = 1 << 26;
const IS_TEXT: u64 = 1 << 28;
const IS_DICT: u64 = 1 << 29;
const IS_EXCEPTION: u64 = 1 << 30;
/// `Py_TPFLAGS_TYPE_SUBCLASS`, `Py_TPFLAGS_HEAPTYPE`.
const IS_CLASS: u64 = 1 << 31;
const IS_ON_HEAP: u64 = 1 << 9;
/// `PyBaseExceptionObject.args`, behind the dictionary.
const EXCEPTION_ARGUMENTS: u64 = 8;

/// A method that is bound to its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bound {
    /// `__exit__`, `acquire`.
    pub(crate) name: String,
    /// The object.
    pub(crate) object: Addr,
}

/// A function of Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its code.
    pub(crate) code: Addr,
    /// The dictionary of its globals.
    pub(crate) globals: Addr,
    /// The name of the module that it says it is from, as text.
    pub(crate) module: Option<Addr>,
    /// A tuple of the defaults of its last parameters, if it has any.
    pub(crate) defaults: Option<Addr>,
    /// Tuples and dictionaries: its defaults, its closure, its attributes.
    pub(crate) brings: Vec<Addr>,
}

/// Questions to one process's objects.
#[derive(Debug)]
pub(crate) struct Objects<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    /// The names of classes: most questions begin with one.
    names: RefCell<AddrMap<Option<Rc<str>>>>,
}

/// Where the values of a table of keys stand.
enum Values {
    /// In the entries themselves.
    Combined,
    /// In an array in the order of the entries.
    Split(Addr),
}

impl<'a> Objects<'a> {
    pub(crate) fn new(memory: &'a dyn Memory, layout: &'a Layout) -> Self {
        Objects { memory, layout, names: RefCell::default() }
    }

    /// The memory that they are read from.
    pub(super) fn memory(&self) -> &'a dyn Memory {
        self.memory
    }

    /// Size of the head of an object.
    pub(crate) fn head(&self) -> u64 {
        self.layout.head
    }

    /// The text of a `str`.
    pub(crate) fn text(&self, object: Addr) -> Option<String> {
        self.is(object, IS_TEXT).then(|| text(self.memory, self.layout, object)).flatten()
    }

    /// The value of an `int` from 0 to 2^64 - 1.
    pub(crate) fn unsigned(&self, object: Addr) -> Option<u64> {
        if !self.is(object, IS_LONG) {
            return None;
        }
        // Up to 3.11 a signed number of digits; from 3.12 the number of digits above three bits, 1 zero, 2 negative.
        let size = self.field(object, 0)?.0;
        let digits = match self.layout.tagged_integers {
            true if size & 3 == 1 => 0,
            true if size & 3 == 2 => return None,
            true => size >> 3,
            false => size,
        };
        if digits > 3 {
            return None;
        }
        (0..digits).try_fold(0u64, |value, digit| {
            let word = u64::from(self.memory.u32(object + self.layout.head + 8 + digit * 4).ok()?);
            // The third of three digits of 30 bits may have 4.
            (digit < 2 || word < 16).then_some(value | word << (30 * digit))
        })
    }

    /// Keys and values of a dictionary.
    pub(crate) fn items(&self, dict: Addr) -> Option<Vec<(Addr, Addr)>> {
        if !self.is(dict, IS_DICT) {
            return None;
        }
        let keys = self.field(dict, DICT_KEYS)?;
        let values = self.field(dict, DICT_VALUES)?;
        let values = match values.is_null() {
            true => Values::Combined,
            false => Values::Split(values + self.layout.dict_values_header),
        };
        self.table(keys, &values)
    }

    /// The same of a dictionary with at most `most` entries.
    pub(crate) fn items_up_to(&self, dict: Addr, most: u64) -> Option<Vec<(Addr, Addr)>> {
        // `ma_used` is the first word behind the head.
        let is_small = self.is(dict, IS_DICT) && self.field(dict, 0).is_some_and(|used| used.0 <= most);
        is_small.then(|| self.items(dict)).flatten()
    }

    /// The value of a dictionary under a string.
    pub(crate) fn item(&self, dict: Addr, key: &str) -> Option<Addr> {
        self.named(&self.items(dict)?, key)
    }

    /// Class and first argument, where that is a text, of an exception.
    pub(crate) fn exception(&self, object: Addr) -> Option<(String, Option<String>)> {
        if !self.is(object, IS_EXCEPTION) {
            return None;
        }
        let arguments = self.field(object, EXCEPTION_ARGUMENTS).and_then(|arguments| self.sequence(arguments, 1));
        let first = arguments.and_then(|arguments| self.text(*arguments.first()?));
        Some((self.class_name(object)?.to_string(), first))
    }

    /// An attribute that the instance itself has.
    pub(crate) fn attribute(&self, object: Addr, name: &str) -> Option<Addr> {
        self.named(&self.attributes(object)?, name)
    }

    /// An attribute of the instance, be it in its dictionary or in a slot of its class.
    pub(crate) fn member(&self, object: Addr, name: &str) -> Option<Addr> {
        self.attribute(object, name).or_else(|| self.slot(object, name))
    }

    /// The value in the slot (`__slots__`) of this name.
    fn slot(&self, object: Addr, name: &str) -> Option<Addr> {
        let class = self.class(object)?;
        let (_, order) = self.class_parts(class)?;
        let descriptor = order.into_iter().find_map(|class| {
            let (dict, _) = self.class_parts(class)?;
            self.item(dict?, name)
        })?;
        let is_slot = self.class_name(descriptor).as_deref() == Some("member_descriptor");
        // `PyMemberDef`: name, type, offset.
        let definition = is_slot.then(|| self.field(descriptor, DESCRIPTOR_MEMBER)).flatten()?;
        let offset = self.memory.u64(definition + MEMBER_OFFSET).ok().filter(|offset| *offset < LARGEST_INSTANCE)?;
        self.memory.pointer(object + offset).ok().filter(|value| !value.is_null())
    }

    /// The value of a `float`.
    pub(crate) fn float(&self, object: Addr) -> Option<f64> {
        let is_float = self.class_name(object).as_deref() == Some("float");
        is_float.then(|| self.field(object, 0)).flatten().map(|bits| f64::from_bits(bits.0))
    }

    /// Whether an object is `None`.
    pub(crate) fn is_none(&self, object: Addr) -> bool {
        self.class_name(object).as_deref() == Some("NoneType")
            && self.class(object).is_some_and(|class| !self.is_heap_class(class))
    }

    /// Names and values of the attributes that the instance itself has.
    pub(crate) fn attributes(&self, object: Addr) -> Option<Vec<(Addr, Addr)>> {
        let class = self.class(object)?;
        let managed = self.field(class, FLAGS)?.0 & IS_MANAGED != 0;
        if self.layout.attributes == Attributes::DictOffset || !managed {
            let dict = self.memory.pointer(self.dict_place(object, class)?).ok()?;
            return if dict.is_null() { Some(Vec::new()) } else { self.items(dict) };
        }
        let cached = self.memory.pointer(class + self.layout.heap_type_keys).ok();
        let inline = |values: Addr| {
            let keys = cached.filter(|keys| !keys.is_null())?;
            self.table(keys, &Values::Split(values + self.layout.dict_values_header))
        };
        // Before the object stand the collector's two words, which a build without a GIL does not have.
        let before = if self.layout.head == 16 { 24 } else { 8 };
        let word = self.memory.pointer(object - before).ok()?;
        match self.layout.attributes {
            Attributes::DictOffset => None,
            Attributes::ValuesBefore => match self.memory.pointer(object - 32).ok()? {
                values if values.is_null() => self.items(word),
                values => inline(values),
            },
            Attributes::TaggedBefore if word.0 & 1 == 1 => inline(word + 1),
            Attributes::InlineAfter if word.is_null() => {
                inline(object + self.field(class, BASIC_SIZE).filter(|size| size.0 < 1 << 16)?.0)
            }
            Attributes::TaggedBefore | Attributes::InlineAfter => self.items(word),
        }
    }

    /// Where an instance has the pointer to its dictionary: a negative offset counts from the end of its items.
    fn dict_place(&self, object: Addr, class: Addr) -> Option<Addr> {
        let offset = self.field(class, DICT_OFFSET)?.0.cast_signed();
        if offset == 0 || offset.unsigned_abs() >= 1 << 16 {
            return None;
        }
        if offset > 0 {
            return Some(object + offset.unsigned_abs());
        }
        let size = self.size_with_items(object, class)?.checked_next_multiple_of(8)?;
        Some(object + size.checked_sub(offset.unsigned_abs())?)
    }

    /// Bytes of an instance, its items included.
    fn size_with_items(&self, object: Addr, class: Addr) -> Option<u64> {
        let (basic, item) = (self.field(class, BASIC_SIZE)?.0, self.field(class, ITEM_SIZE)?.0);
        if item == 0 {
            return Some(basic);
        }
        let count = self.field(object, 0)?.0.cast_signed();
        // From 3.12 on an integer counts its digits above three bits.
        let is_tagged = self.layout.tagged_integers && self.is(object, IS_LONG);
        let count = if is_tagged { count.unsigned_abs() >> 3 } else { count.unsigned_abs() };
        basic.checked_add(count.checked_mul(item)?)
    }

    /// The type of an object.
    pub(crate) fn class(&self, object: Addr) -> Option<Addr> {
        let aligned = !object.is_null() && object.0 & 7 == 0;
        aligned.then(|| self.memory.pointer(object + self.layout.head - 8).ok()).flatten()
    }

    /// `tp_name` of its type: "_thread.lock", "Event".
    pub(crate) fn class_name(&self, object: Addr) -> Option<Rc<str>> {
        self.name_of_class(self.class(object)?)
    }

    /// `tp_name` of a class. Memory that is no text was no class when it was read.
    pub(crate) fn name_of_class(&self, class: Addr) -> Option<Rc<str>> {
        if let Some(known) = self.names.borrow().get(&class) {
            return known.clone();
        }
        let is_text = |name: &String| !name.is_empty() && !name.contains(|c: char| c.is_control() || c == '\u{fffd}');
        let name = self.field(class, NAME).and_then(|name| self.memory.c_string(name, LONGEST_TYPE_NAME).ok());
        let name: Option<Rc<str>> = name.filter(is_text).map(Rc::from);
        self.names.borrow_mut().insert(class, name.clone());
        name
    }

    /// `tp_basicsize` of its type.
    pub(crate) fn basic_size(&self, object: Addr) -> Option<u64> {
        Some(self.field(self.class(object)?, BASIC_SIZE)?.0)
    }

    /// Four words at an address, read at once.
    pub(crate) fn four_words(&self, address: Addr) -> Option<[Addr; 4]> {
        let mut bytes = [0; 32];
        let read = self.memory.read(address, &mut bytes).ok()?;
        let word = |at: usize| Some(Addr(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)));
        (read == bytes.len()).then_some([word(0)?, word(8)?, word(16)?, word(24)?])
    }

    /// The pointer at an address.
    pub(crate) fn pointer(&self, address: Addr) -> Option<Addr> {
        self.memory.pointer(address).ok()
    }

    /// The word at an offset behind the head of an object.
    pub(crate) fn field(&self, object: Addr, offset: u64) -> Option<Addr> {
        self.memory.pointer(object + self.layout.head + offset).ok()
    }

    /// The C `int` at an offset behind the head of an object.
    pub(crate) fn number_at(&self, object: Addr, offset: u64) -> Option<i32> {
        self.memory.i32(object + self.layout.head + offset).ok()
    }

    /// The name and object of a bound method, be it of Python or of C.
    pub(crate) fn bound(&self, object: Addr) -> Option<Bound> {
        let name = match &*self.class_name(object)? {
            "method" => self.function_name(self.field(object, METHOD_FUNCTION)?)?,
            "builtin_function_or_method" | "builtin_method" => {
                let definition = self.field(object, METHOD_FUNCTION)?;
                self.memory.c_string(self.memory.pointer(definition).ok()?, LONGEST_TYPE_NAME).ok()?
            }
            _ => return None,
        };
        Some(Bound { name, object: self.field(object, METHOD_OBJECT)? })
    }

    /// The name of a function of Python, or of a method of a type of C.
    pub(crate) fn function_name(&self, object: Addr) -> Option<String> {
        match &*self.class_name(object)? {
            "function" => self.text(self.memory.pointer(object + self.layout.values.function_name).ok()?),
            "method_descriptor" | "wrapper_descriptor" => self.text(self.field(object, DESCRIPTOR_NAME)?),
            // Functions that Cython compiled begin as those of C do.
            class if class.ends_with("cython_function_or_method") => {
                let definition = self.field(object, METHOD_FUNCTION)?;
                self.memory.c_string(self.memory.pointer(definition).ok()?, LONGEST_TYPE_NAME).ok()
            }
            _ => None,
        }
    }

    /// Code, globals, and what a function of Python brings along: defaults, closure, attributes.
    pub(crate) fn function(&self, object: Addr) -> Option<Function> {
        // `PyFunctionObject` behind the head, by where it has its name: 64 up to 3.9, 32 from 3.10 on [DWARF, live].
        let offsets: [u64; 7] = match self.layout.values.function_name - self.layout.head {
            48 => [0, 8, 72, 16, 24, 32, 56],
            _ => [32, 0, 88, 40, 48, 56, 72],
        };
        let [code, globals, module, brings @ ..] = offsets.map(|offset| self.field(object, offset));
        let defaults = brings.first().copied().flatten().filter(|one| self.is(*one, IS_TUPLE));
        let brings = brings.into_iter().flatten().filter(|one| !one.is_null()).collect();
        Some(Function { code: code?, globals: globals?, module: module.filter(|one| !one.is_null()), defaults, brings })
    }

    /// The dictionary and the classes, itself first, of a class.
    pub(crate) fn class_parts(&self, class: Addr) -> Option<(Option<Addr>, Vec<Addr>)> {
        let dict = self.field(class, CLASS_DICT).filter(|dict| !dict.is_null());
        let order = self.field(class, CLASS_ORDER).filter(|order| self.is(*order, IS_TUPLE));
        let order = order.and_then(|order| self.sequence(order, MOST_BASES));
        Some((dict, order.unwrap_or_default()))
    }

    /// Whether an object can be called, or makes something of itself where it is looked up: as what a class has under the name of
    /// a special method.
    pub(crate) fn is_callable(&self, object: Addr) -> bool {
        let class = self.class(object);
        let has =
            |slot: u64| class.and_then(|class| self.field(class, slot)).is_none_or(|function| !function.is_null());
        has(CLASS_CALL) || has(CLASS_GET)
    }

    /// Whether an object is a class.
    pub(crate) fn is_class(&self, object: Addr) -> bool {
        self.is(object, IS_CLASS)
    }

    /// Whether a class was made by code of Python, or at least on the heap.
    pub(crate) fn is_heap_class(&self, class: Addr) -> bool {
        self.field(class, FLAGS).is_some_and(|flags| flags.0 & IS_ON_HEAP != 0)
    }

    /// Whether instances of a class have a dictionary that stands before them.
    pub(crate) fn has_managed_dict(&self, class: Addr) -> bool {
        self.field(class, FLAGS).is_some_and(|flags| flags.0 & IS_MANAGED != 0)
    }

    /// Whether instances of a class are exceptions.
    pub(crate) fn makes_exceptions(&self, class: Addr) -> bool {
        self.is_class(class) && self.field(class, FLAGS).is_some_and(|flags| flags.0 & IS_EXCEPTION != 0)
    }

    /// The words of an instance that are objects, by their shape: for types of C, whose layout is not known.
    pub(crate) fn words_of(&self, object: Addr) -> Vec<Addr> {
        let size = self.class(object).and_then(|class| self.size_with_items(object, class));
        let size = size.unwrap_or_default().min(LARGEST_INSTANCE);
        self.objects_in(object + self.layout.head, size.saturating_sub(self.layout.head) / 8)
    }

    /// The objects that words of memory point to.
    pub(crate) fn objects_in(&self, first: Addr, count: u64) -> Vec<Addr> {
        let words = self.words(first, count).unwrap_or_default();
        let is_object =
            |word: &Addr| self.class(*word).is_some_and(|class| self.is_class(class) && self.ends_in_type(class));
        words.into_iter().filter(|word| is_object(word) && self.is_alive(*word)).collect()
    }

    /// Whether the classes of a class, one the class of the other, end in one that is its own: `type`. The words of a frame, too, look
    /// like an object at first: code and the frame before it, where an object has its counter and its class.
    fn ends_in_type(&self, class: Addr) -> bool {
        let classes = std::iter::successors(Some(class), |class| self.class(*class));
        let mut pairs = classes.clone().zip(classes.skip(1)).take(MOST_METACLASSES);
        pairs.any(|(class, own)| class == own)
    }

    /// Whether an object is referenced: freed memory begins with a pointer to the next free block, or with zero.
    pub(crate) fn is_alive(&self, object: Addr) -> bool {
        // A build without a GIL counts elsewhere; from 3.14 on flags stand above the counter.
        if self.layout.free_threaded.is_some() {
            return true;
        }
        let Some(count) = self.pointer(object) else { return false };
        count.0 & 0xffff_ffff != 0 && (self.layout.values.exit_and_object || count.0 < 1 << 40)
    }

    /// The module that a function of C says it is of; `None` where it is bound to an object instead.
    pub(crate) fn module_of_c_function(&self, function: Addr) -> Option<String> {
        let own = self.field(function, METHOD_OBJECT).filter(|own| !own.is_null());
        if own.is_some_and(|own| self.class_name(own).as_deref() != Some("module")) {
            return None;
        }
        let module = self.field(function, METHOD_MODULE).filter(|module| !module.is_null());
        Some(module.and_then(|module| self.text(module)).unwrap_or_default())
    }

    /// The function that a weak reference calls when its referent dies.
    pub(crate) fn callback_of_weak_reference(&self, reference: Addr) -> Option<Addr> {
        self.field(reference, WEAK_CALLBACK).filter(|callback| !callback.is_null())
    }

    /// Whether an instance has words that point to something that is no object: what only the code of its library knows.
    pub(crate) fn has_hidden_words(&self, object: Addr) -> bool {
        let size = self.basic_size(object).unwrap_or_default().min(LARGEST_INSTANCE);
        let words =
            self.words(object + self.layout.head, size.saturating_sub(self.layout.head) / 8).unwrap_or_default();
        let is_object = |word: Addr| self.class(word).is_some_and(|class| self.is_class(class));
        words.into_iter().any(|word| word.0 > 0xffff && self.memory.u8(word).is_ok() && !is_object(word))
    }

    /// The functions that weak references to an object call when it dies.
    pub(crate) fn callbacks_at_death(&self, object: Addr) -> Vec<Addr> {
        let class = self.class(object);
        let offset =
            class.and_then(|class| self.field(class, WEAK_LIST_OFFSET)).map_or(0, |offset| offset.0.cast_signed());
        let at = match offset {
            0 => return Vec::new(),
            // From 3.12 on it may stand before the object.
            offset if offset.unsigned_abs() > LARGEST_INSTANCE => return Vec::new(),
            offset => Addr(object.0.wrapping_add_signed(offset)),
        };
        let first = self.pointer(at).filter(|first| !first.is_null());
        let list =
            std::iter::successors(first, |reference| self.field(*reference, WEAK_NEXT).filter(|next| !next.is_null()));
        list.take(MOST_WEAK)
            .filter_map(|reference| self.field(reference, WEAK_CALLBACK))
            .filter(|callback| !callback.is_null())
            .collect()
    }

    /// The content of a closure's cell; another object is itself.
    pub(crate) fn out_of_cell(&self, object: Addr) -> Addr {
        if self.class(object).is_some_and(|class| self.is_cells(class)) { self.in_cell(object) } else { object }
    }

    /// Whether a class is that of a closure's cells.
    pub(super) fn is_cells(&self, class: Addr) -> bool {
        self.name_of_class(class).as_deref() == Some("cell")
    }

    /// The content of a cell; the cell itself if it is empty.
    pub(super) fn in_cell(&self, cell: Addr) -> Addr {
        self.field(cell, 0).filter(|inner| !inner.is_null()).unwrap_or(cell)
    }

    /// The items of a tuple, list, set or deque, at most `most` of them.
    pub(crate) fn sequence(&self, object: Addr, most: u64) -> Option<Vec<Addr>> {
        let flags = self.field(self.class(object)?, FLAGS)?.0;
        if flags & (IS_TUPLE | IS_LIST) != 0 {
            let length = self.field(object, 0)?.0.min(most);
            let first = match flags & IS_LIST != 0 {
                true => self.field(object, LIST_ITEMS)?,
                false => object + self.layout.tuple_items,
            };
            return self.words(first, length);
        }
        match &*self.kind_of_container(object)? {
            "set" | "frozenset" => {
                let slots = self.field(object, SET_MASK)?.0.checked_add(1)?.min(MOST_DICT_ENTRIES);
                let table = self.words(self.field(object, SET_TABLE)?, slots * 2)?;
                // A removed entry is a dummy, whose hash is -1.
                let used = table.as_chunks().0.iter().filter(|[key, hash]| !key.is_null() && hash.0 != u64::MAX);
                Some(used.map(|[key, _]| *key).take(saturated(most)).collect())
            }
            "collections.deque" => self.deque(object, most),
            "_queue.SimpleQueue" => self.simple_queue(object, most),
            _ => None,
        }
    }

    /// The items of a `SimpleQueue`.
    fn simple_queue(&self, queue: Addr, most: u64) -> Option<Vec<Addr>> {
        let list = self.field(queue, QUEUE_LIST).filter(|list| self.is(*list, IS_LIST));
        if let Some(list) = list {
            return self.sequence(list, most);
        }
        let field = |offset| self.field(queue, offset).map(|word| word.0);
        let (get, capacity, count) = (field(RING_GET)?, field(RING_CAPACITY)?, field(RING_COUNT)?);
        let items = self.field(queue, RING_ITEMS)?;
        let fits = capacity.is_power_of_two() && capacity <= LARGEST_RING && count <= capacity && get < capacity;
        let at = |position: u64| self.pointer(items + (get + position) % capacity * 8);
        fits.then(|| (0..count.min(most)).filter_map(at).collect())
    }

    /// The type of C that lays out an object: of a subclass, the class that it inherits the layout from.
    fn kind_of_container(&self, object: Addr) -> Option<Rc<str>> {
        const KINDS: [&str; 4] = ["set", "frozenset", "collections.deque", "_queue.SimpleQueue"];
        let name = self.class_name(object)?;
        let class = self.class(object)?;
        if KINDS.contains(&&*name) || !self.is_heap_class(class) {
            return Some(name);
        }
        let (_, order) = self.class_parts(class)?;
        order.into_iter().filter_map(|base| self.name_of_class(base)).find(|base| KINDS.contains(&&**base))
    }

    /// The same. If there are more items, the limit is reported for `what`.
    pub(crate) fn bounded_sequence(&self, object: Addr, most: u64, what: impl FnOnce() -> String) -> Option<Vec<Addr>> {
        let mut items = self.sequence(object, most.saturating_add(1))?;
        if items.len() as u64 > most {
            items.truncate(saturated(most));
            limits::met(most, what(), "items of one container");
        }
        Some(items)
    }

    fn deque(&self, object: Addr, most: u64) -> Option<Vec<Addr>> {
        let mut left = self.field(object, 0)?.0.min(most);
        let mut block = self.field(object, DEQUE_BLOCKS)?;
        let mut index = self.field(object, DEQUE_INDICES)?.0;
        let mut items = Vec::new();
        while left > 0 && !block.is_null() {
            let here = DEQUE_BLOCK_ITEMS.checked_sub(index)?.min(left);
            items.extend(self.words(block + 8 + index * 8, here)?);
            left -= here;
            index = 0;
            block = self.memory.pointer(block + 8 + DEQUE_BLOCK_ITEMS * 8).ok()?;
        }
        Some(items)
    }

    fn words(&self, first: Addr, count: u64) -> Option<Vec<Addr>> {
        let bytes = self.memory.bytes(first, usize::try_from(count.checked_mul(8)?).ok()?).ok()?;
        let word = |chunk: &[u8]| chunk.try_into().map(u64::from_le_bytes).map_or(Addr(0), Addr);
        Some(bytes.chunks_exact(8).map(word).collect())
    }

    /// A global of a module, given `sys.modules`.
    pub(crate) fn global(&self, modules: Addr, module: &str, name: &str) -> Option<Addr> {
        let module = self.item(modules, module)?;
        // PyModuleObject.md_dict is the first word behind the head.
        self.item(self.field(module, 0)?, name)
    }

    /// The file of a code object.
    pub(super) fn code_file(&self, code: Addr) -> Option<String> {
        text(self.memory, self.layout, self.pointer(code + self.layout.code_file)?)
    }

    fn is(&self, object: Addr, flag: u64) -> bool {
        self.class(object).and_then(|class| self.field(class, FLAGS)).is_some_and(|flags| flags.0 & flag != 0)
    }

    /// The value under a string, of the items of a dictionary.
    pub(super) fn named(&self, items: &[(Addr, Addr)], name: &str) -> Option<Addr> {
        let length = name.chars().count() as u64;
        let equal = |key: Addr| self.field(key, 0) == Some(Addr(length)) && self.text(key).as_deref() == Some(name);
        items.iter().find(|(key, _)| equal(*key)).map(|(_, value)| *value)
    }

    /// The entries of a `PyDictKeysObject`, those that are in use.
    fn table(&self, keys: Addr, values: &Values) -> Option<Vec<(Addr, Addr)>> {
        let memory = self.memory;
        let (entries, first, with_hash) = match self.layout.dict_keys {
            DictKeys::Size => {
                let size = memory.u64(keys + 8).ok().filter(|size| *size <= MOST_DICT_ENTRIES * 2)?;
                let index_bytes = if size <= 0xff { 1 } else { 2 << u64::from(size > 0xffff) };
                (memory.u64(keys + 32).ok()?, keys + 40 + size * index_bytes, true)
            }
            DictKeys::Logarithm => {
                let index_bytes = memory.u8(keys + 9).ok().filter(|log| *log < 30)?;
                let kind = memory.u8(keys + 10).ok()?;
                (memory.u64(keys + 24).ok()?, keys + 32 + (1u64 << index_bytes), kind == 0)
            }
        };
        if entries > MOST_DICT_ENTRIES {
            limits::met(MOST_DICT_ENTRIES, "large dictionaries of Python", "entries of one");
            return None;
        }
        let (entry, key) = if with_hash { (24, 8) } else { (16, 0) };
        let table = memory.bytes(first, saturated(entries * entry)).ok()?;
        let split = match values {
            Values::Combined => None,
            Values::Split(array) => Some(memory.bytes(*array, saturated(entries * 8)).ok()?),
        };
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes).map(Addr)
        };
        let pairs = (0..saturated(entries)).filter_map(|position| {
            let at = position * saturated(entry) + key;
            let value = match &split {
                Some(array) => word(array, position * 8)?,
                None => word(&table, at + 8)?,
            };
            Some((word(&table, at)?, value))
        });
        Some(pairs.filter(|(key, value)| !key.is_null() && !value.is_null()).collect())
    }
}
