//! Code of 64-bit Arm: every instruction word of whole files beside a disassembler's word for it, and the ways from exported functions to
//! their callers, with their names.
//!
//! The files are those that the emulated machine's programs map (glibc, CPython and what these need), and lockscope for it; beside them
//! LOCKSCOPE_AARCH64_LIBRARIES names files, as scripts/check/aarch64-libraries does for those that are too large for each run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use disarm64::{InsnDisplay, InsnOpcode, decoder};
use lockscope::internals::files::exported;
use lockscope::internals::{Addr, Architecture, Effect, Flow, Place, Register, RegisterMask, Target, Width};
use object::{Object, ObjectSection, SectionKind};

use crate::aarch64_machine::brought;
use crate::harness::skipped;

/// So much of each section is compared: PyTorch's largest have several times as much.
const MOST_CODE: usize = 32 << 20;
/// So many words stand in a row.
const PART: usize = 4096;
/// Instructions at which a thread is put in each exported function, and in a file with very many functions in all.
const MOST_PLACES: usize = 64;
const MOST_PLACES_OF_FILE: usize = 400_000;
const SP: Register = Register(31);
const LINK: Register = Register(30);

/// ELF files of the machine.
fn files() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::env::var_os("LOCKSCOPE_AARCH64_LIBRARIES")
        .map(|names| std::env::split_paths(&names).collect())
        .unwrap_or_default();
    let mut folders: Vec<PathBuf> = brought().map(|brought| brought.folder("root")).into_iter().collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.extend(std::env::var_os("LOCKSCOPE_AARCH64").map(|given| PathBuf::from(given).join("lockscope")));
    found.sort();
    found.retain(|path| std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF") && bytes[18] == 183));
    found
}

/// A register field of an operand.
fn register(operand: &disarm64::InsnOperand, bits: u32, stack_pointer: bool) -> Option<Register> {
    let field = operand.bit_fields.iter().find(|field| field.width == 5)?;
    let number = (bits >> field.lsb) & 31;
    match number {
        31 if stack_pointer => Some(SP),
        31 => None,
        number => Some(Register(number as u16)),
    }
}

/// The general registers that an instruction writes, by the disassembler's table of operands: of each class of instructions, which of
/// its operands are results.
fn written(opcode: &decoder::Opcode) -> Vec<Register> {
    let (definition, bits) = (opcode.definition(), opcode.bits());
    let kind = |operand: &disarm64::InsnOperand| format!("{:?}", operand.kind);
    let class = format!("{:?}", definition.class);
    let name = definition.mnemonic;
    let base = || match (bits >> 5) & 31 {
        31 => SP,
        number => Register(number as u16),
    };
    let is_memory = ["LDST", "LOADLIT", "LSE", "ASISDLS", "RCPC"].iter().any(|start| class.starts_with(start));
    let mut found: Vec<Register> = Vec::new();
    for operand in definition.operands {
        let is_result = match kind(operand).as_str() {
            "Rd" | "Rd_SP" => true,
            "Rt" | "Rt2" if is_memory => name.starts_with("ld") || name.starts_with("swp"),
            "Rt" if class == "IC_SYSTEM" => name == "mrs" || name == "sysl",
            // The status of an exclusive store, and what a compare and swap has found.
            "Rs" => (class == "LDSTEXCL" && name.starts_with("st")) || name.starts_with("cas"),
            _ => false,
        };
        if is_result {
            found.extend(register(operand, bits, kind(operand) == "Rd_SP"));
        }
    }
    // Accesses that move their base: before or behind, pairs too; structures of vectors; ldraa with a bit for it.
    let moves_base = match class.as_str() {
        "LDST_IMM9" | "LDSTPAIR_INDEXED" | "ASISDLSEP" | "ASISDLSOP" => true,
        "LDST_IMM10" => bits & (1 << 11) != 0,
        _ => false,
    };
    found.extend(moves_base.then(base));
    if class == "BRANCH_IMM" && name == "bl" || class == "BRANCH_REG" && name.starts_with("blr") {
        found.push(LINK);
    }
    found
}

/// Where an instruction leads, by the disassembler: `None` where it has no word of its own.
fn flow(opcode: &decoder::Opcode) -> Option<&'static str> {
    let definition = opcode.definition();
    let class = format!("{:?}", definition.class);
    let name = definition.mnemonic;
    Some(match class.as_str() {
        "BRANCH_IMM" if name == "bl" => "call",
        "BRANCH_IMM" => "jump",
        "BRANCH_REG" if name.starts_with("blr") => "call",
        "BRANCH_REG" if name.starts_with("br") => "jump",
        "BRANCH_REG" if name.starts_with("ret") => "return",
        "BRANCH_REG" => return None,
        "COMPBRANCH" | "TESTBRANCH" | "CONDBRANCH" => "branch",
        "EXCEPTION" if ["svc", "hvc", "smc"].contains(&name) => "next",
        "EXCEPTION" => "trap",
        _ => "next",
    })
}

