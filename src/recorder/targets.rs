//! The file by which the recorder knows where to hold threads back, and in which it counts.
//!
//! In: places, pairs of them, and times. Out: a file laid out as `preload/provoke.rs` reads it, and the counts of the
//! processes that had it. It knows nothing of predictions and resolves no names.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "LOCKSCOPE_PROVOKE";

const MAGIC: [u8; 16] = *b"LOCKSCOPE-PRV-1\0";
/// Places and pairs: the file has room for no more.
pub(crate) const MOST: usize = 128;
const NAME: usize = 120;
const HEAD: usize = 56;
const PLACE: usize = 24 + 2 * NAME + 8 + NAME;
const MEMBER: usize = 64;
const MEMBERS: usize = HEAD + MOST * PLACE;
const SIZE: usize = MEMBERS + MOST * MEMBER;
/// Where a pair has its counts.
const COUNTS: usize = 16;

/// Where a lock is taken, as the recorder can tell while it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Calls of a module that return to these offsets in its file.
    Native {
        /// The last part of the module's path.
        module: String,
        /// First offset.
        begin: u64,
        /// One past the last.
        end: u64,
    },
    /// A line of Python.
    Python {
        /// The last part of the path.
        file: String,
        /// The line; 0 is any of the function.
        line: u32,
        /// The function, without its class.
        function: String,
        /// File and line of the frame that called it.
        caller: Option<(String, u32)>,
    },
    /// Wherever the GIL is taken.
    Gil,
    /// Wherever any lock is taken that is not Python's own.
    Anywhere,
    /// The thread runs, and so has its end.
    ThreadEnd,
    /// Nowhere: the thread is held before it waits to be woken.
    Waits,
    /// Nowhere: the thread wakes the one of the pair before, which is held until then.
    Wakes,
}

/// For how long threads are held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The first time at a place.
    pub(crate) first: Duration,
    /// The longest time.
    pub(crate) longest: Duration,
    /// At one place in all.
    pub(crate) place: Duration,
    /// From now on.
    pub(crate) all: Duration,
}

/// Counts of one pair of places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How often the second place was passed with the first lock held.
    pub(crate) passed: u64,
    /// How often without.
    pub(crate) alone: u64,
    /// How often a thread was held there.
    pub(crate) tries: u64,
    /// For how long.
    pub(crate) time: Duration,
    /// How often a thread came that may not be held.
    pub(crate) refused: u64,
    /// How often all partners stood at their places.
    pub(crate) met: u64,
}

impl Counts {
    /// Those of two runs together.
    pub(crate) fn and(self, other: Counts) -> Counts {
        Counts {
            passed: self.passed + other.passed,
            alone: self.alone + other.alone,
            tries: self.tries + other.tries,
            time: self.time + other.time,
            refused: self.refused + other.refused,
            met: self.met + other.met,
        }
    }
}

/// A file of targets, for one run of a command.
#[derive(Debug)]
pub(crate) struct TargetFile {
    path: PathBuf,
    pairs: usize,
}

impl TargetFile {
    /// Write the file: first and second place of each pair, at most [`MOST`] pairs; further places are left out.
    pub(crate) fn write(path: &Path, pairs: &[[Target; 2]], times: Times) -> io::Result<TargetFile> {
        let mut places: Vec<&Target> = Vec::new();
        let mut numbers = Vec::new();
        for pair in pairs.iter().take(MOST) {
            let number = pair.each_ref().map(|one| match places.iter().position(|known| *known == one) {
                Some(known) => known,
                None => {
                    places.push(one);
                    places.len() - 1
                }
            });
            // A pair without room for its places fits nowhere.
            if numbers.len() < MOST {
                numbers.push(number);
            }
        }
        let mut bytes = vec![0; SIZE];
        let mut head = Words { bytes: &mut bytes, at: 0 };
        head.bytes(&MAGIC);
        head.half(places.len().min(MOST));
        head.half(numbers.len());
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from)?;
        for time in [times.first, times.longest, times.place, now + times.all] {
            head.word(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        for (position, place) in places.iter().take(MOST).enumerate() {
            place.write(&mut Words { bytes: &mut bytes, at: HEAD + position * PLACE });
        }
        for (position, [first, second]) in numbers.iter().enumerate() {
            let mut member = Words { bytes: &mut bytes, at: MEMBERS + position * MEMBER };
            member.half(*first);
            member.half(*second);
            let wakes = pairs.get(position).is_some_and(|[first, _]| *first == Target::Wakes);
            member.word(if wakes { position as u64 } else { 0 });
        }
        std::fs::write(path, bytes)?;
        Ok(TargetFile { path: path.to_path_buf(), pairs: numbers.len() })
    }

    /// The value of [`VARIABLE`].
    pub(crate) fn variable(&self) -> OsString {
        self.path.clone().into_os_string()
    }

    /// How often all partners of a pair have stood at their places.
    pub(crate) fn meetings(&self) -> u64 {
        self.counts().iter().map(|counts| counts.met).sum()
    }

    /// The counts so far, by pair; zeros if the file can no longer be read.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        let count = |position: usize, number: usize| {
            let at = MEMBERS + position * MEMBER + COUNTS + number * 8;
            bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let counts = |position| Counts {
            passed: count(position, 0),
            alone: count(position, 1),
            tries: count(position, 2),
            time: Duration::from_nanos(count(position, 3)),
            refused: count(position, 4),
            met: count(position, 5),
        };
        (0..self.pairs).map(counts).collect()
    }
}

