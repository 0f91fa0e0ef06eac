//! Reads flat TOML tables against a list of fields and reports everything that is wrong at once.
//!
//! The same list serves files, `--set key=value`, the writer of resolved files and the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use crate::diag::{Diagnostic, Place, Problems, SourceText};

/// What a key accepts.
#[derive(Clone, Debug)]
pub enum Kind {
    Integer(RangeInclusive<u64>),
    /// FP32 bounds; an open bound is excluded.
    Real {
        low: f32,
        low_open: bool,
        high: f32,
        high_open: bool,
    },
    Choice(&'static [&'static str]),
    /// Any text without line breaks.
    Text,
    /// Letters, digits, `.`, `_`, `-`: used as a folder name.
    Name,
}

impl Kind {
    /// In words, for help lines.
    pub fn accepts(&self) -> String {
        match self {
            Kind::Integer(range) => format!(
                "an integer from {} to {}",
                grouped(*range.start()),
                grouped(*range.end())
            ),
            Kind::Real {
                low,
                low_open,
                high,
                high_open,
            } => format!(
                "a number {} {low} and {} {high}",
                if *low_open { "above" } else { "from" },
                if *high_open { "below" } else { "up to" },
            ),
            Kind::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|w| format!("\"{w}\"")).collect();
                format!("one of {}", quoted.join(", "))
            }
            Kind::Text => "a text in quotes, on one line".into(),
            Kind::Name => {
                "a name of letters, digits, `.`, `_` and `-`, starting with a letter or digit"
                    .into()
            }
        }
    }
}

/// `1,234,567`
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A value that its field accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Integer(u64),
    Real(f32),
    Text(String),
}

impl Value {
    /// As TOML writes it. Reals are the shortest text that gives the same FP32 number.
    pub fn to_toml(&self) -> String {
        match self {
            Value::Integer(value) => value.to_string(),
            Value::Real(value) => format!("{value:?}"),
            Value::Text(text) => toml::Value::String(text.clone()).to_string(),
        }
    }
}

/// One key of a file.
pub trait Field {
    fn key(&self) -> &'static str;
    fn kind(&self) -> &Kind;
    /// Whether a file may leave the key out.
    fn optional(&self) -> bool;
}

/// A checked value and where it was written.
#[derive(Clone, Debug)]
pub struct Setting {
    pub value: Value,
    pub place: Place,
}

/// Settings by key.
pub type Settings = BTreeMap<&'static str, Setting>;

/// What a file holds: the settings that are right, and the keys that appear at all.
#[derive(Debug, Default)]
pub struct FileSettings {
    pub settings: Settings,
    pub seen: BTreeSet<&'static str>,
}

/// Reads a whole file. Settings that are right are returned even when others are not.
pub fn read_file<F: Field>(
    source: &Arc<SourceText>,
    fields: &[F],
    problems: &mut Problems,
) -> FileSettings {
    let text = blank_broken_lines(source, problems);
    let (table, _) = DeTable::parse_recoverable(&text);
    let mut file = FileSettings::default();
    for (key, value) in table.get_ref() {
        let key_place = Place {
            source: source.clone(),
            span: key.span(),
        };
        let Some(field) = find(fields, key.get_ref(), &key_place, problems) else {
            continue;
        };
        file.seen.insert(field.key());
        let place = Place {
            source: source.clone(),
            span: value.span(),
        };
        if let Some(value) = check(field, value.get_ref(), &place, problems) {
            file.settings.insert(field.key(), Setting { value, place });
        }
    }
    file
}

/// Reports every syntax error and returns the text with those lines blanked, so that what is wrong with the other lines
/// can be told in the same go. Offsets stay as they are.
fn blank_broken_lines(source: &Arc<SourceText>, problems: &mut Problems) -> String {
    let mut text = source.text.clone();
    loop {
        let (_, errors) = DeTable::parse_recoverable(&text);
        let mut broken: Vec<(Range<usize>, String)> = Vec::new();
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            let start = text[..text.floor_char_boundary(span.start)]
                .rfind('\n')
                .map_or(0, |i| i + 1);
            let end = text[start..].find('\n').map_or(text.len(), |i| start + i);
            let again = broken.iter().any(|(line, _)| line.start == start);
            if again || text[start..end].trim().is_empty() {
                continue;
            }
            let place = Place {
                source: source.clone(),
                span,
            };
            problems.push(
                Diagnostic::new(
                    "nf::config::syntax",
                    format!("`{}` is not valid TOML: {}", source.name, error.message()),
                    "one `key = value` per line; text values stand in quotes, and each key appears once",
                )
                .at(&place, "here"),
            );
            broken.push((start..end, " ".repeat(end - start)));
        }
        if broken.is_empty() {
            return text;
        }
        for (line, blanks) in broken {
            text.replace_range(line, &blanks);
        }
    }
}

