//! Where a projection runs.

use super::Result;
use super::quant::Activations;
use super::ternary::TernaryMatrix;

/// What a backend has done since it was made, in the phases of the array.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Phases {
    /// Cycles from the start of a launch to its last write, summed over launches.
    pub total: u64,
    /// Cycles in which configuration words were delivered.
    pub conf: u64,
    /// Cycles in which operands entered local memory (the longest of the groups).
    pub load: u64,
    /// Cycles in which rows were issued work (the longest of the groups).
    pub exec: u64,
    /// Cycles after the last issue until the last result was in memory.
    pub drain: u64,
}

impl std::ops::AddAssign for Phases {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.conf += other.conf;
        self.load += other.load;
        self.exec += other.exec;
        self.drain += other.drain;
    }
}

/// Counters of a backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct BackendStats {
    /// Projections carried out (a matrix applied to one or more tokens counts once).
    pub projections: u64,
    /// Ternary multiply-accumulates.
    pub macs: u64,
    /// Array cycles; all zero on the CPU.
    pub phases: Phases,
}

/// Exact integer dot products of ternary rows with int8 activations.
pub trait Backend {
    /// Name for messages and reports.
    fn name(&self) -> &'static str;

    /// `tokens x rows` dot products, `out[t * rows + n] = sum_k trit[n][k] * value[t][k]`.
    fn project(&mut self, weights: &TernaryMatrix, acts: &Activations) -> Result<Vec<i32>>;

    /// Counters so far.
    fn stats(&self) -> BackendStats;
}

/// The operands must agree on the number of columns.
pub fn check_columns(weights: &TernaryMatrix, acts: &Activations) -> Result<()> {
    if weights.cols() != acts.cols {
        return Err(super::Error::Shape(format!(
            "weights have {} columns, activations {}",
            weights.cols(),
            acts.cols
        )));
    }
    Ok(())
}
