//! `lockscope --version`: which build this is, as a report of a bug in lockscope needs it.

/// The version and one fact of the build a line; scripts/build.rs has gathered most of them.
macro_rules! long {
    ($libc:literal) => {
        concat!(
            env!("CARGO_PKG_VERSION"),
            "\ncommit:  ",
            env!("LOCKSCOPE_BUILD_COMMIT"),
            "\ntarget:  ",
            env!("LOCKSCOPE_BUILD_TARGET"),
            "\nlibc:    ",
            $libc,
            "\nprofile: ",
            env!("LOCKSCOPE_BUILD_PROFILE"),
            "\nrustc:   ",
            env!("LOCKSCOPE_BUILD_RUSTC"),
        )
    };
}

/// The output of `--version`; `-V` prints the version alone.
pub(super) const LONG: &str = match (cfg!(target_env = "musl"), cfg!(target_feature = "crt-static")) {
    (true, true) => long!("musl, static"),
    (true, false) => long!("musl, dynamic"),
    (false, true) => long!("glibc, static"),
    (false, false) => long!("glibc, dynamic"),
};
