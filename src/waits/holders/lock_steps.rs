//! The effect of code on locks of one kind: which of its calls take or release a lock, and on which paths.
//!
//! In: the calls of a function, with what is known of their arguments. Out: the locks that are taken where the function stands, or
//! where it returns, and those of its callers that it gave back. Called functions of the same module are read, to a bounded depth:
//! guards, destructors and helpers take and give back for their callers. It knows no thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::rc::Rc;

use crate::code::{Arguments, Branches, CallSite, CallsAndWrites, Code, Goal};
use crate::image::Addr;
use crate::limits::code::{CALLED_DEPTH, CALLED_FUNCTIONS, LARGEST_FUNCTION};
use crate::symbols::{base_symbol, is_named};
use crate::unwind::NativeFrame;
use crate::waits::blocked_on::LockCalls;
use crate::waits::thread::Process;

/// A function, the goal in it, and the addresses that a path may not use.
type PathQuestion = (Addr, Goal, Vec<Addr>);

/// A table of calls, a function, its arguments, and the depth to which it is read.
type CalledQuestion = (&'static LockCalls, Addr, Arguments, usize);

/// Answers about code: one for all threads, or one for each thread whose own storage mattered.
#[derive(Debug)]
struct Answers<Q, A> {
    /// By the question, and by the thread's descriptor where the answer is that thread's alone.
    known: RefCell<HashMap<(Q, Option<ThreadPointer>), A>>,
}

/// Functions, and over how many calls they lead to one that matters.
type Leading = Rc<HashMap<Addr, usize>>;

/// A thread's descriptor, where it is known.
type ThreadPointer = Option<Addr>;

impl<Q, A> Default for Answers<Q, A> {
    fn default() -> Self {
        Answers { known: RefCell::default() }
    }
}

impl<Q: Eq + Hash + Copy, A: Clone> Answers<Q, A> {
    /// The answer for this thread. `find` gives one that is not known yet, and whether it is that thread's alone.
    fn get(&self, question: Q, thread: ThreadPointer, find: impl FnOnce() -> (A, bool)) -> A {
        let known = |thread| self.known.borrow().get(&(question, thread)).cloned();
        known(None).or_else(|| known(Some(thread))).unwrap_or_else(|| {
            let (answer, is_of_thread) = find();
            self.known.borrow_mut().insert((question, is_of_thread.then_some(thread)), answer.clone());
            answer
        })
    }
}

/// A lock that a called function takes or gives back, whether it takes it, and whether it always does.
type ByCalled = (Option<Addr>, bool, bool);

/// The effect of a called function on locks.
#[derive(Debug, Clone, Default)]
struct Called {
    changes: Rc<Vec<ByCalled>>,
    needs: Needs,
}

/// The inputs that the effect of code depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Needs {
    /// The values that it is called with: without them a lock or a function is unknown.
    arguments: bool,
    /// Storage of the thread itself.
    thread: bool,
}

impl Needs {
    fn and(self, other: Needs) -> Needs {
        Needs { arguments: self.arguments || other.arguments, thread: self.thread || other.thread }
    }
}

/// The code of one process, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The calls of a function, by its first address.
    functions: RefCell<HashMap<Addr, Rc<Vec<CallSite>>>>,
    /// Whether a function, or one that it calls, takes or gives back a lock by these calls.
    matters: RefCell<HashMap<(&'static LockCalls, Addr, usize), bool>>,
    /// The direct calls of a module, by its position.
    branches: RefCell<HashMap<usize, Option<Rc<Branches>>>>,
    /// The functions of a module that lead to such calls, and over how many others; `None` where these are too many.
    leading: RefCell<HashMap<(&'static LockCalls, usize), Option<Leading>>>,
    paths: RefCell<HashMap<PathQuestion, Option<bool>>>,
    /// The locks that called functions take and give back.
    called: Answers<CalledQuestion, Called>,
    /// The code of called functions, by their arguments.
    read: Answers<(Addr, Arguments), Rc<CallsAndWrites>>,
}

/// A call's effect on a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The call.
    pub(super) site: CallSite,
    /// The lock, if it is known.
    pub(super) lock: Option<Addr>,
    /// It takes the lock; else it gives it back.
    pub(super) takes: bool,
    /// It always does, not only on some of its paths.
    pub(super) is_certain: bool,
    /// Where the function itself writes to the lock's word: a compiler puts the quick part of a call in its place.
    pub(super) writes: Vec<Addr>,
}

