//! Places for logical buffers and exponents.
//!
//! A buffer lives from its first to its last use in the global order. Buffers that one instruction reads on
//! different ports must lie in different groups; buffers alive together in one group must not overlap. The search is
//! greedy with deterministic restarts; the caller picks among the placements it returns by cycles.

use super::isa::*;
use super::program::{Instr, Logical};
use super::waits::ports;

/// A place for every buffer, in the order of [`Logical::buffers`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub group: Vec<usize>,
    pub base: Vec<usize>,
    /// Words of each group that hold buffers (slack not included).
    pub used: Vec<usize>,
}

/// Life of a buffer in the global order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub first: usize,
    pub last: usize,
}

impl Life {
    pub fn overlaps(&self, other: &Life) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The allocation problem of a program.
#[derive(Clone, Debug)]
pub struct Problem {
    pub words: Vec<usize>,
    pub lives: Vec<Life>,
    /// Buffers that must lie in another group.
    pub apart: Vec<Vec<usize>>,
    /// Buffers that had better lie in another group: cycles for which two engines want the same port otherwise.
    pub clash: Vec<Vec<(usize, u64)>>,
}

impl Problem {
    pub fn new(program: &Logical) -> Self {
        let n = program.buffers.len();
        let mut lives = vec![
            Life {
                first: usize::MAX,
                last: 0
            };
            n
        ];
        let mut apart = vec![vec![]; n];
        let mut meet = |a: usize, b: usize| {
            if a != b && !apart[a].contains(&b) {
                apart[a].push(b);
                apart[b].push(a);
            }
        };
        for (at, instr) in program.instrs.iter().enumerate() {
            let ports = ports(instr);
            for &buffer in ports.read.iter().chain(&ports.write) {
                let life = &mut lives[buffer];
                life.first = life.first.min(at);
                life.last = life.last.max(at);
            }
            for (k, &a) in ports.read.iter().enumerate() {
                for &b in &ports.read[..k] {
                    meet(a, b);
                }
            }
        }
        Self {
            words: program.buffers.iter().map(|b| b.words).collect(),
            lives,
            apart,
            clash: vec![vec![]; n],
        }
    }

    /// Notes how long two engines would use the ports of two buffers at the same time.
    pub fn set_clashes(&mut self, pairs: &std::collections::BTreeMap<(usize, usize), u64>) {
        for (&(a, b), &cycles) in pairs {
            self.clash[a].push((b, cycles));
            if a != b {
                self.clash[b].push((a, cycles));
            }
        }
    }

    /// Most words alive at one time: no placement needs fewer.
    pub fn peak(&self) -> usize {
        let mut starts: Vec<usize> = self.lives.iter().map(|l| l.first).collect();
        starts.sort_unstable();
        starts
            .into_iter()
            .map(|at| {
                self.lives
                    .iter()
                    .zip(&self.words)
                    .filter(|(l, _)| l.first <= at && at <= l.last)
                    .map(|(_, w)| w)
                    .sum()
            })
            .max()
            .unwrap_or(0)
    }

    /// The tightest gap for buffer `n` in a group of `depth` words that holds `placed` (base, buffer; by base): its
    /// base and the words left over in the gap.
    fn gap(&self, n: usize, depth: usize, placed: &[(usize, usize)]) -> Option<(usize, usize)> {
        let (life, words) = (self.lives[n], self.words[n]);
        let busy = placed
            .iter()
            .filter(|&&(_, m)| self.lives[m].overlaps(&life))
            .map(|&(base, m)| (base, base + self.words[m]));
        let mut best: Option<(usize, usize)> = None;
        let mut from = 0;
        for (start, end) in busy.chain([(depth, depth)]) {
            if from + words <= start {
                let left = start - from - words;
                if best.is_none_or(|b| left < b.1) {
                    best = Some((from, left));
                }
            }
            from = from.max(end);
        }
        best
    }

