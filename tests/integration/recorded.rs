//! `run --record`: holders that nothing else names, and programs that do not notice it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Look, Target, compile, lockscope, own_program, testdata};
use crate::post_mortem::looks;
use crate::python_locks::pythons;

/// What the recorder is preloaded by.
pub(crate) fn preload() -> String {
    let output = lockscope().args(["run", "--record", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().expect("it runs");
    let value = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(value.contains("liblockscope_recorder"), "{value} {}", String::from_utf8_lossy(&output.stderr));
    value
}

fn program() -> PathBuf {
    compile("native/recorded.c", "recorded", &["-g", "-O1"])
}

fn start(case: &str, asleep: usize, with: Option<&str>) -> Target {
    let mut command = Command::new(program());
    command.arg(case);
    with.map(|library| command.env("LD_PRELOAD", library));
    Target::start(&mut command).settle(asleep)
}

/// Holds as (name of the holder, certainty, source, function that took it).
fn holds(look: &Look) -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |name: &str| look.json[name].as_array().expect("a list").clone();
    let threads: Vec<Value> =
        of("processes").iter().flat_map(|process| process["threads"].as_array().cloned().unwrap_or_default()).collect();
    let name =
        |tid: &Value| threads.iter().find(|one| one["tid"] == *tid).map_or(String::new(), |one| text(&one["name"]));
    let one = |hold: &Value| {
        [name(&hold["tid"]), text(&hold["certainty"]), text(&hold["source"]), text(&hold["taken"]["function"])]
    };
    of("holds").iter().map(one).collect()
}

fn row(row: [&str; 4]) -> [String; 4] {
    row.map(str::to_owned)
}

#[test]
fn a_reader_is_named_whose_function_has_returned() {
    let library = preload();
    let target = start("returned", 1, Some(&library));
    for look in looks(&target) {
        assert_eq!(holds(&look), [row(["reader", "exact", "recorder", "begin_reading"])], "{}", look.text);
        assert!(look.says("held by reader"), "{}", look.text);
        assert!(!look.says("liblockscope_recorder"), "{}", look.text);
        assert_eq!(look.json["gaps"], serde_json::json!([]), "{}", look.text);
    }
    // Without it the code of the function that has returned says who has it.
    let target = start("returned", 1, None);
    for look in looks(&target) {
        assert_eq!(holds(&look).iter().map(|hold| &hold[1]).collect::<Vec<_>>(), ["inferred"], "{}", look.text);
    }
}

#[test]
fn a_ring_through_readers_is_exact() {
    let library = preload();
    let target = start("orders", 2, Some(&library));
    for look in looks(&target) {
        assert_eq!(look.verdict(), "deadlock", "{}", look.text);
        assert_eq!(look.cycles(), [["reader", "writer"]], "{}", look.text);
        assert!(look.findings().contains(&"lock-order-cycle"), "{}", look.text);
        let mut holds = holds(&look);
        holds.sort();
        let expected =
            [row(["reader", "exact", "recorder", "begin_reading"]), row(["writer", "exact", "recorder", "writer"])];
        assert_eq!(holds, expected, "{}", look.text);
    }
}

#[test]
fn what_was_given_back_or_left_in_the_parent_is_nobodys() {
    let library = preload();
    let target = start("given-back", 1, Some(&library));
    for look in looks(&target) {
        assert_eq!(holds(&look), [row(["owner", "exact", "recorder", "owner"])], "{}", look.text);
    }
    let target = start("forked", 1, Some(&library));
    for look in looks(&target) {
        assert!(holds(&look).iter().all(|hold| hold[2] != "recorder"), "{}", look.text);
    }
}

#[test]
fn locks_of_python_have_holders_on_each_version() {
    let library = preload();
    for (version, python) in pythons() {
        // Of these it knows the methods and the frames.
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).expect("a version");
        // In another root the library would not be found.
        if version.ends_with('t') || minor > 14 || python.root().is_some() {
            continue;
        }
        let run = |case: &str, asleep: usize| {
            let (folder, mut command) = python.in_a_folder();
            command.arg(python.sees(&testdata("python/recorded.py"))).arg(case);
            command.env("LD_PRELOAD", &library);
            (folder, Target::start(&mut command).settle(asleep))
        };
        let (_folder, target) = run("bare", 1);
        let function = "begin_update";
        for look in looks(&target) {
            assert_eq!(holds(&look), [row(["worker", "exact", "recorder", function])], "{version}: {}", look.text);
        }
        drop(target);
        let (_folder, target) = run("orders", 2);
        for look in looks(&target) {
            assert_eq!(look.cycles(), [["updater", "writer"]], "{version}: {}", look.text);
            assert_eq!(look.verdict(), "deadlock", "{version}: {}", look.text);
        }
        drop(target);
        let (_folder, target) = run("signal", 1);
        for look in looks(&target) {
            assert_ne!(look.verdict(), "deadlock", "{version}: {}", look.text);
        }
        drop(target);
        let (_folder, target) = run("given", 1);
        for look in looks(&target) {
            assert_eq!(holds(&look), [row(["successor", "exact", "recorder", function])], "{version}: {}", look.text);
        }
    }
}

