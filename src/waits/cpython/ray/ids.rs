//! Ids of Ray, as its objects of Cython keep them.
//!
//! In: an object. Out: the text that Ray itself prints for it, if its class, size and bytes are those of an id; else
//! nothing. Other code finds which process has or runs the task or object with an id.

use crate::image::{Addr, Memory, MemoryExt};
use crate::python::objects::Objects;

/// A class of Cython around an id of C++: behind the head of the object a pointer to its functions and the id's hash, then its bytes
/// (python/ray/_raylet.pxd, `BaseID`; src/ray/common/id.h, `BaseID::hash_`). Seen on 2.60 and compared with `hex()`.
const BYTES: u64 = 16;

/// A class, and how many bytes its ids have (src/ray/common/id.h, `kUniqueIDSize`, `kLength`).
struct Row {
    class: &'static str,
    length: usize,
}

const OBJECT: Row = Row { class: "ObjectRef", length: 28 };
const ACTOR: Row = Row { class: "ActorID", length: 16 };
const JOB: Row = Row { class: "JobID", length: 4 };

/// The first bytes of an object's id are those of the task that makes it. The others are its number among that task's
/// results.
const TASK: usize = 24;
/// The first bytes of a task's id are its own, and the others the actor's. The last bytes of an actor's id are the
/// job's.
const OWN_PART: usize = 8;

/// The task or object behind an `ObjectRef`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The task that makes it.
    pub(super) task: String,
    /// The actor that runs the task; `None` for a task of no actor.
    pub(super) actor: Option<String>,
    pub(super) job: String,
    /// Which of the task's results.
    pub(super) number: u32,
}

/// The object that a reference stands for.
pub(super) fn wanted(memory: &dyn Memory, objects: &Objects<'_>, object: Addr) -> Option<Wanted> {
    of_bytes(&read(memory, objects, object, &OBJECT)?)
}

/// The id of an actor.
pub(super) fn actor(memory: &dyn Memory, objects: &Objects<'_>, object: Addr) -> Option<String> {
    read(memory, objects, object, &ACTOR).map(|bytes| hex(&bytes))
}

/// The id of a job.
pub(super) fn job(memory: &dyn Memory, objects: &Objects<'_>, object: Addr) -> Option<String> {
    read(memory, objects, object, &JOB).map(|bytes| hex(&bytes))
}

fn read(memory: &dyn Memory, objects: &Objects<'_>, object: Addr, row: &Row) -> Option<Vec<u8>> {
    let class = objects.class_name(object)?;
    let begin = objects.head().checked_add(BYTES)?;
    let is_one = class.rsplit('.').next() == Some(row.class)
        && objects.basic_size(object).is_some_and(|size| size >= begin + row.length as u64);
    let bytes = is_one.then(|| memory.bytes(object + begin, row.length).ok()).flatten()?;
    // Ray's own word for an id that is none.
    (!bytes.iter().all(|byte| *byte == 0xff) && bytes.iter().any(|byte| *byte != 0)).then_some(bytes)
}

fn of_bytes(bytes: &[u8]) -> Option<Wanted> {
    let (task, number) = bytes.split_at_checked(TASK)?;
    let number = u32::from_le_bytes(number.try_into().ok()?);
    let actor = task.get(OWN_PART..)?;
    let (unique, job) = actor.split_at_checked(actor.len().checked_sub(JOB.length)?)?;
    // The first result has the number 1, and a task is of some job.
    if number == 0 || job.iter().all(|byte| *byte == 0xff) || job.iter().all(|byte| *byte == 0) {
        return None;
    }
    let has_actor = unique.iter().any(|byte| *byte != 0xff);
    Some(Wanted { task: hex(task), actor: has_actor.then(|| hex(actor)), job: hex(job), number })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_object_names_task_actor_and_job() {
        let bytes = |text: &str| {
            let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
            (0..text.len()).step_by(2).map(pair).collect::<Vec<u8>>()
        };
        // As Ray 2.60 gave it for a call of an actor's method, and for one of a function.
        let call = of_bytes(&bytes("16310a0f0a45af5c7f037e7e5f6ef547f4385c390100000001000000")).expect("an id");
        assert_eq!(call.task, "16310a0f0a45af5c7f037e7e5f6ef547f4385c3901000000");
        assert_eq!(call.actor.as_deref(), Some("7f037e7e5f6ef547f4385c3901000000"));
        assert_eq!((call.job.as_str(), call.number), ("01000000", 1));
        let plain = of_bytes(&bytes("c8ef45ccd0112571ffffffffffffffffffffffff0100000002000000")).expect("an id");
        assert_eq!((plain.actor, plain.number), (None, 2));
        for none in
            ["", "00", &"ff".repeat(28), &"00".repeat(28), "c8ef45ccd0112571ffffffffffffffffffffffff0100000000000000"]
        {
            assert_eq!(of_bytes(&bytes(none)), None, "{none}");
        }
    }
}
