//! From a build of the programmable array to its core: netlist, Verilog, registers, test benches.

use super::registers::hardware_registers;
use super::{HEADER, top_ports};
use crate::cgla::registers::register_map;
use crate::cgla::rtl::{TOP, WRITE_MASTER, read_master, top};
use crate::cgla::sample::Sample;
use crate::cgla::{ArrayConfig, Error, LaneSign, Result};
use crate::dsl::Design;
use crate::emit::core::{Core, Master, Parameter, TextFile};

/// The C++ harness of the simulation, with places for the ports.
const HARNESS: &str = include_str!("../../testbench/cgla_harness.cpp");

/// The self-checking Verilog test bench, with places for the ports.
const TESTBENCH: &str = include_str!("../../testbench/tb_nf_cgla.v");

/// The netlist of a build.
pub fn design(config: &ArrayConfig) -> Result<Design> {
    config.check()?;
    let (file, constants) = hardware_registers(&register_map(config), "nf_cgla_registers")
        .map_err(|e| Error::Netlist(e.to_string()))?;
    Ok(Design::new(top(config, &file, &constants)?)?)
}

/// `(file name, text)` of the Verilog of a build.
pub fn verilog(config: &ArrayConfig) -> Result<Vec<(String, String)>> {
    Ok(design(config)?.print_verilog(HEADER))
}

/// The AXI4 masters of a build.
pub fn masters(config: &ArrayConfig) -> Vec<Master> {
    let master = |name: String, writes: bool| Master {
        name,
        width: 128,
        address_width: crate::cgla::rtl::ADDRESS_BITS,
        reads: !writes,
        writes,
    };
    let mut masters: Vec<Master> = (0..config.ports)
        .map(|g| master(read_master(g), false))
        .collect();
    masters.push(master(WRITE_MASTER.into(), true));
    masters
}

/// The C++ harness for a build.
pub fn harness(config: &ArrayConfig) -> String {
    let mut bindings = String::new();
    for p in 0..config.ports {
        let of = |n: &str| format!("&top->{}_{n}", read_master(p));
        bindings.push_str(&format!(
            "    pins[{p}] = {{{}, {}, {}, {}, top->{}_rdata.data(), {}, {}, {}, {}}};\n",
            of("arready"),
            of("rvalid"),
            of("rlast"),
            of("rresp"),
            read_master(p),
            of("arvalid"),
            of("rready"),
            of("arlen"),
            of("araddr"),
        ));
    }
    HARNESS
        .replace("@PORTS@", &config.ports.to_string())
        .replace("@BINDINGS@", &bindings)
}

/// The Verilog test bench with a small projection: bench, memory, registers, expected results.
pub fn testbench(config: &ArrayConfig) -> Result<Vec<(String, String)>> {
    let sample = Sample::new(config)?;
    let mut pins = String::new();
    for p in 0..config.ports {
        for (name, width) in [
            ("araddr", 40),
            ("arlen", 8),
            ("arvalid", 1),
            ("arready", 1),
            ("rdata", 128),
            ("rlast", 1),
            ("rvalid", 1),
            ("rready", 1),
        ] {
            pins.push_str(&format!(
                "        .{}_{name}({name}[{} +: {width}]),\n",
                read_master(p),
                p * width
            ));
        }
        let name = read_master(p);
        pins.push_str(&format!("        .{name}_rresp(2'd0),\n"));
        for open in ["arsize", "arburst", "arcache", "arprot"] {
            pins.push_str(&format!("        .{name}_{open}(),\n"));
        }
    }
    let bench = TESTBENCH
        .replace("@PINS@", pins.trim_end())
        .replace("@PORTS@", &config.ports.to_string())
        .replace("@WORDS@", &sample.memory.len().to_string())
        .replace("@WRITES@", &sample.registers.len().to_string())
        .replace("@RESULTS@", &sample.results.len().to_string());
    let lines = |list: Vec<String>| list.join("\n") + "\n";
    let memory = sample.memory.iter().map(|w| format!("{w:032x}")).collect();
    let registers = sample
        .registers
        .iter()
        .map(|(address, value)| format!("{address:08x}{value:08x}"))
        .collect();
    let expected = sample
        .results
        .iter()
        .map(|(address, value)| format!("{address:08x}{value:08x}"))
        .collect();
    Ok(vec![
        ("tb_nf_cgla.v".into(), bench),
        ("tb_memory.mem".into(), lines(memory)),
        ("tb_registers.mem".into(), lines(registers)),
        ("tb_expected.mem".into(), lines(expected)),
    ])
}

/// The build as TOML.
fn resolved(config: &ArrayConfig) -> String {
    let sign = match config.lane_sign {
        LaneSign::Signed => "signed",
        LaneSign::UnsignedLo => "unsigned-lo",
    };
    format!(
        "machine = \"cgla\"\nrows = {}\nports = {}\nlmm_words = {}\nlane_sign = \"{sign}\"\n",
        config.rows, config.ports, config.lmm_words
    )
}

/// Name of the design and of its folder: `cgla-r64-p4`.
pub fn name(config: &ArrayConfig) -> String {
    format!("cgla-r{}-p{}", config.rows, config.ports)
}

/// Compiles the core. `resources` is what `plan --json` shows.
pub fn compile(config: &ArrayConfig, resources: serde_json::Value) -> Result<Core> {
    let design = design(config)?;
    let text = |(name, text): (String, String)| TextFile { name, text };
    let parameter = |name: &str, value: u32| Parameter {
        name: name.into(),
        value: value.into(),
    };
    let mut testbench: Vec<TextFile> = testbench(config)?.into_iter().map(text).collect();
    testbench.push(text(("cgla_harness.cpp".into(), harness(config))));
    testbench.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Core {
        name: name(config),
        description: format!(
            "Programmable linear array of {} rows on {} memory ports",
            config.rows, config.ports
        ),
        top: TOP.into(),
        ports: top_ports(&design),
        parameters: vec![
            parameter("ROWS", config.rows),
            parameter("PORTS", config.ports),
            parameter("LMM_WORDS", config.lmm_words),
            parameter(
                "UNSIGNED_LO",
                (config.lane_sign == LaneSign::UnsignedLo).into(),
            ),
        ],
        registers: register_map(config),
        dmas: vec![],
        masters: masters(config),
        rtl: design.print_verilog(HEADER).into_iter().map(text).collect(),
        memories: design.memory_files().into_iter().map(text).collect(),
        testbench,
        resolved: resolved(config),
        resources,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_every_kind_are_sound_netlists() {
        for lane_sign in [LaneSign::Signed, LaneSign::UnsignedLo] {
            for (rows, ports, lmm_words) in [(64, 4, 512), (32, 4, 256), (2, 1, 64), (128, 2, 4096)]
            {
                let config = ArrayConfig {
                    rows,
                    ports,
                    lmm_words,
                    lane_sign,
                };
                let files = verilog(&config).unwrap();
                assert_eq!(files, verilog(&config).unwrap());
                assert!(files.iter().any(|(name, _)| name == "nf_cgla.v"));
            }
        }
        let odd = ArrayConfig {
            rows: 30,
            ..ArrayConfig::default()
        };
        assert!(
            verilog(&odd)
                .unwrap_err()
                .to_string()
                .contains("multiple of 8")
        );
    }
}
