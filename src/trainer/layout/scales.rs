//! Where the scales of moment blocks live (`docs/arithmetic.md` section 6, `docs/machine.md` section 5).

use super::Matrix;
use crate::num::moments8::{BLOCK, blocks_per_row};

/// The scale memory: the blocks of a tensor as a matrix of their own, one word {sv, sm} each. The block of row i that
/// begins in column j is in the bank of its first weight, `(i + j) mod B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleLayout {
    /// First address of every tensor.
    pub bases: Vec<usize>,
    /// Words of each bank.
    pub depth: usize,
}

impl ScaleLayout {
    pub fn new(tensors: &[Matrix], b: usize) -> Self {
        let mut depth = 0;
        let bases = tensors
            .iter()
            .map(|m| {
                let base = depth;
                depth += m.tiles(b) * blocks_per_row(m.cols);
                base
            })
            .collect();
        Self { bases, depth }
    }

    /// Address of the blocks of row tile `tile` that begin in column `j0`.
    pub fn address(&self, tensor: usize, matrix: &Matrix, tile: usize, j0: usize) -> usize {
        self.bases[tensor] + tile * blocks_per_row(matrix.cols) + j0 / BLOCK
    }

    /// (bank, address) of block `index`, row by row.
    pub fn place(&self, b: usize, tensor: usize, matrix: &Matrix, index: usize) -> (usize, usize) {
        let per_row = blocks_per_row(matrix.cols);
        let (row, j0) = (index / per_row, index % per_row * BLOCK);
        ((row + j0) % b, self.address(tensor, matrix, row / b, j0))
    }

    /// (tensor, block index) at (bank, address); `None` for lanes beyond the last row.
    pub fn locate(
        &self,
        b: usize,
        tensors: &[Matrix],
        bank: usize,
        address: usize,
    ) -> Option<(usize, usize)> {
        if address >= self.depth {
            return None;
        }
        let tensor = self.bases.partition_point(|&base| base <= address) - 1;
        let per_row = blocks_per_row(tensors[tensor].cols);
        let offset = address - self.bases[tensor];
        let (tile, block) = (offset / per_row, offset % per_row);
        let row = tile * b + (bank + b - block * BLOCK % b) % b;
        (row < tensors[tensor].rows).then_some((tensor, row * per_row + block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::{ModelConfig, MomentFormat};
    use crate::trainer::layout::WeightLayout;
    use crate::trainer::testing::odd_model;

    #[test]
    fn every_block_has_its_own_place_beside_its_first_weight() {
        let model = ModelConfig {
            moment_format: MomentFormat::Int8,
            ..odd_model()
        };
        for b in [4, 11, 44, 48] {
            let layout = WeightLayout::new(&model, b);
            let scales = layout.scales.as_ref().expect("a scale memory");
            let mut seen = std::collections::HashSet::new();
            for (t, m) in layout.tensors.iter().enumerate() {
                let per_row = blocks_per_row(m.cols);
                for k in 0..m.rows * per_row {
                    let place = scales.place(b, t, m, k);
                    assert!(place.1 < scales.depth && seen.insert(place));
                    assert_eq!(
                        scales.locate(b, &layout.tensors, place.0, place.1),
                        Some((t, k))
                    );
                    let first = layout.place(t, k / per_row * m.cols + k % per_row * BLOCK);
                    assert_eq!(place.0, first.0);
                }
            }
        }
    }
}
