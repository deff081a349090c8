//! Paths from the variables of a function, and from the data of its unit, to locks: through members, pointers, arrays and
//! containers. From DWARF.
//!
//! In: a unit of debug information and an address in the file's own numbering. Out: [`LockPath`]s, those with the fewest
//! pointers first. It reads no memory: the caller follows the steps. Paths are names for people, and no verdict depends on
//! one. Members of the standard library are steps without a name: `service.queue.guard` has none of the five members in
//! which `unique_ptr` keeps its pointer.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::Range;

use gimli::{AttributeValue, UnitRef};

use super::variables::{Entry, Reader, Slice, UnitOffset, VariablePlace, is_lock_type, without_parameters};
use crate::limits::symbols::{DEEPEST_PATH, MOST_ENTRIES, MOST_PATHS, MOST_VARIABLES, PATH_ENTRIES, PATH_POINTERS};

/// Top namespaces of the standard libraries of C++ and Rust, and of the hash table that Rust's has.
const LIBRARIES: &[&str] = &["std", "__gnu_cxx", "core", "alloc", "hashbrown"];
/// Stands in a name for the number of an element.
pub(crate) const ELEMENT: &str = "[]";
/// Stands in a name for an element of a container whose elements have keys.
const KEYED: &str = "[...]";
/// Stands for the class of a closure.
const CLOSURE: &str = "{closure}";

/// A way from a variable to a lock.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct LockPath {
    /// Where the variable lies.
    pub place: VariablePlace,
    /// The function that it is of; none of data.
    pub function: Option<String>,
    /// The way from the variable's address to that of the lock.
    pub steps: Vec<Step>,
    /// The way as the source says it: `bank.accounts[].guard`, with [`ELEMENT`] for each number.
    pub name: String,
    /// The last member that has a name, with its class: `Account::guard`.
    pub member: Option<String>,
}

/// A step of a way through memory.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Step {
    /// This many bytes further.
    Bytes(u64),
    /// To the target of the pointer here.
    Pointer,
    /// To each of the elements of the array here.
    Elements { stride: u64, count: u64 },
    /// To each of the elements between the pointers `first` and `end` bytes further.
    Between { first: u64, end: u64, stride: u64 },
    /// To each element of an array: its address is `pointer` bytes further, the number of elements `length` bytes further.
    Counted { pointer: u64, length: u64, stride: u64 },
    /// To each node of a list or tree: the pointer here leads to the first, those at `links` in each node to the others.
    Nodes { links: Vec<u64> },
}

impl LockPath {
    /// The same path in a process that maps the module at `bias`.
    pub(super) fn moved(self, bias: u64) -> LockPath {
        let place = match self.place {
            VariablePlace::Data(address) => VariablePlace::Data(address.wrapping_add(bias)),
            other => other,
        };
        LockPath { place, ..self }
    }

    /// Its name with these numbers of elements.
    pub(crate) fn named(&self, numbers: &[u64]) -> String {
        let mut numbers = numbers.iter();
        let mut parts = self.name.split(ELEMENT);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |name, part| match numbers.next() {
            Some(number) => format!("{name}[{number}]{part}"),
            None => format!("{name}{ELEMENT}{part}"),
        })
    }

    fn pointers(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, Step::Bytes(_) | Step::Elements { .. })).count()
    }
}

/// The paths from variables of the functions that cover `address`, those inlined there included.
pub(super) fn lock_paths(unit: UnitRef<'_, Slice<'_>>, address: u64) -> Vec<LockPath> {
    let reader = Reader::new(unit, address);
    let mut search = Search::of(&reader);
    let mut variables = MOST_VARIABLES;
    // An error ends the search; the paths found before it stay.
    let _ = reader.each_variable(|entry, base, function| {
        search.variable(entry, base, function);
        variables -= 1;
        variables > 0
    });
    search.sorted()
}

/// The paths from data of the unit of `address`.
pub(super) fn data_paths(unit: UnitRef<'_, Slice<'_>>, address: u64) -> Vec<LockPath> {
    let reader = Reader::new(unit, address);
    let mut search = Search::of(&reader);
    let _ = search.data();
    search.sorted()
}

