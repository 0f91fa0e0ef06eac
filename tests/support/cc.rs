//! The C compiler with everything that a driver must not trip over.

use std::path::Path;
use std::process::Command;

/// C99 with warnings as errors.
pub fn strict(cc: &Path) -> Command {
    let mut command = Command::new(cc);
    command.args([
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-O1",
    ]);
    command
}
