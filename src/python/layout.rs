//! Where CPython keeps what: offsets by version.
//!
//! In: the version, and from 3.13 on the running build's own table (`_Py_DebugOffsets`). Out: a [`Layout`], in bytes, the same for
//! x86-64 and aarch64 but for what stands behind a mutex of the C library.
//!
//! scripts/check/python-layouts.py checks all sources. x86-64: DWARF of 3.7.16, 3.8.18, 3.9.18, 3.10.13, 3.11.7 and
//! 3.12.1 as built by pyenv, each confirmed on a live process. 3.13.0, 3.13.18, 3.14.10 and 3.15.2 describe most of
//! their own offsets. aarch64 (scripts/check/aarch64-layouts): DWARF of Debian's 3.9.2, 3.11.2, 3.13.5, 3.13.18,
//! 3.14.10 and 3.15.2. Debian does not carry 3.8.18, 3.10.13 and 3.12.1, and 3.13, 3.14 and 3.15 without a GIL. Their
//! source is CPython's headers compiled for it. Only 3.13 was seen running there.

use crate::image::{Addr, Fault, Memory, MemoryExt};
use crate::limits::python::LARGEST_STRUCTURE;

/// How Python frames are tied to the C stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchors {
    /// One C activation a frame and nothing that names its place (up to 3.9).
    None,
    /// A `CFrame` on the C stack for each frame (3.10).
    CFramePerFrame,
    /// A `_PyCFrame` for each run of frames that ends in one with `is_entry` (3.11).
    CFramePerEntry,
    /// A shim frame on the C stack ends each run (3.12 on).
    Shims,
}

/// How instruction and line are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineTable {
    /// `co_lnotab`, `f_lasti` in bytes (up to 3.9).
    Lnotab,
    /// `co_linetable` of pairs, `f_lasti` in units of two bytes (3.10).
    Pairs,
    /// `co_linetable` of locations, the instruction as a pointer (3.11 on).
    Locations,
}

/// Where an instance of a class written in Python has its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// A dictionary at `tp_dictoffset` (up to 3.10).
    DictOffset,
    /// Values pointed to from 32 bytes before the object, or a dictionary from 24 bytes before (3.11).
    ValuesBefore,
    /// One word 24 bytes before: the lowest bit set, values at the word plus one; else a dictionary (3.12).
    TaggedBefore,
    /// A dictionary from 24 bytes before; without one, values behind the object (3.13 on).
    InlineAfter,
}

/// How `PyDictKeysObject` says its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DictKeys {
    /// `dk_size` slots; entries have a hash (up to 3.10).
    Size,
    /// Logarithms of the sizes and a kind; only general tables have hashes (3.11 on).
    Logarithm,
}

