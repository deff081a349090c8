//! Descriptors that are closed, and names that must not replace others.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::libc;

/// Close all descriptors of this process but the standard ones and `kept`. Only for a process that was just forked and will never
/// drop what it owned before: it ends by `exit`.
pub(crate) fn close_all_but(kept: BorrowedFd<'_>) {
    close_others(kept.as_raw_fd());
}

/// The same, of all descriptors but the standard ones.
pub(crate) fn close_all() {
    close_others(2);
}

fn close_others(kept: i32) {
    for (first, last) in [(3, kept - 1), (kept.max(2) + 1, i32::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: closes descriptors that nobody in this process uses any more, see above.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result != 0 {
            // Before Linux 5.9.
            for descriptor in first..=last.min(1 << 16) {
                // SAFETY: as above.
                unsafe { libc::close(descriptor) };
            }
        }
    }
}

/// Give an entry of a folder another name that is nobody's yet; an error where there is one. File systems that cannot promise that
/// replace it.
pub(crate) fn rename_to_nothing(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> std::io::Result<()> {
    /// RENAME_NOREPLACE (linux/fs.h).
    const KEEP: u32 = 1;
    let text = |name: &OsStr| CString::new(name.as_bytes()).map_err(|_| std::io::Error::from(Errno::EINVAL));
    let (from, to) = (text(from)?, text(to)?);
    let folder = folder.as_raw_fd();
    let rename = |flags: u32| {
        // SAFETY: both names are texts that end, and outlive the call.
        let result = unsafe { libc::syscall(libc::SYS_renameat2, folder, from.as_ptr(), folder, to.as_ptr(), flags) };
        Errno::result(result).map(drop)
    };
    match rename(KEEP) {
        Err(Errno::EINVAL) => rename(0).map_err(std::io::Error::from),
        done => done.map_err(std::io::Error::from),
    }
}
