//! Diagnostics: every message a user can get about his input, with a code, the place, the numbers and what would be accepted.
//!
//! A [`Diagnostic`] is one problem; [`Problems`] is what a fallible step returns, so that a file with three
//! mistakes is told about all three at once. [`codes`] documents each code; `nfgen explain CODE` prints it.

pub mod codes;
mod render;

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use render::{render, to_json};

/// A named text that problems point into: a file, or one `--set key=value`.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceText {
    pub name: String,
    pub text: String,
}

impl SourceText {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            text: text.into(),
        })
    }

    /// One-based line and column (in characters) of a byte offset.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        (line, before[start..].chars().count() + 1)
    }
}

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub source: Arc<SourceText>,
    /// Byte range in the source's text.
    pub span: Range<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.source.line_column(self.span.start);
        write!(f, "{}:{line}:{column}", self.source.name)
    }
}

/// One problem, or one warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// `nf::<area>::<word>`, listed in [`codes`].
    pub code: &'static str,
    /// One sentence with the numbers.
    pub message: String,
    /// What would be accepted, or what to do.
    pub help: String,
    /// Places in one source, each with a label.
    pub places: Vec<(Place, String)>,
    pub warning: bool,
}

impl Diagnostic {
    /// A problem without a place. Every problem says what would be accepted, so `help` is not optional.
    pub fn new(code: &'static str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            help: help.into(),
            places: Vec::new(),
            warning: false,
        }
    }

    /// A warning: the work goes on.
    pub fn warning(
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            warning: true,
            ..Self::new(code, message, help)
        }
    }

    /// Points at a place. Places after the first are kept only when they lie in the same source.
    pub fn at(mut self, place: &Place, label: impl Into<String>) -> Self {
        let same = self
            .places
            .first()
            .is_none_or(|(first, _)| first.source == place.source);
        if same {
            self.places.push((place.clone(), label.into()));
        }
        self
    }

    /// A file that could not be read.
    pub fn cannot_read(path: &Path, error: &std::io::Error) -> Self {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path; nothing of that name is there",
            std::io::ErrorKind::PermissionDenied => "make the file readable for this user",
            std::io::ErrorKind::IsADirectory => "give a file, not a folder",
            std::io::ErrorKind::InvalidData => "the file must be UTF-8 text",
            _ => "check that the path is a readable file",
        };
        Self::new(
            "nf::io::cannot_read",
            format!("cannot read `{}`: {}", path.display(), plain_io(error)),
            help,
        )
    }

    /// A file or folder that could not be written.
    pub fn cannot_write(path: &Path, error: &std::io::Error) -> Self {
        let help = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                "choose a writable folder"
            }
            std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => {
                "a part of this path is a file; choose another folder"
            }
            std::io::ErrorKind::StorageFull => "free some space, or choose another disk",
            std::io::ErrorKind::NotFound => "the folder is not there; create it, or choose another",
            _ => "choose another place",
        };
        Self::new(
            "nf::io::cannot_write",
            format!("cannot write `{}`: {}", path.display(), plain_io(error)),
            help,
        )
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.places.first() {
            Some((place, _)) => write!(f, "{place}: {} ({})", self.message, self.help),
            None => write!(f, "{} ({})", self.message, self.help),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// The system's words for an I/O error without the error number, which says nothing to a reader.
fn plain_io(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// One or more problems: the error type of everything that checks user input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Diagnostic>);

impl Problems {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    pub fn extend(&mut self, other: Problems) {
        self.0.extend(other.0);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// `value` when nothing was found.
    pub fn into_result<T>(self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl From<Diagnostic> for Problems {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        let source = SourceText::new("m", "a = 1\né = 2\n");
        assert_eq!(source.line_column(0), (1, 1));
        assert_eq!(source.line_column(6), (2, 1));
        assert_eq!(source.line_column("a = 1\né".len()), (2, 2));
        assert_eq!(source.line_column(1000), (3, 1));
    }

    #[test]
    fn places_of_another_source_are_not_mixed_in() {
        let here = Place {
            source: SourceText::new("a", "x"),
            span: 0..1,
        };
        let there = Place {
            source: SourceText::new("b", "x"),
            span: 0..1,
        };
        let d = Diagnostic::new("nf::cli::usage", "m", "h")
            .at(&here, "1")
            .at(&there, "2");
        assert_eq!(d.places.len(), 1);
        assert_eq!(d.to_string(), "a:1:1: m (h)");
    }
}