fn own_flow(flow: Flow) -> (&'static str, Option<Addr>) {
    let code = |target| if let Target::Code(at) = target { Some(at) } else { None };
    match flow {
        Flow::Next => ("next", None),
        Flow::Call(target) => ("call", code(target)),
        Flow::Jump(target) => ("jump", code(target)),
        Flow::Branch(at) => ("branch", Some(at)),
        Flow::Return => ("return", None),
        Flow::Trap => ("trap", None),
    }
}

/// An instruction in the words of a disassembler: its name and its operands.
fn words(text: &str) -> (String, Vec<String>) {
    let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let mut operands = vec![String::new()];
    let mut depth = 0;
    for letter in rest.trim().chars() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        match letter {
            ',' if depth == 0 => operands.push(String::new()),
            letter => operands.last_mut().expect("one").push(letter),
        }
    }
    (name.to_owned(), operands.iter().map(|operand| operand.trim().to_owned()).collect())
}

fn number(text: &str) -> Option<i64> {
    let text = text.trim().trim_start_matches('#');
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()? as i64,
        None => digits.parse().ok()?,
    };
    Some(sign * value)
}

/// `x3`, `w3`, `sp`; the register that is zero is `zero`.
fn named(text: &str) -> Option<(String, bool)> {
    match text {
        "sp" => Some(("x31".to_owned(), true)),
        "xzr" => Some(("zero".to_owned(), true)),
        "wzr" => Some(("zero".to_owned(), false)),
        _ => {
            let digits = text.strip_prefix(['x', 'w'])?;
            digits.parse::<u8>().ok()?;
            Some((format!("x{digits}"), text.starts_with('x')))
        }
    }
}

/// `[x1, #8]`, `[x1, #8]!`, `[x1, x2, lsl #3]`, `0x1234`: the place, and what is added to the base before.
fn place(text: &str) -> Option<(String, i64)> {
    if let Some(inside) = text.strip_prefix('[') {
        let (inside, after) = inside.split_once(']')?;
        let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
        let (base, _) = named(parts.first()?)?;
        return match (parts.get(1), after) {
            (None, "") => Some((format!("{base}+0"), 0)),
            (Some(distance), "!") => Some((format!("{base}+0"), number(distance)?)),
            (Some(distance), "") if distance.starts_with('#') => Some((format!("{base}+{}", number(distance)?), 0)),
            (Some(index), "") => {
                let (index, whole) = named(index)?;
                let scale = match parts.get(2) {
                    None => 1,
                    Some(shift) => 1 << number(shift.strip_prefix("lsl ")?)?,
                };
                whole.then(|| (format!("{base}+{index}*{scale}"), 0))
            }
            _ => None,
        };
    }
    Some((format!("{:#x}", number(text)?), 0))
}

fn moved(base: &str, distance: i64) -> Vec<String> {
    let base = base.split('+').next().unwrap_or_default();
    match distance {
        0 => Vec::new(),
        _ => vec![format!("{base} += {distance}")],
    }
}

