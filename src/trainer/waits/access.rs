//! What an instruction touches: address ranges of every shared memory, and memory ports.

use crate::trainer::isa::*;
use crate::trainer::program::Instr;

/// A memory that more than one instruction uses. Addresses are words of each bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    Group(usize),
    Weights,
    /// Exponent registers by number.
    MatExp,
    VecExp,
    WeightExp,
    /// Places of gradient tiles.
    Grad,
    LayerNorm,
    /// Rows of the scalar file.
    Scalar,
    /// Maximum index and target logit of the token tile in hand.
    Loss,
}

/// A range of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub region: Region,
    pub start: usize,
    pub len: usize,
    pub write: bool,
}

fn read(region: Region, start: usize, len: usize) -> Access {
    Access {
        region,
        start,
        len,
        write: false,
    }
}

fn write(region: Region, start: usize, len: usize) -> Access {
    Access {
        write: true,
        ..read(region, start, len)
    }
}

/// Addresses that hold what a stream of `k` steps and `lanes` used lanes reads.
fn stream(list: &mut Vec<Access>, region: Region, mode: Mode, s: Stream, k: usize, used: Used) {
    match mode {
        Mode::V => list.push(read(region, s.addr, k)),
        Mode::H => list.extend(
            (0..k.div_ceil(used.b)).map(|n| read(region, s.addr + n * s.pitch, used.lanes)),
        ),
    }
}

#[derive(Clone, Copy)]
struct Used {
    b: usize,
    lanes: usize,
}

fn exponent(list: &mut Vec<Access>, id: ExpId) {
    match id {
        ExpId::One => {}
        ExpId::Mat(n) => list.push(read(Region::MatExp, n, 1)),
        ExpId::Vec(n) => list.push(read(Region::VecExp, n, 1)),
        ExpId::Weight(n) => list.push(read(Region::WeightExp, n, 1)),
    }
}

/// Every access of an instruction on an array of `b` rows.
pub fn accesses(instr: &Instr, b: usize) -> Vec<Access> {
    let mut list = Vec::with_capacity(12);
    match instr {
        Instr::Mat(i) => mat(i, b, &mut list),
        Instr::Vec(i) => vec(i, &mut list),
        Instr::Adam(i) => adam(i, &mut list),
    }
    list
}

fn mat(i: &MatInstr, b: usize, list: &mut Vec<Access>) {
    let used = Used { b, lanes: i.nr };
    match i.row_source {
        RowSource::Weights => stream(list, Region::Weights, i.row_mode, i.row, i.k, used),
        RowSource::Act(g) => stream(list, Region::Group(g), i.row_mode, i.row, i.k, used),
        RowSource::Ones => {}
    }
    if let ColSource::Act(g) = i.col_source {
        let used = Used { b, lanes: i.nc };
        stream(list, Region::Group(g), i.col_mode, i.col, i.k, used);
    }
    exponent(list, i.row_exp);
    exponent(list, i.col_exp);
    if let AddSource::Act(g) = i.add_source {
        list.push(read(Region::Group(g), i.add.addr, i.nr));
    }
    list.push(match i.dest {
        MatDest::Act(g) => write(Region::Group(g), i.dst.addr, i.nr),
        MatDest::Grad(place) => write(Region::Grad, place, 1),
    });
    if let Some(n) = i.dst_exp {
        list.push(write(Region::MatExp, n, 1));
    }
}

