//! The generated Vivado scripts, run in tclsh with a stand-in for Vivado that knows commands, options, pins and
//! properties, and logs every call.

#[path = "support/design.rs"]
mod design;
#[path = "support/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STANDIN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/support/vivado_standin.tcl"
);

struct Run {
    output: Output,
    calls: String,
}

impl Run {
    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// An emitted design in a folder whose name Tcl would like to interpret.
struct Design {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Design {
    fn new(device: &str) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let root = folder.path().join("a b [0] $x {y}");
        design::sample_files("sample", device)
            .write(&root)
            .expect("written");
        Self {
            _folder: folder,
            root,
        }
    }

    fn run(
        &self,
        tclsh: &Path,
        script: &str,
        arguments: &[&str],
        settings: &[(&str, &str)],
    ) -> Run {
        let log = self.root.join("calls.log");
        let output = Command::new(tclsh)
            .arg(STANDIN)
            .arg(self.root.join("vivado").join(script))
            .args(arguments)
            .current_dir(&self.root)
            .env("STANDIN_LOG", &log)
            .envs(settings.iter().copied())
            .output()
            .expect("tclsh runs");
        Run {
            output,
            calls: std::fs::read_to_string(&log).expect("the stand-in logs"),
        }
    }
}

#[test]
fn the_out_of_context_script_runs_to_its_end() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    let design = Design::new("zcu102");
    let run = design.run(&tclsh, "ooc.tcl", &[], &[]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    insta::assert_snapshot!("ooc_calls", run.calls);
    let summary =
        std::fs::read_to_string(design.root.join("vivado/build/ooc/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["wns_ns"], 0.123);
    assert_eq!(summary["part"], "xczu9eg-ffvb1156-2-e");
    for product in [
        "synth.dcp",
        "routed.dcp",
        "utilization.rpt",
        "timing_summary.rpt",
        "drc.rpt",
        "power.rpt",
    ] {
        assert!(
            design.root.join("vivado/build/ooc").join(product).is_file(),
            "{product}"
        );
    }
}

#[test]
fn the_system_script_runs_to_its_end() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    let design = Design::new("zcu102");
    let run = design.run(&tclsh, "system.tcl", &["-jobs", "2"], &[]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    insta::assert_snapshot!("system_calls", run.calls);
    for product in [
        "sample.bit",
        "sample.hwh",
        "sample.xsa",
        "utilization.rpt",
        "summary.json",
    ] {
        assert!(
            design
                .root
                .join("vivado/build/system")
                .join(product)
                .is_file(),
            "{product}"
        );
    }
    assert!(
        !run.calls.contains("create_clock"),
        "pl_clk0 is constrained by the processing system"
    );
}

#[test]
fn every_zynq_board_of_the_catalogue_gets_a_system() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    for device in nfgen::config::device::catalogue().unwrap() {
        let design = Design::new(&device.name);
        let has_system = design.root.join("vivado/system.tcl").is_file();
        assert_eq!(has_system, device.has_zynq_ps(), "{}", device.name);
        let run = design.run(&tclsh, "ooc.tcl", &[], &[]);
        assert_eq!(run.code(), Some(0), "{}: {}", device.name, run.stderr());
        if has_system {
            let run = design.run(&tclsh, "system.tcl", &[], &[]);
            assert_eq!(run.code(), Some(0), "{}: {}", device.name, run.stderr());
            assert!(run.calls.contains(&device.board_part), "{}", device.name);
        }
    }
}

#[test]
fn releases_without_the_concatenation_ip_use_inline_hdl() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    let run = Design::new("zcu102").run(&tclsh, "system.tcl", &[], &[("STANDIN_NO_XLCONCAT", "1")]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert!(run.calls.contains("inline_hdl:ilconcat"));
}

/// Each obstacle: script, arguments, environment, and words of the one plain sentence.
#[test]
fn obstacles_are_reported_in_plain_words_with_exit_code_1() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    type Case<'a> = (&'a str, &'a [&'a str], (&'a str, &'a str), &'a str);
    let cases: [Case<'_>; 11] = [
        (
            "ooc.tcl",
            &[],
            ("STANDIN_VERSION", "2020.2"),
            "this is Vivado 2020.2; these scripts need 2022.1 or newer",
        ),
        (
            "ooc.tcl",
            &[],
            ("STANDIN_PARTS", ""),
            "part xczu9eg-ffvb1156-2-e is not in this Vivado installation",
        ),
        (
            "system.tcl",
            &[],
            ("STANDIN_BOARDS", "xilinx.com:zcu104:part0:1.1"),
            "board files of xilinx.com:zcu102:part0 are not installed",
        ),
        (
            "ooc.tcl",
            &[],
            ("STANDIN_WNS", "-0.01"),
            "timing is not met (setup -0.01 ns",
        ),
        (
            "system.tcl",
            &[],
            ("STANDIN_WHS", "-0.5"),
            "timing is not met (setup 0.123 ns, hold -0.5 ns)",
        ),
        (
            "ooc.tcl",
            &[],
            ("STANDIN_WNS", "none"),
            "no path was timed for setup",
        ),
        (
            "ooc.tcl",
            &[],
            ("STANDIN_CRITICAL", "3"),
            "3 critical warnings in this session",
        ),
        (
            "system.tcl",
            &[],
            ("STANDIN_RUN_LOG", "CRITICAL WARNING: [Opt 31-1] bad"),
            "2 in logs",
        ),
        (
            "system.tcl",
            &[],
            ("STANDIN_PROGRESS", "40%"),
            "run synth_1 stopped",
        ),
        (
            "system.tcl",
            &[],
            ("STANDIN_CORE_BUSES", "s_axil s_axis_token"),
            "did not recognise the bus m_axis_result",
        ),
        (
            "ooc.tcl",
            &["-fast"],
            ("STANDIN_WNS", "1"),
            "unknown argument '-fast'",
        ),
    ];
    let design = Design::new("zcu102");
    for (script, arguments, setting, words) in cases {
        let run = design.run(&tclsh, script, arguments, &[setting]);
        assert_eq!(run.code(), Some(1), "{setting:?}: {}", run.stderr());
        let stderr = run.stderr();
        assert!(stderr.contains(words), "{setting:?} said: {stderr}");
        assert!(
            !stderr.contains("while executing"),
            "a stack trace: {stderr}"
        );
    }
}

