//! What one instruction computes.

use super::memory::{Memory, Uncoded};
use crate::config::model::{LayerNormOptimizer, MomentFormat};
use crate::num::adam::{Parameter, adam, sgd};
use crate::num::block;
use crate::num::formats::{bf16_decode, bf16_stochastic};
use crate::num::fp32::{add, div, mul, sqrt, sub};
use crate::num::moments8;
use crate::num::reduce::combine8;
use crate::num::schedule::StepScalars;
use crate::num::threefry::rounding_bits;
use crate::trainer::isa::*;
use crate::trainer::layout::RawParameter;
use crate::trainer::program::Instr;

/// Everything an instruction changes.
#[derive(Default)]
pub(super) struct Effect {
    /// (group, index, value).
    pub activations: Vec<(usize, usize, f32)>,
    pub gradients: Vec<(usize, f32)>,
    pub weights: Vec<(usize, RawParameter)>,
    pub layernorm: Vec<(usize, RawParameter)>,
    /// Moments that wait for their blocks, and whether the blocks are complete with them.
    pub uncoded: Vec<Uncoded>,
    pub blocks_end: bool,
    /// (register, first tile of its tensor, tile maximum).
    pub exponent: Option<(ExpId, bool, u32)>,
    pub scalar: Option<(usize, Vec<f32>)>,
    pub argmax: Option<Vec<usize>>,
    pub logits: Option<Vec<f32>>,
    pub loss_q24: i64,
    pub correct: u32,
    pub error: bool,
    /// Destination values `[lane][step]`, for debugging.
    pub tile: Vec<Vec<u32>>,
}

pub(super) fn compute(
    memory: &Memory,
    instr: &Instr,
    scalars: &StepScalars,
    logit_position: usize,
) -> Result<Effect, String> {
    match instr {
        Instr::Mat(i) => Ok(mat(memory, i)),
        Instr::Vec(i) => Ok(vec(memory, i, logit_position)),
        Instr::Adam(i) => Ok(match i.kind {
            AdamKind::Matrix => adam_matrix(memory, i, scalars),
            AdamKind::LayerNorm => adam_layernorm(memory, i, scalars),
        }),
    }
}

/// Index `address * B + bank` that lane `lane` reads in step `s`.
fn lane_index(b: usize, mode: Mode, st: Stream, s: usize, lane: usize) -> usize {
    let rot = (st.rot + s) % b;
    let bank = (lane + rot) % b;
    let address = match mode {
        Mode::V => st.addr + s,
        Mode::H => st.addr + s / b * st.pitch + (bank + b - rot) % b,
    };
    address * b + bank
}

fn mat(memory: &Memory, i: &MatInstr) -> Effect {
    let b = memory.shape.b;
    let (row_emax, col_emax) = (memory.exponent(i.row_exp), memory.exponent(i.col_exp));
    let mut effect = Effect {
        error: row_emax == 255 || col_emax == 255,
        ..Effect::default()
    };
    let unit = i64::from(block::UNIT);
    let q = |x: f32, emax: u32| i64::from(block::quantise(x, emax.min(254)));
    // Lanes by steps, so that the sum over steps is an inner product of two slices.
    let rows: Vec<Vec<i64>> = (0..i.nr)
        .map(|lane| {
            (0..i.k)
                .map(|s| match i.row_source {
                    RowSource::Ones => unit * i64::from(lane == 0),
                    RowSource::Weights => {
                        let at = lane_index(b, i.row_mode, i.row, s, lane);
                        q(memory.weight(at), row_emax)
                    }
                    RowSource::Act(g) => {
                        let at = lane_index(b, i.row_mode, i.row, s, lane);
                        q(memory.groups[g][at], row_emax)
                    }
                })
                .collect()
        })
        .collect();
    let cols: Vec<Vec<i64>> = (0..i.nc)
        .map(|lane| {
            (0..i.k)
                .map(|s| match i.col_source {
                    ColSource::OneHot => {
                        let hit = match i.col_mode {
                            Mode::V => memory.tokens[i.col.addr * b + lane] == s,
                            Mode::H => memory.tokens[s] == i.col.addr + lane,
                        };
                        unit * i64::from(hit)
                    }
                    ColSource::Act(g) => {
                        let at = lane_index(b, i.col_mode, i.col, s, lane);
                        q(memory.groups[g][at], col_emax)
                    }
                })
                .collect()
        })
        .collect();
    let mut tilemax = 0;
    effect.tile = vec![vec![0; i.nr]; i.nc];
    for (r, row) in rows.iter().enumerate().take(i.nr) {
        for lane in 0..b {
            let mut value = 0.0;
            if let Some(col) = cols.get(lane) {
                let sum: i64 = col.iter().zip(row).map(|(x, y)| x * y).sum();
                value = block::normalise(sum, row_emax, col_emax);
                if let Some(c) = i.scale {
                    value = mul(value, memory.constant(c));
                }
                if i.add_source != AddSource::None {
                    let at = lane_index(b, Mode::V, i.add, r, lane);
                    let addend = match i.add_source {
                        AddSource::Act(g) => memory.groups[g][at],
                        _ => memory.position[at],
                    };
                    value = add(value, addend);
                }
                effect.tile[lane][r] = value.to_bits();
                tilemax = tilemax.max(block::exponent(value));
            }
            let bank = (lane + i.dst.rot + r) % b;
            match i.dest {
                MatDest::Act(g) => {
                    effect
                        .activations
                        .push((g, (i.dst.addr + r) * b + bank, value));
                }
                MatDest::Grad(place) => effect.gradients.push(((place * b + r) * b + bank, value)),
            }
        }
    }
    effect.error |= tilemax == 255;
    effect.exponent = i.dst_exp.map(|n| (ExpId::Mat(n), i.dst_first, tilemax));
    effect
}

