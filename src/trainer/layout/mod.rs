//! Where tensors live: skewed banks, LayerNorm words, the constant table and the state stream.
//!
//! One formula places every matrix (`docs/machine.md` section 1), so a tile's stream, a weight's bank and
//! the order of the state stream all follow from [`Matrix`].

mod scales;
mod state;

pub use scales::ScaleLayout;
pub use state::{Beat, RawParameter, TrainerState, beats_to_state, no_scales, state_to_beats};

use super::isa::Stream;
use crate::config::model::{ModelConfig, MomentFormat};
use crate::num::constants::{Constants, position_code};

/// A matrix in skewed banks: element (i, j) is in bank `(i + j) mod B` at `base + (i div B) * pitch + j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub base: usize,
    pub rows: usize,
    pub cols: usize,
    /// Addresses between row tiles; `cols` unless the matrix is causal.
    pub pitch: usize,
}

impl Matrix {
    pub fn new(base: usize, rows: usize, cols: usize) -> Self {
        Self {
            base,
            rows,
            cols,
            pitch: cols,
        }
    }

    /// A square matrix whose upper triangle is never touched: row tile i holds `(i + 1) * B` columns, so row
    /// tiles may lie as close as the last but one is long.
    pub fn causal(base: usize, n: usize, b: usize) -> Self {
        let tiles = n.div_ceil(b);
        Self {
            base,
            rows: n,
            cols: n,
            pitch: if tiles > 1 { (tiles - 1) * b } else { n },
        }
    }

    /// Number of row tiles.
    pub fn tiles(&self, b: usize) -> usize {
        self.rows.div_ceil(b)
    }

    /// Words of each bank.
    pub fn words(&self, b: usize) -> usize {
        (self.tiles(b) - 1) * self.pitch + self.cols
    }

    /// (bank, address) of an element.
    pub fn place(&self, b: usize, i: usize, j: usize) -> (usize, usize) {
        ((i + j) % b, self.base + i / b * self.pitch + j)
    }

    /// Element at (bank, address), the inverse of [`Self::place`]; `None` for addresses of other tensors and
    /// for lanes beyond the last row. Only for matrices of full pitch.
    pub fn element(&self, b: usize, bank: usize, address: usize) -> Option<(usize, usize)> {
        let offset = address.checked_sub(self.base)?;
        let (tile, j) = (offset / self.pitch, offset % self.pitch);
        let lane = (bank + b - j % b) % b;
        let i = tile * b + lane;
        (i < self.rows).then_some((i, j))
    }

    /// Stream that starts at row tile `tile`, column `j0`; the same for both modes.
    pub fn stream(&self, b: usize, tile: usize, j0: usize) -> Stream {
        Stream {
            addr: self.base + tile * self.pitch + j0,
            rot: j0 % b,
            pitch: self.pitch,
        }
    }
}

/// Weight tensors of a layer, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerWeight {
    Qkv = 0,
    Out = 1,
    Up = 2,
    Down = 3,
}

/// Number of E.
pub const EMBEDDING: usize = 0;

/// Number of a layer's weight tensor: `1 + 4l + which`.
pub fn weight_number(layer: usize, which: LayerWeight) -> usize {
    1 + 4 * layer + which as usize
}

/// LayerNorm vectors of a layer, in the order of their numbers `p = 4l + which`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerVector {
    Gain1 = 0,
    Bias1 = 1,
    Gain2 = 2,
    Bias2 = 3,
}

/// Index of the first parameter of a LayerNorm vector.
pub fn layernorm_index(model: &ModelConfig, layer: usize, which: LayerVector) -> usize {
    (4 * layer + which as usize) * model.embed_dim
}

/// (rows, columns) of every weight tensor: E, then Wqkv, Wo, W1, W2 of each layer.
pub fn weight_shapes(model: &ModelConfig) -> Vec<(usize, usize)> {
    let (d, f) = (model.embed_dim, model.ff_dim);
    let mut shapes = vec![(model.vocab, d)];
    for _ in 0..model.layers {
        shapes.extend([(d, 3 * d), (d, d), (d, f), (f, d)]);
    }
    shapes
}

/// The weight memory: one matrix after the other from address 0, B slack words at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightLayout {
    pub b: usize,
    pub tensors: Vec<Matrix>,
    /// Words of each bank, slack included.
    pub depth: usize,
    /// Scales of 8-bit block moments.
    pub scales: Option<ScaleLayout>,
}

