//! The scenes of a report, with the lines of source that they show.
//!
//! In: an assembled report and the image that it is of. Out: the report with its scenes, and of each process the lines that were read,
//! which a snapshot keeps. Which lines are wanted `verdict::participants` decides, and which files may be read `image::live::sources`.

use std::collections::HashMap;

use crate::image::{Image, SourceLines};
use crate::limits::image::MOST_SOURCE_LINES;
use crate::report::Report;
use crate::verdict::participants::Participants;

/// Add the scenes; the lines of source by the positions of the processes.
pub(super) fn add_scenes(report: &mut Report, image: &Image) -> Vec<Vec<SourceLines>> {
    let scenes = Participants::of(report);
    let positions: HashMap<&str, usize> =
        report.processes.iter().enumerate().map(|(position, process)| (process.id.as_str(), position)).collect();
    let mut kept = vec![Vec::new(); image.processes.len()];
    let mut found: HashMap<String, Vec<SourceLines>> = HashMap::new();
    let mut left = MOST_SOURCE_LINES;
    for ((process, name), lines) in scenes.wanted() {
        let position = positions.get(process.as_str()).copied();
        let Some((position, of)) = position.and_then(|position| Some((position, image.processes.get(position)?)))
        else {
            continue;
        };
        let Some(rest) = left.checked_sub(lines.len()) else { break };
        left = rest;
        if let Some(source) = of.files.source(&name, &lines) {
            if let Some(kept) = kept.get_mut(position) {
                kept.push(source.clone());
            }
            found.entry(process).or_default().push(source);
        }
    }
    report.scenes = scenes.told(&found);
    kept
}
