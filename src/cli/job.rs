//! `lockscope job`: samples the ranks of a job on this node, twice.
//!
//! This module finds the ranks among the processes that it may attach to, by the variables of their launcher. Between
//! the rounds it waits for the samples of other nodes in the same folder, for a limited time. The proof is that a
//! sample of the second round names the samples of the first. It opens no port.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::args::Engine;
use super::calls::Calls;
use super::digests::FirstRound;
use super::requests::{Answers, Request};
use super::{CliError, Color, JobArguments, clusters, digests, output, progress, spawned};
use crate::analysis::{self, AttachOptions, Keep, Outcome};
use crate::image::live::{self, Ranked};
use crate::job::{self, Digest, Look, Seen, Witness};

/// Least time between two rounds: what moves has moved by then.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(500);
/// Longest time that the first round of other nodes is waited for.
const FOR_OTHERS: Duration = Duration::from_secs(10);
/// Between two reads of the folder.
const TURN: Duration = Duration::from_millis(100);

/// Where this process may not attach to ranks, their parents may.
const ANOTHER_WAY: &str =
    "ranks that were started by `lockscope run --report-dir DIR` can be asked: `lockscope job --ask DIR`";
/// Longest time that the answers to a request are waited for.
const FOR_ANSWERS: Duration = Duration::from_secs(30);

