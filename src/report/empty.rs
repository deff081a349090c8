//! An empty report.
//!
//! In: where its facts come from, and the verdict. Out: a [`Report`] that its makers fill.

use super::{Capture, Report, Source, SourceKind, VERSION, Verdict};

impl Report {
    /// A report of this version without processes, waits and findings.
    pub(crate) fn empty(source: SourceKind, verdict: Verdict) -> Report {
        Report {
            schema: "lockscope.report".into(),
            version: VERSION.into(),
            lockscope: env!("CARGO_PKG_VERSION").into(),
            source: Source { kind: source, path: None },
            host: None,
            verdict,
            summary: String::new(),
            sentence: String::new(),
            scenes: Vec::new(),
            foremost: Vec::new(),
            awaited: Vec::new(),
            processes: Vec::new(),
            resources: Vec::new(),
            waits: Vec::new(),
            holds: Vec::new(),
            cycles: Vec::new(),
            victims: Vec::new(),
            victim_resources: Vec::new(),
            findings: Vec::new(),
            made_to_happen: None,
            gaps: Vec::new(),
            job: None,
            nccl_ras: Vec::new(),
            capture: Capture::default(),
        }
    }
}
