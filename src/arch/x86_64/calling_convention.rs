//! How functions are called (psABI, section 3.2).

use super::registers::*;
use crate::arch::Register;

/// The registers that a callee must keep.
pub(in crate::arch) const CALLEE_SAVED: [Register; 6] = [RBX, RBP, R12, R13, R14, R15];
/// The registers that a callee may change.
pub(in crate::arch) const CALLER_SAVED: [Register; 9] = [RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11];
/// The registers of the first arguments.
pub(in crate::arch) const ARGUMENTS: [Register; 6] = [RDI, RSI, RDX, RCX, R8, R9];
/// The register of the result.
pub(in crate::arch) const RESULT: Register = RAX;
/// The register that brings the address of a result which registers cannot hold (System V ABI, section 3.2.3).
pub(in crate::arch) const RESULT_ADDRESS: Register = RDI;
/// The return address.
pub(in crate::arch) const BYTES_OF_CALL: u64 = 8;
/// Below the stack pointer.
pub(in crate::arch) const RED_ZONE: u64 = 128;
