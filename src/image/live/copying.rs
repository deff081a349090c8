//! The code that runs in the copier, the process that reads a target's memory (see `copier`), and the parts that both
//! share.
//!
//! In: a [`Board`] in shared memory with the pieces to copy, and a byte on a socket to begin. Out: the pages, a mark
//! for each, and a byte when all is done. It makes system calls only: no allocation, no lock, no panic. It is a copy of
//! a process whose other threads may have held any lock at that time.
//!
//! Pages in memory are copied first, then those in swap space. Pages that are in neither are copied on request only.
//! They may come from a file system or a process that does not answer, and then the copier waits, maybe for ever.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::{read, write};

use crate::limits::live::MOST_FAULTS;
use crate::sys::{PIECES_PER_CALL, SharedArea, Span, page_size};

/// The unit of copies: the smallest page size that exists. On 64-bit Arm the kernel's pages may have 16 or 64 KiB.
pub(super) const PAGE: usize = 4096;
/// Most bytes of one call: between two calls the copier checks whether the copies are still wanted.
const BYTES_PER_CALL: usize = 1 << 20;
/// The most pages that one query to the kernel covers, about whether they are in memory.
const PAGES_PER_QUESTION: usize = 512;
/// Words of a piece on the board.
const WORDS: usize = 6;
/// The word that says that the copies are not wanted any more.
const CANCELLED: usize = 0;
/// The word with the page that a text begins at.
const TEXT: usize = 8;
/// Bytes before the first piece.
const HEAD: usize = 64;

/// How a page fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// Nothing was tried yet, or its turn did not come.
    Waiting,
    /// It was copied.
    Copied,
    /// It cannot be read.
    Faulted,
    /// It is not in memory, and was not requested.
    Absent,
    /// It is in swap space: its turn is behind those in memory.
    Swapped,
}

impl Page {
    /// From a byte of the board.
    pub(super) fn from_byte(byte: u8) -> Page {
        match byte {
            1 => Page::Copied,
            2 => Page::Faulted,
            3 => Page::Absent,
            4 => Page::Swapped,
            _ => Page::Waiting,
        }
    }
}

/// A piece of some task's memory that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// A task that lives.
    pub(super) tid: i32,
    /// Which of the memory files that the copier was started with is this task's.
    pub(super) file: usize,
    /// Whole pages.
    pub(super) span: Span,
    /// Also those that are not in memory.
    pub(super) touch: bool,
    /// Where on the board its pages begin.
    pub(super) page: usize,
}

impl Piece {
    /// Its pages.
    pub(super) fn pages(&self) -> usize {
        self.span.length / PAGE
    }
}

/// Memory that both processes see: what is to be copied, a mark for each page, and the pages.
#[derive(Debug)]
pub(super) struct Board {
    area: SharedArea,
    pages: usize,
    /// The page size in which the kernel reports whether pages are in memory.
    kernel_page: u64,
}

impl Board {
    /// A board of this many pages, or of as many as the system allows.
    pub(super) fn new(pages: usize) -> std::io::Result<Board> {
        /// Less is of no use.
        const LEAST: usize = 64;
        let mut pages = pages.max(LEAST);
        let kernel_page = page_size() as u64;
        loop {
            let length = pages.checked_mul(WORDS * 8 + 1 + PAGE).and_then(|length| length.checked_add(HEAD + PAGE));
            match length.ok_or_else(|| std::io::Error::from(Errno::ENOMEM)).and_then(SharedArea::new) {
                Ok(area) => return Ok(Board { area, pages, kernel_page }),
                Err(error) if pages <= LEAST => return Err(error),
                Err(_) => pages = (pages / 2).max(LEAST),
            }
        }
    }

    /// Pages that it has room for, and as many pieces.
    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    fn word(&self, offset: usize, value: Option<u64>) -> u64 {
        let Some(word) = self.area.word(offset) else { return 0 };
        match value {
            Some(value) => {
                word.store(value, Ordering::Release);
                value
            }
            None => word.load(Ordering::Acquire),
        }
    }

