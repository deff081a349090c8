//! Plain data in a pickle, as JSON.
//!
//! In: bytes. Out: a [`Value`], or a [`PickleError`]. A pickle is a program for a machine with a stack; of its instructions only those are
//! known here that make numbers, texts, lists, tuples and dictionaries (PEP 307, `pickletools` of CPython), which is all that PyTorch's
//! dumps have. One that would call something ends the reading. Cycles end at a depth, and what is shared is counted as often as
//! it is named.

use serde_json::{Map, Number, Value};

use crate::limits::job::{DEEPEST_WITNESS, MOST_WITNESS_VALUES};

/// Why a pickle was not read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum PickleError {
    /// It ends inside an instruction.
    #[error("it is cut")]
    Cut,
    /// It takes from a stack that is empty, or what is there is something else.
    #[error("it makes no sense at byte {0}")]
    Senseless(usize),
    /// It would run code, or make what is no plain data.
    #[error("it holds more than plain data ({0}), which is never run")]
    NotPlain(String),
    /// It stands for more than is read.
    #[error("it stands for more than {MOST_WITNESS_VALUES} values, or for deeper ones than {DEEPEST_WITNESS}")]
    TooMuch,
}

/// Whether bytes begin as a pickle of protocol 2 to 5 does.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2..=5, ..])
}

/// The place of a value.
type Id = usize;

#[derive(Debug, Clone)]
enum Node {
    Plain(Value),
    List(Vec<Id>),
    Map(Vec<(Id, Id)>),
}

/// On the stack: a value, or the beginning of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Value(Id),
    Begin,
}

struct Machine<'b> {
    bytes: &'b [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Entry>,
    memo: std::collections::HashMap<usize, Id>,
}

/// The value that a pickle stands for.
pub(super) fn read(bytes: &[u8]) -> Result<Value, PickleError> {
    let mut machine = Machine { bytes, at: 0, nodes: Vec::new(), stack: Vec::new(), memo: Default::default() };
    while machine.step()? {}
    let top = machine.pop()?;
    let mut left = MOST_WITNESS_VALUES;
    machine.value(top, 0, &mut left)
}

