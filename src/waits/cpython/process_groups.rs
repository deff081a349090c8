//! Which rank of its job a process is, by PyTorch's own object: no variable says it of ranks that `torch.multiprocessing.spawn` started.
//!
//! In: the modules of a process. Out: its [`OwnRank`], from the default group of `torch.distributed`. Other code
//! decides whether a process that inherited the object by a fork is that rank.

use super::Facts;
use crate::image::{Addr, MemoryExt};
use crate::limits::c10d::LARGEST_GROUP;
use crate::waits::collective::OwnRank;
use crate::waits::thread::Process;

/// Members of `c10d::ProcessGroup`: its table of functions, one word of counters (c10/util/intrusive_ptr.h), `store_`, then these two
/// (torch/csrc/distributed/c10d/ProcessGroup.hpp). Seen on 2.15.
const RANK: u64 = 24;
const SIZE: u64 = 28;

/// The rank; `None` where `torch.distributed` is not in use, or its object looks otherwise.
pub(super) fn own_rank(facts: &Facts<'_>, process: &Process<'_>) -> Option<OwnRank> {
    let objects = facts.inspector.objects();
    // distributed_c10d.py, `_World`.
    let world = facts.inspector.globals("torch.distributed.distributed_c10d", "_world").next()?;
    let group = objects.attribute(world, "_default_pg").filter(|group| !objects.is_none(*group))?;
    if !objects.class_name(group)?.ends_with("ProcessGroup") {
        return None;
    }
    // The object of pybind11 has the pointer behind its head.
    let group = objects.pointer(group + objects.head()).filter(|group| !group.is_null())?;
    if !is_group(process, group) {
        return None;
    }
    let number = |offset: u64| process.memory().u32(group + offset).ok();
    let (rank, size) = (number(RANK)?, number(SIZE)?);
    (rank < size && size <= LARGEST_GROUP).then_some(OwnRank { rank, size })
}

/// Whether the object has the functions of a group of ranks, by the name of their table.
fn is_group(process: &Process<'_>, object: Addr) -> bool {
    // The first function stands behind two words, which belong to the table.
    let table = process.memory().u64(object).ok().and_then(|table| table.checked_sub(16));
    let symbol = table.and_then(|table| process.context.symbols.object(Addr(table)));
    symbol.is_some_and(|symbol| is_table_of_groups(&symbol.name))
}

/// `{vtable(c10d::ProcessGroup)}`, as cpp_demangle writes it, or of a class that Python's derive from.
fn is_table_of_groups(name: &str) -> bool {
    name.strip_prefix("{vtable(")
        .and_then(|rest| rest.strip_suffix("ProcessGroup)}"))
        .is_some_and(|of| of.contains("c10d::"))
}

#[cfg(test)]
mod tests {
    use super::is_table_of_groups;
    use crate::symbols::demangle;

    #[test]
    fn groups_are_told_by_their_tables() {
        assert!(is_table_of_groups(&demangle("_ZTVN4c10d12ProcessGroupE")));
        assert!(is_table_of_groups(&demangle("_ZTVN4c10d14PyProcessGroupE")));
        assert!(!is_table_of_groups(&demangle("_ZTVN4c10d4WorkE")));
        assert!(!is_table_of_groups(&demangle("_ZTVN4gloo7ContextE")));
    }
}
