//! Resources of the machine before synthesis: one table of unit costs, one formula per module.

use serde::Serialize;

use super::memory::{MemoryKind, MemoryLine};
use crate::config::model::{LayerNormOptimizer, ModelConfig, MomentFormat, Rounding};
use crate::trainer::encode::bits_for;
use crate::trainer::isa::Shape;

/// Counts of a part, or of a design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Resources {
    pub lut: f64,
    pub ff: f64,
    pub dsp: f64,
    /// 36 Kib blocks; an 18 Kib block is half of one.
    pub bram36: f64,
    pub uram: f64,
    pub lutram_bits: f64,
}

impl Resources {
    fn plus(self, o: Self) -> Self {
        Self {
            lut: self.lut + o.lut,
            ff: self.ff + o.ff,
            dsp: self.dsp + o.dsp,
            bram36: self.bram36 + o.bram36,
            uram: self.uram + o.uram,
            lutram_bits: self.lutram_bits + o.lutram_bits,
        }
    }

    fn times(self, n: f64) -> Self {
        Self {
            lut: self.lut * n,
            ff: self.ff * n,
            dsp: self.dsp * n,
            bram36: self.bram36 * n,
            uram: self.uram * n,
            lutram_bits: self.lutram_bits * n,
        }
    }
}

/// Look-up tables, flip-flops and DSP slices of one unit.
#[derive(Clone, Copy, Debug)]
struct Unit(f64, f64, f64);

/// Costs of single units in LUT (LUT1 to LUT6, LUT RAM and shift registers), FF and DSP. Floating-point units and aligners as Yosys 0.70
/// maps comparable pipelines for UltraScale+; the others counted from their structure.
mod unit {
    use super::Unit;
    pub const ADD: Unit = Unit(424.0, 220.0, 0.0);
    pub const MUL: Unit = Unit(135.0, 174.0, 2.0);
    pub const DIV: Unit = Unit(1250.0, 900.0, 0.0);
    pub const SQRT: Unit = Unit(760.0, 600.0, 0.0);
    /// Multiply-accumulate cell with its drain path inside the DSP cascade.
    pub const CELL: Unit = Unit(1.0, 0.0, 1.0);
    /// FP32 to an 18-bit grid value.
    pub const ALIGN: Unit = Unit(135.0, 90.0, 0.0);
    /// 48-bit sum to FP32.
    pub const NORMALISE: Unit = Unit(270.0, 230.0, 0.0);
    /// Table unit of two lanes without its ROM.
    pub const TABLE_PAIR: Unit = Unit(900.0, 900.0, 2.0);
    /// Selects, delays, maximum and scalar file control of a vector lane.
    pub const VECTOR_LANE: Unit = Unit(330.0, 520.0, 0.0);
    /// Delays, moments' rounding and hash of an Adam lane.
    pub const ADAM_LANE: Unit = Unit(700.0, 900.0, 0.0);
    pub const HASH: Unit = Unit(700.0, 620.0, 0.0);
    /// Sequencers, token memory, stream and register interfaces, schedule unit.
    pub const CONTROL: Unit = Unit(6500.0, 6000.0, 8.0);
}

/// One module of the design.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModuleCost {
    pub module: &'static str,
    /// How the figures follow from the sizes.
    pub formula: &'static str,
    pub resources: Resources,
}

fn of(u: Unit, n: usize) -> Resources {
    Resources {
        lut: u.0,
        ff: u.1,
        dsp: u.2,
        ..Resources::default()
    }
    .times(n as f64)
}

/// A rotator of B words: one 4:1 multiplexer and one register per bit and stage.
fn rotator(b: usize, width: usize) -> Resources {
    let stages = bits_for(b - 1).div_ceil(2) as usize;
    of(Unit(1.0, 1.0, 0.0), stages * b * width)
}

