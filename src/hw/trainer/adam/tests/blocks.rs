//! 8-bit block moments: the unit against `num`, parts of blocks, short blocks that fill every slot, printed text.

use super::model::{Rule, exponent};
use super::unit::{Rig, TAIL, config, matrix};
use crate::config::model::*;
use crate::hw::trainer::adam::blocks::{moment_block, moment_encoder};
use crate::hw::trainer::adam::storage;
use crate::hw::trainer::adam::unit::adam_unit;
use crate::num::adam::{Parameter, adam};
use crate::num::fp32::sqrt;
use crate::num::moments8;
use crate::num::threefry::{RoundingBits, rounding_bits};
use crate::sim::lint::assert_clean;
use crate::trainer::encode::encode_adam;
use crate::trainer::isa::{AdamInstr, AdamKind, BlockPart};
use std::collections::BTreeMap;

/// New moments whose block is not complete: (address, bank) of the weight and of the scales.
#[derive(Clone, Copy)]
pub struct Uncoded {
    at: (usize, usize),
    scale: (usize, usize),
    m: f32,
    root: f32,
    random: RoundingBits,
}

impl Rig {
    /// The model's side of a tile with 8-bit blocks.
    pub fn apply_block(&mut self, i: &AdamInstr, part: BlockPart, rows: &[Vec<f32>]) {
        let banks = self.config.banks;
        let mut top = 0;
        for (j, row) in rows.iter().enumerate().take(i.nr) {
            for (b, &g) in row.iter().enumerate() {
                let lane = (part.row0 + b + banks - j % banks) % banks;
                if lane >= i.nc {
                    continue;
                }
                let home = (lane + banks - part.block_row0) % banks;
                let [sm, sv] = self.scales[part.scale][home].map(f32::from_bits);
                let p = &mut self.positions[i.waddr + j][b];
                let before = Parameter {
                    w: self.rule.weights.decode(p.w),
                    m: moments8::decode_m(p.m as u8 as i8, sm),
                    v: moments8::decode_v(p.v as u8, sv),
                };
                let after = adam(&self.rule.constants, &self.rule.scalars, before, g);
                let element = (i.element0 + lane * i.row_len + j) as u32;
                let step = self.rule.scalars.step;
                let random = rounding_bits(self.rule.seed, step, element, i.tensor as u32);
                p.w = self
                    .rule
                    .weights
                    .encode(self.rule.rounding, after.w, random.weight);
                top = top.max(exponent(self.rule.weights, p.w));
                self.pending.push(Uncoded {
                    at: (i.waddr + j, b),
                    scale: (part.scale, home),
                    m: after.m,
                    root: sqrt(after.v),
                    random,
                });
            }
        }
        self.raise_exponent(i, top);
        if i.block_ends().1 {
            self.encode();
        }
    }

    fn encode(&mut self) {
        let mut largest: BTreeMap<(usize, usize), [f32; 2]> = BTreeMap::new();
        for e in &self.pending {
            let l = largest.entry(e.scale).or_default();
            *l = [l[0].max(e.m.abs()), l[1].max(e.root)];
        }
        for e in std::mem::take(&mut self.pending) {
            let [m, root] = largest[&e.scale];
            let (sm, im) = moments8::scale(m, moments8::M_MAX);
            let (sv, iv) = moments8::scale(root, moments8::V_MAX);
            self.scales[e.scale.0][e.scale.1] = [sm.to_bits(), sv.to_bits()];
            let p = &mut self.positions[e.at.0][e.at.1];
            p.m = u32::from(moments8::encode_m(e.m, im, e.random.m) as u8);
            p.v = u32::from(moments8::encode_v(e.root, iv, e.random.v));
        }
    }
}

/// Part of a block that begins in column `j0` of its tensor.
fn part(
    i: AdamInstr,
    banks: usize,
    scale: usize,
    j0: usize,
    columns: usize,
    offset: usize,
) -> AdamInstr {
    let row0 = |j: usize| (banks - j % banks) % banks;
    AdamInstr {
        block: Some(BlockPart {
            scale,
            columns,
            offset,
            row0: row0(j0 + offset),
            block_row0: row0(j0),
            turn: (columns - 1) % banks,
        }),
        ..i
    }
}