impl Target {
    fn write(&self, out: &mut Words<'_>) {
        let empty = String::new();
        let (kind, line, range, names, caller) = match self {
            Target::Native { module, begin, end } => (1, 0, [*begin, *end], [module, &empty], None),
            Target::Python { file, line, function, caller } => (2, *line, [0, 0], [file, function], caller.as_ref()),
            Target::Gil => (3, 0, [0, 0], [&empty, &empty], None),
            Target::Anywhere => (4, 0, [0, 0], [&empty, &empty], None),
            Target::ThreadEnd => (5, 0, [0, 0], [&empty, &empty], None),
            Target::Waits | Target::Wakes => (6, 0, [0, 0], [&empty, &empty], None),
        };
        out.half(kind);
        out.half(line as usize);
        range.into_iter().for_each(|word| out.word(word));
        names.into_iter().for_each(|name| out.name(name));
        out.word(caller.map_or(0, |(_, line)| u64::from(*line)));
        out.name(caller.map_or("", |(file, _)| file));
    }
}

/// Bytes that are filled.
struct Words<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl Words<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.at..self.at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }

    fn half(&mut self, number: usize) {
        self.bytes(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }

    fn word(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// A text that ends by a zero; a longer one ends early, which the recorder knows.
    fn name(&mut self, name: &str) {
        let mut bytes = [0; NAME];
        bytes.iter_mut().zip(name.bytes().take(NAME - 1)).for_each(|(to, byte)| *to = byte);
        self.bytes(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        first: Duration::from_millis(100),
        longest: Duration::from_secs(2),
        place: Duration::from_secs(10),
        all: Duration::from_secs(60),
    };

    #[test]
    fn equal_places_are_written_once_and_counts_are_read_by_pair() {
        let folder = tempfile::tempdir().expect("a folder");
        let native = |begin| Target::Native { module: "app".into(), begin, end: begin + 1 };
        let pairs = [[native(16), native(32)], [native(32), Target::Gil]];
        let file = TargetFile::write(&folder.path().join("targets"), &pairs, TIMES).expect("written");
        let mut bytes = std::fs::read(&file.path).expect("a file");
        assert_eq!((bytes.len(), &bytes[16..24]), (SIZE, [3, 0, 0, 0, 2, 0, 0, 0].as_slice()));
        assert_eq!(bytes[MEMBERS + MEMBER..][..8], [1, 0, 0, 0, 2, 0, 0, 0]);
        bytes[MEMBERS + MEMBER + COUNTS + 16] = 7;
        std::fs::write(&file.path, bytes).expect("written");
        assert_eq!(file.counts(), [Counts::default(), Counts { tries: 7, ..Counts::default() }]);
        std::fs::write(&file.path, "short").expect("written");
        assert_eq!(file.counts(), [Counts::default(); 2]);
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let native = |begin| Target::Native { module: "m".repeat(500), begin, end: begin + 1 };
        let pairs: Vec<[Target; 2]> = (0..300).map(|at| [native(at), native(at + 1000)]).collect();
        let file = TargetFile::write(&folder.path().join("targets"), &pairs, TIMES).expect("written");
        assert_eq!(file.counts().len(), MOST);
    }
}