/// Multiplexer of `ports` read ports over the groups: a 4:1 multiplexer per bit and level.
fn group_select(b: usize, groups: usize, ports: usize) -> Resources {
    let per_bit = (groups.saturating_sub(1)).div_ceil(3);
    of(Unit(per_bit as f64, 1.0, 0.0), b * 32 * ports)
}

/// Costs of the modules, without memories.
pub fn modules(model: &ModelConfig, shape: &Shape) -> Vec<ModuleCost> {
    let (b, g, groups) = (shape.b, shape.adam_lanes, shape.group_depth.len());
    let core = of(unit::CELL, b * b)
        .plus(of(unit::ALIGN, 2 * b))
        .plus(rotator(b, 18).times(2.0))
        .plus(rotator(b, 32).times(2.0))
        .plus(of(unit::NORMALISE, b))
        .plus(of(unit::MUL, b))
        .plus(of(unit::ADD, b));
    let vector = of(unit::ADD, 2 * b)
        .plus(of(unit::MUL, 2 * b))
        .plus(of(unit::VECTOR_LANE, b))
        .plus(of(unit::TABLE_PAIR, b.div_ceil(2)))
        .plus(rotator(b, 32).times(3.0))
        .plus(of(unit::DIV, 1))
        .plus(of(unit::SQRT, 1))
        .plus(of(unit::MUL, 1))
        .plus(of(unit::ADD, 1));
    let hashes =
        model.moment_format == MomentFormat::Bf16 || model.rounding == Rounding::Stochastic;
    let lane = of(unit::MUL, 7)
        .plus(of(unit::ADD, 4))
        .plus(of(unit::DIV, 1))
        .plus(of(unit::SQRT, 1))
        .plus(of(unit::ADAM_LANE, 1))
        .plus(of(unit::HASH, usize::from(hashes)));
    let sgd = model.layernorm_optimizer == LayerNormOptimizer::Sgd;
    let adam = lane
        .times(g as f64)
        .plus(of(Unit(1.0, 1.0, 0.0), b * 32 * 2))
        .plus(of(unit::MUL, usize::from(sgd)));
    let layer = group_select(b, groups, 5).plus(of(Unit(0.6, 1.0, 0.0), b * groups * 40));
    vec![
        ModuleCost {
            module: "nf_attention_core",
            formula: "B^2 cells + 2B aligners + rotators (2 x 18, 2 x 32 bits) + B (normaliser, multiplier, adder)",
            resources: core,
        },
        ModuleCost {
            module: "nf_vector_unit",
            formula: "B (2 adders, 2 multipliers, controls) + B/2 tables + 3 rotators x 32 bits + 1 scalar unit",
            resources: vector,
        },
        ModuleCost {
            module: "nf_adam_unit",
            formula: "G (7 multipliers, 4 adders, divider, root, rounding) + 64 B selects",
            resources: adam,
        },
        ModuleCost {
            module: "nf_attention_layer",
            formula: "5 read ports over the groups x 32 B bits + 40 B per group",
            resources: layer,
        },
        ModuleCost {
            module: "nf_transformer_bus",
            formula: "control, streams, schedule",
            resources: of(unit::CONTROL, 1),
        },
    ]
}

/// Sum of modules and memories. 18 Kib blocks pair up.
pub fn total(modules: &[ModuleCost], memories: &[MemoryLine]) -> Resources {
    let mut sum = modules
        .iter()
        .fold(Resources::default(), |s, m| s.plus(m.resources));
    for m in memories {
        match m.kind {
            MemoryKind::Block => sum.bram36 += m.blocks,
            MemoryKind::Ultra => sum.uram += m.blocks,
            MemoryKind::Distributed => {
                sum.lut += m.luts as f64;
                sum.lutram_bits += 64.0 * m.luts as f64;
            }
        }
    }
    Resources {
        lut: sum.lut.ceil(),
        ff: sum.ff.ceil(),
        dsp: sum.dsp.ceil(),
        bram36: sum.bram36.ceil(),
        uram: sum.uram.ceil(),
        lutram_bits: sum.lutram_bits,
    }
}
