//! Reads after the release: from the running processes, through the copier, each with a limit in time.
//!
//! In: a span of a mapping, and further spans, whose pages are read only if they are in memory. Out: the readable
//! pages. A page that does not come in time marks its source (a file system, or a mapping served by userfaultfd).
//! lockscope does not wait for that source again. It then reads only the source's pages in memory, and a [`Gap`] names
//! it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::copier::{Copier, Wanted};
use super::copying;
use super::memory::{Begun, Ranges, Source, SourceError, locked};
use super::proc_fs::ProcFs;
use crate::image::{Gap, Mapping};
use crate::limits::live::MOST_PLACES;
use crate::sys::Span;

/// A page that comes from somewhere has come by then, from a disk or over a network.
pub(super) const LIMIT: Duration = Duration::from_millis(250);
/// A copier that does not wait but gets no processor gets this many further periods.
pub(super) const TIMES_WHEN_BUSY: u32 = 20;
/// Room of a copier that is started for late reads alone: detailed maps have to fit.
const PAGES: usize = 16 << 10;

/// Where a page would come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A file system, by its device.
    Device(i32, i32),
    /// Memory without a file, of a process.
    Mapping { pid: i32, start: u64 },
}

impl Place {
    fn of(pid: i32, mapping: &Mapping) -> Place {
        match mapping.is_file() && (mapping.device.0 != 0 || !is_memory(mapping)) {
            true => Place::Device(mapping.device.0, mapping.device.1),
            false => Place::Mapping { pid, start: mapping.start.0 },
        }
    }
}

/// Whether a file is only memory (memfd, /dev/shm): there userfaultfd concerns a mapping, and not all of a file system. Such
/// file systems have a device of major number 0, as those of the network have.
fn is_memory(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref().unwrap_or("");
    ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"].iter().any(|prefix| path.starts_with(prefix))
}

/// Places that did not answer, of all looks.
#[derive(Debug, Default)]
pub(super) struct Silent {
    places: Mutex<BTreeMap<Place, Gap>>,
}

impl Silent {
    /// The memory that was not readable because of them.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        locked(&self.places).values().cloned().collect()
    }

    fn may_be_asked(&self, place: &Place) -> bool {
        let places = locked(&self.places);
        places.len() < MOST_PLACES && !places.contains_key(place)
    }
}

/// The processes of a sample, after it.
#[derive(Debug)]
pub(super) struct Late {
    proc_fs: ProcFs,
    /// A task of each process that lived.
    tasks: Vec<i32>,
    copier: Mutex<Option<Copier>>,
    silent: Arc<Silent>,
}

impl Late {
    /// With the copier that served under the stop.
    pub(super) fn new(proc_fs: ProcFs, tasks: Vec<i32>, copier: Copier, silent: Arc<Silent>) -> Late {
        Late { proc_fs, tasks, copier: Mutex::new(Some(copier)), silent }
    }

    /// The copier, for another look: what is still read of this one is read by a new one.
    pub(super) fn give_up_copier(&self) -> Option<Copier> {
        locked(&self.copier).take()
    }

    /// A new one with room for this many pages.
    fn start(&self, pages: usize) -> io::Result<Copier> {
        Copier::start(&self.proc_fs, pages.max(PAGES), &self.tasks, None)
    }

