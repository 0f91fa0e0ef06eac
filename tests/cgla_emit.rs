//! The emitted array: files, lint, test bench, Vivado scripts, software.

#[path = "support/cc.rs"]
mod cc;
#[path = "support/tools.rs"]
mod tools;

use std::path::Path;
use std::process::{Command, Output};

use nfgen::cgla::{ArrayConfig, LaneSign};
use nfgen::compile::cgla::compile;
use nfgen::config::load_device;
use nfgen::emit::{Core, FileSet, Target, file_set};

const STANDIN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/support/vivado_standin.tcl"
);

fn config(rows: u32, ports: u32, lane_sign: LaneSign) -> ArrayConfig {
    ArrayConfig {
        rows,
        ports,
        lmm_words: 128,
        lane_sign,
    }
}

fn core(config: &ArrayConfig) -> Core {
    compile(config, serde_json::json!({})).expect("a legal build")
}

fn files(config: &ArrayConfig) -> FileSet {
    let device = load_device("zcu102").expect("built in");
    let target = Target {
        device: &device,
        clock_mhz: 250,
    };
    file_set(&core(config), &target).expect("a legal core")
}

fn text(output: &Output) -> String {
    let parts = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&parts).into_owned()
}

#[test]
fn two_emissions_are_equal_and_say_everything() {
    let build = config(8, 2, LaneSign::UnsignedLo);
    let first = files(&build);
    let second = std::thread::spawn(move || files(&build))
        .join()
        .expect("no panic");
    assert_eq!(first, second);
    let manifest: serde_json::Value =
        serde_json::from_slice(first.get("manifest.json").expect("there")).expect("JSON");
    assert_eq!(manifest["top"], "nf_cgla");
    assert_eq!(manifest["masters"].as_array().expect("a list").len(), 3);
    assert_eq!(manifest["parameters"][0]["value"], 8);
    assert_eq!(manifest["register_map"]["registers"][0]["name"], "ID");
    let ports = manifest["ports"].as_array().expect("a list");
    for port in [
        "aclk",
        "aresetn",
        "s_axil_wstrb",
        "m_axi_r1_rresp",
        "m_axi_w_awcache",
        "irq",
    ] {
        assert!(ports.iter().any(|p| p["name"] == port), "{port}");
    }
    for path in [
        "rtl/nf_cgla.v",
        "tb/cgla_harness.cpp",
        "tb/tb_nf_cgla.v",
        "vivado/ooc.tcl",
        "vivado/ooc.xdc",
        "vivado/system.tcl",
        "software/nf_cgla_registers.h",
        "software/nf_cgla_driver.c",
        "software/nf_cgla_overlay.py",
        "software/registers.md",
        "nfgen.core",
        "resolved.toml",
    ] {
        assert!(first.get(path).is_some(), "{path}");
    }
    let host = env!("CARGO_MANIFEST_DIR");
    for (path, bytes) in first.iter() {
        assert!(
            !String::from_utf8_lossy(bytes).contains(host),
            "{path} holds a host path"
        );
    }
    let other = files(&config(16, 2, LaneSign::UnsignedLo));
    assert_ne!(first.sha256_below("rtl"), other.sha256_below("rtl"));
}

#[test]
fn every_kind_of_build_is_lint_clean() {
    for (rows, ports, sign) in [(8, 2, LaneSign::UnsignedLo), (2, 1, LaneSign::Signed)] {
        let core = core(&config(rows, ports, sign));
        let rtl: Vec<(String, String)> = core
            .rtl
            .iter()
            .map(|f| (f.name.clone(), f.text.clone()))
            .collect();
        let report = nfgen::sim::lint::lint(&core.top, &rtl, &[]).expect("the linters run");
        for tool in &report.missing {
            assert!(
                std::env::var_os("NFGEN_REQUIRE_TOOLS").is_none(),
                "{tool} is required"
            );
            println!("skipped: lint by {tool}: not installed");
        }
        if let Some(finding) = report.findings.first() {
            panic!("{}: {}", finding.tool, finding.text);
        }
    }
}

