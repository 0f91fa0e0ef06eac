//! The keys of a model file: one table for reading, `--set`, writing and documentation.

use serde::Serialize;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{Deserialize, IntoDeserializer};

use super::model::{
    Compute, Gelu, HeadCombine, LayerNormOptimizer, ModelConfig, MomentFormat, Rounding,
    WeightFormat,
};
use super::schema::{Field, Kind, Value};

/// One key of a model file.
pub struct ModelField {
    pub key: &'static str,
    pub kind: Kind,
    /// Whether a file may leave it out (the value is then that of [`defaults`]).
    pub optional: bool,
    pub doc: &'static str,
    pub get: fn(&ModelConfig) -> Value,
    pub set: fn(&mut ModelConfig, &Value),
}

impl Field for ModelField {
    fn key(&self) -> &'static str {
        self.key
    }
    fn kind(&self) -> &Kind {
        &self.kind
    }
    fn optional(&self) -> bool {
        self.optional
    }
}

/// Values of the optional keys: the paper's schedule and formats, this project's exact arithmetic.
pub fn defaults(name: &str) -> ModelConfig {
    ModelConfig {
        name: name.to_string(),
        vocab: 0,
        seq_len: 0,
        embed_dim: 0,
        heads: 0,
        ff_dim: 0,
        layers: 0,
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

/// The word that names an enum's value in a file.
fn word<T: Serialize>(value: &T) -> Value {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => Value::Text(text),
        other => Value::Text(format!("{other:?}")),
    }
}

/// The enum's value of a word that [`Kind::Choice`] has admitted; another word leaves the value as it was.
fn assign<T: for<'d> Deserialize<'d>>(target: &mut T, value: &Value) {
    if let Value::Text(text) = value {
        let reader: StrDeserializer<'_, ValueError> = text.as_str().into_deserializer();
        if let Ok(parsed) = T::deserialize(reader) {
            *target = parsed;
        }
    }
}

macro_rules! integer {
    ($field:ident, $range:expr, $optional:expr, $doc:expr) => {
        ModelField {
            key: stringify!($field),
            kind: Kind::Integer($range),
            optional: $optional,
            doc: $doc,
            get: |config| Value::Integer(config.$field as u64),
            set: |config, value| {
                if let Value::Integer(n) = value {
                    config.$field = *n as _;
                }
            },
        }
    };
}

macro_rules! real {
    ($field:ident, $low:expr, $low_open:expr, $high:expr, $high_open:expr, $doc:expr) => {
        ModelField {
            key: stringify!($field),
            kind: Kind::Real {
                low: $low,
                low_open: $low_open,
                high: $high,
                high_open: $high_open,
            },
            optional: true,
            doc: $doc,
            get: |config| Value::Real(config.$field),
            set: |config, value| {
                if let Value::Real(x) = value {
                    config.$field = *x;
                }
            },
        }
    };
}

macro_rules! choice {
    ($field:ident, $words:expr, $doc:expr) => {
        ModelField {
            key: stringify!($field),
            kind: Kind::Choice(&$words),
            optional: true,
            doc: $doc,
            get: |config| word(&config.$field),
            set: |config, value| assign(&mut config.$field, value),
        }
    };
}

/// All keys, in the order in which a file lists them.
pub const FIELDS: [ModelField; 22] = [
    ModelField {
        key: "name",
        kind: Kind::Name,
        optional: true,
        doc: "name of the model and of its output folder; by default the file's name",
        get: |config| Value::Text(config.name.clone()),
        set: |config, value| {
            if let Value::Text(text) = value {
                config.name.clone_from(text);
            }
        },
    },
    integer!(vocab, 2..=65_536, false, "V, number of token values"),
    integer!(seq_len, 2..=65_536, false, "T, tokens per sample"),
    integer!(
        embed_dim,
        1..=65_536,
        false,
        "d, width of the residual stream"
    ),
    integer!(
        heads,
        1..=65_536,
        false,
        "H, attention heads; must divide embed_dim"
    ),
    integer!(
        ff_dim,
        1..=65_536,
        false,
        "f, width of the feed-forward layer"
    ),
    integer!(layers, 1..=1_024, false, "L, number of layers"),
    choice!(gelu, ["tanh", "erf"], "which formula GeLU uses"),
    choice!(
        head_combine,
        ["mean", "sum"],
        "how head outputs combine; NeuronFabric averages them"
    ),
    choice!(
        weight_format,
        ["fp32", "bf16", "fp24"],
        "storage of a weight (fp32: reference only)"
    ),
    choice!(
        moment_format,
        ["fp32", "bf16", "int8"],
        "storage of an Adam moment"
    ),
    choice!(
        rounding,
        ["nearest", "stochastic"],
        "rounding of an updated weight into its format"
    ),
    choice!(
        compute,
        ["block18", "block12", "block10", "fp32"],
        "arithmetic of matrix products (all but block18: reference only)"
    ),
    choice!(
        layernorm_optimizer,
        ["adam", "sgd"],
        "optimiser of LayerNorm gain and bias, which are FP32 always"
    ),
    real!(
        adam_beta1,
        0.0,
        true,
        1.0,
        true,
        "decay of the first moment"
    ),
    real!(
        adam_beta2,
        0.0,
        true,
        1.0,
        true,
        "decay of the second moment"
    ),
    real!(
        adam_eps,
        0.0,
        true,
        1.0,
        false,
        "added after the square root"
    ),
    real!(
        lr_peak,
        0.0,
        true,
        1000.0,
        false,
        "learning rate at the end of warm-up"
    ),
    real!(
        lr_floor,
        0.0,
        false,
        1.0,
        false,
        "the schedule never falls below lr_peak * lr_floor"
    ),
    integer!(
        warmup_steps,
        1..=16_777_216,
        true,
        "steps of linear warm-up"
    ),
    integer!(
        total_steps,
        1..=4_294_967_295,
        true,
        "steps of the whole schedule"
    ),
    integer!(
        seed,
        0..=4_294_967_295,
        true,
        "seed of initialisation, data order and stochastic rounding"
    ),
];

/// A model as a file with every key, commented: `resolved.toml`.
pub fn to_toml(config: &ModelConfig) -> String {
    let mut text = String::from("# Every setting that was used, defaults included.\n");
    for field in &FIELDS {
        let line = format!("{} = {}", field.key, (field.get)(config).to_toml());
        text.push_str(&format!("{line:<34}# {}\n", field.doc));
    }
    text
}