    /// Read pages of the process at a position.
    fn pages(&self, position: usize, wanted: &[Wanted]) -> Result<Read, SourceError> {
        let needed = wanted.iter().map(|one| one.span.length / copying::PAGE).sum();
        let mut slot = locked(&self.copier);
        // The pages that it has read before stay where they are.
        let mut copier = match slot.take().filter(|copier| copier.room() >= needed) {
            Some(copier) => Ok(copier),
            None => self.start(needed),
        };
        // The order of the stop may not have been done in time.
        if copier.as_mut().is_ok_and(|copier| !copier.wait(Instant::now() + LIMIT)) {
            copier = self.start(needed);
        }
        let mut copier = copier.map_err(|_| SourceError::Refused)?;
        let mut copies = copier.copy(wanted, Instant::now() + LIMIT);
        for _ in 0..TIMES_WHEN_BUSY {
            if copies.is_complete || copier.is_blocked() && !copier.is_dead() {
                break;
            }
            if copier.is_dead() {
                copier = self.start(needed).map_err(|_| SourceError::Refused)?;
            }
            if copier.wait(Instant::now() + LIMIT) {
                copies = copier.copy(wanted, Instant::now() + LIMIT);
            }
        }
        let read =
            Read { ranges: copier.ranges(&copies, position), is_complete: copies.is_complete, refusal: copies.refusal };
        // One that waits is left behind.
        *slot = Some(copier).filter(|_| copies.is_complete);
        Ok(read)
    }

    /// Begin to read memory of the process at a position that is likely to be needed. Returns whether a copier does.
    fn begin(&self, position: usize, wanted: &[Wanted]) -> bool {
        locked(&self.copier).as_mut().is_some_and(|copier| copier.begin_ahead(position, wanted))
    }

    /// The outcome of that read.
    fn begun(&self, position: usize) -> Begun {
        locked(&self.copier).as_mut().map_or(Begun::Left, |copier| copier.read_ahead(position))
    }

    /// Take note of a place that did not answer.
    fn fell_silent(&self, place: Place, pid: i32, task: i32, mapping: &Mapping) {
        let reason = match place {
            Place::Device(major, minor) => file_system(&self.proc_fs, task, (major, minor)),
            Place::Mapping { .. } => self.serves_itself(task, mapping),
        };
        let name = mapping.path.clone().unwrap_or_else(|| "memory".to_owned());
        let gap = Gap::new(
            format!("{name} mapped at {} in process {pid}, where it is not in memory", mapping.start),
            format!("{reason} did not answer within {} ms", LIMIT.as_millis()),
        );
        locked(&self.silent.places).insert(place, gap);
    }

    /// Whether a mapping is registered with userfaultfd, by the flags in its detailed map: missing, write-protected, minor.
    fn serves_itself(&self, task: i32, mapping: &Mapping) -> String {
        let text = self.start(PAGES).ok().and_then(|mut copier| copier.detailed_maps(task, Instant::now() + LIMIT));
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        match is_registered(&text, mapping.start.0) {
            Some(true) => "the process itself, which serves it by userfaultfd,".to_owned(),
            _ => "whatever serves it (userfaultfd, or a device for swap space)".to_owned(),
        }
    }
}

struct Read {
    ranges: Ranges,
    is_complete: bool,
    refusal: Option<Errno>,
}

/// Whether the mapping that starts there has one of the flags of userfaultfd in a detailed map.
fn is_registered(smaps: &str, start: u64) -> Option<bool> {
    let head = format!("{start:08x}-");
    let of_it = smaps.lines().skip_while(|line| !line.starts_with(&head));
    let flags = of_it.filter_map(|line| line.strip_prefix("VmFlags:")).next()?;
    Some(flags.split_whitespace().any(|flag| matches!(flag, "um" | "uw" | "ui")))
}

