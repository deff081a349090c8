//! Pictures of difficult reports, in all formats: well formed, bounded, and no name more than a name.

use roxmltree::{Document, Node};

use super::text::tests::{empty, seed};
use super::{Format, Style, render};
use crate::report::{Cycle, Edge, Hold, Process, Report, Resource, Thread, Wait};

/// Markup, quotes, control characters, marks that reorder lines, what XML cannot contain, and no end.
fn hostile() -> String {
    let odd = "</title></style><script>alert(1)</script><img src=x onerror=y>]]>&amp;\"'`|%%{};end\u{1b}[31m\u{0}\r\n\u{202e}\u{61c}\u{ffff}\u{fffd}";
    odd.repeat((64 << 10) / odd.len())
}

/// Threads in a ring: each has a lock that the one before it waits for. `a_process` is the number of threads in a
/// process.
fn ring(count: usize, a_process: usize) -> Report {
    let model = seed();
    let (thread, resource) = (&model.processes[0].threads[0], &model.resources[0]);
    let (wait, hold) = (&model.waits[0], &model.holds[0]);
    let mut report = Report { summary: "a ring".into(), verdict: model.verdict, ..empty() };
    let process = |number: usize| format!("p{}", number / a_process);
    let tid = |number: usize| 1000 + number as i32;
    for number in 0..count {
        if number % a_process == 0 {
            report.processes.push(Process { id: process(number), threads: Vec::new(), ..model.processes[0].clone() });
        }
        let thread = Thread { tid: tid(number), frames: Vec::new(), ..thread.clone() };
        report.processes.last_mut().expect("just added").threads.push(thread);
        let (next, lock) = ((number + 1) % count, format!("r{number}"));
        report.resources.push(Resource {
            id: lock.clone(),
            process: process(next),
            kind: "pipe".into(),
            ..resource.clone()
        });
        let to = (process(next), Some(tid(next)));
        report.waits.push(Wait {
            process: process(number),
            tid: Some(tid(number)),
            resource: lock.clone(),
            ..wait.clone()
        });
        report.holds.push(Hold { process: to.0, tid: to.1, resource: lock, ..hold.clone() });
    }
    let edges = (0..count).map(|number| Edge {
        process: process(number),
        waiter: Some(tid(number)),
        waiter_resource: None,
        resource: format!("r{number}"),
        holder_process: process((number + 1) % count),
        holder: Some(tid((number + 1) % count)),
        holder_resource: None,
        proof: crate::report::Proof::Recorded,
    });
    report.cycles.push(Cycle { certainty: crate::report::Certainty::Exact, edges: edges.collect() });
    report
}

/// Every string of the target is hostile, also ids.
fn hostile_ring() -> Report {
    let mut report = ring(4, 2);
    let odd = hostile();
    report.summary = odd.clone();
    for process in &mut report.processes {
        process.exe = Some(odd.clone());
        process.cmdline = vec![odd.clone()];
        process.threads.iter_mut().for_each(|thread| thread.name = odd.clone());
    }
    report
        .resources
        .iter_mut()
        .for_each(|resource| (resource.label, resource.parts) = (odd.clone(), odd.as_str().into()));
    report.waits.iter_mut().for_each(|wait| (wait.mode, wait.evidence) = (Some(odd.clone()), vec![odd.clone()]));
    report.holds.iter_mut().for_each(|hold| (hold.mode, hold.evidence) = (Some(odd.clone()), vec![odd.clone()]));
    report
}

/// Names that are nothing, and a thing that waits for itself, twice.
fn nameless() -> Report {
    let mut report = ring(2, 1);
    report.processes.iter_mut().for_each(|process| (process.exe, process.cmdline) = (Some(String::new()), Vec::new()));
    report.resources.iter_mut().for_each(|resource| {
        (resource.id, resource.kind, resource.label) = (String::new(), String::new(), String::new());
        (resource.address, resource.parts) = (None, Default::default());
    });
    report.waits.iter_mut().for_each(|wait| {
        (wait.tid, wait.waiter_resource, wait.resource) = (None, Some(String::new()), String::new());
    });
    report.holds.iter_mut().for_each(|hold| (hold.tid, hold.resource) = (None, String::new()));
    report
}

fn reports() -> Vec<(&'static str, Report)> {
    vec![
        ("seed", seed()),
        ("two processes", ring(2, 1)),
        ("threads of two processes", ring(6, 3)),
        ("500 in a ring", ring(500, 500)),
        ("500 processes in a ring", ring(500, 1)),
        ("hostile", hostile_ring()),
        ("nameless", nameless()),
        ("empty", empty()),
    ]
}

