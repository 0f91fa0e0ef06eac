//! `nfgen plan --max`: the largest model of a shape family that fits a device.

use std::collections::BTreeMap;

use serde_json::json;

use super::plan::{MachineArgs, does_not_fit, problem, table};
use super::{Exit, ModelArgs, Output};
use crate::config::schema::grouped;
use crate::config::{Device, ModelConfig, require_hardware};
use crate::diag::Problems;
use crate::trainer::plan::{Tried, largest};

/// The family in words, for the JSON object.
const FAMILY: &str = "embed_dim = heads * n, ff_dim in proportion; vocab, seq_len, heads, layers and formats as given";

/// Searches, shows the plan, and prints the arguments that choose the model found.
pub fn run(
    named: &ModelArgs,
    machine: &MachineArgs,
    model: &ModelConfig,
    device: &Device,
    out: &Output,
) -> Result<Exit, Problems> {
    require_hardware(model)?;
    let show = |t: &Tried| {
        let verdict = if t.fits { "fits" } else { "does not fit" };
        out.note(format!(
            "embed_dim {}, ff_dim {}, {} parameters: {verdict}",
            t.embed_dim,
            t.ff_dim,
            grouped(t.parameters as u64)
        ));
    };
    let target = machine.target(device);
    let found = largest(model, &target, &machine.options(), show).map_err(|e| problem(&e))?;
    let settings: BTreeMap<&str, &str> = found
        .settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let mut object = found.plan.to_json();
    object["config"] = json!(found.plan.model);
    object["max"] = json!({
        "family": FAMILY,
        "set": settings,
        "arguments": arguments(named, &found.settings),
        "tried": found.tried,
    });
    out.object(&object);
    out.say(table(&found.plan));
    if !found.plan.fits() {
        out.fail(&does_not_fit(&found.plan, None).into());
        return Ok(Exit::Refused);
    }
    out.say(format!(
        "\nlargest of its family that fits: {}",
        arguments(named, &found.settings).join(" ")
    ));
    Ok(Exit::Done)
}

/// The model's arguments with the settings that were found in place of those of the same keys.
fn arguments(named: &ModelArgs, found: &[(String, String)]) -> Vec<String> {
    let mut list = vec!["--model".to_string(), named.model.clone()];
    let key = |setting: &str| {
        setting
            .split('=')
            .next()
            .unwrap_or_default()
            .trim()
            .to_string()
    };
    let kept = named
        .set
        .iter()
        .filter(|given| found.iter().all(|(k, _)| *k != key(given)))
        .cloned();
    let new = found.iter().map(|(k, v)| format!("{k}={v}"));
    for setting in kept.chain(new) {
        list.extend(["--set".to_string(), setting]);
    }
    list
}
