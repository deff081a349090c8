//! The copier: a process of ours that reads the memory of targets in our place, and that can be left behind.
//!
//! In: pieces of memory and the instant to be done by. Out: the pages that were copied by then. It traces nothing and stops
//! nothing: a page that is served by the target itself (userfaultfd) or by a file system that does not answer makes the copier
//! wait, maybe for ever and beyond SIGKILL (seen with FUSE: 626 s), but neither the tracer, whose exit sets the target free, nor
//! the end of lockscope. A thread would not do: a process has not ended before its last thread has.
//!
//! For thousands of threads a second copier copies half, and reads ahead (`ahead`) while lockscope does something else.
//!
//! The copier's own work is in `copying`. Where it may not read by itself, lockscope gives it the memory files that it
//! opened. Yama's scope 1 lets only ancestors read, which lockscope's child is not.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::unistd::{Pid, read, write};

use super::copying::{self, Board, Kept, Page, Piece};
use super::memory::Ranges;
use super::proc_fs::{self, ProcFs};
use crate::sys::{self, Span};

/// Processes that were left and had not ended then.
static LEFT: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Memory that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// A task of the process that lives.
    pub(super) tid: i32,
    /// The number of the process among those that the copier was started for.
    pub(super) process: usize,
    /// Whole pages.
    pub(super) span: Span,
    /// Also pages that are not in memory; that may take for ever.
    pub(super) touch: bool,
}

/// The result of an order, up to its deadline.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pieces: Vec<(usize, Piece)>,
    /// The first of the pages on the board that it was given.
    first: usize,
    /// How each of them fared.
    fared: Vec<Page>,
    /// Bytes that the board had no room for.
    pub(super) unfit: u64,
    /// Why pieces could not be read at all.
    pub(super) refusal: Option<Errno>,
    /// Whether it was all done.
    pub(super) is_complete: bool,
    /// The copier took the order.
    is_begun: bool,
    /// The number of pieces whose outcome the copier has reported.
    told: usize,
    /// The part that the second copier got.
    by_second: Option<Box<Copies>>,
}

impl Copies {
    /// Bytes of a process whose turn did not come.
    pub(super) fn not_reached(&self, process: usize) -> u64 {
        let by_second = self.by_second.as_ref().map_or(0, |copies| copies.not_reached(process));
        self.own_not_reached(process) + by_second
    }

    fn own_not_reached(&self, process: usize) -> u64 {
        let pages = self.pieces.iter().filter(|(of, _)| *of == process);
        let waiting = pages
            .flat_map(|(_, piece)| piece.page..piece.page + piece.pages())
            .filter(|&page| matches!(self.fared(page), None | Some(Page::Waiting | Page::Swapped)));
        (waiting.count() * copying::PAGE) as u64
    }

    fn fared(&self, page: usize) -> Option<Page> {
        self.fared.get(page.checked_sub(self.first)?).copied()
    }
}

/// The memory that a second copier reads ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The number of the process.
    pub(super) process: usize,
    pub(super) copies: Copies,
    pub(super) began: Instant,
}

/// A copier that serves.
#[derive(Debug)]
pub(super) struct Copier {
    proc_fs: ProcFs,
    board: Arc<Board>,
    /// Pages at its beginning that a caller may have kept.
    used: usize,
    socket: OwnedFd,
    child: i32,
    /// It reads by memory files, and so only the processes that it was started for.
    has_files: bool,
    /// An order was not answered yet.
    is_busy: bool,
    /// It was ended from outside.
    is_dead: bool,
    /// Another one, for half of the work of many threads and for reading ahead.
    second: Option<Box<Copier>>,
    /// The memory that the second one reads ahead.
    pub(super) ahead: Option<Ahead>,
}

