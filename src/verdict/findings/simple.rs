//! Findings with a rule of a line or two: a cycle about one thing, an owner that is gone, or nothing that a sample shows.
//!
//! In: the judged sample. Out: one [`Rule`] each. The folder of a finding has its text (`explain.md`) and its program
//! (`example.*`).

use super::finalizing_interpreter;
use super::rule::{Draft, Example, Requirement, Rule};
use crate::graph::Cycle;
use crate::report::Severity;
use crate::waits::kinds::Topic;
use crate::waits::{Gone, Party};

/// Declare a finding: its severity, code, folder, the extension, command and needs of its program, and its rule.
macro_rules! finding {
    ($severity:ident, $code:literal, $folder:literal, $ending:literal, $command:literal, $needs:ident, $rule:expr) => {
        Rule {
            code: $code,
            severity: Severity::$severity,
            explanation: include_str!(concat!($folder, "/explain.md")),
            example: Example {
                file: concat!($folder, ".", $ending),
                program: include_str!(concat!($folder, "/example.", $ending)),
                command: $command,
                needs: Requirement::$needs,
            },
            rule: $rule,
        }
    };
}

/// A host function of a stream needs the GIL while its holder waits for the stream.
pub(super) const GIL_VS_HOST_FUNCTION: Rule = finding!(
    Error,
    "gil-vs-host-function",
    "gil_vs_host_function",
    "py",
    "python3 gil_vs_host_function.py",
    Gpu,
    |context| {
        context.cycle_drafts(|cycle| {
            let through_gpu = cycle.edges.iter().any(|edge| edge.resource.kind.is_gpu());
            context.gil_waiter(cycle).is_some_and(|edge| through_gpu || context.on_driver_thread(edge))
        })
    }
);

/// A pause of all Python threads does not come about.
pub(super) const STOP_THE_WORLD_BLOCKED: Rule = finding!(
    Error,
    "stop-the-world-blocked",
    "stop_the_world_blocked",
    "py",
    "python3 stop_the_world_blocked.py",
    PythonWithoutGil,
    |context| context.cycle_drafts(|cycle| cycle.is_about(Topic::StopTheWorld))
);

/// A cycle through the lock of the dynamic loader.
pub(super) const LOADER_LOCK_CYCLE: Rule = finding!(
    Error,
    "loader-lock-cycle",
    "loader_lock_cycle",
    "c",
    "cc -g -shared -fPIC -pthread -DPLUGIN loader_lock_cycle.c -o plugin.so && \
     cc -g loader_lock_cycle.c -o hang -ldl && ./hang",
    Nothing,
    |context| context.cycle_drafts(|cycle| cycle.is_about(Topic::LoaderLock))
);

/// Initialisers of static variables, or once functions, wait for each other.
pub(super) const STATIC_INIT_CYCLE: Rule = finding!(
    Error,
    "static-init-cycle",
    "static_init_cycle",
    "cpp",
    "c++ -g -pthread static_init_cycle.cpp -o hang && ./hang",
    Nothing,
    |context| context.cycle_drafts(|cycle| cycle.is_about(Topic::Initialiser))
);

/// File locks are taken in different orders.
pub(super) const FILE_LOCK_CYCLE: Rule =
    finding!(Error, "file-lock-cycle", "file_lock_cycle", "py", "python3 file_lock_cycle.py", Nothing, |context| {
        let drafts = context.cycle_drafts(|cycle| cycle.is_about(Topic::FileLock));
        context.titled(drafts, |cycle| {
            let again = context.again(cycle)?;
            Some(format!("{again}, which its own process has through another descriptor"))
        })
    });

/// A thread imports a module, and the import waits for that thread.
pub(super) const IMPORT_CYCLE: Rule =
    finding!(Error, "import-cycle", "import_cycle", "py", "python3 -c 'import import_cycle'", Nothing, |context| {
        context.cycle_drafts(|cycle| cycle.is_about(Topic::ImportLock))
    });

/// A thread or task is joined that cannot end.
pub(super) const JOIN_CYCLE: Rule = finding!(
    Error,
    "join-cycle",
    "join_cycle",
    "py",
    "python3 join_cycle.py",
    Nothing,
    |context| {
        let drafts = context.cycle_drafts(|cycle| cycle.is_about(Topic::Thread) || cycle.is_about(Topic::Task));
        let is_of_tasks = |cycle: &Cycle| cycle.edges.iter().all(|edge| edge.resource.kind.topic == Topic::Task);
        let waits_in_task = |cycle: &Cycle| cycle.edges.iter().all(|edge| matches!(edge.waiter, Party::Resource(_)));
        let cycle_of = |draft: &Draft| context.cycles.get(draft.cycle?);
        let advised = |draft: Draft| {
            match cycle_of(&draft).filter(|cycle| is_of_tasks(cycle)).map(|cycle| cycle.edges.as_slice()) {
            Some([edge]) => Draft {
                title: Some(format!("{} waits for its own end", context.names.party_by_name(&edge.waiter))),
                help: vec![
                    "leave out the task itself: `asyncio.all_tasks() - {asyncio.current_task()}`, before gather() or wait()".into(),
                ],
                ..draft
            },
            Some(edges) => Draft {
                title: Some(format!("{} tasks wait for each other's end", edges.len())),
                help: vec!["let one task only wait for the other, and hand over results by a queue or a future".into()],
                ..draft
            },
            None if cycle_of(&draft).is_some_and(waits_in_task) => Draft {
                title: Some("a task waits for the end of a task that waits for what the first one has".into()),
                help: vec![
                    "leave the lock before the end of a task is awaited that takes it, also at the end of a nursery or task group".into(),
                ],
                ..draft
            },
            None => draft,
        }
        };
        drafts.into_iter().map(advised).collect()
    }
);