/// Offsets of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) anchors: Anchors,
    pub(crate) line_table: LineTable,
    /// In `_PyRuntime`.
    pub(crate) interpreters_head: u64,
    pub(crate) finalizing: u64,
    /// GIL inside `_PyRuntime` (up to 3.11).
    pub(crate) runtime_gil: Option<u64>,
    /// Pointer to the GIL inside the interpreter (3.12 on).
    pub(crate) interpreter_gil: Option<u64>,
    pub(crate) interpreter_next: u64,
    pub(crate) interpreter_id: u64,
    pub(crate) interpreter_threads: u64,
    pub(crate) interpreter_modules: u64,
    pub(crate) thread_next: u64,
    pub(crate) thread_interpreter: u64,
    /// `frame`, `current_frame`; with [`Anchors::CFramePerEntry`] and 3.12 reached through `cframe`.
    pub(crate) thread_frame: u64,
    pub(crate) thread_cframe: Option<u64>,
    /// In the `_PyCFrame`: newest frame (3.11, 3.12) and the next outer one.
    pub(crate) cframe_frame: Option<u64>,
    pub(crate) cframe_previous: u64,
    pub(crate) thread_ident: u64,
    pub(crate) thread_native_id: Option<u64>,
    /// `exc_info`: the exception that is handled now, as a list.
    pub(crate) thread_exceptions: u64,
    /// Where an entry of that list has the exception, and where the next one.
    pub(crate) exception_value: u64,
    pub(crate) exception_next: u64,
    /// Size of the thread state: an anchor inside it is the root and on no stack.
    pub(crate) thread_size: u64,
    pub(crate) frame_code: u64,
    pub(crate) frame_previous: u64,
    pub(crate) frame_instruction: u64,
    pub(crate) frame_owner: Option<u64>,
    pub(crate) frame_is_entry: Option<u64>,
    pub(crate) code_file: u64,
    pub(crate) code_name: u64,
    pub(crate) code_qualified_name: Option<u64>,
    pub(crate) code_first_line: u64,
    pub(crate) code_line_table: u64,
    pub(crate) code_instructions: u64,
    /// Size of PyASCIIObject and of PyCompactUnicodeObject: where the characters begin.
    pub(crate) unicode_ascii: u64,
    pub(crate) unicode_compact: u64,
    pub(crate) attributes: Attributes,
    pub(crate) dict_keys: DictKeys,
    /// Bytes before the first of split values.
    pub(crate) dict_values_header: u64,
    /// `PyHeapTypeObject.ht_cached_keys`.
    pub(crate) heap_type_keys: u64,
    /// `lv_tag` instead of `ob_size` in integers.
    pub(crate) tagged_integers: bool,
    /// Size of `PyObject`: 16, or 32 in a build without a GIL. The type is the last word of it.
    pub(crate) head: u64,
    /// `PyTupleObject.ob_item`: from 3.14 on a hash stands before the items.
    pub(crate) tuple_items: u64,
    /// Copies of the instructions of each thread, in a build without a GIL: in the frame and in the code (3.14 on).
    pub(crate) copies: Option<Copies>,
    pub(crate) values: ValueLayout,
    /// Builds without a GIL only.
    pub(crate) free_threaded: Option<FreeThreaded>,
}

/// The substitute for the GIL in a build without one [DWARF of 3.13.5t; headers of 3.13.5, 3.13.18, 3.14.10 and
/// 3.15.2].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeThreaded {
    /// `_stoptheworld_state` in `_PyRuntime`: at one of these, as it moved within a minor version.
    pub(crate) runtime_stop: &'static [u64],
    /// The same in the interpreter, behind [`stop::MUTEXES_BEFORE`].
    pub(crate) interpreter_stop: u64,
    /// `PyThreadState.state`.
    pub(crate) thread_state: u64,
    /// `PyThreadState.critical_section`.
    pub(crate) thread_critical_section: u64,
}

/// `struct _stoptheworld_state` [DWARF of 3.13.5t].
pub(crate) mod stop {
    pub(crate) const REQUESTED: u64 = 1;
    pub(crate) const STOPPED: u64 = 2;
    /// 1 in the runtime's, from its initialiser on (Include/internal/pycore_runtime_init.h).
    pub(crate) const IS_GLOBAL: u64 = 3;
    pub(crate) const EVENT: u64 = 4;
    pub(crate) const COUNTDOWN: u64 = 8;
    pub(crate) const REQUESTER: u64 = 16;
    /// Mutexes of the C library that stand before it in the interpreter: those of its GIL.
    pub(crate) const MUTEXES_BEFORE: u64 = 2;
    /// Their size in the rows.
    pub(crate) const MUTEX: u64 = 40;
}

/// `_PyInterpreterFrame.tlbc_index`, `PyCodeObject.co_tlbc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copies {
    pub(crate) frame_index: u64,
    pub(crate) code_copies: u64,
}

/// How a frame says which part of its value stack is certainly alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// A pointer to the value stack; blocks that were entered, and their number (up to 3.10).
    Blocks { stack: u64, count: u64, blocks: u64 },
    /// A table of the code's protected ranges with the depth of the stack in each; how many local variables lie below the
    /// stack (3.11 on).
    Ranges { table: u64, variables: u64 },
}

