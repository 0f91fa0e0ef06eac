//! Vivado scripts: contexts of the templates in `templates/vivado`.

use askama::Template;

use super::core::{Core, Stream};
use super::{GENERATOR, IP_VERSION, Target};

/// Oldest release the scripts are written for: block designs with board presets, `.xsa`, `get_ipdefs` as used here.
pub const OLDEST_VIVADO: &str = "2022.1";

/// Address of the core's registers on M_AXI_HPM0_LPD.
const CORE_ADDRESS: u64 = 0x8000_0000;
/// Address of the first DMA engine; each takes 64 KiB.
const DMA_ADDRESS: u64 = 0x8001_0000;
const DMA_RANGE: u64 = 0x1_0000;

/// Sourced by both scripts; no field depends on the design.
pub const CHECKS: &str = include_str!("../../templates/vivado/checks.tcl");

/// Board facts kept by hand, by device name.
const BOARD_CONSTRAINTS: [(&str, &str); 6] = [
    ("zcu102", include_str!("../../constraints/zcu102/board.xdc")),
    ("zcu104", include_str!("../../constraints/zcu104/board.xdc")),
    ("zcu106", include_str!("../../constraints/zcu106/board.xdc")),
    ("kv260", include_str!("../../constraints/kv260/board.xdc")),
    (
        "kria-kr260",
        include_str!("../../constraints/kria-kr260/board.xdc"),
    ),
    (
        "ultra96v2",
        include_str!("../../constraints/ultra96v2/board.xdc"),
    ),
];

/// A slave on the control port.
#[derive(Debug)]
pub struct Slave {
    /// Port of the interconnect: `M00_AXI`.
    pub port: String,
    /// Interface pin: `core/s_axil`.
    pub pin: String,
    pub address: String,
    pub range: &'static str,
    /// Name in the C header.
    pub define: String,
    pub doc: String,
}

/// A master on the memory: a DMA engine's or the core's own.
#[derive(Debug)]
struct MemoryMaster {
    port: String,
    pin: String,
    /// Clock pin of its own; the core's masters run on the core's clock.
    clock: Option<String>,
    space: String,
}

/// A memory port of the processing system with the interconnect in front of it.
#[derive(Debug)]
struct MemoryPort {
    /// Cell of the interconnect.
    cell: String,
    /// S_AXI_HPn_FPD is number n here and number n + 2 in the properties of the processing system.
    index: usize,
    gp: usize,
    masters: Vec<MemoryMaster>,
}

/// Memory ports S_AXI_HP0_FPD to S_AXI_HP3_FPD.
const MEMORY_PORTS: usize = 4;

#[derive(Debug)]
struct Interrupt {
    port: String,
    pin: String,
}

struct DmaCell<'a> {
    name: &'a str,
    into: Vec<&'a Stream>,
    out_of: Vec<&'a Stream>,
}

#[derive(Template)]
#[template(path = "vivado/ooc.tcl")]
struct OutOfContext<'a> {
    generator: &'a str,
    oldest_vivado: &'a str,
    name: &'a str,
    top: &'a str,
    part: &'a str,
    licence: &'a str,
    clock_mhz: u64,
    rtl: &'a [String],
    memories: &'a [String],
}

#[derive(Template)]
#[template(path = "vivado/ooc.xdc")]
struct OutOfContextClock {
    clock_mhz: u64,
    period_ns: String,
}

#[derive(Template)]
#[template(path = "vivado/package.tcl")]
struct Package<'a> {
    generator: &'a str,
    oldest_vivado: &'a str,
    ip_version: &'a str,
    name: &'a str,
    description: &'a str,
    top: &'a str,
    part: &'a str,
    licence: &'a str,
    rtl: &'a [String],
    memories: &'a [String],
    buses: Vec<&'a str>,
}

#[derive(Template)]
#[template(path = "vivado/system.tcl")]
struct System<'a> {
    generator: &'a str,
    oldest_vivado: &'a str,
    ip_version: &'a str,
    name: &'a str,
    device: &'a str,
    top: &'a str,
    part: &'a str,
    licence: &'a str,
    board_part: &'a str,
    clock_mhz: u64,
    slaves: Vec<Slave>,
    memory_ports: Vec<MemoryPort>,
    interrupts: Vec<Interrupt>,
    dmas: Vec<DmaCell<'a>>,
}

/// The slaves on the control port with their addresses.
pub fn slaves(core: &Core) -> Vec<Slave> {
    let mut slaves = vec![Slave {
        port: "M00_AXI".into(),
        pin: "core/s_axil".into(),
        address: format!("0x{CORE_ADDRESS:08X}"),
        range: "4K",
        define: "NF_CORE_ADDRESS".into(),
        doc: "registers of the core".into(),
    }];
    for (index, dma) in core.dmas.iter().enumerate() {
        let served: Vec<&str> = [&dma.into, &dma.out_of]
            .into_iter()
            .flatten()
            .map(|stream| stream.name.as_str())
            .collect();
        slaves.push(Slave {
            port: format!("M{:02}_AXI", index + 1),
            pin: format!("{}/S_AXI_LITE", dma.name),
            address: format!("0x{:08X}", DMA_ADDRESS + DMA_RANGE * index as u64),
            range: "64K",
            define: format!("NF_{}_ADDRESS", dma.name.to_uppercase()),
            doc: format!("DMA engine of {}", served.join(" and ")),
        });
    }
    slaves
}

