//! Inversions as predictions that a command can be run with again; and how another run passed their places.
//!
//! In: recordings. Out: [`Prediction`]s, of each pair of places one; and the places where something was taken that come
//! nearest to one at which nothing was.

use super::places::{Line, Places, Spot};
use super::{Recording, Suppressions, Told, grouped, title, who};
use crate::origin::takes_locks_for_callers;
use crate::provoke::resolve::{IMPORT_SYSTEM, build_of};
use crate::provoke::{At, Member, NativePlace, Place, Prediction, PythonPlace};
use crate::recorder::LockKind;
use crate::recorder::inversions::{self, Apart};
use crate::recorder::orders::{Dependency, Orders, Taken, WakeUp};
use crate::recorder::targets::Target;
use crate::report::base_name;

/// Places that are named as the nearest.
const NEAREST: usize = 3;

/// All that could deadlock, the gravest first.
pub(crate) fn predictions(recordings: &[Recording], suppressions: &Suppressions) -> Vec<Prediction> {
    let mut predictions: Vec<Prediction> = Vec::new();
    for group in grouped(recordings, suppressions).groups {
        let Some(orders) = recordings.get(group.recording).map(|recording| &recording.orders) else { continue };
        let member = |step: &Told| Member {
            thread: who(step.thread, orders),
            first: place(&step.held, orders),
            second: place(&step.wanted, orders),
        };
        let members = without_callers(group.steps.iter().map(member).collect());
        let prediction = Prediction { title: title(&group), members };
        if !predictions.iter().any(|known| known.members == prediction.members) {
            predictions.push(prediction);
        }
    }
    predictions
}

/// Wake-ups that may come before the wait for them, of all recordings.
pub(crate) fn wake_ups(recordings: &[Recording], suppressions: &Suppressions) -> Vec<Prediction> {
    let mut predictions: Vec<Prediction> = Vec::new();
    for Recording { orders, .. } in recordings {
        Places::with(orders, |places| {
            for pair in inversions::wake_ups(orders) {
                let spots = pair.map(|event| places.spot(&event.taken));
                // The interpreter's own threads wake who starts them, and guard that.
                let is_its_own = |spot: &Spot| {
                    let file = spot.line().filter(|line| line.is_python).and_then(|line| line.file.as_deref());
                    file.is_some_and(takes_locks_for_callers)
                };
                if spots.iter().any(is_its_own) || suppressions.fit(spots.iter()) {
                    continue;
                }
                let member = |(event, (spot, at)): (&WakeUp, (&Spot, At))| Member {
                    thread: who(event.thread, orders),
                    first: Place { lock: "nothing".into(), at },
                    second: Place { lock: "the wake-up".into(), ..place(spot, orders) },
                };
                let ways = spots.iter().zip([At::Waits, At::Wakes]);
                let members: Vec<Member> = pair.into_iter().zip(ways).map(member).collect();
                let title =
                    spots.each_ref().map(|spot| spot.place()).join(" may wait for a wake-up that has come before, of ");
                if predictions.iter().all(|known| known.title != title) {
                    predictions.push(Prediction { title, members });
                }
            }
        });
    }
    predictions
}

/// Members are known by their lines alone, but for those that share them, as users of a helper do.
fn without_callers(members: Vec<Member>) -> Vec<Member> {
    let without = |member: &Member| {
        let mut member = member.clone();
        for place in [&mut member.first, &mut member.second] {
            if let At::Python(python) = &mut place.at {
                python.caller = None;
            }
        }
        member
    };
    let lines = |member: &Member| {
        let member = without(member);
        [member.first.at, member.second.at]
    };
    let is_alone = |member: &Member| members.iter().filter(|other| lines(other) == lines(member)).count() == 1;
    members.iter().map(|member| if is_alone(member) { without(member) } else { member.clone() }).collect()
}

fn place(spot: &Spot, orders: &Orders) -> Place {
    let is_python = matches!(spot.taken.kind, LockKind::PythonLock | LockKind::PythonRecursiveLock);
    let at = match spot.taken.kind {
        LockKind::Gil => At::Gil,
        LockKind::ThreadEnd if spot.taken.at.is_null() => At::ThreadEnd,
        _ if is_python => python(spot).map_or(At::Unknown, At::Python),
        _ => native(spot, orders).map_or(At::Unknown, At::Native),
    };
    Place { lock: spot.called(), at }
}

fn native(spot: &Spot, orders: &Orders) -> Option<NativePlace> {
    let at = spot.taken.at;
    let code = orders.code.iter().find(|code| (code.start..code.end).contains(&at))?;
    // Inlined functions come first; the symbol's function is the last.
    let own = spot.lines.iter().rfind(|line| !line.is_python);
    let source = |line: &Line| Some((line.file.clone()?, line.line?));
    Some(NativePlace {
        module: code.path.clone(),
        build: build_of(&code.path),
        offset: Some(at - code.start + code.offset),
        function: own.and_then(|line| line.function.clone()),
        source: spot.line().filter(|line| !line.is_python).and_then(source),
    })
}

