//! Test bench of a block: runs it in the interpreter, and repeats the run in Verilator.

use crate::dsl::{Interpreter, ModuleDef};
use crate::sim::cosim::{self, Stimulus};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// A block under test. Inputs keep their values from cycle to cycle; every cycle is recorded.
pub struct Bench {
    def: Arc<ModuleDef>,
    sim: Interpreter,
    now: Vec<u128>,
    rows: Vec<Vec<u128>>,
    /// A reset in mid-run cannot be replayed.
    replayable: bool,
    pub rng: Pcg64,
}

impl Bench {
    /// Two cycles of reset, all inputs zero.
    pub fn new(def: &Arc<ModuleDef>, seed: u64) -> Self {
        let mut bench = Bench {
            def: def.clone(),
            sim: Interpreter::new(def),
            now: vec![0; def.inputs.len()],
            rows: vec![],
            replayable: true,
            rng: Pcg64::seed_from_u64(seed),
        };
        if def.has_rst {
            bench.sim.set_reset(true);
        }
        bench.step();
        bench.step();
        if def.has_rst {
            bench.sim.set_reset(false);
        }
        bench
    }

    /// Drives an input from now on.
    pub fn set(&mut self, name: &str, value: u128) {
        let k = self.def.input_index(name).expect(name);
        self.now[k] = value;
        self.sim.set_input(name, value);
    }

    /// An output for the inputs as they are.
    pub fn get(&mut self, name: &str) -> u128 {
        self.sim.get_output(name)
    }

    /// An output as a flag.
    pub fn is(&mut self, name: &str) -> bool {
        self.get(name) == 1
    }

    /// One clock edge.
    pub fn step(&mut self) {
        self.rows.push(self.now.clone());
        self.sim.step();
        assert_eq!(self.sim.failures(), &[] as &[String]);
    }

    /// Holds reset for `cycles` in mid-run.
    pub fn reset(&mut self, cycles: usize) {
        self.replayable = false;
        self.sim.set_reset(true);
        for _ in 0..cycles {
            self.step();
        }
        self.sim.set_reset(false);
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.rng.random_bool(p)
    }

    /// Repeats the recorded run in Verilator: every output must be equal in every cycle.
    pub fn replay(&self, test: &str) {
        assert!(self.replayable);
        if cosim::skip_without_verilator(test) {
            return;
        }
        let stimulus = Stimulus::from_rows(&self.def, &self.rows);
        match cosim::compare(&self.def, &stimulus) {
            Ok(report) => assert!(report.words_compared > 0),
            Err(error) => panic!("{test}: {error}"),
        }
    }
}
