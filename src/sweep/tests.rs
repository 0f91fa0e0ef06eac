use super::*;
use serde_json::json;

#[test]
fn every_combination_is_a_point() {
    let text = "models = [\"tiny\", \"small\"]\ndevices = [\"zcu102\"]\narray = [4, 8, 16]\n[set]\nlayers = [1, 2]\nrounding = [\"nearest\"]\n";
    let points = jobs(&parse(text).expect("reads")).expect("counts");
    assert_eq!(points.len(), 2 * 3 * 2);
    let last = points.last().expect("some");
    assert_eq!(last.point, "p0012");
    assert_eq!(last.set, ["layers=2", "rounding=nearest"]);
    assert_eq!((last.array, last.clock_mhz), (Some(16), None));
    let back: Job =
        serde_json::from_str(&serde_json::to_string(last).expect("writes")).expect("reads");
    assert_eq!(&back, last);
}

#[test]
fn mistakes_are_named() {
    let refused = |text: &str| parse(text).unwrap_err().to_string();
    assert!(refused("models = [\"tiny\"]\ndevice = []\n").contains("device"));
    assert!(refused("models = []\ndevices = [\"zcu102\"]\n").contains("models"));
    assert!(
        refused("models = [\"a\"]\ndevices = [\"b\"]\n[set]\nlayers = []\n").contains("set.layers")
    );
    let many = "models = [\"a\"]\ndevices = [\"b\"]\narray = [0]\n[set]\n".to_string()
        + &(0..14)
            .map(|k| format!("k{k} = [0, 1]\n"))
            .collect::<String>();
    let error = jobs(&parse(&many).expect("reads")).unwrap_err();
    assert!(matches!(error, SweepError::TooMany(n) if n > 9999));
}

fn result(point: &str, device: &str, fits: bool, lut: f64, ms: f64) -> serde_json::Value {
    let pair = |used: f64, available: f64| json!({"used": used, "available": available});
    json!({"point": point, "model": "m, 1", "set": "", "device": device, "settings": "array 8", "plan": {
        "fits": fits, "array": [8, 8], "cycles_per_sample": 1000, "ms_per_sample": ms,
        "lut": pair(lut, 100.0), "ff": pair(1.0, 100.0), "dsp": pair(1.0, 100.0), "bram36": pair(1.0, 100.0), "uram": pair(0.0, 0.0),
    }})
}

#[test]
fn the_front_holds_what_nothing_beats() {
    let all = [
        result("p0001", "a", true, 20.0, 4.0),
        result("p0002", "a", true, 50.0, 2.0),
        result("p0003", "a", true, 60.0, 3.0),
        result("p0004", "a", false, 130.0, 1.0),
        result("p0005", "b", true, 90.0, 9.0),
    ];
    let rows = rows(&all);
    assert_eq!(pareto_front(&rows), [0, 1, 4]);
    assert_eq!(rows[3].share(), 1.3);
    let text = csv(&rows);
    assert_eq!(text.lines().count(), 6);
    assert!(text.contains("p0002,\"m, 1\",,a,array 8,true,8,1000,2.000000,planned,50,100"));
    let shown = picture(&rows);
    assert_eq!(shown.matches("<title>").count(), 5);
}

#[test]
fn synthesised_figures_replace_planned_ones() {
    let mut one = result("p0001", "a", true, 20.0, 4.0);
    one["synth"] = json!({"lut": {"synthesised": 23.0}});
    let row = &rows(&[one])[0];
    assert_eq!(row.used[0], ("lut", 23.0, 100.0));
    assert_eq!(row.kind, "synthesised");
}

#[test]
fn the_array_script_names_every_job() {
    let script = slurm_script("points", 12);
    assert!(script.contains("--array=1-12") && script.contains("printf 'p%04d'"));
}
