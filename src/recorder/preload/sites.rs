//! The frames of Python that took a lock, as text.
//!
//! In: nothing. Out: [`here`], the number of a text of the calling thread's innermost frames, each written once. A
//! pointer to code is not kept: that of a module is freed while its lock is held. The layouts are those of builds with
//! a GIL.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::file;
use crate::symbols::any;
use crate::table::{FIRST_SITES, MOST_SITES, Site, TEXT, Table};

/// Frames of a text, and its bytes.
const FRAMES: usize = 6;
const LONGEST: usize = 1024;
/// Frames that are passed over at most: those between C and Python have no line.
const PASSED: usize = 64;
/// Between file, line and function; and between frames.
const WITHIN: u8 = 0x1f;
const BETWEEN: u8 = b'\n';
/// Bytes of a frame beside its names: a line has ten digits at most.
const AROUND: usize = 13;

/// Where a version has what is read here.
#[derive(Clone, Copy)]
struct Layout {
    /// `PyThreadState.cframe` (up to 3.12), and where the current frame is in that, or in the thread state.
    cframe: usize,
    current: usize,
    /// `_PyInterpreterFrame`, or `PyFrameObject` up to 3.10: the code, the frame before, the instruction.
    code: usize,
    previous: usize,
    instruction: usize,
    /// Up to 3.10 the instruction is a number, in units of this many bytes; from 3.11 on it is a pointer, and this is 0.
    unit: usize,
    /// `PyCodeObject`: its instructions, file name and qualified name (up to 3.10 the name), and the table of lines.
    instructions: usize,
    file: usize,
    name: usize,
    lines: usize,
    /// Where the letters of an ASCII string begin.
    letters: usize,
}

/// Makes much of small differences.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// By minor version [headers of 3.8.18, 3.9.18, 3.10.13; DWARF of 3.11.7, 3.12.1, 3.13.0, 3.14.10].
const LAYOUTS: [(u32, Layout); 7] = [
    (8, with_objects(104, 1)),
    (9, with_objects(104, 1)),
    (10, with_objects(96, 2)),
    (11, layout([56, 8, 32, 48, 56, 184, 48])),
    (12, layout([56, 0, 0, 8, 56, 192, 40])),
    (13, layout([0, 72, 0, 8, 56, 200, 40])),
    (14, layout([0, 72, 0, 8, 56, 208, 40])),
];

const fn layout(row: [usize; 7]) -> Layout {
    let [cframe, current, code, previous, instruction, instructions, letters] = row;
    let (unit, file, name, lines) = (0, 112, 128, 136);
    Layout { cframe, current, code, previous, instruction, unit, instructions, file, name, lines, letters }
}

/// Each frame is an object, up to 3.10.
const fn with_objects(instruction: usize, unit: usize) -> Layout {
    let (cframe, current, code, previous, instructions) = (0, 24, 32, 24, 0);
    let (file, name, lines, letters) = (104, 112, 120, 48);
    Layout { cframe, current, code, previous, instruction, unit, instructions, file, name, lines, letters }
}

static VERSION: AtomicU32 = AtomicU32::new(0);
/// The function that returns the state of the thread that runs Python, in whichever interpreter; and the one for the
/// calling thread, also while it is about to run.
static CURRENT: AtomicUsize = AtomicUsize::new(0);
static THREAD_STATE: AtomicUsize = AtomicUsize::new(0);
static LINE_OF: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicU32 = AtomicU32::new(0);

/// An interpreter begins: which version it is.
pub(crate) fn begin() {
    let version = any(c"Py_Version") as *const usize;
    // SAFETY: const unsigned long Py_Version, from 3.11 on.
    let version = if version.is_null() { older() } else { unsafe { *version as u32 } };
    let current = match any(c"PyThreadState_GetUnchecked") {
        0 => any(c"_PyThreadState_UncheckedGet"),
        public => public,
    };
    CURRENT.store(current, Ordering::Relaxed);
    THREAD_STATE.store(any(c"PyGILState_GetThisThreadState"), Ordering::Relaxed);
    LINE_OF.store(any(c"PyCode_Addr2Line"), Ordering::Relaxed);
    VERSION.store(if version >> 24 == 3 { version >> 16 & 0xff } else { 0 }, Ordering::Relaxed);
}

/// The version of one without `Py_Version`, as that would have it: it is a text that begins with `3.10.`.
fn older() -> u32 {
    let function = any(c"Py_GetVersion");
    if function == 0 {
        return 0;
    }
    // SAFETY: const char *Py_GetVersion(void), whose text stays, and which may be called at any time.
    let text = unsafe { CStr::from_ptr(core::mem::transmute::<usize, extern "C" fn() -> *const c_char>(function)()) };
    let Some(minor) = text.to_bytes().strip_prefix(b"3.") else { return 0 };
    let digits = minor.iter().take_while(|digit| digit.is_ascii_digit()).take(2);
    3 << 24 | digits.fold(0, |all, digit| all * 10 + u32::from(digit - b'0')) << 16
}

