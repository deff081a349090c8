//! Messages of MPICH's that are not over, all of a process.
//!
//! In: a request of MPICH's. Out: [`Open`], how many messages are being sent and received, whether or not a thread waits for them. The first requests of
//! a process lie in an array of MPICH's own, and the last one that was given back is the next one that is taken: while one of the array is
//! free, there are no others (MPICH, src/include/mpir_handlemem.h). The array is found by its handles, which count up.

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

use super::mpich_requests::{Request, handle, request};
use crate::image::{Addr, Memory, MemoryExt};

/// Requests of the array (MPIR_REQUEST_PREALLOC, src/include/mpir_request.h, 3.0 to 5.0).
const PREPARED: u32 = 8;
/// The bits of the place in the array, if the handle is of one there.
const PLACE: u32 = 0x03ff_ffff;
/// The handle kind of statically allocated objects (HANDLE_KIND_DIRECT).
const DIRECT: u32 = 2;
/// Bytes from one request to the next, which differ with device and transport.
const STRIDES: std::ops::RangeInclusive<u64> = 64..=2048;
/// No object has a lower address, and no message has this many bytes.
const LEAST_ADDRESS: u64 = 1 << 40;

/// How many messages are not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) sends: u32,
    pub(super) receives: u32,
}

/// Those of the process, by the request of the array that lies at one of these addresses; `None` if there is none, or others than messages
/// are under way, or more than the array has room for.
pub(super) fn open(memory: &dyn Memory, objects: &[Addr]) -> Option<Open> {
    let (start, stride) = objects.iter().find_map(|at| array(memory, *at))?;
    let mut open = Open::default();
    let mut is_one_free = false;
    for place in 0..u64::from(PREPARED) {
        let at = start + place * stride;
        if memory.u32(at + request::REFERENCES).ok()? == 0 {
            is_one_free = true;
            continue;
        }
        match Request::at(memory, at) {
            // A message that has come, and that no call has requested yet, is such a receive without a communicator.
            Some(one) if one.receives && is_nobodys(memory, at) => {}
            Some(one) if one.receives => open.receives += 1,
            Some(_) => open.sends += 1,
            // Over, and not given back yet.
            None if memory.u32(at + request::COUNTER).ok()? == 0 => {}
            None => return None,
        }
    }
    is_one_free.then_some(open)
}

/// Whether the request at `at` has no communicator, wherever this version keeps it: behind it stands how many bytes have come.
fn is_nobodys(memory: &dyn Memory, at: Addr) -> bool {
    request::COMMUNICATOR.iter().all(|offset| memory.u64(at + *offset).is_ok_and(|word| word < LEAST_ADDRESS))
}

/// Where the array begins, and how far its requests are from each other, if one of them lies at `at`.
fn array(memory: &dyn Memory, at: Addr) -> Option<(Addr, u64)> {
    let own = memory.u32(at).ok()?;
    let place = own & PLACE;
    if own >> 30 != DIRECT || !handle::is(own, handle::REQUEST) || place >= PREPARED {
        return None;
    }
    let first = own - place;
    STRIDES.step_by(8).find_map(|stride| {
        let start = Addr(at.0.checked_sub(u64::from(place) * stride)?);
        let is_its = |number: u32| {
            let at = start.0.checked_add(u64::from(number) * stride);
            at.is_some_and(|at| memory.u32(Addr(at)).is_ok_and(|handle| handle == first + number))
        };
        // The last one first: most strides lead nowhere.
        (0..PREPARED).rev().all(is_its).then_some((start, stride))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::testing::Made;

    const START: u64 = 0x7f23_97d0_7700;
    const STRIDE: u64 = 0x1c0;
    const SEND: u64 = 1;
    const RECEIVE: u64 = 2;
    const OF_ALL: u64 = 9;

    fn at(place: u64) -> Addr {
        Addr(START + place * STRIDE)
    }

    /// The array, all of it free.
    fn free() -> Made {
        let mut made = Made::new(&[10]);
        made.zero(START, 8 * STRIDE);
        for place in 0..8 {
            made.u32(at(place).0, 0xac00_0000 + place as u32);
            made.u64(at(place).0 + 8, if place < 7 { at(place + 1).0 } else { 0 });
        }
        made
    }

    /// A request in use.
    fn used(made: &mut Made, place: u64, kind: u64, left: u32) {
        made.u32(at(place).0 + 4, 1);
        made.u64(at(place).0 + 8, kind);
        made.u64(at(place).0 + 16, at(place).0 + 24);
        made.u32(at(place).0 + 24, left);
        made.u64(at(place).0 + 32, 0x7f23_97cb_79c0);
    }

    fn told(made: &Made) -> Option<(u32, u32)> {
        open(&made.bytes, &[Addr(0x10), at(3)]).map(|open| (open.sends, open.receives))
    }

    #[test]
    fn messages_are_counted_whoever_waits_for_them() {
        let mut made = free();
        assert_eq!(told(&made), Some((0, 0)));
        used(&mut made, 0, RECEIVE, 1);
        assert_eq!(told(&made), Some((0, 1)));
        used(&mut made, 5, SEND, 2);
        used(&mut made, 6, RECEIVE, 1);
        used(&mut made, 7, SEND, 0);
        assert_eq!(told(&made), Some((1, 2)), "one is over, and not given back");
        for place in 0..8 {
            assert_eq!(open(&made.bytes, &[at(place)]), Some(Open { sends: 1, receives: 2 }), "{place}");
        }
    }

    #[test]
    fn what_has_come_unasked_for_is_not_being_received() {
        let mut made = free();
        used(&mut made, 0, RECEIVE, 1);
        used(&mut made, 1, RECEIVE, 1);
        made.u64(at(1).0 + 32, 0);
        made.u64(at(1).0 + 40, 8);
        assert_eq!(told(&made), Some((0, 1)));
        made.u64(at(1).0 + 40, 0x7f23_97cb_79c0);
        assert_eq!(told(&made), Some((0, 2)), "where another version has it");
    }

    #[test]
    fn what_is_not_known_whole_is_not_told() {
        let mut other = free();
        used(&mut other, 2, OF_ALL, 1);
        assert_eq!(told(&other), None, "what it does is not known");
        let mut full = free();
        (0..8).for_each(|place| used(&mut full, place, RECEIVE, 1));
        assert_eq!(told(&full), None, "there may be more elsewhere");
        let mut broken = free();
        broken.u32(at(6).0, 0xac00_0000);
        assert_eq!(told(&broken), None, "no array");
        let mut indirect = free();
        (0..8).for_each(|place| indirect.u32(at(place).0, 0xec00_0000 + place as u32));
        assert_eq!(told(&indirect), None, "a request from the heap");
        let mut beyond = free();
        (0..8).for_each(|place| beyond.u32(at(place).0, 0xac00_0010 + place as u32));
        assert_eq!(told(&beyond), None, "no such place");
    }
}
