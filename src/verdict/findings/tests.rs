//! Requirements that every finding must meet, so that none is left half explained.

use super::explanation::Toolkit;
use super::*;

/// The names of the contract.
const CODES: [&str; 44] = [
    "collective-mismatch",
    "cooperative-launch-starved",
    "cuda-after-fork",
    "cuda-call-at-exit",
    "cuda-call-in-host-function",
    "dead-process-holds-lock",
    "driver-library-mismatch",
    "event-loop-blocked",
    "executor-self-wait",
    "failed-launch",
    "file-lock-cycle",
    "finalizing-interpreter",
    "fork-orphaned-lock",
    "gil-held-in-blocking-cuda-call",
    "gil-vs-driver-callback",
    "gil-vs-host-function",
    "gil-vs-native-lock",
    "gpu-error-behind-hang",
    "import-cycle",
    "join-cycle",
    "kernel-never-ends",
    "launch-blocking-with-nccl",
    "lazy-loading-vs-running-kernel",
    "loader-lock-cycle",
    "lock-order-cycle",
    "lock-order-inversion",
    "lock-taken-again-in-finaliser",
    "lock-taken-again-in-signal-handler",
    "missing-rank",
    "nobody-left-to-wake",
    "owner-exited",
    "pipe-cycle",
    "pipe-without-writer",
    "pool-work-cycle",
    "pool-worker-died",
    "rank-cycle",
    "reader-behind-writer",
    "self-deadlock",
    "spinning-on-memory",
    "static-init-cycle",
    "stop-the-world-blocked",
    "stream-waits-value",
    "traced-or-stopped",
    "waiting-for-gpu",
];

#[test]
fn the_findings_are_those_of_the_contract() {
    let mut codes: Vec<_> = explanations().map(|explanation| explanation.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, CODES);
    assert!(CODES.iter().all(|code| explain(code).is_some()));
}

#[test]
fn every_finding_is_explained_in_full() {
    for rule in REGISTRY {
        assert_eq!(rule.read().1, Vec::<String>::new(), "{}", rule.code);
    }
    for Explanation { code, title, what, cause, help, fixes, .. } in explanations() {
        assert!(!title.is_empty() && !help.is_empty() && !fixes.is_empty(), "{code}");
        let prose = [what, cause].into_iter().chain(fixes.iter().map(|fix| &fix.text));
        for text in prose {
            assert!(text.len() > 40 && text.ends_with('.') && !text.contains("  "), "{code}: {text}");
        }
        let entries = help.iter().chain(fixes.iter().flat_map(|fix| &fix.help));
        for text in entries {
            assert!(text.len() > 15 && !text.ends_with('.') && !text.contains("  "), "{code}: {text}");
        }
        assert!(fixes.is_sorted_by(|one, next| one.with < next.with), "{code}: each toolkit once, in one order");
    }
}

#[test]
fn whoever_can_meet_the_gil_is_told_what_to_change() {
    use Toolkit::{C, CuPy, Cython, Numba, PyO3, PyTorch, Pybind11};
    let of_the_gil = |code: &str| code.starts_with("gil-") || code == "stop-the-world-blocked";
    for finding in explanations().filter(|finding| of_the_gil(finding.code)) {
        for toolkit in [Numba, CuPy, PyTorch, Pybind11, Cython, PyO3, C] {
            assert!(finding.fixes.iter().any(|fix| fix.with == toolkit), "{}: {toolkit}", finding.code);
        }
    }
}

#[test]
fn examples_are_small_and_complete() {
    for Explanation { code, example, .. } in explanations() {
        let (name, ending) = example.file.split_once('.').expect("an ending");
        assert_eq!(name, code.replace('-', "_"));
        assert!(["py", "c", "cpp", "sh"].contains(&ending), "{code}");
        assert!(example.command.contains(name), "{code}: {}", example.command);
        assert!(example.program.ends_with('\n') && (2..=30).contains(&example.program.lines().count()), "{code}");
        // It shall fit a terminal without a break.
        assert!(example.program.lines().all(|line| line.len() <= 100 && !line.ends_with(' ')), "{code}");
    }
}

#[test]
fn references_can_be_looked_up() {
    let is_thread = |text: &str| {
        let (repository, number) = text.split_once('#').unwrap_or_default();
        let (owner, name) = repository.split_once('/').unwrap_or_default();
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        is_name(owner) && is_name(name) && number.parse::<u32>().is_ok()
    };
    let is_manual = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        matches!(words[..], ["man", section, _] if section.parse::<u8>().is_ok())
    };
    let is_page = |text: &str| text.starts_with("https://") && !text.contains(' ');
    let is_titled =
        |text: &str| text.split_once(": ").is_some_and(|(book, page)| book.contains("API") && !page.is_empty());
    for finding in explanations() {
        assert!(!finding.references.is_empty(), "{}", finding.code);
        for text in &finding.references {
            let known = is_thread(text) || is_manual(text) || is_page(text) || is_titled(text);
            assert!(known, "{}: {text}", finding.code);
        }
    }
}
