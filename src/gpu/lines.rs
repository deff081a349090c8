//! Source lines of code for GPUs.
//!
//! In: `.debug_line` and `.debug_str` of a cubin, which nvcc writes with -lineinfo or -G, Triton and Numba (`lineinfo=True`) too. Out:
//! the lines of an address. There is no `.debug_info` with -lineinfo: calls that were inlined stand in the line program itself,
//! as two extended opcodes of NVIDIA's (seen with nvcc 13.0): 0x90, whose first number names the row of the call, counted from 1
//! within the sequence, and whose second the function, as a place in `.debug_str`; 0x91, the function alone. Row 0 is none.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, LineInstruction, LineRow, LittleEndian, Reader};

use super::names::name_of;
use crate::image::budget;
use crate::limits;
use crate::limits::gpu::{DEEPEST_INLINING, MOST_FILES, MOST_ROWS};

/// `DW_LNE` of NVIDIA: the rows that follow were inlined at another row.
const INLINED_CALL: u8 = 0x90;

/// A line of source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceLine {
    /// The function, where it is known: for an inlined call, its own.
    pub function: Option<String>,
    /// The file as the compiler noted it.
    pub file: String,
    pub line: u64,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    address: u64,
    file: usize,
    line: u64,
    /// The row of the call that this was inlined at, from 1; 0 for none.
    caller: u64,
    /// Where the name of the inlined function stands.
    function: u64,
}

/// Rows of code that lies together.
#[derive(Debug)]
struct Sequence {
    rows: Vec<Row>,
    end: u64,
}

/// All of one module.
#[derive(Debug, Default)]
pub(super) struct Lines {
    files: Vec<String>,
    sequences: Vec<Sequence>,
    names: Vec<(u64, String)>,
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl Lines {
    /// Read all programs of the section.
    pub(super) fn parse(section: &[u8], strings: &[u8]) -> Lines {
        let mut lines = Lines::default();
        let table = DebugLine::new(section, LittleEndian);
        let mut at = 0;
        let mut left = MOST_ROWS;
        while let Some(next) = next_unit(section, at) {
            if let Ok(program) = table.program(DebugLineOffset(at), 8, None, None) {
                lines.run(program, &mut left);
            }
            at = next;
        }
        lines.sequences.sort_by_key(|sequence| sequence.rows.first().map(|row| row.address));
        lines.name(strings);
        lines
    }

    fn run(&mut self, program: gimli::IncompleteLineProgram<Bytes<'_>>, left: &mut usize) {
        let header = program.header().clone();
        let first = self.files.len();
        for number in 0..=header.file_names().len() as u64 {
            if self.files.len() >= MOST_FILES || !budget::take(64, || "source files of a GPU core".into()) {
                limits::met(MOST_FILES, "source files of a module of the GPU", "of one module");
                break;
            }
            self.files.push(file_name(&header, number));
        }
        let mut instructions = header.instructions();
        let mut program = program;
        let mut row = LineRow::new(&header);
        let (mut rows, mut caller, mut function) = (Vec::new(), 0, 0);
        while let Ok(Some(instruction)) = instructions.next_instruction(&header) {
            if let LineInstruction::UnknownExtended(code, mut data) = instruction
                && code.0 == INLINED_CALL
            {
                (caller, function) = (data.read_uleb128().unwrap_or(0), data.read_uleb128().unwrap_or(0));
                continue;
            }
            match row.execute(instruction, &mut program) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return,
            }
            if row.end_sequence() {
                let rows = std::mem::take(&mut rows);
                // Code that was never loaded has the address 0.
                if rows.first().is_some_and(|row: &Row| row.address > 0) {
                    self.sequences.push(Sequence { rows, end: row.address() });
                }
                (caller, function) = (0, 0);
            } else if *left > 0 && budget::take(size_of::<Row>() as u64, || "source lines of a GPU core".into()) {
                *left -= 1;
                let file = first.saturating_add(usize::try_from(row.file_index()).unwrap_or(usize::MAX));
                let line = row.line().map_or(0, std::num::NonZeroU64::get);
                rows.push(Row { address: row.address(), file, line, caller, function });
            } else {
                limits::met(MOST_ROWS, "source lines of a module of the GPU", "of one module");
                return;
            }
            row.reset(&header);
        }
    }

    /// Read the names of inlined functions.
    fn name(&mut self, strings: &[u8]) {
        let rows = self.sequences.iter().flat_map(|sequence| &sequence.rows);
        let mut wanted: Vec<u64> = rows.filter(|row| row.caller > 0).map(|row| row.function).collect();
        wanted.sort_unstable();
        wanted.dedup();
        self.names = wanted.into_iter().filter_map(|at| Some((at, string(strings, at)?))).collect();
    }

    /// The lines of an address, the innermost inlined call first.
    pub(super) fn of(&self, address: u64) -> Vec<SourceLine> {
        let after =
            self.sequences.partition_point(|sequence| sequence.rows.first().is_some_and(|row| row.address <= address));
        let Some(sequence) = self.sequences.get(..after).and_then(<[Sequence]>::last).filter(|one| address < one.end)
        else {
            return Vec::new();
        };
        // Among rows with one address the last counts: those before it have no code.
        let after = sequence.rows.partition_point(|row| row.address <= address);
        let mut found = Vec::new();
        let mut position = after.checked_sub(1);
        while let Some(row) = position.and_then(|position| sequence.rows.get(position)) {
            if found.len() >= DEEPEST_INLINING {
                limits::met(DEEPEST_INLINING, "functions that are inlined into each other on the GPU", "of one place");
                break;
            }
            let file = self.files.get(row.file).cloned().unwrap_or_default();
            let name =
                self.names.binary_search_by_key(&row.function, |(at, _)| *at).ok().and_then(|at| self.names.get(at));
            let function = name.filter(|_| row.caller > 0).map(|(_, name)| name.clone());
            found.push(SourceLine { function, file, line: row.line });
            position = row.caller.checked_sub(1).and_then(|caller| usize::try_from(caller).ok());
        }
        found.retain(|line| line.line > 0 && !line.file.is_empty());
        found
    }
}

/// Where the next program begins; `None` where there is none at `at`.
fn next_unit(section: &[u8], at: usize) -> Option<usize> {
    let rest = section.get(at..)?;
    let length = u32::from_le_bytes(*rest.first_chunk()?);
    // nvcc writes 32-bit DWARF.
    let next = at.checked_add(4)?.checked_add(usize::try_from(length).ok()?)?;
    (length < 0xffff_fff0 && next <= section.len()).then_some(next)
}

fn file_name(header: &gimli::LineProgramHeader<Bytes<'_>>, number: u64) -> String {
    let Some(file) = header.file(number) else { return String::new() };
    let text = |value: &AttributeValue<Bytes<'_>>| match value {
        AttributeValue::String(text) => text.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    let name = text(&file.path_name());
    match file.directory(header).map(|value| text(&value)).filter(|folder| !folder.is_empty() && !name.starts_with('/'))
    {
        Some(folder) => format!("{folder}/{name}"),
        None => name,
    }
}

fn string(strings: &[u8], at: u64) -> Option<String> {
    let rest = strings.get(usize::try_from(at).ok()?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(rest.get(..end)?).ok()?;
    (!name.is_empty()).then(|| name_of(name))
}
