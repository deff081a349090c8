//! The one integration test binary: the real program against real processes whose truth is known.

mod asleep;
mod bad_input;
mod browser;
mod containers;
mod contract;
mod cuda;
mod examples;
mod formats;
mod harmless;
mod harness;
mod inside_gdb;
mod installed;
mod kernel_waits;
mod launchers;
mod libcs;
mod mutations;
mod native;
mod peers;
mod post_mortem;
mod pytest;
mod python;
mod python_locks;
mod recipes;
mod run;
mod run_reports;
mod text_options;
