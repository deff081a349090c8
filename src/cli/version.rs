//! `lockscope --version`: which build this is, as a report of a bug in lockscope needs it.

/// The version and one fact of the build a line; scripts/build.rs has gathered them.
pub(super) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit:  ",
    env!("LOCKSCOPE_BUILD_COMMIT"),
    "\ntarget:  ",
    env!("LOCKSCOPE_BUILD_TARGET"),
    "\nlibc:    ",
    env!("LOCKSCOPE_BUILD_LIBC"),
    "\nprofile: ",
    env!("LOCKSCOPE_BUILD_PROFILE"),
    "\nrustc:   ",
    env!("LOCKSCOPE_BUILD_RUSTC"),
);
