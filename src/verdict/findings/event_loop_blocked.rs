//! `event-loop-blocked`: a thread waits inside of a callback of its event loop, and none of the loop's tasks goes on.
//!
//! In: the judged look. Out: drafts of the finding. It looks for no cycle itself.

use super::{Context, Draft, Explanation, Rule};
use crate::report::Severity;
use crate::waits::cpython::EVENT_LOOP;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "event-loop-blocked",
        title: "an event loop's thread waits, and none of its tasks can go on",
        severity: Severity::Warning,
        text: "A loop runs one callback at a time. A coroutine that calls a function which waits (a threading.Lock, time.sleep, a synchronous client) keeps the whole loop from running until that returns. When what it waits for is in the hands of another task of the same loop, it never does: a lock that is held across an await is released only by a coroutine that the loop cannot resume.",
        help: &[
            "use asyncio.Lock in coroutines, and never hold a threading.Lock across an await",
            "move calls that wait into a thread: await asyncio.to_thread(function)",
            "asyncio.run(main(), debug=True) logs every callback that takes longer than 0.1 s",
        ],
        references: &["Azure/azure-sdk-for-python#11591", "crewAIInc/crewAI#4827"],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let loops = seen.resources.iter().filter_map(|resource| {
        let tasks = resource.word(EVENT_LOOP)?;
        let hold = seen.holds.iter().find(|hold| hold.resource == resource.key)?;
        let wait = seen.waits.iter().find(|wait| wait.waiter == hold.holder)?;
        let names = context.names;
        let message = format!(
            "{} runs an event loop and waits for {}{} in a callback of it; {tasks} task{} of the loop cannot go on.",
            names.party_in_full(&hold.holder),
            names.waited_for(wait),
            names.call(&hold.holder, wait.frame).phrase(),
            if tasks == 1 { "" } else { "s" },
        );
        Some(Draft {
            message,
            parties: vec![hold.holder.clone()],
            resources: vec![resource.key.clone()],
            ..Draft::default()
        })
    });
    loops.collect()
}