/// Where a frame that does not run keeps the top of its value stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackTop {
    /// `f_stacktop` (up to 3.9), `stackpointer` (3.14 on).
    Pointer(u64),
    /// `f_stackdepth`: slots (3.10).
    Depth(u64),
    /// `stacktop`: slots and variables (3.11 to 3.13).
    DepthAndVariables(u64),
}

/// Where the names of local variables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalNames {
    /// `co_varnames`, `co_cellvars`, `co_freevars` (up to 3.10).
    Three([u64; 3]),
    /// `co_localsplusnames` (3.11 on).
    One(u64),
}

/// Where a generator has its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GeneratorFrame {
    /// A pointer, null when it has ended (up to 3.10).
    Pointer(u64),
    /// Inside the generator; `gi_frame_state` before it (3.11 on).
    Inside { frame: u64, state: u64 },
}

/// The contents of a frame: offsets in `PyFrameObject` or `_PyInterpreterFrame`, `PyCodeObject` and `PyGenObject`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueLayout {
    pub(crate) frame_locals: u64,
    pub(crate) frame_globals: u64,
    pub(crate) liveness: Liveness,
    pub(crate) stack_top: StackTop,
    pub(crate) code_stack_size: u64,
    pub(crate) local_names: LocalNames,
    /// `co_names`: what the code calls globals and attributes.
    pub(crate) code_names: u64,
    /// `__exit__` and its object in two slots, instead of a bound method in one (3.14 on).
    pub(crate) exit_and_object: bool,
    pub(crate) generator: GeneratorFrame,
    /// `PyFunctionObject.func_name`.
    pub(crate) function_name: u64,
}

/// `struct _gil_runtime_state`, the same from 3.7 to 3.15 [DWARF and live].
pub(crate) mod gil {
    pub(crate) const INTERVAL: u64 = 0;
    pub(crate) const LAST_HOLDER: u64 = 8;
    pub(crate) const LOCKED: u64 = 16;
    pub(crate) const SWITCH_NUMBER: u64 = 24;
    pub(crate) const COND: u64 = 32;
    /// Its size is that of the machine's C library; `switch_cond` stands right behind.
    pub(crate) const MUTEX: u64 = 80;
    /// In a build without a GIL a word stands before all these, which says whether it has one after all.
    pub(crate) const ENABLED: u64 = 0;
    pub(crate) const AFTER_ENABLED: u64 = 8;
}

/// `owner` of a shim frame: FRAME_OWNED_BY_CSTACK (3.12, 3.13), FRAME_OWNED_BY_INTERPRETER (3.14 on).
pub(crate) const OWNER_SHIM: u8 = 3;

/// 3.7.16 [DWARF, live].
const V3_7: Layout = Layout {
    anchors: Anchors::None,
    line_table: LineTable::Lnotab,
    interpreters_head: 24,
    finalizing: 8,
    runtime_gil: Some(1264),
    interpreter_gil: None,
    interpreter_next: 0,
    interpreter_id: 16,
    interpreter_threads: 8,
    interpreter_modules: 40,
    thread_next: 8,
    thread_interpreter: 16,
    thread_frame: 24,
    thread_cframe: None,
    cframe_frame: None,
    cframe_previous: 8,
    thread_ident: 176,
    thread_native_id: None,
    thread_exceptions: 144,
    exception_value: 8,
    exception_next: 24,
    thread_size: 280,
    frame_code: 32,
    frame_previous: 24,
    frame_instruction: 104,
    frame_owner: None,
    frame_is_entry: None,
    code_file: 96,
    code_name: 104,
    code_qualified_name: None,
    code_first_line: 36,
    code_line_table: 112,
    code_instructions: 40,
    unicode_ascii: 48,
    unicode_compact: 72,
    attributes: Attributes::DictOffset,
    dict_keys: DictKeys::Size,
    dict_values_header: 0,
    heap_type_keys: 856,
    tagged_integers: false,
    head: 16,
    tuple_items: 24,
    copies: None,
    values: ValueLayout {
        frame_locals: 360,
        frame_globals: 48,
        liveness: Liveness::Blocks { stack: 64, count: 112, blocks: 120 },
        stack_top: StackTop::Pointer(72),
        code_stack_size: 28,
        local_names: LocalNames::Three([64, 80, 72]),
        code_names: 56,
        exit_and_object: false,
        generator: GeneratorFrame::Pointer(16),
        function_name: 64,
    },
    free_threaded: None,
};

