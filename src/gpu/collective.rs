//! Kernels of NCCL: which collective they are part of.
//!
//! In: the name of a kernel. Out: [`Collective`]. NCCL names them `ncclDevKernel_AllReduce_Sum_f32_RING_LL`,
//! `ncclDevKernel_Broadcast_RING_LL`, `ncclDevKernel_SendRecv` (src/device/generate.py of NCCL 2.28); before 2.19
//! `ncclKernel_`. A generic one, `ncclDevKernel_Generic_4`, serves several operations and names none.

/// A collective operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Collective {
    /// `AllReduce`, `SendRecv`; `None` of a generic kernel.
    pub operation: Option<String>,
    /// `Sum`.
    pub reduction: Option<String>,
    /// `f32`.
    pub element: Option<String>,
    /// `RING`.
    pub algorithm: Option<String>,
    /// `LL`.
    pub protocol: Option<String>,
}

const PREFIXES: [&str; 2] = ["ncclDevKernel_", "ncclKernel_"];
const OPERATIONS: [&str; 10] = [
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Reduce",
    "Broadcast",
    "SendRecv",
    "AllToAll",
    "AlltoAll",
    "Gather",
    "Scatter",
];
const REDUCTIONS: [&str; 7] = ["Sum", "Prod", "MinMax", "Max", "Min", "PreMulSum", "SumPostDiv"];
const ALGORITHMS: [&str; 7] = ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS_TREE", "NVLS", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL128", "SIMPLE", "LL"];

impl Collective {
    /// The collective of a kernel's symbol.
    pub(super) fn of(symbol: &str) -> Option<Collective> {
        let (at, prefix) = PREFIXES.iter().find_map(|prefix| Some((symbol.find(prefix)?, prefix)))?;
        let name = symbol.get(at + prefix.len()..)?;
        // The parameters follow in a mangled name: capital letters and digits of another scheme.
        let end = name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(name.len());
        let name = name.get(..end)?;
        let words: Vec<&str> = name.split('_').collect();
        let one_of = |known: &[&str]| {
            let mut parts = words.iter();
            parts.find_map(|word| known.iter().find(|known| *known == word)).map(|known| (*known).to_owned())
        };
        // Only the last word touches the mangled parameters: `LL24ncclDevKernelArgsStorage...`.
        let begins = |known: &[&str]| {
            let mut parts = words.iter();
            parts.find_map(|word| known.iter().find(|known| word.starts_with(**known))).map(|known| (*known).to_owned())
        };
        let two_words = ALGORITHMS.iter().find(|known| known.contains('_') && name.contains(**known));
        let is_element =
            |word: &&&str| matches!(word.as_bytes(), [b'f' | b'u' | b'i', b'0'..=b'9', ..]) || **word == "bf16";
        Some(Collective {
            operation: begins(&OPERATIONS),
            reduction: one_of(&REDUCTIONS),
            element: words.iter().find(is_element).map(|word| (*word).to_owned()),
            algorithm: two_words.map(|known| (*known).to_owned()).or_else(|| one_of(&ALGORITHMS)),
            protocol: begins(&PROTOCOLS),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nccl_are_taken_apart() {
        let name = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
        let of = Collective::of(name).unwrap();
        let words = [of.operation, of.reduction, of.element, of.algorithm, of.protocol].map(Option::unwrap);
        assert_eq!(words, ["AllReduce", "Sum", "f32", "RING", "LL"]);
        let of = Collective::of("_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE").unwrap();
        assert_eq!((of.operation.as_deref(), of.algorithm, of.protocol), (Some("SendRecv"), None, None));
        let of = Collective::of("ncclDevKernel_AllGather_COLLNET_DIRECT_LL128").unwrap();
        assert_eq!(
            (of.operation.as_deref(), of.algorithm.as_deref(), of.protocol.as_deref()),
            (Some("AllGather"), Some("COLLNET_DIRECT"), Some("LL128"))
        );
        assert_eq!(Collective::of("ncclDevKernel_Generic_4").unwrap().operation, None);
        assert_eq!(Collective::of("spin_kernel"), None);
    }
}
