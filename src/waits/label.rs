//! The name of a resource, in parts.
//!
//! In: the words that a decoder has for it. Out: [`Label`], whose parts the report carries, and the texts that are made
//! of them, in one place. No code parses a text again: callers that need less or more of a label get it here.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The awaited part of a resource, where that is not the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Wanted {
    /// Bytes in it.
    Data,
    /// Bytes from the process at the other end of a connection.
    Answer,
    /// Room for bytes.
    Room,
    /// A process that connects to it.
    Connection,
    /// Its end.
    End,
}

impl Wanted {
    /// The words before the resource.
    fn before(self) -> &'static str {
        match self {
            Wanted::Data => "data in ",
            Wanted::Answer => "data on ",
            Wanted::Room => "room in ",
            Wanted::Connection => "a connection to ",
            Wanted::End => "the end of ",
        }
    }
}

/// The location of an object, as far as it shows the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "kind", content = "of")]
#[non_exhaustive]
pub enum Place {
    /// In the data of a program or library.
    Module(String),
    /// In a file that is mapped.
    File(String),
    /// On a thread's stack.
    Stack,
    /// In the heap, and a library requests it.
    Library(String),
    /// In the heap.
    Heap,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Module(name) | Place::File(name) => write!(formatter, "in {name}"),
            Place::Stack => formatter.write_str("on a stack"),
            Place::Library(name) => write!(formatter, "inside {name}"),
            Place::Heap => formatter.write_str("in the heap"),
        }
    }
}

/// The name of a resource: "mutex `g_lock` in a.out", "rwlock 0x33b84080 inside libcuda.so.1", "Queue `jobs` (5 in
/// it)", "room in `pipe:[4026]`".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Label {
    /// The awaited part of it, where that is not the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Wanted>,
    /// Its kind or identity: "mutex", "asyncio.Lock", `pipe:[4026]`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub noun: String,
    /// The program's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its distance in bytes from the start of the named object.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// The function that it is for: what runs for a future, or which call has a lock without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// How it stands with it: "5 in it".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Its address, of a thing without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

fn is_zero(offset: &u64) -> bool {
    *offset == 0
}

/// The address part of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Address<'a> {
    /// The part that distinguishes it from others: its address, or its distance from a named object.
    Own,
    /// Its address, also beside a name.
    Always(Option<&'a str>),
    /// Nothing.
    None,
}

impl Label {
    /// With the awaited part.
    pub(crate) fn wanted(self, wanted: Wanted) -> Label {
        Label { wanted: Some(wanted), ..self }
    }

    /// With the program's name for it, where there is one.
    pub(crate) fn named(self, name: Option<impl Into<String>>) -> Label {
        Label { name: name.map(Into::into), ..self }
    }

    /// How it stands with it, where that is known.
    pub(crate) fn with_detail(self, detail: Option<impl Into<String>>) -> Label {
        Label { detail: detail.map(Into::into), ..self }
    }

    /// Its address.
    pub(crate) fn at(self, address: impl fmt::Display) -> Label {
        Label { at: Some(address.to_string()), ..self }
    }

    /// Where it lies.
    pub(crate) fn placed(self, place: Option<Place>) -> Label {
        Label { place, ..self }
    }

    /// Whether nothing is known about its identity.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Label::default()
    }

    /// As sentences call it.
    pub(crate) fn called(&self) -> Called {
        self.called_by(Address::Own)
    }

    /// The same with its address, which may be known beside the label.
    pub(crate) fn called_with_address(&self, address: Option<&str>) -> Called {
        self.called_by(Address::Always(address))
    }

    /// The common name of many objects of one kind and location: without addresses.
    pub(crate) fn called_in_general(&self) -> Called {
        self.called_by(Address::None)
    }

    /// Whether it is called otherwise in general.
    pub(crate) fn is_one_of_many(&self) -> bool {
        self.at.is_some() || self.offset != 0
    }

    fn called_by(&self, address: Address<'_>) -> Called {
        let work = self.function.clone().map(|function| (function, self.noun.clone()));
        Called { wanted: self.wanted, thing: self.thing(address), work }
    }

    fn thing(&self, address: Address<'_>) -> String {
        let mut text = self.noun.clone();
        if let Some(name) = &self.name {
            text += &format!(" `{name}`");
            if self.offset != 0 && address != Address::None {
                text += &format!("+{:#x}", self.offset);
            }
        }
        if let Some(function) = &self.function {
            text += &format!(" of {function}");
        }
        if let Some(detail) = &self.detail {
            text += &format!(" ({detail})");
        }
        let address = match address {
            Address::Own => self.at.as_deref(),
            Address::Always(known) => self.at.as_deref().or(known),
            Address::None => None,
        };
        if let Some(address) = address {
            text += &format!(" {address}");
        }
        if let Some(place) = &self.place {
            text += &format!(" {place}");
        }
        text
    }
}

