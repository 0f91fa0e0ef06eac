//! Tensor types: the five that are read, and names for the rest so that messages can use them.

use crate::bitnet::{Error, Result};

/// Storage of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TensorType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Five trits per byte, 256 weights in 54 bytes with a half precision scale at the end.
    Tq1_0,
    /// Four 2-bit codes per byte, 256 weights in 66 bytes with a half precision scale at the end.
    Tq2_0,
    /// Four 2-bit codes per byte, one single precision scale after the whole tensor.
    I2S,
}

impl TensorType {
    /// The type of a tensor table entry; `tensor` names it in the message.
    pub fn from_id(id: u32, tensor: &str) -> Result<Self> {
        Ok(match id {
            0 => Self::F32,
            1 => Self::F16,
            34 => Self::Tq1_0,
            35 => Self::Tq2_0,
            36 => Self::I2S,
            other => {
                return Err(Error::Unsupported(format!(
                    "tensor `{tensor}` has type {other} ({}); read here are F32 (0), F16 (1), \
                     TQ1_0 (34), TQ2_0 (35) and I2_S (36)",
                    type_name(other)
                )));
            }
        })
    }

    /// Number of the type in the file.
    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Tq1_0 => 34,
            Self::Tq2_0 => 35,
            Self::I2S => 36,
        }
    }

    /// Name as the formats' authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Tq1_0 => "TQ1_0",
            Self::Tq2_0 => "TQ2_0",
            Self::I2S => "I2_S",
        }
    }

    /// Whether the elements are trits.
    pub fn is_ternary(self) -> bool {
        matches!(self, Self::Tq1_0 | Self::Tq2_0 | Self::I2S)
    }

    /// Elements that a block holds; the contiguous dimension must be a multiple (for `I2_S` the
    /// byte granularity, since its block depends on the layout, see [`crate::bitnet::ternary`]).
    pub fn block(self) -> u64 {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Tq1_0 | Self::Tq2_0 => 256,
            Self::I2S => 4,
        }
    }

    /// Bytes of a tensor of `elements` elements, `None` on overflow. `I2_S` includes the scale
    /// and its padding (32 bytes).
    pub fn byte_size(self, elements: u64) -> Option<u64> {
        let blocks = elements / self.block();
        match self {
            Self::F32 => elements.checked_mul(4),
            Self::F16 => elements.checked_mul(2),
            Self::Tq1_0 => blocks.checked_mul(54),
            Self::Tq2_0 => blocks.checked_mul(66),
            Self::I2S => blocks.checked_add(32),
        }
    }
}

/// Name of any tensor type number, for messages.
pub fn type_name(id: u32) -> &'static str {
    const NAMES: [&str; 42] = [
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "removed Q4_2",
        "removed Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "removed Q4_0_4_4",
        "removed Q4_0_4_8",
        "removed Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "I2_S",
        "I8_S of bitnet.cpp",
        "TL1 of bitnet.cpp",
        "TL2 of bitnet.cpp, MXFP4 of ggml",
        "NVFP4",
        "Q1_0",
    ];
    NAMES.get(id as usize).copied().unwrap_or("unknown")
}
