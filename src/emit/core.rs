//! What a machine hands to the emitter: plain data about the core, so that templates depend on no machine.

use serde::Serialize;

use super::fileset::sha256;
use super::regmap::RegisterMap;

/// Direction of a port, seen from the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Input,
    Output,
}

/// A port of the top module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    pub name: String,
    pub direction: Direction,
    pub width: u32,
}

/// A parameter of the top module and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    pub name: String,
    pub value: u64,
}

/// An AXI4-Stream of the core with TDATA, TKEEP, TVALID, TREADY and TLAST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// Bus name: `s_axis_token`.
    pub name: String,
    /// Bits of TDATA.
    pub width: u32,
}

/// A DMA engine of the system and the streams it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dma {
    /// Cell name: `token_dma`.
    pub name: String,
    /// Stream into the core.
    pub into: Option<Stream>,
    /// Stream out of the core.
    pub out_of: Option<Stream>,
}

/// An AXI4 master of the core on the memory, without IDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Master {
    /// Bus name: `m_axi_r0`.
    pub name: String,
    /// Bits of the data channels.
    pub width: u32,
    /// Bits of the addresses.
    pub address_width: u32,
    /// Has the read channels.
    pub reads: bool,
    /// Has the write channels.
    pub writes: bool,
}

/// A generated text file by its name within a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFile {
    pub name: String,
    pub text: String,
}

/// A finished core.
#[derive(Clone, Debug)]
pub struct Core {
    /// Name of the design and of its folder.
    pub name: String,
    /// One sentence for catalogues.
    pub description: String,
    /// Top module.
    pub top: String,
    pub ports: Vec<Port>,
    pub parameters: Vec<Parameter>,
    pub registers: RegisterMap,
    pub dmas: Vec<Dma>,
    /// Masters of the core itself.
    pub masters: Vec<Master>,
    /// Verilog, for `rtl/`.
    pub rtl: Vec<TextFile>,
    /// `$readmemh` files, for `mem/`.
    pub memories: Vec<TextFile>,
    /// Harness and whatever it needs, for `tb/`.
    pub testbench: Vec<TextFile>,
    /// The resolved configuration as TOML.
    pub resolved: String,
    /// Estimates of the planner, as `plan --json` shows them.
    pub resources: serde_json::Value,
}

impl Core {
    /// The one hash of the Verilog, as `emit`, `sim` and `synth` report it.
    pub fn rtl_sha256(&self) -> String {
        let files = self.rtl.iter();
        rtl_sha256(files.map(|f| (f.name.as_str(), f.text.as_str())))
    }
}

/// Hash of `(file name, text)` of the Verilog files of a design: SHA-256 over the lines `hash  rtl/name`, sorted.
pub fn rtl_sha256<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut lines: Vec<(String, String)> = files
        .map(|(name, text)| (format!("rtl/{name}"), sha256(text.as_bytes())))
        .collect();
    lines.sort();
    let text: String = lines
        .iter()
        .map(|(path, hash)| format!("{hash}  {path}\n"))
        .collect();
    sha256(text.as_bytes())
}

/// Bits of the AXI4-Lite address: 4 KiB of registers.
pub const AXIL_ADDRESS_WIDTH: u32 = 12;

/// The trainer's DMA engines: tokens in and results out, state in and out.
pub fn trainer_dmas() -> Vec<Dma> {
    let stream = |name: &str, width| {
        Some(Stream {
            name: name.into(),
            width,
        })
    };
    vec![
        Dma {
            name: "token_dma".into(),
            into: stream("s_axis_token", 32),
            out_of: stream("m_axis_result", 32),
        },
        Dma {
            name: "weight_dma".into(),
            into: stream("s_axis_weight", 128),
            out_of: stream("m_axis_weight", 128),
        },
    ]
}

/// Signals of a master's channels: name, driven by the core, width.
fn master_signals(master: &Master) -> Vec<(&'static str, bool, u32)> {
    let (address, data) = (master.address_width, master.width);
    let mut signals = vec![];
    if master.reads {
        signals.extend([
            ("araddr", true, address),
            ("arlen", true, 8),
            ("arsize", true, 3),
            ("arburst", true, 2),
            ("arcache", true, 4),
            ("arprot", true, 3),
            ("arvalid", true, 1),
            ("arready", false, 1),
            ("rdata", false, data),
            ("rresp", false, 2),
            ("rlast", false, 1),
            ("rvalid", false, 1),
            ("rready", true, 1),
        ]);
    }
    if master.writes {
        signals.extend([
            ("awaddr", true, address),
            ("awlen", true, 8),
            ("awsize", true, 3),
            ("awburst", true, 2),
            ("awcache", true, 4),
            ("awprot", true, 3),
            ("awvalid", true, 1),
            ("awready", false, 1),
            ("wdata", true, data),
            ("wstrb", true, data / 8),
            ("wlast", true, 1),
            ("wvalid", true, 1),
            ("wready", false, 1),
            ("bresp", false, 2),
            ("bvalid", false, 1),
            ("bready", true, 1),
        ]);
    }
    signals
}

/// The ports that a core with these DMA engines and masters must have: clock, reset, AXI4-Lite, streams, memory,
/// interrupt.
pub fn expected_ports(dmas: &[Dma], masters: &[Master]) -> Vec<Port> {
    use Direction::{Input, Output};
    let port = |name: &str, direction, width| Port {
        name: name.into(),
        direction,
        width,
    };
    let mut ports = vec![
        port("aclk", Input, 1),
        port("aresetn", Input, 1),
        port("s_axil_awaddr", Input, AXIL_ADDRESS_WIDTH),
        port("s_axil_awprot", Input, 3),
        port("s_axil_awvalid", Input, 1),
        port("s_axil_awready", Output, 1),
        port("s_axil_wdata", Input, 32),
        port("s_axil_wstrb", Input, 4),
        port("s_axil_wvalid", Input, 1),
        port("s_axil_wready", Output, 1),
        port("s_axil_bresp", Output, 2),
        port("s_axil_bvalid", Output, 1),
        port("s_axil_bready", Input, 1),
        port("s_axil_araddr", Input, AXIL_ADDRESS_WIDTH),
        port("s_axil_arprot", Input, 3),
        port("s_axil_arvalid", Input, 1),
        port("s_axil_arready", Output, 1),
        port("s_axil_rdata", Output, 32),
        port("s_axil_rresp", Output, 2),
        port("s_axil_rvalid", Output, 1),
        port("s_axil_rready", Input, 1),
    ];
    for dma in dmas {
        for (stream, data, ready) in [(&dma.into, Input, Output), (&dma.out_of, Output, Input)] {
            let Some(stream) = stream else { continue };
            let name = |signal: &str| format!("{}_{signal}", stream.name);
            ports.push(port(&name("tdata"), data, stream.width));
            ports.push(port(&name("tkeep"), data, stream.width / 8));
            ports.push(port(&name("tvalid"), data, 1));
            ports.push(port(&name("tready"), ready, 1));
            ports.push(port(&name("tlast"), data, 1));
        }
    }
    for master in masters {
        for (signal, driven, width) in master_signals(master) {
            let direction = if driven { Output } else { Input };
            ports.push(port(&format!("{}_{signal}", master.name), direction, width));
        }
    }
    ports.push(port("irq", Output, 1));
    ports
}
