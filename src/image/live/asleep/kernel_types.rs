//! Those few of the kernel's types that an eBPF program uses.
//!
//! In: the kernel's types and the program's (BTF, Documentation/bpf/btf.rst). Out: the kernel's types in the same
//! format, reduced to the structures and members that the program names, with all types that their offsets depend on.
//! Also out: the number of a function among the kernel's types. A kernel has 150,000 types. A library for any program
//! took 40 ms to read them all (measured); finding only the needed ones takes 1 ms. Damaged types are left out: the
//! kernel then refuses the program.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::live::DEEPEST_TYPE;

/// Kinds of types (include/uapi/linux/btf.h).
mod kind {
    pub(super) const INTEGER: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCTURE: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUMERATION: u32 = 6;
    pub(super) const TYPE_NAME: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const FUNCTION_TYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const DECLARATION_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUMERATION_64: u32 = 19;
}

/// `struct btf_header`: magic number, version, flags, its length; where types and names lie behind it.
const HEADER: usize = 24;
const MAGIC: [u8; 4] = [0x9f, 0xeb, 1, 0];
/// `struct btf_type`: name, what it is, size or type.
const FIXED: usize = 12;
/// `struct btf_member`: name, type, place in bits.
const MEMBER: usize = 12;

/// The part of the kernel's types that the program needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reduced {
    /// Types and their names, in the format that they came in.
    pub(super) types: Vec<u8>,
    /// The number of the requested function among all of the kernel's types.
    pub(super) function: Option<u32>,
}

/// `kernel`'s types reduced to what the types of `program` name; with the number of `function`. `None` for what is not in this
/// format.
pub(super) fn reduced(kernel: &[u8], program: &[u8], function: &str) -> Option<Reduced> {
    let program = Types::parse(program, |_, _| {})?;
    let named: Vec<Type> = program.all().filter(Type::has_members).collect();
    let names = named.iter().map(|one| program.name(one.name));
    let structures: BTreeSet<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    let members = named.iter().flat_map(Type::members).map(|member| program.name(member.name)).collect();
    let (mut function_number, mut wanted) = (None, Vec::new());
    let kernel = Types::parse(kernel, |number, one| {
        if one.kind == kind::FUNCTION && one.is_called(function.as_bytes()) {
            function_number.get_or_insert(number);
        } else if one.has_members() && structures.iter().any(|name| one.is_called(name)) {
            wanted.push(number);
        }
    })?;
    let mut selection =
        Selection { from: &kernel, members, numbers: BTreeMap::new(), records: Vec::new(), names: vec![0] };
    for number in wanted {
        selection.add(number, 0);
    }
    Some(Reduced { types: selection.bytes(), function: function_number })
}

/// The types of a file.
struct Types<'a> {
    types: &'a [u8],
    names: &'a [u8],
    /// The offsets of the types whose number is a multiple of [`BETWEEN_STARTS`]. The first type is number 1, as 0 is
    /// `void`.
    starts: Vec<usize>,
}

/// The other types are found from the last start before them: lockscope needs few of many.
const BETWEEN_STARTS: usize = 64;

/// One type.
#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Its second word, which has the kind and how many members it has.
    what: u32,
    /// Its size, or the type that it stands for.
    size_or_type: u32,
    /// The data after the header; its shape depends on the kind.
    rest: &'a [u8],
}

/// The part of a type that shows whether the program needs it.
struct Named<'a> {
    kind: u32,
    /// From its name on.
    names: &'a [u8],
}

impl Named<'_> {
    fn is_called(&self, name: &[u8]) -> bool {
        self.names.first() == name.first() && self.names.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn has_members(&self) -> bool {
        has_members(self.kind)
    }
}

/// Whether types of this kind are structures or unions.
fn has_members(kind: u32) -> bool {
    matches!(kind, kind::STRUCTURE | kind::UNION)
}

/// A member of a structure or union.
#[derive(Clone, Copy)]
struct Member {
    name: u32,
    of: u32,
    place: u32,
}

