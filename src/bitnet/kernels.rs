//! Inner products of the CPU reference: a portable definition of each, and the same in vectors.
//!
//! Which one runs is found out at run time. The integer kernels are exact, so they agree by
//! arithmetic; the floating-point one adds in one fixed order, so it agrees bit by bit.

/// How ternary rows are multiplied on this processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TernaryKernel {
    /// Element by element.
    Portable,
    /// 32 packed bytes at a time in 16-bit lanes, widened before they can wrap.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 64 packed bytes at a time, summed in 32-bit lanes by one instruction.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl TernaryKernel {
    /// Every kernel that this processor can run, the fastest last.
    pub fn available() -> Vec<Self> {
        let mut kernels = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                kernels.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni")
            {
                kernels.push(Self::Avx512Vnni);
            }
        }
        kernels
    }

    /// The fastest of them.
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self::Portable)
    }

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => "AVX-512 VNNI",
        }
    }
}

/// Columns per block of the packed order: byte `p` of 32 holds columns `p, p+32, p+64, p+96`.
const BLOCK: usize = 128;

/// A token's activations in the order that a kernel reads them.
#[derive(Debug)]
pub struct PreparedRow {
    kernel: TernaryKernel,
    values: Vec<i8>,
    sum: i32,
    blocks: usize,
}

impl PreparedRow {
    /// Pads `row` with zeros to whole blocks and orders it for `kernel`.
    pub fn new(kernel: TernaryKernel, row: &[i8]) -> Self {
        let blocks = row.len().div_ceil(BLOCK);
        let mut values = row.to_vec();
        values.resize(blocks * BLOCK, 0);
        #[cfg(target_arch = "x86_64")]
        if kernel == TernaryKernel::Avx512Vnni {
            // The four groups of two blocks side by side: 64 values meet 64 packed bytes.
            values.resize(blocks.next_multiple_of(2) * BLOCK, 0);
            values = values
                .chunks_exact(2 * BLOCK)
                .flat_map(|pair| {
                    (0..4).flat_map(move |g| {
                        let at = 32 * g;
                        pair[at..at + 32]
                            .iter()
                            .chain(&pair[BLOCK + at..BLOCK + at + 32])
                            .copied()
                    })
                })
                .collect();
        }
        Self {
            kernel,
            values,
            sum: row.iter().map(|&q| i32::from(q)).sum(),
            blocks,
        }
    }

