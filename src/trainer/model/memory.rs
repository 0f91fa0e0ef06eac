//! Every memory of the machine, as banks.

use super::exec::Effect;
use crate::config::model::ModelConfig;
use crate::num::block;
use crate::num::constants::Constants;
use crate::num::fp32;
use crate::num::moments8;
use crate::num::schedule::{Schedule, StepScalars};
use crate::num::tables::{Exp2Table, LnTable, OddTable};
use crate::num::threefry::RoundingBits;
use crate::trainer::isa::*;
use crate::trainer::layout::*;

/// New moments of an element of a block that has no scales yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uncoded {
    /// Index of the weight, and of the block's scales.
    pub at: usize,
    pub scale: usize,
    pub m: f32,
    pub root: f32,
    pub random: RoundingBits,
}

/// The machine's memories. Banked ones are indexed `address * B + bank`.
pub struct Memory {
    pub model: ModelConfig,
    pub shape: Shape,
    pub layout: WeightLayout,
    pub constants: Constants,
    pub(super) exp2: Exp2Table,
    pub(super) phi: OddTable,
    pub(super) dphi: OddTable,
    pub(super) ln: LnTable,
    /// Activation groups.
    pub groups: Vec<Vec<f32>>,
    pub position: Vec<f32>,
    /// Raw weights and moments.
    pub weights: Vec<RawParameter>,
    pub layernorm: Vec<RawParameter>,
    /// Scales [sm, sv] of moment blocks.
    pub scales: Vec<[f32; 2]>,
    /// Moments of the blocks whose last part is still to come.
    pending: Vec<Uncoded>,
    /// Gradient tiles, `(place * B + step) * B + bank`.
    pub grad: Vec<f32>,
    /// Scalar file, rows of B lanes.
    pub scalars: Vec<Vec<f32>>,
    pub mat_exp: Vec<u32>,
    pub vec_exp: Vec<u32>,
    pub weight_exp: Vec<u32>,
    pub tokens: Vec<usize>,
    pub targets: Vec<usize>,
    /// Per lane: first index of the maximum, of the latest maximum pass of the loss.
    pub argmax: Vec<usize>,
    pub loss_q24: i64,
    pub correct: u32,
    pub logits: Vec<f32>,
    /// An Inf or NaN has been met.
    pub error: bool,
    pub schedule: Schedule,
    seed: u32,
}

impl Memory {
    pub(super) fn new(model: &ModelConfig, shape: &Shape, layout: &WeightLayout) -> Self {
        let b = shape.b;
        let banks = position_banks(model, b);
        let words = banks[0].len();
        let position = (0..words * b)
            .map(|n| f32::from_bits(banks[n % b][n / b]))
            .collect();
        Self {
            model: model.clone(),
            shape: shape.clone(),
            layout: layout.clone(),
            constants: Constants::new(model),
            exp2: Exp2Table::new(),
            phi: OddTable::phi(model.gelu),
            dphi: OddTable::dphi(model.gelu),
            ln: LnTable::new(),
            groups: shape
                .group_depth
                .iter()
                .map(|&d| vec![0.0; d * b])
                .collect(),
            position,
            weights: vec![RawParameter::default(); layout.depth * b],
            layernorm: vec![RawParameter::default(); model.layernorm_parameters()],
            scales: vec![[0.0; 2]; layout.scale_words() * b],
            pending: vec![],
            grad: vec![0.0; shape.gradient_tiles * b * b],
            scalars: vec![vec![0.0; b]; shape.scalar_rows],
            mat_exp: vec![0; shape.mat_exps],
            vec_exp: vec![0; shape.vec_exps],
            weight_exp: vec![0; shape.weight_exps],
            tokens: vec![],
            targets: vec![],
            argmax: vec![0; b],
            loss_q24: 0,
            correct: 0,
            logits: vec![0.0; model.vocab],
            error: false,
            schedule: Schedule::default(),
            seed: model.seed,
        }
    }

    /// WeightWrite: replaces the whole state and finds every weight tensor's emax.
    pub(super) fn load(&mut self, state: &TrainerState) {
        for (t, tensor) in state.tensors.iter().enumerate() {
            let mut emax = 0;
            for (e, &p) in tensor.iter().enumerate() {
                let (bank, address) = self.layout.place(t, e);
                self.weights[address * self.shape.b + bank] = p;
                emax = emax.max(block::exponent(self.model.weight_format.decode(p.w)));
            }
            self.weight_exp[t] = emax;
            if let Some(scales) = &self.layout.scales {
                for (k, s) in state.scales[t].iter().enumerate() {
                    let b = self.shape.b;
                    let (bank, address) = scales.place(b, t, &self.layout.tensors[t], k);
                    self.scales[address * b + bank] = s.map(f32::from_bits);
                }
            }
        }
        self.layernorm.clone_from(&state.layernorm);
        self.schedule = Schedule {
            step: state.step,
            p1: f32::from_bits(state.p1),
            p2: f32::from_bits(state.p2),
        };
        self.seed = state.seed;
    }

