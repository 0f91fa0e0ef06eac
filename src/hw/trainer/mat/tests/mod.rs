mod bench;
mod blocks;
mod engine;
mod model;
mod verilog;

/// SplitMix64: the tests' random numbers.
pub(super) struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// True once in `n` calls on average.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// An FP32 value with an exponent in `low..=high`, sometimes zero.
    pub fn float(&mut self, low: u32, high: u32) -> u32 {
        if self.one_in(16) {
            return self.bits() as u32 & 0x8000_0000;
        }
        let exponent = low + self.below((high - low + 1) as usize) as u32;
        self.bits() as u32 & 0x807f_ffff | exponent << 23
    }
}
