"""Takes a GPU core of every program that hangs a GPU, and cuda-gdb's answer beside it: cores.py LOCKSCOPE FOLDER [CASE...]

Needs a machine with an NVIDIA GPU, nvcc and cuda-gdb; the cases of ranks.py need two GPUs. Of each case FOLDER gets: what
lockscope says of the host (report, JSON, snapshot), the GPU core of each process reduced to a fixture (reduce_core.py), cuda-gdb's view
of the whole core (`.truth`), and a JSON of what was measured: times, sizes, what the driver's FIFO did, what the waiting call
returned after the dump. Of ranks, NCCL's own view (RAS) and PyTorch's flight recorder too."""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import kernels
import ranks
import reduce_core
import table
import workloads

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ("skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory,"
         "skip_abort")
READY_WITHIN, DUMPED_WITHIN, RETURNED_WITHIN = 45, 15, 2.5
# Kernels of the project's own sources: their images stay whole in a fixture.
OURS = sorted({name for one in kernels.KERNELS.values() for name in one.kernels or ()} - {"spin_kernel"}) + [
    "writes_to", "writes_between", "asserts", "traps", "never_ends_beside", "endless", "until_flag"]
TRUTH = ["set pagination off", "set width 0", "target cudacore {}", "info cuda devices", "info cuda contexts", "info cuda kernels", "info cuda threads",
         "info cuda warps", "info cuda lanes", "print $errorpc", "backtrace", "info args", "x/2i $pc"]
OTHER_KERNELS = ["cuda kernel 1", "info cuda threads", "cuda kernel 2", "info cuda threads"]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("lockscope")
    arguments.add_argument("folder")
    arguments.add_argument("cases", nargs="*")
    arguments.add_argument("--seconds", type=float, default=1e9, help="start no case after so many")
    arguments.add_argument("--ranks", action="store_true", help="the cases of ranks.py alone")
    options = arguments.parse_intermixed_args()
    options.folder = os.path.abspath(options.folder)
    os.makedirs(options.folder, exist_ok=True)
    began, devices = time.monotonic(), table.count_devices()
    os.environ.setdefault("KERNELS", os.path.join(options.folder, "programs"))
    if not options.ranks:
        print("built:", subprocess.call([sys.executable, os.path.join(HERE, "kernels.py"), "--build", os.environ["KERNELS"]]), flush=True)
    cases = options.cases or list(ranks.RANKS if options.ranks else [*kernels.KERNELS, *workloads.CASES])
    later = concurrent.futures.ThreadPoolExecutor(6)
    waiting = []
    for name in cases:
        if time.monotonic() - began > options.seconds:
            print("%-30s skip: no time left" % name)
            continue
        one = kernels.KERNELS.get(name) or workloads.CASES.get(name)
        lacks = [need for need in getattr(one, "needs", ()) if need != "runtime" and not importlib.util.find_spec(need)]
        if lacks or getattr(one, "devices", 1 if one else 2) > devices:
            print("%-30s skip: needs %s" % (name, lacks or "more devices"))
            continue
        try:
            facts = take(name, one, options, later, waiting)
        except Exception as error:
            facts = {"failed": repr(error)}
        print("%5.0f %-30s %s" % (time.monotonic() - began, name, json.dumps(facts)[:300]), flush=True)
        with open(os.path.join(options.folder, name + ".measured.json"), "w") as file:
            json.dump(facts, file, indent=1)
    for one in waiting:
        print(one.result(), flush=True)


