//! What can go wrong on the host side, in words for the person who fed the file.

use std::path::PathBuf;

/// An error with the place, the number found and what would be accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// File that was opened, read or written.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The bytes are not a well-formed GGUF file.
    #[error("not a valid GGUF file: {0}")]
    Format(String),
    /// Well-formed, but of a kind that is not handled.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// Tensor data that is not what the format promises (reserved codes, scales, NaN).
    #[error("bad tensor data: {0}")]
    Data(String),
    /// Sizes that do not fit each other.
    #[error("bad shape: {0}")]
    Shape(String),
    /// Numbers that cannot be quantised or sampled.
    #[error("bad numbers: {0}")]
    Numeric(String),
    /// A backend failed (simulator missing, array refused the program).
    #[error("backend: {0}")]
    Backend(String),
}

/// Result of the host side.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Puts the name of a file in front of what is wrong with its contents.
    pub fn in_file(self, path: &std::path::Path) -> Self {
        let named = |text: String| format!("{}: {text}", path.display());
        match self {
            Self::Format(text) => Self::Format(named(text)),
            Self::Unsupported(text) => Self::Unsupported(named(text)),
            Self::Data(text) => Self::Data(named(text)),
            Self::Shape(text) => Self::Shape(named(text)),
            other => other,
        }
    }

    /// Wraps an operating system error with its path.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }
}