/// An interpreter as tests make it up.
#[cfg(test)]
pub(crate) fn begin_as(minor: u32, state: usize, line_of: usize) {
    CURRENT.store(state, Ordering::Relaxed);
    LINE_OF.store(line_of, Ordering::Relaxed);
    VERSION.store(minor, Ordering::Relaxed);
}

/// The version of the interpreter, `x` of 3.x, or 0.
pub(crate) fn minor() -> u32 {
    VERSION.load(Ordering::Relaxed)
}

/// # Safety
///
/// A word of an object that lives.
unsafe fn word(address: usize) -> usize {
    // SAFETY: the caller's.
    unsafe { *(address as *const usize) }
}

/// Whether a thread runs Python, by the interpreter's own account.
pub(crate) fn has_state() -> bool {
    let function = CURRENT.load(Ordering::Relaxed);
    // SAFETY: PyThreadState *PyThreadState_GetUnchecked(void).
    function != 0 && unsafe { core::mem::transmute::<usize, extern "C" fn() -> usize>(function)() } != 0
}

/// The number of the text of this thread's frames and one more, or 0. The caller has the GIL.
pub(crate) fn here(table: &Table) -> u32 {
    let version = VERSION.load(Ordering::Relaxed);
    let Some((_, layout)) = LAYOUTS.iter().find(|(minor, _)| *minor == version) else { return 0 };
    let line_of = LINE_OF.load(Ordering::Relaxed);
    if line_of == 0 {
        return 0;
    }
    // SAFETY: PyThreadState *PyThreadState_GetUnchecked(void), and PyGILState_GetThisThreadState alike; frames of this
    // thread, which runs none of them meanwhile.
    unsafe {
        let state = |function: usize| match function {
            0 => 0,
            function => core::mem::transmute::<usize, extern "C" fn() -> usize>(function)(),
        };
        let state = match state(CURRENT.load(Ordering::Relaxed)) {
            0 => state(THREAD_STATE.load(Ordering::Relaxed)),
            current => current,
        };
        if state == 0 {
            return 0;
        }
        let from = if layout.cframe == 0 { state } else { word(state + layout.cframe) };
        if from == 0 {
            return 0;
        }
        let innermost = word(from + layout.current);
        let mut key = 0u64;
        let count = walk(innermost, layout, |_, code, offset| {
            // Another code may come to lie at the same address; it has another table of lines.
            let instruction = code.wrapping_add(offset) as u64;
            key = (key.rotate_left(23) ^ instruction).wrapping_mul(FACTOR) ^ word(code + layout.lines) as u64;
        });
        let key = (key ^ key >> 32).wrapping_mul(FACTOR) | 1;
        match count {
            0 => 0,
            _ => kept(table, key, innermost, layout, line_of),
        }
    }
}

/// The text with this number, or none.
pub(crate) fn text(table: &Table, site: u32) -> &[u8] {
    let Some(site) = (site as usize).checked_sub(1).and_then(|place| table.sites.get(place)) else { return &[] };
    let text = site.text.load(Ordering::Acquire) as *const u8;
    if text.is_null() {
        return &[];
    }
    // SAFETY: the text of a site, which stays.
    unsafe { core::slice::from_raw_parts(text, site.length.load(Ordering::Relaxed) as usize) }
}

/// Show the innermost frames that have a line: which of them, the code, and the offset of the instruction; how many
/// there are.
///
/// # Safety
///
/// A frame of this thread, or 0.
#[inline(always)]
unsafe fn walk(innermost: usize, layout: &Layout, mut show: impl FnMut(usize, usize, usize)) -> usize {
    let (mut frame, mut count) = (innermost, 0);
    for _ in 0..PASSED {
        if frame == 0 || count == FRAMES {
            break;
        }
        // SAFETY: frames that are linked live as long as the innermost one.
        unsafe {
            // The lowest bits are a tag from 3.14 on.
            let code = word(frame + layout.code) & !3;
            let offset = match layout.unit {
                0 => word(frame + layout.instruction).wrapping_sub(code.wrapping_add(layout.instructions)),
                // Negative before the first instruction.
                unit => (*((frame + layout.instruction) as *const i32) as usize).wrapping_mul(unit),
            };
            frame = word(frame + layout.previous);
            if code != 0 && offset <= 1 << 24 {
                show(count, code, offset);
                count += 1;
            }
        }
    }
    count
}