    /// Write down a piece as number `index`, its pages waiting.
    pub(super) fn put(&self, index: usize, piece: &Piece) {
        let at = HEAD + index * WORDS * 8;
        let words = [
            piece.tid as u64,
            piece.file as u64,
            piece.span.start,
            (piece.span.length as u64) | u64::from(piece.touch),
            piece.page as u64,
            0,
        ];
        for (number, word) in words.into_iter().enumerate() {
            self.word(at + number * 8, Some(word));
        }
        for page in piece.page..piece.page.saturating_add(piece.pages()) {
            self.mark(page, Page::Waiting);
        }
    }

    fn piece(&self, index: usize) -> Piece {
        let at = HEAD + index * WORDS * 8;
        let word = |number: usize| self.word(at + number * 8, None);
        let length = word(3);
        Piece {
            tid: word(0) as i32,
            file: word(1) as usize,
            span: Span { start: word(2), length: (length & !1) as usize },
            touch: length & 1 == 1,
            page: word(4) as usize,
        }
    }

    fn refuse(&self, index: usize, errno: Errno) {
        self.word(HEAD + index * WORDS * 8 + 5 * 8, Some(errno as i32 as u64));
    }

    /// Why a piece could not be read at all.
    pub(super) fn refusal(&self, index: usize) -> Option<Errno> {
        match self.word(HEAD + index * WORDS * 8 + 5 * 8, None) {
            0 => None,
            number => Some(Errno::from_raw(number as i32)),
        }
    }

    /// Say that the copies are not wanted any more, or are again.
    pub(super) fn cancel(&self, cancelled: bool) {
        self.word(CANCELLED, Some(u64::from(cancelled)));
    }

    fn is_cancelled(&self) -> bool {
        self.word(CANCELLED, None) != 0
    }

    fn mark_at(&self, page: usize) -> usize {
        HEAD + self.pages * WORDS * 8 + page
    }

    fn mark(&self, page: usize, how: Page) {
        if let Some(byte) = self.area.byte(self.mark_at(page)) {
            byte.store(how as u8, Ordering::Release);
        }
    }

    /// How a page fared until now.
    pub(super) fn fared(&self, page: usize) -> Page {
        let byte = self.area.byte(self.mark_at(page)).map_or(0, |byte| byte.load(Ordering::Acquire));
        Page::from_byte(byte)
    }

    fn data_at(&self, page: usize) -> usize {
        (HEAD + self.pages * (WORDS * 8 + 1)).next_multiple_of(PAGE).saturating_add(page.saturating_mul(PAGE))
    }

    /// So many bytes from the start of a page on; `None` if they are not all on the board.
    pub(super) fn bytes(&self, page: usize, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.area.copy_to(self.data_at(page), &mut bytes).then_some(bytes)
    }

    /// Say where a text is to begin.
    pub(super) fn text_from(&self, page: usize) {
        self.word(TEXT, Some(page as u64));
    }
}

/// Pages that were copied, where they lie on the board: nobody writes there as long as one of these lives.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    board: Arc<Board>,
    /// From where on.
    offset: usize,
    length: usize,
}

impl Kept {
    /// So many pages from this one on; `None` if they are not all on the board.
    pub(super) fn new(board: &Arc<Board>, page: usize, count: usize) -> Option<Kept> {
        let fits = page.checked_add(count).is_some_and(|end| end <= board.pages);
        fits.then(|| Kept { board: Arc::clone(board), offset: board.data_at(page), length: count * PAGE })
    }

    /// Bytes in them.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Copy bytes from the offset `from`, as far as `buffer` has room. Returns their number, and `None` behind the end.
    pub(super) fn read(&self, from: usize, buffer: &mut [u8]) -> Option<usize> {
        let left = self.length.checked_sub(from).filter(|left| *left > 0)?;
        let part = buffer.get_mut(..left.min(buffer.len()))?;
        self.board.area.copy_to(self.offset + from, part).then_some(part.len())
    }

