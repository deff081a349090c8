//! The notes of a core.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::internals::fuzzing::notes(bytes);
});
