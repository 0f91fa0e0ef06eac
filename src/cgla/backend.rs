//! Projections on the array, whatever carries out its launches.

use std::collections::HashMap;

use super::launch::Machine;
use super::schedule::WidePlan;
use super::{LaneSign, Result};
use crate::bitnet;
use crate::bitnet::backend::{Backend, BackendStats, check_columns};
use crate::bitnet::quant::Activations;
use crate::bitnet::ternary::{StreamFormat, TernaryMatrix, weight_stream};

/// A [`Backend`] on a [`Machine`]. Weights are placed in the machine's memory once.
pub struct ArrayBackend<M> {
    machine: M,
    format: StreamFormat,
    placed: HashMap<u64, Vec<Piece>>,
    configured: Option<Shape>,
    stats: BackendStats,
}

/// What decides the rows' configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    unit: usize,
    tokens: usize,
}

/// Columns of a matrix that fit the local memories, in the machine's memory.
#[derive(Clone, Copy)]
struct Piece {
    first_col: usize,
    cols: usize,
    address: u64,
}

impl<M: Machine> ArrayBackend<M> {
    /// A backend that packs weights as `format`.
    pub fn new(machine: M, format: StreamFormat) -> Self {
        Self {
            machine,
            format,
            placed: HashMap::new(),
            configured: None,
            stats: BackendStats::default(),
        }
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    fn place(&mut self, weights: &TernaryMatrix) -> Result<Vec<Piece>> {
        if let Some(pieces) = self.placed.get(&weights.id()) {
            return Ok(pieces.clone());
        }
        let most = WidePlan::max_cols(self.machine.config(), self.format);
        let mut pieces = vec![];
        if weights.cols() <= most {
            let address = self.machine.place(&weight_stream(weights, self.format))?;
            pieces.push(Piece {
                first_col: 0,
                cols: weights.cols(),
                address,
            });
        } else {
            let rows: Vec<Vec<i8>> = (0..weights.rows())
                .map(|n| weights.codes(n).iter().map(|&c| c as i8 - 1).collect())
                .collect();
            for first_col in (0..weights.cols()).step_by(most) {
                let cols = most.min(weights.cols() - first_col);
                let mut bytes = vec![];
                for row in &rows {
                    self.format
                        .pack_row(&row[first_col..first_col + cols], &mut bytes);
                }
                pieces.push(Piece {
                    first_col,
                    cols,
                    address: self.machine.place(&bytes)?,
                });
            }
        }
        self.placed.insert(weights.id(), pieces.clone());
        Ok(pieces)
    }

    fn run_piece(&mut self, rows: usize, acts: &Activations, piece: Piece) -> Result<Vec<i32>> {
        let config = *self.machine.config();
        let mut out = vec![];
        let mut token = 0;
        while token < acts.tokens {
            let left = acts.tokens - token;
            let plan = WidePlan::new(&config, rows, piece.cols, left, self.format)?;
            let values: Vec<i8> = (token..token + plan.tokens)
                .flat_map(|t| &acts.row(t)[piece.first_col..piece.first_col + piece.cols])
                .copied()
                .collect();
            let shape = Shape {
                unit: plan.unit,
                tokens: plan.tokens,
            };
            // Groups that a small matrix leaves out keep an older configuration.
            let all = plan.ranges.iter().all(|r| r.1 > 0);
            let configure = self.configured != Some(shape);
            let launch = plan.launch(&values, piece.address, configure)?;
            let result = self.machine.run(&launch)?;
            out.extend(plan.collect(&result.outputs)?);
            self.stats.phases += result.phases;
            self.configured = all.then_some(shape);
            token += plan.tokens;
        }
        Ok(out)
    }
}

/// `+256 * w` for every activation from 120 to 127, which the signed high fragment cannot hold.
fn correct_signed(weights: &TernaryMatrix, acts: &Activations, dots: &mut [i32]) {
    for token in 0..acts.tokens {
        let listed: Vec<usize> = acts
            .row(token)
            .iter()
            .enumerate()
            .filter(|&(_, &a)| a >= 120)
            .map(|(k, _)| k)
            .collect();
        if listed.is_empty() {
            continue;
        }
        for (row, dot) in dots[token * weights.rows()..(token + 1) * weights.rows()]
            .iter_mut()
            .enumerate()
        {
            let codes = weights.codes(row);
            for &k in &listed {
                *dot += 256 * (i32::from(codes[k]) - 1);
            }
        }
    }
}

impl<M: Machine> Backend for ArrayBackend<M> {
    fn name(&self) -> &'static str {
        self.machine.name()
    }

    fn project(&mut self, weights: &TernaryMatrix, acts: &Activations) -> bitnet::Result<Vec<i32>> {
        check_columns(weights, acts)?;
        let mut total = vec![0i32; acts.tokens * weights.rows()];
        for piece in self.place(weights)? {
            let part = self.run_piece(weights.rows(), acts, piece)?;
            total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
        }
        if self.machine.config().lane_sign == LaneSign::Signed {
            correct_signed(weights, acts, &mut total);
        }
        self.stats.projections += 1;
        self.stats.macs += (weights.rows() * weights.cols() * acts.tokens) as u64;
        Ok(total)
    }

    fn stats(&self) -> BackendStats {
        self.stats
    }
}
