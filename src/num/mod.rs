//! The one definition of the arithmetic (see `docs/arithmetic.md`). The reference computes with it; the RTL must equal it bit for bit.
//!
//! Everything here is scalar and written for clarity; faster vector forms live beside their
//! users and are tested against these functions.

pub mod adam;
pub mod block;
pub mod constants;
pub mod formats;
pub mod fp32;
pub mod moments8;
pub mod reduce;
pub mod schedule;
pub mod tables;
pub mod threefry;

#[cfg(test)]
pub(crate) mod testfloat;
