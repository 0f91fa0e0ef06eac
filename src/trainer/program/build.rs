//! The emitter: logical tensors, operands and the product shapes of `docs/machine.md` section 3.

use std::collections::HashSet;

use crate::config::model::ModelConfig;
use crate::trainer::isa::*;
use crate::trainer::layout::{Constant, LayerVector, Matrix, WeightLayout, position_matrix};

/// An instruction of any engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Instr {
    Mat(MatInstr),
    Vec(VecInstr),
    Adam(AdamInstr),
}

impl Instr {
    pub fn engine(&self) -> Engine {
        match self {
            Instr::Mat(_) => Engine::Mat,
            Instr::Vec(_) => Engine::Vec,
            Instr::Adam(_) => Engine::Adam,
        }
    }

    pub fn wait_mut(&mut self) -> &mut [usize; 3] {
        match self {
            Instr::Mat(i) => &mut i.wait,
            Instr::Vec(i) => &mut i.wait,
            Instr::Adam(i) => &mut i.wait,
        }
    }

    pub fn wait(&self) -> [usize; 3] {
        match self {
            Instr::Mat(i) => i.wait,
            Instr::Vec(i) => i.wait,
            Instr::Adam(i) => i.wait,
        }
    }

    pub fn phase(&self) -> Phase {
        match self {
            Instr::Mat(i) => i.phase,
            Instr::Vec(i) => i.phase,
            Instr::Adam(i) => i.phase,
        }
    }
}

/// A logical activation buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub name: String,
    /// Words of each bank.
    pub words: usize,
}

/// The program before buffers and exponent registers have places.
#[derive(Clone, Debug, PartialEq)]
pub struct Logical {
    /// Global order.
    pub instrs: Vec<Instr>,
    /// Operator of each instruction, e.g. `forward.qkv`.
    pub operators: Vec<&'static str>,
    pub buffers: Vec<Buffer>,
    /// Logical exponents written by mat and by vec.
    pub mat_exps: usize,
    pub vec_exps: usize,
    pub scalar_rows: usize,
}

/// Choices that trade cycles for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Encode the tokens once more in the backward pass instead of keeping x0.
    pub encode_again: bool,
}

/// Emits one training step of `model` on a B x B array.
pub fn generate(model: &ModelConfig, weights: &WeightLayout, choices: Choices) -> Logical {
    let mut e = Emitter::new(model, weights, choices);
    e.step();
    e.out
}

/// An activation tensor in its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub buffer: usize,
    pub matrix: Matrix,
    pub exp: Option<ExpId>,
}

/// Columns of a tensor from `first` on: the q, k or v of all heads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub tensor: Tensor,
    pub first: usize,
}

/// One side of the array.
#[derive(Clone, Copy)]
pub(super) struct Operand<S> {
    pub source: S,
    pub mode: Mode,
    pub stream: Stream,
    pub exp: ExpId,
}
pub(super) type Col = Operand<ColSource>;
pub(super) type Row = Operand<RowSource>;

/// What follows a product.
#[derive(Clone, Copy, Default)]
pub(super) struct Epilogue {
    pub scale: Option<usize>,
    /// `None`, a tensor, or the position code; read at the destination's element.
    pub add: Option<Addend>,
}

#[derive(Clone, Copy)]
pub(super) enum Addend {
    Tensor(Tensor),
    Position,
}

pub(super) struct Emitter<'a> {
    pub model: &'a ModelConfig,
    pub weights: &'a WeightLayout,
    pub b: usize,
    /// Token tiles.
    pub nt: usize,
    pub phase: Phase,
    pub operator: &'static str,
    pub out: Logical,
    pub choices: Choices,
    started: HashSet<ExpId>,
}

impl<'a> Emitter<'a> {
    fn new(model: &'a ModelConfig, weights: &'a WeightLayout, choices: Choices) -> Self {
        Self {
            model,
            weights,
            b: weights.b,
            nt: model.seq_len.div_ceil(weights.b),
            phase: Phase::Encode,
            operator: "",
            out: Logical {
                instrs: vec![],
                operators: vec![],
                buffers: vec![],
                mat_exps: 0,
                vec_exps: 0,
                scalar_rows: 0,
            },
            choices,
            started: HashSet::new(),
        }
    }

    /// Valid lanes of tile `tile` of `n`.
    pub fn lanes(&self, n: usize, tile: usize) -> usize {
        self.b.min(n - tile * self.b)
    }

    pub fn tensor(&mut self, name: String, rows: usize, cols: usize) -> Tensor {
        self.place(name, Matrix::new(0, rows, cols))
    }

    pub fn causal(&mut self, name: String) -> Tensor {
        self.place(name, Matrix::causal(0, self.model.seq_len, self.b))
    }

