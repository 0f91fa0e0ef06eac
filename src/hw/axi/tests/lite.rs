use crate::hw::axi::lite::register_file;
use crate::hw::axi::registers::{Access, Register, RegisterMap, RegisterMapError};
use crate::hw::bench::Bench;
use rand::RngExt;
use std::collections::VecDeque;

const OKAY: u128 = 0;
const SLVERR: u128 = 2;

pub fn map() -> RegisterMap {
    let r = Register::new;
    RegisterMap::new(
        "nf_test_regs",
        8,
        vec![
            r("id", 0x00, Access::ReadOnly, 32, "identification"),
            r("scratch", 0x04, Access::ReadWrite, 32, "free use").with_reset(0x1234_5678),
            r("mode", 0x08, Access::ReadWrite, 11, "narrow register").with_reset(5),
            r("irq", 0x10, Access::WriteOneToClear, 9, "interrupt status"),
            r("go", 0x14, Access::WritePulse, 3, "commands"),
        ],
    )
    .unwrap()
}

/// A write or a read under way, as the master sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Write { addr: u128, data: u128, strb: u128 },
    Read { addr: u128 },
}

/// An AXI4-Lite master: five independent channels with random delays.
#[derive(Default)]
struct Master {
    aw: VecDeque<u128>,
    w: VecDeque<(u128, u128)>,
    ar: VecDeque<u128>,
    writes_open: usize,
    reads_open: usize,
    aw_taken: usize,
    w_taken: usize,
    b: Vec<u128>,
    r: Vec<(u128, u128)>,
    on: [bool; 3],
    held_b: Option<u128>,
    held_r: Option<(u128, u128)>,
    /// Cycles in which AW (or W) must stay silent.
    hold_aw: usize,
    hold_w: usize,
}

impl Master {
    fn queue(&mut self, op: Op) {
        match op {
            Op::Write { addr, data, strb } => {
                self.aw.push_back(addr);
                self.w.push_back((data, strb));
                self.writes_open += 1;
            }
            Op::Read { addr } => {
                self.ar.push_back(addr);
                self.reads_open += 1;
            }
        }
    }

    fn idle(&self) -> bool {
        self.writes_open == 0 && self.reads_open == 0
    }

    /// Once VALID is up it stays up until READY (AXI A3.2.1).
    fn cycle(&mut self, bench: &mut Bench, p: f64) {
        let waiting = [
            !self.aw.is_empty() && self.hold_aw == 0,
            !self.w.is_empty() && self.hold_w == 0,
            !self.ar.is_empty(),
        ];
        self.hold_aw = self.hold_aw.saturating_sub(1);
        self.hold_w = self.hold_w.saturating_sub(1);
        for (on, waits) in self.on.iter_mut().zip(waiting) {
            *on = waits && (*on || bench.chance(p));
        }
        let rubbish = u128::from(bench.rng.random::<u8>());
        let aw = *self.aw.front().filter(|_| self.on[0]).unwrap_or(&rubbish);
        let w = *self
            .w
            .front()
            .filter(|_| self.on[1])
            .unwrap_or(&(rubbish, 15));
        let ar = *self.ar.front().filter(|_| self.on[2]).unwrap_or(&rubbish);
        bench.set("s_axil_awvalid", self.on[0] as u128);
        bench.set("s_axil_awaddr", aw);
        bench.set("s_axil_wvalid", self.on[1] as u128);
        bench.set("s_axil_wdata", w.0);
        bench.set("s_axil_wstrb", w.1);
        bench.set("s_axil_arvalid", self.on[2] as u128);
        bench.set("s_axil_araddr", ar);
        let (bready, rready) = (bench.chance(p), bench.chance(p));
        bench.set("s_axil_bready", bready as u128);
        bench.set("s_axil_rready", rready as u128);

        if bench.is("s_axil_bvalid") {
            let resp = bench.get("s_axil_bresp");
            assert!(self.held_b.is_none_or(|h| h == resp), "BRESP changed");
            assert!(
                self.b.len() < self.aw_taken.min(self.w_taken),
                "response before address and data"
            );
            self.held_b = (!bready).then_some(resp);
            if bready {
                self.b.push(resp);
                self.writes_open -= 1;
            }
        } else {
            assert_eq!(self.held_b, None, "BVALID fell before BREADY");
        }
        if bench.is("s_axil_rvalid") {
            let answer = (bench.get("s_axil_rresp"), bench.get("s_axil_rdata"));
            assert!(self.held_r.is_none_or(|h| h == answer), "RDATA changed");
            self.held_r = (!rready).then_some(answer);
            if rready {
                self.r.push(answer);
                self.reads_open -= 1;
            }
        } else {
            assert_eq!(self.held_r, None, "RVALID fell before RREADY");
        }
        if self.on[0] && bench.is("s_axil_awready") {
            self.aw.pop_front();
            self.aw_taken += 1;
            self.on[0] = false;
        }
        if self.on[1] && bench.is("s_axil_wready") {
            self.w.pop_front();
            self.w_taken += 1;
            self.on[1] = false;
        }
        if self.on[2] && bench.is("s_axil_arready") {
            self.ar.pop_front();
            self.on[2] = false;
        }
        bench.step();
    }

