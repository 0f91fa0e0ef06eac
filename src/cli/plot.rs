//! `nfgen plot`: validation curves of runs as a drawing.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;

use super::reference::problems;
use super::{Exit, Output};
use crate::diag::{Diagnostic, Problems};
use crate::reference::checkpoint::write_atomically;
use crate::reference::training::read_log;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    nfgen plot run -o loss.png\n  \
    nfgen plot run-10b run-7b run-5b --paper -o loss.svg")]
pub struct PlotArgs {
    /// Folders of runs, or log files
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// File to write: SVG or PNG by its ending
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Add the two curves of the paper's figure 2 (64 windows, one point per 1,000 samples)
    #[arg(long)]
    paper: bool,
}

/// Validation losses of the paper's GPU FP32 run, one per 1,000 samples (published, figure 2).
const PAPER_FP32: [f64; 80] = [
    2.5016, 2.2983, 2.1564, 2.1207, 2.0057, 1.9934, 1.9442, 1.9270, 1.8783, 1.9016, 1.8307, 1.8276,
    1.8125, 1.7794, 1.7670, 1.7843, 1.7465, 1.7487, 1.7716, 1.7445, 1.7450, 1.7307, 1.7209, 1.6947,
    1.6981, 1.6797, 1.7012, 1.6872, 1.7039, 1.6855, 1.6734, 1.6306, 1.6489, 1.6645, 1.6471, 1.6771,
    1.6538, 1.6332, 1.6627, 1.6428, 1.6255, 1.6117, 1.6214, 1.6248, 1.6142, 1.5971, 1.5936, 1.6029,
    1.5824, 1.5995, 1.6008, 1.6073, 1.5823, 1.6007, 1.5688, 1.5726, 1.5938, 1.5636, 1.5951, 1.5661,
    1.5596, 1.5769, 1.5646, 1.5524, 1.5531, 1.5507, 1.5284, 1.5367, 1.5343, 1.5419, 1.5334, 1.5307,
    1.5218, 1.5286, 1.5350, 1.5277, 1.5248, 1.5269, 1.5229, 1.5224,
];
/// The same of its CPU BF16W run.
const PAPER_BF16W: [f64; 80] = [
    2.5905, 2.3956, 2.2953, 2.1821, 2.1231, 2.0800, 2.0309, 1.9539, 1.9654, 1.9318, 1.8962, 1.8815,
    1.8710, 1.8689, 1.8669, 1.8464, 1.8097, 1.8077, 1.7611, 1.7731, 1.7731, 1.7780, 1.7936, 1.7875,
    1.7372, 1.7209, 1.7284, 1.6939, 1.7019, 1.6825, 1.6772, 1.7043, 1.6693, 1.6786, 1.6662, 1.6636,
    1.6622, 1.6457, 1.6578, 1.6582, 1.6433, 1.6407, 1.6404, 1.6324, 1.6149, 1.6102, 1.6182, 1.6110,
    1.6064, 1.6178, 1.6070, 1.5986, 1.5961, 1.5885, 1.5836, 1.5751, 1.5768, 1.5774, 1.5710, 1.5653,
    1.5682, 1.5659, 1.5667, 1.5582, 1.5570, 1.5556, 1.5550, 1.5533, 1.5513, 1.5471, 1.5467, 1.5464,
    1.5447, 1.5457, 1.5450, 1.5426, 1.5432, 1.5437, 1.5438, 1.5437,
];

struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

pub fn run(args: PlotArgs, out: &Output) -> Result<Exit, Problems> {
    let png = match args.output.extension().and_then(|e| e.to_str()) {
        Some("svg") => false,
        Some("png") => true,
        _ => {
            return Err(Diagnostic::new(
                "nf::cli::usage",
                format!(
                    "`{}` ends neither in .svg nor in .png",
                    args.output.display()
                ),
                "use -o loss.svg or -o loss.png",
            )
            .into());
        }
    };
    let mut series = Vec::new();
    for run in &args.runs {
        let points = read_log(run).map_err(problems)?;
        let name = run
            .file_stem()
            .map_or_else(|| run.display().to_string(), |n| n.to_string_lossy().into());
        series.push(Series {
            name,
            points: points.iter().map(|&(s, l)| (f64::from(s), l)).collect(),
        });
    }
    if args.paper {
        for (name, values) in [
            ("paper, FP32 (GPU)", &PAPER_FP32),
            ("paper, BF16W (CPU)", &PAPER_BF16W),
        ] {
            let points = values
                .iter()
                .enumerate()
                .map(|(i, &l)| (1000.0 * (i + 1) as f64, l))
                .collect();
            series.push(Series {
                name: name.into(),
                points,
            });
        }
    }
    series.retain(|s| s.points.iter().any(|p| p.1.is_finite()));
    if series.is_empty() {
        return Err(Diagnostic::new(
            "nf::reference::invalid",
            "the logs hold no validation losses yet",
            "train for at least --eval-every steps first",
        )
        .into());
    }
    let svg = draw(&series);
    let bytes = if png {
        rasterise(&svg)?
    } else {
        svg.into_bytes()
    };
    write_atomically(&args.output, &bytes).map_err(problems)?;
    let names: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
    out.object(&json!({ "output": args.output, "series": names }));
    out.say(format!(
        "wrote {} ({} curves)",
        args.output.display(),
        series.len()
    ));
    Ok(Exit::Done)
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// A step of 1, 2 or 5 times a power of ten that divides `range` into about `parts`.
fn tick(range: f64, parts: f64) -> f64 {
    let raw = (range / parts).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= raw);
    factor.unwrap_or(10.0) * power
}

