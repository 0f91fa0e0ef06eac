//! The planner's cycle model against the latencies that the hardware derives from its own stages.

use nfgen::config::{Device, ModelConfig, load_model};
use nfgen::hw::trainer::adam::config::AdamConfig;
use nfgen::hw::trainer::mat::MatTiming;
use nfgen::hw::trainer::vec::{start_to_ready, start_to_retire};
use nfgen::trainer::cycles::Costs;
use nfgen::trainer::encode::encode_adam;
use nfgen::trainer::isa::{Post, Reduce};
use nfgen::trainer::plan::{Options, Plan, Target};

fn plan(model: &ModelConfig, array: usize) -> Plan {
    let target = Target::of(&Device::boundless(), 100);
    let options = Options {
        array: Some(array),
        ..Options::default()
    };
    Plan::new(model, &target, &options).expect("a plan")
}

#[test]
fn every_instruction_costs_what_the_hardware_takes() {
    for moments in ["moment_format=bf16", "moment_format=int8"] {
        costs(&load_model("tiny", &[moments.to_string()]).expect("a model"));
    }
}

fn costs(model: &ModelConfig) {
    for b in [4, 5, 8, 11, 16, 44] {
        let plan = plan(model, b);
        let (shape, program) = (&plan.shape, &plan.program);
        let costs = Costs::new(b, shape.adam_lanes, shape.gradient_tiles)
            .with_blocks(plan.scale_words() > 0);
        let mat = MatTiming::new(b);
        for (n, i) in program.mat.iter().enumerate() {
            let next = program.mat.get(n + 1);
            let want = (
                mat.start_to_ready(i.k, i.tail(b, next)),
                mat.start_to_retire(i.k, i.nr),
            );
            assert_eq!(costs.mat(i, next), want, "B = {b}, mat {n}: {i:?}");
        }
        for (n, i) in program.vec.iter().enumerate() {
            assert!(i.reduce == Reduce::None || i.post != Post::None);
            let want = (start_to_ready(b, i), start_to_retire(b, i));
            assert_eq!(costs.vec(i), want, "B = {b}, vec {n}: {i:?}");
        }
        let adam = AdamConfig {
            banks: b,
            lanes: shape.adam_lanes,
            weight_depth: shape.weight_depth,
            scale_words: plan.scale_words(),
            layernorm_words: shape.layernorm_words,
            tensor_bases: plan.tensor_bases(),
            weights: model.weight_format,
            moments: model.moment_format,
            rounding: model.rounding,
            layernorm_optimizer: model.layernorm_optimizer,
            gradient_tiles: shape.gradient_tiles,
            gradient_style: nfgen::dsl::MemStyle::Auto,
            moment_style: nfgen::dsl::MemStyle::Auto,
            layout: encode_adam(&program.adam).layout,
        };
        for i in &program.adam {
            let steps = match i.kind {
                nfgen::trainer::isa::AdamKind::Matrix => adam.timing().matrix_tile(i.nr),
                nfgen::trainer::isa::AdamKind::LayerNorm => adam.timing().layernorm_tile(i.nc),
            };
            assert_eq!(costs.adam_steps(i), steps as u64);
        }
        let pipeline = adam.timing().start_to_retire - adam.group();
        let planned = costs.adam_latency() as usize;
        assert!(planned.abs_diff(pipeline) <= 1, "{planned} {pipeline}");
    }
}