#[test]
fn a_program_does_not_notice_that_it_is_recorded() {
    let program = compile("native/same_when_recorded.c", "same_when_recorded", &["-O2"]);
    let plain = Command::new(&program).output().expect("it runs");
    let recorded = lockscope().args(["run", "--record", "--"]).arg(&program).output().expect("lockscope runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(plain.status.success() && plain.stdout.len() > 100, "{}", text(&plain.stdout));
    assert_eq!(text(&recorded.stdout), text(&plain.stdout));
    assert_eq!(text(&recorded.stderr), "");
    assert!(recorded.status.success());
}

#[test]
fn programs_of_another_c_library_start() {
    let library = preload();
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("recorded");
    let compiled = Command::new("musl-gcc").arg(testdata("native/same_when_recorded.c")).arg("-o").arg(&built).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        crate::harness::skipped!("musl-gcc is not there");
    }
    let run = |with: Option<&str>| {
        let mut command = Command::new(&built);
        with.map(|library| command.env("LD_PRELOAD", library));
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    assert_eq!(run(Some(&library)), run(None));
}

/// A link to env(1) under a name, which prints the environment that it is started with.
fn environment_printer(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::os::unix::fs::symlink("/usr/bin/env", &path).expect("a link");
    path
}

#[test]
fn each_call_that_starts_a_program_takes_it_out_for_those_that_carry_it_elsewhere() {
    let library = preload();
    let starts = compile("native/starts.c", "starts", &["-O1"]);
    let folder = tempfile::tempdir().expect("a folder");
    for (name, is_recorded) in [("mpirun", false), ("printer", true)] {
        environment_printer(folder.path(), name);
        for way in [
            "execve",
            "execv",
            "execvp",
            "execvpe",
            "execl",
            "execlp",
            "execle",
            "execl-many",
            "execle-many",
            "execl-fails",
            "posix_spawn",
            "posix_spawnp",
        ] {
            let on_path = ["execvp", "execvpe", "execlp", "posix_spawnp"].contains(&way);
            let program = if on_path { PathBuf::from(name) } else { folder.path().join(name) };
            let mut command = Command::new(&starts);
            command.arg(way).arg(program).env("PATH", folder.path()).env("LD_PRELOAD", &library).env("OTHER", "kept");
            let output = command.output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(text.contains("liblockscope_recorder"), is_recorded, "{way} {name}: {text}");
            assert!(text.contains("OTHER=kept") && output.stderr.is_empty(), "{way} {name}: {output:?}");
        }
    }
}

/// What is no plain file cannot be started, and nothing of it may be read on the way: its bytes are somebody else's, and may never come.
#[test]
fn pipes_that_are_given_for_a_program_are_not_read() {
    let library = preload();
    let starts = compile("native/starts.c", "starts", &["-O1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    for way in ["execve", "execv", "execvp", "execl", "posix_spawn", "execveat", "execveat-folder"] {
        for program in [pipe.as_path(), Path::new("/dev/fd/0"), folder.path()] {
            let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
            writer.write_all(b"for somebody else").expect("written");
            let mut command = Command::new(&starts);
            command.arg(way).arg(program).env("LD_PRELOAD", &library).stdin(reader.try_clone().expect("another"));
            let output = command.output().expect("it runs");
            // Refused by the kernel, while the writer is still there: nobody has waited for its end, or the alarm would have come.
            assert!(output.status.code().is_some(), "{way} {}: {output:?}", program.display());
            drop((writer, command));
            let mut left = String::new();
            reader.read_to_string(&mut left).expect("read");
            assert_eq!(left, "for somebody else", "{way} {}", program.display());
        }
    }
}

/// `pidfd_spawn` and `pidfd_spawnp`, on the C libraries at hand that have them.
#[test]
fn children_that_are_started_with_a_descriptor_of_theirs_go_without_as_well() {
    let library = preload();
    let starts = compile("native/starts.c", "starts", &["-O1"]);
    let mut places = vec![PathBuf::from("/")];
    places.extend(crate::libcs::roots());
    let mut tried = 0;
    for root in places {
        // Within the root, under /tmp: what is made here runs on a later C library, and not on each before.
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        let inside = Path::new("/").join(folder.path().strip_prefix(&root).expect("within"));
        std::fs::copy(&starts, folder.path().join("starts")).expect("copied");
        let name = Path::new(&library).file_name().expect("a name");
        std::fs::copy(&library, folder.path().join(name)).expect("copied");
        for (program, is_recorded) in [("mpirun", false), ("printer", true)] {
            environment_printer(folder.path(), program);
            for way in ["pidfd_spawn", "pidfd_spawnp"] {
                let program = if way == "pidfd_spawn" { inside.join(program) } else { program.into() };
                let mut command = Command::new("env");
                if root != Path::new("/") {
                    command = Command::new("chroot");
                    command.arg(&root).arg("env");
                }
                command.arg("OTHER=kept").arg(format!("PATH={}", inside.display()));
                command.arg(format!("LD_PRELOAD={}", inside.join(name).display()));
                command.arg(inside.join("starts")).arg(way).arg(&program);
                let output = command.output().expect("it runs");
                let (text, errors) =
                    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).into();
                // The C library has no such function, or is too old for the program.
                if output.status.code() == Some(77) || errors.contains("GLIBC_") {
                    continue;
                }
                let place = format!("{}: {way} {program:?}: {text} {errors}", root.display());
                assert!(output.status.success() && errors.is_empty(), "{place}");
                assert_eq!(text.contains("liblockscope_recorder"), is_recorded, "{place}");
                assert!(text.contains("OTHER=kept"), "{place}");
                tried += 1;
            }
        }
    }
    if tried == 0 {
        crate::harness::skipped!("no C library has pidfd_spawn (glibc 2.39); see scripts/check/other-libcs");
    }
}

#[test]
fn programs_that_are_started_by_a_descriptor_are_known_by_what_it_is_of() {
    let library = preload();
    let starts = compile("native/starts.c", "starts", &["-O1"]);
    for (program, is_recorded) in [("starts-mpirun/mpirun", false), ("starts-printer", true)] {
        if let Some((folder, _)) = program.split_once('/') {
            std::fs::create_dir_all(starts.with_file_name(folder)).expect("a folder");
        }
        let program = compile("native/starts.c", program, &["-O1"]);
        for way in ["fexecve", "fexecve-path", "execveat", "execveat-open", "execveat-folder"] {
            let mut command = Command::new(&starts);
            command.arg(way).arg(&program).env("LD_PRELOAD", &library).env("OTHER", "kept");
            let output = command.output().expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // The C library has no such function.
            if way.starts_with("execveat") && output.status.code() == Some(1) && text.is_empty() {
                continue;
            }
            assert_eq!(text.contains("liblockscope_recorder"), is_recorded, "{way} {program:?}: {text}");
            assert!(text.contains("OTHER=kept") && output.stderr.is_empty(), "{way} {program:?}: {output:?}");
        }
    }
}

#[test]
fn sanitizers_are_refused_and_children_with_one_are_started_without() {
    for sanitizer in ["address", "thread"] {
        let folder = tempfile::tempdir().expect("a folder");
        let built = folder.path().join("sanitized");
        let mut compiler = Command::new("cc");
        compiler.arg(format!("-fsanitize={sanitizer}")).args(["-pthread", "-o"]).arg(&built);
        let compiled = compiler.arg(testdata("native/orders.c")).output().expect("a compiler");
        let plain = Command::new(&built).arg("sorted").output();
        if !compiled.status.success() || !plain.is_ok_and(|output| output.status.success()) {
            crate::harness::skipped!("programs with -fsanitize={sanitizer} cannot be built or do not run here");
        }
        let direct = lockscope().args(["run", "--record", "--"]).arg(&built).arg("sorted").output().expect("it runs");
        let errors = String::from_utf8_lossy(&direct.stderr).into_owned();
        assert_eq!(direct.status.code(), Some(125), "{errors}");
        assert!(errors.contains("was built with a sanitizer"), "{errors}");
        let mut child = lockscope();
        child.args(["run", "--record", "--", "sh", "-c", "\"$0\" sorted; exit $?"]).arg(&built);
        let child = child.output().expect("it runs");
        assert!(child.status.success() && child.stderr.is_empty(), "{child:?}");
    }
}

#[test]
fn where_nothing_may_run_from_the_temporary_folder_it_goes_elsewhere() {
    let script = "mount -t tmpfs -o noexec none \"$1\" || exit 77
        TMPDIR=$1 XDG_CACHE_HOME=$2 \"$0\" run --record -- sh -c 'echo $LD_PRELOAD' || exit 1
        TMPDIR=$1 XDG_CACHE_HOME=$1 HOME=$1 \"$0\" run --record -- true";
    let (closed, cache) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, own_program()]).arg(closed.path()).arg(cache.path());
    let output = command.env_remove("LD_PRELOAD").output().expect("unshare runs");
    if matches!(output.status.code(), Some(77)) || String::from_utf8_lossy(&output.stderr).contains("unshare: ") {
        crate::harness::skipped!("no file system can be mounted");
    }
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with(&cache.path().display().to_string()), "{said} {errors}");
    assert_eq!(output.status.code(), Some(125), "{said} {errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("noexec"), "{errors}");
}

