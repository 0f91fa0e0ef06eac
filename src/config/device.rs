//! The device catalogue: parts and boards with their resources, as data files in `devices/`.

use std::path::Path;

use serde::Serialize;

use super::schema::{Field, Kind, Settings, Value, nearest, read_file, require_keys};
use crate::diag::{Diagnostic, Problems, SourceText};
use crate::files::{MOST_SETTINGS, read_text};

/// A part on a board. Counts are of the whole part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    pub name: String,
    /// Board and part in words.
    pub title: String,
    /// Part as Vivado names it.
    pub part: String,
    /// Board part as Vivado names it, without the revision; empty if there is none.
    pub board_part: String,
    /// `zynq-ultrascale`, `ultrascale-plus`, `versal` or `series7`.
    pub family: String,
    pub lut: u64,
    pub ff: u64,
    pub dsp: u64,
    /// `DSP48E1`, `DSP48E2` or `DSP58`.
    pub dsp_kind: String,
    /// 36-Kib block RAMs; each is also two of 18 Kib.
    pub bram36: u64,
    /// 288-Kib UltraRAMs.
    pub uram: u64,
    /// Bits of distributed RAM: 64 per look-up table that can be memory.
    pub distributed_ram_bits: u64,
    /// Super logic regions, the dies of a stacked part.
    pub regions: u64,
    /// Edition of Vivado that holds the part: `standard` (free of charge) or `enterprise`.
    pub licence: String,
    pub licence_note: String,
    /// Clock of the core unless the user asks for another, MHz.
    pub clock_mhz: u64,
    /// Where the figures come from.
    pub source: String,
}

impl Device {
    /// A stand-in that every machine fits, for simulation without a device.
    pub fn boundless() -> Self {
        let much = 1 << 40;
        Device {
            name: "simulation".into(),
            title: "no device: simulation only".into(),
            part: String::new(),
            board_part: String::new(),
            family: "ultrascale-plus".into(),
            lut: much,
            ff: much,
            dsp: much,
            dsp_kind: "DSP48E2".into(),
            bram36: much,
            uram: 0,
            distributed_ram_bits: much,
            regions: 1,
            licence: "standard".into(),
            licence_note: String::new(),
            clock_mhz: 200,
            source: "none".into(),
        }
    }

    /// `-family` of Yosys's `synth_xilinx`, where it knows the family.
    pub fn yosys_family(&self) -> Option<&'static str> {
        match self.family.as_str() {
            "zynq-ultrascale" | "ultrascale-plus" => Some("xcup"),
            "series7" => Some("xc7"),
            _ => None,
        }
    }

    /// Whether the part has a Zynq UltraScale+ processing system, around which `emit` builds a whole system.
    pub fn has_zynq_ps(&self) -> bool {
        self.family == "zynq-ultrascale"
    }
}

struct DeviceField {
    key: &'static str,
    kind: Kind,
    optional: bool,
    doc: &'static str,
    get: fn(&Device) -> Value,
    set: fn(&mut Device, &Value),
}

impl Field for DeviceField {
    fn key(&self) -> &'static str {
        self.key
    }
    fn kind(&self) -> &Kind {
        &self.kind
    }
    fn optional(&self) -> bool {
        self.optional
    }
}

macro_rules! count {
    ($field:ident, $range:expr, $optional:expr, $doc:expr) => {
        DeviceField {
            key: stringify!($field),
            kind: Kind::Integer($range),
            optional: $optional,
            doc: $doc,
            get: |device| Value::Integer(device.$field),
            set: |device, value| {
                if let Value::Integer(n) = value {
                    device.$field = *n;
                }
            },
        }
    };
}

macro_rules! text {
    ($field:ident, $kind:expr, $optional:expr, $doc:expr) => {
        DeviceField {
            key: stringify!($field),
            kind: $kind,
            optional: $optional,
            doc: $doc,
            get: |device| Value::Text(device.$field.clone()),
            set: |device, value| {
                if let Value::Text(text) = value {
                    device.$field.clone_from(text);
                }
            },
        }
    };
}

