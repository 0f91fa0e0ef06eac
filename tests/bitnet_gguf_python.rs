//! Agreement with the Python `gguf` package: it reads what is written here, and its own TQ1_0
//! and TQ2_0 quantisers give the same bytes.

use std::io::Write;
use std::process::Command;

use nfgen::bitnet::gguf::{GgufFile, TensorType};
use nfgen::bitnet::make::{Given, MakeOptions, make_model};
use nfgen::bitnet::shapes::Shape;
use nfgen::bitnet::ternary::{I2sLayout, TernaryMatrix};

fn python(script: &str, arguments: &[&std::path::Path]) -> Option<String> {
    let probe = Command::new("python3")
        .args(["-c", "import gguf, numpy"])
        .output();
    if !probe.is_ok_and(|p| p.status.success()) {
        assert!(
            std::env::var_os("NFGEN_REQUIRE_TOOLS").is_none(),
            "python3 with gguf and numpy is required"
        );
        println!("skipped: python3 with the packages gguf and numpy not found");
        return None;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(script.as_bytes()).unwrap();
    let run = Command::new("python3")
        .arg(file.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    Some(String::from_utf8(run.stdout).unwrap())
}

fn small(dtype: TensorType) -> MakeOptions {
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
        architecture: "bitnet".into(),
        dtype,
        layout: I2sLayout::Block128,
        zeros: 0.4,
        seed: 11,
    }
}

/// Reads each ternary tensor, dequantises it, quantises the result again, and prints a checksum
/// of both: trits weighted by position, and whether the bytes came back.
const READ: &str = r#"
import sys, numpy as np, gguf
reader = gguf.GGUFReader(sys.argv[1])
field = reader.get_field("general.architecture")
print(str(bytes(field.parts[field.data[0]]), "utf8"))
for t in reader.tensors:
    if t.tensor_type.name not in ("TQ1_0", "TQ2_0"):
        continue
    raw = np.array(t.data)
    x = gguf.quants.dequantize(raw, t.tensor_type)
    again = gguf.quants.quantize(x, t.tensor_type)
    trits = np.sign(x).astype(np.int64).reshape(-1)
    weight = np.arange(trits.size, dtype=np.int64) % 1009
    print(t.name, list(map(int, t.shape)), int((trits * weight).sum()), float(np.abs(x).max()),
          bool((again.reshape(-1) == raw.reshape(-1)).all()))
"#;

#[test]
fn files_written_here_are_read_there() {
    for dtype in [TensorType::Tq1_0, TensorType::Tq2_0] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        make_model(&small(dtype), Given::new())
            .unwrap()
            .write(&path)
            .unwrap();
        let Some(output) = python(READ, &[&path]) else {
            return;
        };
        let file = GgufFile::open(&path).unwrap();
        let mut expected = vec!["bitnet".to_owned()];
        for tensor in file.tensors.iter().filter(|t| t.dtype.is_ternary()) {
            let m = TernaryMatrix::from_gguf(&file, tensor, I2sLayout::Block128).unwrap();
            let sum: i64 = (0..m.rows())
                .flat_map(|r| m.codes(r))
                .enumerate()
                .map(|(i, c)| (i64::from(c) - 1) * (i as i64 % 1009))
                .sum();
            expected.push(format!(
                "{} [{}, {}] {sum} {:?} True",
                tensor.name,
                m.cols(),
                m.rows(),
                f64::from(m.scales.of(0))
            ));
        }
        assert_eq!(expected.len(), 8);
        assert_eq!(output.lines().collect::<Vec<_>>(), expected);
    }
}

/// Writes a file with the Python package: one TQ1_0, one TQ2_0 and one F16 tensor.
const WRITE: &str = r#"
import sys, numpy as np, gguf
w = gguf.GGUFWriter(sys.argv[1], "bitnet")
w.add_string("note", "written by python")
w.add_array("list", [1, 2, 3])
x = (((np.arange(4 * 512) * 7919) % 3) - 1).astype(np.float32).reshape(4, 512) * 0.5
for kind in (gguf.GGMLQuantizationType.TQ1_0, gguf.GGMLQuantizationType.TQ2_0):
    w.add_tensor(kind.name, gguf.quants.quantize(x, kind), raw_dtype=kind)
w.add_tensor("half", x.astype(np.float16))
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
"#;

#[test]
fn files_written_there_are_read_here() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("python.gguf");
    if python(WRITE, &[&path]).is_none() {
        return;
    }
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(
        file.get("note").unwrap().as_str(),
        Some("written by python")
    );
    let trits: Vec<i8> = (0..4 * 512u32).map(|i| (i * 7919 % 3) as i8 - 1).collect();
    let expected = TernaryMatrix::from_trits(4, 512, &trits, 0.5).unwrap();
    assert_eq!(file.tensors.len(), 3);
    for tensor in &file.tensors {
        let m = TernaryMatrix::from_gguf(&file, tensor, I2sLayout::Block128).unwrap();
        assert_eq!(m.packed(), expected.packed(), "{}", tensor.name);
        assert_eq!(m.scales.of(0), 0.5);
    }
}
