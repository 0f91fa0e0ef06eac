//! Resources of the machine before synthesis: one table of unit costs, one formula per module.

use serde::Serialize;

use super::memory::{MemoryKind, MemoryLine, MemoryPorts};
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
/// each module by itself. Costs per bank are slopes over machines of 18, 32 and 44 rows. Memories and the multiplexers
/// behind them are counted apart.
mod unit {
    use super::Unit;
    /// Multiply-accumulate cell with its drain path inside the DSP cascade.
    pub const CELL: Unit = Unit(0.0, 0.0, 1.0);
    /// FP32 to an 18-bit grid value.
    pub const ALIGN: Unit = Unit(133.0, 69.0, 0.0);
    /// Row of the array without cells: operand multiplexer.
    pub const ROW: Unit = Unit(33.0, 107.0, 0.0);
    /// 48-bit sum to FP32, scale, addend, mask: with a multiplier, and for powers of two.
    pub const EPILOGUE: Unit = Unit(858.0, 692.0, 2.0);
    pub const EPILOGUE_HALVING: Unit = Unit(785.0, 639.0, 0.0);
    /// Issue, delays and selects of the matrix engine, and what of them grows with the banks.
    pub const MATRIX_CONTROL: Unit = Unit(250.0, 540.0, 0.0);
    pub const MATRIX_CONTROL_BANK: Unit = Unit(8.0, 71.6, 0.0);
    /// Per bank: two address generators, and a comparison of the exponent maximum.
    pub const STREAM: Unit = Unit(30.3, 37.0, 0.0);
    pub const MAXIMUM: Unit = Unit(13.4, 2.7, 0.0);
    pub const VECTOR_LANE: Unit = Unit(1411.0, 3059.0, 4.0);
    /// Table unit of two lanes without its ROM.
    pub const TABLE_PAIR: Unit = Unit(822.0, 812.0, 2.0);
    pub const SCALAR_UNIT: Unit = Unit(2550.0, 2104.0, 4.0);
    pub const SCALAR_UNIT_BANK: Unit = Unit(21.3, 18.4, 0.0);
    pub const VECTOR_CONTROL: Unit = Unit(555.0, 452.0, 0.0);
    pub const VECTOR_CONTROL_BANK: Unit = Unit(13.9, 12.1, 0.0);
    /// Adam lane with random bits, and without. The slices are those of FP32 moments.
    pub const ADAM_LANE: Unit = Unit(4635.0, 3673.0, 12.0);
    pub const ADAM_LANE_PLAIN: Unit = Unit(3975.0, 3090.0, 12.0);
    /// Beside a lane with 8-bit block moments: scales, maxima, encoder of the codes; and once, their control with the
    /// units of the scales.
    pub const MOMENT_BLOCK: Unit = Unit(1117.0, 955.0, 4.0);
    pub const MOMENT_ENCODER: Unit = Unit(1355.0, 1168.0, 2.0);
    /// Adam lane whose moments are codes.
    pub const ADAM_LANE_CODES: Unit = Unit(4920.0, 4263.0, 18.0);
    /// What LayerNorm adds to one lane.
    pub const ADAM_LAYERNORM: Unit = Unit(180.0, 180.0, 0.0);
    /// Slices that a lane saves because the significands of BF16 moments fit the short port.
    pub const SHORT_MOMENTS: f64 = 2.0;
    /// State stream, LayerNorm ports, selects, address generator; what random bits add; registers of a lane.
    pub const ADAM_CONTROL: Unit = Unit(1130.0, 2000.0, 0.0);
    pub const ADAM_HASH: Unit = Unit(570.0, 0.0, 0.0);
    pub const ADAM_CONTROL_LANE: Unit = Unit(0.0, 250.0, 0.0);
    /// Activation bank: write select and registers; position bank.
    pub const ACTIVATION_BANK: Unit = Unit(62.0, 87.0, 0.0);
    pub const POSITION_BANK: Unit = Unit(0.0, 54.0, 0.0);
    /// The three sequencers, and a register of the exponent file.
    pub const SEQUENCERS: Unit = Unit(240.0, 430.0, 0.0);
    pub const EXPONENT: Unit = Unit(16.8, 8.0, 0.0);
    /// Stream and register interfaces, schedule unit; token memory per bank.
    pub const CONTROL: Unit = Unit(4150.0, 3050.0, 4.0);
    pub const TOKENS_BANK: Unit = Unit(19.0, 17.3, 0.0);
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

/// DSP slices of the Adam unit's address generator: Q times the weight address unless Q is a power of two, and with random
/// bits row times row length in every lane. Yosys takes a slice for every product of 9 bits or more.
fn address_products(model: &ModelConfig, shape: &Shape, hashes: bool) -> usize {
    const LEAST_BITS: u32 = 9;
    let group = shape.b / shape.adam_lanes;
    let addresses = shape.weight_depth.max(shape.layernorm_words);
    let moments = !group.is_power_of_two()
        && bits_for(addresses.saturating_sub(1)) + bits_for(group) >= LEAST_BITS;
    let longest_row = model.embed_dim.max(model.ff_dim);
    let rows = hashes && bits_for(shape.b) + bits_for(longest_row) >= LEAST_BITS;
    usize::from(moments) + shape.adam_lanes * usize::from(rows)
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
        .plus(of(unit::MATRIX_CONTROL_BANK, b))
        .plus(segments(b));
    let vector = of(unit::VECTOR_LANE, b)
        .plus(of(unit::TABLE_PAIR, b.div_ceil(2)))
        .plus(of(unit::MAXIMUM, b))
        .plus(rotator(b, 32).times(3.0))
        .plus(of(unit::SCALAR_UNIT, 1))
        .plus(of(unit::SCALAR_UNIT_BANK, b))
        .plus(of(unit::VECTOR_CONTROL, 1))
        .plus(of(unit::VECTOR_CONTROL_BANK, b));
    let hashes =
        model.moment_format != MomentFormat::Fp32 || model.rounding == Rounding::Stochastic;
    let lane = match hashes {
        true if model.moment_format == MomentFormat::Int8 => of(unit::ADAM_LANE_CODES, g),
        true => of(unit::ADAM_LANE, g),
        false => of(unit::ADAM_LANE_PLAIN, g),
    };
    let sgd = model.layernorm_optimizer == LayerNormOptimizer::Sgd;
    // The lane that works on LayerNorm parameters by Adam has their FP32 moments too.
    let slices = match model.moment_format {
        MomentFormat::Fp32 => 0.0,
        MomentFormat::Bf16 => -unit::SHORT_MOMENTS * (g - usize::from(!sgd)) as f64,
        MomentFormat::Int8 => unit::SHORT_MOMENTS,
    };
    // Each lane chooses among the words of its banks: gradients of 32 bits, weights.
    let word = 32 + model.weight_format.bits() as usize;
    let choose = (b / g - 1).div_ceil(2) * word * g;
    let blocks = match model.moment_format {
        MomentFormat::Int8 => of(unit::MOMENT_BLOCK, g).plus(of(unit::MOMENT_ENCODER, 1)),
        _ => Resources::default(),
    };
    let adam = lane
        .plus(blocks)
        .plus(of(unit::ADAM_LAYERNORM, 1))
        .plus(of(unit::ADAM_CONTROL, 1))
        .plus(of(unit::ADAM_HASH, usize::from(hashes)))
        .plus(of(unit::ADAM_CONTROL_LANE, g))
        .plus(of(Unit(1.0, 0.0, 0.0), choose))
        .plus(of(
            Unit(0.0, 0.0, 1.0),
            address_products(model, shape, hashes),
        ))
        .plus(of(Unit(0.0, 0.0, slices), 1));
    let exponents = shape.mat_exps + shape.vec_exps + shape.weight_exps;
    let layer = group_select(b, groups, 5)
        .plus(of(unit::ACTIVATION_BANK, b * groups))
        .plus(of(unit::POSITION_BANK, b))
        .plus(of(unit::SEQUENCERS, 1))
        .plus(of(unit::EXPONENT, exponents));
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
            formula: "5 read ports over the groups x 32 B bits + 62 B per group + sequencers + exponents",
            resources: layer,
        },
        ModuleCost {
            module: "nf_transformer_bus",
            formula: "control, registers, streams, schedule + tokens of B lanes",
            resources: of(unit::CONTROL, 1).plus(of(unit::TOKENS_BANK, b)),
        },
    ]
}

/// Sum of modules and memories. 18 Kib blocks pair up.
pub fn total(modules: &[ModuleCost], memories: &[MemoryLine]) -> Resources {
    let mut sum = modules
        .iter()
        .fold(Resources::default(), |s, m| s.plus(m.resources));
    for m in memories {
        sum.lut += m.luts as f64;
        match m.kind {
            MemoryKind::Block => sum.bram36 += m.blocks,
            MemoryKind::Ultra => sum.uram += m.blocks,
            MemoryKind::Distributed if m.ports == MemoryPorts::Rom => {}
            MemoryKind::Distributed => sum.lutram_bits += 64.0 * m.luts as f64,
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
