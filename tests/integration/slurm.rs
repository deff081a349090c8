//! Jobs of Slurm, by a controller and nodes of a test's own on loopback: the recipe, the line by which the manual has a job looked at, and
//! a node that is lost.
//!
//! Needs Slurm's daemons and root, as scripts/check/test-tools has them. Several nodes of one machine have namespaces of their own, so that
//! one can be lost with all that runs on it.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use crate::harness::{compile, signal_process, testdata, wait_until};
use crate::recipes::{DEADLOCK, Project, outcome, recipe};

/// A daemon of these tests, ended by its id.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        signal_process(self.0.id() as i32, "TERM");
        let _ = self.0.wait();
    }
}

/// A controller and nodes of Slurm in a folder; they trust each other. Without names there is one node, which is this machine.
fn slurm(project: &Project, names: &[&str]) -> Option<Vec<Daemon>> {
    let port = || Some(std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port());
    let host = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let folder = project.0.path().display();
    let mut text = format!("ClusterName=one\nSlurmctldHost={host}(127.0.0.1)\n");
    // Jobs of several controllers on one machine have numbers of their own.
    for (name, value) in [("SlurmctldPort", port()?), ("SlurmdPort", port()?), ("FirstJobId", port()?)] {
        writeln!(text, "{name}={value}").ok()?;
    }
    for (name, file) in [
        ("StateSaveLocation", "state"),
        ("SlurmdSpoolDir", "spool-%n"),
        ("SlurmctldPidFile", "slurmctld.pid"),
        ("SlurmdPidFile", "slurmd-%n.pid"),
    ] {
        writeln!(text, "{name}={folder}/{file}").ok()?;
    }
    text += "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\nMailProg=/bin/true\nMpiDefault=none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nReturnToService=2\n";
    let processors = std::thread::available_parallelism().ok()?;
    match names {
        [] => writeln!(text, "NodeName={host} NodeAddr=127.0.0.1 CPUs={processors}").ok()?,
        // How soon a node that is silent counts as down, in seconds.
        _ => writeln!(text, "SlurmdTimeout=2").ok()?,
    }
    for name in names {
        let port = port()?;
        writeln!(text, "NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs={processors}").ok()?;
    }
    writeln!(text, "PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8").ok()?;
    std::fs::write(project.path("slurm.conf"), text).ok()?;
    std::fs::create_dir(project.path("state")).ok()?;
    let daemon = |name: &str, words: &[&str]| {
        let log = std::fs::File::create(project.path(name)).ok()?;
        let mut daemon = Command::new(words[0]);
        daemon.args(&words[1..]).env("SLURM_CONF", project.path("slurm.conf")).env_remove("LOCKSCOPE");
        Some(Daemon(daemon.stdout(log.try_clone().ok()?).stderr(log).spawn().ok()?))
    };
    let mut all = vec![daemon("slurmctld", &["slurmctld", "-D"])?];
    if names.is_empty() {
        all.push(daemon("slurmd", &["slurmd", "-D"])?);
    }
    for name in names {
        // With the first process of its namespace, which ends with its parent, all others end.
        let start = format!("hostname {name} && exec slurmd -D");
        let apart =
            ["unshare", "--uts", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child", "sh", "-c", &start];
        all.push(daemon(name, &apart)?);
    }
    Some(all)
}

/// A controller and nodes that take jobs; with it its jobs end.
struct Cluster<'p> {
    project: &'p Project,
    /// The controller, then the nodes.
    daemons: Vec<Daemon>,
}

