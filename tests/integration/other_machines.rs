//! Cores and snapshots of processes of another machine, read on this one.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::harness::{core, lockscope, skipped, testdata};
use crate::post_mortem::essence;

/// A packed file of testdata/aarch64, unpacked.
pub(crate) fn unpacked(name: &str, folder: &Path) -> PathBuf {
    let packed = std::fs::File::open(testdata("aarch64").join(format!("{name}.zst"))).expect("test data");
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).expect("zstd");
    decoder.read_to_end(&mut bytes).expect("zstd");
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn cores_of_aarch64_have_their_deadlock_with_both_owners() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = unpacked("abba", folder.path());
    let program = program.to_str().expect("a name");
    for (file, [first, second]) in [("abba.core.zst", [197, 198]), ("abba-gdb.core.zst", [180, 181])] {
        let look = core(&[testdata("aarch64").join(file)], &["--exe", program]);
        assert_eq!(look.verdict(), "deadlock", "{file}");
        assert_eq!(look.findings(), ["lock-order-cycle"], "{file}");
        let cycles = format!("{:?}", essence(&look));
        assert!(cycles.contains(&format!("[({first}, {second}), ({second}, {first})]")), "{file}: {cycles}");
        let cycle = &look.json["cycles"][0];
        assert_eq!(cycle["certainty"], "exact", "{file}");
        // The main thread waits for one of them, by the word in its description of a thread.
        let text = look.json.to_string();
        for name in ["ledger_lock", "journal_lock", "first_then_second", "second_then_first", "start_thread"] {
            assert!(text.contains(name), "{file}: no {name}");
        }
    }
}

#[test]
fn a_snapshot_of_aarch64_needs_no_file_of_it() {
    let look = core(&[testdata("aarch64").join("abba.snapshot.zst")], &[]);
    assert_eq!((look.verdict(), look.findings()), ("deadlock", vec!["lock-order-cycle"]));
    let cycles = format!("{:?}", essence(&look));
    assert!(cycles.contains("[(170, 171), (171, 170)]"), "{cycles}");
    assert_eq!(look.json["cycles"][0]["certainty"], "exact");
}

#[test]
fn without_the_code_it_says_what_it_needs() {
    // The kernel's core holds no code of the program, and only that tells which calls its threads are in.
    let look = core(&[testdata("aarch64").join("abba.core.zst")], &[]);
    assert_ne!(look.verdict(), "deadlock");
    let gaps = look.json["gaps"].to_string();
    assert!(gaps.contains("what threads 195, 197, 198 wait for") && gaps.contains("--sysroot"), "{gaps}");
}

#[test]
fn a_machine_that_nobody_knows_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("core");
    let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\xf3\0\x01\0\0\0".to_vec();
    bytes.resize(64, 0);
    std::fs::write(&path, bytes).expect("written");
    let output = lockscope().arg("core").arg(&path).output().expect("lockscope runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("RISC-V"), "{text}");
}

/// Files of a folder whose names begin and end so.
fn named(folder: &Path, start: &str, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let fits = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(start) && name.ends_with(end))
    };
    entries.map(|entry| entry.path()).filter(fits).collect()
}

/// What python3 says; it must end well.
fn python(script: &str, arguments: &[&Path]) -> String {
    let output =
        std::process::Command::new("python3").args(["-c", script]).args(arguments).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn wheel_and_archive_of_64_bit_arm_are_made_here() {
    let Some(given) = std::env::var_os("LOCKSCOPE_AARCH64").map(PathBuf::from) else {
        return skipped!("no wheel of 64-bit Arm");
    };
    let wheels = named(&given, "lockscope-", "_aarch64.whl");
    let [wheel] = wheels.as_slice() else { panic!("{wheels:?}") };
    let folder = tempfile::tempdir().expect("a folder");
    python("import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])", &[wheel, folder.path()]);
    let version = env!("CARGO_PKG_VERSION");
    let inside = |name: &str| folder.path().join(name.replace('V', version));
    let about = std::fs::read_to_string(inside("lockscope-V.dist-info/WHEEL")).expect("readable");
    assert!(about.contains("\nTag: py3-none-manylinux2014_aarch64\n"), "{about}");
    let manual = std::fs::read_to_string(inside("lockscope/manual.html")).expect("the manual");
    assert!(manual.contains("<section id=\"containers\">"));
    let program = std::fs::read(inside("lockscope-V.data/scripts/lockscope")).expect("the program");
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*program).expect("an ELF file");
    assert_eq!(elf.elf_header().e_machine.get(elf.endian()), object::elf::EM_AARCH64);
    let interpreter = elf.elf_program_headers().iter().any(|it| it.p_type.get(elf.endian()) == object::elf::PT_INTERP);
    assert!(!interpreter, "it needs no loader");

    let name = format!("lockscope-{version}-aarch64-linux");
    let archive = given.join(format!("{name}.tar.gz"));
    python("import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])", &[&archive, folder.path()]);
    assert_eq!(std::fs::read(folder.path().join(&name).join("bin/lockscope")).expect("the program"), program);
    assert!(named(&folder.path().join(&name).join("share/man/man1"), "lockscope", ".1").len() > 8);
    let sum = std::fs::read_to_string(given.join(format!("{name}.tar.gz.sha256"))).expect("a sum");
    assert!(sum.ends_with(&format!("  {name}.tar.gz\n")), "{sum}");
}
