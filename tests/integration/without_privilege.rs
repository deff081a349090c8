//! The attacks again, by this very test program: as another user against processes of that user's own, and as root of a user
//! namespace. What needs more says there that it was skipped.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{is_root, lockscope};

/// Beginnings and parts of names of tests.
const ATTACKS: [&str; 10] = [
    "hostile::",
    "hostile_input::",
    "run_inherits::",
    "sandboxed::",
    "in_the_midst_of_a_stop",
    "stopped_itself",
    "wanted_hangs::",
    "others_folders::where_no_file_may_grow",
    "watched_files::a_source_with_a_lease",
    "nccl_ras::a_hostile_one",
];

fn again(who: &[&str]) {
    if !is_root() {
        return crate::harness::skipped!("to become somebody else needs root");
    }
    let own = std::env::current_exe().expect("a test program");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let as_them = |program: &Path| {
        let mut command = Command::new(who[0]);
        command.args(&who[1..]).arg(program).env("HOME", folder.path()).env("TMPDIR", folder.path());
        command.current_dir("/").env("LOCKSCOPE_BUILT", folder.path()).env_remove("LOCKSCOPE_SKIPPED");
        command
    };
    for program in [Path::new(lockscope().get_program()), &own] {
        let mut try_it = as_them(program);
        // Also the help of a test program.
        if !try_it.arg("--help").output().is_ok_and(|output| output.status.success()) {
            return crate::harness::skipped!("{who:?} cannot run {}", program.display());
        }
    }
    let mut attacks = as_them(&own);
    let output = attacks.args(ATTACKS).args(["--test-threads=2", "--show-output"]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{who:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let skipped = text.lines().filter(|line| line.starts_with("skipped: ")).count();
    let ran = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    println!("{who:?}: {ran} attacks, in {skipped} of which something was skipped");
    assert!(ran > skipped + 10, "{text}");
}

#[test]
fn as_nobody_against_own_processes() {
    again(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
}

#[test]
fn as_root_of_a_user_namespace() {
    again(&["unshare", "--user", "--map-root-user"]);
}
