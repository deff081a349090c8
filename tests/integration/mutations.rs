//! Damaged cores and snapshots: 2,000 of them, from real ones, by a fixed sequence of random numbers. None may make
//! lockscope panic, end by a signal or take longer than five seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use lockscope::internals::fuzzing;

use crate::harness::{Target, compile, lockscope, testdata};
use crate::post_mortem::{kernel_cores, snapshot, start_in};

/// As the issue of damaged input has it.
const LONGEST: Duration = Duration::from_secs(5);

/// xorshift64*: the same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Damage `bytes` in one to eight places; headers and notes stand at the beginning and are hit most.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    const WORDS: [u64; 10] = [0, 1, 7, 0xfff, 0x1000, 1 << 31, 1 << 40, 1 << 47, u64::MAX >> 1, u64::MAX];
    if random.below(4) == 0 {
        let near = random.one_of(&[64, 4096, 1 << 16, usize::MAX]).min(bytes.len());
        bytes.truncate(random.below(near));
    }
    for _ in 0..=random.below(8) {
        let near = random.one_of(&[64, 1024, 16 << 10, usize::MAX]).min(bytes.len());
        if near < 16 {
            return;
        }
        let at = random.below(near - 8);
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at & !7..(at & !7) + 8].copy_from_slice(&random.one_of(&WORDS).to_le_bytes()),
            // A pointer to somewhere else that is mapped: cycles and crossed lists.
            _ => {
                let from = random.below(bytes.len() - 8) & !7;
                let word: [u8; 8] = bytes[from..from + 8].try_into().expect("eight bytes");
                bytes[at & !7..(at & !7) + 8].copy_from_slice(&word);
            }
        }
    }
}

/// Damage the text of a snapshot, so that most of it can still be parsed.
fn damage_text(text: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(12) {
        let digits: Vec<usize> = (0..text.len()).filter(|at| text[*at].is_ascii_digit()).collect();
        let at = random.one_of(&digits);
        match random.below(4) {
            0 => text[at] = b'0' + random.below(10) as u8,
            1 => drop(text.remove(at)),
            2 => drop(text.splice(at..at, *b"99999999999")),
            _ => {
                let list = [&b"null"[..], b"[]", b"{}", b"true", b"-1", b"18446744073709551615"];
                let end = (at..text.len()).find(|at| !text[*at].is_ascii_digit()).unwrap_or(text.len());
                let start = (0..at).rev().find(|at| !text[*at].is_ascii_digit()).map_or(0, |at| at + 1);
                drop(text.splice(start..end, random.one_of(&list).iter().copied()));
            }
        }
    }
}

fn try_one(name: &str, number: usize, bytes: &[u8]) -> bool {
    let before = processor_time();
    let result = catch_unwind(AssertUnwindSafe(|| fuzzing::core(bytes)));
    let Ok(whole) = result else {
        let kept = std::env::temp_dir().join("lockscope-mutation");
        let _ = std::fs::write(&kept, bytes);
        panic!("mutation {number} of {name} panics; it is kept as {}", kept.display());
    };
    let took = processor_time() - before;
    assert!(took < LONGEST, "mutation {number} of {name} takes {took:?}");
    whole
}

/// The processor time of this thread. Other work on the machine does not change it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable");
    Duration::from_nanos(text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number"))
}

