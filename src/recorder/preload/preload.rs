//! The recorder: a library that `lockscope run --record` preloads into a command, and that only writes down who has which lock.
//!
//! In: calls of the command for locks of the C library, which come here first and go on to the C library. Out: the table of
//! [`table`], in private memory of the process, which lockscope reads from outside, from a core or from a snapshot
//! (`src/recorder/mod.rs`); and the file of [`file`], which lockscope reads when the command has ended. It thinks nothing: it never allocates, waits, unwinds, starts a thread or changes `errno`.
//!
//! It is no part of the crate. `scripts/build.rs` compiles it by itself, with `core` alone, and the program carries what came out.
//! It needs no C library to link: every function that it calls is looked up in the process ([`symbols`]), so that the same file
//! works with glibc of any age and with musl, and leaves a process alone in which something is missing. `unsafe` is everywhere here:
//! what it is given are the arguments of C functions, and each block says why it may do what it does.
//!
//! What depends on the machine stands in [`arch`].

#![no_std]
#![deny(clippy::undocumented_unsafe_blocks)]

mod arch;
mod cuda;
mod exec;
mod file;
mod held;
mod loaded;
mod locks;
mod orders;
mod python;
mod real;
mod sites;
mod start;
mod symbols;
mod table;

/// Nothing here panics: no indexing, no arithmetic that is checked. The compiler wants to know nevertheless.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