/// Whether a function is one of the standard libraries: its variables have no names of the program.
pub(crate) fn is_of_library(function: &str) -> bool {
    let name = function.trim_start_matches('<');
    let begins = |name: &str| {
        LIBRARIES.iter().any(|library| name.strip_prefix(library).is_some_and(|rest| rest.starts_with("::")))
    };
    // Templates stand behind the type that they return: `void std::__invoke_impl<..>`.
    begins(name) || name.split_once(' ').is_some_and(|(_, name)| begins(name))
}

/// A named part of a path.
#[derive(Debug, Clone)]
struct Piece {
    /// The class that it is a member of.
    of: UnitOffset,
    class: String,
    name: String,
}

struct Search<'s, 'u, 'a> {
    reader: &'s Reader<'u, 'a>,
    /// Entries that may still be read.
    left: usize,
    /// The entries of the namespaces of standard libraries.
    libraries: OnceCell<Vec<Range<usize>>>,
    /// Types that lead to no lock, with the number of pointers that were left.
    barren: HashSet<(UnitOffset, usize)>,
    /// The class of a container's nodes, by the class of the pointers to them; none inside of a node.
    nodes: Vec<(UnitOffset, Option<UnitOffset>)>,
    steps: Vec<Step>,
    pieces: Vec<Piece>,
    found: Vec<LockPath>,
}

/// A type behind its other names.
struct Kind<'a> {
    at: UnitOffset,
    entry: Entry<'a>,
    name: String,
    /// One of its names is that of a lock.
    is_lock: bool,
    size: u64,
}

impl<'s, 'u, 'a> Search<'s, 'u, 'a> {
    fn of(reader: &'s Reader<'u, 'a>) -> Self {
        Search {
            reader,
            left: PATH_ENTRIES,
            libraries: OnceCell::new(),
            barren: HashSet::new(),
            nodes: Vec::new(),
            steps: Vec::new(),
            pieces: Vec::new(),
            found: Vec::new(),
        }
    }

    fn sorted(mut self) -> Vec<LockPath> {
        self.found.sort_by_key(LockPath::pointers);
        self.found
    }

    /// Add the paths from a variable.
    fn variable(&mut self, entry: &Entry<'a>, base: Option<VariablePlace>, function: Option<String>) -> Option<()> {
        let of_type = self.reader.described(entry, gimli::DW_AT_type)?;
        let of_type = self.reader.reference(&of_type, gimli::DW_AT_type)?;
        let place = self.reader.place(entry, base)?;
        let name = self.reader.name(entry)?;
        let before = self.found.len();
        self.expand(of_type, PATH_POINTERS, DEEPEST_PATH);
        let is_data = matches!(place, VariablePlace::Data(_));
        let found = self.found.split_off(before);
        self.found.extend(found.into_iter().filter_map(|path| {
            let name = whole_name(&name, &path)?;
            let function = if is_data { None } else { function.clone() };
            Some(LockPath { place, function, name, ..path })
        }));
        Some(())
    }

