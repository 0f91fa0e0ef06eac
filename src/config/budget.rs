//! The vocabulary budget: how much of a model its embedding table takes (section 4 of the NeuronFabric paper).

use serde::Serialize;

use super::model::ModelConfig;
use super::schema::grouped;
use crate::diag::Diagnostic;

/// From about this many layer parameters on the paper sees recognisable structure.
pub const STRUCTURE_PARAMETERS: usize = 80_000;
/// Below this many the paper sees recognisable words in incoherent order.
pub const WORDS_PARAMETERS: usize = 20_000;

/// Parameters of the embedding against those of the layers. The output projection is tied, so the table counts once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct VocabularyBudget {
    pub parameters: usize,
    /// `vocab * embed_dim`.
    pub embedding: usize,
    /// `embedding / parameters`, 0 to 1.
    pub embedding_share: f64,
    /// What is left to the layers, LayerNorm included.
    pub layers: usize,
}

impl VocabularyBudget {
    pub fn of(config: &ModelConfig) -> Self {
        let parameters = config.parameters();
        let embedding = config.vocab * config.embed_dim;
        Self {
            parameters,
            embedding,
            embedding_share: embedding as f64 / parameters as f64,
            layers: parameters - embedding,
        }
    }

    /// The warning for a model whose layers have little to learn with.
    pub fn warning(&self) -> Option<Diagnostic> {
        let (limit, effect) = if self.layers < WORDS_PARAMETERS {
            (
                WORDS_PARAMETERS,
                "expect recognisable words in incoherent order at best",
            )
        } else if self.layers < STRUCTURE_PARAMETERS {
            (STRUCTURE_PARAMETERS, "expect little structure")
        } else {
            return None;
        };
        Some(Diagnostic::warning(
            "nf::model::small_layers",
            format!(
                "the embedding takes {} of {} parameters ({:.1} %); the layers keep {}, below {}",
                grouped(self.embedding as u64),
                grouped(self.parameters as u64),
                100.0 * self.embedding_share,
                grouped(self.layers as u64),
                grouped(limit as u64)
            ),
            format!("{effect}; a smaller vocab or more layers helps (paper, section 4)"),
        ))
    }
}
