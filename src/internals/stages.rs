//! The cost of each stage between capture and graph, for `cargo bench`.
//!
//! In: a process id. Out: times. It judges nothing.

use std::time::{Duration, Instant};

use crate::image::live::{LiveTarget, Options};
use crate::modules::Modules;
use crate::symbols::{Symbols, Tables};
use crate::{threads, unwind, waits};

/// The measurements of one process.
#[derive(Debug)]
pub struct Measured {
    /// Number of its threads.
    pub threads: usize,
    /// How long they were stopped, in microseconds.
    pub pause_us: u64,
    /// Each stage with its time, in order.
    pub stages: Vec<(&'static str, Duration)>,
    /// Numbers of waits, resources and holds that were found; `None` if reading them a second time gave other waits.
    pub found: Option<[usize; 3]>,
}

/// Sample a process once, and find its waits twice. `None` if lockscope cannot sample it.
pub fn measure(pid: i32) -> Option<Measured> {
    let options = Options { pids: vec![pid], max_pause: Some(Duration::from_secs(5)), ..Options::default() };
    let image = LiveTarget::open(options).ok()?.look().ok()?;
    let process = image.processes.first()?;
    let mut stages = Vec::new();
    let at = Instant::now();
    let modules = Modules::of(process);
    let tables = Tables::of(&modules);
    let symbols = Symbols::new(&modules, &tables, process);
    stages.push(("modules", at.elapsed()));
    let at = Instant::now();
    let stacks = unwind::stacks(process, &modules);
    stages.push(("unwinding", at.elapsed()));
    let at = Instant::now();
    let merged = threads::merge(process, &symbols, stacks, None);
    stages.push(("names", at.elapsed()));
    let context = waits::CapturedProcess {
        process: 0,
        image: process,
        all: &image,
        symbols: &symbols,
        threads: &merged,
        python: None,
        gpu: None,
        gpu_cores: &[],
    };
    let at = Instant::now();
    let seen = waits::observe(&[context]);
    stages.push(("waits, first reading", at.elapsed()));
    let at = Instant::now();
    let again = waits::observe(&[context]);
    stages.push(("waits, once more", at.elapsed()));
    let found = [seen.waits.len(), seen.resources.len(), seen.holds.len()];
    let found = (seen.waits.len() == again.waits.len()).then_some(found);
    Some(Measured { threads: process.threads.len(), pause_us: image.pause_us, stages, found })
}
