//! Threads as a person reads them: native and Python frames in one list.
//!
//! In: native stacks, names, the Python walk. Out: [`Thread`]s. The merging rule (by address, see
//! [`merge()`]) puts each eval loop's Python frames where its C frame stands.

mod alike;
mod merge;
mod names;
mod roles;

use std::sync::Arc;

use crate::origin::Origin;
use crate::unwind::{NativeStack, StackEnd};
pub(crate) use alike::Alike;
pub(crate) use merge::{merge, merge_again};
pub(crate) use names::missing as missing_names;
pub(crate) use roles::{RUST_TESTS, Role, RoleFinder};

/// A thread with its merged stack.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    /// Thread id in lockscope's own namespace.
    pub tid: i32,
    /// Name from `threading`, else the kernel's.
    pub name: String,
    /// The native stack with registers, for the decoders.
    pub native: NativeStack,
    /// Position in [`Python::threads`](crate::python::Python::threads), if it runs Python.
    pub python: Option<usize>,
    /// Merged frames, innermost first.
    pub frames: Vec<Frame>,
}

impl Thread {
    /// Whether its native stack was unwound to its end, with no frame that is a guess.
    pub(crate) fn is_unwound(&self) -> bool {
        self.native.end == StackEnd::Bottom && self.native.frames.iter().all(|frame| frame.trust.is_certain())
    }
}

/// The kind of a merged frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// A C, C++ or Rust function.
    Native,
    /// A call that the compiler inlined into the native frame after it.
    Inline,
    /// A Python function.
    Python,
    /// A mark without code: frames are missing here, or their order is approximate.
    Boundary,
}

/// One merged frame.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    /// The kind.
    pub kind: FrameKind,
    /// Function name; `None` prints as module+offset.
    pub function: Option<Arc<str>>,
    /// How the symbol that names a native function is mangled; `Unknown` for other frames.
    pub mangling: crate::symbols::Mangling,
    /// Module's file name.
    pub module: Option<Arc<str>>,
    /// Offset of `pc` from the module's start, for frames without a name.
    pub module_offset: Option<u64>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Source line.
    pub line: Option<u32>,
    /// Instruction pointer.
    pub pc: Option<crate::image::Addr>,
    /// How the native frame was found.
    pub trust: Option<crate::unwind::Trust>,
    /// Position of the native frame in [`Thread::native`].
    pub native: Option<usize>,
    /// Address of the frame that a Python frame was read from.
    pub python: Option<crate::image::Addr>,
    /// Local variables of a Python frame, on request.
    pub locals: Vec<(String, String)>,
    /// Whose code it runs.
    pub origin: Origin,
}

impl Frame {
    /// A frame of this kind in a function, without further facts.
    pub(crate) fn of(kind: FrameKind, function: Option<Arc<str>>) -> Frame {
        Frame {
            kind,
            function,
            mangling: crate::symbols::Mangling::Unknown,
            module: None,
            module_offset: None,
            file: None,
            line: None,
            pc: None,
            trust: None,
            native: None,
            python: None,
            locals: Vec::new(),
            origin: Origin::default(),
        }
    }
}
