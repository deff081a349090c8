//! Digests of jobs in files: read from files and folders, written for their owner alone.
//!
//! In: names. Out: a [`Digest`], with gaps for files that could not be taken in: one damaged file of a thousand must not lose the
//! others. Reports and snapshots of ranks are taken as samples of the first round.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{CliError, output, private_file};
use crate::analysis::{self, CoreOptions, Keep};
use crate::image::core::Places;
use crate::job::{Digest, DigestError, Look, Seen, Witness, distil};
use crate::limits::Bounded;
use crate::limits::job::{LARGEST_DIGEST, MOST_FILES, MOST_FILES_TOLD};
use crate::report::{Gap, Report};

/// How names of digests end in a folder.
const ENDING: &str = ".digest.json";

/// How PyTorch names the dumps of its Flight Recorder (TORCH_FR_DUMP_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_TEMP_FILE).
const DUMPS: [&str; 2] = ["nccl_trace_rank_", "comm_lib_trace_rank_"];

/// Words in names of files that say whose answers they are.
const WITNESSES: [&str; 8] = ["ras", "ncclras", "pods", "kubectl", "slurm", "scontrol", "squeue", "sinfo"];

/// The data of one file.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) digest: Digest,
    /// Files that could not be taken in.
    pub(super) gaps: Vec<Gap>,
    /// Files that were.
    pub(super) files: usize,
    /// Files that could not be, beyond those of the gaps.
    untold: usize,
}

/// Read files, and the files in folders; `-` is standard input.
pub(super) fn read(names: &[PathBuf]) -> Result<Taken, CliError> {
    let mut taken = Taken::default();
    for name in names {
        if name.is_dir() {
            for file in files_in(name)? {
                taken.add(&file);
            }
        } else {
            taken.add(name);
        }
    }
    if taken.files > 0 {
        return Ok(taken.told());
    }
    Err(match taken.gaps.first() {
        Some(gap) => CliError::new(gap.why.clone()),
        None => CliError::new("there is no digest, report or snapshot among these files")
            .hint("`lockscope job -o FOLDER` on each node writes digests"),
    })
}

impl Taken {
    fn add(&mut self, path: &Path) {
        match one(path) {
            Ok(digest) => {
                self.files += 1;
                self.digest.merge(digest);
            }
            Err(why) if self.gaps.len() < MOST_FILES_TOLD => {
                self.gaps.push(Gap::new(format!("`{}`", path.display()), why));
            }
            Err(_) => self.untold += 1,
        }
    }

    /// The last of the gaps says how many files have none of their own.
    fn told(mut self) -> Taken {
        if self.untold > 0 {
            let files = if self.untold == 1 { "1 more file".to_owned() } else { format!("{} more files", self.untold) };
            self.gaps.push(Gap::new(files, "they could not be taken in either"));
        }
        self
    }
}

/// One file.
fn one(path: &Path) -> Result<Digest, String> {
    let name = path.display().to_string();
    let bytes = bytes(path).map_err(|error| format!("cannot read `{name}`: {error}"))?;
    if Digest::is_one(&bytes) {
        return Digest::read(&bytes, &name)
            .or_else(|error| several(&bytes, &name, error))
            .map_err(|error| error.to_string());
    }
    if let Some(witness) = Witness::read(&bytes, &name) {
        let mut digest = Digest::default();
        digest.add_witness(witness.map_err(|error| error.to_string())?);
        return Ok(digest);
    }
    let report = match bytes.first() {
        Some(b'{') => of_report(&bytes, &name)?,
        _ if output::is_stdout(path) => {
            return Err(DigestError::NotOne { path: name, why: "it is no JSON".into() }.to_string());
        }
        _ => {
            let options = CoreOptions { files: vec![path.to_path_buf()], places: Places::default(), working: false };
            analysis::post_mortem(&options, Keep::Nothing).map_err(|error| error.to_string())?.report
        }
    };
    let look = distil(&report, 1, Seen::default());
    if look.members.is_empty() {
        return Err(format!("no process in `{name}` is a rank of a job, by the variables that it was started with"));
    }
    let mut digest = Digest::default();
    digest.add(look);
    Ok(digest)
}

