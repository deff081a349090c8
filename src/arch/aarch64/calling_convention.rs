//! How functions are called (AAPCS64, section 6.1).

use super::registers::*;
use crate::arch::Register;

/// The registers that a callee must keep.
pub(in crate::arch) const CALLEE_SAVED: [Register; 11] = [
    Register(19),
    Register(20),
    Register(21),
    Register(22),
    Register(23),
    Register(24),
    Register(25),
    Register(26),
    Register(27),
    Register(28),
    FRAME_POINTER,
];
/// The registers that a callee may change: x0 to x17, and the link register. The platform decides the use of x18.
pub(in crate::arch) const CALLER_SAVED: [Register; 20] = [
    X0,
    X1,
    X2,
    X3,
    X4,
    X5,
    X6,
    X7,
    X8,
    Register(9),
    Register(10),
    Register(11),
    Register(12),
    Register(13),
    Register(14),
    Register(15),
    Register(16),
    Register(17),
    Register(18),
    LINK,
];
/// The registers of the first arguments.
pub(in crate::arch) const ARGUMENTS: [Register; 8] = [X0, X1, X2, X3, X4, X5, X6, X7];
/// The register of the result.
pub(in crate::arch) const RESULT: Register = X0;
/// The register that brings the address of a result which registers cannot hold (AAPCS64, section 6.9).
pub(in crate::arch) const RESULT_ADDRESS: Register = X8;
/// The return address is in the link register.
pub(in crate::arch) const BYTES_OF_CALL: u64 = 0;
/// No data below the stack pointer is in use (AAPCS64, section 6.4.5.1).
pub(in crate::arch) const RED_ZONE: u64 = 0;