    /// Add the paths from the data of the unit.
    fn data(&mut self) -> gimli::Result<()> {
        let mut entries = self.reader.unit.entries();
        let mut passed: Option<isize> = None;
        for _ in 0..MOST_ENTRIES {
            let Some(entry) = entries.next_dfs()? else { break };
            let depth = entry.depth();
            if passed.is_some_and(|passed| depth > passed) {
                continue;
            }
            passed = None;
            match entry.tag() {
                gimli::DW_TAG_variable => {
                    let is_data = matches!(self.reader.place(entry, None), Some(VariablePlace::Data(_)));
                    if is_data {
                        self.variable(&entry.clone(), None, None);
                    }
                    passed = Some(depth);
                }
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_module
                | gimli::DW_TAG_compile_unit
                | gimli::DW_TAG_partial_unit => {}
                _ => passed = Some(depth),
            }
            if self.found.len() >= MOST_PATHS || self.left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Add the paths from an object of the type at `at`.
    fn expand(&mut self, at: UnitOffset, pointers: usize, depth: usize) {
        let Some(kind) = self.kind(at) else { return };
        if depth == 0 || self.found.len() >= MOST_PATHS || self.barren.contains(&(kind.at, pointers)) {
            return;
        }
        let before = self.found.len();
        if kind.is_lock {
            self.add();
        }
        match kind.entry.tag() {
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                self.pointer(&kind, pointers);
            }
            gimli::DW_TAG_array_type => self.array(&kind, pointers, depth),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => self.class(&kind, pointers, depth),
            // A lock of C is one object: its members have no names for people.
            gimli::DW_TAG_union_type if !kind.is_lock => self.members(&kind, pointers, depth),
            _ => {}
        }
        // A pointer to a container's nodes leads elsewhere in another container.
        if self.found.len() == before && self.nodes.is_empty() && self.left > 0 {
            self.barren.insert((kind.at, pointers));
        }
    }

    /// A lock is here.
    fn add(&mut self) {
        let shown: Vec<&Piece> = self.pieces.iter().filter(|piece| !self.is_library(piece)).collect();
        // A captured variable keeps the name that it has outside of the closure.
        let closure = shown.iter().rposition(|piece| is_closure(&piece.class));
        let named = shown.get(closure.unwrap_or(0)..).unwrap_or_default();
        let mut name = String::new();
        for (position, piece) in named.iter().enumerate() {
            match piece.name.as_str() {
                ELEMENT | KEYED => name += &piece.name,
                captured if closure.is_some() && position == 0 => {
                    let captured = captured.strip_prefix("_ref").unwrap_or(captured);
                    name += captured.trim_start_matches('_');
                }
                member => name += &format!(".{member}"),
            }
        }
        let is_member = |piece: &&&Piece| piece.name != ELEMENT && piece.name != KEYED && !is_closure(&piece.class);
        let member = shown.iter().rev().find(is_member).map(|piece| match piece.class.as_str() {
            "" => piece.name.clone(),
            class => format!("{class}::{}", piece.name),
        });
        let class = named.first().filter(|piece| closure.is_none() && !piece.class.is_empty());
        let class = class.map(|piece| piece.class.clone());
        self.found.push(LockPath {
            place: VariablePlace::Frame(0),
            // Until the variable is known: the class of the first member.
            function: class,
            steps: self.steps.clone(),
            name,
            member,
        });
    }

    fn pointer(&mut self, kind: &Kind<'a>, pointers: usize) {
        let Some(left) = pointers.checked_sub(1) else { return };
        let Some(target) = target_of(self.reader, &kind.entry) else { return };
        let node = self.nodes.iter().rev().find(|(base, _)| *base == target.at).map(|(_, node)| *node);
        match node {
            None => {
                self.steps.push(Step::Pointer);
                self.expand(target.at, left, DEEPEST_PATH);
                self.steps.pop();
            }
            // The step that led to a node leads to all others.
            Some(None) => {}
            Some(Some(node)) => {
                let links = self.links(&target);
                if links.is_empty() {
                    return;
                }
                self.nodes.push((target.at, None));
                self.each(Step::Nodes { links }, KEYED, node, left, DEEPEST_PATH + 1);
                self.nodes.pop();
            }
        }
    }

    /// Where a node has pointers to others.
    fn links(&mut self, base: &Kind<'a>) -> Vec<u64> {
        let members = self.children(base.at, &[gimli::DW_TAG_member]);
        let is_link = |entry: &Entry<'a>| {
            let pointer = kind_of(self.reader, self.reader.reference(entry, gimli::DW_AT_type)?)?;
            (target_of(self.reader, &pointer.entry)?.at == base.at).then(|| location(entry))
        };
        members.iter().filter_map(is_link).collect()
    }

