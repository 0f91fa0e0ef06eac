//! The vector unit against the scalar arithmetic.

mod blocks;
mod harness;
mod model;
mod passes;
mod whole;
