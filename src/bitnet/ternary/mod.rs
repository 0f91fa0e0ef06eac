//! Ternary matrices and their containers.
//!
//! A weight is a trit `-1, 0, +1`, stored as the code `trit + 1`; code 3 is reserved and an
//! error wherever it is found. In memory every matrix has one form, [`TernaryMatrix`]: the
//! 128-column `I2_S` order, rows padded to 128 columns with code 1 (zero), so that a mapped
//! `I2_S` tensor is used without a copy.

mod i2s;
mod matrix;
mod stream;
mod tq;

pub use i2s::I2sLayout;
pub(crate) use matrix::check_scale;
pub use matrix::{Scales, TernaryMatrix};
pub use stream::{StreamFormat, weight_stream};

#[cfg(test)]
mod tests;
