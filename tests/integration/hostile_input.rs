//! Targets and files of an enemy: what they may cost, and what they may not reach.
//!
//! The programs are in testdata/hostile. Where root is needed and not there, a test says that it was skipped.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Target, compile, is_root, lockscope, own_program};

/// Address space that is enough for every input, in MiB: the program and its libraries, and what a look may take.
const ENOUGH: u64 = 1536;

/// lockscope with little room.
fn bounded(words: &[&str]) -> (Output, String) {
    let mut run = Command::new("prlimit");
    run.arg(format!("--as={}", ENOUGH << 20)).arg(own_program()).args(words);
    let output = run.output().expect("prlimit runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Without the ends of its lines.
    (output, text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn arguments_and_environment_without_end() {
    let program = compile("hostile/arguments.c", "arguments", &[]);
    for (what, named) in [("arg", "arguments"), ("env", "environment")] {
        let target = Target::start(Command::new(&program).args(["4096", what]));
        let (output, text) = bounded(&["attach", &target.pid().to_string()]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains(&format!("a part of the {named} of process {}", target.pid())), "{text}");
    }
}

/// One block of zstd that stands for 128 KiB of zeros.
const BLOCK: u32 = 128 << 10;

/// A frame of zstd that unpacks to so many MiB of zeros.
fn zeros(mib: u32) -> Vec<u8> {
    let header = |last: u32| ((BLOCK << 3) | (1 << 1) | last).to_le_bytes();
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    let blocks = mib * ((1 << 20) / BLOCK);
    for block in 1..=blocks {
        frame.extend(&header(u32::from(block == blocks))[..3]);
        frame.push(0);
    }
    frame
}

/// A library with these sections in place of its debug information.
fn with_sections(folder: &Path, name: &str, sections: &[(&str, &[u8])]) -> PathBuf {
    let library = compile("hostile/library.c", "library.so", &["-shared", "-fPIC"]);
    let out = folder.join(name);
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--remove-section=.debug_*");
    for (position, (name, bytes)) in sections.iter().enumerate() {
        let file = folder.join(format!("section-{position}"));
        std::fs::write(&file, bytes).expect("written");
        objcopy.args(["--add-section", &format!("{name}={}", file.display())]);
    }
    assert!(objcopy.args([&library, &out]).status().expect("objcopy runs").success());
    out
}

/// A library with packed debug information that announces so many bytes.
fn with_debug_information(folder: &Path, kind: u32, size: u64, packed: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    for word in [kind, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [size, 1] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(packed);
    let sections: [(&str, &[u8]); 2] = [(".debug_info", &bytes), (".debug_line", &[0; 16])];
    let out = with_sections(folder, &format!("bomb-{kind}.so"), &sections);
    // Say that the section is packed (SHF_COMPRESSED).
    let mut bytes = std::fs::read(&out).expect("there");
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let half = |bytes: &[u8], at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (table, each, count, names) = (word(&bytes, 40), half(&bytes, 58), half(&bytes, 60), half(&bytes, 62));
    let names = word(&bytes, table + names * each + 24);
    for at in (0..count).map(|number| table + number * each) {
        let name = names + u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
        if bytes[name..].starts_with(b".debug_info\0") {
            bytes[at + 9] |= 0x8;
        }
    }
    std::fs::write(&out, bytes).expect("written");
    out
}

#[test]
fn debug_information_that_unpacks_to_gigabytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let waits_in = compile("hostile/waits_in.c", "waits_in", &["-ldl"]);
    // ELFCOMPRESS_ZLIB and ELFCOMPRESS_ZSTD.
    for (kind, packed) in [(1, vec![0x78, 0x9c, 0]), (2, zeros(4096))] {
        let bomb = with_debug_information(folder.path(), kind, 4 << 30, &packed);
        let target = Target::start(Command::new(&waits_in).arg(&bomb));
        let (output, text) = bounded(&["attach", &target.pid().to_string()]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("debug information that is packed (.debug_info)"), "{text}");
    }
}

/// 100,000 functions of one unit name the same 100,000 ranges: parsed, they take 240 GB.
#[test]
fn debug_information_whose_functions_share_their_ranges() {
    let folder = tempfile::tempdir().expect("a folder");
    let waits_in = compile("hostile/waits_in.c", "waits_in", &["-ldl"]);
    // A compile unit with children, DW_AT_low_pc (DW_FORM_addr) and DW_AT_high_pc (DW_FORM_data8); a function with DW_AT_ranges.
    let abbreviations = [1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0, 0, 2, 0x2e, 0, 0x55, 0x17, 0, 0, 0];
    let functions = [2, 0, 0, 0, 0].repeat(100_000);
    let unit = [&[1u8][..], &0u64.to_le_bytes(), &(1u64 << 40).to_le_bytes(), &functions, &[0]].concat();
    let length = u32::try_from(unit.len() + 7).expect("small");
    let info = [&length.to_le_bytes()[..], &4u16.to_le_bytes(), &[0; 4], &[8], &unit].concat();
    let mut ranges: Vec<u8> = (1..=100_000u64).flat_map(|at| [at, at + 1]).flat_map(u64::to_le_bytes).collect();
    ranges.extend([0; 16]);
    let sections: [(&str, &[u8]); 4] = [
        (".debug_abbrev", &abbreviations),
        (".debug_info", &info),
        (".debug_ranges", &ranges),
        (".debug_line", &[0; 16]),
    ];
    let bomb = with_sections(folder.path(), "bomb.so", &sections);
    let target = Target::start(Command::new(&waits_in).arg(&bomb));
    let (output, text) = bounded(&["attach", &target.pid().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let gap = "source lines of a file whose functions share their ranges out of all proportion";
    assert_eq!(text.matches(gap).count(), 1, "{text}");
}

/// An ELF core of these notes' segments: (place in the file, size).
fn core_header(segments: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0u64, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, segments.len() as u8, 0, 0, 0, 0, 0, 0, 0]);
    for (place, size) in segments {
        bytes.extend([4, 0, 0, 0, 0, 0, 0, 0]);
        for word in [*place, 0, 0, *size, *size, 4] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn notes_over_notes_also_packed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (start, size) = (1 << 20, 64 << 20);
    let header = core_header(&[(start, size); 16]);
    let sparse = folder.path().join("core");
    let mut file = std::fs::File::create(&sparse).expect("made");
    file.write_all(&header).and_then(|()| file.set_len(start + size)).expect("written");
    let (output, text) = bounded(&["core", &sparse.display().to_string()]);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("no registers of any thread"), "{text}");
    // The same in zstd: what is there of it as it is, then zeros.
    let packed = folder.path().join("core.zst");
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    frame.extend(&((header.len() as u32) << 3).to_le_bytes()[..3]);
    frame.extend(&header);
    frame.extend(&zeros(65)[6..]);
    std::fs::write(&packed, frame).expect("written");
    let (output, text) = bounded(&["core", &packed.display().to_string()]);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("no registers of any thread"), "{text}");
    // And one that is larger than all that may be unpacked.
    std::fs::write(&packed, zeros(8192)).expect("written");
    let (output, text) = bounded(&["core", &packed.display().to_string()]);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("unpack it on disk"), "{text}");
}

#[test]
fn many_processes_over_one_large_blob() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hang.snapshot");
    let target = Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba")).settle(3);
    let taken = lockscope().args(["snapshot", &target.pid().to_string(), "-o"]).arg(&path).status().expect("it runs");
    assert!(taken.success());
    let bytes = std::fs::read(&path).expect("written");
    let mut json: Value =
        serde_json::from_slice(&lockscope::internals::fuzzing::looks_of(&bytes).expect("looks")).expect("JSON");
    let looks = json["looks"].as_array_mut().expect("looks");
    let processes = looks.last_mut().expect("a look")["processes"].as_array_mut().expect("processes");
    processes[0]["pages"] = serde_json::json!([{"start": 0x10000, "length": 255 << 20, "at": 0}]);
    for number in 1..16 {
        let mut process = processes[0].clone();
        process["pid"] = (process["pid"].as_i64().expect("a number") + number).into();
        processes.push(process);
    }
    let bytes = lockscope::internals::fuzzing::with_looks(&bytes, &serde_json::to_vec(&json).expect("JSON"))
        .expect("a snapshot");
    // Its notes, with the blob exchanged (owner LOCKSCOPE, type 2).
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let (start, size) = (word(64 + 8) as usize, word(64 + 32) as usize);
    let (mut at, mut notes, mut exchanged) = (start, Vec::new(), 0);
    while at < start + size {
        let (name, data, kind) = (word(at) as usize, word(at + 4) as usize, word(at + 8));
        let (name_end, begin) = (at + 12 + name, at + 12 + name.next_multiple_of(4));
        let is_blob = kind == 2 && bytes[at + 12..name_end].starts_with(b"LOCKSCOPE");
        let packed = if is_blob { zeros(255) } else { bytes[begin..begin + data].to_vec() };
        exchanged += usize::from(is_blob);
        for value in [name as u32, packed.len() as u32, kind] {
            notes.extend(value.to_le_bytes());
        }
        notes.extend(&bytes[at + 12..begin]);
        notes.extend(&packed);
        notes.resize(notes.len().next_multiple_of(4), 0);
        at = begin + data.next_multiple_of(4);
    }
    assert_eq!(exchanged, 1);
    let mut bomb = core_header(&[(120, notes.len() as u64)]);
    bomb.extend(notes);
    std::fs::write(&path, bomb).expect("written");
    let (output, text) = bounded(&["core", &path.display().to_string()]);
    assert!(output.status.code().is_some_and(|code| code <= 1), "{:?} {text}", output.status);
}

