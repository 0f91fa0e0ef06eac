//! Every memory of the machine, as banks.

use super::exec::Effect;
use crate::config::model::ModelConfig;
use crate::num::block;
use crate::num::constants::Constants;
use crate::num::fp32;
use crate::num::schedule::{Schedule, StepScalars};
use crate::num::tables::{Exp2Table, LnTable, OddTable};
use crate::trainer::isa::*;
use crate::trainer::layout::*;

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
        TrainerState {
            tensors,
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
