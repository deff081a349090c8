//! A core on standard input, as `core_pattern` and `coredumpctl dump` give it.
//!
//! In: standard input and a limit. Out: a file without a name that holds it, with holes where the core has zeros. Cores are read out of
//! order, so the bytes have to be kept. lockscope stops reading at the limit: the kernel stops writing then, and the core counts as cut.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use super::{CliError, output};

/// Bytes of one read.
const PIECE: usize = 1 << 20;
/// Zeros that become a hole.
const BLOCK: usize = 4096;

/// The name of standard input in messages and in the report.
pub(super) const NAME: &str = "standard input";

/// The core, in a file that goes with the process.
pub(super) struct CoreInput {
    file: File,
}

impl CoreInput {
    /// Keep at most `most` bytes of standard input.
    pub(super) fn read(most: u64) -> Result<CoreInput, CliError> {
        let input = std::io::stdin();
        if input.is_terminal() {
            let error = CliError::new("no core comes from a terminal");
            return Err(error.hint("coredumpctl dump PID | lockscope core -"));
        }
        let folder = std::env::temp_dir();
        let failed = |error: std::io::Error| {
            CliError::new(format!("cannot keep the core in `{}`: {error}", folder.display()))
                .hint("TMPDIR names another folder; a file that holds the core can be given instead")
        };
        let mut file = tempfile::tempfile_in(&folder).map_err(failed)?;
        let is_cut = keep(&mut input.lock(), &mut file, most).map_err(failed)?;
        if is_cut {
            output::say(&format!(
                "lockscope: the core is longer than --most-input ({most} bytes): the rest is missing"
            ));
        }
        Ok(CoreInput { file })
    }

    /// Where it can be opened while this lives.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Whether a file is standard input, as many programs call it.
pub(super) fn is_meant(path: &Path) -> bool {
    path == Path::new("-")
}

/// Copy at most `most` bytes, and leave zeros out; whether there are more.
fn keep(input: &mut dyn Read, file: &mut File, most: u64) -> std::io::Result<bool> {
    let mut piece = vec![0; PIECE];
    let mut length: u64 = 0;
    loop {
        let mut filled = 0;
        while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match input.read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let read = piece.get(..filled).unwrap_or_default();
        let left = usize::try_from(most - length).unwrap_or(usize::MAX);
        let kept = read.get(..filled.min(left)).unwrap_or_default();
        for block in kept.chunks(BLOCK) {
            if block.iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(i64::try_from(block.len()).unwrap_or(0)))?;
            } else {
                file.write_all(block)?;
            }
        }
        length += kept.len() as u64;
        if kept.len() < read.len() || filled < PIECE {
            // A hole at the end has a length, too.
            file.set_len(length)?;
            return Ok(kept.len() < read.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[u8], most: u64) -> (Vec<u8>, bool) {
        let mut file = tempfile::tempfile().unwrap();
        let is_cut = keep(&mut &bytes[..], &mut file, most).unwrap();
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut read).unwrap();
        (read, is_cut)
    }

    #[test]
    fn what_comes_is_kept_up_to_the_limit() {
        let mut bytes = vec![7; BLOCK + 3];
        bytes.extend(vec![0; 3 * PIECE]);
        bytes.extend([1, 2, 3]);
        bytes.extend(vec![0; BLOCK]);
        assert!(kept(&bytes, u64::MAX) == (bytes.clone(), false));
        assert!(kept(&bytes, bytes.len() as u64) == (bytes.clone(), false));
        assert!(kept(&bytes, 10_000) == (bytes[..10_000].to_vec(), true));
        assert_eq!(kept(&[], 5), (Vec::new(), false));
    }
}