impl Cluster<'_> {
    /// Why there is none, else.
    fn start<'p>(project: &'p Project, names: &[&str]) -> Result<Cluster<'p>, &'static str> {
        if !nix::unistd::geteuid().is_root() {
            return Err("Slurm, whose daemons need root");
        }
        let daemons = slurm(project, names).ok_or("Slurm, which is not on this machine")?;
        let cluster = Cluster { project, daemons };
        wait_until("the nodes are there", || {
            let (_, states) = cluster.ask(&["sinfo", "-h", "-N", "-o", "%T"]);
            states.lines().count() == names.len().max(1) && states.lines().all(|state| state.trim() == "idle")
        });
        Ok(cluster)
    }

    /// What a program of Slurm's says.
    fn ask(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut ask = self.project.command(words[0]);
        ask.args(&words[1..]).env("SLURM_CONF", self.project.path("slurm.conf"));
        outcome(&mut ask)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.ask(&["scancel", "--user", "root"]);
        // The node ends the processes of a job before it is idle again.
        for _ in 0..200 {
            let (_, states) = self.ask(&["sinfo", "-h", "-N", "-o", "%T"]);
            if states.lines().all(|state| state.trim() == "idle" || state.contains("down")) {
                break;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
    }
}

/// A rank that deadlocks and others that wait.
const RANK: &str = "#!/bin/sh
[ \"$SLURM_PROCID\" = 0 ] && exec \"$1\" abba
exec sleep 100
";

#[test]
fn slurm_jobs() {
    let project = Project::new(&[("rank.sh", RANK)]);
    std::fs::set_permissions(project.path("rank.sh"), PermissionsExt::from_mode(0o755)).expect("allowed");
    let deadlocks = compile("native/deadlocks.c", "deadlocks", &[]).display().to_string();
    let cluster = match Cluster::start(&project, &[]) {
        Ok(cluster) => cluster,
        Err(why) => return crate::harness::skipped!("{why}"),
    };
    let ask = |words: &[&str]| cluster.ask(words);
    // Submits a job and gives its output once it is over.
    let job = |command: &[&str]| {
        let script = recipe("slurm.sh").display().to_string();
        let (code, id) = ask(&[&["sbatch", "--parsable", "--ntasks=2", "--output=%j.out", &script], command].concat());
        assert_eq!(code, Some(0), "{id}");
        let id = id.trim().to_owned();
        wait_until("the job ends", || ask(&["squeue", "-h", "-t", "all", "-o", "%T", "-j", &id]).1.contains("ED"));
        let state = ask(&["squeue", "-h", "-t", "all", "-o", "%T", "-j", &id]).1.trim().to_owned();
        (state, std::fs::read_to_string(project.path(&format!("{id}.out"))).unwrap_or_default(), id)
    };
    let (state, text, _) = job(&["true"]);
    assert!(state == "COMPLETED" && text.is_empty(), "{state}: {text}");
    let (state, text, id) = job(&["./rank.sh", &deadlocks]);
    assert!(state == "FAILED" && text.contains(DEADLOCK) && text.contains("exit code 124"), "{state}: {text}");
    assert!(project.reports(&format!("hangs-{id}")) >= 1);
}

/// The line for Slurm in the manual's table.
fn line_of_the_manual() -> String {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/jobs.md")).expect("the page");
    let row = page.lines().find(|line| line.starts_with("| Slurm, job J |")).expect("a row for Slurm");
    row.split('`').nth(1).expect("a line to type").to_owned()
}

#[test]
fn the_line_of_the_manual_tells_of_a_job_of_slurm() {
    let project = Project::new(&[("ranks/.keep", "")]);
    let ranks = project.path("ranks").display().to_string();
    let script = format!(
        "#!/bin/sh\nexec srun --ntasks=3 --overcommit python3 {} {ranks}\n",
        testdata("python/ring_of_ranks.py").display()
    );
    std::fs::write(project.path("job.sh"), script).expect("written");
    let cluster = match Cluster::start(&project, &[]) {
        Ok(cluster) => cluster,
        Err(why) => return crate::harness::skipped!("{why}"),
    };
    let (code, id) = cluster.ask(&["sbatch", "--parsable", "--ntasks=2", "--output=job.out", "job.sh"]);
    assert_eq!(code, Some(0), "{id}");
    let id = id.trim().to_owned();
    wait_until("all ranks are connected", || (0..3).all(|rank| project.path(&format!("ranks/ready-{rank}")).exists()));
    let line = line_of_the_manual();
    assert_eq!(line, "srun --jobid=J --overlap --ntasks-per-node=1 lockscope job -o hang-J; lockscope merge hang-J");
    let line = line.replace("=J", &format!("={id}")).replace("-J", &format!("-{id}"));
    let mut last = (None, String::new());
    wait_until("the job hangs", || {
        // A look before rank 1 has begun to wait says less.
        let _ = std::fs::remove_dir_all(project.path(&format!("hang-{id}")));
        last = cluster.ask(&["sh", "-c", &line]);
        last.1.contains("deadlock: a thread is joined that waits for the thread that joins it")
            && last.1.contains("ranks 0,2")
    });
    let (code, text) = last;
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    assert_eq!(code, Some(1), "{text}");
    for said in [
        "rank 1 (".to_owned(),
        "'MainThread' holds Lock `gate` and waits for thread `saver` in Thread.join, called by <module> at ring_of_ranks.py:".to_owned(),
        "'saver' is that and waits for Lock `gate` in save at ring_of_ranks.py:".to_owned(),
        "2 more ranks wait because of this: ranks 0,2 at ring_of_ranks.py:".to_owned(),
        format!("ranks 0-2 of 3 of slurm {id} 0, two rounds"),
    ] {
        assert!(text.contains(&said), "{said}: {text}");
    }
    // What this Slurm says of the job fits to it: nobody is missing, and no more is proven by it.
    let show = format!("(scontrol show job {id}; scontrol show step {id}; scontrol show node) >hang-{id}/scontrol.txt");
    assert_eq!(cluster.ask(&["sh", "-c", &show]).0, Some(0));
    let text = std::fs::read_to_string(project.path(&format!("hang-{id}/scontrol.txt"))).expect("written");
    assert!(text.contains(&format!("StepId={id}.0")) && text.contains("NodeName="), "{text}");
    let merge = |folder: &str| cluster.ask(&["lockscope", "merge", "--format", "json", folder]);
    let (code, report) = merge(&format!("hang-{id}"));
    assert!(code == Some(1) && !report.contains("scontrol.txt") && !report.contains("Slurm's account"), "{report}");
}

/// A rank that only waits.
const SLEEPS: &str = "#!/bin/sh
: >\"ranks/$SLURM_PROCID\"
exec sleep 100
";

#[test]
fn why_there_is_no_look_from_a_node_that_slurm_has_lost() {
    let project = Project::new(&[
        ("rank.sh", SLEEPS),
        ("ranks/.keep", ""),
        ("job.sh", "#!/bin/sh\nexec srun --no-kill --nodes=2 --ntasks=3 --overcommit ./rank.sh\n"),
    ]);
    std::fs::set_permissions(project.path("rank.sh"), PermissionsExt::from_mode(0o755)).expect("allowed");
    let mut cluster = match Cluster::start(&project, &["one", "other"]) {
        Ok(cluster) => cluster,
        Err(why) => return crate::harness::skipped!("{why}"),
    };
    let submit =
        ["sbatch", "--parsable", "--no-kill", "--no-requeue", "--nodes=2", "--ntasks=2", "--output=job.out", "job.sh"];
    let (code, id) = cluster.ask(&submit);
    assert_eq!(code, Some(0), "{id}");
    let id = id.trim().to_owned();
    wait_until("all ranks run", || (0..3).all(|rank| project.path(&format!("ranks/{rank}")).exists()));
    let lost = cluster.daemons.pop().expect("a node");
    signal_process(lost.0.id() as i32, "KILL");
    drop(lost);
    // Before that a new step would wait for it.
    wait_until("the job has lost the node", || cluster.ask(&["squeue", "-h", "-j", &id, "-o", "%N"]).1.trim() == "one");
    let line = line_of_the_manual().replace("=J", &format!("={id}")).replace("-J", &format!("-{id}"));
    let show = format!("(scontrol show job {id}; scontrol show step {id}; scontrol show node) >hang-{id}/scontrol.txt");
    let (_, text) = cluster.ask(&["sh", "-c", &format!("{line}; {show}; lockscope merge hang-{id}")]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // The batch script is on the first node, and so are two of three ranks.
    for said in [
        format!("ranks 0-1 of 3 of slurm {id} 0, two rounds"),
        "rank 2 of 3: no file has a look at it: it may hold up what the others wait for; no look is from node other, which is DOWN and \
         NOT_RESPONDING (Not responding), by Slurm's account"
            .to_owned(),
    ] {
        assert!(text.contains(&said), "{said}: {text}");
    }
}