    /// Places all buffers into groups of at most `depth` words, in the order `order`; else the buffer that had no room.
    fn place(
        &self,
        order: &[usize],
        depth: &[usize],
        weight: f64,
        rng: &mut Random,
    ) -> Result<Placement, usize> {
        let mut placed = vec![None; self.words.len()];
        // Base and buffer, by base.
        let mut groups: Vec<Vec<(usize, usize)>> = vec![vec![]; depth.len()];
        let mut used = vec![0usize; depth.len()];
        let mut clash = vec![0u64; depth.len()];
        let mut barred = vec![false; depth.len()];
        for &n in order {
            clash.fill(0);
            barred.fill(false);
            for &(m, cycles) in &self.clash[n] {
                if let Some((g, _)) = placed[m] {
                    clash[g] += cycles;
                }
            }
            for &m in &self.apart[n] {
                if let Some((g, _)) = placed[m] {
                    barred[g] = true;
                }
            }
            let mut best: Option<(u64, u64, usize, usize)> = None;
            for g in (0..depth.len()).filter(|&g| !barred[g]) {
                let Some((base, left)) = self.gap(n, depth[g], &groups[g]) else {
                    continue;
                };
                // The tightest gap where engines meet least, now and then another one, so that attempts differ.
                let left = if rng.below(8) == 0 { 0 } else { left };
                let cost = left as u64 + (clash[g] as f64 * weight) as u64;
                let key = (cost, rng.below(1 << 16), g, base);
                if best.is_none_or(|b| key < b) {
                    best = Some(key);
                }
            }
            let (_, _, g, base) = best.ok_or(n)?;
            placed[n] = Some((g, base));
            let at = groups[g].partition_point(|&p| p < (base, n));
            groups[g].insert(at, (base, n));
            used[g] = used[g].max(base + self.words[n]);
        }
        let places: Vec<(usize, usize)> = placed.into_iter().flatten().collect();
        Ok(Placement {
            group: places.iter().map(|p| p.0).collect(),
            base: places.iter().map(|p| p.1).collect(),
            used,
        })
    }

