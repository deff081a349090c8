//! Pending messages of MPICH, by its `MPIR_Request`.
//!
//! In: addresses where one may lie. Out: [`Request`], if it is one. A receive has source, tag and communicator. They
//! are in its own words where MPICH keeps them there (5.0). In 4.0 they are in UCX's request behind it, which leads
//! back to it and has both in its tag. Neither has the destination and tag of a send.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use crate::image::{Addr, Memory, MemoryExt};

/// MPI_ANY_SOURCE (src/include/mpi.h.in, 3.0 to 5.0).
pub(super) const ANY_SOURCE: i32 = -2;
/// MPI_ANY_TAG.
const ANY_TAG: i32 = -1;

/// The bits of a handle (src/include/mpir_objects.h, 1.0 to 5.0: HANDLE_GET_MPI_KIND, HANDLE_GET_KIND).
pub(super) mod handle {
    pub(in crate::waits::mpi) const COMMUNICATOR: u32 = 0x1;
    pub(in crate::waits::mpi) const GROUP: u32 = 0x2;
    pub(in crate::waits::mpi) const REQUEST: u32 = 0xb;

    /// Whether it is a handle of this kind.
    pub(in crate::waits::mpi) fn is(handle: u32, kind: u32) -> bool {
        handle >> 30 != 0 && (handle >> 26) & 0xf == kind
    }
}

/// Offsets of fields of `MPIR_Request` (src/include/mpir_request.h). The counter of remaining work is at the target of
/// the pointer in front of it. The communicator, with the status behind it, is the next word since 4.1; in 4.0 there is
/// one in between.
pub(super) mod request {
    /// How many refer to it: none while it is free.
    pub(in crate::waits::mpi) const REFERENCES: u64 = 4;
    pub(super) const KIND: u64 = 8;
    pub(super) const COUNTER_POINTER: u64 = 16;
    pub(in crate::waits::mpi) const COUNTER: u64 = 24;
    pub(in crate::waits::mpi) const COMMUNICATOR: [u64; 2] = [32, 40];
    /// From the communicator on, behind the two words of `count`.
    pub(super) const SOURCE: u64 = 16;
    pub(super) const TAG: u64 = 20;
    /// MPIR_REQUEST_KIND__SEND, MPIR_REQUEST_KIND__RECV.
    pub(super) const SEND: u32 = 1;
    pub(super) const RECEIVE: u32 = 2;
    /// More parts than one has.
    pub(super) const PARTS: u32 = 1 << 16;
    /// Behind the status one of the next words is a pointer of the transport's.
    pub(super) const TRANSPORT: std::ops::Range<u64> = 8..34;
}

/// Where a receive lies in `ucp_request_t`, which ends a little behind the address that MPICH has of it (UCX, src/ucp/core/ucp_request.h), and
/// what is in its tag: 16 bits of context, 16 of source, the message's own (MPICH, src/mpid/ch4/netmod/ucx/ucx_impl.h).
mod ucx {
    /// Words in front of the address among which the receive is.
    pub(super) const WORDS: u64 = 40;
    /// Bits that are compared, behind those of the context and the source: all of a tag, or none where any is taken. Bits for errors never are.
    pub(super) const TAG: u64 = 0x9fff_ffff;
    pub(super) const ANY_TAG: u64 = 0x8000_0000;
    pub(super) const MESSAGE: u64 = 0x1fff_ffff;
}

/// A message that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) at: Addr,
    pub(super) handle: u32,
    pub(super) receives: bool,
    pub(super) communicator: Communication,
    /// Its rank there, or [`ANY_SOURCE`].
    pub(super) source: Option<i32>,
    pub(super) tag: Option<i32>,
}

/// Which communicator a message is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Communication {
    /// By its object, which has this handle.
    Object(Addr, u32),
    /// By a number that is the same on all its ranks.
    Context(u32),
    /// Nothing says it.
    Unsaid,
}

