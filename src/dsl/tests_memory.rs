//! Memories, state machines, primitives, scopes: behaviour, text and what Yosys infers.

use super::*;
use crate::sim::{cosim, lint};
use std::process::Command;
use std::sync::Arc;

/// A memory with one read and one write port.
fn memory(name: &str, spec: MemSpec) -> Arc<ModuleDef> {
    let m = Module::new(name);
    let bits = addr_width(spec.depth);
    let lanes = spec.write_lane.map_or(1, |l| spec.width / l);
    let (ra, re) = (m.input("ra", bits), m.input("re", 1));
    let (wa, we) = (m.input("wa", bits), m.input("we", lanes));
    let wd = m.input("wd", spec.width);
    let mem = m.mem("bank", spec);
    m.output("rd", mem.read(ra, re));
    mem.write(wa, wd, we);
    m.finish().unwrap()
}

fn rom(name: &str) -> Arc<ModuleDef> {
    let m = Module::new(name);
    let words = (0..512u128).map(|v| (v * v * 37) & 0xf_ffff);
    let rom = m.mem(
        "squares",
        MemSpec {
            depth: 512,
            width: 20,
            style: MemStyle::Block,
            init: Some(MemInit::new("square.mem", 20, words)),
            ..MemSpec::default()
        },
    );
    let on = m.input("on", 1);
    m.output("x", rom.read(m.input("xa", 9), on));
    m.output("y", rom.read(m.input("ya", 9), m.lit(1, 1)));
    m.finish().unwrap()
}