impl WeightLayout {
    pub fn new(model: &ModelConfig, b: usize) -> Self {
        let mut base = 0;
        let tensors: Vec<Matrix> = weight_shapes(model)
            .into_iter()
            .map(|(rows, cols)| {
                let matrix = Matrix::new(base, rows, cols);
                base += matrix.words(b);
                matrix
            })
            .collect();
        let blocks = model.moment_format == MomentFormat::Int8;
        Self {
            b,
            scales: blocks.then(|| ScaleLayout::new(&tensors, b)),
            tensors,
            depth: base + b,
        }
    }

    /// Words of each bank of the scale memory, 0 without 8-bit block moments.
    pub fn scale_words(&self) -> usize {
        self.scales.as_ref().map_or(0, |s| s.depth)
    }

    /// Beats of a whole state stream: weights, scales, LayerNorm parameters, the step's scalars.
    pub fn state_beats(&self, model: &ModelConfig) -> usize {
        (self.depth + self.scale_words()) * self.b + model.layernorm_parameters() + 1
    }

    /// (tensor, row-major element index) stored at (bank, address); `None` where nothing is stored.
    pub fn locate(&self, bank: usize, address: usize) -> Option<(usize, usize)> {
        let after = self.tensors.partition_point(|t| t.base <= address);
        let tensor = after.checked_sub(1)?;
        let matrix = &self.tensors[tensor];
        if address >= matrix.base + matrix.words(self.b) {
            return None;
        }
        let (i, j) = matrix.element(self.b, bank, address)?;
        Some((tensor, i * matrix.cols + j))
    }

    /// (bank, address) of element `index` (row-major) of a tensor.
    pub fn place(&self, tensor: usize, index: usize) -> (usize, usize) {
        let m = &self.tensors[tensor];
        m.place(self.b, index / m.cols, index % m.cols)
    }
}

/// Position ROM, `[bank][address]` FP32 bits: `PE [T, d]` in skewed banks from address 0.
pub fn position_banks(model: &ModelConfig, b: usize) -> Vec<Vec<u32>> {
    let matrix = position_matrix(model);
    let mut banks = vec![vec![0; matrix.words(b)]; b];
    let table = position_code(model.seq_len, model.embed_dim);
    for (n, x) in table.iter().enumerate() {
        let (bank, address) = matrix.place(b, n / model.embed_dim, n % model.embed_dim);
        banks[bank][address] = x.to_bits();
    }
    banks
}

/// The position code as a matrix of its ROM.
pub fn position_matrix(model: &ModelConfig) -> Matrix {
    Matrix::new(0, model.seq_len, model.embed_dim)
}

/// Indices of the constant table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constant {
    InvD = 0,
    InvT = 1,
    SoftmaxScale = 2,
    Log2e = 3,
    InvSqrtDh = 4,
    /// 1/H; 1 when heads are summed (then no instruction names it).
    HeadScale = 5,
}

/// FP32 bits of the constant table.
pub fn constant_table(model: &ModelConfig) -> Vec<u32> {
    let c = Constants::new(model);
    [
        c.inv_d,
        c.inv_t,
        c.softmax_scale,
        c.log2e,
        c.inv_sqrt_dh,
        c.head_scale.unwrap_or(1.0),
    ]
    .map(f32::to_bits)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trainer::testing::odd_model;

    #[test]
    fn every_weight_has_its_own_place_and_is_found_there() {
        let model = odd_model();
        for b in [4, 8, 11, 16] {
            let layout = WeightLayout::new(&model, b);
            let mut seen = std::collections::HashSet::new();
            for (t, (rows, cols)) in weight_shapes(&model).into_iter().enumerate() {
                for e in 0..rows * cols {
                    let (bank, address) = layout.place(t, e);
                    assert!(bank < b && address + b < layout.depth + 1);
                    assert!(seen.insert((bank, address)));
                    assert_eq!(layout.locate(bank, address), Some((t, e)));
                }
            }
            assert_eq!(seen.len(), model.matrix_parameters());
        }
    }

    #[test]
    fn causal_rows_do_not_meet() {
        for (n, b) in [(128, 44), (23, 4), (23, 11), (16, 16), (17, 16), (5, 8)] {
            let m = Matrix::causal(0, n, b);
            let mut seen = std::collections::HashSet::new();
            for i in 0..n {
                for j in 0..n.min((i / b + 1) * b) {
                    let place = m.place(b, i, j);
                    assert!(place.1 < m.words(b));
                    assert!(seen.insert(place), "{n} {b} {i} {j}");
                }
            }
        }
    }
}