impl Request {
    /// The pending one at `at`, if there is one.
    pub(super) fn at(memory: &dyn Memory, at: Addr) -> Option<Request> {
        let word = |offset: u64| memory.u32(at + offset).ok();
        let handle = word(0).filter(|own| handle::is(*own, handle::REQUEST))?;
        let counter = Addr(memory.u64(at + request::COUNTER_POINTER).ok()?);
        let receives = match word(request::KIND)? {
            request::SEND => false,
            request::RECEIVE => true,
            // A persistent request that was started counts by the request of its message.
            _ => {
                let message = counter.0.checked_sub(request::COUNTER).map(Addr).filter(|message| *message != at)?;
                let is_message = matches!(memory.u32(message + request::KIND), Ok(request::SEND | request::RECEIVE));
                let message = if is_message { Request::at(memory, message) } else { None };
                return message.map(|one| Request { handle, ..one });
            }
        };
        Some(counter).filter(|counter| *counter == at + request::COUNTER)?;
        word(request::COUNTER).filter(|left| (1..request::PARTS).contains(left))?;
        let communicator = |offset: &u64| {
            let object = memory.u64(at + *offset).ok().map(Addr)?;
            let own = memory.u32(object).ok().filter(|own| handle::is(*own, handle::COMMUNICATOR))?;
            Some((*offset, Communication::Object(object, own)))
        };
        let pending = |communicator, source, tag| Some(Request { at, handle, receives, communicator, source, tag });
        if let Some((offset, communicator)) = request::COMMUNICATOR.iter().find_map(communicator) {
            let field = |behind: u64| memory.i32(at + offset + behind).ok().filter(|_| receives);
            let source = field(request::SOURCE).filter(|source| *source >= 0 || *source == ANY_SOURCE);
            let tag = field(request::TAG).filter(|tag| *tag >= 0 || *tag == ANY_TAG);
            return pending(communicator, source, tag);
        }
        match receives.then(|| by_ucx(memory, at)).flatten() {
            Some((context, source, tag)) => pending(Communication::Context(context), Some(source), Some(tag)),
            None => pending(Communication::Unsaid, None, None),
        }
    }
}

/// Context, source and tag of a receive that UCX has for the request at `at`.
fn by_ucx(memory: &dyn Memory, at: Addr) -> Option<(u32, i32, i32)> {
    let words = request::TRANSPORT.filter_map(|word| memory.u64(at + 8 * word).ok());
    words.filter(|word| word.is_multiple_of(8) && *word > 8 * ucx::WORDS).find_map(|end| {
        let start = Addr(end - 8 * ucx::WORDS);
        let words: Vec<u64> = (0..ucx::WORDS).map_while(|word| memory.u64(start + 8 * word).ok()).collect();
        words.contains(&at.0).then(|| words.windows(2).find_map(in_tag)).flatten()
    })
}

