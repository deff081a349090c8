//! Errors of GPUs that NVIDIA's driver in the kernel has written into the kernel's log, by their number: Xid.
//!
//! In: messages of the kernel. Out: [`DriverError`]s, plain data, and what each number means. It reads no file.

// Its input is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use serde::{Deserialize, Serialize};

/// One such message: `NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverError {
    /// When it was written, in milliseconds since the machine began.
    pub at_ms: u64,
    /// Where the GPU is on the machine: `0000:65:00`.
    pub bus: String,
    /// The number of its device file, where the driver says it.
    #[serde(default)]
    pub device: Option<u32>,
    /// The number of the error.
    pub number: u32,
    /// Whose work it was, by the process's id on the machine.
    #[serde(default)]
    pub pid: Option<i32>,
}

/// The meaning of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// In words, of the GPU.
    pub words: &'static str,
    /// It does nothing any more until it, or the machine, is reset.
    pub is_the_end: bool,
}

const fn of_a_kernel(words: &'static str) -> Meaning {
    Meaning { words, is_the_end: false }
}

const fn of_the_device(words: &'static str) -> Meaning {
    Meaning { words, is_the_end: true }
}

/// NVIDIA's list, "XID Errors" (docs.nvidia.com/deploy/xid-errors). Seen with driver 580.159.04 on an H100: 31 after an illegal address,
/// 43 when a process is ended by a core of its GPU or by a trap.
const MEANINGS: &[(u32, Meaning)] = &[
    (13, of_a_kernel("a kernel failed: a graphics engine exception")),
    (31, of_a_kernel("a kernel failed: it used an address that is not mapped")),
    (43, of_a_kernel("it stopped the work of the process after an error")),
    (45, of_a_kernel("it cleaned up after an earlier error, or the end, of the process")),
    (48, of_a_kernel("a double-bit error of its memory")),
    (62, of_the_device("its micro-controller has halted")),
    (63, of_a_kernel("it takes a row of its memory out of use")),
    (64, of_a_kernel("it could not take a row of its memory out of use")),
    (74, of_a_kernel("an error of NVLink")),
    (79, of_the_device("it has fallen off the bus")),
    (94, of_a_kernel("an error of its memory, contained in the process")),
    (95, of_the_device("an error of its memory that could not be contained")),
    (109, of_a_kernel("it could not switch between contexts in time")),
    (119, of_the_device("its own processor (GSP) does not answer")),
    (120, of_the_device("its own processor (GSP) has failed")),
];

impl DriverError {
    /// From a message of the kernel that was written at that time; `None` for any other.
    pub(crate) fn parse(message: &str, at_ms: u64) -> Option<DriverError> {
        let (bus, rest) = message.trim().strip_prefix("NVRM: Xid (PCI:")?.split_once("): ")?;
        let mut words = rest.split(',').map(str::trim);
        let number = words.next()?.parse().ok()?;
        // The pid of an error without a process is <unknown>; older drivers put it into quotes.
        let pid = words.find_map(|word| word.strip_prefix("pid="));
        let pid = pid.and_then(|pid| pid.trim_matches(['\'', '"']).parse().ok());
        let is_address = !bus.is_empty() && bus.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
        is_address.then(|| DriverError { at_ms, bus: bus.to_owned(), device: None, number, pid })
    }

    /// The meaning, where it is known.
    pub(crate) fn meaning(&self) -> Option<Meaning> {
        MEANINGS.iter().find(|(number, _)| *number == self.number).map(|(_, meaning)| *meaning)
    }

    /// Whether the device does nothing any more.
    pub(crate) fn is_the_end(&self) -> bool {
        self.meaning().is_some_and(|meaning| meaning.is_the_end)
    }

    /// "Xid 79 for the GPU at 0000:65:00: it has fallen off the bus".
    pub(crate) fn told(&self) -> String {
        let words = self.meaning().map(|meaning| format!(": {}", meaning.words)).unwrap_or_default();
        format!("Xid {} for the GPU at {}{words}", self.number, self.bus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_drivers_write_them() {
        let real = "NVRM: Xid (PCI:0000:00:06): 31, pid=574, name=kernels, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE \
                    GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x8fbb_b5e00000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE";
        let found = DriverError::parse(real, 53_428).expect("an error");
        assert_eq!((found.bus.as_str(), found.number, found.pid), ("0000:00:06", 31, Some(574)));
        assert!(!found.is_the_end());
        let lost = DriverError::parse(
            "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            1,
        );
        let lost = lost.expect("an error");
        assert_eq!((lost.pid, lost.is_the_end()), (None, true));
        assert_eq!(lost.told(), "Xid 79 for the GPU at 0000:65:00: it has fallen off the bus");
        assert_eq!(
            DriverError::parse("NVRM: Xid (PCI:0000:65:00): 9999, pid=1", 1).unwrap().told(),
            "Xid 9999 for the GPU at 0000:65:00"
        );
        for other in ["", "NVRM: Xid (PCI:", "NVRM: Xid (PCI:x y): 1", "NVRM: Xid (PCI:0): x", "eth0: link is up"] {
            assert_eq!(DriverError::parse(other, 1), None, "{other}");
        }
    }
}