fn draw(series: &[Series]) -> String {
    let points = || {
        series
            .iter()
            .flat_map(|s| &s.points)
            .filter(|p| p.1.is_finite())
    };
    let x_max = points().map(|p| p.0).fold(1.0, f64::max);
    let y_high = points().map(|p| p.1).fold(f64::MIN, f64::max);
    let y_low = points().map(|p| p.1).fold(f64::MAX, f64::min);
    let y_tick = tick((y_high - y_low).max(0.01), 6.0);
    let y_min = (y_low / y_tick).floor() * y_tick;
    let y_max = ((y_high / y_tick).ceil() * y_tick).max(y_min + y_tick);
    let x_at = |x: f64| LEFT + x / x_max * (WIDTH - LEFT - RIGHT);
    let y_at = |y: f64| HEIGHT - BOTTOM - (y - y_min) / (y_max - y_min) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    let digits = (-y_tick.log10().floor()).max(0.0) as usize;
    for i in 0..=((y_max - y_min) / y_tick).round() as usize {
        let value = y_min + i as f64 * y_tick;
        let y = y_at(value);
        line(format!(
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
            WIDTH - RIGHT
        ));
        line(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.digits$}</text>",
            LEFT - 6.0,
            y + 4.0
        ));
    }
    let x_tick = tick(x_max, 8.0);
    for i in 0..=(x_max / x_tick) as usize {
        let value = i as f64 * x_tick;
        let x = x_at(value);
        line(format!(
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            HEIGHT - BOTTOM + 18.0
        ));
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    line(format!(
        "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">steps</text>",
        HEIGHT - 12.0
    ));
    let half = HEIGHT / 2.0;
    line(format!(
        "<text x=\"14\" y=\"{half:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {half:.1})\">validation loss (nats)</text>"
    ));
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let mut path = String::new();
        for p in s.points.iter().filter(|p| p.1.is_finite()) {
            // Writing to a String cannot fail.
            let _ = write!(path, "{:.1},{:.1} ", x_at(p.0), y_at(p.1));
        }
        line(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>",
            path.trim_end()
        ));
        let y = TOP + 16.0 + 18.0 * i as f64;
        let x = WIDTH - RIGHT - 200.0;
        line(format!(
            "<line x1=\"{x}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>",
            y - 4.0,
            x + 24.0,
            y - 4.0
        ));
        let name = s.name.replace('&', "&amp;").replace('<', "&lt;");
        line(format!(
            "<text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
            x + 30.0
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Pixels of a PNG per unit of the drawing.
const SCALE: f32 = 2.0;

/// The drawing as PNG. The font comes with the program, so the picture is the same everywhere.
fn rasterise(svg: &str) -> Result<Vec<u8>, Diagnostic> {
    use resvg::{tiny_skia, usvg};
    let wrong = |what: String| {
        Diagnostic::new(
            "nf::reference::invalid",
            format!("the drawing cannot become a PNG: {what}"),
            "use -o loss.svg",
        )
    };
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| face.families.first());
    if let Some(family) = family.map(|(name, _)| name.clone()) {
        fonts.set_sans_serif_family(family);
    }
    let tree = usvg::Tree::from_str(svg, &options).map_err(|e| wrong(e.to_string()))?;
    let size = |x: f64| (x as f32 * SCALE) as u32;
    let mut picture = tiny_skia::Pixmap::new(size(WIDTH), size(HEIGHT))
        .ok_or_else(|| wrong("no memory".into()))?;
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut picture.as_mut());
    picture.encode_png().map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_shows_curves_and_letters() {
        let series = [Series {
            name: "one".into(),
            points: vec![(0.0, 3.0), (5.0, 2.5)],
        }];
        let svg = draw(&series);
        let png = rasterise(&svg).unwrap();
        let picture = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!((picture.width(), picture.height()), (1720, 960));
        // The first curve's colour is somewhere, and dark letters are below the axis.
        let blue = picture
            .pixels()
            .iter()
            .filter(|p| (p.red(), p.green(), p.blue()) == (0, 0x72, 0xb2));
        assert!(blue.count() > 500);
        let below = &picture.pixels()[1720 * 900..];
        assert!(below.iter().filter(|p| p.red() < 90).count() > 50);
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(tick(80_000.0, 8.0), 10_000.0);
        assert!((tick(1.1, 6.0) - 0.2).abs() < 1e-12);
    }

    #[test]
    fn every_series_is_drawn_inside_the_frame() {
        let series = [
            Series {
                name: "a & b".into(),
                points: vec![(0.0, 3.0), (10.0, 2.0), (20.0, f64::NAN)],
            },
            Series {
                name: "one".into(),
                points: vec![(5.0, 2.5)],
            },
        ];
        let svg = draw(&series);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains("a &amp; b") && !svg.contains("NaN"));
        for pair in svg
            .split("points=\"")
            .skip(1)
            .flat_map(|s| s.split('"').next().unwrap_or("").split(' '))
        {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y));
        }
    }
}
