//! The planner: array shape, memories, programs, resources and cycles of a model on a device.
//!
//! Everything the netlist needs is in [`Plan`]; nothing else decides a size.

mod largest;
mod memory;
mod nearest;
mod place;
mod resources;
mod search;

pub use largest::{Largest, Tried, largest, member};
pub use memory::{MemoryKind, MemoryLine, MemoryPorts, weight_columns};
pub use nearest::{Nearest, nearest};
pub use resources::{ModuleCost, Resources};

use serde::Serialize;

use super::cycles::{Costs, OperatorCycles, Timeline, buffer_words, simulate};
use super::isa::{Engine, Program, Shape};
use super::layout::{WeightLayout, constant_table, position_banks, weight_shapes};
use super::program::{Choices, Instr, Logical};
use crate::config::Device;
use crate::config::model::{Compute, ModelConfig, MomentFormat};
use crate::num::block::MAX_K;
use crate::num::moments8::blocks_per_row;

/// What the user may fix; everything else is chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// B, rows and columns of the array.
    pub array: Option<usize>,
    /// G, Adam lanes.
    pub adam_lanes: Option<usize>,
    /// Number of activation groups.
    pub groups: Option<usize>,
}

/// A part: what it has, how much of it a design may fill, and the clock of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub name: String,
    pub available: Resources,
    /// Share of the LUTs that may be used.
    pub lut_share: f64,
    pub clock_mhz: f64,
}

impl Target {
    /// A whole device at a clock in MHz.
    pub fn of(device: &Device, clock_mhz: u64) -> Self {
        Target {
            name: device.name.clone(),
            available: Resources {
                lut: device.lut as f64,
                ff: device.ff as f64,
                dsp: device.dsp as f64,
                bram36: device.bram36 as f64,
                uram: device.uram as f64,
                lutram_bits: device.distributed_ram_bits as f64,
            },
            lut_share: LUT_SHARE,
            clock_mhz: clock_mhz as f64,
        }
    }
}

/// Share of the LUTs that place and route can be expected to fill.
pub const LUT_SHARE: f64 = 0.85;

/// A resource that is short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shortfall {
    pub resource: &'static str,
    pub used: f64,
    pub available: f64,
}

/// A planned machine.
#[derive(Clone, Debug)]
pub struct Plan {
    pub model: ModelConfig,
    pub target: Target,
    pub shape: Shape,
    pub weights: WeightLayout,
    pub program: Program,
    /// Operator of every instruction, by engine.
    pub operators: [Vec<&'static str>; 3],
    /// Where every logical buffer lies and when it lives.
    pub buffers: Vec<BufferPlace>,
    pub memories: Vec<MemoryLine>,
    /// Memory of the moments: Block or Ultra.
    pub moment_kind: MemoryKind,
    /// Banks of the position code in block RAM; the others are LUT ROMs.
    pub position_blocks: usize,
    /// Memory of the gradient tiles: Block or Distributed.
    pub gradient_kind: MemoryKind,
    /// Cycles traded for memory.
    pub choices: Choices,
    pub modules: Vec<ModuleCost>,
    pub used: Resources,
    pub shortfall: Vec<Shortfall>,
    pub timeline: Timeline,
}

/// Kinds of the memories that have a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kinds {
    moments: MemoryKind,
    /// Banks of the position code in block RAM.
    position_blocks: usize,
}

impl Kinds {
    /// The kinds that leave most blocks.
    fn roomiest(target: &Target) -> Self {
        Kinds {
            moments: match target.available.uram > 0.0 {
                true => MemoryKind::Ultra,
                false => MemoryKind::Block,
            },
            position_blocks: 0,
        }
    }
}

/// A logical buffer: its place, and its first and last use as instruction numbers of the global order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferPlace {
    pub name: String,
    pub group: usize,
    pub base: usize,
    pub words: usize,
    pub first: usize,
    pub last: usize,
}