    /// Up to `wanted` placements into groups of at most `depth` words each, within `attempts`. A buffer that finds no
    /// room moves forward in the order of the next attempt.
    pub fn placements(&self, depth: &[usize], wanted: usize, attempts: usize) -> Vec<Placement> {
        let mut rng = Random(0x9e37_79b9_7f4a_7c15);
        let area = |n: usize| {
            let length = self.lives[n].last - self.lives[n].first + 1;
            self.words[n] as f64 * (length as f64).sqrt()
        };
        let all = || (0..self.words.len()).collect::<Vec<usize>>();
        let (mut largest, mut earliest) = (all(), all());
        largest.sort_by(|&a, &b| area(b).total_cmp(&area(a)));
        earliest.sort_by_key(|&n| (self.lives[n].first, std::cmp::Reverse(self.lives[n].last)));
        let mut found = vec![];
        for attempt in 0..attempts {
            // The large and long-lived first, or as the program goes.
            let order = match attempt % 4 {
                3 => &mut earliest,
                _ => &mut largest,
            };
            // From packing alone to keeping the engines apart at any price.
            let weight = [0.0, 0.05, 0.3, 2.0][rng.below(4) as usize];
            match self.place(order, depth, weight, &mut rng) {
                Ok(placement) => {
                    found.push(placement);
                    if found.len() == wanted {
                        break;
                    }
                }
                Err(n) => {
                    let at = order.iter().position(|&m| m == n).unwrap_or(0);
                    let to = rng.below(at as u64 / 2 + 1) as usize;
                    order.remove(at);
                    order.insert(to, n);
                }
            }
        }
        found
    }
}

/// A small deterministic generator (xorshift); placements must not differ between runs.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Register numbers for logical exponents: (mat, vec) maps and counts. Registers are reused oldest first, so that a
/// new value seldom waits for a reader of the old one.
struct Exponents {
    map: Vec<usize>,
    count: usize,
}

fn exponents(program: &Logical, vec: bool) -> Exponents {
    let n = if vec {
        program.vec_exps
    } else {
        program.mat_exps
    };
    let mut lives = vec![
        Life {
            first: usize::MAX,
            last: 0
        };
        n
    ];
    for (at, instr) in program.instrs.iter().enumerate() {
        let mut touch = |id: ExpId| {
            let n = match id {
                ExpId::Mat(n) if !vec => n,
                ExpId::Vec(n) if vec => n,
                _ => return,
            };
            lives[n].first = lives[n].first.min(at);
            lives[n].last = lives[n].last.max(at);
        };
        match instr {
            Instr::Mat(i) => {
                touch(i.row_exp);
                touch(i.col_exp);
                if let Some(n) = i.dst_exp {
                    touch(ExpId::Mat(n));
                }
            }
            Instr::Vec(i) => {
                if let Some(n) = i.z.and_then(|z| z.exp) {
                    touch(ExpId::Vec(n));
                }
            }
            Instr::Adam(_) => {}
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&n| lives[n].first);
    let mut free_at: Vec<usize> = vec![];
    let mut map = vec![0; n];
    for id in order {
        let oldest = (0..free_at.len()).min_by_key(|&r| free_at[r]);
        let register = match oldest {
            Some(r) if free_at[r] < lives[id].first => r,
            _ => {
                free_at.push(0);
                free_at.len() - 1
            }
        };
        free_at[register] = lives[id].last;
        map[id] = register;
    }
    Exponents {
        map,
        count: free_at.len(),
    }
}

/// The program with physical groups, addresses and exponent registers, still in global order.
#[derive(Clone, Debug)]
pub struct Placed {
    pub instrs: Vec<Instr>,
    pub mat_exps: usize,
    pub vec_exps: usize,
}

/// Applies a placement.
pub fn apply(program: &Logical, placement: &Placement) -> Placed {
    let mat = exponents(program, false);
    let vec = exponents(program, true);
    let exp = |id: ExpId| match id {
        ExpId::Mat(n) => ExpId::Mat(mat.map[n]),
        ExpId::Vec(n) => ExpId::Vec(vec.map[n]),
        other => other,
    };
    let at = |buffer: usize, s: Stream| Stream {
        addr: s.addr + placement.base[buffer],
        ..s
    };
    let instrs = program
        .instrs
        .iter()
        .map(|instr| match instr {
            Instr::Mat(i) => {
                let mut i = i.clone();
                if let RowSource::Act(g) = &mut i.row_source {
                    i.row = at(*g, i.row);
                    *g = placement.group[*g];
                }
                if let ColSource::Act(g) = &mut i.col_source {
                    i.col = at(*g, i.col);
                    *g = placement.group[*g];
                }
                if let AddSource::Act(g) = &mut i.add_source {
                    i.add = at(*g, i.add);
                    *g = placement.group[*g];
                }
                if let MatDest::Act(g) = &mut i.dest {
                    i.dst = at(*g, i.dst);
                    *g = placement.group[*g];
                }
                i.row_exp = exp(i.row_exp);
                i.col_exp = exp(i.col_exp);
                i.dst_exp = i.dst_exp.map(|n| mat.map[n]);
                Instr::Mat(i)
            }
            Instr::Vec(i) => {
                let mut i = i.clone();
                i.x = (placement.group[i.x.0], at(i.x.0, i.x.1));
                i.y = i.y.map(|(g, s)| (placement.group[g], at(g, s)));
                i.z = i.z.map(|z| VecDest {
                    group: placement.group[z.group],
                    stream: at(z.group, z.stream),
                    exp: z.exp.map(|n| vec.map[n]),
                    first: z.first,
                });
                Instr::Vec(i)
            }
            Instr::Adam(i) => Instr::Adam(i.clone()),
        })
        .collect();
    Placed {
        instrs,
        mat_exps: mat.count,
        vec_exps: vec.count,
    }
}
