//! What the unit must do, in plain Rust on top of `num`.

use crate::config::model::*;
use crate::num::adam::{Parameter, adam, sgd};
use crate::num::constants::Constants;
use crate::num::formats;
use crate::num::schedule::{Schedule, StepScalars, tests::paper};
use crate::num::threefry::rounding_bits;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Stored bits of one parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    pub w: u32,
    pub m: u32,
    pub v: u32,
}

/// Formats, constants and the scalars of a step.
#[derive(Clone)]
pub struct Rule {
    pub weights: WeightFormat,
    pub moments: MomentFormat,
    pub rounding: Rounding,
    pub layernorm: LayerNormOptimizer,
    pub constants: Constants,
    pub scalars: StepScalars,
    pub seed: u32,
}

impl Rule {
    pub fn new(weights: WeightFormat, moments: MomentFormat, rounding: Rounding) -> Self {
        let constants = Constants::new(&paper());
        let mut schedule = Schedule::default();
        let scalars = (0..37).fold(schedule.advance(&constants), |_, _| {
            schedule.advance(&constants)
        });
        Rule {
            weights,
            moments,
            rounding,
            layernorm: LayerNormOptimizer::Adam,
            constants,
            scalars,
            seed: 0x5eed_1234,
        }
    }

    /// All format combinations the unit has.
    pub fn all() -> Vec<Rule> {
        use MomentFormat::{Bf16 as M16, Fp32 as M32};
        use Rounding::{Nearest, Stochastic};
        [
            (WeightFormat::Bf16, M32, Nearest),
            (WeightFormat::Bf16, M16, Stochastic),
            (WeightFormat::Fp24, M32, Stochastic),
            (WeightFormat::Fp24, M16, Nearest),
            (WeightFormat::Fp32, M32, Nearest),
            (WeightFormat::Fp32, M16, Nearest),
        ]
        .map(|(w, m, r)| Rule::new(w, m, r))
        .to_vec()
    }

    pub fn moment_decode(&self, bits: u32) -> f32 {
        match self.moments {
            MomentFormat::Fp32 => f32::from_bits(bits),
            _ => formats::bf16_decode(bits),
        }
    }

    fn moment_encode(&self, x: f32, random: u32) -> u32 {
        match self.moments {
            MomentFormat::Fp32 => x.to_bits(),
            _ => formats::bf16_stochastic(x, random),
        }
    }

    /// A weight's update.
    pub fn update(&self, old: Stored, g: f32, element: u32, tensor: u32) -> Stored {
        let before = Parameter {
            w: self.weights.decode(old.w),
            m: self.moment_decode(old.m),
            v: self.moment_decode(old.v),
        };
        let after = adam(&self.constants, &self.scalars, before, g);
        let r = rounding_bits(self.seed, self.scalars.step, element, tensor);
        Stored {
            w: self.weights.encode(self.rounding, after.w, r.weight),
            m: self.moment_encode(after.m, r.m),
            v: self.moment_encode(after.v, r.v),
        }
    }

    /// A LayerNorm parameter's update.
    pub fn update_layernorm(&self, old: Stored, g: f32) -> Stored {
        let before = Parameter {
            w: f32::from_bits(old.w),
            m: f32::from_bits(old.m),
            v: f32::from_bits(old.v),
        };
        match self.layernorm {
            LayerNormOptimizer::Sgd => Stored {
                w: sgd(&self.scalars, before.w, g).to_bits(),
                ..old
            },
            LayerNormOptimizer::Adam => {
                let after = adam(&self.constants, &self.scalars, before, g);
                Stored {
                    w: after.w.to_bits(),
                    m: after.m.to_bits(),
                    v: after.v.to_bits(),
                }
            }
        }
    }

    /// Held inputs of a lane or the unit.
    pub fn inputs(&self) -> [(&'static str, u32); 9] {
        [
            ("beta1", self.constants.beta1.to_bits()),
            ("one_minus_beta1", self.constants.one_minus_beta1.to_bits()),
            ("beta2", self.constants.beta2.to_bits()),
            ("one_minus_beta2", self.constants.one_minus_beta2.to_bits()),
            ("alpha", self.scalars.alpha.to_bits()),
            ("eps_t", self.scalars.eps_t.to_bits()),
            ("lr", self.scalars.lr.to_bits()),
            ("seed", self.seed),
            ("step", self.scalars.step),
        ]
    }
}

/// A gradient of a usual or an unusual size, now and then zero.
pub fn gradient(rng: &mut Pcg64) -> f32 {
    let size = match rng.random_range(0..12) {
        0 => return 0.0,
        1 => 1e-30f32,
        2 => 1e15,
        _ => 1e-3,
    };
    size * (rng.random::<f32>() - 0.5)
}

/// A parameter as training leaves it, in the given formats; never subnormal.
pub fn parameter(rng: &mut Pcg64, weights: WeightFormat, moments: MomentFormat) -> Stored {
    let m = gradient(rng);
    let v = gradient(rng).abs();
    let store = |x: f32| match moments {
        MomentFormat::Fp32 => x.to_bits(),
        MomentFormat::Bf16 => formats::bf16_nearest(x),
        // A code of any size; -128 is none.
        MomentFormat::Int8 => (x.to_bits() >> 3) & 0x7f,
    };
    let w = rng.random::<f32>() - 0.5;
    Stored {
        w: weights.encode(Rounding::Nearest, w, 0),
        m: store(m),
        v: store(v),
    }
}

/// Biased exponent of stored weight bits.
pub fn exponent(weights: WeightFormat, bits: u32) -> u32 {
    (weights.decode(bits).to_bits() >> 23) & 0xff
}
