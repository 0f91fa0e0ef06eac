//! The array's function, step by step, from configuration words: what the RTL must do.

use super::isa::{
    Dest, Ex1, Ex2, Ex3, FormatA, FormatB, RowConfig, Source1, Source2, Source3, Store,
};
use super::launch::{GroupLaunch, Launch, LaunchResult, Machine};
use super::packet::{Packet, Work};
use super::timing::{MemoryModel, estimate};
use super::{ArrayConfig, Result};

/// One row's state.
#[derive(Debug, Clone)]
struct Row {
    config: RowConfig,
    lmm: [Vec<u64>; 2],
    pointer: usize,
    a: u16,
    b: u16,
    b_row: u16,
    digits: u64,
    acc: [i32; 2],
}

/// The control token, as the sequencer issues it.
#[derive(Debug, Clone, Copy)]
struct Token {
    first: bool,
    last: bool,
    row_end: bool,
    word_start: bool,
    word_end: bool,
    tile_start: bool,
    half: usize,
}

/// Function and cycle model of a build.
#[derive(Debug)]
pub struct ArrayModel {
    config: ArrayConfig,
    memory_model: MemoryModel,
    rows: Vec<Row>,
    fill_half: Vec<usize>,
    memory: Vec<u8>,
}

impl ArrayModel {
    /// An array after reset.
    pub fn new(config: ArrayConfig, memory_model: MemoryModel) -> Result<Self> {
        config.check()?;
        let words = config.lmm_words as usize;
        let row = Row {
            config: RowConfig::default(),
            lmm: [vec![0; words], vec![0; words]],
            pointer: 0,
            a: 0,
            b: 0,
            b_row: 0,
            digits: 0,
            acc: [0; 2],
        };
        Ok(Self {
            config,
            memory_model,
            rows: vec![row; config.rows as usize],
            fill_half: vec![0; config.ports as usize],
            memory: Vec::new(),
        })
    }

    fn deal(&mut self, group: usize, pair: usize, halves: [bool; 2], beat: u128) {
        let first = group * self.config.group_rows() as usize + 2 * pair;
        for (offset, word) in [beat as u64, (beat >> 64) as u64].into_iter().enumerate() {
            let row = &mut self.rows[first + offset];
            let at = row.pointer % row.lmm[0].len();
            for (half, lmm) in row.lmm.iter_mut().enumerate() {
                if halves[half] {
                    lmm[at] = word;
                }
            }
            row.pointer += 1;
        }
    }

    fn set_pointers(&mut self, group: usize, base: u16) {
        let rows = self.config.group_rows() as usize;
        for row in &mut self.rows[group * rows..(group + 1) * rows] {
            row.pointer = base.into();
        }
    }

    fn run_group(
        &mut self,
        launch: &Launch,
        group: usize,
        part: &GroupLaunch,
        outputs: &mut [Vec<u32>],
    ) {
        let rows = self.config.group_rows() as usize;
        let mut weights = part.weight_addr as usize;
        for packet in &part.packets {
            match packet {
                Packet::Configure { low, high, row } => {
                    for index in usize::from(*low)..=usize::from(*high) {
                        self.rows[group * rows + index].config = **row;
                    }
                }
                Packet::Load {
                    low,
                    high,
                    both,
                    base,
                    beats,
                } => {
                    self.set_pointers(group, *base);
                    let mut halves = [*both; 2];
                    halves[self.fill_half[group]] = true;
                    let span = usize::from(high - low) + 1;
                    for (index, &beat) in beats.iter().enumerate() {
                        self.deal(group, usize::from(*low) + index % span, halves, beat);
                    }
                }
                Packet::Tiles(work) | Packet::Execute(work) => {
                    let dealing = matches!(packet, Packet::Tiles(_));
                    let mut left = work.total;
                    while left > 0 {
                        let count = left.min(work.tile.into());
                        if dealing {
                            weights = self.fill(group, work, count, weights);
                        }
                        self.execute(launch, group, work, count, outputs);
                        self.fill_half[group] ^= 1;
                        left -= count;
                    }
                }
                Packet::End { .. } => {}
            }
        }
    }