impl Copier {
    /// A copier for processes, each named by a living task, with room for this many pages, or as many as the system
    /// allows. It is `spare`, where that will do, or else a new one.
    pub(super) fn start(proc_fs: &ProcFs, pages: usize, tasks: &[i32], spare: Option<Copier>) -> io::Result<Copier> {
        locked_left(|left| left.retain(|&child| !sys::collect(child)));
        let does = |spare: &Copier| spare.serves() && !spare.has_files && spare.room() >= pages;
        let asked = |mut copier: Copier| {
            copier.stop_ahead();
            let refusals = copier.refusals(tasks);
            (copier, refusals)
        };
        let spare = spare.filter(does).map(asked).filter(|(spare, _)| spare.serves());
        let (copier, may_not) = match spare {
            Some(spare) => spare,
            None => asked(Copier::spawn(proc_fs, pages, &[])?),
        };
        if !may_not.contains(&true) {
            return Ok(copier);
        }
        let open = |(&tid, &may_not): (&i32, &bool)| {
            File::open(proc_fs.process(tid).join("mem")).ok().filter(|_| may_not).map(OwnedFd::from)
        };
        let files: Vec<Option<OwnedFd>> = tasks.iter().zip(&may_not).map(open).collect();
        Copier::spawn(proc_fs, pages, &files)
    }

    /// Whether it may not read processes by itself.
    fn refusals(&mut self, tasks: &[i32]) -> Vec<bool> {
        /// For a process of our own to start and to answer on a busy machine.
        const PATIENCE: Duration = Duration::from_secs(5);
        // No process has anything at address 0: a fault shows that the copier may read the process.
        let question =
            |(process, &tid)| Wanted { tid, process, span: Span { start: 0, length: copying::PAGE }, touch: true };
        let mut may_not = Vec::new();
        for wanted in tasks.iter().enumerate().map(question) {
            let copies = self.copy(&[wanted], Instant::now() + PATIENCE);
            may_not.push(copies.refusal.is_some_and(|errno| errno != Errno::ESRCH));
        }
        may_not
    }

    /// Where the next order's pages begin: where all are free again, or behind those that are kept.
    fn free(&self) -> usize {
        if Arc::strong_count(&self.board) == 1 { 0 } else { self.used }
    }

    /// Pages that the next order can have.
    pub(super) fn room(&self) -> usize {
        self.board.pages().saturating_sub(self.free())
    }

    /// Whether it takes orders.
    fn serves(&self) -> bool {
        !self.is_dead && !self.is_busy
    }

    /// Start one that reads a process by the memory file at its number, where there is one.
    pub(super) fn spawn(proc_fs: &ProcFs, pages: usize, files: &[Option<OwnedFd>]) -> io::Result<Copier> {
        let board = Arc::new(Board::new(pages)?);
        let (socket, other) = UnixStream::pair()?;
        let root = proc_fs.root().as_os_str().as_bytes();
        let mut kept: Vec<i32> = files.iter().flatten().map(|file| file.as_raw_fd()).collect();
        kept.push(other.as_raw_fd());
        kept.sort_unstable();
        let child = sys::start_apart(&kept, || {
            // Threads stand still until it is done.
            sys::set_urgent(true);
            copying::serve(&board, other.as_fd(), root, files)
        })?;
        let has_files = !files.is_empty();
        let (socket, proc_fs) = (socket.into(), proc_fs.clone());
        let (is_busy, is_dead, second, ahead) = (false, false, None, None);
        Ok(Copier { proc_fs, board, used: 0, socket, child, has_files, is_busy, is_dead, second, ahead })
    }

    /// The same with a second one as large.
    pub(super) fn with_second(mut self) -> Copier {
        self.second = Copier::spawn(&self.proc_fs, self.board.pages(), &[]).ok().map(Box::new);
        self
    }

    /// The second one, if it takes orders.
    pub(super) fn free_second(&mut self) -> Option<&mut Copier> {
        let second = self.second.as_deref_mut()?;
        // It may have finished its work after the deadline.
        (self.ahead.is_some() || second.wait(Instant::now())).then_some(second).filter(|second| second.serves())
    }

