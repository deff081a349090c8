//! Call frame information: from a pc and its registers to the caller's registers.
//!
//! In: a module, an address, the registers of a frame, memory. Out: the caller's registers and the canonical frame
//! address, or why not. Rules are cached by address, because many threads stand in the same functions.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianSlice, EvaluationResult, LittleEndian,
    Location, Pointer, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};

use crate::image::{Addr, Memory, MemoryExt, Register, RegisterSet, budget};
use crate::limits::unwind::MOST_EVALUATIONS;
use crate::modules::{Module, Modules, frame_index};

/// Steps of the look's budget for a byte of unwind information, and for an operation of an expression.
const STEPS_OF_A_RULE: u64 = 5;
const STEPS_OF_AN_OPERATION: u64 = 20;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The rules of one row, independent of the section's lifetime.
#[derive(Debug, Clone)]
struct Row {
    cfa: CfaRule<usize>,
    rules: Vec<(Register, RegisterRule<usize>)>,
    return_register: Register,
    signal: bool,
    encoding: Encoding,
    debug_frame: bool,
}

/// The step from a frame to its caller.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// The caller's registers.
    pub(crate) registers: RegisterSet,
    /// The canonical frame address of the frame that was left.
    pub(crate) cfa: Addr,
}

/// Why there is no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoStep {
    /// No description covers the address.
    NoRule,
    /// The description shows that no caller exists.
    Bottom,
    /// A word that the rules need could not be read.
    Unreadable(Addr),
    /// A register that the rules need is unknown, or the rules are damaged.
    Unknown,
}

/// Rules by address, kept over all threads of a process.
#[derive(Default)]
pub(crate) struct RowCache {
    rows: HashMap<u64, Option<Row>>,
    context: UnwindContext<usize>,
}

impl RowCache {
    /// The caller of the frame with these registers, whose code is at `lookup`.
    pub(crate) fn step(
        &mut self,
        modules: &Modules,
        memory: &dyn Memory,
        lookup: Addr,
        registers: &RegisterSet,
    ) -> Result<Step, NoStep> {
        let module = modules.at(lookup).and_then(|m| modules.list.get(m)).ok_or(NoStep::NoRule)?;
        let row = match self.rows.get(&lookup.0) {
            Some(row) => row.clone(),
            None => {
                let row = find_row(module, lookup.0.wrapping_sub(module.bias), &mut self.context);
                self.rows.insert(lookup.0, row.clone());
                row
            }
        };
        apply(&row.ok_or(NoStep::NoRule)?, module, memory, registers)
    }

    /// Whether the code at `lookup` is a signal trampoline.
    pub(crate) fn is_signal_frame(&self, lookup: Addr) -> bool {
        matches!(self.rows.get(&lookup.0), Some(Some(row)) if row.signal)
    }
}

fn bases(module: &Module) -> BaseAddresses {
    let address = |s: &Option<crate::modules::Section>| s.as_ref().map_or(0, |s| s.address);
    BaseAddresses::default()
        .set_eh_frame(address(&module.frames.eh_frame))
        .set_eh_frame_hdr(address(&module.frames.eh_frame_hdr))
        .set_text(module.frames.text)
        .set_got(module.frames.got)
}

fn eh_frame(module: &Module) -> Option<EhFrame<Slice<'_>>> {
    let section = module.frames.eh_frame.as_ref()?;
    let mut section = EhFrame::new(module.file.as_ref()?.get(section.range.clone())?, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(module.architecture.cfi_vendor());
    Some(section)
}

fn debug_frame(module: &Module) -> Option<DebugFrame<Slice<'_>>> {
    let section = module.frames.debug_frame.as_ref()?;
    let mut section = DebugFrame::new(module.file.as_ref()?.get(section.range.clone())?, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(module.architecture.cfi_vendor());
    Some(section)
}

/// Find the row for an address in the file's own numbering: through the search table, else through our own index.
fn find_row(module: &Module, address: u64, context: &mut UnwindContext<usize>) -> Option<Row> {
    let bases = bases(module);
    if let Some(section) = eh_frame(module)
        && let Some(row) = row_by_header(module, &section, &bases, address, context)
    {
        return Some(row);
    }
    let index = own_index(module, &bases);
    if let (Some(section), Some(offset)) = (eh_frame(module), frame_index::find(&index.eh_frame, address)) {
        let fde = section.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset).ok()?;
        return row_of(&section, &fde, &bases, address, context, false);
    }
    let (section, offset) = (debug_frame(module)?, frame_index::find(&index.debug_frame, address)?);
    let fde = section.fde_from_offset(&bases, offset.into(), DebugFrame::cie_from_offset).ok()?;
    row_of(&section, &fde, &bases, address, context, true)
}

