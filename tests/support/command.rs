//! Runs the built `nfgen` in a fresh folder.

use std::path::Path;
use std::process::{Command, Stdio};

/// Exit code and both streams, with the folder's path replaced by `DIR`.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `nfgen` with arguments in `folder`.
pub fn nfgen(folder: &Path, arguments: &[&str]) -> Ran {
    with_environment(folder, arguments, &[])
}

/// The same with environment variables of its own.
pub fn with_environment(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_nfgen"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("nfgen runs");
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.replace(&folder.display().to_string(), "DIR")
    };
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}