/// 3.8.18 [DWARF, live].
const V3_8: Layout = Layout {
    interpreters_head: 32,
    finalizing: 16,
    runtime_gil: Some(1152),
    interpreter_modules: 56,
    thread_size: 264,
    code_file: 104,
    code_name: 112,
    code_first_line: 40,
    code_line_table: 120,
    code_instructions: 48,
    heap_type_keys: 872,
    values: ValueLayout {
        code_stack_size: 32,
        local_names: LocalNames::Three([72, 88, 80]),
        code_names: 64,
        ..V3_7.values
    },
    ..V3_7
};

/// 3.9.18 [DWARF, live].
const V3_9: Layout =
    Layout { runtime_gil: Some(352), interpreter_id: 24, interpreter_modules: 856, heap_type_keys: 864, ..V3_8 };

/// 3.10.13 [DWARF, live].
const V3_10: Layout = Layout {
    anchors: Anchors::CFramePerFrame,
    line_table: LineTable::Pairs,
    thread_cframe: Some(48),
    thread_size: 280,
    frame_instruction: 96,
    heap_type_keys: 872,
    values: ValueLayout {
        frame_locals: 352,
        liveness: Liveness::Blocks { stack: 64, count: 104, blocks: 112 },
        stack_top: StackTop::Depth(80),
        function_name: 32,
        ..V3_8.values
    },
    ..V3_9
};

/// 3.11.7 [DWARF, live].
const V3_11: Layout = Layout {
    anchors: Anchors::CFramePerEntry,
    line_table: LineTable::Locations,
    interpreters_head: 40,
    finalizing: 24,
    runtime_gil: Some(360),
    interpreter_id: 48,
    interpreter_threads: 16,
    interpreter_modules: 888,
    thread_cframe: Some(56),
    cframe_frame: Some(8),
    cframe_previous: 16,
    thread_ident: 152,
    thread_native_id: Some(160),
    thread_exceptions: 120,
    exception_value: 0,
    exception_next: 8,
    thread_size: 360,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_owner: Some(69),
    frame_is_entry: Some(68),
    code_file: 112,
    code_name: 120,
    code_qualified_name: Some(128),
    code_first_line: 72,
    code_line_table: 136,
    code_instructions: 184,
    attributes: Attributes::ValuesBefore,
    dict_keys: DictKeys::Logarithm,
    heap_type_keys: 872,
    values: ValueLayout {
        frame_locals: 72,
        frame_globals: 8,
        liveness: Liveness::Ranges { table: 40, variables: 76 },
        stack_top: StackTop::DepthAndVariables(64),
        code_stack_size: 68,
        local_names: LocalNames::One(96),
        code_names: 32,
        generator: GeneratorFrame::Inside { frame: 80, state: 75 },
        ..V3_10.values
    },
    ..V3_10
};

