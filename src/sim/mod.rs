//! Runs emitted designs in Verilator and compares them with the reference.

pub mod driver;
pub mod mutate;
pub mod verilate;