    fn array(&mut self, kind: &Kind<'a>, pointers: usize, depth: usize) {
        let Some(element) = self.reader.reference(&kind.entry, gimli::DW_AT_type).and_then(|at| self.kind(at)) else {
            return;
        };
        let count = |entry: &Entry<'a>| {
            let value = |name| entry.attr_value(name).and_then(|value| value.udata_value());
            value(gimli::DW_AT_count).or_else(|| value(gimli::DW_AT_upper_bound)?.checked_add(1))
        };
        let ranges = self.children(kind.at, &[gimli::DW_TAG_subrange_type]);
        let count = ranges.iter().map(count).try_fold(1_u64, |all, count| all.checked_mul(count?));
        let Some(count) = count.filter(|count| *count > 0 && element.size > 0) else { return };
        self.each(Step::Elements { stride: element.size, count }, ELEMENT, element.at, pointers, depth);
    }

    /// Add the paths from the elements that a step leads to.
    fn each(&mut self, step: Step, name: &str, element: UnitOffset, pointers: usize, depth: usize) {
        self.steps.push(step);
        self.pieces.push(Piece { of: gimli::UnitOffset(0), class: String::new(), name: name.to_owned() });
        self.expand(element, pointers, depth.saturating_sub(1));
        self.pieces.pop();
        self.steps.pop();
    }

    fn class(&mut self, kind: &Kind<'a>, pointers: usize, depth: usize) {
        let nodes = self.nodes.len();
        self.add_nodes(kind);
        self.elements(kind, pointers, depth);
        self.members(kind, pointers, depth);
        // Bytes in which a container makes its elements.
        let parameters = self.parameters(kind);
        if let [element] = parameters.as_slice()
            && kind.name.starts_with("__aligned")
            && element.size <= kind.size
        {
            self.expand(element.at, pointers, depth - 1);
        }
        self.nodes.truncate(nodes);
    }

    /// Containers name the class of their nodes: it is derived from that of their pointers.
    fn add_nodes(&mut self, kind: &Kind<'a>) {
        for entry in self.children(kind.at, &[gimli::DW_TAG_typedef]) {
            let named = self.reader.reference(&entry, gimli::DW_AT_type).and_then(|at| self.kind(at));
            let Some(named) = named else { continue };
            let Some(node) =
                (if is_pointer(&named.entry) { target_of(self.reader, &named.entry) } else { Some(named) })
            else {
                continue;
            };
            let is_class = matches!(node.entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type);
            if !is_class || node.at == kind.at {
                continue;
            }
            for base in self.children(node.at, &[gimli::DW_TAG_inheritance]) {
                let base = self.reader.reference(&base, gimli::DW_AT_type).and_then(|at| self.kind(at));
                self.nodes.extend(base.map(|base| (base.at, Some(node.at))));
            }
        }
    }

    /// Elements outside of an object: between two of its pointers, or as many from one as it says.
    fn elements(&mut self, kind: &Kind<'a>, pointers: usize, depth: usize) {
        let Some(left) = pointers.checked_sub(1) else { return };
        let members = self.children(kind.at, &[gimli::DW_TAG_member]);
        let reader = self.reader;
        let named = |ends: &[&str]| {
            members.iter().find(|entry| {
                let name = reader.text(entry, gimli::DW_AT_name).unwrap_or_default();
                ends.iter().any(|end| name.trim_end_matches('_').ends_with(end))
            })
        };
        let target = |entry: &Entry<'a>| {
            let pointer = kind_of(reader, reader.reference(entry, gimli::DW_AT_type)?)?;
            target_of(reader, &pointer.entry).filter(|target| target.size > 0)
        };
        if let (Some(first), Some(end)) = (named(&["start", "begin"]), named(&["finish", "end"]))
            && let (Some(element), Some(other)) = (target(first), target(end))
            && element.at == other.at
        {
            let step = Step::Between { first: location(first), end: location(end), stride: element.size };
            return self.each(step, ELEMENT, element.at, left, depth);
        }
        // Rust's slices, and `Vec`, whose pointer has no type.
        if let (Some(pointer), Some(length)) = (named(&["data_ptr"]), named(&["length"]))
            && let Some(element) = target(pointer)
        {
            let (pointer, length) = (location(pointer), location(length));
            return self.each(
                Step::Counted { pointer, length, stride: element.size },
                ELEMENT,
                element.at,
                left,
                depth,
            );
        }
        let length = if kind.name == "Vec" { named(&["len"]).map(location) } else { None };
        if let (Some(length), Some(element)) = (length, self.parameters(kind).into_iter().next())
            && let Some(pointer) = self.first_pointer(kind.at, DEEPEST_PATH)
            && element.size > 0
        {
            let step = Step::Counted { pointer, length, stride: element.size };
            self.each(step, ELEMENT, element.at, left, depth);
        }
    }

    /// How far in an object its first pointer is.
    fn first_pointer(&mut self, at: UnitOffset, depth: usize) -> Option<u64> {
        let kind = self.kind(at)?;
        if is_pointer(&kind.entry) {
            return Some(0);
        }
        let depth = depth.checked_sub(1)?;
        let members = self.children(kind.at, &[gimli::DW_TAG_member]);
        members.iter().find_map(|entry| {
            let of_type = self.reader.reference(entry, gimli::DW_AT_type)?;
            self.first_pointer(of_type, depth)?.checked_add(location(entry))
        })
    }

    /// The types that a class was made for.
    fn parameters(&mut self, kind: &Kind<'a>) -> Vec<Kind<'a>> {
        let parameters = self.children(kind.at, &[gimli::DW_TAG_template_type_parameter]);
        let of_type = |entry: &Entry<'a>| kind_of(self.reader, self.reader.reference(entry, gimli::DW_AT_type)?);
        parameters.iter().filter_map(of_type).collect()
    }

    fn members(&mut self, kind: &Kind<'a>, pointers: usize, depth: usize) {
        let tags = [gimli::DW_TAG_member, gimli::DW_TAG_inheritance, gimli::DW_TAG_variant_part];
        for entry in self.children(kind.at, &tags) {
            // Each alternative of an enumeration with data: a wrong one leads nowhere.
            let parts = match entry.tag() {
                gimli::DW_TAG_variant_part => {
                    let variants = self.children(entry.offset(), &[gimli::DW_TAG_variant]);
                    let members = |variant: &Entry<'a>| self.children(variant.offset(), &[gimli::DW_TAG_member]);
                    variants.iter().flat_map(members).collect()
                }
                _ => vec![entry],
            };
            for part in parts {
                self.member(kind, &part, pointers, depth);
            }
        }
    }

    fn member(&mut self, kind: &Kind<'a>, entry: &Entry<'a>, pointers: usize, depth: usize) {
        let is_static = entry.attr_value(gimli::DW_AT_external).is_some();
        let Some(of_type) = self.reader.reference(entry, gimli::DW_AT_type).filter(|_| !is_static) else { return };
        let name = self.reader.text(entry, gimli::DW_AT_name).filter(|_| entry.tag() == gimli::DW_TAG_member);
        let (steps, pieces) = (self.steps.clone(), self.pieces.len());
        match (location(entry), self.steps.last_mut()) {
            (0, _) => {}
            (more, Some(Step::Bytes(bytes))) => *bytes = bytes.saturating_add(more),
            (more, _) => self.steps.push(Step::Bytes(more)),
        }
        self.pieces.extend(name.map(|name| Piece { of: kind.at, class: kind.name.clone(), name }));
        self.expand(of_type, pointers, depth - 1);
        self.pieces.truncate(pieces);
        self.steps = steps;
    }

    /// The entries of these kinds directly below one, as long as any may be read.
    fn children(&mut self, at: UnitOffset, tags: &[gimli::DwTag]) -> Vec<Entry<'a>> {
        let mut found = Vec::new();
        let Ok(mut entries) = self.reader.unit.entries_at_offset(at) else { return found };
        let has_children = matches!(entries.next_dfs(), Ok(Some(entry)) if entry.has_children());
        if !has_children || !matches!(entries.next_entry(), Ok(true)) {
            return found;
        }
        let mut next = entries.current().cloned();
        while let Some(entry) = next {
            let Some(left) = self.left.checked_sub(1) else { break };
            self.left = left;
            if tags.contains(&entry.tag()) {
                found.push(entry);
            }
            next = entries.next_sibling().ok().flatten().cloned();
        }
        found
    }

    fn kind(&mut self, at: UnitOffset) -> Option<Kind<'a>> {
        self.left = self.left.checked_sub(1)?;
        kind_of(self.reader, at)
    }

    fn is_library(&self, piece: &Piece) -> bool {
        let ranges = self.libraries.get_or_init(|| self.library_ranges());
        ranges.iter().any(|range| range.contains(&piece.of.0))
    }

    fn library_ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut entries = self.reader.unit.entries();
        let Ok(true) = entries.next_entry() else { return ranges };
        let Ok(true) = entries.next_entry() else { return ranges };
        let mut open: Option<usize> = None;
        let mut next = entries.current().cloned();
        while let Some(entry) = next {
            let at = entry.offset().0;
            ranges.extend(open.take().map(|start| start..at));
            let is_library = entry.tag() == gimli::DW_TAG_namespace
                && self.reader.text(&entry, gimli::DW_AT_name).is_some_and(|name| LIBRARIES.contains(&name.as_str()));
            open = is_library.then_some(at);
            next = entries.next_sibling().ok().flatten().cloned();
        }
        ranges.extend(open.map(|start| start..usize::MAX));
        ranges
    }
}

