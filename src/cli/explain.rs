//! `nfgen explain`: the documentation of diagnostic codes.

use serde_json::json;

use super::{Exit, Output};
use crate::config::schema::nearest;
use crate::diag::codes::{self, Code};
use crate::diag::{Diagnostic, Problems};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nfgen explain\n  nfgen explain nf::model::heads_divide")]
pub struct Args {
    /// Code as an error shows it; without it, all codes are listed
    code: Option<String>,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let Some(name) = args.code else {
        let all: Vec<_> = codes::ALL.iter().map(object).collect();
        out.object(&json!({ "codes": all }));
        for code in codes::ALL {
            out.say(format!("{:<34} {}", code.name, code.title));
        }
        return Ok(Exit::Done);
    };
    let Some(code) = codes::find(&name) else {
        let names: Vec<&str> = codes::ALL.iter().map(|code| code.name).collect();
        let help = match nearest(&name, &names) {
            Some(close) => format!("did you mean `{close}`?"),
            None => "`nfgen explain` lists all codes".to_string(),
        };
        return Err(Diagnostic::new(
            "nf::cli::unknown_code",
            format!("no error has the code `{name}`"),
            help,
        )
        .into());
    };
    out.object(&object(code));
    out.say(format!(
        "{}: {}\n\n{}",
        code.name,
        code.title,
        wrap(code.text, 90)
    ));
    Ok(Exit::Done)
}

fn object(code: &Code) -> serde_json::Value {
    json!({ "code": code.name, "title": code.title, "text": code.text })
}

/// Breaks a paragraph into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.len() - 1;
        let fits = lines[line].len() + 1 + word.len() <= width;
        match (lines[line].is_empty(), fits) {
            (true, _) => lines[line].push_str(word),
            (false, true) => {
                lines[line].push(' ');
                lines[line].push_str(word);
            }
            (false, false) => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}
