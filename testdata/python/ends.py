"""Random programs that know which of their threads can still go on: ends.py SEED COUNT

COUNT programs of six threads each are written as one source, which then runs in the place of this one. A thread enters blocks of
locks until it comes to its end: it waits for a lock, an event, a queue or a gate (a lock that another thread than its taker
releases), with or without a time limit, or sleeps; behind that stands what it would do for others. Threads are started one at a
time, and the next one only when the last has come to its end, so that who waits for what is known before it runs. Around them are
bystanders: heartbeats, timers, handlers. A line of JSON says which threads can never go on, and how many sleep in a futex;
`READY` follows, and all stays as it is. Runs on Python 3.8 and newer; it never imports what it tests.
"""
import json
import os
import random
import sys
import tempfile

THREADS = 6
LOCKS = 4
MAIN = """import shutil, sys, time
sys.path.insert(0, %r)
import programs
shutil.rmtree(sys.path.pop(0))
time.sleep(110)
"""
HEAD = '''import json, os, queue, signal, threading, time
signal.alarm(120)
LAST = 110
said = queue.SimpleQueue()

class Box:
    pass

def start(function, name):
    threading.Thread(target=function, name=name, daemon=True).start()

def beat():
    while True:
        time.sleep(0.05)

def tick():
    bell = threading.Event()
    while True:
        bell.wait(0.05)

COUNT = 0
'''


