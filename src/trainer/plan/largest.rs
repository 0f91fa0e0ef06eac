//! The largest model of a shape family that fits a device.
//!
//! Members of the family of a model differ in width only: `embed_dim = heads * n` for n = 1, 2, ..., and `ff_dim` in
//! proportion, rounded to the nearest integer. Vocabulary, window, layers, heads and formats stay.

use serde::Serialize;

use super::nearest::settings;
use super::{Options, Plan, PlanError, Target, check, moment_bits};
use crate::config::model::ModelConfig;
use crate::num::block::MAX_K;

/// Widths beyond the first that does not fit which are planned as well: a width that shares out evenly among the
/// banks may fit where a narrower one does not.
const BEYOND: usize = 3;
/// Bits of a BRAM36 and of an UltraRAM block, parity bits included.
const BLOCK_BITS: f64 = 36_864.0;
const ULTRA_BITS: f64 = 294_912.0;

/// A member of the family that was planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tried {
    pub embed_dim: usize,
    pub ff_dim: usize,
    pub parameters: usize,
    pub fits: bool,
    /// Cycles of one training sample.
    pub cycles_per_sample: u64,
}

/// The result of [`largest`].
#[derive(Clone, Debug)]
pub struct Largest {
    /// What differs from the model that was asked about, as `--set` arguments.
    pub settings: Vec<(String, String)>,
    /// The largest member that fits; when none does, the smallest with its shortfall.
    pub plan: Plan,
    /// In the order of the search.
    pub tried: Vec<Tried>,
}

/// The member of `model`'s family whose heads are `n` wide.
pub fn member(model: &ModelConfig, n: usize) -> ModelConfig {
    let embed_dim = model.heads * n;
    // Rounded to the nearest.
    let scaled = (2 * model.ff_dim * embed_dim + model.embed_dim) / (2 * model.embed_dim);
    ModelConfig {
        embed_dim,
        ff_dim: scaled.max(1),
        ..model.clone()
    }
}

/// Finds the largest member of `model`'s family that fits `target`, by bisection of the width. `report` is called
/// after every plan.
pub fn largest(
    model: &ModelConfig,
    target: &Target,
    options: &Options,
    mut report: impl FnMut(&Tried),
) -> Result<Largest, PlanError> {
    // What is wrong with any member is wrong with the narrowest.
    check(&member(model, 1), options)?;
    let widest = widest(model, target);
    let mut tried = vec![];
    let mut plan = |n: usize| -> Result<Plan, PlanError> {
        let plan = Plan::new(&member(model, n), target, options)?;
        let entry = Tried {
            embed_dim: plan.model.embed_dim,
            ff_dim: plan.model.ff_dim,
            parameters: plan.model.parameters(),
            fits: plan.fits(),
            cycles_per_sample: plan.cycles_per_sample(),
        };
        report(&entry);
        tried.push(entry);
        Ok(plan)
    };
    let mut best: Option<Plan> = None;
    // `low` fits or is 0; `high` does not fit.
    let (mut low, mut high) = (0, widest + 1);
    let mut failed = vec![];
    while high - low > 1 {
        let n = low + (high - low) / 2;
        let next = plan(n)?;
        if next.fits() {
            (low, best) = (n, Some(next));
        } else {
            high = n;
            failed.push(n);
        }
    }
    // Only behind a plan that failed; behind `widest` memory or accumulator end the family.
    for n in high + 1..=(high + BEYOND).min(widest) {
        if failed.contains(&n) {
            continue;
        }
        let next = plan(n)?;
        if next.fits() {
            best = Some(next);
        }
    }
    let plan = match best {
        Some(plan) => plan,
        None => plan(1)?,
    };
    Ok(Largest {
        settings: settings(model, &plan.model),
        plan,
        tried,
    })
}

/// Widest heads that are planned at all: weights and moments alone must fit the memory blocks, and every sum of
/// products the accumulator. At least 1.
fn widest(model: &ModelConfig, target: &Target) -> usize {
    let a = &target.available;
    let memory = a.bram36 * BLOCK_BITS + a.uram * ULTRA_BITS;
    let bits = model.weight_format.bits() as usize + 2 * moment_bits(model);
    let possible = |n: usize| {
        let m = member(model, n);
        (m.matrix_parameters() * bits) as f64 <= memory && (3 * m.embed_dim).max(m.ff_dim) <= MAX_K
    };
    (1..).take_while(|&n| possible(n)).last().unwrap_or(1)
}
