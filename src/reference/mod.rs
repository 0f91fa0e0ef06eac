//! The reference trainer. Uses `config` and `num` only, never the hardware side.
//!
//! [`Trainer`] computes exactly what `docs/arithmetic.md` defines: with `compute = block18` every
//! result is the same on every bit whatever the number of threads or the instruction set.

mod backward;
pub mod checkpoint;
pub mod corpus;
#[cfg(target_arch = "x86_64")]
mod digits;
mod dotnet_random;
pub mod error;
pub mod evaluate;
mod forward;
mod functions;
mod gemm;
pub mod generate;
pub mod neuro;
mod neuro_header;
mod pass;
mod rows;
#[cfg(target_arch = "x86_64")]
mod rows512;
pub mod simd;
pub mod state;
mod team;
pub mod tensors;
pub mod trainer;
pub mod training;
mod update;
#[cfg(target_arch = "x86_64")]
mod update512;
mod update8;
mod workspace;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use checkpoint::Checkpoint;
pub use error::{ReferenceError, Result};
pub use pass::Trace;
pub use state::{Moments, State};
pub use tensors::TensorId;
pub use trainer::{StepResult, Trainer, WindowResult};
