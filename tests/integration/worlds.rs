//! Random worlds, which know whether they go on: of Python's objects, of tasks, of native locks. One that goes on is never called hung, nor
//! does a finding name a thread that goes on; most of the others are named. scripts/check/random-worlds.py looks at thousands.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Look, Target, attach, skipped, testdata};
use crate::python::pythons;

/// The results of some worlds.
#[derive(Default)]
struct Tally {
    named: usize,
    missed: Vec<String>,
}

impl Tally {
    /// Looks at a world, and compares with what it says of itself.
    fn look(&mut self, command: &mut Command, place: &str) {
        let target = Target::start(command).settle_asleep();
        let truth = target.said.iter().find_map(|line| line.strip_prefix("TRUTH ")).expect("a truth");
        let words: Vec<&str> = truth.split_whitespace().collect();
        let look = attach(&target.pids, &[]);
        let place = format!("{place}: {truth}{}", look.text);
        assert!(words[0] != "on" || look.code == 0, "it goes on: {place}");
        if words[0] != "never" {
            return;
        }
        if words.len() > 2 {
            let beside: Vec<String> =
                members(&look).into_iter().filter(|name| !words.contains(&name.as_str())).collect();
            assert!(beside.is_empty(), "{beside:?} go on: {place}");
        }
        if look.code == 1 { self.named += 1 } else { self.missed.push(place) }
    }

    /// At least four of five that never go on have to be named.
    fn check(&self) {
        let (missed, all) = (self.missed.len(), self.named + self.missed.len());
        assert!(all > 0 && missed * 5 <= all, "{missed} of {all} were missed:\n{}", self.missed.join("\n"));
    }
}

/// The threads of worlds of native code that the findings name.
fn members(look: &Look) -> Vec<String> {
    let threads = look.json["findings"].as_array().expect("findings").iter().flat_map(|finding| {
        let is_hang = finding["severity"] == "error";
        finding["threads"].as_array().into_iter().flatten().filter(move |_| is_hang)
    });
    let name = |tid: &serde_json::Value| {
        let processes = look.json["processes"].as_array().expect("processes").iter();
        let mut threads = processes.flat_map(|process| process["threads"].as_array().into_iter().flatten());
        threads.find(|thread| thread["tid"] == *tid).and_then(|thread| thread["name"].as_str()).unwrap_or_default()
    };
    threads.map(|thread| name(&thread["tid"]).to_owned()).filter(|name| name.starts_with('t')).collect()
}

/// Worlds of native code as a program; `None` where there is no such compiler.
fn compiled(generator: &str, compiler: &mut Command, name: &str, count: u32) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = built.with_extension("source");
    let file = std::fs::File::create(&source).expect("writable");
    let mut python = Command::new("python3");
    python.args(["-B".as_ref(), testdata(generator).as_os_str(), "0".as_ref(), count.to_string().as_ref()]);
    assert!(python.stdout(file).status().expect("python3 runs").success(), "{generator}");
    let compiled = compiler.arg(&source).arg("-o").arg(&built).stdin(Stdio::null()).status();
    compiled.ok().map(|status| assert!(status.success(), "{generator} does not compile")).map(|()| built)
}

#[test]
fn worlds_of_cpp_are_judged_rightly() {
    const COUNT: u32 = 16;
    for level in ["-O0", "-O2"] {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-pthread", level, "-x", "c++"]);
        let program = compiled("native/worlds.py", &mut compiler, &format!("worlds{level}"), COUNT);
        let Some(program) = program else { return skipped!("no g++") };
        let mut tally = Tally::default();
        (0..COUNT)
            .for_each(|seed| tally.look(Command::new(&program).arg(seed.to_string()), &format!("{level} {seed}")));
        tally.check();
    }
}

#[test]
fn worlds_of_rust_are_judged_rightly() {
    const COUNT: u32 = 24;
    let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compiler.args(["--edition", "2021", "-g"]);
    let program = compiled("native/worlds_of_rust.py", &mut compiler, "worlds-rust", COUNT);
    let Some(program) = program else { return skipped!("no rustc") };
    let mut tally = Tally::default();
    (0..COUNT).for_each(|seed| tally.look(Command::new(&program).arg(seed.to_string()), &format!("Rust {seed}")));
    tally.check();
}

#[test]
fn worlds_of_python_are_judged_rightly() {
    let named = |version: &str| ["3.8.", "3.11.", "3.13.", "3.14."].iter().any(|one| version.starts_with(one));
    for (version, python) in pythons().into_iter().filter(|(version, _)| named(version)) {
        for (program, count) in [("python/worlds.py", 12), ("python/worlds_of_tasks.py", 6)] {
            let world = python.sees(&testdata(program));
            let mut tally = Tally::default();
            for seed in 0..count {
                let place = format!("{program} {seed} on {version}");
                tally.look(python.command().arg(&world).arg(seed.to_string()), &place);
            }
            tally.check();
        }
    }
}