/// Path and text of every file in `vivado/`.
pub fn files(core: &Core, target: &Target<'_>) -> Result<Vec<(String, String)>, askama::Error> {
    let device = target.device;
    let paths = |folder: &str, files: &[super::core::TextFile]| -> Vec<String> {
        files
            .iter()
            .map(|file| format!("{folder}/{}", file.name))
            .collect()
    };
    let (rtl, memories) = (paths("rtl", &core.rtl), paths("mem", &core.memories));
    let licence = licence(device);
    let ooc = OutOfContext {
        generator: GENERATOR,
        oldest_vivado: OLDEST_VIVADO,
        name: &core.name,
        top: &core.top,
        part: &device.part,
        licence: &licence,
        clock_mhz: target.clock_mhz,
        rtl: &rtl,
        memories: &memories,
    };
    let clock = OutOfContextClock {
        clock_mhz: target.clock_mhz,
        period_ns: format!("{:.3}", 1000.0 / target.clock_mhz as f64),
    };
    let mut files = vec![
        ("vivado/checks.tcl".to_string(), CHECKS.to_string()),
        ("vivado/ooc.tcl".into(), ooc.render()?),
        ("vivado/ooc.xdc".into(), clock.render()?),
        (
            "vivado/package.tcl".into(),
            package(core, target, &rtl, &memories, &licence)?,
        ),
    ];
    // Around the other parts a system is made of other blocks: Versal's CIPS, a card's shell, a soft processor.
    if device.has_zynq_ps() && !device.board_part.is_empty() {
        files.push(("vivado/system.tcl".into(), system(core, target, &licence)?));
        let board = BOARD_CONSTRAINTS
            .iter()
            .find(|(name, _)| *name == device.name);
        let text = board.map_or(
            "# No constraints of this board are known; the design has no package pins.\n",
            |(_, text)| text,
        );
        files.push(("vivado/board.xdc".into(), text.to_string()));
    }
    Ok(files)
}

fn licence(device: &crate::config::Device) -> String {
    let edition = match device.licence.as_str() {
        "standard" => "none, the part is in the free Vivado Standard edition",
        _ => "Vivado Enterprise edition",
    };
    match device.licence_note.as_str() {
        "" => edition.to_string(),
        note => format!("{edition}, {note}"),
    }
}

fn package(
    core: &Core,
    target: &Target<'_>,
    rtl: &[String],
    memories: &[String],
    licence: &str,
) -> Result<String, askama::Error> {
    let mut buses = vec!["s_axil"];
    for dma in &core.dmas {
        buses.extend(
            [&dma.into, &dma.out_of]
                .into_iter()
                .flatten()
                .map(|s| s.name.as_str()),
        );
    }
    buses.extend(core.masters.iter().map(|m| m.name.as_str()));
    Package {
        generator: GENERATOR,
        oldest_vivado: OLDEST_VIVADO,
        ip_version: IP_VERSION,
        name: &core.name,
        description: &core.description,
        top: &core.top,
        part: &target.device.part,
        licence,
        rtl,
        memories,
        buses,
    }
    .render()
}

/// DMA engines share the first memory port; the core's own masters are dealt over all of them, because each port has
/// its own path to the memory controller.
fn memory_ports(core: &Core, engines: Vec<MemoryMaster>) -> Vec<MemoryPort> {
    let count = core.masters.len().clamp(1, MEMORY_PORTS);
    let mut ports: Vec<MemoryPort> = (0..count)
        .map(|index| MemoryPort {
            cell: match count {
                1 => "memory".into(),
                _ => format!("memory{index}"),
            },
            index,
            gp: index + 2,
            masters: vec![],
        })
        .collect();
    ports[0].masters = engines;
    for (number, master) in core.masters.iter().enumerate() {
        let masters = &mut ports[number % count].masters;
        masters.push(MemoryMaster {
            port: format!("S{:02}_AXI", masters.len()),
            pin: format!("core/{}", master.name),
            clock: None,
            space: format!("core/{}", master.name),
        });
    }
    ports
}

fn system(core: &Core, target: &Target<'_>, licence: &str) -> Result<String, askama::Error> {
    let mut engines = Vec::new();
    let mut interrupts = vec![Interrupt {
        port: "In0".into(),
        pin: "core/irq".into(),
    }];
    for dma in &core.dmas {
        for (stream, channel) in [(&dma.into, "mm2s"), (&dma.out_of, "s2mm")] {
            if stream.is_none() {
                continue;
            }
            let upper = channel.to_uppercase();
            engines.push(MemoryMaster {
                port: format!("S{:02}_AXI", engines.len()),
                pin: format!("{}/M_AXI_{upper}", dma.name),
                clock: Some(format!("{}/m_axi_{channel}_aclk", dma.name)),
                space: format!("{}/Data_{upper}", dma.name),
            });
            interrupts.push(Interrupt {
                port: format!("In{}", interrupts.len()),
                pin: format!("{}/{channel}_introut", dma.name),
            });
        }
    }
    let dmas = core
        .dmas
        .iter()
        .map(|dma| DmaCell {
            name: &dma.name,
            into: dma.into.iter().collect(),
            out_of: dma.out_of.iter().collect(),
        })
        .collect();
    System {
        generator: GENERATOR,
        oldest_vivado: OLDEST_VIVADO,
        ip_version: IP_VERSION,
        name: &core.name,
        device: &target.device.name,
        top: &core.top,
        part: &target.device.part,
        licence,
        board_part: &target.device.board_part,
        clock_mhz: target.clock_mhz,
        slaves: slaves(core),
        memory_ports: memory_ports(core, engines),
        interrupts,
        dmas,
    }
    .render()
}
