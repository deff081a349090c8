//! The file of orders, as text: a reproducer of a hang that is kept beside the program.
//!
//! In: [`Prediction`]s, or text. Out: text, or predictions, or the line that is wrong. A line is `key: value`; `#` begins
//! a comment; indentation is for people. `src/manual/provoke.md` describes the keys.

use std::fmt::Write;

use super::{At, Member, NativePlace, Place, Prediction, PythonPlace};
use crate::limits::provoke::LONGEST_VERSION;

/// The first line that is no comment.
const HEADING: &str = "lockscope-orders";
const VERSION: u32 = 1;

/// Why a text has no predictions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextError {
    /// Something else.
    #[error("it is no file of orders: its first line is not `{HEADING} {VERSION}`")]
    Other,
    /// Made by a newer lockscope.
    #[error("its version is `{0}`, and this lockscope reads version {VERSION}: use the lockscope that wrote it")]
    Version(String),
    /// A line is damaged.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The file ends too early.
    #[error("`{0}` is incomplete: each deadlock needs two threads, and each thread a `first` and a `second` place")]
    Incomplete(String),
    /// There is no deadlock in it.
    #[error("it has no `deadlock`")]
    Empty,
}

/// The text of predictions; `made_by` says for people where they come from.
pub(crate) fn write(predictions: &[Prediction], made_by: &str) -> String {
    let mut text = String::new();
    // Writing to memory cannot fail.
    let mut line = |indent: usize, key: &str, value: &str| {
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "{:indent$}{key}{value}", "");
    };
    line(0, "# ", made_by);
    line(
        0,
        "# ",
        "`lockscope run --provoke=FILE -- COMMAND` makes it happen: each thread takes its first lock, and waits",
    );
    line(0, "# ", "before its second one until the others do.");
    line(0, HEADING, "");
    for prediction in predictions {
        line(0, "", "");
        line(0, "deadlock: ", &prediction.title);
        for member in &prediction.members {
            line(2, "thread: ", &member.thread);
            for (key, place) in [("first: ", &member.first), ("second: ", &member.second)] {
                line(4, key, &place.lock);
                write_place(&place.at, &mut |key, value| line(6, key, value));
            }
        }
    }
    text.replacen(HEADING, &format!("{HEADING} {VERSION}"), 1)
}

fn write_place(at: &At, line: &mut dyn FnMut(&str, &str)) {
    let source = |(file, line): &(String, u32)| format!("{file}:{line}");
    match at {
        At::Gil => line("at: ", "gil"),
        At::Anywhere => line("at: ", "anywhere"),
        At::ThreadEnd => line("at: ", "thread"),
        At::Waits => line("at: ", "waits"),
        At::Wakes => line("at: ", "wakes"),
        At::Unknown => line("at: ", "unknown"),
        At::Native(native) => {
            line("module: ", &native.module);
            let offset = native.offset.map(|offset| format!("{offset:#x}"));
            let known = [
                ("build: ", native.build.clone()),
                ("offset: ", offset),
                ("function: ", native.function.clone()),
                ("source: ", native.source.as_ref().map(source)),
            ];
            known.iter().for_each(|(key, value)| value.iter().for_each(|value| line(key, value)));
        }
        At::Python(python) => {
            line("python: ", &format!("{}:{}", python.file, python.line));
            line("function: ", &python.function);
            python.text.iter().for_each(|text| line("text: ", text));
            python.caller.iter().for_each(|caller| line("caller: ", &source(caller)));
        }
    }
}

/// The predictions of a text.
pub(crate) fn read(text: &str) -> Result<Vec<Prediction>, TextError> {
    let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
    let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let version = lines.next().and_then(|(line, _)| line.strip_prefix(HEADING)).ok_or(TextError::Other)?.trim();
    if version != VERSION.to_string() {
        return Err(TextError::Version(version.chars().take(LONGEST_VERSION).collect()));
    }
    let mut reading = Reading::default();
    for (line, number) in lines {
        let wrong = |why| TextError::Line { line: number, why };
        let (key, value) = line.split_once(':').ok_or_else(|| wrong("it is not `key: value`".into()))?;
        reading.add(key.trim(), value.trim()).map_err(wrong)?;
    }
    reading.finish()
}

/// A member that is still being read.
#[derive(Debug, Default)]
struct Partial {
    thread: String,
    places: [Option<Place>; 2],
}

#[derive(Debug, Default)]
struct Reading {
    predictions: Vec<(String, Vec<Partial>)>,
    /// The place that lines are of: the first or the second.
    open: usize,
}

impl Reading {
    fn add(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "deadlock" => {
                self.predictions.push((value.to_owned(), Vec::new()));
                Ok(())
            }
            "thread" => {
                let (_, members) = self.predictions.last_mut().ok_or("`thread` comes before the first `deadlock`")?;
                members.push(Partial { thread: value.to_owned(), ..Partial::default() });
                Ok(())
            }
            "first" | "second" => {
                let member = self.member().ok_or_else(|| format!("`{key}` comes before the first `thread`"))?;
                let place = usize::from(key == "second");
                let slot = member.places.get_mut(place).filter(|slot| slot.is_none());
                *slot.ok_or_else(|| format!("the thread has two of `{key}`"))? =
                    Some(Place { lock: value.to_owned(), at: At::Unknown });
                self.open = place;
                Ok(())
            }
            _ => {
                let open = self.open;
                let place = self.member().and_then(|member| member.places.get_mut(open)?.as_mut());
                let place = place.ok_or_else(|| format!("`{key}` comes before the first `first` or `second`"))?;
                detail(&mut place.at, key, value)
            }
        }
    }

    fn member(&mut self) -> Option<&mut Partial> {
        self.predictions.last_mut()?.1.last_mut()
    }

    fn finish(self) -> Result<Vec<Prediction>, TextError> {
        if self.predictions.is_empty() {
            return Err(TextError::Empty);
        }
        let whole = |(title, members): (String, Vec<Partial>)| {
            let member = |partial: Partial| {
                let [first, second] = partial.places;
                Some(Member { thread: partial.thread, first: first?, second: second? })
            };
            let members: Option<Vec<Member>> = members.into_iter().map(member).collect();
            match members.filter(|members| members.len() > 1) {
                Some(members) => Ok(Prediction { title, members }),
                None => Err(TextError::Incomplete(title)),
            }
        };
        self.predictions.into_iter().map(whole).collect()
    }
}