/// Why a model has no plan on any device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "a product of this model sums {0} terms; the 48-bit accumulator takes at most {MAX_K}: make vocab, seq_len, ff_dim and 3*embed_dim smaller"
    )]
    TooLong(usize),
    #[error("compute = \"fp32\" exists in the reference only; the machine computes in block18")]
    Fp32Compute,
    #[error("an array of {0} rows is not possible; 2 to {MAX_ARRAY} are")]
    Array(usize),
    #[error(
        "{lanes} Adam lanes do not divide {array} rows into equal shares of at least 2; possible: {possible}"
    )]
    Lanes {
        lanes: usize,
        array: usize,
        possible: String,
    },
    #[error("{0} activation groups are not possible; {MIN_GROUPS} to {MAX_GROUPS} are")]
    Groups(usize),
    #[error("the model has a dimension of 0")]
    Empty,
}

/// Memories of at most this many words are LUT RAM.
const DISTRIBUTED_WORDS: usize = 64;

/// Largest array that is considered.
pub const MAX_ARRAY: usize = 128;
/// A pass of the vector unit reads two groups while a product reads two and an addend.
pub const MIN_GROUPS: usize = 3;
pub const MAX_GROUPS: usize = 16;

impl Plan {
    /// The fastest plan that fits `target`; when none does, the plan that misses by least, with its shortfall.
    pub fn new(model: &ModelConfig, target: &Target, options: &Options) -> Result<Self, PlanError> {
        check(model, options)?;
        Ok(search::search(model, target, options))
    }

    pub fn fits(&self) -> bool {
        self.shortfall.is_empty()
    }

    /// Cycles of one training sample.
    pub fn cycles_per_sample(&self) -> u64 {
        self.timeline.total
    }

    /// Milliseconds of one training sample at the planned clock.
    pub fn ms_per_sample(&self) -> f64 {
        self.timeline.total as f64 / (self.target.clock_mhz * 1000.0)
    }

    /// Multiply-accumulate cells.
    pub fn mac_lanes(&self) -> usize {
        self.shape.b * self.shape.b
    }

    /// Busy and waiting cycles by engine and operator.
    pub fn breakdown(&self) -> Vec<OperatorCycles> {
        self.timeline.breakdown(&self.operators)
    }

    /// Position ROM, `[bank][address]` FP32 bits.
    pub fn position_banks(&self) -> Vec<Vec<u32>> {
        position_banks(&self.model, self.shape.b)
    }

    /// First weight address of each weight tensor.
    pub fn tensor_bases(&self) -> Vec<usize> {
        self.weights.tensors.iter().map(|t| t.base).collect()
    }

    /// Words of each bank of the scale memory, 0 without 8-bit block moments.
    pub fn scale_words(&self) -> usize {
        self.weights.scale_words()
    }

    /// Words of the three programs, largest first use of the ROMs: (engine, words, bits of a word that are not the same in
    /// every word: the others are constants and take no memory).
    pub fn program_roms(&self) -> [(Engine, usize, usize); 3] {
        memory_of_programs(&self.shape, &self.program)
    }

    /// The plan as the JSON object of `nfgen plan --json`.
    pub fn to_json(&self) -> serde_json::Value {
        let a = &self.target.available;
        let pair =
            |used: f64, available: f64| serde_json::json!({"used": used, "available": available});
        let engines = |e: usize| {
            let busy: u64 = self.timeline.busy[e].iter().sum();
            serde_json::json!({"instructions": self.timeline.start[e].len(), "busy_cycles": busy})
        };
        serde_json::json!({
            "model": self.model.name,
            "device": self.target.name,
            "parameters": self.model.parameters(),
            "fits": self.fits(),
            "shortfall": self.shortfall,
            "array": [self.shape.b, self.shape.b],
            "mac_lanes": self.mac_lanes(),
            "adam_lanes": self.shape.adam_lanes,
            "activation_groups": self.shape.group_depth,
            "moment_memory": self.moment_kind,
            "position_block_banks": self.position_blocks,
            "gradient_memory": self.gradient_kind,
            "gradient_tiles": self.shape.gradient_tiles,
            "encode_again": self.choices.encode_again,
            "bram36": pair(self.used.bram36, a.bram36),
            "uram": pair(self.used.uram, a.uram),
            "dsp": pair(self.used.dsp, a.dsp),
            "lut": pair(self.used.lut, a.lut),
            "ff": pair(self.used.ff, a.ff),
            "lut_share": self.target.lut_share,
            "clock_mhz": self.target.clock_mhz,
            "cycles_per_sample": self.cycles_per_sample(),
            "ms_per_sample": self.ms_per_sample(),
            "engines": {"mat": engines(0), "vec": engines(1), "adam": engines(2)},
            "phase_starts": self.timeline.phase_starts(&self.program),
            "operators": self.breakdown(),
            "modules": self.modules,
            "buffers": self.memories,
            "activations": self.buffers,
        })
    }
}

