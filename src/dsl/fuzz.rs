//! Random modules: the printed Verilog must do what the interpreter does, and lint clean.

use super::*;
use crate::sim::{cosim, lint};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

struct Pool<'m> {
    m: &'m Module,
    rng: Pcg64,
    sigs: Vec<Sig<'m>>,
}

impl<'m> Pool<'m> {
    fn any(&mut self) -> Sig<'m> {
        // Later signals more often, so that expressions grow deep.
        let n = self.sigs.len();
        let k = self.rng.random_range(0..n).max(self.rng.random_range(0..n));
        self.sigs[k]
    }

    fn with_width(&mut self, width: u32) -> Sig<'m> {
        let s = self.any();
        match s.width() {
            w if w == width => s,
            w if w > width => {
                let lo = self.rng.random_range(0..=w - width);
                s.slice(lo + width - 1, lo)
            }
            _ if self.rng.random() => s.sext(width),
            _ => s.zext(width),
        }
    }

    /// Something that is no constant: linters complain of what a constant decides.
    fn live(&self, width: u32) -> Sig<'m> {
        self.sigs[3].sext(100).trunc(width)
    }

    fn width(&mut self) -> u32 {
        match self.rng.random_range(0..4) {
            0 => 1,
            1 => self.rng.random_range(1..9),
            2 => self.rng.random_range(1..40),
            _ => self.rng.random_range(1..100),
        }
    }

    fn grow(&mut self) {
        let m = self.m;
        let w = self.width();
        let (a, b) = (self.with_width(w), self.with_width(w));
        let narrow = self.rng.random_range(1..24);
        let made = match self.rng.random_range(0..30) {
            0 => a + b,
            1 => a - b,
            2 => a & b,
            3 => a | b,
            4 => a ^ b,
            5 => !a,
            6 => -a,
            7 => self.with_width(narrow).mul(a),
            8 => self.with_width(narrow).smul(a),
            9 => a.eq(b),
            10 => a.ne(b),
            11 => (a + self.live(w)).ult(b ^ self.live(w)),
            12 => (a + self.live(w)).ule(b ^ self.live(w)),
            13 => a.slt(b),
            14 => a.sle(b),
            15 => a.shl(self.with_width(5)),
            16 => a.shr(self.with_width(7)),
            17 => a.sra(self.with_width(6)),
            18 => a.shl_const(narrow),
            19 => a.shr_const(narrow),
            20 => m.cat(&[a, self.with_width(3), b]),
            21 => a.repeat(2),
            22 => m.mux(self.with_width(1), a, b),
            23 => {
                let choices: Vec<Sig> = (0..5).map(|_| self.with_width(w)).collect();
                m.select(self.with_width(3), &choices)
            }
            24 => {
                let s = self.with_width(4);
                let arms = [3, 9, 14].map(|v| (v, self.with_width(w)));
                m.case(s, &arms, b)
            }
            25 => a.or_reduce(),
            26 => a.and_reduce(),
            27 => a.xor_reduce(),
            28 => m.lit(self.rng.random::<u64>() as u128, 64) - self.with_width(64),
            _ => a.sra_const(narrow),
        };
        let made = match self.rng.random_range(0..6) {
            0 => made.named(&format!("net{}", self.sigs.len())),
            _ => made,
        };
        let made = match made.width() {
            w if w > 100 => made.trunc(100),
            _ => made,
        };
        self.sigs.push(made);
    }

    fn state(&mut self, k: usize) {
        let w = self.width();
        // Never constant: Yosys calls a register that never changes undriven.
        let next = self.with_width(w) ^ self.live(w);
        let mut reg = self.m.reg_next(&format!("r{k}_q"), next);
        if self.rng.random() {
            reg = reg.with_enable(self.with_width(1) ^ self.sigs[0]);
        }
        reg = match self.rng.random_range(0..4) {
            0 => reg,
            1 => reg.init(1),
            _ => reg.with_reset(1),
        };
        self.sigs.push(reg.q());
    }

    fn memory(&mut self, k: usize) {
        let lanes = self.rng.random_range(1..4);
        let spec = MemSpec {
            depth: 16,
            width: 12 * lanes,
            output_reg: self.rng.random(),
            write_lane: (lanes > 1).then_some(12),
            init: (lanes == 3)
                .then(|| MemInit::new(&format!("fuzz{k}.mem"), 36, (0..10).map(|v| v * 0x12345))),
            ..MemSpec::default()
        };
        let mem = self.m.mem(&format!("bank{k}"), spec);
        let first = mem.read(self.with_width(4), self.with_width(1) ^ self.sigs[0]);
        let second = mem.read_comb(self.with_width(4));
        // Never constant: Yosys turns a memory with a constant write port into loose wires.
        let (live, address) = (self.sigs[0].repeat(lanes), self.sigs[1].trunc(4));
        let enable = self.with_width(lanes) ^ live;
        let address = self.with_width(4) ^ address;
        mem.write(address, self.with_width(12 * lanes), enable);
        self.sigs.extend([first, second]);
    }
}

fn random_module(seed: u64, nodes: usize) -> Arc<ModuleDef> {
    let m = Module::new(&format!("nf_fuzz{seed}"));
    let mut pool = Pool {
        m: &m,
        rng: Pcg64::seed_from_u64(seed),
        sigs: vec![],
    };
    for (k, w) in [1, 8, 33, 70].into_iter().enumerate() {
        pool.sigs.push(m.input(&format!("i{k}"), w));
    }
    let early = m.reg("early_q", 20);
    pool.sigs.push(early.q());
    for k in 0..nodes {
        if k % 40 == 20 {
            m.section(&format!("Part {k}"));
            pool.memory(seed as usize * 1000 + k);
        }
        match k % 9 {
            8 => pool.state(k),
            _ => pool.grow(),
        }
    }
    let next = pool.with_width(20);
    early.set_next(next).with_reset(7);
    for k in 0..8 {
        let s = pool.any();
        m.output(&format!("o{k}"), s);
    }
    m.finish().unwrap()
}

fn many(first: u64, count: u64, nodes: usize) -> Arc<ModuleDef> {
    let m = Module::new(&format!("nf_fuzz_top{first}"));
    let inputs: Vec<Sig> = [1, 8, 33, 70]
        .into_iter()
        .enumerate()
        .map(|(k, w)| m.input(&format!("i{k}"), w))
        .collect();
    for seed in first..first + count {
        let i = m.instance(&format!("u_f{seed}"), &random_module(seed, nodes));
        for (k, s) in inputs.iter().enumerate() {
            i.input(&format!("i{k}"), *s);
        }
        for k in 0..8 {
            m.output(&format!("f{seed}_o{k}"), i.output(&format!("o{k}")));
        }
    }
    m.finish().unwrap()
}

#[test]
fn printed_verilog_equals_the_interpreter_and_lints() {
    if cosim::skip_without_verilator("dsl fuzz") {
        return;
    }
    for first in [0, 100] {
        let top = many(first, 8, 100);
        lint::assert_clean(&top);
        let report = cosim::compare(&top, &cosim::Stimulus::random(&top, 3000, first)).unwrap();
        assert_eq!(report.words_compared, 3000 * 8 * 8);
    }
}
