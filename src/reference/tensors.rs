//! Names, shapes and order of the trained tensors.

use crate::config::model::ModelConfig;

/// One trained tensor of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TensorId {
    /// E [V, d].
    Embedding,
    /// Wqkv [d, 3d] of a layer; columns: Q of every head, K of every head, V of every head.
    Wqkv(usize),
    /// Wo [d, d] of a layer; rows head by head.
    Wo(usize),
    /// W1 [d, f] of a layer.
    W1(usize),
    /// W2 [f, d] of a layer.
    W2(usize),
    /// Gain of the LayerNorm before attention [d].
    Ln1Gamma(usize),
    /// Bias of the LayerNorm before attention [d].
    Ln1Beta(usize),
    /// Gain of the LayerNorm before the feed-forward part [d].
    Ln2Gamma(usize),
    /// Bias of the LayerNorm before the feed-forward part [d].
    Ln2Beta(usize),
}

/// Tensors of one layer.
pub const PER_LAYER: usize = 8;

impl TensorId {
    /// All tensors of a model, in the order of state and checkpoints.
    pub fn all(model: &ModelConfig) -> Vec<TensorId> {
        let mut list = vec![TensorId::Embedding];
        for l in 0..model.layers {
            list.extend([
                TensorId::Wqkv(l),
                TensorId::Wo(l),
                TensorId::W1(l),
                TensorId::W2(l),
                TensorId::Ln1Gamma(l),
                TensorId::Ln1Beta(l),
                TensorId::Ln2Gamma(l),
                TensorId::Ln2Beta(l),
            ]);
        }
        list
    }

    /// Position in [`TensorId::all`].
    pub fn index(self) -> usize {
        let (layer, place) = match self {
            TensorId::Embedding => return 0,
            TensorId::Wqkv(l) => (l, 0),
            TensorId::Wo(l) => (l, 1),
            TensorId::W1(l) => (l, 2),
            TensorId::W2(l) => (l, 3),
            TensorId::Ln1Gamma(l) => (l, 4),
            TensorId::Ln1Beta(l) => (l, 5),
            TensorId::Ln2Gamma(l) => (l, 6),
            TensorId::Ln2Beta(l) => (l, 7),
        };
        1 + layer * PER_LAYER + place
    }

    /// Rows and columns; LayerNorm vectors have one row.
    pub fn shape(self, model: &ModelConfig) -> [usize; 2] {
        let (d, f) = (model.embed_dim, model.ff_dim);
        match self {
            TensorId::Embedding => [model.vocab, d],
            TensorId::Wqkv(_) => [d, 3 * d],
            TensorId::Wo(_) => [d, d],
            TensorId::W1(_) => [d, f],
            TensorId::W2(_) => [f, d],
            _ => [1, d],
        }
    }

    /// Name in checkpoints and reports.
    pub fn name(self) -> String {
        match self {
            TensorId::Embedding => "embedding".into(),
            TensorId::Wqkv(l) => format!("layers.{l}.wqkv"),
            TensorId::Wo(l) => format!("layers.{l}.wo"),
            TensorId::W1(l) => format!("layers.{l}.w1"),
            TensorId::W2(l) => format!("layers.{l}.w2"),
            TensorId::Ln1Gamma(l) => format!("layers.{l}.ln1_gamma"),
            TensorId::Ln1Beta(l) => format!("layers.{l}.ln1_beta"),
            TensorId::Ln2Gamma(l) => format!("layers.{l}.ln2_gamma"),
            TensorId::Ln2Beta(l) => format!("layers.{l}.ln2_beta"),
        }
    }

    /// Number of a matrix in the random counter (`docs/arithmetic.md` section 5); `None` for LayerNorm vectors.
    pub fn matrix(self) -> Option<u32> {
        let number = match self {
            TensorId::Embedding => 0,
            TensorId::Wqkv(l) => 1 + 4 * l,
            TensorId::Wo(l) => 2 + 4 * l,
            TensorId::W1(l) => 3 + 4 * l,
            TensorId::W2(l) => 4 + 4 * l,
            _ => return None,
        };
        Some(number as u32)
    }
}
