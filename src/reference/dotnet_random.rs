//! The seeded generator of .NET's `System.Random`: Knuth's subtractive method (The Art of Computer
//! Programming, volume 2, section 3.2.2), with .NET's seeding. The paper draws its evaluation windows with it.

const MODULUS: i32 = i32::MAX;
const SEED: i32 = 161_803_398;

/// `new System.Random(seed)`.
pub struct DotNetRandom {
    table: [i32; 56],
    next: usize,
    behind: usize,
}

impl DotNetRandom {
    pub fn new(seed: i32) -> Self {
        let wrap = |x: i32| if x < 0 { x + MODULUS } else { x };
        let mut table = [0i32; 56];
        let mut last = SEED - seed.checked_abs().unwrap_or(i32::MAX);
        table[55] = last;
        let mut value = 1;
        for i in 1..55 {
            let place = 21 * i % 55;
            table[place] = value;
            value = wrap(last - value);
            last = table[place];
        }
        for _ in 0..4 {
            for i in 1..56 {
                let other = table[1 + (i + 30) % 55];
                table[i] = wrap(table[i].wrapping_sub(other));
            }
        }
        Self {
            table,
            next: 0,
            behind: 21,
        }
    }

    fn sample(&mut self) -> i32 {
        let advance = |i: usize| if i + 1 >= 56 { 1 } else { i + 1 };
        self.next = advance(self.next);
        self.behind = advance(self.behind);
        let mut x = self.table[self.next].wrapping_sub(self.table[self.behind]);
        if x == MODULUS {
            x -= 1;
        }
        if x < 0 {
            x += MODULUS;
        }
        self.table[self.next] = x;
        x
    }

    /// `Next(bound)`: an integer from 0 below `bound`.
    pub fn next(&mut self, bound: u32) -> u32 {
        let unit = f64::from(self.sample()) * (1.0 / f64::from(MODULUS));
        (unit * f64::from(bound)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First values of `new Random(0).Next(100)` and `new Random(42).Next(100)` in .NET.
    #[test]
    fn known_sequences() {
        let mut r = DotNetRandom::new(0);
        let first: Vec<u32> = (0..5).map(|_| r.next(100)).collect();
        assert_eq!(first, [72, 81, 76, 55, 20]);
        let mut r = DotNetRandom::new(42);
        let first: Vec<u32> = (0..3).map(|_| r.next(100)).collect();
        assert_eq!(first, [66, 14, 12]);
    }
}
