//! Runs the installed linters over printed Verilog.

use std::path::Path;
use std::process::Command;

/// What one tool said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The tool.
    pub tool: &'static str,
    /// Its output.
    pub text: String,
}

/// Result of a lint run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LintReport {
    /// Tools that ran.
    pub ran: Vec<&'static str>,
    /// Tools that are not installed.
    pub missing: Vec<&'static str>,
    /// Everything that was said.
    pub findings: Vec<Finding>,
}

/// Checks `files` (Verilog and `$readmemh` files) with Verilator, Icarus Verilog and Yosys.
/// A tool that prints anything or fails is a finding.
pub fn lint(
    top: &str,
    verilog: &[(String, String)],
    memory: &[(String, String)],
) -> std::io::Result<LintReport> {
    let dir = tempfile::tempdir()?;
    for (name, text) in verilog.iter().chain(memory) {
        std::fs::write(dir.path().join(name), text)?;
    }
    let names: Vec<&str> = verilog.iter().map(|(name, _)| name.as_str()).collect();
    let mut report = LintReport::default();
    let mut verilator: Vec<&str> = vec!["--lint-only", "-Wall", "--top-module", top];
    verilator.extend(&names);
    run(&mut report, dir.path(), "verilator", &verilator)?;
    let mut icarus: Vec<&str> = vec!["-g2005", "-Wall", "-s", top, "-o", "lint.vvp"];
    icarus.extend(&names);
    run(&mut report, dir.path(), "iverilog", &icarus)?;
    // Vendor primitives have no model here: the behavioural branch is what Yosys checks. Older
    // versions do not know the system tasks of simulation checks, so those are left out.
    let mut yosys = String::from("read_verilog -formal -DSIMULATION");
    for (name, text) in verilog {
        let plain = format!("plain_{name}");
        std::fs::write(dir.path().join(&plain), without_checks(text))?;
        yosys.push(' ');
        yosys.push_str(&plain);
    }
    let script = format!("{yosys}; hierarchy -check -top {top}; proc; check -assert");
    run(&mut report, dir.path(), "yosys", &["-q", "-p", &script])?;
    Ok(report)
}

/// The text without its simulation checks, which the printer puts under `ifndef SYNTHESIS`.
fn without_checks(text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in text.lines() {
        inside |= line == "`ifndef SYNTHESIS";
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
        inside &= line != "`endif";
    }
    out
}

fn run(
    report: &mut LintReport,
    dir: &Path,
    tool: &'static str,
    args: &[&str],
) -> std::io::Result<()> {
    if which::which(tool).is_err() {
        report.missing.push(tool);
        return Ok(());
    }
    let out = Command::new(tool).args(args).current_dir(dir).output()?;
    report.ran.push(tool);
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    if !out.status.success() || !text.trim().is_empty() {
        report.findings.push(Finding { tool, text });
    }
    Ok(())
}

/// For tests: lints a module tree with whatever tools are installed.
///
/// # Panics
/// On any finding, or when a tool is missing and `NFGEN_REQUIRE_TOOLS=1`.
pub fn assert_clean(def: &std::sync::Arc<crate::dsl::ModuleDef>) {
    let design = crate::dsl::Design::new(def.clone()).unwrap_or_else(|e| panic!("{e}"));
    let report = lint(&def.name, &design.print_verilog(""), &design.memory_files())
        .unwrap_or_else(|e| panic!("{e}"));
    let required = std::env::var("NFGEN_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
    for tool in &report.missing {
        assert!(!required, "{tool} is not installed");
        println!("skipped: lint of {} by {tool}: not installed", def.name);
    }
    if let Some(finding) = report.findings.first() {
        panic!("{} on {}:\n{}", finding.tool, def.name, finding.text);
    }
}
