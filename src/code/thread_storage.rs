//! Thread-local variables whose addresses functions give away.
//!
//! In: a function that writes the address of a thread-local variable to the target of its first argument, and a thread.
//! Out: the address of that thread's own variable. Both ways of compilers are followed: `__tls_get_addr`, whose result
//! is found as glibc finds it, and addresses relative to the thread pointer. It knows no library; the callers do.

use super::{Arguments, Code, IMAGINED_STACK, RegisterState};
use crate::arch::instructions::{Effect, Flow, Place};
use crate::image::{Addr, MemoryExt};
use crate::limits::code::{FIRST_BYTES, LARGEST_STRUCTURE};
use crate::symbols::base_symbol;

/// Where an imagined caller has the word that the function writes to.
const IMAGINED_RESULT: u64 = IMAGINED_STACK + 0x1000;
/// glibc's mark for storage that the thread has not used yet (sysdeps/generic/dl-dtv.h, TLS_DTV_UNALLOCATED).
const UNALLOCATED: u64 = u64::MAX;
/// An entry of glibc's table: the address, and what to free (sysdeps/generic/dl-dtv.h, union dtv).
const ENTRY: u64 = 16;

impl Code<'_> {
    /// Where the function at `function` says that the variable of the thread with this thread pointer lies; `None` where it is no such
    /// function, or the thread has not used its storage yet.
    pub(crate) fn own_variable(&self, function: Addr, thread_pointer: Addr) -> Option<Addr> {
        let mut code = vec![0; FIRST_BYTES];
        let read = self.image.memory.read(function, &mut code).ok()?;
        let architecture = self.image.architecture;
        let mut arguments = Arguments::default();
        *arguments.first_mut()? = Some(IMAGINED_RESULT);
        let mut values = RegisterState::of_call(architecture, arguments, Some(thread_pointer));
        let first = *architecture.arguments().first()?;
        let mut decoder = architecture.decoder(code.get(..read).unwrap_or_default(), function);
        let mut is_thread_local = false;
        while let Some(instruction) = decoder.next() {
            match instruction.flow {
                Flow::Return | Flow::Trap => break,
                Flow::Call(target) => {
                    let (_, name) = self.called_with(&values, target);
                    let index = values.now.get(first);
                    values.forget_caller_saved();
                    if name.is_some_and(|name| base_symbol(&name) == "tls_get_addr") {
                        let address = self.storage(Addr(index?), thread_pointer)?;
                        values.set(architecture.result(), Some(address.0));
                        is_thread_local = true;
                    }
                }
                _ => {
                    for effect in decoder.effects().iter() {
                        is_thread_local |=
                            matches!(effect, Effect::Load { from: Some(from), .. } if from.is_thread_local);
                        values.step(self.image, effect);
                    }
                }
            }
        }
        values.written.get(&IMAGINED_RESULT).copied().flatten().map(Addr).filter(|_| is_thread_local)
    }

    /// At which offset of its first argument a function finds the 32-bit word that it returns, where that is all that it does.
    pub(crate) fn member_returned(&self, function: Addr) -> Option<u64> {
        let mut code = [0; 32];
        let read = self.image.memory.read(function, &mut code).ok()?;
        let architecture = self.image.architecture;
        let first = *architecture.arguments().first()?;
        let mut decoder = architecture.decoder(code.get(..read).unwrap_or_default(), function);
        let mut found = None;
        while let Some(instruction) = decoder.next() {
            let effects = decoder.effects();
            let mut effects = effects.iter();
            match (instruction.flow, effects.next()) {
                (Flow::Return, _) => return found,
                (
                    Flow::Next,
                    Some(Effect::Load { to, from: Some(Place { base, index: None, displacement, .. }), .. }),
                ) if found.is_none() && to == architecture.result() && base == Some(first) => {
                    found = Some(displacement).filter(|offset| *offset < LARGEST_STRUCTURE);
                }
                // Landing pads for indirect branches do nothing.
                (Flow::Next, None) => {}
                _ => return None,
            }
        }
        None
    }

    /// The result of `__tls_get_addr` in that thread: `index` leads to the module's number and an offset (psABI, "ELF
    /// Handling For Thread-Local Storage", tls_index). The thread's table may be older than the module, and then lacks
    /// it.
    fn storage(&self, index: Addr, thread_pointer: Addr) -> Option<Addr> {
        let memory = &self.image.memory;
        let (module, offset) = (memory.u64(index).ok()?, memory.u64(index + 8).ok()?);
        let table = memory.pointer(thread_pointer + self.image.architecture.glibc_storage_table()).ok()?;
        // The word before the first entry says how many there are.
        let count = memory.u64(Addr(table.0.checked_sub(ENTRY)?)).ok()?;
        let entry =
            table.0.checked_add(Some(module).filter(|module| (1..=count).contains(module))?.checked_mul(ENTRY)?)?;
        let storage = memory.u64(Addr(entry)).ok().filter(|storage| ![0, UNALLOCATED].contains(storage))?;
        Some(Addr(storage.checked_add(offset)?))
    }
}
