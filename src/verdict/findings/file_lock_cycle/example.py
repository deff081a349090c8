"""Two processes lock two files in opposite orders."""
import fcntl
import multiprocessing

context = multiprocessing.get_context("fork")
both = context.Barrier(2)


def work(first, second):
    with open(first, "w") as one, open(second, "w") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        both.wait()
        fcntl.flock(two, fcntl.LOCK_EX)


child = context.Process(target=work, args=("jobs.lock", "status.lock"))
child.start()
work("status.lock", "jobs.lock")
child.join()
