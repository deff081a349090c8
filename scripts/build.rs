//! What `lockscope --version` says of the build. Nothing of it depends on when it was built.

use std::path::Path;
use std::process::Command;

fn main() {
    let package = variable("CARGO_MANIFEST_DIR");
    let package = Path::new(&package);
    println!("cargo::rerun-if-changed=scripts/build.rs");
    // A debug build is mostly of sources that are not committed yet, and would be made anew after each commit.
    let is_release = variable("PROFILE") == "release";
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
