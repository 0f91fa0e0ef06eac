//! Learning rate and bias correction, one step at a time (`docs/arithmetic.md` section 5).

use super::constants::Constants;
use super::fp32::{add, div, from_u32, mul, sqrt, sub};

/// What persists between steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// Steps done.
    pub step: u32,
    /// beta1 to the power of `step`, in FP32 operations.
    pub p1: f32,
    /// beta2 to the power of `step`, in FP32 operations.
    pub p2: f32,
}

/// Scalars that every parameter's update of one step shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepScalars {
    /// 1-based number of the step.
    pub step: u32,
    pub lr: f32,
    /// Learning rate with both bias corrections folded in.
    pub alpha: f32,
    /// Adam's epsilon scaled by the second bias correction.
    pub eps_t: f32,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            step: 0,
            p1: 1.0,
            p2: 1.0,
        }
    }
}

impl Schedule {
    /// Advances by one step.
    pub fn advance(&mut self, c: &Constants) -> StepScalars {
        self.step = self.step.saturating_add(1);
        self.p1 = mul(self.p1, c.beta1);
        self.p2 = mul(self.p2, c.beta2);
        let lr = learning_rate(c, self.step);
        let r = sqrt(sub(1.0, self.p2));
        StepScalars {
            step: self.step,
            lr,
            alpha: div(mul(lr, r), sub(1.0, self.p1)),
            eps_t: mul(c.adam_eps, r),
        }
    }
}

/// Learning rate of the 1-based step `s`: linear warm-up, then linear decay to the floor.
pub fn learning_rate(c: &Constants, s: u32) -> f32 {
    if s <= c.warmup_steps {
        mul(from_u32(s), c.lr_warmup_slope)
    } else {
        let fall = mul(from_u32(s - c.warmup_steps), c.lr_decay);
        let lr = sub(c.lr_peak, fall);
        if lr > c.lr_min { lr } else { c.lr_min }
    }
}

/// `p1` or `p2` after `steps` steps, for checkpoints that store the step only.
pub fn power_after(beta: f32, steps: u32) -> f32 {
    let mut p = 1.0;
    for _ in 0..steps {
        let next = mul(p, beta);
        if next == p {
            break;
        }
        p = next;
    }
    add(p, 0.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::model::*;

    /// The paper's model and training constants.
    pub(crate) fn paper() -> ModelConfig {
        ModelConfig {
            name: "paper".into(),
            vocab: 256,
            seq_len: 128,
            embed_dim: 88,
            heads: 4,
            ff_dim: 264,
            layers: 4,
            gelu: Gelu::Tanh,
            head_combine: HeadCombine::Mean,
            weight_format: WeightFormat::Bf16,
            moment_format: MomentFormat::Fp32,
            rounding: Rounding::Nearest,
            compute: Compute::Block18,
            layernorm_optimizer: LayerNormOptimizer::Adam,
            adam_beta1: 0.9,
            adam_beta2: 0.999,
            adam_eps: 1e-8,
            lr_peak: 0.003,
            lr_floor: 0.01,
            warmup_steps: 200,
            total_steps: 80_000,
            seed: 42,
        }
    }

    /// Learning rates that the paper's run logged.
    #[test]
    fn learning_rates_match_the_log() {
        let c = Constants::new(&paper());
        for (s, want) in [
            (100, 0.0015),
            (200, 0.003),
            (1_000, 0.002970),
            (5_000, 0.002820),
            (40_000, 0.001504),
            (75_000, 0.000188),
            (79_000, 0.000038),
            (80_000, 0.000030),
            (90_000, 0.000030),
        ] {
            assert!((learning_rate(&c, s) - want).abs() < 6e-7, "{s}");
        }
    }

    #[test]
    fn warm_up_longer_than_the_run_falls_to_the_floor() {
        let mut model = paper();
        model.total_steps = 50;
        let c = Constants::new(&model);
        assert_eq!(learning_rate(&c, 201), c.lr_min);
        assert!((learning_rate(&c, 50) - 0.00075).abs() < 1e-9);
    }

    #[test]
    fn bias_correction_follows_the_powers() {
        let c = Constants::new(&paper());
        let mut schedule = Schedule::default();
        let first = schedule.advance(&c);
        // Step 1: m = 0.1 g, v = 0.001 g^2, so the update has the size of the learning rate.
        let (m, v) = (0.1f64, 0.001f64);
        let size = f64::from(first.alpha) * m / (v.sqrt() + f64::from(first.eps_t));
        assert!((size / f64::from(first.lr) - 1.0).abs() < 1e-4);
        for _ in 1..5_000 {
            schedule.advance(&c);
        }
        assert_eq!(schedule.p1, 0.0);
        assert!((f64::from(schedule.p2) - 0.999f64.powi(5_000)).abs() < 1e-5);
        assert_eq!(power_after(c.beta1, 5_000), schedule.p1);
        assert_eq!(power_after(c.beta2, 5_000), schedule.p2);
    }
}
