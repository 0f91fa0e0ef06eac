//! One parameter's update (`docs/arithmetic.md` section 5).

use super::constants::Constants;
use super::fp32::{add, div, mul, sqrt, sub};
use super::schedule::StepScalars;

/// Weight and moments of one parameter, unrounded FP32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    pub w: f32,
    pub m: f32,
    pub v: f32,
}

/// Adam with the bias correction folded into `alpha` and `eps_t`; rounding into the storage formats follows.
#[inline(always)]
pub fn adam(c: &Constants, s: &StepScalars, p: Parameter, g: f32) -> Parameter {
    let m = add(mul(c.beta1, p.m), mul(c.one_minus_beta1, g));
    let v = add(mul(c.beta2, p.v), mul(c.one_minus_beta2, mul(g, g)));
    let u = div(m, add(sqrt(v), s.eps_t));
    Parameter {
        w: sub(p.w, mul(s.alpha, u)),
        m,
        v,
    }
}

/// Plain gradient descent, the paper's CPU rule for LayerNorm.
#[inline(always)]
pub fn sgd(s: &StepScalars, w: f32, g: f32) -> f32 {
    sub(w, mul(s.lr, g))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::schedule::{Schedule, tests::paper};

    #[test]
    fn follows_textbook_adam() {
        let model = paper();
        let c = Constants::new(&model);
        let mut schedule = Schedule::default();
        let mut p = Parameter {
            w: 0.5,
            m: 0.0,
            v: 0.0,
        };
        let (mut w, mut m, mut v) = (0.5f64, 0f64, 0f64);
        for step in 1..=300 {
            let g = (f64::from(step) * 0.37).sin() * 1e-3;
            let s = schedule.advance(&c);
            p = adam(&c, &s, p, g as f32);
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            let (mh, vh) = (
                m / (1.0 - 0.9f64.powi(step)),
                v / (1.0 - 0.999f64.powi(step)),
            );
            w -= f64::from(s.lr) * mh / (vh.sqrt() + 1e-8);
        }
        assert!((f64::from(p.w) - w).abs() < 2e-5, "{} {w}", p.w);
    }

    #[test]
    fn no_gradient_and_no_moments_change_nothing() {
        let c = Constants::new(&paper());
        let s = Schedule::default().advance(&c);
        let p = Parameter {
            w: -0.25,
            m: 0.0,
            v: 0.0,
        };
        assert_eq!(adam(&c, &s, p, 0.0), p);
    }
}
