//! The Adam unit: lanes, moments, LayerNorm state, gradient tiles and the state stream
//! (`docs/machine.md` sections 5 to 7).

mod blocks;
pub mod config;
pub mod format;
pub mod hash;
mod issue;
pub mod lane;
mod state;
mod storage;
pub mod unit;

#[cfg(test)]
mod tests;