/// Digests one behind the other, as `cat *.1` gives them; where it is one alone, why that cannot be read.
fn several(bytes: &[u8], name: &str, error: DigestError) -> Result<Digest, DigestError> {
    let mut all = Digest::default();
    let mut begin = 0;
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<serde::de::IgnoredAny>();
    while let Some(Ok(_)) = values.next() {
        let end = values.byte_offset();
        if begin == 0 && bytes.get(end..).is_none_or(|rest| rest.trim_ascii().is_empty()) {
            return Err(error);
        }
        all.merge(Digest::read(bytes.get(begin..end).unwrap_or_default(), name)?);
        begin = end;
    }
    let rest = bytes.get(begin..).unwrap_or_default();
    if begin == 0 {
        return Err(error);
    }
    if !rest.trim_ascii().is_empty() {
        all.merge(Digest::read(rest, name)?);
    }
    Ok(all)
}

fn of_report(bytes: &[u8], name: &str) -> Result<Report, String> {
    let not_one = |why: String| DigestError::NotOne { path: name.to_owned(), why }.to_string();
    let report: Report =
        serde_json::from_slice(bytes).map_err(|error| not_one(format!("nor is it a report ({error})")))?;
    if report.schema != "lockscope.report" {
        return Err(not_one("nor is it a report".to_owned()));
    }
    if report.job.is_some() {
        return Err(not_one("it is the report of a merge: give the files that it was made of".to_owned()));
    }
    Ok(report)
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = |source: &mut dyn Read, bytes: &mut Vec<u8>| source.take(LARGEST_DIGEST + 1).read_to_end(bytes);
    if output::is_stdout(path) {
        read(&mut io::stdin().lock(), &mut bytes)?;
    } else {
        read(&mut File::open(path)?, &mut bytes)?;
    }
    if bytes.len() as u64 > LARGEST_DIGEST {
        return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST_DIGEST >> 20)));
    }
    Ok(bytes)
}

/// The files of a folder that can be taken in, in order of their names.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let entries = fs::read_dir(folder)
        .map_err(|error| CliError::new(format!("cannot read the folder `{}`: {error}", folder.display())))?;
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_dump = DUMPS.iter().any(|beginning| name.starts_with(beginning));
        !name.starts_with('.')
            && (is_dump
                || is_witness(path)
                || [".json", ".snapshot", ".snapshot.zst"].iter().any(|ending| name.ends_with(ending)))
    };
    // Opening a FIFO would wait until its other end is opened.
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| is_wanted(path) && path.is_file());
    let mut files: Vec<PathBuf> =
        paths.bounded(MOST_FILES, || format!("the folder `{}`", folder.display()), "files").collect();
    // Where both are, the digests were made from the others.
    if files.iter().any(|path| is_digest(path)) {
        files.retain(|path| is_digest(path) || path.extension().is_none() || is_witness(path));
    }
    files.sort();
    Ok(files)
}

/// Whether the name of a file says whose answer it is: `ras.json`, `ras-node7.json`, `pods.json`, `scontrol-41.txt`.
fn is_witness(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    (name.ends_with(".json") || name.ends_with(".txt"))
        && name.split(['.', '-', '_']).any(|word| WITNESSES.contains(&word))
}

/// Whether the name of a file says that it is a digest.
pub(super) fn is_digest(path: &Path) -> bool {
    path.to_string_lossy().ends_with(ENDING)
}

/// Samples of the first round in a folder, in which each file is read once: they appear whole, by renaming, and
/// thousands of nodes wait for each other's.
#[derive(Debug, Default)]
pub(super) struct FirstRound {
    read: BTreeMap<PathBuf, (Version, Vec<Look>)>,
}

/// The identity of a file's content, which changes if another file takes its place.
type Version = (u64, u64);

