//! The vector unit (`docs/machine.md` sections 4 and 7).

pub mod table;