#[test]
fn a_library_that_is_rewritten_in_place_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("library.so");
    std::fs::copy(compile("hostile/library.c", "library.so", &["-shared", "-fPIC"]), &library).expect("copied");
    let waits_in = compile("hostile/waits_in.c", "waits_in", &["-ldl"]);
    let target = Target::start(Command::new(waits_in).arg(&library).arg("rewritten"));
    for _ in 0..20 {
        let output = lockscope().args(["attach", &target.pid().to_string()]).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{:?} {text}", output.status);
    }
}

#[test]
fn nothing_outside_of_a_jail_is_opened() {
    if !is_root() {
        return println!("skipped: chroot(2) needs root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (jail, marker) = (folder.path().join("jail"), folder.path().join("marker.debug"));
    std::fs::create_dir(&jail).expect("made");
    let flags = ["-static", "-Wl,--build-id=none"];
    let whole = compile("hostile/jailed.c", "jailed", &flags);
    let inside = jail.join("jailed");
    let objcopy = |words: &[&str], files: &[&Path]| {
        let status = Command::new("objcopy").current_dir(folder.path()).args(words).args(files).status();
        assert!(status.expect("objcopy runs").success());
    };
    objcopy(&["--only-keep-debug"], &[&whole, &marker]);
    let link = format!("--add-gnu-debuglink={}", marker.display());
    objcopy(&["--strip-all", &link], &[&whole, &inside]);
    // In the jail the debug file is a link to the one outside, as the host sees it.
    let in_jail = jail.join("marker.debug");
    std::os::unix::fs::symlink(&marker, &in_jail).expect("laid");
    let start = || Target::start(Command::new(&whole).arg(&jail));
    let opened = || {
        let program = compile("hostile/opened.c", "opened", &[]);
        let mut watch =
            Command::new(program).arg(&marker).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
        let mut output = std::io::BufReader::new(watch.stdout.take().expect("piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        let target = start();
        let look = crate::harness::attach(&[target.pid()], &[]);
        drop(watch.stdin.take());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut output, &mut said).expect("readable");
        watch.wait().expect("it ends");
        (look, said.matches("opened").count())
    };
    let (look, times) = opened();
    assert_eq!((times, look.says("wait_in_jail")), (0, false), "{}", look.text);
    // Its twin: the debug file itself lies in the jail, and is found there.
    std::fs::remove_file(&in_jail).and_then(|()| std::fs::hard_link(&marker, &in_jail)).expect("laid");
    let (look, times) = opened();
    assert!(times > 0 && look.says("wait_in_jail"), "{times} {}", look.text);
}

#[test]
fn devices_links_and_pipes_by_name_stay_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("null");
    std::os::unix::fs::symlink("/dev/null", &link).expect("laid");
    let run = |file: &Path| {
        let mut run = lockscope();
        run.args(["run", "--junit"]).arg(file).args(["--", "true"]).env_remove("LOCKSCOPE").output().expect("it runs")
    };
    assert_eq!(run(&link).status.code(), Some(0));
    assert!(link.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()));
    if is_root() {
        let node = folder.path().join("node");
        let made = Command::new("mknod").arg(&node).args(["c", "1", "3"]).status().expect("mknod runs");
        assert!(made.success());
        assert_eq!(run(&node).status.code(), Some(0));
        assert!(node.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_char_device()));
    } else {
        println!("skipped: a device of one's own needs root");
    }
    // Reports go where the name leads.
    let target = Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba")).settle(3);
    let mut attach = lockscope();
    attach.args(["attach", &target.pid().to_string(), "--format", "json", "-o", "/dev/stdout"]);
    let output = attach.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["verdict"], "deadlock");
    assert!(Path::new("/dev/stdout").symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()));
}

