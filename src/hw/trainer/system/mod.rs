//! Integration: sequencers, memories between the engines, layer, bus and top level.

pub mod banks;
pub mod build;
pub mod bus;
pub mod layer;
pub mod sequencer;
pub mod top;

use crate::trainer::encode::Encoded;
use crate::trainer::isa::Shape;
use layer::Reach;

/// Everything that the netlist of one machine is made from.
#[derive(Clone, Debug)]
pub struct System {
    pub shape: Shape,
    pub mat: Encoded,
    pub vec: Encoded,
    pub adam: Encoded,
    pub reach: Reach,
    /// Words of each bank of the position ROM.
    pub position: Vec<Vec<u32>>,
    /// Banks of the position ROM in block RAM; the others are LUT ROMs.
    pub position_blocks: usize,
}
