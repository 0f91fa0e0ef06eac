//! `nfgen devices`: the device catalogue.

use serde_json::json;

use super::{Exit, Output};
use crate::config::device::{self, Device};
use crate::config::schema::grouped;
use crate::diag::Problems;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nfgen devices\n  nfgen devices zcu104 --json\n  \
                        nfgen devices zcu102 --toml > my_board.toml   # a start for a board of your own"
)]
pub struct Args {
    /// One device: a name of the catalogue or a TOML file
    #[arg(value_name = "NAME|FILE")]
    device: Option<String>,
    /// Print the device as a TOML file with every key
    #[arg(long, requires = "device", conflicts_with = "json")]
    toml: bool,
}

pub fn run(args: Args, out: &Output) -> Result<Exit, Problems> {
    let Some(name) = args.device else {
        let devices = device::catalogue()?;
        out.object(&json!({ "devices": devices }));
        out.say(table(&devices));
        return Ok(Exit::Done);
    };
    let device = device::load_device(&name)?;
    out.object(&device);
    out.say(if args.toml || out.is_json() {
        device::to_toml(&device).trim_end().to_string()
    } else {
        details(&device)
    });
    Ok(Exit::Done)
}

fn table(devices: &[Device]) -> String {
    let mut lines = vec![format!(
        "{:<12} {:<27} {:>9} {:>9} {:>5} {:<8} {:>6} {:>4} {:>9}  {}",
        "device", "part", "LUT", "FF", "DSP", "kind", "BRAM36", "URAM", "LUTRAM Mb", "Vivado"
    )];
    for device in devices {
        lines.push(format!(
            "{:<12} {:<27} {:>9} {:>9} {:>5} {:<8} {:>6} {:>4} {:>9.1}  {}",
            device.name,
            device.part,
            grouped(device.lut),
            grouped(device.ff),
            device.dsp,
            device.dsp_kind,
            device.bram36,
            device.uram,
            device.distributed_ram_bits as f64 / f64::from(1 << 20),
            device.licence,
        ));
    }
    lines.join("\n")
}

fn details(device: &Device) -> String {
    let licence = match (device.licence.as_str(), device.licence_note.as_str()) {
        ("standard", "") => "free Vivado Standard edition".to_string(),
        (edition, "") => format!("Vivado {edition} edition"),
        (edition, note) => format!("Vivado {edition} edition; {note}"),
    };
    let rows = [
        ("device", format!("{} ({})", device.name, device.title)),
        ("part", device.part.clone()),
        ("board part", device.board_part.clone()),
        ("family", device.family.clone()),
        ("LUT", grouped(device.lut)),
        ("FF", grouped(device.ff)),
        (
            "DSP",
            format!("{} {}", grouped(device.dsp), device.dsp_kind),
        ),
        ("BRAM36", device.bram36.to_string()),
        ("URAM", device.uram.to_string()),
        (
            "distributed RAM",
            format!("{} bits", grouped(device.distributed_ram_bits)),
        ),
        ("regions", device.regions.to_string()),
        ("default clock", format!("{} MHz", device.clock_mhz)),
        ("licence", licence),
        ("figures", device.source.clone()),
    ];
    let lines: Vec<String> = rows
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| format!("{key:<16} {value}"))
        .collect();
    lines.join("\n")
}
