//! AXI blocks: an AXI4-Lite register file written from a description, stream helpers, and the
//! trainer's token input and result output.
//!
//! All streams are AXI4-Stream with TLAST and TKEEP, little end first; every `ready` is a
//! register output, so no path runs backwards through a block within a cycle.

pub mod lite;
pub mod registers;
pub mod result;
pub mod stream;
pub mod token;

#[cfg(test)]
mod tests;
