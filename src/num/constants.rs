//! Every FP32 constant of the machine, computed in f64 and rounded once (`docs/arithmetic.md` sections 4 and 5).

use super::fp32;
use crate::config::model::{HeadCombine, ModelConfig};

/// LayerNorm's epsilon.
pub const LAYERNORM_EPS: f64 = 1e-5;

/// FP32 constants of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// 1/d.
    pub inv_d: f32,
    /// 1/T.
    pub inv_t: f32,
    /// 1/H when heads are averaged; `None` when they are summed.
    pub head_scale: Option<f32>,
    /// 1e-5, added to the variance.
    pub eps: f32,
    /// log2(e) / sqrt(dh): scores to exponents of two.
    pub softmax_scale: f32,
    /// log2(e): logits to exponents of two.
    pub log2e: f32,
    /// 1 / sqrt(dh): scale of the score gradient.
    pub inv_sqrt_dh: f32,
    /// 2^-24 / T: Q24 loss sum to mean loss.
    pub loss_scale: f32,
    pub beta1: f32,
    pub beta2: f32,
    /// 1 - beta1.
    pub one_minus_beta1: f32,
    /// 1 - beta2.
    pub one_minus_beta2: f32,
    pub adam_eps: f32,
    pub lr_peak: f32,
    /// `lr_peak / warmup_steps` (0 without warm-up).
    pub lr_warmup_slope: f32,
    /// `lr_peak / (total_steps - warmup_steps)`, or `lr_peak` when warm-up fills the run.
    pub lr_decay: f32,
    /// `lr_peak * lr_floor`.
    pub lr_min: f32,
    pub warmup_steps: u32,
}

impl Constants {
    pub fn new(model: &ModelConfig) -> Self {
        let dh = model.head_dim() as f64;
        let peak = f64::from(model.lr_peak);
        let log2e = std::f64::consts::LOG2_E;
        let fl = fp32::from_f64;
        Self {
            inv_d: fl(1.0 / model.embed_dim as f64),
            inv_t: fl(1.0 / model.seq_len as f64),
            head_scale: match model.head_combine {
                HeadCombine::Mean => Some(fl(1.0 / model.heads as f64)),
                HeadCombine::Sum => None,
            },
            eps: fl(LAYERNORM_EPS),
            softmax_scale: fl(log2e / dh.sqrt()),
            log2e: fl(log2e),
            inv_sqrt_dh: fl(1.0 / dh.sqrt()),
            loss_scale: fl(2f64.powi(-24) / model.seq_len as f64),
            beta1: model.adam_beta1,
            beta2: model.adam_beta2,
            one_minus_beta1: fp32::sub(1.0, model.adam_beta1),
            one_minus_beta2: fp32::sub(1.0, model.adam_beta2),
            adam_eps: model.adam_eps,
            lr_peak: model.lr_peak,
            lr_warmup_slope: if model.warmup_steps == 0 {
                0.0
            } else {
                fl(peak / f64::from(model.warmup_steps))
            },
            lr_decay: if model.total_steps <= model.warmup_steps {
                model.lr_peak
            } else {
                fl(peak / f64::from(model.total_steps - model.warmup_steps))
            },
            lr_min: fl(peak * f64::from(model.lr_floor)),
            warmup_steps: model.warmup_steps,
        }
    }
}

/// Position code `PE[t, i]`, row-major [T, d]: sine on even i, cosine on odd i, of `t / 10000^(2*floor(i/2)/d)`.
pub fn position_code(seq_len: usize, embed_dim: usize) -> Vec<f32> {
    let mut table = Vec::with_capacity(seq_len * embed_dim);
    for t in 0..seq_len {
        for i in 0..embed_dim {
            let exponent = 2.0 * (i / 2) as f64 / embed_dim as f64;
            let angle = t as f64 / libm::pow(10_000.0, exponent);
            let x = if i % 2 == 0 {
                libm::sin(angle)
            } else {
                libm::cos(angle)
            };
            table.push(fp32::from_f64(x));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_code_is_interleaved() {
        let pe = position_code(3, 4);
        assert_eq!(&pe[..4], &[0.0, 1.0, 0.0, 1.0]);
        let want = [2f64.sin(), 2f64.cos(), 0.02f64.sin(), 0.02f64.cos()];
        for (a, b) in pe[8..].iter().zip(want) {
            assert!((f64::from(*a) - b).abs() < 1e-7);
        }
    }
}
