#!/usr/bin/env python3
"""Random worlds of Rust's locks, as worlds.py has them of C++: guards in all places where people keep them, temporaries that live
longer than they seem to, and guards that are given back early.

worlds_of_rust.py FIRST COUNT
"""
from worlds import World, print_program

HEAD = r"""
#![allow(unused, static_mut_refs)]
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::*;
use std::thread::{self, JoinHandle};
use std::time::Duration;

static TURN: AtomicUsize = AtomicUsize::new(usize::MAX);
static ARRIVED: AtomicUsize = AtomicUsize::new(0);
static ONE: AtomicBool = AtomicBool::new(true);
static IDS: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

fn one() -> bool { ONE.load(SeqCst) }
fn zero() -> bool { !ONE.load(SeqCst) }
fn begin(thread: usize) {
    let id = std::fs::read_link("/proc/thread-self").unwrap();
    IDS[thread].store(id.file_name().unwrap().to_str().unwrap().parse().unwrap(), SeqCst);
    while TURN.load(SeqCst) != thread { thread::sleep(Duration::from_micros(500)); }
}
fn settle(thread: usize, all: usize) {
    TURN.store(thread + 1, SeqCst);
    while TURN.load(SeqCst) != all { thread::sleep(Duration::from_micros(500)); }
    ARRIVED.fetch_add(1, SeqCst);
}
fn is_asleep(id: i32) -> bool {
    let Ok(line) = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")) else { return true };
    line.rsplit(')').next().unwrap().starts_with(" S")
}
fn say(all: usize, truth: &str) {
    let mut times = 0;
    while times < 3 {
        let is_so = ARRIVED.load(SeqCst) == all && IDS[..all].iter().all(|id| is_asleep(id.load(SeqCst)));
        times = if is_so { times + 1 } else { 0 };
        thread::sleep(Duration::from_millis(1));
    }
    println!("{truth}\nREADY pids={}", std::process::id());
}
struct Owner<G> { number: u64, guard: G }
fn swallow<G>(guard: G) {}
"""


class Lock:
    def __init__(self, world, index, draw):
        self.kind = draw.choice(["mutex", "mutex", "rwlock"])
        self.name = f"lock{index}"
        self.where = draw.choice(["field", "array", "arc"])
        self.exclusive, self.readers = None, []
        self.it = {"field": f"w.{self.name}", "array": f"w.{self.name}[1 + zero() as usize]", "arc": f"w.{self.name}"}[self.where]

    def of(self):
        return {"mutex": "Mutex", "rwlock": "RwLock"}[self.kind] + "<u32>"

    def declared(self):
        return f"{self.name}: " + {"field": "{0}", "array": "[{0}; 3]", "arc": "Arc<{0}>"}[self.where].format(self.of())

    def made(self):
        return f"{self.name}: Default::default()"

    def may_share(self):
        return self.kind == "rwlock"

    def call(self, reads):
        return "lock" if self.kind == "mutex" else "read" if reads else "write"

    def got(self, reads):
        """An expression of its guard."""
        return f"{self.it}.{self.call(reads)}().unwrap()"

    def tried(self, reads=False):
        return f"{self.it}.try_{self.call(reads)}()"

    def guard(self, reads, life="'static"):
        kind = {"lock": "MutexGuard", "read": "RwLockReadGuard", "write": "RwLockWriteGuard"}[self.call(reads)]
        return f"{kind}<{life}, u32>"

    def is_free_for(self, reads):
        return self.exclusive is None and (reads or not self.readers)