/// One line of a place.
fn detail(at: &mut At, key: &str, value: &str) -> Result<(), String> {
    let line = |value: &str| -> Result<(String, u32), String> {
        let wrong = || format!("`{value}` is not FILE:LINE");
        let (file, line) = value.rsplit_once(':').ok_or_else(wrong)?;
        Ok((file.to_owned(), line.parse().ok().filter(|line| *line > 0).ok_or_else(wrong)?))
    };
    match (key, &mut *at) {
        ("at", _) => {
            *at = match value {
                "gil" => At::Gil,
                "anywhere" => At::Anywhere,
                "thread" => At::ThreadEnd,
                "waits" => At::Waits,
                "wakes" => At::Wakes,
                "unknown" => At::Unknown,
                other => return Err(format!("`{other}` is none of `gil`, `anywhere`, `thread`, `waits` and `wakes`")),
            }
        }
        ("module", _) => *at = At::Native(NativePlace { module: value.to_owned(), ..NativePlace::default() }),
        ("python", _) => {
            let (file, line) = line(value)?;
            *at = At::Python(PythonPlace { file, line, ..PythonPlace::default() });
        }
        ("build", At::Native(native)) => native.build = Some(value.to_owned()),
        ("offset", At::Native(native)) => {
            let digits = value.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let offset = digits.filter(|offset| *offset < u64::MAX);
            native.offset = Some(offset.ok_or_else(|| format!("`{value}` is no offset such as 0x12ab"))?);
        }
        ("function", At::Native(native)) => native.function = Some(value.to_owned()),
        ("source", At::Native(native)) => native.source = Some(line(value)?),
        ("function", At::Python(python)) => python.function = value.to_owned(),
        ("text", At::Python(python)) => python.text = Some(value.to_owned()),
        ("caller", At::Python(python)) => python.caller = Some(line(value)?),
        ("build" | "offset" | "function" | "source" | "text" | "caller", _) => {
            return Err(format!("`{key}` belongs behind a `module` or a `python` line"));
        }
        _ => return Err(format!("there is no key `{key}`")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictions() -> Vec<Prediction> {
        let native = At::Native(NativePlace {
            module: "/opt/my app/bin/app".into(),
            build: Some("ab12".into()),
            offset: Some(0x12ab),
            function: Some("bank::pay(int, char*)".into()),
            source: Some(("/src/a:b.c".into(), 12)),
        });
        let python = At::Python(PythonPlace {
            file: "/srv/pay.py".into(),
            line: 7,
            function: "Account.pay".into(),
            text: Some("with self.lock:  # now".into()),
            caller: Some(("/srv/main.py".into(), 9)),
        });
        let place = |at: &At| Place { lock: "mutex `a`".into(), at: at.clone() };
        let member = |first, second| Member { thread: "payer (12)".into(), first: place(first), second: place(second) };
        vec![
            Prediction {
                title: "a and b are taken in different orders".into(),
                members: vec![member(&native, &At::Gil), member(&python, &native), member(&At::Anywhere, &python)],
            };
            2
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        let text = write(&predictions(), "From\nhang.snapshot.zst.");
        let mut expected = predictions();
        // Blanks are one each.
        for place in
            expected.iter_mut().flat_map(|one| &mut one.members).flat_map(|one| [&mut one.first, &mut one.second])
        {
            if let At::Python(python) = &mut place.at {
                python.text = Some("with self.lock: # now".into());
            }
        }
        assert_eq!(read(&text), Ok(expected), "{text}");
    }

    #[test]
    fn what_is_damaged_is_said() {
        assert_eq!(read("{\"schema\": 1}"), Err(TextError::Other));
        assert_eq!(read(""), Err(TextError::Other));
        assert_eq!(read("lockscope-orders 7\n"), Err(TextError::Version("7".into())));
        assert_eq!(read("lockscope-orders 1\n"), Err(TextError::Empty));
        let after = |lines: &str| read(&format!("lockscope-orders 1\n{lines}")).expect_err("damaged").to_string();
        assert_eq!(after("deadlock: a\nthread"), "line 3: it is not `key: value`");
        assert_eq!(after("thread: a"), "line 2: `thread` comes before the first `deadlock`");
        assert_eq!(after("deadlock: a\nthread: b\nfirst: c\noffset: 0x1"), {
            "line 5: `offset` belongs behind a `module` or a `python` line"
        });
        assert_eq!(after("deadlock: a\nthread: b\nfirst: c\npython: d"), "line 5: `d` is not FILE:LINE");
        assert!(after("deadlock: a\nthread: b\nfirst: c\nat: gil\n").contains("is incomplete"));
    }

    #[test]
    fn no_text_makes_it_panic() {
        let whole = write(&predictions(), "x");
        for at in (0..whole.len()).filter(|at| whole.is_char_boundary(*at)) {
            let _ = read(&whole[..at]);
            for letter in ["", ":", "\n", "0", "#", "\u{fffd}"] {
                let _ = read(&format!("{}{letter}{}", &whole[..at], &whole[(at + 1).min(whole.len())..]));
            }
        }
    }
}
