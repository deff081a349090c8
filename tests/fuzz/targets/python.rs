//! CPython's structures behind `_PyRuntime`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::internals::fuzzing::python(bytes);
});