fn python(spot: &Spot) -> Option<PythonPlace> {
    // The import system takes its locks on behalf of the line that imports.
    let is_import = |line: &&Line| line.file.as_deref().is_some_and(|file| file.starts_with(IMPORT_SYSTEM));
    let line = spot.lines.first().filter(is_import).or_else(|| spot.line()).filter(|line| line.is_python)?;
    let callers = spot.lines.iter().skip_while(|one| !std::ptr::eq(*one, line)).skip(1);
    Some(PythonPlace {
        file: line.file.clone()?,
        line: line.line?,
        function: line.function.clone()?,
        text: spot.text.clone(),
        caller: callers.take(1).find_map(|caller| Some((caller.file.clone()?, caller.line?))),
    })
}

/// The reason why two members of a prediction could not meet, if it held each time that they took its locks.
pub(crate) fn apart(recordings: &[Recording], pairs: &[[Target; 2]]) -> Option<String> {
    let positions = (0..pairs.len()).flat_map(|one| (one + 1..pairs.len()).map(move |other| (one, other)));
    positions.into_iter().find_map(|(one, other)| {
        let (one, other) = (pairs.get(one)?, pairs.get(other)?);
        let mut why = None;
        for Recording { orders, .. } in recordings {
            let steps = |[first, second]: &[Target; 2]| -> Vec<&Dependency> {
                let is_it = |step: &&Dependency| {
                    is_at(second, &step.wanted, orders) && step.held.iter().any(|held| is_at(first, held, orders))
                };
                orders.dependencies.iter().filter(is_it).collect()
            };
            let (ones, others) = (steps(one), steps(other));
            if ones.is_empty() || others.is_empty() {
                continue;
            }
            why = Some(match inversions::apart(orders, &ones, &others)? {
                Apart::OneThread => "one thread does both".to_owned(),
                Apart::Ordered => "one thread had ended, or not begun, when the other came there".to_owned(),
                Apart::Gate(lock) => {
                    let mut text = String::new();
                    Places::with(orders, |places| {
                        let spot = places.spot(lock);
                        text = format!("a third lock lay around both: {}, taken at {}", spot.called(), spot.place());
                    });
                    text
                }
            });
        }
        why
    })
}

/// Whether a lock was taken at a target, as the recorder compares it.
fn is_at(target: &Target, taken: &Taken, orders: &Orders) -> bool {
    match target {
        Target::Gil => taken.kind == LockKind::Gil,
        Target::Waits | Target::Wakes => false,
        Target::ThreadEnd => taken.kind == LockKind::ThreadEnd,
        Target::Anywhere => {
            use LockKind::{Gil, PythonLock, PythonRecursiveLock};
            !matches!(taken.kind, Gil | PythonLock | PythonRecursiveLock | LockKind::ThreadEnd)
        }
        Target::Native { module, begin, end } => {
            let code = orders.code.iter().find(|code| (code.start..code.end).contains(&taken.at));
            code.is_some_and(|code| {
                base_name(&code.path) == module && (*begin..*end).contains(&(taken.at - code.start + code.offset))
            })
        }
        Target::Python { file, line, function, caller } => {
            let all = || orders.sites.get(&taken.site).into_iter().flatten();
            let mut frames = all().skip(all().position(|frame| !takes_locks_for_callers(&frame.file)).unwrap_or(0));
            let is_own = frames.next().is_some_and(|frame| {
                base_name(&frame.file) == file
                    && (*line == 0 || frame.line == *line)
                    && frame.function.rsplit('.').next() == Some(function)
            });
            let is_called = |(file, line): &(String, u32)| {
                frames.next().is_some_and(|frame| base_name(&frame.file) == file && frame.line == *line)
            };
            is_own && caller.as_ref().is_none_or(is_called)
        }
    }
}

/// Where locks were taken that come nearest to a place at which none was: in the same function, or near in the same file.
pub(crate) fn nearest(recordings: &[Recording], place: &Place) -> Vec<String> {
    let (file, line, function) = match &place.at {
        At::Python(python) => (base_name(&python.file), python.line, Some(python.function.as_str())),
        At::Native(NativePlace { source: Some((file, line)), function, .. }) => {
            (base_name(file), *line, function.as_deref())
        }
        _ => return Vec::new(),
    };
    let mut found: Vec<(bool, u32, String)> = Vec::new();
    for recording in recordings {
        Places::with(&recording.orders, |places| {
            let taken = |one: &Dependency| one.held.iter().chain([&one.wanted]).cloned().collect::<Vec<_>>();
            for spot in recording.orders.dependencies.iter().flat_map(taken).map(|taken| places.spot(&taken)) {
                let Some(Line { file: Some(its_file), line: Some(its_line), function: its_function, .. }) = spot.line()
                else {
                    continue;
                };
                if base_name(its_file) == file {
                    let is_other = function.is_none() || its_function.as_deref() != function;
                    found.push((is_other, its_line.abs_diff(line), spot.place()));
                }
            }
        });
    }
    found.sort();
    found.dedup();
    found.into_iter().map(|(.., place)| place).take(NEAREST).collect()
}
