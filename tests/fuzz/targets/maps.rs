//! /proc/PID/maps.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::fuzzing::maps(bytes);
});