    fn drain(&mut self, bench: &mut Bench, p: f64) -> usize {
        for cycles in 0..20_000 {
            if self.idle() {
                return cycles;
            }
            self.cycle(bench, p);
        }
        panic!("the bus hangs");
    }

    fn run(&mut self, bench: &mut Bench, op: Op) -> (u128, u128) {
        self.queue(op);
        self.drain(bench, 1.0);
        match op {
            Op::Write { .. } => (*self.b.last().unwrap(), 0),
            Op::Read { .. } => *self.r.last().unwrap(),
        }
    }
}

/// What software may expect of [`map`].
struct Model {
    scratch: u128,
    mode: u128,
}

impl Model {
    fn write(&mut self, addr: u128, data: u128, strb: u128) -> u128 {
        let mask: u128 = (0..4).map(|k| ((strb >> k) & 1) * (0xff << (8 * k))).sum();
        match addr & !3 {
            0x04 => self.scratch = (self.scratch & !mask) | (data & mask),
            0x08 => self.mode = ((self.mode & !mask) | (data & mask)) & 0x7ff,
            0x10 | 0x14 => {}
            _ => return SLVERR,
        }
        OKAY
    }

    fn read(&self, addr: u128) -> (u128, u128) {
        match addr & !3 {
            0x00 => (OKAY, 0xcafe_f00d),
            0x04 => (OKAY, self.scratch),
            0x08 => (OKAY, self.mode),
            0x10 | 0x14 => (OKAY, 0),
            _ => (SLVERR, 0),
        }
    }
}

fn bench() -> Bench {
    let mut bench = Bench::new(&register_file(&map()).unwrap(), 7);
    bench.set("id", 0xcafe_f00d);
    bench
}

#[test]
fn random_traffic_agrees_with_the_model() {
    let mut bench = bench();
    let mut master = Master::default();
    let mut model = Model {
        scratch: 0x1234_5678,
        mode: 5,
    };
    for round in 0..60 {
        let p = [1.0, 0.6, 0.2][round % 3];
        let (b_before, r_before) = (master.b.len(), master.r.len());
        let mut responses = vec![];
        for _ in 0..bench.rng.random_range(1..20) {
            let addr =
                bench.rng.random_range(0..0x20u64) as u128 + 0x80 * u128::from(bench.chance(0.1));
            let data = u128::from(bench.rng.random::<u32>());
            let strb = bench.rng.random_range(0..16u64) as u128;
            master.queue(Op::Write { addr, data, strb });
            responses.push(model.write(addr, data, strb));
        }
        // Either channel may be far ahead of the other.
        master.hold_aw = if round % 4 == 1 { 9 } else { 0 };
        master.hold_w = if round % 4 == 2 { 9 } else { 0 };
        master.drain(&mut bench, p);
        assert_eq!(master.b[b_before..], responses);
        let mut answers = vec![];
        for _ in 0..bench.rng.random_range(1..20) {
            let addr =
                bench.rng.random_range(0..0x20u64) as u128 + 0x80 * u128::from(bench.chance(0.1));
            master.queue(Op::Read { addr });
            answers.push(model.read(addr));
        }
        master.drain(&mut bench, p);
        assert_eq!(master.r[r_before..], answers);
    }
    bench.replay("axi lite");
}

#[test]
fn accesses_back_to_back_take_one_cycle_each() {
    let mut bench = bench();
    let mut master = Master::default();
    for k in 0..200 {
        master.queue(Op::Write {
            addr: 4,
            data: k,
            strb: 15,
        });
        master.queue(Op::Read { addr: 0 });
    }
    let cycles = master.drain(&mut bench, 1.0);
    assert!(cycles <= 205, "{cycles} cycles for 200 writes and reads");
    assert_eq!(bench.get("scratch"), 199);
}

