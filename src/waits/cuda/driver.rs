//! The driver's library as it is mapped: its version, and with which kernel drivers it works.
//!
//! In: a process. Out: [`CudaLibrary`] for each library of CUDA. Whether that fits the machine is judged elsewhere.

use serde_json::Value;

use crate::image::gpu::is_version;
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::cuda::{LARGEST_NOTE, MOST_HEADERS};
use crate::modules::Module;
use crate::waits::circumstances::{CudaLibrary, Fits};
use crate::waits::thread::CapturedProcess;

/// Driver and runtime, by the names of their files, whether or not they are on a stack.
pub(super) fn mapped(context: &CapturedProcess<'_>) -> Vec<CudaLibrary> {
    let is_cuda = |module: &&Module| module.name.starts_with("libcuda.so") || module.name.starts_with("libcudart.so");
    let modules = context.symbols.modules().list.iter().filter(is_cuda);
    modules
        .map(|module| {
            let version = module.name.split_once(".so.").map(|(_, version)| version.to_owned());
            let is_driver = module.name.starts_with("libcuda.so");
            CudaLibrary {
                process: context.process,
                name: module.name.to_string(),
                path: module.path.clone(),
                // The soft links have `libcuda.so.1`, which says nothing.
                version: version.filter(|version| !is_driver || is_version(version)),
                fits: if is_driver { note(&*context.image.memory, module.start) } else { None },
            }
        })
        .collect()
}

/// The note of owner "NVIDIA Corporation", JSON in `.note.cuda.fwd_compatibility`, in the segment that begins with the
/// ELF header (facts: `{"format":1,"CUDA version":"13.0","driver":[535,550,...],"device":[...]}`).
fn note(memory: &dyn Memory, start: Addr) -> Option<Fits> {
    const PT_NOTE: u32 = 4;
    const OWNER: &[u8] = b"NVIDIA Corporation\0";
    if memory.bytes(start, 4).ok()? != b"\x7fELF" {
        return None;
    }
    // Elf64_Ehdr: e_phoff at 32, e_phnum at 56; Elf64_Phdr: p_type 0, p_offset 8, p_filesz 32, 56 bytes each.
    let headers = memory.u64(start + 32).ok()?;
    let count = memory.bytes(start + 56, 2).ok()?;
    let count = u16::from_le_bytes([count[0], count[1]]).min(MOST_HEADERS);
    for position in 0..u64::from(count) {
        let header = start + headers.wrapping_add(position * 56);
        if memory.u32(header).ok()? != PT_NOTE {
            continue;
        }
        let (offset, size) = (memory.u64(header + 8).ok()?, memory.u64(header + 32).ok()?);
        let Ok(notes) = memory.bytes(start + offset, (size as usize).min(LARGEST_NOTE)) else { continue };
        // Sizes of name and description, a type, then both, each filled up to four bytes (elf.h, Elf64_Nhdr).
        let mut rest = notes.as_slice();
        while let [a, b, c, d, e, f, g, h, _, _, _, _, more @ ..] = rest {
            let name_size = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let text_size = u32::from_le_bytes([*e, *f, *g, *h]) as usize;
            let text_at = name_size.next_multiple_of(4);
            let (Some(name), Some(text)) =
                (more.get(..name_size), more.get(text_at..).and_then(|rest| rest.get(..text_size)))
            else {
                break;
            };
            if name == OWNER {
                return parse(text);
            }
            rest = more.get(text_at + text_size.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
    None
}

fn parse(text: &[u8]) -> Option<Fits> {
    let end = text.iter().rposition(|byte| *byte == b'}')?;
    let json: Value = serde_json::from_slice(&text[..=end]).ok()?;
    let branches = json.get("driver").and_then(Value::as_array);
    Some(Fits {
        cuda: json.get("CUDA version").and_then(Value::as_str)?.to_owned(),
        branches: branches.into_iter().flatten().filter_map(Value::as_u64).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Fault;

    #[derive(Debug)]
    struct Image(Vec<u8>);

    impl Memory for Image {
        fn read(&self, address: Addr, into: &mut [u8]) -> Result<usize, Fault> {
            let rest = (address.0 as usize).checked_sub(BASE).and_then(|at| self.0.get(at..));
            let rest = rest.filter(|rest| !rest.is_empty()).ok_or(Fault::Unmapped(address))?;
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    const BASE: usize = 0x7f00_0000_0000;

    /// An ELF header, one program header for the notes, and two notes.
    fn library(text: &[u8]) -> Image {
        let mut bytes = vec![0; 64 + 56];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[32] = 64;
        bytes[56] = 1;
        bytes[64] = 4;
        bytes[72] = 120;
        let note = |owner: &[u8], text: &[u8]| {
            let mut note = Vec::new();
            for word in [owner.len() as u32, text.len() as u32, 1] {
                note.extend(word.to_le_bytes());
            }
            for part in [owner, text] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes = [note(b"GNU\0", &[7; 20]), note(b"NVIDIA Corporation\0", text)].concat();
        bytes[96..104].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        bytes.extend(notes);
        Image(bytes)
    }

    #[test]
    fn the_note_is_found_in_memory() {
        let text = br#"{"format":1,"CUDA version":"12.9","driver":[535,550],"device":[1]}"#;
        let found = note(&library(text), Addr(BASE as u64)).expect("a note");
        assert_eq!((found.cuda.as_str(), found.branches.as_slice()), ("12.9", [535, 550].as_slice()));
        let whole = library(text).0;
        for end in 0..whole.len() {
            // A cut or damaged note gives no result, and no panic.
            let _ = note(&Image(whole[..end].to_vec()), Addr(BASE as u64));
            let mut damaged = whole.clone();
            damaged[end] ^= 0xff;
            let _ = note(&Image(damaged), Addr(BASE as u64));
        }
        assert_eq!(note(&Image(vec![0; 64]), Addr(BASE as u64)), None);
    }

    #[test]
    fn the_note_is_read_as_the_driver_has_it() {
        let text = br#"{"format":1,"CUDA version":"13.0","driver":[535,550,565,570,575,580],"device":[1,2]}"#;
        let fits = parse(&[text.as_slice(), b"\0\0"].concat()).expect("JSON");
        assert_eq!((fits.cuda.as_str(), fits.branches.len()), ("13.0", 6));
        assert_eq!(parse(b"{"), None);
        assert_eq!(crate::waits::circumstances::branch("580.159.04"), Some(580));
    }
}
