//! `nfgen bitnet` from the command line: broken files end with one clear error and exit code 2, odd inputs with
//! numbers, and the report holds every experiment.

#[path = "support/command.rs"]
mod command;

use std::path::Path;

use command::nfgen;
use nfgen::bitnet::gguf::{GgufFile, TensorType};
use nfgen::bitnet::make::{Given, MakeOptions, make_model};
use nfgen::bitnet::shapes::Shape;
use nfgen::bitnet::ternary::I2sLayout;

fn options(dtype: TensorType) -> MakeOptions {
    MakeOptions {
        shape: Shape {
            width: 256,
            feed_forward: 512,
            layers: 1,
            heads: 2,
            kv_heads: 1,
            vocab: 300,
        },
        context: 64,
        architecture: "bitnet-b1.58".into(),
        dtype,
        layout: I2sLayout::Block128,
        zeros: 0.4,
        seed: 3,
    }
}

fn model(dtype: TensorType) -> Vec<u8> {
    make_model(&options(dtype), Given::new())
        .expect("a model")
        .to_bytes()
}

/// Position of a tensor's dimensions in the table.
fn dims_of(bytes: &[u8], name: &str) -> usize {
    let mut key = (name.len() as u64).to_le_bytes().to_vec();
    key.extend_from_slice(name.as_bytes());
    let at = bytes.windows(key.len()).position(|w| w == key);
    at.expect("the tensor is listed") + key.len() + 4
}

/// Position of a tensor's data.
fn data_of(bytes: &[u8], name: &str) -> usize {
    let file = GgufFile::parse(bytes.to_vec().into()).expect("sound");
    let tensor = file.tensor(name).expect("there");
    (file.data_start + tensor.offset) as usize
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn refused(folder: &Path, bytes: &[u8], words: &[&str]) {
    std::fs::write(folder.join("m.gguf"), bytes).expect("written");
    for arguments in [
        &["bitnet", "decode", "m.gguf", "--tokens", "2"][..],
        &["bitnet", "decode", "m.gguf", "--tokens", "2", "--json"],
    ] {
        let ran = nfgen(folder, arguments);
        assert_eq!(ran.code, 2, "{words:?}: {}{}", ran.stdout, ran.stderr);
        let errors = ran.stderr.matches("error[nf::bitnet::").count();
        assert_eq!(errors, 1, "{words:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        // The text is wrapped and drawn on; only its words count.
        let said: String = ran
            .stderr
            .split(|c: char| c.is_whitespace() || c == '│')
            .filter(|w| !w.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        for word in words {
            assert!(said.contains(word), "no `{word}` in: {said}");
        }
        if arguments.contains(&"--json") {
            let object: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
            assert!(object["error"]["code"].is_string(), "{object}");
            assert!(object["errors"].is_null(), "{object}");
        }
    }
}

#[test]
fn broken_files_are_refused_with_one_error() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let folder = folder.path();
    let good = model(TensorType::I2S);
    let edited = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        put(&mut bytes, at, value);
        bytes
    };
    refused(
        folder,
        &edited(0, b"GGML"),
        &["m.gguf", "expected \"GGUF\""],
    );
    refused(
        folder,
        &edited(4, &[2]),
        &["GGUF version 2", "accepted: version 3"],
    );
    refused(folder, &edited(4, &3u32.to_be_bytes()), &["big-endian"]);
    refused(
        folder,
        &edited(8, &[255; 8]),
        &["tensor count 18446744073709551615"],
    );
    refused(folder, &edited(16, &[255; 8]), &["key count"]);
    let q = dims_of(&good, "blk.0.attn_q.weight");
    refused(
        folder,
        &edited(q, &[255; 8]),
        &["blk.0.attn_q.weight", "overflow"],
    );
    refused(
        folder,
        &edited(q, &200u64.to_le_bytes()),
        &["blk.0.attn_q.weight", "200"],
    );
    refused(
        folder,
        &edited(q + 16, &[39]),
        &["TL2", "blk.0.attn_q.weight"],
    );
    refused(
        folder,
        &edited(q + 16, &[99]),
        &["99", "blk.0.attn_q.weight"],
    );
    refused(
        folder,
        &edited(q + 20, &(1u64 << 60).to_le_bytes()),
        &["truncated or wrong offset"],
    );
    refused(
        folder,
        &edited(q + 20, &u64::MAX.to_le_bytes()),
        &["alignment"],
    );
    let k = dims_of(&good, "blk.0.attn_k.weight");
    let offset: [u8; 8] = good[q + 20..q + 28].try_into().expect("eight bytes");
    refused(folder, &edited(k + 20, &offset), &["overlap"]);
    let at = good
        .windows(12)
        .position(|w| w == b"bitnet-b1.58")
        .expect("named");
    refused(
        folder,
        &edited(at, b"qwen3-noooop"),
        &["qwen3-noooop", "bitnet-b1.58"],
    );
    // Code 3: columns 0 to 127 of row 1 begin 64 bytes in.
    let data = data_of(&good, "blk.0.attn_q.weight");
    refused(
        folder,
        &edited(data + 64, &[0b1100_0000]),
        &["blk.0.attn_q.weight", "row 1", "column 0"],
    );
    let scale = data + 256 * 256 / 4;
    refused(
        folder,
        &edited(scale, &f32::NAN.to_le_bytes()),
        &["blk.0.attn_q.weight", "NaN"],
    );
    let norm = data_of(&good, "blk.0.attn_norm.weight");
    refused(folder, &edited(norm, &f32::NAN.to_le_bytes()), &["NaN"]);

    // Truncated: every part of the file is cut somewhere.
    let steps = 24;
    for step in 0..steps {
        let length = good.len() * step / steps;
        refused(folder, &good[..length], &["m.gguf"]);
    }
}

/// A TQ file whose scales differ within a row would need a drain per block.
#[test]
fn tq_rows_with_two_scales_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for (dtype, block) in [(TensorType::Tq1_0, 54), (TensorType::Tq2_0, 66)] {
        let good = model(dtype);
        let mut bad = good.clone();
        let name = "blk.0.ffn_down.weight";
        // Rows of 512 are two blocks; the scale is the last two bytes of each.
        let at = data_of(&good, name) + 3 * block - 2;
        put(&mut bad, at, &half::f16::from_f32(0.25).to_le_bytes());
        refused(folder.path(), &bad, &[name, "row 1", "differ"]);
    }
}

