//! A snapshot's content beside the pages: plain data with names that are part of the format.
//!
//! In: an image and its annotations. Out: values that serde writes and reads. Fields are added with a default and
//! never change their meaning; see the versions in [`super`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::arch::Architecture;
use crate::image::{
    Addr, Descriptor, Fault, Gap, KernelFacts, Launch, Mapping, ProcessImage, SourceLines, Taken, ThreadImage,
};
use crate::modules::RecordedModule;
use crate::python::{Python, PythonThread};
use crate::symbols::SymbolCache;
use crate::unwind::NativeStack;

/// The first note. Version and writer come first: they are read before the rest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) version: u32,
    pub(super) lockscope: String,
    /// Written with `--redact`.
    #[serde(default)]
    pub(super) redacted: bool,
    /// In order of time, two at most.
    pub(super) looks: Vec<SavedLook>,
}

/// The part that is readable in any version.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) lockscope: String,
}

/// One look.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedLook {
    pub(super) of_one_instant: bool,
    pub(super) gaps: Vec<Gap>,
    #[serde(default)]
    pub(super) kernel: KernelFacts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<Taken>,
    pub(super) processes: Vec<SavedProcess>,
}

/// One process of a sample.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedProcess {
    /// Snapshots were written without it while there was one.
    #[serde(default = "first_architecture")]
    pub(super) architecture: Architecture,
    pub(super) pid: i32,
    pub(super) ns_pid: i32,
    pub(super) parent: Option<i32>,
    #[serde(default)]
    pub(super) parent_threads: Vec<(i32, String)>,
    #[serde(default)]
    pub(super) shares_memory_of: Option<i32>,
    #[serde(default)]
    pub(super) is_copy: Option<bool>,
    pub(super) exe: Option<PathBuf>,
    pub(super) cmdline: Vec<String>,
    pub(super) tracer: Option<(i32, String)>,
    #[serde(default)]
    pub(super) auxiliary: Vec<u8>,
    #[serde(default)]
    pub(super) descriptors: Vec<Descriptor>,
    /// Variables of the environment that concern CUDA and jobs.
    #[serde(default)]
    pub(super) environment: Vec<(String, String)>,
    #[serde(default)]
    pub(super) launch: Launch,
    pub(super) threads: Vec<ThreadImage>,
    pub(super) mappings: Vec<Mapping>,
    /// The stacks of the threads, in their order.
    pub(super) stacks: Vec<NativeStack>,
    pub(super) modules: Vec<RecordedModule>,
    pub(super) answers: SymbolCache,
    /// Lines of its source files that the report shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<SourceLines>,
    /// The facts that py-spy added.
    #[serde(default)]
    pub(super) help: Option<Help>,
    pub(super) pages: Vec<Run>,
    pub(super) faults: Vec<(u64, SavedFault)>,
}

fn first_architecture() -> Architecture {
    Architecture::X86_64
}

/// Blocks in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) length: u64,
    /// Place in the unpacked second note; `None`: in the core's own memory.
    pub(super) at: Option<u64>,
}

/// A [`Fault`] without its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SavedFault {
    Unmapped,
    NotCaptured,
    Denied,
    Gone,
}

/// Facts from the live process beyond its memory; they cannot be recomputed from the snapshot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Help {
    version: (u8, u8, u8),
    threads: Vec<PythonThread>,
    gaps: Vec<Gap>,
}

impl Help {
    /// The facts about CPython after all helped.
    pub(crate) fn of(python: &Python) -> Help {
        Help { version: python.version, threads: python.threads.clone(), gaps: python.gaps.clone() }
    }

    /// Put it in the place of the own walk's.
    pub(crate) fn apply(&self, python: &mut Option<Python>) {
        let python = python.get_or_insert_with(|| Python::unreadable(self.version));
        python.version = self.version;
        python.threads.clone_from(&self.threads);
        python.decide_origins();
        python.gaps.clone_from(&self.gaps);
    }

    /// Without the values of variables.
    pub(super) fn drop_locals(&mut self) {
        let entries = self.threads.iter_mut().flat_map(|thread| &mut thread.entries);
        entries.flat_map(|entry| &mut entry.frames).for_each(|frame| frame.locals.clear());
    }
}

impl SavedFault {
    pub(super) fn of(fault: Fault) -> SavedFault {
        match fault {
            Fault::Unmapped(_) => SavedFault::Unmapped,
            Fault::NotCaptured(_) => SavedFault::NotCaptured,
            Fault::Denied(_) => SavedFault::Denied,
            Fault::Gone(_) => SavedFault::Gone,
        }
    }

    pub(super) fn at(self, address: Addr) -> Fault {
        match self {
            SavedFault::Unmapped => Fault::Unmapped(address),
            SavedFault::NotCaptured => Fault::NotCaptured(address),
            SavedFault::Denied => Fault::Denied(address),
            SavedFault::Gone => Fault::Gone(address),
        }
    }
}

impl SavedProcess {
    /// Everything of `image` but its memory and the annotations.
    pub(super) fn of(image: &ProcessImage) -> SavedProcess {
        SavedProcess {
            architecture: image.architecture,
            pid: image.pid,
            ns_pid: image.ns_pid,
            parent: image.parent,
            parent_threads: image.parent_threads.clone(),
            shares_memory_of: image.shares_memory_of,
            is_copy: image.is_copy,
            exe: image.exe.clone(),
            cmdline: image.cmdline.clone(),
            tracer: image.tracer.clone(),
            auxiliary: image.auxiliary.clone(),
            descriptors: image.descriptors.clone(),
            environment: image.environment.clone(),
            launch: image.launch.clone(),
            threads: image.threads.clone(),
            mappings: image.mappings.clone(),
            stacks: Vec::new(),
            modules: Vec::new(),
            answers: SymbolCache::default(),
            sources: Vec::new(),
            help: None,
            pages: Vec::new(),
            faults: Vec::new(),
        }
    }
}
