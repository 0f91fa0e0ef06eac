//! The on-chip trainer: instruction set, planner, program, machine model and netlist.
