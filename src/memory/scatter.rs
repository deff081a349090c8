//! Maps and sets by address: what analysis looks up most.
//!
//! In: addresses, and whole numbers that stand for such. Out: a hash that costs a multiplication.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use super::Addr;

/// Values by address.
pub(crate) type AddrMap<Value> = HashMap<Addr, Value, Scatter>;
/// Addresses without an order.
pub(crate) type AddrSet = HashSet<Addr, Scatter>;

/// Hashes addresses: a sample needs some hundred thousand hashes, and the hash of the standard library took a quarter
/// of the time of a read of memory. The factor differs each time, so that no target can choose addresses of one hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scatter(u64);

impl Default for Scatter {
    fn default() -> Scatter {
        Scatter(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for Scatter {
    type Hasher = Scattered;
    fn build_hasher(&self) -> Scattered {
        Scattered { factor: self.0, hash: 0 }
    }
}

/// The hash of one address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scattered {
    factor: u64,
    hash: u64,
}

impl Hasher for Scattered {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.hash ^ number).wrapping_mul(self.factor);
        self.hash = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