/// A block of two parts with a LayerNorm tile between them, a block of few rows, and more blocks of one and two columns
/// than there are slots.
fn program(banks: usize) -> Vec<AdamInstr> {
    let layernorm = |waddr, nc, place| AdamInstr {
        kind: AdamKind::LayerNorm,
        waddr,
        nc,
        nr: 1,
        ..matrix(0, waddr, (1, nc), place)
    };
    let first = |i: AdamInstr| AdamInstr { first: true, ..i };
    let wide = banks.min(6);
    let mut list = vec![
        first(part(
            matrix(0, 0, (wide, banks), 0),
            banks,
            0,
            2,
            wide + 1,
            0,
        )),
        layernorm(0, banks.min(6), 1),
        part(matrix(0, wide, (1, banks), 0), banks, 0, 2, wide + 1, wide),
        first(part(matrix(1, 15, (3, banks - 1), 1), banks, 1, 0, 3, 0)),
    ];
    for k in 0..8 {
        let i = part(matrix(2, 7 + k, (1, banks), k % 2), banks, 2 + k, k, 1, 0);
        list.push(AdamInstr { first: k == 0, ..i });
    }
    list.push(part(matrix(1, 18, (2, 2), 0), banks, 10, 3, 2, 0));
    list.push(layernorm(6, banks.min(5), 1));
    list
}

fn run(rule: &Rule, banks: usize, lanes: usize) -> Rig {
    let program = program(banks);
    let mut rig = Rig::new(rule, banks, lanes, &program);
    let events = rig.write_state(&rig.beats(TAIL), 0.7);
    assert_eq!((events.early, events.late, events.loads), (0, 0, 1));
    assert_eq!(rig.exponents, rig.model_exponents());
    for (k, i) in program.iter().enumerate() {
        let rows = rig.gradients();
        while k >= 2 && rig.retired < k - 1 {
            rig.step();
        }
        rig.write_gradients(i.place, &rows);
        rig.start(k);
        rig.apply(i, &rows);
    }
    let mut cycles = 0;
    while rig.retired < program.len() || rig.bench.is("moments_busy") {
        rig.step();
        cycles += 1;
        assert!(cycles < 2000, "the encoder hangs");
    }
    assert_eq!(rig.exponents, rig.tile_exponents);
    for p in [1.0, 0.4] {
        let (beats, _) = rig.read_state(p);
        let count = beats.len();
        assert_eq!(count, rig.config.timing().state_beats);
        assert_eq!(beats[..count - 1], rig.beats(0)[..count - 1]);
    }
    rig
}

fn rule(weights: WeightFormat, rounding: Rounding) -> Rule {
    Rule::new(weights, MomentFormat::Int8, rounding)
}

#[test]
fn blocks_equal_their_definition() {
    let nearest = rule(WeightFormat::Fp24, Rounding::Nearest);
    let mut stochastic = rule(WeightFormat::Bf16, Rounding::Stochastic);
    stochastic.layernorm = LayerNormOptimizer::Sgd;
    for (k, (rule, banks, lanes)) in [
        (&nearest, 6, 2),
        (&stochastic, 8, 4),
        (&nearest, 6, 3),
        (&nearest, 4, 1),
        (&stochastic, 10, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let rig = run(rule, banks, lanes);
        if k < 2 {
            rig.bench.replay("adam unit with block moments");
        }
    }
}

#[test]
fn the_unit_with_blocks_lints() {
    let mut rule = rule(WeightFormat::Fp24, Rounding::Nearest);
    for (banks, lanes) in [(6, 3), (4, 1)] {
        let config = config(&rule, banks, lanes, &encode_adam(&program(banks)));
        assert_clean(&adam_unit(&config).unwrap());
        rule.layernorm = LayerNormOptimizer::Sgd;
    }
}

#[test]
fn blocks_read_like_handwriting() {
    let rule = rule(WeightFormat::Fp24, Rounding::Nearest);
    let config = config(&rule, 6, 2, &encode_adam(&program(6)));
    for (name, def) in [
        ("moment_block", moment_block(&config).unwrap()),
        ("moment_encoder", moment_encoder(&config).unwrap()),
        ("scale_bank", storage::scale_bank(&config).unwrap()),
    ] {
        insta::assert_snapshot!(name, crate::dsl::print_module(&def, ""));
    }
}
