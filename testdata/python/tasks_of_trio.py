"""Tasks of trio that wait for one another, and such that something can still end: tasks_of_trio.py CASE

With anyio as well, on trio and on asyncio. Each case says what is true of it before it is ready, in a line of JSON: the verdicts
that are right, a finding that it has (or none), and words that a report of it must have. It ends by itself after five minutes.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import anyio
import trio

LAST = 300


def truth(*verdicts, finding=None, words=()):
    print("TRUTH " + json.dumps(dict(verdicts=verdicts, finding=finding, asleep=0, words=words)), flush=True)


def ready():
    print("READY pids=%d" % os.getpid(), flush=True)


RING = dict(finding="lock-order-cycle", words=["trio.Lock `ledger`", "trio.Lock `journal`"])


async def posts_journal(ledger, journal, inside, both):
    async with ledger:
        await meet(inside, both)
        async with journal:
            pass


async def posts_ledger(ledger, journal, inside, both):
    async with journal:
        await meet(inside, both)
        async with ledger:
            pass


async def meet(inside, both):
    inside.append(1)
    if len(inside) == 2:
        both.set()
        ready()
    await both.wait()


async def ring(nursery):
    shared = trio.Lock(), trio.Lock(), [], trio.Event()
    nursery.start_soon(posts_journal, *shared)
    nursery.start_soon(posts_ledger, *shared)


async def pulse():
    while True:
        await trio.sleep(0.05)


def ring_of_tasks():
    truth("deadlock", **RING)

    async def main():
        async with trio.open_nursery() as nursery:
            await ring(nursery)

    trio.run(main)


def ring_of_tasks_beside_a_heartbeat():
    truth("deadlock", **RING)

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulse)
            await ring(nursery)

    trio.run(main)


def ring_of_tasks_beside_a_busy_thread():
    truth("deadlock", **RING)

    def burn():
        count = 0
        while True:
            count += 1

    threading.Thread(target=burn, daemon=True).start()

    async def main():
        async with trio.open_nursery() as nursery:
            await ring(nursery)

    trio.run(main)


def ring_of_tasks_that_a_limit_ends():
    truth("blocked")

    async def main():
        with trio.move_on_after(LAST):
            async with trio.open_nursery() as nursery:
                await ring(nursery)

    trio.run(main)


def ring_of_tasks_that_a_supervisor_ends():
    truth("blocked")

    async def supervise(scope):
        await trio.sleep(LAST)
        scope.cancel()

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, nursery.cancel_scope)
            await ring(nursery)

    trio.run(main)


class TooLong(Exception):
    pass


def ring_of_tasks_beside_one_that_raises():
    truth("blocked")

    async def watch():
        await trio.sleep(LAST)
        raise TooLong

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await ring(nursery)

    trio.run(main)


def ring_of_tasks_that_a_thread_may_end():
    truth("blocked")

    async def main():
        token = trio.lowlevel.current_trio_token()

        def later(scope):
            time.sleep(LAST)
            trio.from_thread.run_sync(scope.cancel, trio_token=token)

        async with trio.open_nursery() as nursery:
            threading.Thread(target=later, args=(nursery.cancel_scope,), daemon=True).start()
            await ring(nursery)

    trio.run(main)


def nursery_under_a_lock():
    truth("deadlock", words=["trio.Lock `lock`", "child", "its nursery waits for that task"])

    async def child(lock):
        ready()
        async with lock:
            pass

    async def main():
        lock = trio.Lock()
        async with lock:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child, lock)

    trio.run(main)


def lock_of_one_who_sleeps():
    truth("blocked", "running")

    async def keep(lock, taken):
        async with lock:
            taken.set()
            await trio.sleep(LAST)

    async def main():
        lock, taken = trio.Lock(), trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, lock, taken)
            await taken.wait()
            ready()
            async with lock:
                pass

    trio.run(main)


def limiter_under_a_limiter():
    truth("deadlock", "suspected-deadlock", words=["trio.CapacityLimiter `places`"])

    async def outer(places, name, inside, both):
        async with places:
            inside.append(name)
            if len(inside) == 2:
                both.set()
                ready()
            await both.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(inner, places)

    async def inner(places):
        async with places:
            pass

    async def main():
        places, inside, both = trio.CapacityLimiter(2), [], trio.Event()
        async with trio.open_nursery() as nursery:
            for name in range(2):
                nursery.start_soon(outer, places, name, inside, both)

    trio.run(main)


def thread_lock_across_an_await():
    truth("deadlock", finding="self-deadlock", words=["Lock `token`", "event-loop-blocked"])
    token = threading.Lock()

    async def refresh():
        with token:
            await trio.sleep(0.05)

    async def request():
        await trio.sleep(0.01)
        ready()
        with token:
            pass

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refresh)
            nursery.start_soon(request)

    trio.run(main)


async def anyio_ring(*others):
    ledger, journal, inside, both = anyio.Lock(), anyio.Lock(), [], anyio.Event()
    async with anyio.create_task_group() as group:
        for other in others:
            group.start_soon(other)
        group.start_soon(posts_journal, ledger, journal, inside, both)
        group.start_soon(posts_ledger, ledger, journal, inside, both)


async def anyio_pulse():
    while True:
        await anyio.sleep(0.05)


def anyio_on_trio():
    truth("deadlock", finding="lock-order-cycle", words=["`ledger`", "`journal`"])
    anyio.run(anyio_ring, backend="trio")


def anyio_on_trio_beside_a_heartbeat():
    truth("deadlock", finding="lock-order-cycle", words=["`ledger`", "`journal`"])
    anyio.run(anyio_ring, anyio_pulse, backend="trio")


async def anyio_ring_with_a_limit():
    with anyio.move_on_after(LAST):
        await anyio_ring()


def anyio_on_trio_with_a_limit():
    truth("blocked")
    anyio.run(anyio_ring_with_a_limit, backend="trio")


def anyio_on_asyncio():
    truth("deadlock", finding="lock-order-cycle", words=["`ledger`", "`journal`"])
    anyio.run(anyio_ring)


def anyio_on_asyncio_beside_a_heartbeat():
    truth("deadlock", finding="lock-order-cycle", words=["`ledger`", "`journal`"])
    anyio.run(anyio_ring, anyio_pulse)


async def anyio_watch():
    await anyio.sleep(LAST)
    raise TooLong


def anyio_on_trio_beside_one_that_raises():
    truth("blocked")
    anyio.run(anyio_ring, anyio_watch, backend="trio")


def anyio_on_asyncio_beside_one_that_raises():
    truth("blocked")
    anyio.run(anyio_ring, anyio_watch)


def anyio_on_asyncio_with_a_limit():
    truth("blocked")
    anyio.run(anyio_ring_with_a_limit)


# What a task is parked for, beside locks.

def channel_whose_receiver_is_gone():
    truth("stuck", finding="nobody-left-to-wake", words=["rows", "produce"])

    async def produce(rows):
        for number in range(5):
            await rows.send(number)

    async def consume(rows):
        async for number in rows:
            if number == 2:
                return

    async def main():
        send, receive = trio.open_memory_channel(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, send)
            nursery.start_soon(consume, receive)
            ready()
    trio.run(main)


def channel_whose_receiver_is_slow():
    truth("blocked")

    async def consume(rows):
        await trio.sleep(LAST)
        async for _ in rows:
            pass

    async def main():
        send, receive = trio.open_memory_channel(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume, receive)
            ready()
            await send.send(1)
    trio.run(main)


def event_that_is_never_set():
    truth("stuck", finding="nobody-left-to-wake", words=["started"])

    async def main():
        started = trio.Event()
        ready()
        await started.wait()
    trio.run(main)


def event_that_a_thread_sets():
    truth("blocked")

    async def main():
        started = trio.Event()

        def work():
            time.sleep(LAST)
            trio.from_thread.run_sync(started.set)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, work)
            ready()
            await started.wait()
    trio.run(main)


def event_within_a_time_limit():
    truth("blocked")

    async def main():
        started = trio.Event()
        with trio.move_on_after(LAST):
            ready()
            await started.wait()
    trio.run(main)


def event_beside_one_that_may_fail():
    truth("blocked")

    async def fails():
        await trio.sleep(LAST)
        raise ValueError

    async def main():
        started = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            ready()
            await started.wait()
    trio.run(main)


def pipeline(pause):
    async def fetch(pages):
        await trio.sleep(pause)
        await pages.send("page")

    async def parse(pages, rows):
        async for page in pages:
            await rows.send(page)
        await rows.send(None)

    async def write(rows, done):
        while (await rows.receive()) is not None:
            pass
        done.set()

    async def main():
        pages_in, pages_out = trio.open_memory_channel(10)
        rows_in, rows_out = trio.open_memory_channel(10)
        done = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch, pages_in)
            nursery.start_soon(write, rows_out, done)
            nursery.start_soon(parse, pages_out, rows_in)
            await trio.sleep(0.2)
            ready()
            await done.wait()
    trio.run(main)


def pipeline_of_which_the_first_stage_starves():
    truth("stuck", finding="nobody-left-to-wake", words=["stuck: task parse #"])
    pipeline(0)


def pipeline_whose_first_stage_goes_on():
    truth("blocked")
    pipeline(LAST)


# One that would raise, and waits itself, cancels nobody.

async def raises_after(event):
    await event.wait()
    raise ValueError


def event_beside_a_heartbeat():
    truth("stuck", finding="nobody-left-to-wake", words=["started"])

    async def main():
        started = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulse)
            ready()
            await started.wait()
    trio.run(main)


def event_beside_one_that_would_fail_and_waits():
    truth("stuck", finding="nobody-left-to-wake", words=["started"])

    async def main():
        started = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises_after, trio.Event())
            ready()
            await started.wait()
    trio.run(main)


def event_beside_one_that_reads():
    truth("blocked")

    async def main():
        started = trio.Event()
        ours, theirs = trio.socket.socketpair()
        child = subprocess.Popen(["sleep", str(LAST)], stdin=theirs.fileno())
        theirs.close()

        async def reads():
            while True:
                await trio.SocketStream(ours).receive_some(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reads)
            ready()
            await started.wait()
        child.kill()
    trio.run(main)


def ring_of_tasks_beside_one_that_would_raise_and_waits():
    truth("deadlock", **RING)

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises_after, trio.Event())
            await ring(nursery)
    trio.run(main)


async def fails_by_accident():
    await trio.sleep(0.01)
    return {}["x"]


async def cancelled(clean_up):
    try:
        await trio.sleep(LAST)
    finally:
        with trio.CancelScope(shield=True):
            ready()
            await clean_up()


def nursery_of_one_that_waits_when_it_is_cancelled():
    truth("stuck", finding="nobody-left-to-wake", words=["cancelled"])

    async def main():
        started = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled, started.wait)
            nursery.start_soon(fails_by_accident)
    trio.run(main)


def nursery_of_one_that_cleans_up_when_it_is_cancelled():
    truth("blocked")

    async def clean_up():
        await trio.sleep(LAST)

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancelled, clean_up)
            nursery.start_soon(fails_by_accident)
    trio.run(main)


async def anyio_waits(*others):
    started = anyio.Event()
    async with anyio.create_task_group() as group:
        for other in others:
            group.start_soon(other)
        ready()
        await started.wait()


async def anyio_raises_after_what_never_comes():
    await raises_after(anyio.Event())


def anyio_event_on_trio_beside_a_heartbeat():
    truth("stuck", finding="nobody-left-to-wake", words=["started"])
    anyio.run(anyio_waits, anyio_pulse, backend="trio")


def anyio_event_on_asyncio_beside_a_heartbeat():
    truth("stuck", finding="nobody-left-to-wake", words=["started"])
    anyio.run(anyio_waits, anyio_pulse)


def anyio_event_on_asyncio_beside_one_that_raises():
    truth("blocked")
    anyio.run(anyio_waits, anyio_watch)


def anyio_event_on_asyncio_beside_one_that_would_raise_and_waits():
    truth("stuck", finding="nobody-left-to-wake")
    anyio.run(anyio_waits, anyio_raises_after_what_never_comes)


async def anyio_supervised():
    started = anyio.Event()

    async def supervise(scope):
        await anyio.sleep(LAST)
        scope.cancel()
    async with anyio.create_task_group() as group:
        group.start_soon(supervise, group.cancel_scope)
        ready()
        await started.wait()


def anyio_event_on_asyncio_that_a_supervisor_ends():
    truth("blocked")
    anyio.run(anyio_supervised)


def anyio_event_on_trio_that_a_supervisor_ends():
    truth("blocked")
    anyio.run(anyio_supervised, backend="trio")


def anyio_ring_on_trio_beside_one_that_would_raise_and_waits():
    truth("deadlock", finding="lock-order-cycle")
    anyio.run(anyio_ring, anyio_raises_after_what_never_comes, backend="trio")


def anyio_ring_on_asyncio_beside_one_that_would_raise_and_waits():
    truth("deadlock", finding="lock-order-cycle")
    anyio.run(anyio_ring, anyio_raises_after_what_never_comes)


# Threads of a limiter.

async def in_threads(places, first, last, library=trio):
    """So many threads as there are places do the first, and one more wants to do the last."""
    limiter = library.CapacityLimiter(places)

    async def in_thread(work):
        await library.to_thread.run_sync(work, limiter=limiter)
    async with library.open_nursery() if library is trio else library.create_task_group() as tasks:
        for _ in range(places):
            tasks.start_soon(in_thread, first)
        await library.sleep(0.2)
        tasks.start_soon(in_thread, last)
        await library.sleep(0.05)
        ready()


def limiter_full_of_threads_that_wait_for_the_next():
    truth("stuck", finding="nobody-left-to-wake")
    done = threading.Event()
    trio.run(in_threads, 2, done.wait, done.set)


def default_limiter_full_of_threads_that_wait_for_the_next():
    truth("stuck", finding="nobody-left-to-wake")
    done = threading.Event()
    trio.run(in_threads, 40, done.wait, done.set)


def limiter_full_of_threads_that_sleep():
    truth("blocked")
    trio.run(in_threads, 2, lambda: time.sleep(LAST), print)


def limiter_of_anyio_full_of_threads_that_wait_for_the_next():
    truth("stuck", finding="nobody-left-to-wake")
    done = threading.Event()
    anyio.run(in_threads, 2, done.wait, done.set, anyio)


def limiter_of_anyio_full_of_threads_that_sleep():
    truth("blocked")
    anyio.run(in_threads, 2, lambda: time.sleep(LAST), print, anyio)


async def back_into_the_loop(inner):
    """A thread of the limiter's only place calls back into the loop."""
    limiter = trio.CapacityLimiter(1)

    async def in_thread(work, *arguments):
        await trio.to_thread.run_sync(work, *arguments, limiter=limiter)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, trio.from_thread.run, inner, in_thread)
        await trio.sleep(0.2)
        ready()


def thread_calls_back_for_a_second_thread():
    truth("deadlock", words=["trio.CapacityLimiter"])

    async def inner(in_thread):
        await in_thread(print)
    trio.run(back_into_the_loop, inner)


def thread_calls_back_for_one_that_sleeps():
    truth("blocked")

    async def inner(in_thread):
        await trio.sleep(LAST)
    trio.run(back_into_the_loop, inner)


signal.alarm(LAST)
globals()[sys.argv[1]]()