class Program:
    """One program: what it has, what its threads have and wait for, its source."""

    def __init__(self, number, chance):
        self.number, self.chance, self.lines = number, chance, []
        self.place = chance.choice(["local", "global", "attribute"])
        self.kinds = [chance.choice(["Lock", "Lock", "RLock"]) for _ in range(LOCKS)]
        self.holders = {}                     # lock -> [thread, depth]
        self.waits = {}                       # thread -> (what, number), or None where it goes on by itself
        self.gives = {}                       # thread -> what it does behind its end
        self.asleep = 0
        self.is_gate = [kind == "Lock" and chance.random() < 0.2 for kind in self.kinds]

    def name(self, what, number):
        plain = "%s%d" % (what, number)
        return {"local": plain, "global": "p%d_%s" % (self.number, plain), "attribute": "box.%s" % plain}[self.place]

    def emit(self, level, text):
        self.lines.append("    " * level + text)

    def source(self):
        makers = [("lock", index, "threading.%s()" % kind) for index, kind in enumerate(self.kinds)]
        makers += [("event", index, "threading.Event()") for index in range(2)]
        makers += [("queue", index, "queue.%s()" % self.chance.choice(["Queue", "SimpleQueue"])) for index in range(2)]
        makers += [("gate", 0, "threading.Lock()")]
        if self.place == "global":
            for what, index, maker in makers:
                self.emit(0, "%s = %s" % (self.name(what, index), maker))
        self.emit(0, "def program%d():" % self.number)
        if self.place == "attribute":
            self.emit(1, "box = Box()")
        if self.place != "global":
            for what, index, maker in makers:
                self.emit(1, "%s = %s" % (self.name(what, index), maker))
        self.emit(1, "%s.acquire()" % self.name("gate", 0))
        for thread in range(THREADS):
            me = "p%dt%d" % (self.number, thread)
            self.emit(1, "def %s():" % me)
            self.thread(me)
            self.emit(1, "start(%s, %r)" % (me, me))
            self.emit(1, "said.get()")
        if self.chance.random() < 0.2:
            self.asleep += 1
            self.gives["timer"] = [("event", 0)]
            self.waits["timer"] = None
            self.emit(1, "timer = threading.Timer(LAST, %s.set)" % self.name("event", 0))
            self.emit(1, "timer.daemon = True")
            self.emit(1, "timer.start()")
        self.emit(0, "program%d()" % self.number)
        if self.place == "global" and self.chance.random() < 0.3:
            self.handler()
        return "\n".join(self.lines)

    def handler(self):
        """The main thread sleeps: it runs handlers."""
        self.emit(0, "def handler%d(*_):" % self.number)
        self.emit(1, "global COUNT")
        self.emit(1, "COUNT += 1")
        if self.chance.random() < 0.5:
            self.emit(1, "%s.set()" % self.name("event", 1))
            self.gives["handler"] = [("event", 1)]
            self.waits["handler"] = None
        self.emit(0, "signal.signal(signal.SIGRTMIN + %d, handler%d)" % (self.number + 1, self.number))

    def thread(self, me):
        chance, level, entered = self.chance, 2, []
        for _ in range(chance.randrange(3)):
            index = chance.randrange(LOCKS)
            if self.is_gate[index]:
                continue
            if self.is_free(index, me):
                level = self.enter(level, me, index)
            else:
                return self.wait_for_lock(level, me, index)
        taken = [index for index in self.holders if not self.is_free(index, me)]
        ends = ["event", "event limit", "sleep", "queue", "queue limit", "gate", "locked gate"]
        end = chance.choice(ends + (["lock"] * 6 + ["lock limit"] * 2 if taken else []))
        if end == "lock":
            return self.wait_for_lock(level, me, chance.choice(taken))
        if end == "locked gate":
            gates = [index for index in range(LOCKS) if self.is_gate[index]]
            if gates:
                index = chance.choice(gates)
                if not self.is_free(index, me):
                    return self.wait_for_lock(level, me, index)
                level = self.enter(level, me, index)
            end = "sleep" if chance.random() < 0.2 else "event"
        self.emit(level, "said.put(1)")
        limited = end.endswith(" limit")
        what = end.split()[0]
        number = {"event": chance.randrange(2), "queue": chance.randrange(2), "gate": 0}.get(what, 0)
        self.waits[me] = None if limited or what == "sleep" else (what, number)
        self.asleep += what != "sleep"
        if what == "sleep":
            self.emit(level, "time.sleep(LAST)")
        elif what == "lock":
            lock = self.name("lock", chance.choice(taken))
            self.emit(level, "if %s.acquire(timeout=LAST):" % lock)
            self.emit(level + 1, "%s.release()" % lock)
        elif what == "event":
            self.emit(level, "%s.wait(%s)" % (self.name("event", number), "LAST" if limited else ""))
        elif what == "queue":
            self.emit(level, "%s.get(%s)" % (self.name("queue", number), "timeout=LAST" if limited else ""))
        else:
            self.emit(level, "%s.acquire()" % self.name("gate", 0))
        self.behind(level, me)

    def is_free(self, index, me):
        return index not in self.holders or self.holders[index][0] == me and self.kinds[index] == "RLock"

    def enter(self, level, me, index):
        self.holders.setdefault(index, [me, 0])[1] += 1
        self.emit(level, "with %s:" % self.name("lock", index))
        if self.chance.random() < 0.3:
            self.emit(level + 1, "for turn in range(2):")
            level += 1
        return level + 1

    def wait_for_lock(self, level, me, index):
        self.waits[me] = ("lock", index)
        self.asleep += 1
        self.emit(level, "said.put(1)")
        self.emit(level, "with %s:" % self.name("lock", index))
        self.emit(level + 1, "pass")
        self.behind(level, me)

    def behind(self, level, me):
        """What a thread would do behind its end."""
        gives = self.gives.setdefault(me, [])
        for what, number, call in [("event", 0, "set()"), ("event", 1, "set()"), ("queue", 0, "put(1)"), ("queue", 1, "put(1)"),
                                   ("gate", 0, "release()")]:
            if self.chance.random() < 0.15:
                self.emit(level, "%s.%s" % (self.name(what, number), call))
                gives.append((what, number))
        for index in range(LOCKS):
            if self.is_gate[index] and self.chance.random() < 0.3:
                self.emit(level, "%s.release()" % self.name("lock", index))
                gives.append(("lock", index))
        self.emit(level, "pass")

    def dead(self):
        """The threads that can never go on."""
        going = {thread for thread, what in self.waits.items() if what is None}
        while True:
            more = {thread for thread in self.waits if thread not in going and self.ends(self.waits[thread], going)}
            if not more:
                return sorted(set(self.waits) - going)
            going |= more

    def ends(self, what, going):
        if any(what in self.gives.get(thread, ()) for thread in going):
            return True
        return what[0] == "lock" and self.holders.get(what[1], [None])[0] in going


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    programs = [Program(number, chance) for number in range(count)]
    text = [HEAD] + [program.source() for program in programs]
    asleep = sum(program.asleep for program in programs)
    for bystander in chance.sample(["beat", "tick"], chance.randrange(3)):
        text.append("start(%s, %r)" % (bystander, bystander))
    dead = [thread for program in programs for thread in program.dead()]
    text.append("print(%r, flush=True)" % json.dumps(dict(dead=dead, asleep=asleep)))
    text.append("print('READY pids=%d' % os.getpid(), flush=True)")
    source = "\n".join(text) + "\n"
    if "show" in sys.argv:
        print(source)
        return
    # A module of its own, so that the main thread, which only sleeps, has none of it at hand.
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "programs.py"), "w") as module:
        module.write(source)
    os.execv(sys.executable, [sys.executable, "-B", "-c", MAIN % folder])


main()