/// Reports the keys without a default that a file does not give.
pub fn require_keys<F: Field>(
    source: &SourceText,
    fields: &[F],
    given: impl Fn(&str) -> bool,
    problems: &mut Problems,
) {
    // After a syntax error it is unknown what the file gives.
    if problems.iter().any(|d| d.code == "nf::config::syntax") {
        return;
    }
    let missing: Vec<&F> = fields
        .iter()
        .filter(|field| !field.optional() && !given(field.key()))
        .collect();
    if missing.is_empty() {
        return;
    }
    let keys: Vec<&str> = missing.iter().map(|field| field.key()).collect();
    let lines: Vec<String> = missing
        .iter()
        .map(|field| format!("{}: {}", field.key(), field.kind().accepts()))
        .collect();
    problems.push(Diagnostic::new(
        "nf::config::missing_key",
        format!("`{}` does not give {}", source.name, keys.join(", ")),
        format!("add {}", lines.join("; ")),
    ));
}

/// Reads one `key=value` argument. A value that is no TOML is taken as a word: `--set gelu=erf`.
pub fn read_argument<F: Field>(
    argument: &str,
    fields: &[F],
    problems: &mut Problems,
) -> Option<(&'static str, Setting)> {
    let source = SourceText::new("--set", argument);
    let place = |span: Range<usize>| Place {
        source: source.clone(),
        span,
    };
    let Some((key, text)) = argument.split_once('=') else {
        problems.push(
            Diagnostic::new(
                "nf::config::set_syntax",
                format!("`--set {argument}` has no `=`"),
                "write `--set key=value`, for example `--set heads=4`",
            )
            .at(&place(0..argument.len()), "expected key=value"),
        );
        return None;
    };
    let value_place = place(key.len() + 1..argument.len());
    let key_place = place(0..key.len());
    let field = find(fields, key.trim(), &key_place, problems)?;
    let word = || DeValue::String(text.trim().into());
    let value = match DeValue::parse(text) {
        // A name such as `1e3` or `7b` is a word although TOML would read a number into it.
        _ if matches!(field.kind(), Kind::Text | Kind::Name) && !text.contains('"') => word(),
        Ok(value) => value.into_inner(),
        Err(_) => word(),
    };
    let value = check(field, &value, &value_place, problems)?;
    Some((
        field.key(),
        Setting {
            value,
            place: value_place,
        },
    ))
}

fn find<'f, F: Field>(
    fields: &'f [F],
    key: &str,
    place: &Place,
    problems: &mut Problems,
) -> Option<&'f F> {
    let found = fields.iter().find(|field| field.key() == key);
    if found.is_none() {
        let names: Vec<&str> = fields.iter().map(Field::key).collect();
        let help = match nearest(key, &names) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known keys: {}", names.join(", ")),
        };
        problems.push(
            Diagnostic::new(
                "nf::config::unknown_key",
                format!("unknown key `{key}`"),
                help,
            )
            .at(place, "not a key"),
        );
    }
    found
}

/// The candidate closest to `word` by edit distance, if it is close enough to be a slip of the hand.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .map(|candidate| (edit_distance(word, candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn check<F: Field>(
    field: &F,
    value: &DeValue<'_>,
    place: &Place,
    problems: &mut Problems,
) -> Option<Value> {
    let key = field.key();
    let result = match (field.kind(), value) {
        (Kind::Integer(range), DeValue::Integer(number)) => {
            match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(n) if u64::try_from(n).is_ok_and(|n| range.contains(&n)) => {
                    Ok(Value::Integer(n as u64))
                }
                _ => Err((
                    "nf::config::out_of_range",
                    format!("{key} = {} is out of range", number.as_str()),
                )),
            }
        }
        (kind @ Kind::Real { .. }, DeValue::Float(number)) => real(key, kind, number.as_str()),
        (kind @ Kind::Real { .. }, DeValue::Integer(number)) if number.radix() == 10 => {
            real(key, kind, number.as_str())
        }
        (Kind::Choice(words), DeValue::String(word)) => {
            if words.contains(&word.as_ref()) {
                Ok(Value::Text(word.to_string()))
            } else {
                Err((
                    "nf::config::not_a_choice",
                    format!("{key} cannot be {word:?}"),
                ))
            }
        }
        (Kind::Text, DeValue::String(text)) if !text.contains(char::is_control) => {
            Ok(Value::Text(text.to_string()))
        }
        (Kind::Name, DeValue::String(text)) if is_name(text) => Ok(Value::Text(text.to_string())),
        (Kind::Text | Kind::Name, DeValue::String(text)) => Err((
            "nf::config::not_a_choice",
            format!("{key} cannot be {text:?}"),
        )),
        (_, other) => Err((
            "nf::config::wrong_type",
            format!("{key} does not take {}", article(other.type_str())),
        )),
    };
    match result {
        Ok(value) => Some(value),
        Err((code, message)) => {
            problems.push(
                Diagnostic::new(
                    code,
                    message,
                    format!("{key} is {}", field.kind().accepts()),
                )
                .at(place, "this value"),
            );
            None
        }
    }
}

fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

fn real(key: &str, kind: &Kind, text: &str) -> Result<Value, (&'static str, String)> {
    let Kind::Real {
        low,
        low_open,
        high,
        high_open,
    } = kind
    else {
        return Err(("nf::config::wrong_type", format!("{key} is not a number")));
    };
    let value: f32 = text.parse().unwrap_or(f32::NAN);
    let above = value > *low || (!low_open && value == *low);
    let below = value < *high || (!high_open && value == *high);
    // A subnormal would count as zero in the machine's arithmetic.
    let kept = value == 0.0 || value.is_normal();
    if above && below && kept {
        Ok(Value::Real(value))
    } else {
        Err((
            "nf::config::out_of_range",
            format!("{key} = {text} is out of range (FP32 {value:?})"),
        ))
    }
}

fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 64
        && text.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Key(&'static str, Kind);
    impl Field for Key {
        fn key(&self) -> &'static str {
            self.0
        }
        fn kind(&self) -> &Kind {
            &self.1
        }
        fn optional(&self) -> bool {
            self.0 == "name"
        }
    }

    fn fields() -> Vec<Key> {
        vec![
            Key("count", Kind::Integer(1..=10)),
            Key(
                "rate",
                Kind::Real {
                    low: 0.0,
                    low_open: true,
                    high: 1.0,
                    high_open: true,
                },
            ),
            Key("form", Kind::Choice(&["tanh", "erf"])),
            Key("name", Kind::Name),
        ]
    }

    fn codes(text: &str) -> Vec<(String, String)> {
        let mut problems = Problems::default();
        read_file(&SourceText::new("f", text), &fields(), &mut problems);
        problems
            .iter()
            .map(|d| (d.code.to_string(), d.places[0].0.to_string()))
            .collect()
    }

    #[test]
    fn every_mistake_is_reported_with_its_place() {
        let text = "count = 11\nrate = 1.0\n form = \"x\"\nname = 3\ncuont = 2\n";
        let mut found = codes(text);
        found.sort();
        let expected = [
            ("nf::config::not_a_choice", "f:3:9"),
            ("nf::config::out_of_range", "f:1:9"),
            ("nf::config::out_of_range", "f:2:8"),
            ("nf::config::unknown_key", "f:5:1"),
            ("nf::config::wrong_type", "f:4:8"),
        ];
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn syntax_errors_do_not_hide_other_mistakes() {
        for text in [
            "count = \nrate = 7\n",
            "count 3\nrate = 7\n",
            "rate = 7\nrate = 8\n",
        ] {
            let found = codes(text);
            let names: Vec<&str> = found.iter().map(|(code, _)| code.as_str()).collect();
            assert_eq!(
                names,
                ["nf::config::syntax", "nf::config::out_of_range"],
                "{text}"
            );
        }
        assert_eq!(codes("a b\n= 3\n\"\"\"\nx\n[").len(), 5);
    }

    #[test]
    fn numbers_are_checked_after_conversion_to_fp32() {
        assert_eq!(codes("rate = 0.99999999").len(), 1);
        assert_eq!(codes("rate = 1e-40").len(), 1);
        assert_eq!(codes("rate = nan").len(), 1);
        assert_eq!(codes("count = -3").len(), 1);
        assert_eq!(codes("count = 99999999999999999999999").len(), 1);
        assert_eq!(codes("count = 0x0A\nrate = 1e-3").len(), 0);
    }

    #[test]
    fn missing_keys_are_named_together() {
        let source = SourceText::new("f", "count = 1\nform = 3\n");
        let mut problems = Problems::default();
        let file = read_file(&source, &fields(), &mut problems);
        require_keys(&source, &fields(), |k| file.seen.contains(k), &mut problems);
        let last = problems.iter().last().unwrap();
        assert_eq!(last.message, "`f` does not give rate");
        assert_eq!(problems.iter().count(), 2);
    }

    #[test]
    fn arguments_take_bare_words() {
        let mut problems = Problems::default();
        let (key, setting) = read_argument("form=erf", &fields(), &mut problems).unwrap();
        assert_eq!((key, setting.value), ("form", Value::Text("erf".into())));
        let (_, setting) = read_argument("name=7b", &fields(), &mut problems).unwrap();
        assert_eq!(setting.value, Value::Text("7b".into()));
        assert!(problems.is_empty());
        assert!(read_argument("form", &fields(), &mut problems).is_none());
        assert!(read_argument("count=3x", &fields(), &mut problems).is_none());
        assert!(read_argument("name=../up", &fields(), &mut problems).is_none());
        assert_eq!(problems.iter().count(), 3);
    }

    #[test]
    fn nearest_finds_slips_only() {
        assert_eq!(nearest("heds", &["heads", "layers"]), Some("heads"));
        assert_eq!(nearest("zzz", &["heads", "layers"]), None);
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(1), "1");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123_456), "123,456");
    }
}