/// The changes that a frame's function makes, and where the frame stands in it.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Position of the thread.
    pub(super) thread: usize,
    pc: Addr,
    changes: Vec<Change>,
}

/// The net effect of a function's changes at one location.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The changes that took a lock which may be held there, in order of address. A certain one lies on every path to the place,
    /// and nothing behind it can have given the lock back.
    pub(super) taken: Vec<Change>,
    /// Locks that were taken by a caller and given back, and whether on every path.
    pub(super) given: Vec<(Option<Addr>, bool)>,
}

/// Locks by the guards that have them.
pub(super) type Guarded = HashMap<u64, Option<Addr>>;

/// Reads what code does to locks by one table of calls.
pub(super) struct LockSteps<'r> {
    memo: &'r Memo,
    process: &'r Process<'r>,
    code: Code<'r>,
    calls: &'static LockCalls,
    thread_pointer: Option<Addr>,
    /// The needs of the called functions that were read last.
    needs: Cell<Needs>,
}

impl<'r> LockSteps<'r> {
    /// For the code of `process`, as the thread with this descriptor runs it.
    pub(super) fn new(
        memo: &'r Memo,
        process: &'r Process<'r>,
        calls: &'static LockCalls,
        thread_pointer: Option<Addr>,
    ) -> Self {
        let code = Code::new(process.context.image, process.context.symbols);
        LockSteps { memo, process, code, calls, thread_pointer, needs: Cell::default() }
    }

