//! When everything happens, counted from the slot, and the cost formulas of the cycle model.

use super::aligner::ALIGN_LATENCY;
use super::cell::CELL_LATENCY;
use super::emax::max_latency;
use super::lane::{ADDEND_AT, KEEP_AT, LANE_LATENCY};
use super::rotator::rotate_latency;
use super::stream::ADDRESS_LATENCY;
use crate::hw::trainer::READ_LATENCY;
#[cfg(doc)]
use crate::trainer::isa::MatInstr;

/// Latencies of a core of B rows and columns. A slot is one cycle of the issue state: an operand
/// step or a shift. Every figure is a number of cycles after the slot unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatTiming {
    /// Bank addresses on the ports.
    pub address: u32,
    /// Bank data on the ports: `address + READ_LATENCY`.
    pub data: u32,
    /// Aligned operands, still in bank order.
    pub aligned: u32,
    /// Operands in lane order.
    pub rotated: u32,
    /// Operands at the cells (one register of bounded fan-out).
    pub operands: u32,
    /// The first row of each segment holds the sum with the slot's product, or the row that the slot shifted in.
    pub heads: u32,
    /// That sum of the segment whose turn it is, in a register.
    pub sum: u32,
    /// Address of the addend on the port.
    pub add_address: u32,
    /// Masked FP32 results in lane order.
    pub result: u32,
    /// Destination write on the ports.
    pub write: u32,
    /// Exponent update on the ports.
    pub exponent: u32,
    /// Retire pulse.
    pub retire: u32,
}

impl MatTiming {
    /// Timing of an array of `b` rows and columns.
    pub fn new(b: usize) -> Self {
        let turn = rotate_latency(b);
        let address = ADDRESS_LATENCY;
        let data = address + READ_LATENCY;
        let aligned = data + ALIGN_LATENCY;
        let rotated = aligned + turn;
        let operands = rotated + 1;
        let heads = operands + CELL_LATENCY;
        let sum = heads + 1;
        let result = sum + LANE_LATENCY;
        let write = result + turn;
        let exponent = result + max_latency(b) + 1;
        MatTiming {
            address,
            data,
            aligned,
            rotated,
            operands,
            heads,
            sum,
            add_address: sum + ADDEND_AT - turn - READ_LATENCY,
            result,
            write,
            exponent,
            retire: write.max(exponent) + 1,
        }
    }

    /// Cycle at which the lane mask enters the epilogue.
    pub(super) fn keep(&self) -> u32 {
        self.sum + KEEP_AT
    }

    /// Cycles from `start` to the first cycle in which the next `start` may come; a `start` in
    /// that very cycle loses none. `tail` is that of the instruction ([`MatInstr::tail`]).
    pub fn start_to_ready(&self, k: usize, tail: usize) -> u64 {
        (k + tail) as u64
    }

    /// Cycles from `start` to the `retire` pulse.
    pub fn start_to_retire(&self, k: usize, nr: usize) -> u64 {
        (k + nr - 1) as u64 + u64::from(self.retire)
    }
}
