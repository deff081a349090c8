//! Pieces of reports for tests.

use crate::symbols::Mangling;
use crate::threads::{Frame, FrameKind};

/// A frame of this kind at line 7 of its file.
pub(super) fn frame(kind: FrameKind, function: &str, file: Option<&str>, module: Option<&str>) -> Frame {
    Frame {
        kind,
        function: (!function.is_empty()).then(|| function.into()),
        mangling: Mangling::Unknown,
        module: module.map(Into::into),
        module_offset: None,
        file: file.map(Into::into),
        line: file.map(|_| 7),
        pc: None,
        trust: None,
        native: None,
        python: None,
        locals: Vec::new(),
    }
}
