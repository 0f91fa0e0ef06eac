//! The header of a `.neuro` file, to the byte as the authors' .NET program writes it.

use super::neuro::{NeuroConfig, NeuroTensor, VERSION};

/// A number as .NET writes it: shortest digits, `3E-05` below 1e-4 and from 1e15 on.
pub(super) fn dotnet_number(x: f64) -> String {
    let text = format!("{x:e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    match exponent.parse::<i32>() {
        Ok(e) if !(-4..15).contains(&e) => {
            let sign = if e < 0 { '-' } else { '+' };
            format!("{digits}E{sign}{:02}", e.abs())
        }
        _ => format!("{x}"),
    }
}

/// A JSON string with .NET's escapes for the characters that it considers unsafe.
pub(super) fn dotnet_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '"' | '+' | '<' | '>' | '&' | '\'' | '`' => {
                out.push_str(&format!("\\u{:04X}", c as u32))
            }
            c if c.is_ascii() && !c.is_ascii_control() => out.push(c),
            c => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
    out.push('"');
    out
}

pub(super) fn header_text(c: &NeuroConfig, tensors: &[NeuroTensor]) -> String {
    let mut fields: Vec<(&str, String)> = vec![
        ("seqLen", c.seq_len.to_string()),
        ("embedDim", c.embed_dim.to_string()),
        ("numHeads", c.num_heads.to_string()),
        ("ffDim", c.ff_dim.to_string()),
        ("numLayers", c.num_layers.to_string()),
        ("vocabSize", c.vocab_size.to_string()),
        ("globalStep", c.global_step.to_string()),
        ("initialLr", dotnet_number(c.initial_lr)),
        ("currentLr", dotnet_number(c.current_lr)),
        ("lrPatience", c.lr_patience.to_string()),
        ("lrSchedule", dotnet_string(&c.lr_schedule)),
        ("warmupSteps", c.warmup_steps.to_string()),
        ("totalSteps", c.total_steps.to_string()),
    ];
    if let Some(version) = &c.app_version {
        fields.push(("appVersion", dotnet_string(version)));
    }
    let fields: Vec<String> = fields
        .into_iter()
        .map(|(k, v)| format!("    \"{k}\": {v}"))
        .collect();
    let tensors: Vec<String> = tensors
        .iter()
        .map(|t| {
            let shape: Vec<String> = t.shape.iter().map(|s| format!("        {s}")).collect();
            let name = dotnet_string(&t.name);
            format!(
                "    {{\n      \"name\": {name},\n      \"shape\": [\n{}\n      ]\n    }}",
                shape.join(",\n")
            )
        })
        .collect();
    let text = format!(
        "{{\n  \"version\": {VERSION},\n  \"config\": {{\n{}\n  }},\n  \"tensors\": [\n{}\n  ]\n}}",
        fields.join(",\n"),
        tensors.join(",\n")
    );
    text.replace('\n', "\r\n")
}