    fn place(&mut self, name: String, matrix: Matrix) -> Tensor {
        self.out.buffers.push(Buffer {
            name,
            words: matrix.words(self.b),
        });
        Tensor {
            buffer: self.out.buffers.len() - 1,
            matrix,
            exp: None,
        }
    }

    /// The same buffer with an exponent written by the mat engine.
    pub fn with_mat_exp(&mut self, t: Tensor) -> Tensor {
        self.out.mat_exps += 1;
        Tensor {
            exp: Some(ExpId::Mat(self.out.mat_exps - 1)),
            ..t
        }
    }

    /// The same buffer with an exponent written by the vec engine.
    pub fn with_vec_exp(&mut self, t: Tensor) -> Tensor {
        self.out.vec_exps += 1;
        Tensor {
            exp: Some(ExpId::Vec(self.out.vec_exps - 1)),
            ..t
        }
    }

    pub fn first(&mut self, exp: Option<ExpId>) -> bool {
        exp.is_some_and(|e| self.started.insert(e))
    }

    pub fn emit(&mut self, instr: Instr) {
        self.out.instrs.push(instr);
        self.out.operators.push(self.operator);
    }

    fn exp_of(t: &Tensor) -> ExpId {
        // A product of a tensor without exponent cannot be written with the calls of this module.
        t.exp.unwrap_or(ExpId::One)
    }

    pub fn col(&self, t: &Tensor, mode: Mode, tile: usize, j0: usize) -> Col {
        Operand {
            source: ColSource::Act(t.buffer),
            mode,
            stream: t.matrix.stream(self.b, tile, j0),
            exp: Self::exp_of(t),
        }
    }

    /// One-hot of the tokens: V = one token tile over the vocabulary, H = values from `tile * B` over the tokens.
    pub fn one_hot(&self, mode: Mode, tile: usize) -> Col {
        Operand {
            source: ColSource::OneHot,
            mode,
            stream: Stream {
                addr: match mode {
                    Mode::V => tile,
                    Mode::H => tile * self.b,
                },
                ..Stream::default()
            },
            exp: ExpId::One,
        }
    }

    pub fn row(&self, t: &Tensor, mode: Mode, tile: usize, j0: usize) -> Row {
        Operand {
            source: RowSource::Act(t.buffer),
            mode,
            stream: t.matrix.stream(self.b, tile, j0),
            exp: Self::exp_of(t),
        }
    }

    pub fn weight(&self, number: usize, mode: Mode, tile: usize, j0: usize) -> Row {
        Operand {
            source: RowSource::Weights,
            mode,
            stream: self.weights.tensors[number].stream(self.b, tile, j0),
            exp: ExpId::Weight(number),
        }
    }

    /// One tile into an activation: rows of `dst` from tile `tile`, columns `j0..j0+nr`.
    #[allow(clippy::too_many_arguments)]
    pub fn tile(
        &mut self,
        col: Col,
        row: Row,
        k: usize,
        epilogue: Epilogue,
        dst: &Tensor,
        tile: usize,
        j0: usize,
        nr: usize,
    ) {
        let nc = self.lanes(dst.matrix.rows, tile);
        // Vec exponents of the same buffer belong to a later in-place value.
        let exp = match dst.exp {
            Some(ExpId::Mat(n)) => Some(n),
            _ => None,
        };
        let first = exp.is_some() && self.first(dst.exp);
        let instr = self.mat(col, row, k, epilogue, (tile, j0), nr, nc);
        self.emit(Instr::Mat(MatInstr {
            dest: MatDest::Act(dst.buffer),
            dst: dst.matrix.stream(self.b, tile, j0),
            dst_exp: exp,
            dst_first: first,
            ..instr
        }));
    }

    #[allow(clippy::too_many_arguments)]
    pub fn mat(
        &self,
        col: Col,
        row: Row,
        k: usize,
        epilogue: Epilogue,
        at: (usize, usize),
        nr: usize,
        nc: usize,
    ) -> MatInstr {
        let (add_source, add) = match epilogue.add {
            None => (AddSource::None, Stream::default()),
            Some(Addend::Tensor(t)) => (
                AddSource::Act(t.buffer),
                t.matrix.stream(self.b, at.0, at.1),
            ),
            Some(Addend::Position) => (
                AddSource::Position,
                position_matrix(self.model).stream(self.b, at.0, at.1),
            ),
        };
        MatInstr {
            phase: self.phase,
            wait: [0; 3],
            row_source: row.source,
            row_mode: row.mode,
            row: row.stream,
            row_exp: row.exp,
            col_source: col.source,
            col_mode: col.mode,
            col: col.stream,
            col_exp: col.exp,
            k,
            nr,
            nc,
            scale: epilogue.scale,
            add_source,
            add,
            dest: MatDest::Grad(0),
            dst: Stream::default(),
            dst_exp: None,
            dst_first: false,
        }
    }