/// The kind of a file system and where it is mounted, as the target sees it.
fn file_system(proc_fs: &ProcFs, task: i32, device: (i32, i32)) -> String {
    let text = std::fs::read_to_string(proc_fs.process(task).join("mountinfo")).unwrap_or_default();
    match mount_of(&text, device) {
        Some((kind, point)) => format!("the file system at {point} ({kind})"),
        None => format!("the file system of device {}:{}", device.0, device.1),
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`: kind and mount point of a device.
fn mount_of(mountinfo: &str, (major, minor): (i32, i32)) -> Option<(String, String)> {
    let device = format!("{major}:{minor}");
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(2);
        (fields.next()? == device).then_some(())?;
        let point = fields.nth(1)?;
        Some((after.split(' ').next()?.to_owned(), point.replace("\\040", " ")))
    })
}

/// One process of them.
#[derive(Debug)]
pub(super) struct LateProcess {
    late: Arc<Late>,
    pid: i32,
    position: usize,
    /// A task that lives: a main thread that has exited has no memory.
    task: Mutex<i32>,
}

impl LateProcess {
    /// The process `pid`, which is number `position` of them.
    pub(super) fn new(late: Arc<Late>, pid: i32, position: usize) -> LateProcess {
        let task = late.tasks.get(position).copied().unwrap_or(pid);
        LateProcess { late, pid, position, task: Mutex::new(task) }
    }
}

impl Source for LateProcess {
    fn read(&self, mapping: &Mapping, span: Span, further: &[Span]) -> Result<Ranges, SourceError> {
        let place = Place::of(self.pid, mapping);
        let touch = self.late.silent.may_be_asked(&place);
        let spans = || std::iter::once((span, touch)).chain(further.iter().map(|&span| (span, false)));
        let read = |tid: i32| {
            let wanted = spans().map(|(span, touch)| Wanted { tid, process: self.position, span, touch });
            self.late.pages(self.position, &wanted.collect::<Vec<_>>())
        };
        let mut task = *locked(&self.task);
        let mut answer = read(task)?;
        if answer.refusal == Some(Errno::ESRCH) {
            // That thread has exited: another one may live.
            task = self.late.proc_fs.living_thread(self.pid).ok_or(SourceError::Gone)?;
            *locked(&self.task) = task;
            answer = read(task)?;
        }
        match answer.refusal {
            Some(Errno::ESRCH) => return Err(SourceError::Gone),
            Some(_) if answer.ranges.is_empty() => return Err(SourceError::Refused),
            _ => {}
        }
        if !answer.is_complete {
            self.late.fell_silent(place, self.pid, task, mapping);
        }
        Ok(answer.ranges)
    }

    fn begin(&self, spans: &[Span]) -> bool {
        let tid = *locked(&self.task);
        let wanted = spans.iter().map(|&span| Wanted { tid, process: self.position, span, touch: false });
        self.late.begin(self.position, &wanted.collect::<Vec<_>>())
    }

    fn begun(&self) -> Begun {
        self.late.begun(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_by_their_device() {
        let text = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            41 27 0:45 / /mnt/my\\040data rw,nosuid shared:1 - fuse.sshfs host:/ rw,user_id=0\n\
            27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\nnonsense\n";
        assert_eq!(mount_of(text, (0, 45)), Some(("fuse.sshfs".to_owned(), "/mnt/my data".to_owned())));
        assert_eq!(mount_of(text, (254, 0)), Some(("ext4".to_owned(), "/".to_owned())));
        assert_eq!(mount_of(text, (9, 9)), None);
    }

    #[test]
    fn flags_of_userfaultfd() {
        let text = "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr mw me ac sd\n\
            7f0000001000-7f0000002000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr mw me ac um sd\n";
        assert_eq!(is_registered(text, 0x7f00_0000_0000), Some(false));
        assert_eq!(is_registered(text, 0x7f00_0000_1000), Some(true));
        assert_eq!(is_registered(text, 0x1000), None);
    }

    #[test]
    fn places_are_file_systems_or_mappings() {
        let maps = super::super::proc_fs::parse_maps(
            b"10000-11000 rw-p 00000000 00:00 0 \n20000-21000 rw-s 00000000 00:45 7 /mnt/x\n\
            30000-31000 rw-s 00000000 00:01 9 /memfd:x (deleted)\n40000-41000 r--p 00000000 fe:00 7 /lib/x\n",
        );
        let places: Vec<Place> = maps.iter().map(|mapping| Place::of(5, mapping)).collect();
        let mapping = |start| Place::Mapping { pid: 5, start };
        assert_eq!(places, [mapping(0x10000), Place::Device(0, 0x45), mapping(0x30000), Place::Device(0xfe, 0)]);
    }
}