/// What a reader of the emitted Verilog sees; `cargo insta review` after a wanted change.
#[test]
fn leaves_are_as_reviewed() {
    let core = core(&config(8, 2, LaneSign::UnsignedLo));
    for file in &core.rtl {
        let name = file.name.trim_end_matches(".v");
        // Group, register file and top are covered by what they are made of.
        if !["nf_cgla_group", "nf_cgla_registers", "nf_cgla"].contains(&name) {
            insta::assert_snapshot!(name.to_string(), file.text);
        }
    }
}

/// Compiles and runs the emitted test bench in Icarus, which knows X and starts with it.
fn bench(core: &Core, rtl: impl Fn(&str, &str) -> String) -> Option<String> {
    let (compiler, runner) = (tools::tool("iverilog")?, tools::tool("vvp")?);
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut sources = vec![];
    for file in core.rtl.iter().chain(&core.testbench) {
        let path = folder.path().join(&file.name);
        std::fs::write(&path, rtl(&file.name, &file.text)).expect("written");
        if file.name.ends_with(".v") {
            sources.push(file.name.clone());
        }
    }
    let built = Command::new(compiler)
        .args(["-g2005", "-Wall", "-s", "tb_nf_cgla", "-o", "bench.vvp"])
        .args(&sources)
        .current_dir(folder.path())
        .output()
        .expect("iverilog runs");
    assert!(built.status.success(), "{}", text(&built));
    let ran = Command::new(runner)
        .args(["-n", "bench.vvp"])
        .current_dir(folder.path())
        .output()
        .expect("vvp runs");
    Some(text(&ran))
}

#[test]
fn the_emitted_bench_passes_from_unknown_registers_after_a_short_reset() {
    for (rows, ports, sign) in [(8, 2, LaneSign::UnsignedLo), (4, 1, LaneSign::UnsignedLo)] {
        let core = core(&config(rows, ports, sign));
        let Some(said) = bench(&core, |_, text| text.to_string()) else {
            return;
        };
        assert!(said.contains("PASS: 74 results"), "{said}");
    }
}

#[test]
fn the_emitted_bench_notices_a_fault() {
    let core = core(&config(4, 1, LaneSign::UnsignedLo));
    for (file, from, to) in [
        // A table entry: 1 * 1.
        (
            "nf_sma4_digit_u.v",
            "6'd17: product_case = 6'd1;",
            "6'd17: product_case = 6'd2;",
        ),
        // Registers that steer the array without a reset stay unknown.
        ("nf_cgla_sequencer.v", "if (rst)", "if (1'b0)"),
    ] {
        let changed = |name: &str, text: &str| {
            if name != file {
                return text.to_string();
            }
            assert!(text.contains(from), "{file} has no `{from}`:\n{text}");
            text.replace(from, to)
        };
        let Some(said) = bench(&core, changed) else {
            return;
        };
        assert!(
            said.contains("FAIL") && !said.contains("PASS"),
            "{from}: {said}"
        );
    }
}

fn vivado(root: &Path, script: &str) -> Option<(Output, String)> {
    let tclsh = tools::tool("tclsh")?;
    let log = root.join("calls.log");
    let output = Command::new(tclsh)
        .arg(STANDIN)
        .arg(root.join("vivado").join(script))
        .current_dir(root)
        .env("STANDIN_LOG", &log)
        .output()
        .expect("tclsh runs");
    let calls = std::fs::read_to_string(&log).expect("the stand-in logs");
    Some((output, calls))
}

