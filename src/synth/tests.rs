//! Netlists by hand: counts, levels through cells and black boxes, and what the comparison calls a difference.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compare::{LUT_TOLERANCE, compare, owner};
use super::hierarchy::Hierarchy;
use super::levels::{Summary, analyse};
use super::netlist::Netlist;
use super::run::Synthesised;
use crate::config::{self, Device};
use crate::trainer::plan::{Options, Plan, Target};

fn cell(kind: &str, inputs: &[(&str, &[u32])], outputs: &[(&str, &[u32])]) -> Value {
    let mut directions = serde_json::Map::new();
    let mut connections = serde_json::Map::new();
    for (list, direction) in [(inputs, "input"), (outputs, "output")] {
        for (name, bits) in list {
            directions.insert((*name).into(), json!(direction));
            connections.insert((*name).into(), json!(bits));
        }
    }
    json!({"type": kind, "parameters": {}, "port_directions": directions, "connections": connections})
}

fn netlist(ports: Value, cells: Value) -> Netlist {
    let names =
        json!({"start_q": {"hide_name": 0, "bits": [10]}, "end_q": {"hide_name": 0, "bits": [20]}});
    let file = json!({"modules": {"m": {"ports": ports, "cells": cells, "netnames": names}}});
    Netlist::from_yosys(&file.to_string(), "m").expect("reads")
}

/// start_q > LUT6 > carry chain of two > LUT1 > end_q, with a look-up table before an output and behind an input.
fn example() -> Netlist {
    netlist(
        json!({
            "clk": {"direction": "input", "bits": [2]},
            "a": {"direction": "input", "bits": [30]},
            "y": {"direction": "output", "bits": [31]},
            "z": {"direction": "output", "bits": [11]},
        }),
        json!({
            "start": cell("FDRE", &[("C", &[2]), ("D", &[9])], &[("Q", &[10])]),
            "l1": cell("LUT6", &[("I0", &[10]), ("I1", &[30])], &[("O", &[11])]),
            "c1": cell("CARRY4", &[("S", &[11, 40, 41, 42]), ("CI", &[43])], &[("CO", &[50, 51, 52, 12])]),
            "c2": cell("CARRY4", &[("S", &[44, 45, 46, 47]), ("CI", &[12])], &[("O", &[53, 54, 55, 13])]),
            "l2": cell("INV", &[("I", &[13])], &[("O", &[14])]),
            "end": cell("FDSE", &[("C", &[2]), ("D", &[14])], &[("Q", &[20])]),
            "l3": cell("LUT2", &[("I0", &[30])], &[("O", &[31])]),
            "ram": cell("RAM64M8", &[("WCLK", &[2]), ("ADDRA", &[60]), ("ADDRH", &[61]), ("DIA", &[62])], &[("DOA", &[9])]),
        }),
    )
}

#[test]
fn cells_are_counted() {
    let (counts, unknown) = example().counts(&[]);
    assert_eq!(
        (counts.lut, counts.lut_as_ram, counts.ff, counts.carry),
        (3 + 8, 8, 2, 2)
    );
    assert!(unknown.is_empty());
}

#[test]
fn a_carry_chain_is_one_level_and_the_path_is_named() {
    let summary = analyse(&example(), &BTreeMap::new());
    // Look-up table, chain of two, inverter.
    assert_eq!(summary.longest, 3);
    assert_eq!(summary.path.first().map(String::as_str), Some("start_q"));
    assert_eq!(
        summary.path.last().map(String::as_str),
        Some("end_q (FDSE.D)")
    );
    assert_eq!(summary.inputs["a"], 3);
    assert_eq!(summary.outputs["z"], 1);
    assert_eq!(
        summary.through["a"],
        BTreeMap::from([("y".into(), 1), ("z".into(), 1)])
    );
    assert!(!summary.inputs.contains_key("clk"));
}

