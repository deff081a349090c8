//! Whether the debug information of a file is in proportion to its size, checked before any parser reads it.
//!
//! In: sections of DWARF. Out: yes, or no. A few bytes of it can stand for any number of parsed ones: several units and
//! functions may name the same lists of ranges, and each gets a copy. Nothing here keeps the data.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId, UnitHeader, UnitRef, UnitType};

use crate::image::budget;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The units of a section of units (`.debug_info`, `.debug_line`), as their lengths: `None` stands for more than `most` of them.
fn lengths(section: &[u8], most: usize) -> Option<Vec<u64>> {
    let (mut rest, mut found) = (section, Vec::new());
    while found.len() < most {
        let Some((word, behind)) = rest.split_first_chunk::<4>() else { return Some(found) };
        let (length, behind) = match u32::from_le_bytes(*word) {
            // 64-bit DWARF: the length follows (DWARF 5, section 7.4).
            u32::MAX => match behind.split_first_chunk::<8>() {
                Some((length, behind)) => (u64::from_le_bytes(*length), behind),
                None => return Some(found),
            },
            length => (u64::from(length), behind),
        };
        // One that ends outside of the section is not parsed.
        let Some(next) = usize::try_from(length).ok().and_then(|length| behind.get(length..)) else {
            return Some(found);
        };
        found.push(length);
        rest = next;
    }
    rest.is_empty().then_some(found)
}

/// Whether the units of `.debug_info` or `.debug_line` are so few and so small that parsing them takes a bounded room: a unit is
/// parsed as a whole, into up to thirty times its size.
pub(super) fn units_fit(section: &[u8], most: usize, largest: u64) -> bool {
    lengths(section, most).is_some_and(|lengths| lengths.iter().all(|length| *length <= largest))
}

/// Whether all units together have no more than `most` ranges of addresses.
pub(super) fn ranges_fit(dwarf: &Dwarf<Slice<'_>>, most: usize) -> bool {
    let size = |id: SectionId| section_size(dwarf, id);
    // For most files the sizes of the sections exclude that count: an entry has three bytes (DWARF 5, section 7.25) or
    // two addresses, a unit has eleven.
    if longest_list(dwarf).saturating_mul(size(SectionId::DebugInfo) / 11) <= most as u64 {
        return true;
    }
    let left = Cell::new(most);
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
        while let Ok(Some(_)) = ranges.next() {
            if !take(&left) {
                return false;
            }
        }
    }
    true
}

/// No list of ranges is longer, by the sizes of the sections.
fn longest_list(dwarf: &Dwarf<Slice<'_>>) -> u64 {
    section_size(dwarf, SectionId::DebugRngLists) / 3 + section_size(dwarf, SectionId::DebugRanges) / 16
}

fn section_size(dwarf: &Dwarf<Slice<'_>>, id: SectionId) -> u64 {
    use gimli::Section;
    let slice = match id {
        SectionId::DebugInfo => *dwarf.debug_info.reader(),
        SectionId::DebugRngLists => *dwarf.ranges.debug_rnglists().reader(),
        SectionId::DebugRanges => *dwarf.ranges.debug_ranges().reader(),
        SectionId::DebugLine => *dwarf.debug_line.reader(),
        SectionId::DebugLineStr => *dwarf.debug_line_str.reader(),
        SectionId::DebugStr => *dwarf.debug_str.reader(),
        _ => return 0,
    };
    slice.len() as u64
}

/// Take one from the rest; `false` where nothing is left.
fn take(left: &Cell<usize>) -> bool {
    let fewer = left.get().checked_sub(1);
    left.set(fewer.unwrap_or(0));
    fewer.is_some()
}

/// Whether the budget of the look has room for the lines of a unit. Units may share one line program and its names, and each gets rows
/// and names of its own with the first line that is wanted.
fn lines_fit(dwarf: &Dwarf<Slice<'_>>, header: UnitHeader<Slice<'_>>) -> bool {
    let Ok(unit) = dwarf.unit(header) else { return true };
    budget::take(size_of_lines(&unit.unit_ref(dwarf)), || "source lines of a unit of debug information".into())
}