fn vec(i: &VecInstr, list: &mut Vec<Access>) {
    list.push(read(Region::Group(i.x.0), i.x.1.addr, i.n));
    if let Some((g, s)) = i.y {
        list.push(read(Region::Group(g), s.addr, i.n));
    }
    if let Some(z) = i.z {
        list.push(write(Region::Group(z.group), z.stream.addr, i.n));
        if let Some(n) = z.exp {
            list.push(write(Region::VecExp, n, 1));
        }
    }
    let gamma = i.mul1 == Mul1::Gamma || i.mul2 == Mul2::Gamma;
    for (used, index) in [(gamma, i.gamma), (i.add == Add::Beta, i.beta)] {
        if used {
            list.push(read(Region::LayerNorm, index, i.n));
        }
    }
    for (used, row) in [
        (i.sub_s0, i.s0),
        (i.mul1 == Mul1::S1, i.s1),
        (i.mul2 == Mul2::S2, i.s2),
    ] {
        if used {
            list.push(read(Region::Scalar, row, 1));
        }
    }
    if i.post != Post::None {
        list.push(write(Region::Scalar, i.post_row, 1));
    }
    // One set of registers: the next tile's maximum pass must wait until the loss of this tile is booked.
    if i.ce_max || i.ce_exp {
        list.extend([read(Region::Loss, 0, 1), write(Region::Loss, 0, 1)]);
    }
}

fn adam(i: &AdamInstr, list: &mut Vec<Access>) {
    list.push(read(Region::Grad, i.place, 1));
    match i.kind {
        AdamKind::Matrix => {
            list.push(write(Region::Weights, i.waddr, i.nr));
            list.push(write(Region::WeightExp, i.tensor, 1));
        }
        AdamKind::LayerNorm => list.push(write(Region::LayerNorm, i.waddr, i.nc)),
    }
}

/// Groups whose read or write port an instruction occupies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    pub read: Vec<usize>,
    pub write: Vec<usize>,
}

pub fn ports(instr: &Instr) -> Ports {
    let mut ports = Ports::default();
    match instr {
        Instr::Mat(i) => {
            ports.read.extend(operand_groups(i));
            if let AddSource::Act(g) = i.add_source {
                ports.read.push(g);
            }
            if let MatDest::Act(g) = i.dest {
                ports.write.push(g);
            }
        }
        Instr::Vec(i) => {
            ports.read.push(i.x.0);
            ports.read.extend(i.y.map(|y| y.0));
            ports.write.extend(i.z.map(|z| z.group));
        }
        Instr::Adam(_) => {}
    }
    ports
}

/// Groups that the rows and columns of a tile stream from.
pub fn operand_groups(i: &MatInstr) -> impl Iterator<Item = usize> {
    let row = match i.row_source {
        RowSource::Act(g) => Some(g),
        _ => None,
    };
    let col = match i.col_source {
        ColSource::Act(g) => Some(g),
        _ => None,
    };
    row.into_iter().chain(col)
}

/// All regions laid end to end, for per-address tables.
pub struct Space {
    pub b: usize,
    groups: Vec<usize>,
    /// Start of weights, mat, vec and weight exponents, gradient places, LayerNorm, scalars, loss registers; then the length.
    rest: [usize; 9],
}

impl Space {
    pub fn new(shape: &Shape) -> Self {
        let mut at = 0;
        let mut next = |len: usize| {
            let start = at;
            at += len;
            start
        };
        let groups = shape.group_depth.iter().map(|&d| next(d)).collect();
        let rest = [
            next(shape.weight_depth),
            next(shape.mat_exps),
            next(shape.vec_exps),
            next(shape.weight_exps),
            next(shape.gradient_tiles),
            next(shape.layernorm_words),
            next(shape.scalar_rows),
            next(1),
            next(0),
        ];
        Self {
            b: shape.b,
            groups,
            rest,
        }
    }

    pub fn len(&self) -> usize {
        self.rest[8]
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn range(&self, a: &Access) -> std::ops::Range<usize> {
        let start = match a.region {
            Region::Group(g) => self.groups[g],
            Region::Weights => self.rest[0],
            Region::MatExp => self.rest[1],
            Region::VecExp => self.rest[2],
            Region::WeightExp => self.rest[3],
            Region::Grad => self.rest[4],
            Region::LayerNorm => self.rest[5],
            Region::Scalar => self.rest[6],
            Region::Loss => self.rest[7],
        } + a.start;
        start..start + a.len
    }
}
