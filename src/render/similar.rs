//! Public reports of hangs that are similar to a finding.
//!
//! In: a report and one of its findings. Out: those of its references that are reports of a project with code on the
//! stacks of the finding's threads. Other projects' reports and pages of manuals stand in `lockscope explain` alone.

use std::collections::BTreeSet;

use crate::report::{Finding, Report};

/// The references of `finding` that are reports of a project on its stacks, as `numba/numba#4581`.
pub(super) fn similar_reports<'r>(report: &Report, finding: &'r Finding) -> Vec<&'r str> {
    let members: BTreeSet<_> = finding.threads.iter().map(|thread| thread.key()).collect();
    let threads = report
        .processes
        .iter()
        .flat_map(|process| process.threads.iter().map(move |thread| (process.id.as_str(), thread)))
        .filter(|(process, thread)| members.contains(&(*process, thread.tid)));
    let owners = threads.flat_map(|(_, thread)| thread.frames.iter().filter_map(|frame| frame.belongs_to.as_deref()));
    let on_stack: BTreeSet<String> = owners.map(owned).collect();
    let is_similar = |reference: &&str| project(reference).is_some_and(|project| on_stack.contains(&project));
    finding.references.iter().map(String::as_str).filter(is_similar).collect()
}

/// The project of a public report, in the spelling of [`owned`].
fn project(reference: &str) -> Option<String> {
    let (repository, number) = reference.split_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let (_, project) = repository.split_once('/').filter(|_| is_number && !repository.contains([' ', ':']))?;
    Some(owned(project))
}

/// The name of code's owner as projects spell it: packages of Python leave out a `py` at the front, and their names differ in case
/// and dashes.
fn owned(name: &str) -> String {
    match name {
        "CPython" | "Python's library" => "cpython".into(),
        _ => {
            let name = name.to_ascii_lowercase().replace('_', "-");
            name.strip_prefix("py").unwrap_or(&name).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_similar_where_its_project_is_on_the_stack() {
        assert_eq!(project("pytorch/pytorch#1355"), Some(owned("torch")));
        assert_eq!(project("NVIDIA/numba-cuda#317"), Some(owned("numba_cuda")));
        assert_eq!(project("python/cpython#141617"), Some(owned("Python's library")));
        assert_ne!(project("NVIDIA/numba-cuda#317"), Some(owned("CUDA")));
        for page in ["man 7 pipe", "https://example.org/a#1", "CUDA Runtime API: cudaLaunchHostFunc"] {
            assert_eq!(project(page), None, "{page}");
        }
    }
}
