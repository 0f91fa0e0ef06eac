//! Line plots for the report: plain SVG, the same bytes for the same numbers.

use std::fmt::Write as _;

/// Outer size and the frame of the axes.
const SIZE: (f64, f64) = (640.0, 340.0);
const FRAME: (f64, f64, f64, f64) = (64.0, 16.0, 430.0, 276.0);

/// Axis scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// Whole decades.
    Log,
}

/// One line with markers.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub colour: &'static str,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot<'a> {
    pub x_label: &'a str,
    pub y_label: &'a str,
    pub scale: Scale,
    pub series: &'a [Series],
}

/// Ticks from the lowest to the highest value, both ends included.
fn ticks(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let high = values.clone().fold(f64::MIN, f64::max);
    match scale {
        Scale::Log => {
            let low = values.fold(f64::MAX, f64::min).log10().floor() as i32;
            let high = (high.log10().ceil() as i32).max(low + 1);
            (low..=high).map(|power| 10f64.powi(power)).collect()
        }
        Scale::Linear => {
            let rough = (high / 6.0).max(1e-12);
            let decade = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0]
                .into_iter()
                .map(|m| m * decade)
                .find(|s| *s >= rough)
                .unwrap_or(10.0 * decade);
            let count = (high / step).ceil().max(1.0) as i32;
            (0..=count).map(|i| f64::from(i) * step).collect()
        }
    }
}

fn label(value: f64) -> String {
    if value >= 1e4 {
        return format!("{:.0}k", value / 1e3);
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Plot<'_> {
    /// The plot as an SVG element.
    pub fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let x_ticks = ticks(self.scale, all().map(|p| p.0));
        let y_ticks = ticks(self.scale, all().map(|p| p.1));
        let place = |value: f64, ticks: &[f64]| {
            let of = |v: f64| match self.scale {
                Scale::Linear => v,
                Scale::Log => v.log10(),
            };
            let (low, high) = (of(ticks[0]), of(ticks[ticks.len() - 1]));
            (of(value) - low) / (high - low)
        };
        let (left, top, width, height) = FRAME;
        let px = |x: f64| left + width * place(x, &x_ticks);
        let py = |y: f64| top + height * (1.0 - place(y, &y_ticks));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} \
             {}\" font-family=\"sans-serif\" font-size=\"12\">",
            SIZE.0, SIZE.1, SIZE.0, SIZE.1
        );
        for &tick in &x_ticks {
            let x = px(tick);
            let _ = write!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/><text \
                 x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + height,
                top + height + 16.0,
                label(tick)
            );
        }
        for &tick in &y_ticks {
            let y = py(tick);
            let _ = write!(
                out,
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text \
                 x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left + width,
                left - 6.0,
                y + 4.0,
                label(tick)
            );
        }
        let _ = write!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" \
             stroke=\"#666\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text \
             transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            left + width / 2.0,
            top + height + 36.0,
            self.x_label,
            top + height / 2.0,
            self.y_label
        );
        for (index, series) in self.series.iter().enumerate() {
            let points: Vec<(f64, f64)> =
                series.points.iter().map(|p| (px(p.0), py(p.1))).collect();
            let path: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let dash = if series.dashed {
                " stroke-dasharray=\"5 4\""
            } else {
                ""
            };
            let colour = series.colour;
            let _ = write!(
                out,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash} \
                 points=\"{}\"/>",
                path.join(" ")
            );
            for (x, y) in points {
                let _ = write!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
            }
            let y = top + 14.0 + 18.0 * index as f64;
            let x = left + width + 10.0;
            let _ = write!(
                out,
                "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" \
                 stroke-width=\"2\"{dash}/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 4.0,
                x + 18.0,
                y - 4.0,
                x + 24.0,
                series.name
            );
        }
        out + "</svg>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_inside_the_frame_and_ticks_cover_them() {
        assert_eq!(
            ticks(Scale::Log, [3.0, 700.0].into_iter()),
            [1.0, 10.0, 100.0, 1000.0]
        );
        assert_eq!(
            ticks(Scale::Linear, [0.5, 4.1].into_iter()),
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        );
        for scale in [Scale::Linear, Scale::Log] {
            let series = [Series {
                name: "a".into(),
                colour: "#000",
                dashed: false,
                points: vec![(1.0, 0.02), (50.0, 8.0)],
            }];
            let svg = Plot {
                x_label: "x",
                y_label: "y",
                scale,
                series: &series,
            }
            .svg();
            let circles: Vec<&str> = svg.split("<circle cx=\"").skip(1).collect();
            assert_eq!(circles.len(), 2);
            for circle in circles {
                let numbers: Vec<f64> = circle
                    .split('"')
                    .filter_map(|part| part.parse().ok())
                    .collect();
                let (x, y) = (numbers[0], numbers[1]);
                assert!(
                    (64.0..=494.0).contains(&x) && (16.0..=292.0).contains(&y),
                    "{x} {y}"
                );
            }
        }
    }
}
