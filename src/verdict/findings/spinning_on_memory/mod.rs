//! `spinning-on-memory`: a kernel had not ended, all its threads stand close together, and it has the address of a word of the host.
//!
//! In: the judged sample, with cores of GPUs and the words of the host that kernels have. Out: drafts of the finding,
//! one a kernel, in place of `kernel-never-ends`. Instructions of the GPU are not decoded: that the kernel waits for
//! the word is a guess, and said so.

use super::kernels::{not_ended, spun_on, waits_for_gpu};
use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::limits::verdict::KERNELS_TOLD;
use crate::report::Severity;
use crate::waits::circumstances::KernelWord;
use crate::waits::cuda::kernels::key;
use crate::waits::{Party, Wait};

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "spinning-on-memory",
    severity: Severity::Note,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "spinning_on_memory.py",
        program: include_str!("example.py"),
        command: "python3 spinning_on_memory.py",
        needs: Requirement::GpuCore,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for position in 0..context.input.image.processes.len() {
        let waits = waits_for_gpu(context, position);
        if waits.is_empty() {
            continue;
        }
        for (device, kernel) in context.input.gpu_cores.of(position).iter().flat_map(|core| core.kernels()) {
            let key = key(position, device, kernel);
            let words = spun_on(context, kernel, &key);
            if words.is_empty() || drafts.len() >= KERNELS_TOLD {
                continue;
            }
            let mut message = not_ended(context, &waits, device, kernel);
            let mut parties: Vec<Party> = waits.iter().map(|wait| wait.waiter.clone()).collect();
            for word in words {
                message += &told(context, word, &waits, &mut parties);
            }
            let resources = waits.iter().map(|wait| wait.resource.clone()).chain([key]).collect();
            drafts.push(Draft { message, parties, resources, ..Draft::default() });
        }
    }
    drafts
}

/// " Its argument 1 is 0x7f.., a word of the host's memory, which is 0x0. feeder (5) has that address, and waits for ..".
fn told(context: &Context<'_>, word: &KernelWord, waits: &[&Wait], parties: &mut Vec<Party>) -> String {
    let names = context.names;
    let value = word.word.unwrap_or_default();
    let mut text = format!(
        " Its argument {} is {}, a word of the host's memory, which is {value:#x}: it may wait for another value.",
        word.argument, word.address
    );
    let others = word.known_to.iter().filter(|party| !waits.iter().any(|wait| wait.waiter == **party));
    for party in others.take(THREADS) {
        let wait = context.input.observations.waits.iter().find(|wait| wait.waiter == *party);
        let does = match wait {
            Some(wait) => {
                format!("waits for {}{}", names.waited_for(wait), names.call(party, wait.frame).phrase())
            }
            None => "is in no known wait".to_owned(),
        };
        text += &format!(" {} has that address, and {does}.", names.party(party));
        parties.push(party.clone());
    }
    text
}

/// At most this many threads with the address are in the message.
const THREADS: usize = 3;
