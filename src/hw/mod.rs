//! Hardware blocks written in the DSL.

pub mod fp;
pub mod trainer;
