//! Instructions of the three engines (see `docs/machine.md`).
//!
//! An instruction is a plain struct; `encode` turns it into one ROM word and tells the
//! hardware where each field lies, so both sides share a single field list.

use serde::Serialize;

/// Engines, in the order of the wait counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Engine {
    Mat,
    Vec,
    Adam,
}

/// Control phase of an instruction; drives the visible state and ends forward-only runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    Encode = 0,
    Forward = 1,
    Backward = 2,
}

/// How a matrix is streamed: `V` steps along its second index, `H` along its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    V = 0,
    H = 1,
}

/// Source of the B row lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RowSource {
    Weights,
    /// Activation group.
    Act(usize),
    /// Lane 0 is 1.0.
    Ones,
}

/// Source of the B column lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ColSource {
    Act(usize),
    /// One-hot of the input tokens.
    OneHot,
}

/// Which exponent register holds a tensor's `emax`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum ExpId {
    /// The constant 127 (one-hot and ones operands).
    One,
    /// Written by the mat engine.
    Mat(usize),
    /// Written by the vec engine.
    Vec(usize),
    /// Weight tensor n (E = 0, then 4 per layer), written by the adam engine.
    Weight(usize),
}

/// A streamed operand: start address, rotation, and the address step of H mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Stream {
    pub addr: usize,
    /// `j0 mod B`.
    pub rot: usize,
    /// Added to the address after every B steps in H mode.
    pub pitch: usize,
}

/// Source of the addend of the mat epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AddSource {
    None,
    Act(usize),
    /// The position-code ROM.
    Position,
}

/// Destination of a mat tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MatDest {
    Act(usize),
    /// Place in the gradient memory, below [`Shape::gradient_tiles`].
    Grad(usize),
}

/// One tile of a product.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MatInstr {
    pub phase: Phase,
    /// Retired counts of mat, vec, adam to reach before starting.
    pub wait: [usize; 3],
    pub row_source: RowSource,
    pub row_mode: Mode,
    pub row: Stream,
    pub row_exp: ExpId,
    pub col_source: ColSource,
    pub col_mode: Mode,
    pub col: Stream,
    pub col_exp: ExpId,
    /// Steps, 1..=8192.
    pub k: usize,
    /// Valid row lanes (drain steps) and column lanes, 1..=B.
    pub nr: usize,
    pub nc: usize,
    /// Index into the constant table, multiplied after normalising; `None` skips.
    pub scale: Option<usize>,
    pub add_source: AddSource,
    pub add: Stream,
    pub dest: MatDest,
    pub dst: Stream,
    /// Exponent register `Mat(n)` of the destination tensor (act destinations only).
    pub dst_exp: Option<usize>,
    /// First tile of its tensor: replaces the exponent instead of taking the maximum.
    pub dst_first: bool,
}

/// The array drains in up to this many segments of rows side by side in time: one 4:1 multiplexer per sum bit.
pub const SEGMENTS: usize = 4;

/// Rows of one segment of an array of `b` rows. A segment's sums leave over its own cascade.
pub fn segment_rows(b: usize) -> usize {
    b.div_ceil(SEGMENTS)
}

impl MatInstr {
    /// Slots behind the operand steps before the next tile may start: the shifts of a segment, and more when the
    /// `next` tile is so short that its rows would leave before the last of these.
    pub fn tail(&self, b: usize, next: Option<&MatInstr>) -> usize {
        let shifts = segment_rows(b).min(self.nr) - 1;
        let rows = next.map_or(0, |n| self.nr.saturating_sub(n.k));
        shifts.max(rows)
    }
}

/// Second factor of the first vector multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mul1 {
    Bypass = 0,
    S1 = 1,
    Square = 2,
    Y = 3,
    Const = 4,
    Gamma = 5,
}

/// Table function between the multipliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Table {
    Bypass = 0,
    Exp2n = 1,
    Phi = 2,
    Dphi = 3,
}

/// Second factor of the second vector multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mul2 {
    Bypass = 0,
    Y = 1,
    X = 2,
    S2 = 3,
    Const = 4,
    Gamma = 5,
}

/// Addend of the vector adder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Add {
    Bypass = 0,
    Y = 1,
    Beta = 2,
    /// `j == target ? -inv_T : +0`
    CrossEntropy = 3,
}

/// Lane reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Reduce {
    None = 0,
    Sum8 = 1,
    Max = 2,
}

/// What the reduction becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Post {
    None = 0,
    Raw = 1,
    Mean = 2,
    NegMean = 3,
    Rstd = 4,
    Recip = 5,
    CrossEntropy = 6,
}

