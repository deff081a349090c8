//! The variables of the environment that say how CUDA and NCCL work, and which rank a process is.
//!
//! In: the strings that the program was started with. Out: those few, so that nothing else of the environment comes into
//! a report or a snapshot. What the program set later is not among them.

// What it reads is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

/// How the names begin.
const NAMES: [&str; 4] = ["CUDA_", "NCCL_", "TORCH_NCCL_", "PYTORCH_CUDA_"];
/// Whole names, as launchers of several ranks set them.
const RANKS: [&str; 2] = ["RANK", "WORLD_SIZE"];

/// The variables, from strings with a 0 byte behind each.
pub(crate) fn relevant(strings: &[u8]) -> Vec<(String, String)> {
    let variable = |bytes: &[u8]| {
        let (name, value) = std::str::from_utf8(bytes).ok()?.split_once('=')?;
        let wanted = RANKS.contains(&name) || NAMES.iter().any(|prefix| name.starts_with(prefix));
        wanted.then(|| (name.to_owned(), value.to_owned()))
    };
    strings.split(|byte| *byte == 0).filter_map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_cuda_is_kept() {
        let strings =
            b"HOME=/root\0RANKING=1\0CUDA_LAUNCH_BLOCKING=1\0SECRET_CUDA_=x\0NCCL_DEBUG=INFO\0CUDA_VISIBLE_DEVICES=";
        let expected = [("CUDA_LAUNCH_BLOCKING", "1"), ("NCCL_DEBUG", "INFO"), ("CUDA_VISIBLE_DEVICES", "")];
        assert_eq!(relevant(strings), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