/// 3.12.1 [DWARF, live].
const V3_12: Layout = Layout {
    anchors: Anchors::Shims,
    runtime_gil: None,
    interpreter_gil: Some(384),
    interpreter_id: 8,
    interpreter_threads: 72,
    interpreter_modules: 944,
    cframe_frame: Some(0),
    cframe_previous: 8,
    thread_ident: 136,
    thread_native_id: Some(144),
    thread_exceptions: 104,
    thread_size: 288,
    frame_code: 0,
    frame_previous: 8,
    frame_owner: Some(70),
    frame_is_entry: None,
    code_first_line: 68,
    code_instructions: 192,
    unicode_ascii: 40,
    unicode_compact: 56,
    attributes: Attributes::TaggedBefore,
    heap_type_keys: 880,
    tagged_integers: true,
    values: ValueLayout {
        frame_globals: 24,
        liveness: Liveness::Ranges { table: 40, variables: 72 },
        code_stack_size: 64,
        generator: GeneratorFrame::Inside { frame: 72, state: 67 },
        ..V3_11.values
    },
    ..V3_11
};

/// Versions with a fixed table, newest first.
pub(crate) const FIXED: [((u8, u8), &Layout); 6] =
    [((3, 12), &V3_12), ((3, 11), &V3_11), ((3, 10), &V3_10), ((3, 9), &V3_9), ((3, 8), &V3_8), ((3, 7), &V3_7)];

/// A build's description of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfDescription {
    pub(crate) version: (u8, u8, u8),
    pub(crate) free_threaded: bool,
    /// `None` for a version newer than those known.
    pub(crate) layout: Option<Layout>,
}

/// Word positions in `_Py_DebugOffsets`; the groups grow between minor versions.
struct Words {
    thread: usize,
    ident: usize,
    native_id: usize,
    frame: usize,
    code: usize,
    ceval_gil: usize,
    interpreter_modules: usize,
    tuple_items: usize,
}

/// Major, minor and micro of a `PY_VERSION_HEX`, which has 32 bits.
pub(super) fn version_of(hex: u64) -> (u8, u8, u8) {
    let [.., major, minor, micro, _] = hex.to_be_bytes();
    (major, minor, micro)
}

