"""The reader of a pipe has kept its write end, so the end of the data never comes."""
import os

reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.write(writing, b"result")
    os._exit(0)
os.waitpid(child, 0)
with open(reading, "rb") as results:
    print(results.read())
