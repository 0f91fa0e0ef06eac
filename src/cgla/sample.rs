//! A small projection with its memory image, for test benches that run without this program.

use rand::{RngExt, SeedableRng};

use super::image::{ALIGNMENT, Image};
use super::launch::Machine;
use super::model::ArrayModel;
use super::registers::register_map;
use super::schedule::WidePlan;
use super::timing::MemoryModel;
use super::{ArrayConfig, Error, Result};
use crate::bitnet::ternary::{StreamFormat, TernaryMatrix, weight_stream};

/// Outputs, inputs and tokens: enough for two tiles and a remainder in every group.
const SHAPE: (usize, usize, usize) = (37, 300, 2);

/// A projection as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Memory from address 0 on, in words of 16 bytes; results are not in it.
    pub memory: Vec<u128>,
    /// Register address and value, the start last.
    pub registers: Vec<(u32, u32)>,
    /// Address and value of every 32-bit result.
    pub results: Vec<(u64, u32)>,
}

impl Sample {
    /// The same numbers for the same build, always.
    pub fn new(config: &ArrayConfig) -> Result<Self> {
        let (rows, cols, tokens) = SHAPE;
        let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
        let trits: Vec<i8> = (0..rows * cols).map(|_| rng.random_range(-1..=1)).collect();
        let acts: Vec<i8> = (0..tokens * cols).map(|_| rng.random()).collect();
        let weights = TernaryMatrix::from_trits(rows, cols, &trits, 1.0)
            .map_err(|e| Error::Schedule(e.to_string()))?;
        let format = StreamFormat::TwoBit;
        let stream = weight_stream(&weights, format);
        let plan = WidePlan::new(config, rows, cols, tokens, format)?;
        let mut model = ArrayModel::new(*config, MemoryModel::default())?;
        let at = model.place(&stream)?;
        let outputs = model.run(&plan.launch(&acts, at, true)?)?.outputs;
        // The image has its own idea of where the weights lie: in front.
        let base = (stream.len() as u64).next_multiple_of(ALIGNMENT);
        let image = Image::new(&plan.launch(&acts, 0, true)?, base)?;
        let mut bytes = vec![0; image.end as usize];
        bytes[..stream.len()].copy_from_slice(&stream);
        for (at, program) in &image.segments {
            bytes[*at as usize..][..program.len()].copy_from_slice(program);
        }
        let map = register_map(config);
        let results = image
            .outputs
            .iter()
            .zip(&outputs)
            .filter_map(|(place, words)| place.map(|(at, _)| (at, words)))
            .flat_map(|(at, words)| (0..).zip(words).map(move |(i, &w)| (at + 4 * i, w)))
            .collect();
        Ok(Self {
            memory: bytes
                .chunks_exact(16)
                .map(|c| c.iter().rev().fold(0, |v, &b| v << 8 | u128::from(b)))
                .collect(),
            registers: image
                .registers
                .iter()
                .filter_map(|&(name, value)| Some((map.find(name)?.offset, value)))
                .collect(),
            results,
        })
    }
}
