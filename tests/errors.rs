//! What a user sees for each diagnostic code: exit code and stderr of a smallest case.

#[path = "support/command.rs"]
mod command;

use std::collections::BTreeSet;

use command::nfgen;
use nfgen::diag::codes;

/// One case: the code it is about, files to lay out, arguments.
struct Case {
    code: &'static str,
    files: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
}

const fn case(
    code: &'static str,
    files: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
) -> Case {
    Case {
        code,
        files,
        arguments,
    }
}

const SHAPE: &str =
    "vocab = 256\nseq_len = 16\nembed_dim = 16\nheads = 2\nff_dim = 32\nlayers = 1\n";

const SMALL_DEVICE: &str = "part = \"xc7a15tcpg236-1\"\nfamily = \"series7\"\nlut = 10400\nff = 20800\ndsp = 45\n\
    dsp_kind = \"DSP48E1\"\nbram36 = 25\nuram = 0\ndistributed_ram_bits = 204800\n";

const CASES: &[Case] = &[
    case(
        "nf::bitnet::array",
        &[],
        &[
            "bitnet",
            "project",
            "--shape",
            "4x64",
            "--backend",
            "model",
            "--rows",
            "30",
        ],
    ),
    case(
        "nf::bitnet::bad_file",
        &[("m.gguf", "GGUF\u{3}\0\0\0\u{7}")],
        &["bitnet", "inspect", "m.gguf"],
    ),
    case(
        "nf::bitnet::program",
        &[(
            "p.cgla",
            "group 0 results=1\n  load pairs=0..0 base=0 data=2a\n  lode 7\n",
        )],
        &["bitnet", "run", "p.cgla"],
    ),
    case(
        "nf::bitnet::refused",
        &[],
        &["bitnet", "project", "--shape", "4x64", "--tokens", "0"],
    ),
    case(
        "nf::cli::unknown_code",
        &[],
        &["explain", "nf::model::head_divide"],
    ),
    case("nf::cli::usage", &[], &["devices", "--jsn"]),
    case(
        "nf::config::missing_key",
        &[("m.toml", "vocab = 256\nlayers = 2\n")],
        &["check", "--model", "m.toml"],
    ),
    case(
        "nf::config::not_a_choice",
        &[],
        &["check", "--set", "gelu=relu"],
    ),
    case(
        "nf::config::out_of_range",
        &[],
        &[
            "check",
            "--set",
            "adam_beta1=0.99999999",
            "--set",
            "vocab=1",
        ],
    ),
    case("nf::config::set_syntax", &[], &["check", "--set", "heads"]),
    case(
        "nf::config::syntax",
        &[(
            "m.toml",
            "vocab = 256\nseq_len 32\nlayers = \"two\"\nlayers = 2\n",
        )],
        &["check", "--model", "m.toml"],
    ),
    case("nf::config::unknown_device", &[], &["devices", "zcu103"]),
    case(
        "nf::config::unknown_key",
        &[(
            "m.toml",
            "# a model\nvocab = 256\nhiden = 3\nseq_len = 16\nembed_dim = 16\nheads = 2\nff_dim = 32\nlayer = 1\nlayers = 1\n",
        )],
        &["check", "--model", "m.toml"],
    ),
    case(
        "nf::config::unknown_model",
        &[],
        &["check", "--model", "shakespear-334k"],
    ),
    case(
        "nf::config::wrong_type",
        &[],
        &["check", "--set", "heads=two", "--set", "lr_peak=true"],
    ),
    case(
        "nf::io::cannot_read",
        &[],
        &["check", "--model", "absent.toml"],
    ),
    case(
        "nf::model::accumulator_length",
        &[],
        &["check", "--set", "embed_dim=4096", "--set", "ff_dim=8193"],
    ),
    case(
        "nf::model::heads_divide",
        &[("m.toml", SHAPE)],
        &["check", "--model", "m.toml", "--set", "heads=3"],
    ),
    case(
        "nf::model::small_layers",
        &[],
        &["check", "--model", "tiny", "--set", "layers=2", "--toml"],
    ),
    case(
        "nf::model::too_large",
        &[],
        &[
            "check",
            "--set",
            "embed_dim=65536",
            "--set",
            "layers=1000",
            "--set",
            "compute=fp32",
        ],
    ),
    case(
        "nf::plan::does_not_fit",
        &[("small.toml", SMALL_DEVICE)],
        &["plan", "--device", "small.toml", "--array", "8", "--quiet"],
    ),
    case(
        "nf::plan::impossible_machine",
        &[],
        &[
            "plan",
            "--model",
            "tiny",
            "--array",
            "8",
            "--adam-lanes",
            "3",
        ],
    ),
    case(
        "nf::model::reference_only",
        &[],
        &["plan", "--model", "tiny", "--set", "compute=fp32"],
    ),
    case(
        "nf::reference::corpus",
        &[("short.txt", "short")],
        &[
            "train",
            "--model",
            "tiny",
            "--corpus",
            "short.txt",
            "--samples",
            "1",
            "-o",
            "run",
        ],
    ),
    case(
        "nf::reference::file",
        &[("junk.safetensors", "junk"), ("text.txt", "text")],
        &["eval", "junk.safetensors", "--corpus", "text.txt"],
    ),
    case(
        "nf::reference::invalid",
        &[("text.txt", "To be, or not to be, that is the question.\n")],
        &[
            "train",
            "--model",
            "tiny",
            "--corpus",
            "text.txt",
            "--samples",
            "2",
            "--batch",
            "0",
            "-o",
            "run",
        ],
    ),
    case(
        "nf::reference::token",
        &[("tokens.bin", "to be or caf\u{e9}")],
        &[
            "train",
            "--model",
            "tiny",
            "--set",
            "seq_len=12",
            "--tokens",
            "tokens.bin",
            "--samples",
            "1",
        ],
    ),
    case(
        "nf::reference::window_length",
        &[("tokens.bin", "too short")],
        &[
            "train",
            "--model",
            "tiny",
            "--set",
            "seq_len=12",
            "--tokens",
            "tokens.bin",
            "--samples",
            "1",
        ],
    ),
    case(
        "nf::emit::foreign_folder",
        &[("mine/thesis.tex", "")],
        &["emit", "--model", "tiny", "-o", "mine"],
    ),
    case(
        "nf::io::cannot_write",
        &[("file", "")],
        &["emit", "--model", "tiny", "-o", "file/out"],
    ),
    case(
        "nf::sim::rtl",
        &[("text.txt", "To be, or not to be, that is the question.\n")],
        &[
            "sim", "--model", "tiny", "--corpus", "text.txt", "--rtl", "absent",
        ],
    ),
    case(
        "nf::sim::stalls",
        &[("text.txt", "To be, or not to be, that is the question.\n")],
        &[
            "sim", "--model", "tiny", "--corpus", "text.txt", "--stalls", "2",
        ],
    ),
    case(
        "nf::report::input",
        &[("sim.json", "{\"rtl_sha256\": \"0123456789abcdef\"}")],
        &[
            "report", "--model", "tiny", "--array", "4", "--sim", "sim.json",
        ],
    ),
    case(
        "nf::sweep::file",
        &[(
            "s.toml",
            "models = [\"tiny\"]\ndevices = [\"zcu102\"]\narrays = [4]\n",
        )],
        &["sweep", "--plan", "s.toml"],
    ),
    case(
        "nf::synth::family",
        &[],
        &[
            "synth", "--device", "vck190", "--model", "tiny", "--array", "4",
        ],
    ),
    case(
        "nf::synth::unknown_module",
        &[],
        &[
            "synth",
            "--model",
            "tiny",
            "--array",
            "4",
            "--modules",
            "nf_mac_cells",
        ],
    ),
];

