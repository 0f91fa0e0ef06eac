//! The model: shape, storage formats and training constants.

use serde::{Deserialize, Serialize};

/// Which formula GeLU uses. The paper's CPU code uses `tanh`, its GPU code `erf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gelu {
    Tanh,
    Erf,
}

/// How head outputs combine: NeuronFabric averages them (factor `1/H`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadCombine {
    Mean,
    Sum,
}

/// Storage of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    Fp32,
    Bf16,
    /// 1 sign, 8 exponent, 15 stored mantissa bits.
    Fp24,
}

/// Storage of an Adam moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MomentFormat {
    Fp32,
    Bf16,
    /// 8-bit block-scaled (m signed by its block maximum, sqrt(v) unsigned).
    Int8,
}

/// Rounding of an FP32 value into a narrower weight format. BF16 moments are always stochastic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    Nearest,
    Stochastic,
}

/// Arithmetic of matrix products. All but `block18` exist in the reference only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// Signed integers of 18 bits on one grid per tensor.
    Block18,
    /// As `block18` with 12 bits.
    Block12,
    /// As `block18` with 10 bits.
    Block10,
    Fp32,
}

impl Compute {
    /// Name in model files.
    pub fn name(self) -> &'static str {
        match self {
            Compute::Block18 => "block18",
            Compute::Block12 => "block12",
            Compute::Block10 => "block10",
            Compute::Fp32 => "fp32",
        }
    }

    /// Low bits of an 18-bit grid value that a narrower block leaves zero; `None` without a grid.
    pub fn cut(self) -> Option<u32> {
        match self {
            Compute::Block18 => Some(0),
            Compute::Block12 => Some(6),
            Compute::Block10 => Some(8),
            Compute::Fp32 => None,
        }
    }
}

/// Optimiser of LayerNorm gain and bias, which are FP32 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerNormOptimizer {
    Adam,
    Sgd,
}

/// A checked model: every field resolved, `heads` divides `embed_dim`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    pub name: String,
    /// V, number of token values.
    pub vocab: usize,
    /// T, tokens per sample.
    pub seq_len: usize,
    /// d, width of the residual stream.
    pub embed_dim: usize,
    /// H; must divide `embed_dim`.
    pub heads: usize,
    /// f, width of the feed-forward layer.
    pub ff_dim: usize,
    /// L.
    pub layers: usize,
    pub gelu: Gelu,
    pub head_combine: HeadCombine,
    pub weight_format: WeightFormat,
    pub moment_format: MomentFormat,
    pub rounding: Rounding,
    pub compute: Compute,
    pub layernorm_optimizer: LayerNormOptimizer,
    pub adam_beta1: f32,
    pub adam_beta2: f32,
    pub adam_eps: f32,
    /// Peak learning rate, reached at the end of warm-up.
    pub lr_peak: f32,
    /// The schedule never falls below `lr_peak * lr_floor`.
    pub lr_floor: f32,
    pub warmup_steps: u32,
    pub total_steps: u32,
    /// Seed of initialisation and of stochastic rounding.
    pub seed: u32,
}

impl ModelConfig {
    /// dh = d / H.
    pub fn head_dim(&self) -> usize {
        self.embed_dim / self.heads
    }

    /// Weights of the matrices: `V*d + L*(4*d*d + 2*d*f)`.
    pub fn matrix_parameters(&self) -> usize {
        let d = self.embed_dim;
        self.vocab * d + self.layers * (4 * d * d + 2 * d * self.ff_dim)
    }

    /// LayerNorm gains and biases: `4*L*d`.
    pub fn layernorm_parameters(&self) -> usize {
        4 * self.layers * self.embed_dim
    }

    /// All trained parameters.
    pub fn parameters(&self) -> usize {
        self.matrix_parameters() + self.layernorm_parameters()
    }
}
