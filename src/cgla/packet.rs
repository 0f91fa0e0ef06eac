//! The stream of beats that a group reads from memory: header beats, each followed by the beats
//! it announces. Its text form is one line per packet.

use std::fmt;

use super::error::shortened;
use super::isa::field::Field;
use super::isa::{RowConfig, Store, number};
use super::{Error, Result};

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// Two beats: configuration word and constant for a range of rows.
    Configure = 1,
    /// Operand beats dealt over a range of row pairs.
    Load = 2,
    /// Weight beats dealt over row pairs, tile by tile, each tile executed.
    Tiles = 3,
    /// Execution of what was loaded.
    Execute = 4,
    /// End of the stream.
    End = 5,
}

/// Kind of packet.
pub const OPCODE: Field = (0, 4);
/// First row pair (or row, for a configuration).
pub const PAIR_LOW: Field = (8, 8);
/// Last row pair (or row).
pub const PAIR_HIGH: Field = (16, 8);
/// 3: load both halves; otherwise the half being filled.
pub const HALVES: Field = (24, 2);
/// Steps per word of port B.
pub const DIGITS: Field = (24, 4);
/// The stream ends with this packet's last step; on an end packet: wait for a final result.
pub const FINAL: Field = (28, 1);
/// When results are stored.
pub const STORE_MODE: Field = (29, 2);
/// First local memory word.
pub const BASE: Field = (32, 16);
/// Outputs per tile.
pub const TILE: Field = (48, 16);
/// Steps of a dot product.
pub const STEPS: Field = (64, 16);
/// Beats of a load.
pub const BEATS: Field = (64, 24);
/// Dot products per output (tokens).
pub const TOKENS: Field = (80, 8);
/// Beats per output; dealing starts at the first pair again behind them.
pub const UNIT: Field = (88, 16);
/// Outputs altogether.
pub const TOTAL: Field = (104, 24);

/// Work on tiles: what [`Opcode::Tiles`] and [`Opcode::Execute`] share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// First row pair that weights are dealt to.
    pub pair_low: u8,
    /// Last row pair.
    pub pair_high: u8,
    /// Steps per word of port B.
    pub digits: u8,
    /// The packet ends the stream, and the launch when its last result is written. Required of
    /// [`Packet::Tiles`]: its weights come behind the whole program segment.
    pub is_final: bool,
    /// When results are stored (must match the storing row).
    pub store: Store,
    /// First local memory word of the weights.
    pub base: u16,
    /// Outputs per tile.
    pub tile: u16,
    /// Steps of a dot product, a multiple of `digits`.
    pub steps: u16,
    /// Dot products per output.
    pub tokens: u8,
    /// Beats per output (0 for an execution without dealing).
    pub unit: u16,
    /// Outputs.
    pub total: u32,
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// Configures rows `low..=high` of the group.
    Configure {
        /// First row.
        low: u8,
        /// Last row.
        high: u8,
        /// Configuration.
        row: Box<RowConfig>,
    },
    /// Deals `beats` over pairs `low..=high`: the low half of a beat goes to the pair's even row.
    Load {
        /// First pair.
        low: u8,
        /// Last pair.
        high: u8,
        /// Into both halves (waits until the rows are idle) or into the half being filled.
        both: bool,
        /// First local memory word.
        base: u16,
        /// Data.
        beats: Vec<u128>,
    },
    /// Deals and executes weights of the weight segment.
    Tiles(Work),
    /// Executes the half being filled.
    Execute(Work),
    /// Ends the stream without work of its own; with `wait` the group is busy until a final result
    /// that comes down the chain is written.
    End {
        /// Whether a final result is awaited.
        wait: bool,
    },
}

fn put(word: &mut u128, (low, width): Field, value: u128) -> Result<()> {
    if value >> width != 0 {
        return Err(Error::Program(format!(
            "{value} does not fit the packet field of {width} bits"
        )));
    }
    *word |= value << low;
    Ok(())
}

impl Work {
    fn header(&self, opcode: Opcode) -> Result<u128> {
        let mut word = 0;
        for (field, value) in [
            (OPCODE, opcode as u128),
            (PAIR_LOW, self.pair_low.into()),
            (PAIR_HIGH, self.pair_high.into()),
            (DIGITS, self.digits.into()),
            (FINAL, self.is_final.into()),
            (STORE_MODE, self.store as u128),
            (BASE, self.base.into()),
            (TILE, self.tile.into()),
            (STEPS, self.steps.into()),
            (TOKENS, self.tokens.into()),
            (UNIT, self.unit.into()),
            (TOTAL, self.total.into()),
        ] {
            put(&mut word, field, value)?;
        }
        Ok(word)
    }
}

