//! The processes that the user named: ids, and names of programs.
//!
//! In: words of the command line, and /proc. Out: ids, or a [`CliError`] that lists the possible processes. A name that
//! several processes have is refused with the lines to type. A sample stops the process, so none is chosen by chance.
//! Nothing is sampled here.

use std::fs;

use super::{CliError, ProcessName};

/// Processes that an error names.
const MOST_NAMED: usize = 8;
/// Most of a command line that an error shows.
const MOST_COMMAND: usize = 60;

/// A process that lockscope can attach to: kernel threads and zombies have no command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    pid: i32,
    /// The kernel's name of its main thread.
    name: String,
    arguments: Vec<String>,
}

impl Running {
    fn read(pid: i32) -> Option<Running> {
        let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let arguments: Vec<String> = words.collect();
        let is_there = arguments.first().is_some_and(|word| !word.is_empty());
        is_there.then(|| Running { pid, name: String::from_utf8_lossy(&name).trim_end().to_owned(), arguments })
    }

    /// Its possible names: the kernel's, that of its program, and the script or module that an interpreter runs.
    fn names(&self) -> Vec<&str> {
        let program = self.arguments.first().map_or("", |word| base(word));
        let mut names = vec![self.name.as_str(), program];
        if without_version(program) == "python" {
            // `-m module` and `script.py`; -c, and options with a value in a word of its own, end what is looked for.
            let mut words = self.arguments.iter().skip(1).map(String::as_str);
            let script = words.by_ref().find(|word| !word.starts_with('-') || ["-m", "-c", "-W", "-X"].contains(word));
            match script {
                Some("-m") => names.extend(words.next()),
                Some("-c" | "-W" | "-X") | None => {}
                Some(script) => names.push(base(script)),
            }
        }
        names
    }

    fn described(&self) -> String {
        let line = self.arguments.join(" ");
        let line = line.trim();
        match line.char_indices().nth(MOST_COMMAND) {
            Some((end, _)) => format!("{}...", &line[..end]),
            None => line.to_owned(),
        }
    }
}

/// The last part of a path; a login shell's name has a dash in front.
fn base(word: &str) -> &str {
    let word = word.strip_prefix('-').unwrap_or(word);
    word.rsplit('/').next().unwrap_or(word)
}

/// `python` of `python3.11`.
fn without_version(name: &str) -> &str {
    name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.')
}

/// The ids of `processes`; `command` is what the user typed, for the lines that an error offers.
pub(super) fn resolve(processes: &[ProcessName], command: &str) -> Result<Vec<i32>, CliError> {
    let mut running = None;
    let mut pids = Vec::new();
    for process in processes {
        let pid = match process {
            ProcessName::Pid(pid) => *pid,
            ProcessName::Name(name) => one(name, running.get_or_insert_with(all), command)?,
        };
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// The processes that are called so, without those whose parent is called so too: their descendants are watched with them.
pub(super) fn topmost_named(name: &str) -> Vec<i32> {
    let all = all();
    topmost(named(name, &all).iter().map(|process| process.pid).collect())
}

/// The processes of a systemd unit: its control group, and those below it, name the unit.
pub(super) fn topmost_of_unit(unit: &str) -> Vec<i32> {
    let unit = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let is_member = |pid: &i32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.lines().any(|line| line.rsplit(':').next().is_some_and(|path| path.split('/').any(|part| part == unit)))
    };
    topmost(all().into_iter().map(|process| process.pid).filter(is_member).collect())
}

/// Those whose parent is none of them.
fn topmost(pids: Vec<i32>) -> Vec<i32> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    pids.iter().copied().filter(|pid| parent(*pid).is_none_or(|parent| !pids.contains(&parent))).collect()
}

/// The kernel's name of a process.
pub(super) fn name_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim_end().to_owned()).unwrap_or_default()
}

/// Whether a process is called so.
pub(super) fn is_running(name: &str) -> bool {
    !named(name, &all()).is_empty()
}

/// All processes but this one.
fn all() -> Vec<Running> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = i32::try_from(std::process::id()).ok();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<i32> = pids.filter(|pid| Some(*pid) != own).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(Running::read).collect()
}

