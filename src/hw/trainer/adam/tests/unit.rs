//! The whole unit against the model: state in, tiles back to back, state out.

use super::blocks::Uncoded;
use super::model::{Rule, Stored, exponent, gradient, parameter};
use crate::config::model::*;
use crate::dsl::MemStyle;
use crate::hw::bench::Bench;
use crate::hw::trainer::READ_LATENCY;
use crate::hw::trainer::adam::config::{AdamConfig, AdamConfigError};
use crate::hw::trainer::adam::unit::adam_unit;
use crate::trainer::encode::{Encoded, encode_adam};
use crate::trainer::isa::{AdamInstr, AdamKind, Phase};
use rand::RngExt;

/// A beat of the state stream.
pub type Beat = (u128, bool);

/// Machine, model and test bench side by side.
pub struct Rig {
    pub bench: Bench,
    pub config: AdamConfig,
    pub rule: Rule,
    pub program: Encoded,
    /// `weights[bank][address]`, as the weight memory outside the unit holds them.
    memory: Vec<Vec<u32>>,
    /// Data of port B under way: one stage per cycle of latency.
    port: Vec<[u32; 2]>,
    /// What the model expects: `[address][bank]`.
    pub positions: Vec<Vec<Stored>>,
    /// Scales [sm, sv] of moment blocks, `[address][bank]`, and moments without codes.
    pub scales: Vec<Vec<[u32; 2]>>,
    pub pending: Vec<Uncoded>,
    pub layernorm: Vec<Stored>,
    /// The exponent file, and what the model makes of the tiles.
    pub exponents: Vec<Option<u32>>,
    pub tile_exponents: Vec<Option<u32>>,
    pub retired: usize,
}

pub fn config(rule: &Rule, banks: usize, lanes: usize, program: &Encoded) -> AdamConfig {
    AdamConfig {
        banks,
        lanes,
        weight_depth: 21,
        scale_words: match rule.moments {
            MomentFormat::Int8 => 12,
            _ => 0,
        },
        layernorm_words: 11,
        tensor_bases: vec![0, 15, 7],
        weights: rule.weights,
        moments: rule.moments,
        rounding: rule.rounding,
        layernorm_optimizer: rule.layernorm,
        gradient_tiles: 2,
        gradient_style: MemStyle::Distributed,
        moment_style: MemStyle::Auto,
        layout: program.layout.clone(),
    }
}

impl Rig {
    pub fn new(rule: &Rule, banks: usize, lanes: usize, program: &[AdamInstr]) -> Self {
        let program = encode_adam(program);
        let config = config(rule, banks, lanes, &program);
        let def = adam_unit(&config).unwrap();
        let mut bench = Bench::new(&def, 31);
        for (name, value) in rule.inputs() {
            bench.set(name, value as u128);
        }
        let rng = &mut bench.rng;
        let positions = (0..config.weight_depth)
            .map(|_| {
                (0..banks)
                    .map(|_| parameter(rng, rule.weights, rule.moments))
                    .collect()
            })
            .collect();
        let scales = (0..config.scale_words)
            .map(|_| {
                let scale = |x: f32| (x.abs() + 1e-20).to_bits();
                (0..banks)
                    .map(|_| [scale(gradient(rng)), scale(gradient(rng))])
                    .collect()
            })
            .collect();
        let layernorm = (0..config.layernorm_words)
            .map(|_| parameter(rng, WeightFormat::Fp32, MomentFormat::Fp32))
            .collect();
        Rig {
            memory: vec![vec![0; config.weight_depth]; banks],
            port: vec![[0; 2]; banks],
            exponents: vec![None; config.tensor_bases.len()],
            tile_exponents: vec![None; config.tensor_bases.len()],
            bench,
            config,
            rule: rule.clone(),
            program,
            positions,
            scales,
            pending: vec![],
            layernorm,
            retired: 0,
        }
    }

