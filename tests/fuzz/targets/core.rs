//! A core or a snapshot, looked at from end to end.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::internals::fuzzing::core(bytes);
});
