//! The command line tool; everything it does is in the library.

/// musl's allocator takes most of the time of a sample; the static program of the Python package is built with musl.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    lockscope::internals::run()
}
