//! Models for the tests of this module.

use crate::config::model::*;

/// Nothing is a multiple of anything.
pub fn odd_model() -> ModelConfig {
    ModelConfig {
        name: "odd".into(),
        vocab: 70,
        seq_len: 23,
        embed_dim: 42,
        heads: 3,
        ff_dim: 94,
        layers: 3,
        ..paper_model()
    }
}

/// The smallest model with every operator.
pub fn tiny_model() -> ModelConfig {
    ModelConfig {
        name: "tiny".into(),
        vocab: 128,
        seq_len: 8,
        embed_dim: 8,
        heads: 2,
        ff_dim: 16,
        layers: 1,
        ..paper_model()
    }
}

/// Real text at a size that simulates quickly.
pub fn small_model() -> ModelConfig {
    ModelConfig {
        name: "small".into(),
        vocab: 256,
        seq_len: 32,
        embed_dim: 32,
        heads: 2,
        ff_dim: 64,
        layers: 2,
        ..paper_model()
    }
}

/// The 334K shape at 7 bytes per matrix parameter.
pub fn paper_model() -> ModelConfig {
    ModelConfig {
        name: "shakespeare-334k-7b".into(),
        vocab: 256,
        seq_len: 128,
        embed_dim: 88,
        heads: 4,
        ff_dim: 264,
        layers: 4,
        gelu: Gelu::Tanh,
        head_combine: HeadCombine::Mean,
        weight_format: WeightFormat::Fp24,
        moment_format: MomentFormat::Bf16,
        rounding: Rounding::Nearest,
        compute: Compute::Block18,
        layernorm_optimizer: LayerNormOptimizer::Adam,
        adam_beta1: 0.9,
        adam_beta2: 0.999,
        adam_eps: 1e-8,
        lr_peak: 0.003,
        lr_floor: 0.01,
        warmup_steps: 20,
        total_steps: 1000,
        seed: 42,
    }
}
