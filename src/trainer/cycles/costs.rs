//! Latencies of the three engines, derived from the stages of their pipelines.

use crate::trainer::encode::bits_for;
use crate::trainer::isa::*;

/// Latencies of the shared units, in cycles.
mod unit {
    pub const READ: u64 = 4;
    pub const ADD: u64 = 6;
    pub const MUL: u64 = 4;
    pub const DIV: u64 = 14;
    pub const SQRT: u64 = 14;
    pub const TABLE: u64 = 13;
    /// Address, aligner, operand register, multiply-accumulate cell.
    pub const MAT_FRONT: u64 = 2 + READ + 3 + 1 + 3;
    /// Segment, normaliser, scale, addend, mask.
    pub const EPILOGUE: u64 = 1 + 5 + MUL + ADD + 1;
    /// Vector lane: to the first difference, second product, and out.
    pub const AT_A: u64 = ADD;
    pub const AT_M2: u64 = AT_A + 1 + MUL + TABLE + 1 + MUL;
    pub const AT_Z: u64 = AT_M2 + 1 + ADD + 1;
    /// Combination of the eight partial sums.
    pub const FOLD: u64 = 23 + 1 + ADD;
    /// First result of the scalar unit, without the selection of the lane.
    pub const SCALAR: u64 = 1 + MUL + ADD + SQRT + 1 + DIV + 1;
    pub const PARTIALS: u64 = 8;
    /// Least distance of two passes: s0, s1 and s2 share one read port.
    pub const SPACING: u64 = AT_A + 1 + MUL + TABLE + 1;
    /// Adam: operands, then the longest path to the weight.
    pub const ADAM: u64 = 4 + 3 * MUL + 3 * ADD + SQRT + DIV + 1;
    /// Adam: codes of 8-bit blocks to moments.
    pub const DECODE: u64 = 1 + MUL;
}

/// Everything that the cycle model knows of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    pub b: u64,
    /// Weight banks of each Adam lane.
    pub q: u64,
    pub adam_lanes: u64,
    /// Gradient tiles that the Adam unit holds.
    pub gradient_tiles: usize,
    /// Moments in 8-bit blocks.
    pub blocks: bool,
    /// First start after the sample's begin.
    pub sample_start: u64,
    /// Least distance of two starts of an engine.
    pub start_interval: u64,
    /// From a retirement to the start of an instruction that waits for it.
    pub retire_to_start: u64,
}

impl Costs {
    pub fn new(b: usize, adam_lanes: usize, gradient_tiles: usize) -> Self {
        Self {
            b: b as u64,
            q: (b / adam_lanes) as u64,
            adam_lanes: adam_lanes as u64,
            gradient_tiles,
            blocks: false,
            sample_start: 4,
            start_interval: 2,
            retire_to_start: 2,
        }
    }

    /// The same with moments in 8-bit blocks, or without.
    pub fn with_blocks(self, blocks: bool) -> Self {
        Self { blocks, ..self }
    }

    /// Stages of a rotator: radix 4.
    fn turn(&self) -> u64 {
        u64::from(bits_for(self.b as usize - 1).div_ceil(2))
    }

    /// Stages of the exponent maximum over B lanes, two levels each.
    fn maximum(&self) -> u64 {
        u64::from(bits_for(self.b as usize - 1).div_ceil(2))
    }

    /// (start to ready, start to retire) of an instruction of mat or vec.
    pub fn of(&self, instr: &crate::trainer::program::Instr) -> (u64, u64) {
        use crate::trainer::program::Instr;
        match instr {
            Instr::Mat(i) => self.mat(i, None),
            Instr::Vec(i) => self.vec(i),
            Instr::Adam(i) => {
                let steps = self.adam_steps(i);
                (steps, steps + self.adam_latency())
            }
        }
    }

    /// (start to ready, start to retire) of a product tile before the tile `next`.
    pub fn mat(&self, i: &MatInstr, next: Option<&MatInstr>) -> (u64, u64) {
        let slots = (i.k + i.tail(self.b as usize, next)) as u64;
        let rows = (i.k + i.nr - 1) as u64;
        let result = unit::MAT_FRONT + self.turn() + unit::EPILOGUE;
        let tail = (result + self.turn()).max(result + self.maximum() + 1) + 1;
        (slots, rows + tail)
    }

    /// (start to ready, start to retire) of a vector pass.
    pub fn vec(&self, i: &VecInstr) -> (u64, u64) {
        let n = i.n as u64;
        let lanes = unit::READ + self.turn();
        if i.reduce == Reduce::None {
            let z = lanes + unit::AT_Z;
            let tail = (z + self.turn()).max(z + self.maximum() + 1) + 1;
            return (n.max(unit::SPACING), n + tail);
        }
        let slots = n.max(unit::PARTIALS);
        let pause = if i.ce_exp {
            unit::AT_M2 - unit::AT_A + unit::FOLD + self.b + 6
        } else {
            (unit::FOLD + 6).max(self.b)
        };
        let go = lanes + unit::AT_M2 - 2 + unit::FOLD + 4;
        (
            slots + pause,
            slots + i.nc as u64 + go + self.turn() + unit::SCALAR,
        )
    }

    /// Cycles that an Adam tile occupies the lanes.
    pub fn adam_steps(&self, i: &AdamInstr) -> u64 {
        match i.kind {
            AdamKind::Matrix => i.nr as u64 * self.q,
            AdamKind::LayerNorm => i.nc as u64,
        }
    }

    /// From the last step of a tile to its retirement.
    pub fn adam_latency(&self) -> u64 {
        let path = unit::ADAM + if self.blocks { unit::DECODE } else { 0 };
        let path = path + u64::from(path.is_multiple_of(self.q));
        path + u64::from(bits_for(self.adam_lanes as usize - 1)) + 3
    }

    /// First cycle of an Adam tile's steps when it may load in cycle `at` at the earliest: matrix tiles begin in
    /// phase 0 of a count of Q that runs from the sample's begin.
    pub fn adam_begin(&self, i: &AdamInstr, at: u64) -> u64 {
        match i.kind {
            AdamKind::Matrix => at.next_multiple_of(self.q),
            AdamKind::LayerNorm => at,
        }
    }
}
