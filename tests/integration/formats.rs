//! Every format of one report says the same: what each must say is derived from the JSON of the same look.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::harness::{lockscope, report, testdata};

/// Those for people, and those that are pictures.
const TEXTS: [&str; 3] = ["txt", "html", "md"];
const PICTURES: [&str; 3] = ["svg", "dot", "mmd"];

/// One report in each format, by ending, with line breaks and escapes of the format undone.
fn formats(snapshot: &Path) -> (Value, BTreeMap<&'static str, String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<_> =
        TEXTS.iter().chain(&PICTURES).map(|ending| folder.path().join("hang").with_extension(ending)).collect();
    let json = folder.path().join("hang.json");
    let to: Vec<&Path> = files.iter().chain([&json]).map(|path| path.as_path()).collect();
    let output = report("core", [snapshot.display().to_string()].into_iter(), &to);
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    let read = |path: &Path| std::fs::read_to_string(path).expect("written");
    let texts = TEXTS.iter().chain(&PICTURES).zip(&files).map(|(ending, path)| (*ending, plain(&read(path))));
    (serde_json::from_str(&read(&json)).expect("JSON"), texts.collect())
}

/// Words with one space between; entities, backslashes and the tags of a page are gone.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut in_tag = false;
    let is_page = text.starts_with('<');
    for letter in text.chars() {
        match letter {
            '<' if is_page => in_tag = true,
            '>' if is_page && in_tag => {
                in_tag = false;
                // A tag ends a word only where it is no inline one; more spaces do no harm.
                shown.push(' ');
            }
            _ if in_tag => {}
            '\\' | '`' => {}
            other => shown.push(other),
        }
    }
    for code in b' '..=b'~' {
        shown = shown.replace(&format!("#{code};"), &char::from(code).to_string());
    }
    for (entity, letter) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("#quot;", "\""), ("&amp;", "&")] {
        shown = shown.replace(entity, letter);
    }
    words(&shown)
}