/// The type at `at` behind its other names.
fn kind_of<'a>(reader: &Reader<'_, 'a>, mut at: UnitOffset) -> Option<Kind<'a>> {
    // Names of containers' types lead through several templates.
    const OTHER_NAMES: usize = 12;
    let mut is_lock = false;
    for _ in 0..OTHER_NAMES {
        let entry = reader.unit.entry(at).ok()?;
        let name = class_name(&reader.text(&entry, gimli::DW_AT_name).unwrap_or_default()).to_owned();
        is_lock |= is_lock_type(&name) || is_waited_for(&name);
        let is_other_name = matches!(
            entry.tag(),
            gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_restrict_type
        );
        if !is_other_name {
            let is_pointer = is_pointer(&entry);
            let size = entry.attr_value(gimli::DW_AT_byte_size).and_then(|size| size.udata_value());
            let size = size.unwrap_or(if is_pointer { 8 } else { 0 });
            // A pointer of Rust has a name with that of its target in it.
            return Some(Kind { at, is_lock: is_lock && !is_pointer, entry, name, size });
        }
        at = reader.reference(&entry, gimli::DW_AT_type)?;
    }
    None
}

/// The type that a pointer leads to.
fn target_of<'a>(reader: &Reader<'_, 'a>, pointer: &Entry<'a>) -> Option<Kind<'a>> {
    kind_of(reader, reader.reference(pointer, gimli::DW_AT_type).filter(|_| is_pointer(pointer))?)
}

