//! Small trainers for simulation: model, plan, core, options and windows.

use std::path::PathBuf;

use nfgen::compile::trainer::compile;
use nfgen::config::{Device, ModelConfig, load_model};
use nfgen::emit::Core;
use nfgen::sim::trainer::Options;
use nfgen::trainer::plan::{self, Plan, Target};

pub fn model(name: &str, set: &[&str]) -> ModelConfig {
    let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
    load_model(name, &set).expect("a legal model")
}

pub fn machine(model: &ModelConfig, array: usize, adam_lanes: Option<usize>) -> (Plan, Core) {
    let target = Target::of(&Device::boundless(), 200);
    let options = plan::Options {
        array: Some(array),
        adam_lanes,
        groups: None,
    };
    let plan = Plan::new(model, &target, &options).expect("a plan");
    let core = compile(&plan, "test", "").expect("a core");
    (plan, core)
}

pub fn options(stalls: f64, seed: u32) -> Options {
    Options {
        stalls,
        seed,
        waveform: None,
        cache: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models"),
        threads: 1,
        limit: None,
    }
}

/// Windows of the text that ships with the project.
pub fn windows(model: &ModelConfig, count: usize) -> Vec<Vec<u32>> {
    let text = include_bytes!("../../data/corpus.txt");
    (0..count)
        .map(|n| {
            text[n * 389..][..=model.seq_len]
                .iter()
                .map(|c| u32::from(*c) % model.vocab as u32)
                .collect()
        })
        .collect()
}
