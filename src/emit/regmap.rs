//! The register map of a core, described once.
//!
//! The hardware's AXI4-Lite block, the C header, the Markdown table, the Python class and the manifest all come from
//! the same [`RegisterMap`]. Registers are contiguous 32-bit words: some bus bridges mishandle holes.

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::ModelConfig;

/// What software may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// The value never changes.
    Constant,
    ReadOnly,
    ReadWrite,
    /// A written 1 clears the bit.
    WriteOneToClear,
    /// A written 1 starts something; reads give 0.
    WriteOneToStart,
}

impl Access {
    /// Short form for tables.
    pub fn short(self) -> &'static str {
        match self {
            Access::Constant => "const",
            Access::ReadOnly => "RO",
            Access::ReadWrite => "RW",
            Access::WriteOneToClear => "W1C",
            Access::WriteOneToStart => "W1S",
        }
    }
}

/// Some bits of a register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BitField {
    pub name: &'static str,
    pub lsb: u32,
    pub width: u32,
    pub doc: &'static str,
}

impl BitField {
    /// Mask of the field in place.
    pub fn mask(&self) -> u32 {
        (((1u64 << self.width) - 1) << self.lsb) as u32
    }
}

/// One 32-bit word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Register {
    /// Upper case, unique.
    pub name: &'static str,
    /// Byte offset: four times the register's index.
    pub offset: u32,
    pub access: Access,
    /// Value after reset; for a constant, its value.
    pub reset: u32,
    pub doc: &'static str,
    /// Empty when the register is one number.
    pub fields: Vec<BitField>,
}

/// All registers of a core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterMap {
    /// Prefix of names in software, lower case: `nf_trainer`.
    pub block: &'static str,
    pub registers: Vec<Register>,
}

/// "NFTR" in ASCII: what the trainer's ID register reads.
pub const TRAINER_ID: u32 = 0x4E46_5452;

/// Version of the register map: major, minor, patch in one byte each.
pub const TRAINER_VERSION: u32 = 0x0001_0000;

/// States of the trainer, as STATUS.STATE encodes them (the paper's control states).
pub const TRAINER_STATES: [&str; 6] = [
    "Idle",
    "Encode",
    "Forward",
    "Backward",
    "WeightRead",
    "WeightWrite",
];

/// Words of a result packet before the logits: loss, its Q24 sum (two words), correct, step, cycles (two words).
pub const RESULT_HEADER_WORDS: u32 = 7;

/// Reset values that depend on the design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainerResets {
    /// First 32 bits of the hash over the plan that the design was built from.
    pub build_id: u32,
    /// FP32 bits of `peak / warmup`.
    pub lr_rise: u32,
    /// FP32 bits of the decay per step after warm-up.
    pub lr_slope: u32,
    /// FP32 bits of the lowest learning rate, `peak * floor`.
    pub lr_floor: u32,
    /// Beats of the state stream; the planner's layout decides it.
    pub state_beats: u32,
}

/// Collects registers in order, four bytes apart.
#[derive(Clone, Debug, Default)]
pub struct MapBuilder {
    registers: Vec<Register>,
}

impl MapBuilder {
    /// The next register.
    pub fn add(
        &mut self,
        name: &'static str,
        access: Access,
        reset: u32,
        doc: &'static str,
    ) -> &mut Self {
        self.registers.push(Register {
            name,
            offset: 4 * self.registers.len() as u32,
            access,
            reset,
            doc,
            fields: Vec::new(),
        });
        self
    }

    /// A field of the register added last.
    pub fn field(
        &mut self,
        name: &'static str,
        lsb: u32,
        width: u32,
        doc: &'static str,
    ) -> &mut Self {
        if let Some(register) = self.registers.last_mut() {
            register.fields.push(BitField {
                name,
                lsb,
                width,
                doc,
            });
        }
        self
    }

    /// The map, whose names in software begin with `block`.
    pub fn finish(self, block: &'static str) -> RegisterMap {
        RegisterMap {
            block,
            registers: self.registers,
        }
    }
}

