//! What the matrix engine does to banked memories, straight from `docs/machine.md` sections 1 and 3.

use crate::config::model::WeightFormat;
use crate::num::{block, fp32};
use crate::trainer::isa::*;

/// Memories and exponents of a machine of B banks.
#[derive(Clone)]
pub struct Machine {
    pub b: usize,
    pub format: WeightFormat,
    /// `acts[group][bank][address]`, FP32 bits.
    pub acts: Vec<Vec<Vec<u32>>>,
    /// `position[bank][address]`.
    pub position: Vec<Vec<u32>>,
    /// `weights[bank][address]`, stored bits.
    pub weights: Vec<Vec<u32>>,
    /// `grads[bank][address]`, both halves.
    pub grads: Vec<Vec<u32>>,
    pub tokens: Vec<usize>,
    /// Numbered by `encode::exp_number`.
    pub exps: Vec<u32>,
    pub constants: Vec<u32>,
    /// An operand or a result was Inf or NaN.
    pub error: bool,
}

impl Machine {
    /// Lane `l` of step `s`: bank and address.
    fn place(&self, mode: Mode, stream: Stream, l: usize, s: usize) -> (usize, usize) {
        let bank = (l + stream.rot + s) % self.b;
        match mode {
            Mode::V => (bank, stream.addr + s),
            // Bank b reads addr + ((b - rot) mod B), and b - rot is the lane.
            Mode::H => (bank, stream.addr + s / self.b * stream.pitch + l),
        }
    }

    fn column(&self, i: &MatInstr, c: usize, s: usize, emax: u32) -> i32 {
        match i.col_source {
            ColSource::Act(g) => {
                let (bank, at) = self.place(i.col_mode, i.col, c, s);
                block::quantise(f32::from_bits(self.acts[g][bank][at]), emax)
            }
            ColSource::OneHot => {
                let hit = match i.col_mode {
                    Mode::V => {
                        let t = i.col.addr * self.b + c;
                        self.tokens.get(t).is_some_and(|token| *token == s)
                    }
                    Mode::H => self.tokens[s] == i.col.addr + c,
                };
                i32::from(hit) * block::UNIT
            }
        }
    }

    fn row(&self, i: &MatInstr, r: usize, s: usize, emax: u32) -> i32 {
        let (bank, at) = self.place(i.row_mode, i.row, r, s);
        match i.row_source {
            RowSource::Weights => block::quantise(self.format.decode(self.weights[bank][at]), emax),
            RowSource::Act(g) => block::quantise(f32::from_bits(self.acts[g][bank][at]), emax),
            RowSource::Ones => block::UNIT,
        }
    }

    /// Executes one instruction; `row_exp` and `col_exp` are numbers of exponent registers.
    /// Returns the tile's largest exponent.
    pub fn execute(&mut self, i: &MatInstr, row_exp: usize, col_exp: usize) -> u32 {
        let (er, ec) = (self.exps[row_exp], self.exps[col_exp]);
        self.error |= er == 255 || ec == 255;
        let mut largest = 0;
        for r in 0..i.nr {
            let mut lanes = vec![0u32; self.b];
            for (c, lane) in lanes.iter_mut().enumerate().take(i.nc) {
                let sum: i64 = (0..i.k)
                    .map(|s| i64::from(self.column(i, c, s, ec)) * i64::from(self.row(i, r, s, er)))
                    .sum();
                let mut y = block::normalise(sum, er, ec);
                if let Some(n) = i.scale {
                    y = fp32::mul(y, f32::from_bits(self.constants[n]));
                }
                let bank = (c + i.add.rot + r) % self.b;
                let addend = match i.add_source {
                    AddSource::None => None,
                    AddSource::Act(g) => Some(self.acts[g][bank][i.add.addr + r]),
                    AddSource::Position => Some(self.position[bank][i.add.addr + r]),
                };
                if let Some(bits) = addend {
                    y = fp32::add(y, f32::from_bits(bits));
                }
                *lane = y.to_bits();
                largest = largest.max(block::exponent(y));
            }
            for (c, lane) in lanes.iter().enumerate() {
                let bank = (c + i.dst.rot + r) % self.b;
                match i.dest {
                    MatDest::Act(g) => self.acts[g][bank][i.dst.addr + r] = *lane,
                    MatDest::Grad(place) => self.grads[bank][place * self.b + r] = *lane,
                }
            }
        }
        self.error |= largest == 255;
        if let Some(n) = i.dst_exp {
            let exp = &mut self.exps[1 + n];
            *exp = if i.dst_first {
                largest
            } else {
                largest.max(*exp)
            };
        }
        largest
    }
}
