//! `pipe-without-writer`: a thread waits for a pipe whose other end only its own process has.
//!
//! In: the judged sample. Out: drafts of the finding. It decides nothing about pipes.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::verdict::foremost;
use crate::waits::kinds::{self, Kind};
use crate::waits::model::Role;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "pipe-without-writer",
    severity: Severity::Error,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "pipe_without_writer.py",
        program: include_str!("example.py"),
        command: "python3 pipe_without_writer.py",
        needs: Requirement::Nothing,
    },
    rule,
};

/// The advice for a server that calls itself.
const SELF_CALL: [&str; 2] = [
    "call the function that the server would run, instead of a request to the server itself",
    "serve each request in a thread or worker process of its own (in Python `ThreadingHTTPServer`), and give requests a time-out",
];

/// The advice where a child has died that had the other end.
const DEAD_CHILD: [&str; 2] = [
    "look for the reason why the child ended: its output, its exit status, the kernel's log (out of memory)",
    "wait for the child as well as for its data: `multiprocessing.connection.wait([reader, process.sentinel])`, or \
     concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool",
];

/// The advice where both ends of a connection are the process's own.
const OWN_CONNECTION: [&str; 2] = [
    "look at the thread that serves the other end: it has ended, waits itself, or was never started",
    "in a server, call the function that the request would run, or serve requests in more threads",
];

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let role = |draft: &Draft| draft.resources.first().and_then(|key| context.names.described(key)?.role);
    let mut drafts = context.dead_end_drafts(Kind::has_two_ends);
    // A client waits because its server itself waits for an answer that it cannot accept.
    drafts.sort_by_key(|draft| role(draft) != Some(Role::Unaccepted));
    for draft in &mut drafts {
        let (waiter, key) = (draft.parties.first(), draft.resources.first());
        if let (Some(Role::Unaccepted), Some(waiter)) = (role(draft), waiter) {
            let who = context.names.party_by_name(waiter);
            draft.title = Some(format!(
                "{who} waits for an answer from its own process, where no thread is left to accept the connection"
            ));
            draft.help = SELF_CALL.iter().map(|advice| (*advice).to_owned()).collect();
            continue;
        }
        let dead = waiter.map(|waiter| foremost::dead_children(context, std::slice::from_ref(waiter)));
        if dead.is_some_and(|dead| !dead.is_empty()) {
            draft.help = DEAD_CHILD.iter().map(|advice| (*advice).to_owned()).collect();
        } else if key.is_some_and(|key| key.kind == kinds::SOCKET) {
            draft.help = OWN_CONNECTION.iter().map(|advice| (*advice).to_owned()).collect();
        }
        draft.title = key.map(|key| key.kind.noun).zip(waiter).map(|(noun, waiter)| {
            let who = context.names.party_by_name(waiter);
            format!("{who} waits at a {noun} whose other end only its own process has")
        });
    }
    drafts
}