#[test]
fn damaged_files_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut seeds: Vec<(&str, Vec<u8>)> = Vec::new();

    let target = start_in("abba", 3, folder.path());
    let file = folder.path().join("native.snapshot");
    snapshot(&target.pids, &file, &[]);
    seeds.push(("a snapshot", std::fs::read(&file).expect("readable")));
    match kernel_cores(target, folder.path()) {
        Ok(cores) => seeds.push(("a core of the kernel's", std::fs::read(&cores[0]).expect("readable"))),
        Err(why) => crate::harness::skipped!("mutations of a core of the kernel's: {why}"),
    }
    let library = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    let mut python = Command::new("python3");
    python.arg(testdata("fakecuda/occupancy.py")).arg(library).arg("cuLaunchKernel");
    let target = Target::start(&mut python).settle(3);
    let file = folder.path().join("python.snapshot");
    snapshot(&target.pids, &file, &[]);
    seeds.push(("a snapshot of Python", std::fs::read(&file).expect("readable")));
    drop(target);

    let mut random = Random(0x10c5_c09e);
    let (mut count, mut whole) = (0, 0);
    while count < 2_000 {
        for (name, seed) in &seeds {
            let mut bytes = seed.clone();
            damage(&mut bytes, &mut random);
            whole += usize::from(try_one(name, count, &bytes));
            count += 1;
            let Some(mut text) = fuzzing::looks_of(seed) else { continue };
            damage_text(&mut text, &mut random);
            let bytes = fuzzing::with_looks(seed, &text).expect("a snapshot");
            whole += usize::from(try_one(name, count, &bytes));
            count += 1;
        }
    }
    println!("{count} damaged files, {whole} of them still gave a report");
    assert!(whole > count / 10, "the damage is so great that nothing behind the first check is tested");
}

#[test]
fn what_is_no_core_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let program = compile("native/deadlocks.c", "deadlocks", &[]);
    let write = |name: &str, bytes: &[u8]| std::fs::write(path(name), bytes).expect("written");
    write("empty", b"");
    write("text", b"a core file\n");
    std::fs::copy(program, path("program")).expect("copied");
    assert!(Command::new("mkfifo").arg(path("fifo")).status().expect("mkfifo runs").success());
    let target = start_in("abba", 3, folder.path());
    snapshot(&target.pids, &path("whole"), &[]);
    let whole = std::fs::read(path("whole")).expect("readable");
    write("header", &whole[..64]);
    write("cut", &whole[..100]);
    let mut other = whole.clone();
    // e_machine of RISC-V (elf.h).
    other[18..20].copy_from_slice(&243u16.to_le_bytes());
    write("riscv", &other);
    // The version comes first.
    let newer = fuzzing::looks_of(&whole).map(|text| {
        let text = String::from_utf8(text).expect("text");
        let (_, rest) = text.split_once(',').expect("fields");
        format!("{{\"version\":99,{rest}").into_bytes()
    });
    write("newer", &fuzzing::with_looks(&whole, &newer.expect("text")).expect("a snapshot"));
    write("not-zstd", &[&[0x28, 0xb5, 0x2f, 0xfd][..], &[7; 100]].concat());
    for (name, why) in [
        ("missing", "cannot read"),
        (".", "a folder"),
        ("empty", "is empty"),
        ("text", "no ELF file"),
        ("program", "not a core file"),
        ("fifo", "a pipe"),
        ("header", "program headers"),
        ("cut", "program headers"),
        ("riscv", "RISC-V"),
        ("newer", "version 99"),
        ("not-zstd", "unpacked"),
    ] {
        let output = lockscope().arg("core").arg(path(name)).output().expect("lockscope runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {errors}");
        assert!(errors.contains(why) && errors.starts_with("error: "), "{name}: {errors}");
        assert!(output.stdout.is_empty(), "{name}");
    }
    let output = lockscope().arg("core").arg(path("whole")).arg(path("whole")).output().expect("lockscope runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("alone"));
}

/// What is left of a cut snapshot gives another verdict than the whole, and nothing in it says so.
#[test]
fn of_a_cut_snapshot_there_is_no_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = start_in("abba", 3, folder.path());
    for name in ["a.snapshot", "a.snapshot.zst"] {
        let path = folder.path().join(name);
        snapshot(&target.pids, &path, &[]);
        let whole = std::fs::read(&path).expect("readable");
        let mut ends: Vec<usize> = (1..16).map(|part| whole.len() * part / 16).collect();
        // The end of a compressed file may be a checksum alone.
        if name == "a.snapshot" {
            ends.push(whole.len() - 1);
        }
        for end in ends {
            std::fs::write(&path, &whole[..end]).expect("written");
            let output = lockscope().arg("core").arg(&path).output().expect("lockscope runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}, {end} of {}: {errors}", whole.len());
            assert!(errors.contains("was cut") || errors.contains("is damaged"), "{name}, {end}: {errors}");
            assert!(output.stdout.is_empty(), "{name}, {end}");
        }
    }
}
