//! Line tables of code objects: from an instruction's offset to a line.
//!
//! In: the table's bytes, the first line, the offset of the instruction in bytes. Out: the line. Pure.

use super::layout::LineTable;

/// The line of the instruction at byte `offset`; `None` if the table has no line for it, or is damaged.
pub(crate) fn line(kind: LineTable, table: &[u8], first_line: i64, offset: i64) -> Option<u32> {
    let line = match kind {
        LineTable::Lnotab => by_lnotab(table, first_line, offset),
        LineTable::Pairs => by_pairs(table, first_line, offset),
        LineTable::Locations => by_locations(table, first_line, offset),
    }?;
    u32::try_from(line).ok()
}

/// Objects/lnotab_notes.txt of 3.9: pairs of (bytes, signed lines).
fn by_lnotab(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    let (mut line, mut at) = (first_line, 0);
    for [bytes, lines] in table.as_chunks().0 {
        at += i64::from(*bytes);
        if at > offset {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    Some(line)
}

/// PEP 626: pairs of (bytes, signed lines); -128 marks code without a line.
fn by_pairs(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    // Before the first instruction has run, f_lasti is -1: the function's first line.
    if offset < 0 {
        return Some(first_line);
    }
    let (mut line, mut end) = (first_line, 0);
    for [bytes, lines] in table.as_chunks().0 {
        end += i64::from(*bytes);
        let delta = lines.cast_signed();
        if delta != -128 {
            line += i64::from(delta);
        }
        if offset < end {
            return (delta != -128).then_some(line);
        }
    }
    None
}

/// Objects/locations.md of 3.11: entries of 1 to 8 code units, each with a kind.
fn by_locations(table: &[u8], first_line: i64, offset: i64) -> Option<i64> {
    if offset < 0 {
        return Some(first_line);
    }
    let (mut line, mut end) = (first_line, 0i64);
    let mut bytes = table.iter().copied().peekable();
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None;
        }
        let kind = (head >> 3) & 15;
        end += (i64::from(head & 7) + 1) * 2;
        let has_line = kind != 15;
        match kind {
            13 | 14 => line += signed_varint(&mut bytes)?,
            10..=12 => line += i64::from(kind) - 10,
            _ => {}
        }
        // The columns are of no interest: all bytes up to the next head have bit 7 clear.
        while bytes.next_if(|b| b & 0x80 == 0).is_some() {}
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

fn signed_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let (mut value, mut shift) = (0i64, 0u32);
    loop {
        let byte = bytes.next()?;
        value |= i64::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            break;
        }
        shift += 6;
        if shift > 48 {
            return None;
        }
    }
    Some(if value & 1 != 0 { -(value >> 1) } else { value >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lnotab() {
        // x = 1 \n y = 2 with a jump back of one line at the end.
        let table = [0, 1, 8, 1, 6, 0xff];
        for (offset, expected) in [(0, 2), (7, 2), (8, 3), (13, 3), (14, 2), (99, 2)] {
            assert_eq!(line(LineTable::Lnotab, &table, 1, offset), Some(expected), "{offset}");
        }
    }

    #[test]
    fn pairs() {
        let table = [4, 1, 4, 0x80, 2, 2];
        for (offset, expected) in [(-1, Some(10)), (0, Some(11)), (3, Some(11)), (4, None), (8, Some(13)), (10, None)] {
            assert_eq!(line(LineTable::Pairs, &table, 10, offset), expected, "{offset}");
        }
    }

    #[test]
    fn locations() {
        // Short form, 2 units; one-line form +1, 1 unit, two columns; no column +70 (varint 140 = 12, 2), 1 unit; none, 1 unit.
        let table = [0x80 | 1, 0x11, 0x80 | (11 << 3), 4, 9, 0x80 | (13 << 3), 0x40 | 12, 2, 0x80 | (15 << 3)];
        for (offset, expected) in
            [(-2, Some(5)), (0, Some(5)), (2, Some(5)), (4, Some(6)), (6, Some(76)), (8, None), (10, None)]
        {
            assert_eq!(line(LineTable::Locations, &table, 5, offset), expected, "{offset}");
        }
        assert_eq!(line(LineTable::Locations, &[0xff], 5, 100), None);
        assert_eq!(line(LineTable::Locations, &[0x80 | (14 << 3), 0x7f], 5, 0), None);
    }
}
