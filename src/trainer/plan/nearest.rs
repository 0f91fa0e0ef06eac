//! The nearest setting that fits, for a model that does not.

use super::{Options, Plan, PlanError, Target};
use crate::config::model::{ModelConfig, MomentFormat, WeightFormat};

/// A change of the model, as `--set` arguments, and the plan that it leads to.
#[derive(Clone, Debug)]
pub struct Nearest {
    pub settings: Vec<(String, String)>,
    pub plan: Plan,
}

/// The first of these that fits: smaller moments, smaller weights, both; then fewer layers, a narrower feed-forward
/// layer, a shorter window, each with the smallest formats. `None` when none does.
pub fn nearest(
    model: &ModelConfig,
    target: &Target,
    options: &Options,
) -> Result<Option<Nearest>, PlanError> {
    let moments = |m: &mut ModelConfig| m.moment_format = MomentFormat::Bf16;
    let weights = |m: &mut ModelConfig, w: WeightFormat| m.weight_format = w;
    let mut steps: Vec<ModelConfig> = vec![];
    let mut push = |change: &dyn Fn(&mut ModelConfig)| {
        let mut m = model.clone();
        change(&mut m);
        if m != *model {
            steps.push(m);
        }
    };
    push(&|m| moments(m));
    push(&|m| {
        moments(m);
        if m.weight_format == WeightFormat::Fp32 {
            weights(m, WeightFormat::Fp24);
        }
    });
    let smallest = |m: &mut ModelConfig| {
        moments(m);
        weights(m, WeightFormat::Bf16);
    };
    push(&smallest);
    for layers in (1..model.layers).rev() {
        push(&|m| {
            smallest(m);
            m.layers = layers;
        });
    }
    for part in [2, 4] {
        for window in [1, 2, 4] {
            push(&|m| {
                smallest(m);
                m.layers = 1;
                m.ff_dim = (m.ff_dim / part).max(1);
                m.seq_len = (m.seq_len / window).max(1);
            });
        }
    }
    for changed in steps {
        let plan = Plan::new(&changed, target, options)?;
        if plan.fits() {
            return Ok(Some(Nearest {
                settings: settings(model, &changed),
                plan,
            }));
        }
    }
    Ok(None)
}

/// Fields that differ, as `--set` takes them.
pub(super) fn settings(from: &ModelConfig, to: &ModelConfig) -> Vec<(String, String)> {
    let fields = |m: &ModelConfig| match serde_json::to_value(m) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => Default::default(),
    };
    let old = fields(from);
    fields(to)
        .into_iter()
        .filter(|(key, value)| old.get(key) != Some(value))
        .map(|(key, value)| {
            let text = match value {
                serde_json::Value::String(s) => s,
                other => other.to_string(),
            };
            (key, text)
        })
        .collect()
}
