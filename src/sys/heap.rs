//! The allocator of this process: how it takes memory, and when it gives memory back.

#[cfg(target_env = "gnu")]
use nix::libc;

/// Let the heap grow by tens of megabytes at once, with large pages where the kernel has some, and keep some of the
/// freed memory. Otherwise a third of the time for a sample of ten threads went into first touches of pages (two
/// microseconds each in a virtual machine). Does nothing beside glibc.
pub(crate) fn prepare_heap() {
    #[cfg(target_env = "gnu")]
    {
        const GROWTH: usize = 32 << 20;
        const LARGE_PAGE: usize = 2 << 20;
        let options =
            [(libc::M_MMAP_THRESHOLD, GROWTH), (libc::M_TOP_PAD, GROWTH), (libc::M_TRIM_THRESHOLD, 2 * GROWTH)];
        for (option, value) in options {
            // SAFETY: changes settings of the allocator, which takes its own lock.
            unsafe { libc::mallopt(option, value as i32) };
        }
        // More than the heap has left: it grows.
        let first = Vec::<u8>::with_capacity(256 << 10);
        let start = (first.as_ptr() as usize).next_multiple_of(LARGE_PAGE);
        let end = (first.as_ptr() as usize + GROWTH) / LARGE_PAGE * LARGE_PAGE;
        // SAFETY: says how the pages of a range are to be made, and changes nothing in them; what is not mapped there is an error, which
        // is as good as a kernel without large pages.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        HEAP_IS_PREPARED.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Give back what the heap has free: whoever works now and then must not keep what it needed.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks, and changes nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether [`prepare_heap`] was called: the heap is lockscope's own.
#[cfg(target_env = "gnu")]
static HEAP_IS_PREPARED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Let a thread touch the next `bytes` bytes of a prepared heap first. These touches take a tenth of the time of a
/// sample of ten thousand threads. A later copy of this process costs more for it.
pub(crate) fn touch_heap(bytes: usize) {
    #[cfg(target_env = "gnu")]
    {
        const MOST: usize = 256 << 20;
        /// Less is touched by the way.
        const LEAST: usize = 32 << 20;
        const BLOCK: usize = 16 << 20;
        /// The kernel keeps other threads from mapping files meanwhile.
        const AT_ONCE: usize = 64 << 10;
        let bytes = bytes.min(MOST);
        if bytes < LEAST || !HEAP_IS_PREPARED.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        // SAFETY: changes a setting of the allocator, which takes its own lock.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, (2 * MOST) as i32) };
        // The heap grows by these, and keeps what it has grown by.
        let blocks: Vec<Vec<u8>> = (0..bytes.div_ceil(BLOCK)).map(|_| Vec::with_capacity(BLOCK)).collect();
        let Some(start) = blocks.first().map(|block| (block.as_ptr() as usize).next_multiple_of(4096)) else { return };
        let end = blocks.iter().map(|block| block.as_ptr() as usize + BLOCK).max().unwrap_or(start).min(start + bytes);
        drop(blocks);
        let is_touched = |at: usize| {
            // SAFETY: makes pages of a range, and changes nothing in them; what is not mapped there any more is an error.
            unsafe { libc::madvise(at as *mut libc::c_void, AT_ONCE, libc::MADV_POPULATE_WRITE) == 0 }
        };
        let touch = move || (start..end.saturating_sub(AT_ONCE)).step_by(AT_ONCE).all(is_touched);
        let _ = std::thread::Builder::new().name("heap".to_owned()).spawn(touch);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}
