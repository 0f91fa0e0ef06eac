//! The RTL in Verilator against the exact integer dot product.

use std::path::PathBuf;

use nfgen::bitnet::backend::Backend;
use nfgen::bitnet::cpu::project_by_definition;
use nfgen::bitnet::quant::Activations;
use nfgen::bitnet::ternary::{StreamFormat, TernaryMatrix};
use nfgen::cgla::backend::ArrayBackend;
use nfgen::cgla::model::ArrayModel;
use nfgen::cgla::simulate::{Simulator, Stalls};
use nfgen::cgla::timing::MemoryModel;
use nfgen::cgla::{ArrayConfig, LaneSign};
use rand::{RngExt, SeedableRng};

fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("verilated")
}

fn simulator(config: ArrayConfig, stalls: Stalls) -> Option<Simulator> {
    if which::which("verilator").is_err() {
        assert!(
            std::env::var_os("NFGEN_REQUIRE_TOOLS").is_none(),
            "verilator is required"
        );
        println!("skipped: verilator not found");
        return None;
    }
    Some(Simulator::start(config, MemoryModel::default(), stalls, &cache()).unwrap())
}

fn random(rows: usize, cols: usize, tokens: usize, seed: u64) -> (TernaryMatrix, Activations) {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
    let trits: Vec<i8> = (0..rows * cols).map(|_| rng.random_range(-1..=1)).collect();
    let values = (0..tokens * cols).map(|_| rng.random()).collect();
    (
        TernaryMatrix::from_trits(rows, cols, &trits, 1.0).unwrap(),
        Activations::from_int8(tokens, cols, values).unwrap(),
    )
}

fn small(lane_sign: LaneSign) -> ArrayConfig {
    ArrayConfig {
        rows: 16,
        ports: 2,
        lmm_words: 128,
        lane_sign,
    }
}

const SHAPES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (4, 64, 1),
    (5, 130, 2),
    (37, 300, 3),
    (64, 512, 1),
    (33, 1000, 1),
    (9, 2600, 1),
    (130, 777, 5),
];

#[test]
fn model_equals_the_definition() {
    for lane_sign in [LaneSign::UnsignedLo, LaneSign::Signed] {
        for format in [StreamFormat::TwoBit, StreamFormat::FiveTrits] {
            let model = ArrayModel::new(small(lane_sign), MemoryModel::default()).unwrap();
            let mut backend = ArrayBackend::new(model, format);
            for (seed, (rows, cols, tokens)) in SHAPES.into_iter().enumerate() {
                let (w, a) = random(rows, cols, tokens, seed as u64);
                assert_eq!(
                    backend.project(&w, &a).unwrap(),
                    project_by_definition(&w, &a),
                    "{rows} x {cols}, {tokens} tokens, {format:?}, {lane_sign:?}"
                );
            }
        }
    }
}

#[test]
fn rtl_equals_the_definition() {
    for lane_sign in [LaneSign::UnsignedLo, LaneSign::Signed] {
        for format in [StreamFormat::TwoBit, StreamFormat::FiveTrits] {
            let stalls = Stalls { busy: 0.3, seed: 7 };
            let Some(rtl) = simulator(small(lane_sign), stalls) else {
                return;
            };
            let mut backend = ArrayBackend::new(rtl, format);
            for (seed, (rows, cols, tokens)) in SHAPES.into_iter().enumerate() {
                let (w, a) = random(rows, cols, tokens, seed as u64);
                assert_eq!(
                    backend.project(&w, &a).unwrap(),
                    project_by_definition(&w, &a),
                    "{rows} x {cols}, {tokens} tokens, {format:?}, {lane_sign:?}"
                );
            }
        }
    }
}
