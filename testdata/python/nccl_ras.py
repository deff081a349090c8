"""A rank that waits for its GPU, on the stand-in for the driver, and NCCL's RAS as it answers meanwhile: nccl_ras.py CASE PORT FOLDER

FOLDER has libcuda.so.1 and a library that is called as NCCL is. RAS is this process's own thread.
missing: rank 1 has launched one all-reduce less, and stays so.
moves: so it is, but all go on from one answer to the next.
other: the answer speaks of a job with other processes.
even: all have launched the same.
silent: it takes the connection and says nothing.
old: it knows no JSON.
endless: its answer has no end. drips: its answer comes by single letters. nested: its answer is a list in a list, a million times.
rude: texts of its answer move the cursor and end lines, and its numbers are larger than any job's.
job: three ranks, of which rank 1 sleeps and has launched one all-reduce less; this process starts them, each by the words behind FOLDER, and
answers for them. RAS is asked by a line in FOLDER/asked each time.
rank: one of these.
Prints READY when the kernel runs that never ends, and ends by SIGALRM."""
import ctypes
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time

signal.alarm(120)
case, port, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if case != "job":
    ctypes.CDLL(os.path.join(folder, "libnccl.so.2"))
    cuda = ctypes.CDLL(os.path.join(folder, "libcuda.so.1"))
asked = 0
ranks_of_job = []


def rank(number, pid, count):
    return {"rank": number, "host": "192.0.2.2", "pid": pid, "cuda_dev": number,
            "collective_counts": {"Broadcast": 1, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": count}}


def answer():
    global asked
    asked += 1
    if case == "job":
        with open(os.path.join(os.environ["ASKED"], "asked"), "a") as file:
            file.write("asked\n")
        ranks = [rank(number, pid, 6 if number == 1 else 7) for number, pid in enumerate(ranks_of_job)]
        job = {"hash": "0xabc7", "size": 3, "ranks": ranks, "missing_ranks": []}
        return {"nccl_version": "2.28.3", "communicators": [job], "ras": {"timeouts_count": 0}}
    own, count = os.getpid() + (1 << 22 if case == "other" else 0), 7 + (asked if case == "moves" else 0)
    ranks = [rank(0, own, count), rank(1, own + (1 << 22), count if case == "even" else count - 1)]
    job = {"hash": "0xabc7", "size": 2, "ranks": ranks, "missing_ranks": []}
    if case == "rude":
        rude = "\033]0;x\007\n::error::pwn"
        ranks[1] = dict(ranks[1], host=rude, rank=1 << 40, cuda_dev=1 << 60, collective_counts={rude: 1 << 62})
        job = dict(job, hash=rude, size=1 << 62, missing_ranks=[dict(ranks[1], rank=number) for number in range(20000)])
    return {"nccl_version": "2.28.3", "communicators": [job], "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}}


class Ras(socketserver.StreamRequestHandler):
    def handle(self):
        if case == "silent":
            self.rfile.read()
            return
        try:
            if case == "endless":
                while True:
                    self.wfile.write(b"[0," * 20000)
            while case == "drips":
                self.wfile.write(b"[")
                time.sleep(0.1)
            if case == "nested":
                self.wfile.write(b"SERVER PROTOCOL 2\nOK\n" + b"[" * 1000000)
                return
        except OSError:
            return
        form = "text"
        for line in self.rfile:
            words = line.decode().split()
            if words[:2] == ["CLIENT", "PROTOCOL"]:
                self.wfile.write(b"SERVER PROTOCOL 2\n")
            elif words[:2] == ["SET", "FORMAT"] and case != "old":
                form = words[2]
                self.wfile.write(b"OK\n")
            elif words == ["VERBOSE", "STATUS"]:
                text = json.dumps(answer()) if form == "json" else "NCCL version 2.24.3\n\nCommunicators... OK\n"
                self.wfile.write(text.encode() + b"\n")
                return
            else:
                self.wfile.write(b"ERROR: Unknown command\n")


def start(number):
    """Start a rank as torchrun does, and give the process that is it: what stands before it passes on what it prints."""
    own = dict(os.environ, RANK=str(number), WORLD_SIZE="3", LOCAL_RANK=str(number), LOCAL_WORLD_SIZE="3",
               MASTER_ADDR="127.0.0.1", MASTER_PORT="29400", TORCHELASTIC_RUN_ID=f"ras-{port}")
    words = [*sys.argv[4:], sys.executable, os.path.abspath(__file__), "rank", str(port), folder]
    process = subprocess.Popen(words, env=own, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("READY pids="):
            return process, int(line.split("=")[1])
    sys.exit("a rank has ended")


if case != "rank":
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", port), Ras)
    threading.Thread(target=server.serve_forever, name="ras", daemon=True).start()
if case == "job":
    processes = []
    for number in range(3):
        process, pid = start(number)
        processes.append(process)
        ranks_of_job.append(pid)
    print("READY pids=%s" % ",".join(map(str, ranks_of_job)), flush=True)
    sys.exit(max(process.wait() for process in processes))
if os.environ.get("RANK") == "1":
    print("READY pids=%d" % os.getpid(), flush=True)
    time.sleep(100)
context, module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
calls = [("cuInit", 0), ("cuDevicePrimaryCtxSetFlags_v2", 0, 4), ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0),
         ("cuModuleLoadData", ctypes.byref(module), b""), ("cuModuleGetFunction", ctypes.byref(function), module, b"endless"),
         ("cuStreamCreate", ctypes.byref(stream), 1), ("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)]
for name, *arguments in calls:
    assert not getattr(cuda, name)(*arguments), name
print("READY pids=%d" % os.getpid(), flush=True)
cuda.cuStreamSynchronize(stream)