fn is_pointer(entry: &Entry<'_>) -> bool {
    let tags = [gimli::DW_TAG_pointer_type, gimli::DW_TAG_reference_type, gimli::DW_TAG_rvalue_reference_type];
    tags.contains(&entry.tag())
}

/// How far in its class a member is.
fn location(entry: &Entry<'_>) -> u64 {
    match entry.attr_value(gimli::DW_AT_data_member_location) {
        Some(AttributeValue::Exprloc(_)) | None => 0,
        Some(value) => value.udata_value().unwrap_or(0),
    }
}

/// The name of a path from a variable. The variable of a method that has no name in the source gives way to its class, and
/// a lock that is such a variable has no name.
fn whole_name(variable: &str, path: &LockPath) -> Option<String> {
    let class = path.function.as_deref();
    match (variable, class) {
        // A captured variable.
        _ if !path.name.is_empty() && !path.name.starts_with(['.', '[']) => Some(path.name.clone()),
        ("this" | "self" | "__closure", Some(class)) => Some(format!("{class}::{}", path.name.trim_start_matches('.'))),
        ("this" | "self" | "__closure", None) => None,
        _ => Some(format!("{variable}{}", path.name)),
    }
}

/// A class's name without the parameters of templates; [`CLOSURE`] of `<lambda()>` and `{closure_env#0}`.
fn class_name(name: &str) -> &str {
    match name {
        _ if name.starts_with("<lambda") || name.starts_with("{lambda") || name.starts_with("{closure") => CLOSURE,
        _ => without_parameters(name),
    }
}

fn is_closure(class: &str) -> bool {
    class == CLOSURE
}

/// Whether threads wait for objects of this type, which is no lock.
fn is_waited_for(name: &str) -> bool {
    const NAMES: &[&str] =
        &["condition_variable", "condition_variable_any", "pthread_cond_t", "Condvar", "sem_t", "pthread_barrier_t"];
    NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_standard_libraries() {
        for name in ["std::thread::join()", "<std::sync::Mutex<T>>::lock", "void std::__invoke_impl<void>(A)"] {
            assert!(is_of_library(name), "{name}");
        }
        for name in ["stdlib::run()", "app::std::run()", "main", "int run(std::mutex&)", "<app::Bank>::post"] {
            assert!(!is_of_library(name), "{name}");
        }
    }

    #[test]
    fn elements_have_their_numbers_in_the_name() {
        let name = "bank.rows[].accounts[].guard".to_owned();
        let path = LockPath { place: VariablePlace::Frame(0), function: None, steps: Vec::new(), name, member: None };
        assert_eq!(path.named(&[3, 0]), "bank.rows[3].accounts[0].guard");
        assert_eq!(path.named(&[3]), "bank.rows[3].accounts[].guard");
    }
}
