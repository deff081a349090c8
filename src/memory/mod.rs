//! The one seam between analysis and the target's memory: bytes at an address.
//!
//! In: an address and a length. Out: bytes, or a [`Fault`] that says why not. It promises no snapshot consistency
//! by itself; the implementation says whether its bytes are of one instant.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub(crate) mod address;
mod scatter;

pub use address::Addr;
pub(crate) use scatter::{AddrMap, AddrSet, Scatter};

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No mapping there.
    #[error("{0} is not mapped")]
    Unmapped(Addr),
    /// Mapped, but the capture does not hold it (core filter, thin snapshot, pause budget).
    #[error("{0} was not captured")]
    NotCaptured(Addr),
    /// Mapped, but may not be read: a device mapping, a guard page.
    #[error("{0} may not be read")]
    Denied(Addr),
    /// The process is gone.
    #[error("the process ended before {0} was read")]
    Gone(Addr),
}

/// Bytes at an address.
pub trait Memory: Send + Sync + std::fmt::Debug {
    /// Read up to `buffer.len()` bytes at `address`; the number read is at least 1. A short read means that the
    /// byte after the last one faults.
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault>;
}

/// A size or position of the target's as one of lockscope's own memory: where these are smaller than 64 bits, what does not fit
/// is as much as there can be, which every bound refuses.
pub(crate) fn saturated(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

/// Typed reads over any [`Memory`]. Little-endian words.
pub(crate) trait MemoryExt {
    /// Fill `buffer` or fail.
    fn read_exact(&self, address: Addr, buffer: &mut [u8]) -> Result<(), Fault>;
    /// One byte.
    fn u8(&self, address: Addr) -> Result<u8, Fault>;
    /// Four bytes.
    fn u32(&self, address: Addr) -> Result<u32, Fault>;
    /// Four bytes, signed.
    fn i32(&self, address: Addr) -> Result<i32, Fault>;
    /// Eight bytes.
    fn u64(&self, address: Addr) -> Result<u64, Fault>;
    /// A pointer.
    fn pointer(&self, address: Addr) -> Result<Addr, Fault>;
    /// `length` bytes; refused above 16 MiB, since no structure of the target's is that large.
    fn bytes(&self, address: Addr, length: usize) -> Result<Vec<u8>, Fault>;
    /// A NUL-terminated string of at most `limit` bytes, lossily decoded.
    fn c_string(&self, address: Addr, limit: usize) -> Result<String, Fault>;
}

impl<M: Memory + ?Sized> MemoryExt for M {
    fn read_exact(&self, address: Addr, buffer: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < buffer.len() {
            let at = address + done as u64;
            match self.read(at, buffer.get_mut(done..).unwrap_or_default())? {
                0 => return Err(Fault::Unmapped(at)),
                n => done += n,
            }
        }
        Ok(())
    }

    fn u8(&self, address: Addr) -> Result<u8, Fault> {
        let mut b = [0; 1];
        self.read_exact(address, &mut b)?;
        Ok(b[0])
    }

    fn u32(&self, address: Addr) -> Result<u32, Fault> {
        let mut b = [0; 4];
        self.read_exact(address, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    fn i32(&self, address: Addr) -> Result<i32, Fault> {
        self.u32(address).map(u32::cast_signed)
    }

    fn u64(&self, address: Addr) -> Result<u64, Fault> {
        let mut b = [0; 8];
        self.read_exact(address, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    fn pointer(&self, address: Addr) -> Result<Addr, Fault> {
        self.u64(address).map(Addr)
    }

    fn bytes(&self, address: Addr, length: usize) -> Result<Vec<u8>, Fault> {
        if length > 16 << 20 {
            return Err(Fault::Denied(address));
        }
        let mut b = vec![0; length];
        self.read_exact(address, &mut b)?;
        Ok(b)
    }

    fn c_string(&self, address: Addr, limit: usize) -> Result<String, Fault> {
        let mut text = Vec::new();
        let mut chunk = [0u8; 64];
        while text.len() < limit {
            let got = match self.read(address + text.len() as u64, &mut chunk) {
                Ok(0) => break,
                Ok(n) => n,
                Err(fault) if text.is_empty() => return Err(fault),
                Err(_) => break,
            };
            let got = chunk.get(..got).unwrap_or_default();
            let piece = got.split(|&byte| byte == 0).next().unwrap_or_default();
            text.extend_from_slice(piece);
            if piece.len() < got.len() {
                break;
            }
        }
        text.truncate(limit);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Copy as many of `bytes` as `buffer` has room for; how many.
pub(crate) fn copy_into(buffer: &mut [u8], bytes: &[u8]) -> usize {
    let count = buffer.len().min(bytes.len());
    if let (Some(to), Some(from)) = (buffer.get_mut(..count), bytes.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}