    /// The second one with what it reads ahead.
    pub(super) fn second_and_ahead(&mut self) -> Option<(&mut Copier, &mut Ahead)> {
        Some((self.second.as_deref_mut()?, self.ahead.as_mut()?))
    }

    /// Do without a second one.
    pub(super) fn leave_second(&mut self) {
        (self.second, self.ahead) = (None, None);
    }

    /// Copy the wanted pieces, in that order, until `deadline`. Pieces that are copied later do not count.
    pub(super) fn copy(&mut self, wanted: &[Wanted], deadline: Instant) -> Copies {
        /// To have two wake up for less takes longer.
        const WORTH_TWO: usize = 1024;
        let is_worth = wanted.len() >= WORTH_TWO && self.free_second().is_some();
        let (own, others) = wanted.split_at(if is_worth { wanted.len() / 2 } else { wanted.len() });
        let by_second = self.free_second().filter(|_| is_worth).map(|second| second.begin(others));
        let mut copies = self.begin(own);
        self.finish(&mut copies, deadline);
        if let (Some(mut by_second), Some(second)) = (by_second, &mut self.second) {
            second.finish(&mut by_second, deadline);
            copies.unfit += by_second.unfit;
            copies.refusal = copies.refusal.or(by_second.refusal);
            copies.is_complete &= by_second.is_complete;
            copies.by_second = Some(Box::new(by_second));
        }
        copies
    }

    /// Begin to copy what is wanted. No other order is taken until it is finished.
    pub(super) fn begin(&mut self, wanted: &[Wanted]) -> Copies {
        let mut copies = Copies::default();
        if self.is_busy {
            copies.unfit = wanted.iter().map(|one| one.span.length as u64).sum();
            return copies;
        }
        copies.first = self.free();
        let mut page = copies.first;
        for one in wanted {
            let room = self.board.pages().saturating_sub(page) * copying::PAGE;
            let length = one.span.length.min(room) / copying::PAGE * copying::PAGE;
            copies.unfit += (one.span.length - length) as u64;
            if length == 0 {
                continue;
            }
            let span = Span { start: one.span.start, length };
            let piece = Piece { tid: one.tid, file: one.process, span, touch: one.touch, page };
            self.board.put(copies.pieces.len(), &piece);
            copies.pieces.push((one.process, piece));
            page += piece.pages();
        }
        (self.used, copies.is_begun) = (page, true);
        self.give(copying::COPY, copies.pieces.len() as u64);
        copies
    }

    /// Wait until the order is done, or for `deadline`. Pieces that are copied later do not count.
    fn finish(&mut self, copies: &mut Copies, deadline: Instant) {
        if !copies.is_begun {
            return;
        }
        self.wait_for(copies, deadline);
        // Whatever it copies from now on is not of the same instant.
        self.board.cancel(true);
        copies.fared = (copies.first..self.used).map(|page| self.board.fared(page)).collect();
        copies.refusal = (0..copies.pieces.len()).find_map(|index| self.board.refusal(index));
    }

    /// The pages of the order whose outcome is known by now and was not returned before.
    pub(super) fn so_far(&self, copies: &mut Copies) -> Ranges {
        let mut ranges = Ranges::new();
        let waits = |page: usize| matches!(self.board.fared(page), Page::Waiting | Page::Swapped);
        while let Some((_, piece)) = copies.pieces.get(copies.told) {
            if !copies.is_complete && (piece.page..piece.page + piece.pages()).any(waits) {
                break;
            }
            self.add_copied(piece, |page| self.board.fared(page), &mut ranges);
            copies.told += 1;
        }
        ranges
    }

    /// Wait for the end of the order.
    pub(super) fn wait_for(&mut self, copies: &mut Copies, deadline: Instant) {
        copies.is_complete = self.answer(deadline).is_some();
    }

    /// Say that what was begun is not wanted any more.
    pub(super) fn cancel(&self) {
        self.board.cancel(true);
    }

    /// Wait longer for an order that was not done in time: whether it is done now.
    pub(super) fn wait(&mut self, deadline: Instant) -> bool {
        !self.is_busy || self.answer(deadline).is_some()
    }

