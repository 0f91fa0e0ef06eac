//! What can go wrong in the reference trainer.

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
    #[error("{path}: {problem}")]
    File { path: String, problem: String },
    #[error("{0}")]
    Corpus(String),
    #[error("{0}")]
    Invalid(String),
}

/// Result of the reference trainer.
pub type Result<T> = std::result::Result<T, ReferenceError>;

impl ReferenceError {
    /// An error about a file.
    pub fn file(path: &std::path::Path, problem: impl std::fmt::Display) -> Self {
        Self::File {
            path: path.display().to_string(),
            problem: problem.to_string(),
        }
    }
}
