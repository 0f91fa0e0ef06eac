//! Timing of the moment encoder (`docs/machine.md` section 5): when a tile may load, and when its block is stored.

use std::collections::VecDeque;

use super::Costs;
use crate::num::moments8::BLOCK;
use crate::trainer::isa::AdamInstr;

/// Moment blocks of a lane's rows between the load of their first tile and the store of their codes.
pub const SLOTS: usize = 4;

/// Words of a lane's buffer of moments without codes: two whole blocks, and what a block RAM holds anyway.
pub fn buffer_words(q: usize) -> usize {
    (2 * BLOCK * q).next_power_of_two().max(512)
}

/// Cycles from the end of a block's steps to its first scale: operands, decoding, the root of v', the maximum.
const TO_SCALES: u64 = 44;
/// Cycles from the first scale of a block to the first of its codes, without the two per bank.
const SCALE: u64 = 23;
/// Cycles from the last step of the encoder to a unit at rest.
const TO_REST: u64 = 14;

/// A block whose tiles have their place in time.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// First step of the encoder.
    start: u64,
    columns: u64,
}

/// State of the encoder.
#[derive(Clone, Debug, Default)]
pub struct BlockClock {
    passes: VecDeque<Pass>,
    /// Columns of the block whose last part is still to come.
    open: u64,
    scaled: u64,
    free: u64,
}

impl BlockClock {
    /// First cycle from `at` on in which the buffer has room for the tile.
    pub fn room(&self, costs: &Costs, i: &AdamInstr, at: u64) -> u64 {
        let Some(part) = i.block else {
            return at;
        };
        let capacity = (buffer_words(costs.q as usize) as u64) / costs.q;
        let mut at = at;
        let held: u64 = self.passes.iter().map(|p| p.columns).sum();
        // Columns that must have left.
        let mut leave = (held + self.open + i.nr as u64).saturating_sub(capacity);
        for p in &self.passes {
            let take = leave.min(p.columns);
            if take > 0 {
                at = at.max(p.start + take * costs.q + 1);
            }
            leave -= take;
        }
        if part.offset == 0
            && let Some(oldest) = self.passes.len().checked_sub(SLOTS)
        {
            let p = self.passes[oldest];
            at = at.max(p.start + p.columns * costs.q + 1);
        }
        at
    }

    /// Books a tile whose last step was before `end`; returns the cycle in which the unit is at rest behind it.
    pub fn take(&mut self, costs: &Costs, i: &AdamInstr, end: u64) -> u64 {
        let Some(part) = i.block else {
            return 0;
        };
        self.open += i.nr as u64;
        if !i.block_ends().1 {
            return 0;
        }
        self.open = 0;
        let scales = (end + TO_SCALES).max(self.scaled);
        self.scaled = scales + 2 * costs.b;
        let start = (self.scaled + SCALE).max(self.free);
        let columns = part.columns as u64;
        self.free = start + columns * costs.q;
        self.passes.push_back(Pass { start, columns });
        if self.passes.len() > 4 * SLOTS {
            self.passes.pop_front();
        }
        self.free + TO_REST
    }
}
