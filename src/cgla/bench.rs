//! A whole model on the array, from the cycle model: every projection of every layer.

use serde::Serialize;

use super::schedule::WidePlan;
use super::timing::{MemoryModel, estimate};
use super::{ArrayConfig, Result};
use crate::bitnet::backend::Phases;
use crate::bitnet::shapes::Shape;
use crate::bitnet::ternary::StreamFormat;

/// One kind of projection.
#[derive(Debug, Clone, Serialize)]
pub struct ProjectionCost {
    /// Name, e.g. `ffn_down`.
    pub name: &'static str,
    /// Outputs.
    pub outputs: usize,
    /// Inputs.
    pub k: usize,
    /// Cycles of one, configuration and drain included.
    pub cycles: Phases,
    /// Ternary multiply-accumulates per cycle.
    pub macs_per_cycle: f64,
    /// What the memory allows.
    pub memory_limit_macs_per_cycle: f64,
    /// Share of it.
    pub share: f64,
}

/// One token through all layers.
#[derive(Debug, Clone, Serialize)]
pub struct ModelCost {
    /// Ternary projections, all on the array.
    pub projections_on_array: usize,
    /// Cycles per token, one launch per projection.
    pub cycles_per_token: u64,
    /// Bytes of weights per token.
    pub weight_bytes_per_token: u64,
    /// Cycles in which the memory could deliver these bytes.
    pub memory_cycles_per_token: f64,
    /// `memory_cycles_per_token / cycles_per_token`.
    pub roofline_share: f64,
    /// Per kind of projection.
    pub projections: Vec<ProjectionCost>,
}

/// Bits per weight in memory, padding of the row included.
pub fn bits_per_weight(format: StreamFormat, cols: usize) -> f64 {
    (format.row_bytes(cols) * 8) as f64 / cols as f64
}

/// Cycles of one projection for one token.
pub fn projection_cycles(
    config: &ArrayConfig,
    memory: &MemoryModel,
    rows: usize,
    cols: usize,
    format: StreamFormat,
) -> Result<Phases> {
    let plan = WidePlan::new(config, rows, cols, 1, format)?;
    let launch = plan.launch(&vec![0; cols], 0, true)?;
    Ok(estimate(config, &launch, memory))
}

/// The cost of a model of this shape, one token at a time.
pub fn model_cost(
    config: &ArrayConfig,
    memory: &MemoryModel,
    shape: &Shape,
    format: StreamFormat,
) -> Result<ModelCost> {
    let mut projections = vec![];
    let (mut cycles, mut bytes) = (0, 0);
    for p in shape.projections() {
        let phases = projection_cycles(config, memory, p.rows, p.cols, format)?;
        cycles += phases.total;
        bytes += (format.row_bytes(p.cols) * p.rows) as u64;
        let macs = (p.rows * p.cols) as f64;
        let limit = memory.macs_per_cycle(config.ports, bits_per_weight(format, p.cols));
        projections.push(ProjectionCost {
            name: p.name,
            outputs: p.rows,
            k: p.cols,
            cycles: phases,
            macs_per_cycle: macs / phases.total as f64,
            memory_limit_macs_per_cycle: limit,
            share: macs / phases.total as f64 / limit,
        });
    }
    let layers = shape.layers as u64;
    let per_cycle = f64::from(config.ports) * 16.0 * memory.efficiency;
    let memory_cycles = (bytes * layers) as f64 / per_cycle;
    Ok(ModelCost {
        projections_on_array: 7 * shape.layers,
        cycles_per_token: cycles * layers,
        weight_bytes_per_token: bytes * layers,
        memory_cycles_per_token: memory_cycles,
        roofline_share: memory_cycles / (cycles * layers) as f64,
        projections,
    })
}
