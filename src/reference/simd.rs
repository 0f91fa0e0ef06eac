//! Instruction sets, chosen at run time.
//!
//! Code is written once, as inlined functions, and compiled once per [`Level`] by the
//! [`leveled!`] macro; the results of all levels are the same on every bit wherever
//! `docs/arithmetic.md` defines them.

/// Instruction set that the kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What every processor of the target has.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// The best level of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                return Level::Avx512;
            }
            if avx2 {
                return Level::Avx2;
            }
        }
        Level::Portable
    }

    /// Every level that this processor can run, best first.
    pub fn available() -> Vec<Level> {
        let all = [Level::Avx512, Level::Avx2, Level::Portable];
        let best = all.iter().position(|&l| l == Level::detect()).unwrap_or(2);
        all[best..].to_vec()
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

/// Defines `fn name(level, args)` that runs `body(args)` compiled for the level's instruction set.
///
/// `body` must be `#[inline(always)]`.
macro_rules! leveled {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(level: $crate::reference::simd::Level, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
                #[target_feature(enable = "avx2,fma,bmi2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
                match level {
                    // SAFETY: `Level::detect` found the instructions before making this level.
                    $crate::reference::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::reference::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::reference::simd::Level::Portable => {}
                }
            }
            let _ = level;
            $body($($arg),*)
        }
    };
}
pub(crate) use leveled;

/// A vector of the matrix kernels' element type.
///
/// # Safety
/// Functions may be called only where the instruction set of the implementing type is enabled,
/// with pointers to `LANES` (or, where given, `n`) valid elements.
pub(crate) trait Vector: Copy {
    /// Element of the packed operands.
    type Scalar: Scalar;
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn load(p: *const Self::Scalar) -> Self;
    unsafe fn splat(p: *const Self::Scalar) -> Self;
    /// `self + a * b`; with grid integers exact in any form.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    /// Writes the first `n` elements times `scale` as FP32 under the subnormal rule.
    unsafe fn store(self, scale: f64, p: *mut f32, n: usize);
}

/// Element of packed operands: f64 for grid integers, f32 for plain FP32.
pub(crate) trait Scalar: Copy + Default + Send + 'static {
    fn of(x: f32) -> Self;
    /// `x * scale` as FP32 under the subnormal rule.
    fn finish(self, scale: f64) -> f32;
}

impl Scalar for f64 {
    #[inline(always)]
    fn of(x: f32) -> f64 {
        f64::from(x)
    }
    #[inline(always)]
    fn finish(self, scale: f64) -> f32 {
        crate::num::fp32::ftz((self * scale) as f32)
    }
}

impl Scalar for f32 {
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn finish(self, _scale: f64) -> f32 {
        crate::num::fp32::ftz(self)
    }
}

/// `L` elements handled by plain loops.
#[derive(Clone, Copy)]
pub(crate) struct Plain<S, const L: usize>([S; L]);

