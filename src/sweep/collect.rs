//! Results as a table and as a picture of what is worth building.

use serde_json::Value;

use crate::report::svg::{Anchor, Svg, step};

/// One finished point.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub point: String,
    pub model: String,
    pub device: String,
    /// Keys of the model that the sweep sets: with `model`, what is computed.
    pub set: String,
    /// What the sweep fixes of the machine, in words.
    pub settings: String,
    pub fits: bool,
    pub array: u64,
    pub cycles: u64,
    pub ms: f64,
    /// (resource, used, available); synthesised where the point was synthesised, planned otherwise.
    pub used: Vec<(&'static str, f64, f64)>,
    pub kind: &'static str,
    /// Why there is no plan; empty if there is.
    pub error: String,
}

const RESOURCES: [&str; 5] = ["lut", "ff", "dsp", "bram36", "uram"];

impl Row {
    /// Share of the scarcest resource, 0 to 1 where it fits.
    pub fn share(&self) -> f64 {
        let shares = self.used.iter().map(|(_, used, available)| {
            if *available > 0.0 {
                used / available
            } else if *used > 0.0 {
                f64::INFINITY
            } else {
                0.0
            }
        });
        shares.fold(0.0, f64::max)
    }
}

/// Rows of result objects, in the order given.
pub fn rows(results: &[Value]) -> Vec<Row> {
    results.iter().map(row).collect()
}

fn row(result: &Value) -> Row {
    let text = |key: &str| {
        let found = result.get(key).and_then(Value::as_str);
        found.unwrap_or_default().to_string()
    };
    let plan = result.get("plan").cloned().unwrap_or(Value::Null);
    let synth = result.get("synth").filter(|s| s.is_object());
    let number = |v: Option<&Value>, key: &str| v.and_then(|v| v.get(key)?.as_f64()).unwrap_or(0.0);
    let used = RESOURCES
        .into_iter()
        .map(|name| {
            let planned = plan.get(name);
            let used = match synth.and_then(|s| s.get(name)) {
                Some(pair) => number(Some(pair), "synthesised"),
                None => number(planned, "used"),
            };
            (name, used, number(planned, "available"))
        })
        .collect();
    Row {
        point: text("point"),
        model: text("model"),
        device: text("device"),
        set: text("set"),
        settings: text("settings"),
        fits: plan.get("fits").and_then(Value::as_bool).unwrap_or(false),
        array: plan
            .get("array")
            .and_then(|a| a.get(0)?.as_u64())
            .unwrap_or(0),
        cycles: number(Some(&plan), "cycles_per_sample") as u64,
        ms: number(Some(&plan), "ms_per_sample"),
        used,
        kind: if synth.is_some() {
            "synthesised"
        } else {
            "planned"
        },
        error: text("error"),
    }
}

/// A field of a CSV line.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// All rows as CSV with a head line.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "point,model,set,device,settings,fits,array,cycles_per_sample,ms_per_sample,kind",
    );
    for name in RESOURCES {
        text += &format!(",{name},{name}_available");
    }
    text += ",error\n";
    for r in rows {
        text += &format!(
            "{},{},{},{},{},{},{},{},{:.6},{}",
            field(&r.point),
            field(&r.model),
            field(&r.set),
            field(&r.device),
            field(&r.settings),
            r.fits,
            r.array,
            r.cycles,
            r.ms,
            r.kind
        );
        for (_, used, available) in &r.used {
            text += &format!(",{used},{available}");
        }
        text += &format!(",{}\n", field(&r.error));
    }
    text
}

/// Indices of the rows that fit and that no other fitting row of the same model and device beats in
/// both time and share.
pub fn pareto_front(rows: &[Row]) -> Vec<usize> {
    let better = |a: &Row, b: &Row| {
        (&a.device, &a.model, &a.set) == (&b.device, &b.model, &b.set)
            && a.ms <= b.ms
            && a.share() <= b.share()
            && (a.ms < b.ms || a.share() < b.share())
    };
    (0..rows.len())
        .filter(|&i| rows[i].fits && !rows.iter().any(|o| o.fits && better(o, &rows[i])))
        .collect()
}