    /// Pages with these bytes.
    #[cfg(test)]
    pub(super) fn of(bytes: &[u8]) -> Kept {
        let board = Arc::new(Board::new(bytes.len().div_ceil(PAGE)).expect("a board"));
        let kept = Kept::new(&board, 0, bytes.len().div_ceil(PAGE)).expect("room");
        for (number, byte) in bytes.iter().enumerate() {
            board.area.byte(kept.offset + number).expect("room").store(*byte, Ordering::Relaxed);
        }
        kept
    }
}

/// A request over the socket: a kind and a number.
pub(super) const COPY: u8 = 1;
/// The task's map into the pages; the answer's number is its length.
pub(super) const MAPS: u8 = 2;
/// The task's detailed map.
pub(super) const DETAILED_MAPS: u8 = 3;
/// A message: the kind in the first byte, a number in the last eight.
pub(super) type Message = [u8; 16];

/// A message of this kind and number.
pub(super) fn message(kind: u8, number: u64) -> Message {
    let mut message = [0; 16];
    message[0] = kind;
    message[8..].copy_from_slice(&number.to_ne_bytes());
    message
}

/// The kind and number of a message.
pub(super) fn parts(message: &Message) -> (u8, u64) {
    let [kind, _, _, _, _, _, _, _, number @ ..] = *message;
    (kind, u64::from_ne_bytes(number))
}

/// Serve orders until the other end is closed.
pub(super) fn serve(board: &Board, socket: BorrowedFd<'_>, proc_root: &[u8], files: &[Option<OwnedFd>]) {
    let mut copying =
        Copying { board, proc_root, files, pagemap: None, batch: Batch::new(), faults: 0, left: [false; 2] };
    loop {
        let mut order: Message = [0; 16];
        match read(socket, &mut order) {
            Ok(length) if length == order.len() => {}
            Err(Errno::EINTR) => continue,
            _ => return,
        }
        let answer = match parts(&order) {
            (COPY, count) => {
                copying.copy((count as usize).min(board.pages));
                0
            }
            (MAPS, tid) => copying.text(tid as i32, b"/maps"),
            (DETAILED_MAPS, tid) => copying.text(tid as i32, b"/smaps"),
            _ => return,
        };
        if write(socket, &message(order[0], answer)).is_err() {
            return;
        }
    }
}

/// Pages to copy in one call, of one task.
struct Batch {
    tid: i32,
    file: usize,
    /// The piece whose first page this is, for errors.
    piece: usize,
    /// Spans, and the number of their first page on the board.
    runs: [(Span, usize); PIECES_PER_CALL],
    count: usize,
    bytes: usize,
}

impl Batch {
    fn new() -> Batch {
        Batch {
            tid: 0,
            file: 0,
            piece: 0,
            runs: [(Span { start: 0, length: 0 }, 0); PIECES_PER_CALL],
            count: 0,
            bytes: 0,
        }
    }
}

struct Copying<'a> {
    board: &'a Board,
    proc_root: &'a [u8],
    files: &'a [Option<OwnedFd>],
    /// Whether pages are in memory, for one task; `None` inside where the kernel does not report it.
    pagemap: Option<(i32, Option<OwnedFd>)>,
    batch: Batch,
    faults: u32,
    /// Whether any page is left for the second and for the third round.
    left: [bool; 2],
}