    /// The code of the process.
    pub(super) fn code(&self) -> &Code<'r> {
        &self.code
    }

    /// The calls of the function that covers `within`, without their arguments.
    pub(super) fn calls_of(&self, within: Addr) -> Rc<Vec<CallSite>> {
        let Some(start) = self.process.context.symbols.function_start(within) else { return Rc::default() };
        let known = self.memo.functions.borrow().get(&start).cloned();
        known.unwrap_or_else(|| {
            let calls = Rc::new(self.code.calls_in(within));
            self.memo.functions.borrow_mut().insert(start, calls.clone());
            calls
        })
    }

    /// Whether the function that covers `within` takes or gives back a lock, itself or by functions that it calls to this depth.
    pub(super) fn matters(&self, within: Addr, depth: usize) -> bool {
        let Some(start) = self.process.context.symbols.function_start(within) else { return false };
        let key = (self.calls, start, depth);
        if let Some(known) = self.memo.matters.borrow().get(&key) {
            return *known;
        }
        // Recursion finds nothing new.
        self.memo.matters.borrow_mut().insert(key, false);
        if !self.may_lead_there(start, depth) {
            return false;
        }
        let sites = self.calls_of(start);
        let further = |site: &CallSite| self.is_followed(site, start, depth) && self.matters_to(site, depth);
        let found = sites.iter().any(|site| Step::of(site, self.calls).is_some()) || sites.iter().any(further);
        self.memo.matters.borrow_mut().insert(key, found);
        found
    }

    /// Whether a chain of at most `depth` direct calls in its module may lead from a function to a call that takes or gives back a lock.
    fn may_lead_there(&self, function: Addr, depth: usize) -> bool {
        let Some(module) = self.process.context.symbols.modules().at(function) else { return true };
        let known = self.memo.leading.borrow().get(&(self.calls, module)).cloned();
        let leading = known.unwrap_or_else(|| {
            let leading = self.leading(module).map(Rc::new);
            self.memo.leading.borrow_mut().insert((self.calls, module), leading.clone());
            leading
        });
        leading.is_none_or(|leading| leading.get(&function).is_some_and(|calls| *calls <= depth))
    }

    fn leading(&self, module: usize) -> Option<HashMap<Addr, usize>> {
        let known = self.memo.branches.borrow().get(&module).cloned();
        let branches = known.unwrap_or_else(|| {
            let branches = self.code.branches(module).map(Rc::new);
            self.memo.branches.borrow_mut().insert(module, branches.clone());
            branches
        });
        self.code.leading_to(&*branches?, |name| Step::named(name, self.calls).is_some(), CALLED_DEPTH)
    }

    /// The changes that the function of `frame` makes, by which a lock may be given back from its pc on.
    pub(super) fn ahead(&self, thread: usize, frame: &NativeFrame) -> Option<Ahead> {
        let start = self.process.context.symbols.function_start(frame.lookup)?;
        if !self.matters(start, CALLED_DEPTH) {
            return None;
        }
        let sites = self.code.read_around(frame, self.thread_pointer).calls;
        let changes = self.changes(start, &sites, &mut Guarded::new(), CALLED_DEPTH);
        Some(Ahead { thread, pc: frame.pc, changes })
    }

    /// The call among them that may give `lock` back, with no call in between that takes it.
    pub(super) fn gives(&self, ahead: &Ahead, lock: Addr) -> Option<String> {
        let of_it = || ahead.changes.iter().filter(|change| change.lock.is_none_or(|known| known == lock));
        let takes: Vec<Addr> = of_it().filter(|change| change.takes).map(|change| change.site.at).collect();
        let is_ahead = |change: &&Change| self.path(ahead.pc, Goal::Place(change.site.at), &takes) != Some(false);
        let give = of_it().filter(|change| !change.takes).find(is_ahead)?;
        let name = give.site.function.as_deref().unwrap_or("a function");
        Some(format!("{name} at {}", give.site.at))
    }

    fn matters_to(&self, site: &CallSite, depth: usize) -> bool {
        site.target.is_some_and(|target| self.matters(target, depth.saturating_sub(1)))
    }

    /// Whether the called function is read as well: other modules have locks of their own.
    fn is_followed(&self, site: &CallSite, from: Addr, depth: usize) -> bool {
        let modules = self.process.context.symbols.modules();
        let is_read = self.memo.functions.borrow().len() < CALLED_FUNCTIONS;
        depth > 0 && is_read && site.target.is_some_and(|target| modules.at(target) == modules.at(from))
    }

    /// The effects on locks of the calls of the function at `start`.
    pub(super) fn changes(&self, start: Addr, sites: &[CallSite], guarded: &mut Guarded, depth: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        for site in sites {
            let [guard, second, ..] = site.arguments;
            let only = self.calls.is_only.then_some(Addr(0));
            let argument = only.or_else(|| site.arguments.get(self.calls.lock).copied().flatten().map(Addr));
            let (lock, takes) = match Step::of(site, self.calls) {
                Some(Step::Locks) => (argument, true),
                Some(Step::Unlocks) => (argument, false),
                Some(Step::BeginsGuard) => {
                    guard.map(|guard| guarded.insert(guard, second.map(Addr)));
                    (second.map(Addr), true)
                }
                // A guard whose begin was not seen has a lock that is not known.
                Some(Step::EndsGuard) => (guard.and_then(|guard| guarded.get(&guard).copied()).flatten(), false),
                None => {
                    if self.is_followed(site, start, depth) && self.matters_to(site, depth) {
                        changes.extend(self.by_called(site, depth - 1));
                    }
                    continue;
                }
            };
            let may_fail = site.function.as_deref().is_some_and(|name| named(name, self.calls.may_fail));
            let is_certain = !(takes && may_fail);
            changes.push(Change { lock, takes, is_certain, site: site.clone(), writes: Vec::new() });
        }
        changes
    }

    /// A called function's effects on the locks of its caller.
    fn by_called(&self, site: &CallSite, depth: usize) -> Vec<Change> {
        let Some(function) = site.target else { return Vec::new() };
        // Most functions do the same whatever they are called with.
        let general = self.of_called(function, Arguments::default(), depth);
        let called = match general.needs.arguments && site.arguments != Arguments::default() {
            true => self.of_called(function, site.arguments, depth),
            false => general,
        };
        self.needs.set(self.needs.get().and(called.needs));
        let change =
            |(lock, takes, is_certain)| Change { site: site.clone(), lock, takes, is_certain, writes: Vec::new() };
        called.changes.iter().copied().map(change).collect()
    }

    /// A called function's effects. They are read once for all threads, since most code does the same in each.
    fn of_called(&self, function: Addr, arguments: Arguments, depth: usize) -> Called {
        self.memo.called.get((self.calls, function, arguments, depth), self.thread_pointer, || {
            let before = self.needs.take();
            let changes = Rc::new(self.read_called(function, arguments, depth));
            let needs = self.needs.replace(before);
            (Called { changes, needs }, needs.thread)
        })
    }

    /// The code of a called function.
    fn read(&self, function: Addr, arguments: Arguments) -> Rc<CallsAndWrites> {
        self.memo.read.get((function, arguments), self.thread_pointer, || {
            let most = LARGEST_FUNCTION as usize;
            let read = self.code.calls_of(function, most, arguments, self.thread_pointer);
            let is_of_thread = read.is_of_thread;
            (Rc::new(read), is_of_thread)
        })
    }

    /// The locks that a called function has taken or given back when it returns, which of both it is, and whether it always does.
    fn read_called(&self, function: Addr, arguments: Arguments, depth: usize) -> Vec<ByCalled> {
        let read = self.read(function, arguments);
        let inner = self.changes(function, &read.calls, &mut Guarded::new(), depth);
        let arguments = read.is_open || inner.iter().any(|change| change.lock.is_none());
        self.needs.set(self.needs.get().and(Needs { arguments, thread: read.is_of_thread }));
        let outcome = self.outcome(function, Goal::Return, inner);
        let taken = outcome.taken.into_iter().map(|change| (change.lock, true, change.is_certain));
        let given = outcome.given.into_iter().map(|(lock, is_certain)| (lock, false, is_certain));
        taken.chain(given).collect()
    }

    /// The net effect of these changes where the function at `start` comes to the goal.
    pub(super) fn outcome(&self, start: Addr, goal: Goal, changes: Vec<Change>) -> Outcome {
        let mut outcome = Outcome::default();
        let locks: BTreeSet<Option<Addr>> = changes.iter().map(|change| change.lock).collect();
        let mut unknown_given: Vec<&Change> = Vec::new();
        for lock in locks {
            let of_it = || changes.iter().filter(|change| change.lock == lock);
            let gives: Vec<&Change> = of_it().filter(|change| !change.takes).collect();
            let certain_gives = || gives.iter().filter(|give| give.is_certain).map(|give| give.site.at);
            let mut matched: BTreeSet<Addr> = BTreeSet::new();
            // When sections nest, the inner one is released first.
            let mut ended_inner: Vec<(Addr, Vec<Addr>)> = Vec::new();
            let takes: Vec<&Change> = of_it().filter(|change| change.takes).collect();
            let (mut kept, mut branches): (Vec<Change>, Vec<Addr>) = (Vec::new(), Vec::new());
            for take in takes.iter().rev() {
                let at = take.site.at;
                let is_used = |give: &&&Change| {
                    let mut inner = ended_inner.iter().filter(|(_, ends)| ends.contains(&give.site.at));
                    inner.any(|(inner, _)| self.path(start, Goal::Place(*inner), &[at]) == Some(false))
                };
                let open = gives.iter().filter(|give| !is_used(give));
                // A lock that was given back is not given back once more: the next call gives another one.
                let is_next = |give: &&&Change| {
                    let others: Vec<Addr> = certain_gives().filter(|other| *other != give.site.at).collect();
                    self.may_follow(start, goal, at, give.site.at, &others)
                };
                let between: Vec<&Change> = open.filter(is_next).copied().collect();
                matched.extend(between.iter().map(|give| give.site.at));
                let ends: Vec<Addr> = between.iter().filter(|give| give.is_certain).map(|give| give.site.at).collect();
                if !ends.is_empty() && self.path(at, goal, &ends) == Some(false) {
                    ended_inner.push((at, ends));
                    continue;
                }
                // A write to the lock's word may give it back, too.
                let is_written = || take.writes.iter().any(|write| self.may_follow(start, goal, at, *write, &[]));
                let is_kept = take.is_certain && between.is_empty() && !is_written();
                kept.push(Change {
                    is_certain: is_kept && self.is_on_every_path(start, goal, &self.with_quick_part(start, take)),
                    ..(*take).clone()
                });
                if is_kept {
                    branches.push(at);
                }
            }
            // Each branch may take it.
            if kept.iter().all(|take| !take.is_certain) && self.is_on_every_path(start, goal, &branches) {
                kept.retain(|take| Some(&take.site.at) == branches.first());
                kept.iter_mut().for_each(|take| take.is_certain = true);
            }
            outcome.taken.extend(kept);
            let of_caller: Vec<&Change> = gives
                .into_iter()
                .filter(|give| !matched.contains(&give.site.at) && !self.is_elsewhere(give, goal))
                .collect();
            if lock.is_none() {
                unknown_given.extend(&of_caller);
            }
            if !of_caller.is_empty() {
                let certain: Vec<Addr> =
                    of_caller.iter().filter(|give| give.is_certain).map(|give| give.site.at).collect();
                outcome.given.push((lock, self.is_on_every_path(start, goal, &certain)));
            }
        }
        // An unknown lock released there may be any lock.
        for take in outcome.taken.iter_mut().filter(|take| take.lock.is_some()) {
            take.is_certain &=
                !unknown_given.iter().any(|give| self.may_follow(start, goal, take.site.at, give.site.at, &[]));
        }
        outcome.taken.sort_by_key(|change| change.site.at);
        outcome
    }

    /// A call that takes a lock, and the last writes to the lock's word that lie on every path to it: a path on which such a write has
    /// taken the lock leaves the call out.
    fn with_quick_part(&self, start: Addr, take: &Change) -> Vec<Addr> {
        let call = Goal::Place(take.site.at);
        let is_last = |at: &Addr| {
            let others: Vec<Addr> = take.writes.iter().copied().filter(|other| other != at).collect();
            self.path(*at, call, &others) == Some(true) && self.path(start, call, &[*at]) == Some(false)
        };
        take.writes.iter().copied().filter(is_last).chain([take.site.at]).collect()
    }

    /// Whether the call at `give` may come between that at `take` and the goal, before any of `others`.
    fn may_follow(&self, start: Addr, goal: Goal, take: Addr, give: Addr, others: &[Addr]) -> bool {
        // One call may do both.
        if take == give {
            return false;
        }
        let comes_there = self.path(take, Goal::Place(give), others) != Some(false)
            // Only an exception leads there, from anywhere.
            || self.path(start, Goal::Place(give), &[]) == Some(false);
        comes_there && self.path(give, goal, &[take]) != Some(false)
    }

    /// Whether the goal is reached by paths that all lead past one of these places.
    fn is_on_every_path(&self, start: Addr, goal: Goal, places: &[Addr]) -> bool {
        !places.is_empty() && self.path(start, goal, &[]) == Some(true) && self.path(start, goal, places) == Some(false)
    }

    fn is_elsewhere(&self, change: &Change, goal: Goal) -> bool {
        self.path(change.site.at, goal, &[]) == Some(false)
    }

    fn path(&self, from: Addr, goal: Goal, avoiding: &[Addr]) -> Option<bool> {
        let key = (from, goal, avoiding.to_vec());
        if let Some(known) = self.memo.paths.borrow().get(&key) {
            return *known;
        }
        let found = self.code.path(from, goal, avoiding);
        self.memo.paths.borrow_mut().insert(key, found);
        found
    }
}

/// A call's effect on a lock, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It takes the lock that is its argument.
    Locks,
    /// It gives back the lock that is its argument.
    Unlocks,
    /// It makes of its first argument a guard that has its second.
    BeginsGuard,
    /// It gives back what the guard has that is its first argument.
    EndsGuard,
}

impl Step {
    /// The effect of the call at `site`, if it is one of `calls`.
    pub(super) fn of(site: &CallSite, calls: &LockCalls) -> Option<Step> {
        Step::named(site.function.as_deref()?, calls)
    }

    /// The step of a call of the function with this name.
    pub(super) fn named(name: &str, calls: &LockCalls) -> Option<Step> {
        let tables = [
            (calls.locks, Step::Locks),
            (calls.unlocks, Step::Unlocks),
            (calls.guards.begin, Step::BeginsGuard),
            (calls.guards.end, Step::EndsGuard),
        ];
        tables.iter().find(|(names, _)| named(name, names)).map(|(_, step)| *step)
    }
}

fn named(function: &str, names: &[&str]) -> bool {
    let name = base_symbol(function);
    names.iter().any(|pattern| is_named(name, pattern))
}
