//! Command line: parses arguments, calls the library, maps results to exit codes.

/// Entry point of the `nfgen` binary.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(2)
}