impl Copying<'_> {
    /// Copy what stands on the board, pages in memory first.
    fn copy(&mut self, pieces: usize) {
        self.faults = 0;
        // The file belongs to the program that ran when it was opened. After the release, when a target is read piece
        // by piece, only the order of the pages depends on it.
        if !(0..pieces).any(|index| self.board.piece(index).touch) {
            self.pagemap = None;
        }
        self.batch.count = 0;
        self.batch.bytes = 0;
        self.left = [false; 2];
        for index in 0..pieces {
            self.sort(index);
        }
        self.flush();
        for (how, any) in [Page::Swapped, Page::Absent].into_iter().zip(self.left) {
            for index in (0..pieces).filter(|_| any) {
                let piece = self.board.piece(index);
                if how == Page::Absent && !piece.touch {
                    continue;
                }
                for number in 0..piece.pages() {
                    if self.board.fared(piece.page + number) == how {
                        self.add(index, &piece, number);
                    }
                }
            }
            self.flush();
        }
    }

    /// Sort the pages of a piece into those to copy now and those to copy later or never.
    fn sort(&mut self, index: usize) {
        const IN_MEMORY: u64 = 1 << 63;
        const IN_SWAP_SPACE: u64 = 1 << 62;
        let piece = self.board.piece(index);
        let mut words = [0; PAGES_PER_QUESTION * 8];
        let mut first = 0;
        while first < piece.pages() && !self.board.is_cancelled() {
            let count = (piece.pages() - first).min(PAGES_PER_QUESTION);
            // For larger kernel pages, one entry covers several of ours.
            let entry = |number: usize| piece.span.start.wrapping_add((number * PAGE) as u64) / self.board.kernel_page;
            let first_entry = entry(first);
            let place = |number: usize| entry(first + number).saturating_sub(first_entry) as usize * 8;
            let known = match words.get_mut(..place(count - 1) + 8) {
                Some(words) => self.ask(piece.tid, first_entry, words),
                None => None,
            };
            for number in 0..count {
                let at = place(number);
                let word = words.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                let word = word.map_or(0, u64::from_ne_bytes);
                match known {
                    // Where the kernel does not report it, only the clock protects.
                    None => self.add(index, &piece, first + number),
                    Some(_) if word & IN_MEMORY != 0 => self.add(index, &piece, first + number),
                    Some(_) if word & IN_SWAP_SPACE != 0 => {
                        self.left[0] = true;
                        self.board.mark(piece.page + first + number, Page::Swapped);
                    }
                    Some(_) => {
                        self.left[1] |= piece.touch;
                        self.board.mark(piece.page + first + number, Page::Absent);
                    }
                }
            }
            first += count;
        }
    }

    /// Read the entries of pagemap from a page on; `None` where the kernel does not give them.
    fn ask(&mut self, tid: i32, page: u64, words: &mut [u8]) -> Option<()> {
        if self.pagemap.as_ref().is_none_or(|(known, _)| *known != tid) {
            self.pagemap = Some((tid, self.open(tid, b"/pagemap").ok()));
        }
        let (_, file) = self.pagemap.as_ref()?;
        let read = pread(file.as_ref()?, words, i64::try_from(page.checked_mul(8)?).ok()?);
        match read {
            Ok(length) => {
                // Beyond the end of the address space, or of a process that is gone: nothing is there.
                words.iter_mut().skip(length).for_each(|byte| *byte = 0);
                Some(())
            }
            Err(_) => None,
        }
    }

    /// Add a page of a piece to the batch.
    fn add(&mut self, index: usize, piece: &Piece, number: usize) {
        let other = (self.batch.tid, self.batch.file) != (piece.tid, piece.file);
        if self.batch.count > 0 && (other || self.batch.bytes + PAGE > BYTES_PER_CALL) {
            self.flush();
        }
        let start = piece.span.start.wrapping_add((number * PAGE) as u64);
        let page = piece.page + number;
        let batch = &mut self.batch;
        let last = batch.count.checked_sub(1).and_then(|last| batch.runs.get_mut(last));
        match last {
            Some((span, first))
                if span.start.wrapping_add(span.length as u64) == start && *first + span.length / PAGE == page =>
            {
                span.length += PAGE;
            }
            _ => {
                if batch.count == PIECES_PER_CALL {
                    self.flush();
                }
                let batch = &mut self.batch;
                if batch.count == 0 {
                    (batch.tid, batch.file, batch.piece) = (piece.tid, piece.file, index);
                }
                if let Some(run) = batch.runs.get_mut(batch.count) {
                    *run = (Span { start, length: PAGE }, page);
                    batch.count += 1;
                }
            }
        }
        self.batch.bytes += PAGE;
    }

    /// Copy the batch; behind a page that faults it goes on.
    fn flush(&mut self) {
        let Batch { tid, file, piece, mut runs, count, .. } = self.batch;
        self.batch.count = 0;
        self.batch.bytes = 0;
        let mut first = 0;
        while first < count && self.faults < MOST_FAULTS && !self.board.is_cancelled() {
            let Some(left) = runs.get_mut(first..count) else { return };
            let (mut read, failed) = match self.read(tid, file, left) {
                Ok(read) => (read / PAGE, None),
                Err(errno) => (0, Some(errno)),
            };
            if let Some(errno) = failed.filter(|errno| *errno != Errno::EFAULT) {
                self.board.refuse(piece, errno);
                return;
            }
            for (span, page) in left.iter_mut() {
                let pages = span.length / PAGE;
                let copied = read.min(pages);
                (*page..*page + copied).for_each(|page| self.board.mark(page, Page::Copied));
                read -= copied;
                if copied < pages {
                    self.board.mark(*page + copied, Page::Faulted);
                    self.faults += 1;
                    let done = copied + 1;
                    *span = Span {
                        start: span.start.wrapping_add((done * PAGE) as u64),
                        length: span.length.saturating_sub(done * PAGE),
                    };
                    *page += done;
                    if span.length == 0 {
                        first += 1;
                    }
                    break;
                }
                first += 1;
            }
        }
    }

    /// Copy runs of pages, by the call for it or from the file that this process was given.
    fn read(&self, tid: i32, file: usize, runs: &[(Span, usize)]) -> Result<usize, Errno> {
        let mut pieces = [(Span { start: 0, length: 0 }, 0); PIECES_PER_CALL];
        let count = runs.len().min(PIECES_PER_CALL);
        for (piece, (span, page)) in pieces.iter_mut().zip(runs) {
            *piece = (*span, self.board.data_at(*page));
        }
        let pieces = pieces.get(..count).ok_or(Errno::EINVAL)?;
        let Some(Some(file)) = self.files.get(file) else { return self.board.area.read_remote(tid, pieces) };
        let mut done = 0;
        for (span, offset) in pieces {
            let mut got = 0;
            while got < span.length {
                let from = span.start.wrapping_add(got as u64);
                let raw = std::os::fd::AsRawFd::as_raw_fd(&file.as_fd());
                match self.board.area.read_file(raw, from, offset + got, span.length - got) {
                    Ok(count) if count > 0 => got += count,
                    _ => return Ok(done + got),
                }
            }
            done += got;
        }
        Ok(done)
    }

    /// Copy a text of /proc into the pages; its length, as far as there was room, 0 if it cannot be read.
    fn text(&self, tid: i32, name: &[u8]) -> u64 {
        let Ok(file) = self.open(tid, name) else { return 0 };
        let raw = std::os::fd::AsRawFd::as_raw_fd(&file.as_fd());
        let first = self.board.word(TEXT, None) as usize;
        let (start, room) = (self.board.data_at(first), self.board.pages.saturating_sub(first) * PAGE);
        let mut length = 0;
        while length < room && !self.board.is_cancelled() {
            match self.board.area.read_file(raw, length as u64, start + length, room - length) {
                Ok(count) if count > 0 => length += count,
                _ => break,
            }
        }
        length as u64
    }

    /// Open a file of a task in /proc.
    fn open(&self, tid: i32, name: &[u8]) -> Result<OwnedFd, Errno> {
        let mut digits = [0; 12];
        let mut first = digits.len();
        let mut rest = u32::try_from(tid).map_err(|_| Errno::ESRCH)?;
        while let Some(digit) = first.checked_sub(1).and_then(|last| digits.get_mut(last)) {
            *digit = b'0' + (rest % 10) as u8;
            first -= 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let mut path = [0; 1024];
        let parts = [self.proc_root, b"/", digits.get(first..).unwrap_or_default(), name, b"\0"];
        let mut length = 0;
        for part in parts {
            path.get_mut(length..length + part.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(part);
            length += part.len();
        }
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::EINVAL)?;
        open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
    }
}
