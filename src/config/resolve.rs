//! From a file or a built-in name, plus `--set` arguments, to a checked [`ModelConfig`].

use std::path::Path;

use super::fields::{self, FIELDS};
use super::model::{Compute, ModelConfig, WeightFormat};
use super::schema::{Settings, grouped, nearest, read_argument, read_file, require_keys};
use crate::diag::{Diagnostic, Problems, SourceText};
use crate::files::{MOST_SETTINGS, read_text};

/// Longest dot product that the 48-bit accumulator holds exactly (docs/arithmetic.md section 2).
pub const MAX_DOT_PRODUCT: usize = 8192;

/// The built-in models: name and file.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("tiny", include_str!("../../models/tiny.toml")),
    ("small", include_str!("../../models/small.toml")),
    (
        "shakespeare-334k",
        include_str!("../../models/shakespeare-334k.toml"),
    ),
    (
        "shakespeare-334k-7b",
        include_str!("../../models/shakespeare-334k-7b.toml"),
    ),
    (
        "shakespeare-334k-5b",
        include_str!("../../models/shakespeare-334k-5b.toml"),
    ),
];

/// Resolves `--model NAME|FILE` with its `--set` arguments.
pub fn load_model(name_or_file: &str, arguments: &[String]) -> Result<ModelConfig, Problems> {
    let built_in = BUILT_IN.iter().find(|(name, _)| *name == name_or_file);
    if let Some((name, text)) = built_in {
        return parse_model(name, &format!("models/{name}.toml"), text, arguments);
    }
    let path = Path::new(name_or_file);
    let looks_like_file = name_or_file.contains(['/', '.', '\\']) || path.exists();
    if !looks_like_file {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        let hint = match nearest(name_or_file, &names) {
            Some(name) => format!("did you mean `{name}`? "),
            None => String::new(),
        };
        return Err(Diagnostic::new(
            "nf::config::unknown_model",
            format!("`{name_or_file}` is neither a built-in model nor a file"),
            format!("{hint}built-in: {}; or give a TOML file", names.join(", ")),
        )
        .into());
    }
    let text =
        read_text(path, MOST_SETTINGS).map_err(|error| Diagnostic::cannot_read(path, &error))?;
    let stem = path
        .file_stem()
        .map_or("model".into(), |s| s.to_string_lossy());
    parse_model(&stem, name_or_file, &text, arguments)
}

/// Parses the text of a model file. `name` is the model's name unless the file gives one;
/// `file` is how places are reported.
pub fn parse_model(
    name: &str,
    file: &str,
    text: &str,
    arguments: &[String],
) -> Result<ModelConfig, Problems> {
    let mut problems = Problems::default();
    let source = SourceText::new(file, text);
    let file = read_file(&source, &FIELDS, &mut problems);
    let given = |key: &str| {
        let apart = |argument: &String| argument.split('=').next().map(str::trim) == Some(key);
        file.seen.contains(key) || arguments.iter().any(apart)
    };
    require_keys(&source, &FIELDS, given, &mut problems);
    let mut settings = file.settings;
    read_arguments(arguments, &mut settings, &mut problems);
    finish(fields::defaults(&clean_name(name)), &settings, problems)
}

/// Applies `--set` arguments to a model that comes from elsewhere, such as a checkpoint.
pub fn with_arguments(base: &ModelConfig, arguments: &[String]) -> Result<ModelConfig, Problems> {
    let mut problems = Problems::default();
    let mut settings = Settings::new();
    read_arguments(arguments, &mut settings, &mut problems);
    finish(base.clone(), &settings, problems)
}

/// Checks a model built by a program, such as one read from a checkpoint: ranges as well as relations.
pub fn check_model(config: &ModelConfig) -> Result<(), Problems> {
    let arguments: Vec<String> = FIELDS
        .iter()
        .map(|field| format!("{}={}", field.key, (field.get)(config).to_toml()))
        .collect();
    with_arguments(config, &arguments).map(|_| ())
}

fn read_arguments(arguments: &[String], settings: &mut Settings, problems: &mut Problems) {
    for argument in arguments {
        if let Some((key, setting)) = read_argument(argument, &FIELDS, problems) {
            settings.insert(key, setting);
        }
    }
}

