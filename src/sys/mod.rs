//! All the `unsafe` of lockscope: system calls that no safe wrapper offers in the form needed here.
//!
//! In: plain numbers and slices. Out: plain results. No policy lives here, and no file below knows another one's subject.

#![allow(unsafe_code)]

mod commands;
mod files;
mod heap;
mod kernel_programs;
mod memory;
mod processes;
mod shared;
mod signals;
mod tracing;

pub(crate) use commands::{become_command, leave_standard_files, take_actions};
pub(crate) use files::{close_all, close_all_but, rename_to_nothing};
pub(crate) use heap::{prepare_heap, touch_heap, trim_heap};
pub(crate) use kernel_programs::{bpf_insert, bpf_iterate, bpf_link, bpf_program, bpf_set, count_executions};
pub(crate) use memory::{Span, lost_pages, map_file, page_size, read_spans};
pub(crate) use processes::{
    Ended, Forked, as_user, ended_child, fork, have_same_memory, process_descriptor, semaphore, set_urgent,
};
pub(crate) use shared::{ErrorCheckMutex, PIECES_PER_CALL, SharedArea, collect, start_apart};
pub(crate) use signals::{DeferredSignals, SUPERVISOR_ENDED, note_continues, was_continued_by_others};
pub(crate) use tracing::{
    PTRACE_CALL, RegisterBytes, Stop, detach, poll_stop, registers, set_registers, take_exit_status,
};