impl FirstRound {
    /// Read what has come; a folder that is not there yet has nothing.
    pub(super) fn poll(&mut self, folder: &Path) {
        for path in files_in(folder).unwrap_or_default().into_iter().filter(|path| is_digest(path)) {
            let Some(version) = fs::metadata(&path).ok().map(|file| (file.ino(), file.len())) else { continue };
            if self.read.get(&path).is_some_and(|(known, _)| *known == version) {
                continue;
            }
            let looks = one(&path).map(|digest| digest.looks().filter(|look| look.round == 1).cloned().collect());
            self.read.insert(path, (version, looks.unwrap_or_default()));
        }
    }

    pub(super) fn looks(&self) -> impl Iterator<Item = &Look> {
        self.read.values().flat_map(|(_, looks)| looks)
    }
}

/// The name of a sample's file in a folder: a node and PID namespace has one of each round.
pub(super) fn name_of(look: &Look) -> String {
    let host = look.host.name.as_deref().unwrap_or("node");
    /// Letters of the random part.
    const LETTERS: usize = 8;
    let boot: String = look.host.boot_id.as_deref().unwrap_or_default().chars().take(LETTERS).collect();
    let first = look.members.first();
    let namespace = first.and_then(|member| member.identity.namespaces.pid).unwrap_or(0);
    let job = first.map_or(0, |member| member.pid);
    format!(
        "{}-{}-{namespace}-{job}.{}{ENDING}",
        private_file::name_part(host),
        private_file::name_part(&boot),
        look.round
    )
}

/// The name of the file of a set of samples that answers to a request name.
pub(super) fn name_of_set(set: &str) -> String {
    format!("seen-{set}{ENDING}")
}

/// The name of the file of a sample that answers the request of this name.
pub(super) fn name_of_answer(look: &Look, request: &str) -> String {
    let name = name_of(look);
    let stem = name.strip_suffix(&format!(".{}{ENDING}", look.round)).unwrap_or(&name);
    format!("{stem}{}", ending_of_answers(request, look.round))
}

/// How such names end.
pub(super) fn ending_of_answers(request: &str, round: u8) -> String {
    format!(".{request}.{round}{ENDING}")
}

/// Make a folder that only its owner can open; one that is there stays as it is.
pub(super) fn make_folder(folder: &Path) -> Result<(), CliError> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| CliError::new(format!("cannot make the folder `{}`: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Digest, Look};
    use crate::report::Host;

    fn file(folder: &Path, name: &str, look: Look) {
        let mut digest = Digest::default();
        digest.add(look);
        std::fs::write(folder.join(format!("{name}{ENDING}")), digest.write()).expect("written");
    }

    fn look(node: &str, round: u8) -> Look {
        Look { round, host: Host { name: Some(node.to_owned()), ..Host::default() }, ..Look::default() }
    }

    #[test]
    fn damaged_files_lose_no_other_and_are_told_up_to_a_number() {
        let folder = tempfile::tempdir().expect("a folder");
        file(folder.path(), "good", look("a", 1));
        for number in 0..MOST_FILES_TOLD + 3 {
            let path = folder.path().join(format!("cut-{number}{ENDING}"));
            std::fs::write(path, b"{\"schema\":\"lockscope.digest\",").expect("written");
        }
        let taken = read(&[folder.path().to_owned()]).expect("one is good");
        assert_eq!((taken.files, taken.digest.looks().count()), (1, 1));
        assert_eq!(taken.gaps.len(), MOST_FILES_TOLD + 1);
        assert_eq!(taken.gaps.last().map(|gap| gap.what.as_str()), Some("3 more files"));
    }

    #[test]
    fn a_file_that_took_the_place_of_another_is_read_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = FirstRound::default();
        first.poll(&folder.path().join("none"));
        let nodes = |first: &FirstRound| {
            let mut names: Vec<String> = first.looks().filter_map(|look| look.host.name.clone()).collect();
            names.sort();
            names
        };
        file(folder.path(), "one", look("a", 1));
        file(folder.path(), "two", look("b", 2));
        first.poll(folder.path());
        first.poll(folder.path());
        assert_eq!(nodes(&first), ["a"]);
        file(folder.path(), "one", look("another", 1));
        file(folder.path(), "three", look("c", 1));
        first.poll(folder.path());
        assert_eq!(nodes(&first), ["another", "c"]);
    }
}
