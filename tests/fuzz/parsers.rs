//! All fuzz targets in one program, which is linked once: the variable FUZZED names the parser that gets the bytes.
#![no_main]

use std::sync::OnceLock;

use lockscope::internals::fuzzing;

type Parser = fn(&[u8]);

const PARSERS: &[(&str, Parser)] = &[
    // /proc/PID/cmdline and environ.
    ("arguments", |bytes| fuzzing::arguments(bytes)),
    // A core or a snapshot, looked at from end to end.
    ("core", |bytes| _ = fuzzing::core(bytes)),
    // An ELF file: headers, frame information, symbols, lines, code.
    ("elf", |bytes| _ = fuzzing::elf(bytes)),
    // A core of GPUs.
    ("gpu_core", |bytes| _ = fuzzing::gpu_core(bytes)),
    // A digest of a job, or what a witness wrote of one.
    ("job", |bytes| _ = fuzzing::job(bytes)),
    // The loader's list of libraries in a target's memory.
    ("link_map", |bytes| fuzzing::link_map(bytes)),
    // /proc/PID/maps.
    ("maps", |bytes| _ = fuzzing::maps(bytes)),
    // The notes of a core.
    ("notes", |bytes| _ = fuzzing::notes(bytes)),
    // A core or a snapshot that is packed with zstd, one frame over another.
    ("packed", |bytes| _ = fuzzing::core(&[&[0x28, 0xb5, 0x2f, 0xfd], bytes].concat())),
    // CPython's structures behind `_PyRuntime`.
    ("python", |bytes| _ = fuzzing::python(bytes)),
];

fn parser() -> Parser {
    let name = std::env::var("FUZZED").expect("FUZZED names a parser");
    PARSERS.iter().find(|(known, _)| *known == name).expect("a parser of this name").1
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static PARSER: OnceLock<Parser> = OnceLock::new();
    PARSER.get_or_init(parser)(bytes);
});
