"""A random world of asyncio: the main task waits for what is given to it later, or never will be.

python3 worlds_of_tasks.py SEED prints `TRUTH on|never WAY` and READY, and waits, as worlds.py does, whose holders and doors it takes.
"""
import asyncio, os, signal, subprocess, sys, threading, time

import worlds
from worlds import DELAY, KEPT, R

# Doors of threads that need the main thread or module of worlds.py.
NOT_HERE = {"d_frames", "d_signal", "d_timer_signal", "d_interrupt", "d_pickle", "d_exec"}


# What is waited for: (object, coroutine function that waits, function that gives it).
def an_event():
    event = asyncio.Event()
    return event, event.wait, lambda x: x.set()


def a_queue():
    jobs = asyncio.Queue()
    return jobs, jobs.get, lambda x: x.put_nowait(1)


def a_full_queue():
    jobs = asyncio.Queue(1)
    jobs.put_nowait(1)
    return jobs, lambda: jobs.put(2), lambda x: x.get_nowait()


def an_unfinished_queue():
    jobs = asyncio.Queue()
    jobs.put_nowait(1)
    jobs.get_nowait()
    return jobs, jobs.join, lambda x: x.task_done()


def a_semaphore():
    permits = asyncio.Semaphore(0)
    return permits, permits.acquire, lambda x: x.release()


def a_future():
    future = asyncio.get_running_loop().create_future()

    async def wait():
        await future
    return future, wait, lambda x: x.set_result(1)


def a_condition():
    condition = asyncio.Condition()

    async def wait():
        async with condition:
            await condition.wait()

    async def notify(condition):
        async with condition:
            condition.notify_all()
    return condition, wait, lambda x: KEPT.append(asyncio.ensure_future(notify(x)))


def an_iterator():
    event = asyncio.Event()

    async def items():
        while True:
            await event.wait()
            yield 1

    async def wait():
        async for _ in items():
            return
    return event, wait, lambda x: x.set()


THINGS = [an_event, an_event, a_queue, a_full_queue, an_unfinished_queue, a_semaphore, a_future, a_condition, an_iterator]


# How the main task stands before the wait.
async def w_await(wait):
    await wait()


async def w_task(wait):
    await asyncio.ensure_future(wait())


async def w_gather(wait):
    await asyncio.gather(wait(), asyncio.sleep(0))


async def w_wait(wait):
    await asyncio.wait([asyncio.ensure_future(wait())])


async def w_first(wait):
    await asyncio.wait([asyncio.ensure_future(wait()), asyncio.ensure_future(asyncio.Event().wait())],
                       return_when=asyncio.FIRST_COMPLETED)


async def w_shield(wait):
    await asyncio.shield(wait())


async def w_no_limit(wait):
    await asyncio.wait_for(wait(), None)


async def w_as_completed(wait):
    for one in asyncio.as_completed([wait()]):
        await one


async def w_group(wait):
    if sys.version_info < (3, 11):
        return await wait()
    async with asyncio.TaskGroup() as group:
        group.create_task(wait())


WAYS = [v for k, v in sorted(globals().items()) if k.startswith("w_")]


# Doors: each sees to it that `go` is called in the loop after DELAY seconds.
async def after(go):
    await asyncio.sleep(DELAY)
    go()


def t_task(loop, go, main):
    KEPT.append(loop.create_task(after(go)))


def t_timer(loop, go, main):
    loop.call_later(DELAY, go)


def t_thread(loop, go, main):
    def run():
        time.sleep(DELAY)
        loop.call_soon_threadsafe(go)
    threading.Thread(target=run, daemon=True).start()


def t_coroutine_of_a_thread(loop, go, main):
    async def later():
        go()

    def run():
        time.sleep(DELAY)
        asyncio.run_coroutine_threadsafe(later(), loop)
    threading.Thread(target=run, daemon=True).start()


def t_executor(loop, go, main):
    async def later():
        await loop.run_in_executor(None, time.sleep, DELAY)
        go()
    KEPT.append(loop.create_task(later()))


def t_end_of_a_task(loop, go, main):
    task = loop.create_task(asyncio.sleep(DELAY))
    task.add_done_callback(lambda _: go())
    KEPT.append(task)


def t_end_of_work(loop, go, main):
    loop.run_in_executor(None, time.sleep, DELAY).add_done_callback(lambda _: go())


def t_signal(loop, go, main):
    loop.add_signal_handler(signal.SIGUSR1, go)

    def run():
        time.sleep(DELAY)
        os.kill(os.getpid(), signal.SIGUSR1)
    threading.Thread(target=run, daemon=True).start()


def t_signal_from_outside(loop, go, main):
    loop.add_signal_handler(signal.SIGUSR1, go)


