//! Tests of model and device configuration.

use super::device;
use super::fields::{FIELDS, to_toml};
use super::model::{LayerNormOptimizer, MomentFormat, WeightFormat};
use super::resolve::BUILT_IN;
use super::*;
use crate::diag::Problems;

fn set(model: &str, arguments: &[&str]) -> Result<ModelConfig, Problems> {
    let arguments: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
    load_model(model, &arguments)
}

fn codes(result: Result<ModelConfig, Problems>) -> Vec<&'static str> {
    match result {
        Ok(config) => panic!("{config:?} was accepted"),
        Err(problems) => problems.iter().map(|d| d.code).collect(),
    }
}

#[test]
fn built_in_models_are_legal_and_have_their_size() {
    for (name, _) in BUILT_IN {
        let config = load_model(name, &[]).unwrap();
        assert_eq!(config.name, name);
        check_model(&config).unwrap();
        require_hardware(&config).unwrap();
    }
    let paper = load_model("shakespeare-334k", &[]).unwrap();
    assert_eq!(paper.parameters(), 333_696);
    assert_eq!(paper.matrix_parameters(), 332_288);
    assert_eq!(paper.layernorm_optimizer, LayerNormOptimizer::Sgd);
    let seven = load_model("shakespeare-334k-7b", &[]).unwrap();
    assert_eq!(
        (seven.weight_format, seven.moment_format),
        (WeightFormat::Fp24, MomentFormat::Bf16)
    );
}

#[test]
fn resolved_files_read_back_equal() {
    for (name, _) in BUILT_IN {
        let config = set(name, &["adam_beta2=0.98765", "lr_peak=1e-3", "seed=7"]).unwrap();
        let text = to_toml(&config);
        let again = parse_model("other", "resolved.toml", &text, &[]).unwrap();
        assert_eq!(config, again, "{text}");
    }
}

#[test]
fn every_field_of_the_model_has_a_key() {
    let config = load_model("tiny", &[]).unwrap();
    let serde_json::Value::Object(fields) = serde_json::to_value(&config).unwrap() else {
        panic!("a model is an object");
    };
    let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let mut keys: Vec<&str> = FIELDS.iter().map(|f| f.key).collect();
    names.sort_unstable();
    keys.sort_unstable();
    assert_eq!(names, keys);
}

#[test]
fn every_key_can_be_set_from_the_command_line() {
    let tiny = load_model("tiny", &[]).unwrap();
    let changes = [
        "name=other",
        "vocab=130",
        "seq_len=9",
        "embed_dim=12",
        "heads=4",
        "ff_dim=17",
        "layers=2",
        "gelu=erf",
        "head_combine=sum",
        "weight_format=fp24",
        "moment_format=bf16",
        "rounding=stochastic",
        "compute=fp32",
        "layernorm_optimizer=sgd",
        "adam_beta1=0.8",
        "adam_beta2=0.99",
        "adam_eps=1e-7",
        "lr_peak=0.1",
        "lr_floor=0.5",
        "warmup_steps=3",
        "total_steps=4",
        "seed=5",
    ];
    assert_eq!(changes.len(), FIELDS.len());
    for (field, change) in FIELDS.iter().zip(changes) {
        let changed = set("tiny", &[change]).unwrap();
        let (before, after) = ((field.get)(&tiny), (field.get)(&changed));
        assert_ne!(before, after, "{change}");
        for other in FIELDS.iter().filter(|f| f.key != field.key) {
            assert_eq!((other.get)(&tiny), (other.get)(&changed), "{change}");
        }
    }
}

#[test]
fn odd_shapes_are_legal() {
    let config = set(
        "small",
        &[
            "embed_dim=42",
            "heads=3",
            "ff_dim=94",
            "seq_len=23",
            "layers=3",
        ],
    )
    .unwrap();
    assert_eq!(config.head_dim(), 14);
}

#[test]
fn relations_are_checked_with_the_place_of_the_argument() {
    let Err(problems) = set("small", &["heads=5", "ff_dim=9000"]) else {
        panic!("accepted");
    };
    let found: Vec<String> = problems.iter().map(|d| d.to_string()).collect();
    assert!(
        found[0].starts_with("--set:1:7: 5 heads do not divide embed_dim 32"),
        "{}",
        found[0]
    );
    assert!(
        found[0].contains("heads = 4, heads = 8 or embed_dim = 35"),
        "{}",
        found[0]
    );
    assert!(found[1].contains("ff_dim = 9,000"), "{}", found[1]);
    assert_eq!(
        codes(set("small", &["embed_dim=2732"])),
        ["nf::model::accumulator_length"]
    );
    assert!(set("small", &["embed_dim=2730"]).is_ok());
    assert!(set("small", &["vocab=65536", "compute=fp32"]).is_ok());
    assert_eq!(
        codes(set(
            "small",
            &["embed_dim=65536", "layers=1000", "compute=fp32"]
        )),
        ["nf::model::too_large"]
    );
}