    /// The pages of a process that were copied, joined to ranges.
    pub(super) fn ranges(&self, copies: &Copies, process: usize) -> Ranges {
        let mut ranges = Ranges::new();
        for (_, piece) in copies.pieces.iter().filter(|(of, _)| *of == process) {
            self.add_copied(piece, |page| copies.fared(page).unwrap_or(Page::Waiting), &mut ranges);
        }
        if let (Some(second), Some(by_second)) = (&self.second, &copies.by_second) {
            ranges.extend(second.ranges(by_second, process));
        }
        ranges
    }

    /// Add the runs of pages of a piece that were copied.
    fn add_copied(&self, piece: &Piece, fared: impl Fn(usize) -> Page, ranges: &mut Ranges) {
        let mut first = 0;
        while first < piece.pages() {
            let count = (first..piece.pages()).take_while(|&number| fared(piece.page + number) == Page::Copied).count();
            if count > 0
                && let Some(pages) = Kept::new(&self.board, piece.page + first, count)
            {
                ranges.insert(piece.span.start + (first * copying::PAGE) as u64, pages);
            }
            first += count + 1;
        }
    }

    /// The map of a process, by a task of it that lives; `None` if it did not come in time.
    pub(super) fn maps(&mut self, tid: i32, deadline: Instant) -> Option<Vec<u8>> {
        self.text(copying::MAPS, tid, deadline)
    }

    /// Its detailed map (smaps), as far as there is room for it.
    pub(super) fn detailed_maps(&mut self, tid: i32, deadline: Instant) -> Option<Vec<u8>> {
        self.text(copying::DETAILED_MAPS, tid, deadline)
    }

    fn text(&mut self, kind: u8, tid: i32, deadline: Instant) -> Option<Vec<u8>> {
        let first = self.free();
        self.board.text_from(first);
        let length = self.order(kind, u64::try_from(tid).ok()?, deadline)?;
        self.board.bytes(first, usize::try_from(length).ok().filter(|&length| length > 0)?)
    }

    /// Give an order and wait for its answer.
    fn order(&mut self, kind: u8, number: u64, deadline: Instant) -> Option<u64> {
        if self.is_busy {
            return None;
        }
        self.give(kind, number);
        self.answer(deadline)
    }

    fn give(&mut self, kind: u8, number: u64) {
        self.board.cancel(false);
        self.is_busy = true;
        self.is_dead |= write(&self.socket, &copying::message(kind, number)).is_err();
    }

    fn answer(&mut self, deadline: Instant) -> Option<u64> {
        if self.is_dead {
            return None;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut files = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut files, Some(TimeSpec::from_duration(left)), None) {
                Ok(0) => return None,
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
        let mut answer = [0; 16];
        match read(&self.socket, &mut answer) {
            Ok(length) if length == answer.len() => {
                self.is_busy = false;
                Some(copying::parts(&answer).1)
            }
            _ => {
                self.is_dead = true;
                None
            }
        }
    }

    /// Its process.
    #[cfg(test)]
    pub(super) fn id(&self) -> i32 {
        self.child
    }

    /// Whether it has ended, which it does not by itself.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// Whether it waits for something, rather than for its turn on a busy machine.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_busy && proc_fs::stat(&self.proc_fs.process(self.child)).is_none_or(|stat| stat.state != 'R')
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        // One that waits for a page takes the signal now, or when the page comes, or never; it is not waited for.
        let _ = kill(Pid::from_raw(self.child), Signal::SIGKILL);
        collect_later(self.child);
    }
}

/// A process of [`sys::start_apart`] that was killed and is not waited for: it is collected once it has ended and another one starts.
pub(super) fn collect_later(child: i32) {
    locked_left(|left| left.push(child));
}

fn locked_left(work: impl FnOnce(&mut Vec<i32>)) {
    work(&mut LEFT.lock().unwrap_or_else(PoisonError::into_inner));
}