    /// WeightRead.
    pub(super) fn state(&self) -> TrainerState {
        let tensors = self
            .layout
            .tensors
            .iter()
            .enumerate()
            .map(|(t, m)| {
                (0..m.rows * m.cols)
                    .map(|e| {
                        let (bank, address) = self.layout.place(t, e);
                        self.weights[address * self.shape.b + bank]
                    })
                    .collect()
            })
            .collect();
        let mut scales = no_scales(&self.layout);
        if let Some(places) = &self.layout.scales {
            for (t, blocks) in scales.iter_mut().enumerate() {
                for (k, s) in blocks.iter_mut().enumerate() {
                    let b = self.shape.b;
                    let (bank, address) = places.place(b, t, &self.layout.tensors[t], k);
                    *s = self.scales[address * b + bank].map(f32::to_bits);
                }
            }
        }
        TrainerState {
            tensors,
            scales,
            layernorm: self.layernorm.clone(),
            step: self.schedule.step,
            p1: self.schedule.p1.to_bits(),
            p2: self.schedule.p2.to_bits(),
            seed: self.seed,
        }
    }

    pub fn seed(&self) -> u32 {
        self.seed
    }

    pub(super) fn begin(&mut self, tokens: &[usize], targets: &[usize]) {
        self.tokens = tokens.to_vec();
        self.targets = targets.to_vec();
        self.loss_q24 = 0;
        self.correct = 0;
        self.error = false;
    }

    /// Scalars of the next step; `train` also moves the schedule on.
    pub(super) fn advance(&mut self, train: bool) -> StepScalars {
        let mut schedule = self.schedule;
        let scalars = schedule.advance(&self.constants);
        if train {
            self.schedule = schedule;
        }
        scalars
    }

    pub(super) fn exponent(&self, id: ExpId) -> u32 {
        match id {
            ExpId::One => block::UNIT_EMAX,
            ExpId::Mat(n) => self.mat_exp[n],
            ExpId::Vec(n) => self.vec_exp[n],
            ExpId::Weight(n) => self.weight_exp[n],
        }
    }

    /// Constant `n` of the table.
    pub(super) fn constant(&self, n: usize) -> f32 {
        f32::from_bits(self.shape.constants[n])
    }

    /// Element values of an activation matrix at `placement` (group, matrix with its base), row-major.
    pub fn dump(&self, group: usize, matrix: &Matrix) -> Vec<f32> {
        let b = self.shape.b;
        (0..matrix.rows * matrix.cols)
            .map(|n| {
                let (bank, address) = matrix.place(b, n / matrix.cols, n % matrix.cols);
                self.groups[group][address * b + bank]
            })
            .collect()
    }

    /// Scales and codes of whole moment blocks (`docs/arithmetic.md` section 6).
    fn encode_blocks(&mut self, elements: &[Uncoded]) {
        let mut largest = std::collections::BTreeMap::<usize, [f32; 2]>::new();
        for e in elements {
            let of_row = largest.entry(e.scale).or_default();
            *of_row = [of_row[0].max(e.m.abs()), of_row[1].max(e.root)];
        }
        for e in elements {
            let [m, root] = largest[&e.scale];
            let (m_scale, m_reciprocal) = moments8::scale(m, moments8::M_MAX);
            let (v_scale, v_reciprocal) = moments8::scale(root, moments8::V_MAX);
            self.scales[e.scale] = [m_scale, v_scale];
            let p = &mut self.weights[e.at];
            let code = moments8::encode_m(e.m, m_reciprocal, e.random.m);
            p.m = u32::from(code as u8);
            p.v = u32::from(moments8::encode_v(e.root, v_reciprocal, e.random.v));
        }
    }

    pub(super) fn apply(&mut self, effect: Effect) {
        let raise = |old: &mut u32, first: bool, value: u32| {
            *old = if first { value } else { (*old).max(value) };
        };
        for (group, at, x) in effect.activations {
            self.groups[group][at] = x;
        }
        for (at, x) in effect.gradients {
            self.grad[at] = x;
        }
        for (at, p) in effect.weights {
            self.weights[at] = p;
        }
        self.pending.extend(effect.uncoded);
        if effect.blocks_end {
            let done = std::mem::take(&mut self.pending);
            self.encode_blocks(&done);
        }
        for (at, p) in effect.layernorm {
            self.layernorm[at] = p;
        }
        if let Some((id, first, value)) = effect.exponent {
            match id {
                ExpId::One => {}
                ExpId::Mat(n) => raise(&mut self.mat_exp[n], first, value),
                ExpId::Vec(n) => raise(&mut self.vec_exp[n], first, value),
                ExpId::Weight(n) => raise(&mut self.weight_exp[n], first, value),
            }
        }
        if let Some((row, lanes)) = effect.scalar {
            self.scalars[row] = lanes;
        }
        if let Some(argmax) = effect.argmax {
            self.argmax = argmax;
        }
        if let Some(logits) = effect.logits {
            self.logits = logits;
        }
        self.loss_q24 += effect.loss_q24;
        self.correct += effect.correct;
        self.error |= effect.error;
    }

    /// Value read from a gradient tile or activation is canonical; weights decode by format.
    pub(super) fn weight(&self, at: usize) -> f32 {
        fp32::ftz(self.model.weight_format.decode(self.weights[at].w))
    }
}
