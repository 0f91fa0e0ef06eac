//! Where a verb's words go: data on stdout, everything else on stderr.
//!
//! With `--json`, stdout carries exactly one JSON object and human text moves to stderr. A closed pipe
//! (`nfgen devices | head -1`) is no error: output stops, the work goes on, the exit code stays the verb's.
//! A full disk is one: exit code 2.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::diag::{self, Diagnostic, Problems};

/// `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// Passed to every verb.
#[derive(Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
    colour: bool,
    progress: bool,
    object_written: Cell<bool>,
    lost: RefCell<Option<std::io::Error>>,
}

impl Output {
    pub fn new(json: bool, quiet: bool, colour: Colour) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self {
            json,
            quiet,
            colour: match colour {
                Colour::Auto => terminal && !no_color,
                Colour::Always => true,
                Colour::Never => false,
            },
            progress: terminal && !quiet,
            object_written: Cell::new(false),
            lost: RefCell::new(None),
        }
    }

    /// Whether `--json` was given.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// The verb's result as text, one line break added. With `--json` it goes to stderr.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.json {
            self.write_result(text.as_ref());
        } else if !self.quiet {
            write_line(std::io::stderr().lock(), text.as_ref());
        }
    }

    fn write_result(&self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush())
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            self.lost.borrow_mut().get_or_insert(error);
        }
    }

    /// Whether a result could not be written to stdout, and why.
    pub fn lost(&self) -> Option<Diagnostic> {
        let error = self.lost.borrow_mut().take()?;
        Some(Diagnostic::cannot_write(
            std::path::Path::new("standard output"),
            &error,
        ))
    }

    /// A remark about what is going on, on stderr; silent with `--quiet`.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet {
            write_line(std::io::stderr().lock(), text.as_ref());
        }
    }

    /// The verb's result as its one JSON object. Without `--json` nothing happens, so a verb may always call it.
    pub fn object(&self, object: &impl Serialize) {
        if !self.json {
            return;
        }
        assert!(!self.object_written.get(), "a verb writes one JSON object");
        self.object_written.set(true);
        match serde_json::to_string_pretty(object) {
            Ok(text) => self.write_result(&text),
            Err(error) => self.note(format!("result cannot be written as JSON: {error}")),
        }
    }

    /// Shows a warning on stderr.
    pub fn warn(&self, warning: &Diagnostic) {
        if !self.quiet {
            let text = diag::render(warning, self.colour);
            write_line(std::io::stderr().lock(), text.trim_end());
        }
    }

    /// Shows why a verb could not run: reports on stderr and, with `--json`, an object on stdout
    /// (unless the verb has already written its own).
    pub fn fail(&self, problems: &Problems) {
        let mut stderr = std::io::stderr().lock();
        for problem in problems.iter() {
            write_line(&mut stderr, &diag::render(problem, self.colour));
        }
        if let Some(first) = problems.iter().next() {
            write_line(
                &mut stderr,
                &format!("More on an error: nfgen explain {}", first.code),
            );
        }
        if self.json && !self.object_written.get() {
            let all: Vec<_> = problems.iter().map(diag::to_json).collect();
            let mut object = serde_json::json!({ "error": all.first() });
            if all.len() > 1 {
                object["errors"] = all.into();
            }
            self.object(&object);
        }
    }

    /// A progress bar of `length` steps on stderr; invisible when stderr is no terminal.
    pub fn progress(&self, length: u64, label: &'static str) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        let template = "{prefix} {wide_bar} {pos}/{len} {msg} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(label);
        bar
    }
}

/// Writes a line; a reader that has gone away is his own business.
fn write_line(mut stream: impl Write, text: &str) {
    let written = writeln!(stream, "{text}").and_then(|()| stream.flush());
    drop(written);
}