#[test]
fn paths_go_on_through_black_boxes() {
    let child = Summary {
        longest: 2,
        outputs: BTreeMap::from([("q".into(), 4)]),
        inputs: BTreeMap::from([("d".into(), 5)]),
        through: BTreeMap::from([("t".into(), BTreeMap::from([("u".into(), 2)]))]),
        ..Summary::default()
    };
    let parent = netlist(
        json!({}),
        json!({
            "u_a": cell("child", &[("d", &[1]), ("t", &[10])], &[("q", &[9]), ("u", &[3])]),
            "l": cell("LUT3", &[("I0", &[9])], &[("O", &[1])]),
            "end": cell("FDRE", &[("D", &[3])], &[("Q", &[20])]),
            "start": cell("FDRE", &[("D", &[20])], &[("Q", &[10])]),
        }),
    );
    let boxes = BTreeMap::from([("child".to_string(), child)]);
    let summary = analyse(&parent, &boxes);
    // Out of the box 4, one look-up table, into the box 5.
    assert_eq!(summary.longest, 10);
    assert_eq!(parent.counts(&[]).1, ["child"]);
    assert!(parent.counts(&["child".into()]).1.is_empty());
}

#[test]
fn a_multiplier_without_registers_is_deep() {
    let dsp = |registers: &str| {
        let mut dsp = cell("DSP48E2", &[("A", &[10]), ("B", &[11])], &[("P", &[12])]);
        for name in ["AREG", "BREG", "MREG", "PREG"] {
            let on = registers.contains(name);
            dsp["parameters"][name] = json!(if on { "01" } else { "00" });
        }
        let net = netlist(
            json!({}),
            json!({
                "dsp": dsp,
                "start": cell("FDRE", &[("D", &[20])], &[("Q", &[10])]),
                "end": cell("FDRE", &[("D", &[12])], &[("Q", &[20])]),
            }),
        );
        analyse(&net, &BTreeMap::new()).longest
    };
    assert_eq!(dsp(""), 4);
    assert_eq!(dsp("AREG BREG MREG"), 2);
    assert_eq!(dsp("AREG BREG MREG PREG"), 0);
}

fn plan() -> Plan {
    let model = config::load_model("tiny", &[]).expect("built in");
    let device = Device {
        name: "board".into(),
        lut: 1_000_000,
        ff: 1_000_000,
        dsp: 100_000,
        bram36: 100_000,
        distributed_ram_bits: 100_000_000,
        ..Device::boundless()
    };
    let target = Target::of(&device, 100);
    let options = Options {
        array: Some(4),
        ..Options::default()
    };
    Plan::new(&model, &target, &options).expect("plans")
}

#[test]
fn every_memory_of_a_plan_has_its_module() {
    let plan = plan();
    let core = crate::compile::trainer::compile(&plan, "", "").expect("compiles");
    for memory in &plan.memories {
        let module = owner(memory).unwrap_or_else(|| panic!("{} has no module", memory.name));
        let file = format!("{module}.v");
        assert!(
            core.rtl.iter().any(|f| f.name == file),
            "{}: {module}",
            memory.name
        );
    }
}

/// A result as planned, all of it in the top module.
fn as_planned(plan: &Plan) -> Synthesised {
    Synthesised {
        module: "nf_trainer".into(),
        instances: 1,
        alike: vec![],
        flattened: vec![],
        counts: super::cells::Counts {
            lut: plan.used.lut as u64,
            ff: plan.used.ff as u64,
            dsp: plan.used.dsp as u64,
            bram36: plan.used.bram36,
            ..Default::default()
        },
        levels: 9,
        path: vec![],
        widest: None,
        unknown: vec![],
    }
}

#[test]
fn what_differs_is_said() {
    let plan = plan();
    let files = [(
        "nf_trainer.v".to_string(),
        "module nf_trainer;\nendmodule\n".to_string(),
    )];
    let hierarchy = Hierarchy::new(&files, "nf_trainer").expect("complete");
    let equal = compare(&plan, &hierarchy, vec![as_planned(&plan)]);
    assert!(equal.differences.is_empty(), "{:?}", equal.differences);
    assert_eq!(equal.too_long, ["nf_trainer"]);
    assert_eq!(equal.modules.len(), 1);
    assert_eq!(equal.modules[0].planned.dsp, plan.used.dsp);

    let mut off = as_planned(&plan);
    off.counts.dsp += 1;
    off.counts.lut = (plan.used.lut * (1.0 + LUT_TOLERANCE) + 2.0) as u64;
    off.unknown.push("LDCE".into());
    let differences = compare(&plan, &hierarchy, vec![off]).differences;
    assert_eq!(differences.len(), 3, "{differences:?}");
    assert!(differences[0].starts_with("DSP") && differences[1].starts_with("LUT"));
}