/// Where the function that covers an address begins, by its frame description.
pub(crate) fn function_start(module: &Module, address: Addr) -> Option<Addr> {
    let bases = bases(module);
    let place = address.0.wrapping_sub(module.bias);
    let by_header = || {
        let fde = fde_by_header(module, &eh_frame(module)?, &bases, place)?;
        fde.contains(place).then(|| fde.initial_address())
    };
    let start = by_header().or_else(|| {
        let index = own_index(module, &bases);
        frame_index::start(&index.eh_frame, place).or_else(|| frame_index::start(&index.debug_frame, place))
    })?;
    Some(Addr(start.wrapping_add(module.bias)))
}

/// The index that stands in for a search table.
fn own_index<'m>(module: &'m Module, bases: &BaseAddresses) -> &'m frame_index::FrameIndex {
    module.index.get_or_init(|| frame_index::FrameIndex {
        // With a search table, only .debug_frame is left to index: the table covers all of .eh_frame.
        eh_frame: match eh_frame(module) {
            Some(section) if module.frames.eh_frame_hdr.is_none() => frame_index::index(&section, bases),
            _ => Vec::new(),
        },
        debug_frame: debug_frame(module).map(|s| frame_index::index(&s, bases)).unwrap_or_default(),
    })
}

fn fde_by_header<'m>(
    module: &'m Module,
    section: &EhFrame<Slice<'m>>,
    bases: &BaseAddresses,
    address: u64,
) -> Option<gimli::FrameDescriptionEntry<Slice<'m>>> {
    let hdr = module.frames.eh_frame_hdr.as_ref()?;
    let bytes = module.file.as_ref()?.get(hdr.range.clone())?;
    let parsed = EhFrameHdr::new(bytes, LittleEndian).parse(bases, 8).ok()?;
    // gimli's own `fde_for_address` subtracts these two without a check which is greater (0.34, found by fuzzing).
    let (Pointer::Direct(entry), Pointer::Direct(start)) =
        (parsed.table()?.lookup(address, bases).ok()?, parsed.eh_frame_ptr())
    else {
        return None;
    };
    let offset = usize::try_from(entry.checked_sub(start)?).ok()?;
    section.fde_from_offset(bases, offset.into(), EhFrame::cie_from_offset).ok()
}

fn row_by_header(
    module: &Module,
    section: &EhFrame<Slice<'_>>,
    bases: &BaseAddresses,
    address: u64,
    context: &mut UnwindContext<usize>,
) -> Option<Row> {
    let fde = fde_by_header(module, section, bases, address)?;
    row_of(section, &fde, bases, address, context, false)
}

fn row_of<'a, S>(
    section: &S,
    fde: &gimli::FrameDescriptionEntry<Slice<'a>>,
    bases: &BaseAddresses,
    address: u64,
    context: &mut UnwindContext<usize>,
    debug_frame: bool,
) -> Option<Row>
where
    S: UnwindSection<Slice<'a>>,
{
    if !fde.contains(address) || !budget::may_go_over(|| "frames of code that the look has not met before".into()) {
        return None;
    }
    budget::went_over(
        (fde.entry_len() as u64).saturating_add(fde.cie().entry_len() as u64).saturating_mul(STEPS_OF_A_RULE),
    );
    let row = fde.unwind_info_for_address(section, bases, context, address).ok()?;
    Some(Row {
        cfa: row.cfa().clone(),
        rules: row.registers().map(|(r, rule)| (Register(r.0), rule.clone())).collect(),
        return_register: Register(fde.cie().return_address_register().0),
        signal: fde.is_signal_trampoline(),
        encoding: fde.cie().encoding(),
        debug_frame,
    })
}

