//! Turns diagnostics into text (miette's graphical report) and into JSON.

use std::fmt;

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde_json::{Value, json};

use super::Diagnostic;

/// Columns of a report. Fixed, so that the same mistake gives the same text everywhere.
const WIDTH: usize = 100;

/// The view of a diagnostic that miette draws.
struct Report<'a> {
    diagnostic: &'a Diagnostic,
    source: Option<NamedSource<String>>,
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.fmt(f)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names from a file or an argument must not steer the terminal.
        for c in self.diagnostic.message.chars() {
            match c.is_control() && c != '\n' && c != '\t' {
                true => write!(f, "{}", c.escape_debug())?,
                false => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let kind = if self.diagnostic.warning {
            "warning"
        } else {
            "error"
        };
        Some(Box::new(format!("{kind}[{}]", self.diagnostic.code)))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(if self.diagnostic.warning {
            miette::Severity::Warning
        } else {
            miette::Severity::Error
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.diagnostic.help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|s| s as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        if self.diagnostic.places.is_empty() {
            return None;
        }
        Some(Box::new(self.diagnostic.places.iter().map(
            |(place, label)| LabeledSpan::new_with_span(Some(label.clone()), place.span.clone()),
        )))
    }
}

/// The report of one diagnostic, several lines, ending in a line break.
pub fn render(diagnostic: &Diagnostic, colour: bool) -> String {
    let theme = if colour {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let source = diagnostic
        .places
        .first()
        .map(|(place, _)| NamedSource::new(&place.source.name, place.source.text.clone()));
    let mut text = String::new();
    let drawn = GraphicalReportHandler::new_themed(theme)
        .with_width(WIDTH)
        .with_links(false)
        .with_context_lines(1)
        .render_report(&mut text, &Report { diagnostic, source });
    if drawn.is_err() {
        text = format!("error[{}]: {diagnostic}\n", diagnostic.code);
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n").trim_end().to_string() + "\n"
}

/// `{code, message, help, at?}`, `at` being `file:line:column`.
pub fn to_json(diagnostic: &Diagnostic) -> Value {
    let mut object = json!({
        "code": diagnostic.code,
        "message": diagnostic.message,
        "help": diagnostic.help,
    });
    if let Some((place, _)) = diagnostic.places.first() {
        object["at"] = Value::String(place.to_string());
    }
    object
}
