//! `lockscope attach`: sample running processes.

use std::process::ExitCode;

use super::{AttachArguments, CliError, Color, output, processes, progress, reproducer};
use crate::analysis::{self, AttachOptions, Keep};
use crate::run::gpu_attached;

/// Sample the processes that `arguments` name and write the report.
pub(super) fn run(arguments: &AttachArguments, color: Color) -> Result<ExitCode, CliError> {
    // Before the target is touched: a mistyped file name must not cost a stop.
    let destinations = output::destinations(&arguments.output)?;
    let options = AttachOptions {
        tree: arguments.tree,
        follow: !arguments.no_tree,
        offspring: !arguments.no_tree,
        max_pause: arguments.stopping.max_pause,
        stopping: arguments.stopping.choice(),
        locals: arguments.locals,
        working: arguments.output.wants_working(),
        gpu_cores: arguments.gpu_cores.clone(),
        ..AttachOptions::of(processes::resolve(&arguments.processes, "attach")?)
    };
    // The facts about the GPUs are joined with the captured data.
    let keep = match output::keep(&destinations) {
        Keep::Nothing if arguments.trigger_gpu_core => Keep::Snapshot { redact: false },
        keep => keep,
    };
    let (outcome, made_of) = progress::unless(arguments.output.quiet, || {
        let (mut outcome, made_of) = analysis::attach_and_hold(&options, keep)?;
        if arguments.trigger_gpu_core {
            gpu_attached::add(&mut outcome);
        }
        Ok::<_, CliError>((outcome, made_of))
    })?;
    let written = output::write(&outcome, &destinations, &arguments.output, color);
    let reproduced = reproducer::write(arguments.reproducer.as_deref(), &outcome, arguments.output.quiet);
    // The end of this process gives all of it back at one go, and ends those that copied: each of them is killed when it ends.
    std::mem::forget((outcome, made_of));
    reproduced.and(written)
}
