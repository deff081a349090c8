//! Circumstances that explain a wait but are none: libraries of CUDA in a process, work that a thread gave to the GPU,
//! words that kernels point to, exceptions that threads handle.
//!
//! In: nothing. Out: plain types that families fill and findings read.

use super::model::{Party, ResourceKey};
use crate::image::Addr;
use crate::image::cuda_errors::CudaError;

/// A library of CUDA in a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CudaLibrary {
    /// Position of its process.
    pub process: usize,
    /// Its file's name, as frames give it.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its version, if its file's name contains one: `580.159.04`, `13`.
    pub version: Option<String>,
    /// The versions of kernel drivers that the driver's library works with.
    pub fits: Option<Fits>,
}

/// The note about forward compatibility in the driver's library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fits {
    /// The version of CUDA that it brings: `13.0`.
    pub cuda: String,
    /// Branches of older kernel drivers on which it may run, on hardware that allows it.
    pub branches: Vec<u64>,
}

impl CudaLibrary {
    /// Whether this is the driver's, not the runtime's.
    pub(crate) fn is_driver(&self) -> bool {
        self.name.starts_with("libcuda.so")
    }

    /// The branch of its version: 580 of 580.159.04.
    pub(crate) fn branch(&self) -> Option<u64> {
        branch(self.version.as_deref()?)
    }
}

/// The branch of a driver's version: 580 of 580.159.04.
pub(crate) fn branch(version: &str) -> Option<u64> {
    version.split('.').next()?.parse().ok()
}

/// Work that a thread gave to the GPU before it waits for the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queued {
    /// The thread.
    pub waiter: Party,
    /// The function that did, and the line: "main at hang.c:17".
    pub place: Option<String>,
    /// The call.
    pub call: String,
    /// The work.
    pub work: Work,
}

/// Work for the GPU that may not begin, or end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    /// A kernel all of whose blocks must have room at a time: the symbol of the host's function that stands for it.
    Cooperative(Option<String>),
    /// The stream waits for a word in memory.
    Value {
        /// The stream's handle.
        stream: Option<Addr>,
        /// Where the word is.
        address: Option<Addr>,
        /// Its current value, where it is in the host's memory.
        found: Option<u64>,
        /// Until when.
        condition: Option<Condition>,
    },
}

/// Until when a stream waits for a word (`CUstreamWaitValue_flags` of cuda.h 13.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    size: usize,
    value: u64,
    kind: ConditionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionKind {
    AtLeast,
    Equal,
    AnyBit,
    NotAllBits,
}

impl Condition {
    /// For a word of `size` bytes, by the call's arguments.
    pub(crate) fn new(size: usize, value: u64, flags: u64) -> Option<Condition> {
        /// CU_STREAM_WAIT_VALUE_FLUSH, which says nothing of the condition.
        const FLUSH: u64 = 1 << 30;
        // Flags are an int, and 32 of the register's bits count.
        let kind = match flags & u64::from(u32::MAX) & !FLUSH {
            0 => ConditionKind::AtLeast,
            1 => ConditionKind::Equal,
            2 => ConditionKind::AnyBit,
            3 => ConditionKind::NotAllBits,
            _ => return None,
        };
        let value = if size == 4 { value & u64::from(u32::MAX) } else { value };
        Some(Condition { size, value, kind })
    }

    /// Whether this word fulfils it.
    pub(crate) fn is_met(&self, word: u64) -> bool {
        let difference = word.wrapping_sub(self.value);
        match self.kind {
            // As a number with a sign, of the word's size.
            ConditionKind::AtLeast if self.size == 4 => difference & (1 << 31) == 0,
            ConditionKind::AtLeast => difference & (1 << 63) == 0,
            ConditionKind::Equal => difference == 0,
            ConditionKind::AnyBit => word & self.value != 0,
            ConditionKind::NotAllBits => {
                let all = if self.size == 4 { u64::from(u32::MAX) } else { u64::MAX };
                (word | self.value) & all != all
            }
        }
    }

    /// "is 1", "is 1 or more".
    pub(crate) fn told(&self) -> String {
        let value = self.value;
        match self.kind {
            ConditionKind::AtLeast => format!("is {value} or more"),
            ConditionKind::Equal => format!("is {value}"),
            ConditionKind::AnyBit => format!("has a bit of {value:#x}"),
            ConditionKind::NotAllBits => format!("has no bit that {value:#x} lacks, all taken together"),
        }
    }
}

/// A word in the host's memory whose address a kernel that runs has as an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelWord {
    /// Position of the process.
    pub process: usize,
    /// The kernel.
    pub kernel: ResourceKey,
    /// Which argument, from 1.
    pub argument: usize,
    /// Where the word is.
    pub address: Addr,
    /// Its current value, where it was captured.
    pub word: Option<u32>,
    /// Threads that have the address, in a register or on their stacks.
    pub known_to: Vec<Party>,
}

/// The error that CUDA's runtime keeps for a thread until the program reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastError {
    /// The thread.
    pub thread: Party,
    /// The error.
    pub error: CudaError,
}

/// The last call of a thread into CUDA's driver, by the recorder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DriverCalled {
    /// The thread.
    pub thread: Party,
    /// `cuStreamSynchronize`.
    pub function: String,
    /// The first words that it was given.
    pub arguments: [u64; 4],
    /// How long ago it began, in milliseconds.
    pub since_ms: Option<u64>,
    /// Its result; `None` while the thread is in it.
    pub result: Option<u32>,
    /// The last error that a call of the thread has answered, by which function, and how long ago.
    pub error: Option<(u32, String, Option<u64>)>,
}

/// An exception of Python in whose handler a thread is.
#[derive(Debug, Clone)]
pub(crate) struct Handled {
    /// The thread.
    pub thread: Party,
    /// The exception's class.
    pub class: String,
    /// The exception's first argument, if it is a text.
    pub text: Option<String>,
}

impl Handled {
    /// Whether it reports an error of CUDA: by its class (CudaAPIError, CUDARuntimeError, cudaError) or its text, as
    /// PyTorch's.
    pub(crate) fn is_of_cuda(&self) -> bool {
        let class = self.class.to_ascii_lowercase().contains("cuda");
        class
            || self.text.as_deref().is_some_and(|text| ["CUDA", "cuda", "NCCL"].iter().any(|word| text.contains(word)))
    }

    /// "CudaError: error 700", its first line.
    pub(crate) fn describe(&self) -> String {
        let line = self.text.as_deref().and_then(|text| text.lines().next()).filter(|line| !line.is_empty());
        line.map_or_else(|| self.class.clone(), |line| format!("{}: {line}", self.class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_the_driver() {
        let is_met = |size, value, flags, word| Condition::new(size, value, flags).unwrap().is_met(word);
        assert!(is_met(4, 1, 1, 1) && !is_met(4, 1, 1, 0));
        // Behind a wrap of 32 bits it is still more.
        assert!(is_met(4, 0xffff_ffff, 0, 3) && !is_met(4, 3, 0, 0xffff_ffff) && is_met(8, 3, 0, 0xffff_ffff));
        assert!(is_met(4, 6, 2, 4) && !is_met(4, 6, 2, 1));
        assert!(is_met(4, 6, 3, 1) && !is_met(4, 0xffff_fff0, 3, 0xf));
        assert_eq!(Condition::new(4, 1, 9), None);
        // The upper half of a register does not count, nor does the flush.
        assert_eq!(Condition::new(4, 5 << 32 | 1, 7 << 32 | 1 << 30 | 1), Condition::new(4, 1, 1));
        assert_eq!(Condition::new(8, 2, 0).unwrap().told(), "is 2 or more");
    }
}
