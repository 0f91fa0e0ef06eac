//! The trainer's hardware: engines and their integration (`docs/machine.md`).

pub mod adam;
pub mod mat;
mod registers;
pub mod schedule;
pub mod system;
pub mod vec;

pub use registers::register_delay;

/// Cycles from a read address on an engine's port to the data, for activation groups, the
/// position ROM, tokens and LayerNorm parameters alike.
pub const READ_LATENCY: u32 = 4;
