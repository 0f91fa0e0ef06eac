//! GGUF version 3: the container of llama.cpp and bitnet.cpp.
//!
//! Layout, little endian: `"GGUF"`, version `u32`, tensor count `u64`, key count `u64`; the
//! keys (`string`, type `u32`, value); the tensor table (`string`, dimension count `u32`,
//! `u64` per dimension with the contiguous one first, type `u32`, offset `u64`); padding to
//! `general.alignment`; the tensor data, to which the offsets are relative.

mod bytes;
mod dtype;
mod reader;
mod value;
mod writer;

pub use bytes::Bytes;
pub use dtype::{TensorType, type_name};
pub use reader::{GgufFile, TensorInfo};
pub use value::Value;
pub use writer::GgufWriter;

/// Alignment of the tensor data when `general.alignment` is absent.
pub const DEFAULT_ALIGNMENT: u64 = 32;

#[cfg(test)]
mod tests;
