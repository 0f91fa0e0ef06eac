//! The CPU reference: exact, threaded, and fast enough to decode a full-size model.

use rayon::prelude::*;

use super::Result;
use super::backend::{Backend, BackendStats, check_columns};
use super::kernels::{PreparedRow, TernaryKernel};
use super::quant::Activations;
use super::ternary::TernaryMatrix;

/// Exact dot products on the CPU.
#[derive(Debug, Default)]
pub struct CpuReference {
    stats: BackendStats,
}

impl CpuReference {
    /// A backend with zeroed counters.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Backend for CpuReference {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn project(&mut self, weights: &TernaryMatrix, acts: &Activations) -> Result<Vec<i32>> {
        check_columns(weights, acts)?;
        self.stats.projections += 1;
        self.stats.macs += (weights.rows() * weights.cols() * acts.tokens) as u64;
        Ok(project(weights, acts))
    }

    fn stats(&self) -> BackendStats {
        self.stats
    }
}

/// Rows that a thread takes at once.
const CHUNK: usize = 64;

/// All dot products, `tokens x rows`.
pub fn project(weights: &TernaryMatrix, acts: &Activations) -> Vec<i32> {
    project_with(TernaryKernel::best(), weights, acts)
}

/// [`project`] by one kernel.
fn project_with(kernel: TernaryKernel, weights: &TernaryMatrix, acts: &Activations) -> Vec<i32> {
    let mut out = vec![0i32; acts.tokens * weights.rows()];
    for token in 0..acts.tokens {
        let row = PreparedRow::new(kernel, acts.row(token));
        out[token * weights.rows()..(token + 1) * weights.rows()]
            .par_chunks_mut(CHUNK)
            .enumerate()
            .for_each(|(chunk, out)| {
                for (offset, out) in out.iter_mut().enumerate() {
                    *out = row.dot(weights.packed_row(chunk * CHUNK + offset));
                }
            });
    }
    out
}

/// The definition, element by element: the oracle of the tests.
pub fn project_by_definition(weights: &TernaryMatrix, acts: &Activations) -> Vec<i32> {
    let rows: Vec<Vec<u8>> = (0..weights.rows()).map(|n| weights.codes(n)).collect();
    (0..acts.tokens)
        .flat_map(|token| {
            let row = acts.row(token);
            rows.iter().map(move |codes| {
                codes
                    .iter()
                    .zip(row)
                    .map(|(&c, &q)| (i32::from(c) - 1) * i32::from(q))
                    .sum()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn fast_paths_equal_the_definition() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(5);
        for (rows, cols, tokens) in [(1, 1, 1), (65, 129, 3), (7, 2560, 2), (3, 6912, 1)] {
            let trits: Vec<i8> = (0..rows * cols).map(|_| rng.random_range(-1..=1)).collect();
            let weights = TernaryMatrix::from_trits(rows, cols, &trits, 1.0).unwrap();
            let values = (0..tokens * cols).map(|_| rng.random()).collect();
            let acts = Activations::from_int8(tokens, cols, values).unwrap();
            let expected = project_by_definition(&weights, &acts);
            for kernel in TernaryKernel::available() {
                let got = project_with(kernel, &weights, &acts);
                assert_eq!(got, expected, "{rows} x {cols} by {}", kernel.name());
            }
        }
    }

    /// Sixteen-bit accumulators wrap here; exact ones do not.
    #[test]
    fn extreme_rows_are_exact() {
        let cols = 6912;
        for (trit, value, expected) in [
            (1i8, 127i8, 877_824),
            (1, -128, -884_736),
            (-1, -128, 884_736),
            (-1, 127, -877_824),
        ] {
            let weights = TernaryMatrix::from_trits(1, cols, &vec![trit; cols], 1.0).unwrap();
            let acts = Activations::from_int8(1, cols, vec![value; cols]).unwrap();
            assert_eq!(project(&weights, &acts), [expected]);
        }
    }
}
