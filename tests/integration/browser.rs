//! Reports as Chromium shows them: nothing overlaps, everything is readable and can be reached by the keyboard, no name of
//! the target is more than a name, and nothing is fetched.
//!
//! Chromium is driven by its own protocol over two pipes, so that the pages need no script; tests/integration/page_checks.js
//! runs beside them. Where there is no Chromium, or no Graphviz for the DOT files, that is printed as a skip.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::harness::{Target, compile, patience, report, testdata};
use crate::kernel_waits::asleep_in;

const CHECKS: &str = include_str!("page_checks.js");

/// A browser with one page; ended when dropped.
struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// Events since the last navigation began.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// None, with a line about it, where none can be had.
    fn start() -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let runs = |name: &&&str| {
            let version = Command::new(name).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
            version.is_ok_and(|output| output.status.success())
        };
        let Some(name) = names.iter().find(runs) else {
            crate::harness::skipped!("none of {names:?} runs here");
            return None;
        };
        let profile = tempfile::tempdir().expect("a folder");
        // It reads its third descriptor and writes its fourth.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null", name])
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh runs");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { break };
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser =
            Browser { child, input, messages, session: None, last: 0, events: Vec::new(), _profile: profile };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Page", "Network", "Runtime", "Accessibility", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    fn next(&self, what: &str) -> Value {
        self.messages.recv_timeout(3 * patience()).unwrap_or_else(|error| panic!("no answer to {what}: {error}"))
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let answer = self.next(method);
            if answer["id"] == json!(self.last) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Show an address, to the end of its loading.
    fn open(&mut self, address: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": address}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next("loading");
            self.events.push(event);
        }
    }

    /// A value, computed beside the page.
    fn value(&mut self, expression: &str) -> Value {
        let tree = self.call("Page.getFrameTree", json!({}));
        let world = json!({"frameId": tree["frameTree"]["frame"]["id"], "worldName": "checks"});
        let world = self.call("Page.createIsolatedWorld", world)["executionContextId"].clone();
        let expression = format!("(() => {{ {CHECKS}\nreturn {expression} }})()");
        let request =
            json!({"expression": expression, "contextId": world, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", request);
        assert!(answer["exceptionDetails"].is_null(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    fn assert_no_faults(&mut self, check: &str, of: &str) {
        assert_eq!(self.value(check), json!([]), "{check} of {of}");
    }

    fn window(&mut self, width: u32) {
        let size = json!({"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    fn media(&mut self, media: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": media, "features": features}));
    }

    /// The whole page, as PNG in base64; also kept as a file where LOCKSCOPE_SCREENSHOTS says.
    fn screenshot(&mut self, name: &str) -> String {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        let data = shot["data"].as_str().expect("base64").to_owned();
        if let Some(folder) = std::env::var_os("LOCKSCOPE_SCREENSHOTS") {
            let file = std::fs::File::create(Path::new(&folder).join(format!("{name}.png"))).expect("a file");
            let mut decode = Command::new("base64");
            let mut decode = decode.arg("-d").stdin(Stdio::piped()).stdout(file).spawn().expect("base64 runs");
            decode.stdin.take().expect("piped").write_all(data.as_bytes()).expect("it reads");
            assert!(decode.wait().expect("it ends").success());
        }
        data
    }

    /// Whatever takes the keyboard's focus takes it by Tab, and has a name.
    fn assert_keyboard(&mut self, of: &str) {
        let count = self.value("focusable().length").as_u64().expect("a number");
        let mut reached = std::collections::BTreeSet::new();
        for _ in 0..count + 2 {
            for kind in ["rawKeyDown", "keyUp"] {
                let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
                self.call("Input.dispatchKeyEvent", key);
            }
            reached.insert(self.value("focused()").as_i64().expect("a number"));
        }
        reached.remove(&-1);
        assert_eq!(reached.len() as u64, count, "{of}: reached by Tab: {reached:?}");
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        for node in tree["nodes"].as_array().expect("a list") {
            let properties = node["properties"].as_array().into_iter().flatten();
            let focusable = properties.clone().any(|one| one["name"] == "focusable" && one["value"]["value"] == true);
            let name = node["name"]["value"].as_str().unwrap_or_default();
            let named = !name.trim().is_empty() || node["role"]["value"] == "RootWebArea";
            assert!(!focusable || named || node["ignored"] == true, "{of}: {node}");
        }
    }

    /// The page asked for itself only, ran nothing, and nothing was refused to it.
    fn assert_alone(&mut self, address: &str) {
        let of = |event: &Value, method: &str| event["method"] == method;
        let asked: Vec<&str> = self
            .events
            .iter()
            .filter(|event| of(event, "Network.requestWillBeSent"))
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .collect();
        assert_eq!(asked, [address]);
        let odd = self.events.iter().find(|event| {
            of(event, "Log.entryAdded") || of(event, "Runtime.consoleAPICalled") || of(event, "Runtime.exceptionThrown")
        });
        assert!(odd.is_none(), "{odd:?}");
        let canary = self.call("Runtime.evaluate", json!({"expression": "typeof window.__pwned"}));
        assert_eq!(canary["result"]["value"], "undefined");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked, it ends the processes that it started.
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let closed = std::iter::from_fn(|| self.messages.recv_timeout(patience()).ok()).take(1000).count();
        if closed == 1000 || !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A report in the formats that have pictures.
struct Reports {
    name: &'static str,
    page: PathBuf,
    svg: PathBuf,
    dot: PathBuf,
}

fn written(folder: &Path, name: &'static str, command: &str, words: &[String]) -> Reports {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let reports = Reports { name, page: file("html"), svg: file("svg"), dot: file("dot") };
    let output = report(command, words.iter().cloned(), &[&reports.page, &reports.svg, &reports.dot]);
    assert!(reports.page.exists(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    reports
}

/// The seed's deadlock, two processes and a pipe, five hundred threads, and names that are meant to harm.
fn all_reports(folder: &Path) -> Vec<Reports> {
    let pids = |target: &Target| target.pids.iter().map(i32::to_string).collect::<Vec<_>>();
    let seed = testdata("gpu/occupancy-launch.snapshot.zst").display().to_string();
    let mut reports = vec![written(folder, "seed", "core", &[seed])];

    let program = compile("native/kernel_waits.c", "kernel_waits", &[]);
    let target = Target::start(Command::new(program).arg("both-write").arg(folder));
    asleep_in(&target, &["1"]);
    reports.push(written(folder, "pipes", "attach", &pids(&target)));

    let program = compile("native/many_threads.c", "many_threads", &[]);
    let target = Target::start(Command::new(program).arg("500")).settle(490);
    reports.push(written(folder, "threads", "attach", &pids(&target)));

    let mut python = Command::new("python3");
    python.arg(testdata("python/hostile.py"));
    python.arg(OsString::from_vec(b"</title><script>__pwned=1</script>\x1b[31m\xff\xfe\"'\xe2\x80\xae".to_vec()));
    let target = Target::start(&mut python).settle(3);
    let mut words = pids(&target);
    words.push("--locals".to_owned());
    reports.push(written(folder, "hostile", "attach", &words));
    reports
}

#[test]
fn reports_are_readable_and_harmless_in_a_browser() {
    let folder = tempfile::tempdir().expect("a folder");
    let reports = all_reports(folder.path());
    for report in &reports {
        let size = std::fs::metadata(&report.page).expect("written").len();
        assert!(size < 1 << 20, "{}: {size} bytes", report.name);
    }
    let Some(mut browser) = Browser::start() else { return };
    for Reports { name, page, svg, .. } in &reports {
        let address = format!("file://{}", page.display());
        for (width, scheme) in [(1300, "light"), (1300, "dark"), (400, "light")] {
            browser.window(width);
            browser.media("screen", scheme);
            browser.open(&address);
            browser.assert_no_faults("graphFaults()", name);
            browser.assert_no_faults("pageFaults()", name);
            browser.assert_keyboard(name);
            browser.assert_alone(&address);
            let outlines = browser.value("outlines()");
            let shot = browser.screenshot(&format!("{name}-{width}-{scheme}"));
            browser.assert_no_faults("contrastFaults()", &format!("{name}, {scheme}"));
            browser.assert_no_faults("pageFaults()", &format!("{name}, opened"));
            browser.media("print", scheme);
            browser.assert_no_faults("contrastFaults()", &format!("{name}, printed"));
            browser.open("about:blank");
            let check = format!("outlineFaults({}, {outlines})", json!(shot));
            browser.assert_no_faults(&check, name);
        }
        browser.open(&format!("file://{}", svg.display()));
        assert_eq!(browser.value("document.documentElement.tagName"), "svg", "{name}");
        assert_eq!(browser.value("document.querySelectorAll('parsererror, script').length"), 0, "{name}");
    }
}

#[test]
fn pictures_of_few_and_of_many_alike_have_no_crossing_and_nothing_upon_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |words: &[&str]| {
        let mut python = Command::new("python3");
        Target::start(python.arg(testdata(words[0])).args(&words[1..]))
    };
    let two = start(&["orders/service.py"]).settle(2);
    let pool = start(&["python/shapes.py", "pool"]).settle(33);
    let processes = start(&["python/shapes.py", "processes"]);
    for pid in &processes.pids[1..] {
        crate::harness::wait_until("it reads", || {
            crate::harness::status_field(*pid, *pid, "State").is_some_and(|state| state.starts_with('S'))
        });
    }
    // Boxes: two threads and two locks; the pool, its tasks, and who waits for one of them; processes and pipes.
    let cases = [("two", two, 4..=5), ("pool", pool, 2..=4), ("processes", processes, 16..=17)];
    let of = |(name, target, boxes): (&'static str, Target, _)| {
        let words: Vec<String> = target.pids.iter().map(i32::to_string).collect();
        (written(folder.path(), name, "attach", &words), boxes)
    };
    let reports = cases.map(of);
    let Some(mut browser) = Browser::start() else { return };
    for (Reports { name, page, .. }, boxes) in &reports {
        for width in [1280, 500] {
            browser.window(width);
            browser.media("screen", "light");
            browser.open(&format!("file://{}", page.display()));
            let name = &format!("{name} at {width}");
            browser.assert_no_faults("graphFaults()", name);
            browser.assert_no_faults("pageFaults()", name);
            browser.assert_no_faults("drawingFaults()", name);
            let count =
                browser.value("document.querySelectorAll('svg.graph g.node').length").as_u64().expect("a number");
            assert!(boxes.contains(&count), "{name}: {count} boxes");
            browser.screenshot(&name.replace(' ', "-"));
        }
    }
}

#[test]
fn the_checks_find_what_is_wrong() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("wrong.html");
    let node = |x: u32, label: &str| {
        format!(
            "<g class='node'><rect x='{x}' y='20' width='60' height='20' stroke='red'/><text x='{x}' y='35'>{label}</text></g>"
        )
    };
    let nodes = [node(10, "a"), node(40, "b"), node(200, "a label that is much too long"), node(290, "c")].concat();
    let link = "<path class='link' d='M10 30C20 30 200 30 350 30' stroke='#eee'/>\
                <path class='link' d='M150 5L152 48' stroke='#eee'/><text class='words' x='100' y='33' font-size='9'>waits</text>\
                <text class='words' x='40' y='40' font-size='9'>edge</text><text class='words' x='295' y='10'>far out</text>\
                <text x='2' y='49' font-size='1'>tiny</text>";
    let frame = "<g class='frame'><rect x='5' y='5' width='50' height='30'/><text x='6' y='16'>title</text></g>";
    let svg = format!("<svg class='graph' viewBox='0 0 300 50' width='2000'>{frame}{nodes}{link}</svg>");
    let body = format!("<p style='color:#999' onclick='1'>pale</p>{svg}<script>window.__pwned = 1</script>");
    std::fs::write(&page, format!("<!doctype html><title>wrong</title>{body}")).expect("written");
    let address = format!("file://{}", page.display());
    browser.window(400);
    browser.open(&address);
    for (check, words) in [
        ("graphFaults()", &["overlap", "text sticks out", "cut by a frame", "runs through", "outside"][..]),
        ("pageFaults()", &["px wide", "SCRIPT", "attribute onclick", "the title is", "no policy"]),
        ("contrastFaults()", &["P.: ", "a line: "]),
        (
            "drawingFaults()",
            &[
                "waits lies on a link",
                "edge lies on a frame",
                "far out is cut off",
                "two links cross",
                "tiny is too small",
            ],
        ),
    ] {
        let found = browser.value(check).to_string();
        for word in words {
            assert!(found.contains(word), "{check} does not find {word}: {found}");
        }
    }
    browser.open("about:blank");
    let shot = browser.screenshot("blank");
    let found = browser.value(&format!("outlineFaults({}, [{{x: 50, y: 50, colour: [255, 0, 0]}}])", json!(shot)));
    assert!(found.to_string().contains("no outline at 50"), "{found}");
}

#[test]
fn graphviz_takes_the_dot_files() {
    if Command::new("dot").arg("-V").stderr(Stdio::null()).status().is_err() {
        return crate::harness::skipped!("no dot of Graphviz");
    }
    let folder = tempfile::tempdir().expect("a folder");
    for Reports { name, dot, .. } in all_reports(folder.path()) {
        let output = Command::new("dot").arg("-Tsvg").arg(&dot).output().expect("dot runs");
        let (drawn, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
        let clusters = drawn.matches("class=\"cluster\"").count();
        assert_eq!(clusters, if name == "pipes" { 2 } else { 1 }, "{name}");
        assert!(!drawn.contains("<script"), "{name}");
    }
}
