//! The map in `src/lib.rs` cannot lie: rooms, what each may import, and that nothing goes in a circle, read from the source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module by its path in the crate: `["waits", "libc", "mutex"]`.
type Module = Vec<String>;

/// All modules of the crate but those of tests, with their files.
fn modules() -> BTreeMap<Module, PathBuf> {
    fn add(folder: &Path, at: &[String], modules: &mut BTreeMap<Module, PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the source").map(|entry| entry.expect("an entry").path())
        {
            let stem = entry.file_stem().expect("a name").to_string_lossy().into_owned();
            let own = [at, std::slice::from_ref(&stem)].concat();
            // What is compiled by itself is no room of the crate.
            if entry.is_dir() && stem == "preload" {
                continue;
            }
            if entry.is_dir() {
                add(&entry, &own, modules);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                match stem.as_str() {
                    "tests" | "testing" | "main" => {}
                    "mod" | "lib" => drop(modules.insert(at.to_vec(), entry)),
                    _ => drop(modules.insert(own, entry)),
                }
            }
        }
    }
    let mut modules = BTreeMap::new();
    add(&source(), &[], &mut modules);
    modules
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// A file's code: without comments and the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source file");
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::d}` as `a::b`, `a::c::d`.
fn spread(tree: &str, prefix: &str, paths: &mut BTreeSet<String>) {
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        paths.insert(format!("{prefix}{path}"));
        return;
    };
    let body = body.strip_suffix('}').expect("braces in pairs");
    let prefix = format!("{prefix}{head}");
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in body.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spread(&body[start..at], &prefix, paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !body[start..].trim().is_empty() {
        spread(&body[start..], &prefix, paths);
    }
}

/// Paths that a file names: all `use` lines, and `crate::` and `super::` elsewhere.
fn paths(code: &str) -> BTreeSet<String> {
    let (mut paths, mut rest, mut open) = (BTreeSet::new(), String::new(), String::new());
    for line in code.lines().map(str::trim) {
        let tree = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        match tree {
            Some(tree) => open += tree,
            None if open.is_empty() => rest = rest + line + "\n",
            None => open += line,
        }
        if let Some(tree) = open.strip_suffix(';') {
            spread(tree, "", &mut paths);
            open.clear();
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(start) {
            let is_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
            let begins = !rest[..at].ends_with(is_path);
            let path: String = rest[at..].chars().take_while(|letter| is_path(*letter)).collect();
            if begins {
                paths.insert(path.trim_end_matches(':').to_owned());
            }
        }
    }
    paths
}

/// The module that a path of `module` leads to; `None` for other crates and names in scope.
fn target(modules: &BTreeMap<Module, PathBuf>, module: &[String], path: &str) -> Option<Module> {
    let parts: Vec<&str> = path.split("::").collect();
    let supers = parts.iter().take_while(|part| **part == "super").count();
    let (mut at, rest) = match parts.first()? {
        &"crate" => (Vec::new(), &parts[1..]),
        &"self" => (module.to_vec(), &parts[1..]),
        &"super" => (module[..module.len().checked_sub(supers)?].to_vec(), &parts[supers..]),
        first => {
            let child = [module, &[(*first).to_owned()]].concat();
            modules.contains_key(&child).then(|| (module.to_vec(), parts.as_slice()))?
        }
    };
    for part in rest {
        let child = [at.as_slice(), &[(*part).to_owned()]].concat();
        if !modules.contains_key(&child) {
            break;
        }
        at = child;
    }
    Some(at)
}

/// Which module refers to which other.
fn references() -> BTreeSet<(Module, Module)> {
    let modules = modules();
    let mut edges = BTreeSet::new();
    for (module, file) in &modules {
        for path in paths(&code(file)) {
            edges.extend(target(&modules, module, &path).filter(|to| to != module).map(|to| (module.clone(), to)));
        }
    }
    edges
}

/// The lines of the block of the crate's documentation below a heading, as name and words.
fn table(heading: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(source().join("lib.rs")).expect("lib.rs");
    let lines = text.lines().map(|line| line.strip_prefix("//!").map(str::trim_start).unwrap_or_default());
    let section = lines.skip_while(|line| *line != heading).skip(1);
    let block = section.skip_while(|line| !line.starts_with("```")).skip(1).take_while(|line| !line.starts_with("```"));
    block
        .map(|line| {
            let (name, others) = line.split_once("->").unwrap_or((line, ""));
            (name.trim().to_owned(), others.split_whitespace().map(str::to_owned).collect())
        })
        .collect()
}

/// The room of a module: its first name, of `waits` the second as well.
fn room(module: &[String]) -> Option<String> {
    match module {
        [] => None,
        [first, second, ..] if first == "waits" => Some(format!("{first}::{second}")),
        [first, ..] => Some(first.clone()),
    }
}

/// Above the families and all else, and on no room's list: it names the others to make them known.
const FACADE: &str = "waits";

#[test]
fn rooms_import_what_the_map_allows_and_nothing_else() {
    let allowed = table("# What imports what");
    let mut real: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in references() {
        let (Some(from), Some(to)) = (room(&from), room(&to)) else { continue };
        if from == FACADE || to == from {
            continue;
        }
        // Whoever is outside of `waits` sees one room.
        let outside = !from.starts_with("waits::");
        let to = if outside && to.starts_with("waits::") { FACADE.to_owned() } else { to };
        real.entry(from).or_default().insert(to);
    }
    for module in modules().keys() {
        real.extend(
            room(module).filter(|room| room != FACADE && !real.contains_key(room)).map(|room| (room, BTreeSet::new())),
        );
    }
    let mut wrong = Vec::new();
    for (room, others) in &real {
        let Some(known) = allowed.get(room) else {
            wrong.push(format!("{room} is not on the map"));
            continue;
        };
        wrong.extend(
            others.difference(known).map(|other| format!("{room} imports {other}, which the map does not allow")),
        );
        wrong.extend(
            known.difference(others).map(|other| format!("the map lets {room} import {other}, which it does not")),
        );
    }
    wrong.extend(allowed.keys().filter(|room| !real.contains_key(*room)).map(|room| format!("there is no {room}")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn folders_of_the_source_are_those_of_the_map() {
    let mut real: BTreeSet<String> = BTreeSet::new();
    for (module, file) in modules() {
        let folder = file.parent().expect("a folder").strip_prefix(source()).expect("below src").to_path_buf();
        let is_finding = module.first().is_some_and(|first| first == "verdict") && folder.components().count() > 2;
        if !folder.as_os_str().is_empty() && !is_finding {
            real.insert(format!("{}/", folder.display()));
        }
    }
    let known: BTreeSet<String> = table("# The tree")
        .into_keys()
        .map(|line| line.split("  ").next().unwrap_or_default().trim().to_owned())
        .collect();
    assert_eq!(known, real, "the tree in the crate's documentation and the folders of src/");
}

/// Modules beside each other that refer to each other over some steps, as the sets of their names below a common one.
fn circles() -> BTreeSet<String> {
    let mut beside: BTreeMap<Module, BTreeSet<(String, String)>> = BTreeMap::new();
    for (from, to) in references() {
        // A module and what lies in it are one room.
        if from.starts_with(&to) || to.starts_with(&from) {
            continue;
        }
        let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
        beside.entry(from[..common].to_vec()).or_default().insert((from[common].clone(), to[common].clone()));
    }
    let mut circles = BTreeSet::new();
    for (common, edges) in beside {
        let names: BTreeSet<&String> = edges.iter().flat_map(|(from, to)| [from, to]).collect();
        let reach = |start: &String| {
            let mut seen: BTreeSet<String> = BTreeSet::new();
            let mut next = vec![start.clone()];
            while let Some(here) = next.pop() {
                let more = edges.iter().filter(|(from, _)| *from == here).map(|(_, to)| to.clone());
                next.extend(more.filter(|to| seen.insert(to.clone())).collect::<Vec<_>>());
            }
            seen
        };
        let reached: BTreeMap<&String, BTreeSet<String>> = names.iter().map(|name| (*name, reach(name))).collect();
        for name in &names {
            let circle: Vec<&str> = names
                .iter()
                .filter(|other| reached[*name].contains(**other) && reached[*other].contains(*name))
                .map(|other| other.as_str())
                .collect();
            if circle.len() > 1 {
                circles.insert([common.join("::").as_str(), &circle.join(" ")].join(": "));
            }
        }
    }
    circles
}

#[test]
fn nothing_goes_in_a_circle() {
    assert_eq!(circles(), BTreeSet::new(), "modules that refer to each other");
}

/// Whose code a frame runs was decided when the frame was made: below that nobody reads it from the end of a path.
#[test]
fn whose_code_it_is_is_asked_of_the_frame() {
    let asking =
        |path: &&PathBuf| ["waits", "python", "verdict"].iter().any(|room| path.starts_with(source().join(room)));
    let is_read = |code: &str| {
        ["frame.file.ends_with(", "frame.file.contains(", "inner.file.ends_with("].iter().any(|way| code.contains(way))
    };
    let modules = modules();
    let found: Vec<&PathBuf> = modules.values().filter(asking).filter(|path| is_read(&code(path))).collect();
    assert!(found.is_empty(), "these read it from the path of a file: {found:?}");
}