/// What the values of registers and memory become, in lines; `None` for forms that only overwrite.
fn values(name: &str, operands: &[String]) -> Option<Vec<String>> {
    let operand = |at: usize| operands.get(at).map(String::as_str);
    let register = |at: usize| named(operand(at)?);
    match name {
        "add" | "sub" if operand(2)?.starts_with('#') => {
            let ((to, whole), (from, _)) = (register(0)?, register(1)?);
            let shift = operand(3).and_then(|shift| number(shift.strip_prefix("lsl ")?)).unwrap_or(0);
            let amount = number(operand(2)?)? << shift;
            let amount = if name == "sub" { -amount } else { amount };
            Some(match () {
                () if !whole => return None,
                () if amount == 0 => vec![format!("{to} = {from}")],
                () if to == from => vec![format!("{to} += {amount}")],
                () => vec![format!("{to} = &{from}+{amount}")],
            })
        }
        "add" if operand(3).is_none_or(|shift| shift.starts_with("lsl ")) => {
            let ((to, whole), (base, _), (index, is_whole)) = (register(0)?, register(1)?, register(2)?);
            let scale = 1i64 << operand(3).and_then(|shift| number(shift.strip_prefix("lsl ")?)).unwrap_or(0);
            (whole && is_whole && ![&to, &base, &index].contains(&&"zero".to_owned()))
                .then(|| vec![format!("{to} = &{base}+{index}*{scale}")])
        }
        "orr" if operand(1)?.ends_with("zr") && operand(3).is_none() => {
            let ((to, whole), (from, _)) = (register(0)?, register(2)?);
            Some(vec![match from.as_str() {
                "zero" => format!("{to} = 0x0"),
                from if whole => format!("{to} = {from}"),
                from => format!("{to} = part of {from}"),
            }])
        }
        "movz" | "movn" => {
            let (to, whole) = register(0)?;
            let shift = operand(2).and_then(|shift| number(shift.strip_prefix("lsl ")?)).unwrap_or(0);
            let value = (number(operand(1)?)? as u64) << shift;
            let value = match (name, whole) {
                ("movz", _) => value,
                (_, true) => !value,
                (_, false) => u64::from(!value as u32),
            };
            Some(vec![format!("{to} = {value:#x}")])
        }
        "adr" | "adrp" => {
            let (to, _) = register(0)?;
            Some(vec![format!("{to} = &{:#x}", number(operand(1)?)?)])
        }
        "ldr" | "ldur" | "ldar" | "str" | "stur" | "stlr" => {
            let (own, whole) = register(0)?;
            let (at, before) = place(operand(1)?)?;
            let behind = operand(2).map_or(Some(0), number)?;
            let one = access(name.starts_with("ld"), &own, whole, &at);
            Some([moved(&at, before), one, moved(&at, behind)].concat())
        }
        "ldp" | "stp" => {
            let ((first, whole), (second, _)) = (register(0)?, register(1)?);
            let (at, before) = place(operand(2)?)?;
            let behind = operand(3).map_or(Some(0), number)?;
            let (base, distance) = at.split_once('+')?;
            let next = format!("{base}+{}", number(distance)? + if whole { 8 } else { 4 });
            let is_load = name == "ldp";
            let both = [access(is_load, &first, whole, &at), access(is_load, &second, whole, &next)];
            Some([moved(&at, before), both.concat(), moved(&at, behind)].concat())
        }
        _ => None,
    }
}

fn access(is_load: bool, own: &str, whole: bool, at: &str) -> Vec<String> {
    let part = if whole { "" } else { "part of " };
    match (is_load, own) {
        // A load into nothing.
        (true, "zero") => Vec::new(),
        (true, own) => vec![format!("{own} = {part}[{at}]")],
        (false, own) => vec![format!("[{at}] = {part}{own}")],
    }
}

/// The same of lockscope's own effects; `None` where one of them is told as something else.
fn own_values(effects: &[Effect]) -> Option<Vec<String>> {
    let name = |register: Register| format!("x{}", register.0);
    let at = |place: Place| {
        let distance = place.displacement as i64;
        match (place.base, place.index) {
            (None, None) => format!("{:#x}", place.displacement),
            (Some(base), None) => format!("{}+{distance}", name(base)),
            (base, Some((index, scale))) => format!("{}+{}*{scale}", base.map(name).unwrap_or_default(), name(index)),
        }
    };
    let part = |width: Width| if width.is_whole() { "" } else { "part of " };
    let line = |effect: &Effect| {
        let line = match *effect {
            Effect::Copy { to, from, width } => format!("{} = {}{}", name(to), part(width), name(from)),
            Effect::Load { to, from, width } => format!("{} = {}[{}]", name(to), part(width), at(from?)),
            Effect::Store { to, from, width } => {
                format!("[{}] = {}{}", at(to?), part(width), from.map_or("zero".to_owned(), name))
            }
            Effect::Address { to, of } => format!("{} = &{}", name(to), at(of?)),
            Effect::Constant { to, value } => format!("{} = {value:#x}", name(to)),
            Effect::Add { to, amount } => format!("{} += {}", name(to), amount as i64),
            Effect::Subtract { to, amount } => format!("{} += {}", name(to), -(amount as i64)),
            // A load into nothing overwrites nothing.
            Effect::Other { writes, place: None } if writes == RegisterMask::default() => return Some(None),
            Effect::Other { .. } | Effect::Push { .. } | Effect::Pop { .. } => return None,
        };
        Some(Some(line))
    };
    let lines: Option<Vec<Option<String>>> = effects.iter().map(line).collect();
    Some(lines?.into_iter().flatten().collect())
}

/// What was compared of a file.
#[derive(Debug, Default)]
struct Compared {
    instructions: usize,
    /// Words that are no instruction: data between functions, most of them.
    unknown: usize,
    /// Whose values were compared, and not only what they overwrite and where they lead.
    values: usize,
    /// That overwrite less by lockscope's word than by the disassembler's: none may.
    wrong: BTreeMap<String, (usize, String)>,
    /// By which of them it overwrites more.
    cautious: BTreeMap<String, usize>,
}

