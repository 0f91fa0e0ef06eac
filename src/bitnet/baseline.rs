//! The four single-stream int4 approximations of int8 activations that the exact two-stream
//! path is compared with, and the error measure: `|approximate - exact|_2 / |exact|_2` over all
//! outputs.

use super::Result;
use super::cpu;
use super::quant::Activations;
use super::ternary::TernaryMatrix;

/// A single-stream quantisation of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// `step = max|a| / 7`.
    MaxAbs,
    /// The smallest power of two not below the max-abs step.
    PowerOfTwo,
    /// 16 levels from the smallest to the largest value; the zero point is corrected with the
    /// row sums of the weights.
    Affine,
    /// Of ten steps, 0.5 to 2.0 times the max-abs step, the one with the least squared error.
    Mse,
}

impl Baseline {
    /// All four, in the published order.
    pub const ALL: [Self; 4] = [Self::MaxAbs, Self::PowerOfTwo, Self::Affine, Self::Mse];
}

/// One token's int4 stream: `a ~ step * q + offset`.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Values -8 to 7.
    pub values: Vec<i8>,
    /// Step.
    pub step: f32,
    /// Added to every value after scaling.
    pub offset: f32,
}

fn symmetric(row: &[i8], step: f32) -> Stream {
    Stream {
        values: row
            .iter()
            .map(|&a| (f32::from(a) / step).round_ties_even().clamp(-8.0, 7.0) as i8)
            .collect(),
        step,
        offset: 0.0,
    }
}

fn squared_error(row: &[i8], stream: &Stream) -> f64 {
    row.iter()
        .zip(&stream.values)
        .map(|(&a, &q)| {
            let e = f64::from(a) - f64::from(stream.step * f32::from(q) + stream.offset);
            e * e
        })
        .sum()
}

/// Quantises one token's int8 values to a single int4 stream.
pub fn single_stream(row: &[i8], baseline: Baseline) -> Stream {
    let largest = row
        .iter()
        .map(|&a| i32::from(a).abs())
        .max()
        .unwrap_or(0)
        .max(1);
    let step = largest as f32 / 7.0;
    match baseline {
        Baseline::MaxAbs => symmetric(row, step),
        Baseline::PowerOfTwo => symmetric(row, step.log2().ceil().exp2()),
        Baseline::Affine => {
            let low = row.iter().copied().min().unwrap_or(0);
            let high = row.iter().copied().max().unwrap_or(0);
            let step = ((f32::from(high) - f32::from(low)) / 15.0).max(f32::MIN_POSITIVE);
            Stream {
                values: row
                    .iter()
                    .map(|&a| {
                        let level = (f32::from(a) - f32::from(low)) / step;
                        (level.round_ties_even().clamp(0.0, 15.0) - 8.0) as i8
                    })
                    .collect(),
                step,
                offset: f32::from(low) + 8.0 * step,
            }
        }
        Baseline::Mse => {
            let mut best: Option<(f64, Stream)> = None;
            for candidate in 0..10 {
                let factor = 0.5 + 1.5 * candidate as f32 / 9.0;
                let stream = symmetric(row, step * factor);
                let error = squared_error(row, &stream);
                if best.as_ref().is_none_or(|(least, _)| error < *least) {
                    best = Some((error, stream));
                }
            }
            best.map_or_else(|| symmetric(row, step), |(_, stream)| stream)
        }
    }
}

/// Outputs of token 0 through a baseline: the integer dot of the int4 stream, scaled back.
pub fn approximate(
    weights: &TernaryMatrix,
    acts: &Activations,
    baseline: Baseline,
) -> Result<Vec<f64>> {
    let stream = single_stream(acts.row(0), baseline);
    let (step, offset) = (f64::from(stream.step), f64::from(stream.offset));
    let dots = cpu::project(
        weights,
        &Activations::from_int8(1, acts.cols, stream.values)?,
    );
    let sums = cpu::project(
        weights,
        &Activations::from_int8(1, acts.cols, vec![1; acts.cols])?,
    );
    Ok(dots
        .iter()
        .zip(sums)
        .map(|(&d, s)| step * f64::from(d) + offset * f64::from(s))
        .collect())
}

/// `|approximate - exact|_2 / |exact|_2`.
pub fn normalised_error(approximate: &[f64], exact: &[i32]) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (a, &e) in approximate.iter().zip(exact) {
        difference += (a - f64::from(e)).powi(2);
        norm += f64::from(e).powi(2);
    }
    (difference / norm.max(f64::MIN_POSITIVE)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_stay_in_int4_and_reconstruct() {
        let row: Vec<i8> = (-128..=127).map(|v| v as i8).collect();
        for baseline in Baseline::ALL {
            let stream = single_stream(&row, baseline);
            assert!(stream.values.iter().all(|v| (-8..=7).contains(v)));
            let rms = (squared_error(&row, &stream) / 256.0).sqrt();
            assert!(rms < 12.0, "{baseline:?}: {rms}");
        }
        let step = single_stream(&row, Baseline::PowerOfTwo).step;
        assert_eq!(step, 32.0);
    }

    #[test]
    fn mse_is_never_worse_than_its_own_candidates() {
        let row: Vec<i8> = (0..64).map(|i| (i * i % 255 - 127) as i8).collect();
        let best = squared_error(&row, &single_stream(&row, Baseline::Mse));
        let step = row.iter().map(|&a| i32::from(a).abs()).max().unwrap() as f32 / 7.0;
        for factor in [0.5f32, 1.0, 2.0] {
            assert!(best <= squared_error(&row, &symmetric(&row, step * factor)) + 1e-6);
        }
    }

    #[test]
    fn error_measure() {
        assert_eq!(normalised_error(&[3.0, 4.0], &[3, 4]), 0.0);
        assert_eq!(normalised_error(&[3.0, 0.0], &[3, 4]), 0.8);
    }
}