/// Codes whose smallest case is elsewhere, with the place.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "nf::emit::bad_path",
        "src/emit/fileset.rs: module names are checked before they become paths",
    ),
    ("nf::emit::bad_text", "tests/determinism.rs"),
    (
        "nf::emit::internal",
        "src/cli/emit.rs: a fault of nfgen itself",
    ),
    ("nf::emit::wrong_ports", "tests/determinism.rs"),
    (
        "nf::plan::no_machine",
        "src/cli/plan.rs: configuration refuses such models before",
    ),
    (
        "nf::reference::not_finite",
        "src/cli/reference.rs: needs a run that diverges",
    ),
    (
        "nf::reference::state",
        "src/cli/reference.rs: needs a checkpoint of another shape",
    ),
    (
        "nf::reference::too_long",
        "src/cli/reference.rs: configuration refuses such models before",
    ),
    ("nf::sim::build", "src/cli/sim.rs: needs Verilator"),
    ("nf::sim::cache", "tests/bad_input.rs"),
    ("nf::sim::hung", "src/cli/sim.rs: needs a design that stops"),
    ("nf::sim::reference", "src/cli/sim.rs: needs Verilator"),
    ("nf::sim::tool", "tests/bad_input.rs"),
    ("nf::sim::wrong_core", "src/cli/sim.rs: needs Verilator"),
    ("nf::synth::cache", "src/cli/synth.rs: needs Yosys"),
    ("nf::synth::refused", "src/cli/synth.rs: needs Yosys"),
    (
        "nf::synth::tool",
        "src/cli/synth.rs: needs a machine without Yosys",
    ),
];

#[test]
fn every_case_says_what_it_should() {
    for case in CASES {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (name, text) in case.files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("created");
            std::fs::write(path, text).expect("written");
        }
        let ran = nfgen(folder.path(), case.arguments);
        assert!(ran.stderr.contains(case.code), "{}: {ran:?}", case.code);
        // A plan that does not fit is shown all the same; every other refusal leaves stdout empty.
        let refused = ran.code == 2 && case.code != "nf::plan::does_not_fit";
        assert_eq!(ran.stdout.is_empty(), refused, "{}: {ran:?}", case.code);
        let shown = format!(
            "$ nfgen {}\nexit code {}\n{}",
            case.arguments.join(" "),
            ran.code,
            without_hash(&ran.stderr)
        );
        insta::assert_snapshot!(case.code.replace("::", "-"), shown);
    }
}

/// The hash of this version's RTL changes with every block; the message around it does not.
fn without_hash(text: &str) -> String {
    match text.split_once("this design is ") {
        Some((before, after)) => {
            format!(
                "{before}this design is HASH{}",
                after.trim_start_matches(char::is_alphanumeric)
            )
        }
        None => text.to_string(),
    }
}

#[test]
fn every_code_has_a_case() {
    let here = CASES.iter().map(|case| case.code);
    let elsewhere = ELSEWHERE.iter().map(|(code, place)| {
        let file = place.split(':').next().unwrap_or(place);
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).expect("the named file is there");
        assert!(text.contains(code), "{file} does not mention {code}");
        *code
    });
    let covered: BTreeSet<&str> = here.chain(elsewhere).collect();
    let all: BTreeSet<&str> = codes::ALL.iter().map(|code| code.name).collect();
    let missing: Vec<&&str> = all.difference(&covered).collect();
    assert!(
        missing.is_empty(),
        "codes without a case in tests/errors.rs: {missing:?}"
    );
    let unknown: Vec<&&str> = covered.difference(&all).collect();
    assert!(
        unknown.is_empty(),
        "cases of codes that do not exist: {unknown:?}"
    );
}
