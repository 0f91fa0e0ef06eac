//! Builds the whole machine from the planner's sizes and programs.

use super::System;
use super::bus::{BusParts, transformer_bus};
use super::layer::{Engines, Reach, attention_layer};
use super::top::trainer_top;
use crate::config::model::ModelConfig;
use crate::dsl::{Design, DesignError, DslError, MemStyle};
use crate::hw::axi::registers::RegisterMap;
use crate::hw::axi::result::result_output;
use crate::hw::axi::token::TokenInput;
use crate::hw::trainer::adam::config::{AdamConfig, AdamConfigError};
use crate::hw::trainer::adam::unit::adam_unit;
use crate::hw::trainer::mat::{MatConfig, Scale, attention_core};
use crate::hw::trainer::schedule::schedule_unit;
use crate::hw::trainer::vec::{VectorSpec, vector_unit};
use crate::num::constants::Constants;
use crate::trainer::encode::{encode_adam, encode_mat, encode_vec};
use crate::trainer::isa::{Program, Shape};

/// Why a machine could not be built. Each is a fault of the plan, not of the user's model.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    Netlist(#[from] DslError),
    #[error(transparent)]
    Design(#[from] DesignError),
    #[error(transparent)]
    Adam(#[from] AdamConfigError),
}

/// What the netlist of one machine is made from.
pub struct MachineSpec<'a> {
    pub model: &'a ModelConfig,
    pub shape: &'a Shape,
    pub program: &'a Program,
    /// First weight address of each weight tensor.
    pub tensor_bases: Vec<usize>,
    /// Words of each bank of the position ROM.
    pub position: Vec<Vec<u32>>,
    /// Banks of the position ROM in block RAM; the others are LUT ROMs.
    pub position_blocks: usize,
    /// Words of each bank of the scale memory, 0 without 8-bit blocks.
    pub scale_words: usize,
    /// Memory of the gradient tiles: block or distributed.
    pub gradient_style: MemStyle,
    /// Memory of the moments.
    pub moment_style: MemStyle,
    /// The hardware's registers, and the values of those that never change.
    pub registers: &'a RegisterMap,
    pub register_constants: &'a [(String, u32)],
}

/// How the epilogue scales: halvings when the program's scales are one power of two, none included.
fn scale_kind(shape: &Shape, program: &Program) -> Scale {
    let mut halvings = program.mat.iter().filter_map(|i| i.scale).map(|n| {
        let bits = shape.constants[n];
        let exponent = bits >> 23;
        // Exactly 2^-p, p = 0..=30.
        (bits & 0x7f_ffff == 0 && (97..=127).contains(&exponent)).then(|| 127 - exponent)
    });
    let first = halvings.next().unwrap_or(Some(0));
    match (first, halvings.all(|h| h == first)) {
        (Some(p), true) => Scale::Halvings(p),
        _ => Scale::Multiplier,
    }
}

/// The complete design, top module `nf_trainer`.
pub fn build_machine(spec: &MachineSpec<'_>) -> Result<Design, MachineError> {
    let MachineSpec {
        model,
        shape,
        program,
        ..
    } = spec;
    let constants = Constants::new(model);
    let system = System {
        shape: (*shape).clone(),
        mat: encode_mat(shape, &program.mat),
        vec: encode_vec(&program.vec),
        adam: encode_adam(&program.adam),
        reach: Reach::of(program),
        position: spec.position.clone(),
        position_blocks: spec.position_blocks,
    };
    let mat = attention_core(&MatConfig {
        shape,
        layout: &system.mat.layout,
        format: model.weight_format,
        tokens: model.seq_len,
        vocab: model.vocab,
        scale: scale_kind(shape, program),
    })?;
    let vec = vector_unit(
        &VectorSpec::new(
            shape,
            model.gelu,
            model.seq_len,
            model.vocab,
            constants.eps,
            constants.inv_t,
        ),
        &system.vec.layout,
    )?;
    let adam = adam_unit(&AdamConfig {
        banks: shape.b,
        lanes: shape.adam_lanes,
        weight_depth: shape.weight_depth,
        scale_words: spec.scale_words,
        layernorm_words: shape.layernorm_words,
        tensor_bases: spec.tensor_bases.clone(),
        weights: model.weight_format,
        moments: model.moment_format,
        rounding: model.rounding,
        layernorm_optimizer: model.layernorm_optimizer,
        gradient_tiles: shape.gradient_tiles,
        gradient_style: spec.gradient_style,
        moment_style: spec.moment_style,
        layout: system.adam.layout.clone(),
    })?;
    let layer = attention_layer(&system, &Engines { mat, vec, adam })?;
    let bits = f32::to_bits;
    let bus = transformer_bus(&BusParts {
        layer,
        tokens: TokenInput {
            vocab: model.vocab,
            seq_len: model.seq_len,
            lanes: shape.b,
        }
        .build()?,
        schedule: schedule_unit()?,
        result: result_output(model.vocab)?,
        seed: model.seed,
        constants: vec![
            ("beta1", bits(constants.beta1)),
            ("beta2", bits(constants.beta2)),
            ("one_minus_beta1", bits(constants.one_minus_beta1)),
            ("one_minus_beta2", bits(constants.one_minus_beta2)),
            ("adam_eps", bits(constants.adam_eps)),
            ("loss_scale", bits(constants.loss_scale)),
        ],
    })?;
    let top = trainer_top(&bus, spec.registers, spec.register_constants)?;
    Ok(Design::new(top)?)
}
