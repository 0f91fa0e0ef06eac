//! Shapes of the published models, so that projections can be costed without a file.

/// One ternary projection of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Projection {
    /// Short name, e.g. `ffn_down`.
    pub name: &'static str,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
}

/// Sizes of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Shape {
    /// Model width.
    pub width: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Vocabulary.
    pub vocab: usize,
}

/// BitNet b1.58 2B 4T: 210 ternary projections, 2,084,044,800 trits.
pub const BITNET_2B_4T: Shape = Shape {
    width: 2560,
    feed_forward: 6912,
    layers: 30,
    heads: 20,
    kv_heads: 5,
    vocab: 128_256,
};

impl Shape {
    /// The shape with this name.
    pub fn named(name: &str) -> Option<Self> {
        (name == "2b-4t").then_some(BITNET_2B_4T)
    }

    /// The seven projections of a layer, in the order they run.
    pub fn projections(&self) -> [Projection; 7] {
        let head = self.width / self.heads;
        let of = |name, rows, cols| Projection { name, rows, cols };
        [
            of("attn_q", self.width, self.width),
            of("attn_k", self.kv_heads * head, self.width),
            of("attn_v", self.kv_heads * head, self.width),
            of("attn_output", self.width, self.width),
            of("ffn_gate", self.feed_forward, self.width),
            of("ffn_up", self.feed_forward, self.width),
            of("ffn_down", self.width, self.feed_forward),
        ]
    }

    /// Trits of the whole model.
    pub fn trits(&self) -> u64 {
        let layer: usize = self.projections().iter().map(|p| p.rows * p.cols).sum();
        (layer * self.layers) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_count() {
        assert_eq!(BITNET_2B_4T.trits(), 2_084_044_800);
        assert_eq!(BITNET_2B_4T.projections().len() * BITNET_2B_4T.layers, 210);
    }
}