/// A program whose functions call each other, with debug information of its own in place of the compiler's.
fn with_debug_sections(folder: &Path, functions: usize, sections: &str) -> PathBuf {
    let mut code = String::from("#include <stdio.h>\n#include <unistd.h>\n");
    for number in 0..functions {
        code += &format!("void f{number}(void);\n");
    }
    for number in 0..functions - 1 {
        code += &format!(
            "__attribute__((noinline)) void f{number}(void) {{ f{}(); __asm__ volatile(\"\"); }}\n",
            number + 1
        );
    }
    code += &format!(
        "__attribute__((noinline)) void f{}(void) {{ printf(\"READY pids=%d\\n\", getpid()); fflush(stdout); alarm(180); \
         for (;;) pause(); }}\nint main(void) {{ f0(); return 0; }}\n",
        functions - 1
    );
    let path = |name: &str| folder.join(name);
    std::fs::write(path("code.c"), code).expect("written");
    std::fs::write(path("debug.s"), format!("{sections}\n.section .note.GNU-stack,\"\",@progbits\n")).expect("written");
    let cc = |words: &[&str]| {
        let status = Command::new("cc").current_dir(folder).args(words).status().expect("cc runs");
        assert!(status.success(), "{words:?}");
    };
    cc(&["-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-no-pie", "-o", "program", "code.c", "debug.s"]);
    path("program")
}