fn apply(row: &Row, module: &Module, memory: &dyn Memory, registers: &RegisterSet) -> Result<Step, NoStep> {
    let evaluate = |expression: &UnwindExpression<usize>, cfa: Option<u64>| {
        let bytes = if row.debug_frame {
            let section = debug_frame(module).ok_or(NoStep::Unknown)?;
            expression.get(&section).map_err(|_| NoStep::Unknown)?
        } else {
            let section = eh_frame(module).ok_or(NoStep::Unknown)?;
            expression.get(&section).map_err(|_| NoStep::Unknown)?
        };
        evaluate(bytes, row.encoding, cfa, module, memory, registers)
    };
    let cfa = match &row.cfa {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(Register(register.0)).ok_or(NoStep::Unknown)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => evaluate(expression, None)?,
    };
    let architecture = registers.architecture();
    let mut caller = RegisterSet::new(architecture);
    for register in architecture.callee_saved() {
        if let Some(value) = registers.get(*register) {
            caller.set(*register, value);
        }
    }
    caller.set_sp(Addr(cfa));
    let link = architecture.link();
    if let Some((link, value)) = link.and_then(|link| Some((link, registers.get(link)?))) {
        caller.set(link, value);
    }
    for (register, rule) in &row.rules {
        let is_return = *register == row.return_register;
        let word = |address: u64| {
            let address = Addr(address);
            memory.u64(address).map_err(|_| NoStep::Unreadable(address))
        };
        let value = match rule {
            RegisterRule::Undefined if is_return => return Err(NoStep::Bottom),
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => registers.get(*register),
            RegisterRule::Offset(offset) => match word(cfa.wrapping_add_signed(*offset)) {
                Ok(value) => Some(value),
                Err(error) if is_return => return Err(error),
                Err(_) => None,
            },
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => registers.get(Register(other.0)),
            RegisterRule::Expression(expression) => match evaluate(expression, Some(cfa)).and_then(word) {
                Ok(value) => Some(value),
                Err(error) if is_return => return Err(error),
                Err(_) => None,
            },
            RegisterRule::ValExpression(expression) => evaluate(expression, Some(cfa)).ok(),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        };
        match value {
            Some(value) => caller.set(*register, value),
            None => caller.forget(*register),
        }
    }
    if row.return_register != architecture.return_column() {
        return Err(NoStep::Unknown);
    }
    if let Some(link) = link {
        let address = caller.get(link).ok_or(NoStep::Unknown)?;
        caller.set_pc(architecture.returned_to(address));
        caller.forget(link);
    }
    match caller.pc() {
        None => Err(NoStep::Unknown),
        Some(pc) if pc.is_null() => Err(NoStep::Bottom),
        Some(_) => Ok(Step { registers: caller, cfa: Addr(cfa) }),
    }
}

/// Run one DWARF expression with the registers of the frame.
fn evaluate(
    expression: gimli::Expression<Slice<'_>>,
    encoding: Encoding,
    cfa: Option<u64>,
    module: &Module,
    memory: &dyn Memory,
    registers: &RegisterSet,
) -> Result<u64, NoStep> {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    // One that jumps back goes on for as long as it likes; none of a compiler does.
    let longest = expression.0.len();
    evaluation.set_max_iterations(u32::try_from(longest).unwrap_or(u32::MAX));
    if !budget::may_go_over(|| "frames whose unwind information is an expression".into()) {
        return Err(NoStep::Unknown);
    }
    budget::went_over((longest as u64).saturating_mul(STEPS_OF_AN_OPERATION));
    let failed = |_| NoStep::Unknown;
    let mut result = evaluation.evaluate().map_err(failed)?;
    for _ in 0..MOST_EVALUATIONS {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = registers.get(Register(register.0)).ok_or(NoStep::Unknown)?;
                evaluation.resume_with_register(Value::Generic(value)).map_err(failed)?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let mut word = [0u8; 8];
                let bytes = word.get_mut(..usize::from(size)).ok_or(NoStep::Unknown)?;
                memory.read_exact(Addr(address), bytes).map_err(|_| NoStep::Unreadable(Addr(address)))?;
                evaluation.resume_with_memory(Value::Generic(u64::from_le_bytes(word))).map_err(failed)?
            }
            EvaluationResult::RequiresCallFrameCfa => {
                evaluation.resume_with_call_frame_cfa(cfa.ok_or(NoStep::Unknown)?).map_err(failed)?
            }
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(address.wrapping_add(module.bias)).map_err(failed)?
            }
            _ => return Err(NoStep::Unknown),
        };
    }
    match evaluation.as_result().last().map(|piece| &piece.location) {
        Some(Location::Address { address }) => Ok(*address),
        Some(Location::Value { value }) => value.to_u64(u64::MAX).map_err(failed),
        _ => Err(NoStep::Unknown),
    }
}
