//! The published mapping on this array: rows 2 and 3 multiply, rows 5 to 7 reduce and combine,
//! the last row stores. Operands are staged window by window; the host adds the windows'
//! partial sums.

use super::isa::{Dest, Ex1, Ex3, RowConfig, Source1, Source2, Store};
use super::launch::{GroupLaunch, Launch, Machine};
use super::packet::{Packet, Work};
use super::{ArrayConfig, Error, Result};
use crate::bitnet::backend::Phases;

/// Published time in microseconds of a call at 145 MHz, by loaded 32-bit words per operand.
pub const MEASURED_US: [(u32, f64); 5] = [
    (64, 15.0),
    (1024, 32.8),
    (4096, 87.5),
    (16_384, 304.0),
    (32_768, 592.0),
];
/// Clock of the published measurement, MHz.
pub const MEASURED_MHZ: f64 = 145.0;
/// Published projection to 28 nm, MHz.
pub const PROJECTED_MHZ: f64 = 840.0;
/// Least-squares line through [`MEASURED_US`], in cycles: fixed part.
pub const FIXED_CYCLES: f64 = 2131.0;
/// Least-squares line through [`MEASURED_US`], in cycles per loaded word.
pub const CYCLES_PER_WORD: f64 = 2.556;

/// What the reducing rows do with the sums of rows 2 and 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// Both sums leave, low fragment first: two words per window.
    Unfused,
    /// `low + 16 * high` leaves: one word per window.
    Fused,
    /// The plain sum: rows 2 and 3 share one stream of products.
    Sum,
}

/// Nibble operands of rows 2 and 3: 16 int4 values per word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streams {
    /// Activation words of rows 2 and 3.
    pub activations: [Vec<u64>; 2],
    /// Weight words of rows 2 and 3.
    pub weights: [Vec<u64>; 2],
}

/// Packs 16 int4 values per word, zeros behind the end.
pub fn pack_int4(values: &[i8]) -> Vec<u64> {
    values
        .chunks(16)
        .map(|chunk| {
            chunk
                .iter()
                .enumerate()
                .fold(0, |word, (i, &v)| word | u64::from(v as u8 & 15) << (4 * i))
        })
        .collect()
}

/// Low (`-8..7`) and high fragment of an int8 value; 120 to 127 wrap to a high fragment of -8.
pub fn split(value: i8) -> (i8, i8) {
    let low = (value << 4) >> 4;
    let high = (i16::from(value) - i16::from(low)) / 16;
    (low, if high == 8 { -8 } else { high as i8 })
}

impl Streams {
    /// Two fragment streams of one dot product.
    pub fn two_fragments(weights: &[i8], acts: &[i8]) -> Self {
        let low: Vec<i8> = acts.iter().map(|&a| split(a).0).collect();
        let high: Vec<i8> = acts.iter().map(|&a| split(a).1).collect();
        let weights = pack_int4(weights);
        Self {
            activations: [pack_int4(&low), pack_int4(&high)],
            weights: [weights.clone(), weights],
        }
    }
}

fn configurations(config: &ArrayConfig, combine: Combine) -> Vec<Vec<Packet>> {
    let rows = config.group_rows();
    let half = (config.lmm_words / 2) as u16;
    let multiply = RowConfig {
        ex1: Ex1::Sma4,
        accumulate: true,
        a_inner: 1,
        b_base: half,
        b_inner: 1,
        stream_b: true,
        ..RowConfig::default()
    };
    let reduce = |source1, ex3, dest| RowConfig {
        source1,
        ex3,
        dest,
        ..RowConfig::default()
    };
    let at = |row: u32| -> RowConfig {
        match row {
            2 => RowConfig {
                dest: Dest::X,
                ..multiply
            },
            3 => RowConfig {
                dest: Dest::Y,
                ..multiply
            },
            5 => reduce(Source1::X, Ex3::Fold, Dest::X),
            6 => reduce(Source1::Y, Ex3::FoldUp, Dest::Y),
            7 => RowConfig {
                ex1: Ex1::Add,
                source2: Source2::Y,
                shift: if combine == Combine::Fused { 4 } else { 0 },
                ..reduce(
                    Source1::X,
                    if combine == Combine::Unfused {
                        Ex3::Pass
                    } else {
                        Ex3::Fold
                    },
                    Dest::X,
                )
            },
            last if last + 1 == config.rows => RowConfig {
                source1: Source1::X,
                store: Store::Last,
                store_wide: combine == Combine::Unfused,
                ..RowConfig::default()
            },
            _ => RowConfig::default(),
        }
    };
    (0..config.ports)
        .map(|group| {
            let mut packets: Vec<Packet> = vec![];
            for index in 0..rows {
                let row = at(group * rows + index);
                match packets.last_mut() {
                    Some(Packet::Configure {
                        high, row: last, ..
                    }) if **last == row => {
                        *high = index as u8;
                    }
                    _ => packets.push(Packet::Configure {
                        low: index as u8,
                        high: index as u8,
                        row: Box::new(row),
                    }),
                }
            }
            packets
        })
        .collect()
}

