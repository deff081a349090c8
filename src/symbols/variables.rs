//! Local variables at a code address that show locks: guards, and the locks that variables are or contain. From DWARF.
//!
//! In: a unit of debug information and an address in the file's own numbering. Out: [`Variable`]s whose scope covers
//! the address, with the line of their declaration and where in the frame they lie. It reads no memory: the caller with
//! the frame finds the lock behind a guard.

use std::cell::Cell;

use gimli::{
    AttributeValue, DebuggingInformationEntry, DwTag, EndianSlice, Expression, LittleEndian, Operation, UnitRef,
};

use super::demangle::demangle;
use crate::image::{Addr, Register, RegisterSet};
use crate::limits::symbols::{DEEPEST_MEMBERS, MOST_ENTRIES, MOST_MEMBERS, MOST_ORIGINS, MOST_RANGES, MOST_VARIABLES};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;
pub(super) type UnitOffset = gimli::UnitOffset<usize>;

/// A variable of a function that is a guard, or is or has a lock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Variable {
    /// Its name.
    pub name: String,
    /// Its type, without parameters of templates: `lock_guard`, `MutexGuard`.
    pub type_name: String,
    /// Line of its declaration, in the file of the function that it is of.
    pub line: u32,
    /// The function that it is of, which may be inlined into another.
    pub function: Option<String>,
    /// Bytes of it.
    pub size: u64,
    /// Where it lies.
    pub place: VariablePlace,
    /// The locks in it: how far each is from its begin, and the way there as the source says it (``, `.m`).
    pub locks: Vec<(u64, String)>,
}

/// Where in its frame a variable lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum VariablePlace {
    /// So far from the canonical frame address.
    Frame(i64),
    /// So far from the value of a register, by its DWARF number.
    Register(u16, i64),
    /// In the data of its module: an address.
    Data(u64),
}

impl VariablePlace {
    /// Its address, in a frame with this canonical frame address and these registers.
    pub(crate) fn address(self, cfa: Option<Addr>, registers: &RegisterSet) -> Option<Addr> {
        let (base, offset) = match self {
            VariablePlace::Frame(offset) => (cfa?, offset),
            VariablePlace::Register(number, offset) => (Addr(registers.get(Register(number))?), offset),
            VariablePlace::Data(address) => (Addr(address), 0),
        };
        Some(Addr(base.0.wrapping_add_signed(offset)))
    }
}

impl Variable {
    /// Where it lies, in a frame with this canonical frame address and these registers.
    pub(crate) fn address(&self, cfa: Option<Addr>, registers: &RegisterSet) -> Option<Addr> {
        self.place.address(cfa, registers)
    }

    /// Whether it is what holds a lock for as long as it lives: `std::lock_guard`, `MutexGuard`, `QMutexLocker`.
    pub(crate) fn is_guard(&self) -> bool {
        let name = self.type_name.to_ascii_lowercase();
        self.locks.is_empty() && ["guard", "lock", "locker"].iter().any(|end| name.ends_with(end))
    }
}

/// Whether a type is a lock, by its name without parameters of templates.
pub(super) fn is_lock_type(name: &str) -> bool {
    const LOCKS: &[&str] =
        &["mutex", "rwlock", "spinlock", "pthread_mutex_t", "pthread_rwlock_t", "pthread_spinlock_t"];
    let name = name.to_ascii_lowercase();
    LOCKS.iter().any(|end| name.ends_with(end))
}

/// The variables of the functions that cover `address`, those inlined there included.
pub(super) fn variables(unit: UnitRef<'_, Slice<'_>>, address: u64) -> Vec<Variable> {
    Reader::new(unit, address).variables().unwrap_or_default()
}

/// Reads the entries of a unit.
pub(super) struct Reader<'u, 'a> {
    pub(super) unit: UnitRef<'u, Slice<'a>>,
    address: u64,
    /// Ranges that may still be read: many entries may name one long list.
    ranges: Cell<usize>,
}

