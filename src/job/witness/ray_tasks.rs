//! Ray's list of tasks: what `ray list tasks --detail --format json` prints (python/ray/util/state, `TaskState`; seen on 2.60).
//!
//! In: the list. Out: a [`TaskAccount`] for each task. It is as old as the word of the processes that run the tasks, which comes once a
//! second, and it does not say for which task another one waits in `ray.get`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::TaskAccount;
use crate::limits::Bounded;
use crate::limits::job::MOST_TASKS;
use crate::report::Gap;

/// How many tasks Ray's program lists where nobody asks for more (`DEFAULT_LIMIT`).
const WHERE_NOBODY_ASKS: usize = 100;

/// The tasks, if it is such a list.
pub(super) fn read(value: &Value) -> Option<(Vec<TaskAccount>, Vec<Gap>)> {
    let list = value.as_array()?;
    let mut tasks: BTreeMap<String, TaskAccount> = BTreeMap::new();
    for entry in list.iter().bounded(MOST_TASKS, || "a list of Ray's tasks".to_owned(), "tasks") {
        let text =
            |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let (task, state) = (text("task_id")?, text("state")?);
        let account = TaskAccount {
            name: text("name").or_else(|| text("func_or_class_name")).unwrap_or_default(),
            worker: text("worker_id"),
            attempt: entry.get("attempt_number").and_then(Value::as_u64).unwrap_or(0),
            task: task.clone(),
            state,
        };
        let last = tasks.entry(task).or_insert_with(|| account.clone());
        if last.attempt < account.attempt {
            *last = account;
        }
    }
    let gap = (list.len() == WHERE_NOBODY_ASKS).then(|| {
        Gap::new(
            "further tasks of Ray's",
            format!("the list ends after {WHERE_NOBODY_ASKS}: `ray list tasks --limit 10000` asks for more"),
        )
    });
    (!tasks.is_empty()).then(|| (tasks.into_values().collect(), gap.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_attempt_of_a_task_counts() {
        let entry = |attempt: u64, state: &str| json!({"task_id": "ab", "state": state, "name": "f", "attempt_number": attempt});
        let (tasks, gaps) = read(&json!([entry(1, "RUNNING"), entry(0, "FAILED")])).expect("a list of tasks");
        assert_eq!((tasks.len(), tasks[0].state.as_str(), gaps.len()), (1, "RUNNING", 0));
        let many: Vec<Value> =
            (0..WHERE_NOBODY_ASKS).map(|n| json!({"task_id": n.to_string(), "state": "RUNNING"})).collect();
        assert_eq!(read(&json!(many)).map(|(tasks, gaps)| (tasks.len(), gaps.len())), Some((WHERE_NOBODY_ASKS, 1)));
        for none in [json!([]), json!({}), json!([1]), json!([{"task_id": 1, "state": 2}]), json!([{"state": "x"}])] {
            assert_eq!(read(&none), None);
        }
    }
}