    /// One cycle of the machine with its weight memory and exponent file.
    pub fn step(&mut self) {
        for b in 0..self.config.banks {
            let name = |port: &str| format!("wb_{port}_{b}");
            let [first, _] = self.port[b];
            let mut next = first;
            if self.bench.is(&name("en")) {
                let addr = self.bench.get(&name("addr")) as usize;
                next = self.memory[b][addr];
                if self.bench.is(&name("we")) {
                    self.memory[b][addr] = self.bench.get(&name("wdata")) as u32;
                }
            }
            self.port[b] = [next, first];
        }
        if self.bench.is("exp_we") {
            let id = self.bench.get("exp_id") as usize;
            let value = self.bench.get("exp_value") as u32;
            let old = match self.bench.is("exp_first") {
                true => 0,
                false => self.exponents[id].expect("a first update comes first"),
            };
            self.exponents[id] = Some(old.max(value));
        }
        self.retired += self.bench.is("retire") as usize;
        assert!(!self.bench.is("error"));
        self.bench.step();
        // The port's data change with the clock edge.
        for b in 0..self.config.banks {
            let second = self.port[b][1];
            self.bench.set(&format!("wb_rdata_{b}"), second as u128);
        }
    }

    /// Writes the rows of a gradient place: `rows[j][bank]`.
    pub fn write_gradients(&mut self, place: usize, rows: &[Vec<f32>]) {
        for (j, row) in rows.iter().enumerate() {
            self.bench.set("grad_we", 1);
            self.bench
                .set("grad_addr", (place * self.config.banks + j) as u128);
            for (b, g) in row.iter().enumerate() {
                self.bench
                    .set(&format!("grad_data_{b}"), g.to_bits() as u128);
            }
            self.step();
        }
        self.bench.set("grad_we", 0);
    }

    /// Starts instruction `k` of the program once the unit is ready.
    pub fn start(&mut self, k: usize) {
        while !self.bench.is("ready") {
            self.step();
        }
        let words = &self.program.words[k];
        let low = words[0] as u128;
        let high = words.get(1).copied().unwrap_or(0) as u128;
        self.bench.set("instr", low | (high << 64));
        self.bench.set("start", 1);
        self.step();
        self.bench.set("start", 0);
        self.bench.set("instr", 0);
    }

    /// The model's side of a tile.
    pub fn apply(&mut self, i: &AdamInstr, rows: &[Vec<f32>]) {
        let banks = self.config.banks;
        if i.kind == AdamKind::LayerNorm {
            for (b, &g) in rows[0].iter().enumerate().take(i.nc) {
                let p = &mut self.layernorm[i.waddr + b];
                *p = self.rule.update_layernorm(*p, g);
            }
            return;
        }
        if let Some(part) = i.block {
            return self.apply_block(i, part, rows);
        }
        let mut top = 0;
        for (j, row) in rows.iter().enumerate().take(i.nr) {
            for (b, &g) in row.iter().enumerate() {
                let lane = (b + banks - j % banks) % banks;
                if lane < i.nc {
                    let element = (i.element0 + lane * i.row_len + j) as u32;
                    let p = &mut self.positions[i.waddr + j][b];
                    *p = self.rule.update(*p, g, element, i.tensor as u32);
                    top = top.max(exponent(self.rule.weights, p.w));
                }
            }
        }
        self.raise_exponent(i, top);
    }

    pub fn raise_exponent(&mut self, i: &AdamInstr, top: u32) {
        let before = self.tile_exponents[i.tensor].filter(|_| !i.first);
        self.tile_exponents[i.tensor] = Some(before.unwrap_or(0).max(top));
    }

    pub fn gradients(&mut self) -> Vec<Vec<f32>> {
        let banks = self.config.banks;
        let rng = &mut self.bench.rng;
        (0..banks)
            .map(|_| (0..banks).map(|_| gradient(rng)).collect())
            .collect()
    }

    /// Beats of the model's state with the given last beat.
    pub fn beats(&self, tail: u128) -> Vec<Beat> {
        let beat = |s: &Stored| ((s.v as u128) << 64) | ((s.m as u128) << 32) | s.w as u128;
        let scale = |s: &[u32; 2]| ((s[1] as u128) << 32) | s[0] as u128;
        let positions = self.positions.iter().flatten().map(beat);
        let scales = self.scales.iter().flatten().map(scale);
        let all = positions
            .chain(scales)
            .chain(self.layernorm.iter().map(beat));
        let mut beats: Vec<Beat> = all.map(|word| (word, false)).collect();
        beats.push((tail, true));
        beats
    }

