//! Sizes and formats of the Adam unit, its timing, and what it costs.

use super::format;
use super::lane::AdamLane;
use crate::config::model::{LayerNormOptimizer, MomentFormat, Rounding, WeightFormat};
use crate::dsl::{MemStyle, addr_width};
use crate::num::moments8::BLOCK;
use crate::trainer::cycles::{SLOTS, buffer_words};
use crate::trainer::encode::{Layout, bits_for};

/// Everything that fixes the netlist of the unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdamConfig {
    /// B, banks of the weight memory.
    pub banks: usize,
    /// G, lanes; divides B, and Q = B/G >= 2.
    pub lanes: usize,
    /// WD, words per weight bank.
    pub weight_depth: usize,
    /// Words of each bank of the scale memory: 0 unless the moments are 8-bit blocks.
    pub scale_words: usize,
    /// 4*L*d.
    pub layernorm_words: usize,
    /// First weight address of each tensor, by tensor number. Tensors fill the memory without
    /// overlap, in any order; words before the first base belong to no tensor.
    pub tensor_bases: Vec<usize>,
    pub weights: WeightFormat,
    pub moments: MomentFormat,
    pub rounding: Rounding,
    pub layernorm_optimizer: LayerNormOptimizer,
    /// Gradient tiles that the unit holds, at least 2.
    pub gradient_tiles: usize,
    /// Memory of the gradient tiles (`gradient_tiles`*B words of 32 bits in each of B banks).
    pub gradient_style: MemStyle,
    /// Memory of the moments (WD*Q words in each of G banks).
    pub moment_style: MemStyle,
    /// Fields of the instruction word (`trainer::encode::encode_adam`).
    pub layout: Layout,
}

/// Why a configuration cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdamConfigError {
    #[error("{lanes} Adam lanes do not divide {banks} banks into groups of at least 2")]
    Lanes { lanes: usize, banks: usize },
    #[error("8-bit block moments need a scale memory, other formats none; it has {0} words")]
    Scales(usize),
    #[error("tensor {tensor} starts at word {base}, the weight memory has {depth} words")]
    Base {
        tensor: usize,
        base: usize,
        depth: usize,
    },
    #[error("tensors {0} and {1} start at the same word {2}")]
    SharedBase(usize, usize, usize),
    #[error(
        "the Adam unit needs at least one weight tensor, one weight word and one LayerNorm word"
    )]
    Empty,
    #[error(transparent)]
    Netlist(#[from] crate::dsl::DslError),
}

impl AdamConfig {
    /// Checks the sizes.
    pub fn check(&self) -> Result<(), AdamConfigError> {
        let (lanes, banks) = (self.lanes, self.banks);
        if lanes == 0 || !banks.is_multiple_of(lanes) || banks / lanes < 2 {
            return Err(AdamConfigError::Lanes { lanes, banks });
        }
        if self.blocks() != (self.scale_words > 0) {
            return Err(AdamConfigError::Scales(self.scale_words));
        }
        if self.tensor_bases.is_empty() || self.weight_depth == 0 || self.layernorm_words == 0 {
            return Err(AdamConfigError::Empty);
        }
        let bases = self.tensors_by_base();
        if let Some(&(base, tensor)) = bases.iter().find(|(base, _)| *base >= self.weight_depth) {
            return Err(AdamConfigError::Base {
                tensor,
                base,
                depth: self.weight_depth,
            });
        }
        match bases.windows(2).find(|w| w[0].0 == w[1].0) {
            Some(w) => Err(AdamConfigError::SharedBase(w[0].1, w[1].1, w[0].0)),
            None => Ok(()),
        }
    }

    /// `(base, tensor)` in the order of the addresses.
    pub fn tensors_by_base(&self) -> Vec<(usize, usize)> {
        let mut bases: Vec<_> = self
            .tensor_bases
            .iter()
            .enumerate()
            .map(|(tensor, &base)| (base, tensor))
            .collect();
        bases.sort_unstable();
        bases
    }

    /// Q, banks per lane.
    pub fn group(&self) -> usize {
        self.banks / self.lanes
    }

    /// Bits of a weight address.
    pub fn weight_address_bits(&self) -> u32 {
        addr_width(self.weight_depth as u32)
    }

    /// Words of a moments bank.
    pub fn moment_depth(&self) -> usize {
        self.weight_depth * self.group()
    }

    /// Bits of a moments address.
    pub fn moment_address_bits(&self) -> u32 {
        addr_width(self.moment_depth() as u32)
    }