    /// Row tile `tt` of `dst = X W`.
    pub fn linear_row(
        &mut self,
        x: &Tensor,
        number: usize,
        epi: Epilogue,
        dst: &Tensor,
        tt: usize,
    ) {
        let cols = self.weights.tensors[number].cols;
        self.linear_part(x, number, (0, cols), epi, (dst, 0), tt);
    }

    /// The same for the columns of W from the first number on, as many as the second says; they become the
    /// columns of the destination from its second part on.
    pub fn linear_part(
        &mut self,
        x: &Tensor,
        number: usize,
        (from, cols): (usize, usize),
        epi: Epilogue,
        (dst, at): (&Tensor, usize),
        tt: usize,
    ) {
        let k = self.weights.tensors[number].rows;
        for jt in 0..cols.div_ceil(self.b) {
            let j = jt * self.b;
            let col = self.col(x, Mode::V, tt, 0);
            let row = self.weight(number, Mode::H, 0, from + j);
            let nr = self.lanes(cols, jt);
            self.tile(col, row, k, epi, dst, tt, at + j, nr);
        }
    }

    /// Row tile `tt` of `dst = Y W^T`.
    pub fn linear_t_row(
        &mut self,
        y: &Tensor,
        number: usize,
        epi: Epilogue,
        dst: &Tensor,
        tt: usize,
    ) {
        let w = self.weights.tensors[number];
        for kt in 0..w.rows.div_ceil(self.b) {
            let col = self.col(y, Mode::V, tt, 0);
            let row = self.weight(number, Mode::V, kt, 0);
            let nr = self.lanes(w.rows, kt);
            self.tile(col, row, w.cols, epi, dst, tt, kt * self.b, nr);
        }
    }

    /// A vec pass over `n` columns of row tile `tt` of `x`, everything optional off.
    pub fn pass(&self, x: &Tensor, tt: usize, n: usize) -> VecInstr {
        VecInstr {
            phase: self.phase,
            wait: [0; 3],
            n,
            nc: self.lanes(self.model.seq_len, tt),
            x: (x.buffer, x.matrix.stream(self.b, tt, 0)),
            y: None,
            z: None,
            sub_s0: false,
            mul1: Mul1::Bypass,
            table: Table::Bypass,
            mul2: Mul2::Bypass,
            add: Add::Bypass,
            reduce: Reduce::None,
            post: Post::None,
            s0: 0,
            s1: 0,
            s2: 0,
            post_row: 0,
            c1: 0,
            c2: 0,
            c3: Constant::InvD as usize,
            gamma: 0,
            beta: 0,
            mask: false,
            tile: tt,
            ce_max: false,
            ce_exp: false,
        }
    }

    /// Second operand of a pass.
    pub fn y(&self, t: &Tensor, tt: usize) -> Option<(usize, Stream)> {
        Some((t.buffer, t.matrix.stream(self.b, tt, 0)))
    }

    /// Destination of a pass.
    pub fn z(&mut self, t: &Tensor, tt: usize) -> Option<VecDest> {
        let exp = match t.exp {
            Some(ExpId::Vec(n)) => Some(n),
            _ => None,
        };
        let first = exp.is_some() && self.first(t.exp);
        Some(VecDest {
            group: t.buffer,
            stream: t.matrix.stream(self.b, tt, 0),
            exp,
            first,
        })
    }

    pub fn vec(&mut self, instr: VecInstr) {
        let rows = [instr.s0, instr.s1, instr.s2, instr.post_row];
        let used = rows.into_iter().max().unwrap_or(0) + 1;
        self.out.scalar_rows = self.out.scalar_rows.max(used);
        self.emit(Instr::Vec(instr));
    }

    /// Scalar row of a LayerNorm statistic (0 mean, 1 rstd) of a layer's first or second LayerNorm.
    pub fn stat_row(&self, layer: usize, second: bool, tt: usize, which: usize) -> usize {
        ((layer * 2 + usize::from(second)) * self.nt + tt) * 2 + which
    }

    /// Scalar row of temporary `n`, one per token tile, behind the LayerNorm statistics.
    pub fn temp_row(&self, n: usize, tt: usize) -> usize {
        self.model.layers * 4 * self.nt + n * self.nt + tt
    }

    pub fn gain_and_bias(&self, layer: usize, second: bool) -> (usize, usize) {
        let (g, b) = if second {
            (LayerVector::Gain2, LayerVector::Bias2)
        } else {
            (LayerVector::Gain1, LayerVector::Bias1)
        };
        let index = |v| crate::trainer::layout::layernorm_index(self.model, layer, v);
        (index(g), index(b))
    }
}
