//! All the `unsafe` of the crate: mapping a file, and the pthread mutex of the demonstration.

#![allow(unsafe_code, reason = "the one file that may")]

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;

use memmap2::Mmap;
use nix::libc;

/// Map a file for reading.
pub(crate) fn map_file(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is private and only read. A file that is truncated meanwhile raises SIGBUS; the files
    // mapped here are programs and libraries, which package managers replace by renaming, not by truncation.
    unsafe { Mmap::map(file) }
}

/// A pthread mutex that records its owner in every libc: error-checking, as musl's default mutex names none.
pub(crate) struct ErrorCheckMutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: a pthread mutex is made to be used by several threads; the box keeps its address.
unsafe impl Send for ErrorCheckMutex {}
// SAFETY: as above; the only access to the cell is through pthread_mutex_lock, _unlock and _destroy.
unsafe impl Sync for ErrorCheckMutex {}

impl ErrorCheckMutex {
    /// An unlocked mutex.
    pub(crate) fn new() -> ErrorCheckMutex {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: the attributes are initialised by the first call before the others read them, and the mutex is not
        // yet known to another thread.
        unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ERRORCHECK);
            libc::pthread_mutex_init(mutex.get(), attributes.as_ptr());
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
        }
        ErrorCheckMutex(mutex)
    }

    /// Lock it; 0 or an error number, such as EDEADLK.
    pub(crate) fn lock(&self) -> i32 {
        // SAFETY: the mutex was initialised in `new` and lives as long as `self`.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    /// Unlock it; 0 or an error number, such as EPERM for a thread that does not own it.
    pub(crate) fn unlock(&self) -> i32 {
        // SAFETY: as in `lock`.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) }
    }
}

impl Drop for ErrorCheckMutex {
    fn drop(&mut self) {
        // SAFETY: nobody borrows `self` any more, and destroying a locked mutex returns EBUSY without touching it.
        unsafe { libc::pthread_mutex_destroy(self.0.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_checking_mutex_refuses_its_owner() {
        let mutex = ErrorCheckMutex::new();
        assert_eq!(mutex.lock(), 0);
        assert_eq!(mutex.lock(), libc::EDEADLK);
        assert_eq!(mutex.unlock(), 0);
        assert_eq!(mutex.unlock(), libc::EPERM);
    }
}
