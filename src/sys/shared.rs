//! What two processes of lockscope share: an area of memory, and the process that is a copy of this one and serves it.
//!
//! In: sizes, and what the copy does. Out: the area, the id of the copy.

use std::cell::UnsafeCell;

use nix::errno::Errno;
use nix::libc;

use super::memory::Span;

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

/// Zeroed memory that this process and those it starts by [`start_apart`] have in common.
///
/// Words and bytes are atomic, since another process may write at any time. Pages are handed out by what the words and
/// bytes say of them; nobody writes a page again once it was marked as complete.
#[derive(Debug)]
pub(crate) struct SharedArea {
    pub(super) start: std::ptr::NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone until it is dropped, and all access goes through atomics or raw copies.
unsafe impl Send for SharedArea {}
// SAFETY: as above.
unsafe impl Sync for SharedArea {}

impl SharedArea {
    /// `length` bytes; memory is taken only for what is touched.
    pub(crate) fn new(length: usize) -> std::io::Result<SharedArea> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing that exists is replaced.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let start = Some(start)
            .filter(|&start| start != libc::MAP_FAILED)
            .and_then(|start| std::ptr::NonNull::new(start.cast::<u8>()));
        start.map(|start| SharedArea { start, length }).ok_or_else(std::io::Error::last_os_error)
    }

    /// The word at `offset`, a multiple of 8.
    pub(crate) fn word(&self, offset: usize) -> Option<&std::sync::atomic::AtomicU64> {
        let fits = offset.is_multiple_of(8) && offset.checked_add(8)? <= self.length;
        // SAFETY: within the mapping and aligned, as was just checked; it is only ever used as an atomic word.
        fits.then(|| unsafe { std::sync::atomic::AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    /// The byte at `offset`.
    pub(crate) fn byte(&self, offset: usize) -> Option<&std::sync::atomic::AtomicU8> {
        // SAFETY: within the mapping, as is checked; it is only ever used as an atomic byte.
        (offset < self.length)
            .then(|| unsafe { std::sync::atomic::AtomicU8::from_ptr(self.start.as_ptr().add(offset)) })
    }

    /// Fill a buffer with what lies at `offset`; false if that is not all within the area.
    pub(crate) fn copy_to(&self, offset: usize, buffer: &mut [u8]) -> bool {
        let fits = offset.checked_add(buffer.len()).is_some_and(|end| end <= self.length);
        if fits {
            // SAFETY: the source lies within the mapping, and the buffer is memory of its own; see the type for who writes when.
            unsafe {
                std::ptr::copy_nonoverlapping(self.start.as_ptr().add(offset), buffer.as_mut_ptr(), buffer.len());
            }
        }
        fits
    }

    /// The addresses of a part, for the kernel to write to.
    fn part(&self, offset: usize, length: usize) -> Option<libc::iovec> {
        (offset.checked_add(length)? <= self.length)
            .then(|| libc::iovec { iov_base: self.start.as_ptr().wrapping_add(offset).cast(), iov_len: length })
    }

    /// Copy pieces of the memory of task `tid` to offsets of the area, in order; the number of bytes before the first
    /// piece that faults. At most [`PIECES_PER_CALL`] are taken. It allocates nothing.
    pub(crate) fn read_remote(&self, tid: i32, pieces: &[(Span, usize)]) -> Result<usize, Errno> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (mut local, mut remote) = ([nothing; PIECES_PER_CALL], [nothing; PIECES_PER_CALL]);
        let mut count = 0;
        for (&(span, offset), (local, remote)) in pieces.iter().zip(local.iter_mut().zip(remote.iter_mut())) {
            *local = self.part(offset, span.length).ok_or(Errno::EINVAL)?;
            let base = std::ptr::without_provenance_mut(span.start as usize);
            *remote = libc::iovec { iov_base: base, iov_len: span.length };
            count += 1;
        }
        // SAFETY: the local parts lie within the mapping; the remote ones are addresses of another process, which the
        // kernel checks.
        let read = unsafe { libc::process_vm_readv(tid, local.as_ptr(), count, remote.as_ptr(), count, 0) };
        Errno::result(read).map(|read| read as usize)
    }

    /// Copy from a file to an offset of the area; the number of bytes read. It allocates nothing.
    pub(crate) fn read_file(&self, file: i32, position: u64, offset: usize, length: usize) -> Result<usize, Errno> {
        let part = self.part(offset, length).ok_or(Errno::EINVAL)?;
        // SAFETY: the part lies within the mapping.
        let read = unsafe { libc::pread(file, part.iov_base, part.iov_len, position as libc::off_t) };
        Errno::result(read).map(|read| read as usize)
    }
}

impl Drop for SharedArea {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// As many pieces as [`SharedArea::read_remote`] takes: two tables of them lie on its stack.
pub(crate) const PIECES_PER_CALL: usize = 128;

/// Start a process that is a copy of this one, runs `serve` and ends. It has no open file but `kept` (ascending), takes no
/// signal but SIGKILL, and gets that when the thread that started it ends. Its end raises no signal here, and only
/// [`collect`] collects it.
///
/// The other threads are missing in the copy, stopped at any point of their work. So `serve` must make system calls
/// only, and must neither allocate nor take a lock.
pub(crate) fn start_apart(kept: &[i32], serve: impl FnOnce()) -> std::io::Result<i32> {
    let own = std::process::id();
    // SAFETY: all zeroes is a valid sigset_t, and sigfillset fills it.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // SAFETY: both sets are valid; the mask of this thread is put back below.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    // SAFETY: a plain fork but for the signal at the end: no stack, no thread data and no flag is given. The child runs what is
    // below alone, which neither allocates nor takes locks.
    let result = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
    if result == 0 {
        // SAFETY: system calls on plain numbers; closed files are not used any more, since only `serve` follows.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_NAME, c"lockscope-copy".as_ptr());
            if libc::getppid() as u32 != own {
                libc::_exit(0);
            }
            let mut first = 0;
            for &file in kept.iter().chain(&[i32::MAX]) {
                if file > first {
                    close_files(first, file - 1);
                }
                first = file.saturating_add(1);
            }
            libc::chdir(c"/".as_ptr());
        }
        serve();
        // SAFETY: ends this process at once, without what is registered to run at the end.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: `before` is what pthread_sigmask gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    match i32::try_from(result) {
        Ok(child) if child > 0 => Ok(child),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Close all files from `first` to `last`. Kernels before 5.9 have no call for it.
fn close_files(first: i32, last: i32) {
    const HIGHEST_TRIED: i32 = 4096;
    // SAFETY: files of this process alone, which uses none of them any more (see the caller).
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            for file in first..=last.min(HIGHEST_TRIED) {
                libc::close(file);
            }
        }
    }
}

/// Collect a process that [`start_apart`] started, if it has ended; does not wait. Whether it is gone.
pub(crate) fn collect(child: i32) -> bool {
    // SAFETY: no status is requested, so that no memory is touched.
    let result = unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    result != 0
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
