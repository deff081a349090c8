//! The meaning of an address: the identity of the object there, and its name for people.
//!
//! In: a process and an address. Out: a [`ResourceKey`] that is equal in every process that maps the same word, and a label.

use super::kinds::Kind;
use super::label::{Label, Place};
use super::model::{ResourceKey, Scope};
use super::thread::{Process, ThreadView};
use crate::image::Addr;

/// Where a word at `address` lives: shared mappings of the same file offset are the same place in every process.
pub(crate) fn scope(process: &Process<'_>, address: Addr) -> Scope {
    match process.context.image.mapping(address) {
        Some(m) if m.shared && m.inode != 0 => {
            Scope::Shared(m.device, m.inode, m.offset.wrapping_add(address - m.start))
        }
        _ => private_scope(process),
    }
}

/// The scope of the process's own memory: of that process among those with one address space which the others were made by.
pub(crate) fn private_scope(process: &Process<'_>) -> Scope {
    Scope::Process(process.context.memory_owner())
}

/// The identity of an object at `address`; in shared memory the address differs from process to process and
/// is left out.
pub(crate) fn key(process: &Process<'_>, kind: &'static Kind, address: Addr) -> ResourceKey {
    let scope = scope(process, address);
    let address = if matches!(scope, Scope::Shared(..)) { Addr(0) } else { address };
    ResourceKey { kind, scope, address }
}

/// "mutex `g_lock` in a.out", "rwlock 0x33b84080 inside libcuda.so.1", "semaphore 0x7f.. in the heap".
pub(crate) fn label(process: &Process<'_>, thread: &ThreadView<'_>, noun: &str, address: Addr) -> Label {
    let symbols = process.context.symbols;
    let list = &symbols.modules().list;
    let module = symbols.modules().at(address).and_then(|at| list.get(at));
    let in_module = module.map(|module| Place::Module(module.name.to_string()));
    let label = Label::from(noun);
    if module.is_none()
        && let Some((name, function)) = variable(process, address)
    {
        return Label { function, ..label.named(Some(name)) };
    }
    if let Some(symbol) = symbols.object(address) {
        return Label {
            offset: address - symbol.address,
            ..label.named(Some(symbol.name.to_string())).placed(in_module)
        };
    }
    label.at(address).placed(in_module.or_else(|| place(process, thread, address)))
}

/// The local variable that a lock is or is a member of, `alice.m`, and its function.
fn variable(process: &Process<'_>, address: Addr) -> Option<(String, Option<String>)> {
    let thread = process.whose_stack(address)?;
    let frame = thread.thread?.native.frames.get(thread.native_frame(address)?)?;
    let variables = process.context.symbols.variables(frame.lookup);
    variables.into_iter().find_map(|variable| {
        let at = variable.address(frame.cfa, &frame.registers)?;
        let (_, way) = variable.locks.iter().find(|(offset, _)| at + *offset == address)?;
        Some((format!("{}{way}", variable.name), variable.function.as_deref().map(short)))
    })
}

/// `transfer` of `transfer(Account&, long)`.
fn short(function: &str) -> String {
    function.split('(').next().unwrap_or(function).to_owned()
}

/// Where an address lies that is in no module.
fn place(process: &Process<'_>, thread: &ThreadView<'_>, address: Addr) -> Option<Place> {
    let mapping = process.context.image.mapping(address);
    if let Some(path) = mapping.filter(|m| m.is_file() || m.shared).and_then(|m| m.path.as_deref()) {
        return Some(Place::File(path.to_owned()));
    }
    if thread.on_own_stack(address) || mapping.is_some_and(|m| m.path.as_deref() == Some("[stack]")) {
        return Some(Place::Stack);
    }
    // The heap does not show the lock's owner; the library that requests the lock usually does.
    match thread.first_library(process) {
        Some(name) => Some(Place::Library(name)),
        None => mapping.is_some_and(|m| m.path.as_deref() == Some("[heap]")).then_some(Place::Heap),
    }
}