    /// WeightWrite with stalls; ends when the stream is taken and the unit is no longer busy.
    pub fn write_state(&mut self, beats: &[Beat], p: f64) -> StateEvents {
        self.bench.set("state_write", 1);
        self.step();
        self.bench.set("state_write", 0);
        let mut events = StateEvents::default();
        let (mut sent, mut offered, mut cycles) = (0, false, 0);
        while sent < beats.len() || self.bench.is("state_busy") {
            offered = sent < beats.len() && (offered || self.bench.chance(p));
            let (data, last) = *beats.get(sent).unwrap_or(&(u128::MAX, true));
            self.bench.set("s_axis_weight_tvalid", offered as u128);
            self.bench.set("s_axis_weight_tdata", data);
            self.bench.set("s_axis_weight_tkeep", 0xffff);
            self.bench.set("s_axis_weight_tlast", last as u128);
            if offered && self.bench.is("s_axis_weight_tready") {
                sent += 1;
                offered = false;
            }
            events.observe(&mut self.bench);
            self.step();
            cycles += 1;
            if cycles > 100 + 100 * beats.len() {
                events.stuck = true;
                break;
            }
        }
        self.bench.set("s_axis_weight_tvalid", 0);
        events.cycles = cycles;
        events
    }

    /// WeightRead with stalls.
    pub fn read_state(&mut self, p: f64) -> (Vec<Beat>, usize) {
        self.bench.set("state_read", 1);
        self.step();
        self.bench.set("state_read", 0);
        let (mut beats, mut cycles) = (vec![], 0);
        let mut held: Option<Beat> = None;
        loop {
            let ready = self.bench.chance(p);
            self.bench.set("m_axis_weight_tready", ready as u128);
            let busy = self.bench.is("state_busy");
            if self.bench.is("m_axis_weight_tvalid") {
                let beat = (
                    self.bench.get("m_axis_weight_tdata"),
                    self.bench.is("m_axis_weight_tlast"),
                );
                assert_eq!(self.bench.get("m_axis_weight_tkeep"), 0xffff);
                assert!(held.is_none_or(|h| h == beat), "a stalled beat changed");
                held = (!ready).then_some(beat);
                if ready {
                    beats.push(beat);
                }
            } else {
                assert_eq!(held, None, "TVALID fell before TREADY");
            }
            if !busy {
                return (beats, cycles);
            }
            self.step();
            cycles += 1;
            assert!(cycles < 200_000, "the stream hangs");
        }
    }

    /// Largest exponent per tensor in the model.
    pub fn model_exponents(&self) -> Vec<Option<u32>> {
        let order = self.config.tensors_by_base();
        let mut all = vec![None; order.len()];
        for (k, &(base, tensor)) in order.iter().enumerate() {
            let end = order.get(k + 1).map_or(self.config.weight_depth, |n| n.0);
            all[tensor] = self.positions[base..end]
                .iter()
                .flatten()
                .map(|s| exponent(self.rule.weights, s.w))
                .max();
        }
        all
    }
}

/// Pulses seen during a WeightWrite.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct StateEvents {
    pub early: usize,
    pub late: usize,
    pub loads: usize,
    pub tail: u128,
    pub stuck: bool,
    pub cycles: usize,
}

impl StateEvents {
    fn observe(&mut self, bench: &mut Bench) {
        self.early += bench.is("state_error_early") as usize;
        self.late += bench.is("state_error_late") as usize;
        if bench.is("state_load") {
            self.loads += 1;
            for (k, name) in ["load_step", "load_p1", "load_p2", "load_seed"]
                .iter()
                .enumerate()
            {
                self.tail |= bench.get(name) << (32 * k);
            }
        }
    }
}

pub fn matrix(tensor: usize, waddr: usize, (nr, nc): (usize, usize), place: usize) -> AdamInstr {
    AdamInstr {
        phase: Phase::Backward,
        wait: [0; 3],
        kind: AdamKind::Matrix,
        place,
        waddr,
        tensor,
        element0: 100 * tensor + 7 * waddr,
        row_len: 29,
        nr,
        nc,
        first: false,
        block: None,
    }
}

