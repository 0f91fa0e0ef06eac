//! Yosys on emitted modules: the primitives and memories that the plan counts on.

#[path = "support/command.rs"]
mod command;

use command::nfgen;
use nfgen::synth::yosys::Yosys;

#[test]
fn cells_and_memories_map_as_planned() {
    if let Err(missing) = Yosys::find() {
        let required = std::env::var("NFGEN_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
        assert!(!required, "{missing}");
        eprintln!("skipped: cells_and_memories_map_as_planned: {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let modules = "nf_mac_cell,nf_neuron_core,nf_layernorm_state";
    let arguments = [
        "synth",
        "--device",
        "zcu102",
        "--model",
        "tiny",
        "--array",
        "4",
        "--modules",
        modules,
        "--cache",
        "cache",
        "--json",
    ];
    let ran = nfgen(folder.path(), &arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let object: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one object");
    let unit = |name: &str| {
        let units = object["units"].as_array().expect("units");
        let found = units.iter().find(|u| u["module"] == name);
        found.expect("synthesised").clone()
    };
    // The cell is its primitive and nothing else.
    let cell = unit("nf_mac_cell");
    assert_eq!(cell["counts"]["dsp"], 1);
    assert_eq!(
        (
            cell["counts"]["lut"].as_u64(),
            cell["counts"]["ff"].as_u64()
        ),
        (Some(0), Some(0))
    );
    // A row: four cells, and a bank of block RAM.
    let row = unit("nf_neuron_core");
    assert_eq!(row["counts"]["dsp"], 4);
    assert!(
        row["counts"]["bram36"].as_f64().is_some_and(|n| n > 0.0),
        "{row}"
    );
    for name in ["nf_mac_cell", "nf_neuron_core", "nf_layernorm_state"] {
        assert_eq!(
            unit(name)["unknown"].as_array().map(Vec::len),
            Some(0),
            "{name}"
        );
        assert!(
            unit(name)["levels"].as_u64().is_some_and(|n| n <= 8),
            "{name}"
        );
    }
    // A second run takes everything from the cache and says the same.
    let again = nfgen(folder.path(), &arguments);
    assert_eq!(again.stdout, ran.stdout);
}
