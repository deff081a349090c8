//! Jobs of Slurm, by a controller and a node of a test's own on loopback: the recipe, and the line by which the manual has a job looked at.
//!
//! Needs Slurm's daemons and root, as scripts/check/test-tools has them.

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

/// A controller and a node of Slurm in a folder; they trust each other.
fn slurm(project: &Project) -> Option<[Daemon; 2]> {
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
        ("SlurmdSpoolDir", "spool"),
        ("SlurmctldPidFile", "slurmctld.pid"),
        ("SlurmdPidFile", "slurmd.pid"),
    ] {
        writeln!(text, "{name}={folder}/{file}").ok()?;
    }
    text += "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/none\nCredType=cred/none\nMailProg=/bin/true\nMpiDefault=none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nReturnToService=2\n";
    let processors = std::thread::available_parallelism().ok()?;
    writeln!(text, "NodeName={host} NodeAddr=127.0.0.1 CPUs={processors}").ok()?;
    writeln!(text, "PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:8").ok()?;
    std::fs::write(project.path("slurm.conf"), text).ok()?;
    std::fs::create_dir(project.path("state")).ok()?;
    let daemon = |name: &str| {
        let log = std::fs::File::create(project.path(name)).ok()?;
        let mut daemon = Command::new(name);
        daemon.arg("-D").env("SLURM_CONF", project.path("slurm.conf")).env_remove("LOCKSCOPE");
        Some(Daemon(daemon.stdout(log.try_clone().ok()?).stderr(log).spawn().ok()?))
    };
    Some([daemon("slurmctld")?, daemon("slurmd")?])
}

/// A controller and a node that take jobs; with it its jobs end.
struct Cluster<'p> {
    project: &'p Project,
    _daemons: [Daemon; 2],
}

impl Cluster<'_> {
    /// Why there is none, else.
    fn start(project: &Project) -> Result<Cluster<'_>, &'static str> {
        if !nix::unistd::geteuid().is_root() {
            return Err("Slurm, whose daemons need root");
        }
        let daemons = slurm(project).ok_or("Slurm, which is not on this machine")?;
        let cluster = Cluster { project, _daemons: daemons };
        wait_until("the node is there", || cluster.ask(&["sinfo", "-h", "-o", "%T"]).1.trim() == "idle");
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
            if self.ask(&["sinfo", "-h", "-o", "%T"]).1.trim() == "idle" {
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
    let cluster = match Cluster::start(&project) {
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

/// A job of three ranks in a ring, which is healthy or hangs; its number, once all are connected.
fn ring(cluster: &Cluster<'_>, more: &str) -> String {
    let project = cluster.project;
    let ranks = project.path("ranks").display().to_string();
    let program = testdata("python/ring_of_ranks.py").display().to_string();
    let script = format!("#!/bin/sh\nexec srun --ntasks=3 --overcommit python3 {program} {ranks} {more}\n");
    std::fs::write(project.path("job.sh"), script).expect("written");
    let (code, id) = cluster.ask(&["sbatch", "--parsable", "--ntasks=2", "--output=job.out", "job.sh"]);
    assert_eq!(code, Some(0), "{id}");
    wait_until("all ranks are connected", || (0..3).all(|rank| project.path(&format!("ranks/ready-{rank}")).exists()));
    id.trim().to_owned()
}

#[test]
fn a_healthy_job_of_slurm_is_in_no_cycle() {
    let project = Project::new(&[("ranks/.keep", ""), ("look.sh", "#!/bin/sh\nlockscope job -o \"$1\"\nexit $?\n")]);
    let cluster = match Cluster::start(&project) {
        Ok(cluster) => cluster,
        Err(why) => return crate::harness::skipped!("{why}"),
    };
    let id = ring(&cluster, "healthy");
    std::fs::set_permissions(project.path("look.sh"), PermissionsExt::from_mode(0o755)).expect("allowed");
    for round in 0..5 {
        let folder = format!("hang-{round}");
        let step = format!("--jobid={id}");
        let mut look = vec!["srun", &step, "--overlap", "--ntasks-per-node=1"];
        // A script of the user's own is no rank of the job either.
        look.extend(if round % 2 == 0 { &["lockscope", "job", "-o"][..] } else { &["./look.sh"] });
        look.push(&folder);
        let (code, text) = cluster.ask(&look);
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = cluster.ask(&["lockscope", "merge", "--format", "json", &folder]);
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(code, Some(0), "look {round}: {}", report["summary"]);
        assert_eq!(report["cycles"], serde_json::Value::Array(Vec::new()), "look {round}: {}", report["summary"]);
        assert_eq!((&report["job"]["reported"], &report["job"]["two_rounds"]), (&"0-2".into(), &true.into()));
    }
}

#[test]
fn the_line_of_the_manual_tells_of_a_job_of_slurm() {
    let project = Project::new(&[("ranks/.keep", "")]);
    let cluster = match Cluster::start(&project) {
        Ok(cluster) => cluster,
        Err(why) => return crate::harness::skipped!("{why}"),
    };
    let id = ring(&cluster, "");
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
