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
    /// AVX-512 with VNNI: grid products in 16-bit integers.
    Vnni,
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
                return match is_x86_feature_detected!("avx512vnni") {
                    true => Level::Vnni,
                    false => Level::Avx512,
                };
            }
            if avx2 {
                return Level::Avx2;
            }
        }
        Level::Portable
    }

    /// Every level that this processor can run, best first.
    pub fn available() -> Vec<Level> {
        let all = [Level::Vnni, Level::Avx512, Level::Avx2, Level::Portable];
        let best = all.iter().position(|&l| l == Level::detect()).unwrap_or(3);
        all[best..].to_vec()
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Vnni => "avx512vnni",
        }
    }
}

/// Defines `fn name(level, args)` that runs `body(args)` compiled for the level's instruction set.
///
/// `body` must be `#[inline(always)]`. A second name, where given, is a form in AVX-512 with the same results.
macro_rules! leveled {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path, $wide:path) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(level: $crate::reference::simd::Level, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,bmi2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $ty),*) $(-> $ret)? { $body($($arg),*) }
                match level {
                    // SAFETY: `Level::detect` found the instructions before making this level.
                    $crate::reference::simd::Level::Avx512
                    | $crate::reference::simd::Level::Vnni => return unsafe { $wide($($arg),*) },
                    // SAFETY: as above.
                    $crate::reference::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::reference::simd::Level::Portable => {}
                }
            }
            let _ = level;
            $body($($arg),*)
        }
    };
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
                    $crate::reference::simd::Level::Avx512
                    | $crate::reference::simd::Level::Vnni => return unsafe { avx512($($arg),*) },
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
/// with pointers to `LANES` (or, where given, `n`) valid elements. `load_part` reads `LANES` of them
/// where [`Vector::in_place`] gives no operand.
pub(crate) trait Vector: Copy {
    /// Element of the packed operands.
    type Scalar: Scalar;
    const LANES: usize;
    /// An operand that needs no packing, as packed elements.
    #[inline(always)]
    fn in_place(data: *const f32) -> Option<*const Self::Scalar> {
        Self::Scalar::in_place(data)
    }
    unsafe fn zero() -> Self;
    unsafe fn load(p: *const Self::Scalar) -> Self;
    /// The first `n` elements (at most `LANES`); the rest is unspecified.
    #[inline(always)]
    unsafe fn load_part(p: *const Self::Scalar, _n: usize) -> Self {
        // SAFETY: the caller's: packed operands are whole vectors.
        unsafe { Self::load(p) }
    }
    unsafe fn splat(p: *const Self::Scalar) -> Self;
    /// `self + a * b`; with grid integers exact in any form.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    /// Writes the first `n` elements times `scale` as FP32 under the subnormal rule.
    unsafe fn store(self, scale: f64, p: *mut f32, n: usize);

    /// Packs `n` consecutive elements, brought onto the grid when there is one.
    #[inline(always)]
    unsafe fn pack(src: *const f32, dst: *mut Self::Scalar, n: usize, grid: Option<Grid>) {
        for i in 0..n {
            // SAFETY: the caller gives `n` valid elements on both sides.
            unsafe {
                let x = *src.add(i);
                *dst.add(i) = Self::Scalar::of(grid.map_or(x, |g| g.apply(x)));
            }
        }
    }

    /// Packs `columns` columns of `k` consecutive elements each, `ld` apart, as `k` rows `sb` apart.
    #[inline(always)]
    unsafe fn pack_transposed(
        src: *const f32,
        ld: usize,
        k: usize,
        columns: usize,
        dst: *mut Self::Scalar,
        sb: usize,
        grid: Option<Grid>,
    ) {
        for j in 0..columns {
            for i in 0..k {
                // SAFETY: the caller gives these elements on both sides.
                unsafe {
                    let x = *src.add(j * ld + i);
                    *dst.add(i * sb + j) = Self::Scalar::of(grid.map_or(x, |g| g.apply(x)));
                }
            }
        }
    }
}

/// Brings values onto a tensor's grid. `2^(143 - emax)` may exceed FP32's range, so it comes in two factors.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub first: f32,
    pub second: f32,
    /// Adding and subtracting it rounds to the grid, ties to even (|x| < 2^22).
    pub rounder: f32,
    /// Largest magnitude.
    pub limit: f32,
}

/// Bit 0 of this weighs 1.
const ROUNDER: f32 = 12_582_912.0;

impl Grid {
    /// The grid of a tensor of exponent `emax` whose values leave the low `cut` bits zero.
    pub fn new(emax: u32, cut: u32) -> Self {
        let unit = (1u32 << cut) as f32;
        let rounder = ROUNDER * unit;
        let limit = (crate::num::block::GRID_MAX >> cut) as f32 * unit;
        if emax == 0 {
            return Self {
                first: 0.0,
                second: 0.0,
                rounder,
                limit,
            };
        }
        let exponent = 143 - emax as i32;
        let first = exponent.clamp(-100, 100);
        let power = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
        Self {
            first: power(first),
            second: power(exponent - first),
            rounder,
            limit,
        }
    }

    /// The grid value of `x`, as a float. Scaling down may round only values far below half a unit.
    #[inline(always)]
    pub fn apply(self, x: f32) -> f32 {
        let scaled = x * self.first * self.second;
        let whole = (scaled + self.rounder) - self.rounder;
        let whole = if whole > self.limit {
            self.limit
        } else {
            whole
        };
        if whole < -self.limit {
            -self.limit
        } else {
            whole
        }
    }
}

/// Element of packed operands: f64 for grid integers, f32 for plain FP32.
pub(crate) trait Scalar: Copy + Default + Send + 'static {
    /// FP32 data as elements, where they are the same.
    #[inline(always)]
    fn in_place(_data: *const f32) -> Option<*const Self> {
        None
    }
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
    fn in_place(data: *const f32) -> Option<*const f32> {
        Some(data)
    }
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
    unsafe fn load_part(p: *const S, n: usize) -> Self {
        if n >= L {
            // SAFETY: as above.
            return unsafe { Self::load(p) };
        }
        let mut x = [S::default(); L];
        for (i, x) in x.iter_mut().enumerate().take(n) {
            // SAFETY: the caller gives `n` valid elements.
            *x = unsafe { *p.add(i) };
        }
        Plain(x)
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
pub(crate) mod x86;
