//! What can go wrong in the reference trainer.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An error of the reference trainer, its files or its inputs.
#[derive(Debug, Error)]
pub enum ReferenceError {
    #[error("token {value} at position {position} is outside the vocabulary of {vocab}")]
    Token {
        position: usize,
        value: u32,
        vocab: usize,
    },
    #[error("a window of {got} tokens was given; {want} are needed")]
    WindowLength { got: usize, want: String },
    #[error("the step produced an infinity or NaN in {tensor}; the state after it is not usable")]
    NotFinite { tensor: String },
    #[error("the dot products of this model are up to {got} long; at most {max} are exact")]
    DotProductTooLong { got: usize, max: usize },
    #[error("{tensor}: {problem}")]
    State { tensor: String, problem: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The file could be read, and is not what it should be.
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
    #[error("{problem}")]
    Corpus {
        problem: String,
        /// What would be accepted.
        accepts: String,
    },
    #[error("{0}")]
    Invalid(String),
}

/// Result of the reference trainer.
pub type Result<T> = std::result::Result<T, ReferenceError>;

impl ReferenceError {
    /// A file that could not be read.
    pub fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        Self::Read { path, source }
    }

    /// A file or folder that could not be written.
    pub fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        Self::Write { path, source }
    }

    /// A text that cannot be worked on, and what would be accepted.
    pub fn corpus(problem: impl Into<String>, accepts: impl Into<String>) -> Self {
        Self::Corpus {
            problem: problem.into(),
            accepts: accepts.into(),
        }
    }

    /// An error about what a file holds.
    pub fn file(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::File {
            path: path.display().to_string(),
            problem: problem.to_string(),
        }
    }
}
