//! BitNet b1.58: GGUF files, exact ternary arithmetic, tokenizer and decoder.
//!
//! The host side of the array. Weights are trits with one scale, activations are int8 per
//! token, and every `BitLinear` of the model goes through a [`backend::Backend`], so that the
//! CPU reference, the cycle model and the RTL are exchangeable and comparable.
//!
//! * [`gguf`] reads (by memory map) and writes the container,
//! * [`ternary`] packs and unpacks `I2_S`, `TQ1_0`, `TQ2_0` and the array's 1.6-bit stream,
//! * [`quant`] holds the activation quantisers and the epilogue orders, by name,
//! * [`model`] and [`decoder`] are the transformer, [`tokenizer`] is the file's own tokenizer.

pub mod backend;
pub mod baseline;
pub mod convert;
pub mod cpu;
pub mod decoder;
pub mod error;
pub mod gguf;
pub mod inspect;
pub mod kernels;
pub mod make;
pub mod model;
pub mod quant;
pub mod sample;
pub mod shapes;
pub mod ternary;
pub mod tokenizer;

pub use error::{Error, Result};

#[cfg(test)]
mod tests;
