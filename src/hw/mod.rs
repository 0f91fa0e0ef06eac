//! Hardware blocks written in the DSL.

pub mod trainer;
