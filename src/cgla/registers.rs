//! The array's registers on AXI4-Lite.

use sha2::{Digest, Sha256};

use super::rtl::ADDRESS_BITS;
use super::{ArrayConfig, LaneSign};
use crate::emit::regmap::{Access, MapBuilder, RegisterMap};

/// "CGLA" in ASCII: what the ID register reads.
pub const ID: u32 = u32::from_be_bytes(*b"CGLA");

/// Version of the register map: major, minor, patch in one byte each.
pub const VERSION: u32 = 0x0001_0000;

/// STATUS: a program met a packet that it does not know.
pub const ERROR_PACKET: u32 = 1 << 2;
/// STATUS: the memory answered a read with an error.
pub const ERROR_READ: u32 = 1 << 3;
/// STATUS: the memory answered a write with an error.
pub const ERROR_WRITE: u32 = 1 << 4;

/// Names of a group's registers, in order of their offsets.
#[derive(Debug, Clone, Copy)]
pub struct GroupNames {
    pub program_addr: [&'static str; 2],
    pub program_beats: &'static str,
    pub weight_addr: [&'static str; 2],
    pub weight_beats: &'static str,
    pub out_addr: [&'static str; 2],
    pub conf: &'static str,
    pub load: &'static str,
    pub exec: &'static str,
}

macro_rules! group {
    ($index:literal) => {
        GroupNames {
            program_addr: [
                concat!("G", $index, "_PROGRAM_ADDR_LO"),
                concat!("G", $index, "_PROGRAM_ADDR_HI"),
            ],
            program_beats: concat!("G", $index, "_PROGRAM_BEATS"),
            weight_addr: [
                concat!("G", $index, "_WEIGHT_ADDR_LO"),
                concat!("G", $index, "_WEIGHT_ADDR_HI"),
            ],
            weight_beats: concat!("G", $index, "_WEIGHT_BEATS"),
            out_addr: [
                concat!("G", $index, "_OUT_ADDR_LO"),
                concat!("G", $index, "_OUT_ADDR_HI"),
            ],
            conf: concat!("G", $index, "_CONF_CYCLES"),
            load: concat!("G", $index, "_LOAD_CYCLES"),
            exec: concat!("G", $index, "_EXEC_CYCLES"),
        }
    };
}

/// Register names of every group that a build can have.
pub const GROUPS: [GroupNames; 4] = [group!("0"), group!("1"), group!("2"), group!("3")];

/// First 32 bits of the hash over everything that decides the netlist.
fn build_id(config: &ArrayConfig) -> u32 {
    let hash = Sha256::digest(format!("{config:?}").as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
}

/// The map of one build.
pub fn register_map(config: &ArrayConfig) -> RegisterMap {
    use Access::{Constant, ReadOnly, ReadWrite, WriteOneToClear, WriteOneToStart};
    let parameters = config.rows
        | config.ports << 8
        | config.lmm_words.ilog2() << 16
        | u32::from(config.lane_sign == LaneSign::UnsignedLo) << 24;
    let mut map = MapBuilder::default();
    map.add("ID", Constant, ID, "reads 0x43474C41, the letters CGLA")
        .add("VERSION", Constant, VERSION, "version of this register map")
        .field("PATCH", 0, 8, "patch")
        .field("MINOR", 8, 8, "minor")
        .field("MAJOR", 16, 8, "major")
        .add(
            "BUILD_ID",
            Constant,
            build_id(config),
            "identifies the build parameters",
        )
        .add(
            "SCRATCH",
            ReadWrite,
            0,
            "free for software; the self-test uses it",
        )
        .add(
            "CONTROL",
            WriteOneToStart,
            0,
            "starts groups; taken when none is running",
        )
        .field("START", 0, config.ports, "one bit per group")
        .add("STATUS", ReadOnly, 0, "state of the launch")
        .field("BUSY", 0, 1, "a launch is running")
        .field(
            "DONE",
            1,
            1,
            "the last launch has ended and its results are in memory",
        )
        .field(
            "ERROR_PACKET",
            2,
            1,
            "a program held a packet that is not known",
        )
        .field(
            "ERROR_READ",
            3,
            1,
            "the memory answered a read with an error",
        )
        .field(
            "ERROR_WRITE",
            4,
            1,
            "the memory answered a write with an error",
        )
        .add(
            "IRQ_ENABLE",
            ReadWrite,
            0,
            "which events raise the interrupt",
        )
        .field("DONE", 0, 1, "a launch has ended")
        .add(
            "IRQ_STATUS",
            WriteOneToClear,
            0,
            "which events have happened",
        )
        .field("DONE", 0, 1, "a launch has ended")
        .add(
            "LINKS",
            ReadWrite,
            0,
            "groups that take tokens and chain words from the group before",
        )
        .field(
            "LINKED",
            0,
            config.ports,
            "one bit per group; group 0 has no group before it",
        )
        .add("PARAMETERS", Constant, parameters, "the build")
        .field("ROWS", 0, 8, "rows of the array")
        .field("PORTS", 8, 8, "memory read ports, which is groups")
        .field(
            "LMM_LOG2",
            16,
            8,
            "log2 of the 64-bit words in half a local memory",
        )
        .field(
            "UNSIGNED_LO",
            24,
            1,
            "lane 0 can take its first operand unsigned",
        )
        .add("CYCLES", ReadOnly, 0, "clock cycles from start to done")
        .add(
            "LAST_EXEC",
            ReadOnly,
            0,
            "clock cycles from start to the last issued step",
        );
    for group in &GROUPS[..config.ports.min(4) as usize] {
        for (names, doc) in [
            (
                group.program_addr,
                "program segment: byte address, a multiple of 16, low word",
            ),
            (
                group.weight_addr,
                "weight segment: byte address, a multiple of 16, low word",
            ),
            (
                group.out_addr,
                "results: byte address, a multiple of 16, low word",
            ),
        ] {
            map.add(names[0], ReadWrite, 0, doc)
                .add(names[1], ReadWrite, 0, "high word")
                .field("ADDRESS", 0, ADDRESS_BITS - 32, "upper bits of the address");
            if names == group.program_addr {
                map.add(
                    group.program_beats,
                    ReadWrite,
                    0,
                    "program segment: beats of 16 bytes",
                )
                .field("BEATS", 0, super::rtl::BEATS_BITS, "0 skips the segment");
            }
            if names == group.weight_addr {
                map.add(
                    group.weight_beats,
                    ReadWrite,
                    0,
                    "weight segment: beats of 16 bytes",
                )
                .field("BEATS", 0, super::rtl::BEATS_BITS, "0 skips the segment");
            }
        }
        map.add(group.conf, ReadOnly, 0, "cycles with configuration beats")
            .add(group.load, ReadOnly, 0, "cycles with operand beats")
            .add(group.exec, ReadOnly, 0, "cycles with an issued step");
    }
    map.finish("nf_cgla")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_build_has_a_contiguous_map_with_its_parameters() {
        for ports in 1..=4 {
            let config = ArrayConfig {
                ports,
                ..ArrayConfig::default()
            };
            let map = register_map(&config);
            for (index, register) in map.registers.iter().enumerate() {
                assert_eq!(register.offset as usize, 4 * index);
            }
            assert_eq!(map.registers.len() as u32, 12 + 11 * ports);
            let parameters = map.find("PARAMETERS").unwrap().reset;
            assert_eq!(parameters, 64 | ports << 8 | 9 << 16 | 1 << 24);
            assert_eq!(map.find("STATUS").unwrap().fields[3].mask(), ERROR_READ);
            assert!(map.find("G3_EXEC_CYCLES").is_some() == (ports == 4));
        }
    }
}
