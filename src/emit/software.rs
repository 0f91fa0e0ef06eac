//! Software hand-over: C header and driver, PYNQ overlay class, register table, FuseSoC and make files.

use askama::Template;

use super::core::{Core, TextFile};
use super::regmap::{Access, RESULT_HEADER_WORDS, Register, RegisterMap};
use super::vivado::{Slave, slaves};
use super::{GENERATOR, IP_VERSION, Target};

/// Filters that the templates name.
mod filters {
    use super::Access;

    #[askama::filter_fn]
    pub fn hex3(value: impl std::fmt::LowerHex, _: &dyn askama::Values) -> askama::Result<String> {
        Ok(format!("0x{value:03x}"))
    }

    #[askama::filter_fn]
    pub fn hex8(value: impl std::fmt::LowerHex, _: &dyn askama::Values) -> askama::Result<String> {
        Ok(format!("0x{value:08x}"))
    }

    #[askama::filter_fn]
    pub fn is_constant(access: &Access, _: &dyn askama::Values) -> askama::Result<bool> {
        Ok(*access == Access::Constant)
    }

    #[askama::filter_fn]
    pub fn base_name(path: &str, _: &dyn askama::Values) -> askama::Result<String> {
        Ok(path.rsplit('/').next().unwrap_or(path).to_string())
    }
}

#[derive(Template)]
#[template(path = "software/registers.h")]
struct Header<'a> {
    generator: &'a str,
    name: &'a str,
    block: &'a str,
    guard: String,
    registers: &'a [Register],
    bytes: u32,
}

#[derive(Template)]
#[template(path = "software/nf_driver.h")]
struct DriverHeader<'a> {
    generator: &'a str,
    name: &'a str,
    seq_len: u32,
    header_words: u32,
    slaves: Vec<Slave>,
}

#[derive(Template)]
#[template(path = "software/nf_driver.c")]
struct DriverSource<'a> {
    generator: &'a str,
    name: &'a str,
}

#[derive(Template)]
#[template(path = "software/nf_overlay.py")]
struct Overlay<'a> {
    generator: &'a str,
    ip_version: &'a str,
    name: &'a str,
    top: &'a str,
    registers: &'a [Register],
    id: u32,
    seq_len: u32,
    vocab: u32,
    header_words: u32,
    busy: u32,
    errors: u32,
    start_train: u32,
    start_eval: u32,
    weight_read: u32,
    weight_write: u32,
    token_dma: &'a str,
    weight_dma: &'a str,
}

#[derive(Template)]
#[template(path = "software/nf_cgla_driver.h")]
struct ArrayDriverHeader<'a> {
    generator: &'a str,
    name: &'a str,
    groups: u32,
    slaves: Vec<Slave>,
}

#[derive(Template)]
#[template(path = "software/nf_cgla_driver.c")]
struct ArrayDriverSource<'a> {
    generator: &'a str,
    name: &'a str,
    group_bytes: u32,
}

#[derive(Template)]
#[template(path = "software/nf_cgla_overlay.py")]
struct ArrayOverlay<'a> {
    generator: &'a str,
    ip_version: &'a str,
    name: &'a str,
    top: &'a str,
    registers: &'a [Register],
    id: u32,
    busy: u32,
    done: u32,
    errors: u32,
}

#[derive(Template)]
#[template(path = "project/fusesoc.core")]
struct FuseSoc<'a> {
    generator: &'a str,
    ip_version: &'a str,
    name: &'a str,
    description: &'a str,
    top: &'a str,
    part: &'a str,
    rtl: &'a [String],
    memories: &'a [String],
}

#[derive(Template)]
#[template(path = "project/files.mk")]
struct MakeFragment<'a> {
    generator: &'a str,
    name: &'a str,
    variable: String,
    top: &'a str,
    part: &'a str,
    rtl: &'a [String],
    memories: &'a [String],
}

