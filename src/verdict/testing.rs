//! Pieces of reports for tests.

use crate::threads::{Frame, FrameKind};

/// A frame of this kind at line 7 of its file.
pub(super) fn frame(kind: FrameKind, function: &str, file: Option<&str>, module: Option<&str>) -> Frame {
    Frame {
        module: module.map(Into::into),
        file: file.map(Into::into),
        line: file.map(|_| 7),
        ..Frame::of(kind, (!function.is_empty()).then(|| function.into()))
    }
}
