//! Synthesis of an emitted design with Yosys, and the comparison of the result with the plan.
//!
//! ```text
//! Verilog ─► hierarchy ─► units ─► Yosys, one run per unit (cached) ─► netlist ─► cells, levels
//!                                                                                    │ times instances
//!                                                          plan ─► compare ◄─ totals ┘
//! ```
//!
//! A *unit* is what one run of Yosys takes: a small module with everything below it, flattened, or a large module alone,
//! with the modules below it as black boxes. Every distinct unit is synthesised once and counted as often as the design
//! instantiates it, so a 44 x 44 array costs one row and one cell.

pub mod cells;
pub mod compare;
pub mod hierarchy;
pub mod levels;
pub mod netlist;
pub mod run;
pub mod yosys;

#[cfg(test)]
mod tests;

/// The one release whose figures this project quotes.
pub const YOSYS_VERSION: &str = "0.70";

/// How look-up tables are counted.
pub const LUT_FORMULA: &str = "LUT = LUT1 to LUT6 (an inverter is a LUT1) + look-up tables used as RAM + shift registers (SRL16E, SRLC32E)";

/// What counts as one logic level.
pub const LEVEL_RULE: &str = "a look-up table is one level, a carry chain is one, the multiplexers inside a slice (MUXF7 to MUXF9) are none, \
     a DSP slice without its output register is two (from its product register) or four";

/// Logic levels between registers that the planned clock allows.
pub const MAX_LEVELS: u32 = 8;
