//! The library that is preloaded, in a file that the command can load.
//!
//! In: nothing. Out: a path, or the reason why there is none. The file is the user's own, in a folder that nobody else
//! may write to. It stays, because processes that the command leaves behind may start programs later, and the loader
//! prints an error in each program that does not find it. Its name has a number of its content, so each version has its
//! own file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

use super::table::FILE_STEM;

/// Empty where it could not be built.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/liblockscope_recorder.so"));

/// The variable that makes the loader load it.
pub(crate) const PRELOAD: &str = "LD_PRELOAD";

/// The variable that says where it writes orders of locks to.
pub(crate) const FOLDER: &str = "LOCKSCOPE_RECORD";

/// The variable by which the end of a thread counts as a lock that the thread has; its value is `1`.
pub(crate) const ENDS: &str = "LOCKSCOPE_RECORD_ENDS";

/// The variable with the number of filters of system calls that lockscope runs under: in a process with more the recorder makes
/// no call that a filter could end it for.
pub(crate) const FILTERS: &str = "LOCKSCOPE_RECORD_FILTERS";

/// Its value; none where the kernel counts no filters.
pub(crate) fn filters() -> Option<OsString> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")).map(|count| count.trim().into())
}

/// Why a command cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// This build has no recorder.
    #[error(
        "this lockscope was built without its recorder, for which rustc needs the linker rust-lld or lld: build it with a toolchain \
         of rustup, or take a wheel"
    )]
    NotBuilt,
    /// Its functions are written for one machine.
    #[error("lockscope has a recorder for x86-64 alone, and this one is for {0}: leave --record away")]
    OtherMachine(&'static str),
    /// A file of it could not be written.
    #[error("cannot write the recorder to `{path}`: {why}; set TMPDIR to a folder of your own")]
    NotWritten {
        /// Where.
        path: String,
        /// The system's error.
        why: io::Error,
    },
    /// The folder is another user's.
    #[error("`{0}` is not a folder of your own that nobody else may write to: set TMPDIR to another place")]
    NotPrivate(String),
    /// The loader takes such a name for several.
    #[error("the name `{0}` has a space or a colon, which {PRELOAD} cannot have: set TMPDIR to another place")]
    Name(String),
    /// The program was built with a sanitizer.
    #[error(
        "`{program}` was built with a sanitizer ({library}), which stands in front of the same functions: build it without, or leave --record away"
    )]
    Sanitizer {
        /// The program.
        program: String,
        /// The library that it needs.
        library: &'static str,
    },
    /// No file can be loaded from there.
    #[error(
        "no library can be loaded from `{0}` (noexec): set TMPDIR to a folder of a file system from which programs run"
    )]
    NoExecution(String),
    /// Something else stands in front of the same functions.
    #[error("{PRELOAD} has `{0}`, which stands in front of the same functions: leave it or --record away")]
    Taken(String),
}

/// Libraries that replace the same functions.
const RIVALS: [&str; 6] = ["libasan", "libtsan", "libubsan", "libhwasan", "libmutrace", "libclang_rt"];

/// Libraries of sanitizers that programs name among their first bytes, as `preload/exec.rs` looks for them in children.
const SANITIZERS: [&str; 3] = ["libasan.so", "libtsan.so", "libhwasan.so"];
const LOOKED_AT: u64 = 16 << 10;

/// The file of a command, and its first bytes. The program that starts an unreadable file reports the error.
fn program(command: &OsStr) -> Option<(PathBuf, Vec<u8>)> {
    let name = Path::new(command);
    let found = match name.components().count() {
        1 => {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
        }
        _ => Some(name.to_path_buf()),
    };
    let mut head = Vec::new();
    let path = found?;
    fs::File::open(&path).ok()?.take(LOOKED_AT).read_to_end(&mut head).ok()?;
    Some((path, head))
}

/// Why nothing of a command will be recorded though it runs: the loader does not take the recorder in.
pub(crate) fn why_not_seen(command: &OsStr) -> Option<&'static str> {
    let (path, head) = program(command)?;
    if is_static(&head) == Some(true) {
        return Some("it is a static program, into which no loader takes a library");
    }
    let metadata = fs::metadata(path).ok()?;
    let is_of_another = |bit: u32, id: u32, own: u32| metadata.mode() & bit != 0 && id != own;
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    (is_of_another(0o4000, metadata.uid(), user) || is_of_another(0o2000, metadata.gid(), group))
        .then_some("it runs as another user or group (set-user-ID), and the loader takes in what those may trust alone")
}