/// Beats of a program segment.
pub fn encode(packets: &[Packet]) -> Result<Vec<u128>> {
    let mut out = Vec::new();
    for packet in packets {
        match packet {
            Packet::Configure { low, high, row } => {
                let mut word = 0;
                put(&mut word, OPCODE, Opcode::Configure as u128)?;
                put(&mut word, PAIR_LOW, (*low).into())?;
                put(&mut word, PAIR_HIGH, (*high).into())?;
                out.push(word);
                out.extend(row.encode());
            }
            Packet::Load {
                low,
                high,
                both,
                base,
                beats,
            } => {
                let mut word = 0;
                put(&mut word, OPCODE, Opcode::Load as u128)?;
                put(&mut word, PAIR_LOW, (*low).into())?;
                put(&mut word, PAIR_HIGH, (*high).into())?;
                put(&mut word, HALVES, if *both { 3 } else { 0 })?;
                put(&mut word, BASE, (*base).into())?;
                put(&mut word, BEATS, beats.len() as u128)?;
                out.push(word);
                out.extend(beats);
            }
            Packet::Tiles(work) => out.push(work.header(Opcode::Tiles)?),
            Packet::Execute(work) => out.push(work.header(Opcode::Execute)?),
            Packet::End { wait } => {
                let mut word = 0;
                put(&mut word, OPCODE, Opcode::End as u128)?;
                put(&mut word, FINAL, (*wait).into())?;
                out.push(word);
            }
        }
    }
    Ok(out)
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configure { low, high, row } => write!(f, "row {low}..{high} {row}"),
            Self::Load {
                low,
                high,
                both,
                base,
                beats,
            } => {
                let into = if *both { "both" } else { "fill" };
                write!(f, "load pairs={low}..{high} into={into} base={base} data=")?;
                for (index, beat) in beats.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{beat:x}")?;
                }
                Ok(())
            }
            Self::Tiles(work) => write!(f, "tiles {work}"),
            Self::Execute(work) => write!(f, "execute {work}"),
            Self::End { wait } => write!(f, "end{}", if *wait { " wait" } else { "" }),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pairs={}..{} base={} outputs={} tile={} tokens={} steps={} digits={} unit={} store={}",
            self.pair_low,
            self.pair_high,
            self.base,
            self.total,
            self.tile,
            self.tokens,
            self.steps,
            self.digits,
            self.unit,
            self.store.text()
        )?;
        if self.is_final {
            write!(f, " final")?;
        }
        Ok(())
    }
}

fn range(value: &str) -> Result<(u8, u8)> {
    let bad = || Error::Program(format!("range `{value}`; accepted: first..last"));
    let (low, high) = value.split_once("..").ok_or_else(bad)?;
    let low = number("range", low, 0, 255)?;
    let high = number("range", high, low, 255)?;
    Ok((low as u8, high as u8))
}

impl Packet {
    /// Reads one line of the text form.
    pub fn parse(line: &str) -> Result<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "row" => {
                let (rows, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let (low, high) = range(rows)?;
                Ok(Self::Configure {
                    low,
                    high,
                    row: Box::new(RowConfig::parse(rest)?),
                })
            }
            "load" => parse_load(rest),
            "tiles" => Ok(Self::Tiles(parse_work(rest)?)),
            "execute" => Ok(Self::Execute(parse_work(rest)?)),
            "end" if rest.is_empty() || rest == "wait" => Ok(Self::End {
                wait: rest == "wait",
            }),
            _ => Err(Error::Program(format!(
                "`{}`; accepted: row, load, tiles, execute, end",
                shortened(&line.escape_debug().to_string())
            ))),
        }
    }
}

fn parse_load(text: &str) -> Result<Packet> {
    let (mut low, mut high, mut both, mut base, mut beats) = (0, 0, true, 0, vec![]);
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some(("pairs", value)) => (low, high) = range(value)?,
            Some(("into", "both")) => both = true,
            Some(("into", "fill")) => both = false,
            Some(("base", value)) => base = number("base", value, 0, 65_535)? as u16,
            Some(("data", value)) => {
                for item in value.split(',') {
                    beats.push(u128::from_str_radix(item, 16).map_err(|_| {
                        Error::Program(format!(
                            "data `{}`; accepted: up to 32 hex digits",
                            shortened(item)
                        ))
                    })?);
                }
            }
            _ => {
                return Err(Error::Program(format!(
                    "`{}`; accepted: pairs=, into=both|fill, base=, data=",
                    shortened(word)
                )));
            }
        }
    }
    if beats.is_empty() {
        return Err(Error::Program("load without data".into()));
    }
    Ok(Packet::Load {
        low,
        high,
        both,
        base,
        beats,
    })
}

fn parse_work(text: &str) -> Result<Work> {
    let mut work = Work {
        pair_low: 0,
        pair_high: 0,
        digits: 1,
        is_final: false,
        store: Store::Last,
        base: 0,
        tile: 1,
        steps: 1,
        tokens: 1,
        unit: 0,
        total: 1,
    };
    for word in text.split_whitespace() {
        match word.split_once('=') {
            Some(("pairs", v)) => (work.pair_low, work.pair_high) = range(v)?,
            Some(("base", v)) => work.base = number("base", v, 0, 65_535)? as u16,
            Some(("outputs", v)) => work.total = number("outputs", v, 1, 0xff_ffff)? as u32,
            Some(("tile", v)) => work.tile = number("tile", v, 1, 65_535)? as u16,
            Some(("tokens", v)) => work.tokens = number("tokens", v, 1, 255)? as u8,
            Some(("steps", v)) => work.steps = number("steps", v, 1, 65_535)? as u16,
            Some(("digits", v)) => work.digits = number("digits", v, 1, 15)? as u8,
            Some(("unit", v)) => work.unit = number("unit", v, 0, 65_535)? as u16,
            Some(("store", v)) => {
                work.store = Store::ALL
                    .iter()
                    .copied()
                    .find(|s| s.text() == v)
                    .ok_or_else(|| {
                        Error::Program(format!(
                            "store={}; accepted: none, last, every",
                            shortened(v)
                        ))
                    })?;
            }
            None if word == "final" => work.is_final = true,
            _ => {
                return Err(Error::Program(format!(
                    "`{word}`; accepted: pairs, base, outputs, tile, tokens, steps, digits, unit, \
                     store, final"
                )));
            }
        }
    }
    Ok(work)
}