impl<'a> Types<'a> {
    /// The types of a file. `see` gets each with its number.
    fn parse(bytes: &'a [u8], mut see: impl FnMut(u32, Named<'a>)) -> Option<Types<'a>> {
        let header = bytes.get(..HEADER)?;
        if !header.starts_with(&MAGIC) {
            return None;
        }
        let part = |at: usize| {
            let start = (word(header, 4)? as usize).checked_add(word(header, at)? as usize)?;
            bytes.get(start..start.checked_add(word(header, at + 4)? as usize)?)
        };
        let (types, names) = (part(8)?, part(16)?);
        let mut starts = vec![0];
        let mut at = 0;
        for number in 1u32.. {
            if number.is_multiple_of(BETWEEN_STARTS as u32) {
                starts.push(at);
            }
            let Some(one) = Type::parse(types, at) else { break };
            see(number, Named { kind: one.kind, names: names.get(one.name as usize..).unwrap_or_default() });
            at += FIXED + one.rest.len();
        }
        Some(Types { types, names, starts })
    }

    fn all(&self) -> impl Iterator<Item = Type<'a>> {
        self.from(0)
    }

    /// The types from a place on.
    fn from(&self, mut at: usize) -> impl Iterator<Item = Type<'a>> + use<'a> {
        let types = self.types;
        std::iter::from_fn(move || {
            let one = Type::parse(types, at)?;
            at += FIXED + one.rest.len();
            Some(one)
        })
    }

    fn get(&self, number: u32) -> Option<Type<'a>> {
        let number = number as usize;
        let start = *self.starts.get(number / BETWEEN_STARTS)?;
        // The first place is that of number 1.
        let after = if number < BETWEEN_STARTS { number.checked_sub(1)? } else { number % BETWEEN_STARTS };
        self.from(start).nth(after)
    }

    /// Without the zero at its end; empty for what has none.
    fn name(&self, at: u32) -> &'a [u8] {
        let rest = self.names.get(at as usize..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl<'a> Type<'a> {
    fn parse(types: &'a [u8], at: usize) -> Option<Type<'a>> {
        let (name, what, size_or_type) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
        let (kind, count) = (what >> 24 & 0x1f, (what & 0xffff) as usize);
        let length = match kind {
            kind::INTEGER | kind::VARIABLE | kind::DECLARATION_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCTURE | kind::UNION => count * MEMBER,
            kind::ENUMERATION | kind::FUNCTION_TYPE => count * 8,
            kind::SECTION | kind::ENUMERATION_64 => count * 12,
            _ => 0,
        };
        let rest = types.get(at + FIXED..at + FIXED + length)?;
        Some(Type { name, kind, what, size_or_type, rest })
    }

    fn has_members(&self) -> bool {
        has_members(self.kind)
    }

    fn members(&self) -> impl Iterator<Item = Member> + Clone + use<'a> {
        let one = |bytes: &[u8]| Some(Member { name: word(bytes, 0)?, of: word(bytes, 4)?, place: word(bytes, 8)? });
        self.rest.chunks_exact(MEMBER).filter_map(one)
    }
}

/// The types selected up to now.
struct Selection<'a> {
    from: &'a Types<'a>,
    members: BTreeSet<&'a [u8]>,
    /// New numbers by those of the kernel.
    numbers: BTreeMap<u32, u32>,
    records: Vec<Vec<u8>>,
    names: Vec<u8>,
}

impl Selection<'_> {
    /// Take over a type with all that its size and places depend on; gives its new number.
    fn add(&mut self, number: u32, depth: usize) -> u32 {
        if let Some(known) = self.numbers.get(&number) {
            return *known;
        }
        let Some(one) = self.from.get(number).filter(|_| depth < DEEPEST_TYPE) else { return 0 };
        let index = self.records.len();
        self.records.push(Vec::new());
        let new = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.numbers.insert(number, new);
        let mut record = vec![self.name(one.name)];
        match one.kind {
            kind::STRUCTURE | kind::UNION => {
                let kept: Vec<Member> = one.members().filter(|member| self.is_wanted(*member)).collect();
                // The upper half says whether places have widths of bit fields in them.
                record.extend([one.what & 0xffff_0000 | u32::try_from(kept.len()).unwrap_or(0), one.size_or_type]);
                for member in kept {
                    record.extend([self.name(member.name), self.add(member.of, depth + 1), member.place]);
                }
            }
            kind::ARRAY => {
                let part = |at| word(one.rest, at).unwrap_or(0);
                let (element, index) = (self.add(part(0), depth + 1), self.add(part(4), depth + 1));
                record.extend([one.what, one.size_or_type, element, index, part(8)]);
            }
            // The type that it points to does not affect any offset.
            kind::POINTER => record.extend([one.what, 0]),
            kind::TYPE_NAME | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                record.extend([one.what, self.add(one.size_or_type, depth + 1)]);
            }
            // The same without their names and values.
            kind::ENUMERATION | kind::ENUMERATION_64 => record.extend([one.what & 0xffff_0000, one.size_or_type]),
            _ => {
                record.extend([one.what, one.size_or_type]);
                record.extend((0..one.rest.len()).step_by(4).filter_map(|at| word(one.rest, at)));
            }
        }
        if let Some(place) = self.records.get_mut(index) {
            *place = record.into_iter().flat_map(u32::to_le_bytes).collect();
        }
        new
    }

    /// Whether the program names it, or it has no name and may have in it what the program names.
    fn is_wanted(&self, member: Member) -> bool {
        match self.from.name(member.name) {
            [] => self.from.get(member.of).is_some_and(|one| one.has_members()),
            name => self.members.contains(name),
        }
    }

    fn name(&mut self, at: u32) -> u32 {
        let name = self.from.name(at);
        if name.is_empty() {
            return 0;
        }
        let new = u32::try_from(self.names.len()).unwrap_or(0);
        self.names.extend(name);
        self.names.push(0);
        new
    }

    fn bytes(self) -> Vec<u8> {
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(0);
        let types = self.records.concat();
        let header = [HEADER as u32, 0, length(types.len()), length(types.len()), length(self.names.len())];
        let header = header.into_iter().flat_map(u32::to_le_bytes);
        MAGIC.into_iter().chain(header).chain(types).chain(self.names).collect()
    }
}

