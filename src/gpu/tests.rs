use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::names::short_name;
use super::*;
use crate::image::budget;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/gpu/cores")
}

/// Does not write to the log, which another test reads completely.
fn unpacked(name: &str) -> Vec<u8> {
    let file = std::fs::File::open(folder().join(format!("{name}.gpucore.zst"))).unwrap();
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn core(name: &str) -> GpuCore {
    budget::begin();
    let bytes = Bytes::Unpacked(unpacked(name));
    assert!(GpuCore::is_one(&bytes), "{name}");
    GpuCore::read(&bytes, name).unwrap()
}

fn names() -> BTreeSet<String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    files.filter_map(|file| Some(file.strip_suffix(".gpucore.zst")?.to_owned())).collect()
}

/// The innermost line of a place, as the table of cuda-gdb's answers has it.
fn line(lines: &[SourceLine]) -> String {
    let told = |line: &SourceLine| format!("{}:{}", line.file.rsplit('/').next().unwrap(), line.line);
    lines.first().map_or("-".to_owned(), told)
}

/// cuda-gdb's output for the same cores, complete, on the machine that made them.
#[test]
fn kernels_threads_and_lines_are_those_of_cuda_gdb() {
    let truth = std::fs::read_to_string(folder().join("truth.txt")).unwrap();
    let mut checked = 0;
    for name in names() {
        let core = core(&name);
        let mut kernels = BTreeSet::new();
        let mut threads: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, kernel) in core.kernels() {
            let three = |[x, y, z]: [u32; 3]| format!("({x},{y},{z})");
            // The table itself has 1 x 1 x 1 for a cooperative launch.
            let grid = if name == "grid-barrier" { [1, 1, 1] } else { kernel.grid };
            kernels.insert(format!("{} Active {} {} {}", kernel.number, three(grid), three(kernel.block), kernel.name));
            assert_eq!(kernel.status, Status::Active, "{name}");
            for place in &kernel.places {
                for address in &place.addresses {
                    let lines = place.lines.iter().map(|one| line(std::slice::from_ref(one)));
                    threads.insert(format!("{address:#x}"), lines.collect());
                }
            }
        }
        for told in truth.lines().filter_map(|line| line.strip_prefix(&format!("{name} "))) {
            checked += 1;
            match told.split_once(' ').unwrap() {
                ("kernel", told) => {
                    // cuda-gdb writes the compiler's marks of Numba's names, and arguments where it knows them.
                    let plain = short_name(told.rsplit_once(") ").unwrap().1);
                    let told = format!("{}) {plain}", told.rsplit_once(") ").unwrap().0);
                    assert!(kernels.remove(&told), "{name}: {told} is not among {kernels:?}");
                }
                ("at", told) => {
                    let (address, rest) = told.split_once(' ').unwrap();
                    let (_, line) = rest.split_once(' ').unwrap();
                    // For inlined calls cuda-gdb has any one line, or none.
                    let known = threads.get(address).unwrap_or_else(|| panic!("{name}: {told}"));
                    let fits = match line {
                        "-" => known.is_empty() || known.len() > 1,
                        line => known.iter().any(|known| known == line),
                    };
                    assert!(fits, "{name}: {told}, {known:?}");
                }
                ("error", told) if told.starts_with("at ") => {
                    let errors = core.devices.iter().flat_map(|device| &device.errors);
                    let told_here =
                        errors.map(|error| format!("at {:#x} {}", error.address.unwrap(), line(&error.lines)));
                    assert!(
                        told_here.into_iter().any(|here| here == told),
                        "{name}: {told}, {:?}",
                        core.devices[0].errors
                    );
                }
                ("error", told) => {
                    let told = told.trim_start_matches("Warp ").to_lowercase();
                    assert!(core.devices[0].errors.iter().any(|error| error.what == told), "{name}: {told}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(kernels.is_empty() || name.starts_with("illegal"), "{name}: cuda-gdb has none of {kernels:?}");
    }
    assert!(checked > 100, "{checked}");
}

/// cuda-gdb counts the threads at each address; the sums are the same.
#[test]
fn each_thread_is_counted_once() {
    for (name, blocks, warps, threads) in [
        ("spin-lock", 7, 7, 7),
        ("triton-lock", 4, 16, 512),
        ("barrier", 3, 12, 384),
        ("two-streams-eager", 1, 1, 32),
        ("later-block", 264, 8448, 270_336),
        ("nccl-both-receive.rank0", 16, 0, 9728),
    ] {
        let core = core(name);
        let mut kernels: Vec<&Kernel> = core.kernels().map(|(_, kernel)| kernel).collect();
        kernels.sort_by_key(|kernel| kernel.number);
        let seen = kernels[0].seen;
        assert_eq!((seen.blocks, seen.threads), (blocks, threads), "{name}");
        assert!(warps == 0 || seen.warps == warps, "{name}: {seen:?}");
    }
}

#[test]
fn names_of_kernels_for_people() {
    assert_eq!(short_name("waits_for_flag(int volatile*, int)"), "waits_for_flag");
    assert_eq!(
        short_name("at::cuda::(anonymous namespace)::spin_kernel(long)"),
        "at::cuda::(anonymous namespace)::spin_kernel"
    );
    assert_eq!(short_name("void sum<float, (int)4>(float*)"), "sum<float, (int)4>");
    assert_eq!(short_name("__main__::waits_for_flag[abi:v1][abi:cw51c](Array<int>)"), "__main__::waits_for_flag");
}

/// An inlined call has the line that made it, which cuda-gdb's line alone does not show.
#[test]
fn inlined_calls_lead_to_the_kernels_own_line() {
    let core = core("spin-lock");
    let (_, kernel) = core.kernels().next().unwrap();
    let files: Vec<String> = kernel.places[0].lines.iter().map(|one| line(std::slice::from_ref(one))).collect();
    assert_eq!(
        files,
        ["device_atomic_functions.hpp:202", "kernels.cu:74", "kernels.cu:82"],
        "{:?}",
        kernel.places[0].lines
    );
    assert_eq!(kernel.places[0].lines[1].function.as_deref(), Some("acquire"));
    assert_eq!(kernel.arguments.len(), 3);
}

/// Bytes that were changed or cut may lose facts; they never make it fail.
#[test]
fn damaged_cores_are_read_as_far_as_they_go() {
    for name in ["spin-lock", "illegal-address", "calls"] {
        budget::begin();
        let bytes = unpacked(name);
        for length in (0..bytes.len()).step_by(bytes.len() / 40) {
            let _ = GpuCore::read(&Bytes::of(bytes[..length].to_vec()).unwrap(), name);
        }
        let mut seed = 1u64;
        for _ in 0..60 {
            let mut changed = bytes.clone();
            for _ in 0..50 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (seed >> 20) as usize % changed.len();
                changed[at] = (seed >> 56) as u8;
            }
            let _ = GpuCore::read(&Bytes::of(changed).unwrap(), name);
        }
    }
}