/// Tiles of every shape: full, narrow, short, one element, and LayerNorm between them.
pub fn program(banks: usize) -> Vec<AdamInstr> {
    let layernorm = |waddr, nc, place| AdamInstr {
        kind: AdamKind::LayerNorm,
        waddr,
        nc,
        place,
        nr: 1,
        tensor: 0,
        ..matrix(0, 0, (1, 1), 0)
    };
    let first = |i: AdamInstr| AdamInstr { first: true, ..i };
    let full = banks.min(6);
    vec![
        first(matrix(0, 0, (full, banks), 0)),
        matrix(0, full, (1, banks - 1), 1),
        layernorm(0, banks.min(6), 0),
        first(matrix(1, 15, (3, banks), 1)),
        layernorm(6, 5, 0),
        layernorm(3, 1, 1),
        first(matrix(2, 7, (full, 1), 0)),
        matrix(2, 13, (1, 1), 1),
        matrix(1, 18, (2, 2), 0),
        matrix(2, 7, (2, banks), 1),
    ]
}

pub const TAIL: u128 = 0x5eed_1234_3f7f_0001_3e00_0002_0000_0026;

fn run(rule: &Rule, banks: usize, lanes: usize) -> Rig {
    let program = program(banks);
    let mut rig = Rig::new(rule, banks, lanes, &program);
    let events = rig.write_state(&rig.beats(TAIL), 0.7);
    assert_eq!((events.early, events.late, events.loads), (0, 0, 1));
    assert_eq!(events.tail, TAIL);
    assert_eq!(rig.exponents, rig.model_exponents());
    // Tiles alternate between the halves as fast as the unit takes them, so a place is written
    // once the tile that read it two tiles ago has retired.
    for (k, i) in program.iter().enumerate() {
        let rows = rig.gradients();
        while k >= 2 && rig.retired < k - 1 {
            rig.step();
        }
        rig.write_gradients(i.place, &rows);
        if k == 9 {
            // Same addresses as tile 6: read after write through the weight memory.
            while rig.retired < 7 {
                rig.step();
            }
        }
        rig.start(k);
        rig.apply(i, &rows);
    }
    for _ in 0..400 {
        rig.step();
    }
    assert_eq!(rig.retired, program.len());
    assert_eq!(rig.exponents, rig.tile_exponents);
    rig.bench.set("p1", 0x3e00_0002);
    rig.bench.set("p2", 0x3f7f_0001);
    let tail = ((rig.rule.seed as u128) << 96)
        | (0x3f7f_0001u128 << 64)
        | (0x3e00_0002u128 << 32)
        | rig.rule.scalars.step as u128;
    for p in [1.0, 0.4] {
        let (beats, _) = rig.read_state(p);
        assert_eq!(beats, rig.beats(tail));
    }
    rig
}

#[test]
fn state_in_tiles_and_state_out_in_every_format() {
    for (k, rule) in Rule::all().iter().enumerate() {
        let (banks, lanes) = [(6, 2), (8, 4), (6, 3)][k % 3];
        let rig = run(rule, banks, lanes);
        if k < 2 {
            rig.bench.replay("adam unit");
        }
    }
}

#[test]
fn layernorm_by_gradient_descent() {
    let mut rule = Rule::new(WeightFormat::Bf16, MomentFormat::Bf16, Rounding::Stochastic);
    rule.layernorm = LayerNormOptimizer::Sgd;
    let rig = run(&rule, 6, 2);
    rig.bench.replay("adam unit sgd");
}

#[test]
fn tile_exponents_cover_valid_elements_only() {
    let rule = Rule::new(WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest);
    let program = [AdamInstr {
        first: true,
        ..matrix(1, 2, (3, 2), 0)
    }];
    let mut rig = Rig::new(&rule, 6, 2, &program);
    // Huge weights outside the tile must not count.
    for row in &mut rig.positions {
        row.iter_mut().for_each(|s| s.w = 0x7f00);
    }
    for (j, row) in rig.positions[2..5].iter_mut().enumerate() {
        for i in 0..2 {
            row[(i + j) % 6].w = 0x3c00 + (i * 3 + j) as u32;
        }
    }
    rig.write_state(&rig.beats(0), 1.0);
    let rows = rig.gradients();
    rig.write_gradients(0, &rows);
    rig.start(0);
    rig.apply(&program[0], &rows);
    while rig.retired < 1 {
        rig.step();
    }
    let mut want = 0;
    for (j, row) in rig.positions[2..5].iter().enumerate() {
        for i in 0..2 {
            want = want.max(exponent(rule.weights, row[(i + j) % 6].w));
        }
    }
    assert_eq!(rig.exponents[1], Some(want));
}

