//! The build's lines in `lockscope --version`, and the recorder that the program carries. Neither depends on the time or
//! the place of the build.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let package = variable("CARGO_MANIFEST_DIR");
    let package = Path::new(&package);
    println!("cargo::rerun-if-changed=scripts/build.rs");
    println!("cargo::rerun-if-env-changed=LOCKSCOPE_PROFILE");
    // A build for tests or for a fuzzer would be made anew after each commit. The profile `release` is Cargo's word for all that
    // inherit it; scripts/release/wheel knows which it is.
    let is_other_profile = std::env::var_os("LOCKSCOPE_PROFILE").is_some_and(|profile| profile != "release");
    let is_fuzzed = std::env::var_os("CARGO_CFG_FUZZING").is_some();
    let is_release = variable("PROFILE") == "release" && !is_other_profile && !is_fuzzed;
    let commit = is_release.then(|| checked_out(package).or_else(|| packaged(package))).flatten();
    let compiler = output(Command::new(variable("RUSTC")).arg("--version")).unwrap_or_default();
    for (name, value) in [
        ("COMMIT", commit.as_deref().unwrap_or(if is_release { "unknown" } else { "not recorded" })),
        ("TARGET", &variable("TARGET")),
        ("PROFILE", &variable("PROFILE")),
        ("RUSTC", compiler.split(' ').nth(1).unwrap_or("unknown")),
    ] {
        println!("cargo::rustc-env=LOCKSCOPE_BUILD_{name}={value}");
    }
    println!("cargo::rustc-check-cfg=cfg(unoptimised)");
    if matches!(variable("OPT_LEVEL").as_str(), "0" | "1") {
        println!("cargo::rustc-cfg=unoptimised");
    }
    recorder(package);
}

/// Compile the library that `lockscope run --record` preloads (src/recorder/preload): a program by itself, with `core`
/// alone. Where no linker can do it, or on another machine, an empty file stands for it, and the program says so when
/// it is asked to record.
fn recorder(package: &Path) {
    let sources = package.join("src/recorder/preload");
    println!("cargo::rerun-if-changed={}", sources.display());
    let library = PathBuf::from(variable("OUT_DIR")).join("liblockscope_recorder.so");
    // That of the toolchain, and those of distributions.
    let linkers = [("rust-lld", "ld.lld"), ("ld.lld", "ld.lld"), ("ld", "ld")];
    // rustc before 1.90 knows the option on few targets, and needs it on none.
    let self_contained = [Some("link-self-contained=no"), None];
    let mut ways = linkers.into_iter().flat_map(|linker| self_contained.map(|option| (linker, option)));
    let is_known = variable("CARGO_CFG_TARGET_ARCH") == "x86_64" && variable("CARGO_CFG_TARGET_OS") == "linux";
    let mut told = String::new();
    let is_built = is_known
        && ways.any(|((linker, flavor), self_contained)| {
            let _ = std::fs::remove_file(&library);
            let mut command = Command::new(variable("RUSTC"));
            command.args(["--edition", "2024", "--crate-name", "lockscope_recorder", "--crate-type", "cdylib"]);
            command.args(["--target", &variable("TARGET")]);
            let options = [
                "opt-level=3",
                "debuginfo=0",
                "strip=symbols",
                "codegen-units=1",
                "overflow-checks=off",
                "panic=abort",
                // So that lockscope and debuggers find the way through its frames.
                "force-unwind-tables=yes",
                "target-feature=-crt-static",
                // Code of `core` that was built to unwind names the function for it, and nothing here unwinds:
                // undefined it would keep every program from starting. It stays the library's own.
                "link-arg=--defsym=rust_eh_personality=0",
                &format!("linker={linker}"),
                &format!("linker-flavor={flavor}"),
            ];
            command.args(options.into_iter().chain(self_contained).flat_map(|option| ["-C", option]));
            command.arg("--remap-path-prefix").arg(format!("{}=", package.display()));
            command.arg("-o").arg(&library).arg(sources.join("preload.rs"));
            match command.output() {
                Ok(output) if output.status.success() && library.exists() => true,
                Ok(output) => {
                    told = String::from_utf8_lossy(&output.stderr).into_owned();
                    false
                }
                Err(error) => {
                    told = error.to_string();
                    false
                }
            }
        });
    if !is_built {
        if is_known {
            let why = told.lines().find(|line| line.contains("error")).unwrap_or_default();
            println!("cargo::warning=`lockscope run --record` will not work: its library could not be built: {why}");
        }
        let _ = std::fs::write(&library, []);
    }
}

/// The commit of a checkout; not that of a repository which a source archive was unpacked in.
fn checked_out(package: &Path) -> Option<String> {
    if !package.join(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| output(Command::new("git").arg("-C").arg(package).args(arguments));
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Each commit and checkout adds a line to the log; to watch a file that is not there would be to build each time.
    for name in ["HEAD", "logs/HEAD"] {
        let file = git(&["rev-parse", "--git-path", name]).map(|file| package.join(file));
        if let Some(file) = file.filter(|file| file.exists()) {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    Some(commit)
}

/// The commit that `cargo package` has written down.
fn packaged(package: &Path) -> Option<String> {
    let text = std::fs::read_to_string(package.join(".cargo_vcs_info.json")).ok()?;
    let after = text.split("\"sha1\": \"").nth(1)?;
    after.get(..12).map(str::to_owned)
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
