//! The wide schedule: every row multiplies, activations stay in local memory, weights stream.
//!
//! Group `g` computes a contiguous range of outputs. Within a group the beats of an output row
//! are dealt over the row pairs; each row multiplies its weights with both fragments of its
//! activations in the same step, adds what comes down the chain, and the last row folds
//! `lo + 16 * hi` and stores one int32 per output and token.

use super::isa::{
    Dest, Ex1, Ex2, Ex3, FormatA, FormatB, RowConfig, Source1, Source2, Source3, Store,
};
use super::launch::{GroupLaunch, Launch};
use super::packet::{Packet, Work};
use super::{ArrayConfig, Error, LaneSign, Result};
use crate::bitnet::ternary::StreamFormat;

/// Most tokens that one packet can repeat an output for.
const MAX_TOKENS: usize = 255;

/// A projection on the array: `rows` outputs of `cols` inputs for `tokens` activation rows.
#[derive(Debug, Clone)]
pub struct WidePlan {
    /// Build.
    pub config: ArrayConfig,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub cols: usize,
    /// Activation rows per launch.
    pub tokens: usize,
    /// Weight packing.
    pub format: StreamFormat,
    /// Beats of one output row.
    pub unit: usize,
    /// Steps of a dot product.
    pub steps: usize,
    /// Outputs of a tile.
    pub tile: usize,
    /// First output and output count of every group.
    pub ranges: Vec<(usize, usize)>,
}

impl FormatB {
    /// Operand format of a weight packing.
    pub fn of(format: StreamFormat) -> Self {
        match format {
            StreamFormat::TwoBit => Self::TwoBit,
            StreamFormat::FiveTrits => Self::FiveTrits,
            StreamFormat::Nibbles => Self::Nibbles,
        }
    }
}

impl WidePlan {
    /// Most inputs that fit the local memories with this packing (one token, smallest tile).
    pub fn max_cols(config: &ArrayConfig, format: StreamFormat) -> usize {
        let digits = format.digits();
        // `rounds * digits` words of activations and `rounds` words for each of two outputs.
        let rounds = config.lmm_words as usize / (digits + 2);
        let bytes = rounds * config.group_rows() as usize * 8;
        match format {
            StreamFormat::TwoBit => bytes / 32 * 128,
            _ => bytes * digits,
        }
    }

    /// Plans a projection; `tokens` is lowered to what fits (see [`WidePlan::tokens`]).
    pub fn new(
        config: &ArrayConfig,
        rows: usize,
        cols: usize,
        tokens: usize,
        format: StreamFormat,
    ) -> Result<Self> {
        config.check()?;
        if rows == 0 || cols == 0 || tokens == 0 {
            return Err(Error::Schedule(format!(
                "{rows} outputs of {cols} inputs for {tokens} tokens; all must be positive"
            )));
        }
        let most = Self::max_cols(config, format);
        if cols > most {
            return Err(Error::Schedule(format!(
                "{cols} inputs in one piece; local memories of {} words hold {most} at {}",
                config.lmm_words,
                format.name()
            )));
        }
        let pairs = config.group_rows() as usize / 2;
        let unit = format.row_bytes(cols) / 16;
        let rounds = unit.div_ceil(pairs);
        let steps = rounds * format.digits();
        let words = config.lmm_words as usize;
        let tokens = tokens
            .min((words - 2 * rounds) / steps)
            .clamp(1, MAX_TOKENS);
        let room = (words - tokens * steps) / rounds;
        let share = rows.div_ceil(config.ports as usize).next_multiple_of(4);
        if share > 0xff_ffff || steps > 0xffff || unit > 0xffff {
            return Err(Error::Schedule(format!(
                "{share} outputs per group, {steps} steps, {unit} beats per output; the packet \
                 fields hold 16777215, 65535, 65535"
            )));
        }
        let ranges = (0..config.ports as usize)
            .map(|g| {
                let first = (g * share).min(rows);
                (first, share.min(rows - first))
            })
            .collect();
        Ok(Self {
            config: *config,
            rows,
            cols,
            tokens,
            format,
            unit,
            steps,
            tile: Self::tile_for(config, unit, steps * tokens, room),
            ranges,
        })
    }

    /// The smallest tile whose execution, with the time to walk down the rows, hides behind the
    /// loading of the next one; else the largest that fits (up to 32).
    fn tile_for(config: &ArrayConfig, unit: usize, exec: usize, room: usize) -> usize {
        let walk = 5 * config.group_rows() as usize + 16;
        (4..=room.min(32))
            .find(|tile| tile * exec + walk <= tile * unit * 5 / 4)
            .unwrap_or(room.min(32))
            .max(1)
    }