/// A line program of version 2 for the function `at`, with this name of a file and this number of rows.
fn line_program(at: &str, name: &str, rows: usize) -> String {
    format!(
        ".section .debug_line,\"\",@progbits\n.long 9f-8f\n8: .value 2\n.long 7f-6f\n6: .byte 1,1,-5,14,13,0,1,1,1,1,0,0,0,1,0,0,1\n\
         .byte 0\n{name}.byte 0,0,0\n.byte 0\n7: .byte 0,9,2\n.quad {at}\n.fill {rows},1,0x20\n.byte 0,1,1\n9:\n"
    )
}

/// Each unit has rows of its own of the one program that all of them name: 300 MiB.
#[test]
fn a_line_program_that_units_share_is_counted_for_each() {
    const UNITS: usize = 10;
    let folder = tempfile::tempdir().expect("a folder");
    let mut sections = String::from(
        ".section .debug_abbrev,\"\",@progbits\n.byte 1,0x11,0,0x03,0x08,0x11,0x01,0x12,0x06,0x10,0x17,0,0,0\n\
         .section .debug_info,\"\",@progbits\n",
    );
    for unit in 0..UNITS {
        sections += &format!(
            "1: .long 3f-2f\n2: .value 4\n.long 0\n.byte 8\n.byte 1\n.asciz \"u{unit}.c\"\n.quad f{unit}\n.long 64\n.long 0\n3:\n"
        );
    }
    sections += &line_program("f0", ".asciz \"lines.c\"\n", 11 << 20);
    let program = with_debug_sections(folder.path(), UNITS, &sections);
    let target = Target::start(&mut Command::new(program)).settle_asleep();
    let (output, text) = bounded(&["attach", "--all", &target.pid().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("source lines of a unit of debug information"), "{text}");
}

/// A name of 8 MiB, of a file, of a unit and of a function that is inlined everywhere.
#[test]
fn names_of_megabytes_are_cut() {
    const FUNCTIONS: usize = 10;
    for what in ["file", "unit", "inlined"] {
        let folder = tempfile::tempdir().expect("a folder");
        let big = format!(".fill {},1,0x61\n.byte 0\n", 8 << 20);
        let name = |is_big: bool| if is_big { ".Lbig" } else { ".Lshort" };
        let mut sections = String::from(
            ".section .debug_abbrev,\"\",@progbits\n.byte 1,0x11,1,0x03,0x0e,0x11,0x01,0x12,0x06,0x10,0x17,0,0, \
             2,0x2e,1,0x03,0x0e,0x11,0x01,0x12,0x06,0,0, 3,0x1d,0,0x31,0x13,0x11,0x01,0x12,0x06,0x58,0x0b,0x59,0x0b,0,0, \
             4,0x2e,0,0x03,0x0e,0x20,0x0b,0,0, 0\n.section .debug_str,\"MS\",@progbits,1\n.Lshort: .asciz \"short\"\n.Lbig: ",
        );
        sections += if what == "file" { ".asciz \"b\"\n" } else { &big };
        sections += &format!(
            ".section .debug_info,\"\",@progbits\n.Lunit: .long 3f-2f\n2: .value 4\n.long .debug_abbrev\n.byte 8\n.byte 1\n\
             .long {}\n.quad f0\n.long 4096\n.long .debug_line\n.Linlined: .byte 4\n.long {}\n.byte 1\n",
            name(what == "unit"),
            name(what == "inlined")
        );
        for number in 0..FUNCTIONS {
            sections += &format!(
                ".byte 2\n.long .Lshort\n.quad f{number}\n.long 16\n.byte 3\n.long .Linlined-.Lunit\n.quad f{number}\n.long 16\n\
                 .byte 1,7\n.byte 0\n"
            );
        }
        sections += ".byte 0\n3:\n";
        sections += &line_program("f0", if what == "file" { &big } else { ".asciz \"n.c\"\n" }, 250);
        let program = with_debug_sections(folder.path(), FUNCTIONS, &sections);
        let target = Target::start(&mut Command::new(program)).settle_asleep();
        let (output, text) = bounded(&["attach", "--all", &target.pid().to_string()]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text.get(..2000).unwrap_or(&text));
        assert!(text.len() < 1 << 20, "{what}: {} bytes", text.len());
    }
}

/// Frames of 120 threads that are 30,000 calls deep would take gigabytes: the innermost of each are read, and the deadlock is told, also by
/// a snapshot.
#[test]
fn threads_deep_in_recursion_share_the_room() {
    let program = compile("hostile/deep.c", "deep", &[]);
    let target = Target::start(Command::new(program).args(["120", "30000"])).settle(121);
    let pid = target.pid().to_string();
    let (output, text) = bounded(&["attach", &pid]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("deadlock: "), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("deep.snapshot.zst").display().to_string();
    let (output, text) = bounded(&["snapshot", &pid, "-o", &file]);
    assert!(output.status.code() != Some(2), "{text}");
    let (output, text) = bounded(&["core", &file]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("deadlock: "), "{text}");
}

/// The processor time that a look takes at most, in seconds; the kernel ends one that takes more. These looks take a tenth of it, and
/// took minutes while each frame went over a table or an expression of the target's by itself.
fn within_a_minute(words: &[&OsStr]) -> (Output, String) {
    let output = Command::new("prlimit").arg("--cpu=60").arg(own_program()).args(words).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

/// The report of one rank of a job.
fn report_of_a_rank() -> Value {
    let target =
        Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba").env("RANK", "0"));
    let target = target.settle(3);
    let look = Command::new(own_program()).args(["attach", &target.pid().to_string(), "--format", "json"]).output();
    let mut report: Value = serde_json::from_slice(&look.expect("it runs").stdout).expect("JSON");
    let identity = &mut report["processes"][0]["identity"];
    identity["rank"] = 0.into();
    identity["job"] = serde_json::json!({"engine": "torchrun", "id": "x", "step": null});
    report
}

#[test]
#[cfg(target_arch = "x86_64")]
fn unwind_information_that_goes_in_circles() {
    let program = compile("hostile/expressions.c", "expressions", &[]);
    let target = Target::start(Command::new(program).args(["20", "30000"])).settle(20);
    let (output, text) = within_a_minute(&["attach".as_ref(), target.pid().to_string().as_ref()]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?} {text}", output.status);
    assert!(text.contains("captured 21 threads"), "{text}");
}

#[test]
fn frames_of_python_in_a_function_without_end() {
    let target =
        Target::start(Command::new("python3").arg(crate::harness::testdata("hostile/long_lines.py"))).settle(5);
    let (output, text) = within_a_minute(&["attach".as_ref(), target.pid().to_string().as_ref()]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?} {text}", output.status);
    assert!(text.contains("captured 5 threads"), "{text}");
}

/// A report of tens of thousands of ranks on one machine: each is compared with all others.
#[test]
fn ranks_without_end_in_one_report() {
    let mut report = report_of_a_rank();
    let mut first = report["processes"][0].clone();
    first["threads"].as_array_mut().expect("threads").truncate(1);
    let rank = |number: usize| {
        let mut one = first.clone();
        (one["id"], one["pid"]) = (format!("rank{number}").into(), (10 + number).into());
        one["identity"]["rank"] = number.into();
        one
    };
    report["processes"] = (0..20_000).map(rank).collect::<Vec<_>>().into();
    for facts in ["waits", "holds", "resources", "cycles", "findings"] {
        report[facts] = serde_json::json!([]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ranks.json");
    std::fs::write(&file, report.to_string()).expect("written");
    let mut merge = Command::new(own_program());
    let output = merge.args(["merge", "-v"]).arg(&file).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("further ranks of the machine"), "{text}");
}

/// A report of one rank with a chain of waits as long as a file allows: each thread waits for the next.
#[test]
fn waits_without_end_in_one_report() {
    const LENGTH: i64 = 40_000;
    let mut report = report_of_a_rank();
    let main = report["processes"][0]["pid"].as_i64().expect("a number");
    let like = |facts: &str| report[facts][0].clone();
    let (wait, hold, resource) = (like("waits"), like("holds"), like("resources"));
    let tid = |number: i64| if number == 0 { main } else { 10_000_000 + number };
    let chain = |one: &Value, id: &str, of: &dyn Fn(i64) -> i64| {
        let link = |number: i64| {
            let mut link = one.clone();
            link[id] = format!("r{number}").into();
            if id == "resource" {
                link["tid"] = of(number).into();
            }
            link
        };
        Value::from((0..LENGTH).map(link).collect::<Vec<_>>())
    };
    report["waits"] = chain(&wait, "resource", &tid);
    report["holds"] = chain(&hold, "resource", &|number| tid(number + 1));
    report["resources"] = chain(&resource, "id", &tid);
    for facts in ["cycles", "findings"] {
        report[facts] = serde_json::json!([]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("waits.json");
    std::fs::write(&file, report.to_string()).expect("written");
    let (output, text) = within_a_minute(&["merge".as_ref(), file.as_os_str()]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// 60 MB of JSON whose values take gigabytes, each as a file of a scheduler, of NCCL or of nobody.
#[test]
fn values_without_end_in_what_is_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = |value: &str, count: usize| format!("[{}{value}]", format!("{value},").repeat(count));
    for (name, text) in [
        ("zeros-ras.json", list("0", 30 << 20)),
        ("lists-ras.json", list("[]", 20 << 20)),
        ("objects.json", format!("{{\"nccl_version\":1,\"communicators\":{}}}", list("{}", 20 << 20))),
        ("pods.json", format!("{{\"kind\":\"List\",\"items\":{}}}", list("{\"a\":0}", 7 << 20))),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("written");
        let (output, text) = bounded(&["merge", &file.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        std::fs::remove_file(file).expect("removed");
    }
}

/// Hundreds of processes map the same files: what is parsed of these is parsed once.
#[test]
fn processes_share_what_is_parsed_of_a_file() {
    let program = compile("hostile/many.c", "many", &[]);
    let target = Target::start(Command::new(program).arg("300"));
    let pid = target.pid();
    let children = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let waits = |child: &str| {
        std::fs::read_to_string(format!("/proc/{child}/syscall"))
            .is_ok_and(|call| call.starts_with("0 ") || call.starts_with("63 "))
    };
    crate::harness::wait_until("all of them wait", || {
        children().split_whitespace().filter(|child| waits(child)).count() == 300
    });
    let (output, text) = bounded(&["attach", "--tree", &pid.to_string()]);
    // Their parent, which waits for any of them, has the only other end of their pipe.
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("captured 301 threads") && !text.contains("symbols of a large file"), "{text}");
    // All of them have their names.
    assert!(text.contains("299 threads wait for data in pipe") && text.contains("in read"), "{text}");
}

/// Names that end lines, in all files that a run writes.
#[test]
fn names_of_a_target_begin_no_line_and_colour_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let junit = folder.path().join("junit.xml");
    let program = compile("hostile/names.c", "names", &[]);
    let mut run = lockscope();
    run.arg("run").arg("--report-dir").arg(folder.path()).arg("--junit").arg(&junit).arg("--").arg(program);
    let output = run.env_remove("LOCKSCOPE").env("GITHUB_ACTIONS", "true").output().expect("it runs");
    assert_eq!(output.status.code(), Some(124), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(junit.exists());
    let files = std::fs::read_dir(folder.path()).expect("readable").map(|entry| entry.expect("an entry").path());
    let texts: Vec<_> = files.filter(|path| path.extension().is_none_or(|ending| ending != "zst")).collect();
    assert!(texts.len() >= 5, "{texts:?}");
    let said = |path: &PathBuf| (path.display().to_string(), std::fs::read_to_string(path).expect("text"));
    let all = texts.iter().filter(|path| path.is_file()).map(said);
    for (name, text) in all.chain([("standard error".to_owned(), String::from_utf8_lossy(&output.stderr).into_owned())])
    {
        assert!(!text.lines().any(|line| line.starts_with("::error::pwn")), "{name}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{9b}']), "{name}: {text}");
        assert!(!text.contains("<b>") || !name.ends_with("html") && !name.ends_with("xml"), "{name}: {text}");
    }
}

/// A look whose time is over before it has read any line: the deadlock still has its lines, and a gap names what has none.
#[test]
fn threads_that_seem_deadlocked_come_first_when_time_is_short() {
    let clock = compile("hostile/late_clock.c", "late_clock.so", &["-shared", "-fPIC"]);
    let target = Target::start(Command::new(compile("native/deadlocks.c", "deadlocks", &[])).arg("abba")).settle(3);
    // The one that Cargo has built: a static program has no preloaded clock.
    let mut look = Command::new(env!("CARGO_BIN_EXE_lockscope"));
    look.args(["attach", &target.pid().to_string()]).env("LD_PRELOAD", clock);
    let output = look.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("source lines of further code"), "{text}");
    assert!(text.contains("deadlock: ") && text.contains("pthread_mutex_lock(&"), "{text}");
}