fn rendered(report: &Report, format: Format) -> String {
    let mut bytes = Vec::new();
    render(report, format, &Style::plain(), &mut bytes).expect("memory takes it");
    String::from_utf8(bytes).expect("UTF-8")
}

fn with_class<'a>(document: &'a Document, class: &str) -> Vec<Node<'a, 'a>> {
    let has = |node: &Node| node.attribute("class").is_some_and(|all| all.split(' ').any(|one| one == class));
    document.descendants().filter(has).collect()
}

#[test]
fn svg_is_xml_without_anything_active() {
    for (name, report) in reports() {
        let text = rendered(&report, Format::Svg);
        let document = Document::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for node in document.descendants().filter(Node::is_element) {
            let known = ["svg", "title", "style", "defs", "marker", "path", "rect", "g", "text"];
            assert!(known.contains(&node.tag_name().name()), "{name}: {node:?}");
            let odd = node.attributes().find(|one| one.name().starts_with("on") || one.name().contains("href"));
            assert!(odd.is_none(), "{name}: {odd:?}");
        }
        assert!(text.len() < 200_000, "{name}: {} bytes", text.len());
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{61c}', '\u{ffff}', '\r']), "{name}");
    }
}

#[test]
fn each_of_several_processes_has_a_frame_and_what_is_between_them_stands_outside() {
    let text = rendered(&ring(6, 3), Format::Svg);
    let document = Document::parse(&text).expect("XML");
    assert_eq!(with_class(&document, "frame").len(), 2);
    assert_eq!((with_class(&document, "thread").len(), with_class(&document, "outside").len()), (6, 6));
    assert_eq!(with_class(&document, "link").len(), 12);
    let text = rendered(&ring(6, 6), Format::Svg);
    assert!(with_class(&Document::parse(&text).expect("XML"), "frame").is_empty());
}

#[test]
fn a_hold_of_a_whole_process_is_one_of_its_only_thread_or_of_its_frame() {
    for (a_process, threads, frames) in [(1, 2, 0), (3, 6, 2)] {
        let mut report = ring(2 * a_process, a_process);
        report.holds.iter_mut().for_each(|hold| hold.tid = None);
        report.cycles[0].edges.iter_mut().for_each(|edge| edge.holder = None);
        let text = rendered(&report, Format::Svg);
        let document = Document::parse(&text).expect("XML");
        assert_eq!(with_class(&document, "thread").len(), threads);
        let red = with_class(&document, "frame")
            .iter()
            .filter(|frame| frame.attribute("class") == Some("frame cycle"))
            .count();
        assert_eq!(red, frames, "{text}");
    }
}

#[test]
fn dot_and_mermaid_have_a_cluster_for_each_process_and_every_string_is_quoted() {
    for (name, report) in reports() {
        let dot = rendered(&report, Format::Dot);
        let mermaid = rendered(&report, Format::Mermaid);
        for text in [&dot, &mermaid] {
            assert!(!text.contains(['\u{1b}', '\u{0}', '\u{202e}', '\r']), "{name}");
            let opened = text.lines().filter(|line| line.trim_start().starts_with("subgraph ")).count();
            let closed = text.lines().filter(|line| ["end", "  }"].contains(line) || line.trim() == "end").count();
            assert_eq!(opened, closed, "{name}: {text:.2000}");
            assert!(report.processes.len() < 2 || opened > 1 || name == "nameless", "{name}: {text:.2000}");
        }
        for line in dot.lines().filter(|line| line.contains('"')) {
            let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
            assert_eq!(quotes % 2, 0, "{name}: {line:.2000}");
        }
        for line in mermaid.lines() {
            let pieces: Vec<&str> = line.split('"').collect();
            assert_eq!(pieces.len() % 2, 1, "{name}: {line:.2000}");
            for quoted in pieces.iter().skip(1).step_by(2) {
                assert!(!quoted.is_empty() && !quoted.contains(['<', '>', '&', '`', '\\']), "{name}: {quoted:.2000}");
            }
        }
    }
}

#[test]
fn pages_are_small() {
    for (name, report) in reports() {
        let page = rendered(&report, Format::Html);
        assert!(page.len() < 1 << 20, "{name}: {} bytes", page.len());
        assert!(rendered(&report, Format::Markdown).len() < 65_536, "{name}");
    }
}