fn vec(memory: &Memory, i: &VecInstr, logit_position: usize) -> Effect {
    let b = memory.shape.b;
    let [c1, c2, c3] = [i.c1, i.c2, i.c3].map(|c| memory.constant(c));
    let ln = |index: usize, j: usize| f32::from_bits(memory.layernorm[index + j].w);
    let row = |used: bool, n: usize, lane: usize| {
        if used { memory.scalars[n][lane] } else { 0.0 }
    };
    let minus_inv_t = -memory.constants.inv_t;
    let mut effect = Effect::default();
    let mut tilemax = 0;
    let mut scalar = vec![0.0; b];
    let mut argmax = memory.argmax.clone();
    effect.tile = vec![vec![0; i.n]; i.nc];
    for lane in 0..b {
        let valid_lane = lane < i.nc;
        let token = i.tile * b + lane;
        let s0 = row(i.sub_s0, i.s0, lane);
        let s1 = row(i.mul1 == Mul1::S1, i.s1, lane);
        let s2 = row(i.mul2 == Mul2::S2, i.s2, lane);
        let target = if valid_lane { memory.targets[token] } else { 0 };
        let (mut sums, mut max, mut max_at) = ([0f32; 8], f32::NEG_INFINITY, 0);
        let mut at_target = 0.0;
        for j in 0..i.n {
            let mut z = 0.0;
            if valid_lane {
                let x = memory.groups[i.x.0][lane_index(b, Mode::V, i.x.1, j, lane)];
                let y = i.y.map_or(0.0, |(g, s)| {
                    memory.groups[g][lane_index(b, Mode::V, s, j, lane)]
                });
                let masked = i.mask && j > token;
                let a = if i.sub_s0 { sub(x, s0) } else { x };
                let m1 = match i.mul1 {
                    Mul1::Bypass => a,
                    Mul1::S1 => mul(a, s1),
                    Mul1::Square => mul(a, a),
                    Mul1::Y => mul(a, y),
                    Mul1::Const => mul(a, c1),
                    Mul1::Gamma => mul(a, ln(i.gamma, j)),
                };
                let t = match i.table {
                    _ if masked => 0.0,
                    Table::Bypass => m1,
                    Table::Exp2n => memory.exp2.exp2n(m1),
                    Table::Phi => memory.phi.eval(m1),
                    Table::Dphi => memory.dphi.eval(m1),
                };
                sums[j % 8] = add(sums[j % 8], t);
                if !masked && (x > max || j == 0) {
                    (max, max_at) = (x, j);
                }
                if i.ce_exp && j == target {
                    at_target = a;
                }
                let m2 = match i.mul2 {
                    Mul2::Bypass => t,
                    Mul2::Y => mul(t, y),
                    Mul2::X => mul(t, x),
                    Mul2::S2 => mul(t, s2),
                    Mul2::Const => mul(t, c2),
                    Mul2::Gamma => mul(t, ln(i.gamma, j)),
                };
                z = match i.add {
                    Add::Bypass => m2,
                    Add::Y => add(m2, y),
                    Add::Beta => add(m2, ln(i.beta, j)),
                    Add::CrossEntropy => add(m2, if j == target { minus_inv_t } else { 0.0 }),
                };
                effect.tile[lane][j] = z.to_bits();
            }
            if let Some(d) = i.z {
                tilemax = tilemax.max(block::exponent(z));
                let at = lane_index(b, Mode::V, d.stream, j, lane);
                effect.activations.push((d.group, at, z));
            }
        }
        if !valid_lane {
            continue;
        }
        let acc = match i.reduce {
            Reduce::Max => max,
            _ => combine8(sums),
        };
        let mean = mul(acc, c3);
        scalar[lane] = match i.post {
            Post::None => 0.0,
            Post::Raw => acc,
            Post::Mean => mean,
            Post::NegMean => -mean,
            Post::Rstd => div(1.0, sqrt(add(mean, memory.constants.eps))),
            Post::Recip | Post::CrossEntropy => div(1.0, acc),
        };
        if i.ce_max {
            argmax[lane] = max_at;
        }
        if i.post == Post::CrossEntropy {
            let distance = f64::from((-at_target).min(127.0));
            effect.loss_q24 += memory.ln.ln_fx(acc) + (distance * 16_777_216.0) as i64;
            effect.correct += u32::from(memory.argmax[lane] == target);
        }
    }
    if i.post != Post::None {
        effect.scalar = Some((i.post_row, scalar));
    }
    if i.ce_max {
        effect.argmax = Some(argmax);
        if logit_position / b == i.tile {
            let lane = logit_position % b;
            let logits = (0..i.n)
                .map(|j| memory.groups[i.x.0][lane_index(b, Mode::V, i.x.1, j, lane)])
                .collect();
            effect.logits = Some(logits);
        }
    }
    effect.error = tilemax == 255;
    effect.exponent =
        i.z.and_then(|z| z.exp.map(|n| (ExpId::Vec(n), z.first, tilemax)));
    effect
}

