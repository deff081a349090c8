"""A worker of a pool dies with a task: the pool starts another worker and forgets the task."""
import multiprocessing
import os


def square(number):
    if number == 5:
        os._exit(1)  # as the kernel ends it when memory is short
    return number * number


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(square, range(20), chunksize=1))