/// # Safety
///
/// A frame of this thread, and `line_of` is `PyCode_Addr2Line`.
#[inline(always)]
unsafe fn kept(table: &Table, key: u64, innermost: usize, layout: &Layout, line_of: usize) -> u32 {
    let start = (key >> 40) as usize;
    let first = (0..8).map(|step| (start + step) & (FIRST_SITES - 1));
    for place in first.chain((0..32).map(|step| (start + step) & (MOST_SITES - 1))) {
        let Some(site) = table.sites.get(place) else { return 0 };
        let known = site.key.load(Ordering::Acquire);
        if known == key {
            return place as u32 + 1;
        }
        if known != 0 {
            continue;
        }
        match site.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // SAFETY: as the caller's.
                unsafe { write(table, site, innermost, layout, line_of) };
                return place as u32 + 1;
            }
            Err(other) if other == key => return place as u32 + 1,
            Err(_) => {}
        }
    }
    file::placeless(table);
    0
}

/// # Safety
///
/// As of [`kept`].
#[cold]
#[inline(never)]
unsafe fn write(table: &Table, site: &Site, innermost: usize, layout: &Layout, line_of: usize) {
    let mut frames = [[0usize; 2]; FRAMES];
    // SAFETY: the caller's.
    let count = unsafe {
        walk(innermost, layout, |position, code, offset| {
            if let Some(slot) = frames.get_mut(position) {
                *slot = [code, offset];
            }
        })
    };
    // SAFETY: int PyCode_Addr2Line(PyCodeObject *, int); strings of the code; the part of the text is this call's
    // alone.
    unsafe {
        site.told.store(0, Ordering::Relaxed);
        let line_of = core::mem::transmute::<usize, extern "C" fn(usize, c_int) -> c_int>(line_of);
        let mut parts: [(&[u8], &[u8], u32); FRAMES] = [(&[], &[], 0); FRAMES];
        let mut size = 0;
        for ([code, offset], part) in frames.iter().take(count).zip(&mut parts) {
            let line = line_of(*code, *offset as c_int);
            let (file, name) = (word(code + layout.file), word(code + layout.name));
            let (Some(file), Some(name)) = (ascii(file, layout), ascii(name, layout)) else { continue };
            let length = file.len() + name.len() + AROUND;
            if line > 0 && size + length <= LONGEST {
                *part = (file, name, line as u32);
                size += length;
            }
        }
        let start = USED.fetch_add(size as u32, Ordering::Relaxed) as usize;
        if start + size > TEXT {
            USED.store(TEXT as u32, Ordering::Relaxed);
            return file::placeless(table);
        }
        let text = (&raw const table.text).cast::<u8>().cast_mut().add(start);
        let mut out = Out { text, used: 0 };
        for (file, name, line) in parts.into_iter().filter(|(.., line)| *line != 0) {
            out.bytes(file);
            out.byte(WITHIN);
            out.number(line);
            out.byte(WITHIN);
            out.bytes(name);
            out.byte(BETWEEN);
        }
        site.length.store(out.used as u32, Ordering::Relaxed);
        site.text.store(text as u64, Ordering::Release);
    }
}

/// The letters of a `str`, if they are ASCII.
///
/// # Safety
///
/// A `str` that lives, of the interpreter that has [begun](begin).
pub(crate) unsafe fn letters<'s>(string: usize) -> Option<&'s [u8]> {
    let version = VERSION.load(Ordering::Relaxed);
    let (_, layout) = LAYOUTS.iter().find(|(minor, _)| *minor == version)?;
    // SAFETY: the caller's.
    unsafe { ascii(string, layout) }
}

/// The letters of a string, if they are ASCII and follow it.
///
/// # Safety
///
/// A `str` that lives.
unsafe fn ascii<'s>(string: usize, layout: &Layout) -> Option<&'s [u8]> {
    // SAFETY: `PyASCIIObject`: length at 16, state at 32; compact and ascii are its bits 5 and 6.
    unsafe {
        let (length, state) = (word(string + 16), word(string + 32) >> 5);
        (state & 3 == 3 && length < LONGEST)
            .then(|| core::slice::from_raw_parts((string + layout.letters) as *const u8, length))
    }
}

/// A text that is written.
struct Out {
    text: *mut u8,
    used: usize,
}

impl Out {
    fn byte(&mut self, byte: u8) {
        // SAFETY: the caller has checked the room.
        unsafe { *self.text.add(self.used) = byte };
        self.used += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    fn number(&mut self, mut number: u32) {
        let mut digits = [0u8; 10];
        let mut count = 0;
        for digit in &mut digits {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
            count += 1;
            if number == 0 {
                break;
            }
        }
        digits.iter().take(count).rev().for_each(|digit| self.byte(*digit));
    }
}
