//! The shell scripts: valid, and clear about what is missing.

#[path = "support/design.rs"]
mod design;
#[path = "support/tools.rs"]
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(name: &str) -> PathBuf {
    root().join(name)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_script_is_valid_and_strict() {
    let Some(bash) = tools::tool("bash") else {
        return;
    };
    for name in [
        "scripts/install-tools",
        "scripts/lint-rtl",
        "scripts/bitstream",
        ".ci/run",
    ] {
        let output = Command::new(&bash)
            .arg("-n")
            .arg(script(name))
            .output()
            .expect("bash runs");
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let text = std::fs::read_to_string(script(name)).expect("readable");
        assert!(text.contains("set -euo pipefail"), "{name}");
    }
}

/// Without Vivado on the PATH the user learns what to install and what to run; nothing else happens.
#[test]
fn bitstream_without_vivado_says_what_to_do() {
    if tools::tool("bash").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    design::sample_files("sample", "zcu102")
        .write(folder.path())
        .expect("written");
    let run = |path: &Path| {
        Command::new(script("scripts/bitstream"))
            .arg(path)
            .env("PATH", "/usr/bin:/bin")
            .output()
            .expect("the script runs")
    };
    let output = run(folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("vivado is not on the PATH"),
        "{}",
        stderr(&output)
    );
    assert!(
        stderr(&output).contains("vivado/system.tcl -tclargs -jobs"),
        "{}",
        stderr(&output)
    );
    let card = tempfile::tempdir().expect("temporary folder");
    design::sample_files("sample", "u280")
        .write(card.path())
        .expect("written");
    let output = run(card.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("has no vivado/system.tcl"),
        "{}",
        stderr(&output)
    );
}

/// With one on the PATH it is run on the design's script.
#[test]
fn bitstream_runs_vivado() {
    if tools::tool("bash").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    design::sample_files("sample", "zcu102")
        .write(folder.path())
        .expect("written");
    let bin = tempfile::tempdir().expect("temporary folder");
    let vivado = bin.path().join("vivado");
    std::fs::write(&vivado, "#!/bin/sh\necho \"$@\"\nexit 7\n").expect("written");
    let executable = Command::new("chmod")
        .arg("+x")
        .arg(&vivado)
        .status()
        .expect("chmod runs");
    assert!(executable.success());
    let output = Command::new(script("scripts/bitstream"))
        .arg(folder.path())
        .env("PATH", format!("{}:/usr/bin:/bin", bin.path().display()))
        .output()
        .expect("the script runs");
    assert_eq!(
        output.status.code(),
        Some(7),
        "Vivado's verdict is the script's"
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("-mode batch -nojournal -source"), "{said}");
}

#[test]
fn lint_needs_a_design_and_finds_faults() {
    for name in ["bash", "verilator", "iverilog"] {
        if tools::tool(name).is_none() {
            return;
        }
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let run = || {
        Command::new(script("scripts/lint-rtl"))
            .arg(folder.path())
            .output()
            .expect("the script runs")
    };
    let output = run();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("holds no emitted design"));
    let mut core = design::sample_core("sample");
    let device = nfgen::config::load_device("zcu102").expect("built in");
    let target = nfgen::emit::Target {
        device: &device,
        clock_mhz: 150,
    };
    core.rtl[0].text =
        "module nf_mac (input wire a, output wire b);\nassign b = a;\nendmodule\n".into();
    core.rtl[1].text = "module nf_trainer (input wire a, output wire b);\nnf_mac u_mac (.a(a), .b(b));\nendmodule\n".into();
    nfgen::emit::file_set(&core, &target)
        .expect("legal")
        .write(folder.path())
        .expect("written");
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    core.rtl[0].text =
        "module nf_mac (input wire a, output wire [1:0] b);\nassign b = a;\nendmodule\n".into();
    nfgen::emit::file_set(&core, &target)
        .expect("legal")
        .write(folder.path())
        .expect("written");
    assert_ne!(
        run().status.code(),
        Some(0),
        "a width mismatch passes the lint"
    );
}