    fn fill(&mut self, group: usize, work: &Work, count: u32, mut from: usize) -> usize {
        self.set_pointers(group, work.base);
        let mut halves = [false; 2];
        halves[self.fill_half[group]] = true;
        let span = usize::from(work.pair_high - work.pair_low) + 1;
        for _ in 0..count {
            for beat in 0..usize::from(work.unit) {
                let mut bytes = [0; 16];
                if let Some(found) = self.memory.get(from..from + 16) {
                    bytes.copy_from_slice(found);
                }
                let pair = usize::from(work.pair_low) + beat % span;
                self.deal(group, pair, halves, u128::from_le_bytes(bytes));
                from += 16;
            }
        }
        from
    }

    fn execute(
        &mut self,
        launch: &Launch,
        group: usize,
        work: &Work,
        count: u32,
        outputs: &mut [Vec<u32>],
    ) {
        let per_group = self.config.group_rows() as usize;
        let linked = launch.groups[group + 1..]
            .iter()
            .take_while(|g| g.as_ref().is_some_and(|g| g.linked))
            .count();
        let chain = group * per_group..(group + 1 + linked) * per_group;
        let mask = (self.config.lmm_words - 1) as u16;
        for output in 0..count {
            for token in 0..work.tokens {
                for step in 0..work.steps {
                    let digit = step % u16::from(work.digits);
                    let control = Token {
                        first: step == 0,
                        last: step + 1 == work.steps,
                        row_end: token + 1 == work.tokens,
                        word_start: digit == 0,
                        word_end: digit + 1 == u16::from(work.digits),
                        tile_start: output == 0 && token == 0 && step == 0,
                        half: self.fill_half[group],
                    };
                    let (mut x, mut y) = (0, 0);
                    for index in chain.clone() {
                        let row = &mut self.rows[index];
                        let result = row.step(control, &mut x, &mut y, mask);
                        let stores = match row.config.store {
                            Store::None => false,
                            Store::Last => control.last,
                            Store::Every => true,
                        };
                        if stores {
                            let words = &mut outputs[index / per_group];
                            words.push(result as u32);
                            if row.config.store_wide {
                                words.push((result >> 32) as u32);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn lanes(value: u64) -> [i32; 2] {
    [value as i32, (value >> 32) as i32]
}

fn join([low, high]: [i32; 2]) -> u64 {
    u64::from(low as u32) | u64::from(high as u32) << 32
}

/// Signed nibble `index` of a lane.
fn nibble(lane: u32, index: u32) -> i32 {
    ((lane >> (4 * index) << 28) as i32) >> 28
}

fn sma4(a: u32, w: u32, unsigned: bool) -> i32 {
    (0..8)
        .map(|i| {
            let value = nibble(a, i);
            let value = if unsigned { value & 15 } else { value };
            value * nibble(w, i)
        })
        .sum()
}

fn fragments(word: u64, low_unsigned: bool) -> u64 {
    let (mut low, mut high) = (0u32, 0u32);
    for i in 0..8 {
        let byte = (word >> (8 * i)) as u8;
        let carry = u8::from(!low_unsigned && byte & 8 != 0);
        low |= u32::from(byte & 15) << (4 * i);
        high |= u32::from((byte >> 4).wrapping_add(carry) & 15) << (4 * i);
    }
    u64::from(low) | u64::from(high) << 32
}

impl Row {
    /// The digit of every byte as int4 on both lanes; the bytes move up.
    fn expand(&mut self, word: u64, token: Token) -> u64 {
        let current = if token.word_start { word } else { self.digits };
        let (mut lane, mut moved) = (0u32, 0u64);
        for i in 0..8 {
            let byte = (current >> (8 * i)) as u8;
            let (digit, up) = match self.config.format_b {
                FormatB::Nibbles => (u32::from(byte >> 4), byte << 4),
                FormatB::FiveTrits => {
                    let product = u16::from(byte) * 3;
                    (
                        (u32::from(product >> 8)).wrapping_sub(1) & 15,
                        product as u8,
                    )
                }
                FormatB::TwoBit | FormatB::Raw => {
                    (u32::from(byte >> 6).wrapping_sub(1) & 15, byte << 2)
                }
            };
            lane |= digit << (4 * i);
            moved |= u64::from(up) << (8 * i);
        }
        self.digits = moved;
        match self.config.format_b {
            FormatB::Raw => word,
            _ => u64::from(lane) | u64::from(lane) << 32,
        }
    }

    fn step(&mut self, token: Token, x: &mut u64, y: &mut u64, mask: u16) -> u64 {
        let config = self.config;
        let add = |address: u16, step: i16| address.wrapping_add_signed(step) & mask;
        let a = if token.tile_start {
            config.a_base
        } else {
            self.a
        };
        let (b, b_row) = if token.tile_start {
            (config.b_base, config.b_base)
        } else {
            (self.b, self.b_row)
        };
        let lmm = &self.lmm[token.half];
        let (a_word, b_word) = (lmm[usize::from(a)], lmm[usize::from(b)]);
        self.a = match (token.last, token.row_end) {
            (false, _) => add(a, config.a_inner.into()),
            (true, false) => add(a, config.a_outer),
            (true, true) => config.a_base,
        };
        self.b_row = if token.last && token.row_end {
            add(b_row, config.b_outer)
        } else {
            b_row
        };
        self.b = if token.last && !config.stream_b {
            self.b_row
        } else if token.word_end {
            add(b, config.b_inner.into())
        } else {
            b
        };

        let b_operand = self.expand(b_word, token);
        let a_operand = match config.format_a {
            FormatA::Raw => a_word,
            FormatA::Fragments => fragments(a_word, config.low_unsigned),
        };
        let first = match config.source1 {
            Source1::A => a_operand,
            Source1::X => *x,
            Source1::Y => *y,
            Source1::R => config.constant,
        };
        let second = match config.source2 {
            Source2::B => b_operand,
            Source2::X => *x,
            Source2::Y => *y,
            Source2::R => config.constant,
        };
        let third = lanes(match config.source3 {
            Source3::X => *x,
            Source3::Y => *y,
            Source3::R => config.constant,
        });
        let (first, second) = (lanes(first), lanes(second));
        let mut value = [0; 2];
        for lane in 0..2 {
            let (p, q) = (first[lane], second[lane]);
            let e1 = match config.ex1 {
                Ex1::Pass => p,
                Ex1::Add => p.wrapping_add(q),
                Ex1::Sub => p.wrapping_sub(q),
                Ex1::Sma4 => sma4(p as u32, q as u32, config.low_unsigned && lane == 0),
                Ex1::Min => p.min(q),
                Ex1::Max => p.max(q),
            };
            let kept = if config.accumulate && !token.first {
                self.acc[lane]
            } else {
                0
            };
            self.acc[lane] = kept.wrapping_add(e1);
            let (acc, other) = (self.acc[lane], third[lane]);
            value[lane] = match config.ex2 {
                Ex2::Pass => acc,
                Ex2::Add => acc.wrapping_add(other),
                Ex2::And => acc & other,
                Ex2::Or => acc | other,
                Ex2::Xor => acc ^ other,
            };
        }
        let n = u32::from(config.shift);
        let folded = value[0].wrapping_add(value[1] << n);
        let result = join(match config.ex3 {
            Ex3::Pass => value,
            Ex3::Sll => value.map(|v| v << n),
            Ex3::Srl => value.map(|v| (v as u32 >> n) as i32),
            Ex3::Sra => value.map(|v| v >> n),
            Ex3::Fold => [folded, 0],
            Ex3::FoldUp => [0, folded],
        });
        match config.dest {
            Dest::None => {}
            Dest::X => *x = result,
            Dest::Y => *y = result,
        }
        result
    }
}

impl Machine for ArrayModel {
    fn name(&self) -> &'static str {
        "cycle-model"
    }

    fn config(&self) -> &ArrayConfig {
        &self.config
    }

    fn place(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.memory.len().next_multiple_of(256);
        self.memory.resize(at, 0);
        self.memory.extend_from_slice(bytes);
        Ok(at as u64)
    }

    fn run(&mut self, launch: &Launch) -> Result<LaunchResult> {
        launch.check(&self.config)?;
        let mut outputs = vec![vec![]; launch.groups.len()];
        // Linked groups first: their configuration must be there when tokens arrive.
        for linked in [true, false] {
            for (group, part) in launch.groups.iter().enumerate() {
                if let Some(part) = part
                    && part.linked == linked
                {
                    self.run_group(launch, group, part, &mut outputs);
                }
            }
        }
        Ok(LaunchResult {
            outputs,
            phases: estimate(&self.config, launch, &self.memory_model),
        })
    }
}
