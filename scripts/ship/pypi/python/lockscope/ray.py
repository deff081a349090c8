"""Why a cluster of Ray hangs: one verdict over its drivers, actors and workers.

    import lockscope.ray
    print(lockscope.ray.diagnose())

In a process that is connected to the cluster (`ray.init(address="auto")` in another one, where the driver itself hangs). On each node a
task that takes no CPU starts the program, which looks at Ray's processes there; twice, since only what is the same in two rounds stood
still. The answers come back as results of these tasks: no port is opened and no file stays. Ray's own list of tasks names what is waited
for, where its dashboard runs (`ray[default]`). lockscope has to be installed on the nodes (`pip install lockscope[ray]`).
"""

from __future__ import annotations

import json
import time
from typing import Any

from . import _rounds
from ._look import LockscopeError

__all__ = ["Diagnosis", "LockscopeError", "diagnose"]

#: What is asked of Ray's list of tasks.
FIELDS = ("task_id", "name", "state", "func_or_class_name", "attempt_number", "actor_id", "worker_id", "node_id", "type")
#: The most of them.
MOST_TASKS = 10_000
#: Workers tell of their tasks once a second: what the list says is of the looks by then.
UNTIL_TOLD = 1.5


class Diagnosis(_rounds.Diagnosis):
    """What was found: `print` shows it as the command line does."""


def diagnose(timeout: float = 60.0, redact: bool = False) -> Diagnosis:
    """Look at all processes of the cluster that this process is connected to twice, and say what it waits for.

    ``timeout`` is the most seconds that one round may take: nodes that have not answered by then are told in ``not_seen``. With ``redact`` the names of machines
    are left out.
    """
    import ray

    if not ray.is_initialized():
        raise LockscopeError('this process is connected to no cluster: `ray.init(address="auto")` before')
    not_seen: dict[str, str] = {}
    first = _round(ray, 1, [], timeout, redact, not_seen)
    if not first:
        raise LockscopeError("no node could be looked at: " + "; ".join(f"{who}: {why}" for who, why in not_seen.items()))
    began = time.monotonic()
    time.sleep(_rounds.BETWEEN_ROUNDS)
    second = _round(ray, 2, first, timeout, redact, not_seen)
    time.sleep(max(0.0, UNTIL_TOLD - (time.monotonic() - began)))
    witnesses = {}
    try:
        witnesses["ray-tasks.json"] = _tasks()
    except Exception as error:
        not_seen["Ray's list of tasks"] = _rounds.short(f"{type(error).__name__}: {error}")
    return Diagnosis(first + second, not_seen, witnesses)


def look_here(whom: list[str], number: int, before: list[bytes]) -> dict[str, Any]:
    """Runs in a task of Ray's: looks at the processes of the cluster on that node."""
    return _rounds.look(whom, number, before)


def _round(
    ray: Any, number: int, before: list[bytes], timeout: float, redact: bool, not_seen: dict[str, str]
) -> list[bytes]:
    """The digests of one round."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    whom = ["--engine", "ray", "--job", ray.get_runtime_context().gcs_address] + (["--redact"] if redact else [])
    task = ray.remote(num_cpus=0, max_retries=0)(look_here)
    # All at once: what waits for each other should be seen at one time.
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[f"node {node['NodeManagerHostname']}"] = task.options(scheduling_strategy=here).remote(whom, number, before)
    files = []
    deadline = time.monotonic() + timeout
    for who, reference in asked.items():
        try:
            answer = ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except Exception as error:
            ray.cancel(reference, force=True)
            not_seen[who] = _rounds.short(f"{type(error).__name__}: {error}")
            continue
        if answer.get("digest"):
            files.append(answer["digest"])
        else:
            not_seen[who] = answer["why"]
    return files


def _tasks() -> bytes:
    """Ray's list of tasks that are not done, as `ray list tasks --detail --format json` prints it."""
    from ray.util.state import list_tasks

    listed = list_tasks(
        detail=True, limit=MOST_TASKS, filters=[("state", "!=", "FINISHED")], raise_on_missing_output=False
    )
    return json.dumps([{field: getattr(task, field, None) for field in FIELDS} for task in listed]).encode()
