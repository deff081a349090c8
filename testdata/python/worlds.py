"""A random world: the main thread waits for an event, and another thread sets it later, or never will.

python3 worlds.py SEED prints `TRUTH on|never WAY` and READY, and waits. The truth is `on` where something in the process still sets the
event within DELAY seconds (environment, 80 by default), and `never` where nothing can. WAY is for people.
"""
import atexit, builtins, collections, contextvars, functools, gc, io, os, random, signal, sys, threading, time, types, weakref

SEED = int(sys.argv[1])
DELAY = float(os.environ.get("DELAY", "80"))
R = random.Random(SEED)
# Only the thread that goes on collects.
gc.disable()
signal.alarm(int(os.environ.get("LIMIT", "150")))
HERE = os.path.dirname(os.path.abspath(__file__))


# What is waited for: (object, how main waits, how it is given).
def an_event():
    event = threading.Event()
    return event, event.wait, "set"


def a_condition():
    condition = threading.Condition()

    def wait():
        with condition:
            condition.wait()
    condition.give = None

    class Bell:
        def __init__(self, condition):
            self.condition = condition

        def ring(self):
            with self.condition:
                self.condition.notify_all()
    return Bell(condition), wait, "ring"


def a_queue():
    import queue
    jobs = queue.Queue()

    class Feeder:
        def __init__(self, jobs):
            self.jobs = jobs

        def feed(self):
            self.jobs.put(1)
    return Feeder(jobs), jobs.get, "feed"


def a_semaphore():
    permits = threading.Semaphore(0)
    return permits, permits.acquire, "release"


def a_lock():
    lock = threading.Lock()
    lock.acquire()
    return lock, lock.acquire, "release"


# Holders: each takes an object and gives (thing, function that gets the object out of the thing).
class Plain:
    tag = None


class Slots:
    __slots__ = ("kept",)


class SubDict(dict):
    pass


class SubList(list):
    pass


class SubTuple(tuple):
    pass


class SubStr(str):
    pass


class SubSet(set):
    pass


class SubDeque(collections.deque):
    pass


class SubOrdered(collections.OrderedDict):
    pass


class SubIO(io.StringIO):
    pass


class SubInt(int):
    pass


class SubError(Exception):
    pass


def h_attribute(x):
    p = Plain(); p.kept = x
    return p, lambda p: p.kept


def h_slot(x):
    s = Slots(); s.kept = x
    return s, lambda s: s.kept


def h_of_builtin(x):
    kind = R.choice([SubDict, SubList, SubTuple, SubStr, SubSet, SubDeque, SubOrdered, SubIO, SubInt, SubError])
    s = kind(); s.kept = x
    return s, lambda s: s.kept


def h_class(x):
    cls = type("Made", (), {"kept": x})
    return R.choice([cls, cls()]), lambda c: c.kept


def h_base(x):
    base = type("Base", (), {"kept": x})
    return type("Made", (base,), {})(), lambda c: c.kept


def h_metaclass(x):
    meta = type("Meta", (type,), {"kept": x})
    return meta("Made", (), {}), lambda c: c.kept


def h_property(x):
    return type("Made", (), {"kept": property(lambda self: x)})(), lambda c: c.kept


def h_descriptor(x):
    class Get:
        def __get__(self, one, owner):
            return x
    return type("Made", (), {"kept": Get()})(), lambda c: c.kept


def h_getattr(x):
    class Made:
        def __getattr__(self, name):
            return x
    return Made(), lambda c: c.whatever


def h_getitem(x):
    class Made:
        def __getitem__(self, key):
            return x
    return Made(), lambda c: c[0]


def h_list(x):
    return [1, x], lambda l: l[1]


def h_dict(x):
    return {"a": x}, lambda d: d["a"]


def h_key(x):
    d = {}
    d[x] = 1
    return d, lambda d: next(iter(d))


def h_set(x):
    return {x}, lambda s: next(iter(s))


def h_deque(x):
    return collections.deque([x]), lambda d: d[0]


def h_ordered(x):
    return collections.OrderedDict(a=x), lambda d: d["a"]


def h_factory(x):
    return collections.defaultdict(lambda: x), lambda d: d["new"]


def h_missing(x):
    class Made(dict):
        def __missing__(self, key):
            return x
    return Made(), lambda d: d["new"]


def h_namedtuple(x):
    return collections.namedtuple("Pair", "a kept")(1, x), lambda p: p.kept


def h_namespace(x):
    return types.SimpleNamespace(kept=x), lambda n: n.kept


def h_chain(x):
    return collections.ChainMap({}, {"a": x}), lambda c: c["a"]


def h_closure(x):
    return (lambda: x), lambda f: f()


def h_default(x):
    def get(x=x):
        return x
    return get, lambda f: f()


