//! The sweep file and the jobs that it stands for.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A sweep file: every combination of the lists is a point.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Names of built-in models, or TOML files.
    pub models: Vec<String>,
    /// Names of the catalogue, or TOML files.
    pub devices: Vec<String>,
    /// Rows and columns of the array; absent: the planner chooses.
    #[serde(default)]
    pub array: Vec<usize>,
    #[serde(default)]
    pub adam_lanes: Vec<usize>,
    #[serde(default)]
    pub groups: Vec<usize>,
    /// Absent: the device's own.
    #[serde(default)]
    pub clock_mhz: Vec<u64>,
    /// Keys of the model, each with the values it takes.
    #[serde(default)]
    pub set: BTreeMap<String, Vec<toml::Value>>,
    /// Whether every point that fits is also synthesised.
    #[serde(default)]
    pub synth: bool,
}

/// One point, with everything that is needed to compute it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub point: String,
    pub model: String,
    pub device: String,
    /// `--set` arguments.
    pub set: Vec<String>,
    pub array: Option<usize>,
    pub adam_lanes: Option<usize>,
    pub groups: Option<usize>,
    pub clock_mhz: Option<u64>,
    pub synth: bool,
    /// The model with every key, `set` applied.
    pub model_toml: String,
    /// The device with every key.
    pub device_toml: String,
}

/// Why a sweep file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    #[error("{0}")]
    Syntax(String),
    #[error("the list `{0}` is empty; it needs at least one entry")]
    Empty(String),
    #[error("{0} points are more than the {MAX_POINTS} of one sweep")]
    TooMany(usize),
}

/// Names have four digits.
pub const MAX_POINTS: usize = 9999;

/// Reads a sweep file.
pub fn parse(text: &str) -> Result<Sweep, SweepError> {
    let sweep: Sweep =
        toml::from_str(text).map_err(|e| SweepError::Syntax(e.to_string().trim().to_string()))?;
    for (name, empty) in [
        ("models", sweep.models.is_empty()),
        ("devices", sweep.devices.is_empty()),
    ] {
        if empty {
            return Err(SweepError::Empty(name.into()));
        }
    }
    if let Some((key, _)) = sweep.set.iter().find(|(_, values)| values.is_empty()) {
        return Err(SweepError::Empty(format!("set.{key}")));
    }
    Ok(sweep)
}

/// The values of an optional list; absent is one point that leaves the choice open.
fn open<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() {
        vec![None]
    } else {
        list.iter().copied().map(Some).collect()
    }
}

/// All points, without the texts of model and device, which the caller resolves.
pub fn jobs(sweep: &Sweep) -> Result<Vec<Job>, SweepError> {
    let mut sets: Vec<Vec<String>> = vec![vec![]];
    for (key, values) in &sweep.set {
        let mut longer = vec![];
        for set in &sets {
            for value in values {
                let shown = match value {
                    toml::Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let mut set = set.clone();
                set.push(format!("{key}={shown}"));
                longer.push(set);
            }
        }
        sets = longer;
        if sets.len() > MAX_POINTS {
            return Err(SweepError::TooMany(sets.len()));
        }
    }
    let mut list = vec![];
    for model in &sweep.models {
        for device in &sweep.devices {
            for set in &sets {
                for array in open(&sweep.array) {
                    for adam_lanes in open(&sweep.adam_lanes) {
                        for groups in open(&sweep.groups) {
                            for clock_mhz in open(&sweep.clock_mhz) {
                                list.push(Job {
                                    point: format!("p{:04}", list.len() + 1),
                                    model: model.clone(),
                                    device: device.clone(),
                                    set: set.clone(),
                                    array,
                                    adam_lanes,
                                    groups,
                                    clock_mhz,
                                    synth: sweep.synth,
                                    model_toml: String::new(),
                                    device_toml: String::new(),
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    match list.len() {
        n if n > MAX_POINTS => Err(SweepError::TooMany(n)),
        _ => Ok(list),
    }
}