fn compare(code: &[u8], start: u64, compared: &mut Compared) {
    let mut own = Architecture::Aarch64.decoder(code, Addr(start));
    while let Some(instruction) = own.next() {
        let effects: Vec<Effect> = own.effects().iter().collect();
        let at = instruction.address.0;
        let offset = (at - start) as usize;
        let bits = u32::from_le_bytes(code[offset..offset + 4].try_into().expect("four bytes"));
        let Some(opcode) = decoder::decode(bits).filter(|opcode| opcode.definition().mnemonic != "udf") else {
            compared.unknown += 1;
            continue;
        };
        compared.instructions += 1;
        let text = opcode.display_at(at).to_string();
        let name = opcode.definition().mnemonic;
        let mut wrong = |what: String| {
            let entry = compared.wrong.entry(name.to_owned()).or_insert((0, String::new()));
            entry.0 += 1;
            entry.1 = format!("{bits:08x} at {at:x} `{}`: {what}", text.replace('\t', " "));
        };
        let (leads, target) = own_flow(instruction.flow);
        if let Some(expected) = flow(&opcode)
            && expected != leads
        {
            wrong(format!("leads {leads}, not {expected}"));
        }
        let (word, operands) = words(&text);
        if let Some(target) = target
            && operands.last().and_then(|last| number(last)) != Some(target.0 as i64)
        {
            wrong(format!("leads to {target}"));
        }
        let writes: Vec<Register> = effects.iter().flat_map(|effect| effect.writes().iter()).collect();
        let expected = written(&opcode);
        if let Some(missing) = expected.iter().find(|register| !writes.contains(register)) {
            wrong(format!("writes {writes:?}, not {missing:?}"));
        }
        let more = writes.iter().any(|register| !expected.contains(register));
        if more && name != "svc" {
            *compared.cautious.entry(name.to_owned()).or_default() += 1;
        }
        if let (Some(own), Some(expected)) = (own_values(&effects), values(&word, &operands)) {
            compared.values += 1;
            // Of a pair, the register that is loaded over its base comes last.
            let sorted = |mut lines: Vec<String>| {
                if name == "ldp" {
                    lines.sort();
                }
                lines
            };
            if sorted(own.clone()) != sorted(expected.clone()) {
                wrong(format!("{own:?}, not {expected:?}"));
            }
        }
    }
}

/// Each instruction word of the code of these files once: what a word means depends on nothing but where it stands.
fn distinct_words(files: &[PathBuf]) -> Vec<u32> {
    let mut all = Vec::new();
    for path in files {
        let bytes = std::fs::read(path).expect("readable");
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        for section in elf.sections().filter(|section| section.kind() == SectionKind::Text) {
            let code = section.data().expect("its bytes");
            let words = code[..code.len().min(MOST_CODE)].chunks_exact(4);
            all.extend(words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))));
        }
        // A file has half a million words, the same as the file before has for the most part.
        all.sort_unstable();
        all.dedup();
    }
    all
}

#[test]
fn instructions_of_64_bit_arm_are_what_a_disassembler_says() {
    let files = files();
    if files.is_empty() {
        return skipped!("no files of 64-bit Arm");
    }
    let words = distinct_words(&files);
    let mut compared = Compared::default();
    for (position, part) in words.chunks(PART).enumerate() {
        // Where they stand differs, in all bits.
        let start = (position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 & !0xfff;
        let code: Vec<u8> = part.iter().flat_map(|word| word.to_le_bytes()).collect();
        compare(&code, start, &mut compared);
    }
    let cautious: usize = compared.cautious.values().sum();
    println!(
        "{} files: {} instructions, of {} the values, {cautious} told as overwriting more, {} words that are none",
        files.len(),
        compared.instructions,
        compared.values,
        compared.unknown
    );
    let wrong: Vec<String> = compared.wrong.values().map(|(count, first)| format!("{count} times: {first}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What overwrites more than it does ends searches for values too early.
    assert!(cautious * 500 <= compared.instructions, "{:?}", compared.cautious);
    // Most distinct words are branches, which lead to many places and change no value.
    assert!(compared.values * 6 >= compared.instructions, "{compared:?}");
}

#[test]
fn exported_functions_of_64_bit_arm_have_names_and_callers() {
    let files = files();
    if files.is_empty() {
        return skipped!("no files of 64-bit Arm");
    }
    for path in files {
        let Some(found) = exported(std::fs::read(&path).expect("readable"), MOST_PLACES, MOST_PLACES_OF_FILE) else {
            panic!("{}: no ELF file", path.display());
        };
        let (functions, named) = (found.functions, found.functions - found.nameless.len());
        println!(
            "{}: {named} of {functions} functions named, {} of {} places unwound, {} without any information",
            path.display(),
            found.unwound,
            found.places,
            found.bare
        );
        found.nameless.iter().chain(&found.lost).take(20).for_each(|one| println!("    {one}"));
        assert_eq!(named, functions, "{}", path.display());
        assert!(found.lost.len() * 1000 <= found.places, "{}", path.display());
        assert!(found.bare * 100 <= found.places, "{}: much without call frame information", path.display());
    }
}
