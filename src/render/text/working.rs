//! How a thread was read, step by step, with what to type into gdb to see the same.
//!
//! In: a thread's [`Working`] and the report's waits and holds. Out: lines on a [`Page`]. It says nothing
//! that the report does not.

use super::page::Page;
use super::within;
use crate::render::known_how;
use crate::render::view::{NO_BREAK, View, keep_together};
use crate::report::{FrameKind, Hold, Thread, Trust, Wait, Words, Working};

/// At most this many frames of the native stack are shown with their registers: the waiting call is among the
/// innermost.
const FRAMES: usize = 12;
/// Words of memory in a line, as gdb prints them.
const WORDS_A_LINE: usize = 4;

/// Native frames as they were unwound, then the Python frames by themselves.
pub(super) fn raw(view: &View, process: &str, thread: &Thread, page: &mut Page) {
    let Some(working) = &thread.working else { return };
    page.plain(&format!("native stack of {}:", view.thread_name(process, thread.tid)));
    for (index, frame) in working.native.iter().enumerate() {
        let found = if frame.trust == Trust::Cfi { String::new() } else { format!("  ({})", frame.trust.as_str()) };
        page.frame(&format!("  #{index:<3} {}  {}{found}", frame.pc, native_name(frame)));
    }
    page.plain(&format!("     the end: {}", working.end));
    let python: Vec<_> = thread.frames.iter().filter(|frame| frame.kind == FrameKind::Python).collect();
    if !python.is_empty() {
        page.plain(&format!("Python stack of {}:", view.thread_name(process, thread.tid)));
    }
    for (index, frame) in python.iter().enumerate() {
        let file = frame.file.as_deref().unwrap_or("?");
        let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
        page.frame(&format!("  #{index:<3} {}  {file}{line}", crate::render::view::function_name(frame)));
    }
}

/// `cuLaunchKernel  libcuda.so.1+0x2f41`.
fn native_name(frame: &crate::report::NativeFrame) -> String {
    let place = match (&frame.module, &frame.module_offset) {
        (Some(module), Some(offset)) => format!("{module}+{offset}"),
        _ => "in no known file".to_owned(),
    };
    frame.function.as_ref().map_or(place.clone(), |function| format!("{}  {place}", keep_together(function)))
}

/// Each step from the registers to the holds.
pub(super) fn steps(view: &View, process: &str, thread: &Thread, page: &mut Page) {
    let Some(working) = &thread.working else { return };
    page.plain(&format!("how {} was read:", view.thread_name(process, thread.tid)));
    kernel(thread, working, page);
    frames(working, page);
    let waits = view.waits_of(process, thread.tid);
    for wait in waits {
        waiting(view, wait, page);
    }
    if waits.is_empty() {
        page.paragraph(
            "     ",
            "  -  no wait was recognised: it is in no call that waits for a lock, a descriptor or another process",
        );
    }
    for hold in view.holds_by(process, thread.tid) {
        held(view, hold, page);
    }
    for words in &working.memory {
        memory(view, words, page);
    }
    page.plain(&format!("     in gdb: thread find {}; info registers; bt", thread.tid));
}

fn kernel(thread: &Thread, working: &Working, page: &mut Page) {
    let call = match &working.system_call {
        Some(call) => {
            let name = call.name.clone().unwrap_or_else(|| format!("system call {}", call.number));
            format!("in {name}({})", call.arguments.join(", "))
        }
        None => "in no system call".to_owned(),
    };
    page.paragraph("     ", &format!("  1  the kernel says {}; {call}", thread.state.as_str()));
    if !working.registers.is_empty() {
        page.paragraph("     ", &format!("  2  registers: {}", pairs(&working.registers)));
    }
}

fn frames(working: &Working, page: &mut Page) {
    page.paragraph("     ", &format!("  3  {} native frames; the end: {}", working.native.len(), working.end));
    for (index, frame) in working.native.iter().take(FRAMES).enumerate() {
        let frame_address = frame.cfa.as_deref().map(|cfa| format!(", CFA{NO_BREAK}{cfa}")).unwrap_or_default();
        page.paragraph(
            "          ",
            &format!(
                "     #{index:<2} pc{NO_BREAK}{} by {}: {}; sp{NO_BREAK}{}{frame_address}; {}",
                frame.pc,
                frame.trust.as_str(),
                native_name(frame),
                frame.sp,
                pairs(&frame.registers)
            ),
        );
    }
}

fn waiting(view: &View, wait: &Wait, page: &mut Page) {
    let call = within(view.wait_call(wait));
    let sure = known_how(wait.certainty, wait.proof);
    page.paragraph("     ", &format!("  4  it {}{call}: {sure}", view.wait_statement(wait)));
    evidence(&wait.evidence, page);
    for hold in view.holds_of(&wait.resource) {
        let who = view.holder_name(hold);
        page.paragraph(
            "     ",
            &format!("  5  {who} {}: {}", view.hold_statement(hold), known_how(hold.certainty, hold.proof)),
        );
        evidence(&hold.evidence, page);
    }
    if view.holds_of(&wait.resource).is_empty() {
        page.paragraph("     ", "  5  who could end this wait is not known");
    }
}

fn held(view: &View, hold: &Hold, page: &mut Page) {
    let call = within(view.hold_call(hold));
    page.paragraph(
        "     ",
        &format!("  -  it {}{call}: {}", view.hold_statement(hold), known_how(hold.certainty, hold.proof)),
    );
    evidence(&hold.evidence, page);
}

fn evidence(evidence: &[String], page: &mut Page) {
    for one in evidence {
        page.paragraph("          ", &format!("        {one}"));
    }
}

fn memory(view: &View, words: &Words, page: &mut Page) {
    page.paragraph("     ", &format!("  -  memory of {}:", view.resource_name(&words.resource)));
    if let Some(resource) = view.resource(&words.resource).filter(|resource| !resource.state.is_empty()) {
        let state: Vec<String> = resource.state.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        page.paragraph("          ", &format!("        decoded: {}", state.join(", ")));
    }
    for line in words.words.chunks(WORDS_A_LINE) {
        page.plain(&format!("        {}", line.join(" ")));
    }
    page.plain(&format!("        in gdb: x/{}xw {}", words.words.len(), words.address));
}

fn pairs(registers: &[(String, String)]) -> String {
    let pairs: Vec<String> = registers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if pairs.is_empty() { "no register is known".to_owned() } else { pairs.join(" ") }
}
