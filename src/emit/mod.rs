//! Turns a finished core into a set of files: Verilog, memories, testbench, Vivado scripts, software, manifest.
//!
//! The emitter decides nothing about the hardware. It takes a [`Core`] (plain data) and a [`Target`] and returns a
//! [`FileSet`] in memory, which is then written, or compared with what is on disk. Same input, same bytes.

pub mod core;
pub mod escape;
pub mod fileset;
pub mod regmap;
mod software;
mod vivado;

use serde_json::{Value, json};

pub use self::core::{
    Core, Direction, Dma, Master, Parameter, Port, Stream, TextFile, expected_ports, trainer_dmas,
};
pub use fileset::{Difference, FileSet, MANIFEST, Written, sha256};
pub use regmap::{RegisterMap, TrainerResets, trainer_map};

use crate::config::Device;
use crate::diag::{Diagnostic, Problems};

/// Version in every header.
pub const GENERATOR: &str = env!("CARGO_PKG_VERSION");

/// Version of the packaged IP; Vivado wants two numbers.
const IP_VERSION: &str = "1.0";

/// Version of the manifest's layout.
const MANIFEST_VERSION: u32 = 1;

/// Where a core is to run.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub device: &'a Device,
    pub clock_mhz: u64,
}

/// All files of a design.
pub fn file_set(core: &Core, target: &Target<'_>) -> Result<FileSet, Problems> {
    check_ports(core)?;
    let mut set = FileSet::new();
    for (folder, files) in [
        ("rtl", &core.rtl),
        ("mem", &core.memories),
        ("tb", &core.testbench),
    ] {
        for file in files {
            set.insert(format!("{folder}/{}", file.name), file.text.as_str())?;
        }
    }
    set.insert("resolved.toml", core.resolved.as_str())?;
    for rendered in [vivado::files(core, target), software::files(core, target)] {
        let files = rendered.map_err(|_| {
            Diagnostic::new(
                "nf::emit::bad_text",
                "a name of the design or device cannot be written into a script",
                "names may not hold quotes, backslashes, `$` or control characters",
            )
        })?;
        for (path, text) in files {
            set.insert(path, text)?;
        }
    }
    let manifest = serde_json::to_string_pretty(&manifest(core, target, &set)).unwrap_or_default();
    set.insert(MANIFEST, manifest + "\n")?;
    Ok(set)
}

/// Everything a script, a harness or a person needs to know about the design without reading its Verilog.
fn manifest(core: &Core, target: &Target<'_>, set: &FileSet) -> Value {
    let files: Vec<Value> = set
        .iter()
        .map(|(path, bytes)| json!({ "path": path, "sha256": sha256(bytes), "bytes": bytes.len() }))
        .collect();
    json!({
        "manifest_version": MANIFEST_VERSION,
        "generator": format!("nfgen {GENERATOR}"),
        "versions": { "nfgen": GENERATOR, "manifest": MANIFEST_VERSION, "ip": IP_VERSION, "vivado_oldest": vivado::OLDEST_VIVADO },
        "name": core.name,
        "top": core.top,
        "device": { "name": target.device.name, "part": target.device.part, "board_part": target.device.board_part },
        "clock_mhz": target.clock_mhz,
        "rtl_sha256": set.sha256_below("rtl"),
        "ports": core.ports,
        "parameters": core.parameters,
        "streams": core.dmas,
        "masters": core.masters,
        "register_map": { "block": core.registers.block, "registers": core.registers.to_json() },
        "resources": core.resources,
        "files": files,
    })
}

/// The top module must have the ports that the packager, the harness and the drivers rely on, and no others.
fn check_ports(core: &Core) -> Result<(), Diagnostic> {
    let expected = expected_ports(&core.dmas, &core.masters);
    for port in &expected {
        if !core.ports.contains(port) {
            return Err(Diagnostic::new(
                "nf::emit::wrong_ports",
                format!("top module `{}` has no port {}", core.top, describe(port)),
                "a core has clock, reset, s_axil, its streams and irq under the names in docs/architecture.md",
            ));
        }
    }
    match core.ports.iter().find(|port| !expected.contains(port)) {
        Some(port) => Err(Diagnostic::new(
            "nf::emit::wrong_ports",
            format!(
                "top module `{}` has the unexpected port {}",
                core.top,
                describe(port)
            ),
            "no signal may reach a package pin; connect it inside or declare its stream",
        )),
        None => Ok(()),
    }
}

fn describe(port: &Port) -> String {
    let direction = match port.direction {
        Direction::Input => "input",
        Direction::Output => "output",
    };
    format!("`{}` ({direction}, {} bits)", port.name, port.width)
}
