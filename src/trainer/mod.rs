//! The on-chip trainer: instruction set, planner, program, machine model and netlist.
//!
//! `isa` is shared by all: the planner writes programs, the model executes them in Rust,
//! the netlist decodes them in hardware.

pub mod alloc;
pub mod cycles;
pub mod encode;
pub mod isa;
pub mod layout;
pub mod model;
pub mod order;
pub mod plan;
pub mod program;
#[cfg(test)]
mod testing;
pub mod waits;
