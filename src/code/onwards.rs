//! Whether the code of a frame ends a value that it has, on every path from its pc to its return.
//!
//! In: a frame with its registers, and where a value lies in it. Out: yes or no. A value that is ended on each way has
//! not been ended or given away yet: compilers that move values end none twice. Where some ways end it and others do
//! not, or one cannot be followed, the answer is no. It is no, too, if a call may still write its result there: the
//! bytes there are then from earlier. It knows no lock and no library; the callers name the functions.

use std::collections::HashSet;

use super::{CallSite, Code, RegisterState};
use crate::arch::instructions::{Effect, Flow, Target};
use crate::image::Addr;
use crate::limits::code::{LARGEST_FUNCTION, LARGEST_RESULT};
use crate::unwind::NativeFrame;

/// Where a value lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    /// Its address.
    pub at: Addr,
    /// Its bytes.
    pub size: u64,
    /// The word that a function gets which takes the value itself, not its address.
    pub word: u64,
}

impl Value {
    /// Whether a call whose result goes to `address` may write the value as a later part of it.
    fn may_be_part_of_result(&self, address: Option<u64>) -> bool {
        address.is_some_and(|address| (1..LARGEST_RESULT).contains(&self.at.0.wrapping_sub(address)))
    }
}

/// The result of one straight piece of code.
enum End {
    /// The value is ended.
    Ended,
    /// Nothing that returns.
    Nowhere,
    /// The code at these places.
    Further([Option<Addr>; 2]),
    /// The value lives on, is another one, or is unknown.
    Open,
}

impl Code<'_> {
    /// Whether the function of `frame`, on any path to its return, calls one of the functions that `ends` knows. The
    /// call must have the address of `value`, or of a structure around it, or the value, as first argument, and come before
    /// any write to the value.
    pub(crate) fn surely_ends(&self, frame: &NativeFrame, value: Value, ends: &dyn Fn(&str) -> bool) -> bool {
        let Some(start) = self.symbols.function_start(frame.lookup).filter(|start| *start <= frame.pc) else {
            return false;
        };
        let mut code = vec![0; LARGEST_FUNCTION as usize];
        let Ok(read) = self.image.memory.read(start, &mut code) else { return false };
        code.truncate(read);
        let mut seen = HashSet::new();
        let mut ahead = vec![frame.pc];
        let mut is_ended = false;
        while let Some(at) = ahead.pop() {
            if !seen.insert(at) {
                continue;
            }
            let bytes = if at < start { &[] } else { code.get((at - start) as usize..).unwrap_or_default() };
            match self.piece(frame, bytes, at, value, ends) {
                End::Ended => is_ended = true,
                End::Nowhere => {}
                End::Further(places) => ahead.extend(places.into_iter().flatten()),
                End::Open => return false,
            }
        }
        is_ended && self.has_been_written(frame, value)
    }

    /// Whether the function of `frame` has put the value there, by itself or by a call that has returned, and not by the
    /// call that it is in.
    fn has_been_written(&self, frame: &NativeFrame, value: Value) -> bool {
        let around = self.read_around(frame, None);
        let Some(current) = &around.current else { return false };
        let is_by_itself = around.writes.iter().any(|(_, to)| to.within(value.at, value.size));
        let has_address = |site: &CallSite| site.result_address == Some(value.at.0);
        let may_write = |site: &CallSite| has_address(site) || value.may_be_part_of_result(site.result_address);
        !value.may_be_part_of_result(current.result_address)
            && (is_by_itself || !has_address(current) && around.calls.iter().any(may_write))
    }

    /// The straight piece of code at `at`, up to its first branch. Register values are known from its start on, and
    /// from the frame.
    fn piece(&self, frame: &NativeFrame, code: &[u8], at: Addr, value: Value, ends: &dyn Fn(&str) -> bool) -> End {
        let architecture = self.image.architecture;
        let mut values = RegisterState::of_frame(architecture, frame, None);
        let mut decoder = architecture.decoder(code, at);
        while let Some(instruction) = decoder.next() {
            match instruction.flow {
                Flow::Next => {
                    for effect in decoder.effects().iter() {
                        if values.writes_to(&effect, value) {
                            return End::Open;
                        }
                        values.step(self.image, effect);
                    }
                }
                Flow::Call(target) => {
                    let (_, name) = self.called_with(&values, target);
                    let first = architecture.arguments().first().and_then(|register| values.now.get(*register));
                    // An object that begins less than the value's size before it includes the value: none is smaller.
                    let is_around = first.is_some_and(|first| value.at.0.wrapping_sub(first) < value.size);
                    let is_it = is_around || first == Some(value.word);
                    if is_it && name.as_deref().is_some_and(ends) {
                        return End::Ended;
                    }
                    if !self.returns(target) {
                        return End::Nowhere;
                    }
                    if value.may_be_part_of_result(values.now.get(architecture.result_address())) {
                        return End::Open;
                    }
                    values.forget_caller_saved();
                }
                Flow::Branch(to) => return End::Further([Some(to), Some(instruction.next)]),
                Flow::Jump(Target::Code(to)) if self.symbols.function_start(to) == self.symbols.function_start(at) => {
                    return End::Further([Some(to), None]);
                }
                Flow::Trap => return End::Nowhere,
                Flow::Jump(_) | Flow::Return => return End::Open,
            }
        }
        End::Open
    }
}

impl RegisterState {
    /// Whether an instruction writes to a value, as far as its address is known.
    fn writes_to(&self, effect: &Effect, value: Value) -> bool {
        effect.written().and_then(|place| self.address(place)).is_some_and(|at| Addr(at).within(value.at, value.size))
    }
}