/// A file name made fit to be a model name.
fn clean_name(name: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let cleaned: String = name
        .chars()
        .map(|c| if legal(c) { c } else { '_' })
        .take(64)
        .collect();
    match cleaned.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()) {
        "" => "model".into(),
        rest => rest.into(),
    }
}

fn finish(
    mut config: ModelConfig,
    settings: &Settings,
    mut problems: Problems,
) -> Result<ModelConfig, Problems> {
    for field in &FIELDS {
        if let Some(setting) = settings.get(field.key) {
            (field.set)(&mut config, &setting.value);
        }
    }
    // Relations between fields mean something only when the fields themselves are right.
    if problems.iter().all(|d| d.code == "nf::config::unknown_key") {
        check_relations(&config, settings, &mut problems);
    }
    problems.into_result(config)
}

/// Points at the places where `keys` were given, preferring the last one written on the command line.
fn point(mut diagnostic: Diagnostic, settings: &Settings, keys: &[&str]) -> Diagnostic {
    let mut given: Vec<_> = keys
        .iter()
        .filter_map(|key| settings.get(key).map(|setting| (*key, setting)))
        .collect();
    given.sort_by_key(|(_, setting)| setting.place.source.name != "--set");
    for (key, setting) in given {
        diagnostic = diagnostic.at(&setting.place, key);
    }
    diagnostic
}

fn check_relations(config: &ModelConfig, settings: &Settings, problems: &mut Problems) {
    let (d, heads) = (config.embed_dim, config.heads);
    if !d.is_multiple_of(heads) {
        let divisors: Vec<usize> = (1..=d).filter(|h| d.is_multiple_of(*h)).collect();
        let below = divisors.iter().rev().find(|h| **h < heads);
        let above = divisors.iter().find(|h| **h > heads);
        let wider = d.div_ceil(heads) * heads;
        let choices: Vec<String> = below
            .iter()
            .chain(&above)
            .map(|h| format!("heads = {h}"))
            .collect();
        problems.push(point(
            Diagnostic::new(
                "nf::model::heads_divide",
                format!("{heads} heads do not divide embed_dim {d}"),
                format!("use {} or embed_dim = {wider}", choices.join(", ")),
            ),
            settings,
            &["heads", "embed_dim"],
        ));
    }
    let lengths = [
        ("vocab", config.vocab, "vocab"),
        ("seq_len", config.seq_len, "seq_len"),
        ("embed_dim", 3 * d, "3 * embed_dim"),
        ("ff_dim", config.ff_dim, "ff_dim"),
    ];
    for (key, length, what) in lengths {
        if config.compute != Compute::Fp32 && length > MAX_DOT_PRODUCT {
            problems.push(point(
                Diagnostic::new(
                    "nf::model::accumulator_length",
                    format!(
                        "dot products of length {what} = {} exceed the {} that a 48-bit accumulator holds exactly",
                        grouped(length as u64),
                        grouped(MAX_DOT_PRODUCT as u64)
                    ),
                    format!(
                        "use {key} of at most {}, or compute = \"fp32\" in the reference",
                        if key == "embed_dim" { MAX_DOT_PRODUCT / 3 } else { MAX_DOT_PRODUCT }
                    ),
                ),
                settings,
                &[key],
            ));
        }
    }
    let parameters = config.parameters() as u64;
    if parameters > u64::from(u32::MAX) {
        problems.push(point(
            Diagnostic::new(
                "nf::model::too_large",
                format!(
                    "{} parameters are more than {}",
                    grouped(parameters),
                    grouped(u64::from(u32::MAX))
                ),
                "use fewer or narrower layers",
            ),
            settings,
            &["layers"],
        ));
    }
}

/// Refuses what exists in the reference trainer only; `plan`, `emit` and `sim` call this.
pub fn require_hardware(config: &ModelConfig) -> Result<(), Diagnostic> {
    let refused = if config.compute != Compute::Block18 {
        ("compute", config.compute.name(), "compute = \"block18\"")
    } else if config.weight_format == WeightFormat::Fp32 {
        (
            "weight_format",
            "fp32",
            "weight_format = \"bf16\" or \"fp24\"",
        )
    } else {
        return Ok(());
    };
    Err(Diagnostic::new(
        "nf::model::reference_only",
        format!(
            "model `{}` has {} = \"{}\", which exists in the reference trainer only",
            config.name, refused.0, refused.1
        ),
        format!("use {}", refused.2),
    ))
}