#[test]
fn a_critical_warning_can_be_let_through_by_its_id() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    let design = Design::new("zcu102");
    std::fs::write(design.root.join("vivado.log"), "INFO: fine\n").unwrap();
    let setting = ("STANDIN_RUN_LOG", "CRITICAL WARNING: [Opt 31-1] understood");
    let run = design.run(&tclsh, "system.tcl", &["-allow", "Opt 31-1"], &[setting]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    let run = design.run(&tclsh, "system.tcl", &["-allow", "Opt 31-2"], &[setting]);
    assert_eq!(run.code(), Some(1), "{}", run.stderr());
}

#[test]
fn checks_only_builds_nothing() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    let design = Design::new("zcu102");
    let run = design.run(&tclsh, "system.tcl", &["-checks-only"], &[]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr());
    assert!(!design.root.join("vivado/build").exists());
}

/// The stand-in is worth something only if it notices mistakes: each of these edits must fail.
#[test]
fn mistakes_in_a_script_are_noticed() {
    let Some(tclsh) = tools::tool("tclsh") else {
        return;
    };
    let edits = [
        ("ooc.tcl", "route_design", "rout_design"),
        ("ooc.tcl", "-flatten_hierarchy", "-flatten"),
        ("ooc.tcl", "rtl/nf_mac.v", "rtl/nf_mca.v"),
        ("ooc.xdc", "create_clock", "create_clok"),
        (
            "system.tcl",
            "set_property board_part",
            "set_propery board_part",
        ),
        ("system.tcl", "PSU__USE__IRQ0", "PSU__USE_IRQ0"),
        ("system.tcl", "ps/maxihpm0_lpd_aclk", "ps/maxihpm0_aclk"),
        ("system.tcl", " [get_bd_pins ps/saxihp0_fpd_aclk]", ""),
        (
            "system.tcl",
            "connect_bd_net [get_bd_pins ps/pl_resetn0]",
            "# ",
        ),
        ("system.tcl", "exclude_bd_addr_seg", "# "),
        ("system.tcl", "core/s_axis_token", "core/s_axis_weight"),
        ("package.tcl", "ipx::save_core", "ipx::save"),
    ];
    for (file, from, to) in edits {
        let design = Design::new("zcu102");
        let path = design.root.join("vivado").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let script = match file {
            "ooc.xdc" => "ooc.tcl",
            "package.tcl" => "system.tcl",
            other => other,
        };
        let run = design.run(&tclsh, script, &[], &[]);
        assert_eq!(
            run.code(),
            Some(3),
            "{file}: {from} -> {to}: {}",
            run.stderr()
        );
        assert!(run.stderr().contains("STANDIN"), "{}", run.stderr());
    }
}