/// Read `_Py_DebugOffsets` at the start of `_PyRuntime` (3.13 on); `Ok(None)` when there is none.
pub(crate) fn self_description(memory: &dyn Memory, runtime: Addr) -> Result<Option<SelfDescription>, Fault> {
    const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
    if memory.u64(runtime)? != COOKIE {
        return Ok(None);
    }
    let mut table = [0u64; 112];
    for (position, word) in table.iter_mut().enumerate() {
        *word = memory.u64(runtime + position as u64 * 8)?;
    }
    // Every index below is a small constant: a word that is not there would be zero, as an unused one is.
    let word = |index: usize| table.get(index).copied().unwrap_or(0);
    let hex = word(1);
    let version = version_of(hex);
    // Include/internal/pycore_debug_offsets.h of 3.13.0, 3.14.10, 3.15.2.
    let words = match version {
        (3, 13, _) => Words {
            thread: 19,
            ident: 24,
            native_id: 25,
            frame: 28,
            code: 34,
            ceval_gil: 14,
            interpreter_modules: 11,
            tuple_items: 51,
        },
        (3, 14, _) => Words {
            thread: 22,
            ident: 27,
            native_id: 28,
            frame: 31,
            code: 39,
            ceval_gil: 15,
            interpreter_modules: 12,
            tuple_items: 57,
        },
        (3, 15, _) => Words {
            thread: 22,
            ident: 30,
            native_id: 31,
            frame: 39,
            code: 47,
            ceval_gil: 15,
            interpreter_modules: 12,
            tuple_items: 69,
        },
        _ => return Ok(Some(SelfDescription { version, free_threaded: word(2) != 0, layout: None })),
    };
    let free_threaded = word(2) != 0;
    // A build without a GIL keeps a thread's id, a mutex and two counts in each object before its type.
    let head = if free_threaded { 32 } else { 16 };
    let more = head - V3_12.head;
    let layout = Layout {
        interpreters_head: word(5),
        finalizing: word(4),
        interpreter_gil: Some(word(words.ceval_gil)),
        interpreter_id: word(7),
        interpreter_next: word(8),
        interpreter_threads: word(9),
        interpreter_modules: word(words.interpreter_modules),
        thread_size: word(words.thread),
        thread_next: word(words.thread + 2),
        thread_interpreter: word(words.thread + 3),
        thread_frame: word(words.thread + 4),
        thread_cframe: None,
        cframe_frame: None,
        // Behind the words about frames, which are described before the thread's id, stand four of tracing and the
        // exception that is being raised (Include/cpython/pystate.h of 3.13 to 3.15).
        thread_exceptions: word(words.ident - 1).wrapping_add(48),
        thread_ident: word(words.ident),
        thread_native_id: Some(word(words.native_id)),
        frame_previous: word(words.frame + 1),
        frame_code: word(words.frame + 2),
        frame_instruction: word(words.frame + 3),
        frame_owner: Some(word(words.frame + 5)),
        code_file: word(words.code + 1),
        code_name: word(words.code + 2),
        code_qualified_name: Some(word(words.code + 3)),
        code_line_table: word(words.code + 4),
        code_first_line: word(words.code + 5),
        code_instructions: word(words.code + 9),
        attributes: Attributes::InlineAfter,
        dict_values_header: 8,
        // Include/cpython/object.h: 3.15 has a word more before it.
        heap_type_keys: if version.1 >= 15 { 888 } else { 880 } + more,
        unicode_ascii: V3_12.unicode_ascii + more,
        unicode_compact: V3_12.unicode_compact + more,
        head,
        tuple_items: word(words.tuple_items),
        copies: (free_threaded && version.1 >= 14)
            .then(|| Copies { frame_index: word(words.frame + 7), code_copies: word(words.code + 10) }),
        values: ValueLayout {
            frame_locals: word(words.frame + 4),
            liveness: Liveness::Ranges { table: 40 + more, variables: 72 + more },
            stack_top: if version.1 >= 14 { StackTop::Pointer(64) } else { V3_12.values.stack_top },
            code_stack_size: 64 + more,
            local_names: LocalNames::One(word(words.code + 7)),
            code_names: 32 + more,
            exit_and_object: version.1 >= 14,
            generator: GeneratorFrame::Inside { frame: 72 + more, state: 67 + more },
            function_name: 32 + more,
            ..V3_12.values
        },
        free_threaded: free_threaded.then_some(match version.1 {
            13 => FreeThreaded {
                runtime_stop: &[10336, 10360],
                interpreter_stop: 10744,
                thread_state: 40,
                thread_critical_section: 176,
            },
            14 => FreeThreaded {
                runtime_stop: &[10552],
                interpreter_stop: 10848,
                thread_state: 44,
                thread_critical_section: 176,
            },
            _ => FreeThreaded {
                runtime_stop: &[10672],
                interpreter_stop: 10800,
                thread_state: 48,
                thread_critical_section: 200,
            },
        }),
        ..V3_12
    };
    Ok(Some(SelfDescription { version, free_threaded, layout: sane(&layout).then_some(layout) }))
}

/// Offsets that no build has would lead reads astray.
fn sane(layout: &Layout) -> bool {
    [
        layout.interpreters_head,
        layout.interpreter_gil.unwrap_or(0),
        layout.interpreter_next,
        layout.interpreter_threads,
        layout.thread_next,
        layout.thread_frame,
        layout.thread_ident,
    ]
    .iter()
    .all(|offset| *offset < LARGEST_STRUCTURE)
        && layout.frame_owner.is_some_and(|o| o < 96)
        && [layout.frame_code, layout.frame_previous, layout.frame_instruction].iter().all(|o| o + 8 <= 96)
        && layout.values.frame_locals <= 256
        && layout.tuple_items <= 64
        && [
            layout.code_file,
            layout.code_name,
            layout.code_line_table,
            layout.code_first_line,
            layout.code_instructions,
        ]
        .iter()
        .all(|o| *o < 4096)
}
