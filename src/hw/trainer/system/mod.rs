//! Integration: sequencers, memories between the engines, layer, bus and top level.

pub mod banks;
pub mod sequencer;