/// Sample the ranks, and write digests or the verdict over this node.
pub(super) fn run(arguments: &JobArguments, color: Color) -> Result<ExitCode, CliError> {
    if let Some(folder) = &arguments.ask {
        return ask(folder, arguments, color);
    }
    let folder = arguments.file.as_deref().filter(|path| !output::is_stdout(path) && !digests::is_digest(path));
    if let Some(folder) = folder {
        if folder.is_file() {
            return Err(CliError::new(format!("`{}` is a file", folder.display()))
                .hint("name a folder, or a file that ends in .digest.json"));
        }
        digests::make_folder(folder)?;
    }
    let seen_before = digests_named(&arguments.after)?;
    let mut chosen = chosen(arguments)?;
    let mut digest = Digest::default();
    let mut names: BTreeSet<String> = seen_before.iter().map(|look| look.id.clone()).collect();
    let mut calls = Calls::default();
    if arguments.round != Some(2) {
        // The first round shows who is to query NCCL's RAS.
        let mut first = || Ok(look(arguments, &mut chosen, 1, Seen::default(), false)?.0);
        let look = if arguments.round.is_none() { calls.first_look(first)? } else { first()? };
        names.insert(look.id.clone());
        keep(&mut digest, look, Vec::new(), folder)?;
    }
    if arguments.round != Some(1) {
        let mut first = FirstRound::default();
        if arguments.round.is_none() {
            wait_for_others(&digest, folder, &mut first);
            calls.wait_until_polled();
        }
        folder.into_iter().for_each(|folder| first.poll(folder));
        names.extend(first.looks().map(|look| look.id.clone()));
        let asks = chosen.asks_nccl(digest.looks().chain(&seen_before).chain(first.looks()));
        let (seen, set) = Seen::of(names);
        let (look, witnesses) = look(arguments, &mut chosen, 2, seen, asks)?;
        let look = calls.put_into(look);
        keep_set(&look, &set, folder)?;
        digest.merge(set);
        keep(&mut digest, look, witnesses, folder)?;
    }
    let Some(file) = &arguments.file else {
        let report = job::report(&digest);
        let destinations = output::destinations(&arguments.output())?;
        return output::write(&Outcome::of(report), &destinations, &arguments.output(), color);
    };
    if output::is_stdout(file) {
        output::to_stdout(&digest.write())?;
    } else if folder.is_none() {
        output::named(file, &digest.write())?;
    }
    if !arguments.quiet && !output::is_stdout(file) {
        let report = job::report(&digest);
        output::headline(&report, &format!("{} written to {}", chosen.named(&digest), file.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets the `run` in front of each rank sample it twice, and reports on the job.
fn ask(folder: &Path, arguments: &JobArguments, color: Color) -> Result<ExitCode, CliError> {
    if !folder.is_dir() {
        return Err(CliError::new(format!("there is no folder `{}`", folder.display()))
            .hint("name the one that the ranks were started with: `mpirun lockscope run --report-dir DIR -- ./prog`"));
    }
    let destinations = output::destinations(&arguments.output())?;
    let id = Request::fresh();
    let mut digest = Digest::default();
    let mut answers = Answers::default();
    for round in 1..=2 {
        let (request, set) = match round {
            1 => (Request::of(&id, 1), Digest::default()),
            _ => Request::after(&id, &answers),
        };
        request.write_with(&set, folder)?;
        digest.merge(set);
        answers = Answers::default();
        let begin = Instant::now();
        while !answers.are_complete() && begin.elapsed() < FOR_ANSWERS {
            std::thread::sleep(TURN);
            answers.poll(folder, &id, round);
        }
        request.withdraw(folder);
        if answers.ranks() == 0 {
            return Err(CliError::new(format!("nobody answers in `{}`", folder.display())).hint(
                "each rank is to be started by `lockscope run --report-dir DIR`, with this folder, and to run still",
            ));
        }
        digest.merge(answers.digest());
        if round == 1 {
            std::thread::sleep(BETWEEN_ROUNDS);
        }
    }
    let report = job::report(&digest);
    output::write(&Outcome::of(report), &destinations, &arguments.output(), color)
}

/// The samples of the first round in these files.
fn digests_named(files: &[std::path::PathBuf]) -> Result<Vec<Look>, CliError> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let digest = digests::read(files)?.digest;
    Ok(digest.looks().filter(|look| look.round == 1).cloned().collect())
}

fn keep(digest: &mut Digest, look: Look, witnesses: Vec<Witness>, folder: Option<&Path>) -> Result<(), CliError> {
    let file = digests::name_of(&look);
    let mut own = Digest::default();
    own.add(look);
    witnesses.into_iter().for_each(|witness| own.add_witness(witness));
    if let Some(folder) = folder {
        output::named(&folder.join(file), &own.write())?;
    }
    digest.merge(own);
    Ok(())
}

/// The set of samples that a sample names is a file of its own in a folder: thousands of nodes have seen the same
/// thousands.
fn keep_set(look: &Look, set: &Digest, folder: Option<&Path>) -> Result<(), CliError> {
    let (Some(folder), Some(name)) = (folder, &look.saw_set) else { return Ok(()) };
    let file = folder.join(digests::name_of_set(name));
    // Its name says what is in it.
    if file.exists() { Ok(()) } else { output::named(&file, &set.write()) }
}

/// Wait until what moves has moved, and until each rank has been sampled, or long enough.
fn wait_for_others(own: &Digest, folder: Option<&Path>, first: &mut FirstRound) {
    std::thread::sleep(BETWEEN_ROUNDS);
    let Some(folder) = folder else { return };
    let members = own.looks().flat_map(|look| &look.members);
    let Some(size) = members.filter_map(|member| member.identity.size).max() else { return };
    let job = own.looks().flat_map(|look| &look.members).find_map(|member| job::key_of(&member.identity));
    let begin = Instant::now();
    while begin.elapsed() < FOR_OTHERS {
        first.poll(folder);
        let of_job = first.looks().flat_map(|look| &look.members);
        let of_job = of_job.filter(|member| job::key_of(&member.identity) == job);
        let left_out = own.looks().flat_map(|look| &look.left_out).map(|one| one.rank);
        let there: BTreeSet<u32> = of_job.filter_map(|member| member.identity.rank).chain(left_out).collect();
        if there.len() as u64 >= u64::from(size) {
            return;
        }
        std::thread::sleep(TURN);
    }
}

/// The processes to sample.
enum Chosen {
    /// Ranks of a job.
    Ranks(Vec<Ranked>),
    /// Processes of a cluster. Before the first sample also possible ones.
    Cluster(Vec<i32>),
    /// Ranks that no variable names, likewise.
    Spawned(Vec<i32>),
}

impl Chosen {
    fn pids(&self) -> Vec<i32> {
        match self {
            Chosen::Ranks(ranks) => ranks.iter().map(|rank| rank.pid).collect(),
            Chosen::Cluster(pids) | Chosen::Spawned(pids) => pids.clone(),
        }
    }

    /// Whether this node queries NCCL's RAS. One answer covers all ranks of a job, so one node queries it: that of the
    /// lowest rank that waits for its GPU, by the samples of the first round.
    fn asks_nccl<'l>(&self, first: impl Iterator<Item = &'l Look>) -> bool {
        let own: BTreeSet<i32> = self.pids().into_iter().collect();
        let first: Vec<&Look> = first.collect();
        match (job::first_on_gpu(first.iter().copied()), self) {
            (None, _) => first.is_empty(),
            (Some(rank), Chosen::Ranks(ranks)) => ranks.iter().any(|one| one.membership.rank == rank),
            (Some(rank), _) => {
                let members = first.iter().flat_map(|look| &look.members);
                members.into_iter().any(|one| one.identity.rank == Some(rank) && own.contains(&one.pid))
            }
        }
    }

    /// Those of them that `digest` has.
    fn named(&self, digest: &Digest) -> String {
        match self {
            Chosen::Ranks(ranks) => {
                let there: BTreeSet<i32> = digest.looks().flat_map(|look| &look.members).map(|one| one.pid).collect();
                let there = ranks.iter().filter(|rank| there.contains(&rank.pid));
                format!("ranks {}", job::ranges(there.map(|rank| rank.membership.rank)))
            }
            Chosen::Spawned(pids) if pids.len() == 1 => "1 rank".to_owned(),
            Chosen::Spawned(pids) => format!("{} ranks", pids.len()),
            Chosen::Cluster(pids) if pids.len() == 1 => "1 process of the cluster".to_owned(),
            Chosen::Cluster(pids) => format!("{} processes of the cluster", pids.len()),
        }
    }
}

/// Takes one round, and returns NCCL's RAS's answer, if it was to be queried.
fn look(
    arguments: &JobArguments,
    chosen: &mut Chosen,
    round: u8,
    saw: Seen,
    nccl_ras: bool,
) -> Result<(Look, Vec<Witness>), CliError> {
    let options = AttachOptions {
        found: true,
        // A helper of a rank may hold it up, such as a worker of its DataLoader.
        follow: !matches!(chosen, Chosen::Cluster(_)),
        max_pause: arguments.stopping.max_pause,
        stopping: arguments.stopping.choice(),
        nccl_ras,
        ..AttachOptions::of(chosen.pids())
    };
    let outcome = progress::unless(arguments.quiet, || analysis::attach(&options, Keep::Nothing))
        .map_err(|error| CliError::from(error).hint(ANOTHER_WAY))?;
    let mut look = job::distil(&outcome.report, round, saw);
    let members = |look: &Look| look.members.iter().map(|member| member.pid).collect();
    match chosen {
        Chosen::Ranks(ranks) if look.members.len() < ranks.len() => {
            // Ranks that have ended meanwhile are not left out.
            let running: BTreeSet<i32> = live::ranks().into_iter().map(|rank| rank.pid).collect();
            let left = ranks.iter().filter(|rank| running.contains(&rank.pid));
            look = look.without(left.map(|rank| (rank.membership.rank, rank.pid)));
        }
        Chosen::Ranks(_) => {}
        Chosen::Cluster(pids) => {
            look = clusters::only_one(arguments, look)?;
            *pids = members(&look);
        }
        Chosen::Spawned(pids) => {
            look = spawned::only_one(arguments, look, &outcome.report)?;
            *pids = members(&look);
        }
    }
    if arguments.redact {
        look.host.name = None;
        look = look.named();
    }
    Ok((look, job::witnesses(&outcome.report)))
}

/// The chosen processes: the ranks of a job. If there are none, the processes of a cluster, or ranks that only their
/// memory names.
fn chosen(arguments: &JobArguments) -> Result<Chosen, CliError> {
    let is_any = arguments.engine == Engine::Auto;
    let is_cluster = clusters::is_one(arguments.engine);
    let ranks = if is_cluster { Err(clusters::nobody(arguments.engine)) } else { ranks(arguments) };
    let error = match ranks {
        Ok(ranks) => return Ok(Chosen::Ranks(ranks)),
        Err(error) => error,
    };
    let cluster = if is_any || is_cluster { clusters::candidates(arguments) } else { Vec::new() };
    let is_meant = |pids: &[i32]| !pids.is_empty() && arguments.pid.is_none_or(|pid| pids.contains(&pid));
    if is_meant(&cluster) {
        return Ok(Chosen::Cluster(cluster));
    }
    let spawned = spawned::candidates(arguments);
    if is_meant(&spawned) {
        return Ok(Chosen::Spawned(spawned));
    }
    if cluster.is_empty() { Err(error) } else { Ok(Chosen::Cluster(cluster)) }
}

/// The ranks of the chosen job.
fn ranks(arguments: &JobArguments) -> Result<Vec<Ranked>, CliError> {
    let all: Vec<Ranked> = live::ranks().into_iter().filter(|rank| !rank.inherited).collect();
    let engine = arguments.engine.of_jobs();
    // Anybody can start a process with the variables of a rank: it is one of a job of the user's own.
    let mut jobs: BTreeMap<(String, Option<u32>), Vec<Ranked>> = BTreeMap::new();
    for rank in all.into_iter().filter(|rank| engine.is_none_or(|engine| rank.membership.job.engine == engine)) {
        jobs.entry((key(&rank), rank.user)).or_default().push(rank);
    }
    // Under `srun --overlap` lockscope is a step of the same job itself.
    if let Ok(id) = std::env::var("SLURM_JOB_ID") {
        let is_own = |ranks: &[Ranked]| ranks.iter().any(|rank| rank.slurm_job.as_deref() == Some(&id));
        if jobs.values().any(|ranks| is_own(ranks)) {
            jobs.retain(|_, ranks| is_own(ranks));
        }
        // Neither is it a rank, nor what it was started by in that step.
        let above = live::ancestors();
        let is_this_step = |ranks: &[Ranked]| ranks.iter().any(|rank| above.contains(&rank.pid));
        if arguments.pid.is_none() && jobs.values().any(|ranks| !is_this_step(ranks)) {
            jobs.retain(|_, ranks| !is_this_step(ranks));
        }
    }
    if let Some(pid) = arguments.pid {
        jobs.retain(|_, ranks| ranks.iter().any(|rank| rank.pid == pid));
        if jobs.is_empty() {
            return Err(CliError::new(format!(
                "process {pid} is no rank of a job, by the variables that it was started with"
            ))
            .hint("`lockscope attach PID` looks at any process"));
        }
    }
    if let Some(job) = &arguments.job {
        jobs.retain(|_, ranks| ranks.iter().any(|rank| rank.membership.job.id.as_deref() == Some(job)));
    }
    let count = jobs.len();
    if count > 1 {
        let lines: Vec<String> = jobs
            .iter()
            .map(|((name, user), ranks)| {
                let is_shared = jobs.keys().any(|(other, of)| other == name && of != user);
                let of_user = user.filter(|_| is_shared).map(|user| format!(" of user {user}")).unwrap_or_default();
                let pid = ranks.first().map_or(0, |rank| rank.pid);
                format!("`lockscope job --pid {pid}` for {name}{of_user} with {} ranks here", ranks.len())
            })
            .collect();
        return Err(CliError::new(format!("{count} jobs have ranks on this node")).hint(lines.join("; ")));
    }
    let mut ranks = jobs.into_values().next().ok_or_else(|| {
        CliError::new("no process here that lockscope may read is a rank of a job")
            .hint(
                "ranks are known by what mpirun, torchrun, srun and Kubernetes' indexed jobs set in their environment",
            )
            .hint("run it on the node and as the user of the job, or look at one process with `lockscope attach PID`")
    })?;
    // The last attempt: ranks of those before are about to end.
    let last = ranks.iter().map(|rank| rank.membership.attempt).max().flatten();
    ranks.retain(|rank| rank.membership.attempt == last && (!arguments.alone || Some(rank.pid) == arguments.pid));
    ranks.sort_by_key(|rank| (rank.membership.rank, rank.pid));
    Ok(ranks)
}

/// The identity of a job on a node: the engine's name for it, else the process that started its ranks.
fn key(rank: &Ranked) -> String {
    let job = &rank.membership.job;
    let mut key = job.engine.name().to_owned();
    match (&job.id, rank.launcher) {
        (Some(id), _) => key = format!("{key} {id}"),
        (None, Some((pid, _))) => key = format!("{key} of process {pid}"),
        (None, None) => {}
    }
    job.step.as_ref().map_or(key.clone(), |step| format!("{key}.{step}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_nodes_have_seen_is_one_file_beside_their_looks() {
        let folder = tempfile::tempdir().expect("a folder");
        let (seen, set) = Seen::of((0..100).map(|number| number.to_string()).collect());
        let mut digest = Digest::default();
        for began in ["one", "another"] {
            let look = Look { round: 2, began: began.to_owned(), saw_set: seen.set.clone(), ..Look::default() }.named();
            keep_set(&look, &set, Some(folder.path())).expect("written");
            keep(&mut digest, Look { host: crate::report::Host::default(), ..look }, Vec::new(), None).expect("kept");
        }
        let files: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        assert_eq!(Digest::read(&std::fs::read(file.path()).expect("readable"), "set"), Ok(set));
        assert_eq!(digest.looks().count(), 2);
    }
}
