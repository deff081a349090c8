"""Random programs that keep a table of who holds which lock and who waits for which: truth.py SEED COUNT

COUNT programs of eight threads each, one after the other, are brought into a state in which every thread sleeps: it waits
for a lock, for a condition, or at a gate with whatever it has taken. One thread is started at a time, and the next one only
when it says that it has come to its end, so that the table is right without any timing. Then the table is written as one
line of JSON, `READY` follows, and everything stays as it is. Runs on Python 3.7 and newer; it never imports what it tests.
"""
import contextlib
import json
import os
import queue
import random
import signal
import sys
import threading

signal.alarm(120)
THREADS = 8
LOCKS = 6


class Guard:
    """A context manager of the program's own, around a lock."""

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        self.lock.acquire()
        return self

    def __exit__(self, *exception):
        self.lock.release()


@contextlib.contextmanager
def managed(lock):
    with lock:
        yield lock


def suspended(program, me, index):
    with program.locks[index]:
        program.took(me, index, "generator")
        yield index


class Program:
    """One program: its locks, its table, the code of its threads."""

    def __init__(self, number, chance):
        self.number = number
        self.chance = chance
        makers = [threading.Lock, threading.Lock, threading.Lock, threading.RLock,
                  lambda: threading.Condition(threading.Lock()), threading.Condition]
        self.locks = [chance.choice(makers)() for _ in range(LOCKS)]
        self.gate = threading.Event()
        self.said = queue.Queue()
        self.holders = {}                     # index -> [thread, how, depth]
        self.waits = {}                       # thread -> index

    # What the code of the threads says of itself.

    def wants(self, me, index):
        """Before a lock is taken: whoever finds it taken says that this is its end."""
        holder = self.holders.get(index)
        if holder and not (holder[0] == me and self.is_recursive(index)):
            self.waits[me] = index
            self.said.put(me)

    def took(self, me, index, how):
        holder = self.holders.setdefault(index, [me, how, 0])
        holder[2] += 1

    def leaves(self, index):
        holder = self.holders[index]
        holder[2] -= 1
        if holder[2] == 0:
            del self.holders[index]

    def rests(self, me):
        """The end of a thread that waits for no lock."""
        self.said.put(me)
        self.gate.wait()

    def waits_for_condition(self, me, index):
        if index in self.waits.values():      # whoever waits for the lock would get it
            return self.rests(me)
        del self.holders[index]
        self.said.put(me)
        self.locks[index].wait()

    def is_recursive(self, index):
        lock = self.locks[index]
        lock = getattr(lock, "_lock", lock)
        return "RLock" in type(lock).__name__

    def object_of(self, index):
        lock = self.locks[index]
        return id(lock._lock if isinstance(lock, threading.Condition) else lock)

    # The code of a thread.

    def code(self, me):
        self.lines, self.functions = [], 0
        self.emit(0, "def main():")
        self.body(1, me, depth=0, taken=[])
        return "\n".join(self.lines)

    def emit(self, level, text):
        self.lines.append("    " * level + text)

    def body(self, level, me, depth, taken):
        """Statements that end in a wait for ever, inside of which everything taken so far is still held."""
        chance = self.chance
        for _ in range(chance.randrange(3)):
            self.passing(level, me, taken)
        kind = chance.choice(["with", "with", "with", "two", "loop", "try", "except", "call", "managed", "stack", "guard",
                              "bare", "generator", "while"]) if depth < 5 else "end"
        if depth > 1 and chance.random() < 0.3:
            kind = "end"
        free = [index for index in range(LOCKS) if index not in taken or self.is_recursive(index)]
        index = chance.choice(free) if free else None
        if index is None and kind not in ("loop", "try", "except", "call", "while"):
            kind = "end"
        more = dict(me=me, depth=depth + 1)
        lock = "locks[%s]" % index
        if kind == "end":
            return self.end(level, me, taken)
        if kind in ("with", "managed", "guard", "stack", "bare", "two", "generator"):
            self.emit(level, "p.wants(me, %d)" % index)
        if kind == "with":
            self.emit(level, "with %s%s:" % (lock, chance.choice(["", " as entered"])))
            self.emit(level + 1, "p.took(me, %d, 'with')" % index)
            self.body(level + 1, taken=taken + [index], **more)
        elif kind == "two":
            other = chance.choice(free)
            if other == index and not self.is_recursive(index):
                other = None
            if other is None:
                self.emit(level, "with %s:" % lock)
                self.emit(level + 1, "p.took(me, %d, 'with')" % index)
                self.body(level + 1, taken=taken + [index], **more)
            else:
                self.emit(level, "with %s, said(me, %d, %d), locks[%d]:" % (lock, index, other, other))
                self.emit(level + 1, "p.took(me, %d, 'with')" % other)
                self.body(level + 1, taken=taken + [index, other], **more)
        elif kind == "loop":
            self.emit(level, "for turn in range(%d):" % chance.randrange(1, 4))
            self.body(level + 1, taken=taken, **more)
        elif kind == "while":
            self.emit(level, "while True:")
            self.body(level + 1, taken=taken, **more)
        elif kind == "try":
            self.emit(level, "try:")
            self.body(level + 1, taken=taken, **more)
            self.emit(level, "finally:")
            self.emit(level + 1, "pass")
        elif kind == "except":
            self.emit(level, "try:")
            self.emit(level + 1, "raise ValueError(me)")
            self.emit(level, "except ValueError as error:")
            self.body(level + 1, taken=taken, **more)
        elif kind == "call":
            self.functions += 1
            name = "inner%d" % self.functions
            self.emit(level, "def %s(argument):" % name)
            self.body(level + 1, taken=taken, **more)
            self.emit(level, "[%s(one) for one in (1,)]" % name if chance.random() < 0.3 else "%s(1)" % name)
        elif kind == "managed":
            self.emit(level, "with managed(%s):" % lock)
            self.emit(level + 1, "p.took(me, %d, 'managed')" % index)
            self.body(level + 1, taken=taken + [index], **more)
        elif kind == "stack":
            self.emit(level, "with contextlib.ExitStack() as stack:")
            self.emit(level + 1, "stack.enter_context(%s)" % lock)
            self.emit(level + 1, "p.took(me, %d, 'stack')" % index)
            self.body(level + 1, taken=taken + [index], **more)
        elif kind == "guard":
            self.emit(level, "with Guard(%s):" % lock)
            self.emit(level + 1, "p.took(me, %d, 'guard')" % index)
            self.body(level + 1, taken=taken + [index], **more)
        elif kind == "bare":
            self.functions += 1
            held = "held%d" % self.functions
            self.emit(level, "%s = %s" % (held, lock))
            self.emit(level, "%s.acquire()" % held)
            self.emit(level, "try:")
            self.emit(level + 1, "p.took(me, %d, 'bare')" % index)
            self.body(level + 1, taken=taken + [index], **more)
            self.emit(level, "finally:")
            self.emit(level + 1, "%s.release()" % held)
        elif kind == "generator":
            # Under one name the second would end the first, which gives its lock back.
            self.functions += 1
            self.emit(level, "started%d = suspended(p, me, %d)" % (self.functions, index))
            self.emit(level, "next(started%d)" % self.functions)
            self.body(level, taken=taken + [index], **more)

    def passing(self, level, me, taken):
        """A block that is entered and left again: what it leaves behind on the stack is dead."""
        free = [index for index in range(LOCKS) if index not in taken or self.is_recursive(index)]
        if not free:
            return
        index = self.chance.choice(free)
        self.emit(level, "p.wants(me, %d)" % index)
        self.emit(level, "with locks[%d]:" % index)
        self.emit(level + 1, "p.took(me, %d, 'with')" % index)
        self.emit(level + 1, self.chance.choice(["pass", "len([1, 2, 3])", "str(me)"]))
        self.emit(level + 1, "p.leaves(%d)" % index)

    def end(self, level, me, taken):
        chance = self.chance
        conditions = [index for index in taken if isinstance(self.locks[index], threading.Condition)
                      and taken.count(index) == 1 and not self.is_recursive(index)]
        by_with = conditions and chance.random() < 0.3
        if by_with:
            index = chance.choice(conditions)
            self.emit(level, "p.waits_for_condition(me, %d)" % index)
        elif chance.random() < 0.7:
            index = chance.randrange(LOCKS)
            self.emit(level, "p.wants(me, %d)" % index)
            how = chance.choice(["with", "with", "acquire"])
            if how == "with":
                self.emit(level, "with locks[%d]:" % index)
                self.emit(level + 1, "p.took(me, %d, 'with')" % index)
                self.emit(level + 1, "p.rests(me)")
            else:
                self.emit(level, "locks[%d].acquire()" % index)
                self.emit(level, "p.took(me, %d, 'unguarded')" % index)
                self.emit(level, "p.rests(me)")
        else:
            self.emit(level, "p.rests(me)")

    def run(self):
        for thread in range(THREADS):
            me = "p%dt%d" % (self.number, thread)
            code = self.code(me)
            names = dict(p=self, me=me, locks=self.locks, contextlib=contextlib, managed=managed, Guard=Guard,
                         suspended=suspended, said=self.between)
            exec(compile(code, "<%s>" % me, "exec"), names)
            threading.Thread(target=names["main"], name=me, daemon=True).start()
            self.said.get()

    @contextlib.contextmanager
    def between(self, me, first, second):
        """Between the two locks of one `with`."""
        self.took(me, first, "with")
        self.wants(me, second)
        yield

    def table(self):
        holders = {str(self.object_of(index)): [who, how] for index, (who, how, _) in self.holders.items()}
        waits = {who: str(self.object_of(index)) for who, index in self.waits.items()}
        return {"holders": holders, "waits": waits}


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    programs = [Program(number, random.Random("%d %d" % (seed, number))) for number in range(count)]
    for program in programs:
        program.run()
    print(json.dumps({"%d" % p.number: p.table() for p in programs}), flush=True)
    print("READY pids=%d" % os.getpid(), flush=True)
    threading.Event().wait()


main()