/// Weights of the norm that are zero make every activation zero: quantisers must not divide by it.
#[test]
fn zero_activations_give_numbers() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut bytes = model(TensorType::I2S);
    let norm = data_of(&bytes, "blk.0.attn_norm.weight");
    bytes[norm..norm + 4 * 256].fill(0);
    std::fs::write(folder.path().join("m.gguf"), bytes).expect("written");
    for quantiser in ["a", "b", "hf"] {
        let ran = nfgen(
            folder.path(),
            &[
                "bitnet",
                "decode",
                "m.gguf",
                "--tokens",
                "3",
                "--ignore-end",
                "--quantiser",
                quantiser,
                "--json",
            ],
        );
        assert_eq!(ran.code, 0, "{quantiser}: {}", ran.stderr);
        let object: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(object["tokens"].as_array().map(Vec::len), Some(3));
    }
}

/// Runs one line: exit code 2, one error of this code that says `words`, and no file more than before.
fn fails(folder: &Path, arguments: &[&str], code: &str, words: &[&str]) {
    let count = || std::fs::read_dir(folder).expect("listed").count();
    let before = count();
    let ran = nfgen(folder, arguments);
    let said: Vec<&str> = ran
        .stderr
        .split(|c: char| c.is_whitespace() || c == '│')
        .filter(|w| !w.is_empty())
        .collect();
    let said = said.join(" ");
    assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
    assert_eq!(said.matches("error[").count(), 1, "{ran:?}");
    assert!(said.contains(&format!("error[{code}]")), "{ran:?}");
    for word in words {
        assert!(said.contains(word), "no `{word}` in: {said}");
    }
    assert!(ran.stdout.is_empty(), "{ran:?}");
    assert_eq!(count(), before, "{arguments:?} left a file");
}

/// What would take for ever, fill the memory, or silently do something else.
#[test]
fn arguments_out_of_bounds_are_refused_at_once() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let folder = folder.path();
    std::fs::write(folder.join("m.gguf"), model(TensorType::I2S)).expect("written");
    std::fs::create_dir(folder.join("folder")).expect("made");
    let usage = "nf::cli::usage";
    let refused = "nf::bitnet::refused";
    let file = "m.gguf";
    let decode = |rest: &[&str], words: &[&str]| {
        let line = [&["bitnet", "decode", file][..], rest].concat();
        fails(folder, &line, refused, words);
    };
    decode(&["--tokens", "0"], &["0 tokens", "--tokens takes 1 to 64"]);
    decode(&["--tokens", "65"], &["context is 64", "1 to 64"]);
    decode(
        &["--temperature", "-1", "--tokens", "2"],
        &["temperature -1"],
    );
    decode(
        &["--temperature", "NaN", "--tokens", "2"],
        &["temperature NaN"],
    );
    let long = "a".repeat(100_000);
    decode(&["--prompt", &long], &["shorten the prompt"]);
    let project = |rest: &[&str], code: &str, words: &[&str]| {
        let line = [&["bitnet", "project"][..], rest].concat();
        fails(folder, &line, code, words);
    };
    let shape = &["--shape", "1x2147483648"];
    project(shape, usage, &["up to 2^29 weights"]);
    let shape = &["--shape", "1x536870912", "--tokens", "4096"];
    project(shape, refused, &["4096 tokens", "536870912"]);
    let shape = &["--shape", "4x64", "--rows", "63"];
    project(shape, "nf::bitnet::array", &["63 rows", "multiple of 8"]);
    let shape = &["--shape", "4x64", "--tensor", "x"];
    project(shape, usage, &["--tensor", "cannot be used with"]);
    let shape = &["--shape", "4x64", "--latency", "4294967295"];
    project(shape, usage, &["100000"]);
    let make = ["bitnet", "make-model", "new.gguf", "--vocab", "99999999999"];
    fails(folder, &make, refused, &["99999999999", "16777216"]);
    let convert = ["bitnet", "convert", "m.gguf", "folder"];
    fails(
        folder,
        &convert,
        "nf::io::cannot_write",
        &["is a directory"],
    );
    let inspect = ["bitnet", "inspect", "folder"];
    fails(folder, &inspect, "nf::io::cannot_read", &["is a directory"]);
}

