//! The recipes of scripts/ship/recipes that start ranks or containers: one that deadlocks ends by itself, with its report in
//! the folder of all. torchrun and Docker are tried where they are, and nothing here needs a privilege of lockscope's own.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::{compile, own_program};
use crate::recipes::{DEADLOCK, PYTHON_TESTS, Project, fails, outcome, passes, recipe, tools};

/// One rank deadlocks, and the others wait for it at a barrier.
const MPI_PROGRAM: &str = "#include <mpi.h>
#include <unistd.h>
int main(int count, char **arguments) {
    int rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    alarm(120);
    if (count > 1 && rank == 0) execv(arguments[1], (char *[]){arguments[1], \"abba\", 0});
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
";

#[test]
fn mpirun() {
    let project = Project::new(&[("barrier.c", MPI_PROGRAM)]);
    passes(project.command("mpicc").args(["-o", "barrier", "barrier.c"]));
    let run = |arguments: &[&str]| {
        let mut run = project.command(recipe("mpirun.sh"));
        run.args(["2", "./barrier"]).args(arguments);
        outcome(&mut run)
    };
    let (code, text) = run(&[]);
    assert!(code == Some(0) && !text.contains("lockscope: "), "{code:?}: {text}");
    // The status is that of the rank, or of the others, which are killed.
    let (code, text) = run(&[&compile("native/deadlocks.c", "deadlocks", &[]).display().to_string()]);
    assert!(code != Some(0) && text.contains(DEADLOCK), "{code:?}: {text}");
    assert!(project.reports("hangs") >= 1);
}

#[test]
fn torchrun() {
    if !tools().join("torchrun").exists() {
        return crate::harness::skipped!("torchrun, scripts/check/test-tools FOLDER torch installs it");
    }
    let script = "import os, sys, time, unittest\nif os.environ['RANK'] == '0':\n    unittest.main('test_locks', argv=sys.argv)\n\
                  time.sleep(100 if 'hang' in sys.argv else 0)\n";
    let project = Project::new(&[("test_locks.py", PYTHON_TESTS), ("train.py", script)]);
    let run = |arguments: &[&str]| {
        let mut run = project.command(recipe("torchrun.sh"));
        run.args(["2", "train.py"]).args(arguments).env("PYTHON", tools().join("python"));
        run
    };
    passes(&mut run(&["Locks.test_healthy"]));
    fails(&mut run(&["Locks.test_hangs", "hang"]), 1, &[DEADLOCK, "exitcode", "124"]);
    assert!(project.reports("hangs") >= 1);
}

#[test]
fn docker() {
    let project = Project::new(&[]);
    if !outcome(project.command("docker").arg("info")).1.contains("Server Version") {
        return crate::harness::skipped!("Docker, no engine answers");
    }
    // An image of nothing but the two programs and their libraries.
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    let files = "ldd \"$@\" | grep -o '/[^ :]*' | sort -u |
        tar --create --dereference --absolute-names --files-from - | docker import -";
    let (code, text) = outcome(project.command("sh").args(["-ec", files, "-", own_program(), &deadlocks]));
    let image = text.lines().find(|line| line.starts_with("sha256:")).unwrap_or_else(|| panic!("{code:?}: {text}"));
    let run = |words: &[&str]| {
        let mut run = project.command(recipe("docker.sh"));
        run.arg(image).args(words);
        run
    };
    passes(&mut run(&["lockscope", "--version"]));
    fails(&mut run(&[&deadlocks, "abba"]), 124, &[DEADLOCK]);
    assert_eq!(project.reports("hangs"), 1);
    passes(project.command("docker").args(["image", "rm", image]));
}

/// What a container takes away: the first process, no capability, another user.
#[test]
fn no_privilege_is_needed() {
    if !nix::unistd::geteuid().is_root() {
        return crate::harness::skipped!("without privilege, which this test has not anyway");
    }
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    for (name, from) in
        [("lockscope", PathBuf::from(own_program())), ("deadlocks", compile("native/deadlocks.c", "deadlocks", &[]))]
    {
        std::fs::copy(from, folder.path().join(name)).expect("copied");
    }
    std::fs::create_dir(folder.path().join("hangs")).expect("made");
    for name in ["", "hangs"] {
        std::fs::set_permissions(folder.path().join(name), PermissionsExt::from_mode(0o777)).expect("allowed");
    }
    let project = Project(folder);
    let mut run = project.command("unshare");
    run.args(["--pid", "--fork", "--mount-proc", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    run.args([
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
        "./lockscope",
        "run",
        "--report-dir",
        "hangs",
        "--",
    ]);
    fails(run.args(["./deadlocks", "abba"]), 124, &[DEADLOCK]);
    assert_eq!(project.reports("hangs"), 1);
}