fn check(model: &ModelConfig, options: &Options) -> Result<(), PlanError> {
    let dims = [
        model.vocab,
        model.seq_len,
        model.embed_dim,
        model.heads,
        model.ff_dim,
        model.layers,
    ];
    if dims.contains(&0) {
        return Err(PlanError::Empty);
    }
    if model.compute != Compute::Block18 {
        return Err(PlanError::Fp32Compute);
    }
    let k = [
        model.vocab,
        model.seq_len,
        3 * model.embed_dim,
        model.ff_dim,
    ];
    if let Some(&k) = k.iter().find(|&&k| k > MAX_K) {
        return Err(PlanError::TooLong(k));
    }
    if let Some(b) = options.array {
        if !(2..=MAX_ARRAY).contains(&b) {
            return Err(PlanError::Array(b));
        }
        if let Some(lanes) = options.adam_lanes
            && !lane_counts(b).contains(&lanes)
        {
            let possible: Vec<String> = lane_counts(b).iter().map(usize::to_string).collect();
            return Err(PlanError::Lanes {
                lanes,
                array: b,
                possible: possible.join(", "),
            });
        }
    }
    match options.groups {
        Some(n) if !(MIN_GROUPS..=MAX_GROUPS).contains(&n) => Err(PlanError::Groups(n)),
        _ => Ok(()),
    }
}

/// Adam lanes that an array of `b` rows can have: divisors with at least two banks each, most first.
pub fn lane_counts(b: usize) -> Vec<usize> {
    (1..=b / 2).rev().filter(|g| b.is_multiple_of(*g)).collect()
}

/// Bits of a stored moment.
fn moment_bits(model: &ModelConfig) -> usize {
    match model.moment_format {
        MomentFormat::Fp32 => 32,
        MomentFormat::Bf16 => 16,
        MomentFormat::Int8 => 8,
    }
}

fn memory_of_programs(shape: &Shape, program: &Program) -> [(Engine, usize, usize); 3] {
    use super::encode::{encode_adam, encode_mat, encode_vec};
    let mat = encode_mat(shape, &program.mat);
    let vec = encode_vec(&program.vec);
    let adam = encode_adam(&program.adam);
    [
        (Engine::Mat, program.mat.len(), mat.varying_bits()),
        (Engine::Vec, program.vec.len(), vec.varying_bits()),
        (Engine::Adam, program.adam.len(), adam.varying_bits()),
    ]
}