const FIELDS: [DeviceField; 17] = [
    text!(
        name,
        Kind::Name,
        true,
        "name of the device; by default the file's name"
    ),
    text!(title, Kind::Text, true, "board and part in words"),
    text!(part, Kind::Name, false, "part as Vivado names it"),
    text!(
        board_part,
        Kind::Text,
        true,
        "board part without revision, e.g. xilinx.com:zcu102:part0"
    ),
    text!(
        family,
        Kind::Choice(&["zynq-ultrascale", "ultrascale-plus", "versal", "series7"]),
        false,
        "family of the part"
    ),
    count!(lut, 1..=100_000_000, false, "look-up tables"),
    count!(ff, 1..=100_000_000, false, "flip-flops"),
    count!(dsp, 1..=1_000_000, false, "DSP slices"),
    text!(
        dsp_kind,
        Kind::Choice(&["DSP48E1", "DSP48E2", "DSP58"]),
        false,
        "kind of DSP slice"
    ),
    count!(bram36, 0..=1_000_000, false, "36-Kib block RAMs"),
    count!(uram, 0..=1_000_000, false, "288-Kib UltraRAMs"),
    count!(
        distributed_ram_bits,
        0..=10_000_000_000,
        false,
        "bits of distributed RAM"
    ),
    count!(regions, 1..=16, true, "super logic regions (dies)"),
    text!(
        licence,
        Kind::Choice(&["standard", "enterprise"]),
        true,
        "Vivado edition that holds the part"
    ),
    text!(
        licence_note,
        Kind::Text,
        true,
        "what else to know about the licence"
    ),
    count!(clock_mhz, 1..=2_000, true, "default clock of the core, MHz"),
    text!(source, Kind::Text, true, "where the figures come from"),
];

const FILES: [(&str, &str); 12] = [
    ("zcu102", include_str!("../../devices/zcu102.toml")),
    ("zcu104", include_str!("../../devices/zcu104.toml")),
    ("zcu106", include_str!("../../devices/zcu106.toml")),
    ("kv260", include_str!("../../devices/kv260.toml")),
    ("kria-kr260", include_str!("../../devices/kria-kr260.toml")),
    ("ultra96v2", include_str!("../../devices/ultra96v2.toml")),
    ("vck190", include_str!("../../devices/vck190.toml")),
    ("u50", include_str!("../../devices/u50.toml")),
    ("u55c", include_str!("../../devices/u55c.toml")),
    ("u280", include_str!("../../devices/u280.toml")),
    ("vcu118", include_str!("../../devices/vcu118.toml")),
    (
        "arty-a7-100",
        include_str!("../../devices/arty-a7-100.toml"),
    ),
];

/// All built-in devices.
pub fn catalogue() -> Result<Vec<Device>, Problems> {
    FILES
        .iter()
        .map(|(name, text)| parse(name, &format!("devices/{name}.toml"), text))
        .collect()
}

/// Resolves `--device NAME|FILE`.
pub fn load_device(name_or_file: &str) -> Result<Device, Problems> {
    if let Some((name, text)) = FILES.iter().find(|(name, _)| *name == name_or_file) {
        return parse(name, &format!("devices/{name}.toml"), text);
    }
    let path = Path::new(name_or_file);
    if !name_or_file.contains(['/', '.', '\\']) && !path.exists() {
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        let hint = match nearest(name_or_file, &names) {
            Some(name) => format!("did you mean `{name}`? "),
            None => String::new(),
        };
        return Err(Diagnostic::new(
            "nf::config::unknown_device",
            format!("`{name_or_file}` is neither in the device catalogue nor a file"),
            format!("{hint}catalogue: {}; or give a TOML file", names.join(", ")),
        )
        .into());
    }
    let text =
        read_text(path, MOST_SETTINGS).map_err(|error| Diagnostic::cannot_read(path, &error))?;
    let stem = path
        .file_stem()
        .map_or("device".into(), |s| s.to_string_lossy());
    parse(&stem, name_or_file, &text)
}

/// Parses the text of a device file. `file` is how places are reported.
pub fn parse_device(name: &str, file: &str, text: &str) -> Result<Device, Problems> {
    parse(name, file, text)
}

fn parse(name: &str, file: &str, text: &str) -> Result<Device, Problems> {
    let mut problems = Problems::default();
    let source = SourceText::new(file, text);
    let read = read_file(&source, &FIELDS, &mut problems);
    require_keys(
        &source,
        &FIELDS,
        |key| read.seen.contains(key),
        &mut problems,
    );
    problems.into_result(build(name, &read.settings))
}

fn build(name: &str, settings: &Settings) -> Device {
    let mut device = Device {
        name: name.into(),
        title: String::new(),
        part: String::new(),
        board_part: String::new(),
        family: String::new(),
        lut: 0,
        ff: 0,
        dsp: 0,
        dsp_kind: String::new(),
        bram36: 0,
        uram: 0,
        distributed_ram_bits: 0,
        regions: 1,
        licence: "enterprise".into(),
        licence_note: String::new(),
        clock_mhz: 100,
        source: "given by the user".into(),
    };
    for field in &FIELDS {
        if let Some(setting) = settings.get(field.key) {
            (field.set)(&mut device, &setting.value);
        }
    }
    device
}

/// A device as a file with every key, commented: a start for one's own.
pub fn to_toml(device: &Device) -> String {
    let mut text = String::new();
    for field in &FIELDS {
        let line = format!("{} = {}", field.key, (field.get)(device).to_toml());
        text.push_str(&format!("{line:<42}# {}\n", field.doc));
    }
    text
}