/// Where the vector unit writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VecDest {
    pub group: usize,
    pub stream: Stream,
    /// Exponent register `Vec(n)`; `None` when no product reads the tensor.
    pub exp: Option<usize>,
    pub first: bool,
}

/// One pass of the vector unit over one token tile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VecInstr {
    pub phase: Phase,
    pub wait: [usize; 3],
    /// Steps.
    pub n: usize,
    /// Valid lanes, 1..=B.
    pub nc: usize,
    /// Group and stream of x (always V mode).
    pub x: (usize, Stream),
    pub y: Option<(usize, Stream)>,
    pub z: Option<VecDest>,
    pub sub_s0: bool,
    pub mul1: Mul1,
    pub table: Table,
    pub mul2: Mul2,
    pub add: Add,
    pub reduce: Reduce,
    pub post: Post,
    /// Rows of the scalar file.
    pub s0: usize,
    pub s1: usize,
    pub s2: usize,
    /// Scalar row written by `post` (not `None`).
    pub post_row: usize,
    /// Constant-table indices of `mul1`, `mul2` and `post`.
    pub c1: usize,
    pub c2: usize,
    pub c3: usize,
    /// LayerNorm parameter index of gamma_0 and beta_0.
    pub gamma: usize,
    pub beta: usize,
    /// Causal mask: element invalid when `u0 + j > t0 + lane`, u0 = 0.
    pub mask: bool,
    /// Token tile: t0 = tile * B (mask, targets, logit capture).
    pub tile: usize,
    pub ce_max: bool,
    pub ce_exp: bool,
}

/// What an Adam tile updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AdamKind {
    Matrix,
    LayerNorm,
}

/// One gradient tile through the optimiser.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdamInstr {
    pub phase: Phase,
    pub wait: [usize; 3],
    pub kind: AdamKind,
    /// Place in the gradient memory.
    pub place: usize,
    /// Matrix: address of (row tile, column j0); LayerNorm: parameter index.
    pub waddr: usize,
    /// Hash: tensor number and element index of the tile's first element `i0*row_len + j0`.
    pub tensor: usize,
    pub element0: usize,
    pub row_len: usize,
    /// Valid columns (steps) and rows (lanes).
    pub nr: usize,
    pub nc: usize,
    /// First tile of its tensor (exponent `Weight(tensor)` restarts).
    pub first: bool,
    /// Where the tile lies in the moment blocks of its rows (`moment_format = int8`, matrices only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockPart>,
}

/// A tile as part of B moment blocks, one of each of its rows (`docs/arithmetic.md` section 6). The parts of a block
/// follow each other in the order of their columns, with no other matrix tile between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlockPart {
    /// Address of the blocks' scales in every bank.
    pub scale: usize,
    /// Columns of the block.
    pub columns: usize,
    /// Columns of the block before this tile.
    pub offset: usize,
    /// Row in bank 0 of the tile's first column, and of the block's first column.
    pub row0: usize,
    pub block_row0: usize,
    /// `(columns - 1) mod B`: banks between a row's first and last element in the block.
    pub turn: usize,
}

impl AdamInstr {
    /// Whether the tile begins moment blocks, and whether it ends them.
    pub fn block_ends(&self) -> (bool, bool) {
        self.block.map_or((false, false), |p| {
            (p.offset == 0, p.offset + self.nr == p.columns)
        })
    }
}

/// The three programs of one training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Program {
    pub mat: Vec<MatInstr>,
    pub vec: Vec<VecInstr>,
    pub adam: Vec<AdamInstr>,
}

/// Sizes that fix the machine. Everything the netlist needs beside the programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shape {
    /// B: rows, columns and banks.
    pub b: usize,
    /// G: Adam lanes; divides B, and B/G >= 2.
    pub adam_lanes: usize,
    /// Tiles that the gradient memory holds, at least 2: the array may be so many ahead of Adam.
    pub gradient_tiles: usize,
    /// Words per bank of each activation group (slack included).
    pub group_depth: Vec<usize>,
    /// Words per bank of the position ROM.
    pub position_depth: usize,
    /// Words per bank of the weight memory.
    pub weight_depth: usize,
    /// LayerNorm parameters, 4*L*d.
    pub layernorm_words: usize,
    /// Rows of the scalar file.
    pub scalar_rows: usize,
    /// Exponent registers written by mat, vec, and of weights.
    pub mat_exps: usize,
    pub vec_exps: usize,
    pub weight_exps: usize,
    /// FP32 bits of the constant table.
    pub constants: Vec<u32>,
}
