#!/usr/bin/env python3
"""Random worlds of native locks: prints a program in C++ with the worlds of the seeds FIRST to FIRST + COUNT - 1.

worlds.py FIRST COUNT

The program, called with a seed, lets the threads of that world do in turn what they did before: take locks, and give some
back, in one of many ways that people write that in. Then each waits for something once. The world's truth follows from
who has what: a thread that sleeps goes on, one that waits goes on if all who have what it waits for do. When each thread
waits or sleeps, the program prints `TRUTH on|late|never WAYS THREAD...` and READY, with the names of the threads that never go on; late
is a world of which nobody outside can say it: a time-out is over after a day, a signal has a handler, or the main thread pauses
while others wait to be woken.
"""
import random, sys

HEAD = r"""
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <shared_mutex>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#define APART __attribute__((noinline))

volatile int one = 1, zero = 0;
std::atomic<int> turn, arrived;
std::atomic<int> ids[16];
pthread_t threads[16];

static void sleep_long() { timespec long_time{100000, 0}; nanosleep(&long_time, nullptr); }
static void accept_any() {
    int door = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(door, 1) < 0 || accept(door, nullptr, nullptr) < 0) abort();
}
static void begin(int thread) {
    ids[thread] = syscall(SYS_gettid);
    while (turn.load() != thread) usleep(500);
}
static void settle(int thread, int all) {
    turn = thread + 1;
    while (turn.load() != all) usleep(500);
    arrived++;
}
static bool is_asleep(int id) {
    char name[64], line[512];
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", id);
    FILE *file = fopen(name, "r");
    if (!file) return true;
    size_t size = fread(line, 1, sizeof line - 1, file);
    line[size] = 0;
    fclose(file);
    char *end = strrchr(line, ')');
    return end && end[2] == 'S';
}
static void say(int all, const char *truth) {
    while (arrived.load() < all) usleep(500);
    for (int times = 0; times < 3; times++) {
        bool are_asleep = true;
        for (int thread = 0; thread < all; thread++) are_asleep = are_asleep && is_asleep(ids[thread]);
        if (!are_asleep) times = -1;
        usleep(1000);
    }
    printf("%s\nREADY pids=%d\n", truth, getpid());
    fflush(stdout);
}

template <class Lock> struct Owner {
    std::unique_lock<Lock> lock;
    int others[3];
    explicit Owner(Lock &of) : lock(of) {}
};
/// A guard that users write.
struct Scope {
    pthread_mutex_t *lock;
    explicit Scope(pthread_mutex_t *of) : lock(of) { pthread_mutex_lock(lock); }
    ~Scope() { if (lock) pthread_mutex_unlock(lock); }
    void end() { pthread_mutex_unlock(lock); lock = nullptr; }
};
template <class Guard> APART void swallow(Guard guard) { (void)guard; }
"""


