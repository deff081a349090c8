//! Orders of locks that are to deadlock when a command runs again, and what became of them.
//!
//! In: [`Prediction`]s of a recorded run, of a hang ([`reproducer`]) or of a file ([`text`]). Out: targets of the recorder, which it holds
//! threads at ([`resolve`]); and, when the command has ended, why what was predicted did not happen ([`outcome`]). It
//! starts nothing and looks at no process.

pub(crate) mod outcome;
pub(crate) mod reproducer;
pub(crate) mod resolve;
pub(crate) mod text;

/// A ring of threads: each takes a lock that the next one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// For people: "mutex `ledger` and mutex `journal` are taken in different orders".
    pub(crate) title: String,
    /// Two threads or more.
    pub(crate) members: Vec<Member>,
}

impl Prediction {
    /// Whether it is of a wake-up that may come before its wait.
    pub(crate) fn is_wake_up(&self) -> bool {
        self.members.first().is_some_and(|member| member.first.at == At::Waits)
    }

    /// Whether it has as many threads as the other, and one of them waits where one of those does.
    pub(crate) fn waits_as(&self, other: &Prediction) -> bool {
        let is_place = |place: &Place| matches!(place.at, At::Native(_) | At::Python(_));
        let places = |prediction: &Prediction| -> Vec<String> {
            let seconds = prediction.members.iter().map(|member| &member.second);
            seconds.filter(|place| is_place(place)).map(Place::shortly).collect()
        };
        let (ours, theirs) = (places(self), places(other));
        self.members.len() == other.members.len() && ours.iter().any(|place| theirs.contains(place))
    }
}

/// The part of one thread in a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its name, for people.
    pub(crate) thread: String,
    /// Where it takes what it holds.
    pub(crate) first: Place,
    /// Where it takes what the next one holds.
    pub(crate) second: Place,
}

/// Where a lock is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The lock, for people: "mutex `ledger`".
    pub(crate) lock: String,
    /// Where.
    pub(crate) at: At,
}

/// A place in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum At {
    /// Wherever the GIL is taken.
    Gil,
    /// A call in a program or a library.
    Native(NativePlace),
    /// A line of Python.
    Python(PythonPlace),
    /// The lock, which is not one of Python's, may be taken anywhere: only that it is held counts.
    Anywhere,
    /// The thread itself: it has its end, for which another one waits, until it comes.
    ThreadEnd,
    /// The thread is going to wait to be woken, and needs nothing for that.
    Waits,
    /// It wakes the member before it.
    Wakes,
    /// Nothing is known.
    Unknown,
}

/// A call in a program or a library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NativePlace {
    /// The file's path.
    pub(crate) module: String,
    /// Its build-id, in hexadecimal digits.
    pub(crate) build: Option<String>,
    /// Where the call returns to: an offset in the file of that build.
    pub(crate) offset: Option<u64>,
    /// The function.
    pub(crate) function: Option<String>,
    /// File and line of its source.
    pub(crate) source: Option<(String, u32)>,
}

/// A line of Python.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PythonPlace {
    /// The file's path.
    pub(crate) file: String,
    /// The line.
    pub(crate) line: u32,
    /// The function.
    pub(crate) function: String,
    /// The text of the line, by which it is found where lines have moved.
    pub(crate) text: Option<String>,
    /// File and line of the caller, which tells apart who uses a helper.
    pub(crate) caller: Option<(String, u32)>,
}

impl Place {
    /// `orders.py:12`, or what is known instead.
    pub(crate) fn shortly(&self) -> String {
        use crate::report::{base_name, short_function};
        match &self.at {
            At::Gil | At::Anywhere => "any place".into(),
            At::ThreadEnd => "its end".into(),
            At::Waits | At::Wakes => "no place".into(),
            At::Native(NativePlace { source: Some((file, line)), .. }) => format!("{}:{line}", base_name(file)),
            At::Native(NativePlace { function: Some(function), .. }) => short_function(function),
            At::Native(native) => {
                format!("{}+{:#x}", base_name(&native.module), native.offset.unwrap_or_default())
            }
            At::Python(python) => format!("{}:{}", base_name(&python.file), python.line),
            At::Unknown => "a place that is not known".into(),
        }
    }
}