/// A function while its entries are read: how deep it stands, and what it is called.
struct Function {
    depth: isize,
    name: Option<String>,
}

impl<'u, 'a> Reader<'u, 'a> {
    pub(super) fn new(unit: UnitRef<'u, Slice<'a>>, address: u64) -> Self {
        Reader { unit, address, ranges: Cell::new(MOST_RANGES) }
    }

    fn variables(&self) -> gimli::Result<Vec<Variable>> {
        let mut found = Vec::new();
        self.each_variable(|entry, base, function| {
            found.extend(self.variable(entry, base, function));
            found.len() < MOST_VARIABLES
        })?;
        Ok(found)
    }

    /// Hand over the variables of the functions that cover the address, each with the base of its place and its function, as long
    /// as `take` says so.
    pub(super) fn each_variable(
        &self,
        mut take: impl FnMut(&Entry<'a>, Option<VariablePlace>, Option<String>) -> bool,
    ) -> gimli::Result<()> {
        let mut entries = self.unit.entries();
        let mut functions: Vec<Function> = Vec::new();
        let mut base = None;
        let mut passed: Option<isize> = None;
        for _ in 0..MOST_ENTRIES {
            let Some(entry) = entries.next_dfs()? else { break };
            let depth = entry.depth();
            if passed.is_some_and(|passed| depth > passed) {
                continue;
            }
            passed = None;
            functions.retain(|function| function.depth < depth || function.depth == 0);
            let is_inside = base.is_some();
            if is_inside && functions.is_empty() {
                break;
            }
            match entry.tag() {
                gimli::DW_TAG_subprogram if !is_inside && self.covers(entry)? => {
                    base = Some(self.frame_base(entry));
                    functions.push(Function { depth, name: self.function_name(entry) });
                }
                gimli::DW_TAG_inlined_subroutine if is_inside && self.covers(entry)? => {
                    functions.push(Function { depth, name: self.function_name(entry) });
                }
                gimli::DW_TAG_lexical_block | gimli::DW_TAG_try_block | gimli::DW_TAG_catch_block
                    if is_inside && (self.has_no_ranges(entry) || self.covers(entry)?) => {}
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter if is_inside => {
                    let function = functions.last().and_then(|function| function.name.clone());
                    if !take(entry, base.flatten(), function) {
                        break;
                    }
                    passed = Some(depth);
                }
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_module
                | gimli::DW_TAG_compile_unit
                | gimli::DW_TAG_partial_unit
                    if !is_inside => {}
                // Functions of a class may stand in it with their code.
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type if !is_inside => {}
                _ => passed = Some(depth),
            }
        }
        Ok(())
    }

    fn covers(&self, entry: &Entry<'a>) -> gimli::Result<bool> {
        let mut ranges = self.unit.die_ranges(entry)?;
        while let Some(range) = ranges.next()? {
            let Some(left) = self.ranges.get().checked_sub(1) else { return Ok(false) };
            self.ranges.set(left);
            if (range.begin..range.end).contains(&self.address) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_no_ranges(&self, entry: &Entry<'a>) -> bool {
        [gimli::DW_AT_low_pc, gimli::DW_AT_ranges].iter().all(|name| entry.attr_value(*name).is_none())
    }

    /// The base of the variables' offsets.
    fn frame_base(&self, entry: &Entry<'a>) -> Option<VariablePlace> {
        let AttributeValue::Exprloc(expression) = entry.attr_value(gimli::DW_AT_frame_base)? else { return None };
        match self.only(expression)? {
            Operation::CallFrameCFA => Some(VariablePlace::Frame(0)),
            Operation::Register { register } => Some(VariablePlace::Register(register.0, 0)),
            Operation::RegisterOffset { register, offset, .. } => Some(VariablePlace::Register(register.0, offset)),
            _ => None,
        }
    }

    /// The operation of an expression of one.
    fn only(&self, expression: Expression<Slice<'a>>) -> Option<Operation<Slice<'a>>> {
        let mut operations = expression.operations(self.unit.encoding());
        let first = operations.next().ok()??;
        operations.next().ok()?.is_none().then_some(first)
    }

    fn variable(&self, entry: &Entry<'a>, base: Option<VariablePlace>, function: Option<String>) -> Option<Variable> {
        let kind = self.reference(&self.described(entry, gimli::DW_AT_type)?, gimli::DW_AT_type)?;
        let kind = self.kind(kind)?;
        let place = self.place(entry, base).filter(|place| !matches!(place, VariablePlace::Data(_)))?;
        let mut locks = Vec::new();
        let mut members = MOST_MEMBERS;
        match is_lock_type(&kind.name) {
            true => locks.push((0, String::new())),
            false => self.locks(&kind, 0, "", DEEPEST_MEMBERS, &mut members, &mut locks),
        }
        let line = self.described(entry, gimli::DW_AT_decl_line)?.attr_value(gimli::DW_AT_decl_line)?.udata_value()?;
        let variable = Variable {
            name: self.name(entry)?,
            type_name: kind.name,
            line: u32::try_from(line).ok()?,
            function,
            size: kind.size,
            place,
            locks,
        };
        (variable.is_guard() || !variable.locks.is_empty()).then_some(variable)
    }

    pub(super) fn place(&self, entry: &Entry<'a>, base: Option<VariablePlace>) -> Option<VariablePlace> {
        let value = entry.attr_value(gimli::DW_AT_location)?;
        let expression = match value {
            AttributeValue::Exprloc(expression) => expression,
            _ => {
                let mut list = self.unit.attr_locations(value).ok()??;
                loop {
                    let one = list.next().ok()??;
                    if (one.range.begin..one.range.end).contains(&self.address) {
                        break one.data;
                    }
                }
            }
        };
        match self.only(expression)? {
            Operation::FrameOffset { offset } => match base? {
                VariablePlace::Frame(from) => Some(VariablePlace::Frame(from.checked_add(offset)?)),
                VariablePlace::Register(register, from) => {
                    Some(VariablePlace::Register(register, from.checked_add(offset)?))
                }
                VariablePlace::Data(_) => None,
            },
            Operation::Address { address } => Some(VariablePlace::Data(address)),
            Operation::RegisterOffset { register, offset, .. } => Some(VariablePlace::Register(register.0, offset)),
            _ => None,
        }
    }

    /// The entry that has an attribute: this one, or the one that it is an instance or the definition of.
    pub(super) fn described(&self, entry: &Entry<'a>, name: gimli::DwAt) -> Option<Entry<'a>> {
        let mut entry = entry.clone();
        for _ in 0..MOST_ORIGINS {
            if entry.attr_value(name).is_some() {
                return Some(entry);
            }
            let origin = self.reference(&entry, gimli::DW_AT_abstract_origin);
            let origin = origin.or_else(|| self.reference(&entry, gimli::DW_AT_specification))?;
            entry = self.unit.entry(origin).ok()?;
        }
        None
    }

    pub(super) fn reference(&self, entry: &Entry<'a>, name: gimli::DwAt) -> Option<UnitOffset> {
        match entry.attr_value(name)? {
            AttributeValue::UnitRef(offset) => Some(offset),
            // A reference to another unit: code that was optimised as one program.
            _ => None,
        }
    }

    pub(super) fn name(&self, entry: &Entry<'a>) -> Option<String> {
        self.text(&self.described(entry, gimli::DW_AT_name)?, gimli::DW_AT_name)
    }

    fn function_name(&self, entry: &Entry<'a>) -> Option<String> {
        let linked = self.described(entry, gimli::DW_AT_linkage_name);
        let linked = linked.and_then(|entry| self.text(&entry, gimli::DW_AT_linkage_name));
        linked.map(|name| demangle(&name)).or_else(|| self.name(entry))
    }

    pub(super) fn text(&self, entry: &Entry<'a>, name: gimli::DwAt) -> Option<String> {
        let text = self.unit.attr_string(entry.attr_value(name)?).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    /// A class or structure, or a lock that is something else, behind the names that it has besides.
    fn kind(&self, mut at: UnitOffset) -> Option<Kind> {
        for _ in 0..MOST_ORIGINS {
            let entry = self.unit.entry(at).ok()?;
            let name = self.text(&entry, gimli::DW_AT_name).map(|name| without_parameters(&name).to_owned());
            let is_structure = is_structure(entry.tag());
            let is_other_name =
                matches!(entry.tag(), gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type);
            let is_lock = name.as_deref().is_some_and(is_lock_type);
            if is_structure || is_lock && is_other_name {
                let size = entry.attr_value(gimli::DW_AT_byte_size).and_then(|size| size.udata_value());
                return Some(Kind { at, name: name?, size: size.unwrap_or(0) });
            }
            if !is_other_name {
                return None;
            }
            at = self.reference(&entry, gimli::DW_AT_type)?;
        }
        None
    }

    /// Add the locks among the members of a class.
    fn locks(
        &self,
        kind: &Kind,
        from: u64,
        way: &str,
        deepest: usize,
        members: &mut usize,
        locks: &mut Vec<(u64, String)>,
    ) {
        if deepest == 0 {
            return;
        }
        let Ok(mut entries) = self.unit.entries_at_offset(kind.at) else { return };
        let Ok(Some(first)) = entries.next_dfs() else { return };
        let own = first.depth();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.depth() <= own || *members == 0 {
                return;
            }
            *members -= 1;
            let is_base = entry.tag() == gimli::DW_TAG_inheritance;
            if entry.depth() != own + 1 || entry.tag() != gimli::DW_TAG_member && !is_base {
                continue;
            }
            let at = entry.attr_value(gimli::DW_AT_data_member_location).and_then(|at| at.udata_value());
            let (Some(at), Some(kind)) = (at, self.reference(entry, gimli::DW_AT_type).and_then(|at| self.kind(at)))
            else {
                continue;
            };
            let name = if is_base { None } else { self.text(entry, gimli::DW_AT_name) };
            let way = name.map_or_else(|| way.to_owned(), |name| format!("{way}.{name}"));
            let at = from.saturating_add(at);
            match is_lock_type(&kind.name) {
                true => locks.push((at, way)),
                false => self.locks(&kind, at, &way, deepest - 1, members, locks),
            }
        }
    }
}

/// A type.
struct Kind {
    at: UnitOffset,
    name: String,
    size: u64,
}

fn is_structure(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type)
}

/// `lock_guard<std::mutex>` without `<std::mutex>`.
pub(super) fn without_parameters(name: &str) -> &str {
    name.split('<').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(type_name: &str, locks: Vec<(u64, String)>) -> Variable {
        let (name, place) = ("a".to_owned(), VariablePlace::Frame(-16));
        Variable { name, type_name: type_name.into(), line: 9, function: None, size: 8, place, locks }
    }

    #[test]
    fn guards_and_locks_are_told_by_the_names_of_their_types() {
        for guard in
            ["lock_guard", "unique_lock", "scoped_lock", "MutexGuard", "RwLockReadGuard", "MutexLock", "QMutexLocker"]
        {
            assert!(of(guard, Vec::new()).is_guard(), "{guard}");
        }
        assert!(!of("Account", vec![(0, ".m".into())]).is_guard());
        assert!(!of("SpinLock", vec![(0, String::new())]).is_guard(), "a lock itself");
        for lock in ["mutex", "shared_timed_mutex", "pthread_rwlock_t", "Mutex", "RwLock", "SpinLock"] {
            assert!(is_lock_type(lock), "{lock}");
        }
        assert!(!is_lock_type("unique_lock") && !is_lock_type("Clock"));
        assert_eq!(without_parameters("lock_guard<std::mutex>"), "lock_guard");
    }
}