/// The trainer's map for one model.
pub fn trainer_map(model: &ModelConfig, resets: &TrainerResets) -> RegisterMap {
    use Access::{Constant, ReadOnly, ReadWrite, WriteOneToClear, WriteOneToStart};
    let mut map = MapBuilder::default();
    let bits = f32::to_bits;
    map.add(
        "ID",
        Constant,
        TRAINER_ID,
        "reads 0x4E465452, the letters NFTR",
    )
    .add(
        "VERSION",
        Constant,
        TRAINER_VERSION,
        "version of this register map: major, minor, patch",
    )
    .field("PATCH", 0, 8, "patch")
    .field("MINOR", 8, 8, "minor")
    .field("MAJOR", 16, 8, "major")
    .add(
        "BUILD_ID",
        Constant,
        resets.build_id,
        "identifies the plan the design was built from",
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
        "commands, taken when the core is idle",
    )
    .field(
        "START_TRAIN",
        0,
        1,
        "train on one sample from the token stream",
    )
    .field(
        "START_EVAL",
        1,
        1,
        "forward pass only on one sample; also streams one row of logits",
    )
    .field(
        "WEIGHT_READ",
        2,
        1,
        "stream the whole state out: parameters, moments, step, seed",
    )
    .field("WEIGHT_WRITE", 3, 1, "take a whole state in")
    .field(
        "SOFT_RESET",
        4,
        1,
        "return to Idle, clear errors; parameters and settings stay",
    )
    .add("STATUS", ReadOnly, 0, "what the core is doing")
    .field(
        "STATE",
        0,
        3,
        "0 Idle, 1 Encode, 2 Forward, 3 Backward, 4 WeightRead, 5 WeightWrite",
    )
    .field("BUSY", 3, 1, "a command is running")
    .field("ERROR_NUMBER", 4, 1, "an Inf or NaN entered a product")
    .field(
        "ERROR_TOKEN",
        5,
        1,
        "a token is not below vocab, or TLAST came at the wrong beat",
    )
    .field(
        "ERROR_WEIGHT",
        6,
        1,
        "TLAST of the weight stream came at the wrong beat",
    )
    .add(
        "IRQ_ENABLE",
        ReadWrite,
        0,
        "which events raise the interrupt",
    )
    .field("DONE", 0, 1, "a command has ended")
    .field("ERROR", 1, 1, "an error flag has been set")
    .add(
        "IRQ_STATUS",
        WriteOneToClear,
        0,
        "which events have happened",
    )
    .field("DONE", 0, 1, "a command has ended")
    .field("ERROR", 1, 1, "an error flag has been set")
    .add(
        "STEP",
        ReadOnly,
        0,
        "optimiser steps done; WEIGHT_WRITE loads it with the rest of a saved run",
    )
    .add(
        "CYCLE_LO",
        ReadOnly,
        0,
        "clock cycles of the running or last command, low word",
    )
    .add("CYCLE_HI", ReadOnly, 0, "high word")
    .add(
        "LOSS",
        ReadOnly,
        0,
        "mean cross-entropy of the last sample, FP32 bits",
    )
    .add(
        "LOSS_Q24_LO",
        ReadOnly,
        0,
        "sum of the cross-entropies of the last sample's positions, 24 fraction bits, low word",
    )
    .add("LOSS_Q24_HI", ReadOnly, 0, "high word")
    .add(
        "CORRECT",
        ReadOnly,
        0,
        "positions of the last sample whose prediction was right",
    )
    .add(
        "LR",
        ReadOnly,
        0,
        "learning rate of the last step, FP32 bits",
    )
    .add(
        "SEED",
        ReadOnly,
        model.seed,
        "seed of stochastic rounding; WEIGHT_WRITE loads it with the rest of a saved run",
    )
    .add(
        "LR_PEAK",
        ReadWrite,
        bits(model.lr_peak),
        "learning rate at the end of warm-up, FP32 bits",
    )
    .add(
        "LR_RISE",
        ReadWrite,
        resets.lr_rise,
        "learning rate gained per warm-up step, FP32 bits",
    )
    .add(
        "LR_SLOPE",
        ReadWrite,
        resets.lr_slope,
        "learning rate lost per step after warm-up, FP32 bits",
    )
    .add(
        "LR_FLOOR",
        ReadWrite,
        resets.lr_floor,
        "lowest learning rate after warm-up, FP32 bits",
    )
    .add("WARMUP", ReadWrite, model.warmup_steps, "steps of warm-up")
    .add(
        "LOGIT_POSITION",
        ReadWrite,
        model.seq_len as u32 - 1,
        "position whose logits START_EVAL streams out",
    )
    .add(
        "PARAM_COUNT",
        Constant,
        model.parameters() as u32,
        "trained parameters",
    )
    .add(
        "STATE_BEATS",
        Constant,
        resets.state_beats,
        "beats of a whole state stream (WEIGHT_READ, WEIGHT_WRITE)",
    )
    .add("MODEL_VOCAB", Constant, model.vocab as u32, "V")
    .add("MODEL_SEQ_LEN", Constant, model.seq_len as u32, "T")
    .add("MODEL_EMBED_DIM", Constant, model.embed_dim as u32, "d")
    .add("MODEL_HEADS", Constant, model.heads as u32, "H")
    .add("MODEL_FF_DIM", Constant, model.ff_dim as u32, "f")
    .add("MODEL_LAYERS", Constant, model.layers as u32, "L");
    map.finish("nf_trainer")
}