/// Memories of a machine.
fn memories(
    model: &ModelConfig,
    shape: &Shape,
    program: &Program,
    kinds: Kinds,
) -> Vec<MemoryLine> {
    use MemoryKind::{Block, Distributed};
    use MemoryPorts::{DualRom, Rom, Simple, True};
    let (b, g) = (shape.b, shape.adam_lanes);
    let (t, d, v) = (model.seq_len, model.embed_dim, model.vocab);
    let p = model.matrix_parameters();
    let line = MemoryLine::new;
    let small = |depth: usize| if depth <= 64 { Distributed } else { Block };
    let weight_bits = model.weight_format.bits() as usize;
    let columns = weight_columns(shape.weight_depth, weight_bits);
    let single = columns.len() == 1;
    let mut list: Vec<MemoryLine> = columns
        .into_iter()
        .enumerate()
        .map(|(n, width)| {
            let name = if single {
                "weights".to_string()
            } else {
                format!("weights, column {n}")
            };
            line(&name, p, (shape.weight_depth, width), b, True, Block)
        })
        .collect();
    list.push(line(
        "moments",
        p,
        (shape.weight_depth * (b / g), 2 * moment_bits(model)),
        g,
        Simple,
        kinds.moments,
    ));
    if let Some(scales) = WeightLayout::new(model, b).scales {
        let depth = scales.depth * b / g;
        let blocks = weight_shapes(model)
            .iter()
            .map(|(rows, columns)| rows * blocks_per_row(*columns))
            .sum();
        let words = buffer_words(b / g);
        list.extend([
            line(
                "moment scales",
                blocks,
                (depth, 64),
                g,
                Simple,
                small(depth),
            ),
            line(
                "moments without codes",
                words * g,
                (words, 96),
                g,
                Simple,
                Block,
            ),
        ]);
    }
    for (n, &depth) in shape.group_depth.iter().enumerate() {
        list.push(line(
            &format!("activations {n}"),
            depth * b,
            (depth, 32),
            b,
            Simple,
            small(depth),
        ));
    }
    for (banks, kind) in [
        (kinds.position_blocks, Block),
        (b - kinds.position_blocks, Distributed),
    ] {
        if banks > 0 {
            let words = t * d * banks / b;
            let size = (shape.position_depth, 32);
            list.push(line("position code", words, size, banks, Rom, kind));
        }
    }
    list.extend([
        line(
            "gradient tiles",
            shape.gradient_tiles * b * b,
            (shape.gradient_tiles * b, 32),
            b,
            Simple,
            gradient_kind(shape),
        ),
        line(
            "layernorm parameters",
            shape.layernorm_words,
            (shape.layernorm_words, 32),
            5,
            Simple,
            small(shape.layernorm_words),
        ),
        line(
            "function tables",
            1024,
            (1024, 36),
            b.div_ceil(2),
            DualRom,
            Block,
        ),
        line(
            "scalar file",
            shape.scalar_rows * b,
            (shape.scalar_rows, 32),
            b,
            Simple,
            Distributed,
        ),
        line("logits", v, (v, 32), 1, Simple, Block),
        line("loss table", 256, (256, 41), 1, Rom, Block),
    ]);
    for (engine, words, width) in memory_of_programs(shape, program) {
        let kind = if words > 32 { Block } else { Distributed };
        let name = format!("program {engine:?}").to_lowercase();
        list.push(line(&name, words, (words, width), 1, Rom, kind));
    }
    list
}

/// What a design lacks on a target.
fn shortfall(used: &Resources, target: &Target) -> Vec<Shortfall> {
    let a = &target.available;
    [
        ("bram36", used.bram36, a.bram36),
        ("uram", used.uram, a.uram),
        ("dsp", used.dsp, a.dsp),
        ("lut", used.lut, (a.lut * target.lut_share).floor()),
        ("ff", used.ff, a.ff),
        ("lutram_bits", used.lutram_bits, a.lutram_bits),
    ]
    .into_iter()
    .filter(|(_, used, available)| used > available)
    .map(|(resource, used, available)| Shortfall {
        resource,
        used,
        available,
    })
    .collect()
}

/// Numbers of gradient tiles worth trying: as many as a block of 512 words holds, and two in LUT RAM. Small arrays fill
/// a LUT RAM of 32 words.
fn gradient_tiles(b: usize) -> Vec<usize> {
    match 2 * b <= DISTRIBUTED_WORDS {
        true => vec![(32 / b).max(2)],
        false => vec![512 / b, 2],
    }
}

/// Memory of the gradient tiles.
fn gradient_kind(shape: &Shape) -> MemoryKind {
    match shape.gradient_tiles > 2 && shape.gradient_tiles * shape.b > DISTRIBUTED_WORDS {
        true => MemoryKind::Block,
        false => MemoryKind::Distributed,
    }
}

/// Sizes that follow from model, array and lanes; groups and exponents come with the placement.
fn frame(
    model: &ModelConfig,
    weights: &WeightLayout,
    scalar_rows: usize,
    g: usize,
    gradient_tiles: usize,
) -> Shape {
    Shape {
        b: weights.b,
        adam_lanes: g,
        gradient_tiles,
        group_depth: vec![],
        position_depth: model.seq_len.div_ceil(weights.b) * model.embed_dim,
        weight_depth: weights.depth,
        layernorm_words: model.layernorm_parameters(),
        scalar_rows,
        mat_exps: 0,
        vec_exps: 0,
        weight_exps: weights.tensors.len(),
        constants: constant_table(model),
    }
}

#[cfg(test)]
mod tests;
