//! Python: the deadlock of 2019 on every interpreter at hand.
//!
//! Interpreters are those on the PATH, those in the folders of LOCKSCOPE_PYTHONS, and those of the root file systems
//! of LOCKSCOPE_ROOTS (both separated by colons). At least one must be there: the test command installs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Target, attach, compile, testdata};

/// An interpreter of this machine, or of a root file system inside it.
pub(crate) struct Python {
    program: PathBuf,
    root: Option<PathBuf>,
    has_gil: bool,
}

impl Python {
    /// Where its headers are, if they are there.
    pub(crate) fn headers(&self) -> Option<String> {
        const ASKED: &str = "import sysconfig; print(sysconfig.get_path('include'))";
        if self.root.is_some() {
            return None;
        }
        let output = self.command().args(["-c", ASKED]).output().ok()?;
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&folder).join("Python.h").exists().then_some(folder)
    }

    /// Whether it has PyMutex (3.13).
    pub(crate) fn has_mutexes(&self) -> bool {
        const ASKED: &str = "import ctypes; ctypes.pythonapi.PyMutex_Lock";
        self.command().args(["-c", ASKED]).output().is_ok_and(|output| output.status.success())
    }

    /// Start it with these arguments.
    pub(crate) fn command(&self) -> Command {
        match &self.root {
            None => Command::new(&self.program),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(&self.program);
                command
            }
        }
    }

    /// Its root file system, where that is not this machine's.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// A folder that it can write to, and itself in that folder, with cores as large as is allowed.
    pub(crate) fn in_a_folder(&self) -> (tempfile::TempDir, Command) {
        const SCRIPT: &str = "ulimit -c $(ulimit -Hc); cd \"$1\"; shift; exec \"$@\"";
        let Some(root) = &self.root else {
            let folder = tempfile::tempdir().expect("a folder");
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT, "sh"]).arg(folder.path()).arg(&self.program);
            return (folder, command);
        };
        let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
        let inside = Path::new("/").join(folder.path().strip_prefix(root).expect("inside"));
        let mut command = Command::new("chroot");
        command.arg(root).args(["sh", "-c", SCRIPT, "sh"]).arg(inside).arg(&self.program);
        (folder, command)
    }

    /// A file as this interpreter finds it: copied into its root file system, if it has one.
    pub(crate) fn sees(&self, file: &Path) -> PathBuf {
        let Some(root) = &self.root else { return file.to_path_buf() };
        let name = file.file_name().expect("a file");
        // Written aside and renamed: another test may be running the old one.
        let thread = std::thread::current().id();
        let aside = root.join("tmp").join(format!("{}.{}.{thread:?}", name.display(), std::process::id()));
        std::fs::copy(file, &aside).expect("copied");
        std::fs::rename(&aside, root.join("tmp").join(name)).expect("renamed");
        Path::new("/tmp").join(name)
    }

    /// Version and path, as it says itself. A shim of a version manager is a script that starts another program.
    fn asked(mut self) -> Option<(String, Python)> {
        let ask = "import sys; gil = getattr(sys, '_is_gil_enabled', lambda: True)()
print('%d.%d.%d' % sys.version_info[:3] + ('' if gil else 't')); print(sys.executable)";
        let answer = self.command().args(["-c", ask]).output().ok()?;
        let text = String::from_utf8(answer.stdout).ok()?;
        let (version, program) = text.trim().split_once('\n')?;
        self.program = PathBuf::from(program);
        self.has_gil = !version.ends_with('t');
        Some((version.to_string(), self))
    }
}

/// Version -> interpreter with a GIL, 3.7 and newer.
pub(crate) fn pythons() -> BTreeMap<String, Python> {
    let mut found = all_pythons();
    found.retain(|_, python| python.has_gil);
    found
}

