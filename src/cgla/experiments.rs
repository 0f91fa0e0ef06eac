//! The published experiments, repeated on this array.

use std::time::Instant;

use serde::Serialize;

use super::launch::Machine;
use super::paper::{self, Combine, MEASURED_MHZ, MEASURED_US, Streams};
use super::schedule::WidePlan;
use super::{ArrayConfig, Result};
use crate::bitnet::backend::Phases;
use crate::bitnet::baseline::{Baseline, normalised_error, single_stream};
use crate::bitnet::cpu;
use crate::bitnet::quant::Activations;
use crate::bitnet::ternary::{StreamFormat, TernaryMatrix, weight_stream};

/// Kernel time against loaded words.
#[derive(Debug, Clone, Serialize)]
pub struct KernelPoint {
    /// 32-bit words per operand.
    pub words: u32,
    /// Published time at 145 MHz.
    pub published_us: f64,
    /// Cycles here, configuration, staging, execution and drain included.
    pub cycles: Phases,
    /// The same at 145 MHz.
    pub us_at_145_mhz: f64,
    /// int4 products per cycle here.
    pub products_per_cycle: f64,
    /// int4 products per cycle, published.
    pub published_products_per_cycle: f64,
}

/// The five published points on the published mapping. `value` gives the operands.
pub fn kernel_points(
    machine: &mut dyn Machine,
    mut value: impl FnMut() -> i8,
) -> Result<Vec<KernelPoint>> {
    MEASURED_US
        .iter()
        .map(|&(words, published_us)| {
            let products = 8 * words as usize;
            let mut int4 = || -> Vec<i8> { (0..products / 2).map(|_| value() >> 4).collect() };
            let (a, b, c, d) = (int4(), int4(), int4(), int4());
            let exact: i32 = a
                .iter()
                .zip(&c)
                .chain(b.iter().zip(&d))
                .map(|(&x, &y)| i32::from(x) * i32::from(y))
                .sum();
            let streams = Streams {
                activations: [paper::pack_int4(&a), paper::pack_int4(&b)],
                weights: [paper::pack_int4(&c), paper::pack_int4(&d)],
            };
            let (sums, cycles) = paper::run(machine, &streams, Combine::Sum)?;
            if sums != [exact] {
                return Err(super::Error::Simulation(format!(
                    "{words} words: the array gave {sums:?}, the exact sum is {exact}"
                )));
            }
            Ok(KernelPoint {
                words,
                published_us,
                cycles,
                us_at_145_mhz: cycles.total as f64 / MEASURED_MHZ,
                products_per_cycle: products as f64 / cycles.total as f64,
                published_products_per_cycle: products as f64 / (published_us * MEASURED_MHZ),
            })
        })
        .collect()
}

/// Error and time of a way to feed int8 activations.
#[derive(Debug, Clone, Serialize)]
pub struct StreamResult {
    /// `exact` or the baseline's name.
    pub name: String,
    /// `|approximate - exact|_2 / |exact|_2` over all outputs.
    pub normalised_error: f64,
    /// Seconds on this host to quantise and pack the activations.
    pub host_seconds: f64,
    /// Cycles on the array.
    pub cycles: Phases,
}

/// The exact two-stream path and the four single-stream baselines on one projection.
pub fn baselines(
    machine: &mut dyn Machine,
    weights: &TernaryMatrix,
    acts: &Activations,
) -> Result<Vec<StreamResult>> {
    let config: ArrayConfig = *machine.config();
    let format = StreamFormat::TwoBit;
    let address = machine.place(&weight_stream(weights, format))?;
    let plan = WidePlan::new(&config, weights.rows(), weights.cols(), 1, format)?;
    let exact = cpu::project(weights, acts);
    let ones = Activations {
        values: vec![1; acts.cols],
        ..acts.clone()
    };
    let sums = cpu::project(weights, &ones);
    let mut out = vec![];
    for baseline in std::iter::once(None).chain(Baseline::ALL.map(Some)) {
        let started = Instant::now();
        let (values, step, offset) = match baseline {
            None => (acts.row(0).to_vec(), 1.0, 0.0),
            Some(baseline) => {
                let stream = single_stream(acts.row(0), baseline);
                (
                    stream.values,
                    f64::from(stream.step),
                    f64::from(stream.offset),
                )
            }
        };
        let launch = plan.launch(&values, address, true)?;
        let host_seconds = started.elapsed().as_secs_f64();
        let result = machine.run(&launch)?;
        let dots = plan.collect(&result.outputs)?;
        let approximate: Vec<f64> = dots
            .iter()
            .zip(&sums)
            .map(|(&d, &s)| step * f64::from(d) + offset * f64::from(s))
            .collect();
        out.push(StreamResult {
            name: baseline.map_or("exact".into(), |b| format!("{b:?}")),
            normalised_error: normalised_error(&approximate, &exact),
            host_seconds,
            cycles: result.phases,
        });
    }
    Ok(out)
}
