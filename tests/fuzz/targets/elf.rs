//! An ELF file: headers, frame information, symbols, lines, code.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = lockscope::internals::fuzzing::elf(bytes);
});