/// Those of this very name, else those that have it with a version behind.
fn named<'r>(name: &str, running: &'r [Running]) -> Vec<&'r Running> {
    let exactly: Vec<&Running> = running.iter().filter(|process| process.names().contains(&name)).collect();
    if !exactly.is_empty() {
        return exactly;
    }
    running.iter().filter(|process| process.names().iter().any(|own| without_version(own) == name)).collect()
}

fn one(name: &str, running: &[Running], command: &str) -> Result<i32, CliError> {
    let found = named(name, running);
    match found.as_slice() {
        [process] => Ok(process.pid),
        [] => {
            let near = running.iter().filter(|process| process.names().iter().any(|own| own.contains(name)));
            let error = CliError::new(format!("no process is called `{name}`"));
            Err(with_lines(error, near, command).hint("`pgrep -af WORD` finds a process by its whole command line"))
        }
        several => {
            let count = several.len();
            let error = CliError::new(format!("{count} processes are called `{name}`: say which"));
            let error = with_lines(error, several.iter().copied(), command);
            if command == "watch" {
                return Err(error);
            }
            let pids: Vec<String> = several.iter().take(MOST_NAMED).map(|process| process.pid.to_string()).collect();
            let rest = if count > MOST_NAMED { " ..." } else { "" };
            Err(error.hint(format!("all of them in one report: lockscope {command} {}{rest}", pids.join(" "))))
        }
    }
}

fn with_lines<'r>(error: CliError, processes: impl Iterator<Item = &'r Running>, command: &str) -> CliError {
    processes
        .take(MOST_NAMED)
        .fold(error, |error, one| error.hint(format!("lockscope {command} {:<7} is `{}`", one.pid, one.described())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(pid: i32, name: &str, line: &str) -> Running {
        Running { pid, name: name.into(), arguments: line.split(' ').map(str::to_owned).collect() }
    }

    fn some() -> Vec<Running> {
        vec![
            running(1, "systemd", "/sbin/init"),
            running(20, "python3.11", "/usr/bin/python3.11 -u /srv/app.py --port 80"),
            running(21, "gunicorn", "/usr/bin/python3 -m gunicorn app:main"),
            running(22, "gunicorn", "gunicorn: worker"),
            running(23, "python3", "python3 -c import app.py"),
            running(24, "bash", "-bash"),
        ]
    }

    #[test]
    fn a_name_is_the_kernels_the_programs_or_the_scripts() {
        let one = |name: &str| one(name, &some(), "attach").map_err(|error| error.to_string());
        assert_eq!(one("systemd"), Ok(1));
        assert_eq!(one("init"), Ok(1));
        assert_eq!(one("app.py"), Ok(20));
        assert_eq!(one("python3.11"), Ok(20));
        assert_eq!(one("bash"), Ok(24));
    }

    #[test]
    fn of_several_none_is_chosen() {
        let error = one("gunicorn", &some(), "attach").unwrap_err().to_string();
        assert_eq!(
            error,
            "error: 2 processes are called `gunicorn`: say which\n\
             hint: lockscope attach 21      is `/usr/bin/python3 -m gunicorn app:main`\n\
             hint: lockscope attach 22      is `gunicorn: worker`\n\
             hint: all of them in one report: lockscope attach 21 22"
        );
        assert!(one("python", &some(), "watch").unwrap_err().to_string().starts_with("error: 3 processes"));
    }

    #[test]
    fn a_name_that_nobody_has_gets_similar_ones() {
        let error = one("unicor", &some(), "snapshot").unwrap_err().to_string();
        assert!(error.starts_with("error: no process is called `unicor`\nhint: lockscope snapshot 21 "), "{error}");
        assert!(error.ends_with("by its whole command line"), "{error}");
    }

    #[test]
    fn lockscope_itself_is_none_of_them() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(all().iter().all(|process| process.pid != own));
        assert_eq!(resolve(&[ProcessName::Pid(5), ProcessName::Pid(5)], "attach").unwrap(), [5]);
    }
}