fn adam_matrix(memory: &Memory, i: &AdamInstr, scalars: &StepScalars) -> Effect {
    let b = memory.shape.b;
    let model = &memory.model;
    let wide = model.moment_format == MomentFormat::Fp32;
    let moment = |raw: u32| {
        if wide {
            f32::from_bits(raw)
        } else {
            bf16_decode(raw)
        }
    };
    let narrow = |x: f32, random: u32| {
        if wide {
            x.to_bits()
        } else {
            bf16_stochastic(x, random)
        }
    };
    let mut effect = Effect {
        tile: vec![vec![0; i.nr]; i.nc],
        blocks_end: i.block_ends().1,
        ..Effect::default()
    };
    let mut tilemax = 0;
    let row0 = i.block.map_or(0, |part| part.row0);
    for step in 0..i.nr {
        for bank in 0..b {
            let row = (row0 + bank + b - step % b) % b;
            if row >= i.nc {
                continue;
            }
            let g = memory.grad[(i.place * b + step) * b + bank];
            let at = (i.waddr + step) * b + bank;
            let old = memory.weights[at];
            let scale = i
                .block
                .map(|part| part.scale * b + (row + b - part.block_row0) % b);
            let (m, v) = match scale.map(|at| memory.scales[at]) {
                Some([m_scale, v_scale]) => (
                    moments8::decode_m(old.m as u8 as i8, m_scale),
                    moments8::decode_v(old.v as u8, v_scale),
                ),
                None => (moment(old.m), moment(old.v)),
            };
            let w = model.weight_format.decode(old.w);
            let new = adam(&memory.constants, scalars, Parameter { w, m, v }, g);
            let element = i.element0 + row * i.row_len + step;
            let random =
                rounding_bits(memory.seed(), scalars.step, element as u32, i.tensor as u32);
            let w = model
                .weight_format
                .encode(model.rounding, new.w, random.weight);
            let raw = match scale {
                // The codes wait for the scales of the whole block.
                Some(scale) => {
                    effect.uncoded.push(Uncoded {
                        at,
                        scale,
                        m: new.m,
                        root: sqrt(new.v),
                        random,
                    });
                    RawParameter { w, ..old }
                }
                None => RawParameter {
                    w,
                    m: narrow(new.m, random.m),
                    v: narrow(new.v, random.v),
                },
            };
            tilemax = tilemax.max(block::exponent(model.weight_format.decode(w)));
            effect.tile[row][step] = w;
            effect.error |= block::exponent(g) == 255;
            effect.weights.push((at, raw));
        }
    }
    effect.exponent = Some((ExpId::Weight(i.tensor), i.first, tilemax));
    effect
}

fn adam_layernorm(memory: &Memory, i: &AdamInstr, scalars: &StepScalars) -> Effect {
    let b = memory.shape.b;
    let mut effect = Effect::default();
    for bank in 0..i.nc {
        let g = memory.grad[i.place * b * b + bank];
        let at = i.waddr + bank;
        let old = memory.layernorm[at];
        let raw = match memory.model.layernorm_optimizer {
            LayerNormOptimizer::Sgd => RawParameter {
                w: sgd(scalars, f32::from_bits(old.w), g).to_bits(),
                ..old
            },
            LayerNormOptimizer::Adam => {
                let new = adam(
                    &memory.constants,
                    scalars,
                    Parameter {
                        w: f32::from_bits(old.w),
                        m: f32::from_bits(old.m),
                        v: f32::from_bits(old.v),
                    },
                    g,
                );
                RawParameter {
                    w: new.w.to_bits(),
                    m: new.m.to_bits(),
                    v: new.v.to_bits(),
                }
            }
        };
        effect.tile.push(vec![raw.w]);
        effect.layernorm.push((at, raw));
    }
    effect
}
