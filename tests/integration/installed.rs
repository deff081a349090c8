//! What scripts/release/archive has packed: the program runs without anything around it, and man and the shells read what
//! comes with it.
//!
//! LOCKSCOPE_ARCHIVE is the archive.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The archive, unpacked, and its folder.
fn unpacked() -> (TempDir, PathBuf) {
    let archive = PathBuf::from(std::env::var("LOCKSCOPE_ARCHIVE").expect("LOCKSCOPE_ARCHIVE: scripts/test sets it"));
    let folder = archive.parent().expect("a folder");
    let mut sum = archive.clone().into_os_string();
    sum.push(".sha256");
    said(Command::new("sha256sum").args(["--check", "--quiet"]).arg(sum).current_dir(folder));
    let to = tempfile::tempdir().expect("a folder");
    said(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(to.path()));
    let name = archive.file_name().and_then(|name| name.to_str()?.strip_suffix(".tar.gz")).expect("a .tar.gz");
    let tree = to.path().join(name);
    assert_eq!(std::fs::read_dir(to.path()).expect("readable").count(), 1, "one folder, named as the archive");
    (to, tree)
}

fn run(command: &mut Command) -> Option<Output> {
    command.stdin(Stdio::null()).output().ok()
}

/// What it writes; it must end well, without a word on standard error.
fn said(command: &mut Command) -> String {
    let output = run(command).expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_archive_is_whole() {
    let (_folder, tree) = unpacked();
    let program = tree.join("bin/lockscope");
    let short = said(Command::new(&program).arg("-V"));
    assert_eq!(short, concat!("lockscope ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = said(Command::new(&program).arg("--version"));
    for line in [
        &*short,
        "\ncommit:  ",
        "\ntarget:  x86_64-unknown-linux-",
        ", static\n",
        "\nprofile: release\n",
        "\nrustc:   1.",
    ] {
        assert!(long.contains(line), "{line:?}: {long}");
    }
    for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        let packed = std::fs::read_to_string(tree.join("share/doc/lockscope").join(name)).expect("readable");
        assert_eq!(
            packed,
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("readable"),
            "{name}"
        );
    }
    let manual = std::fs::read_to_string(tree.join("share/doc/lockscope/manual.html")).expect("the manual");
    assert!(manual.contains("<section id=\"containers\">"));
    assert!(
        tree.join("share/lockscope/lockscope.py").exists() && tree.join("share/lockscope/recipes/docker.sh").exists()
    );
}

#[test]
fn it_runs_in_an_empty_root() {
    if !nix::unistd::geteuid().is_root() {
        return crate::harness::skipped!("another root needs root");
    }
    let (_folder, tree) = unpacked();
    for name in ["proc", "dev"] {
        std::fs::create_dir(tree.join(name)).expect("made");
    }
    // What the demonstration gets as its input.
    std::fs::write(tree.join("dev/null"), "").expect("written");
    let mut demo = Command::new("unshare");
    demo.args(["--pid", "--fork"]).arg(format!("--mount-proc={}", tree.join("proc").display()));
    let output = run(demo.arg("chroot").arg(&tree).args(["/bin/lockscope", "demo"])).expect("unshare runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("[lock-order-cycle]"), "{text}");
    assert!(text.contains("no python3 on PATH"), "nothing else is there: {text}");
}

#[test]
fn man_formats_each_page() {
    let (_folder, tree) = unpacked();
    let pages: Vec<PathBuf> = std::fs::read_dir(tree.join("share/man/man1"))
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .collect();
    assert!(pages.len() > 8, "{pages:?}");
    if run(Command::new("groff").arg("--version")).is_none() {
        return crate::harness::skipped!("no groff");
    }
    for page in pages {
        let text = said(Command::new("groff").args(["-man", "-ww", "-Tutf8", "-P-cbou"]).arg(&page));
        for heading in ["NAME", "SYNOPSIS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            assert!(text.lines().any(|line| line == heading), "{}: no {heading}: {text}", page.display());
        }
    }
}

/// What a shell makes of `lockscope snapsh`, `lockscope attach --max`, `lockscope explain lock-o` and Tab.
fn completes(shell: &str, script: &str, completion: &str) {
    let (folder, tree) = unpacked();
    if run(Command::new(shell).arg("--version")).is_none() {
        return crate::harness::skipped!("no {shell}");
    }
    let mut words = Command::new(shell);
    words.args(match shell {
        "bash" => &["--norc", "--noprofile"][..],
        "fish" => &["--no-config"],
        _ => &["-f"],
    });
    words.env("HOME", folder.path()).env("TERM", "dumb");
    let file = folder.path().join("script");
    std::fs::write(&file, script).expect("written");
    let text = said(words.arg(file).arg(tree.join("share").join(completion)));
    for word in ["snapshot", "--max-pause", "lock-order-cycle"] {
        assert!(text.contains(word), "{shell}: no {word}: {text}");
    }
    assert!(!text.contains("demo-target"), "{text}");
}

#[test]
fn bash_completes() {
    // As bash calls it: the command, the word, the word before.
    let script = "source \"$1\"
complete -p lockscope >/dev/null || exit 1
tab() {
    COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _lockscope \"$1\" \"${!#}\" \"${COMP_WORDS[$# - 2]}\"
    echo \"${COMPREPLY[@]}\"
}
tab lockscope snapsh
tab lockscope attach --max
tab lockscope explain lock-o
";
    completes("bash", script, "bash-completion/completions/lockscope");
}

#[test]
fn zsh_completes() {
    // A zsh on a terminal of its own, in which Tab is typed.
    let script = "zmodload zsh/zpty
zpty -b z TERM=dumb zsh -f -i
tab() {
    zpty -w -n z $1$'\\t'
    zpty -r -m z answer $2 && print -r -- $answer
}
zpty -w z \"fpath=(${1:h} \\$fpath); autoload -Uz compinit && compinit -u -D; PS1='re''ady> '\"
zpty -r -m z answer '*ready> *'
tab 'lockscope snapsh' '*snapshot *'
tab '--max' '*--max-pause*'
zpty -w -n z $'\\C-u'
tab 'lockscope explain lock-order-c' '*lock-order-cycle*'
zpty -d z
";
    completes("zsh", script, "zsh/site-functions/_lockscope");
}

#[test]
fn fish_completes() {
    let script = "source $argv[1]
complete -C 'lockscope snapsh'
complete -C 'lockscope attach --max'
complete -C 'lockscope explain lock-o'
";
    completes("fish", script, "fish/vendor_completions.d/lockscope.fish");
}
