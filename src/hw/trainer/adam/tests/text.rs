//! The printed Verilog: lint, names, snapshots of the small blocks.

use super::model::Rule;
use super::unit::config;
use crate::config::model::*;
use crate::hw::trainer::adam::storage;
use crate::hw::trainer::adam::unit::adam_unit;
use crate::sim::lint::assert_clean;
use crate::trainer::encode::encode_adam;
use crate::trainer::isa::{AdamInstr, AdamKind, Phase};

fn program() -> Vec<AdamInstr> {
    vec![AdamInstr {
        phase: Phase::Backward,
        wait: [3; 3],
        kind: AdamKind::Matrix,
        place: 1,
        waddr: 20,
        tensor: 2,
        element0: 900,
        row_len: 9,
        nr: 6,
        nc: 6,
        first: true,
        block: None,
    }]
}

#[test]
fn every_variant_lints() {
    let mut rules = Rule::all();
    rules[3].layernorm = LayerNormOptimizer::Sgd;
    for (rule, (banks, lanes)) in rules.iter().zip([(6, 3), (4, 1), (8, 4), (4, 2)]) {
        let config = config(rule, banks, lanes, &encode_adam(&program()));
        assert_clean(&adam_unit(&config).unwrap());
    }
}

#[test]
fn moments_bank_reads_like_handwriting() {
    let rule = Rule::new(WeightFormat::Bf16, MomentFormat::Bf16, Rounding::Nearest);
    let config = config(&rule, 6, 2, &encode_adam(&program()));
    let def = storage::moment_bank(&config).unwrap();
    insta::assert_snapshot!(crate::dsl::print_module(&def, ""));
}
