//! All ranks of a job, grouped by their activity.
//!
//! In: the report's account of them. Out: lines of the page.

use super::page::Page;
use crate::report::JobRanks;

/// Groups that get a line.
const MOST_GROUPS: usize = 24;

/// The ranks with their places.
pub(super) fn section(job: &JobRanks, page: &mut Page) {
    let name = job.job.as_deref().unwrap_or("the job");
    let of = job.size.map(|size| format!(" of {size}")).unwrap_or_default();
    let rounds = if job.two_rounds { "two rounds" } else { "one round" };
    page.blank();
    let (one, several) = match job.member.as_deref() {
        Some(member) => (member.to_owned(), format!("{member}es")),
        None => ("rank".to_owned(), "ranks".to_owned()),
    };
    page.plain(&format!("{several} {}{of} of {name}, {rounds}:", job.reported));
    for group in job.groups.iter().take(MOST_GROUPS) {
        let (who, count) = match group.count {
            1 => (format!("{one} {}", group.ranks), String::new()),
            count => (format!("{several} {}", group.ranks), format!(" ({count})")),
        };
        page.frame(&format!("  {who}{count}  {}: {}", group.verdict.words(), group.doing));
    }
    let hidden = job.groups.len().saturating_sub(MOST_GROUPS);
    if hidden > 0 {
        page.plain(&format!("  and {hidden} more groups, which the JSON has"));
    }
    if !job.ended.is_empty() {
        page.plain(&format!("  ended: {}", job.ended));
    }
    page.blank();
}