    /// Row configurations, as ranges with one configuration each.
    fn configurations(&self) -> Vec<Packet> {
        let rows = self.config.group_rows() as usize;
        let pairs = rows / 2;
        let signed = self.config.lane_sign == LaneSign::Signed;
        let of = |row: usize| {
            let rounds = (self.unit + pairs - 1 - row / 2) / pairs;
            let last = row + 1 == rows;
            RowConfig {
                ex1: Ex1::Sma4,
                accumulate: true,
                source1: Source1::A,
                source2: Source2::B,
                ex2: Ex2::Add,
                source3: Source3::X,
                ex3: if last { Ex3::Fold } else { Ex3::Pass },
                shift: 4,
                dest: Dest::X,
                store: if last { Store::Last } else { Store::None },
                format_b: FormatB::of(self.format),
                format_a: FormatA::Fragments,
                low_unsigned: !signed,
                a_inner: 1,
                a_outer: 1,
                b_base: (self.tokens * self.steps) as u16,
                b_inner: 1,
                b_outer: rounds as i16,
                ..RowConfig::default()
            }
        };
        let mut packets: Vec<Packet> = vec![];
        for row in 0..rows {
            let config = of(row);
            match packets.last_mut() {
                Some(Packet::Configure {
                    high, row: last, ..
                }) if **last == config => {
                    *high = row as u8;
                }
                _ => packets.push(Packet::Configure {
                    low: row as u8,
                    high: row as u8,
                    row: Box::new(config),
                }),
            }
        }
        packets
    }

    /// Activation words in the order the rows need them: per address, all pairs.
    fn activations(&self, acts: &[i8]) -> Vec<u128> {
        let pairs = self.config.group_rows() as usize / 2;
        let digits = self.format.digits();
        let mut beats = Vec::with_capacity(self.tokens * self.steps * pairs);
        for token in 0..self.tokens {
            let acts = &acts[token * self.cols..(token + 1) * self.cols];
            for step in 0..self.steps {
                let (round, digit) = (step / digits, step % digits);
                for pair in 0..pairs {
                    let dealt = round * pairs + pair;
                    let mut bytes = [0u8; 16];
                    if dealt < self.unit {
                        for (i, byte) in bytes.iter_mut().enumerate() {
                            let column = self.format.column(16 * dealt + i, digit);
                            *byte = acts.get(column).map_or(0, |&a| a as u8);
                        }
                    }
                    beats.push(u128::from_le_bytes(bytes));
                }
            }
        }
        beats
    }

    /// The launch for `tokens * cols` activations, with the weights at `weight_addr`.
    /// `configure` may be left out when the rows still hold this plan's configuration.
    pub fn launch(&self, acts: &[i8], weight_addr: u64, configure: bool) -> Result<Launch> {
        if acts.len() != self.tokens * self.cols {
            return Err(Error::Schedule(format!(
                "{} activations for {} tokens of {}",
                acts.len(),
                self.tokens,
                self.cols
            )));
        }
        let pairs = self.config.group_rows() / 2;
        let beats = self.activations(acts);
        let groups = self
            .ranges
            .iter()
            .map(|&(first, count)| {
                if count == 0 {
                    return None;
                }
                let mut packets = if configure {
                    self.configurations()
                } else {
                    vec![]
                };
                let work = Work {
                    pair_low: 0,
                    pair_high: (pairs - 1) as u8,
                    digits: self.format.digits() as u8,
                    is_final: true,
                    store: Store::Last,
                    base: (self.tokens * self.steps) as u16,
                    tile: self.tile as u16,
                    steps: self.steps as u16,
                    tokens: self.tokens as u8,
                    unit: self.unit as u16,
                    total: count as u32,
                };
                packets.extend([
                    Packet::Load {
                        low: 0,
                        high: work.pair_high,
                        both: true,
                        base: 0,
                        beats: beats.clone(),
                    },
                    Packet::Tiles(work),
                ]);
                Some(GroupLaunch {
                    packets,
                    weight_addr: weight_addr + (first * self.unit * 16) as u64,
                    weight_beats: (count * self.unit) as u32,
                    results: (count * self.tokens) as u32,
                    linked: false,
                })
            })
            .collect();
        Ok(Launch { groups })
    }

    /// Results of the groups as `tokens x rows`.
    pub fn collect(&self, outputs: &[Vec<u32>]) -> Result<Vec<i32>> {
        let mut out = vec![0; self.tokens * self.rows];
        for (&(first, count), words) in self.ranges.iter().zip(outputs) {
            if words.len() != count * self.tokens {
                return Err(Error::Simulation(format!(
                    "a group stored {} words, expected {}",
                    words.len(),
                    count * self.tokens
                )));
            }
            for (index, &word) in words.iter().enumerate() {
                let (output, token) = (first + index / self.tokens, index % self.tokens);
                out[token * self.rows + output] = word as i32;
            }
        }
        Ok(out)
    }
}
