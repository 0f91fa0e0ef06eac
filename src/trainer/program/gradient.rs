//! Gradient tiles and the updates that follow them.

use super::build::*;
use crate::num::moments8::BLOCK;
use crate::trainer::isa::*;

/// A column tile of a weight gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnTile {
    pub j0: usize,
    pub nr: usize,
    /// Columns of its moment block, and those of them before the tile.
    pub columns: usize,
    pub offset: usize,
}

impl Emitter<'_> {
    /// Column tiles of weight tensor `number`: multiples of B, or parts of moment blocks that end with their block.
    pub fn column_tiles(&self, number: usize) -> Vec<ColumnTile> {
        let columns = self.weights.tensors[number].cols;
        let width = match self.weights.scales {
            Some(_) => BLOCK,
            None => columns,
        };
        (0..columns)
            .step_by(width)
            .flat_map(|start| {
                let block = width.min(columns - start);
                (0..block).step_by(self.b).map(move |offset| ColumnTile {
                    j0: start + offset,
                    nr: self.b.min(block - offset),
                    columns: block,
                    offset,
                })
            })
            .collect()
    }

    /// A gradient tile of weight tensor `number` and its update: row tile `it`, columns as [`Self::column_tiles`] cuts.
    #[allow(clippy::too_many_arguments)]
    pub fn gradient_tile(
        &mut self,
        col: Col,
        row: Row,
        k: usize,
        epilogue: Epilogue,
        number: usize,
        it: usize,
        part: ColumnTile,
    ) {
        let matrix = self.weights.tensors[number];
        let ColumnTile { j0, nr, .. } = part;
        let i0 = it * self.b;
        let nc = self.lanes(matrix.rows, it);
        let rot = j0 % self.b;
        let row0 = |j: usize| (self.b - j % self.b) % self.b;
        let block = self.weights.scales.as_ref().map(|scales| BlockPart {
            scale: scales.address(number, &matrix, it, j0 - part.offset),
            columns: part.columns,
            offset: part.offset,
            row0: row0(j0),
            block_row0: row0(j0 - part.offset),
            turn: (part.columns - 1) % self.b,
        });
        let instr = self.mat(col, row, k, epilogue, (it, j0), nr, nc);
        self.emit(Instr::Mat(MatInstr {
            dest: MatDest::Grad(0),
            dst: Stream {
                rot,
                ..Stream::default()
            },
            ..instr
        }));
        let first = self.first(Some(ExpId::Weight(number)));
        self.emit(Instr::Adam(AdamInstr {
            phase: self.phase,
            wait: [0; 3],
            kind: AdamKind::Matrix,
            place: 0,
            waddr: matrix.stream(self.b, it, j0).addr,
            tensor: number,
            element0: i0 * matrix.cols + j0,
            row_len: matrix.cols,
            nr,
            nc,
            first,
            block,
        }));
    }

    /// Gradient of a LayerNorm vector: column sums of `t` over the tokens, and its update.
    pub fn layernorm_gradient(&mut self, t: &Tensor, parameter: usize) {
        let d = self.model.embed_dim;
        for jt in 0..d.div_ceil(self.b) {
            let j0 = jt * self.b;
            let nc = self.lanes(d, jt);
            let ones = Operand {
                source: RowSource::Ones,
                mode: Mode::V,
                stream: Stream::default(),
                exp: ExpId::One,
            };
            let col = self.col(t, Mode::H, 0, j0);
            let k = self.model.seq_len;
            let instr = self.mat(col, ones, k, Epilogue::default(), (0, j0), 1, nc);
            self.emit(Instr::Mat(MatInstr {
                dest: MatDest::Grad(0),
                ..instr
            }));
            self.emit(Instr::Adam(AdamInstr {
                phase: self.phase,
                wait: [0; 3],
                kind: AdamKind::LayerNorm,
                place: 0,
                waddr: parameter + j0,
                tensor: 0,
                element0: 0,
                row_len: 0,
                nr: 1,
                nc,
                first: false,
                block: None,
            }));
        }
    }

    /// Every tile of `dW = X^T Y` and its update.
    pub fn weight_gradient(&mut self, x: &Tensor, y: &Tensor, number: usize, epilogue: Epilogue) {
        let w = self.weights.tensors[number];
        for it in 0..w.rows.div_ceil(self.b) {
            for part in self.column_tiles(number) {
                let col = self.col(x, Mode::H, 0, it * self.b);
                let row = self.row(y, Mode::H, 0, part.j0);
                let k = self.model.seq_len;
                self.gradient_tile(col, row, k, epilogue, number, it, part);
            }
        }
    }
}