def take(name, one, options, later, waiting):
    path = os.path.join(options.folder, name)
    private = path + ".dump"
    shutil.rmtree(private, ignore_errors=True)
    os.makedirs(private)
    script = "kernels.py" if name in kernels.KERNELS else "workloads.py" if one else "ranks.py"
    environment = dict(os.environ, PYTHONUNBUFFERED="1", CUDA_ENABLE_USER_TRIGGERED_COREDUMP="1",
                       CUDA_COREDUMP_PIPE=private + "/pipe_%p", CUDA_COREDUMP_FILE=private + "/gpu_%p.core",
                       CUDA_COREDUMP_GENERATION_FLAGS=FLAGS)
    if not one:
        environment.update(TORCH_FR_BUFFER_SIZE="2000", TORCH_NCCL_DEBUG_INFO_PIPE_FILE=private + "/fr_pipe_",
                           TORCH_NCCL_DEBUG_INFO_TEMP_FILE=private + "/fr_")
    environment.update(getattr(one, "environment", {}))
    errors, began = open(path + ".stderr", "w"), time.monotonic()
    with subprocess.Popen([sys.executable, os.path.join(HERE, script), name], stdout=subprocess.PIPE, stderr=errors, env=environment,
                          universal_newlines=True) as target:
        lines = []
        try:
            reader = threading.Thread(target=read_lines, args=(target.stdout, lines), daemon=True)
            reader.start()
            pids = wait_ready(target, lines)
            facts = {"ready_after_s": round(time.monotonic() - began, 1), "pids": pids}
            if not pids:
                facts["stdout"] = [line for _, line in lines]
                return facts
            table.SETTLED_WITHIN = 4
            table.settle(pids)
            if not one:
                time.sleep(2)
                facts["ras"] = ask_ras(path + ".ras.json")
            facts["word"] = word(pids[0], lines)
            outputs = [part for end in (".txt", ".json", ".snapshot.zst") for part in ("-o", path + end)]
            looked = subprocess.run([options.lockscope, "attach"] + [str(pid) for pid in pids] + outputs, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, universal_newlines=True)
            facts["host"] = summary(path + ".json") or looked.stderr[-300:]
            if not one:
                facts["flight_recorder"] = flight_recorder(private, len(pids), path)
            # A core of an exception was written before anybody asked.
            for pid in pids:
                core = "%s/gpu_%d.core" % (private, pid)
                if os.path.exists(core):
                    facts["core_of_exception"] = os.path.getsize(core)
                    os.rename(core, core + ".exception")
                    waiting.append(later.submit(keep, core + ".exception", "%s.exception" % path))
            facts["threads_before"] = {pid: len(table.tasks(pid)) for pid in pids}
            facts["dumps"] = dump(private, pids)
            facts["host_with_cores"] = with_cores(options.lockscope, pids, private, path)
            end = time.monotonic() + RETURNED_WITHIN
            while time.monotonic() < end and not any("RETURNED" in line for at, line in lines if at > facts["dumps"]["asked_at"]):
                time.sleep(0.02)
            facts["said"] = [[round(at - facts["dumps"]["asked_at"], 2), line.strip()] for at, line in lines]
            facts["alive"] = {pid: alive(pid) for pid in pids}
        finally:
            for pid in table.children(target.pid) + [target.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
    facts["left"] = sorted(os.listdir(private))
    for number, pid in enumerate(facts["pids"]):
        core = "%s/gpu_%d.core" % (private, pid)
        if os.path.exists(core):
            ending = ".rank%d" % number if len(facts["pids"]) > 1 else ""
            waiting.append(later.submit(keep, core, path + ending))
    return facts


def with_cores(lockscope, pids, private, path):
    """A look with the cores beside it, which captures the words that kernels have. The waiting call still waits: it returns 2 s later."""
    written = ["%s/gpu_%d.core" % (private, pid) for pid in pids if os.path.exists("%s/gpu_%d.core" % (private, pid))]
    cores = [part for core in written for part in ("--gpu-core", core)]
    outputs = ["-o", path + ".with-cores.json", "-o", path + ".with-cores.snapshot.zst"]
    looked = subprocess.run([lockscope, "attach"] + [str(pid) for pid in pids] + cores + outputs, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True)
    return summary(path + ".with-cores.json") or looked.stderr[-300:]


def read_lines(stream, lines):
    for line in stream:
        lines.append((time.monotonic(), line))


def wait_ready(target, lines):
    end = time.monotonic() + READY_WITHIN
    while time.monotonic() < end:
        for _, line in list(lines):
            if line.startswith("READY pids="):
                return [int(pid) for pid in line[len("READY pids="):].split(",")]
        if target.poll() is not None:
            return []
        time.sleep(0.02)
    return []


def word(pid, lines):
    """Where the word of the host is that a kernel waits for, and whether it can be read from outside."""
    for _, line in lines:
        if line.startswith("WORD "):
            address = int(line.split()[1], 16)
            found = {"address": hex(address)}
            for mapping in open("/proc/%d/maps" % pid):
                low, high = [int(part, 16) for part in mapping.split()[0].split("-")]
                if low <= address < high:
                    found["mapping"] = mapping.strip()
            try:
                with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
                    memory.seek(address)
                    found["bytes"] = memory.read(4).hex()
            except OSError as error:
                found["error"] = str(error)
            return found
    return None


def summary(path):
    try:
        report = json.load(open(path))
    except (OSError, ValueError):
        return None
    return {"verdict": report["verdict"], "findings": [finding["code"] for finding in report["findings"]]}


def dump(private, pids):
    """Ask the driver of each process for a core; when it came, how it grew, and when it stood still."""
    found = {"asked_at": time.monotonic(), "pipes": {}, "growth": {}, "steady_after_s": {}}
    for pid in pids:
        pipe = "%s/pipe_%d" % (private, pid)
        try:
            mode = os.stat(pipe).st_mode
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"1")
            os.close(descriptor)
            found["pipes"][pid] = "%s %o" % ("fifo" if stat.S_ISFIFO(mode) else "no fifo", mode & 0o777)
        except OSError as error:
            found["pipes"][pid] = str(error)
    growth, seen = {pid: [] for pid in pids}, {}
    end = time.monotonic() + (DUMPED_WITHIN if any("fifo 6" in said for said in found["pipes"].values()) else 0)
    while time.monotonic() < end and len(found["steady_after_s"]) < len(pids):
        now = time.monotonic()
        for pid in pids:
            core = "%s/gpu_%d.core" % (private, pid)
            try:
                state = (os.path.getsize(core), complete(core))
            except OSError:
                state = None
            if seen.get(pid, (0, ()))[1] != state:
                seen[pid] = (now, state)
                growth[pid].append([round(now - found["asked_at"], 3), state])
            elif state and state[0] and now - seen[pid][0] > 0.3:
                found["steady_after_s"].setdefault(pid, round(seen[pid][0] - found["asked_at"], 3))
        time.sleep(0.01)
    for pid in pids:
        found["growth"][pid] = growth[pid][:4] + growth[pid][4:][-4:]
        found.setdefault("states", {})[pid] = sorted(os.listdir(private))
    return found