const COLOURS: [&str; 8] = [
    "#3b7dd8", "#e07b39", "#5f9e4f", "#8a63b8", "#b8432f", "#3f7a70", "#c7a23c", "#6b6b6b",
];

/// Milliseconds per sample against the share of the scarcest resource; the points worth building are joined, per
/// device. Points that do not fit are hollow.
pub fn picture(rows: &[Row]) -> String {
    let (width, height, left, top) = (900.0, 520.0, 80.0, 60.0);
    let (right, bottom) = (width - 30.0, height - 60.0);
    let shown: Vec<&Row> = rows
        .iter()
        .filter(|r| r.ms > 0.0 && r.share().is_finite())
        .collect();
    let most_ms = shown.iter().map(|r| r.ms).fold(0.0, f64::max).max(1e-9) * 1.05;
    let most_share = shown.iter().map(|r| r.share()).fold(1.0, f64::max).min(3.0) * 1.02;
    let x = |share: f64| left + (right - left) * share.min(most_share) / most_share;
    let y = |ms: f64| bottom - (bottom - top) * ms / most_ms;
    let mut svg = Svg::new(width, height);
    svg.text(
        (left, 26.0),
        Anchor::Start,
        15,
        "Time against the scarcest resource",
    );
    let mut devices: Vec<&str> = rows.iter().map(|r| r.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let colour = |device: &str| {
        let at = devices.iter().position(|d| *d == device).unwrap_or(0);
        COLOURS[at % COLOURS.len()]
    };
    let legend: Vec<(&str, &str)> = devices.iter().map(|d| (colour(d), *d)).collect();
    svg.legend((left, 46.0), &legend);
    svg.line((left, bottom), (right, bottom), "#555");
    svg.line((left, bottom), (left, top), "#555");
    let share_step = step(most_share, 8.0);
    for k in 0..=(most_share / share_step) as usize {
        let at = k as f64 * share_step;
        svg.line((x(at), bottom), (x(at), bottom + 4.0), "#555");
        svg.text(
            (x(at), bottom + 17.0),
            Anchor::Middle,
            11,
            &format!("{:.0} %", 100.0 * at),
        );
    }
    let ms_step = step(most_ms, 8.0);
    for k in 0..=(most_ms / ms_step) as usize {
        let at = k as f64 * ms_step;
        svg.line((left - 4.0, y(at)), (left, y(at)), "#555");
        let digits = if ms_step < 0.01 {
            3
        } else if ms_step < 1.0 {
            2
        } else {
            0
        };
        svg.text(
            (left - 7.0, y(at) + 4.0),
            Anchor::End,
            11,
            &format!("{at:.digits$}"),
        );
    }
    svg.line((x(1.0), top), (x(1.0), bottom), "#bbb");
    svg.text(
        ((left + right) / 2.0, height - 18.0),
        Anchor::Middle,
        12,
        "share of the scarcest resource of the part",
    );
    svg.text((left - 7.0, top - 6.0), Anchor::End, 12, "ms/sample");
    let front = pareto_front(rows);
    let mut line: Vec<&Row> = front.iter().map(|i| &rows[*i]).collect();
    line.sort_by(|a, b| {
        let of = |r: &Row| (r.device.clone(), r.model.clone(), r.set.clone());
        of(a).cmp(&of(b)).then(a.share().total_cmp(&b.share()))
    });
    for pair in line.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if (&a.device, &a.model, &a.set) == (&b.device, &b.model, &b.set) {
            let (from, to) = ((x(a.share()), y(a.ms)), (x(b.share()), y(b.ms)));
            svg.line(from, to, colour(&a.device));
        }
    }
    for r in shown {
        let (px, py) = (x(r.share()), y(r.ms));
        let title = format!(
            "{}: {} {} on {}, {}x{} array, {:.3} ms {}",
            r.point, r.model, r.set, r.device, r.array, r.array, r.ms, r.settings
        );
        svg.titled((px - 4.0, py - 4.0), (8.0, 8.0), colour(&r.device), &title);
        if !r.fits {
            svg.rect((px - 2.5, py - 2.5), (5.0, 5.0), "#fff");
        }
    }
    svg.finish()
}
