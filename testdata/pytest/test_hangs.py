"""Tests that hang, among those that do not: each hang is a failed test, and the suite goes on. For pytest 7 to 9."""

import asyncio
import concurrent.futures
import queue
import threading
import time

import pytest


def test_passes():
    pass


def test_locks_in_two_orders():
    print("words before the hang")
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with second:
            both.wait()
            with first:
                pass

    thread = threading.Thread(target=other, name="other")
    thread.start()
    with first:
        both.wait()
        with second:
            pass
    thread.join()


def test_queue():
    queue.Queue().get()


def test_event():
    threading.Event().wait()


def test_swallows_what_is_raised():
    try:
        threading.Event().wait()
    except BaseException:
        pass


def test_leaving_the_block_waits_again():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        gate = threading.Lock()
        gate.acquire()

        def work():
            gate.acquire()

        pool.submit(work).result()


@pytest.fixture
def ends_never():
    yield
    queue.Queue().get()


def test_fixture(ends_never):
    pass


@pytest.mark.lockscope(timeout=1)
@pytest.mark.asyncio
async def test_asyncio():
    await asyncio.get_running_loop().create_future()


@pytest.mark.lockscope(timeout=1)
@pytest.mark.anyio
async def test_anyio():
    import anyio

    await anyio.Event().wait()


@pytest.mark.timeout(1)
def test_pytest_timeout():
    time.sleep(60)


def test_workers_stay_locked():
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def work(one, other):
        with one:
            both.wait()
            with other:
                pass

    threads = [
        threading.Thread(target=work, args=(first, second), name="worker-1"),
        threading.Thread(target=work, args=(second, first), name="worker-2"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_stands_still_beside_them():
    time.sleep(3)


def test_hangs_beside_them():
    queue.Queue().get()


def test_is_given_something_beside_them():
    items = queue.Queue()
    threading.Timer(2.5, items.put, [1]).start()
    items.get()


def test_is_the_last():
    pass
