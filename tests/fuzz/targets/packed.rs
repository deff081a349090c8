//! A core or a snapshot that is packed with zstd, one frame over another.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::internals::fuzzing::core(&[&[0x28, 0xb5, 0x2f, 0xfd], bytes].concat());
});
