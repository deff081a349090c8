//! In py-spy's place where lockscope was built without it: the reason why what it adds is missing.

use crate::image::ProcessImage;
use crate::python::Python;

/// Why nothing was added.
pub(super) fn add(_pid: i32, _python: &mut Python, _locals: bool) -> Result<(), String> {
    Err(left_out())
}

/// Why no thread was found.
pub(super) fn threads(_image: &ProcessImage, _python: &mut Python) -> Result<(), String> {
    Err(left_out())
}

fn left_out() -> String {
    "py-spy reads them, and this lockscope was built without it (the feature `py-spy`)".to_owned()
}
