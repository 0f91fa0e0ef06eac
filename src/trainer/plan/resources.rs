//! Resources of the machine before synthesis: one table of unit costs, one formula per module.

use serde::Serialize;

use super::memory::{MemoryKind, MemoryLine};
use crate::config::model::{HeadCombine, LayerNormOptimizer, ModelConfig, MomentFormat, Rounding};
use crate::trainer::encode::bits_for;
use crate::trainer::isa::{Shape, segment_rows};

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

/// Costs of single units in LUT (LUT1 to LUT6, LUT RAM and shift registers), FF and DSP: Yosys 0.70, `synth_xilinx -family xcup`,
/// each module by itself, of the machine for `shakespeare-334k-7b` with 44 rows. Memories are counted apart.
mod unit {
    use super::Unit;
    pub const MUL: Unit = Unit(135.0, 174.0, 2.0);
    /// Multiply-accumulate cell with its drain path inside the DSP cascade.
    pub const CELL: Unit = Unit(0.0, 0.0, 1.0);
    /// FP32 to an 18-bit grid value.
    pub const ALIGN: Unit = Unit(133.0, 69.0, 0.0);
    /// Row of the array without cells: operand multiplexer.
    pub const ROW: Unit = Unit(71.0, 109.0, 0.0);
    /// 48-bit sum to FP32, scale, addend, mask: with a multiplier, and for powers of two (counted from its structure).
    pub const EPILOGUE: Unit = Unit(880.0, 692.0, 2.0);
    pub const EPILOGUE_HALVING: Unit = Unit(775.0, 660.0, 0.0);
    /// Issue, delays and selects of the matrix engine.
    pub const MATRIX_CONTROL: Unit = Unit(740.0, 1400.0, 0.0);
    /// Per bank: two address generators, and a comparison of the exponent maximum.
    pub const STREAM: Unit = Unit(30.3, 37.0, 0.0);
    pub const MAXIMUM: Unit = Unit(13.4, 2.7, 0.0);
    pub const VECTOR_LANE: Unit = Unit(1640.0, 3500.0, 4.0);
    /// Table unit of two lanes without its ROM.
    pub const TABLE_PAIR: Unit = Unit(851.0, 812.0, 2.0);
    pub const SCALAR_UNIT: Unit = Unit(3680.0, 2915.0, 4.0);
    pub const VECTOR_CONTROL: Unit = Unit(1454.0, 985.0, 0.0);
    /// Adam lane with random bits, without, and what LayerNorm adds to one of them.
    pub const ADAM_LANE: Unit = Unit(4960.0, 3673.0, 11.0);
    pub const ADAM_LANE_PLAIN: Unit = Unit(3811.0, 3058.0, 12.0);
    /// Beside a lane with 8-bit block moments: scales, maxima, encoder of the codes; and once, their control with the
    /// units of the scales.
    pub const MOMENT_BLOCK: Unit = Unit(1117.0, 955.0, 4.0);
    pub const MOMENT_ENCODER: Unit = Unit(1355.0, 1168.0, 2.0);
    /// Adam lane whose moments are codes.
    pub const ADAM_LANE_CODES: Unit = Unit(4920.0, 4263.0, 18.0);
    pub const ADAM_LAYERNORM: Unit = Unit(237.0, 188.0, 2.0);
    /// Address generator, state stream, LayerNorm ports, selects.
    pub const ADAM_CONTROL: Unit = Unit(2485.0, 2663.0, 1.0);
    /// Sequencers, token memory, stream and register interfaces, exponent file, schedule unit.
    pub const CONTROL: Unit = Unit(6632.0, 4410.0, 4.0);
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

/// What the segments of the array add: a 4:1 multiplexer of the sums, and operands delayed in flip-flops.
fn segments(b: usize) -> Resources {
    let rows = segment_rows(b);
    let behind: usize = (0..b).step_by(rows).sum();
    let columns = b.saturating_sub(rows) * b;
    of(Unit(48.0, 48.0, 0.0), b).plus(of(Unit(0.0, 18.0, 0.0), columns + behind * rows))
}

/// Costs of the modules, without memories.
pub fn modules(model: &ModelConfig, shape: &Shape) -> Vec<ModuleCost> {
    let (b, g, groups) = (shape.b, shape.adam_lanes, shape.group_depth.len());
    let halving = model.head_combine == HeadCombine::Sum || model.heads.is_power_of_two();
    let epilogue = match halving {
        true => unit::EPILOGUE_HALVING,
        false => unit::EPILOGUE,
    };
    let core = of(unit::CELL, b * b)
        .plus(of(unit::ALIGN, 2 * b))
        .plus(of(unit::ROW, b))
        .plus(of(unit::STREAM, b))
        .plus(of(unit::MAXIMUM, b))
        .plus(rotator(b, 18).times(2.0))
        .plus(rotator(b, 32).times(2.0))
        .plus(of(epilogue, b))
        .plus(of(unit::MATRIX_CONTROL, 1))
        .plus(segments(b));
    let vector = of(unit::VECTOR_LANE, b)
        .plus(of(unit::TABLE_PAIR, b.div_ceil(2)))
        .plus(of(unit::MAXIMUM, b))
        .plus(rotator(b, 32).times(3.0))
        .plus(of(unit::SCALAR_UNIT, 1))
        .plus(of(unit::VECTOR_CONTROL, 1));
    let hashes =
        model.moment_format != MomentFormat::Fp32 || model.rounding == Rounding::Stochastic;
    let lane = match hashes {
        true if model.moment_format == MomentFormat::Int8 => of(unit::ADAM_LANE_CODES, g),
        true => of(unit::ADAM_LANE, g),
        false => of(unit::ADAM_LANE_PLAIN, g),
    };
    let sgd = model.layernorm_optimizer == LayerNormOptimizer::Sgd;
    // Each lane chooses among the words of its banks: gradients of 32 bits, weights.
    let word = 32 + model.weight_format.bits() as usize;
    let choose = (b / g - 1).div_ceil(3) * word * g;
    let blocks = match model.moment_format {
        MomentFormat::Int8 => of(unit::MOMENT_BLOCK, g).plus(of(unit::MOMENT_ENCODER, 1)),
        _ => Resources::default(),
    };
    let adam = lane
        .plus(blocks)
        .plus(of(unit::ADAM_LAYERNORM, 1))
        .plus(of(unit::ADAM_CONTROL, 1))
        .plus(of(Unit(1.0, 1.0, 0.0), choose))
        .plus(of(unit::MUL, usize::from(sgd)));
    let layer = group_select(b, groups, 5).plus(of(Unit(62.0, 10.0, 0.0), b * groups));
    vec![
        ModuleCost {
            module: "nf_attention_core",
            formula: "B^2 cells + B (2 aligners, row, epilogue, addresses) + rotators (2 x 18, 2 x 32 bits) + segments",
            resources: core,
        },
        ModuleCost {
            module: "nf_vector_unit",
            formula: "B lanes + B/2 tables + 3 rotators x 32 bits + 1 scalar unit",
            resources: vector,
        },
        ModuleCost {
            module: "nf_adam_unit",
            formula: match model.moment_format {
                MomentFormat::Int8 => {
                    "G (lanes + blocks) + LayerNorm + choice among B/G banks + control + encoder"
                }
                _ => "G lanes + LayerNorm + choice among B/G banks + control",
            },
            resources: adam,
        },
        ModuleCost {
            module: "nf_attention_layer",
            formula: "5 read ports over the groups x 32 B bits + 62 B per group",
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
