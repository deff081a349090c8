//! The report as JSON 1.1, and the schema of it. Same report, same bytes.

use std::io;

use crate::report::{Report, VERSION};

/// Write `report`, indented, with a final newline.
pub fn render(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(report).map_err(io::Error::other)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// The JSON schema, generated from the types of [`crate::report`].
pub fn schema() -> serde_json::Value {
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
    fn the_schema_names_itself_and_is_stable() {
        let schema = schema();
        assert_eq!(schema["title"], "lockscope.report");
        assert_eq!(schema["version"], VERSION);
        assert!(schema["properties"]["verdict"].is_object());
        assert_eq!(schema.to_string(), super::schema().to_string());
    }
}