#[test]
fn tiles_follow_each_other_without_a_gap() {
    let rule = Rule::new(WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest);
    let first = |waddr, place| AdamInstr {
        first: true,
        ..matrix(0, waddr, (6, 6), place)
    };
    let program = [first(0, 0), first(6, 1), first(12, 0)];
    let mut rig = Rig::new(&rule, 6, 2, &program);
    let timing = rig.config.timing();
    let mut started = vec![];
    let mut retired = vec![];
    for cycle in 0..400 {
        if started.len() < 3 && rig.bench.is("ready") {
            let word = rig.program.words[started.len()].clone();
            let high = word.get(1).copied().unwrap_or(0) as u128;
            rig.bench.set("instr", word[0] as u128 | (high << 64));
            rig.bench.set("start", 1);
            started.push(cycle);
        } else {
            rig.bench.set("start", 0);
        }
        let before = rig.retired;
        rig.step();
        if rig.retired > before {
            retired.push(cycle);
        }
    }
    let tile = timing.matrix_tile(6);
    assert_eq!(tile, 18);
    assert_eq!(retired.len(), 3);
    assert_eq!(retired[1] - retired[0], tile);
    assert_eq!(retired[2] - retired[1], tile);
    let first = retired[0] - started[0];
    let most = tile + timing.start_to_retire;
    assert!(first <= most && first + 3 > most, "{first} of {most}");
}

#[test]
fn gamma_and_beta_come_after_the_read_latency() {
    let rule = Rule::new(WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest);
    let mut rig = Rig::new(&rule, 6, 2, &program(6));
    rig.write_state(&rig.beats(0), 1.0);
    let n = rig.layernorm.len();
    for k in 0..n + READ_LATENCY as usize {
        rig.bench.set("gamma_addr", (k % n) as u128);
        rig.bench.set("beta_addr", ((n - 1) - k % n) as u128);
        if let Some(was) = k.checked_sub(READ_LATENCY as usize) {
            let want = rig.layernorm[was].w as u128;
            assert_eq!(rig.bench.get("gamma_data"), want);
            let want = rig.layernorm[n - 1 - was].w as u128;
            assert_eq!(rig.bench.get("beta_data"), want);
        }
        rig.step();
    }
}

#[test]
fn impossible_sizes_are_refused() {
    let rule = Rule::new(WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest);
    let good = config(&rule, 6, 2, &encode_adam(&program(6)));
    let refuse = |change: &dyn Fn(&mut AdamConfig)| {
        let mut c = good.clone();
        change(&mut c);
        adam_unit(&c).unwrap_err()
    };
    assert!(matches!(
        refuse(&|c| c.lanes = 6),
        AdamConfigError::Lanes { .. }
    ));
    assert!(matches!(
        refuse(&|c| c.lanes = 4),
        AdamConfigError::Lanes { .. }
    ));
    assert_eq!(
        refuse(&|c| c.moments = MomentFormat::Int8),
        AdamConfigError::Scales(0)
    );
    assert!(matches!(
        refuse(&|c| c.tensor_bases[1] = 21),
        AdamConfigError::Base { .. }
    ));
    assert!(matches!(
        refuse(&|c| c.tensor_bases[1] = 7),
        AdamConfigError::SharedBase(..)
    ));
    assert_eq!(refuse(&|c| c.tensor_bases.clear()), AdamConfigError::Empty);
}

#[test]
fn writes_never_meet_reads() {
    let rule = Rule::new(WeightFormat::Bf16, MomentFormat::Fp32, Rounding::Nearest);
    for (banks, lanes) in [(4, 2), (6, 2), (8, 2), (44, 4), (48, 2), (44, 2), (52, 4)] {
        let c = config(&rule, banks, lanes, &encode_adam(&program(banks)));
        assert_ne!(c.read_to_write() % c.group() as u32, 0, "{banks} {lanes}");
    }
}

/// Random stored bits used by the state tests.
pub fn scramble(rig: &mut Rig) {
    let (w, m) = (rig.rule.weights, rig.rule.moments);
    let rng = &mut rig.bench.rng;
    for s in rig.positions.iter_mut().flatten() {
        *s = parameter(rng, w, m);
    }
    let extra: u32 = rng.random_range(1..200);
    rig.positions[3][1].w = extra << (w.bits() - 9);
}