#[test]
fn pulses_last_one_cycle_and_obey_strobes() {
    let mut bench = bench();
    let mut master = Master::default();
    let mut seen = vec![];
    for (data, strb) in [(5, 15), (7, 0), (2, 1), (7, 14)] {
        master.queue(Op::Write {
            addr: 0x14,
            data,
            strb,
        });
        for _ in 0..8 {
            master.cycle(&mut bench, 1.0);
            let pulse = bench.get("go_pulse");
            if pulse != 0 {
                seen.push(pulse);
            }
        }
    }
    assert_eq!(seen, [5, 2]);
}

#[test]
fn interrupts_are_set_by_hardware_and_cleared_by_ones() {
    let mut bench = bench();
    let mut master = Master::default();
    bench.set("irq_set", 0x1a5);
    bench.step();
    bench.set("irq_set", 0);
    let read = Op::Read { addr: 0x10 };
    let clear = |data, strb| Op::Write {
        addr: 0x10,
        data,
        strb,
    };
    assert_eq!(master.run(&mut bench, read), (OKAY, 0x1a5));
    master.run(&mut bench, clear(0x0ff, 15));
    assert_eq!(master.run(&mut bench, read), (OKAY, 0x100));
    // A strobed-off byte clears nothing.
    master.run(&mut bench, clear(0x1ff, 1));
    assert_eq!(master.run(&mut bench, read), (OKAY, 0x100));
    // An event in the very cycle of the clear is kept.
    bench.set("irq_set", 0x100);
    master.run(&mut bench, clear(0x1ff, 15));
    bench.set("irq_set", 0);
    assert_eq!(master.run(&mut bench, read), (OKAY, 0x100));
}

#[test]
fn a_reset_in_mid_transfer_leaves_a_clean_bus() {
    for cycles in 0..6 {
        let mut bench = bench();
        let mut master = Master::default();
        master.queue(Op::Write {
            addr: 4,
            data: 1,
            strb: 15,
        });
        master.queue(Op::Read { addr: 4 });
        // Only half of the write is sent, and no response is taken.
        master.hold_w = if cycles % 2 == 0 { 100 } else { 0 };
        for _ in 0..cycles {
            master.cycle(&mut bench, 1.0);
        }
        for valid in ["s_axil_awvalid", "s_axil_wvalid", "s_axil_arvalid"] {
            bench.set(valid, 0);
        }
        bench.reset(3);
        let mut master = Master::default();
        assert!(!bench.is("s_axil_bvalid") && !bench.is("s_axil_rvalid"));
        let read = Op::Read { addr: 4 };
        assert_eq!(master.run(&mut bench, read), (OKAY, 0x1234_5678));
        let write = Op::Write {
            addr: 4,
            data: 77,
            strb: 15,
        };
        assert_eq!(master.run(&mut bench, write).0, OKAY);
        assert_eq!(master.run(&mut bench, read), (OKAY, 77));
    }
}

#[test]
fn ready_never_depends_on_an_input() {
    let def = register_file(&map()).unwrap();
    for port in ["s_axil_awready", "s_axil_wready", "s_axil_arready"] {
        let k = def.output_index(port).unwrap();
        assert_eq!(def.comb_deps[k], &[] as &[u32], "{port}");
    }
}

#[test]
fn bad_descriptions_are_refused() {
    let r = |name: &str, offset, width| Register::new(name, offset, Access::ReadWrite, width, "");
    let build = |list: Vec<Register>| RegisterMap::new("nf_x", 8, list).unwrap_err();
    assert_eq!(build(vec![]), RegisterMapError::Empty);
    assert!(matches!(
        build(vec![r("a", 2, 8)]),
        RegisterMapError::Unaligned(..)
    ));
    assert!(matches!(
        build(vec![r("a", 4, 8), r("b", 4, 8)]),
        RegisterMapError::SharedOffset(..)
    ));
    assert!(matches!(
        build(vec![r("a", 4, 8), r("a", 8, 8)]),
        RegisterMapError::SharedName(..)
    ));
    assert!(matches!(
        build(vec![r("a", 4, 33)]),
        RegisterMapError::Width(..)
    ));
    assert!(matches!(
        build(vec![r("a", 4, 4).with_reset(16)]),
        RegisterMapError::Reset(..)
    ));
    assert!(matches!(
        build(vec![r("a", 0x100, 4)]),
        RegisterMapError::OutOfRange(..)
    ));
}
