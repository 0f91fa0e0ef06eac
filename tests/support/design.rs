//! A small hand-made core: enough to exercise the emitter without a machine.

use nfgen::config::{load_device, load_model};
use nfgen::emit::{
    Core, FileSet, Parameter, Target, TextFile, TrainerResets, expected_ports, file_set,
    trainer_dmas, trainer_map,
};

/// A core named `name` with two Verilog files and one memory.
pub fn sample_core(name: &str) -> Core {
    let model = load_model("tiny", &[]).expect("built-in model");
    let file = |name: &str, text: &str| TextFile {
        name: name.into(),
        text: text.into(),
    };
    let resets = TrainerResets {
        build_id: 0xB01D_0001,
        state_beats: 2050,
        ..TrainerResets::default()
    };
    Core {
        name: name.into(),
        description: "NeuronFabric trainer".into(),
        top: "nf_trainer".into(),
        ports: expected_ports(&trainer_dmas(), &[]),
        parameters: vec![Parameter {
            name: "BANKS".into(),
            value: 8,
        }],
        registers: trainer_map(&model, &resets),
        dmas: trainer_dmas(),
        masters: vec![],
        rtl: vec![
            file("nf_mac.v", "module nf_mac;\nendmodule\n"),
            file("nf_trainer.v", "module nf_trainer;\nendmodule\n"),
        ],
        memories: vec![file("nf_exp.mem", "00\n01\n")],
        testbench: vec![file("nf_harness.cpp", "int main() { return 0; }\n")],
        resolved: nfgen::config::fields::to_toml(&model),
        resources: serde_json::json!({ "bram36": { "used": 1 } }),
    }
}

/// Its files on a device.
pub fn sample_files(name: &str, device: &str) -> FileSet {
    let device = load_device(device).expect("built-in device");
    let target = Target {
        device: &device,
        clock_mhz: device.clock_mhz,
    };
    file_set(&sample_core(name), &target).expect("the sample core is legal")
}
