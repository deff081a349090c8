//! README and the manual: what they show is what the program prints, and what they link to is there.

use std::path::Path;
use std::process::Command;

use crate::harness::{Target, lockscope, testdata};

/// How long README may be: all else is a page of the manual.
const MOST_LINES: usize = 120;
/// The line of README behind which the report stands.
const COMMAND: &str = "$ lockscope demo\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("readable")
}

/// The block of code of `path` that begins with the first `start` must be `text`. LOCKSCOPE_UPDATE=1 puts it there.
pub(crate) fn shows(path: &Path, start: &str, text: &str) {
    let page = read(path);
    let (before, rest) = page.split_once(start).expect("the block begins");
    let (shown, behind) = rest.split_once("\n```\n").expect("the block ends");
    if std::env::var_os("LOCKSCOPE_UPDATE").is_some() {
        std::fs::write(path, format!("{before}{start}{text}\n```\n{behind}")).expect("written");
        return;
    }
    assert_eq!(shown, text, "LOCKSCOPE_UPDATE=1 writes {} anew", path.display());
}

/// The sentence, the parties and the first advice: what README shows of a report.
fn gist(report: &str) -> String {
    let head = report.split("\n\n").next().expect("a head");
    let advice = report.lines().skip_while(|line| !line.starts_with("help: "));
    let advice: Vec<&str> =
        advice.enumerate().take_while(|(at, line)| *at == 0 || line.starts_with(' ')).map(|(_, line)| line).collect();
    [head, &advice.join("\n")].join("\n\n")
}

/// The same without what differs from run to run: ids, addresses and the columns that these make wider.
fn steady(text: &str) -> String {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // How long they had waited: `waiting for 2.0 s, held by` is `waits, held by`.
    while let Some(at) = words.iter().position(|word| *word == "waiting") {
        let is_last = words.get(at + 3).is_some_and(|unit| !unit.ends_with(','));
        words.splice(at..(at + 4).min(words.len()), [if is_last { "waits" } else { "waits," }]);
    }
    let words = words.into_iter().map(|word| {
        let bare = word.trim_matches(['(', ')', ',']);
        let is_number = bare.len() > 1 && bare.bytes().all(|byte| byte.is_ascii_digit());
        if bare.starts_with("0x") {
            "ADDRESS"
        } else if is_number {
            "ID"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn readme_begins_with_what_the_program_prints() {
    let python = Command::new("python3").arg("-V").output();
    if !python.is_ok_and(|output| output.status.success()) {
        return crate::harness::skipped!("no python3");
    }
    let output = lockscope().arg("demo").current_dir("/").output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The first report.
    let text = gist(&String::from_utf8_lossy(&output.stdout));
    assert!(text.lines().count() <= 12, "README begins with some ten lines: {text}");
    let readme = root().join("README.md");
    let page = read(&readme);
    let shown =
        page.split_once(COMMAND).and_then(|(_, rest)| rest.split_once("\n```\n")).expect("the report in README").0;
    if steady(shown) != steady(&text) {
        shows(&readme, COMMAND, &text);
    }
}

#[test]
fn readme_is_short_and_its_links_lead_somewhere() {
    let page = read(&root().join("README.md"));
    assert!(page.lines().count() <= MOST_LINES, "README.md has {} lines", page.lines().count());
    for target in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(root().join(target).exists(), "README.md links to {target}");
    }
    for entry in std::fs::read_dir(root().join("src/manual")).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            assert!(page.contains(&format!("](src/manual/{name})")), "README.md does not link to {name}");
        }
    }
    let rust = format!("Rust {} or newer", env!("CARGO_PKG_RUST_VERSION"));
    assert!(page.contains(&rust), "README.md names another Rust than Cargo.toml: {rust}");
    // The commands that a newcomer types first.
    for command in ["cargo run --release -- demo\n", "scripts/test\n"] {
        assert!(page.contains(&format!("```\n{command}```\n")), "{command}");
    }
}

/// scripts/measure/install.py writes the file.
#[test]
fn readme_says_what_an_installation_costs() {
    let measured = read(&testdata("install.tsv"));
    let value = |what: &str| {
        let row = measured.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix('\t'));
        row.and_then(|value| value.parse::<u64>().ok()).unwrap_or_else(|| panic!("no {what}: {measured}"))
    };
    let minutes = value("processor seconds of the build").div_ceil(60);
    let megabytes = (value("bytes of the program") + 500_000) / 1_000_000;
    let page = read(&root().join("README.md"));
    for words in [
        format!("The first build takes {minutes} minutes of processor time"),
        format!("one static program of {megabytes} MB"),
    ] {
        assert!(page.contains(&words), "README.md does not say: {words}");
    }
}

