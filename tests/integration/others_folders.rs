//! Files that lockscope writes where other users may write, too, and where there is no room for them: nothing of anybody's is lost, and
//! the command's status stands.

use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::{Target, compile, is_root, lockscope, own_program};
use crate::run::{run, stderr};

const NOBODY: u32 = 65534;
const PRECIOUS: &str = "precious\n";

fn deadlocks() -> PathBuf {
    compile("native/deadlocks.c", "deadlocks", &[])
}

/// A shared, sticky folder, in it one of another user's, and a file of root's elsewhere.
struct Trap {
    _shared: tempfile::TempDir,
    _own: tempfile::TempDir,
    theirs: PathBuf,
    victim: PathBuf,
}

impl Trap {
    fn new(mode: u32) -> Trap {
        let (shared, own) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        std::fs::set_permissions(shared.path(), PermissionsExt::from_mode(0o1777)).expect("permissions");
        let (theirs, victim) = (shared.path().join("reports"), own.path().join("victim.txt"));
        std::fs::create_dir(&theirs).expect("made");
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(mode)).expect("permissions");
        chown(&theirs, Some(NOBODY), Some(NOBODY)).expect("given away");
        std::fs::write(&victim, PRECIOUS).expect("written");
        Trap { _shared: shared, _own: own, theirs, victim }
    }

    /// The other user's link to the file of root's.
    fn link(&self, name: &str) -> PathBuf {
        let link = self.theirs.join(name);
        symlink(&self.victim, &link).expect("a link");
        lchown(&link, Some(NOBODY), Some(NOBODY)).expect("given away");
        link
    }

    fn is_untouched(&self) -> bool {
        std::fs::read_to_string(&self.victim).is_ok_and(|text| text == PRECIOUS)
    }
}

fn attach(pid: i32, file: &Path) -> Output {
    lockscope().args(["attach", &pid.to_string(), "-o"]).arg(file).output().expect("it runs")
}

#[test]
fn links_that_others_laid_in_folders_of_their_own_are_refused() {
    if !is_root() {
        return crate::harness::skipped!("a folder of another user needs root");
    }
    let target = Target::start(Command::new(deadlocks()).arg("abba")).settle(2);
    // The second is one of a group, as where two users have the same.
    for mode in [0o755, 0o2775] {
        let trap = Trap::new(mode);
        let output = attach(target.pid(), &trap.link("hang.txt"));
        let text = stderr(&output);
        assert!(text.contains("is a link of user 65534"), "{text}");
        assert!(trap.is_untouched(), "-o: {text}");
        // A folder behind a link of theirs, below which nothing is made either.
        let folder = trap.theirs.join("folder");
        symlink(trap.victim.parent().expect("a folder"), &folder).expect("a link");
        lchown(&folder, Some(NOBODY), Some(NOBODY)).expect("given away");
        let output = attach(target.pid(), &folder.join("victim.txt"));
        assert!(stderr(&output).contains("is a link of user 65534"), "{}", stderr(&output));
        let below = folder.join("new/reports").display().to_string();
        let output = run(&["--report-dir", &below], &["true"]);
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert!(!trap.victim.with_file_name("new").exists());
        // A report of an earlier run is removed, a link is not followed for that.
        let junit = trap.link("j.xml").display().to_string();
        let output = run(&["--junit", &junit], &["true"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(trap.is_untouched(), "--junit");
        // Names of reports have the id of the process that writes them.
        let host = nix::unistd::gethostname().expect("a name").to_string_lossy().into_owned();
        for pid in (1..4000).map(|more| std::process::id() + more) {
            trap.link(&format!("hang-{host}-{pid}.html"));
        }
        let reports = trap.theirs.display().to_string();
        let output = run(&["--report-dir", &reports], &[&deadlocks().display().to_string(), "abba"]);
        assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
        assert!(trap.is_untouched(), "--report-dir: {}", stderr(&output));
    }
}

#[test]
fn another_name_of_an_own_file_in_a_folder_of_others_is_left() {
    if !is_root() {
        return crate::harness::skipped!("a folder of another user needs root");
    }
    let target = Target::start(Command::new(deadlocks()).arg("abba")).settle(2);
    let trap = Trap::new(0o777);
    // As where the kernel lets everybody link what is not theirs (protected_hardlinks), and the folder is a shared one.
    let name = trap.theirs.join("report.txt");
    std::fs::hard_link(&trap.victim, &name).expect("linked");
    run(&["--junit", &name.display().to_string()], &["true"]);
    assert!(trap.is_untouched());
    let output = attach(target.pid(), &name);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(trap.is_untouched(), "the name leads to another file now");
    assert!(std::fs::read_to_string(&name).expect("there").contains("deadlock"));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A limit on files, and a disk that is full.
#[test]
fn where_no_file_may_grow_the_status_stands_and_nothing_is_left() {
    let (own, program) = (own_program(), deadlocks().display().to_string());
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().display().to_string();
    let shell =
        |script: &str| Command::new("bash").args(["-c", script]).env_remove("LOCKSCOPE").output().expect("bash");
    let limited = shell(&format!("ulimit -f 0; exec {own} run --report-dir {place} -- {program} abba"));
    assert_eq!(limited.status.code(), Some(124), "{}", stderr(&limited));
    assert!(
        stderr(&limited).contains("deadlock: ") && stderr(&limited).contains("cannot write"),
        "{}",
        stderr(&limited)
    );
    let target = Target::start(Command::new(&program).arg("abba")).settle(2);
    let limited = shell(&format!("ulimit -f 0; exec {own} attach {} -o {place}/r.txt", target.pid()));
    assert_eq!(limited.status.code(), Some(2), "{}", stderr(&limited));
    assert_eq!(names(folder.path()), [""; 0]);
    if !is_root() {
        return crate::harness::skipped!("a disk that is full needs root");
    }
    let script = format!(
        "mount --make-rprivate / && mount -t tmpfs -o size=8k none {place} && {own} run --report-dir {place} -- {program} abba; \
         echo status $? $(ls -A {place})"
    );
    let full =
        Command::new("unshare").args(["-m", "sh", "-c", &script]).env_remove("LOCKSCOPE").output().expect("runs");
    let said = String::from_utf8_lossy(&full.stdout).into_owned();
    assert!(said.contains("status 124") && !said.contains(".lockscope-"), "{said}{}", stderr(&full));
}

#[test]
fn the_name_of_a_host_leads_nowhere() {
    if !is_root() {
        return crate::harness::skipped!("another name of the host needs root");
    }
    let own = own_program();
    for name in ["../../../../escaped", "/escaped", "..", "a\\033]0;x\\007<b>"] {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("reports");
        let program = deadlocks().display().to_string();
        let script = format!(
            "printf '{name}' > /proc/sys/kernel/hostname && exec {own} run --report-dir {} -- {program} abba",
            place.display()
        );
        let output = Command::new("unshare").args(["-u", "sh", "-c", &script]).env_remove("LOCKSCOPE").output();
        let output = output.expect("unshare runs");
        assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
        let names = names(&place);
        assert_eq!(names.len(), 6, "{names:?}: {}", stderr(&output));
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        assert!(names.iter().all(|name| name.starts_with("hang-") && name.chars().all(is_plain)), "{names:?}");
    }
}
