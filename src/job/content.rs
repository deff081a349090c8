//! Names of things by their content.
//!
//! In: bytes. Out: a number that no other content has by chance. It keeps nobody from making two that have the same.

/// 128 bits of FNV-1a: names that do not meet by chance.
pub(super) fn hash(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