impl<S, const L: usize> Vector for Plain<S, L>
where
    S: Scalar + std::ops::Mul<Output = S> + std::ops::Add<Output = S>,
{
    type Scalar = S;
    const LANES: usize = L;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Plain([S::default(); L])
    }
    #[inline(always)]
    unsafe fn load(p: *const S) -> Self {
        // SAFETY: the caller gives `L` valid elements.
        Plain(unsafe { p.cast::<[S; L]>().read() })
    }
    #[inline(always)]
    unsafe fn splat(p: *const S) -> Self {
        // SAFETY: the caller gives a valid element.
        Plain([unsafe { *p }; L])
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] + a.0[i] * b.0[i]))
    }
    #[inline(always)]
    unsafe fn store(self, scale: f64, p: *mut f32, n: usize) {
        for (i, x) in self.0.into_iter().enumerate().take(n) {
            // SAFETY: the caller gives `n` valid elements.
            unsafe { *p.add(i) = x.finish(scale) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86 {
    //! AVX-512 and AVX2 vectors.
    use super::Vector;
    use std::arch::x86_64::*;

    /// FP32 subnormals of 16 lanes become zero of their sign.
    #[inline(always)]
    pub unsafe fn ftz512(x: __m512) -> __m512 {
        // SAFETY: register operations; the caller enabled AVX-512.
        unsafe {
            let bits = _mm512_castps_si512(x);
            let normal = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x7f80_0000));
            let sign = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MIN));
            _mm512_castsi512_ps(_mm512_mask_mov_epi32(sign, normal, bits))
        }
    }

    /// FP32 subnormals of 8 lanes become zero of their sign.
    #[inline(always)]
    pub unsafe fn ftz256(x: __m256) -> __m256 {
        // SAFETY: register operations; the caller enabled AVX2.
        unsafe {
            let bits = _mm256_castps_si256(x);
            let exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f80_0000));
            let tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
            let keep = _mm256_or_si256(
                _mm256_xor_si256(tiny, _mm256_set1_epi32(-1)),
                _mm256_set1_epi32(i32::MIN),
            );
            _mm256_castsi256_ps(_mm256_and_si256(bits, keep))
        }
    }

    impl Vector for __m512d {
        type Scalar = f64;
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { _mm512_setzero_pd() }
        }
        #[inline(always)]
        unsafe fn load(p: *const f64) -> Self {
            unsafe { _mm512_loadu_pd(p) }
        }
        #[inline(always)]
        unsafe fn splat(p: *const f64) -> Self {
            unsafe { _mm512_set1_pd(*p) }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { _mm512_fmadd_pd(a, b, self) }
        }
        #[inline(always)]
        unsafe fn store(self, scale: f64, p: *mut f32, n: usize) {
            unsafe {
                let x = ftz256(_mm512_cvtpd_ps(_mm512_mul_pd(self, _mm512_set1_pd(scale))));
                if n >= 8 {
                    _mm256_storeu_ps(p, x);
                } else {
                    _mm256_mask_storeu_ps(p, (1u8 << n) - 1, x);
                }
            }
        }
    }

    impl Vector for __m512 {
        type Scalar = f32;
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { _mm512_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn splat(p: *const f32) -> Self {
            unsafe { _mm512_set1_ps(*p) }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { _mm512_fmadd_ps(a, b, self) }
        }
        #[inline(always)]
        unsafe fn store(self, _scale: f64, p: *mut f32, n: usize) {
            unsafe {
                let x = ftz512(self);
                if n >= 16 {
                    _mm512_storeu_ps(p, x);
                } else {
                    _mm512_mask_storeu_ps(p, (1u16 << n) - 1, x);
                }
            }
        }
    }

    impl Vector for __m256d {
        type Scalar = f64;
        const LANES: usize = 4;
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { _mm256_setzero_pd() }
        }
        #[inline(always)]
        unsafe fn load(p: *const f64) -> Self {
            unsafe { _mm256_loadu_pd(p) }
        }
        #[inline(always)]
        unsafe fn splat(p: *const f64) -> Self {
            unsafe { _mm256_broadcast_sd(&*p) }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { _mm256_fmadd_pd(a, b, self) }
        }
        #[inline(always)]
        unsafe fn store(self, scale: f64, p: *mut f32, n: usize) {
            unsafe {
                let x = _mm256_cvtpd_ps(_mm256_mul_pd(self, _mm256_set1_pd(scale)));
                let x = _mm256_castps256_ps128(ftz256(_mm256_castps128_ps256(x)));
                if n >= 4 {
                    _mm_storeu_ps(p, x);
                } else {
                    let mut four = [0f32; 4];
                    _mm_storeu_ps(four.as_mut_ptr(), x);
                    std::ptr::copy_nonoverlapping(four.as_ptr(), p, n);
                }
            }
        }
    }

    impl Vector for __m256 {
        type Scalar = f32;
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            unsafe { _mm256_loadu_ps(p) }
        }
        #[inline(always)]
        unsafe fn splat(p: *const f32) -> Self {
            unsafe { _mm256_broadcast_ss(&*p) }
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            unsafe { _mm256_fmadd_ps(a, b, self) }
        }
        #[inline(always)]
        unsafe fn store(self, _scale: f64, p: *mut f32, n: usize) {
            unsafe {
                let x = ftz256(self);
                if n >= 8 {
                    _mm256_storeu_ps(p, x);
                } else {
                    let mut eight = [0f32; 8];
                    _mm256_storeu_ps(eight.as_mut_ptr(), x);
                    std::ptr::copy_nonoverlapping(eight.as_ptr(), p, n);
                }
            }
        }
    }
}
