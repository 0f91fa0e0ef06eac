//! Escapers of the templates: what a value must look like to stay one word in the language around it.

use std::fmt::{self, Write};

use askama::filters::Escaper;

/// One Tcl word: a backslash before every character that Tcl would interpret.
#[derive(Clone, Copy, Debug)]
pub struct Tcl;

impl Escaper for Tcl {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        if text.is_empty() {
            return dest.write_str("{}");
        }
        for c in text.chars() {
            match c {
                ' ' | '$' | '[' | ']' | '{' | '}' | '"' | ';' | '\\' | '#' | '(' | ')' => {
                    dest.write_char('\\')?;
                    dest.write_char(c)?;
                }
                // A line break would end the command; the configuration refuses such texts.
                c if c.is_control() => return Err(fmt::Error),
                c => dest.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Text of C, Python, YAML, make and Markdown templates. Values there are names and numbers that were checked when
/// they were read; anything that could leave its place is refused rather than quoted in four different ways.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Escaper for Plain {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        let harmless = |c: char| !c.is_control() && !matches!(c, '"' | '\\' | '`' | '$');
        if !text.chars().all(harmless) || text.contains("*/") {
            return Err(fmt::Error);
        }
        dest.write_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcl(text: &str) -> Result<String, fmt::Error> {
        let mut out = String::new();
        Tcl.write_escaped_str(&mut out, text)?;
        Ok(out)
    }

    #[test]
    fn tcl_words_stay_one_word() {
        assert_eq!(tcl("rtl/a b[0].v").unwrap(), "rtl/a\\ b\\[0\\].v");
        assert_eq!(tcl("$x").unwrap(), "\\$x");
        assert_eq!(tcl("").unwrap(), "{}");
        assert!(tcl("a\nb").is_err());
    }

    #[test]
    fn plain_text_refuses_what_could_leave_its_place() {
        for text in ["a\"b", "a\\b", "x */ y", "$(HOME)", "a\nb"] {
            assert!(
                Plain.write_escaped_str(String::new(), text).is_err(),
                "{text}"
            );
        }
        assert!(
            Plain
                .write_escaped_str(String::new(), "nf_trainer 0x10, a-b")
                .is_ok()
        );
    }
}
