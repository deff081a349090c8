//! Addresses inside the target. A newtype, so that they are never confused with file offsets, sizes or local pointers.

use std::fmt;
use std::ops::{Add, Sub};

/// An address in the target's address space. Arithmetic wraps: foreign words may hold anything, and the read
/// that follows is checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Addr(pub u64);

impl Addr {
    /// Whether it is the null pointer.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// `self + delta`, wrapping.
    pub fn offset(self, delta: i64) -> Addr {
        Addr(self.0.wrapping_add_signed(delta))
    }

    /// Whether `self` lies in `[start, start + size)`.
    pub fn within(self, start: Addr, size: u64) -> bool {
        self.0.wrapping_sub(start.0) < size
    }
}

impl Add<u64> for Addr {
    type Output = Addr;
    fn add(self, delta: u64) -> Addr {
        Addr(self.0.wrapping_add(delta))
    }
}

impl Sub<u64> for Addr {
    type Output = Addr;
    fn sub(self, delta: u64) -> Addr {
        Addr(self.0.wrapping_sub(delta))
    }
}

impl Sub<Addr> for Addr {
    type Output = u64;
    fn sub(self, other: Addr) -> u64 {
        self.0.wrapping_sub(other.0)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