def h_keyword_default(x):
    def get(*, x=x):
        return x
    return get, lambda f: f()


def h_function_attribute(x):
    def f():
        pass
    f.kept = x
    return f, lambda f: f.kept


def h_partial(x):
    return functools.partial(lambda x: x, x), lambda f: f()


def h_bound(x):
    class Made:
        def own(self):
            return self.kept
    m = Made(); m.kept = x
    return m.own, lambda f: f()


def h_generator(x):
    def make():
        kept = x
        while True:
            yield kept
    g = make()
    if R.random() < 0.5:
        next(g)
    return g, lambda g: next(g)


def h_iterator(x):
    return iter([x, x]), lambda i: next(i)


def h_map(x):
    return map(lambda one: one, [x, x]), lambda i: next(i)


def h_weakref(x):
    KEPT.append(x)
    return weakref.ref(x), lambda r: r()


def h_weak_values(x):
    KEPT.append(x)
    return weakref.WeakValueDictionary(a=x), lambda d: d["a"]


def h_cached(x):
    @functools.lru_cache(None)
    def get():
        return x
    get()
    return get, lambda f: f()


def h_exception(x):
    return ValueError(x), lambda e: e.args[0]


def h_module(x):
    m = types.ModuleType("held"); m.kept = x
    return m, lambda m: m.kept


def h_static(x):
    cls = type("Made", (), {"get": staticmethod(lambda: x)})
    return cls, lambda c: c.get()


def h_context(x):
    context = contextvars.Context()
    context.run(VARIABLE.set, x)
    return context, lambda c: c[VARIABLE]


KEPT = []
VARIABLE = contextvars.ContextVar("kept")
HOLDERS = [v for k, v in sorted(globals().items()) if k.startswith("h_")]


# Doors: how the thread that goes on comes to the thing. Each takes (thing, do) and gives a function without arguments.
def d_argument(thing, do):
    return lambda: do(thing)


def d_global(thing, do):
    globals()["the_thing"] = thing

    def go():
        do(the_thing)
    return go


def d_builtin(thing, do):
    builtins.the_common_thing = thing

    def go():
        do(the_common_thing)
    return go


def d_modules(thing, do):
    m = types.ModuleType("registry_of_things"); m.thing = thing
    sys.modules["registry_of_things"] = m

    def go():
        do(sys.modules["registry_of_things"].thing)
    return go


def d_import(thing, do):
    m = types.ModuleType("late_things"); m.thing = thing
    sys.modules["late_things"] = m

    def go():
        import late_things
        do(late_things.thing)
    return go


def d_late_import(thing, do):
    builtins.the_late_thing = lambda: do(thing)
    import tempfile
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "late_%d.py" % SEED), "w") as f:
        f.write("the_late_thing()\n")
    sys.path.insert(0, folder)
    namespace = {}
    exec("def go():\n    import late_%d\n" % SEED, namespace)
    return namespace["go"]


def d_current_thread(thing, do):
    def go():
        do(threading.current_thread().thing)
    ON_THREAD.append(thing)
    return go


def d_enumerate(thing, do):
    threading.current_thread().thing_of_main = thing

    def go():
        for thread in threading.enumerate():
            if hasattr(thread, "thing_of_main"):
                do(thread.thing_of_main)
    return go


def d_main_thread(thing, do):
    threading.current_thread().thing_of_main = thing

    def go():
        do(threading.main_thread().thing_of_main)
    return go


def d_thread_local(thing, do):
    local = threading.local()

    def before():
        local.thing = thing
    BEFORE.append(before)

    def go():
        do(local.thing)
    return go


def d_context(thing, do):
    def before():
        VARIABLE.set(thing)
    BEFORE.append(before)

    def go():
        do(VARIABLE.get())
    return go


def d_collector(thing, do):
    class Session:
        def __init__(self, close):
            self.close, self.me = close, self

        def __del__(self):
            self.close()
    Session(lambda: do(thing))
    return gc.collect


def d_generator_closed(thing, do):
    def make():
        me = yield
        try:
            yield
        finally:
            do(thing)
    g = make(); next(g); g.send([g])
    return gc.collect


def d_weak_callback(thing, do):
    class Session:
        pass
    session = Session()
    KEPT.append(weakref.ref(session, lambda _: do(thing)))
    session.me = session
    return gc.collect


def d_finalize(thing, do):
    class Session:
        pass
    session = Session()
    weakref.finalize(session, do, thing)
    session.me = session
    return gc.collect


def d_last_reference(thing, do):
    class Session:
        def __init__(self, close):
            self.close = close

        def __del__(self):
            self.close()
    box = [[Session(lambda: do(thing))]]

    def go():
        box.clear()
    return go


