//! Names of things by their content.
//!
//! In: bytes, or a value that is written as JSON. Out: a number that no other content has by chance. It keeps nobody from making two that
//! have the same.

use std::io::{self, Write};

use serde::Serialize;

/// Where FNV-1a of 128 bits begins, and what it multiplies by.
const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// 128 bits of FNV-1a: names that do not meet by chance.
pub(super) fn hash(bytes: &[u8]) -> u128 {
    continued(BASIS, bytes)
}

fn continued(hash: u128, bytes: &[u8]) -> u128 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// The name of a value by the JSON of it, which is nowhere kept.
pub(super) fn name(value: &impl Serialize) -> String {
    let mut hasher = Hasher(BASIS);
    // A value of these types is always JSON, and no byte of it is refused.
    let _ = serde_json::to_writer(&mut hasher, value);
    format!("{:032x}", hasher.0)
}

/// Hashes everything that is written to it.
struct Hasher(u128);

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = continued(self.0, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
