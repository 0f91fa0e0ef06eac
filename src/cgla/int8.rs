//! int8 x int8 on the array: four fragment products per weight.
//!
//! A weight row becomes two int4 rows, `w = low + 16 * high`, which stream as nibbles; each is
//! multiplied with both fragments of the activations in one pass. Weights from 120 to 127 have
//! a high fragment of 8, which int4 cannot hold; it is sent as -8 and corrected by `256 * a`.

use super::LaneSign;
use super::Result;
use super::launch::Machine;
use super::paper::split;
use super::schedule::WidePlan;
use crate::bitnet::backend::Phases;
use crate::bitnet::quant::Activations;
use crate::bitnet::ternary::StreamFormat;

/// `tokens x rows` dot products of int8 `weights` (`rows x cols`) with `acts`, and the cycles.
pub fn project(
    machine: &mut dyn Machine,
    weights: &[i8],
    rows: usize,
    acts: &Activations,
) -> Result<(Vec<i32>, Phases)> {
    let cols = acts.cols;
    if weights.len() != rows * cols {
        return Err(super::Error::Schedule(format!(
            "{} weights given for {rows} x {cols}",
            weights.len()
        )));
    }
    let format = StreamFormat::Nibbles;
    let mut fragments: Vec<Vec<i8>> = Vec::with_capacity(2 * rows);
    for row in weights.chunks_exact(cols) {
        fragments.push(row.iter().map(|&w| split(w).0).collect());
        fragments.push(row.iter().map(|&w| split(w).1).collect());
    }
    let mut bytes = vec![];
    for row in &fragments {
        format.pack_row(row, &mut bytes);
    }
    let config = *machine.config();
    let address = machine.place(&bytes)?;
    let signed = config.lane_sign == LaneSign::Signed;
    let mut out = Vec::with_capacity(acts.tokens * rows);
    let mut phases = Phases::default();
    let mut token = 0;
    while token < acts.tokens {
        let plan = WidePlan::new(&config, 2 * rows, cols, acts.tokens - token, format)?;
        let values = &acts.values[token * cols..(token + plan.tokens) * cols];
        let result = machine.run(&plan.launch(values, address, true)?)?;
        phases += result.phases;
        let parts = plan.collect(&result.outputs)?;
        for (acts, parts) in values.chunks_exact(cols).zip(parts.chunks_exact(2 * rows)) {
            for row in 0..rows {
                let mut sums = [parts[2 * row], parts[2 * row + 1]];
                if signed {
                    for (sum, weights) in sums.iter_mut().zip(&fragments[2 * row..]) {
                        *sum += high_correction(acts, weights);
                    }
                }
                let weights = &weights[row * cols..(row + 1) * cols];
                out.push(sums[0] + 16 * sums[1] + high_correction(weights, acts));
            }
        }
        token += plan.tokens;
    }
    Ok((out, phases))
}

/// `256 * sum(other)` over the elements from 120 to 127, whose high fragment wrapped.
fn high_correction(fragmented: &[i8], other: &[i8]) -> i32 {
    let sum: i32 = fragmented
        .iter()
        .zip(other)
        .filter(|&(&f, _)| f >= 120)
        .map(|(_, &o)| i32::from(o))
        .sum();
    256 * sum
}