/// The four bytes at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types in the order of their numbers: name, kind, count of members, size or type, words that follow.
    fn file(types: &[(&'static str, u32, u32, u32, Vec<u32>)], members: &[&str]) -> Vec<u8> {
        // Names of members first, so that tests know where each stands.
        let mut names = vec![0];
        members.iter().for_each(|name| names.extend(name.bytes().chain([0])));
        let mut records = Vec::new();
        for (name, kind, count, size, rest) in types {
            let at = if name.is_empty() { 0 } else { names.len() as u32 };
            names.extend(name.bytes().chain([0]));
            records.extend(
                [at, kind << 24 | count, *size].into_iter().chain(rest.iter().copied()).flat_map(u32::to_le_bytes),
            );
        }
        let header = [24, 0, records.len() as u32, records.len() as u32, names.len() as u32];
        MAGIC.into_iter().chain(header.into_iter().flat_map(u32::to_le_bytes)).chain(records).chain(names).collect()
    }

    /// As much of a type as tests compare: name, kind; names and places of members.
    type Described = (String, u32, Vec<(String, u32)>);

    fn described(bytes: &[u8]) -> Vec<Described> {
        let types = Types::parse(bytes, |_, _| {}).expect("types");
        let text = |at| String::from_utf8_lossy(types.name(at)).into_owned();
        let members = |one: &Type| one.members().map(|member| (text(member.name), member.place)).collect();
        let one = |one: Type| (text(one.name), one.kind, if one.has_members() { members(&one) } else { Vec::new() });
        types.all().map(one).collect()
    }

    /// "state" stands at 1, "inner" at 7, "other" at 13, "deep" at 19.
    const MEMBERS: [&str; 4] = ["state", "inner", "other", "deep"];

    fn program() -> Vec<u8> {
        file(
            &[("int", kind::INTEGER, 0, 4, vec![32]), ("task", kind::STRUCTURE, 2, 8, vec![1, 1, 0, 19, 1, 32])],
            &MEMBERS,
        )
    }

    #[test]
    fn only_what_the_program_names_is_taken_over() {
        let kernel = file(
            &[
                ("int", kind::INTEGER, 0, 4, vec![32]),
                ("unused", kind::STRUCTURE, 1, 4, vec![1, 1, 0]),
                ("", kind::UNION, 2, 4, vec![19, 1, 0, 13, 1, 0]),
                ("state_t", kind::TYPE_NAME, 0, 1, vec![]),
                ("task", kind::STRUCTURE, 3, 12, vec![1, 4, 0, 0, 3, 32, 13, 2, 64]),
                ("", kind::FUNCTION_TYPE, 0, 0, vec![]),
                ("over", kind::FUNCTION, 0, 6, vec![]),
            ],
            &MEMBERS,
        );
        let reduced = reduced(&kernel, &program(), "over").expect("types");
        assert_eq!(reduced.function, Some(7));
        let member = |name: &str, place| (name.to_owned(), place);
        let expected: Vec<Described> = vec![
            ("task".into(), kind::STRUCTURE, vec![member("state", 0), member("", 32)]),
            ("state_t".into(), kind::TYPE_NAME, vec![]),
            ("int".into(), kind::INTEGER, vec![]),
            // It has no name, and a member that the program names.
            (String::new(), kind::UNION, vec![member("deep", 0)]),
        ];
        assert_eq!(described(&reduced.types), expected);
    }

    #[test]
    fn every_number_finds_its_type() {
        let names: Vec<&'static str> = (0..300).map(|number| &*format!("t{number}").leak()).collect();
        let types: Vec<_> = names.iter().map(|name| (*name, kind::INTEGER, 0, 4, vec![32])).collect();
        let file = file(&types, &MEMBERS);
        let types = Types::parse(&file, |_, _| {}).expect("types");
        let name = |number| types.get(number).map(|one| String::from_utf8_lossy(types.name(one.name)).into_owned());
        assert!((1..=300).all(|number| name(number) == Some(format!("t{}", number - 1))));
        assert_eq!((name(0), name(301), name(5000)), (None, None, None));
    }

    #[test]
    fn damaged_types_end_where_they_are_damaged() {
        let kernel = file(&[("task", kind::STRUCTURE, 1, 4, vec![1, 1, 0])], &MEMBERS);
        for length in 0..kernel.len() {
            // Cut, and with lengths that reach beyond the end.
            assert_eq!(reduced(&kernel[..length], &program(), "over"), None, "{length}");
        }
        let mut foreign = kernel.clone();
        foreign[0] = 0;
        assert_eq!(reduced(&foreign, &program(), "over"), None);
        // A structure within itself, and a member of a type that is not there.
        let circle = file(&[("task", kind::STRUCTURE, 2, 4, vec![1, 1, 0, 19, 99, 0])], &MEMBERS);
        let taken = reduced(&circle, &program(), "over").expect("types");
        assert_eq!((described(&taken.types).len(), taken.function), (1, None));
    }
}