#[test]
fn libraries_are_loaded_and_unloaded_while_it_records() {
    let library = compile("native/dlopen_storm.c", "storm.so", &["-shared", "-fPIC", "-DLIBRARY"]);
    let program = compile("native/dlopen_storm.c", "dlopen_storm", &["-g", "-O1"]);
    let mut command = lockscope();
    command.args(["run", "--record", "--timeout", "60s", "--"]).arg(program).arg(library);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1600\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn other_allocators_do_not_notice() {
    let library = preload();
    let program = compile("native/orders.c", "orders", &["-g", "-O1"]);
    let mut tried = 0;
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        let run = |with: &str| {
            let output = Command::new(&program).arg("differ").env("LD_PRELOAD", with).output().expect("it runs");
            (
                output.status.code(),
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            )
        };
        let alone = run(name);
        // The loader says that there is none.
        if alone.1[1].contains(name) {
            continue;
        }
        tried += 1;
        for with in [format!("{library}:{name}"), format!("{name}:{library}")] {
            assert_eq!(run(&with), alone, "{with}");
        }
    }
    if tried == 0 {
        crate::harness::skipped!("neither jemalloc nor tcmalloc is there");
    }
}

#[test]
fn programs_that_carry_their_environment_elsewhere_go_without() {
    let folder = tempfile::tempdir().expect("a folder");
    // Under the name of a launcher, and under its own.
    for (name, is_recorded) in [("srun", false), ("env", true)] {
        let path = folder.path().join(name);
        std::os::unix::fs::symlink("/usr/bin/env", &path).expect("a link");
        let mut command = lockscope();
        command.env("LD_PRELOAD", "").args(["run", "--record", "--", "sh", "-c", "exec \"$0\""]).arg(&path);
        let output = command.output().expect("lockscope runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.contains("liblockscope_recorder"), is_recorded, "{name}: {text}");
    }
}