/// The reason names the file and what kind of file it is, before anything about its parts.
#[test]
fn another_architecture_is_named_first() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut writer = nfgen::bitnet::gguf::GgufWriter::new();
    let name = nfgen::bitnet::gguf::Value::String("lla\u{1b}[31mma".into());
    writer.key("general.architecture", name);
    std::fs::write(folder.path().join("m.gguf"), writer.to_bytes()).expect("written");
    let line = ["bitnet", "decode", "m.gguf"];
    let words = ["m.gguf: architecture", "accepted: bitnet-b1.58"];
    fails(folder.path(), &line, "nf::bitnet::refused", &words);
    let ran = nfgen(folder.path(), &line);
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
}

#[test]
fn programs_that_cannot_end_or_store_other_than_they_say_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = "  row 15..15 ex1=pass s1=a dest=none store=last\n";
    let load = "  load pairs=0..7 into=both base=0 data=1\n";
    for (text, words) in [
        (
            format!(
                "group 0 results=1\n{load}  execute outputs=65535 tile=65535 tokens=255 steps=65535 store=last final\n"
            ),
            &["p.cgla", "accepted: up to 16777216"][..],
        ),
        (
            format!(
                "group 0 results=7\n{store}{load}  execute outputs=1 steps=3 store=last final\n"
            ),
            &["p.cgla", "group 0: results=7", "stores 1 words"],
        ),
        (
            "group 0\nend\ngroup 0\nend\n".into(),
            &["p.cgla: line 3", "appears twice"],
        ),
        ("group 9\n".into(), &["line 1: group `9`; accepted: 0 to 3"]),
    ] {
        std::fs::write(folder.path().join("p.cgla"), text).expect("written");
        // Nothing is written for a program that is refused.
        let line = ["bitnet", "run", "p.cgla", "--image", "image"];
        fails(folder.path(), &line, "nf::bitnet::program", words);
    }
}

#[test]
fn the_verbs_explain_themselves() {
    let folder = tempfile::tempdir().expect("temporary folder");
    for verb in [
        "inspect",
        "convert",
        "make-model",
        "project",
        "decode",
        "bench",
        "run",
        "report",
    ] {
        let ran = nfgen(folder.path(), &["bitnet", verb, "--help"]);
        assert_eq!(ran.code, 0);
        assert!(ran.stdout.contains("Examples:"), "{verb} has no examples");
        assert!(ran.stdout.contains("--json"), "{verb} has no --json");
    }
}

#[test]
fn the_report_holds_every_experiment() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let ran = nfgen(
        folder.path(),
        &["bitnet", "report", "-o", "r.html", "--json"],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let object: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(object["kernel_points"].as_array().map(Vec::len), Some(5));
    assert_eq!(object["baselines"].as_array().map(Vec::len), Some(5));
    assert_eq!(object["baselines"][0]["normalised_error"], 0.0);
    for baseline in 1..5 {
        let error = object["baselines"][baseline]["normalised_error"].as_f64();
        assert!(error.is_some_and(|e| e > 0.01 && e < 0.3), "{error:?}");
    }
    // Three weight formats on one to four ports; 64 rows divide by 3 ports not at all.
    assert_eq!(object["models"].as_array().map(Vec::len), Some(9));
    let page = std::fs::read_to_string(folder.path().join("r.html")).expect("written");
    for heading in [
        "Kernel time against loaded words",
        "Projected times",
        "single-stream baselines",
        "Energy per token",
        "Roofline",
    ] {
        assert!(page.contains(heading), "{heading}");
    }
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}