class RustWorld(World):
    make_lock = Lock

    def function(self, result, name, arguments, body):
        apart = "#[inline(never)]\n" if self.draw.random() < 0.7 else ""
        self.functions.append(f"{apart}fn {name}({arguments}){' -> ' + result if result else ''} {{\n{body}\n}}\n")
        return name

    def final(self, thread):
        draw = self.draw
        own = {id(lock) for what, lock, _ in self.plans[thread] if what == "hold"}
        taken = [lock for lock in self.locks if id(lock) not in own and (lock.exclusive is not None or lock.readers)]
        relocked = [lock for what, lock, _ in self.plans[thread] if what == "hold" and lock.kind == "mutex"]
        others = [other for other in range(self.all) if other != thread]
        joined = [other for other in others if other not in self.joins.values() and self.joins.get(other) != thread]
        ways = ["sleep", "outside", "condition", "channel"] + ["lock"] * (10 if taken else 0) + ["join"] * bool(joined) + ["own lock"] * bool(relocked)
        way = draw.choice(ways)
        self.ways.add(way)
        if way in ("lock", "own lock"):
            lock = draw.choice(taken if way == "lock" else relocked)
            reads = lock.exclusive is not None and lock.may_share() and draw.random() < 0.4
            holders = lock.readers if lock.exclusive is None else [lock.exclusive]
            self.waits[thread] = [[thread]] if way == "own lock" else [list(holders)]
            self.ways.add(lock.kind)
            if lock.call(reads) != "read" and draw.random() < 0.5:
                return f"*{lock.got(reads)} += 1;"
            return f"let last = {lock.got(reads)}; drop(last);"
        if way in ("sleep", "outside"):
            self.waits[thread] = "on"
            if way == "outside":
                return "std::net::TcpListener::bind(\"127.0.0.1:0\").unwrap().accept().unwrap();"
            return draw.choice(["thread::sleep(Duration::from_secs(100000));", "thread::park_timeout(Duration::from_secs(100000));"])
        setter = draw.choice(joined if way == "join" else others)
        self.waits[thread] = [[setter]]
        self.events += 1
        name = f"event{self.events}"
        if way == "join":
            self.joins[thread] = setter
            return f"let joined = w.handles[{setter}].lock().unwrap().take().unwrap(); joined.join().unwrap();"
        if way == "channel":
            self.fields += [f"to_{name}: Mutex<Option<Sender<u32>>>", f"{name}: Mutex<Option<Receiver<u32>>>"]
            self.inits += [f"let ({name}_in, {name}_out) = channel();", f"to_{name}: Mutex::new(Some({name}_in))", f"{name}: Mutex::new(Some({name}_out))"]
            self.ends[setter].append(f"w.to_{name}.lock().unwrap().take().unwrap().send(1).unwrap();")
            return f"let values = w.{name}.lock().unwrap().take().unwrap(); values.recv().unwrap();"
        self.fields.append(f"{name}: (Mutex<bool>, Condvar)")
        self.inits.append(f"{name}: Default::default()")
        self.ends[setter].append(f"*w.{name}.0.lock().unwrap() = true; w.{name}.1.notify_all();")
        return f"let mut is_set = w.{name}.0.lock().unwrap(); while !*is_set {{ is_set = w.{name}.1.wait(is_set).unwrap(); }}"

    def taken(self, lock, reads):
        """Text around the next call, which is `{}` in it, that has the lock."""
        draw, guard, got = self.draw, self.fresh("guard"), lock.got(reads)
        w = f"w: &'static World{self.seed}"
        ways = ["let"] * 3 + ["dropped after", "returned", "struct", "box", "option", "vec", "try", "lambda", "conditional", "shadowed"]
        if not reads:
            ways += ["match", "if let", "argument"]
        way = draw.choice(ways)
        self.ways.add(way)
        if way == "dropped after":
            return f"let {guard} = {got}; {{}} drop({guard});"
        if way == "returned":
            make = self.function(lock.guard(reads), self.fresh("make"), w, f"    {got}")
            return f"let {guard} = {make}(w); {{}}"
        texts = {
            "struct": f"let {guard} = Owner {{ number: 7, guard: {got} }}; {{}}",
            "box": f"let {guard} = Box::new({got}); {{}}",
            "option": f"let mut {guard} = None; if one() {{ {guard} = Some({got}); }} {{}}",
            "vec": f"let mut {guard} = Vec::new(); {guard}.push({got}); {{}}",
            "try": f"let {guard} = {lock.tried(reads)}.unwrap(); {{}}",
            "lambda": f"let {guard} = || {got}; let {guard} = {guard}(); {{}}",
            "conditional": f"let {guard}; if one() {{ {guard} = {got}; }} else {{ return; }} {{}}",
            "shadowed": f"let {guard} = {got}; drop({guard}); let {guard} = {got}; {{}}",
            "match": f"match *{got} {{ 77 => (), _ => {{ {{}} }} }}",
            "if let": f"if let Some(_) = {got}.checked_add(1) {{ {{}} }}",
        }
        if way in texts:
            return texts[way]
        if way == "argument":
            keep = self.function("", self.fresh("keep"), f"{w}, call: fn(&'static World{self.seed}), guard: {lock.guard(reads)}", "    call(w);\n    drop(guard);")
            return f"{keep}(w, {{fn}}, {got});"
        return f"let {guard} = {got}; {{}}"

    def passed(self, lock, reads):
        """Text around the next call, which is `{}` in it, that has had the lock."""
        draw, guard, got = self.draw, self.fresh("guard"), lock.got(reads)
        w = f"w: &'static World{self.seed}"
        ways = ["statement", "dropped", "scope", "swallowed", "taken out", "early", "loop", "copied", "not taken", "conditional", "box",
                "tried", "lambda", "matched", "truncated", "callee"]
        if lock.exclusive is None and not lock.readers:
            ways += ["meanwhile"] * 2
        way = draw.choice(ways)
        self.ways.add("past " + way)
        texts = {
            "dropped": f"let {guard} = {got}; drop({guard}); {{}}",
            "scope": f"{{ let {guard} = {got}; ONE.store(true, SeqCst); }} {{}}",
            "swallowed": f"let {guard} = {got}; swallow({guard}); {{}}",
            "taken out": f"let mut {guard} = Some({got}); {guard}.take(); {{}}",
        }
        if way in texts:
            return texts[way]
        if way == "early":
            step = self.function("u32", self.fresh("step"), w, f"    let guard = {got};\n    if one() {{ return 1; }}\n    *guard")
            return f"ONE.store({step}(w) == 1, SeqCst); {{}}"
        texts = {
            "loop": f"for _ in 0..3 {{ let {guard} = {got}; if zero() {{ break; }} }} {{}}",
            "copied": f"let {guard} = *{got}; {{}}",
            "not taken": f"let {guard} = if zero() {{ Some({got}) }} else {{ None }}; {{}}",
            "conditional": f"let {guard}; if zero() {{ {guard} = {got}; }} {{}}",
            "box": f"let {guard} = Box::new({got}); drop({guard}); {{}}",
            "tried": f"if let Ok({guard}) = {lock.tried(reads)} {{ drop({guard}); }} {{}}",
            "lambda": f"let {guard} = || *{got} + 1; ONE.store({guard}() < 5, SeqCst); {{}}",
            "matched": f"let {guard} = match {lock.it}.{lock.call(reads)}() {{ Ok(guard) => *guard, Err(_) => 9 }}; {{}}",
            "truncated": f"let mut {guard} = vec![{got}]; {guard}.clear(); {{}}",
        }
        if way in texts:
            return texts[way]
        if way == "callee":
            end = self.function("", self.fresh("end"), f"{w}, call: fn(&'static World{self.seed}), guard: {lock.guard(reads)}", "    drop(guard);\n    call(w);")
            return f"{end}(w, {{fn}}, {got});"
        if way == "meanwhile":
            return f"let {guard} = {got}; drop({guard}); {{}} let {guard} = {got};"
        return f"ONE.store(*{got} < 5, SeqCst); {{}}"

    def body(self, thread):
        draw = self.draw
        depth = draw.randint(1, 3)
        parts = [[] for _ in range(depth)]
        for step in self.plans[thread]:
            parts[draw.randrange(depth)].append(step)
        w = f"w: &'static World{self.seed}"
        inner = f"    settle({thread}, {self.all});\n    {self.finals[thread]}"
        for level in reversed(range(depth)):
            name = self.function("", self.fresh("inner"), w, inner)
            call, called = f"{name}(w);", name
            for what, lock, reads in reversed(parts[level]):
                if what == "refused":
                    self.ways.add("refused")
                    text = f"assert!({lock.tried()}.is_err()); {{}}"
                else:
                    text = self.taken(lock, reads) if what == "hold" else self.passed(lock, reads)
                if "{fn}" in text and call != f"{called}(w);":
                    called = self.function("", self.fresh("inner"), w, f"    {call}")
                call = text.replace("{fn}", called).replace("{}", call)
            inner = f"    {call}\n    ONE.store(true, SeqCst);"
        name = f"thread{thread}_of_{self.seed}"
        ends = "\n".join(f"    {text}" for text in self.ends[thread])
        self.function("", f"run_{name}", w, inner)
        self.function("", name, w, f"    begin({thread});\n    run_{name}(w);\n{ends}")
        return name

    def source(self):
        fields = "".join(f"    {text},\n" for text in [lock.declared() for lock in self.locks] + self.fields)
        before = "".join(f"    {text}\n" for text in self.inits if text.startswith("let"))
        inits = "".join(f"        {text},\n" for text in [lock.made() for lock in self.locks] + [text for text in self.inits if not text.startswith("let")])
        starts = "".join(f"    let handle = thread::Builder::new().name(\"t{t}\".into()).spawn(move || {name}(w)).unwrap();\n"
                         f"    *w.handles[{t}].lock().unwrap() = Some(handle);\n" for t, name in reversed(list(enumerate(self.bodies))))
        left = [t for t in range(self.all) if t not in self.joins.values()]
        rest = self.draw.choice(["loop { thread::sleep(Duration::from_secs(100000)); }",
                                 "".join(f"let joined = w.handles[{t}].lock().unwrap().take().unwrap(); joined.join().unwrap();" for t in left)])
        if self.truth == "never" and rest.startswith("loop") and self.events:
            self.truth = "late"
        return (f"struct World{self.seed} {{\n    handles: [Mutex<Option<JoinHandle<()>>>; 16],\n{fields}}}\n" + "\n".join(self.functions) +
                f"fn world{self.seed}() {{\n{before}    let w: &'static World{self.seed} = Box::leak(Box::new(World{self.seed} {{\n"
                f"        handles: Default::default(),\n{inits}    }}));\n{starts}    TURN.store(0, SeqCst);\n    say({self.all}, \"{self.said()}\");\n    {rest}\n}}\n")


MAIN = """fn main() {
    match std::env::args().nth(1).unwrap().parse::<u32>().unwrap() {
CASES
        _ => (),
    }
}"""
print_program(RustWorld, HEAD, "        {seed} => world{seed}(),", MAIN)