/// Bytes that the rows and the names of a unit's lines take.
fn size_of_lines(unit: &UnitRef<'_, Slice<'_>>) -> u64 {
    /// Bytes of a row, in a list that grows by halves.
    const ROW: u64 = 24 * 3 / 2;
    /// A program of less than this cannot make rows worth counting.
    const SMALL: usize = 16 << 10;
    let Some(program) = &unit.line_program else { return 0 };
    let header = program.header();
    let around = unit.comp_dir.map_or(0, |directory| directory.len() as u64);
    let mut names = 0;
    for file in header.file_names() {
        let parts = [Some(file.path_name()), file.directory(header)];
        let texts = parts.into_iter().flatten().filter_map(|part| unit.attr_string(part).ok());
        names += around + texts.map(|text| text.len() as u64).sum::<u64>();
    }
    if header.raw_program_buf().len() < SMALL {
        return names;
    }
    let (mut rows, mut count) = (program.clone().rows(), 0u64);
    while let Ok(Some(_)) = rows.next_row() {
        count += 1;
    }
    names.saturating_add(count * ROW)
}

/// The units of a file by address, and which of them have functions whose ranges, and lines whose rows, are in
/// proportion. A unit is checked when its first address is needed: all of a large file would take seconds.
pub(super) struct Functions {
    /// First and last address, and a position in `offsets`, in order.
    units: Vec<(u64, u64, usize)>,
    /// The highest last address of all units up to each one.
    reach: Vec<u64>,
    offsets: Vec<usize>,
    /// Units that may have any address: they name none.
    anywhere: Vec<usize>,
    fit: RefCell<BTreeMap<usize, bool>>,
    /// Ranges of functions that may still come, where these are to be counted.
    left: Option<Cell<usize>>,
}

impl Functions {
    /// `None` where the sizes of the sections say that there cannot be more than `most` ranges of functions, nor many lines.
    pub(super) fn to_ask(dwarf: &Dwarf<Slice<'_>>, most: usize) -> Option<Functions> {
        // A function has an abbreviation, and where its ranges are: at least an index.
        let functions = section_size(dwarf, SectionId::DebugInfo) / 2;
        let has_ranges = longest_list(dwarf).saturating_mul(functions) > most as u64;
        const FEW_LINES: u64 = 64 << 10;
        let of_lines = [SectionId::DebugLine, SectionId::DebugLineStr, SectionId::DebugStr];
        let has_lines = of_lines.into_iter().map(|id| section_size(dwarf, id)).sum::<u64>() > FEW_LINES;
        (has_ranges || has_lines).then(|| Functions::of(dwarf, has_ranges.then(|| Cell::new(most))))
    }