    /// `sum (code - 1) * q` with a packed row of as many blocks.
    pub fn dot(&self, packed: &[u8]) -> i32 {
        assert_eq!(packed.len(), 32 * self.blocks);
        let codes = match self.kernel {
            TernaryKernel::Portable => code_dot(packed, &self.values),
            // SAFETY: the kernel is only chosen where the processor has it, and the lengths
            // asserted above and made in `new` cover every load.
            #[cfg(target_arch = "x86_64")]
            TernaryKernel::Avx2 => unsafe { x86::code_dot_avx2(packed, &self.values) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            TernaryKernel::Avx512Vnni => unsafe { x86::code_dot_vnni(packed, &self.values) },
        };
        codes - self.sum
    }
}

/// `sum code * q` of one packed row; `acts` has four values per packed byte.
fn code_dot(packed: &[u8], acts: &[i8]) -> i32 {
    let mut sum = 0i32;
    for (bytes, acts) in packed.chunks_exact(32).zip(acts.chunks_exact(BLOCK)) {
        for (p, &byte) in bytes.iter().enumerate() {
            for group in 0..4 {
                let code = i32::from(byte >> (6 - 2 * group) & 3);
                sum += code * i32::from(acts[32 * group + p]);
            }
        }
    }
    sum
}

/// Dot product in sixteen interleaved partial sums, products rounded before they are added.
pub fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let tail: f32 = a_chunks
        .remainder()
        .iter()
        .zip(b_chunks.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + tail
}

/// [`dot_f32`] of `a` and little-endian half-precision numbers.
pub fn dot_f16(a: &[f32], raw: &[u8]) -> f32 {
    assert_eq!(raw.len(), 2 * a.len());
    #[cfg(target_arch = "x86_64")]
    if a.len().is_multiple_of(16)
        && is_x86_feature_detected!("avx")
        && is_x86_feature_detected!("f16c")
    {
        // SAFETY: the processor has both, and the lengths asserted above cover every load.
        return unsafe { x86::dot_f16_f16c(a, raw) };
    }
    let b: Vec<f32> = raw
        .chunks_exact(2)
        .map(|v| half::f16::from_le_bytes([v[0], v[1]]).to_f32())
        .collect();
    dot_f32(a, &b)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// One block of 128 adds at most `4 * 2 * 2 * 128 = 2048` to a 16-bit lane; eight blocks are
    /// summed between widenings.
    #[target_feature(enable = "avx2")]
    pub unsafe fn code_dot_avx2(packed: &[u8], acts: &[i8]) -> i32 {
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

    /// `acts` holds, per 64 packed bytes, the 64 values of each of the four groups; behind an odd
    /// number of blocks the second half is zero.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub unsafe fn code_dot_vnni(packed: &[u8], acts: &[i8]) -> i32 {
        let mask = _mm512_set1_epi8(3);
        let mut sums = [_mm512_setzero_si512(); 4];
        for (bytes, acts) in packed.chunks(64).zip(acts.chunks_exact(256)) {
            let present = u64::MAX >> (64 - bytes.len());
            // SAFETY: only the bytes that are there are read; `acts` has 256.
            let (w, q) = unsafe {
                let at = acts.as_ptr().cast::<__m512i>();
                (
                    _mm512_maskz_loadu_epi8(present, bytes.as_ptr().cast()),
                    [
                        _mm512_loadu_si512(at),
                        _mm512_loadu_si512(at.add(1)),
                        _mm512_loadu_si512(at.add(2)),
                        _mm512_loadu_si512(at.add(3)),
                    ],
                )
            };
            let codes = [
                _mm512_and_si512(_mm512_srli_epi16::<6>(w), mask),
                _mm512_and_si512(_mm512_srli_epi16::<4>(w), mask),
                _mm512_and_si512(_mm512_srli_epi16::<2>(w), mask),
                _mm512_and_si512(w, mask),
            ];
            for ((sum, c), q) in sums.iter_mut().zip(codes).zip(q) {
                *sum = _mm512_dpbusd_epi32(*sum, c, q);
            }
        }
        let low = _mm512_add_epi32(sums[0], sums[1]);
        let high = _mm512_add_epi32(sums[2], sums[3]);
        _mm512_reduce_add_epi32(_mm512_add_epi32(low, high))
    }

    /// The order of [`super::dot_f32`]: lane `i` of sixteen sums elements `i, i + 16, ...`, and
    /// the lanes are added one after the other.
    #[target_feature(enable = "avx,f16c")]
    pub unsafe fn dot_f16_f16c(a: &[f32], raw: &[u8]) -> f32 {
        let mut sums = [_mm256_setzero_ps(); 2];
        for (a, raw) in a.chunks_exact(16).zip(raw.chunks_exact(32)) {
            for (part, sum) in sums.iter_mut().enumerate() {
                // SAFETY: `a` has 16 numbers and `raw` 32 bytes.
                let (x, y) = unsafe {
                    (
                        _mm256_loadu_ps(a.as_ptr().add(8 * part)),
                        _mm256_cvtph_ps(_mm_loadu_si128(raw.as_ptr().add(16 * part).cast())),
                    )
                };
                *sum = _mm256_add_ps(*sum, _mm256_mul_ps(x, y));
            }
        }
        let mut lanes = [0f32; 16];
        // SAFETY: the array has 64 bytes.
        unsafe {
            _mm256_storeu_ps(lanes.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(lanes.as_mut_ptr().add(8), sums[1]);
        }
        lanes.iter().sum::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn every_kernel_gives_the_exact_sum() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(3);
        for cols in [1, 100, 128, 129, 256, 300, 384, 2560, 6912] {
            let blocks = usize::div_ceil(cols, BLOCK);
            // Code 3 does not occur in a matrix, but the arithmetic must not depend on that.
            let packed: Vec<u8> = (0..32 * blocks).map(|_| rng.random()).collect();
            for extreme in [None, Some(127i8), Some(-128)] {
                let row: Vec<i8> = (0..cols)
                    .map(|_| extreme.unwrap_or_else(|| rng.random()))
                    .collect();
                let expected: i32 = row
                    .iter()
                    .enumerate()
                    .map(|(c, &q)| {
                        let byte = packed[c / BLOCK * 32 + c % 32];
                        let code = byte >> (6 - 2 * (c % BLOCK / 32)) & 3;
                        (i32::from(code) - 1) * i32::from(q)
                    })
                    .sum();
                for kernel in TernaryKernel::available() {
                    let got = PreparedRow::new(kernel, &row).dot(&packed);
                    assert_eq!(got, expected, "{} on {cols} columns", kernel.name());
                }
            }
        }
    }

    #[test]
    fn half_precision_rows_agree_bit_by_bit() {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(4);
        for length in [1, 15, 16, 48, 2560] {
            let a: Vec<f32> = (0..length).map(|_| rng.random::<f32>() - 0.5).collect();
            let b: Vec<half::f16> = (0..length)
                .map(|_| half::f16::from_f32(rng.random::<f32>() * 8.0 - 4.0))
                .collect();
            let wide: Vec<f32> = b.iter().map(|v| v.to_f32()).collect();
            let raw: Vec<u8> = b.iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(dot_f16(&a, &raw).to_bits(), dot_f32(&a, &wide).to_bits());
        }
    }
}
