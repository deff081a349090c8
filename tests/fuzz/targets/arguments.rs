//! /proc/PID/cmdline and environ.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lockscope::internals::fuzzing::arguments(bytes);
});