def t_pipe(loop, go, main):
    child = subprocess.Popen(["sleep", str(DELAY)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    KEPT.append(child)
    loop.add_reader(child.stdout.fileno(), go)


def t_child(loop, go, main):
    async def later():
        child = await asyncio.create_subprocess_exec("sleep", str(DELAY))
        await child.wait()
        go()
    KEPT.append(loop.create_task(later()))


def t_connection(loop, go, main):
    async def serve(reader, writer):
        await reader.read()
        go()

    async def start():
        KEPT.append(await asyncio.start_server(serve, "127.0.0.1", 0))
    KEPT.append(loop.create_task(start()))


def t_cancels_all(loop, go, main):
    async def later():
        await asyncio.sleep(DELAY)
        for task in asyncio.all_tasks():
            task.cancel()
    KEPT.append(loop.create_task(later()))


def t_cancels_main(loop, go, main):
    loop.call_later(DELAY, main.cancel)


def t_generator(loop, go, main):
    async def items():
        await asyncio.sleep(DELAY)
        yield 1

    async def later():
        async for _ in items():
            go()
    KEPT.append(loop.create_task(later()))


def t_context(loop, go, main):
    worlds.VARIABLE.set(go)

    async def later():
        await asyncio.sleep(DELAY)
        worlds.VARIABLE.get()()
    KEPT.append(loop.create_task(later()))


def t_frames(loop, go, main):
    async def later():
        await asyncio.sleep(DELAY)
        for task in asyncio.all_tasks():
            found = task.get_coro().cr_frame.f_locals.get("go")
            if found:
                found()
    KEPT.append(loop.create_task(later()))


def t_other_loop(loop, go, main):
    async def later():
        await asyncio.sleep(DELAY)
        loop.call_soon_threadsafe(go)
    threading.Thread(target=lambda: asyncio.new_event_loop().run_until_complete(later()), daemon=True).start()


DOORS = [v for k, v in sorted(globals().items()) if k.startswith("t_")]


async def beat():
    while True:
        await asyncio.sleep(0.3)


async def count():
    done = 0
    while True:
        done += 1
        await asyncio.sleep(0.05)


async def idle():
    await asyncio.Queue().get()


async def world():
    goes_on = R.random() < float(os.environ.get("SHARE", "0.7"))
    make = R.choice(THINGS)
    thing, wait, give = make()
    way, loop, main = [make.__name__], asyncio.get_running_loop(), asyncio.current_task()
    if goes_on:
        chain = []
        for _ in range(R.choice([0, 1, 1, 2])):
            holder = R.choice(worlds.HOLDERS)
            try:
                thing, out = holder(thing)
            except TypeError:  # Some objects have no weak references or no hash.
                continue
            way.append(holder.__name__)
            chain.insert(0, out)

        def get(thing):
            for out in chain:
                thing = out(thing)
            return thing
        door = R.choice(DOORS + [one for one in worlds.DOORS if one.__name__ not in NOT_HERE])
        way.append(door.__name__)
        if door in DOORS:
            def go(thing=thing):
                give(get(thing))
            door(loop, go, main)
            await asyncio.sleep(0)
        else:
            go = door(thing, lambda thing: loop.call_soon_threadsafe(give, get(thing)))
            before = list(worlds.BEFORE)

            def run():
                for one in before:
                    one()
                time.sleep(DELAY)
                go()
                time.sleep(1000)
            thread = threading.Thread(target=run, daemon=True)
            if worlds.ON_THREAD:
                thread.thing = worlds.ON_THREAD[0]
            worlds.STARTED.append(thread)
    for _ in range(R.choice([0, 1, 1, 2])):
        by = R.choice([beat, count, idle] + worlds.BYSTANDERS)
        way.append(by.__name__)
        if by in worlds.BYSTANDERS:
            worlds.STARTED.append(threading.Thread(target=by, daemon=True))
        else:
            KEPT.append(loop.create_task(by()))
    for thread in worlds.STARTED:
        thread.start()
    hows = [R.choice(WAYS) for _ in range(R.choice([0, 1, 1, 2]))]
    for how in hows:
        wait = (lambda how, wait: lambda: how(wait))(how, wait)
        way.append(how.__name__)
    del thing
    await asyncio.sleep(0.1)
    print("TRUTH", "on" if goes_on else "never", "+".join(way))
    print(f"READY pids={os.getpid()}", flush=True)
    out, sys.stdout = sys.stdout, worlds.STDOUT[0] if worlds.STDOUT else open(os.devnull, "w")
    sys.stderr = open(os.devnull, "w")
    try:
        await wait()
    except asyncio.CancelledError:
        pass
    out.write("WENT ON\n")
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(world())
