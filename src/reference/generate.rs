//! Text from a trained model.

use super::error::{ReferenceError, Result};
use super::trainer::Trainer;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Draws tokens one after the other.
pub struct Generator {
    rng: Pcg64,
    temperature: f64,
    context: Vec<u32>,
}

impl Generator {
    /// `temperature` 0 always takes the most likely token.
    pub fn new(seed: u64, temperature: f64) -> Result<Self> {
        if !temperature.is_finite() || temperature < 0.0 {
            return Err(ReferenceError::Invalid(format!(
                "a temperature of {temperature}; it must be 0 or more"
            )));
        }
        Ok(Self {
            rng: Pcg64::seed_from_u64(seed),
            temperature,
            context: Vec::new(),
        })
    }

    /// Appends text to what the model has seen.
    pub fn feed(&mut self, trainer: &Trainer, text: &[u8]) -> Result<()> {
        let vocab = trainer.model().vocab;
        for (position, &byte) in text.iter().enumerate() {
            if usize::from(byte) >= vocab {
                return Err(ReferenceError::Token {
                    position,
                    value: byte.into(),
                    vocab,
                });
            }
            self.context.push(byte.into());
        }
        Ok(())
    }

    /// The next token; it becomes part of the context.
    pub fn next(&mut self, trainer: &mut Trainer) -> Result<u32> {
        let (t, v) = (trainer.model().seq_len, trainer.model().vocab);
        if self.context.is_empty() {
            // Nothing is likelier to start a text than the start of a line.
            self.context.push(if v > 10 { 10 } else { 0 });
        }
        let start = self.context.len().saturating_sub(t);
        self.context.drain(..start);
        let logits = trainer.logits(&self.context)?;
        let token = self.draw(&logits[logits.len() - v..]);
        self.context.push(token);
        Ok(token)
    }

    fn draw(&mut self, logits: &[f32]) -> u32 {
        let best = logits
            .iter()
            .fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
        let first_best = logits.iter().position(|&x| x == best).unwrap_or(0);
        if self.temperature == 0.0 {
            return first_best as u32;
        }
        let weight = |x: f32| libm::exp(f64::from(x - best) / self.temperature);
        let total: f64 = logits.iter().map(|&x| weight(x)).sum();
        let mut left = self.rng.random::<f64>() * total;
        for (i, &x) in logits.iter().enumerate() {
            left -= weight(x);
            if left < 0.0 {
                return i as u32;
            }
        }
        first_best as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::State;
    use crate::reference::tests::odd_model;

    #[test]
    fn seeds_and_temperature() {
        let model = odd_model();
        let mut trainer = Trainer::new(&model, State::init(&model), 1).unwrap();
        let mut text = |seed, temperature| -> Vec<u32> {
            let mut g = Generator::new(seed, temperature).unwrap();
            g.feed(&trainer, &[3, 4]).unwrap();
            (0..50).map(|_| g.next(&mut trainer).unwrap()).collect()
        };
        assert_eq!(text(1, 0.9), text(1, 0.9));
        assert_ne!(text(1, 0.9), text(2, 0.9));
        assert_eq!(text(1, 0.0), text(2, 0.0));
        assert!(text(5, 100.0).iter().all(|&t| t < 29));
        let mut g = Generator::new(0, 1.0).unwrap();
        assert!(g.feed(&trainer, &[3, 29]).is_err());
        assert!(Generator::new(0, -1.0).is_err());
        assert!(Generator::new(0, f64::NAN).is_err());
    }
}
