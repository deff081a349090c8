//! testdata/README.md is complete: each file below testdata/ has a row, and each row has a file.

use std::path::Path;

use crate::harness::testdata;

/// All files below `folder`, as paths from testdata/ on.
fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() != "__pycache__" {
                files(&path, found);
            }
        } else {
            found.push(path.strip_prefix(testdata("")).expect("below it").display().to_string());
        }
    }
}

/// A row's path has at most one `*`.
fn fits(row: &str, file: &str) -> bool {
    match row.split_once('*') {
        Some((start, end)) => file.len() >= row.len() && file.starts_with(start) && file.ends_with(end),
        None => row == file,
    }
}

#[test]
fn each_file_has_a_row_and_each_row_a_file() {
    let mut found = Vec::new();
    files(&testdata(""), &mut found);
    found.retain(|file| file != "README.md");
    let text = std::fs::read_to_string(testdata("README.md")).expect("readable");
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows: Vec<&str> = cells.filter(|cell| *cell != "path").collect();
    let without: Vec<_> = found.iter().filter(|file| !rows.iter().any(|row| fits(row, file))).collect();
    assert!(without.is_empty(), "files of testdata/ without a row in its README.md: {without:?}");
    let stale: Vec<_> = rows.iter().filter(|row| !found.iter().any(|file| fits(row, file))).collect();
    assert!(stale.is_empty(), "rows of testdata/README.md without a file: {stale:?}");
}