#[test]
fn the_vivado_scripts_run_to_their_end() {
    for ports in [1, 4] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path();
        let name = format!("cgla-r8-p{ports}");
        files(&config(8, ports, LaneSign::UnsignedLo))
            .write(root)
            .expect("written");
        let Some((ran, _)) = vivado(root, "ooc.tcl") else {
            return;
        };
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
        let Some((ran, calls)) = vivado(root, "system.tcl") else {
            return;
        };
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
        assert!(
            root.join(format!("vivado/build/system/{name}.bit"))
                .is_file()
        );
        let used = |port: u32| calls.contains(&format!("ps/S_AXI_HP{port}_FPD"));
        assert!(used(0) && used(3) == (ports == 4), "{calls}");
        if ports == 4 {
            insta::assert_snapshot!("cgla_system_calls", calls);
        }
    }
}

/// Each of these mistakes in the block design must be noticed.
#[test]
fn a_memory_port_left_open_is_noticed() {
    for (from, to) in [
        ("core/m_axi_r2]", "core/m_axi_r1]"),
        (
            "CONFIG.PSU__USE__S_AXI_GP4 1",
            "CONFIG.PSU__USE__S_AXI_GP3 1",
        ),
        (
            "foreach space [list core/m_axi_r1 ]",
            "foreach space [list ]",
        ),
    ] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path();
        files(&config(8, 4, LaneSign::UnsignedLo))
            .write(root)
            .expect("written");
        let path = root.join("vivado/system.tcl");
        let script = std::fs::read_to_string(&path).expect("readable");
        assert!(script.contains(from), "no {from} in {script}");
        std::fs::write(&path, script.replace(from, to)).expect("written");
        let Some((ran, _)) = vivado(root, "system.tcl") else {
            return;
        };
        assert_eq!(ran.status.code(), Some(3), "{from}: {}", text(&ran));
    }
}

#[test]
fn the_software_compiles() {
    let folder = tempfile::tempdir().expect("temporary folder");
    files(&config(8, 4, LaneSign::UnsignedLo))
        .write(folder.path())
        .expect("written");
    let software = folder.path().join("software");
    if let Some(compiler) = tools::tool("cc") {
        let check = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/support/cgla_driver_check.c"
        );
        let program = folder.path().join("check");
        let built = cc::strict(&compiler)
            .arg("-I")
            .arg(&software)
            .arg(software.join("nf_cgla_driver.c"))
            .arg(check)
            .arg("-o")
            .arg(&program)
            .output()
            .expect("cc runs");
        assert!(built.status.success(), "{}", text(&built));
        let ran = Command::new(program).output().expect("it runs");
        assert!(ran.status.success(), "{}", text(&ran));
    }
    if let Some(python) = tools::tool("python3") {
        let check = "import ast,sys; ast.parse(open(sys.argv[1]).read())";
        let ran = Command::new(python)
            .arg("-c")
            .arg(check)
            .arg(software.join("nf_cgla_overlay.py"))
            .output()
            .expect("python runs");
        assert!(ran.status.success(), "{}", text(&ran));
    }
}

/// The options of one machine are refused for the other, and an array that is too large names
/// the largest that fits.
#[test]
fn the_command_line_keeps_the_machines_apart() {
    let run = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_nfgen"))
            .args(arguments.split(' '))
            .output()
            .expect("the binary runs");
        (output.status.code(), text(&output))
    };
    let (code, said) = run("plan --device zcu102 --rows 32");
    assert_eq!(code, Some(2));
    assert!(said.contains("--rows belongs to --machine cgla"), "{said}");
    let (code, said) = run("plan --machine cgla --array 8");
    assert_eq!(code, Some(2));
    assert!(
        said.contains("--array belongs to --machine trainer"),
        "{said}"
    );
    let (code, said) = run("plan --machine cgla --device zcu102 --rows 30");
    assert_eq!(code, Some(2));
    assert!(said.contains("multiple of 8"), "{said}");
    let (code, said) = run("plan --machine cgla --device kv260 --rows 64");
    assert_eq!(code, Some(2));
    assert!(
        said.contains("the most that fits on these ports: --rows"),
        "{said}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_nfgen"))
        .args(["plan", "--machine", "cgla", "--device", "zcu102", "--json"])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["fits"], true);
    assert!(plan["ternary_layers"][0]["tokens_per_second"].as_f64() > Some(20.0));
}