def d_exec(thing, do):
    KEPT.append((thing, do))
    return lambda: exec("do, thing = KEPT[-1][1], KEPT[-1][0]\ndo(thing)", globals())


def d_computed(thing, do):
    m = Plain(); m.the_kept = thing
    return lambda: do(getattr(m, "_".join(["the", "kept"])))


def d_attrgetter(thing, do):
    import operator
    m = Plain(); m.the_kept = thing
    get = operator.attrgetter("the_kept")
    return lambda: do(get(m))


def d_pickle(thing, do):
    import pickle
    global reached_by_pickle
    reached_by_pickle = lambda: do(thing)
    text = b"c__main__\nreached_by_pickle\n(tR."
    return lambda: pickle.loads(text)


def d_gc_objects(thing, do):
    KEPT.append(["marked", thing])
    return lambda: [do(one[1]) for one in gc.get_objects() if type(one) is list and one and one[0] == "marked"]


def d_frames(thing, do):
    global main_ident
    main_ident = threading.get_ident()

    def go():
        frame = sys._current_frames()[main_ident]
        while frame:
            if "waited_thing" in frame.f_locals:
                do(frame.f_locals["waited_thing"])
            frame = frame.f_back
    return go


def d_signal(thing, do):
    signal.signal(signal.SIGUSR1, lambda *_: do(thing))
    main = threading.get_ident()
    if R.random() < 0.5:
        return lambda: signal.pthread_kill(main, signal.SIGUSR1)
    return lambda: os.kill(os.getpid(), signal.SIGUSR1)


def d_timer_signal(thing, do):
    signal.signal(signal.SIGVTALRM, lambda *_: do(thing))
    signal.signal(signal.SIGALRM, lambda *_: do(thing))
    signal.alarm(max(1, int(DELAY)))
    return lambda: time.sleep(1000)


def d_interrupt(thing, do):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.get_ident()
    return lambda: signal.pthread_kill(main, signal.SIGINT)


def d_excepthook(thing, do):
    threading.excepthook = lambda _: do(thing)

    def go():
        raise RuntimeError
    return go


def d_stdout(thing, do):
    class Out:
        def write(self, text):
            if text.startswith("late"):
                do(thing)

        def flush(self):
            pass
    STDOUT.append(Out())
    return lambda: print("late")


def d_logging(thing, do):
    import logging

    class Handler(logging.Handler):
        def emit(self, record):
            do(thing)
    logger = logging.getLogger("late"); logger.addHandler(Handler()); logger.propagate = False
    return lambda: logging.getLogger("late").error("late")


def d_trace(thing, do):
    def tracer(frame, event, arg):
        if frame.f_code.co_name == "marked_function":
            do(thing)
    BEFORE.append(lambda: sys.settrace(tracer))

    def marked_function():
        pass
    return lambda: marked_function()


def d_import_hook(thing, do):
    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "no_such_module_here":
                do(thing)
    sys.meta_path.insert(0, Finder())

    def go():
        try:
            import no_such_module_here
        except ImportError:
            pass
    return go


def d_c_callback(thing, do):
    import ctypes
    call = ctypes.CFUNCTYPE(None)(lambda: do(thing))
    KEPT.append(call)
    return lambda: call()


def d_sort(thing, do):
    class Key:
        def __lt__(self, other):
            do(thing)
            return False
    keys = [Key(), Key()]
    return lambda: keys.sort()


def d_operator(thing, do):
    class Made:
        def __add__(self, other):
            do(thing)
            return self

        def __bool__(self):
            do(thing)
            return True

        def __enter__(self):
            do(thing)

        def __exit__(self, *_):
            pass

        def __iter__(self):
            do(thing)
            return iter(())

        def __hash__(self):
            do(thing)
            return 1

        def __eq__(self, other):
            do(thing)
            return True

        def __setitem__(self, key, value):
            do(thing)

        def __str__(self):
            do(thing)
            return ""
    m = Made()

    def with_it():
        with m:
            pass

    def set_it():
        m[0] = 1
    return R.choice([lambda: m + 1, lambda: not m, with_it, lambda: list(m), lambda: {m}, lambda: m == 1, set_it, lambda: f"{m}"])


def d_executor(thing, do):
    import concurrent.futures
    pool = concurrent.futures.ThreadPoolExecutor(1)
    KEPT.append(pool)
    return lambda: pool.submit(do, thing)


def d_new_thread(thing, do):
    return lambda: threading.Thread(target=do, args=(thing,), daemon=True).start()


def d_timer(thing, do):
    timer = threading.Timer(DELAY, do, [thing]); timer.daemon = True
    STARTED.append(timer)
    return lambda: time.sleep(1000)