/// Cells of a kind after synthesis for UltraScale+, or `None` without pyosys.
fn inferred(def: &Arc<ModuleDef>) -> Option<String> {
    let design = Design::new(def.clone()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in design
        .print_verilog("")
        .into_iter()
        .chain(design.memory_files())
    {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let script = format!(
        "from pyosys import libyosys as ys\nd = ys.Design()\nfor c in ['read_verilog {0}.v', 'synth_xilinx -family xcup -uram -run begin:map_ffram -top {0}', 'tee -q -o stat.txt stat']:\n    ys.run_pass(c, d)\n",
        def.name
    );
    let run = Command::new("python3")
        .args(["-c", &script])
        .current_dir(dir.path())
        .output();
    let ok = run.is_ok_and(|r| r.status.success());
    let text = std::fs::read_to_string(dir.path().join("stat.txt")).ok();
    let required = std::env::var("NFGEN_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
    assert!(ok || !required, "pyosys did not synthesise {}", def.name);
    if !ok {
        println!(
            "skipped: synthesis of {}: pyosys is not installed",
            def.name
        );
        return None;
    }
    text
}

#[test]
fn memories_infer_what_they_ask_for() {
    let spec = |depth, width, style| MemSpec {
        depth,
        width,
        style,
        ..MemSpec::default()
    };
    let lanes = MemSpec {
        write_lane: Some(9),
        output_reg: true,
        ..spec(512, 72, MemStyle::Block)
    };
    let free = MemSpec {
        collision: Collision::Undefined,
        ..spec(1024, 36, MemStyle::Block)
    };
    for (def, cell) in [
        (memory("nf_block", free), "RAMB36E2"),
        (memory("nf_lanes", lanes), "RAMB36E2"),
        (
            memory("nf_lut", spec(32, 12, MemStyle::Distributed)),
            "RAM32M16",
        ),
        (
            memory("nf_ultra", spec(4096, 72, MemStyle::Ultra)),
            "URAM288",
        ),
        (rom("nf_rom"), "RAMB36E2"),
    ] {
        let Some(stat) = inferred(&def) else { return };
        assert!(stat.contains(cell), "{} has no {cell}:\n{stat}", def.name);
    }
}

#[test]
fn memories_equal_the_interpreter() {
    if cosim::skip_without_verilator("memories") {
        return;
    }
    let lanes = MemSpec {
        depth: 20,
        width: 72,
        write_lane: Some(9),
        output_reg: true,
        ..MemSpec::default()
    };
    for def in [memory("nf_lanes20", lanes), rom("nf_rom2")] {
        lint::assert_clean(&def);
        // Addresses beyond the depth are outside the contract: stay below 16.
        let mut stimulus = cosim::Stimulus::random(&def, 4000, 3);
        for k in 0..def.inputs.len() {
            if def.inputs[k].width == 5 {
                (0..4000).for_each(|c| stimulus.set(c, k, (c as u128 * 7 + c as u128 / 3) % 16));
            }
        }
        assert!(cosim::compare(&def, &stimulus).unwrap().words_compared >= 4000);
    }
}

#[test]
fn undefined_collisions_are_reported() {
    let spec = MemSpec {
        depth: 16,
        width: 8,
        collision: Collision::Undefined,
        ..MemSpec::default()
    };
    let def = memory("nf_free", spec);
    let mut sim = Interpreter::new(&def);
    for (name, value) in [("ra", 3), ("re", 1), ("wa", 4), ("we", 1)] {
        sim.set_input(name, value);
    }
    sim.step();
    assert!(sim.failures().is_empty());
    sim.set_input("wa", 3);
    sim.step();
    assert!(sim.failures()[0].contains("bank is read and written at one address"));
    if cosim::skip_without_verilator("collision") {
        return;
    }
    let rows = vec![vec![3, 1, 4, 1, 0], vec![3, 1, 3, 1, 0], vec![0; 5]];
    let verdict = cosim::compare(&def, &cosim::Stimulus::from_rows(&def, &rows));
    assert!(
        matches!(verdict, Err(cosim::CosimError::Check { .. })),
        "{verdict:?}"
    );
    // Verilator stops at the failing check too.
    let model = cosim::Model::build(&def).unwrap();
    let trace = model.run(&cosim::Stimulus::from_rows(&def, &rows)).unwrap();
    assert_eq!(trace.cycles, 2);
    assert!(trace.failures[0].contains("read and written"), "{trace:?}");
}

fn machine() -> Arc<ModuleDef> {
    let m = Module::new("nf_machine");
    let (start, last) = (m.input("start", 1), m.input("last", 1));
    let fsm = m.fsm("state_q", &["Idle", "Load", "Run"]);
    let yes = m.lit(1, 1);
    fsm.transitions(&[
        ("Idle", start, "Load"),
        ("Load", yes, "Run"),
        ("Run", last & start, "Load"),
        ("Run", last, "Idle"),
    ]);
    m.output("busy", !fsm.is("Idle"));
    m.output("active", fsm.is_any(&["Load", "Run"]));
    m.assert_(!(fsm.is("Idle") & last & !last), "never");
    m.finish().unwrap()
}

#[test]
fn state_machines_have_named_states() {
    insta::assert_snapshot!(print_module(&machine(), ""));
    let mut sim = Interpreter::new(&machine());
    sim.set_input("start", 1);
    assert_eq!(sim.get_output("busy"), 0);
    sim.step();
    assert_eq!(sim.reg("state_q"), Some(1));
    sim.step();
    sim.set_input("last", 1);
    sim.step();
    assert_eq!(sim.reg("state_q"), Some(1));
    let m = Module::new("nf_bad");
    let fsm = m.fsm("state_q", &["Idle"]);
    fsm.set_next(fsm.state("Gone"));
    m.output("x", fsm.q());
    let error = m.finish().unwrap_err().to_string();
    assert!(error.contains("no state `Gone`; known: Idle"), "{error}");
}

fn primitive() -> Arc<ModuleDef> {
    let m = Module::new("nf_dsp_mac");
    m.doc("signed 18x18 multiply-accumulate in one DSP48E2");
    let (a, b, clear) = (m.input("a", 18), m.input("b", 18), m.input("clear", 1));
    let acc = m.reg("acc_q", 48);
    let kept = m.mux(clear, m.lit(0, 48), acc.q());
    acc.set_next(kept + a.smul(b).sext(48));
    m.output("p", acc.q());
    let conn = |s: Sig| PrimitiveConn::Input(s.node());
    let mode = m.cat(&[m.lit(0, 2), !clear.repeat(2), m.lit(0b00101, 5)]);
    m.set_synthesis_body(Primitive {
        cell: "DSP48E2".into(),
        instance: "u_dsp".into(),
        parameters: vec![
            ("AREG".into(), PrimitiveValue::Int(0)),
            ("USE_MULT".into(), PrimitiveValue::Text("MULTIPLY".into())),
            (
                "MASK".into(),
                PrimitiveValue::Bits(Bits::new(0x3f_ffff, 48)),
            ),
        ],
        ports: vec![
            ("CLK".into(), PrimitiveConn::Clock),
            ("A".into(), conn(a.sext(30))),
            ("B".into(), conn(b)),
            ("OPMODE".into(), conn(mode)),
            (
                "P".into(),
                PrimitiveConn::Output {
                    port: "p".into(),
                    low: 0,
                    width: 48,
                },
            ),
            ("PCOUT".into(), PrimitiveConn::Open),
        ],
    });
    m.finish().unwrap()
}

#[test]
fn a_primitive_replaces_the_body_for_synthesis() {
    insta::assert_snapshot!(print_module(&primitive(), ""));
    lint::assert_clean(&primitive());
    let m = Module::new("nf_bad");
    let a = m.input("a", 4);
    m.output("y", m.reg_next("y_q", a).q());
    m.set_synthesis_body(Primitive {
        cell: "FDRE".into(),
        instance: "u_ff".into(),
        parameters: vec![],
        ports: vec![(
            "D".into(),
            PrimitiveConn::Input(m.reg_next("z_q", a).q().node()),
        )],
    });
    let error = m.finish().unwrap_err().to_string();
    assert!(
        error.contains("FDRE.D: a register is no expression"),
        "{error}"
    );
    assert!(error.contains("FDRE drives output `y` 0 times"), "{error}");
}

/// Large designs must print at once: the planner elaborates arrays of thousands of cells.
#[test]
fn a_large_array_elaborates_and_prints_fast() {
    let start = std::time::Instant::now();
    let cell = {
        let m = Module::new("nf_cell");
        let (a, b) = (m.input("a", 18), m.input("b", 18));
        let acc = m.reg("acc_q", 48);
        acc.set_next(acc.q() + a.smul(b).sext(48));
        m.output("a_out", m.reg_next("a_q", a).q());
        m.output("b_out", m.reg_next("b_q", b).q());
        m.output("p", acc.q());
        m.finish().unwrap()
    };
    let m = Module::new("nf_array");
    let mut down: Vec<Sig> = (0..45).map(|c| m.input(&format!("b{c}"), 18)).collect();
    let mut total = m.lit(0, 48);
    for r in 0..45 {
        let mut across = m.input(&format!("a{r}"), 18);
        for (c, column) in down.iter_mut().enumerate() {
            let i = m.instance(&format!("u_r{r}_c{c}"), &cell);
            i.input("a", across).input("b", *column);
            across = i.output("a_out");
            *column = i.output("b_out");
            total = total ^ i.output("p");
        }
    }
    // And plain logic: 200,000 nodes.
    let mut x = m.input("x", 32);
    for k in 0..100_000u128 {
        x = (x ^ m.lit(k % 65_521, 32)) + x.shl_const(1 + (k % 7) as u32);
    }
    m.output("total", total);
    m.output("y", x);
    assert!(m.node_count() > 200_000);
    let built = start.elapsed();
    let def = m.finish().unwrap();
    let checked = start.elapsed();
    let text = Design::new(def).unwrap().print_verilog("");
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} bytes: built {built:.2?}, checked {checked:.2?}, printed {seconds:.2} s",
        text[0].1.len()
    );
    assert!(text[0].1.contains("nf_cell u_r44_c44 ("));
    // Generous for a busy machine: 0.7 s of processor time at opt-level 1.
    assert!(seconds < 60.0, "{seconds} s");
}
