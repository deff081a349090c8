//! The recorder: a library that `lockscope run --record` preloads into a command, and that only writes down who has
//! which lock.
//!
//! In: calls of the command for locks of the C library, which come here first and go on to the C library. Out: the
//! table of [`table`], in private memory of the process, which lockscope reads from outside, from a core or from a
//! snapshot (`src/recorder/mod.rs`); and the file of [`mod@file`], which lockscope reads when the command has ended. No
//! analysis happens here: it never allocates, waits, unwinds, starts a thread or changes `errno`. Only the name of a
//! thread of Python is asked of the interpreter, once, in a method that may allocate itself. With targets ([`provoke`])
//! it also holds threads back before locks, for a limited time, and counts.
//!
//! It is no part of the crate. `scripts/build.rs` compiles it by itself, with `core` alone, and the program carries
//! what came out. It needs no C library to link: every function that it calls is looked up in the process
//! ([`symbols`]), so that the same file works with glibc of any age and with musl, and leaves a process alone in which
//! something is missing. `unsafe` is everywhere here: the arguments are those of C functions, and each block says why
//! it may do what it does.
//!
//! [`arch`] has everything that depends on the machine. `scripts/check/recorder` formats, lints, documents and tests
//! these files. They have no Cargo.toml: `cargo package` leaves folders with one out, and the build script compiles
//! from the package. Under the test harness nothing stands in front of the C library's functions; the tests call the
//! recorder's own.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(test, allow(dead_code, non_snake_case))]
#![deny(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn, unreachable_pub)]
#![warn(missing_docs)]

mod arch;
mod cuda;
mod exec;
mod file;
mod filters;
mod held;
mod loaded;
mod locks;
mod orders;
mod provoke;
mod python;
mod real;
mod sites;
mod stand;
mod start;
mod symbols;
mod table;
#[cfg(test)]
mod tests;

/// Nothing here panics: no indexing, no arithmetic that is checked. The compiler wants to know nevertheless.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