class Lock:
    def __init__(self, world, index, draw):
        self.kind = draw.choice(["mutex"] * 4 + ["std::mutex"] * 3 + ["recursive", "rwlock", "rwlock", "shared", "semaphore", "timed"])
        self.name = f"lock{index}"
        self.where = draw.choice(["variable", "array", "heap"])
        self.world = world
        self.exclusive = None  # the thread that has it
        self.readers = []
        ctype = {
            "mutex": "pthread_mutex_t", "recursive": "pthread_mutex_t", "rwlock": "pthread_rwlock_t", "semaphore": "sem_t",
            "std::mutex": "std::mutex", "shared": "std::shared_mutex", "timed": "std::timed_mutex",
        }
        self.type = ctype[self.kind]
        # An expression of type Lock & wherever `w` is the world.
        self.it = {"variable": f"w->{self.name}", "array": f"w->{self.name}[one + 1]", "heap": f"(*w->{self.name})"}[self.where]

    def declared(self):
        return {"variable": f"{self.type} {self.name};", "array": f"{self.type} {self.name}[4];", "heap": f"{self.type} *{self.name} = new {self.type};"}[self.where]

    def made(self):
        if self.kind == "mutex":
            return f"pthread_mutex_init(&{self.it}, nullptr);"
        if self.kind == "recursive":
            return (f"{{ pthread_mutexattr_t how; pthread_mutexattr_init(&how); pthread_mutexattr_settype(&how, PTHREAD_MUTEX_RECURSIVE); "
                    f"pthread_mutex_init(&{self.it}, &how); }}")
        if self.kind == "rwlock":
            return f"pthread_rwlock_init(&{self.it}, nullptr);"
        if self.kind == "semaphore":
            return f"sem_init(&{self.it}, 0, 1);"
        return ""

    def has_guards(self):
        return self.kind in ("std::mutex", "shared", "timed")

    def may_share(self):
        return self.kind in ("rwlock", "shared")

    def take(self, reads=False):
        if self.kind in ("mutex", "recursive"):
            return f"pthread_mutex_lock(&{self.it});"
        if self.kind == "rwlock":
            return f"pthread_rwlock_{'rd' if reads else 'wr'}lock(&{self.it});"
        if self.kind == "semaphore":
            return f"while (sem_wait(&{self.it}) < 0 && errno == EINTR) {{}}"
        return f"{self.it}.lock{'_shared' if reads else ''}();"

    def attempt(self):
        """An expression that is true if it was taken."""
        if self.kind in ("mutex", "recursive"):
            return f"pthread_mutex_trylock(&{self.it}) == 0"
        if self.kind == "rwlock":
            return f"pthread_rwlock_trywrlock(&{self.it}) == 0"
        if self.kind == "semaphore":
            return f"sem_trywait(&{self.it}) == 0"
        return f"{self.it}.try_lock()"

    def give(self, reads=False):
        if self.kind in ("mutex", "recursive"):
            return f"pthread_mutex_unlock(&{self.it});"
        if self.kind == "rwlock":
            return f"pthread_rwlock_unlock(&{self.it});"
        if self.kind == "semaphore":
            return f"sem_post(&{self.it});"
        return f"{self.it}.unlock{'_shared' if reads else ''}();"

    def guard(self, name, reads=False):
        kind = "std::shared_lock" if reads else "std::unique_lock"
        return f"{kind}<{self.type}> {name}({self.it});"

    def is_free_for(self, reads):
        return self.exclusive is None and (reads or not self.readers)


