//! The printed text: co-simulation in Verilator, the DSP primitive, snapshots, lint.

use super::engine::{config, recorded};
use crate::config::model::WeightFormat;
use crate::dsl::{Design, ModuleDef};
use crate::hw::trainer::mat::*;
use crate::sim::cosim::{Model, Stimulus, compare, compare_model, skip_without_verilator};
use crate::sim::lint::lint;
use std::sync::Arc;

fn text(def: &Arc<ModuleDef>) -> String {
    let files = Design::new(def.clone()).unwrap().print_verilog("");
    let name = format!("{}.v", def.name);
    files.into_iter().find(|(n, _)| *n == name).unwrap().1
}

#[test]
fn small_blocks_equal_their_verilog() {
    if skip_without_verilator("small_blocks_equal_their_verilog") {
        return;
    }
    for (k, def) in [
        mac_cell(),
        aligner(),
        normaliser(),
        rotator(Turn::ToLanes, 18, 11, Some(7)),
        rotator(Turn::ToBanks, 32, 5, None),
        stream(9, 11),
        exponent_max(11),
        neuron_core(WeightFormat::Fp24, 64, 3),
    ]
    .into_iter()
    .enumerate()
    {
        let def = def.unwrap();
        let report = compare(&def, &Stimulus::random(&def, 3000, k as u64));
        let report = report.unwrap_or_else(|e| panic!("{}: {e}", def.name));
        assert!(report.words_compared >= 3000, "{}: {report:?}", def.name);
    }
}

#[test]
fn cell_equals_its_dsp48e2() {
    if skip_without_verilator("cell_equals_its_dsp48e2") {
        return;
    }
    let def = mac_cell().unwrap();
    let synthesised = format!("`define SYNTHESIS\n{}", text(&def));
    let files = [
        (
            "dsp48e2_model.v".to_string(),
            include_str!("dsp48e2_model.v").to_string(),
        ),
        ("nf_mac_cell.v".to_string(), synthesised),
    ];
    let model = Model::build_from(&def, &files).unwrap();
    let cycles = 20_000;
    let mut stimulus = Stimulus::random(&def, cycles, 5);
    // Runs of the four modes; a mode is (mul, keep, shift).
    let mode = |port: &str| def.input_index(port).unwrap();
    let mut random = super::Random(6);
    let mut left = 0;
    let mut kind = 0;
    for cycle in 0..cycles {
        if left == 0 {
            kind = random.below(4);
            left = 1 + random.below(12);
        }
        left -= 1;
        let bits = [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]][kind];
        for (port, bit) in ["mul", "keep", "shift"].iter().zip(bits) {
            stimulus.set(cycle, mode(port), bit);
        }
    }
    let report = compare_model(&model, &stimulus).unwrap();
    assert_eq!(report.cycles, cycles);
}

#[test]
fn core_equals_its_verilog() {
    if skip_without_verilator("core_equals_its_verilog") {
        return;
    }
    for (b, format) in [(4, WeightFormat::Bf16), (5, WeightFormat::Fp32)] {
        let (def, stimulus) = recorded(b, format, 60);
        let report = compare(&def, &stimulus).unwrap();
        assert_eq!(report.cycles, stimulus.cycles());
    }
}

#[test]
fn text_of_the_small_blocks() {
    for def in [
        mac_cell(),
        aligner(),
        normaliser(),
        rotator(Turn::ToLanes, 18, 5, None),
        stream(8, 5),
        exponent_max(5),
    ] {
        let def = def.unwrap();
        insta::assert_snapshot!(def.name.clone(), text(&def));
    }
}

#[test]
fn linters_have_nothing_to_say() {
    let (shape, words) = super::engine::small_program(4);
    let def = attention_core(&config(&shape, &words, WeightFormat::Bf16)).unwrap();
    let design = Design::new(def).unwrap();
    let report = lint(
        "nf_attention_core",
        &design.print_verilog(""),
        &design.memory_files(),
    )
    .unwrap();
    let required = std::env::var("NFGEN_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
    assert!(
        !required || report.missing.is_empty(),
        "{:?}",
        report.missing
    );
    for tool in &report.missing {
        println!("skipped: lint of nf_attention_core by {tool}: not installed");
    }
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
