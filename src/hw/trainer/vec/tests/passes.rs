//! Programs of every pass of `docs/machine.md` section 4, for several tiles interleaved.

use super::harness::Rng;
use crate::trainer::isa::*;

/// Constant table of the tests: 1/d, softmax scale, log2 e, 1/T, 1/sqrt(dh).
pub const CONSTANTS: [f32; 5] = [
    1.0 / 88.0,
    0.307_6,
    std::f32::consts::LOG2_E,
    1.0 / 128.0,
    0.213_2,
];
/// Rows of the scalar file used by one tile.
pub const ROWS: usize = 7;
/// Groups: 0 and 1 hold the inputs, 2.. the results.
pub const GROUPS: usize = 8;
/// LayerNorm parameters.
pub const PARAMETERS: usize = 1024;

/// Shape of one family of passes.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub b: usize,
    pub n: usize,
    pub tokens: usize,
    /// First address of the family in every group, and start column of its matrices.
    pub base: usize,
    pub j0: usize,
}

impl Family {
    pub fn tiles(&self) -> usize {
        self.tokens.div_ceil(self.b)
    }

    /// Words per bank that the family takes.
    pub fn words(&self) -> usize {
        self.tiles() * (self.n + self.j0)
    }

    fn stream(&self, tile: usize) -> Stream {
        Stream {
            addr: self.base + tile * (self.n + self.j0) + self.j0,
            rot: self.j0 % self.b,
            pitch: self.n + self.j0,
        }
    }

    fn idle(&self, tile: usize, group: usize) -> VecInstr {
        VecInstr {
            phase: Phase::Forward,
            wait: [0; 3],
            n: self.n,
            nc: self.b.min(self.tokens - tile * self.b),
            x: (group, self.stream(tile)),
            y: None,
            z: None,
            sub_s0: false,
            mul1: Mul1::Bypass,
            table: Table::Bypass,
            mul2: Mul2::Bypass,
            add: Add::Bypass,
            reduce: Reduce::None,
            post: Post::None,
            s0: 0,
            s1: 0,
            s2: 0,
            post_row: 0,
            c1: 0,
            c2: 0,
            c3: 0,
            gamma: 0,
            beta: 0,
            mask: false,
            tile,
            ce_max: false,
            ce_exp: false,
        }
    }

    /// All passes of one tile, each reading results of earlier ones. The tile's scalars are
    /// set number `slot` of the scalar file.
    pub fn passes(&self, tile: usize, slot: usize, rng: &mut Rng) -> Vec<VecInstr> {
        let row = |r: usize| slot * ROWS + r;
        let to = |group: usize, exp: Option<usize>| {
            Some(VecDest {
                group,
                stream: self.stream(tile),
                exp,
                first: tile == 0,
            })
        };
        let y = |group: usize| Some((group, self.stream(tile)));
        let x = |group: usize| self.idle(tile, group);
        let (gamma, beta) = (rng.below(500), 500 + rng.below(500 - self.n.min(499)));
        let sum = |post: Post, post_row: usize, i: VecInstr| VecInstr {
            reduce: Reduce::Sum8,
            post,
            post_row: row(post_row),
            ..i
        };
        let normal = |i: VecInstr| VecInstr {
            sub_s0: true,
            s0: row(0),
            mul1: Mul1::S1,
            s1: row(1),
            ..i
        };
        let exp = |scale: usize, post: Post, i: VecInstr| VecInstr {
            sub_s0: true,
            s0: row(4),
            mul1: Mul1::Const,
            c1: scale,
            table: Table::Exp2n,
            reduce: Reduce::Sum8,
            post,
            post_row: row(5),
            ..i
        };
        vec![
            // LayerNorm
            sum(Post::Mean, 0, x(0)),
            sum(
                Post::Rstd,
                1,
                VecInstr {
                    sub_s0: true,
                    s0: row(0),
                    mul1: Mul1::Square,
                    ..x(0)
                },
            ),
            normal(VecInstr {
                mul2: Mul2::Gamma,
                gamma,
                add: Add::Beta,
                beta,
                z: to(2, Some(0)),
                ..x(0)
            }),
            // LayerNorm backward
            normal(VecInstr {
                mul2: Mul2::Y,
                y: y(1),
                z: to(3, None),
                ..x(0)
            }),
            sum(
                Post::NegMean,
                2,
                VecInstr {
                    mul1: Mul1::Gamma,
                    gamma,
                    ..x(3)
                },
            ),
            sum(
                Post::Mean,
                3,
                VecInstr {
                    mul1: Mul1::Gamma,
                    gamma,
                    z: to(4, Some(1)),
                    ..x(1)
                },
            ),
            normal(VecInstr {
                mul2: Mul2::S2,
                s2: row(2),
                add: Add::Y,
                y: y(4),
                z: to(5, None),
                ..x(0)
            }),
            VecInstr {
                sub_s0: true,
                s0: row(3),
                mul1: Mul1::S1,
                s1: row(1),
                add: Add::Y,
                y: y(1),
                z: to(6, Some(2)),
                ..x(5)
            },
            // Softmax and its derivative
            VecInstr {
                reduce: Reduce::Max,
                post: Post::Raw,
                post_row: row(4),
                mask: true,
                ..x(0)
            },
            exp(
                1,
                Post::Recip,
                VecInstr {
                    mask: true,
                    z: to(7, None),
                    ..x(0)
                },
            ),
            VecInstr {
                mul1: Mul1::S1,
                s1: row(5),
                z: to(2, Some(3)),
                ..x(7)
            },
            sum(
                Post::Raw,
                6,
                VecInstr {
                    mul1: Mul1::Y,
                    y: y(1),
                    ..x(2)
                },
            ),
            VecInstr {
                sub_s0: true,
                s0: row(6),
                mul1: Mul1::Y,
                y: y(2),
                mul2: Mul2::Const,
                c2: 4,
                z: to(3, Some(4)),
                ..x(1)
            },
            // GeLU and its derivative
            VecInstr {
                table: Table::Phi,
                mul2: Mul2::X,
                z: to(4, Some(5)),
                ..x(0)
            },
            VecInstr {
                table: Table::Dphi,
                mul2: Mul2::Y,
                y: y(1),
                z: to(5, Some(6)),
                ..x(0)
            },
            // Cross-entropy
            VecInstr {
                reduce: Reduce::Max,
                post: Post::Raw,
                post_row: row(4),
                ce_max: true,
                ..x(6)
            },
            exp(
                2,
                Post::CrossEntropy,
                VecInstr {
                    ce_exp: true,
                    z: to(7, None),
                    ..x(6)
                },
            ),
            VecInstr {
                mul1: Mul1::S1,
                s1: row(5),
                mul2: Mul2::Const,
                c2: 3,
                add: Add::CrossEntropy,
                z: to(2, Some(7)),
                ..x(7)
            },
        ]
    }

    /// Passes of all tiles of several families, pass by pass, so that a tile's pass waits only
    /// for its own predecessor. `done` instructions stand before in the program.
    pub fn program(families: &[Family], done: usize, rng: &mut Rng) -> Vec<VecInstr> {
        let mut tiles = vec![];
        for family in families {
            for tile in 0..family.tiles() {
                tiles.push(family.passes(tile, tiles.len(), rng));
            }
        }
        let mut out = vec![];
        for pass in 0..tiles[0].len() {
            for (t, tile) in tiles.iter().enumerate() {
                let mut i = tile[pass].clone();
                let before = match pass {
                    0 => done,
                    _ => done + (pass - 1) * tiles.len() + t + 1,
                };
                i.wait = [0, before, 0];
                out.push(i);
            }
        }
        out
    }
}