def d_subclass_run(thing, do):
    class Own(threading.Thread):
        def __init__(self):
            super().__init__(daemon=True)
            self.thing = thing

        def run(self):
            time.sleep(DELAY)
            do(self.thing)
    STARTED.append(Own())
    return lambda: time.sleep(1000)


def d_asyncio(thing, do):
    import asyncio

    async def later():
        await asyncio.sleep(DELAY)
        do(thing)

    def run():
        asyncio.new_event_loop().run_until_complete(later())
    STARTED.append(threading.Thread(target=run, daemon=True))
    return lambda: time.sleep(1000)


def d_codec(thing, do):
    import codecs

    def search(name):
        if name == "late_codec":
            do(thing)
    codecs.register(search)

    def go():
        try:
            b"x".decode("late_codec")
        except LookupError:
            pass
    return go


def d_audit(thing, do):
    sys.addaudithook(lambda event, args: do(thing) if event == "late.event" else None)
    return lambda: sys.audit("late.event")


def d_sqlite(thing, do):
    import sqlite3
    base = sqlite3.connect(":memory:", check_same_thread=False)
    base.create_function("ring", 0, lambda: do(thing) or 1)
    return lambda: base.execute("select ring()").fetchall()


def d_other_iteration(thing, do):
    # A heartbeat that becomes the setter by a counter.
    count = [0]

    def go():
        count[0] += 1
        if count[0] >= 1:
            do(thing)
    return go


ON_THREAD, BEFORE, STARTED, STDOUT = [], [], [], []
DOORS = [v for k, v in sorted(globals().items()) if k.startswith("d_")]


# Bystanders of worlds that never go on: threads that are healthy and cannot do anything to the thing.
def b_sleep():
    while True:
        time.sleep(0.5)


def b_print():
    while True:
        time.sleep(0.3)
        print("beat", flush=True)


def b_count():
    done = 0
    while True:
        done += 1
        time.sleep(0.05)
        if done % 100 == 0:
            print("%d rounds, %s" % (done, time.strftime("%H:%M:%S")), file=sys.stderr, flush=True)


class Beat(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.beats = 0

    def run(self):
        while True:
            self.beats += 1
            time.sleep(0.4)


def b_format():
    names = {"a": 1, "b": [1, 2, 3]}
    while True:
        line = "".join(sorted(f"{key}={value!r};" for key, value in names.items()))
        print(line, len(line), flush=True)
        time.sleep(0.7)


BYSTANDERS = [b_sleep, b_print, b_count, b_format]


def set_later(waited_thing, method, way):
    """Have a thread that gives the thing after DELAY seconds, by holders and a door drawn at random."""
    thing, chain = waited_thing, []
    for _ in range(R.choice([0, 1, 1, 2])):
        holder = R.choice(HOLDERS)
        try:
            thing, out = holder(thing)
        except TypeError:  # Some objects have no weak references or no hash.
            continue
        way.append(holder.__name__)
        chain.insert(0, out)
    give = {"set": lambda x: x.set(), "ring": lambda x: x.ring(), "feed": lambda x: x.feed(),
            "release": lambda x: x.release()}[method]

    def do(thing):
        for out in chain:
            thing = out(thing)
        give(thing)
    door = R.choice(DOORS)
    way.append(door.__name__)
    if door is d_frames:
        thing, do = waited_thing, give
    go = door(thing, do)
    before = list(BEFORE)

    def run():
        for one in before:
            one()
        time.sleep(DELAY)
        go()
        time.sleep(1000)
    thread = threading.Thread(target=run, daemon=True)
    if ON_THREAD:
        thread.thing = ON_THREAD[0]
    STARTED.append(thread)


def main():
    goes_on = R.random() < float(os.environ.get("SHARE", "0.7"))
    make = R.choice([an_event, an_event, an_event, a_condition, a_queue, a_semaphore, a_lock])
    waited_thing, wait, method = make()
    way = [make.__name__]
    if goes_on:
        set_later(waited_thing, method, way)
    for _ in range(R.choice([1, 1, 2]) if not goes_on else R.choice([0, 0, 1])):
        if R.random() < 0.2:
            STARTED.append(Beat())
            way.append("Beat")
        else:
            beat = R.choice(BYSTANDERS)
            STARTED.append(threading.Thread(target=beat, daemon=True))
            way.append(beat.__name__)
    for thread in STARTED:
        thread.start()
    time.sleep(0.1)
    out = sys.stdout
    print("TRUTH", "on" if goes_on else "never", "+".join(way))
    print(f"READY pids={os.getpid()}", flush=True)
    sys.stdout = STDOUT[0] if STDOUT else open(os.devnull, "w")
    sys.stderr = open(os.devnull, "w")
    try:
        wait()
    except KeyboardInterrupt:
        pass
    out.write("WENT ON\n"); out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
