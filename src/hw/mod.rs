//! Hardware blocks written in the DSL.

pub mod axi;
pub mod fp;
pub mod trainer;

#[cfg(test)]
pub(crate) mod bench;
