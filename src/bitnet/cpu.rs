//! The CPU reference: exact, threaded, and fast enough to decode a full-size model.
//!
//! `sum (code - 1) * q = sum code * q - sum q`; codes are unsigned, so eight-bit
//! multiply-add instructions apply. Their 16-bit lanes are widened before they can wrap: one
//! block of 128 adds at most `4 * 2 * 2 * 128 = 2048` to a lane, and eight blocks are summed
//! between widenings.

use rayon::prelude::*;

use super::Result;
use super::backend::{Backend, BackendStats, check_columns};
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

/// All dot products, `tokens x rows`.
pub fn project(weights: &TernaryMatrix, acts: &Activations) -> Vec<i32> {
    let padded = 4 * weights.row_bytes();
    let mut out = vec![0i32; acts.tokens * weights.rows()];
    for token in 0..acts.tokens {
        let mut row = acts.row(token).to_vec();
        let sum: i32 = row.iter().map(|&q| i32::from(q)).sum();
        row.resize(padded, 0);
        out[token * weights.rows()..(token + 1) * weights.rows()]
            .par_chunks_mut(64)
            .enumerate()
            .for_each(|(chunk, out)| {
                for (offset, out) in out.iter_mut().enumerate() {
                    *out = code_dot(weights.packed_row(chunk * 64 + offset), &row) - sum;
                }
            });
    }
    out
}

/// `sum code * q` of one packed row; `acts` has four values per packed byte.
fn code_dot(packed: &[u8], acts: &[i8]) -> i32 {
    assert_eq!(packed.len() * 4, acts.len());
    assert_eq!(packed.len() % 32, 0);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 is present, and the lengths asserted above cover every load.
        return unsafe { code_dot_avx2(packed, acts) };
    }
    code_dot_portable(packed, acts)
}

fn code_dot_portable(packed: &[u8], acts: &[i8]) -> i32 {
    let mut sum = 0i32;
    for (bytes, acts) in packed.chunks_exact(32).zip(acts.chunks_exact(128)) {
        for (p, &byte) in bytes.iter().enumerate() {
            for group in 0..4 {
                let code = i32::from(byte >> (6 - 2 * group) & 3);
                sum += code * i32::from(acts[32 * group + p]);
            }
        }
    }
    sum
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn code_dot_avx2(packed: &[u8], acts: &[i8]) -> i32 {
    use std::arch::x86_64::*;
    let mask = _mm256_set1_epi8(3);
    let ones = _mm256_set1_epi16(1);
    let mut total = _mm256_setzero_si256();
    for (packed, acts) in packed.chunks(8 * 32).zip(acts.chunks(8 * 128)) {
        let mut wide = _mm256_setzero_si256();
        for (bytes, acts) in packed.chunks_exact(32).zip(acts.chunks_exact(128)) {
            // SAFETY: `bytes` has 32 bytes and `acts` 128; unaligned loads are used.
            let (w, q) = unsafe {
                let at = acts.as_ptr().cast::<__m256i>();
                (
                    _mm256_loadu_si256(bytes.as_ptr().cast()),
                    [
                        _mm256_loadu_si256(at),
                        _mm256_loadu_si256(at.add(1)),
                        _mm256_loadu_si256(at.add(2)),
                        _mm256_loadu_si256(at.add(3)),
                    ],
                )
            };
            let codes = [
                _mm256_and_si256(_mm256_srli_epi16::<6>(w), mask),
                _mm256_and_si256(_mm256_srli_epi16::<4>(w), mask),
                _mm256_and_si256(_mm256_srli_epi16::<2>(w), mask),
                _mm256_and_si256(w, mask),
            ];
            for (c, q) in codes.into_iter().zip(q) {
                wide = _mm256_add_epi16(wide, _mm256_maddubs_epi16(c, q));
            }
        }
        total = _mm256_add_epi32(total, _mm256_madd_epi16(wide, ones));
    }
    let mut lanes = [0i32; 8];
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), total) };
    lanes.iter().sum()
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
            assert_eq!(project(&weights, &acts), expected, "{rows} x {cols}");
            let mut padded = acts.row(0).to_vec();
            padded.resize(4 * weights.row_bytes(), 0);
            let sum: i32 = acts.row(0).iter().map(|&q| i32::from(q)).sum();
            assert_eq!(
                code_dot_portable(weights.packed_row(0), &padded) - sum,
                expected[0]
            );
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