fn words(text: &str) -> String {
    text.replace('`', "").replace('\u{a0}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// "MainThread (533)": how a thread is called.
fn thread(json: &Value, process: &Value, tid: &Value) -> String {
    let process = list(json, "processes").iter().find(|one| one["id"] == *process).expect("its process");
    let thread = list(process, "threads").iter().find(|one| one["tid"] == *tid).expect("its thread");
    words(&format!("{} ({tid})", thread["name"].as_str().expect("a name")))
}

/// Whose code the threads of a finding run.
fn owners(json: &Value, finding: &Value) -> BTreeSet<String> {
    let threads = list(finding, "threads").iter().filter_map(|member| {
        let process = list(json, "processes").iter().find(|process| process["id"] == member["process"])?;
        list(process, "threads").iter().find(|thread| thread["tid"] == member["tid"])
    });
    let frames = threads.flat_map(|thread| list(thread, "frames"));
    frames.filter_map(|frame| frame["belongs_to"].as_str()).map(str::to_lowercase).collect()
}

/// What every text must say.
fn said_in_texts(json: &Value) -> Vec<String> {
    let text = |value: &Value| words(value.as_str().expect("a text"));
    let mut said = Vec::new();
    if json["verdict"] != "running" && json["verdict"] != "blocked" {
        said.push(text(&json["verdict"]).replace('-', " "));
    }
    for finding in list(json, "findings") {
        said.extend([text(&finding["code"]), text(&finding["title"])]);
        said.extend(list(finding, "help").iter().map(text));
        let owners = owners(json, finding);
        let is_similar = |reference: &String| {
            let project = reference.split_once('#').and_then(|(project, _)| project.split('/').nth(1));
            project.is_some_and(|project| owners.contains(&project.to_lowercase()))
        };
        said.extend(list(finding, "references").iter().map(text).filter(is_similar));
    }
    for gap in list(json, "gaps") {
        said.extend([text(&gap["what"]), text(&gap["why"])]);
    }
    if let Some(cycle) = list(json, "cycles").first() {
        for edge in list(cycle, "edges") {
            said.push(thread(json, &edge["process"], &edge["waiter"]));
            let waits = list(json, "waits")
                .iter()
                .find(|wait| wait["tid"] == edge["waiter"] && wait["resource"] == edge["resource"]);
            said.extend(list(waits.expect("its wait"), "evidence").iter().map(text));
            said.push(match edge["proof"].as_str().expect("its proof") {
                "recorded" => "recorded".to_owned(),
                "code" => "by code".to_owned(),
                _ => "absence".to_owned(),
            });
        }
    }
    said.push(format!("captured {} thread", json["capture"]["threads"]));
    said
}

/// What every picture must show: the members of all cycles and what is between them.
fn shown_in_pictures(json: &Value) -> Vec<String> {
    let edges = || list(json, "cycles").iter().flat_map(|cycle| list(cycle, "edges"));
    let mut shown: Vec<String> = edges().map(|edge| thread(json, &edge["process"], &edge["waiter"])).collect();
    for edge in edges() {
        let resource = list(json, "resources").iter().find(|one| one["id"] == edge["resource"]).expect("it is listed");
        shown.push(words(resource["label"].as_str().expect("a label").split(" in").next().expect("a part")));
    }
    shown
}

/// `rapidsai/dask-cuda#501` as text has it: an address that can be followed.
fn linked(fact: &str) -> String {
    fact.split_once('#')
        .map_or_else(|| fact.to_owned(), |(project, number)| format!("github.com/{project}/issues/{number}"))
}

#[test]
fn each_format_of_a_report_says_what_its_json_says() {
    let mut cycles = 0;
    for entry in std::fs::read_dir(testdata("gpu")).expect("snapshots") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "zst") {
            continue;
        }
        let (json, formats) = formats(&path);
        cycles += list(&json, "cycles").len();
        for (endings, facts) in [(TEXTS, said_in_texts(&json)), (PICTURES, shown_in_pictures(&json))] {
            for (ending, fact) in endings.iter().flat_map(|ending| facts.iter().map(move |fact| (ending, fact))) {
                assert!(
                    formats[ending].contains(fact) || formats[ending].contains(&linked(fact)),
                    "{}.{ending} does not say {fact:?}:\n{}",
                    path.display(),
                    formats[ending]
                );
            }
        }
    }
    assert!(cycles > 3, "the snapshots have cycles");
    let (_, formats) = formats(&testdata("gpu/nccl-launch-blocking.snapshot.zst"));
    assert!(formats["txt"].contains("github.com/NVIDIA/nccl/issues/750"), "{}", formats["txt"]);
    assert!(!formats["txt"].contains("issues/109074"), "of PyTorch, which takes no part: {}", formats["txt"]);
}

/// What README and the manual show of a deadlock on a real GPU, as text and as picture. LOCKSCOPE_UPDATE=1 writes it anew.
#[test]
fn what_the_readme_shows_is_what_the_tool_makes() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for ending in ["txt", "svg"] {
        let made = folder.path().join("hang").with_extension(ending);
        let mut run = lockscope();
        // The report names the file as it was named.
        run.current_dir(root).args(["core", "testdata/gpu/occupancy-launch.snapshot.zst", "-o"]).arg(&made);
        assert_eq!(run.output().expect("it runs").status.code(), Some(1));
        let kept = testdata("gpu/occupancy-launch").with_extension(ending);
        if std::env::var_os("LOCKSCOPE_UPDATE").is_some() {
            std::fs::copy(&made, &kept).expect("copied");
        }
        let read = |path: &Path| std::fs::read_to_string(path).expect("readable");
        assert_eq!(read(&made), read(&kept), "LOCKSCOPE_UPDATE=1 writes {} anew", kept.display());
    }
    let text = std::fs::read_to_string(testdata("gpu/occupancy-launch.txt")).expect("the text");
    let (head, _) = text.split_once("\n\nhow it is known").expect("a stack behind the head");
    crate::readme::shows(&root.join("src/manual/gpu.md"), "```\n", head);
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    assert!(readme.contains("testdata/gpu/occupancy-launch.svg"));
}