    fn of(dwarf: &Dwarf<Slice<'_>>, left: Option<Cell<usize>>) -> Functions {
        let (mut units, mut offsets, mut anywhere) = (Vec::new(), Vec::new(), Vec::new());
        let listed = listed(dwarf);
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let Some(offset) = header.debug_info_offset().map(|offset| offset.0) else { continue };
            if !matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_) | UnitType::SplitCompilation(_))
            {
                continue;
            }
            let position = offsets.len();
            offsets.push(offset);
            let own = dwarf.unit(header).ok().map(|unit| {
                let mut found = Vec::new();
                let mut ranges = dwarf.unit_ranges(&unit).ok();
                while let Some(Ok(Some(range))) = ranges.as_mut().map(gimli::RangeIter::next) {
                    found.push((range.begin, range.end));
                }
                found
            });
            let all = own.into_iter().flatten().chain(listed.get(&offset).into_iter().flatten().copied());
            let before = units.len();
            units.extend(all.map(|(begin, end)| (begin, end, position)));
            if units.len() == before {
                anywhere.push(position);
            }
        }
        units.sort_unstable();
        let mut highest = 0;
        let reach = units.iter().map(|unit: &(u64, u64, usize)| {
            highest = highest.max(unit.1);
            highest
        });
        let reach = reach.collect();
        Functions { units, reach, offsets, anywhere, fit: RefCell::default(), left }
    }

    /// Whether all units that say nothing of their addresses are in proportion: these are parsed for it.
    pub(super) fn fit_anywhere(&self, dwarf: &Dwarf<Slice<'_>>) -> bool {
        self.anywhere.iter().all(|position| self.fits(dwarf, *position))
    }

    /// Whether all units that may have this address are in proportion. A gap says which are not.
    pub(super) fn fit_at(&self, dwarf: &Dwarf<Slice<'_>>, address: u64) -> bool {
        let before = self.units.partition_point(|unit| unit.0 <= address);
        let near = (0..before).rev().take_while(|at| self.reach.get(*at).is_some_and(|reach| *reach > address));
        let covering = near.filter_map(|at| self.units.get(at)).filter(|unit| unit.1 > address).map(|unit| unit.2);
        let asked: BTreeSet<usize> = covering.chain(self.anywhere.iter().copied()).collect();
        asked.into_iter().all(|position| self.fits(dwarf, position))
    }

    fn fits(&self, dwarf: &Dwarf<Slice<'_>>, position: usize) -> bool {
        if let Some(known) = self.fit.borrow().get(&position) {
            return *known;
        }
        let header = self.offsets.get(position).map(|offset| gimli::DebugInfoOffset(*offset));
        let header = header.and_then(|offset| dwarf.debug_info.header_from_offset(offset).ok());
        let fits = header.is_none_or(|header| {
            let functions_fit = self.left.as_ref().is_none_or(|left| functions_fit(dwarf, header, left));
            if !functions_fit {
                let what = "source lines of a file whose functions share their ranges out of all proportion";
                budget::take(u64::MAX, || what.to_owned());
            }
            functions_fit && lines_fit(dwarf, header)
        });
        self.fit.borrow_mut().insert(position, fits);
        fits
    }
}

/// The ranges of units in `.debug_aranges`, by their offsets.
fn listed(dwarf: &Dwarf<Slice<'_>>) -> BTreeMap<usize, Vec<(u64, u64)>> {
    let mut found: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
    let mut headers = dwarf.debug_aranges.headers();
    while let Ok(Some(header)) = headers.next() {
        let ranges = found.entry(header.debug_info_offset().0).or_default();
        let mut entries = header.entries();
        while let Some(entry) = entries.next().transpose() {
            // One that cannot be is left out, as by who looks addresses up.
            let Ok(entry) = entry else { continue };
            ranges.push((entry.range().begin, entry.range().end));
        }
    }
    found
}