#[test]
fn reference_only_formats_are_refused_for_hardware() {
    for change in ["compute=fp32", "weight_format=fp32"] {
        let config = set("tiny", &[change]).unwrap();
        assert_eq!(
            require_hardware(&config).unwrap_err().code,
            "nf::model::reference_only"
        );
    }
}

#[test]
fn unknown_models_are_told_apart_from_missing_files() {
    assert_eq!(codes(set("smal", &[])), ["nf::config::unknown_model"]);
    assert_eq!(codes(set("no/such.toml", &[])), ["nf::io::cannot_read"]);
}

#[test]
fn missing_keys_may_come_from_arguments() {
    let text = "vocab = 64\nseq_len = 8\nembed_dim = 8\nheads = 2\nff_dim = 16\n";
    let missing = parse_model("m", "m.toml", text, &[]);
    assert_eq!(codes(missing), ["nf::config::missing_key"]);
    assert!(parse_model("m", "m.toml", text, &["layers=1".into()]).is_ok());
    assert_eq!(
        parse_model("§ x", "m.toml", &format!("{text}layers = 1"), &[])
            .unwrap()
            .name,
        "x"
    );
}

#[test]
fn vocabulary_budget_of_the_paper() {
    let budget = VocabularyBudget::of(&load_model("shakespeare-334k", &[]).unwrap());
    assert_eq!((budget.embedding, budget.layers), (22_528, 311_168));
    assert!((budget.embedding_share - 0.0675).abs() < 1e-4);
    assert!(budget.warning().is_none());
    let small = VocabularyBudget::of(&load_model("small", &[]).unwrap());
    assert!(small.warning().unwrap().message.contains("below 20,000"));
    let middle = VocabularyBudget::of(&set("shakespeare-334k", &["layers=1"]).unwrap());
    assert!(middle.warning().unwrap().message.contains("below 80,000"));
}

#[test]
fn the_device_catalogue_is_legal() {
    let devices = device::catalogue().unwrap();
    let names: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "zcu102",
            "zcu104",
            "zcu106",
            "kv260",
            "kria-kr260",
            "ultra96v2",
            "vck190",
            "u50",
            "u55c",
            "u280",
            "vcu118",
            "arty-a7-100"
        ]
    );
    let zcu102 = &devices[0];
    assert_eq!(
        (
            zcu102.lut,
            zcu102.ff,
            zcu102.dsp,
            zcu102.bram36,
            zcu102.uram
        ),
        (274_080, 548_160, 2_520, 912, 0)
    );
    assert_eq!(zcu102.yosys_family(), Some("xcup"));
    for device in &devices {
        assert!(
            !device.source.is_empty() && device.clock_mhz > 0,
            "{}",
            device.name
        );
        // Flip-flops come in pairs with look-up tables on all of these families.
        assert_eq!(device.ff, 2 * device.lut, "{}", device.name);
    }
}

#[test]
fn a_device_of_ones_own_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("board.toml");
    let text = device::to_toml(&load_device("zcu104").unwrap()).replace("zcu104", "mine");
    std::fs::write(&path, text).unwrap();
    let device = load_device(path.to_str().unwrap()).unwrap();
    assert_eq!((device.name.as_str(), device.uram), ("mine", 96));
    std::fs::write(&path, "lut = \"many\"\nluts = 3\n").unwrap();
    let Err(problems) = load_device(path.to_str().unwrap()) else {
        panic!("accepted");
    };
    assert_eq!(problems.iter().count(), 3, "{problems}");
    assert!(
        load_device("zcu103")
            .unwrap_err()
            .to_string()
            .contains("did you mean `zcu102`")
    );
}

proptest::proptest! {
    /// Whatever a file holds, the answer is a model or problems, never a panic.
    #[test]
    fn no_text_makes_the_reader_panic(lines in proptest::collection::vec(
        "(vocab|layers|heads|gelu|lr_peak|name|[a-z]{0,3}) ?=? ?(-?[0-9]{0,9}|\"[a-zé\n]{0,4}\"?|0x1F|[0-9.e-]{0,6}|\\[\\[?x\\]?|\u{fe}?)", 0..12)
    ) {
        drop(parse_model("m", "m.toml", &lines.join("\n"), &[]));
    }

    #[test]
    fn no_argument_makes_the_reader_panic(argument in "\\PC{0,24}") {
        drop(with_arguments(&load_model("tiny", &[]).unwrap(), &[argument]));
    }
}