def complete(path):
    """Whether the header of the file says where its sections are, and they all are inside."""
    with open(path, "rb") as file:
        header = file.read(64)
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return "no header"
    fields = reduce_core.HEADER.unpack(header)
    return "whole" if fields[6] and fields[6] + 64 * fields[12] <= os.path.getsize(path) else "cut"


def alive(pid):
    try:
        status = open("/proc/%d/status" % pid).read()
        return re.search(r"State:\s+(\S)", status).group(1)
    except (OSError, AttributeError):
        return "gone"


def ask_ras(path):
    try:
        with socket.create_connection(("127.0.0.1", 28028), 5) as connection:
            connection.settimeout(10)
            answer = b""
            for line in (b"CLIENT PROTOCOL 2\n", b"SET FORMAT json\n", b"VERBOSE STATUS\n"):
                connection.sendall(line)
                if line.startswith(b"VERBOSE"):
                    break
                answer += connection.recv(4096)
            body = b""
            while True:
                part = connection.recv(1 << 16)
                if not part:
                    break
                body += part
        with open(path, "wb") as file:
            file.write(body)
        return "%r, then %d bytes" % (answer, len(body))
    except OSError as error:
        return str(error)


def flight_recorder(private, count, path):
    said = {}
    for rank in range(count):
        pipe = "%s/fr_pipe_%d.pipe" % (private, rank)
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"1\n")
            os.close(descriptor)
        except OSError as error:
            said[rank] = "%s; there are %s" % (error, os.listdir(private))
            continue
        end = time.monotonic() + 6
        dumped = "%s/fr_%d" % (private, rank)
        while time.monotonic() < end and not os.path.exists(dumped):
            time.sleep(0.05)
        time.sleep(0.3)
        if os.path.exists(dumped):
            shutil.copy(dumped, "%s.rank%d.flight" % (path, rank))
            said[rank] = os.path.getsize(dumped)
    return said


def keep(core, path):
    """cuda-gdb's view of a core, and the core reduced; the core itself goes."""
    command = ["cuda-gdb", "-nx", "-batch"]
    for line in TRUTH + OTHER_KERNELS:
        command += ["-ex", "echo >>> %s\\n" % line.format("CORE"), "-ex", line.format(core)]
    began = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=100)
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"") + b"\n(time-out)"
    took = time.monotonic() - began
    with open(path + ".truth", "wb") as file:
        file.write(said.replace(os.path.dirname(core).encode(), b"DIR")[:400000])
    size = os.path.getsize(core)
    try:
        reduce_core.reduce(core, path + ".gpucore.gz", OURS)
        small = os.path.getsize(path + ".gpucore.gz")
    except Exception as error:
        return "%s: %d bytes, not reduced: %r" % (os.path.basename(path), size, error)
    if size > 1 << 20:
        os.unlink(core)
    return "%s: %d bytes, reduced %d, cuda-gdb %.1f s" % (os.path.basename(path), size, small, took)


if __name__ == "__main__":
    main()