/// Version -> interpreter, 3.7 and newer; that of a build without a GIL ends in "t".
pub(crate) fn all_pythons() -> BTreeMap<String, Python> {
    let list = |name| std::env::var(name).unwrap_or_default();
    let mut found = BTreeMap::new();
    let own = [list("LOCKSCOPE_PYTHONS"), list("PATH")].join(":");
    let roots = list("LOCKSCOPE_ROOTS");
    let folders = own.split(':').map(|folder| (None, PathBuf::from(folder)));
    let folders = folders.chain(roots.split(':').map(|root| (Some(PathBuf::from(root)), PathBuf::from("/usr/bin"))));
    for (root, folder) in folders.filter(|(root, folder)| !folder.as_os_str().is_empty() && root != &Some("".into())) {
        for name in ["python3".to_string()].into_iter().chain((7..=15).map(|minor| format!("python3.{minor}"))) {
            let program = folder.join(name);
            let outside =
                root.as_ref().map_or(program.clone(), |root| root.join(program.strip_prefix("/").expect("/")));
            if !outside.exists() {
                continue;
            }
            let Some((version, python)) = (Python { program, root: root.clone(), has_gil: true }).asked() else {
                continue;
            };
            let minor: u32 = version.split('.').nth(1).and_then(|m| m.parse().ok()).unwrap_or(0);
            if version.starts_with("3.") && minor >= 7 {
                found.entry(version).or_insert(python);
            }
        }
    }
    assert!(!found.is_empty(), "no Python 3.7 or newer on the PATH");
    found
}

#[test]
fn the_deadlock_of_2019_is_named_on_every_python() {
    let library = compile("fakecuda/libcuda.c", "libcuda.so.1", &["-shared", "-fPIC"]);
    for (version, python) in pythons() {
        for call in ["cuLaunchKernel", "cuMemAlloc_v2", "cuStreamAddCallback", "cuEventRecord"] {
            let mut command = python.command();
            command.arg(python.sees(&testdata("fakecuda/occupancy.py"))).arg(python.sees(&library)).arg(call);
            let target = Target::start(&mut command).settle(3);
            let look = attach(&target.pids, &[]);
            let place = format!("Python {version}, {call}:\n{}", look.text);
            assert_eq!(look.verdict(), "deadlock", "{place}");
            assert!(look.findings().contains(&"gil-vs-driver-callback"), "{place}");
            assert_eq!(look.cycles(), [["launcher", "occupancy"]], "{place}");
            for word in [
                "GIL",
                "ctx_lock",
                "__cur_writer",
                "cuOccupancyMaxPotentialBlockSize",
                call,
                "query_occupancy",
                "occupancy.py:30",
                "native callback",
            ] {
                assert!(look.says(word), "{word} is not in the report of {place}");
            }
            let exact = |list: &str| {
                look.json[list].as_array().is_some_and(|l| {
                    !l.is_empty() && l.iter().all(|x| !x["evidence"].as_array().is_none_or(Vec::is_empty))
                })
            };
            assert!(exact("waits") && exact("holds"), "{place}");
        }
    }
}

const DEEP: &str = "
import os, signal, sys, threading, time
signal.alarm(120)
sys.setrecursionlimit(20000)
threading.stack_size(512 << 20)
ready = threading.Event()
def dig(n):
    if n: return dig(n - 1)
    ready.set(); time.sleep(100)
threading.Thread(target=dig, args=(5000,), name='deep', daemon=True).start()
ready.wait()
print('READY pids=%d' % os.getpid(), flush=True)
time.sleep(100)
";

#[test]
fn a_thread_of_5000_frames_is_shown_whole() {
    for (version, python) in pythons() {
        let target = Target::start(python.command().args(["-c", DEEP]));
        let look = attach(&target.pids, &[]);
        let threads = look.json["processes"][0]["threads"].as_array().expect("a list");
        let deepest = threads
            .iter()
            .map(|t| t["frames"].as_array().expect("a list").iter().filter(|f| f["function"] == "dig").count())
            .max();
        assert_eq!(deepest, Some(5001), "Python {version}");
        assert_eq!(look.code, 0, "Python {version}");
    }
}

const TASKS: &str = "
import asyncio, os, signal, sys, threading
signal.alarm(120)
lock = threading.Lock()
lock.acquire()
async def idle():
    await asyncio.get_event_loop().create_future()
