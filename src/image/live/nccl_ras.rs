//! Queries NCCL's RAS, which answers while all ranks hang, for the ranks that launched each operation.
//!
//! In: the sampled processes, which run again. Out: [`Heard`], within a time limit. lockscope queries a listener only
//! if it belongs to the user of a process that has NCCL, in that process's own network namespace. An answer counts only
//! if it mentions the process. There are two queries: ranks that moved in between are left out. The interface is NCCL's
//! own for people, and changes nothing (docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

use super::sockets::rows;
use crate::image::gpu::{Heard, has_nccl};
use crate::image::{Gap, Image, ProcessImage};
use crate::limits;
use crate::limits::live::{LONGEST_RAS_ANSWER, MOST_RAS_LISTENERS};
use crate::nccl_ras::Answer;

/// Where it listens, unless `NCCL_RAS_ADDR` says otherwise.
const DEFAULT: &str = "127.0.0.1:28028";
/// Since NCCL 2.28; without the second line the answer is a text for people.
const QUESTION: &[u8] = b"CLIENT PROTOCOL 2\nSET FORMAT json\nVERBOSE STATUS\n";
/// Measured: under 1 ms for 2 ranks. It queries all machines, and waits for those that are out of reach.
const LIMIT: Duration = Duration::from_millis(1000);
/// Between two questions: longer than most steps of a training take to launch.
const BETWEEN: Duration = Duration::from_millis(250);

/// A listener, and the processes of the sample that it should know.
#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    /// `/proc/12/ns/net`, where that is another network namespace than this program's.
    namespace: Option<PathBuf>,
    processes: Vec<(i32, i32)>,
}

/// Query all listeners. Returns their answers, and a gap for each without an answer.
pub(super) fn ask(image: &Image) -> (Vec<Heard>, Vec<Gap>) {
    let listeners = listeners(image);
    if listeners.is_empty() {
        return Default::default();
    }
    let ask_all = || listeners.iter().map(ask_one).collect::<Vec<_>>();
    let first = ask_all();
    if first.iter().all(Result::is_err) {
        return (
            Vec::new(),
            listeners.iter().zip(first).filter_map(|(one, answer)| Some(one.gap(&answer.err()?))).collect(),
        );
    }
    std::thread::sleep(BETWEEN);
    let (mut heard, mut gaps) = (Vec::new(), Vec::new());
    for ((listener, first), second) in listeners.iter().zip(first).zip(ask_all()) {
        match first.and_then(|first| Ok(first.that_stood_still(&second?))) {
            Ok(answer) => {
                let known = listener.processes.iter().filter(|(_, own)| answer.has(*own)).map(|(pid, _)| *pid);
                heard.push(Heard { address: listener.address.to_string(), processes: known.collect(), answer });
            }
            Err(why) => gaps.push(listener.gap(&why)),
        }
    }
    heard.retain(|heard| !heard.processes.is_empty());
    (heard, gaps)
}

impl Listener {
    fn gap(&self, why: &str) -> Gap {
        Gap::new(format!("what NCCL's RAS at {} knows of the job", self.address), why)
    }
}

fn listeners(image: &Image) -> Vec<Listener> {
    let own = std::fs::read_link("/proc/self/ns/net").ok();
    let mut found: BTreeMap<(PathBuf, SocketAddr), Listener> = BTreeMap::new();
    for process in image.processes.iter().filter(|process| has_nccl(process)) {
        let directory = PathBuf::from(format!("/proc/{}", process.pid));
        let Ok(namespace) = std::fs::read_link(directory.join("ns/net")) else { continue };
        let Some(address) = listens(process, &directory) else { continue };
        let is_own = own.as_ref() == Some(&namespace);
        let one = found.entry((namespace, address)).or_insert_with(|| Listener {
            address,
            namespace: (!is_own).then(|| directory.join("ns/net")),
            processes: Vec::new(),
        });
        one.processes.push((process.pid, process.ns_pid));
    }
    if found.len() > MOST_RAS_LISTENERS {
        limits::met(MOST_RAS_LISTENERS, "what NCCL's RAS knows of further jobs", "listeners");
    }
    found.into_values().take(MOST_RAS_LISTENERS).collect()
}

/// Where the RAS of a process listens: a socket of the same user, at the address that NCCL takes.
fn listens(process: &ProcessImage, directory: &Path) -> Option<SocketAddr> {
    let said = process.variable("NCCL_RAS_ADDR").unwrap_or(DEFAULT);
    let wanted: SocketAddr = said.replace("localhost", "127.0.0.1").parse().ok()?;
    let user = directory.metadata().ok()?.uid();
    let is_it = |ip: std::net::IpAddr| ip == wanted.ip() || ip.is_unspecified();
    rows(directory)
        .into_iter()
        .any(|row| row.listens && row.user == user && row.local.port() == wanted.port() && is_it(row.local.ip()))
        .then_some(wanted)
}

/// One question, in the network namespace of the listener.
fn ask_one(listener: &Listener) -> Result<Answer, String> {
    let ask = || {
        if let Some(namespace) = &listener.namespace {
            // This thread alone, which ends thereafter.
            let file =
                File::open(namespace).map_err(|error| format!("its network namespace cannot be opened ({error})"))?;
            setns(file, CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("its network namespace cannot be entered ({error})"))?;
        }
        question(listener.address)
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("nccl-ras".to_owned());
        let asking = builder.spawn_scoped(scope, ask).map_err(|error| error.to_string())?;
        asking.join().map_err(|_| "the thread that asked it has failed".to_owned())?
    })
}

fn question(address: SocketAddr) -> Result<Answer, String> {
    let end = Instant::now() + LIMIT;
    let late = || format!("it gave no answer within {} ms", LIMIT.as_millis());
    let mut stream =
        TcpStream::connect_timeout(&address, LIMIT).map_err(|error| format!("it cannot be reached ({error})"))?;
    stream
        .set_write_timeout(Some(LIMIT))
        .and_then(|()| stream.write_all(QUESTION))
        .map_err(|error| error.to_string())?;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match stream.read(&mut piece) {
            // It closes the connection behind its answer.
            Ok(0) => break,
            Ok(read) if text.len() < LONGEST_RAS_ANSWER => text.extend(piece.iter().take(read)),
            Ok(_) => return Err("its answer is longer than any job's".to_owned()),
            Err(_) => return Err(late()),
        }
    }
    Answer::read(&String::from_utf8_lossy(&text))
        .ok_or_else(|| "it answers otherwise than NCCL 2.28 and later do".to_owned())
}