/// Path and text of the register files, the project files and, for the trainer, its drivers.
pub fn files(core: &Core, target: &Target<'_>) -> Result<Vec<(String, String)>, askama::Error> {
    let map = &core.registers;
    let paths = |folder: &str, files: &[TextFile]| -> Vec<String> {
        files
            .iter()
            .map(|file| format!("{folder}/{}", file.name))
            .collect()
    };
    let (rtl, memories) = (paths("rtl", &core.rtl), paths("mem", &core.memories));
    let header = Header {
        generator: GENERATOR,
        name: &core.name,
        block: map.block,
        guard: map.block.to_uppercase(),
        registers: &map.registers,
        bytes: map.bytes(),
    };
    let fusesoc = FuseSoc {
        generator: GENERATOR,
        ip_version: IP_VERSION,
        name: &core.name,
        description: &core.description,
        top: &core.top,
        part: &target.device.part,
        rtl: &rtl,
        memories: &memories,
    };
    let make = MakeFragment {
        generator: GENERATOR,
        name: &core.name,
        variable: core.name.to_uppercase().replace(['-', '.'], "_"),
        top: &core.top,
        part: &target.device.part,
        rtl: &rtl,
        memories: &memories,
    };
    let mut files = vec![
        (
            format!("software/{}_registers.h", map.block),
            header.render()?,
        ),
        ("software/registers.md".into(), map.to_markdown()),
        ("nfgen.core".into(), fusesoc.render()?),
        ("files.mk".into(), make.render()?),
    ];
    match map.block {
        "nf_trainer" => files.extend(trainer_drivers(core)?),
        "nf_cgla" => files.extend(array_drivers(core)?),
        _ => {}
    }
    Ok(files)
}

/// Mask of some fields of a register.
fn mask_of(map: &RegisterMap, register: &str, fields: &[&str]) -> u32 {
    let found = map.find(register).into_iter().flat_map(|r| &r.fields);
    found
        .filter(|field| fields.contains(&field.name))
        .fold(0, |mask, field| mask | field.mask())
}

fn array_drivers(core: &Core) -> Result<Vec<(String, String)>, askama::Error> {
    let map = &core.registers;
    let groups = core.masters.iter().filter(|m| m.reads).count() as u32;
    let per_group = map
        .registers
        .iter()
        .filter(|r| r.name.starts_with("G0_"))
        .count() as u32;
    let header = ArrayDriverHeader {
        generator: GENERATOR,
        name: &core.name,
        groups,
        slaves: slaves(core),
    };
    let source = ArrayDriverSource {
        generator: GENERATOR,
        name: &core.name,
        group_bytes: 4 * per_group,
    };
    let mask = |fields: &[&str]| mask_of(map, "STATUS", fields);
    let overlay = ArrayOverlay {
        generator: GENERATOR,
        ip_version: IP_VERSION,
        name: &core.name,
        top: &core.top,
        registers: &map.registers,
        id: map.find("ID").map_or(0, |register| register.reset),
        busy: mask(&["BUSY"]),
        done: mask(&["DONE"]),
        errors: mask(&["ERROR_PACKET", "ERROR_READ", "ERROR_WRITE"]),
    };
    Ok(vec![
        ("software/nf_cgla_driver.h".into(), header.render()?),
        ("software/nf_cgla_driver.c".into(), source.render()?),
        ("software/nf_cgla_overlay.py".into(), overlay.render()?),
    ])
}

fn trainer_drivers(core: &Core) -> Result<Vec<(String, String)>, askama::Error> {
    let map = &core.registers;
    let reset = |name: &str| map.find(name).map_or(0, |register| register.reset);
    let mask = |register: &str, fields: &[&str]| mask_of(map, register, fields);
    let dma_of = |stream: &str| {
        let serves = |dma: &&super::core::Dma| dma.into.as_ref().is_some_and(|s| s.name == stream);
        core.dmas
            .iter()
            .find(serves)
            .map_or("dma", |dma| dma.name.as_str())
    };
    let header = DriverHeader {
        generator: GENERATOR,
        name: &core.name,
        seq_len: reset("MODEL_SEQ_LEN"),
        header_words: RESULT_HEADER_WORDS,
        slaves: slaves(core),
    };
    let source = DriverSource {
        generator: GENERATOR,
        name: &core.name,
    };
    let overlay = Overlay {
        generator: GENERATOR,
        ip_version: IP_VERSION,
        name: &core.name,
        top: &core.top,
        registers: &map.registers,
        id: reset("ID"),
        seq_len: reset("MODEL_SEQ_LEN"),
        vocab: reset("MODEL_VOCAB"),
        header_words: RESULT_HEADER_WORDS,
        busy: mask("STATUS", &["BUSY"]),
        errors: mask("STATUS", &["ERROR_NUMBER", "ERROR_TOKEN", "ERROR_WEIGHT"]),
        start_train: mask("CONTROL", &["START_TRAIN"]),
        start_eval: mask("CONTROL", &["START_EVAL"]),
        weight_read: mask("CONTROL", &["WEIGHT_READ"]),
        weight_write: mask("CONTROL", &["WEIGHT_WRITE"]),
        token_dma: dma_of("s_axis_token"),
        weight_dma: dma_of("s_axis_weight"),
    };
    Ok(vec![
        ("software/nf_driver.h".into(), header.render()?),
        ("software/nf_driver.c".into(), source.render()?),
        ("software/nf_overlay.py".into(), overlay.render()?),
    ])
}
