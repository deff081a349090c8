//! The report as JSON 1.1, and the schema of it. Same report, same bytes.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

use crate::report::{Report, VERSION};

/// Write `report`, indented, with a final newline.
pub(crate) fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    // A report on thousands of threads has tens of megabytes, so it is written piece by piece.
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let mut serializer = Serializer::with_formatter(&mut out, Visible(PrettyFormatter::new()));
    report.serialize(&mut serializer).map_err(io::Error::other)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Indented JSON whose strings hold nothing that does something to a terminal: U+009B opens control sequences on some. Outside of
/// strings JSON is of ASCII, and its own lines and spaces stay.
struct Visible(PrettyFormatter<'static>);

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
        if fragment.as_bytes().iter().all(is_plain) {
            return out.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            let mut bytes = [0; 4];
            if super::is_treacherous(character) {
                let mut units = [0; 2];
                character.encode_utf16(&mut units).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?;
            } else {
                out.write_all(character.encode_utf8(&mut bytes).as_bytes())?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

/// The JSON schema, generated from the types of [`crate::report`].
pub(crate) fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Report);
    schema.insert("title".into(), "lockscope.report".into());
    schema.insert("version".into(), VERSION.into());
    schema.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text::tests::seed;

    #[test]
    fn the_report_survives_a_round_trip() {
        let mut first = Vec::new();
        render(&seed(), &mut first).unwrap();
        let parsed: Report = serde_json::from_slice(&first).unwrap();
        let mut second = Vec::new();
        render(&parsed, &mut second).unwrap();
        assert_eq!(String::from_utf8(first).unwrap(), String::from_utf8(second).unwrap());
    }

    #[test]
    fn strings_are_the_same_and_can_be_seen() {
        let mut report = seed();
        let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\u{7f}\u{ffff}\u{e0041}ü";
        report.processes[0].threads[0].name = hostile.into();
        let mut bytes = Vec::new();
        render(&report, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.chars().any(|letter| letter != '\n' && crate::render::is_treacherous(letter)), "{text:?}");
        assert!(text.contains("\\u009b31m\\u202e\\u2028\\u007f\\uffff\\udb40\\udc41ü"), "{text}");
        let parsed: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.processes[0].threads[0].name, hostile);
    }

    #[test]
    fn the_schema_names_itself_and_is_stable() {
        let schema = schema();
        assert_eq!(schema["title"], "lockscope.report");
        assert_eq!(schema["version"], VERSION);
        assert!(schema["properties"]["verdict"].is_object());
        assert_eq!(schema.to_string(), super::schema().to_string());
    }
    #[test]
    fn kinds_in_the_schema_are_examples_and_no_list_of_all() {
        let schema = schema();
        let kind = &schema["$defs"]["Resource"]["properties"]["kind"];
        assert_eq!(kind["type"], "string", "{kind}");
        assert!(kind["enum"].is_null() && kind["const"].is_null(), "{kind}");
        let examples: Vec<&str> = kind["examples"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
        assert_eq!(examples, crate::waits::kind_names());
        // A kind of a later version is read, and is as unknown as any other.
        let mut report = seed();
        report.resources[0].kind = "lock_of_a_later_version".into();
        let mut bytes = Vec::new();
        render(&report, &mut bytes).unwrap();
        let parsed: Report = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(parsed.resources[0].properties().name, "other");
        assert_eq!(parsed.resources[0].kind, "lock_of_a_later_version");
    }

    #[test]
    fn the_schema_knows_the_parts_of_a_label() {
        use crate::report::{Label, Place, Wanted};
        let mut report = seed();
        report.resources[0].parts = Label {
            wanted: Some(Wanted::Data),
            noun: "mutex".into(),
            name: Some("g_lock".into()),
            offset: 8,
            function: Some("f".into()),
            detail: Some("2 waiters".into()),
            at: Some("0x10".into()),
            place: Some(Place::Module("a.out".into())),
        };
        let resource = serde_json::to_value(&report.resources[0]).unwrap();
        let known = schema()["$defs"]["Resource"]["properties"].clone();
        let unknown: Vec<&String> =
            resource.as_object().unwrap().keys().filter(|key| known[key.as_str()].is_null()).collect();
        assert!(unknown.is_empty(), "the schema lacks {unknown:?}");
        assert_eq!(resource["place"], serde_json::json!({"kind": "module", "of": "a.out"}));
        let read: crate::report::Resource = serde_json::from_value(resource).unwrap();
        assert_eq!(read.parts, report.resources[0].parts);
        // A report of an earlier version has none of it.
        let mut bare = serde_json::to_value(&seed().resources[0]).unwrap();
        bare.as_object_mut().unwrap().remove("noun");
        let read: crate::report::Resource = serde_json::from_value(bare).unwrap();
        assert_eq!((read.called().to_string(), read.parts), ("rwlock".into(), Label::default()));
    }
}
