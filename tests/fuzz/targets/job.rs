//! A digest of a job, or what a witness wrote of one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::internals::fuzzing::job(bytes);
});
