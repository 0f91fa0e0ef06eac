//! From logits to a token.

use rand::{RngExt, SeedableRng};

use super::{Error, Result};

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// The largest logit, the first of equals.
    Greedy,
    /// Softmax at a temperature over the `top_k` largest logits (0: all).
    Random {
        /// Divides the logits; positive.
        temperature: f32,
        /// How many candidates are kept.
        top_k: usize,
        /// Seed of the generator.
        seed: u64,
    },
}

/// Draws tokens; the sequence depends only on the logits and the seed.
pub struct Sampler {
    sampling: Sampling,
    rng: rand_pcg::Pcg64,
}

impl Sampler {
    /// Checks the settings.
    pub fn new(sampling: Sampling) -> Result<Self> {
        let seed = match sampling {
            Sampling::Greedy => 0,
            Sampling::Random {
                temperature, seed, ..
            } => {
                if !temperature.is_finite() || temperature <= 0.0 {
                    return Err(Error::Numeric(format!(
                        "temperature {temperature}; accepted: a positive number"
                    )));
                }
                seed
            }
        };
        Ok(Self {
            sampling,
            rng: rand_pcg::Pcg64::seed_from_u64(seed),
        })
    }

    /// The next token.
    pub fn pick(&mut self, logits: &[f32]) -> Result<u32> {
        if let Some(at) = logits.iter().position(|l| l.is_nan()) {
            return Err(Error::Numeric(format!("logit {at} is not a number")));
        }
        let greater = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
        let first = (0..logits.len())
            .min_by(greater)
            .ok_or_else(|| Error::Numeric("no logits".into()))?;
        if !logits[first].is_finite() {
            return Err(Error::Numeric(format!(
                "logit {first}, the largest, is {}; finite numbers are needed",
                logits[first]
            )));
        }
        let Sampling::Random {
            temperature, top_k, ..
        } = self.sampling
        else {
            return Ok(first as u32);
        };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        if top_k > 0 && top_k < order.len() {
            order.select_nth_unstable_by(top_k - 1, greater);
            order.truncate(top_k);
        }
        order.sort_unstable_by(greater);
        let weight =
            |&token: &usize| f64::from((logits[token] - logits[first]) / temperature).exp();
        let total: f64 = order.iter().map(weight).sum();
        let mut point = self.rng.random::<f64>() * total;
        for token in &order {
            point -= weight(token);
            if point < 0.0 {
                return Ok(*token as u32);
            }
        }
        Ok(order.last().map_or(first, |&t| t) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_first_largest() {
        let mut sampler = Sampler::new(Sampling::Greedy).unwrap();
        assert_eq!(sampler.pick(&[0.0, 3.0, 3.0, -1.0]).unwrap(), 1);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(sampler.pick(&[bad]).is_err());
        }
    }

    #[test]
    fn sampling_follows_the_softmax_and_top_k() {
        let sampling = Sampling::Random {
            temperature: 1.0,
            top_k: 2,
            seed: 1,
        };
        let mut sampler = Sampler::new(sampling).unwrap();
        let logits = [0.0f32, 3f32.ln(), f32::NEG_INFINITY, -0.1];
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[sampler.pick(&logits).unwrap() as usize] += 1;
        }
        assert_eq!(counts[2] + counts[3], 0);
        assert!((2850..3150).contains(&counts[1]), "{counts:?}");
    }
}
