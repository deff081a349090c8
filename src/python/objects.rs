//! Python objects from outside: types, integers, dictionaries, attributes of instances.
//!
//! In: memory, a layout, an object's address. Out: what one question asks for: `attribute(thread, "_name")`. Every
//! table is bounded, and what does not have the shape of the object asked for is `None`. It runs no Python code, so
//! properties, slots and `__getattr__` are not seen.

use super::layout::{Attributes, DictKeys, Layout};
use super::names::text;
use crate::image::{Addr, Memory, MemoryExt};

/// Entries of a dictionary that are read at most: 4 MiB of them.
const MOST_ENTRIES: u64 = 1 << 17;
/// `PyObject.ob_type`.
const TYPE: u64 = 8;
/// `PyTypeObject`: tp_basicsize, tp_flags, tp_dictoffset, the same from 3.6 to 3.15.
const BASIC_SIZE: u64 = 32;
const FLAGS: u64 = 168;
const DICT_OFFSET: u64 = 288;
/// `Py_TPFLAGS_DICT_SUBCLASS`, `Py_TPFLAGS_LONG_SUBCLASS`, `Py_TPFLAGS_UNICODE_SUBCLASS`.
const IS_LONG: u64 = 1 << 24;
const IS_TEXT: u64 = 1 << 28;
const IS_DICT: u64 = 1 << 29;
/// `PyModuleObject.md_dict`.
const MODULE_DICT: u64 = 16;
/// `PyDictObject`: ma_keys, ma_values.
const DICT_KEYS: u64 = 32;
const DICT_VALUES: u64 = 40;

/// Questions to one process's objects.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
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
        Objects { memory, layout }
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
        let size = self.memory.u64(object + 16).ok()?;
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
            let word = u64::from(self.memory.u32(object + 24 + digit * 4).ok()?);
            // The third of three digits of 30 bits may have 4.
            (digit < 2 || word < 16).then_some(value | word << (30 * digit))
        })
    }

    /// Keys and values of a dictionary.
    pub(crate) fn items(&self, dict: Addr) -> Option<Vec<(Addr, Addr)>> {
        if !self.is(dict, IS_DICT) {
            return None;
        }
        let keys = self.memory.pointer(dict + DICT_KEYS).ok()?;
        let values = self.memory.pointer(dict + DICT_VALUES).ok()?;
        let values = match values.is_null() {
            true => Values::Combined,
            false => Values::Split(values + self.layout.dict_values_header),
        };
        self.table(keys, &values)
    }

    /// What a dictionary has under a string.
    pub(crate) fn item(&self, dict: Addr, key: &str) -> Option<Addr> {
        self.find(&self.items(dict)?, key)
    }

    /// An attribute that the instance itself has.
    pub(crate) fn attribute(&self, object: Addr, name: &str) -> Option<Addr> {
        let class = self.memory.pointer(object + TYPE).ok()?;
        if self.layout.attributes == Attributes::DictOffset {
            let offset = self.memory.u64(class + DICT_OFFSET).ok().filter(|o| (1..1 << 16).contains(o))?;
            return self.item(self.memory.pointer(object + offset).ok()?, name);
        }
        let cached = self.memory.pointer(class + self.layout.heap_type_keys).ok();
        let inline = |values: Addr| {
            let keys = cached.filter(|keys| !keys.is_null())?;
            self.find(&self.table(keys, &Values::Split(values + self.layout.dict_values_header))?, name)
        };
        let word = self.memory.pointer(object - 24).ok()?;
        match self.layout.attributes {
            Attributes::DictOffset => None,
            Attributes::ValuesBefore => match self.memory.pointer(object - 32).ok()? {
                values if values.is_null() => self.item(word, name),
                values => inline(values),
            },
            Attributes::TaggedBefore if word.0 & 1 == 1 => inline(word + 1),
            Attributes::InlineAfter if word.is_null() => {
                inline(object + self.memory.u64(class + BASIC_SIZE).ok().filter(|size| *size < 1 << 16)?)
            }
            Attributes::TaggedBefore | Attributes::InlineAfter => self.item(word, name),
        }
    }

    /// A global of a module, given `sys.modules`.
    pub(crate) fn global(&self, modules: Addr, module: &str, name: &str) -> Option<Addr> {
        let module = self.item(modules, module)?;
        self.item(self.memory.pointer(module + MODULE_DICT).ok()?, name)
    }

    fn is(&self, object: Addr, flag: u64) -> bool {
        let class = self.memory.pointer(object + TYPE);
        class.and_then(|class| self.memory.u64(class + FLAGS)).is_ok_and(|flags| flags & flag != 0)
    }

    fn find(&self, items: &[(Addr, Addr)], name: &str) -> Option<Addr> {
        let length = name.chars().count() as u64;
        let equal = |key: Addr| self.memory.u64(key + 16) == Ok(length) && self.text(key).as_deref() == Some(name);
        items.iter().find(|(key, _)| equal(*key)).map(|(_, value)| *value)
    }

    /// The entries of a `PyDictKeysObject`, those that are in use.
    fn table(&self, keys: Addr, values: &Values) -> Option<Vec<(Addr, Addr)>> {
        let memory = self.memory;
        let (entries, first, with_hash) = match self.layout.dict_keys {
            DictKeys::Size => {
                let size = memory.u64(keys + 8).ok().filter(|size| *size <= MOST_ENTRIES * 2)?;
                let index_bytes = if size <= 0xff { 1 } else { 2 << u64::from(size > 0xffff) };
                (memory.u64(keys + 32).ok()?, keys + 40 + size * index_bytes, true)
            }
            DictKeys::Logarithm => {
                let index_bytes = memory.u8(keys + 9).ok().filter(|log| *log < 30)?;
                let kind = memory.u8(keys + 10).ok()?;
                (memory.u64(keys + 24).ok()?, keys + 32 + (1u64 << index_bytes), kind == 0)
            }
        };
        if entries > MOST_ENTRIES {
            return None;
        }
        let (entry, key) = if with_hash { (24, 8) } else { (16, 0) };
        let table = memory.bytes(first, (entries * entry) as usize).ok()?;
        let split = match values {
            Values::Combined => None,
            Values::Split(array) => Some(memory.bytes(*array, (entries * 8) as usize).ok()?),
        };
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes).map(Addr)
        };
        let pairs = (0..entries as usize).filter_map(|position| {
            let at = position * entry as usize + key;
            let value = match &split {
                Some(array) => word(array, position * 8)?,
                None => word(&table, at + 8)?,
            };
            Some((word(&table, at)?, value))
        });
        Some(pairs.filter(|(key, value)| !key.is_null() && !value.is_null()).collect())
    }
}
