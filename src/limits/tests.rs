use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The modules that read foreign data. The bounds of the others limit their output, or how long they wait.
const READERS: [&str; 28] = [
    "cli/provoke",
    "provoke",
    "cli/digests",
    "cli/record",
    "cli/requests",
    "forecast",
    "recorder/calls",
    "recorder/inversions",
    "recorder/orders",
    "job",
    "launcher",
    "analysis",
    "arch",
    "code",
    "gpu",
    "graph",
    "image",
    "memory",
    "modules",
    "python",
    "recorder/table",
    "run",
    "snapshot",
    "symbols",
    "threads",
    "unwind",
    "verdict",
    "waits",
];

/// Files whose bounds stand beside them: the budget of memory counts itself what it refuses.
const OF_THEIR_OWN: [&str; 2] = ["src/image/budget.rs", "src/image/budget/"];

/// Methods that cut off what comes behind a number.
const CUTS: [&str; 7] = [".take(", ".bounded(", ".truncate(", ".inside(", ".names(", ".registers(", ".top("];

/// How constants that bound something are called.
const BEGINNINGS: [&str; 6] = ["MOST", "LARGEST", "LONGEST", "DEEPEST", "GREATEST", "MAX"];
const ENDS: [&str; 3] = ["LIMIT", "FRAMES", "_BYTES"];

fn sources() -> Vec<(String, String)> {
    fn add(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the source").map(|entry| entry.expect("an entry").path())
        {
            match entry.is_dir() {
                true => add(&entry, files),
                false => files.push(entry),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for reader in READERS {
        let (folder, file) = (root.join("src").join(reader), root.join("src").join(format!("{reader}.rs")));
        assert!(folder.is_dir() || file.is_file(), "there is no {reader}");
        match folder.is_dir() {
            true => add(&folder, &mut files),
            false => files.push(file),
        }
    }
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root).expect("below it").to_string_lossy().into_owned();
        let is_code = name.ends_with(".rs") && !name.ends_with("tests.rs") && !name.ends_with("testing.rs");
        is_code.then(|| (name, code(&fs::read_to_string(path).expect("a source file"))))
    };
    files.into_iter().filter_map(read).collect()
}

/// A file without comments and the tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The bounds in a file that are no row of the table: constants that are called like one, and bare numbers.
fn bounds_of_its_own(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines().map(str::trim) {
        let line = line.strip_prefix("pub").map_or(line, |rest| rest.split_once("const").map_or(rest, |_| rest));
        let Some(at) = line.find("const ") else { continue };
        let Some((name, rest)) = line[at + 6..].split_once(':') else { continue };
        let is_number = ["usize", "u64", "u32", "u16", "u8", "i64", "i32"].iter().any(|it| rest.trim().starts_with(it));
        let begins = BEGINNINGS.iter().any(|word| name.split('_').next() == Some(word));
        if is_number && (begins || ENDS.iter().any(|word| name.ends_with(word))) {
            found.push(line.to_owned());
        }
    }
    for cut in CUTS {
        for (at, _) in code.match_indices(cut) {
            let argument: String =
                code[at + cut.len()..].chars().take_while(|letter| !",)".contains(*letter)).collect();
            let argument = argument.trim();
            let is_number = argument.chars().all(|letter| letter.is_ascii_digit() || "_<> ".contains(letter));
            // The next one or two of something, a pair: no bound on how much there is.
            if is_number && !["", "0", "1", "2", "3"].contains(&argument) {
                found.push(format!("{cut}{argument}"));
            }
        }
    }
    found
}

#[test]
fn no_bound_over_foreign_data_stands_outside_the_table() {
    let mut wrong = Vec::new();
    for (name, code) in sources() {
        if !OF_THEIR_OWN.iter().any(|own| name.starts_with(own)) {
            wrong.extend(bounds_of_its_own(&code).into_iter().map(|bound| format!("{name}: {bound}")));
        }
    }
    assert!(wrong.is_empty(), "rows of src/limits/table.rs that are missing: {wrong:#?}");
}

#[test]
fn bounds_of_a_files_own_are_found() {
    for bound in [
        "const MOST_TASKS: usize = 256;",
        "    pub(crate) const LARGEST_NOTE: u64 = 1 << 20;",
        "const FRAMES: usize = 8;",
        "list.iter().take(512)",
        "list.truncate(1 << 20)",
        "thread.inside(8, &[])",
    ] {
        assert_eq!(bounds_of_its_own(bound).len(), 1, "{bound}");
    }
    for other in [
        "const NODE: u64 = 136;",
        "list.iter().take(MOST_TASKS)",
        "slots.take(2)",
        "list.take()",
        "const MOST: &str = \"\";",
    ] {
        assert!(bounds_of_its_own(other).is_empty(), "{other}");
    }
}

#[test]
fn every_row_is_used_and_one_that_becomes_a_gap_is_told() {
    let sources = sources();
    let is_word = |code: &str, word: &str| {
        let parts = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        parts.into_iter().any(|part| part == word)
    };
    let mut seen = BTreeSet::new();
    for row in table::ROWS {
        assert!(seen.insert((row.area, row.name)), "{}::{} stands there twice", row.area, row.name);
        assert!(row.value > 0 && !row.why.trim().is_empty() && !row.said.is_empty(), "{row:?}");
        let path = format!("limits::{}::", row.area);
        let users: Vec<&(String, String)> =
            sources.iter().filter(|(_, code)| code.contains(&path) && is_word(code, row.name)).collect();
        assert!(!users.is_empty(), "nothing is bounded by {}::{}", row.area, row.name);
        if row.when == When::Gap {
            let calls = ["limits::met(", "limits::tell(", ".bounded(", ".bounded_sequence(", "Met::of("];
            let tells = users.iter().any(|(_, code)| {
                calls.iter().any(|call| {
                    // The bound or, where the call does not name it, the function that passes it on.
                    code.match_indices(call)
                        .any(|(at, _)| is_word(&code[at..].chars().take(400).collect::<String>(), row.name))
                })
            });
            let passes_on = ["SUSPENDED_STACKS", "NESTED_STACKS"].contains(&row.name);
            assert!(tells || passes_on, "nobody tells that {}::{} was met", row.area, row.name);
        }
    }
}

#[test]
fn what_is_left_out_is_told_once_and_not_without_end() {
    begin();
    let five = || 0..5;
    assert_eq!(five().bounded(5, || unreachable!(), "numbers").count(), 5);
    assert!(told().is_empty());
    assert_eq!(five().bounded(4, || "a list".into(), "numbers").collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(five().bounded(4, || "a list".into(), "numbers").last(), Some(3));
    let all = told();
    assert!(all.len() == 1 && all[0].what == "a list", "{all:?}");
    assert!(all[0].why.ends_with("no more than 4 numbers") && told().is_empty(), "{all:?}");
    (0..1000).for_each(|number| met(number, "a list", "numbers"));
    let all = told();
    assert!(all.len() == MOST_TOLD && all.last().is_some_and(|last| last.why.contains("more of")), "{all:?}");
    met(1, "a list", "numbers");
    begin();
    assert!(told().is_empty());
}
