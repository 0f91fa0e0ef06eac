//! A small SVG writer: rectangles, lines and text on a white ground.

use std::fmt::Write;

/// A picture under construction, sizes in pixels.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Markup characters of a text.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// At most two decimals, none where they are zero.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Svg {
            width,
            height,
            body: String::new(),
        }
    }

    fn push(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(line);
        self.body.push('\n');
    }

    pub fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str) {
        self.push(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"/>",
            short(x),
            short(y),
            short(w),
            short(h)
        ));
    }

    /// A rectangle with a thin border and a title that shows under the pointer.
    pub fn titled(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str, title: &str) {
        self.push(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\" stroke=\"#fff\" stroke-width=\"0.5\"><title>{}</title></rect>",
            short(x), short(y), short(w), short(h), escape(title)
        ));
    }

    /// Many rectangles of one colour, as one path: `(x, y, width, height)`.
    pub fn rects(&mut self, fill: &str, list: &[[f64; 4]]) {
        if list.is_empty() {
            return;
        }
        let path: String = list
            .iter()
            .map(|[x, y, w, h]| {
                format!(
                    "M{} {}h{}v{}h-{}z",
                    short(*x),
                    short(*y),
                    short(*w),
                    short(*h),
                    short(*w)
                )
            })
            .collect();
        self.push(format_args!("<path fill=\"{fill}\" d=\"{path}\"/>"));
    }

    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
        self.push(format_args!(
            "<path d=\"M{} {}L{} {}\" stroke=\"{colour}\" stroke-width=\"1\"/>",
            short(x1),
            short(y1),
            short(x2),
            short(y2)
        ));
    }

    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, size: u32, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if size > 13 {
            " font-weight=\"bold\""
        } else {
            ""
        };
        self.push(format_args!(
            "<text x=\"{}\" y=\"{}\" font-size=\"{size}\"{anchor}{weight}>{}</text>",
            short(x),
            short(y),
            escape(text)
        ));
    }

    /// A row of coloured squares with names; returns the x behind the last.
    pub fn legend(&mut self, (x, y): (f64, f64), entries: &[(&str, &str)]) {
        let mut at = x;
        for (fill, name) in entries {
            self.rect((at, y - 9.0), (10.0, 10.0), fill);
            self.text((at + 14.0, y), Anchor::Start, 11, name);
            at += 14.0 + 6.4 * name.chars().count() as f64 + 16.0;
        }
    }

    pub fn finish(self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" \
             font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n{}</svg>\n",
            self.body,
            w = short(self.width),
            h = short(self.height)
        )
    }
}

/// A step for about `parts` axis marks over `range`: 1, 2 or 5 times a power of ten.
pub fn step(range: f64, parts: f64) -> f64 {
    let raw = (range / parts).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(raw.log10().floor());
    let scaled = raw / power;
    let nice = [1.0, 2.0, 5.0, 10.0];
    power
        * nice
            .into_iter()
            .find(|n| *n >= scaled - 1e-9)
            .unwrap_or(10.0)
}