impl fmt::Display for Label {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.called().fmt(formatter)
    }
}

/// A free text: all of it says what the thing is.
impl From<String> for Label {
    fn from(noun: String) -> Label {
        Label { noun, ..Label::default() }
    }
}

impl From<&str> for Label {
    fn from(noun: &str) -> Label {
        noun.to_owned().into()
    }
}

/// A thing as a sentence calls it, apart from what of it is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called {
    /// The awaited part of it, where that is not the whole.
    pub(crate) wanted: Option<Wanted>,
    /// The thing.
    pub(crate) thing: String,
    /// The function that has to run for it, and what it then is: "parse", "Future".
    pub(crate) work: Option<(String, String)>,
}

impl Called {
    /// With "the" before it: there is one, or the following words distinguish it.
    pub(crate) fn definite(self) -> Called {
        Called { thing: format!("the {}", self.thing), ..self }
    }
}

impl fmt::Display for Called {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.wanted.map(Wanted::before).unwrap_or_default())?;
        formatter.write_str(&self.thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label, in general, and with the address 0x10 that is known beside it.
    fn told(label: &Label) -> [String; 3] {
        let all = [label.called(), label.called_in_general(), label.called_with_address(Some("0x10"))];
        assert_eq!(label.to_string(), all[0].to_string());
        assert_eq!(label.is_one_of_many(), all[0] != all[1]);
        all.map(|called| called.to_string())
    }

    #[test]
    fn a_label_is_told_with_and_without_its_address() {
        let named = Label { offset: 0x38, ..Label::from("mutex").named(Some("table")) };
        let named = named.placed(Some(Place::Module("a.out".into())));
        assert_eq!(
            told(&named),
            ["mutex `table`+0x38 in a.out", "mutex `table` in a.out", "mutex `table`+0x38 0x10 in a.out"]
        );
        let nameless = Label::from("rwlock").at("0x33b84080").placed(Some(Place::Library("libcuda.so.1".into())));
        assert_eq!(
            told(&nameless),
            [
                "rwlock 0x33b84080 inside libcuda.so.1",
                "rwlock inside libcuda.so.1",
                "rwlock 0x33b84080 inside libcuda.so.1"
            ]
        );
        let of_call = Label { function: Some("cuInit".into()), ..nameless }.placed(Some(Place::Stack));
        assert_eq!(told(&of_call)[0], "rwlock of cuInit 0x33b84080 on a stack");
        let room = Label::from("pipe:[4026]").wanted(Wanted::Room);
        assert_eq!(told(&room), ["room in pipe:[4026]", "room in pipe:[4026]", "room in pipe:[4026] 0x10"]);
    }

    #[test]
    fn words_of_a_name_or_detail_are_never_taken_for_a_place_or_address() {
        let queue = Label::from("Queue").named(Some("a in b")).with_detail(Some("5 in it"));
        assert_eq!(
            told(&queue),
            ["Queue `a in b` (5 in it)", "Queue `a in b` (5 in it)", "Queue `a in b` (5 in it) 0x10"]
        );
        let thread = Label::from("thread '0xfeed inside out' (12)".to_owned());
        assert_eq!(told(&thread)[1], "thread '0xfeed inside out' (12)");
    }
}
