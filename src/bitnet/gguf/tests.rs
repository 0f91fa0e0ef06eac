use proptest::prelude::*;

use super::*;

fn sample() -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer
        .key("general.architecture", Value::String("bitnet-b1.58".into()))
        .key("a.u8", Value::U8(7))
        .key(
            "a.nested",
            Value::Array(9, vec![Value::strings(["x", "yz"])]),
        )
        .key("a.f", Value::F32(0.5))
        .key("a.b", Value::Bool(true))
        .key("a.n", Value::Packed(3, vec![7, 0, 0xff, 0xff]));
    writer
        .tensor("w", &[128, 2], TensorType::I2S, vec![0x55; 64 + 32])
        .unwrap()
        .tensor("n", &[3], TensorType::F32, vec![0; 12])
        .unwrap()
        .tensor("t", &[256], TensorType::Tq1_0, vec![1; 54])
        .unwrap();
    writer.to_bytes()
}

fn message(bytes: Vec<u8>) -> String {
    GgufFile::parse(bytes.into()).unwrap_err().to_string()
}

#[test]
fn written_file_reads_back() {
    let file = GgufFile::parse(sample().into()).unwrap();
    assert_eq!(file.get("a.u8").unwrap().as_u64(), Some(7));
    assert_eq!(file.get("a.f").unwrap().as_f32(), Some(0.5));
    assert_eq!(
        file.get("a.nested").unwrap(),
        &Value::Array(9, vec![Value::strings(["x", "yz"])])
    );
    let w = file.tensor("w").unwrap();
    assert_eq!(
        (w.matrix(), w.size, w.dtype),
        ((2, 128), 96, TensorType::I2S)
    );
    assert!(file.data(w).unwrap()[..64].iter().all(|&b| b == 0x55));
}

/// A `Value` for each byte of an array would be 32 times the file.
#[test]
fn arrays_of_numbers_stay_as_they_lie() {
    let mut writer = GgufWriter::new();
    writer
        .key("i16", Value::Array(3, vec![Value::I16(7), Value::I16(-1)]))
        .key("bool", Value::Array(7, vec![Value::Bool(true)]));
    let good = writer.to_bytes();
    let file = GgufFile::parse(good.clone().into()).unwrap();
    let list = file.get("i16").unwrap();
    assert_eq!(list, &Value::Packed(3, vec![7, 0, 0xff, 0xff]));
    assert_eq!(list.integers().collect::<Vec<_>>(), [Some(7), None]);
    assert_eq!(list.summary(), "[2 values]");
    let mut again = GgufWriter::new();
    for (key, value) in &file.keys {
        again.key(key.clone(), value.clone());
    }
    assert_eq!(again.to_bytes(), good);
    let mut bad = good;
    let at = bad.iter().rposition(|&b| b == 1).unwrap();
    bad[at] = 2;
    assert!(message(bad).contains("truth value 2"));
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = sample();
    let used = bytes.len() - 10; // the last tensor's padding is not needed
    for length in 0..used {
        assert!(
            GgufFile::parse(bytes[..length].to_vec().into()).is_err(),
            "accepted {length} of {used} bytes"
        );
    }
}

#[test]
fn header_faults_are_named() {
    let good = sample();
    let mut bad = good.clone();
    bad[0] = b'X';
    assert!(message(bad).contains("expected \"GGUF\""));
    let mut bad = good.clone();
    bad[4] = 2;
    assert!(message(bad).contains("version 2"));
    let mut bad = good.clone();
    bad[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(message(bad).contains("big-endian"));
    let mut bad = good.clone();
    bad[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(message(bad).contains("tensor count 18446744073709551615"));
    let mut bad = good;
    bad[16..24].copy_from_slice(&(1u64 << 40).to_le_bytes());
    assert!(message(bad).contains("key count"));
}

/// Position of tensor `name`'s table fields behind its dimensions.
fn after_dims(bytes: &[u8], name: &str, rank: usize) -> usize {
    let mut key = (name.len() as u64).to_le_bytes().to_vec();
    key.extend_from_slice(name.as_bytes());
    key.extend_from_slice(&(rank as u32).to_le_bytes());
    let at = bytes.windows(key.len()).position(|w| w == key).unwrap();
    at + key.len() + 8 * rank
}

#[test]
fn tensor_table_faults_are_named() {
    let good = sample();
    let w = after_dims(&good, "w", 2);
    let n = after_dims(&good, "n", 1);
    let mut bad = good.clone();
    bad[w] = 39;
    let text = message(bad);
    assert!(text.contains("`w`") && text.contains("TL2"), "{text}");
    let mut bad = good.clone();
    bad[n + 4..n + 12].copy_from_slice(&0u64.to_le_bytes());
    assert!(message(bad).contains("overlap"));
    let mut bad = good.clone();
    bad[n + 4..n + 12].copy_from_slice(&(1u64 << 50).to_le_bytes());
    assert!(message(bad).contains("truncated or wrong offset"));
    let mut bad = good.clone();
    bad[n + 4..n + 12].copy_from_slice(&33u64.to_le_bytes());
    assert!(message(bad).contains("alignment"));
    let mut bad = good.clone();
    bad[w - 16..w - 8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(message(bad).contains("overflow"));
    let mut bad = good;
    let t = after_dims(&bad, "t", 1);
    bad[t - 8..t].copy_from_slice(&200u64.to_le_bytes());
    let text = message(bad);
    assert!(text.contains("`t`") && text.contains("256"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn flipped_bytes_never_panic(
        flips in proptest::collection::vec((0usize..600, any::<u8>()), 1..6),
        cut in 0usize..700,
    ) {
        let mut bytes = sample();
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut.max(1));
        if let Ok(file) = GgufFile::parse(bytes.into()) {
            for tensor in &file.tensors {
                prop_assert_eq!(file.data(tensor).unwrap().len() as u64, tensor.size);
            }
        }
    }
}
