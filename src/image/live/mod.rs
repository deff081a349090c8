//! Live capture.
pub(crate) mod sys;