#[test]
fn a_process_can_be_named_and_wrong_words_are_put_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join(format!("service-{}.py", std::process::id()));
    std::fs::copy(testdata("orders/service.py"), &script).expect("copied");
    let name = script.file_name().expect("a name").to_string_lossy().into_owned();
    let target = Target::start(Command::new("python3").arg(&script)).settle(3);
    let said = |words: &[&str]| {
        let output = lockscope().args(words).output().expect("it runs");
        (output.status.code(), [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    let (code, [line, errors]) = said(&["attach", &name, "--format", "short"]);
    let place = format!("{}:", script.display());
    assert_eq!((code, line.lines().count()), (Some(1), 1), "{line}{errors}");
    let words: Vec<&str> = line.trim_end().split('\t').collect();
    assert_eq!(words[..2], ["deadlock", "lock-order-cycle"], "{line}");
    assert_eq!(words[2], target.pid().to_string(), "{line}");
    assert!(words.len() == 7 && words[4..6].iter().all(|word| word.starts_with(&place)), "{line}");
    assert!(words[6].contains("are taken in different orders"), "{line}");

    let (code, [line, errors]) = said(&["attach", &name, "--quiet"]);
    assert_eq!((code, line.as_str(), errors.as_str()), (Some(1), "", ""));
    let (_, [colored, _]) = said(&["attach", &name, "--color", "always"]);
    assert!(colored.contains("\u{1b}["), "{colored}");

    let twin = Target::start(Command::new("python3").arg(&script)).settle(3);
    let (code, [_, errors]) = said(&["attach", &name]);
    assert!(code == Some(2) && errors.starts_with("error: 2 processes are called"), "{errors}");
    for pid in [target.pid(), twin.pid()] {
        assert!(errors.contains(&format!("\nhint: lockscope attach {pid}")), "{errors}");
    }

    let pid = target.pid().to_string();
    for (words, code, meant) in [
        (&[pid.as_str()][..], 2, format!("hint: `lockscope attach {pid}`")),
        (&["dump", "--pid", &pid], 2, format!("hint: `lockscope attach {pid}`")),
        (&["explain", "lock-order-c"], 2, "hint: `lockscope explain lock-order-cycle`".into()),
        (&["help", "container"], 2, "hint: similar: containers".into()),
        (&["run", "--timout", "5", "--", "true"], 125, "'--timeout'".into()),
        (&["run", "-v", "true"], 125, "unexpected argument '-v'".into()),
    ] {
        let (status, [_, errors]) = said(words);
        assert!(status == Some(code) && errors.contains(&meant), "{words:?}: {status:?}: {errors}");
    }
}

/// scripts/check/kills.py, scripts/measure/max-pause.py and scripts/measure/large-targets.py write the files.
#[test]
fn the_page_on_safety_shows_what_was_measured() {
    let path = root().join("src/manual/safety.md");
    for name in ["kills", "pauses", "large"] {
        let measured = read(&root().join("testdata/safety").join(name).with_extension("tsv"));
        let mut rows = measured.lines().map(|line| format!("| {} |\n", line.replace('\t', " | ")));
        let head = rows.next().expect("a head");
        let rule = format!("|{}\n", "---|".repeat(head.matches(" |").count()));
        let table: String = [rule].into_iter().chain(rows).collect();
        let page = read(&path);
        let (before, rest) = page.split_once(&head).unwrap_or_else(|| panic!("the table of {name} is not there"));
        let (shown, behind) = rest.split_once("\n\n").map_or((rest, ""), |(shown, behind)| (shown, behind));
        if std::env::var_os("LOCKSCOPE_UPDATE").is_some() {
            std::fs::write(&path, format!("{before}{head}{table}\n{behind}")).expect("written");
            continue;
        }
        assert_eq!(shown.trim_end(), table.trim_end(), "LOCKSCOPE_UPDATE=1 writes {} anew", path.display());
    }
}
