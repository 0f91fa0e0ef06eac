//! Hardware blocks written in the DSL.