/// Whether functions of a unit, inlined ones too, have no more ranges than are left.
fn functions_fit<'a>(dwarf: &Dwarf<Slice<'a>>, header: UnitHeader<Slice<'a>>, left: &Cell<usize>) -> bool {
    let Ok(unit) = dwarf.unit(header) else { return true };
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if !matches!(entry.tag(), gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine) {
            continue;
        }
        let Some(value) = entry.attr_value(gimli::DW_AT_ranges) else { continue };
        let Ok(Some(mut ranges)) = dwarf.attr_ranges(&unit, value) else { continue };
        while let Ok(Some(_)) = ranges.next() {
            if !take(left) {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `.debug_abbrev`, `.debug_info` and `.debug_ranges`.
    struct Sections([Vec<u8>; 3]);

    impl Sections {
        fn dwarf(&self) -> Dwarf<Slice<'_>> {
            let section = |id: SectionId| -> Result<Slice<'_>, ()> {
                let data: &[u8] = match id {
                    SectionId::DebugAbbrev => &self.0[0],
                    SectionId::DebugInfo => &self.0[1],
                    SectionId::DebugRanges => &self.0[2],
                    _ => &[],
                };
                Ok(EndianSlice::new(data, LittleEndian))
            };
            Dwarf::load(section).expect("sections")
        }
    }

    fn list(ranges: usize) -> Vec<u8> {
        let mut list: Vec<u8> =
            (1..=ranges as u64).flat_map(|at| [at * 16, at * 16 + 8]).flat_map(u64::to_le_bytes).collect();
        list.extend([0; 16]);
        list
    }

    /// Units of a few bytes that all name the same list of ranges.
    fn shared_by_units(units: usize, ranges: usize) -> Sections {
        // A compile unit without children, with DW_AT_low_pc (DW_FORM_addr) and DW_AT_ranges (DW_FORM_sec_offset).
        let abbreviations = vec![1, 0x11, 0, 0x11, 0x01, 0x55, 0x17, 0, 0, 0];
        let unit = [&20u32.to_le_bytes()[..], &4u16.to_le_bytes(), &[0; 4], &[8, 1], &[0; 8], &[0; 4]].concat();
        Sections([abbreviations, unit.repeat(units), list(ranges)])
    }

    /// One unit at 0x1000 to 0x2000, whose functions all name the same list of ranges.
    fn shared_by_functions(functions: usize, ranges: usize) -> Sections {
        // A compile unit with children, DW_AT_low_pc (DW_FORM_addr) and DW_AT_high_pc (DW_FORM_data8); a function with DW_AT_ranges.
        let abbreviations = vec![1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0, 0, 2, 0x2e, 0, 0x55, 0x17, 0, 0, 0];
        let body =
            [&[1u8][..], &0x1000u64.to_le_bytes(), &0x1000u64.to_le_bytes(), &[2, 0, 0, 0, 0].repeat(functions), &[0]];
        let body = body.concat();
        let length = u32::try_from(body.len() + 7).expect("small");
        let unit = [&length.to_le_bytes()[..], &4u16.to_le_bytes(), &[0; 4], &[8], &body].concat();
        Sections([abbreviations, unit, list(ranges)])
    }

    #[test]
    fn ranges_that_many_units_share_are_counted_for_each() {
        let sections = shared_by_units(100, 50);
        assert!(ranges_fit(&sections.dwarf(), 5000) && !ranges_fit(&sections.dwarf(), 4999));
    }

    #[test]
    fn ranges_that_many_functions_share_are_counted_for_each() {
        let sections = shared_by_functions(100, 50);
        let dwarf = sections.dwarf();
        let fits =
            |most, address| Functions::to_ask(&dwarf, most).is_none_or(|functions| functions.fit_at(&dwarf, address));
        assert!(fits(5000, 0x1800) && !fits(4999, 0x1800) && !fits(4999, 0x1000));
        // Elsewhere nobody parses them.
        assert!(fits(4999, 0x2000) && fits(4999, 0xfff));
        // Nor is anything checked where the sections are too small for it.
        assert!(Functions::to_ask(&dwarf, 1_000_000).is_none());
    }

    #[test]
    fn a_unit_with_no_address_of_its_own_is_asked_everywhere() {
        let mut sections = shared_by_functions(100, 50);
        // Its abbreviation has no addresses now, and its entry none either.
        sections.0[0] = vec![1, 0x11, 1, 0, 0, 2, 0x2e, 0, 0x55, 0x17, 0, 0, 0];
        sections.0[1].drain(12..28);
        let length = u32::try_from(sections.0[1].len() - 4).expect("small");
        sections.0[1][..4].copy_from_slice(&length.to_le_bytes());
        let dwarf = sections.dwarf();
        let functions = Functions::to_ask(&dwarf, 4999).expect("to be asked");
        assert!(!functions.fit_at(&dwarf, 0x7777_0000));
    }
}
