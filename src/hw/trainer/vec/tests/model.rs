//! What the vector unit does to the memories, straight from `docs/machine.md` section 4.

use crate::config::model::Gelu;
use crate::num::fp32::{add, div, mul, sqrt, sub};
use crate::num::reduce::sum8;
use crate::num::tables::{Exp2Table, LnTable, OddTable};
use crate::trainer::isa::*;

/// Memories that the vector unit reads and writes, and its results.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub b: usize,
    /// Words `addr * B + bank` of each group.
    pub groups: Vec<Vec<f32>>,
    /// Scalar rows of B lanes; `None` where nothing valid was written.
    pub scalars: Vec<Vec<Option<f32>>>,
    pub exps: Vec<u32>,
    /// LayerNorm parameters.
    pub params: Vec<f32>,
    pub targets: Vec<usize>,
    pub logit_position: usize,
    pub logits: Vec<f32>,
    pub loss_q24: i64,
    pub correct: u32,
}

/// Tables and constants.
pub struct Machine {
    pub constants: Vec<f32>,
    pub eps: f32,
    pub inv_t: f32,
    exp2: Exp2Table,
    phi: OddTable,
    dphi: OddTable,
    ln: LnTable,
}

/// Index of the word that `lane` touches in step `j`.
pub fn place(b: usize, s: Stream, j: usize, lane: usize) -> usize {
    (s.addr + j) * b + (lane + s.rot + j) % b
}

impl Machine {
    pub fn new(gelu: Gelu, constants: &[f32], eps: f32, inv_t: f32) -> Self {
        Machine {
            constants: constants.to_vec(),
            eps,
            inv_t,
            exp2: Exp2Table::new(),
            phi: OddTable::phi(gelu),
            dphi: OddTable::dphi(gelu),
            ln: LnTable::new(),
        }
    }

    /// Executes one instruction.
    pub fn run(&self, s: &mut State, i: &VecInstr) {
        let b = s.b;
        let before = s.clone();
        if let Some(z) = &i.z {
            for j in 0..i.n {
                for lane in i.nc..b {
                    s.groups[z.group][place(b, z.stream, j, lane)] = 0.0;
                }
            }
        }
        let mut emax = 0;
        for lane in 0..i.nc {
            let token = i.tile * b + lane;
            let at = |group: usize, stream, j| before.groups[group][place(b, stream, j, lane)];
            let scalar = |row: usize| before.scalars[row][lane].unwrap_or(0.0);
            let target = before.targets[token];
            let mut sum_terms = vec![];
            let mut best: Option<(f32, usize)> = None;
            let mut distance = 0.0;
            for j in 0..i.n {
                let x = at(i.x.0, i.x.1, j);
                let y = i.y.map_or(0.0, |(g, st)| at(g, st, j));
                let a = if i.sub_s0 { sub(x, scalar(i.s0)) } else { x };
                let m1 = match i.mul1 {
                    Mul1::Bypass => a,
                    Mul1::S1 => mul(a, scalar(i.s1)),
                    Mul1::Square => mul(a, a),
                    Mul1::Y => mul(a, y),
                    Mul1::Const => mul(a, self.constants[i.c1]),
                    Mul1::Gamma => mul(a, before.params[i.gamma + j]),
                };
                let masked = i.mask && j > token;
                let t = match i.table {
                    _ if masked => 0.0,
                    Table::Bypass => m1,
                    Table::Exp2n => self.exp2.exp2n(m1),
                    Table::Phi => self.phi.eval(m1),
                    Table::Dphi => self.dphi.eval(m1),
                };
                let m2 = match i.mul2 {
                    Mul2::Bypass => t,
                    Mul2::Y => mul(t, y),
                    Mul2::X => mul(t, x),
                    Mul2::S2 => mul(t, scalar(i.s2)),
                    Mul2::Const => mul(t, self.constants[i.c2]),
                    Mul2::Gamma => mul(t, before.params[i.gamma + j]),
                };
                let z = match i.add {
                    Add::Bypass => m2,
                    Add::Y => add(m2, y),
                    Add::Beta => add(m2, before.params[i.beta + j]),
                    Add::CrossEntropy if j == target => add(m2, -self.inv_t),
                    Add::CrossEntropy => add(m2, 0.0),
                };
                sum_terms.push(t);
                if !masked && best.is_none_or(|(m, _)| x > m) {
                    // Both zeros count as +0.
                    best = Some((x + 0.0, j));
                }
                if j == target {
                    distance = a;
                }
                if i.ce_max && token == s.logit_position {
                    s.logits[j] = x;
                }
                if let Some(d) = &i.z {
                    s.groups[d.group][place(b, d.stream, j, lane)] = z;
                    emax = emax.max(z.to_bits() >> 23 & 255);
                }
            }
            let (max, max_at) = best.unwrap_or((0.0, 0));
            let acc = match i.reduce {
                Reduce::Max => max,
                _ => sum8(sum_terms),
            };
            s.correct += u32::from(i.ce_max && max_at == target);
            let mean = mul(acc, self.constants[i.c3]);
            let value = match i.post {
                Post::None => continue,
                Post::Raw => acc,
                Post::Mean => mean,
                Post::NegMean => -mean,
                Post::Rstd => div(1.0, sqrt(add(mean, self.eps))),
                Post::Recip | Post::CrossEntropy => div(1.0, acc),
            };
            s.scalars[i.post_row][lane] = Some(value);
            if i.post == Post::CrossEntropy {
                let q24 = (f64::from((-distance).min(127.0)) * 16_777_216.0) as i64;
                s.loss_q24 += self.ln.ln_fx(acc) + q24;
            }
        }
        if let Some(VecDest {
            exp: Some(id),
            first,
            ..
        }) = i.z
        {
            let old = if first { 0 } else { s.exps[id] };
            s.exps[id] = old.max(emax);
        }
    }
}
