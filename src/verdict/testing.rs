//! Pieces of reports for tests.

use crate::origin::PythonFolders;
use crate::threads::{Frame, FrameKind};

/// Folders of the interpreter that the files of tests name.
fn folders() -> PythonFolders {
    let own = |list: &[&str]| list.iter().map(|folder| (*folder).to_owned()).collect();
    PythonFolders {
        stdlib: own(&["/usr/lib/python3.11", "/usr/lib/python3.12"]),
        packages: own(&["/venv/lib/python3.11/site-packages"]),
        ..PythonFolders::default()
    }
}

/// A frame of this kind at line 7 of its file.
pub(super) fn frame(kind: FrameKind, function: &str, file: Option<&str>, module: Option<&str>) -> Frame {
    Frame {
        module: module.map(Into::into),
        file: file.map(Into::into),
        line: file.map(|_| 7),
        origin: file.filter(|_| kind == FrameKind::Python).map(|file| folders().of(file)).unwrap_or_default(),
        ..Frame::of(kind, (!function.is_empty()).then(|| function.into()))
    }
}