/// A thread waits for a lock that it holds.
pub(super) const SELF_DEADLOCK: Rule = finding!(
    Error,
    "self-deadlock",
    "self_deadlock",
    "c",
    "cc -g -pthread self_deadlock.c -o hang && ./hang",
    Nothing,
    |context| {
        let mut drafts = context.cycle_drafts(|cycle| cycle.edges.len() == 1);
        for draft in drafts.iter_mut().filter(|draft| draft.parties.iter().any(|party| context.runs_a_loop(party))) {
            let edge = draft.cycle.and_then(|position| context.cycles.get(position)?.edges.first());
            let taken = edge.and_then(|edge| context.input.observations.holds[edge.hold?].taken.as_ref());
            let of_task = taken.and_then(|taken| Some((taken, taken.task.as_deref()?)));
            // All tasks of a loop are one thread: an RLock would keep none of them out.
            draft.help = match of_task {
                Some((taken, task)) => vec![
                    format!(
                        "use the loop's own lock (asyncio.Lock, trio.Lock) in {}: a task that awaits while it holds a \
                         threading.Lock, as {task} does, stops the whole loop once another task wants the lock",
                        taken.function
                    ),
                    "or copy what is needed under the lock, and await behind the `with` block".into(),
                ],
                None => vec![
                    "split the function: one that takes the lock, one that expects it taken".into(),
                    "use the loop's own lock (asyncio.Lock, trio.Lock) in the outer coroutine only. A threading.RLock would keep \
                     no task out, since all tasks of a loop are one thread"
                        .into(),
                ],
            };
            let again = |position: usize| context.again(context.cycles.get(position)?);
            draft.title = of_task
                .zip(draft.cycle.and_then(again))
                .map(|((_, task), again)| format!("{again}, which its suspended task {task} holds"));
        }
        context.titled(drafts, |cycle| Some(format!("{}, which it holds itself", context.again(cycle)?)))
    }
);

/// Fork copied a locked lock, but not the thread that holds it.
pub(super) const FORK_ORPHANED_LOCK: Rule = finding!(
    Error,
    "fork-orphaned-lock",
    "fork_orphaned_lock",
    "py",
    "python3 fork_orphaned_lock.py",
    Nothing,
    |context| context.orphan_drafts(Gone::LeftInParent)
);

/// The thread that holds a lock has exited.
pub(super) const OWNER_EXITED: Rule = finding!(
    Error,
    "owner-exited",
    "owner_exited",
    "c",
    "cc -g -pthread owner_exited.c -o hang && ./hang",
    Nothing,
    |context| {
        // Threads that the end of an interpreter stopped have a finding of their own.
        let exited = context.orphans.iter().filter(|orphan| orphan.gone == Gone::Exited);
        context.orphan_drafts_of(exited.filter(|orphan| !finalizing_interpreter::is_its(context, orphan)))
    }
);

/// The owner of a lock in shared memory is a dead process.
pub(super) const DEAD_PROCESS_HOLDS_LOCK: Rule = finding!(
    Error,
    "dead-process-holds-lock",
    "dead_process_holds_lock",
    "c",
    "cc -g -pthread dead_process_holds_lock.c -o hang && ./hang",
    Nothing,
    |context| context.orphan_drafts(Gone::ProcessDead)
);

/// A result of a pool of processes never comes, because the worker that had its task is gone.
pub(super) const POOL_WORKER_DIED: Rule =
    finding!(Error, "pool-worker-died", "pool_worker_died", "py", "python3 pool_worker_died.py", Nothing, |context| {
        context.drafts_of_dead_ends(|key| context.is_lost_task(key))
    });

/// Ranks of a job wait for each other. `job` finds it: one sample shows only what each rank waits for.
pub(super) const RANK_CYCLE: Rule =
    finding!(Error, "rank-cycle", "rank_cycle", "py", "mpirun -n 2 python3 rank_cycle.py", Mpi, |_| Vec::new());

/// Locks were taken in orders that could deadlock, and did not. `forecast` finds it in the records of `run --record`.
pub(super) const LOCK_ORDER_INVERSION: Rule = finding!(
    Warning,
    "lock-order-inversion",
    "lock_order_inversion",
    "py",
    "lockscope run --record -- python3 lock_order_inversion.py",
    Recorder,
    |_| Vec::new()
);