/// The same of a tag with the mask behind it, if these are such.
fn in_tag(pair: &[u64]) -> Option<(u32, i32, i32)> {
    let [tag, mask] = *pair else { return None };
    let source = match (mask >> 32) & 0xffff {
        0xffff => i32::try_from((tag >> 32) & 0xffff).ok()?,
        0 => ANY_SOURCE,
        _ => return None,
    };
    let own = match mask & 0xffff_ffff {
        ucx::TAG => i32::try_from(tag & ucx::MESSAGE).ok()?,
        ucx::ANY_TAG => ANY_TAG,
        _ => return None,
    };
    (mask >> 48 == 0xffff).then_some((u32::try_from(tag >> 48).ok()?, source, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::testing::Made;

    const REQUEST: u64 = 0x7f2b_7e3c_aaa0;
    const UCX: u64 = 0x558b_2e56_01d0;

    /// A receive from rank 1 with tag 40 of a communicator with context 496, as it was in MPICH 4.0.2 with UCX 1.13 (64-bit words).
    fn receives(tag: u64, mask: u64) -> Made {
        let mut made = Made::new(&[10]);
        made.zero(REQUEST, 0x110);
        made.zero(UCX - 320, 320);
        for (number, word) in [0x0000_0002_ac00_0000, 0x0000_7f2b_0000_0002, REQUEST + 24, 1].iter().enumerate() {
            made.u64(REQUEST + 8 * number as u64, *word);
        }
        made.u64(REQUEST + 176, UCX);
        for (before, word) in [(256, REQUEST), (232, 8), (96, 0x0001_0000_0000_000e), (80, tag), (72, mask)] {
            made.u64(UCX - before, word);
        }
        made
    }

    fn read(made: &Made) -> Option<Request> {
        Request::at(&made.bytes, Addr(REQUEST))
    }

    fn told(tag: u64, mask: u64) -> (Communication, Option<i32>, Option<i32>) {
        let one = read(&receives(tag, mask)).expect("a request");
        assert!(one.receives && one.handle == 0xac00_0000);
        (one.communicator, one.source, one.tag)
    }

    #[test]
    fn what_mpich_does_not_keep_ucx_has() {
        const TAG: u64 = 0x01f0_0001_0000_0028;
        let context = Communication::Context(496);
        assert_eq!(told(TAG, 0xffff_ffff_9fff_ffff), (context, Some(1), Some(40)));
        assert_eq!(told(TAG, 0xffff_0000_9fff_ffff), (context, Some(ANY_SOURCE), Some(40)));
        assert_eq!(told(TAG, 0xffff_ffff_8000_0000), (context, Some(1), Some(ANY_TAG)));
        for mask in [u64::MAX, 0, 0xffff_ffff, 0x00ff_ffff_9fff_ffff, 0xffff_00ff_9fff_ffff] {
            assert_eq!(told(TAG, mask), (Communication::Unsaid, None, None), "{mask:#x}");
        }
        let mut of_another = receives(TAG, 0xffff_ffff_9fff_ffff);
        of_another.u64(UCX - 256, REQUEST + 0x110);
        assert_eq!(read(&of_another).map(|one| one.communicator), Some(Communication::Unsaid));
    }

    #[test]
    fn a_persistent_request_is_that_of_its_message() {
        const PERSISTENT: u64 = REQUEST + 0x1000;
        let mut made = receives(0x01f0_0001_0000_0028, 0xffff_ffff_9fff_ffff);
        made.zero(PERSISTENT, 0x110);
        for (number, word) in [0x0000_0001_ac00_0001, 4, REQUEST + 24, 0].iter().enumerate() {
            made.u64(PERSISTENT + 8 * number as u64, *word);
        }
        let one = Request::at(&made.bytes, Addr(PERSISTENT)).expect("a request");
        assert_eq!((one.handle, one.at, one.source, one.tag), (0xac00_0001, Addr(REQUEST), Some(1), Some(40)));
        // Not started, or started for a message that is over.
        made.u64(PERSISTENT + 16, PERSISTENT + 24);
        assert_eq!(Request::at(&made.bytes, Addr(PERSISTENT)), None);
        made.u64(PERSISTENT + 16, REQUEST + 24);
        made.u32(REQUEST + 24, 0);
        assert_eq!(Request::at(&made.bytes, Addr(PERSISTENT)), None);
    }

    #[test]
    fn what_is_over_or_no_message_is_none() {
        let with = |offset: u64, value: u32| {
            let mut made = receives(0, 0);
            made.u32(REQUEST + offset, value);
            read(&made).is_some()
        };
        assert!(with(8, 1) && with(24, 2));
        for (offset, value) in [(0, 0x6e1d_62e0 & 0x3fff_ffff), (8, 0), (8, 8), (24, 0), (24, u32::MAX), (16, 0)] {
            assert!(!with(offset, value), "{offset}: {value:#x}");
        }
        let mut low = receives(0, 0);
        low.u64(REQUEST + 176, 8);
        assert!(read(&low).is_some_and(|one| one.communicator == Communication::Unsaid), "no room in front of it");
    }

    #[test]
    fn handles_say_what_they_are() {
        const WORLD: u32 = 0x4400_0000;
        assert!(handle::is(WORLD, handle::COMMUNICATOR) && handle::is(0x8400_0002, handle::COMMUNICATOR));
        for other in [0, 1, 0x0400_0000, 0x4c00_0101, 0xffff_ffff, 0xac00_0000] {
            assert!(!handle::is(other, handle::COMMUNICATOR), "{other:#x}");
        }
    }
}
