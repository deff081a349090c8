//! Messages that a digest keeps the beginning of.
//!
//! In: a message. Out: as much of it as a digest has room for.

use crate::limits::job::LONGEST_MESSAGE;

/// The beginning of a long message.
pub(super) fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((end, _)) => format!("{}...", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}