    /// Bits of a moments word {v, m}.
    pub fn moment_word_bits(&self) -> u32 {
        2 * format::moment_bits(self.moments)
    }

    /// Whether the moments are 8-bit blocks.
    pub fn blocks(&self) -> bool {
        self.moments == MomentFormat::Int8
    }

    /// Bits of the address that walks weights, LayerNorm parameters and scales.
    pub fn address_bits(&self) -> u32 {
        let bits = self
            .weight_address_bits()
            .max(self.layernorm_address_bits());
        match self.blocks() {
            true => bits.max(addr_width(self.scale_words as u32)),
            false => bits,
        }
    }

    /// Bits of an address of a lane's scales.
    pub fn scale_address_bits(&self) -> u32 {
        addr_width((self.scale_words * self.group()) as u32)
    }

    /// Words of a lane's buffer of moments that have no codes yet.
    pub fn buffer_words(&self) -> usize {
        buffer_words(self.group())
    }

    /// Bits of an address of that buffer.
    pub fn buffer_address_bits(&self) -> u32 {
        addr_width(self.buffer_words() as u32)
    }

    /// Columns of all lanes' rows that the buffers hold.
    pub fn buffer_columns(&self) -> usize {
        self.buffer_words() / self.group()
    }

    /// Bits of an address {slot, q} of what a lane keeps per block.
    pub fn slot_address_bits(&self) -> u32 {
        addr_width(SLOTS as u32) + addr_width(self.group() as u32)
    }

    /// Bits of a number of columns of a block.
    pub fn column_bits(&self) -> u32 {
        bits_for(BLOCK)
    }

    /// Bits of a LayerNorm parameter index.
    pub fn layernorm_address_bits(&self) -> u32 {
        addr_width(self.layernorm_words as u32)
    }

    /// Bits of an exponent register number.
    pub fn exp_id_bits(&self) -> u32 {
        addr_width(self.tensor_bases.len() as u32)
    }

    /// A plain lane.
    pub fn lane(&self) -> AdamLane {
        AdamLane {
            weights: self.weights,
            moments: self.moments,
            rounding: self.rounding,
            layernorm: None,
        }
    }

    /// Lane 0.
    pub fn layernorm_lane(&self) -> AdamLane {
        AdamLane {
            layernorm: Some(self.layernorm_optimizer),
            ..self.lane()
        }
    }

    /// Cycles from the address registers to the operands of a lane: port register, two cycles of
    /// memory, selection among the banks of the lane.
    pub const OPERAND_LATENCY: u32 = 4;

    /// Registers added behind the lanes so that the write of a bank never meets its read: a bank
    /// is read every Q cycles, so the distance of write and read must not be a multiple of Q.
    pub fn write_padding(&self) -> u32 {
        let distance = Self::OPERAND_LATENCY + self.lane().weight_latency();
        u32::from(distance.is_multiple_of(self.group() as u32))
    }

    /// Cycles from the read of a weight bank to its write.
    pub fn read_to_write(&self) -> u32 {
        Self::OPERAND_LATENCY + self.lane().weight_latency() + self.write_padding()
    }

    /// Register stages of the exponent maximum over the lanes.
    pub fn maximum_stages(&self) -> u32 {
        self.lanes.next_power_of_two().trailing_zeros()
    }

    /// Cycle counts for the planner.
    pub fn timing(&self) -> AdamTiming {
        AdamTiming {
            group: self.group(),
            // Queue, wait for phase 0, pipeline, maximum, exponent register, retirement.
            start_to_retire: 1
                + self.group()
                + (self.read_to_write() + self.maximum_stages() + 2) as usize,
            state_beats: (self.weight_depth + self.scale_words) * self.banks
                + self.layernorm_words
                + 1,
        }
    }
}

/// Cycles of the unit (exact for tiles that follow each other; see each field otherwise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdamTiming {
    /// Q.
    pub group: usize,
    /// Cycles from `start` in an idle unit to `retire`, beyond the steps of the tile. Depends on
    /// the phase of the free-running count; this is the most.
    pub start_to_retire: usize,
    /// Beats of the state stream, one per cycle without stalls.
    pub state_beats: usize,
}

impl AdamTiming {
    /// Steps of a matrix tile of `nr` columns.
    pub fn matrix_tile(&self, nr: usize) -> usize {
        nr * self.group
    }

    /// Steps of a LayerNorm tile of `nc` parameters; a matrix tile behind it waits for phase 0,
    /// up to Q - 1 cycles.
    pub fn layernorm_tile(&self, nc: usize) -> usize {
        nc
    }
}
