//! The recipe of the manual for pods of Kubernetes, with namespaces in the place of pods and a `kubectl` that knows two of its commands:
//! each rank is looked at from inside of a network and process ids of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::{own_program, skipped, testdata, wait_until};

/// `kubectl get pods -l job-name=NAME -o name`, and `kubectl exec [-i] POD -- COMMAND`; a file in $PODS has a pod's process.
const KUBECTL: &str = r#"#!/bin/sh
case $1 in
get) [ "$2 $3 $4 $5 $6" = "pods -l job-name=train -o name" ] && ls "$PODS" | sed s,^,pod/, ;;
exec)
    shift
    if [ "$1" = -i ]; then shift; else exec </dev/null; fi
    pod=${1#pod/}
    [ "$2" = -- ] || exit 9
    shift 2
    exec nsenter --target "$(cat "$PODS/$pod")" --pid --mount --net -- "$@"
    ;;
esac
"#;

/// What a pod runs, once it has its address.
const RANK: &str = r#"until ip -brief address | grep -q "$4/"; do sleep 0.05; done; exec python3 "$1" "$2" "$3" "$4""#;

/// A process in namespaces of its own, which end with it.
struct Pod(Child);

impl Pod {
    fn start(index: usize, folder: &Path, address: &str) -> Pod {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", RANK, "sh"]);
        unshare.arg(testdata("python/ring_of_ranks.py")).arg(folder).args(["2", address]);
        unshare.env("JOB_COMPLETION_INDEX", index.to_string()).stdin(Stdio::null());
        Pod(unshare.spawn().expect("unshare runs"))
    }

    /// Its first process, as it is called outside.
    fn first(&self) -> Option<String> {
        let id = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The block of this language in the manual's section on pods.
fn block(language: &str) -> String {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/schedulers.md")).expect("the page");
    let section = page.split("\n## ").find(|section| section.starts_with("Kubernetes\n")).expect("a section");
    let rest = section.split_once(&format!("```{language}\n")).expect("a block").1;
    rest.split_once("```").expect("its end").0.to_owned()
}

fn done(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn the_recipe_of_the_manual_tells_of_ranks_in_pods() {
    let manifest = block("yaml");
    for line in ["metadata: {name: train}", "completions: 2", "parallelism: 2", "completionMode: Indexed"] {
        assert!(manifest.contains(line), "{line}: {manifest}");
    }
    let is_possible = done(Command::new("unshare").args(["--net", "--pid", "--fork", "--mount-proc", "ip", "link"]));
    if !is_possible {
        return skipped!("pods of Kubernetes: namespaces and `ip` in them need root and iproute2");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["ranks", "pods", "bin", "work"] {
        std::fs::create_dir(path(name)).expect("made");
    }
    std::fs::write(path("bin/kubectl"), KUBECTL).expect("written");
    std::fs::set_permissions(path("bin/kubectl"), PermissionsExt::from_mode(0o755)).expect("allowed");
    let addresses = ["10.99.0.1", "10.99.0.2"];
    let pods: Vec<Pod> =
        addresses.iter().enumerate().map(|(index, address)| Pod::start(index, &path("ranks"), address)).collect();
    let mut firsts = Vec::new();
    wait_until("the pods have processes", || {
        firsts = pods.iter().filter_map(Pod::first).collect();
        firsts.len() == 2
    });
    // Between them a cable, which no other network sees.
    wait_until("the pods are connected", || {
        let mut cable = Command::new("ip");
        cable.args(["link", "add", "eth0", "netns", &firsts[0], "type", "veth"]);
        done(cable.args(["peer", "name", "eth0", "netns", &firsts[1]]))
    });
    for (first, address) in firsts.iter().zip(addresses) {
        for words in
            [vec!["link", "set", "eth0", "up"], vec!["address", "add", &format!("{address}/24"), "dev", "eth0"]]
        {
            assert!(done(Command::new("nsenter").args(["--target", first, "--net", "ip"]).args(words)), "{address}");
        }
    }
    for (index, first) in firsts.iter().enumerate() {
        std::fs::write(path(&format!("pods/train-{index}")), first).expect("written");
    }
    wait_until("the ranks are connected", || (0..2).all(|rank| path(&format!("ranks/ready-{rank}")).exists()));
    let own = Path::new(own_program()).parent().expect("a folder").to_owned();
    let before = std::env::var_os("PATH").unwrap_or_default();
    let all = [path("bin"), own].into_iter().chain(std::env::split_paths(&before));
    let all = std::env::join_paths(all).expect("a path");
    let mut last = (None, String::new());
    wait_until("rank 1 hangs", || {
        let mut shell = Command::new("sh");
        shell.args(["-c", &block("sh")]).current_dir(path("work")).env("PATH", &all).env("PODS", path("pods"));
        let output = shell.env_remove("LOCKSCOPE").stdin(Stdio::null()).output().expect("a shell");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        last = (output.status.code(), text.split_whitespace().collect::<Vec<_>>().join(" "));
        last.0 == Some(1)
    });
    let text = last.1;
    assert!(text.starts_with("deadlock: a thread is joined that waits for the thread that joins it"), "{text}");
    for said in [
        "rank 1 (",
        "1 more rank waits because of this: rank 0 at ring_of_ranks.py:",
        "ranks 0-1 of kubernetes, two rounds",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}
