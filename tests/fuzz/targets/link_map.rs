//! The loader's list of libraries in a target's memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    lockscope::internals::fuzzing::link_map(bytes);
});