/// Whether a program of 64 bits asks for no loader; none where the bytes are no such program.
fn is_static(head: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    const PROGRAMS: [u16; 2] = [2, 3];
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at.checked_add(2)?)?.try_into().ok()?));
    if !head.starts_with(b"\x7fELF\x02\x01") || !PROGRAMS.contains(&half(16)?) {
        return None;
    }
    let begin = usize::try_from(u64::from_le_bytes(head.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
    for position in 0..count {
        let at = begin.checked_add(size.checked_mul(position)?)?;
        let kind = u32::from_le_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == INTERPRETER {
            return Some(false);
        }
    }
    Some(true)
}

/// Whether a command can be recorded: one with a sanitizer ends when another library comes before it.
pub(crate) fn may_record(command: &OsStr) -> Result<(), LibraryError> {
    let head = program(command).map(|(_, head)| head).unwrap_or_default();
    let name = Path::new(command);
    let has = |library: &&str| head.windows(library.len()).any(|part| part == library.as_bytes());
    match SANITIZERS.into_iter().find(has).filter(|_| head.starts_with(b"\x7fELF")) {
        Some(library) => Err(LibraryError::Sanitizer { program: name.display().to_string(), library }),
        None => Ok(()),
    }
}

/// The value of [`PRELOAD`] for the command: the recorder, then what the user has there.
pub(crate) fn preload() -> Result<OsString, LibraryError> {
    let before = std::env::var_os(PRELOAD).unwrap_or_default();
    let text = before.to_string_lossy();
    if let Some(rival) = text.split([':', ' ']).find(|one| RIVALS.iter().any(|name| one.contains(name))) {
        return Err(LibraryError::Taken(rival.to_owned()));
    }
    let mut value = written()?.into_os_string();
    if !before.is_empty() {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

fn written() -> Result<PathBuf, LibraryError> {
    if LIBRARY.is_empty() {
        return Err(match std::env::consts::ARCH {
            "x86_64" => LibraryError::NotBuilt,
            other => LibraryError::OtherMachine(other),
        });
    }
    let user = nix::unistd::geteuid();
    let folder = std::env::temp_dir().join(format!("lockscope-recorder-{user}"));
    // The loader maps it to be run. Where it may not be, it goes where caches are.
    let folder = if may_execute(&std::env::temp_dir()) {
        folder
    } else {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
        let cache = cache.filter(|cache| cache.is_absolute() && cache.is_dir() && may_execute(cache));
        let Some(cache) = cache else {
            return Err(LibraryError::NoExecution(std::env::temp_dir().display().to_string()));
        };
        cache.join(format!("lockscope-recorder-{user}"))
    };
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |why| LibraryError::NotWritten { path, why }
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&folder)(error)),
        _ => {}
    }
    let metadata = fs::symlink_metadata(&folder).map_err(failed(&folder))?;
    if !metadata.is_dir() || metadata.uid() != user.as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(LibraryError::NotPrivate(folder.display().to_string()));
    }
    let path = folder.join(format!("{FILE_STEM}-{:016x}.so", number(LIBRARY)));
    let name = path.display().to_string();
    if name.contains([' ', ':']) {
        return Err(LibraryError::Name(name));
    }
    if fs::read(&path).is_ok_and(|bytes| bytes == LIBRARY) {
        return Ok(path);
    }
    let mut file = tempfile::NamedTempFile::new_in(&folder).map_err(failed(&path))?;
    file.write_all(LIBRARY).map_err(failed(&path))?;
    file.as_file().set_permissions(Permissions::from_mode(0o500)).map_err(failed(&path))?;
    file.persist(&path).map_err(|error| failed(&path)(error.error))?;
    Ok(path)
}

fn may_execute(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|system| !system.flags().contains(FsFlags::ST_NOEXEC))
}

/// FNV-1a: equal bytes, equal name.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_static_that_asks_for_no_loader() {
        // Its own head: 64 bits, of a program; a header of 56 bytes each.
        let made = |kinds: &[u32]| {
            let mut bytes = vec![0; 64 + 56 * kinds.len()];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            (bytes[16], bytes[32], bytes[54]) = (3, 64, 56);
            bytes[56] = u8::try_from(kinds.len()).expect("few");
            for (position, kind) in kinds.iter().enumerate() {
                bytes[64 + 56 * position..][..4].copy_from_slice(&kind.to_le_bytes());
            }
            bytes
        };
        assert_eq!(is_static(&made(&[6, 3, 1, 2])), Some(false));
        assert_eq!(is_static(&made(&[1, 2])), Some(true));
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        let whole = made(&[6, 3, 1, 2]);
        for at in 0..whole.len() {
            let _ = is_static(&whole[..at]);
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let _ = is_static(&bytes);
            }
        }
    }
}
