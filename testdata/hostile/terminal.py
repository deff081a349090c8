"""A terminal with lockscope in its foreground, which is interrupted in the midst of the stop of a target:
terminal.py HOW ROUNDS PID COMMAND... where HOW is ctrl-c, ctrl-z (keys), stop, stop-group (SIGSTOP, which no program can put off) or
storm (SIGSTOP and SIGCONT again and again).

As soon as a thread of PID stands in a tracing stop the signal comes. Then every thread of PID has to be free although nobody lets
lockscope go on; what was stopped is stopped still. It says a line a round:
`in_the_midst=0|1 free_ms=N then=exited|stopped|killed status=N`, with `free_ms=never` after 10 s."""
import fcntl
import os
import pty
import signal
import sys
import termios
import time

HOW, ROUNDS, PID, COMMAND = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
PATIENCE = 10


def state(path):
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""


def tasks():
    return [f"/proc/{PID}/task/{task}" for task in os.listdir(f"/proc/{PID}/task")]


def is_free():
    def free(task):
        try:
            with open(task + "/status") as file:
                return "\nTracerPid:\t0\n" in file.read() and state(task + "/stat") not in ("t", "T")
        except OSError:
            return True

    return all(free(task) for task in tasks())


def until(done):
    begin = time.monotonic()
    while not done():
        if time.monotonic() - begin > PATIENCE:
            return None
        time.sleep(0.0005)
    return time.monotonic() - begin


def in_foreground():
    """The command as a job of its own, so that the keys reach it alone; this process is the shell."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(COMMAND[0], COMMAND)
    return child


def interrupt(child, keys):
    if HOW == "ctrl-c":
        os.write(keys, b"\x03")
    elif HOW == "ctrl-z":
        os.write(keys, b"\x1a")
    elif HOW == "stop":
        os.kill(child, signal.SIGSTOP)
    elif HOW == "stop-group":
        os.killpg(child, signal.SIGSTOP)
    else:
        for number in range(40):
            try:
                os.kill(child, (signal.SIGSTOP, signal.SIGCONT)[number % 2])
            except ProcessLookupError:
                return
            time.sleep(0.0007 * (number % 5))


def one_round(keys):
    watched = [os.open(task + "/stat", os.O_RDONLY) for task in tasks()[:3]]
    child = in_foreground()
    begin = time.monotonic()
    found = False
    while not found and time.monotonic() - begin < PATIENCE:
        found = any(os.pread(file, 256, 0).rpartition(b")")[2].split()[0] == b"t" for file in watched)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
    interrupt(child, keys)
    in_the_midst = not is_free()
    free = until(is_free)
    for file in watched:
        os.close(file)
    # Stopped, or ended.
    seen = {}

    def settled():
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if pid:
            seen["status"] = status
        return bool(pid)

    until(settled)
    then, status = "running", -1
    while "status" in seen and os.WIFSTOPPED(seen["status"]):
        then = "stopped"
        os.killpg(child, signal.SIGCONT)
        del seen["status"]
        until(settled)
    if "status" in seen:
        ended = seen["status"]
        if os.WIFSIGNALED(ended):
            then, status = "killed", os.WTERMSIG(ended)
        else:
            then, status = (then if then == "stopped" else "exited"), os.WEXITSTATUS(ended)
    else:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    milliseconds = "never" if free is None else f"{free * 1000:.1f}"
    print(f"in_the_midst={int(in_the_midst)} free_ms={milliseconds} then={then} status={status}", file=sys.stderr, flush=True)


def main():
    keys, terminal = pty.openpty()
    if os.getsid(0) != os.getpid():
        os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.dup2(terminal, 0)
    os.dup2(terminal, 1)
    for _ in range(ROUNDS):
        one_round(keys)
        # What the terminal shows is nobody's to read; it must not fill up.
        os.set_blocking(keys, False)
        try:
            while os.read(keys, 65536):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(keys, True)


signal.alarm(300)
main()