/// The two launches: configuration, then staging and execution of every window.
pub fn launches(config: &ArrayConfig, streams: &Streams, combine: Combine) -> Result<[Launch; 2]> {
    config.check()?;
    if config.group_rows() < 8 {
        return Err(Error::Schedule(format!(
            "the published mapping needs 8 rows in the first group, this build has {}",
            config.group_rows()
        )));
    }
    let length = streams.activations[0].len();
    let all = streams.activations.iter().chain(&streams.weights);
    if length == 0 || all.clone().any(|s| s.len() != length) {
        return Err(Error::Schedule(format!(
            "streams of {:?} words; all four must have the same, positive length",
            all.map(Vec::len).collect::<Vec<_>>()
        )));
    }
    let configure = configurations(config, combine)
        .into_iter()
        .map(|mut packets| {
            packets.push(Packet::End { wait: false });
            Some(GroupLaunch {
                packets,
                ..GroupLaunch::default()
            })
        })
        .collect();
    let window = (config.lmm_words / 2) as usize;
    let windows = length.div_ceil(window);
    let pair = |words: &[Vec<u64>; 2], range: std::ops::Range<usize>| -> Vec<u128> {
        range
            .map(|i| u128::from(words[0][i]) | u128::from(words[1][i]) << 64)
            .collect()
    };
    let mut packets = vec![];
    for index in 0..windows {
        let range = index * window..((index + 1) * window).min(length);
        let steps = range.len();
        for (base, words) in [(0, &streams.activations), (window, &streams.weights)] {
            packets.push(Packet::Load {
                low: 1,
                high: 1,
                both: false,
                base: base as u16,
                beats: pair(words, range.clone()),
            });
        }
        packets.push(Packet::Execute(Work {
            pair_low: 0,
            pair_high: 0,
            digits: 1,
            is_final: index + 1 == windows,
            store: Store::Last,
            base: 0,
            tile: 1,
            steps: steps as u16,
            tokens: 1,
            unit: 0,
            total: 1,
        }));
    }
    let words = windows * if combine == Combine::Unfused { 2 } else { 1 };
    let mut groups = vec![Some(GroupLaunch {
        packets,
        results: if config.ports == 1 { words as u32 } else { 0 },
        ..GroupLaunch::default()
    })];
    for group in 1..config.ports {
        let last = group + 1 == config.ports;
        groups.push(Some(GroupLaunch {
            packets: vec![Packet::End { wait: last }],
            results: if last { words as u32 } else { 0 },
            linked: true,
            ..GroupLaunch::default()
        }));
    }
    Ok([Launch { groups: configure }, Launch { groups }])
}

/// Runs the mapping; returns the sums over the windows (low and high, or one) and the cycles.
pub fn run(
    machine: &mut dyn Machine,
    streams: &Streams,
    combine: Combine,
) -> Result<(Vec<i32>, Phases)> {
    let [configure, execute] = launches(machine.config(), streams, combine)?;
    let mut phases = machine.run(&configure)?.phases;
    let result = machine.run(&execute)?;
    phases += result.phases;
    let words = result.outputs.last().map_or(&[][..], Vec::as_slice);
    let width = if combine == Combine::Unfused { 2 } else { 1 };
    let mut sums = vec![0i32; width];
    for window in words.chunks_exact(width) {
        for (sum, &word) in sums.iter_mut().zip(window) {
            *sum = sum.wrapping_add(word as i32);
        }
    }
    Ok((sums, phases))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_cover_int8_but_the_listed_values() {
        for value in i8::MIN..=i8::MAX {
            let (low, high) = split(value);
            let back = i32::from(low) + 16 * i32::from(high);
            let correction = if value >= 120 { 256 } else { 0 };
            assert_eq!(back + correction, i32::from(value));
            assert!((-8..=7).contains(&low) && (-8..=7).contains(&high));
        }
    }

    #[test]
    fn the_line_fits_the_published_points() {
        for (words, us) in MEASURED_US {
            let cycles = FIXED_CYCLES + CYCLES_PER_WORD * f64::from(words);
            let measured = us * MEASURED_MHZ;
            assert!((cycles - measured).abs() / measured < 0.06, "{words}");
        }
    }
}