async def main():
    tasks = [asyncio.ensure_future(idle()) for _ in range(int(sys.argv[1]))]
    await asyncio.sleep(0)
    print('READY pids=%d' % os.getpid(), flush=True)
    lock.acquire()
asyncio.run(main())
";

/// A loop whose thread waits holds up each of its tasks: of how many that is shown is bounded, and that is said.
#[test]
fn tasks_that_are_left_out_are_told_of() {
    // Tasks are known from 3.8 on.
    for (version, python) in
        pythons().into_iter().filter(|(version, _)| !version.starts_with("3.6.") && !version.starts_with("3.7."))
    {
        for (count, is_cut) in [(300, true), (200, false)] {
            let target = Target::start(python.command().args(["-c", TASKS, &count.to_string()])).settle(1);
            let gaps = attach(&target.pids, &[]).json["gaps"].to_string();
            let place = format!("Python {version}, {count} tasks: {gaps}");
            assert_eq!(gaps.contains("asyncio tasks of the event loop of"), is_cut, "{place}");
            assert_eq!(gaps.contains("no more than 256 tasks of one loop"), is_cut, "{place}");
        }
    }
}

const NAMES: &str = r"
import os, signal, threading, time
signal.alarm(120)
gate = threading.Event()
class Many(threading.Thread):
    def __init__(self, name):
        super().__init__(name=name, daemon=True)
        for i in range(40): setattr(self, 'attribute_%d' % i, i)
    def run(self): gate.wait()
def start(**more):
    thread = threading.Thread(target=gate.wait, daemon=True, **more)
    thread.start()
    return thread
start(name='plain')
Many('w\u00fcrfel-\u03bb').start()
start().name = 'renamed-\U0001f600'
start(name='with-dictionary').__dict__
print('READY pids=%d' % os.getpid(), flush=True)
gate.wait()
";

#[test]
fn threads_have_the_names_that_threading_gave_them() {
    for (version, python) in pythons() {
        let target = Target::start(python.command().args(["-c", NAMES]));
        let look = attach(&target.pids, &[]);
        let threads = look.json["processes"][0]["threads"].as_array().expect("a list");
        // Ids wrap around: a thread that was started later may have a smaller one.
        let (main, others): (Vec<_>, Vec<_>) = threads.iter().partition(|thread| thread["tid"] == target.pid());
        let mut names: Vec<_> = others.iter().filter_map(|thread| thread["name"].as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["plain", "renamed-😀", "with-dictionary", "würfel-λ"], "Python {version}");
        assert_eq!(main.iter().map(|thread| &thread["name"]).collect::<Vec<_>>(), ["MainThread"], "Python {version}");
        let shown = look.json["processes"][0]["python"]["version"].as_str();
        assert_eq!(shown, Some(version.as_str()));
    }
}

const SUB_INTERPRETER: &str = "
import os, signal, threading, time
signal.alarm(120)
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
there, ready = os.pipe()
sub = interpreters.create()
code = '''
import os, time
def inside():
    os.write(%d, b'x')
    time.sleep(100)
inside()
''' % ready
def host():
    interpreters.run_string(sub, code)
threading.Thread(target=host, daemon=True, name='host').start()
os.read(there, 1)
print('READY pids=%d' % os.getpid(), flush=True)
time.sleep(100)
";

#[test]
fn frames_of_a_sub_interpreter_stand_on_the_stack_that_runs_them() {
    for (version, python) in pythons() {
        // Up to 3.9 nothing ties Python frames to the C stack, and the state's ident is that of its creator.
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).expect("a version");
        if minor < 10 {
            continue;
        }
        let target = Target::start(python.command().args(["-c", SUB_INTERPRETER]));
        let look = attach(&target.pids, &[]);
        let threads = look.json["processes"][0]["threads"].as_array().expect("a list");
        let host = threads.iter().find(|t| t["name"] == "host").unwrap_or_else(|| panic!("{version}: {}", look.text));
        let frames = host["frames"].as_array().expect("a list").iter().filter(|f| f["kind"] == "python");
        let functions: Vec<_> = frames.filter_map(|f| f["function"].as_str()).collect();
        assert_eq!(functions[..3], ["inside", "<module>", "host"], "Python {version}");
    }
}
