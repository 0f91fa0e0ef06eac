//! What can go wrong between an operation and the array.

use crate::dsl::{DesignError, DslError};

/// An error with the number found and what would be accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Build parameters out of range.
    #[error("array: {0}")]
    Config(String),
    /// A program that the array cannot run, or text that is no program.
    #[error("program: {0}")]
    Program(String),
    /// An operation that does not fit the array.
    #[error("schedule: {0}")]
    Schedule(String),
    /// The generator made an inconsistent netlist.
    #[error("netlist: {0}")]
    Netlist(String),
    /// The simulator is missing, failed or answered nonsense.
    #[error("simulation: {0}")]
    Simulation(String),
}

/// Result of the array's compiler.
pub type Result<T> = std::result::Result<T, Error>;

impl From<DslError> for Error {
    fn from(error: DslError) -> Self {
        Self::Netlist(error.to_string())
    }
}

impl From<DesignError> for Error {
    fn from(error: DesignError) -> Self {
        Self::Netlist(error.to_string())
    }
}

impl From<Error> for crate::bitnet::Error {
    fn from(error: Error) -> Self {
        Self::Backend(error.to_string())
    }
}

impl Error {
    /// Puts a place (a line, a group) in front of what is wrong with a program.
    pub(super) fn at(self, place: &str) -> Self {
        match self {
            Self::Program(text) => Self::Program(format!("{place}: {text}")),
            other => other,
        }
    }
}

/// The start of a word that a message quotes.
pub(super) fn shortened(word: &str) -> String {
    match word.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &word[..at]),
        None => word.to_owned(),
    }
}