impl RegisterMap {
    /// A register by name.
    pub fn find(&self, name: &str) -> Option<&Register> {
        self.registers.iter().find(|register| register.name == name)
    }

    /// Bytes that the registers take.
    pub fn bytes(&self) -> u32 {
        4 * self.registers.len() as u32
    }

    /// `name`, `offset`, `access`, `reset`, `doc`, `fields` of each register.
    pub fn to_json(&self) -> Value {
        json!(self.registers)
    }

    /// A Markdown table, fields below their register.
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "# Registers of `{}`\n\n32-bit words on AXI4-Lite. RO read only, RW read and write, W1C a written 1 clears, \
             W1S a written 1 starts, const never changes.\n\n\
             | offset | name | access | reset | what |\n| --- | --- | --- | --- | --- |\n",
            self.block
        );
        for register in &self.registers {
            text.push_str(&format!(
                "| 0x{:03x} | {} | {} | 0x{:08x} | {} |\n",
                register.offset,
                register.name,
                register.access.short(),
                register.reset,
                register.doc
            ));
            for field in &register.fields {
                let bits = match field.width {
                    1 => field.lsb.to_string(),
                    width => format!("{}:{}", field.lsb + width - 1, field.lsb),
                };
                text.push_str(&format!(
                    "| | {}[{bits}] | | | {} |\n",
                    field.name, field.doc
                ));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load_model;

    fn map() -> RegisterMap {
        trainer_map(
            &load_model("small", &[]).unwrap(),
            &TrainerResets::default(),
        )
    }

    #[test]
    fn registers_are_contiguous_unique_and_fit_the_address_bus() {
        let map = map();
        let mut names: Vec<&str> = map.registers.iter().map(|r| r.name).collect();
        for (index, register) in map.registers.iter().enumerate() {
            assert_eq!(register.offset as usize, 4 * index);
            let used: u64 = register.fields.iter().map(|f| u64::from(f.mask())).sum();
            let union = register.fields.iter().fold(0, |a, f| a | f.mask());
            assert_eq!(
                used,
                u64::from(union),
                "fields of {} overlap",
                register.name
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), map.registers.len());
        assert!(map.bytes() <= 4096);
        assert_eq!(
            map.find("ID").map(|r| r.reset.to_be_bytes()),
            Some(*b"NFTR")
        );
    }

    #[test]
    fn constants_come_from_the_model() {
        let map = map();
        let model = load_model("small", &[]).unwrap();
        assert_eq!(
            map.find("PARAM_COUNT").unwrap().reset as usize,
            model.parameters()
        );
        assert_eq!(map.find("MODEL_SEQ_LEN").unwrap().reset, 32);
        assert_eq!(map.find("LR_PEAK").unwrap().reset, 0.003f32.to_bits());
    }

    #[test]
    fn the_table_lists_every_register_and_field() {
        let map = map();
        let text = map.to_markdown();
        let rows = text.lines().filter(|line| line.starts_with("| ")).count();
        let fields: usize = map.registers.iter().map(|r| r.fields.len()).sum();
        assert_eq!(rows, 2 + map.registers.len() + fields);
    }
}
