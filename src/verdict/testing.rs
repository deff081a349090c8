//! Pieces of reports for tests.

use crate::origin::{NativeCode, PythonFolders, of_module};
use crate::symbols::Mangling;
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

/// A frame of this kind at line 7 of its file, with a plain name.
pub(super) fn frame(kind: FrameKind, function: &str, file: Option<&str>, module: Option<&str>) -> Frame {
    mangled(kind, function, file, module, Mangling::Plain)
}

/// The same, with a name that was mangled so.
pub(super) fn mangled(
    kind: FrameKind,
    function: &str,
    file: Option<&str>,
    module: Option<&str>,
    mangling: Mangling,
) -> Frame {
    let code = NativeCode { function: Some(function), mangling, file };
    let origin = match kind {
        FrameKind::Python => file.map(|file| folders().of(file)).unwrap_or_default(),
        _ => code.origin(&module.map(of_module).unwrap_or_default()),
    };
    Frame {
        module: module.map(Into::into),
        mangling,
        file: file.map(Into::into),
        line: file.map(|_| 7),
        origin,
        ..Frame::of(kind, (!function.is_empty()).then(|| function.into()))
    }
}