impl Machine<'_> {
    /// One instruction; `false` after the last.
    fn step(&mut self) -> Result<bool, PickleError> {
        let at = self.at;
        let [code] = self.take::<1>()?;
        match code {
            // PROTO, FRAME: nothing for a reader that has all bytes.
            0x80 => drop(self.take::<1>()?),
            0x95 => drop(self.take::<8>()?),
            b'.' => return Ok(false),
            b'N' => self.push(Node::Plain(Value::Null))?,
            0x88 => self.push(Node::Plain(Value::Bool(true)))?,
            0x89 => self.push(Node::Plain(Value::Bool(false)))?,
            b'J' => {
                let number = i32::from_le_bytes(self.take()?);
                self.push(Node::Plain(number.into()))?;
            }
            b'K' => {
                let number = u8::from_le_bytes(self.take()?);
                self.push(Node::Plain(number.into()))?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.take()?);
                self.push(Node::Plain(number.into()))?;
            }
            0x8a => {
                let number = self.long()?;
                self.push(Node::Plain(number))?;
            }
            b'G' => {
                let number = f64::from_be_bytes(self.take()?);
                self.push(Node::Plain(Number::from_f64(number).map_or(Value::Null, Value::Number)))?;
            }
            b'X' => {
                let length = u32::from_le_bytes(self.take()?);
                self.text(u64::from(length))?;
            }
            0x8c => {
                let length = u8::from_le_bytes(self.take()?);
                self.text(u64::from(length))?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.take()?);
                self.text(length)?;
            }
            b'(' => self.stack.push(Entry::Begin),
            b']' | b')' => self.push(Node::List(Vec::new()))?,
            b'}' => self.push(Node::Map(Vec::new()))?,
            b't' => {
                let items = self.since_begin(at)?;
                self.push(Node::List(items))?;
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0x85..=code {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push(Node::List(items))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.extend_list(vec![item], at)?;
            }
            b'e' => {
                let items = self.since_begin(at)?;
                self.extend_list(items, at)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.extend_map(&[key, value], at)?;
            }
            b'u' => {
                let items = self.since_begin(at)?;
                self.extend_map(&items, at)?;
            }
            b'q' => {
                let name = u8::from_le_bytes(self.take()?);
                self.remember(usize::from(name))?;
            }
            b'r' => {
                let name = u32::from_le_bytes(self.take()?);
                self.remember(name as usize)?;
            }
            0x94 => self.remember(self.memo.len())?,
            b'h' => {
                let name = u8::from_le_bytes(self.take()?);
                self.recall(usize::from(name), at)?;
            }
            b'j' => {
                let name = u32::from_le_bytes(self.take()?);
                self.recall(name as usize, at)?;
            }
            other => return Err(PickleError::NotPlain(format!("instruction {other:#04x}"))),
        }
        Ok(true)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).ok_or(PickleError::Cut)?;
        self.at += N;
        Ok(*taken)
    }

    fn slice(&mut self, length: u64) -> Result<&[u8], PickleError> {
        let end =
            usize::try_from(length).ok().and_then(|length| self.at.checked_add(length)).ok_or(PickleError::Cut)?;
        let taken = self.bytes.get(self.at..end).ok_or(PickleError::Cut)?;
        self.at = end;
        Ok(taken)
    }

    fn text(&mut self, length: u64) -> Result<(), PickleError> {
        let text = String::from_utf8_lossy(self.slice(length)?).into_owned();
        self.push(Node::Plain(Value::String(text)))
    }

    /// A number of up to 255 bytes, with its sign; one that no machine counts to is a text.
    fn long(&mut self) -> Result<Value, PickleError> {
        let length = u8::from_le_bytes(self.take()?);
        let bytes = self.slice(u64::from(length))?;
        let fill = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut wide = [fill; 16];
        let Some(low) = wide.get_mut(..bytes.len()) else {
            return Ok(Value::String("a number of more than 16 bytes".into()));
        };
        low.copy_from_slice(bytes);
        let number = i128::from_le_bytes(wide);
        let small = i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from));
        Ok(small.unwrap_or_else(|_| Value::String(number.to_string())))
    }

    fn push(&mut self, node: Node) -> Result<(), PickleError> {
        if self.nodes.len() >= MOST_WITNESS_VALUES {
            return Err(PickleError::TooMuch);
        }
        self.stack.push(Entry::Value(self.nodes.len()));
        self.nodes.push(node);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        match self.stack.pop() {
            Some(Entry::Value(id)) => Ok(id),
            _ => Err(PickleError::Senseless(self.at)),
        }
    }

    fn top(&self, at: usize) -> Result<Id, PickleError> {
        match self.stack.last() {
            Some(Entry::Value(id)) => Ok(*id),
            _ => Err(PickleError::Senseless(at)),
        }
    }

    /// Removes and returns the values above the last mark of a beginning.
    fn since_begin(&mut self, at: usize) -> Result<Vec<Id>, PickleError> {
        let begin = self.stack.iter().rposition(|entry| *entry == Entry::Begin).ok_or(PickleError::Senseless(at))?;
        let items = self.stack.split_off(begin);
        let id = |entry: Entry| match entry {
            Entry::Value(id) => Some(id),
            Entry::Begin => None,
        };
        Ok(items.into_iter().filter_map(id).collect())
    }

    fn extend_list(&mut self, items: Vec<Id>, at: usize) -> Result<(), PickleError> {
        let top = self.top(at)?;
        match self.nodes.get_mut(top) {
            Some(Node::List(list)) => list.extend(items),
            _ => return Err(PickleError::Senseless(at)),
        }
        Ok(())
    }

    fn extend_map(&mut self, items: &[Id], at: usize) -> Result<(), PickleError> {
        let top = self.top(at)?;
        let (pairs, rest) = items.as_chunks::<2>();
        match self.nodes.get_mut(top) {
            Some(Node::Map(map)) if rest.is_empty() => map.extend(pairs.iter().map(|[key, value]| (*key, *value))),
            _ => return Err(PickleError::Senseless(at)),
        }
        Ok(())
    }

    fn remember(&mut self, name: usize) -> Result<(), PickleError> {
        let top = self.top(self.at)?;
        self.memo.insert(name, top);
        Ok(())
    }

    fn recall(&mut self, name: usize, at: usize) -> Result<(), PickleError> {
        let id = *self.memo.get(&name).ok_or(PickleError::Senseless(at))?;
        if self.stack.len() >= MOST_WITNESS_VALUES {
            return Err(PickleError::TooMuch);
        }
        self.stack.push(Entry::Value(id));
        Ok(())
    }

    /// A value with all that is in it.
    fn value(&self, id: Id, depth: usize, left: &mut usize) -> Result<Value, PickleError> {
        *left = left.checked_sub(1).ok_or(PickleError::TooMuch)?;
        if depth > DEEPEST_WITNESS {
            return Err(PickleError::TooMuch);
        }
        match self.nodes.get(id) {
            Some(Node::Plain(value)) => {
                // A text counts by its length, too: it may be named again and again.
                let length = value.as_str().map_or(0, |text| text.len() / 64);
                *left = left.checked_sub(length).ok_or(PickleError::TooMuch)?;
                Ok(value.clone())
            }
            Some(Node::List(items)) => {
                let items = items.iter().map(|item| self.value(*item, depth + 1, left));
                items.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            Some(Node::Map(pairs)) => {
                let mut map = Map::new();
                for (key, value) in pairs {
                    let key = match self.value(*key, depth + 1, left)? {
                        Value::String(text) => text,
                        other => other.to_string(),
                    };
                    map.insert(key, self.value(*value, depth + 1, left)?);
                }
                Ok(Value::Object(map))
            }
            // Nothing but values of its own is ever on the stack.
            None => Err(PickleError::Senseless(self.at)),
        }
    }
}
