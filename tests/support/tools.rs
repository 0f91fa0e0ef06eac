//! Tests that need a tool: absent, the test says so and passes, unless NFGEN_REQUIRE_TOOLS=1.

use std::path::PathBuf;

/// The tool's path, or `None` after a visible note.
pub fn tool(name: &str) -> Option<PathBuf> {
    match which::which(name) {
        Ok(path) => Some(path),
        Err(_) => {
            let required = std::env::var("NFGEN_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
            assert!(
                !required,
                "`{name}` is not on the PATH and NFGEN_REQUIRE_TOOLS=1"
            );
            eprintln!("skipped: `{name}` is not on the PATH (make tools installs it)");
            None
        }
    }
}
