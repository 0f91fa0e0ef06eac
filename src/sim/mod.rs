//! Runs emitted designs in Verilator and compares them with the reference.

pub mod cgla;
pub mod compare;
pub mod cosim;
pub mod driver;
pub mod icarus;
pub mod lint;
pub mod mutate;
pub mod phases;
pub mod trainer;
pub mod verilate;
