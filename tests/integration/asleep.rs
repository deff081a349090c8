//! Looks without a stop: sleeping threads are read where they sleep, and no call of theirs ends early.

use std::path::Path;
use std::process::Command;

use object::{Object, ObjectSection};

/// What of an eBPF object is loaded: its name and bytes. The rest is for debuggers, and names the compiler's build.
fn loaded(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).expect("readable");
    let file = object::File::parse(&*bytes).expect("an object");
    let names = ["iter/task", ".reliter/task", "license", ".maps", ".BTF", ".rel.BTF", ".BTF.ext"];
    let section = |name: &str| file.section_by_name(name).and_then(|section| section.data().ok().map(<[u8]>::to_vec));
    names.iter().map(|name| (name.to_string(), section(name).unwrap_or_default())).collect()
}

#[test]
fn the_ebpf_object_is_the_one_that_its_source_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("task_registers.bpf.o");
    let output = Command::new(root.join("scripts/check/bpf-object"))
        .arg(&fresh)
        .output()
        .expect("scripts/check/bpf-object runs");
    if output.status.code() == Some(3) {
        return println!("skip: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let wanted = loaded(&root.join("src/image/live/asleep/task_registers.bpf.o"));
    assert!(wanted.iter().filter(|(_, bytes)| bytes.is_empty()).count() == 0, "a section is missing");
    for ((name, checked_in), (_, built)) in wanted.iter().zip(loaded(&fresh)) {
        assert!(
            *checked_in == built,
            "section {name} differs: run scripts/check/bpf-object and check in what it writes"
        );
    }
}