class World:
    make_lock = Lock

    def __init__(self, seed):
        self.seed = seed
        self.draw = random.Random(seed)
        self.functions = []
        self.count = 0
        self.ways = set()
        draw = self.draw
        self.all = draw.choice([2, 2, 2, 3, 3, 4])
        self.locks = [self.make_lock(self, index, draw) for index in range(draw.randint(2, 5))]
        self.events = 0
        # thread -> "on", or groups of threads: it goes on once all of one group have.
        self.waits = {}
        # Threads whose wait has a time-out, in a day.
        self.timed = set()
        # thread -> the thread that it joins.
        self.joins = {}
        self.fields = []
        self.inits = []
        self.ends = {thread: [] for thread in range(self.all)}
        # Finals first: what each holds at the end decides what the others may wait for.
        self.plans = [self.plan(thread) for thread in range(self.all)]
        self.finals = [self.final(thread) for thread in range(self.all)]
        self.bodies = [self.body(thread) for thread in range(self.all)]
        self.never = self.left({thread for thread in range(self.all) if self.waits[thread] == "on"} | self.timed)
        late = self.left({thread for thread in range(self.all) if self.waits[thread] == "on"})
        self.truth = "on" if not late else "never" if late == self.never else "late"

    def left(self, on):
        """Those that never go on if these do."""
        while True:
            more = {t for t in range(self.all) if t not in on and any(set(group) <= on for group in self.waits[t])}
            if not more:
                return sorted(set(range(self.all)) - on)
            on |= more

    def fresh(self, what):
        self.count += 1
        return f"{what}{self.count}_of_{self.seed}"

    def function(self, result, name, arguments, body, apart=None):
        apart = self.draw.random() < 0.8 if apart is None else apart
        self.functions.append(f"{'APART ' if apart else ''}static {result} {name}({arguments}) {{\n{body}\n}}\n")
        return name

    def given(self, lock, holders):
        """Who gives a lock: its holders, or the thread that posts a semaphore that it did not take."""
        groups = [list(holders)]
        if lock.kind == "semaphore" and self.draw.random() < 0.3:
            helper = self.draw.randrange(self.all)
            self.ways.add("posted")
            self.ends[helper].append(lock.give())
            groups.append([helper])
        return groups

    def plan(self, thread):
        """What a thread does before it waits: a list of (what, lock, reads)."""
        draw, steps = self.draw, []
        for _ in range(draw.randint(1, 4)):
            lock = draw.choice(self.locks)
            reads = lock.may_share() and draw.random() < 0.6
            if any(lock is other for _, other, _ in steps):
                continue
            if draw.random() < 0.5:
                if lock.is_free_for(reads):
                    steps.append(("hold", lock, reads))
                    if reads:
                        lock.readers.append(thread)
                    else:
                        lock.exclusive = thread
            elif lock.is_free_for(reads):
                steps.append(("past", lock, reads))
            elif lock.exclusive is not None and lock.exclusive != thread:
                steps.append(("refused", lock, False))
        return steps

    def final(self, thread):
        """Text of the wait at the end; its truth goes to self.waits."""
        draw = self.draw
        own = {id(lock) for what, lock, _ in self.plans[thread] if what == "hold"}
        taken = [lock for lock in self.locks if id(lock) not in own and (lock.exclusive is not None or lock.readers)]
        relocked = [lock for what, lock, _ in self.plans[thread] if what == "hold" and lock.kind in ("mutex", "std::mutex", "timed", "semaphore")]
        others = [other for other in range(self.all) if other != thread]
        joined = [other for other in others if other not in self.joins.values() and self.joins.get(other) != thread]
        ways = ["sleep", "event", "semaphore", "outside"] + ["lock"] * (10 if taken else 0) + ["join"] * bool(joined) + ["own lock"] * bool(relocked)
        way = draw.choice(ways)
        if way == "own lock":
            lock = draw.choice(relocked)
            self.waits[thread] = self.given(lock, [thread])
            self.ways |= {way, lock.kind}
            return f"{lock.take()} {lock.give()}"
        if way == "lock":
            lock = draw.choice(taken)
            reads = lock.exclusive is not None and lock.may_share() and draw.random() < 0.4
            holders = lock.readers if lock.exclusive is None else [lock.exclusive]
            self.ways.add(lock.kind)
            if draw.random() < 0.1 and lock.kind in ("mutex", "semaphore", "timed"):
                self.waits[thread] = self.given(lock, holders)
                self.timed.add(thread)
                self.ways.add("timed")
                if lock.kind == "timed":
                    return f"if ({lock.it}.try_lock_for(std::chrono::hours(20))) {lock.give()}"
                timed = "pthread_mutex_timedlock" if lock.kind == "mutex" else "sem_timedwait"
                return f"{{ timespec then; clock_gettime(CLOCK_REALTIME, &then); then.tv_sec += 90000; if ({timed}(&{lock.it}, &then) == 0) {lock.give()} }}"
            self.waits[thread] = self.given(lock, holders)
            return f"{lock.take(reads)} {lock.give(reads)}"
        self.ways.add(way)
        if way == "sleep":
            self.waits[thread] = "on"
            return draw.choice(["sleep_long();", "poll(nullptr, 0, INT_MAX);", "sleep(100000);"])
        if way == "outside":
            self.waits[thread] = "on"
            return "accept_any();"
        setter = draw.choice(others)
        self.waits[thread] = [[setter]]
        self.events += 1
        if way == "join":
            # The C library refuses two that join one thread, and two that join each other.
            setter = draw.choice(joined)
            self.waits[thread], self.joins[thread] = [[setter]], setter
            return f"pthread_join(threads[{setter}], nullptr);"
        name = f"event{self.events}"
        if way == "semaphore":
            self.fields.append(f"sem_t {name};")
            self.inits.append(f"sem_init(&w->{name}, 0, 0);")
            self.ends[setter].append(f"sem_post(&w->{name});")
            return f"while (sem_wait(&w->{name}) < 0) {{}}"
        if draw.random() < 0.5:
            self.fields.append(f"pthread_mutex_t lock_of_{name} = PTHREAD_MUTEX_INITIALIZER; pthread_cond_t {name} = PTHREAD_COND_INITIALIZER; bool is_{name} = false;")
            self.ends[setter].append(f"pthread_mutex_lock(&w->lock_of_{name}); w->is_{name} = true; pthread_cond_broadcast(&w->{name}); pthread_mutex_unlock(&w->lock_of_{name});")
            return f"pthread_mutex_lock(&w->lock_of_{name}); while (!w->is_{name}) pthread_cond_wait(&w->{name}, &w->lock_of_{name}); pthread_mutex_unlock(&w->lock_of_{name});"
        self.fields.append(f"std::mutex lock_of_{name}; std::condition_variable {name}; bool is_{name} = false;")
        self.ends[setter].append(f"{{ std::lock_guard<std::mutex> guard(w->lock_of_{name}); w->is_{name} = true; w->{name}.notify_all(); }}")
        return f"{{ std::unique_lock<std::mutex> guard(w->lock_of_{name}); w->{name}.wait(guard, [&] {{ return w->is_{name}; }}); }}"

    def taken(self, lock, reads):
        """(text that takes it for good, text that gives it back): None where an object does that."""
        draw, ways = self.draw, ["direct"] * 3 + ["helper", "branch", "loop", "try", "pointer"]
        if reads:
            ways.remove("try")
        if lock.has_guards():
            ways += ["guard"] * 4 + ["owner", "heap", "optional", "deferred", "moved", "returned"]
            if reads:
                ways = [way for way in ways if way not in ("owner", "heap", "optional")]
        if lock.kind == "mutex":
            ways += ["scope"] * 2
        way = draw.choice(ways)
        self.ways.add(way)
        take, give, w = lock.take(reads), lock.give(reads), f"World{self.seed} *w"
        guard = self.fresh("guard")
        if way == "helper":
            begin = self.function("void", self.fresh("begin"), w, f"    {take}")
            end = self.function("void", self.fresh("end"), w, f"    {give}")
            return f"{begin}(w);", f"{end}(w);"
        texts = {
            "branch": (f"if (one) {{ {take} }} else {{ one = 2; }}", give),
            "loop": (f"for (int i = 0; i < 2 + zero; i++) {{ {take} if (i < 1 + zero) {{ {give} }} }}", give),
            "try": (f"if (!({lock.attempt()})) abort();", give),
        }
        if way in texts:
            return texts[way]
        if way == "pointer":
            pointer = self.fresh("pointer")
            begin = self.function("void", self.fresh("begin"), w, f"    {take}", True)
            return f"void (*volatile {pointer})(World{self.seed} *) = {begin}; {pointer}(w);", give
        texts = {
            "guard": (lock.guard(guard, reads), None),
            "owner": (f"Owner<{lock.type}> {guard}({lock.it});", None),
            "heap": (f"auto {guard} = std::make_unique<std::unique_lock<{lock.type}>>({lock.it});", None),
            "optional": (f"std::optional<std::unique_lock<{lock.type}>> {guard}; if (one) {guard}.emplace({lock.it});", None),
        }
        if way in texts:
            return texts[way]
        kind = "std::shared_lock" if reads else "std::unique_lock"
        if way == "deferred":
            return f"{kind}<{lock.type}> {guard}({lock.it}, std::defer_lock); if (one) {guard}.lock();", None
        if way == "moved":
            return f"{lock.guard(guard + '_first', reads)} {kind}<{lock.type}> {guard}(std::move({guard}_first));", None
        if way == "returned":
            make = self.function(f"{kind}<{lock.type}>", self.fresh("make"), w, f"    {kind}<{lock.type}> guard({lock.it}); return guard;")
            return f"auto {guard} = {make}(w);", None
        if way == "scope":
            return f"Scope {guard}(&{lock.it});", None
        return take, give

    def passed(self, lock, reads):
        """(text that takes it and gives it back, text for the beginning of what is called next)."""
        draw, ways = self.draw, ["pair", "pair", "end helper", "both helpers", "branch", "not taken", "loop", "callee", "failed", "early"]
        if lock.has_guards():
            ways += ["guard scope", "guard unlock", "guard moved", "guard reset", "guard callee", "not owned"]
        if lock.kind == "mutex":
            ways += ["scope", "scope end"]
        way = draw.choice(ways)
        self.ways.add("past " + way)
        take, give, w = lock.take(reads), lock.give(reads), f"World{self.seed} *w"
        guard = self.fresh("guard")
        kind = "std::shared_lock" if reads else "std::unique_lock"
        if way == "end helper":
            end = self.function("void", self.fresh("end"), w, f"    {give}")
            return f"{take} {end}(w);", ""
        if way == "both helpers":
            begin = self.function("void", self.fresh("begin"), w, f"    {take}")
            end = self.function("void", self.fresh("end"), w, f"    if (one) {{ {give} }}")
            return f"{begin}(w); {end}(w);", ""
        texts = {
            "branch": (f"{take} if (one) {{ {give} }} else {{ one = 3; {give} }}", ""),
            "not taken": (f"if (zero) {{ {take} }}", ""),
            "loop": (f"for (int i = 0; i < 3 + zero; i++) {{ {take} one = 1; {give} }}", ""),
            "callee": (take, give),
            "failed": (f"if ({lock.attempt()}) {{ one = 1; {lock.give()} }}", ""),
        }
        if way in texts:
            return texts[way]
        if way == "early":
            step = self.function("int", self.fresh("step"), w, f"    {take}\n    if (one) {{ {give} return 1; }}\n    one = 4; {give}\n    return 0;")
            return f"zero = {step}(w) - 1;", ""
        texts = {
            "guard scope": (f"{{ {lock.guard(guard, reads)} one = 1; }}", ""),
            "guard unlock": (f"{lock.guard(guard, reads)} {guard}.unlock();", ""),
            "guard moved": (f"{lock.guard(guard, reads)} swallow(std::move({guard}));", ""),
            "guard reset": (f"auto {guard} = std::make_unique<{kind}<{lock.type}>>({lock.it}); {guard}.reset();", ""),
        }
        if way in texts:
            return texts[way]
        if way == "guard callee":
            end = self.function("void", self.fresh("end"), f"{kind}<{lock.type}> &guard", "    guard.unlock();")
            return f"{lock.guard(guard, reads)} {end}({guard});", ""
        texts = {
            "not owned": (f"{kind}<{lock.type}> {guard}({lock.it}, std::defer_lock); if (zero) {guard}.lock();", ""),
            "scope": (f"{{ Scope {guard}(&{lock.it}); one = 1; }}", ""),
            "scope end": (f"Scope {guard}(&{lock.it}); {guard}.end();", ""),
        }
        if way in texts:
            return texts[way]
        return f"{take} one = 1; {give}", ""

    def body(self, thread):
        """The functions of a thread, from the innermost on."""
        draw, steps = self.draw, self.plans[thread]
        depth = draw.randint(1, 3)
        parts = [[] for _ in range(depth)]
        for step in steps:
            parts[draw.randrange(depth)].append(step)
        parts = [part for part in parts]
        # The order of the plan is that of the calls.
        flat = [step for part in parts for step in part]
        order = {id(step): place for place, step in enumerate(flat)}
        parts = [sorted(part, key=lambda step: order[id(step)]) for part in parts]
        w = f"World{self.seed} *w"
        inner = f"    settle({thread}, {self.all});\n    {self.finals[thread]}"
        for level in reversed(range(depth)):
            before, after, carried, wrapped = [], [], [], None
            for what, lock, reads in parts[level]:
                is_own = lock.exclusive is None and not lock.readers
                if wrapped is None and (what == "hold" or what == "past" and is_own) and draw.random() < 0.15:
                    # A callback that is called with the lock, or with the lock given back meanwhile.
                    self.ways.add("callback" if what == "hold" else "past callback")
                    wrapped = self.fresh("with")
                    take, give = (lock.take(reads), lock.give(reads))[:: 1 if what == "hold" else -1]
                    text = f"    {take}\n    callback(w);\n    one = 1;\n    {give}"
                    self.function("void", wrapped, f"{w}, void (*callback)(World{self.seed} *)", text, True)
                    if what == "past":
                        before.append(give)
                        after.insert(0, take)
                elif what == "hold":
                    take, give = self.taken(lock, reads)
                    before.append(take)
                    if give:
                        after.insert(0, give)
                elif what == "past":
                    text, rest = self.passed(lock, reads)
                    before.append(text)
                    if rest:
                        carried.append(rest)
                else:
                    self.ways.add("refused")
                    before.append(f"if ({lock.attempt()}) abort();")
            name = self.fresh("inner")
            self.function("void", name, w, "\n".join(f"    {text}" for text in carried) + "\n" + inner)
            inner = "\n".join(f"    {text}" for text in before + [f"{wrapped}(w, {name});" if wrapped else f"{name}(w);"] + after + ["one = 1;"])
        ends = "\n".join(f"    {text}" for text in self.ends[thread])
        name = f"thread{thread}_of_{self.seed}"
        text = f"    auto w = static_cast<World{self.seed} *>(argument);\n    begin({thread});\n    run_{name}(w);\n{ends}\n    sem_post(&w->all_done);\n    return nullptr;"
        self.function("void", f"run_{name}", w, inner)
        self.function("void *", name, "void *argument", text)
        return name

    def said(self):
        """The line that the program prints of this world."""
        ways, never = ",".join(sorted(self.ways)).replace(" ", "_"), " ".join(f"t{thread}" for thread in self.never)
        return f"TRUTH {self.truth} {ways} {never}"

    def source(self):
        fields = "\n".join(f"    {text}" for text in [lock.declared() for lock in self.locks] + self.fields)
        inits = "\n".join(f"    {text}" for text in [lock.made() for lock in self.locks] + self.inits)
        starts = "\n".join(f"    pthread_create(&threads[{t}], nullptr, {name}, w); pthread_setname_np(threads[{t}], \"t{t}\");" for t, name in enumerate(self.bodies))
        where = self.draw.choice(["static World{0} shared; auto w = &shared;", "auto w = new World{0};", "World{0} own; auto w = &own;"])
        rest = self.draw.choice(["for (;;) pause();", f"for (int i = 0; i < {self.all}; i++) while (sem_wait(&w->all_done) < 0) {{}}"])
        # A handler could end any wait, and a main thread that pauses is how services idle.
        has_handler = self.draw.random() < 0.15
        if self.truth == "never" and (has_handler or "pause" in rest and self.events):
            self.truth = "late"
        handler = "signal(SIGUSR1, [](int) { one = 1; });\n    " if has_handler else ""
        return (f"struct World{self.seed} {{\n    sem_t all_done;\n{fields}\n}};\n" + "\n".join(self.functions) +
                f"static void world{self.seed}() {{\n    {where.format(self.seed)}\n    sem_init(&w->all_done, 0, 0);\n{inits}\n{starts}\n"
                f"    {handler}say({self.all}, \"{self.said()}\");\n    {rest}\n}}\n")


def print_program(make, head, case, main):
    """The program with the worlds that the command line names: `main` has a `case` for each seed in the place of CASES."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    worlds = [make(seed) for seed in range(first, first + count)]
    print(head)
    for world in worlds:
        print(world.source())
    cases = "\n".join(case.format(seed=world.seed) for world in worlds)
    print(main.replace("CASES", cases))


if __name__ == "__main__":
    MAIN = "int main(int, char **arguments) {\n    switch (atoi(arguments[1])) {\nCASES\n    }\n    return 1;\n}"
    print_program(World, HEAD, "        case {seed}: world{seed}(); break;", MAIN)
